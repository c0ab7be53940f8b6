//! A mapping of a file of our own: asked which pages are there, and filled at once.
//!
//! ```text
//!   Mapping::new(file, 5000..20000)   maps the pages 4096..20480
//!   resident(5000..9000)              [page of 4096, page of 8192]: bytes that have arrived
//!   populate(5000..9000)              returns when both pages are there; a read error is an error here
//! ```
//! `populate` is MADV_POPULATE_READ (Linux 5.14): page faults without a fault for each page and without a copy. Another process's
//! mapping refuses it; [`crate::process`] has what it takes instead.
//!
//! The mapped bytes are never looked at, so a file that another program cuts short meanwhile cannot end this process.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

/// Pages of a file, mapped for reading.
#[derive(Debug)]
pub struct Mapping {
    start: *mut c_void,
    /// The mapped part of the file, in whole pages.
    range: Range<u64>,
}

// The address is only passed to the kernel, which takes it from any thread.
#[allow(unsafe_code)]
// SAFETY: no method reads or writes the mapped bytes, and munmap happens once, in `drop`.
unsafe impl Send for Mapping {}
#[allow(unsafe_code)]
// SAFETY: as above; madvise and mincore may run in several threads at once.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `range`, made larger to whole pages.
    ///
    /// # Errors
    /// The range is empty or too long for this machine, or the file cannot be mapped.
    #[allow(unsafe_code)]
    pub fn new(file: impl AsFd, range: Range<u64>) -> io::Result<Mapping> {
        let range = crate::whole_pages(&range);
        let len = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the place, so no mapping is replaced, and the bytes are never looked at.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                range.start,
            )
        }?;
        Ok(Mapping { start, range })
    }

    /// Address and length of the pages of `range` that are mapped.
    fn part(&self, range: &Range<u64>) -> (*mut c_void, usize) {
        let range = crate::whole_pages(range);
        let start = range.start.clamp(self.range.start, self.range.end);
        let end = range.end.clamp(start, self.range.end);
        let skipped = (start - self.range.start) as usize;
        (
            self.start.wrapping_byte_add(skipped),
            (end - start) as usize,
        )
    }

    /// For each page of `range`: whether its bytes are in memory. For files that the caller neither owns nor may write, the
    /// kernel claims that all are.
    ///
    /// # Errors
    /// There is no memory for the answer.
    #[allow(unsafe_code)] // rustix has no mincore.
    pub fn resident(&self, range: &Range<u64>) -> io::Result<Vec<bool>> {
        let (start, len) = self.part(range);
        let mut pages = vec![0_u8; len.div_ceil(crate::page_bytes() as usize)];
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the part is inside the mapping, and the kernel writes one byte for each of its pages.
        let done = unsafe { libc::mincore(start, len, pages.as_mut_ptr().cast()) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pages.into_iter().map(|page| page & 1 == 1).collect())
    }

    /// Whether all bytes of `range` have arrived.
    ///
    /// # Errors
    /// As of [`Mapping::resident`].
    pub fn arrived(&self, range: &Range<u64>) -> io::Result<bool> {
        Ok(self.resident(range)?.into_iter().all(|there| there))
    }

    /// Reads the pages of `range` that are absent, and returns when they are there.
    ///
    /// # Errors
    /// EFAULT: the storage failed, or the range is beyond the end of the file. EINVAL: a kernel before 5.14.
    #[allow(unsafe_code)]
    pub fn populate(&self, range: &Range<u64>) -> io::Result<()> {
        let (start, len) = self.part(range);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the part is inside the mapping, and this advice changes no bytes.
        Ok(unsafe { madvise(start, len, Advice::LinuxPopulateRead) }?)
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no reference to its bytes was ever made.
        let _ = unsafe { munmap(self.start, (self.range.end - self.range.start) as usize) };
    }
}
