//! Shared by the three `rbd-*` policies: the detector of consecutive reads, its doubling window and its settings.
//! Not a policy.
//!
//! A read that begins exactly where the last one ended counts; any other resets the detector. How far a request
//! reaches is the policy's own: it is handed the start and the window and answers with the length.
//!
//! ```text
//!    reads that counted          latest request
//!   ├──────────────────┤├─────────────┼─────────────┤
//!                      ▲              ▲             ▲
//!                  last_end        fire_at       ra_pos
//!                                  the reader's end here sends the next one, twice as long
//! ```
//!
//! Source: docs/spec/rbd-readahead.md 2, 3 and 5. Never: feedback from the cache, or a second stream.

use super::{Answer, Ask, Param, Unit, Why};

/// Bytes of a parameter: any, up to a size whose multiples cannot overflow.
pub const SIZES: (u64, u64) = (0, 1 << 40);

/// The parameter of this name; [`Detector::new`] takes the value.
pub const TRIGGER: Param = Param {
    key: "trigger",
    unit: Unit::Count,
    default: "10",
    range: (0, 1 << 32),
    help: "sequential reads before it starts",
};

/// As above.
pub const MIN: Param = Param {
    key: "min",
    unit: Unit::Bytes,
    default: "0",
    range: SIZES,
    help: "smallest request; max wins over it",
};

/// As above. The default is that of the 2014 experiment, not librbd's 512K.
pub const MAX: Param = Param {
    key: "max",
    unit: Unit::Bytes,
    default: "4M",
    range: SIZES,
    help: "largest request; 0 is off",
};

/// As above. The default is that of the 2014 experiment, not librbd's 50M.
pub const DISABLE_AFTER: Param = Param {
    key: "disable-after",
    unit: Unit::Bytes,
    default: "0",
    range: SIZES,
    help: "off once this much has been read; 0 is never",
};

/// The parameter of this name, for the policies that know of objects.
pub const OBJECT: Param = Param {
    key: "object",
    unit: Unit::Bytes,
    default: "4M",
    range: (512, 1 << 40),
    help: "size of an object",
};

/// State of one detector: one for each image.
#[derive(Clone, Debug)]
pub struct Detector {
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
    /// Size of the last request before alignment and the limit of the file; zero: none in this stream.
    window: u64,
    /// Bytes of all reads seen, for `disable_after`.
    total: u64,
}

impl Detector {
    /// A detector that has seen no read. The values are those of the four parameters, in the order above.
    #[must_use]
    pub fn new(trigger: u64, min: u64, max: u64, disable_after: u64) -> Detector {
        Detector {
            trigger,
            min,
            max,
            disable_after,
            run: 0,
            run_bytes: 0,
            last_end: 0,
            ra_pos: 0,
            fire_at: 0,
            window: 0,
            total: 0,
        }
    }

    /// A read comes in. `reach` makes the length of a request from its start and its window (steps 5 and 6).
    pub fn read(
        &mut self,
        ask: &Ask<'_>,
        answer: &mut Answer,
        reach: impl FnOnce(u64, u64) -> u64,
    ) {
        if ask.random || self.max == 0 {
            answer.why = Some(if ask.random {
                Why::HintRandom
            } else {
                Why::Off
            });
            return;
        }
        // librbd clips to the image before it asks, and compares the total before this read (section 5).
        let len = ask
            .request
            .end()
            .min(ask.file_size)
            .saturating_sub(ask.request.start());
        let seen = self.total;
        self.total = self.total.saturating_add(len);
        if self.disable_after != 0 && seen > self.disable_after {
            answer.why = Some(Why::SpentBytes);
            return;
        }
        let in_order = ask.request.start() == self.last_end;
        self.observe(ask.request.start(), len);
        answer.why = Some(self.why(in_order, ask.file_size));
        if let Some((start, len)) = self.next(ask.file_size, reach) {
            answer.read(start, len, None);
        }
    }

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

    /// Which of the conditions of step 2 to 4 decides now.
    fn why(&self, in_order: bool, limit: u64) -> Why {
        match () {
            () if self.run < self.trigger && !in_order => Why::Broken,
            () if self.run < self.trigger => Why::BelowTrigger,
            () if self.ra_pos >= limit || self.last_end >= limit => Why::EndOfFile,
            () if self.last_end < self.fire_at => Why::NotYet,
            () if self.window == 0 => Why::Triggered,
            () => Why::NextWindow,
        }
    }

    /// Section 3, steps 2 to 8: the next request, if it is time.
    fn next(&mut self, limit: u64, reach: impl FnOnce(u64, u64) -> u64) -> Option<(u64, u64)> {
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
        // A stream of which no byte was read yet has no window, and nothing to align.
        let len = if self.window == 0 {
            0
        } else {
            reach(self.ra_pos, self.window)
        };
        // A reader at the very end overtakes `ra_pos`; then there is nothing left to read ahead.
        let len = len.min(limit.saturating_sub(self.ra_pos));
        let start = self.ra_pos;
        self.fire_at = start + len / 2;
        self.ra_pos = start + len;
        (len > 0).then_some((start, len))
    }
}
