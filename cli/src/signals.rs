//! Ctrl-C, SIGTERM and SIGHUP, for commands that have something to put away first, and for those that run a command of the user.
//!
//! ```text
//!   run, record, replay, tune   a signal goes to CMD ──► CMD has ended ──► from now on a signal ends us at once
//!   warm, replay without CMD    the first signal stops the reading     ──► the second one ends us at once
//!   serve, mount, watch, bench  the first signal begins the end        ──► the second one ends us at once
//! ```
//! At the end a command may have to ask a file system that does not answer; then the signal of the user is the way out, so no handler
//! outlives what it is for.
//!
//! A terminal that is closed sends SIGHUP; `nohup` makes the process ignore it, and then it stays ignored: a handler would be reset by exec,
//! and CMD would have the default. Never: ends anything itself, but for the signals above.

use crate::fail::Fail;
use foreread_os::threads;
use foreread_pagecache::program::send;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
#[cfg(any(feature = "lab", feature = "object"))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Those that end a command.
pub const ENDING_COMMAND: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Signals that reach what they are for, until that is over.
struct Relay {
    over: Arc<AtomicBool>,
    handle: Handle,
}

/// Calls `each` for every one of `signals` that was not ignored when this process began. Begins before CMD does, so that none is missed.
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
    /// What the signals were for is over: from now on one does what it does without a handler.
    fn over(&self) {
        self.over.store(true, Ordering::Release);
        self.handle.close();
    }
}

/// Signals for a command of the user, and the wait for its end.
pub struct CommandSignals {
    relay: Relay,
    /// Nothing where there is no command that they are for.
    command: Arc<OnceLock<Option<u32>>>,
}

impl CommandSignals {
    /// From here on none of `signals` ends us: the command is there before the first that is meant for it can come. `heard` gets each
    /// before the command does.
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

    /// Has `wait` wait for the end of the command, which has begun; from then on a signal ends us.
    ///
    /// # Errors
    /// Those of `wait`.
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

/// The exit code of a command, as a shell has it: 128 and the number of the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(255, |signal| 128 + (signal & 127));
    status.code().unwrap_or_else(signal) as u8
}

/// Whether the command has got this signal already: a terminal sends Ctrl-C to all that is in its foreground.
fn terminal_has_sent(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT) && has_terminal()
}

/// Whether we are in the foreground of a terminal. The fifth and the eighth field of /proc/self/stat (proc(5)) are our group
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

/// A second such signal ends the process at once. To be called before anything else is registered: the first signal asks
/// what the second has set before.
pub fn end_at_second_signal() -> Result<(), Fail> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in ending() {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&again)))
            .map_err(no_handler)?;
    }
    Ok(())
}

/// The number of the first signal that has come, or 0; the second ends the process at once.
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

/// The system does not say how a command ended.
pub fn cannot_wait(error: std::io::Error) -> Fail {
    Fail::input("cannot wait for the command", error, "run it again")
}

/// Why a signal cannot be waited for.
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
