//! `linux-2.6.31`: on-demand readahead of Linux from 2009 (2.6.31) to 3.11. If a stream's state is lost, this policy recognises
//! the stream by the pages that it left in the cache.
//!
//! At a miss that does not continue a read, the cached pages just before it are counted. A single cached page before the miss is enough to
//! start a window of the ramp-up size (context readahead). If the mark is on the first page of a window, so that the read would start the
//! next window at once, the two windows are merged.
//!
//! ```text
//!    history      off=start                              merged with the next at once
//!   ┄┄┄┼──────────┤├──────────────────────┬──────────────────────┤
//!      cached      ▲ absent               ▲◄────── async ───────►│
//!                                       mark
//! ```
//!
//! Source: docs/spec/linux-readahead.md 2.3, 2.4 and 2.5. Known bugs of the original, reproduced here: a single cached page before
//! the miss is taken for a stream, so dense random reads are read ahead ([Wu 2013]). The hint RANDOM makes every read proceed page
//! by page, as in 2.6.31 itself. From Linux 2.6.34 on, the hint RANDOM works as in `linux-3.12`.

use super::marks::{Quirks, Rule, State, Stream, Touch};
use foreread_core::policy::{
    Answer, Ask, Info, Scope,
    ondemand::{MAX, PAGE, history, init},
};

/// The rule; it has no state.
struct Context;

/// 2.4: a window for a miss after cached pages; returns false if there are none.
fn context(s: &mut State, off: u64, req: u64, ask: &Ask<'_>) -> bool {
    let found = history(ask, off, s.max);
    if found == 0 {
        return false;
    }
    // If the cached pages reach back to the start of the file, they count twice.
    let found = if found >= off { 2 * found } else { found };
    s.set(off, init(found + req, s.max));
    true
}

impl Rule for Context {
    const QUIRKS: Quirks = Quirks {
        random_is_off: true,
        early_faults: true,
    };

    /// The table of 2.3.
    fn demand(&mut self, s: &mut State, touch: Touch, ask: &Ask<'_>, answer: &mut Answer) {
        s.demand(touch, ask, answer, |s| {
            context(s, touch.off, touch.req, ask)
        });
    }
}

pub static INFO: Info = Info {
    name: "linux-2.6.31",
    summary: "on-demand and context readahead: one cached neighbour is a stream",
    origin: "Linux 2.6.31 to 3.11 (Wu Fengguang, context readahead, 2009)",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[MAX],
    build: |v| Box::new(Stream::new(v[0], Context)),
};
