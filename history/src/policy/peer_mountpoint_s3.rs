//! `peer-mountpoint-s3`: the prefetcher of Mountpoint for Amazon S3, as in version 0.11.0 of its library mountpoint-s3-fs.
//!
//! Each open file has one request in flight. The first window of a request is 1,152 KiB (1 MiB + 128 KiB). Whenever the reader
//! has consumed half of the window, the request is extended until the window is full again. The window doubles only if the reader has to
//! wait for data. If a read skips up to 16 MiB forward, the request continues: the reader waits, and the skipped bytes are also fetched. A
//! read at most 1 MiB before the current position is served from bytes that are still in memory. Any other read ends the request and begins
//! a new one.
//!
//! ```text
//!             back 1M          position                        forward 16M
//!   new  ◄──────┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┤──────────────┬──────────┤┄┄┄┄┄┄┄┄┄┄┄┄├──────► new
//!                                ◄── window: filled up at half ──►
//! ```
//!
//! Source: descriptions of this version of mountpoint-s3, 2026. A known fault of the original: if several streams read through one open
//! file, each ends the other's request. Reproduced: the size of the first request, the growth of the window when the reader waits, the
//! refill, and the forward and backward distance within which a seek keeps the request. Not reproduced: a memory limit, which halves the
//! window in the original (here, readahead is limited to half of foreread's cache). Not reproduced either: the original sends a single
//! request up to the end of the object, with flow control (here, each refill of the window is a separate request). Here, if a request is
//! ended early, its data still arrives and stays in the cache.

use foreread_core::policy::{Answer, Ask, Info, Outcome, Param, Policy, Scope, Wants};

/// Range of size parameters: small enough that an offset plus several of them cannot overflow.
const SIZES: (u64, u64) = (512, 1 << 40);

/// The request of one open file.
struct Request {
    first: u64,
    max: u64,
    forward: u64,
    back: u64,
    /// The current window; 0 if there is none yet.
    window: u64,
    /// The end of the last read, and the end of the requested bytes.
    position: u64,
    end: u64,
    /// The latest read requests its own bytes, because it must wait for them.
    asks: bool,
    /// The reader had to wait for bytes that had been requested before.
    stalled: bool,
}

impl Policy for Request {
    fn wants(&self) -> Wants {
        Wants {
            outcome: true,
            ..Wants::READ
        }
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
        if start >= end {
            return;
        }
        let near = start <= self.position + self.forward && start + self.back >= self.position;
        if self.window == 0 || !near {
            (self.window, self.position, self.end) = (self.first, end, start);
            (self.asks, self.stalled) = (true, false);
            return self.fill_to(start + self.first, ask, answer, end);
        }
        self.asks = end > self.end;
        if self.stalled || self.asks {
            self.window = (2 * self.window).min(self.max);
        }
        (self.position, self.stalled) = (end, false);
        if 2 * self.end.saturating_sub(end) <= self.window {
            self.fill_to(end + self.window, ask, answer, end);
        }
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        self.stalled |= !self.asks && matches!(outcome, Outcome::Late { .. });
    }
}

impl Request {
    /// Requests the bytes up to `to`, but at least up to `least`.
    fn fill_to(&mut self, to: u64, ask: &Ask<'_>, answer: &mut Answer, least: u64) {
        let to = to.max(least).min(ask.file_size);
        if self.end < to {
            answer.read(self.end, to - self.end, None);
            self.end = to;
        }
    }
}

pub static INFO: Info = Info {
    name: "peer-mountpoint-s3",
    summary: "Mountpoint for Amazon S3: one request a file, whose window doubles when the reader had to wait",
    origin: "an imitation of mountpoint-s3-fs 0.11.0 by its description, 2026",
    scope: Scope::Open,
    page_bytes: None,
    params: &[
        Param::bytes("first", "1152K", SIZES, "first request"),
        Param::bytes("max", "2G", SIZES, "largest window"),
        Param::bytes("forward", "16M", SIZES, "how far a read may skip"),
        Param::bytes("back", "1M", SIZES, "how far a read may go back"),
    ],
    build: |v| {
        Box::new(Request {
            first: v[0],
            max: v[1],
            forward: v[2],
            back: v[3],
            window: 0,
            position: 0,
            end: 0,
            asks: false,
            stalled: false,
        })
    },
};
