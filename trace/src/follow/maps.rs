//! Tracks which file bytes are mapped at which addresses, for madvise hints and page faults.
//!
//! ```text
//!   thread ──► space (shared by threads, copied by fork, empty after exec) ──► address ──► open description, offset
//! ```
//! Mappings made before the recording, or possibly changed by a lost event, are not included.

use crate::error::Fault;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of mappings over all processes.
const MAX_MAPPINGS: usize = 1 << 18;
const MANY: Fault = (
    "more than 262144 mappings at one time",
    "trace fewer processes, or cut the trace into parts",
);

/// The address spaces of all threads. For a thread that is not listed, neither its mappings nor the threads that share
/// its memory are known.
pub(super) struct Spaces {
    page_bytes: u64,
    threads: HashMap<u32, u32>,
    spaces: HashMap<u32, Space>,
    next: u32,
    mappings: usize,
}

#[derive(Default)]
struct Space {
    users: u32,
    /// Mappings by first address; they do not overlap.
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Clone, Copy)]
struct Mapping {
    end: u64,
    open: u32,
    offset: u64,
}

/// A contiguous mapped range of an open description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub open: u32,
    pub offset: u64,
    pub len: u64,
}

impl Spaces {
    /// Creates the tracker for a machine with this page size.
    pub fn new(page_bytes: u64) -> Spaces {
        Spaces {
            page_bytes,
            threads: HashMap::new(),
            spaces: HashMap::new(),
            next: 0,
            mappings: 0,
        }
    }

    /// The end of a mapping, rounded up to a page.
    fn end_of(&self, start: u64, len: u64) -> u64 {
        let whole = len.checked_next_multiple_of(self.page_bytes);
        start.saturating_add(whole.unwrap_or(u64::MAX))
    }

    /// Adds a thread with its own address space, whose earlier mappings are unknown.
    pub fn begin(&mut self, thread: u32) {
        self.exit(thread);
        self.give(thread, BTreeMap::new());
    }

    fn give(&mut self, thread: u32, mappings: BTreeMap<u64, Mapping>) {
        self.next = self.next.wrapping_add(1);
        self.mappings += mappings.len();
        self.spaces.insert(self.next, Space { users: 1, mappings });
        self.threads.insert(thread, self.next);
    }

    /// Records that a thread creates a child, which shares its address space or gets a copy of it.
    pub fn fork(&mut self, parent: u32, child: u32, share: bool) -> Result<(), Fault> {
        self.exit(child);
        let parents = self.threads.get(&parent).copied();
        match parents.and_then(|number| Some((number, self.spaces.get_mut(&number)?))) {
            Some((number, space)) if share => {
                space.users += 1;
                self.threads.insert(child, number);
            }
            Some((_, space)) if self.mappings + space.mappings.len() > MAX_MAPPINGS => {
                return Err(MANY);
            }
            Some((_, space)) => {
                let copy = space.mappings.clone();
                self.give(child, copy);
            }
            None if share => {}
            None => self.begin(child),
        }
        Ok(())
    }

    pub fn exit(&mut self, thread: u32) {
        let Some(number) = self.threads.remove(&thread) else {
            return;
        };
        let Some(space) = self.spaces.get_mut(&number) else {
            return;
        };
        space.users -= 1;
        if space.users == 0 {
            self.mappings -= self
                .spaces
                .remove(&number)
                .map_or(0, |space| space.mappings.len());
        }
    }

    pub fn forget(&mut self) {
        *self = Spaces::new(self.page_bytes);
    }

    fn own(&mut self, thread: u32) -> Option<&mut BTreeMap<u64, Mapping>> {
        self.spaces
            .get_mut(self.threads.get(&thread)?)
            .map(|space| &mut space.mappings)
    }

    /// Records that an open file description is mapped, which replaces earlier mappings of the same addresses.
    pub fn map(
        &mut self,
        thread: u32,
        start: u64,
        len: u64,
        open: u32,
        offset: u64,
    ) -> Result<(), Fault> {
        self.unmap(thread, start, len);
        if self.mappings >= MAX_MAPPINGS {
            return Err(MANY);
        }
        let end = self.end_of(start, len);
        if let Some(own) = self.own(thread) {
            own.insert(start, Mapping { end, open, offset });
            self.mappings += 1;
        }
        Ok(())
    }

    /// Records that a range of addresses is unmapped.
    pub fn unmap(&mut self, thread: u32, start: u64, len: u64) {
        let end = self.end_of(start, len);
        let Some(own) = self.own(thread) else { return };
        let before = own.len();
        while let Some((&from, &mapping)) = own
            .range(..end)
            .next_back()
            .filter(|(_, mapping)| mapping.end > start)
        {
            own.remove(&from);
            if mapping.end > end {
                own.insert(
                    end,
                    Mapping {
                        offset: mapping.offset.saturating_add(end - from),
                        ..mapping
                    },
                );
            }
            if from < start {
                own.insert(
                    from,
                    Mapping {
                        end: start,
                        ..mapping
                    },
                );
            }
        }
        let after = own.len();
        self.mappings = self.mappings + after - before;
    }

