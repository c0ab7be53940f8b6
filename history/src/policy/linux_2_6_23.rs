//! `linux-2.6.23`: the first on-demand readahead with a mark (`PG_readahead`), in Linux from 2007 (2.6.23) to 2.6.30.
//!
//! A miss that continues the last read starts a window. When a read reaches the mark in this window, the next window starts. Cached
//! pages before a miss are not checked, so two streams interleaved on one open file description get no readahead.
//!
//! ```text
//!   start        mark                     start+size
//!     ├───────────┬───────────────────────────┤├──── next window, marked on its first page ───►
//!     request     ▲◄───────── async ─────────►│
//! ```
//!
//! Source: docs/spec/linux-readahead.md 2.1 and 2.2; page faults follow section 2.5, although that section describes 2.6.31. Known bugs of
//! the original, reproduced here: if a read is larger than the maximum window, the readahead mark is on the window's first page, so the
//! same read reaches it at once. The hint RANDOM makes every read proceed page by page.

use super::marks::{Quirks, Rule, State, Stream, Touch, hole_after};
use foreread_core::policy::{
    Answer, Ask, Info, Scope, Why,
    ondemand::{MAX, PAGE, fetch, next},
};

/// The rule; it has no state.
struct OnDemand;

impl Rule for OnDemand {
    const QUIRKS: Quirks = Quirks {
        random_is_off: true,
        early_faults: true,
    };

    /// The table of 2.2.
    fn demand(&mut self, s: &mut State, touch: Touch, ask: &Ask<'_>, answer: &mut Answer) {
        let Touch { hit, off, req } = touch;
        answer.why = Some(s.why(touch));
        if off != 0 && s.expects(off) {
            s.push();
        } else if !hit && !s.near(off) && req <= s.max {
            fetch(ask, off, req, None, answer);
            return;
        } else if hit {
            let hole = hole_after(ask, off, s.max);
            answer.why = Some(if hole.is_some() {
                Why::FoundMark
            } else {
                Why::AllCached
            });
            let Some(hole) = hole else { return };
            s.set(hole, next(hole - off, s.max));
        } else {
            s.initial(off, req);
        }
        s.submit(ask, answer);
    }
}

pub static INFO: Info = Info {
    name: "linux-2.6.23",
    summary: "the first on-demand readahead with a mark; no interleaved streams",
    origin: "Linux 2.6.23 to 2.6.30 (Wu Fengguang, on-demand readahead, 2007)",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[MAX],
    build: |v| Box::new(Stream::new(v[0], OnDemand)),
};
