//! Ctrl-C, SIGTERM and SIGHUP, for commands that have something to put away first.
//!
//! A terminal that is closed sends SIGHUP; `nohup` makes the process ignore it, and then it stays ignored. Never: ends
//! anything itself, but for the second such signal.

use crate::fail::Fail;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that end a command.
pub fn ending() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(&status, SIGHUP) {
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

/// Why a signal cannot be waited for.
pub fn no_handler(error: std::io::Error) -> Fail {
    Fail::input("no signal handler", error, "allow more open files (ulimit -n)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_nohup_ignores_stays_ignored() {
        assert!(is_ignored("Name:\tx\nSigIgn:\t0000000000001001\n", SIGHUP));
        assert!(!is_ignored("SigIgn:\t0000000000001000\n", SIGHUP), "SIGPIPE alone");
        assert!(!is_ignored("", SIGHUP));
        assert!(ending().starts_with(&[SIGINT, SIGTERM]));
    }
}
