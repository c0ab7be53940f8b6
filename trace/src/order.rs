//! Sorts a trace by start times, holding only a bounded part of it.
//!
//! ```text
//!   nearly sorted ──► Sorter ──► sorted ──► Held ──► in order of start, each with its end
//!                     queue, late ones      a queue: its front leaves when it is done, or when too many wait behind it
//! ```
//!
//! A [`Sorter`] is for nearly sorted input, such as the events of several CPUs in one file, or (with [`by_start`]) records that were
//! written when they ended. [`HeldRecords`] is for records whose end is a later entry of the trace: a record keeps the position that
//! belongs to its start until its end is known. The number of held entries is limited, and no entry is lost: an entry that is too late to
//! be sorted is an error.

use super::error::{TraceError, TracePosition};
use super::{Item, Items, Record};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Maximum number of events that are held for sorting: a tracer buffers fewer events for each CPU.
pub const MAX_DISORDER: usize = 1 << 12;
/// Maximum number of records of a table that are held for sorting, which is about 8 MB. The completions of one queue are out of order by at
/// most its depth, but merged logs of several hosts can be further out of order.
pub const MAX_RECORDS_DISORDER: usize = 1 << 16;
/// Maximum number of records that wait for their end, or for an earlier record. No device or program has so many requests in flight at the
/// same time.
pub const MAX_HELD: usize = 1 << 16;

/// Sorts nearly sorted entries.
pub struct Sorter<T> {
    most: usize,
    /// Entries that came in order, so that a sorted trace costs almost nothing.
    queue: VecDeque<(Key, T)>,
    late: BTreeMap<Key, T>,
    pushed: u64,
    latest: u64,
}

/// The time of an entry, and its number: entries with equal times keep their order.
type Key = (u64, u64);

/// The error of a [`Sorter`] for an entry that is earlier than an entry which the sorter has already returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLate;

/// The error message, and the remedy, for [`TooLate`] in formats whose entries are single events (such as blkparse) and not whole reads.
pub const TOO_LATE: (&str, &str) = (
    "time goes backwards by more than 4096 entries",
    "sort the trace by time",
);

impl From<TooLate> for (&'static str, &'static str) {
    fn from(_: TooLate) -> Self {
        TOO_LATE
    }
}

impl<T> Sorter<T> {
    /// Creates a sorter that holds up to `most` entries.
    #[must_use]
    pub fn new(most: usize) -> Sorter<T> {
        Sorter {
            most,
            queue: VecDeque::new(),
            late: BTreeMap::new(),
            pushed: 0,
            latest: 0,
        }
    }

    /// Adds an entry, and returns the earliest entry if too many are held. Adding an entry that is earlier than an
    /// already returned entry is an error.
    pub fn push(&mut self, at: u64, what: T) -> Result<Option<T>, TooLate> {
        if at < self.latest {
            return Err(TooLate);
        }
        let key = (at, self.pushed);
        self.pushed += 1;
        if self.queue.back().is_none_or(|(last, _)| *last <= key) {
            self.queue.push_back((key, what));
        } else {
            self.late.insert(key, what);
        }
        let full = self.queue.len() + self.late.len() > self.most;
        Ok(if full { self.pop() } else { None })
    }

    /// The time of the latest entry that came in order.
    fn last(&self) -> u64 {
        self.queue.back().map_or(self.latest, |((at, _), _)| *at)
    }

    /// Returns the earliest remaining entry; must be called after the last entry was added.
    pub fn pop(&mut self) -> Option<T> {
        let late = self.late.first_key_value();
        let is_late = match (self.queue.front(), late) {
            (Some((queued, _)), Some((late, _))) => late < queued,
            (queued, _) => queued.is_none(),
        };
        let ((at, _), what) = if is_late {
            self.late.pop_first()?
        } else {
            self.queue.pop_front()?
        };
        self.latest = at;
        Some(what)
    }
}

struct ByStart {
    items: Items,
    path: PathBuf,
    sorter: Sorter<Record>,
    /// Number of records taken.
    taken: u64,
    /// Start of the first record that left.
    base_ns: Option<u64>,
    /// Set when no more records arrive; the held records leave, then this error.
    ended: Option<Option<TraceError>>,
}

/// Converts a time that may be negative to an unsigned number; only [`by_start`] uses this form. The conversion keeps the order of times
/// and their differences.
#[must_use]
pub fn signed(at_ns: i64) -> u64 {
    at_ns.cast_unsigned() ^ (1 << 63)
}

/// Sorts the records of `items` by their starts; the first start becomes 0. Either all times or none of them must have been converted by
/// [`signed`]. Error messages name `path`. A record without a start time stays after the previous record, and descriptions of files are
/// passed on at once. Records must not refer to other records, because record numbers change.
#[must_use]
pub fn by_start(items: Items, path: &Path) -> Items {
    Box::new(within(MAX_RECORDS_DISORDER, items, path))
}

