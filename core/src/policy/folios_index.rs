//! The folios of one file by their place, and what the kernel's two probes return on them. Not a policy.
//!
//! ```text
//!   page number   8   9  10  11  12 ..          a probe that begins at page 9, inside the folio of page 8
//!   slot          8   8   9  10  11 ..          looks at the slot of page 8, one page out of step,
//!                     ▲ begins here             until the slots cross a multiple of 64
//! ```
//!
//! Never: two folios that meet.
//!
//! Source: spec linux-readahead 4.9. Everything counts in pages of 4 KiB.

use super::folios::{Folio, Sight, counted};
use alloc::collections::BTreeMap;

/// The kernel's index of the cache has leaves of 64 slots; a folio that fills a leaf or more has no slot to be out of
/// step with (4.9).
const LEAF: u64 = 64;

/// The folios of one file, by first page. They do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Folios {
    by_first: BTreeMap<u64, Folio>,
}

impl Folios {
    /// No folio at all.
    pub const NONE: Folios = Folios { by_first: BTreeMap::new() };

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_first.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    /// The one that holds `page`.
    #[must_use]
    pub fn at(&self, page: u64) -> Option<Folio> {
        let (_, &folio) = self.by_first.range(..=page).next_back()?;
        (page < folio.end()).then_some(folio)
    }

    /// Puts one in; whatever it meets is gone.
    pub fn insert(&mut self, folio: Folio) {
        self.remove(folio.first, folio.end());
        self.by_first.insert(folio.first, folio);
    }

    /// Takes out whatever holds a page of `[from, end)`.
    pub fn remove(&mut self, from: u64, end: u64) {
        let first = self.at(from).map_or(from, |folio| folio.first);
        while let Some((&at, _)) = self.by_first.range(first..end).next() {
            self.by_first.remove(&at);
        }
    }

    /// Takes the mark off the folio that begins at `first`.
    pub fn clear_mark(&mut self, first: u64) {
        if let Some(folio) = self.by_first.get_mut(&first) {
            folio.marked = false;
        }
    }

    /// Keeps those that the caller wants kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&Folio) -> bool) {
        self.by_first.retain(|_, folio| keep(folio));
    }

    /// How far a cursor that is put on `page` is out of step: pages from the first page of its folio.
    fn lag(&self, page: u64) -> u64 {
        self.at(page).filter(|f| f.pages() < LEAF).map_or(0, |f| page - f.first)
    }
}

/// Where every cached page is in a folio, the index itself answers, exactly.
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

/// 4.9: what the kernel's probes return. Its cursor stands on the first slot of a large folio while its page number
/// stays where it was, until the slots cross a leaf of the index.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a, S> {
    /// Where the folios are.
    pub folios: &'a Folios,
    /// What is cached.
    pub sight: S,
}

impl<S: Sight> Sight for Cursor<'_, S> {
    fn is_cached(&self, page: u64) -> bool {
        self.sight.is_cached(page)
    }

    fn hole(&self, from: u64, limit: u64) -> Option<u64> {
        let lag = self.folios.lag(from);
        // From the next leaf on, number and slot agree; the first `lag` pages of that leaf were never looked at.
        let agree = ((from - lag) / LEAF + 1) * LEAF + lag;
        let end = from + limit;
        let early = (from..end.min(agree)).find(|page| !self.sight.is_cached(page - lag));
        early.or_else(|| if agree < end { self.sight.hole(agree, end - agree) } else { None })
    }

    fn history(&self, i: u64, limit: u64) -> (u64, bool) {
        let Some(last) = i.checked_sub(1) else { return counted(0, i, limit) };
        let (mut page, mut slot) = (last, last - self.folios.lag(last));
        if slot == page {
            return self.sight.history(i, limit);
        }
        for found in 0..limit {
            if !self.sight.is_cached(slot) {
                return counted(found, i, limit);
            }
            if page == 0 {
                return counted(found + 1, i, limit);
            }
            page -= 1;
            if slot % LEAF != 0 {
                slot -= 1;
            } else if page % LEAF != 0 {
                // Into the leaf before, at the place that the number names there: 64 pages too low unless in step.
                let Some(leaf) = slot.checked_sub(LEAF) else { return counted(found + 1, i, limit) };
                slot = leaf + page % LEAF;
            }
        }
        counted(limit, i, limit)
    }
}
