//! The arithmetic that all `linux-*` policies since 2.6.23 share, including those outside this crate. The functions compute window and
//! request sizes, clip a window to the file, and count the cached pages before a page. This file is not a policy and has no state.
//!
//! ```text
//!   init: 4n │ 2n │ max         a first window for n pages         next: 4c │ 2c │ max     the one after c
//!            ▲    ▲                                                         ▲    ▲
//!       max/32  max/4                                                  max/16  max/2
//! ```
//!
//! Source: docs/spec/linux-readahead.md 0 and 0.1. All positions and lengths here are in pages of 4 KiB.

use super::{Answer, Ask, Param, Unit};
use crate::units::PageRange;

/// The page size with which all `linux-*` policies compute, whatever page size the cache has.
pub const PAGE: u64 = 4096;

/// Size of the pieces of a forced read, in pages: 2 MiB.
pub const FORCE_PIECE: u64 = 512;

/// If the page faults in a mapping have missed the cache more often than they hit it, by more than this number, a fault reads only one
/// page.
pub const MMAP_LOTSAMISS: u64 = 100;

/// The allowed range of `max`. The largest value, 1 GiB, is larger than any `read_ahead_kb` in use, and small enough that four windows
/// cannot overflow.
pub const SIZES: (u64, u64) = (0, 1 << 30);

/// The parameter `max`, which all `linux-*` policies have.
pub const MAX: Param = Param {
    key: "max",
    unit: Unit::Capped,
    default: "128K",
    range: SIZES,
    help: "read_ahead_kb; 0 is off",
};

/// The size of the first window, for a request of `req` pages (docs/spec/linux-readahead.md 0.1).
pub fn init(req: u64, max: u64) -> u64 {
    let n = req.checked_next_power_of_two().unwrap_or(u64::MAX);
    if n <= max / 32 {
        4 * n
    } else if n <= max / 4 {
        2 * n
    } else {
        max
    }
}

/// The size of the window that follows a window of `cur` pages (docs/spec/linux-readahead.md 0.1).
pub fn next(cur: u64, max: u64) -> u64 {
    if cur < max / 16 {
        4 * cur
    } else if cur <= max / 2 {
        2 * cur
    } else {
        max
    }
}

/// The number of requested pages, counted from the page of `ask.at`, at least one. The end of the file does not limit this number
/// (docs/spec/linux-readahead.md 4.2).
pub fn wanted(ask: &Ask<'_>) -> PageRange {
    let first = ask.at / PAGE;
    PageRange::between(first, ask.request.end().div_ceil(PAGE).max(first + 1))
}

/// Plans to read `nr` pages from page `k`, clipped to the file. `mark` is the page that gets the readahead mark, unless it is outside the
/// clipped range.
pub fn fetch(ask: &Ask<'_>, k: u64, nr: u64, mark: Option<u64>, answer: &mut Answer) {
    let nr = clip(ask, k, nr);
    if nr > 0 {
        answer.read(
            k * PAGE,
            nr * PAGE,
            mark.filter(|m| (k..k + nr).contains(m)).map(|m| m * PAGE),
        );
    }
}

/// How many of the `nr` pages from page `k` on exist in the file.
pub fn clip(ask: &Ask<'_>, k: u64, nr: u64) -> u64 {
    nr.min(ask.file_size.div_ceil(PAGE).saturating_sub(k))
}

/// The pages of a WILLNEED hint; `None` if it begins at or after the end of the file.
pub fn hinted(ask: &Ask<'_>) -> Option<PageRange> {
    let pages = || PageRange::between(ask.request.start() / PAGE, ask.request.end().div_ceil(PAGE));
    (!ask.request.is_empty()).then(pages)
}

/// The number of consecutive cached pages just before page `i`, at most `limit` (docs/spec/linux-readahead.md 2.4).
pub fn history(ask: &Ask<'_>, i: u64, limit: u64) -> u64 {
    ask.probe.history(i * PAGE, limit * PAGE) / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/spec/linux-readahead.md 0.1.
    #[test]
    fn sizes() {
        let rows: [(u64, &[(u64, u64)]); 5] = [
            (4, &[(1, 2), (2, 4), (3, 4), (16, 4), (99, 4)]),
            (8, &[(1, 2), (2, 4), (4, 8), (33, 8)]),
            (
                32,
                &[(1, 4), (2, 4), (3, 8), (5, 16), (9, 32), (17, 32), (33, 32)],
            ),
            (
                128,
                &[
                    (1, 4),
                    (2, 8),
                    (4, 16),
                    (5, 16),
                    (9, 32),
                    (17, 64),
                    (33, 128),
                ],
            ),
            (
                256,
                &[
                    (1, 4),
                    (2, 8),
                    (4, 16),
                    (8, 32),
                    (9, 32),
                    (17, 64),
                    (33, 128),
                    (65, 256),
                ],
            ),
        ];
        for (max, row) in rows {
            for &(req, size) in row {
                assert_eq!(init(req, max), size, "init({req}, {max})");
            }
        }
        for (cur, size) in [
            (1, 4),
            (2, 4),
            (3, 6),
            (4, 8),
            (8, 16),
            (16, 32),
            (24, 32),
            (32, 32),
        ] {
            assert_eq!(next(cur, 32), size, "next({cur}, 32)");
        }
        assert_eq!((init(1, 4), next(1, 4)), (2, 2));
    }
}
