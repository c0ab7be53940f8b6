//! Ranges of a file into the page cache.
//!
//! readahead(2) reads at most the larger of the device's `read_ahead_kb` and `max_sectors_kb`, cuts the rest off, and reports
//! success. So a range goes out in pieces:
//!
//! ```text
//!   start(file, 1M..20M, piece 8M)   readahead 1M+8M, 9M+8M, 17M+3M
//! ```
//! The call returns when the requests are with the device, not when the bytes are there. It waits for the file system's own
//! data (where the bytes of the file are), and while the queue of the device is full. Pages that are cached are not read again.

use foreread_os::host::Host;
use foreread_os::host::devices::Device;
use rustix::fs::{Advice, fadvise};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// What is read at once where no setting can be found: Linux' default of `read_ahead_kb`.
pub const DEFAULT_PIECE_BYTES: u64 = 128 << 10;

/// The most bytes that one call of readahead(2) reads of a file on this device.
#[must_use]
pub fn piece_of(device: &Device) -> u64 {
    let page = crate::page_bytes();
    let piece = device.read_ahead.max(device.max_request).unwrap_or(0);
    // A setting of 0 leaves what the file system asks for at once, which no file says.
    if piece < page {
        DEFAULT_PIECE_BYTES
    } else {
        piece / page * page
    }
}

/// The most bytes that one call of readahead(2) reads of `file`.
#[must_use]
pub fn piece_bytes(file: impl AsFd) -> u64 {
    let device = Host::here().device_of_file(file);
    device.map_or(DEFAULT_PIECE_BYTES, |device| piece_of(&device))
}

/// Begins to read `range`, in pieces of at most `piece` bytes ([`piece_bytes`]). Gives the number of calls.
///
/// # Errors
/// The file is not open for reading, or its file system has no page cache (EINVAL: a pipe, a socket, some pseudo files).
#[allow(unsafe_code)] // rustix has no readahead.
pub fn start(file: impl AsFd, range: Range<u64>, piece: u64) -> io::Result<u64> {
    let (file, piece) = (file.as_fd().as_raw_fd(), piece.max(crate::page_bytes()));
    let (mut at, mut calls) = (range.start, 0);
    while at < range.end {
        let len = piece.min(range.end - at);
        let offset = libc::off64_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the descriptor is borrowed for the whole call, and the kernel gets no address.
        let done =
            unsafe { libc::readahead(file, offset, usize::try_from(len).unwrap_or(usize::MAX)) };
        if done < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        (at, calls) = (at + len, calls + 1);
    }
    Ok(calls)
}

/// The bytes between two that [`wait`] looks at. Chosen: a device completes the requests of a range in about their order, and a
/// request is seldom longer.
const LOOK_BYTES: u64 = 1 << 20;

/// Switches the kernel's own readahead off for this open file, so that [`wait`] reads no more than it looks at.
///
/// # Errors
/// As of fadvise(2).
pub fn only_as_asked(file: impl AsFd) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::Random)?)
}

/// Waits until `range`, which [`start`] has begun to read, has arrived: reads one byte of it in each MiB, and the last. What is
/// not there, because it was dropped meanwhile or never begun, is read by that.
///
/// # Errors
/// The storage failed. The end of the file within the range is no error.
pub fn wait(file: impl AsFd, range: &Range<u64>) -> io::Result<()> {
    let mut byte = [0];
    let mut at = range.start;
    while at < range.end {
        at = (at + LOOK_BYTES).min(range.end);
        rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut byte, at - 1))?;
    }
    Ok(())
}