fn within(most: usize, items: Items, path: &Path) -> ByStart {
    ByStart {
        items,
        path: path.to_path_buf(),
        sorter: Sorter::new(most),
        taken: 0,
        base_ns: None,
        ended: None,
    }
}

impl ByStart {
    /// Takes a record; another one may leave.
    fn push(&mut self, record: Record) -> Result<Option<Record>, TraceError> {
        self.taken += 1;
        let at = record.start_ns.unwrap_or_else(|| self.sorter.last());
        self.sorter.push(at, record).map_err(|TooLate| {
            let most = self.sorter.most;
            let what = format!("time goes backwards by more than {most} records");
            let place = TracePosition::Record(self.taken);
            TraceError::new(&self.path, place, what, "sort the trace by time")
        })
    }

    fn out(&mut self, mut record: Record) -> Item {
        if let Some(start) = record.start_ns {
            let base = *self.base_ns.get_or_insert(start);
            record.start_ns = Some(start - base);
            record.end_ns = record.end_ns.map(|end| end.saturating_sub(base));
        }
        Item::Record(record)
    }
}

impl Iterator for ByStart {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ended.is_none() {
            match self.items.next() {
                Some(Ok(Item::Record(record))) => match self.push(record) {
                    Ok(None) => {}
                    Ok(Some(first)) => return Some(Ok(self.out(first))),
                    Err(error) => {
                        (self.sorter, self.ended) = (Sorter::new(0), Some(None));
                        return Some(Err(error));
                    }
                },
                Some(Ok(file)) => return Some(Ok(file)),
                Some(Err(error)) => self.ended = Some(Some(error)),
                None => self.ended = Some(None),
            }
        }
        match self.sorter.pop() {
            Some(record) => Some(Ok(self.out(record))),
            None => self.ended.as_mut()?.take().map(Err),
        }
    }
}

/// A queue of records in the order of their start times; the end time of some of them is not known yet.
pub struct HeldRecords<T> {
    slots: VecDeque<Slot<T>>,
    /// The ticket of the first record.
    first: u64,
}

enum Slot<T> {
    Open(T),
    Done(T),
    Gone,
}

impl<T> Default for HeldRecords<T> {
    fn default() -> Self {
        HeldRecords {
            slots: VecDeque::new(),
            first: 0,
        }
    }
}

impl<T> HeldRecords<T> {
    /// Adds a record after all others; the returned ticket identifies the record.
    pub fn open(&mut self, what: T) -> u64 {
        self.slots.push_back(Slot::Open(what));
        self.first + self.slots.len() as u64 - 1
    }

    fn slot(&mut self, ticket: u64) -> Option<&mut Slot<T>> {
        self.slots
            .get_mut(usize::try_from(ticket.checked_sub(self.first)?).ok()?)
    }

    /// Completes a record by calling `change`; from then on, the record can leave the queue. This function does nothing if the record is
    /// already complete, or was already returned.
    pub fn done(&mut self, ticket: u64, change: impl FnOnce(&mut T)) {
        let Some(slot) = self.slot(ticket) else {
            return;
        };
        *slot = match std::mem::replace(slot, Slot::Gone) {
            Slot::Open(mut what) => {
                change(&mut what);
                Slot::Done(what)
            }
            other => other,
        };
    }

    /// Removes a record from the queue and returns it, or returns `None` if the record was already returned.
    pub fn cancel(&mut self, ticket: u64) -> Option<T> {
        match std::mem::replace(self.slot(ticket)?, Slot::Gone) {
            Slot::Open(what) | Slot::Done(what) => Some(what),
            Slot::Gone => None,
        }
    }

