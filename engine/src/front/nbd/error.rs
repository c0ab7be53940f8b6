//! Why the NBD server does not start.

use crate::{Reader, WriteError};

/// Why a server could not be started: one line.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {place}; {remedy}")]
pub struct ServeError {
    /// What is wrong.
    pub what: String,
    /// Where.
    pub place: String,
    /// What to do.
    pub remedy: &'static str,
}

pub fn short_of_threads(error: &std::io::Error) -> ServeError {
    ServeError {
        what: format!("no thread can be started ({error})"),
        place: "the server".to_string(),
        remedy: "allow more threads (ulimit -u, pids.max of the cgroup)",
    }
}

/// Why what clients would write is not locked.
pub fn locked(reader: &Reader, error: &WriteError) -> ServeError {
    let (again, busy) = (rustix::io::Errno::AGAIN, rustix::io::Errno::BUSY);
    let what = match error.errno() {
        errno if errno == again.raw_os_error() => {
            "another program has locked it, to write it or to keep it as it is".to_string()
        }
        errno if errno == busy.raw_os_error() => {
            "it is mounted, or another program has claimed it".to_string()
        }
        _ => format!("it cannot be locked ({error})"),
    };
    let remedy =
        "end that program or unmount it, or serve without the lock (--no-lock) if it never writes";
    ServeError {
        what,
        place: reader.describe(),
        remedy,
    }
}

pub fn short_of_files(error: &std::io::Error) -> ServeError {
    ServeError {
        what: format!("no pipe ({error})"),
        place: "the server".to_string(),
        remedy: "allow more open files (ulimit -n)",
    }
}
