//! Handles Ctrl-C, SIGTERM and SIGHUP in commands that clean up before they end, and in commands that run a program of
//! the user.
//!
//! ```text
//!   run, record, replay, tune   a signal goes to CMD ──► CMD has ended ──► the next signal ends us at once
//!   warm, replay without CMD    the first signal stops the reading     ──► the second one ends us at once
//!   compare, sweep              the first signal stops the measurement ──► the second one ends us at once
//!   serve, mount, watch, bench  the first signal starts the shutdown   ──► the second one ends us at once
//! ```
//! While a command shuts down, it may block on a file system that does not answer. The user must be able to end a
//! blocked command with a signal, so no handler stays installed longer than needed.
//!
//! A closed terminal sends SIGHUP. If `nohup` made this process ignore SIGHUP, foreread installs no handler for it: exec resets handlers to
//! the default action, so SIGHUP would end CMD, but ignored signals stay ignored.

use crate::fail::Fail;
#[cfg(feature = "lab")]
use crate::fail::note;
use foreread_os::threads;
use foreread_pagecache::program::send;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::os::unix::process::ExitStatusExt;
#[cfg(feature = "lab")]
use std::path::Path;
use std::process::ExitStatus;
#[cfg(any(feature = "lab", feature = "object"))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The signals that end a command.
pub const ENDING_COMMAND: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Signal handling for a limited time.
struct Relay {
    over: Arc<AtomicBool>,
    handle: Handle,
}

/// Calls `each` for each of `signals` that was not ignored at the start of this process. Installed before CMD starts, so that none is missed.
fn relay(
    signals: &[i32],
    mut each: impl FnMut(i32, &AtomicBool) + Send + 'static,
) -> Result<Relay, Fail> {
    let status = status();
    let heard: Vec<i32> = signals
        .iter()
        .copied()
        .filter(|signal| !is_ignored(&status, *signal))
        .collect();
    let over = Arc::new(AtomicBool::new(false));
    for signal in &heard {
        let registered =
            signal_hook::flag::register_conditional_default(*signal, Arc::clone(&over));
        registered.map_err(no_handler)?;
    }
    let mut signals = Signals::new(heard).map_err(no_handler)?;
    let (handle, own) = (signals.handle(), Arc::clone(&over));
    let hear = move || signals.forever().for_each(|signal| each(signal, &own));
    threads::spawn("foreread-signals", hear).map_err(Fail::of)?;
    Ok(Relay { over, handle })
}

impl Relay {
    /// Removes the handlers: from now on a signal has its default action.
    fn over(&self) {
        self.over.store(true, Ordering::Release);
        self.handle.close();
    }
}

/// Handles signals while a command of the user runs, and waits for the end of the command.
pub struct CommandSignals {
    relay: Relay,
    /// `None` if there is no command.
    command: Arc<OnceLock<Option<u32>>>,
}

impl CommandSignals {
    /// Installs handlers, so that `signals` no longer end this process. This function must be called before the user's command is started,
    /// so that no signal is missed. `heard` is called for each signal, before the signal is sent to the command.
    pub fn begin(
        signals: &[i32],
        mut heard: impl FnMut(i32, &AtomicBool) + Send + 'static,
    ) -> Result<CommandSignals, Fail> {
        let command = Arc::<OnceLock<Option<u32>>>::default();
        let pid = Arc::clone(&command);
        let relay = relay(signals, move |signal, over| {
            heard(signal, over);
            if let Some(pid) = pid.wait().filter(|_| !terminal_has_sent(signal)) {
                send(pid, signal);
            }
        })?;
        Ok(CommandSignals { relay, command })
    }

    /// Calls `wait`, which waits until the user's command has ended; from then on, a signal ends this process.
    pub fn until_end<T>(
        &self,
        command: Option<u32>,
        wait: impl FnOnce() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let _ = self.command.set(command);
        let ended = wait();
        self.relay.over();
        ended
    }
}

/// Returns the exit code that a shell would report for a command: if a signal ended the command, 128 plus the number of the signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(255, |signal| 128 + (signal & 127));
    status.code().unwrap_or_else(signal) as u8
}

/// Whether the command has received this signal already: a terminal sends Ctrl-C to its whole foreground group.
fn terminal_has_sent(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT) && has_terminal()
}

/// Whether this process is in the foreground of a terminal. The fifth and the eighth field of /proc/self/stat (proc(5)) are our process group
/// and the terminal's.
fn has_terminal() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    fields
        .get(2)
        .is_some_and(|group| fields.get(5) == Some(group))
}

fn status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// The signals that end a command.
pub fn ending() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(&status(), SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Reads the mask `SigIgn` of proc_pid_status(5): bit 0 is signal 1.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Makes a second signal end the process at once. Must be called before other handlers are registered. Handlers run in the order of
/// registration, and at the first signal the flag must be checked before another handler sets it.
pub fn end_at_second_signal() -> Result<(), Fail> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in ending() {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&again)))
            .map_err(no_handler)?;
    }
    Ok(())
}

/// Returns a variable that receives the number of the first signal (it is 0 before a signal arrives). A second signal ends the process at
/// once.
#[cfg(any(feature = "lab", feature = "object"))]
pub fn first() -> Result<Arc<AtomicUsize>, Fail> {
    let signalled = Arc::new(AtomicUsize::new(0));
    end_at_second_signal()?;
    for signal in ending() {
        signal_hook::flag::register_usize(signal, Arc::clone(&signalled), signal as usize)
            .map_err(no_handler)?;
    }
    Ok(signalled)
}

/// Says how a grid of measurements continues that a signal has stopped. `done`: "3 of 12 cells". Returns the exit code.
#[cfg(feature = "lab")]
pub fn stopped(signal: &AtomicUsize, done: &str, file: Option<&Path>) -> Fail {
    let next = match file {
        Some(path) => format!("the same command continues from {}", path.display()),
        None => "use --resume FILE to keep them".to_string(),
    };
    note(format!("stopped after {done}; {next}"));
    Fail::Passed(128 + signal.load(Ordering::Relaxed) as u8)
}

/// Creates the error for the case that the exit status of the user's command is not available.
pub fn cannot_wait(error: std::io::Error) -> Fail {
    Fail::input("cannot wait for the command", error, "run it again")
}

/// Creates the error for the case that signal handlers cannot be installed.
pub fn no_handler(error: std::io::Error) -> Fail {
    Fail::input(
        "cannot handle signals",
        error,
        "allow more open files (ulimit -n)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_nohup_ignores_stays_ignored() {
        assert!(is_ignored("Name:\tx\nSigIgn:\t0000000000001001\n", SIGHUP));
        assert!(
            !is_ignored("SigIgn:\t0000000000001000\n", SIGHUP),
            "SIGPIPE alone"
        );
        assert!(!is_ignored("", SIGHUP));
        assert!(ending().starts_with(&[SIGINT, SIGTERM]));
    }
}
