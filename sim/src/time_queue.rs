//! A queue of items, each with a time on a virtual clock at which it is due; the item with the earliest time comes first.

use foreread_core::event::{Action, Event};
use foreread_core::machine::Machine;
use foreread_core::units::{ByteRange, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Items that are due at the same time keep the order in which they were added.
#[derive(Debug)]
pub(crate) struct TimeQueue<T> {
    entries: BinaryHeap<Reverse<TimeEntry<T>>>,
    made: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimeEntry<T> {
    at_ns: u64,
    order: u64,
    what: T,
}

impl<T: Ord> TimeQueue<T> {
    pub(crate) fn new() -> TimeQueue<T> {
        TimeQueue {
            entries: BinaryHeap::new(),
            made: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, what: T) {
        self.made += 1;
        let order = self.made;
        self.entries.push(Reverse(TimeEntry { at_ns, order, what }));
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        self.entries.peek().map(|entry| entry.0.at_ns)
    }

    /// Removes the earliest item, with its time, if it is due.
    #[inline]
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(u64, T)> {
        self.next_time().filter(|at_ns| *at_ns <= now_ns)?;
        self.entries.pop().map(|Reverse(e)| (e.at_ns, e.what))
    }
}

// Storage that answers at once: for decisions that do not depend on time.
//
// It has no data and no time, and no read waits; the simulator handles waiting.

/// Passes one event to the state machine, answers every fetch that the state machine then requests, and releases every lease. The fetched
/// ranges are appended to `fetched` in the order of the fetches.
pub fn tell(machine: &mut Machine, event: Event, mut fetched: impl FnMut(ByteRange)) {
    machine.handle(Nanos(0), event);
    while let Some(action) = machine.poll() {
        match action {
            Action::Submit { fetch, range, .. } => {
                fetched(range);
                machine.handle(
                    Nanos(0),
                    Event::Done {
                        fetch,
                        bytes: range.len(),
                    },
                );
            }
            Action::Serve { lease, .. } => machine.handle(Nanos(0), Event::Release { lease }),
            _ => {}
        }
    }
}
