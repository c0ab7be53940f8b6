//! Which bytes of a file are in the page cache, by cachestat(2) (Linux 6.5).
//!
//! A page counts from the moment that its read has begun: a range that was just asked for is cached in this sense, and need not
//! be asked for again. Whether the bytes have arrived is what [`crate::mapping::Mapping::arrived`] answers.
//!
//! ```text
//!   cached(file, 0..16M)   Some(16M): everything    Some(4M): a part    None: the kernel does not say
//!   absent(file, 0..16M)   [8M..16M]                                    the ranges that are worth a call
//! ```
//! The kernel answers for files that the caller owns or may write. For others cachestat fails with EPERM, and mincore(2) claims that
//! every page is there: both give `None`, and the caller reads everything.

use crate::mapping::Mapping;
use rustix::fs::{Access, AtFlags, CWD, accessat, fstat};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// The number of cachestat, the same on every machine but Alpha.
const CACHESTAT: libc::c_long = 451;
/// Ranges that are not split further: at least this many bytes are asked for, so that a file with every second page cached
/// costs few calls of readahead.
const MIN_SPLIT: u64 = 128 << 10;

/// What cachestat counts, in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// In the cache, those that are being read included.
    pub cached: u64,
    /// To be written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Were in the cache and are not any more.
    pub evicted: u64,
    /// Of these, those that left a short time ago: the memory is too small for what is used.
    pub recently_evicted: u64,
}

#[repr(C)]
struct AskedRange {
    offset: u64,
    len: u64,
}

/// The counts of a range.
///
/// # Errors
/// ENOSYS: a kernel before 6.5. EPERM: the file belongs to another user, and the caller may not write it.
#[allow(unsafe_code)] // No crate has cachestat.
pub fn counts(file: impl AsFd, range: &Range<u64>) -> io::Result<CacheCounts> {
    let mut counts = CacheCounts::default();
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        // For the kernel 0 means: up to the end of the file.
        return Ok(counts);
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
        Ok(counts)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes of `range` that are in the cache; nothing where the kernel does not say. It is the whole length only if every page is
/// there; a page that is partly in the range may count whole.
///
/// # Errors
/// The file cannot be asked at all.
pub fn cached(file: impl AsFd, range: &Range<u64>) -> io::Result<Option<u64>> {
    let len = range.end.saturating_sub(range.start);
    let pages = crate::whole_pages(range);
    match counts(&file, &pages) {
        Ok(counts) => Ok(Some(bytes_of(counts.cached, &pages, len))),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => Ok(None),
            // ENOSYS of old kernels, and EOPNOTSUPP of files on huge pages.
            Some(libc::ENOSYS | libc::EOPNOTSUPP) if may_ask(&file) => {
                by_mincore(&file, &pages, len).map(Some)
            }
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Bytes of a range of `len` whose pages are `pages`, of which `there` are cached.
fn bytes_of(there: u64, pages: &Range<u64>, len: u64) -> u64 {
    let bytes = there * crate::page_bytes();
    if bytes >= pages.end - pages.start {
        len
    } else {
        bytes.min(len.saturating_sub(1))
    }
}

/// Whether mincore(2) answers for this file instead of claiming that everything is there.
fn may_ask(file: impl AsFd) -> bool {
    let owner = fstat(&file).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    let path = foreread_os::open::descriptor_path(&file);
    owner || accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn by_mincore(file: impl AsFd, pages: &Range<u64>, len: u64) -> io::Result<u64> {
    if len == 0 {
        return Ok(0);
    }
    let there = Mapping::new(&file, pages.clone())?.resident(pages)?;
    let there = there.into_iter().filter(|there| *there).count() as u64;
    Ok(bytes_of(there, pages, len))
}

/// Begins to read what of `range` is not in the cache, in calls of at most `piece` bytes, and gives those parts.
///
/// # Errors
/// As of [`absent`] and [`crate::readahead::start`].
pub fn fetch_absent(file: impl AsFd, range: Range<u64>, piece: u64) -> io::Result<Vec<Range<u64>>> {
    let parts = absent(&file, range)?;
    parts
        .iter()
        .try_for_each(|part| crate::readahead::start(&file, part.clone(), piece).map(|_| ()))?;
    Ok(parts)
}

/// The parts of `range` that are not in the cache, found by halves: a part that is all there costs one call, a part that is all
/// absent one. A part of [`MIN_SPLIT`] bytes of which something is absent is given whole. Where the kernel does not say, it is
/// the whole range. The parts are whole pages, in order.
///
/// # Errors
/// The file cannot be asked at all.
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
        let middle = (part.start + len / 2)
            .next_multiple_of(MIN_SPLIT)
            .min(part.end);
        let middle = if middle == part.end {
            part.start + MIN_SPLIT / 2
        } else {
            middle
        };
        parts.push(middle..part.end);
        parts.push(part.start..middle);
    }
    Ok(found)
}
