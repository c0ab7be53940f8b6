//! The parts of one cache: the tier on this machine (its folder), the thread that writes to this tier, and the shared tier below
//! it, if there is one.

use super::tier::Tier;
use super::writer::Writer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts of a disk cache: the tier on this machine, its writer thread, and the shared tier below it.
pub struct Parts {
    pub tier: Arc<dyn Tier>,
    pub writer: Arc<Writer>,
    pub below: Option<Arc<Parts>>,
}

impl Parts {
    /// Returns true if a writer's queue is more than a third full.
    pub fn is_behind(&self) -> bool {
        self.writer.queued_bytes() > self.writer.most_queued() / 3
            || self.below.as_ref().is_some_and(|below| below.is_behind())
    }

    /// From now on, limits each writer's queue to this many bytes.
    pub fn bound_queues(&self, bytes: u64) {
        self.writer.bound_queue(bytes);
        if let Some(below) = &self.below {
            below.bound_queues(bytes);
        }
    }

    pub fn flush(&self, most: Duration) -> bool {
        let began = Instant::now();
        let left = || most.saturating_sub(began.elapsed());
        self.writer.flush(most) & self.below.as_ref().is_none_or(|below| below.flush(left()))
    }
}
