//! An index of one file's folios by position. The index finds the next page without a folio, and counts the adjacent cached pages before
//! a page. This file is not a policy.
//!
//! ```text
//!   page     8   9  10  11  12  13        hole from 8: 11     history before 11: 3
//!   folio   [ 8:1 ][10]     [ 12:1 ]
//! ```
//!
//! Source: docs/spec/linux-readahead.md 4.4 to 4.6. All positions and lengths are in pages of 4 KiB.

use super::folios::{Folio, Sight, counted};
use alloc::collections::BTreeMap;

/// The folios of one file, ordered by first page. Folios in this index never overlap.
#[derive(Clone, Debug, Default)]
pub struct Folios {
    by_first: BTreeMap<u64, Folio>,
}

impl Folios {
    /// An empty index.
    pub const NONE: Folios = Folios {
        by_first: BTreeMap::new(),
    };

    /// Creates an index of folios without marks, each given by its first page and its order.
    pub fn of(folios: impl IntoIterator<Item = (u64, u32)>) -> Folios {
        let mut index = Folios::default();
        index.extend(folios);
        index
    }

    /// Inserts folios without marks.
    pub fn extend(&mut self, folios: impl IntoIterator<Item = (u64, u32)>) {
        for (first, order) in folios {
            let marked = false;
            self.insert(Folio {
                first,
                order,
                marked,
            });
        }
    }

    /// Number of folios.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_first.len()
    }

    /// True if there are no folios.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    /// The folio that holds `page`.
    #[must_use]
    pub fn at(&self, page: u64) -> Option<Folio> {
        let (_, &folio) = self.by_first.range(..=page).next_back()?;
        (page < folio.end()).then_some(folio)
    }

    /// Inserts a folio and removes those that it overlaps.
    pub fn insert(&mut self, folio: Folio) {
        self.remove(folio.first, folio.end());
        self.by_first.insert(folio.first, folio);
    }

    /// Removes all folios that contain a page of `[from, end)`.
    pub fn remove(&mut self, from: u64, end: u64) {
        let first = self.at(from).map_or(from, |folio| folio.first);
        while let Some((&at, _)) = self.by_first.range(first..end).next() {
            self.by_first.remove(&at);
        }
    }

    /// Clears the mark of the folio that begins at `first`.
    pub fn clear_mark(&mut self, first: u64) {
        if let Some(folio) = self.by_first.get_mut(&first) {
            folio.marked = false;
        }
    }

    /// Keeps only the folios for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Folio) -> bool) {
        self.by_first.retain(|_, folio| keep(folio));
    }
}

/// If every cached page is in a folio, the index itself gives exact answers.
impl Sight for &Folios {
    fn is_cached(&self, page: u64) -> bool {
        self.at(page).is_some()
    }

    fn hole(&self, from: u64, limit: u64) -> Option<u64> {
        let mut page = from;
        while page < from + limit {
            page = match self.at(page) {
                Some(folio) => folio.end(),
                None => return Some(page),
            };
        }
        None
    }

    fn history(&self, i: u64, limit: u64) -> (u64, bool) {
        let mut page = i;
        while i - page < limit {
            page = match page.checked_sub(1).and_then(|before| self.at(before)) {
                Some(folio) => folio.first,
                None => break,
            };
        }
        counted(i - page, i, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_do_not_meet() {
        let mut index = Folios::of([(0, 2), (4, 2), (8, 0), (16, 4)]);
        assert_eq!(index.at(7).map(|f| f.first), Some(4));
        assert_eq!(
            (index.at(9), index.at(15), index.at(32)),
            (None, None, None)
        );
        index.insert(Folio {
            first: 6,
            order: 1,
            marked: true,
        });
        assert_eq!((index.at(4), index.len()), (None, 4));
        index.clear_mark(6);
        assert_eq!(
            index.at(6),
            Some(Folio {
                first: 6,
                order: 1,
                marked: false
            })
        );
        assert!(!index.is_empty());
        index.retain(|folio| folio.first == 8);
        assert_eq!(
            (index.len(), index.at(6), index.at(8).map(|f| f.first)),
            (1, None, Some(8))
        );
        index.remove(3, 17);
        assert!(index.is_empty());
    }

    #[test]
    fn exact_probes() {
        let index = Folios::of([(0, 2), (4, 2), (10, 0), (11, 0), (12, 2)]);
        let exact = &index;
        assert_eq!(
            (
                exact.hole(1, 7),
                exact.hole(1, 8),
                exact.hole(8, 1),
                exact.hole(3, 5)
            ),
            (None, Some(8), Some(8), None)
        );
        assert_eq!(
            (
                exact.history(16, 32),
                exact.history(15, 32),
                exact.history(10, 32)
            ),
            ((6, false), (5, false), (0, false))
        );
        assert_eq!(
            (
                exact.history(8, 32),
                exact.history(8, 9),
                exact.history(8, 8)
            ),
            ((8, true), (8, true), (7, false))
        );
        assert_eq!(
            (
                exact.history(16, 6),
                exact.history(16, 5),
                exact.history(0, 8)
            ),
            ((5, false), (4, false), (0, true))
        );
    }
}
