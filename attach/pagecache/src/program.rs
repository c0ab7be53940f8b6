//! Starts the running program again, as a child process, and finds its executable file.
//!
//! The command `foreread` starts itself again for `tune` (which runs `record` as a child), and for the guard processes
//! of tracefs and of `watch`. If foreread is a library in another program, the executable of the process is that program's: for example,
//! the Python interpreter. A program that contains foreread as a library must therefore call [`set`] to choose the command that foreread
//! starts.
//!
//! ```text
//!   foreread         /proc/self/exe record ...
//!   Python           /usr/bin/python3 -m foreread record ...
//! ```

use foreread_os::failure::{Failure, FailureKind};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Creates the error for a command called `name` that could not be started.
pub fn not_begun(name: &OsStr, error: &std::io::Error) -> Failure {
    let (kind, remedy) = match error.kind() {
        ErrorKind::NotFound => (FailureKind::NoCommand, "check the name of the command"),
        ErrorKind::WouldBlock => (
            FailureKind::CommandNotRun,
            "allow more processes (ulimit -u, or pids.max of the control group)",
        ),
        _ => (
            FailureKind::CommandNotRun,
            "check its permissions and its first line",
        ),
    };
    Failure::new(kind, "cannot run", name.display(), remedy).because(error)
}

/// This program, even if its file has been replaced in the meantime (proc(5)).
const OWN: &str = "/proc/self/exe";

/// How the command `foreread` is started from a process in which foreread is only a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub start: Vec<OsString>,
    /// The executable or library file that contains foreread.
    pub file: PathBuf,
}

static SET: OnceLock<Program> = OnceLock::new();

/// Sets how this process starts the command `foreread`. Only the first call has an effect.
pub fn set(program: Program) {
    let _ = SET.set(program);
}

/// Prepares a command that the user gave: it gets the ignored and blocked signals with which this process was started.
/// If foreread is a library in another program, the command gets the defaults of Rust's std instead.
pub fn command(name: &OsStr) -> Command {
    let mut command = Command::new(name);
    if SET.get().is_none() {
        crate::inherited::keep(&mut command);
    }
    command
}

pub fn begin(name: &OsStr, arguments: &[OsString]) -> Result<Child, Failure> {
    let begun = command(name).args(arguments).spawn();
    begun.map_err(|error| not_begun(name, &error))
}

/// Sends a signal to a process. If the process has already ended, nothing happens.
pub fn send(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

pub fn again() -> Command {
    let start = SET.get().map_or(&[][..], |program| &program.start);
    let Some((first, more)) = start.split_first() else {
        let mut command = self::command(OsStr::new(OWN));
        command.arg0("foreread");
        return command;
    };
    let mut command = Command::new(first);
    command.args(more);
    command
}

/// A block of memory of at least this size is a separate mapping, which goes back to the system when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 1 << 20;
/// Most memory pools that threads share. The default is 8 for each processor, and each keeps the memory that it once
/// used.
#[cfg(target_env = "gnu")]
const POOLS: libc::c_int = 2;

/// Configures glibc's allocator; must be called before the first thread starts. By default, after the first large block
/// has been freed, glibc allocates large blocks from per-thread arenas. With such arenas, the buffers of a server stay in memory, and the
/// 16 buffers of 16 MiB that the crate `fuser` allocates may have to be zeroed explicitly.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // mallopt has no safe wrapper.
pub fn tune_heap() {
    // SAFETY: the calls take only numbers, and may be made at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, POOLS);
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn tune_heap() {}

/// Sets the name of this process to that of the command: a process that was started by [`again`] would otherwise be named "exe", after the
/// link /proc/self/exe.
pub fn take_name() {
    let _ = rustix::thread::set_name(c"foreread");
}

/// Like [`again`], for a process that outlives this process: it inherits none of this process's open files.
pub fn again_behind() -> Command {
    let mut command = again();
    crate::inherited::leave_files(&mut command);
    command
}

/// Moves this process to a new session without a terminal, so that signals from the terminal (on closing, or Ctrl-C) do
/// not reach it. A process that leads a process group stays in its session.
pub fn leave_terminal() {
    let _ = rustix::process::setsid();
}

/// Returns a command that starts this program as a guard: a process that cleans up if this process (its owner) is killed. `word` selects
/// the kind of guard. The guard notices the end of its owner because the pipe between them closes. Ctrl-C does not reach the guard, and the
/// guard does not keep the file system of the owner's working directory busy.
pub fn guard(word: &str) -> Command {
    let mut command = again_behind();
    command
        .arg(word)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.process_group(0).current_dir("/");
    command
}

/// Returns the executable or library file that contains foreread.
pub fn file() -> &'static Path {
    SET.get().map_or(Path::new(OWN), |program| &program.file)
}
