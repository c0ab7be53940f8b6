//! The points (pairs of request size and queue depth) that a probe measures: all sizes at queue depth 1, and some sizes at every
//! depth. Also the offsets of their reads.
//!
//! ```text
//!   depth 64 │ o     o           o: random      reads one at a time show the cost of a request;
//!         16 │ o     o     o                    depth shows how many the storage serves at once,
//!          4 │ o     o     o  o                 and where its bandwidth ends
//!          1 │ o+ o+ o+ o+ o+ o+  +: sequential
//!            └───────────────────
//!              4K    128K  1M  8M
//! ```
//!
//! The grid leaves out points for which the source is too small, and points that need more memory than [`ARENA_BYTES`].

use super::Pattern;
use foreread_sim::rng::Rng;

/// Size of the smallest request: a page of memory, which is also the smallest unit of most storage.
pub const MIN_BYTES: u64 = 4 << 10;
/// Size of the largest request: the largest readahead for which published figures exist.
pub const MAX_BYTES: u64 = 8 << 20;
/// Request sizes that are measured at every queue depth. The time of a request of 4 KiB depends mostly on the latency. The time of a
/// request of 32 or 128 KiB depends on latency and bandwidth, and the time of a request of 1 MiB mostly on the bandwidth.
pub const DEEP_BYTES: [u64; 4] = [4 << 10, 32 << 10, 128 << 10, 1 << 20];
/// The measured queue depths above 1.
pub const DEPTHS: [u32; 6] = [2, 4, 8, 16, 32, 64];
/// The request size that is read sequentially at every queue depth.
pub const DEEP_SEQUENTIAL_BYTES: u64 = 128 << 10;
/// Maximum memory for the buffers of one point (request size and queue depth), which is sufficient for 64 reads of 1 MiB.
pub const ARENA_BYTES: u64 = 64 << 20;

/// A point to measure: a request size, an access pattern and a queue depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// The order of the reads.
    pub pattern: Pattern,
    /// Reads in flight at once.
    pub depth: u32,
    pub bytes: u64,
}

impl Task {
    pub const fn sequential(depth: u32, bytes: u64) -> Task {
        let pattern = Pattern::Sequential;
        Task {
            pattern,
            depth,
            bytes,
        }
    }

    pub const fn random(depth: u32, bytes: u64) -> Task {
        let pattern = Pattern::Random;
        Task {
            pattern,
            depth,
            bytes,
        }
    }
}

/// Returns all points for which a source of `span` bytes is large enough, ordered by queue depth, then by size.
pub fn tasks(span: u64) -> Vec<Task> {
    let fits = |bytes: u64| bytes.saturating_mul(2) <= span;
    let mut tasks = Vec::new();
    let mut bytes = MIN_BYTES;
    while bytes <= MAX_BYTES && fits(bytes) {
        tasks.push(Task::sequential(1, bytes));
        tasks.push(Task::random(1, bytes));
        bytes *= 2;
    }
    for depth in DEPTHS {
        let allowed = |bytes: &u64| fits(*bytes) && *bytes * u64::from(depth) <= ARENA_BYTES;
        let deep = DEEP_BYTES.into_iter().filter(allowed);
        tasks.extend(deep.map(|bytes| Task::random(depth, bytes)));
        if allowed(&DEEP_SEQUENTIAL_BYTES) {
            tasks.push(Task::sequential(depth, DEEP_SEQUENTIAL_BYTES));
        }
    }
    tasks
}

/// The offsets of the reads of one point, one after the other.
pub(crate) struct Offsets {
    pub task: Task,
    slots: u64,
    next: u64,
    rng: Rng,
}

impl Offsets {
    /// Reads of `task` in a span that has room for at least one. Sequential reads start at an offset drawn from
    /// `seed`.
    pub(crate) fn new(task: Task, span: u64, seed: u64) -> Offsets {
        let slots = (span / task.bytes).max(1);
        let mut rng = Rng::new(seed);
        Offsets {
            task,
            slots,
            next: rng.below(slots),
            rng,
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let slot = match self.task.pattern {
            Pattern::Sequential => self.next,
            Pattern::Random => self.rng.below(self.slots),
        };
        self.next = (slot + 1) % self.slots;
        slot * self.task.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_every_depth_that_fits() {
        let all = tasks(1 << 40);
        assert_eq!(all.len(), 2 * 12 + 6 * 5);
        assert!(
            all.iter()
                .all(|t| t.bytes * u64::from(t.depth) <= ARENA_BYTES)
        );
        let mut once = all.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all.len());
        assert_eq!(all.iter().map(|t| t.bytes).max(), Some(MAX_BYTES));
    }

    #[test]
    fn a_small_source_has_small_points() {
        assert!(tasks(2 * MIN_BYTES - 1).is_empty());
        assert_eq!(
            tasks(2 * MIN_BYTES).iter().map(|t| t.bytes).max(),
            Some(MIN_BYTES)
        );
        assert_eq!(
            tasks(505_000).iter().map(|t| t.bytes).max(),
            Some(128 << 10)
        );
    }
}
