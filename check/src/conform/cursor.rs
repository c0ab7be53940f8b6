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

    fn holes<const N: usize>(folios: &Folios, looks: [(u64, u64); N]) -> [Option<u64>; N] {
        let kernel = Cursor {
            folios,
            sight: folios,
        };
        looks.map(|(from, limit)| kernel.hole(from, limit))
    }

    /// Forward: the result is as many pages too late as the probe begins after the first page of its folio (4.9).
    #[test]
    fn the_kernels_hole_is_late() {
        let index = Folios::of([(8, 3), (16, 2), (21, 0), (48, 4), (64, 1), (128, 6)]);
        // After page 64, number and slot agree, and the skipped pages 64, 65 and 66 are never seen.
        let looks = [8, 16, 20, 9, 11, 17, 49, 50, 51].map(|from| (from, 32));
        let late = [20, 20, 20, 21, 23, 21, 66, 66, 67].map(Some);
        assert_eq!(holes(&index, looks), late);
        // The limit counts page numbers.
        let looks = [(9, 12), (9, 13), (51, 16), (51, 17)];
        assert_eq!(holes(&index, looks), [None, Some(21), None, Some(67)]);
        let kernel = Cursor {
            folios: &index,
            sight: &index,
        };
        let cached = (kernel.is_cached(21), kernel.is_cached(20));
        assert_eq!(cached, (true, false), "what is there is known exactly");
        // A folio of 64 pages fills a leaf, so the cursor cannot be out of step.
        assert_eq!(holes(&index, [(129, 99), (190, 99)]), [Some(192); 2]);
        // A folio that ends with its leaf: the page number crosses one page later than the slot.
        let index = Folios::of([(62, 1), (64, 1), (96, 5), (128, 5)]);
        let looks = [(63, 32), (97, 48), (97, 64)];
        assert_eq!(holes(&index, looks), [Some(66), None, Some(160)]);
        // A folio of 512 pages fills eight leaves: after seven of them, the last seven pages look beyond the folio.
        let huge = Folios::of([(7168, 9)]);
        let looks = [
            (7678, 256),
            (7673, 256),
            (7672, 256),
            (7169, 600),
            (7678, 9),
        ];
        let late = [7686, 7681, 7680, 7680, 7686].map(Some);
        assert_eq!(holes(&huge, looks), late);
        assert_eq!(holes(&huge, [(7678, 8)]), [None]);
    }

    /// How many cached pages the kernel counts before `page`, and whether it sees the start of the file.
    fn history(folios: &Folios, page: u64, limit: u64) -> (u64, bool) {
        Cursor {
            folios,
            sight: folios,
        }
        .history(page, limit)
    }

    /// Backward: the folio before the miss counts as one page.
    #[test]
    fn the_kernels_history_is_short() {
        let index = Folios::of([(4, 0), (5, 0), (6, 1), (8, 3)]);
        let counts = [16, 15, 9, 8, 6, 20].map(|page| history(&index, page, 32));
        assert_eq!(counts, [5, 5, 5, 3, 2, 0].map(|count| (count, false)));
        let counts = [(16, 5), (16, 6), (0, 6)].map(|(page, limit)| history(&index, page, limit));
        assert_eq!(counts, [(4, false), (5, false), (0, true)]);
        // Before page 0 it ends; it has seen the start if it is in step.
        for (order, page, limit, expected) in [
            (2, 4, 32, (1, false)),
            (2, 3, 32, (1, false)),
            (1, 2, 32, (2, true)),
            (1, 1, 32, (1, true)),
            (1, 2, 2, (1, false)),
        ] {
            let counted = history(&Folios::of([(0, order)]), page, limit);
            assert_eq!(counted, expected, "order {order}, page {page}");
        }
    }

    /// A folio that fills several leaves counts as one page, and the next look-up is before its first leaf. Across a
    /// multiple of 64, with one page out of step, it catches up; with more it lands 64 pages too low.
    #[test]
    fn the_kernels_history_over_a_leaf() {
        let looks = [
            // The first three as recorded on 6.18.44.
            (vec![(128, 7)], 256, 999, 1),
            (vec![(1024, 8), (1280, 8)], 1536, 256, 5),
            (vec![(640, 6)], 704, 256, 64),
            // One leaf: in step.
            (vec![(64, 6), (128, 6)], 192, 999, 128),
            // 255, then a leaf for each page.
            (vec![(0, 6), (64, 6), (128, 7)], 256, 999, 3),
            // In step from page 64 on.
            (vec![(60, 1), (62, 1), (64, 1)], 66, 32, 6),
            // Pages 66, 65, 64 are looked at for 130 to 128, then 63 to 60 for 127 to 124.
            (vec![(60, 2), (64, 2), (128, 2)], 132, 32, 8),
            (vec![(60, 2), (128, 2), (124, 2)], 132, 32, 1),
            (vec![(64, 2), (128, 2)], 132, 32, 4),
            // Over the next leaf it stays 64 too low.
            (vec![(0, 5), (32, 5), (64, 2), (128, 2)], 132, 400, 68),
        ];
        for (folios, page, limit, count) in looks {
            let counted = history(&Folios::of(folios.clone()), page, limit);
            assert_eq!(counted, (count, false), "{folios:?}");
        }
    }

    /// Across a multiple of 4096 it lands that much too low (both recorded on 6.18.44).
    #[test]
    fn the_kernels_history_over_a_node() {
        let mut index = Folios::of([(4138, 1), (4140, 2)]);
        index.extend((4000..4138).map(|first| (first, 0)));
        // Page 2 is looked at for page 4098.
        assert_eq!(history(&index, 4144, 256), (45, false));
        index.extend([(2, 0)]);
        assert_eq!(history(&index, 4144, 256), (46, false));
        let mut index = Folios::default();
        index.extend((28_000..28_800).map(|first| (first, 0)));
        index.extend((28_800..28_928).step_by(4).map(|first| (first, 2)));
        assert_eq!(history(&index, 28_928, 256), (192, false));
    }
}
