//! The thread that a request is for: whether a signal ends it while it waits.
//!
//! The kernel says so by `FUSE_INTERRUPT`, which the crate `fuser` answers with "not implemented"; from then on the kernel says nothing, and
//! a thread that was killed waits for its answer all the same. So what takes long looks at the signals that wait for the thread
//! (proc_pid_status(5)). A caller of another PID namespace has no number here, and is waited for.
//!
//! ```text
//!   SigPnd 0000000000000100 ──► bit 8, SIGKILL: nothing needs the answer
//!   ShdPnd 0000000000000002 ──► bit 1, SIGINT, unless it is blocked or ignored
//! ```

/// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, as bits from signal 1 on.
const ENDS: u64 = 1 | 1 << 1 | 1 << 2 | KILL | 1 << 14;
const KILL: u64 = 1 << 8;

/// A signal waits for the thread with this number that ends it, or that it wants to see.
pub fn is_ending(thread: u32) -> bool {
    // Where it cannot be read nothing is known.
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
