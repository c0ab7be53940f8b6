//! Puts a trace into the order of its starts without ever holding more than a bounded part of it.
//!
//! ```text
//!   nearly sorted ──► Sorter ──► sorted ──► Held ──► in order of start, each with its end
//!                     queue, heap of late   a queue: its front leaves when it is done, or when too many wait behind it
//! ```
//!
//! A [`Sorter`] is for what is written a little out of order (several CPUs, one file). [`Held`] is for records whose end
//! is a later entry of the trace: they keep the place of their start until it is known. Never: more entries than the
//! limits say, or an entry lost (one that is too late is an error of the caller's to report).

use std::collections::{BinaryHeap, VecDeque};

/// Entries that a [`Sorter`] holds: the tracers' own buffers hold fewer for each CPU.
pub const MAX_DISORDER: usize = 1 << 12;
/// Records that wait for their end, and those behind them: more than any device or program has in flight.
pub const MAX_HELD: usize = 1 << 16;

/// Sorts what is nearly sorted.
pub struct Sorter<T> {
    /// What came in order, so that a sorted trace costs next to nothing.
    queue: VecDeque<Entry<T>>,
    /// What came late.
    late: BinaryHeap<Entry<T>>,
    pushed: u64,
    latest: u64,
}

struct Entry<T> {
    at: u64,
    number: u64,
    what: T,
}

impl<T> Entry<T> {
    /// The earliest is the greatest; of equals, the first one that came.
    fn key(&self) -> std::cmp::Reverse<(u64, u64)> {
        std::cmp::Reverse((self.at, self.number))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// It is earlier than what has left already.
pub const TOO_LATE: (&str, &str) = ("time goes backwards by over 4096 entries", "sort the trace by time");

impl<T> Default for Sorter<T> {
    fn default() -> Self {
        Sorter { queue: VecDeque::new(), late: BinaryHeap::new(), pushed: 0, latest: 0 }
    }
}

impl<T> Sorter<T> {
    /// Takes an entry, and gives the earliest once there are more than [`MAX_DISORDER`].
    ///
    /// # Errors
    /// An earlier one has left already; see [`TOO_LATE`].
    pub fn push(&mut self, at: u64, what: T) -> Result<Option<T>, (&'static str, &'static str)> {
        if at < self.latest {
            return Err(TOO_LATE);
        }
        let entry = Entry { at, number: self.pushed, what };
        self.pushed += 1;
        if self.queue.back().is_none_or(|last| last.at <= at) {
            self.queue.push_back(entry);
        } else {
            self.late.push(entry);
        }
        Ok(if self.queue.len() + self.late.len() > MAX_DISORDER { self.pop() } else { None })
    }

    /// The earliest that is left: for the end of the trace.
    pub fn pop(&mut self) -> Option<T> {
        // The earliest is the greatest.
        let first = match (self.queue.front(), self.late.peek()) {
            (Some(queued), Some(late)) if late > queued => self.late.pop()?,
            (None, _) => self.late.pop()?,
            _ => self.queue.pop_front()?,
        };
        self.latest = first.at;
        Some(first.what)
    }
}

/// Records in the order of their starts, some of them still without their end.
pub struct Held<T> {
    slots: VecDeque<Slot<T>>,
    /// The ticket of the front.
    first: u64,
}

enum Slot<T> {
    Open(T),
    Done(T),
    Gone,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held { slots: VecDeque::new(), first: 0 }
    }
}

impl<T> Held<T> {
    /// Takes a record that is to stand here; the ticket finds it again.
    pub fn open(&mut self, what: T) -> u64 {
        self.slots.push_back(Slot::Open(what));
        self.first + self.slots.len() as u64 - 1
    }

    fn slot(&mut self, ticket: u64) -> Option<&mut Slot<T>> {
        self.slots.get_mut(usize::try_from(ticket.checked_sub(self.first)?).ok()?)
    }

    /// Lets `change` complete a record; it may leave from now on. Nothing where it is complete or has left already.
    pub fn done(&mut self, ticket: u64, change: impl FnOnce(&mut T)) {
        let Some(slot) = self.slot(ticket) else { return };
        *slot = match std::mem::replace(slot, Slot::Gone) {
            Slot::Open(mut what) => {
                change(&mut what);
                Slot::Done(what)
            }
            other => other,
        };
    }

    /// Takes a record out for good; nothing where it has left already.
    pub fn cancel(&mut self, ticket: u64) -> Option<T> {
        match std::mem::replace(self.slot(ticket)?, Slot::Gone) {
            Slot::Open(what) | Slot::Done(what) => Some(what),
            Slot::Gone => None,
        }
    }

    /// The next record that may leave, with its ticket and whether it is complete: the front once it is done, or as it
    /// is when more than [`MAX_HELD`] are held, or always when `all` are to leave.
    pub fn next(&mut self, all: bool) -> Option<(u64, T, bool)> {
        loop {
            let full = all || self.slots.len() > MAX_HELD;
            if matches!(self.slots.front()?, Slot::Open(_)) && !full {
                return None;
            }
            let ticket = self.first;
            self.first += 1;
            match self.slots.pop_front()? {
                Slot::Open(what) => return Some((ticket, what, false)),
                Slot::Done(what) => return Some((ticket, what, true)),
                Slot::Gone => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sorter_holds_so_many_and_not_one_more() {
        let mut sorter = Sorter::default();
        // Backwards, as many as it holds; the next one pushes the earliest out.
        for at in (1..=MAX_DISORDER as u64).rev() {
            assert_eq!(sorter.push(at, at), Ok(None));
        }
        assert_eq!(sorter.push(9000, 9000), Ok(Some(1)));
        assert_eq!(sorter.push(0, 0), Err(TOO_LATE));
        // As late as what has left is late enough, and equals keep their order.
        assert_eq!(sorter.push(1, 77), Ok(Some(77)));
        assert_eq!(sorter.push(2, 78), Ok(Some(2)));
        let rest: Vec<u64> = std::iter::from_fn(|| sorter.pop()).collect();
        assert_eq!(rest.len(), MAX_DISORDER);
        assert_eq!((rest[0], rest[1], rest[MAX_DISORDER - 1]), (78, 3, 9000));
    }

    #[test]
    fn held_records_leave_in_the_order_of_their_starts() {
        let mut held = Held::default();
        let tickets: Vec<u64> = (0..4).map(|i| held.open(i)).collect();
        held.done(tickets[1], |what| *what += 10);
        assert_eq!(held.next(false), None);
        assert_eq!(held.cancel(tickets[0]), Some(0));
        assert_eq!(held.cancel(tickets[0]), None);
        assert_eq!(held.next(false), Some((1, 11, true)));
        assert_eq!(held.next(false), None);
        held.done(tickets[1], |_| panic!("it has left"));
        held.done(tickets[2], |_| ());
        held.done(tickets[2], |_| panic!("done once"));
        assert_eq!(
            (held.next(true), held.next(true), held.next(true)),
            (Some((2, 2, true)), Some((3, 3, false)), None)
        );
    }

    #[test]
    fn too_many_held_push_the_front_out() {
        let mut held = Held::default();
        for i in 0..MAX_HELD {
            held.open(i);
        }
        assert_eq!(held.next(false), None);
        held.open(MAX_HELD);
        assert_eq!(held.next(false), Some((0, 0, false)));
        assert_eq!(held.next(false), None);
    }
}
