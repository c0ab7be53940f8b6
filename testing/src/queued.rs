//! A test double: wraps any source and gives it a queue whose transfers end late, out of order, and in the thread that collects
//! (reaps) them.
//!
//! The queue has no thread and no clock: a transfer ends when it has been polled a certain number of times, which depends on the seed. A
//! caller therefore hangs if it forgets to reap, to interrupt a waiting thread that reaps, or to let another thread reap after it. With a
//! real io_uring, these mistakes of a caller would often go unnoticed. Bytes are not changed, and a transfer that is not reaped does not
//! end.
//!
//! ```text
//!   submit ──► in flight: (polls left, transfer) ... ──reap: one poll each──► none left: read now, and ended
//!        └─ beyond the depth, or from the Nth transfer on: refused
//! ```

use foreread::source::{
    Alignment, CompletedTransfer, Defaults, Queue, Source, SourceError, Transfer,
};
use foreread::sync::{Condvar, Mutex, MutexGuard};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Interval at which a waiting reaper checks even if nothing was submitted.
const LOOK_UP: Duration = Duration::from_secs(1);

pub struct QueuedSource<S> {
    inner: Arc<S>,
    setup: Setup,
    tally: Arc<Tally>,
}

#[derive(Clone, Copy)]
struct Setup {
    seed: u64,
    depth: usize,
    refused_from: u64,
}

#[derive(Default)]
struct Tally {
    under_way: AtomicUsize,
    most: AtomicUsize,
    taken: AtomicU64,
}

impl<S: Source> QueuedSource<S> {
    /// Wraps a source. `seed` determines when and in which order transfers end; up to 64 may be in flight.
    pub fn new(inner: S, seed: u64) -> QueuedSource<S> {
        let setup = Setup {
            seed,
            depth: 64,
            refused_from: u64::MAX,
        };
        QueuedSource {
            inner: Arc::new(inner),
            setup,
            tally: Arc::default(),
        }
    }

    /// Sets the maximum number of transfers in flight.
    pub fn depth(mut self, depth: usize) -> QueuedSource<S> {
        self.setup.depth = depth;
        self
    }

    /// Refuses every transfer from number `nth` on (counted from 0), like an io_uring on which the kernel accepts no more requests.
    pub fn refused_from(mut self, nth: u64) -> QueuedSource<S> {
        self.setup.refused_from = nth;
        self
    }

    /// Returns the number of transfers that are in flight now, in all queues.
    pub fn under_way(&self) -> usize {
        self.tally.under_way.load(Ordering::SeqCst)
    }

    pub fn most_under_way(&self) -> usize {
        self.tally.most.load(Ordering::SeqCst)
    }

    /// Returns the number of transfers that were started.
    pub fn taken(&self) -> u64 {
        self.tally.taken.load(Ordering::SeqCst)
    }

    /// Returns the wrapped source.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Source + 'static> Source for QueuedSource<S> {
    passed_on! {self => self.inner;
        size() -> u64;
        read_at(bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;
        defaults() -> Defaults;
        alignment() -> Alignment;
        allow_appends();
        check() -> Result<u64, SourceError>;
        accept() -> u64;
    }

    fn describe(&self) -> String {
        format!("queued {}", self.inner.describe())
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        let (inner, tally) = (Arc::clone(&self.inner), Arc::clone(&self.tally));
        Some(Arc::new(Double {
            inner,
            tally,
            setup: self.setup,
            state: Mutex::default(),
            bell: Condvar::new(),
        }))
    }
}

struct Double<S> {
    inner: Arc<S>,
    tally: Arc<Tally>,
    setup: Setup,
    state: Mutex<QueueState>,
    bell: Condvar,
}

#[derive(Default)]
struct QueueState {
    under_way: Vec<(u64, Transfer)>,
    interrupted: bool,
}

impl<S: Source> Double<S> {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls each transfer once; returns those that are due, the last first.
    fn due(state: &mut QueueState) -> Vec<Transfer> {
        let all = std::mem::take(&mut state.under_way).into_iter();
        let (due, left) = all
            .map(|(looks, t)| (looks.saturating_sub(1), t))
            .partition::<Vec<_>, _>(|(looks, _)| *looks == 0);
        state.under_way = left;
        due.into_iter()
            .rev()
            .map(|(_, transfer)| transfer)
            .collect()
    }

    fn end(&self, mut transfer: Transfer) -> CompletedTransfer {
        let offset = transfer.offset();
        let result = self.inner.read_at(&mut transfer.bufs(), offset);
        self.tally.under_way.fetch_sub(1, Ordering::SeqCst);
        transfer.end(result)
    }
}

impl<S: Source> Queue for Double<S> {
    fn depth(&self) -> usize {
        self.setup.depth
    }

    fn submit(&self, transfers: &mut Vec<Transfer>) {
        let mut state = self.lock();
        while !transfers.is_empty() && state.under_way.len() < self.setup.depth {
            let nth = self.tally.taken.load(Ordering::SeqCst);
            if nth >= self.setup.refused_from {
                break;
            }
            self.tally.taken.fetch_add(1, Ordering::SeqCst);
            let now = self.tally.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.tally.most.fetch_max(now, Ordering::SeqCst);
            let looks = 1 + super::faulty::random(self.setup.seed, nth) % 4;
            state.under_way.push((looks, transfers.remove(0)));
        }
        self.bell.notify_all();
    }

    fn has_ended(&self) -> bool {
        !self.lock().under_way.is_empty()
    }

    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>) {
        let mut state = self.lock();
        loop {
            let due = Double::<S>::due(&mut state);
            if !due.is_empty() {
                drop(state);
                return ended.extend(due.into_iter().map(|transfer| self.end(transfer)));
            }
            if !wait || std::mem::take(&mut state.interrupted) {
                return;
            }
            if state.under_way.is_empty() {
                let (next, pause) = self
                    .bell
                    .wait_timeout(state, LOOK_UP)
                    .unwrap_or_else(PoisonError::into_inner);
                state = next;
                if pause.timed_out() {
                    return;
                }
            }
        }
    }

    fn interrupt(&self) {
        self.lock().interrupted = true;
        self.bell.notify_all();
    }
}

impl<S> Drop for Double<S> {
    fn drop(&mut self) {
        let left = self
            .state
            .get_mut()
            .map_or(0, |state| state.under_way.len());
        self.tally.under_way.fetch_sub(left, Ordering::SeqCst);
    }
}
