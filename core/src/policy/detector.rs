//! The detector that the three `rbd-*` policies share: it counts consecutive reads and doubles the readahead window. This file is not a
//! policy.
//!
//! A read that begins exactly where the last read ended increases the count of consecutive reads; any other read resets the detector. The
//! policy then computes the length of the readahead request from the start of the request and from the window.
//!
//! ```text
//!    reads that counted          latest request
//!   ├──────────────────┤├─────────────┼─────────────┤
//!                      ▲              ▲             ▲
//!                  last_end        fire_at       ra_pos
//!                                  when the reader reaches it, a request of twice the length is sent
//! ```
//!
//! Source: docs/spec/rbd-readahead.md 2, 3 and 5. The detector gets no feedback from the cache, and follows only one stream.

use super::{Answer, Ask, Param, Why};

/// The allowed range of size parameters. The largest allowed size is small enough that computing with multiples of it cannot overflow.
pub const SIZES: (u64, u64) = (0, 1 << 40);

/// Parameter `trigger`: how many sequential reads are needed before readahead starts.
pub const TRIGGER: Param = Param::count(
    "trigger",
    "10",
    (0, 1 << 32),
    "sequential reads before it starts",
);

/// Parameter `min`: the smallest readahead request; if `max` is smaller, `max` applies.
pub const MIN: Param = Param::bytes("min", "0", SIZES, "smallest request; max wins over it");

/// Parameter `max`: the largest readahead request; 0 disables readahead. The default is that of the librbd experiment of 2014; librbd
/// itself uses 512K.
pub const MAX: Param = Param::bytes("max", "4M", SIZES, "largest request; 0 is off");

/// Parameter `disable-after`: readahead stops once this many bytes have been read; 0 means never. The default is that of the librbd
/// experiment of 2014; librbd itself uses 50M.
pub const DISABLE_AFTER: Param = Param::bytes(
    "disable-after",
    "0",
    SIZES,
    "stop readahead once this much has been read; 0 is never",
);

/// Parameter `object`: the object size, for policies that depend on objects.
pub const OBJECT: Param = Param::bytes("object", "4M", (512, 1 << 40), "size of an object");

/// State of one detector of sequential reads. Each RBD image has one detector.
#[derive(Clone, Debug)]
pub struct Detector {
    trigger: u64,
    min: u64,
    max: u64,
    disable_after: u64,
    /// Consecutive reads after the first one of the stream.
    run: u64,
    /// Bytes of these reads.
    run_bytes: u64,
    /// Where the last read ended. Initially zero, so a stream that starts at offset zero counts its first read.
    last_end: u64,
    /// The end of this stream's readahead.
    ra_pos: u64,
    /// The next request is sent when `last_end` reaches this offset.
    fire_at: u64,
    /// Size of the last request before alignment and clipping to the file; zero if this stream has sent none.
    window: u64,
    /// Bytes of all reads seen, for `disable_after`.
    total: u64,
}

impl Detector {
    /// Creates a detector that has seen no read. The arguments are the values of the parameters [`TRIGGER`], [`MIN`], [`MAX`] and
    /// [`DISABLE_AFTER`].
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

    /// Processes a read. `reach` computes the length of a request from its start and its window (steps 5 and 6 in
    /// docs/spec/rbd-readahead.md).
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
        // librbd clips the read to the image first, and compares the total before this read (section 5).
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

    /// The condition of steps 2 to 4 that decides now.
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

    /// Section 3, steps 2 to 8: the next request, if it is due.
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
        // A stream that has read no byte yet has no window, so there is nothing to align.
        let len = if self.window == 0 {
            0
        } else {
            reach(self.ra_pos, self.window)
        };
        // A reader at the very end may overtake `ra_pos`; then there is nothing left to read ahead.
        let len = len.min(limit.saturating_sub(self.ra_pos));
        let start = self.ra_pos;
        self.fire_at = start + len / 2;
        self.ra_pos = start + len;
        (len > 0).then_some((start, len))
    }
}
