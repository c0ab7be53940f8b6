//! Tests the running kernel: executes operations from a seeded generator on a temporary file system, records the kernel's decisions from
//! tracepoints, and compares them with ours.
//!
//! The test uses only its own device, files and tracing instance, and removes all of them, however the process ends.
//!
//! ```text
//!   patterns ──steps──► player ──system calls──► a file on our own loop device
//!                                                   │ tracepoints, in an instance of our own     │ page flags
//!                         record ◄── trace, events ─┘◄────────────────────────────────── marks ──┘
//!                           └── JSON lines ──pipe──► conform::linux::check (a thread) ──► Verdict
//!                                     └────────────► a file, if requested
//! ```
//!
//! | resource | why SIGKILL leaves nothing behind |
//! |---|---|
//! | a mount | it is not in the directory tree: our descriptor holds it, and the kernel closes the descriptor |
//! | the backing file | it is in memory, and only a descriptor and the loop device hold it |
//! | the loop device | it detaches itself once no process has it open; then `read_ahead_kb` is the default again |
//! | the tracing instance | a guard process ([`foreread_observe::tracefs::instance`]) or, failing that, the next run removes it |

pub mod cell;
mod disk;
mod events;
mod faults;
mod file_system;
mod patterns;
mod player;
mod pressure;
mod record;
mod story;
mod table;

pub use cell::{Cell, CellOutcome, CellOutcomes, CellSelection, check};
pub use file_system::FileSystem;
pub use record::kernel;
pub use table::table;

use foreread_os::failure::{Failure, FailureKind};

/// The error if the running kernel cannot be checked: it says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// This machine, or this user, lacks something.
    #[error("{0}")]
    Cannot(String),
    /// This machine cannot create or mount this file system. Others may work.
    #[error("{0}")]
    Unsupported(String),
    /// A file of ours could not be used.
    #[error("{what}: {error}; {remedy}")]
    Io {
        what: String,
        error: std::io::Error,
        remedy: &'static str,
    },
    /// The recording could not be compared; this is a bug of the recorder.
    #[error("the recorder wrote an invalid recording: {0}")]
    Recording(#[from] super::recording::CheckError),
    #[error("stopped by a signal before the end; nothing is left mounted or attached")]
    Ended,
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        let kind = match error {
            LiveError::Recording(_) => FailureKind::Check,
            // An interrupted check is not a divergence.
            LiveError::Io { .. }
            | LiveError::Cannot(_)
            | LiveError::Unsupported(_)
            | LiveError::Ended => FailureKind::Cannot,
        };
        Failure::of(kind, error)
    }
}

/// The remedy for most failures here: the machine does not allow the check.
const RETRY: &str = "see the kernel's log (dmesg), or compare a recording: foreread check conform linux --check REC";

impl LiveError {
    fn io(what: impl Into<String>, error: impl Into<std::io::Error>) -> LiveError {
        LiveError::Io {
            what: what.into(),
            error: error.into(),
            remedy: RETRY,
        }
    }
}

/// The start time of a process, in clock ticks since boot. Together with the process ID it identifies a process for
/// good.
pub(crate) fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): the command name may contain anything, so fields are counted from its closing bracket; starttime is
    // field 22.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}
