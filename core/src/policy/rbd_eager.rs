//! `rbd-eager`: a strategy of the librbd experiment of 2014. Once a stream enters an object, the object is read to its end.
//!
//! Readahead starts after ten consecutive reads, like that of `rbd-plain`. Each request reaches to the end of the object in which it
//! starts, so no request crosses an object, and all requests except the first are whole objects. The doubling window only shows whether
//! readahead has started; its size is not used.
//!
//! ```text
//!       object          │         object          │         object
//!   reads ├─── first ───┤├──────── next ──────────┤
//!         ▲      ▲       ▲           ▲
//!    last_end  fire_at   ra_pos      └─ when the reader reaches it, the next request is sent
//! ```
//!
//! Source: [Crume 2014] (Crume, 2014; strategy "eager"), as interpreted in docs/spec/rbd-readahead.md 6: the strategy was described but
//! never published as code. Known weakness: the policy reads too much, because after a few sequential reads it reads the whole object.

use super::{
    Answer, Ask, Info, Policy, Scope, Wants,
    detector::{DISABLE_AFTER, Detector, MAX, MIN, OBJECT, TRIGGER},
};
use alloc::boxed::Box;

/// The detector and the object size.
#[derive(Clone, Debug)]
struct Eager {
    detector: Detector,
    object: u64,
}

impl Policy for Eager {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let object = self.object;
        self.detector
            .read(ask, answer, |start, _| object - start % object);
    }
}

/// `rbd-eager`: a strategy of the librbd experiment of 2014. Once a stream enters an object, the object is read to its end.
pub static INFO: Info = Info {
    name: "rbd-eager",
    summary: "like rbd-plain, but each request reads to the end of the object",
    origin: "Adam Crume, ceph-devel 2014, RBD readahead strategies: eager, which was described but never published",
    scope: Scope::File,
    page_bytes: None,
    params: &[TRIGGER, MIN, MAX, DISABLE_AFTER, OBJECT],
    build: |v| {
        Box::new(Eager {
            detector: Detector::new(v[0], v[1], v[2], v[3]),
            object: v[4],
        })
    },
};
