//! Predicts what the two page cache look-ups of the kernel's readahead code return if a file has large folios. With large folios the
//! kernel's result can be wrong, because its position in the index (the xarray) gets out of step with the page number.
//!
//! ```text
//!   page number   8   9  10  11  12 ..          a probe that begins at page 9, inside the folio of page 8
//!   slot          8   8   9  10  11 ..          checks the slot of page 8, one page out of step,
//!                     ▲ begins here             until the slots cross a multiple of 64
//! ```
//!
//! This module never changes the cache. Without large folios, the kernel's look-ups are exact.
//!
//! Source: docs/spec/linux-readahead.md 4.9. The rules for folios of at least 128 pages, and for page numbers that are multiples of 4096,
//! come from recordings of Linux 6.18.44 (`conform linux`). The tests contain these recordings.

use foreread_core::policy::kernel::{Folios, Sight, counted};

/// The kernel's index of the cache has leaves of 64 slots. A folio that fills exactly one leaf cannot be out of step
/// (4.9). On a folio that fills several, the cursor is on the first, and moves one leaf forward with each page until it
/// reaches the page's leaf (recorded on 6.18.44: from page 7678 of the folio 7168..7680 the first hole is 7686).
const LEAF: u64 = 64;

/// Predicts the results of the kernel's cache look-ups (docs/spec/linux-readahead.md 4.9). If a look-up begins inside a large folio, the
/// kernel's cursor is on the folio's first slot, although its page number is that of a later page. The cursor stays on the first slot until
/// the slots cross a leaf of the index.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a, S> {
    pub folios: &'a Folios,
    pub sight: S,
}

impl<S: Sight> Sight for Cursor<'_, S> {
    fn is_cached(&self, page: u64) -> bool {
        self.sight.is_cached(page)
    }

    fn hole(&self, from: u64, limit: u64) -> Option<u64> {
        let end = from + limit;
        if let Some(folio) = self.folios.at(from).filter(|f| f.pages() > LEAF) {
            // One leaf for each page, from the folio's first page on. Near its end the page number leaves the folio
            // before the leaf does.
            let behind = (from - folio.first) / LEAF;
            let agree = if from + behind < folio.end() {
                from
            } else {
                from + behind + 1
            };
            return if agree < end {
                self.sight.hole(agree, end - agree)
            } else {
                None
            };
        }
        let lag = lag(self.folios, from);
        // From the next leaf on, number and slot agree; the first `lag` pages of that leaf are skipped.
        let agree = ((from - lag) / LEAF + 1) * LEAF + lag;
        let early = (from..end.min(agree)).find(|page| !self.sight.is_cached(page - lag));
        early.or_else(|| {
            if agree < end {
                self.sight.hole(agree, end - agree)
            } else {
                None
            }
        })
    }

    fn history(&self, i: u64, limit: u64) -> (u64, bool) {
        let Some(last) = i.checked_sub(1) else {
            return counted(0, i, limit);
        };
        let first = self.folios.at(last).map_or(last, |folio| folio.first);
        let mut place = match lag(self.folios, last) {
            0 if last / LEAF == first / LEAF => return self.sight.history(i, limit),
            0 => Place::Leaf(first / LEAF),
            lag => Place::Slot(last - lag),
        };
        let mut page = last;
        for found in 0..limit {
            if !matches!(place, Place::Slot(slot) if self.sight.is_cached(slot))
                && !matches!(place, Place::Leaf(_))
            {
                return counted(found, i, limit);
            }
            if page == 0 {
                return counted(found + 1, i, limit);
            }
            page -= 1;
            let leaf = match place {
                Place::Slot(slot) if slot % LEAF != 0 => {
                    place = Place::Slot(slot - 1);
                    continue;
                }
                Place::Slot(slot) if page % LEAF != 0 => slot / LEAF,
                Place::Leaf(leaf) if page / LEAF % LEAF != leaf % LEAF => leaf,
                Place::Slot(_) | Place::Leaf(_) => continue,
            };
            let Some(before) = self.before(leaf, page) else {
                return counted(found + 1, i, limit);
            };
            place = before;
        }
        counted(limit, i, limit)
    }
}

