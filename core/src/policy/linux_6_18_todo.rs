//! The answers of the current kernel's readahead: a window to place, pages to read as they are, or nothing. Not a policy.
//!
//! ```text
//!   600 pages from page 5, folios of 4 pages at least:   5 ├── 512 pages ──┤ 516     520 ├── 88 pages ──┤ 607
//!                                                              folios to 519 ┘
//! ```
//!
//! Source: docs/spec/linux-readahead.md 4.4 to 4.7. Everything counts in pages of 4 KiB.

use super::{folios::FolioWindow, ondemand::FORCE_PIECE};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing; a mark that raised the question is used up.
    Nothing,
    /// Nothing; the mark stays.
    Keep,
    /// Place this window from page `at`, which is its start but for huge pages.
    Place {
        /// First page.
        at: u64,
        /// Size, mark and order.
        window: FolioWindow,
    },
    /// Read these pages as they are, without a mark.
    Fetch {
        /// First page.
        i: u64,
        /// How many.
        nr: u64,
    },
    /// The same in large pieces (4.7).
    Force {
        /// First page.
        i: u64,
        /// How many.
        nr: u64,
    },
}

impl Todo {
    /// The reads, one after the other, of an answer that is no window. A piece of a forced read begins where the smallest
    /// folio with the last page of the piece before it ends (4.7): with folios of 4 pages at least, 600 pages from page 5
    /// are 512 from page 5, to page 516, and 88 from page 520.
    pub fn pieces(self, min_order: u32) -> impl Iterator<Item = (u64, u64)> {
        let (i, nr, piece) = match self {
            Todo::Fetch { i, nr } => (i, nr, nr.max(1)),
            Todo::Force { i, nr } => (i, nr, FORCE_PIECE),
            _ => (0, 0, 1),
        };
        let begin = move |done: u64| {
            if done == 0 {
                i
            } else {
                (i + done).next_multiple_of(1 << min_order)
            }
        };
        (0..nr)
            .step_by(piece as usize)
            .map(move |done| (begin(done), piece.min(nr - done)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.7: the next piece begins at the aligned end of the last, and what is left does not shrink with that.
    #[test]
    fn pieces_of_a_forced_read() {
        let pieces = |todo: Todo, order| todo.pieces(order).collect::<alloc::vec::Vec<_>>();
        let force = Todo::Force { i: 8611, nr: 1100 };
        assert_eq!(pieces(force, 0), [(8611, 512), (9123, 512), (9635, 76)]);
        assert_eq!(
            pieces(force, 2),
            [(8611, 512), (9124, 512), (9636, 76)],
            "9123 and 9635, aligned"
        );
        assert_eq!(pieces(force, 4), [(8611, 512), (9136, 512), (9648, 76)]);
        assert_eq!(pieces(Todo::Fetch { i: 5, nr: 600 }, 4), [(5, 600)]);
        assert_eq!(pieces(Todo::Keep, 4), []);
    }
}
