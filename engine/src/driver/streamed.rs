//! A fetch that arrives piece by piece: each buffer goes into the store as soon as it is full, and its readers go on.
//!
//! Example: a body of 1 MiB over HTTP, in four buffers of 256 KiB. A reader that waits for the first 4 KiB goes on after a
//! quarter of the body. A buffer that is not full, which is always the last one, goes into the store at the end of the
//! fetch (`State::complete`). Nothing is kept of a fetch that was doomed meanwhile. A source that asks whether it is cancelled ends early.
//!
//! ```text
//!   parts:  [full]  [full]  [being filled]  [room]  [room]
//!             └──────┴─► store + Progress        └── what is left when the stream ends: Done or Failed
//! ```

use super::jobs::{Cancelled, Job, Part};
use super::shared::{Outside, Shared};
use crate::source::Sink;
use foreread_core::event::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// See the head of this file.
pub struct Landing<'a> {
    shared: &'a Arc<Shared>,
    job: &'a Job,
    parts: VecDeque<Part>,
    ended: bool,
    cancelled: Cancelled,
}

impl<'a> Landing<'a> {
    pub fn new(
        shared: &'a Arc<Shared>,
        job: &'a Job,
        parts: Vec<Part>,
        cancelled: Cancelled,
    ) -> Landing<'a> {
        Landing {
            shared,
            job,
            parts: parts.into(),
            ended: false,
            cancelled,
        }
    }

    /// Bytes there is room for.
    pub fn room_bytes(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| part.chunk.bytes().len() as u64)
            .sum()
    }

    /// The buffers that are not in the store yet.
    pub fn rest(self) -> Vec<Part> {
        self.parts.into()
    }
}

impl Sink for Landing<'_> {
    fn at_hand(&mut self) {
        let now = self.shared.now();
        let Ok(mut state) = Outside::enter(self.shared).lock() else {
            return;
        };
        state.feed(
            now,
            Event::AtHand {
                fetch: self.job.fetch,
            },
        );
        state.unlock();
    }

    fn is_awaited(&self) -> bool {
        let Ok(state) = Outside::enter(self.shared).lock() else {
            return false;
        };
        let awaited = state
            .machine()
            .fetch(self.job.fetch)
            .is_some_and(|fetch| fetch.awaited);
        state.unlock();
        awaited
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.is_set()
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.parts
            .front_mut()
            .filter(|_| !self.ended)
            .map(|part| part.chunk.bytes_mut())
    }

    fn filled(&mut self, bytes: usize) {
        let full = self
            .parts
            .front()
            .is_some_and(|part| part.chunk.bytes().len() == bytes);
        self.ended |= !full || self.parts.len() == 1;
        if self.ended {
            return;
        }
        let Some(part) = self.parts.pop_front() else {
            return;
        };
        let now = self.shared.now();
        // After a panic behind the lock the end of the fetch wakes all waiting callers.
        let Ok(mut state) = Outside::enter(self.shared).lock() else {
            return;
        };
        state.land(now, self.job, part);
        state.unlock();
    }
}
