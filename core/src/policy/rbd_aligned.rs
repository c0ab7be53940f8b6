//! `rbd-aligned`: librbd's readahead as it was merged in 2014, with the end of each request moved to a boundary.
//!
//! This policy decides like `rbd-plain`, but if the end of a request is near the end of an object set, a stripe or a stripe unit, the
//! request ends there. The next request then starts on that boundary and touches one object less than without alignment. Only the end of
//! the request moves, by less than half of the window; the window itself keeps its unaligned length.
//!
//! ```text
//!                 window                 end
//!   ├───────────────┼───────────────┬─────┤ ╌ ╌ ╌ ┬─
//!  ra_pos           └─ half         below         above     boundaries of object sets, then of stripes,
//!                                   ◄─────┤               then of units: the first that is near enough
//! ```
//!
//! Source: [Crume 2014] (Crume, 2014; strategy "aligned"), docs/spec/rbd-readahead.md 2, 3 and 5; the text of docs/spec was checked
//! against librbd 16.2.15. The defaults are those of the experiment of 2014; current librbd uses `max=512K,disable-after=50M`.

use super::{
    Answer, Ask, Info, Param, Policy, Scope, Wants,
    detector::{DISABLE_AFTER, Detector, MAX, MIN, OBJECT, SIZES, TRIGGER},
};
use alloc::boxed::Box;

/// The detector and the boundaries, in the order in which they are tried.
#[derive(Clone, Debug)]
struct RbdAligned {
    detector: Detector,
    alignments: [u64; 3],
}

/// Section 3, step 6: the length of a request from `start` that ends on a boundary, if one is near its end.
fn align(start: u64, length: u64, alignments: &[u64]) -> u64 {
    let end = start + length;
    for &a in alignments {
        let below = end - end % a;
        let above = below + a;
        if end - below < length / 2 && end - below < above - end {
            return below - start;
        }
        if above - end < length / 2 {
            return above - start;
        }
    }
    length
}

/// Section 5, item 5: object set, stripe, stripe unit. A unit of zero is a whole object.
fn alignments(object: u64, unit: u64, count: u64) -> [u64; 3] {
    let unit = if unit == 0 { object } else { unit };
    [count * object, unit * count, unit]
}

impl Policy for RbdAligned {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let alignments = &self.alignments;
        self.detector.read(ask, answer, |start, window| {
            align(start, window, alignments)
        });
    }
}

/// `rbd-aligned`: librbd's readahead as it was merged in 2014, with the end of each request moved to a boundary.
pub static INFO: Info = Info {
    name: "rbd-aligned",
    summary: "like rbd-plain, but requests end on object and stripe boundaries: what librbd does",
    origin: "Adam Crume, ceph-devel 2014, RBD readahead strategies: aligned; merged into librbd",
    scope: Scope::File,
    page_bytes: None,
    params: &[
        TRIGGER,
        MIN,
        MAX,
        DISABLE_AFTER,
        OBJECT,
        Param::bytes("stripe-unit", "0", SIZES, "0 is the object size"),
        Param::count("stripe-count", "1", (1, 1 << 16), "objects in a stripe"),
    ],
    build: |v| {
        let detector = Detector::new(v[0], v[1], v[2], v[3]);
        Box::new(RbdAligned {
            detector,
            alignments: alignments(v[4], v[5], v[6]),
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Comparisons are strict: a distance of half the window is too far, and an end halfway between two boundaries
    /// moves up.
    #[test]
    fn the_nearer_boundary_and_the_upper_one_on_a_tie() {
        let rows = [
            ((1000, 100, 16), 104),
            ((1000, 100, 64), 88),
            ((0, 40, 16), 48),
            ((0, 16, 16), 16),
            ((100, 100, 150), 100),
            ((100, 101, 151), 101),
            ((51, 101, 101), 101),
            ((52, 101, 103), 101),
            ((57, 100, 103), 149),
            ((5, 1, 4), 1),
            ((5, 3, 4), 3),
        ];
        for ((start, length, a), expected) in rows {
            assert_eq!(
                align(start, length, &[a, a, a]),
                expected,
                "from {start} {length} to a multiple of {a}"
            );
        }
        assert_eq!(
            align(0, 100, &[1000, 90, 99]),
            90,
            "the first that is near enough, not the nearest of all"
        );
    }

    #[test]
    fn layout() {
        assert_eq!(alignments(4 << 20, 0, 1), [4 << 20; 3]);
        assert_eq!(
            alignments(4 << 20, 64 << 10, 4),
            [16 << 20, 256 << 10, 64 << 10]
        );
    }
}
