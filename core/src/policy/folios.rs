//! Folios: runs of pages that the kernel's page cache keeps as one, and where a window's folios go. Not a policy.
//!
//! ```text
//!   window      start├──────────────────── size ─────────────────┤
//!   order 2     [ 4  5  6  7][ 8  9 10 11][12 13][14]                the largest aligned folio up to the order,
//!                                  ▲ mark          ▲ end of file     smaller ones towards the end
//! ```
//!
//! Placement is a pure function of the window and of what is cached; whoever asked inserts what it returns.
//! Never: keeps anything, reads a byte, looks at whether one has arrived.
//!
//! Source: spec linux-readahead 4.6. Everything counts in pages of 4 KiB.

use alloc::vec::Vec;

/// What may be asked of the cache, in pages.
pub trait Sight {
    /// True when the page is cached.
    fn is_cached(&self, page: u64) -> bool;

    /// The first page of `[from, from + limit)` that is not.
    fn hole(&self, from: u64, limit: u64) -> Option<u64>;

    /// Consecutive cached pages just before page `i`, looking at `limit`, as the kernel counts them; and whether they
    /// reach back to page 0.
    fn history(&self, i: u64, limit: u64) -> (u64, bool);

    /// A sync or async call is made and has changed nothing yet: for whoever compares.
    fn called(&self, _call: Called) {}
}

/// A sync call, or an async one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// A mark was met; else a page was absent.
    pub hit: bool,
    /// The page.
    pub index: u64,
    /// Pages wanted from it.
    pub req: u64,
}

/// The kernel's count of a history of `found` pages: one short when all it looked at is cached, and then it has not
/// seen the start of the file either (4.4).
#[must_use]
pub fn counted(found: u64, i: u64, limit: u64) -> (u64, bool) {
    if found >= limit { (limit.saturating_sub(1), false) } else { (found, found == i) }
}

/// `2^order` pages from a multiple of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folio {
    /// Its first page.
    pub first: u64,
    /// Its size is two to this.
    pub order: u32,
    /// It bears the mark.
    pub marked: bool,
}

impl Folio {
    /// Pages in it.
    #[must_use]
    pub fn pages(&self) -> u64 {
        1 << self.order
    }

    /// The page behind its last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.pages()
    }
}

/// What is remembered of a window. `order` is what the next one builds on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its first page.
    pub start: u64,
    /// Its pages, not clipped to the file.
    pub size: u64,
    /// Its last pages, of which the first gets the mark.
    pub async_size: u64,
    /// Largest folio order wanted.
    pub order: u32,
}

/// A read page by page, after clipping to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    /// First page.
    pub index: u64,
    /// Pages.
    pub nr: u64,
    /// Pages at its end of which the first would get the mark; may exceed `nr`.
    pub lookahead: u64,
}

/// Where a window came to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// What is inserted, in order.
    pub folios: Vec<Folio>,
    /// The part read page by page, if the window came to that.
    pub raw: Option<Raw>,
    /// The order that was used.
    pub order: u32,
}

/// Which folios a file system makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// It makes large ones at all.
    pub large: bool,
    /// The smallest: above 0 where its block is larger than a page.
    pub min_order: u32,
    /// The largest.
    pub max_order: u32,
}

impl Shape {
    /// 4.6: where the folios of a window go that begins at page `at` of a file of `end` pages.
    #[must_use]
    pub fn place(&self, sight: &impl Sight, end: u64, at: u64, window: Window) -> Placed {
        let Window { size, async_size, order, .. } = window;
        let mut placed = Placed::default();
        let mut k = at;
        if self.large {
            placed.order = self.max_order.min(order).min(size.max(1).ilog2()).max(self.min_order);
            k = round_down(at, self.min_order);
            let behind = end.min(at + size);
            let mark = at + size - async_size;
            while k < behind {
                let Some(folio) = self.next_folio(sight, k, behind, placed.order) else { break };
                placed.folios.push(Folio { marked: k == round_down(mark, folio.order), ..folio });
                k += folio.pages();
            }
            if k >= behind {
                return placed;
            }
        }
        // Rounding down may have left `k` before `at`: the kernel's subtraction wraps, and nothing is read.
        if let Some(done) = k.checked_sub(at).filter(|&done| size > done) {
            self.fetch(sight, end, (k, size - done, async_size), &mut placed);
        }
        placed
    }

    /// The largest folio that may stand at page `k`, below `behind`; none where a page of it is cached.
    fn next_folio(&self, sight: &impl Sight, k: u64, behind: u64, most: u32) -> Option<Folio> {
        let mut order = most.min(k.trailing_zeros());
        while order > self.min_order && k + (1 << order) > behind {
            order -= 1;
        }
        let folio = Folio { first: k, order, marked: false };
        (k..folio.end()).all(|page| !sight.is_cached(page)).then_some(folio)
    }

    /// 4.6, REST: the absent ones of `nr` pages from `k`, one smallest folio at a time. A mark stands `lookahead` pages
    /// before the end. Clipping shortens the read but not the lookahead, so the mark moves to the front, and away.
    pub fn fetch(&self, sight: &impl Sight, end: u64, (k, nr, lookahead): (u64, u64, u64), placed: &mut Placed) {
        let nr = nr.min(end.saturating_sub(k));
        if nr == 0 {
            return;
        }
        placed.raw = Some(Raw { index: k, nr, lookahead });
        let mark = (k + nr).checked_sub(lookahead).filter(|&m| m >= k).map(|m| round_up(m, self.min_order));
        for first in (round_down(k, self.min_order)..k + nr).step_by(1 << self.min_order) {
            if !sight.is_cached(first) {
                placed.folios.push(Folio { first, order: self.min_order, marked: mark == Some(first) });
            }
        }
    }
}

fn round_down(page: u64, order: u32) -> u64 {
    page >> order << order
}

fn round_up(page: u64, order: u32) -> u64 {
    round_down(page + (1 << order) - 1, order)
}
