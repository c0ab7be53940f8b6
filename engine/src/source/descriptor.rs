//! Operations on file descriptors, for the file source and the disk cache: locks on the open file description (OFD locks), and
//! writes that continue after EINTR.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Sets or releases a lock of the open file description on `len` bytes from `start`, or up to the end of the file if `len` is 0. If
/// another open file description has a conflicting lock, returns an error at once instead of waiting.
pub fn lock(file: impl AsFd, kind: libc::c_int, start: i64, len: i64) -> nix::Result<()> {
    let range = libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&range)).map(|_| ())
}

/// Writes all of `bytes` from `offset` on.
pub fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
