//! The answers of the current kernel's readahead: a window to place, single pages to read, or nothing. This file is not
//! a policy.
//!
//! ```text
//!   600 pages from page 5, folios of at least 4 pages:   5 ├── 512 pages ──┤ 516     520 ├── 88 pages ──┤ 607
//!                                                              folios to 519 ┘
//! ```
//!
//! Source: docs/spec/linux-readahead.md 4.4 to 4.7. All positions and lengths are in pages of 4 KiB.

use super::{folios::FolioWindow, ondemand::FORCE_PIECE};

/// The decision of the kernel's readahead: what the caller should read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Do nothing. If a mark raised the question, it is cleared.
    Nothing,
    /// Do nothing, and keep the mark.
    Keep,
    /// Place this window from page `at`, which is its start except with huge pages.
    Place {
        /// First page.
        at: u64,
        /// Size, mark and order.
        window: FolioWindow,
    },
    /// Read these pages page by page, without a mark.
    Fetch {
        /// First page.
        i: u64,
        /// Number of pages.
        nr: u64,
    },
    /// Read these pages in large pieces (4.7).
    Force {
        /// First page.
        i: u64,
        /// Number of pages.
        nr: u64,
    },
}

impl Todo {
    /// The reads of a [`Todo::Fetch`] or [`Todo::Force`] in ascending order, each as its first page and its number of pages; empty for
    /// other variants. Each piece of a forced read begins after the smallest folio that contains the last page of the previous piece
    /// (docs/spec/linux-readahead.md 4.7). Example: with folios of at least 4 pages, 600 pages from page 5 become 512 pages from page 5, up
    /// to page 516, and 88 pages from page 520.
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

    /// Section 4.7: the next piece begins at the aligned end of the last one, and this does not reduce the remaining
    /// pages.
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
