//! Reads ranges of a file into the page cache.
//!
//! readahead(2) reads at most the larger of the device's `read_ahead_kb` and `max_sectors_kb`, drops the rest, and reports
//! success. So this module reads a range by several calls:
//!
//! ```text
//!   start(file, 1M..20M, piece 8M)   readahead 1M+8M, 9M+8M, 17M+3M
//! ```
//! The call returns when the requests have been submitted to the device, not when the bytes have arrived. The call waits while the file
//! system reads its metadata (which says where the bytes of the file are), and while the queue of the device is full. Cached pages are not
//! read again.

use foreread_os::host::Host;
use foreread_os::host::devices::Device;
use rustix::fs::{Advice, fadvise};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Maximum number of bytes per call if the device's setting cannot be read: Linux' default for `read_ahead_kb`.
pub const DEFAULT_PIECE_BYTES: u64 = 128 << 10;

/// Returns the largest number of bytes that one call of readahead(2) reads from a file on this device.
pub fn piece_of(device: &Device) -> u64 {
    let page = crate::page_bytes();
    let piece = device.read_ahead.max(device.max_request).unwrap_or(0);
    // With a setting of 0, the file system's own request size applies, which no file reports.
    if piece < page {
        DEFAULT_PIECE_BYTES
    } else {
        piece / page * page
    }
}

/// Returns the largest number of bytes that one call of readahead(2) reads from `file`.
pub fn piece_bytes(file: impl AsFd) -> u64 {
    let device = Host::here().device_of_file(file);
    device.map_or(DEFAULT_PIECE_BYTES, |device| piece_of(&device))
}

/// Starts to read `range`, with calls of readahead(2) for at most `piece` bytes each ([`piece_bytes`]). Returns the number of calls of
/// readahead(2).
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

/// Distance between two bytes that [`wait`] reads. Chosen: a device completes the requests of a range roughly in order, and a
/// request is seldom longer.
const LOOK_BYTES: u64 = 1 << 20;

/// Switches the kernel's own readahead off for this open file, so that [`wait`] reads no more than the bytes that it
/// checks.
pub fn only_as_asked(file: impl AsFd) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::Random)?)
}

/// Waits until `range`, which [`start`] has begun to read, has arrived, by reading one byte in each MiB and the last byte. Bytes that are
/// not cached (because they were evicted or never requested) are read by this call. It is not an error if the file ends within the range.
pub fn wait(file: impl AsFd, range: &Range<u64>) -> io::Result<()> {
    let mut byte = [0];
    let mut at = range.start;
    while at < range.end {
        at = (at + LOOK_BYTES).min(range.end);
        rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut byte, at - 1))?;
    }
    Ok(())
}
