//! The program that runs: how it is started again, and the file that it is built into.
//!
//! The command starts itself for `tune` (a `record` as a child), for the guard of tracefs and for that of `watch`. Where it is a library of
//! another program, the running file is not the command's: in Python it is the interpreter's. That program says with [`set`]
//! what to start.
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

/// Why the command `name` did not begin.
#[must_use]
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

/// This program, also where its file was replaced meanwhile (proc(5)).
const OWN: &str = "/proc/self/exe";

/// How to start the command from another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its first arguments.
    pub start: Vec<OsString>,
    /// The file that the command was built into.
    pub file: PathBuf,
}

static SET: OnceLock<Program> = OnceLock::new();

/// Says how the command is started here. The first word counts.
pub fn set(program: Program) {
    let _ = SET.set(program);
}

/// A command of the user: it gets the ignored and blocked signals that this program got. Within another program those are that one's, and a
/// command begins as std has it.
#[must_use]
pub fn command(name: &OsStr) -> Command {
    let mut command = Command::new(name);
    if SET.get().is_none() {
        crate::inherited::keep(&mut command);
    }
    command
}

/// Begins a command of the user, which is its name and its arguments.
///
/// # Errors
/// It is not there, or cannot be run.
pub fn begin(name: &OsStr, arguments: &[OsString]) -> Result<Child, Failure> {
    let begun = command(name).args(arguments).spawn();
    begun.map_err(|error| not_begun(name, &error))
}

/// Sends a signal to a command. One that is gone does not miss it.
pub fn send(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// A command that starts this program again.
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

/// From this size on a block of memory is a mapping, which goes back to the system when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 1 << 20;
/// Pools of memory that threads share. The default is 8 for each processor, and each keeps what it once held.
#[cfg(target_env = "gnu")]
const POOLS: libc::c_int = 2;

/// Sets up the allocator of this process, before its first thread. By default glibc takes large blocks from the pools of threads once such a
/// block was freed: a server's buffers stay there, and those of the crate `fuser`, 16 of 16 MiB, may be cleared by hand.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // mallopt has no safe wrapper.
pub fn tune_heap() {
    // SAFETY: the calls take numbers alone, and may be made at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, POOLS);
    }
}

/// Other allocators are left as they are.
#[cfg(not(target_env = "gnu"))]
pub fn tune_heap() {}

/// Gives this process the command's name: begun by [`again`] it has that of the link, "exe".
pub fn take_name() {
    let _ = rustix::thread::set_name(c"foreread");
}

/// The same, for one that outlives this process: it keeps none of its files open.
pub fn again_behind() -> Command {
    let mut command = again();
    crate::inherited::leave_files(&mut command);
    command
}

/// Makes this process a session without a terminal: what the terminal sends when it closes or by Ctrl-C is for others. A process that leads
/// a group stays what it is.
pub fn leave_terminal() {
    let _ = rustix::process::setsid();
}

/// A command that starts this program as a guard: `word` says of what, and the pipe to it ends with its owner. A Ctrl-C is for the
/// owner, and the owner's folder can be unmounted.
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

/// The file that the command was built into.
pub fn file() -> &'static Path {
    SET.get().map_or(Path::new(OWN), |program| &program.file)
}
