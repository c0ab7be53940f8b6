//! Flushes of one source: only one runs at a time, and the first error is kept.
//!
//! The kernel reports a writeback error once, to the file descriptor that asks first (Linux: `errseq_t`, `fsync(2)`), and then forgets
//! which bytes were lost. So a flush error of one client concerns all clients: after the first error, no flush of this source succeeds
//! until the source is opened again. Flushes that arrive while another flush runs wait for it to end; then a single flush serves all of
//! them.
//!
//! ```text
//!   flush ──► failed before? ──► that error
//!                │ no
//!                ├─ none runs ──► the next one, by this thread ──► done: for every caller that called before it started
//!                └─ one runs  ──► waits for the one after it         failed: kept
//! ```

use crate::source::{EIO, SourceError};
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
pub struct Flushes {
    state: Mutex<FlushState>,
    ended: Condvar,
}

#[derive(Default)]
struct FlushState {
    begun: u64,
    done: u64,
    running: bool,
    failed: Option<SourceError>,
}

impl Flushes {
    /// Returns when the source has completed a flush that started after this call; starts the flush if no other thread does.
    pub fn run(&self, flush: impl FnOnce() -> Result<(), SourceError>) -> Result<(), SourceError> {
        let mut state = self.lock()?;
        let mine = state.begun + 1;
        while state.failed.is_none() && state.running && state.done < mine {
            state = self.ended.wait(state).map_err(|_| stopped())?;
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.done >= mine {
            return Ok(());
        }
        state.begun += 1;
        state.running = true;
        let number = state.begun;
        drop(state);
        let flushed = flush();
        let mut state = self.lock()?;
        state.running = false;
        match &flushed {
            Ok(()) => state.done = number,
            Err(error) => state.failed = Some(error.clone()),
        }
        self.ended.notify_all();
        flushed
    }

    fn lock(&self) -> Result<MutexGuard<'_, FlushState>, SourceError> {
        self.state.lock().map_err(|_| stopped())
    }
}

fn stopped() -> SourceError {
    SourceError::io(EIO, "a flush did not end")
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_first_error_is_everyone_s() {
        let flushes = Flushes::default();
        let full = || SourceError::io(28, "flushing");
        assert_eq!(flushes.run(|| Ok(())), Ok(()));
        assert_eq!(flushes.run(|| Err(full())), Err(full()));
        assert_eq!(
            flushes.run(|| Ok(())),
            Err(full()),
            "what the system says next does not count"
        );
    }

    /// Flushes that arrive while one runs share the next one. No caller is served by a flush that started before its call.
    #[test]
    fn one_flush_serves_all_that_wait() {
        let (flushes, count) = (Flushes::default(), AtomicU32::new(0));
        let (first, begun) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let flushed = flushes.run(|| {
                    begun.wait();
                    first.wait();
                    Ok(())
                });
                assert_eq!(flushed, Ok(()));
            });
            begun.wait();
            for _ in 0..8 {
                scope.spawn(|| {
                    let flushed = flushes.run(|| {
                        count.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    });
                    assert_eq!(flushed, Ok(()));
                });
            }
            // Give them time to arrive. A late one gets its own flush.
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert_eq!(count.load(Ordering::SeqCst), 0, "one at a time");
            first.wait();
        });
        assert!((1..8).contains(&count.load(Ordering::SeqCst)));
    }
}
