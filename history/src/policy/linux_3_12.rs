//! `linux-3.12`: context readahead of 2013, which requires more cached pages before a miss than the request has. A parameter of this policy
//! also selects the three variants with which this version was compared when it was proposed.
//!
//! This policy works like `linux-2.6.31`, but a miss after cached pages starts a window only if the number of these pages is larger than
//! the number of requested pages. The length of this window is at most the number of these cached pages plus the number of requested pages.
//!
//! ```text
//!      history        off=start
//!   ├──────────────────┤├───────────┬─────────────────┬┤
//!      more than        ◄─ request ─►                 ▲ mark on the last page (async 1)
//!      the request      ◄── history + request, at most max ──►
//! ```
//!
//! Source: [Wu 2013] (the four rows of its table are the four words of `context`), docs/spec/linux-readahead.md 2.3,
//! 2.5 and 3. This policy does not limit windows by free memory, and does not include the larger windows for large requests that
//! Linux 4.10 added.

use super::marks::{Quirks, Rule, State, Stream, Touch};
use foreread_core::policy::{
    Answer, Ask, Info, Param, Scope,
    ondemand::{MAX, PAGE, history, init},
};

/// The variants of context readahead, in the order of [`WORDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Off,
    Conservative,
    SlowRamp,
    Original,
}

const WORDS: &[&str] = &["off", "conservative", "slow-ramp", "original"];

impl Context {
    /// Section 3: a window for a miss after cached pages; returns false if there is none.
    fn window(self, s: &mut State, off: u64, req: u64, ask: &Ask<'_>) -> bool {
        let found = history(ask, off, s.max);
        let matches = match self {
            Context::Off => false,
            Context::Conservative => found > req,
            Context::SlowRamp | Context::Original => found > 0,
        };
        // If the cached pages reach back to the start of the file, they count twice.
        let wanted = if found >= off { 2 * found } else { found } + req;
        if matches && self == Context::Original {
            s.set(off, init(wanted, s.max));
        } else if matches {
            s.set(off, wanted.min(s.max));
            s.async_size = 1;
        }
        matches
    }
}

impl Rule for Context {
    const QUIRKS: Quirks = Quirks {
        random_is_off: false,
        early_faults: false,
    };

    /// The table of 2.3, with the case of section 3.
    fn demand(&mut self, s: &mut State, touch: Touch, ask: &Ask<'_>, answer: &mut Answer) {
        s.demand(touch, ask, answer, |s| {
            self.window(s, touch.off, touch.req, ask)
        });
    }
}

pub static INFO: Info = Info {
    name: "linux-3.12",
    summary: "conservative context readahead, and the variants it was measured against",
    origin: "Linux 3.12 (Wu Fengguang, conservative context readahead, 2013)",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[
        MAX,
        Param::word(
            "context",
            WORDS,
            "conservative",
            "when cached pages make a stream",
        ),
    ],
    build: |v| {
        let variants = [
            Context::Off,
            Context::Conservative,
            Context::SlowRamp,
            Context::Original,
        ];
        Box::new(Stream::new(v[0], variants[v[1] as usize]))
    },
};
