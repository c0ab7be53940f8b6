//! Ctrl-C and SIGTERM, for commands that have something to put away first.
//!
//! Never: ends anything itself, but for the second such signal.

use crate::fail::Fail;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that end a command.
pub const ENDING: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// A second such signal ends the process at once. To be called before anything else is registered: the first signal asks
/// what the second has set before.
pub fn end_at_second_signal() -> Result<(), Fail> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
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