    /// Returns the first record once it is complete. An incomplete record is returned, with its ticket, only if more than [`MAX_HELD`]
    /// records are held, or if `all` is true.
    pub fn next(&mut self, all: bool) -> Option<(T, Option<u64>)> {
        loop {
            let full = all || self.slots.len() > MAX_HELD;
            if matches!(self.slots.front()?, Slot::Open(_)) && !full {
                return None;
            }
            let ticket = self.first;
            self.first += 1;
            match self.slots.pop_front()? {
                Slot::Open(what) => return Some((what, Some(ticket))),
                Slot::Done(what) => return Some((what, None)),
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
        let mut sorter = Sorter::new(MAX_DISORDER);
        // As many entries in reverse order as it holds; the next one pushes the earliest out.
        for at in (1..=MAX_DISORDER as u64).rev() {
            assert_eq!(sorter.push(at, at), Ok(None));
        }
        assert_eq!(sorter.push(9000, 9000), Ok(Some(1)));
        assert_eq!(sorter.push(0, 0), Err(TooLate));
        // An entry as late as the last one that left is accepted, and equal times keep their order.
        assert_eq!(sorter.push(1, 77), Ok(Some(77)));
        assert_eq!(sorter.push(2, 78), Ok(Some(2)));
        let rest: Vec<u64> = std::iter::from_fn(|| sorter.pop()).collect();
        assert_eq!(rest.len(), MAX_DISORDER);
        assert_eq!((rest[0], rest[1], rest[MAX_DISORDER - 1]), (78, 3, 9000));
    }

    #[test]
    fn held_records_leave_in_the_order_of_their_starts() {
        let mut held = HeldRecords::default();
        let tickets: Vec<u64> = (0..4).map(|i| held.open(i)).collect();
        held.done(tickets[1], |what| *what += 10);
        assert_eq!(held.next(false), None);
        assert_eq!(held.cancel(tickets[0]), Some(0));
        assert_eq!(held.cancel(tickets[0]), None);
        assert_eq!(held.next(false), Some((11, None)));
        assert_eq!(held.next(false), None);
        held.done(tickets[1], |_| panic!("it has left"));
        held.done(tickets[2], |_| ());
        held.done(tickets[2], |_| panic!("done once"));
        for left in [Some((2, None)), Some((3, Some(3))), None] {
            assert_eq!(held.next(true), left);
        }
    }

    #[test]
    fn too_many_held_push_the_front_out() {
        let mut held = HeldRecords::default();
        for i in 0..MAX_HELD {
            held.open(i);
        }
        assert_eq!(held.next(false), None);
        held.open(MAX_HELD);
        assert_eq!(held.next(false), Some((0, Some(0))));
        assert_eq!(held.next(false), None);
    }

    /// Start and offset of each record that leaves, and the final error.
    fn of(starts: &[Option<u64>], window: usize) -> (Vec<(u64, u64)>, Option<String>) {
        let record = |(i, start_ns): (usize, &Option<u64>)| Record {
            start_ns: *start_ns,
            end_ns: start_ns.map(|start| start + 5),
            ..Record::read(0, i as u64, 1)
        };
        let records = starts.iter().enumerate().map(record);
        let items = Vec::from_iter(records.map(|record| Ok(Item::Record(record))));
        let mut ordered = within(window, Box::new(items.into_iter()), Path::new("t"));
        let (mut out, mut error) = (Vec::new(), None);
        for item in ordered.by_ref() {
            match item {
                Ok(Item::Record(r)) => {
                    assert_eq!(r.end_ns, r.start_ns.map(|start| start + 5));
                    out.push((r.start_ns.unwrap_or(0), r.offset));
                }
                Ok(Item::File(_)) => {}
                Err(e) => error = Some(e.to_string()),
            }
        }
        assert!(ordered.next().is_none());
        (out, error)
    }

    #[test]
    fn late_records_find_their_place_and_the_first_begins_at_0() {
        let (out, error) = of(&[105, 103, 103, 110, 100, 105, 120].map(Some), 8);
        let want = [(0, 4), (3, 1), (3, 2), (5, 0), (5, 5), (10, 3), (20, 6)];
        assert_eq!((out, error), (want.to_vec(), None));
        // Times before the origin of their clock come first.
        let starts = [i64::MAX - 5, 0, -7, i64::MIN, 3];
        let (out, error) = of(&starts.map(|at| Some(signed(at))), 8);
        let want = [3, 2, 1, 4, 0].map(|n| (starts[n].abs_diff(i64::MIN), n as u64));
        assert_eq!((out, error), (want.to_vec(), None));
    }

    #[test]
    fn a_record_out_of_place_by_the_window_is_the_last_that_is_mended() {
        let (out, _) = of(&[10, 11, 12, 9].map(Some), 3);
        assert_eq!(out, [(0, 3), (1, 0), (2, 1), (3, 2)]);
        let (out, error) = of(&[10, 11, 12, 13, 9, 14].map(Some), 3);
        let late =
            "time goes backwards by more than 3 records: t, record 5; sort the trace by time";
        assert_eq!((out, error.as_deref()), (vec![(0, 0)], Some(late)));
    }

    /// A record without a start stays after the record before it, even if that one has left.
    #[test]
    fn a_record_without_a_start_keeps_its_place() {
        let offsets = |starts: &[Option<u64>], window| {
            let left = of(starts, window).0.into_iter();
            Vec::from_iter(left.map(|(_, offset)| offset))
        };
        let starts = [Some(9), None, Some(8), None, None, Some(20)];
        assert_eq!(offsets(&starts, 8), [2, 0, 1, 3, 4, 5]);
        assert_eq!(offsets(&starts[..2], 0), [0, 1]);
    }
}
