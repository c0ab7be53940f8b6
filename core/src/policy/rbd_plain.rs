//! `rbd-plain`: the first librbd readahead of 2014, as tried in the experiment that led to it.
//!
//! Ten reads in a row, each beginning exactly where the last one ended, start it; each request doubles the
//! window up to `max`; any other read forgets everything. One detector serves all readers of the image, so two
//! interleaved readers defeat each other, and nothing but exact equality counts as sequential.
//!
//! ```text
//!    reads that counted          latest request
//!   ├──────────────────┤├─────────────┼─────────────┤
//!                      ▲              ▲             ▲
//!                  last_end        fire_at       ra_pos
//!                                  the reader's end here sends the next one, twice as long
//! ```
//!
//! Source: seed 004 (Crume, 2014; strategy "plain"), spec rbd-readahead sections 2, 3 and 5. What it does not
//! see: reads flagged random are invisible. Known wrong by design: no feedback, nothing is ever cancelled.

use super::{Ask, Info, Param, Plan, Policy, Scope, Unit, Wants};
use alloc::boxed::Box;

/// State of one detector: one for each image.
#[derive(Clone, Debug)]
struct Plain {
    trigger: u64,
    min: u64,
    max: u64,
    disable_after: u64,
    /// Consecutive reads after the first one of the stream.
    run: u64,
    /// Their bytes.
    run_bytes: u64,
    /// Where the last read ended. Zero at first, so a stream from zero counts its first read.
    last_end: u64,
    /// End of what this stream has read ahead.
    ra_pos: u64,
    /// The next request goes out once `last_end` has come this far.
    fire_at: u64,
    /// Size of the last request before the limit of the file; zero: none in this stream.
    window: u64,
    /// Bytes of all reads seen, for `disable_after`.
    total: u64,
}

impl Plain {
    /// Section 3, step 1.
    fn observe(&mut self, start: u64, len: u64) {
        if start == self.last_end {
            self.run += 1;
            self.run_bytes += len;
        } else {
            (self.run, self.run_bytes) = (0, 0);
            (self.fire_at, self.window, self.ra_pos) = (0, 0, 0);
        }
        self.last_end = start + len;
    }

    /// Section 3, steps 2 to 8 without 6: the next request, if it is time.
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        if self.ra_pos >= limit || self.run < self.trigger || self.last_end < self.fire_at {
            return None;
        }
        if self.window == 0 {
            self.window = self.run_bytes;
            self.ra_pos = self.last_end;
        } else {
            self.window = self.window.saturating_mul(2);
            self.ra_pos = self.ra_pos.max(self.last_end);
        }
        self.window = self.window.max(self.min).min(self.max);
        // A reader at the very end overtakes `ra_pos`; then there is nothing left to read ahead.
        let len = self.window.min(limit.saturating_sub(self.ra_pos));
        let start = self.ra_pos;
        self.fire_at = start + len / 2;
        self.ra_pos = start + len;
        (len > 0).then_some((start, len))
    }
}

impl Policy for Plain {
    fn wants(&self) -> Wants {
        Wants { read: true, ..Wants::default() }
    }

    fn on_read(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        if ask.random || self.max == 0 {
            return;
        }
        // librbd clips to the image before it asks, and compares the total before this read (section 5).
        let len = ask.request.end().min(ask.file_size).saturating_sub(ask.request.start());
        let seen = self.total;
        self.total = self.total.saturating_add(len);
        if self.disable_after != 0 && seen > self.disable_after {
            return;
        }
        self.observe(ask.request.start(), len);
        if let Some((start, len)) = self.next(ask.file_size) {
            plan.read(start, len, None);
        }
    }
}

const SIZES: (u64, u64) = (0, 1 << 40);

/// See the head of this file. The defaults are those of the 2014 experiment, not librbd's (512K, off after 50M).
pub static INFO: Info = Info {
    name: "rbd-plain",
    summary: "doubling window after ten exactly sequential reads, one detector a file",
    origin: "seed 004: Crume, RBD readahead strategies, 2014 (plain)",
    scope: Scope::File,
    page_bytes: None,
    params: &[
        Param {
            key: "trigger",
            unit: Unit::Count,
            default: "10",
            range: (0, 1 << 32),
            help: "sequential reads before it starts",
        },
        Param { key: "min", unit: Unit::Bytes, default: "0", range: SIZES, help: "smallest request; max wins over it" },
        Param { key: "max", unit: Unit::Bytes, default: "4M", range: SIZES, help: "largest request; 0 is off" },
        Param {
            key: "disable-after",
            unit: Unit::Bytes,
            default: "0",
            range: SIZES,
            help: "off once this much has been read; 0 is never",
        },
    ],
    build: |v| {
        Box::new(Plain {
            trigger: v[0],
            min: v[1],
            max: v[2],
            disable_after: v[3],
            run: 0,
            run_bytes: 0,
            last_end: 0,
            ra_pos: 0,
            fire_at: 0,
            window: 0,
            total: 0,
        })
    },
};
