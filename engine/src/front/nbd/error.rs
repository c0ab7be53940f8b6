//! Errors of starting the NBD server.

use crate::front::{FrontError, FrontErrorKind};
use crate::{Reader, WriteError};
use std::io::Error;

pub fn short_of_threads(error: Error) -> FrontError {
    FrontError::new(
        FrontErrorKind::System,
        format!("no thread can be started ({error})"),
        "the server",
        "allow more threads (ulimit -u, pids.max of the cgroup)",
    )
    .caused_by(error)
}

/// The error for a writable source that cannot be locked.
pub fn locked(reader: &Reader, error: WriteError) -> FrontError {
    let (again, busy) = (rustix::io::Errno::AGAIN, rustix::io::Errno::BUSY);
    let what = match error.errno() {
        errno if errno == again.raw_os_error() => {
            "another program has locked it, to write it or to prevent writes".to_string()
        }
        errno if errno == busy.raw_os_error() => {
            "it is mounted, or another program has opened it exclusively".to_string()
        }
        _ => format!("it cannot be locked ({error})"),
    };
    let remedy = "end that program or unmount the device; if the program never writes, serve without a lock (--no-lock)";
    FrontError::new(FrontErrorKind::Locked, what, reader.describe(), remedy).caused_by(error)
}

pub fn short_of_files(error: Error) -> FrontError {
    FrontError::new(
        FrontErrorKind::System,
        format!("no pipe can be created ({error})"),
        "the server",
        "allow more open files (ulimit -n)",
    )
    .caused_by(error)
}
