//! Folios (runs of pages that the kernel's page cache manages as a unit) and the placement of a window's folios. Not a
//! policy.
//!
//! ```text
//!   window      start├──────────────────── size ─────────────────┤
//!   order 2     [ 4  5  6  7][ 8  9 10 11][12 13][14]                the largest aligned folio up to the order,
//!                                  ▲ mark          ▲ end of file     smaller ones towards the end
//! ```
//!
//! Placement is a pure function of the window and of the cached pages; the caller inserts the placed folios into its index. The module
//! has no state, and does not depend on whether pages have arrived.
//!
//! Source: docs/spec/linux-readahead.md 4.6. All positions and lengths are in pages of 4 KiB.

use alloc::vec::Vec;

/// The questions that the placement of folios asks about the cache; positions are in pages.
pub trait Sight {
    /// True when the page is cached.
    fn is_cached(&self, page: u64) -> bool;

    /// The first uncached page of `[from, from + limit)`.
    fn hole(&self, from: u64, limit: u64) -> Option<u64>;

    /// The number of consecutive cached pages just before page `i`, checking at most `limit`, as the kernel counts
    /// them; and whether they reach back to page 0.
    fn history(&self, i: u64, limit: u64) -> (u64, bool);

    /// Called before a sync or async call changes anything; used for comparisons.
    fn called(&self, _call: ReadaheadCall) {}
}

/// A synchronous or asynchronous readahead call, as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadaheadCall {
    /// True for a mark (async); false for an absent page (sync).
    pub hit: bool,
    /// The page.
    pub index: u64,
    /// The number of pages requested from it.
    pub req: u64,
}

/// The count of cached pages before page `i` as the kernel computes it, if `found` of at most `limit` checked pages are cached. If all
/// checked pages are cached, the kernel's count is one too small, and the kernel does not notice the start of the file
/// (docs/spec/linux-readahead.md 4.4).
#[must_use]
pub fn counted(found: u64, i: u64, limit: u64) -> (u64, bool) {
    if found >= limit {
        (limit.saturating_sub(1), false)
    } else {
        (found, found == i)
    }
}

/// A folio: `2^order` pages that start at a multiple of `2^order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folio {
    /// Its first page.
    pub first: u64,
    /// It has `2^order` pages.
    pub order: u32,
    /// It has the mark.
    pub marked: bool,
}

impl Folio {
    /// Number of pages in the folio.
    #[must_use]
    pub fn pages(&self) -> u64 {
        1 << self.order
    }

    /// The page after the folio's last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.pages()
    }
}

/// The latest readahead window. The folio `order` of the next window is derived from the `order` of this window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolioWindow {
    /// Its first page.
    pub start: u64,
    /// Number of pages, not clipped to the file.
    pub size: u64,
    /// The number of its last pages that are asynchronous; the first of them gets the mark.
    pub async_size: u64,
    /// Largest wanted folio order.
    pub order: u32,
}

/// A range that is read page by page, without large folios. A [`Placement`] contains such a range clipped to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    /// First page.
    pub index: u64,
    /// Number of pages.
    pub nr: u64,
    /// The mark is this many pages before the end; may exceed `nr`.
    pub lookahead: u64,
}

impl Raw {
    /// The range of `nr` pages from `index`.
    #[must_use]
    pub fn new(index: u64, nr: u64, lookahead: u64) -> Raw {
        Raw {
            index,
            nr,
            lookahead,
        }
    }
}

/// The result of placing a window: its folios, and the part that is read page by page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The folios to insert, in order.
    pub folios: Vec<Folio>,
    /// The part that is read page by page, if any.
    pub raw: Option<Raw>,
    /// The order that was used.
    pub order: u32,
}

/// Which sizes of folios a file system creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// It creates large folios.
    pub large: bool,
    /// The smallest order; above 0 if the file system's block is larger than a page.
    pub min_order: u32,
    /// The largest order.
    pub max_order: u32,
}

