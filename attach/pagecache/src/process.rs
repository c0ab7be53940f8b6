//! Mappings of another process are read ahead: process_madvise(2) with MADV_WILLNEED.
//!
//! ```text
//!   Process::open(4711)   a descriptor: the number cannot become another process's meanwhile
//!   will_need(&[0x7f00_0000_0000..0x7f00_0100_0000])
//! ```
//! It begins to read the pages of the files that are mapped there, like readahead(2) on the file. POPULATE_READ is refused for
//! another process; on a mapping of our own ([`crate::mapping`]) it works.

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// Ranges of one call, as UIO_MAXIOV of Linux.
const MAX_RANGES: usize = 1024;

/// Another process.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process `pid`.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn open(pid: u32) -> io::Result<Process> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Process(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Begins to read the files below these addresses. Gives the bytes that the kernel took; a range that is not mapped ends it.
    ///
    /// # Errors
    /// EPERM: CAP_SYS_NICE and the right to trace the process are needed. ESRCH: it has ended. ENOMEM: nothing is mapped there.
    #[allow(unsafe_code)] // No crate has process_madvise.
    pub fn will_need(&self, ranges: &[Range<usize>]) -> io::Result<usize> {
        let parts = |ranges: &[Range<usize>]| -> Vec<libc::iovec> {
            let part = |r: &Range<usize>| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(r.start),
                iov_len: r.end.saturating_sub(r.start),
            };
            ranges.iter().map(part).collect()
        };
        let mut taken = 0;
        for some in ranges.chunks(MAX_RANGES) {
            let vector = parts(some);
            let asked: usize = vector.iter().map(|part| part.iov_len).sum();
            // SAFETY: the vector lives through the call. Its addresses are the other process's, and are not used here.
            let done = unsafe {
                let number = libc::SYS_process_madvise;
                libc::syscall(
                    number,
                    self.0.as_raw_fd(),
                    vector.as_ptr(),
                    vector.len(),
                    libc::MADV_WILLNEED,
                    0,
                )
            };
            let Ok(done) = usize::try_from(done) else {
                return if taken > 0 {
                    Ok(taken)
                } else {
                    Err(io::Error::last_os_error())
                };
            };
            taken += done;
            if done < asked {
                break;
            }
        }
        Ok(taken)
    }
}
