//! `rbd-plain`: the readahead that librbd got in 2014, as tested in the experiment before.
//!
//! Readahead starts after ten consecutive reads, each of which begins exactly where the previous read ended. Each request doubles the
//! window, up to `max`; a read that begins elsewhere resets everything. One detector serves all readers of the image, so each of two
//! interleaved readers resets the detection of the other, and only exactly adjacent reads count as sequential.
//!
//! ```text
//!    reads that counted          latest request
//!   ├──────────────────┤├─────────────┼─────────────┤
//!                      ▲    fire_at ──┘             ▲
//!                  last_end                       ra_pos: the next request, twice as long, starts here
//! ```
//!
//! Source: [Crume 2014] (Crume, 2014; strategy "plain"), docs/spec/rbd-readahead.md 2, 3 and 5. The policy ignores reads that have the
//! hint "random". Known limits of the design: the policy does not learn whether the bytes that it reads ahead are used, and cancels
//! nothing.

use super::{
    Answer, Ask, Info, Policy, Scope, Wants,
    detector::{DISABLE_AFTER, Detector, MAX, MIN, TRIGGER},
};
use alloc::boxed::Box;

/// Only the detector: the length of a request is its window.
#[derive(Clone, Debug)]
struct Plain(Detector);

impl Policy for Plain {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        self.0.read(ask, answer, |_, window| window);
    }
}

/// The default parameters are those of the experiment of 2014, not those of librbd (`max=512K,disable-after=50M`).
pub static INFO: Info = Info {
    name: "rbd-plain",
    summary: "doubling window after ten exactly sequential reads, one detector per file",
    origin: "Adam Crume, ceph-devel 2014, RBD readahead strategies: plain",
    scope: Scope::File,
    page_bytes: None,
    params: &[TRIGGER, MIN, MAX, DISABLE_AFTER],
    build: |v| Box::new(Plain(Detector::new(v[0], v[1], v[2], v[3]))),
};
