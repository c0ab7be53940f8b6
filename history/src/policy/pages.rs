//! Functions that the published policies share, in addition to `foreread_core::policy::ondemand`: forced reads (readahead that no
//! window limits), and the search for the next absent page in the cache. This file is not a policy, and has no state.

use foreread_core::policy::ondemand::{FORCE_PIECE, PAGE, clip, fetch};
use foreread_core::policy::{Answer, Ask};

/// Reads exactly these pages, in large requests; no state of a stream is changed, and no mark is set.
pub fn force(ask: &Ask<'_>, i: u64, nr: u64, answer: &mut Answer) {
    let nr = clip(ask, i, nr);
    for at in (i..i + nr).step_by(FORCE_PIECE as usize) {
        fetch(ask, at, FORCE_PIECE.min(i + nr - at), None, answer);
    }
}

/// Returns the first absent page after page `x`, checking at most `max` pages.
pub fn hole_after(ask: &Ask<'_>, x: u64, max: u64) -> Option<u64> {
    ask.probe
        .next_hole((x + 1) * PAGE, max * PAGE)
        .map(|at| at / PAGE)
}
