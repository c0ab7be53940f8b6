//! Determines which bytes of a file are in the page cache, with cachestat(2) (Linux 6.5).
//!
//! cachestat counts a page as cached once its read has begun, so a range that was just requested counts as cached, and need not be
//! requested again. The function [`pages`] says whether the bytes have arrived.
//!
//! ```text
//!   cached(file, 0..16M)   Some(16M): everything    Some(4M): a part    None: the kernel does not say
//!   absent(file, 0..16M)   [8M..16M]                                    the ranges that are worth a call
//! ```
//! cachestat works only for files that the caller owns or may write. If the caller neither owns the file nor may write it, cachestat fails
//! with EPERM, and mincore(2) claims that every page is cached. Then the result is `None`, and the caller reads everything.

use rustix::fs::{Access, AtFlags, CWD, accessat, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// The system call number of cachestat, the same on every architecture except Alpha.
const CACHESTAT: libc::c_long = 451;
/// Shorter ranges are not split further: at least this many bytes are requested, so that a file with every second page
/// cached needs few calls of readahead.
const MIN_SPLIT: u64 = 128 << 10;

#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    /// Pages that are dirty, in writeback, evicted, recently evicted.
    _others: [u64; 4],
}

#[repr(C)]
struct AskedRange {
    offset: u64,
    len: u64,
}

/// Returns how many pages of a range are in the page cache, including pages that are being read.
#[allow(unsafe_code)] // No crate has cachestat.
pub fn cached_pages(file: impl AsFd, range: &Range<u64>) -> io::Result<u64> {
    let mut counts = CacheCounts::default();
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        // For the kernel, 0 means up to the end of the file.
        return Ok(0);
    }
    let asked = AskedRange {
        offset: range.start,
        len,
    };
    // SAFETY: both structures have the kernel's layout and live through the call; the kernel writes only to `counts`.
    let done = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_fd().as_raw_fd(),
            &raw const asked,
            &raw mut counts,
            0,
        )
    };
    if done == 0 {
        Ok(counts.cached)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns how many bytes of `range` are in the page cache, or `None` if the kernel does not report this. The result is the whole length
/// only if every page is cached; a page that is only partly in the range may be counted with all its bytes.
pub fn cached(file: impl AsFd, range: &Range<u64>) -> io::Result<Option<u64>> {
    let len = range.end.saturating_sub(range.start);
    let pages = crate::whole_pages(range);
    let there = match cached_pages(&file, &pages) {
        Ok(there) => there,
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => return Ok(None),
            // ENOSYS on old kernels, and EOPNOTSUPP for files on huge pages.
            Some(libc::ENOSYS | libc::EOPNOTSUPP) if may_ask(&file) => {
                let there = self::pages(&file, &pages)?;
                there.into_iter().filter(|there| *there).count() as u64
            }
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => return Ok(None),
            _ => return Err(error),
        },
    };
    let bytes = there * crate::page_bytes();
    let is_whole = bytes >= pages.end - pages.start;
    Ok(Some(match is_whole {
        true => len,
        false => bytes.min(len.saturating_sub(1)),
    }))
}

/// Whether mincore(2) answers for this file instead of claiming that everything is cached.
fn may_ask(file: impl AsFd) -> bool {
    let owner = fstat(&file).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    let path = foreread_os::open::descriptor_path(&file);
    owner || accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Returns whether the byte at the offset `at` is in memory, or `None` if the kernel does not report this.
pub fn is_there(file: impl AsFd, at: u64) -> Option<bool> {
    let pages = may_ask(&file).then(|| pages(&file, &(at..at + 1)))?;
    pages.ok()?.first().copied()
}

/// Returns, for each page of `range`, whether its bytes are in memory, by mincore(2) on a private mapping. For files that the caller
/// neither owns nor may write, the kernel claims that all pages are in memory. The mapped bytes are never accessed, so if another
/// program truncates the file, this process is not killed.
#[allow(unsafe_code)] // rustix has no mincore.
pub fn pages(file: impl AsFd, range: &Range<u64>) -> io::Result<Vec<bool>> {
    let range = crate::whole_pages(range);
    let len = range.end.saturating_sub(range.start);
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut pages = vec![0_u8; len.div_ceil(crate::page_bytes() as usize)];
    if pages.is_empty() {
        return Ok(Vec::new());
    }
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let place = std::ptr::null_mut();
    // SAFETY: the kernel chooses the address, so no mapping is replaced, and no reference to the bytes is created. The kernel writes one
    // byte for each page. The mapping is removed before this returns.
    let done = unsafe {
        let start = mmap(place, len, ProtFlags::READ, flags, file, range.start)?;
        let done = match libc::mincore(start, len, pages.as_mut_ptr().cast()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        munmap(start, len)?;
        done
    };
    done.map(|()| pages.into_iter().map(|page| page & 1 == 1).collect())
}

/// Starts to read the parts of `range` that are not in the page cache, in calls of at most `piece` bytes. Returns the parts that were not
/// cached.
pub fn fetch_absent(file: impl AsFd, range: Range<u64>, piece: u64) -> io::Result<Vec<Range<u64>>> {
    let parts = absent(&file, range)?;
    for part in &parts {
        crate::readahead::start(&file, part.clone(), piece)?;
    }
    Ok(parts)
}

/// Returns the parts of `range` that are not in the page cache, found by bisection: a part that is completely cached or absent costs one
/// call. A part of [`MIN_SPLIT`] bytes is returned as a whole if any of its pages is absent. If the kernel does not report cached pages,
/// the result is the whole range. The parts consist of whole pages, and are in the order of the file.
pub fn absent(file: impl AsFd, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut parts = vec![crate::whole_pages(&range)];
    while let Some(part) = parts.pop() {
        let len = part.end.saturating_sub(part.start);
        let there = cached(&file, &part)?.unwrap_or(0);
        if len == 0 || there >= len {
            continue;
        }
        if there == 0 || len <= MIN_SPLIT {
            match found.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => found.push(part),
            }
            continue;
        }
        let middle = (part.start + len / 2).next_multiple_of(MIN_SPLIT);
        let middle = match middle < part.end {
            true => middle,
            false => part.start + MIN_SPLIT / 2,
        };
        parts.push(middle..part.end);
        parts.push(part.start..middle);
    }
    Ok(found)
}