impl Shape {
    /// Places the folios of a window that begins at page `at` of a file with `end` pages (docs/spec/linux-readahead.md 4.6).
    #[must_use]
    pub fn place(&self, sight: &impl Sight, end: u64, at: u64, window: FolioWindow) -> Placement {
        let FolioWindow {
            size,
            async_size,
            order,
            ..
        } = window;
        let mut placed = Placement::default();
        let mut k = at;
        if self.large {
            // A window without pages does not limit the order. (Recorded on 6.18.44: `max` of one page, and a
            // description that has read nothing reaches a mark at page 0.)
            let by_size = size.checked_ilog2().unwrap_or(order);
            placed.order = self.max_order.min(order).min(by_size).max(self.min_order);
            k = round_down(at, self.min_order);
            let behind = end.min(at + size);
            let mark = at + size - async_size;
            while k < behind {
                let Some(folio) = self.next_folio(sight, k, behind, placed.order) else {
                    break;
                };
                placed.folios.push(Folio {
                    marked: k == round_down(mark, folio.order),
                    ..folio
                });
                k += folio.pages();
            }
            if k >= behind {
                return placed;
            }
        }
        // Rounding down may have moved `k` before `at`. The kernel's subtraction then wraps, and nothing is read.
        if let Some(done) = k.checked_sub(at).filter(|&done| size > done) {
            self.fetch(
                sight,
                end,
                Raw::new(k, size - done, async_size),
                &mut placed,
            );
        }
        placed
    }

    /// The largest folio that can be placed at page `k`, below `behind`; `None` if one of its pages is cached.
    fn next_folio(&self, sight: &impl Sight, k: u64, behind: u64, most: u32) -> Option<Folio> {
        let mut order = most.min(k.trailing_zeros());
        while order > self.min_order && k + (1 << order) > behind {
            order -= 1;
        }
        let folio = Folio {
            first: k,
            order,
            marked: false,
        };
        (k..folio.end())
            .all(|page| !sight.is_cached(page))
            .then_some(folio)
    }

