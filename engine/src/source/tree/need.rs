//! Cancellation of tree operations: a waiting thread checks whether its answer is still needed.
//!
//! A program that lists a folder through a mount may be killed while the storage is slow, or the mount may be ended. With
//! [`while_needed`], the thread that carries out a request defines how to check whether its answer is still needed. A waiting source
//! calls the check ([`needed`]) before it waits, and then again at intervals of [`LOOKS_EVERY`]. The check only reports that the answer
//! is no longer needed; the source must end its wait itself.
//!
//! ```text
//!   front ──while_needed(need, ──► tree.list ──► source waits ──checks──► need() ── false ──► ECANCELED
//! ```

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting source checks whether its answer is still needed. Chosen value: Ctrl-C takes effect almost at once, and a check
/// costs only 20 us.
pub const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Returns false once the result is no longer needed.
pub type Need = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static NEED: RefCell<Option<Need>> = const { RefCell::new(None) };
}

/// Calls `work`, whose result is needed only as long as `need` returns true.
pub fn while_needed<T>(need: Need, work: impl FnOnce() -> T) -> T {
    struct Before(Option<Need>);
    impl Drop for Before {
        fn drop(&mut self) {
            NEED.set(self.0.take());
        }
    }
    let _before = Before(NEED.replace(Some(need)));
    work()
}

/// Returns the check for this thread's work, or `None` if its result is always needed.
#[must_use]
pub fn needed() -> Option<Need> {
    NEED.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_work_that_it_is_for() {
        let is = || needed().map(|need| need());
        assert_eq!(is(), None);
        while_needed(Arc::new(|| true), || {
            assert_eq!(is(), Some(true));
            while_needed(Arc::new(|| false), || assert_eq!(is(), Some(false)));
            assert_eq!(is(), Some(true));
        });
        let panicked = std::panic::catch_unwind(|| {
            while_needed(Arc::new(|| true), || std::panic::panic_any("a bug"))
        });
        assert!(panicked.is_err() && is().is_none());
    }
}
