//! Detects that a signal is about to end the thread whose request the mount is serving.
//!
//! The kernel would send `FUSE_INTERRUPT`, but the crate `fuser` answers that with "not implemented". After the answer "not implemented",
//! the kernel sends no further interrupts, and a killed thread waits until its request is answered. Therefore, operations that take long
//! check the pending signals of the calling thread (proc_pid_status(5)). The process ID of a caller in another PID namespace is unknown,
//! so its request always completes.
//!
//! ```text
//!   SigPnd 0000000000000100 ──► bit 8, SIGKILL: the answer is not needed
//!   ShdPnd 0000000000000002 ──► bit 1, SIGINT, unless it is blocked or ignored
//! ```

/// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM as bits, starting at signal 1.
const ENDS: u64 = 1 | 1 << 1 | 1 << 2 | KILL | 1 << 14;
const KILL: u64 = 1 << 8;

/// Whether the thread with this ID has a pending signal that will end the thread, or for which it has a signal handler.
pub fn is_ending(thread: u32) -> bool {
    // If the signals cannot be read, the answer is no.
    thread > 0
        && std::fs::read_to_string(format!("/proc/{thread}/status"))
            .is_ok_and(|status| ends(&status))
}

fn ends(status: &str) -> bool {
    let mask = |name: &str| {
        let text = status
            .lines()
            .find_map(|line| line.strip_prefix(name))?
            .strip_prefix(':')?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    let [own, shared, blocked, ignored] =
        ["SigPnd", "ShdPnd", "SigBlk", "SigIgn"].map(|name| mask(name).unwrap_or(0));
    let pending = own | shared;
    pending & (KILL | ENDS & !blocked & !ignored) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_ends_is_seen_and_one_that_is_kept_away_is_not() {
        let status = |own: u64, shared: u64, blocked: u64, ignored: u64| {
            format!(
                "Name:\tls\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        for (text, is_ended) in [
            (status(0, 0, 0, 0), false),
            (status(KILL, 0, 0, 0), true),
            (status(KILL, 0, u64::MAX, 0), true),
            (status(0, 1 << 1, 0, 0), true),
            (status(0, 1 << 14, 1 << 14, 0), false),
            (status(0, 1, 0, 1), false),
            (status(1 << 13, 1 << 16, 0, 0), false),
            (String::new(), false),
        ] {
            assert_eq!(ends(&text), is_ended, "{text}");
        }
        assert!(!is_ending(std::process::id()) && !is_ending(0) && !is_ending(u32::MAX));
    }
}