    /// Reads the absent pages of `raw`, one folio of the smallest size at a time (docs/spec/linux-readahead.md 4.6, REST). The readahead
    /// mark is `lookahead` pages before the end of the read. The end of the file shortens the read but not the lookahead, so the mark moves
    /// towards the start and may disappear.
    pub fn fetch(&self, sight: &impl Sight, end: u64, raw: Raw, placed: &mut Placement) {
        let Raw {
            index: k,
            nr,
            lookahead,
        } = raw;
        let nr = nr.min(end.saturating_sub(k));
        if nr == 0 {
            return;
        }
        placed.raw = Some(Raw::new(k, nr, lookahead));
        let mark = (k + nr)
            .checked_sub(lookahead)
            .filter(|&m| m >= k)
            .map(|m| round_up(m, self.min_order));
        for first in (round_down(k, self.min_order)..k + nr).step_by(1 << self.min_order) {
            if !sight.is_cached(first) {
                placed.folios.push(Folio {
                    first,
                    order: self.min_order,
                    marked: mark == Some(first),
                });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::folios_index::Folios;
    use alloc::format;
    use alloc::string::String;

    const ALL: Shape = Shape {
        large: true,
        min_order: 0,
        max_order: 9,
    };
    const BLOCKS: Shape = Shape {
        min_order: 2,
        ..ALL
    };
    const SINGLE: Shape = Shape {
        large: false,
        ..ALL
    };
    const END: u64 = 4000;

    /// Folios as `index:order`, with an m if marked; the part that is read page by page; and the order that was used.
    fn told(placed: &Placement) -> String {
        let folio = |f: &Folio| {
            format!(
                "{}:{}{} ",
                f.first,
                f.order,
                if f.marked { "m" } else { "" }
            )
        };
        let folios: String = placed.folios.iter().map(folio).collect();
        let raw = placed.raw.map_or(String::new(), |r| {
            format!("raw {}+{}-{} ", r.index, r.nr, r.lookahead)
        });
        format!("{folios}{raw}o{}", placed.order)
    }

    fn place(
        shape: Shape,
        index: &Folios,
        end: u64,
        (start, size, async_size, order): (u64, u64, u64, u32),
    ) -> String {
        told(&shape.place(
            &index,
            end,
            start,
            FolioWindow {
                start,
                size,
                async_size,
                order,
            },
        ))
    }

    /// The same with one cached folio at most.
    fn beside(
        shape: Shape,
        cached: Option<(u64, u32)>,
        end: u64,
        window: (u64, u64, u64, u32),
    ) -> String {
        place(shape, &Folios::of(cached), end, window)
    }

    /// Section 4.12: the folios of sequential reads from page 0 and from page 1000.
    #[test]
    fn folios_of_sequential_reads() {
        let empty = Folios::default();
        for (window, folios) in [
            ((0, 4, 3, 0), "0:0 1:0m 2:0 3:0 o0"),
            ((4, 8, 8, 2), "4:2m 8:2 o2"),
            ((12, 4, 4, 4), "12:2m o2"),
            ((16, 8, 8, 4), "16:3m o3"),
            ((32, 16, 16, 5), "32:4m o4"),
            ((64, 32, 32, 6), "64:5m o5"),
            ((1005, 7, 7, 2), "1005:0m 1006:1 1008:2 o2"),
            ((1012, 12, 12, 4), "1012:2m 1016:3 o3"),
            ((1024, 24, 24, 5), "1024:4m 1040:3 o4"),
            ((0, 1024, 512, 9), "0:9 512:9m o9"),
            (
                (1024, 4096, 4096, 12),
                "1024:9m 1536:9 2048:9 2560:9 3072:9 3584:8 3840:7 3968:5 o9",
            ),
        ] {
            assert_eq!(place(ALL, &empty, END, window), folios, "{window:?}");
        }
    }

    /// The end of the file limits the folios; no folio is placed after it. Without pages the order stays.
    #[test]
    fn the_end_of_the_file() {
        for (shape, cached, window, folios) in [
            (ALL, None, (4, 8, 8, 2), "4:2m 8:1 10:0 o2"),
            (ALL, None, (12, 4, 4, 4), "o2"),
            (ALL, Some((0, 1)), (0, 0, 0, 2), "o2"),
            (
                SINGLE,
                None,
                (4, 8, 8, 2),
                "4:0 5:0 6:0 7:0 8:0 9:0 10:0 raw 4+7-8 o0",
            ),
            (SINGLE, None, (8, 4, 2, 0), "8:0 9:0m 10:0 raw 8+3-2 o0"),
            (SINGLE, None, (8, 8, 3, 0), "8:0m 9:0 10:0 raw 8+3-3 o0"),
            (SINGLE, None, (11, 4, 2, 0), "o0"),
        ] {
            assert_eq!(beside(shape, cached, 11, window), folios, "{window:?}");
        }
    }

    /// A cached page ends the placement. The rest is read page by page, and a mark on a cached page is lost.
    #[test]
    fn what_is_cached() {
        for (shape, cached, window, folios) in [
            (
                ALL,
                (20, 0),
                (16, 8, 8, 4),
                "16:0m 17:0 18:0 19:0 21:0 22:0 23:0 raw 16+8-8 o3",
            ),
            (
                ALL,
                (21, 0),
                (16, 8, 8, 2),
                "16:2m 20:0 22:0 23:0 raw 20+4-8 o2",
            ),
            (ALL, (17, 0), (16, 4, 1, 0), "16:0 18:0 19:0m raw 17+3-1 o0"),
            (ALL, (19, 0), (16, 4, 1, 0), "16:0 17:0 18:0 raw 19+1-1 o0"),
            (
                SINGLE,
                (18, 1),
                (16, 6, 4, 5),
                "16:0 17:0 20:0 21:0 raw 16+6-4 o0",
            ),
        ] {
            assert_eq!(
                beside(shape, Some(cached), END, window),
                folios,
                "{cached:?}"
            );
        }
    }

    /// Blocks of four pages: whole blocks are read, starting with the block in which the window begins. If it is
    /// cached, nothing is read.
    #[test]
    fn smallest_folios() {
        for (cached, window, folios) in [
            (None, (5, 8, 3, 0), "4:2 8:2m 12:2 o2"),
            (Some((4, 2)), (5, 8, 3, 0), "o2"),
            (Some((8, 2)), (4, 8, 3, 0), "4:2 raw 8+4-3 o2"),
        ] {
            assert_eq!(beside(BLOCKS, cached, END, window), folios, "{cached:?}");
        }
        for (end, raw, folios) in [
            (6000, Raw::new(5338, 6, 0), "5336:2 5340:2 raw 5338+6-0 o0"),
            (
                END,
                Raw::new(100, 20, 10),
                "100:2 104:2 108:2 112:2m 116:2 raw 100+20-10 o0",
            ),
        ] {
            let mut placed = Placement::default();
            BLOCKS.fetch(&&Folios::default(), end, raw, &mut placed);
            assert_eq!(told(&placed), folios);
        }
    }
}