/// How far a cursor that is set to `page` is out of step: the number of pages from the first page of its folio.
fn lag(folios: &Folios, page: u64) -> u64 {
    folios
        .at(page)
        .filter(|f| f.pages() < LEAF)
        .map_or(0, |f| page - f.first)
}

/// The position of the cursor: at a page's slot, or at a leaf that a folio fills.
#[derive(Clone, Copy, Debug)]
enum Place {
    Slot(u64),
    Leaf(u64),
}

impl<S> Cursor<'_, S> {
    /// Moves back over the front of a leaf. Each level of the index has 64 entries. The lowest level that can go back
    /// goes back by one, and all levels below it take the values of the page number. So the cursor lands 64 pages too
    /// low, or 4096 or more, unless it is in step.
    fn before(&self, leaf: u64, page: u64) -> Option<Place> {
        let mut unit = 1;
        while (leaf / unit).is_multiple_of(LEAF) {
            unit *= LEAF;
            if unit > leaf {
                return None;
            }
        }
        let leaf = (leaf / unit - 1) * unit + page / LEAF % unit;
        Some(match self.folios.at(leaf * LEAF) {
            Some(folio) if folio.pages() >= LEAF => Place::Leaf(leaf),
            _ => Place::Slot(leaf * LEAF + page % LEAF),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn cursor(index: &Folios) -> Cursor<'_, &Folios> {
        Cursor {
            folios: index,
            sight: index,
        }
    }

    /// Forward: the result is as many pages too late as the probe begins after the first page of its folio (4.9).
    #[test]
    fn the_kernels_hole_is_late() {
        let index = Folios::of([(8, 3), (16, 2), (21, 0), (48, 4), (64, 1), (128, 6)]);
        let kernel = cursor(&index);
        assert_eq!(
            (kernel.hole(8, 32), kernel.hole(16, 32), kernel.hole(20, 32)),
            (Some(20), Some(20), Some(20))
        );
        assert_eq!(
            (kernel.hole(9, 32), kernel.hole(11, 32), kernel.hole(17, 32)),
            (Some(21), Some(23), Some(21))
        );
        assert_eq!(
            (kernel.hole(9, 12), kernel.hole(9, 13)),
            (None, Some(21)),
            "the limit counts page numbers"
        );
        // After page 64, number and slot agree, and the skipped pages 64, 65 and 66 are never seen.
        assert_eq!(
            (
                kernel.hole(49, 32),
                kernel.hole(50, 32),
                kernel.hole(51, 32)
            ),
            (Some(66), Some(66), Some(67))
        );
        assert_eq!((kernel.hole(51, 16), kernel.hole(51, 17)), (None, Some(67)));
        assert_eq!(
            (kernel.is_cached(21), kernel.is_cached(20)),
            (true, false),
            "what is there is known exactly"
        );
        // A folio that ends with its leaf: the page number crosses one page later than the slot.
        let index = Folios::of([(62, 1), (64, 1), (96, 5), (128, 5)]);
        let at_the_edge = cursor(&index);
        assert_eq!(
            (
                at_the_edge.hole(63, 32),
                at_the_edge.hole(97, 48),
                at_the_edge.hole(97, 64)
            ),
            (Some(66), None, Some(160))
        );
        // A folio of 64 pages fills a leaf, so the cursor cannot be out of step.
        assert_eq!(
            (kernel.hole(129, 99), kernel.hole(190, 99)),
            (Some(192), Some(192))
        );
        // A folio of 512 pages fills eight leaves: after seven of them, the last seven pages look beyond the folio.
        let huge = Folios::of([(7168, 9)]);
        let kernel = cursor(&huge);
        assert_eq!(
            (
                kernel.hole(7678, 256),
                kernel.hole(7673, 256),
                kernel.hole(7672, 256)
            ),
            (Some(7686), Some(7681), Some(7680))
        );
        assert_eq!(
            (
                kernel.hole(7169, 600),
                kernel.hole(7678, 8),
                kernel.hole(7678, 9)
            ),
            (Some(7680), None, Some(7686))
        );
    }

    /// Backward: the folio before the miss counts as one page.
    #[test]
    fn the_kernels_history_is_short() {
        let index = Folios::of([(4, 0), (5, 0), (6, 1), (8, 3)]);
        let kernel = cursor(&index);
        assert_eq!(
            (
                kernel.history(16, 32),
                kernel.history(15, 32),
                kernel.history(9, 32)
            ),
            ((5, false), (5, false), (5, false))
        );
        assert_eq!(
            (
                kernel.history(8, 32),
                kernel.history(6, 32),
                kernel.history(20, 32)
            ),
            ((3, false), (2, false), (0, false))
        );
        assert_eq!(
            (
                kernel.history(16, 5),
                kernel.history(16, 6),
                kernel.history(0, 6)
            ),
            ((4, false), (5, false), (0, true))
        );
    }

    /// A folio that fills several leaves counts as one page, and the next look-up is before its first leaf.
    #[test]
    fn the_kernels_history_of_a_huge_folio() {
        let alone = Folios::of([(128, 7)]);
        assert_eq!(cursor(&alone).history(256, 999), (1, false));
        // Both as recorded on 6.18.44; `alone` too.
        assert_eq!(
            cursor(&Folios::of([(1024, 8), (1280, 8)])).history(1536, 256),
            (5, false)
        );
        assert_eq!(
            cursor(&Folios::of([(640, 6)])).history(704, 256),
            (64, false)
        );
        let filled = Folios::of([(64, 6), (128, 6)]);
        assert_eq!(
            cursor(&filled).history(192, 999),
            (128, false),
            "one leaf: in step"
        );
        let behind = Folios::of([(0, 6), (64, 6), (128, 7)]);
        assert_eq!(
            cursor(&behind).history(256, 999),
            (3, false),
            "255, then a leaf for each page"
        );
    }

    /// Across a multiple of 4096 it lands that much too low (both recorded on 6.18.44).
    #[test]
    fn the_kernels_history_over_a_node() {
        let mut index = Folios::of([(4138, 1), (4140, 2)]);
        index.extend((4000..4138).map(|first| (first, 0)));
        assert_eq!(
            cursor(&index).history(4144, 256),
            (45, false),
            "page 2 is looked at for page 4098"
        );
        index.extend([(2, 0)]);
        assert_eq!(cursor(&index).history(4144, 256), (46, false));
        let mut index = Folios::default();
        index.extend((28_000..28_800).map(|first| (first, 0)));
        index.extend((28_800..28_928).step_by(4).map(|first| (first, 2)));
        assert_eq!(cursor(&index).history(28_928, 256), (192, false));
    }

    /// Across a multiple of 64: with one page out of step it catches up; with more it lands 64 pages too low, and
    /// before page 0 it ends without having seen the start.
    #[test]
    fn the_kernels_history_over_a_leaf() {
        let one = Folios::of([(60, 1), (62, 1), (64, 1)]);
        assert_eq!(
            cursor(&one).history(66, 32),
            (6, false),
            "in step from page 64 on"
        );
        let low = Folios::of([(60, 2), (64, 2), (128, 2)]);
        assert_eq!(
            cursor(&low).history(132, 32),
            (8, false),
            "66, 65, 64 for 130 to 128, then 63 to 60 for 127 to 124"
        );
        let low = Folios::of([(60, 2), (128, 2), (124, 2)]);
        assert_eq!(
            cursor(&low).history(132, 32),
            (1, false),
            "page 66 is not there, and looked at for page 130"
        );
        let low = Folios::of([(64, 2), (128, 2)]);
        assert_eq!(
            cursor(&low).history(132, 32),
            (4, false),
            "pages 66, 65 and 64 for 130, 129 and 128"
        );
        let low = Folios::of([(0, 5), (32, 5), (64, 2), (128, 2)]);
        assert_eq!(
            cursor(&low).history(132, 400),
            (68, false),
            "over the next leaf it stays 64 too low"
        );
        let start = Folios::of([(0, 2)]);
        assert_eq!(
            (cursor(&start).history(4, 32), cursor(&start).history(3, 32)),
            ((1, false), (1, false))
        );
        let start = Folios::of([(0, 1)]);
        assert_eq!(
            (cursor(&start).history(2, 32), cursor(&start).history(1, 32)),
            ((2, true), (1, true))
        );
        assert_eq!(cursor(&start).history(2, 2), (1, false));
    }
}
