//! Puts the records of a trace in the order of time, within a window, and lets the first one begin at 0.
//!
//! ```text
//!   in order ──► run (a queue) ──┐
//!                                ├──► the earlier of the two fronts, once the window is full
//!   late     ──► heap ───────────┘
//! ```
//!
//! A trace that is in order costs a queue; only late records go through the heap. Records of one time stay as they came.
//! Files pass at once. Never: a guess about a record farther out of place than the window: that is an error.

use super::error::{Place, TraceError};
use super::{Item, Items, Record};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};

/// Records that are held back: some 8 MB. Completions of one queue are out of place by its depth, merged hosts by more.
pub const WINDOW: usize = 1 << 16;

/// A record by time, then by place.
struct Held {
    key: (u64, u64),
    record: Record,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key == other.key
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

struct Ordered {
    items: Items,
    path: PathBuf,
    window: usize,
    run: VecDeque<Held>,
    late: BinaryHeap<Reverse<Held>>,
    /// Records taken in.
    taken: u64,
    /// When the first one began that went out.
    base_ns: Option<u64>,
    latest_ns: u64,
    /// Nothing more comes in; what is held goes out, then this error.
    ended: Option<Option<TraceError>>,
}

/// The records of `items` by their starts, the first of which becomes 0. `path` is what errors name. A record without a
/// start keeps its place behind the one before it. Not for records that name others: their numbers change.
#[must_use]
pub fn sorted(items: Items, path: &Path) -> Items {
    Box::new(Ordered {
        items,
        path: path.to_path_buf(),
        window: WINDOW,
        run: VecDeque::new(),
        late: BinaryHeap::new(),
        taken: 0,
        base_ns: None,
        latest_ns: 0,
        ended: None,
    })
}

impl Ordered {
    fn hold(&mut self, record: Record) {
        let before = self.run.back().map_or(0, |held| held.key.0);
        let key = (record.start_ns.unwrap_or(before), self.taken);
        self.taken += 1;
        let held = Held { key, record };
        if key.0 >= before { self.run.push_back(held) } else { self.late.push(Reverse(held)) }
    }

    fn release(&mut self) -> Option<Held> {
        match (self.run.front(), self.late.peek()) {
            (Some(run), Some(Reverse(late))) if late.key < run.key => self.late.pop().map(|held| held.0),
            (None, _) => self.late.pop().map(|held| held.0),
            (Some(_), _) => self.run.pop_front(),
        }
    }

    fn out(&mut self, held: Held) -> Result<Item, TraceError> {
        let Held { key: (time, place), mut record } = held;
        if time < self.latest_ns {
            let what = format!("time goes backwards by more than {} records", self.window);
            return Err(TraceError::new(&self.path, Place::Record(place + 1), what, "sort the trace by time"));
        }
        self.latest_ns = time;
        if let Some(start) = record.start_ns {
            let base = *self.base_ns.get_or_insert(start);
            record.start_ns = Some(start - base);
            record.end_ns = record.end_ns.map(|end| end.saturating_sub(base));
        }
        Ok(Item::Record(record))
    }
}

impl Iterator for Ordered {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ended.is_none() && self.run.len() + self.late.len() <= self.window {
            match self.items.next() {
                Some(Ok(Item::Record(record))) => self.hold(record),
                Some(Ok(file)) => return Some(Ok(file)),
                Some(Err(error)) => self.ended = Some(Some(error)),
                None => self.ended = Some(None),
            }
        }
        let Some(held) = self.release() else { return self.ended.as_mut()?.take().map(Err) };
        let out = self.out(held);
        if out.is_err() {
            (self.run, self.late, self.ended) = (VecDeque::new(), BinaryHeap::new(), Some(None));
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(starts: &[u64], window: usize) -> (Vec<(u64, u64)>, Option<String>) {
        let record = |(i, start): (usize, &u64)| Record {
            start_ns: Some(*start),
            end_ns: Some(start + 5),
            ..Record::read(0, i as u64, 1)
        };
        let items: Vec<Item> = starts.iter().enumerate().map(|(i, start)| Item::Record(record((i, start)))).collect();
        let mut ordered = Ordered {
            items: Box::new(items.into_iter().map(Ok)),
            path: PathBuf::from("t"),
            window,
            run: VecDeque::new(),
            late: BinaryHeap::new(),
            taken: 0,
            base_ns: None,
            latest_ns: 0,
            ended: None,
        };
        let (mut out, mut error) = (Vec::new(), None);
        for item in ordered.by_ref() {
            match item {
                Ok(Item::Record(r)) => {
                    assert_eq!(r.end_ns, r.start_ns.map(|start| start + 5));
                    out.push((r.start_ns.expect("a start"), r.offset));
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
        let (out, error) = of(&[105, 103, 103, 110, 100, 105, 120], 8);
        assert_eq!(out, [(0, 4), (3, 1), (3, 2), (5, 0), (5, 5), (10, 3), (20, 6)]);
        assert_eq!(error, None);
    }

    #[test]
    fn a_record_out_of_place_by_the_window_is_the_last_that_is_mended() {
        assert_eq!(of(&[10, 11, 12, 9], 3).0, [(0, 3), (1, 0), (2, 1), (3, 2)]);
        let (out, error) = of(&[10, 11, 12, 13, 9, 14], 3);
        assert_eq!(out, [(0, 0)]);
        let error = error.expect("too late");
        assert_eq!(error, "time goes backwards by more than 3 records: t, record 5; sort the trace by time");
    }
}