    /// Records that a mapping is moved or resized; if `keep` is true, the old mapping also remains.
    pub fn remap(
        &mut self,
        thread: u32,
        from: (u64, u64),
        to: (u64, u64),
        keep: bool,
    ) -> Result<(), Fault> {
        let page_bytes = self.page_bytes;
        let Some(piece) = self.pieces(thread, from.0, page_bytes).into_iter().next() else {
            self.unmap(thread, to.0, to.1);
            return Ok(());
        };
        if !keep {
            self.unmap(thread, from.0, from.1);
        }
        self.map(thread, to.0, to.1, piece.open, piece.offset)
    }

    /// Returns the known mappings in a range of addresses.
    pub fn pieces(&mut self, thread: u32, start: u64, len: u64) -> Vec<Piece> {
        let end = self.end_of(start, len);
        let Some(own) = self.own(thread) else {
            return Vec::new();
        };
        let all = own
            .range(..end)
            .rev()
            .take_while(|(_, mapping)| mapping.end > start);
        let piece = |(&from, mapping): (&u64, &Mapping)| {
            let (first, last) = (from.max(start), mapping.end.min(end));
            Piece {
                open: mapping.open,
                offset: mapping.offset.saturating_add(first - from),
                len: last - first,
            }
        };
        let mut pieces: Vec<Piece> = all.map(piece).collect();
        pieces.reverse();
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = crate::follow::DEFAULT_PAGE_BYTES;

    fn at(spaces: &mut Spaces, thread: u32, start: u64, len: u64) -> Vec<(u32, u64, u64)> {
        let pieces = spaces.pieces(thread, start * PAGE, len * PAGE);
        let in_pages = |piece: Piece| (piece.open, piece.offset / PAGE, piece.len / PAGE);
        pieces.into_iter().map(in_pages).collect()
    }

    #[test]
    fn what_is_mapped_over_and_cut_is_gone_and_the_rest_is_not() {
        let mut spaces = Spaces::new(PAGE);
        spaces.begin(1);
        let mapped = spaces.map(1, 100 * PAGE, 10 * PAGE, 7, 50 * PAGE);
        mapped.expect("room");
        spaces.unmap(1, 103 * PAGE, 2 * PAGE - 1);
        assert_eq!(at(&mut spaces, 1, 0, 1000), [(7, 50, 3), (7, 55, 5)]);
        spaces.map(1, 108 * PAGE, 4 * PAGE, 8, 0).expect("room");
        let left = [(7, 52, 1), (7, 55, 3), (8, 0, 2)];
        assert_eq!(at(&mut spaces, 1, 102, 8), left);
        let moved = spaces.remap(1, (108 * PAGE, 4 * PAGE), (200 * PAGE, 2 * PAGE), false);
        moved.expect("room");
        assert_eq!(at(&mut spaces, 1, 107, 200), [(7, 57, 1), (8, 0, 2)]);
        // An unknown mapping replaces a known one.
        let moved = spaces.remap(1, (500 * PAGE, PAGE), (200 * PAGE, PAGE), false);
        moved.expect("room");
        assert_eq!(at(&mut spaces, 1, 200, 9), [(8, 1, 1)]);
        spaces.unmap(1, 0, u64::MAX);
        assert_eq!((at(&mut spaces, 1, 0, 1000).len(), spaces.mappings), (0, 0));
    }

    #[test]
    fn threads_share_fork_copies_and_exec_resets() {
        let mut spaces = Spaces::new(PAGE);
        spaces.begin(1);
        spaces.fork(1, 2, true).expect("room");
        spaces.map(2, PAGE, PAGE, 7, 0).expect("room");
        spaces.fork(1, 3, false).expect("room");
        spaces.unmap(1, PAGE, PAGE);
        assert_eq!(
            [2, 3].map(|thread| at(&mut spaces, thread, 1, 1).len()),
            [0, 1]
        );
        spaces.begin(3);
        assert_eq!((at(&mut spaces, 3, 1, 1).len(), spaces.mappings), (0, 0));
        // After a loss it is unknown which threads share memory, until a thread gets its own address space.
        spaces.forget();
        spaces.fork(1, 4, true).expect("room");
        spaces.map(4, PAGE, PAGE, 7, 0).expect("room");
        assert!(at(&mut spaces, 4, 1, 1).is_empty());
        spaces.fork(4, 5, false).expect("room");
        spaces.map(5, PAGE, PAGE, 7, 0).expect("room");
        assert_eq!(at(&mut spaces, 5, 1, 1).len(), 1);
        (1..=5).for_each(|thread| spaces.exit(thread));
        assert!(spaces.spaces.is_empty() && spaces.threads.is_empty());
        assert_eq!(spaces.mappings, 0);
    }

    #[test]
    fn mappings_have_a_limit() {
        let mut spaces = Spaces::new(PAGE);
        spaces.begin(1);
        for page in 0..MAX_MAPPINGS as u64 {
            spaces.map(1, 2 * page * PAGE, PAGE, 7, 0).expect("room");
        }
        assert_eq!(spaces.map(1, PAGE, PAGE, 7, 0), Err(MANY));
        assert_eq!(spaces.fork(1, 2, false), Err(MANY));
        let replaced = spaces.map(1, 0, 2 * PAGE, 7, 0);
        replaced.expect("in place of another");
    }
}
