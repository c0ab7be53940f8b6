//! `read-stream`: the readahead of the read streams in PostgreSQL 19.
//!
//! A stream has two numbers, both in blocks of 8 KiB: the combine size and the distance. The *combine* size is the maximum length of a
//! request. This size doubles with each request up to the parameter `combine`, because a long first request takes longer than a short
//! one. The
//! *distance* is how far ahead of the consumer blocks are requested; it doubles only if the consumer had to wait. If the number of
//! consecutive blocks that were already cached reaches the maximum distance, each further cached block lowers the distance by one block.
//!
//! ```text
//!   waited                      distance x 2, up to max             hold-off = blocks of max
//!   a request, no wait          distance unchanged                  hold-off = blocks of max
//!   no request (cached)         hold-off > 0: hold-off - 1, else distance - 1
//!
//!   pos ├──── distance ────┤    a request is sent if one of the full combine size fits within the distance
//!       ├─16─┤├─16─┤├─16─┤
//! ```
//! Example: sequential reads of 128 KiB (16 blocks). The first read waits for requests of 1, 2, 4, 8 and 1 blocks. After these
//! five requests, the distance is 32 blocks and the combine size is 16 blocks. The second read shows that reads are sequential.
//! The second read waits as well, so the distance becomes 64 blocks, and four requests of 16 blocks are sent. Once reads no
//! longer wait, the distance stays constant.
//!
//! Differences from the original: PostgreSQL's read stream gets a list of blocks from its caller, but a policy only sees reads. Here,
//! therefore, each open file description is one stream, which consists of the blocks that follow the last read. Nothing is read ahead
//! before the second sequential read. A read at any other offset restarts the stream.
//!
//! Sources: the commit messages of "read_stream: Only increase distance when waiting for IO", "read_stream: Prevent distance from
//! decaying too quickly" and "read stream: Split decision about look ahead for AIO and combining" (Andres Freund, pgsql-hackers,
//! March and April 2026); defaults of the manual: `io_combine_limit` 128 KiB, `effective_io_concurrency` 16, so the distance is
//! at most 2 MiB.

use foreread_core::policy::{Answer, Ask, Info, Param, Policy, Scope, Wants, Why};

/// PostgreSQL's block.
const BLOCK: u64 = 8192;

/// One stream. Sizes in blocks.
struct ReadStream {
    max: u64,
    max_combine: u64,
    combine: u64,
    distance: u64,
    hold_off: u64,
    /// The position at which the next read is expected.
    pos: u64,
    /// The end of its readahead.
    end: u64,
}

impl ReadStream {
    fn new(max: u64, combine: u64) -> ReadStream {
        let max_combine = (combine / BLOCK).max(1);
        let max = if max == 0 { 0 } else { (max / BLOCK).max(1) };
        ReadStream {
            max,
            max_combine,
            combine: 1,
            distance: 1,
            hold_off: 0,
            pos: u64::MAX,
            end: 0,
        }
    }

    /// The consumer waited for `blocks`: counts one wait for each request of the combine size that they need.
    fn waited(&mut self, mut blocks: u64) {
        while blocks > 0 {
            blocks = blocks.saturating_sub(self.combine);
            self.sent();
            self.distance = (2 * self.distance).min(self.max);
        }
    }

    /// A request was sent.
    fn sent(&mut self) {
        self.combine = (2 * self.combine).min(self.max_combine);
        self.hold_off = self.max;
    }

    /// This many consecutive blocks needed no request.
    fn cached(&mut self, blocks: u64) {
        let held = self.hold_off.min(blocks);
        self.hold_off -= held;
        self.distance = self.distance.saturating_sub(blocks - held).max(1);
    }

    /// Sends the requests that fit between the requested bytes and the end of the distance; cached blocks need no
    /// request.
    fn look_ahead(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        answer.max_fetch = self.combine * BLOCK;
        let to = self
            .pos
            .saturating_add(self.distance * BLOCK)
            .min(ask.file_size);
        while self.end < to {
            let whole = self.combine.min(self.distance) * BLOCK;
            if to - self.end < whole && to < ask.file_size {
                return;
            }
            let until = (self.end + whole).min(to);
            match ask.probe.next_hole(self.end, until - self.end) {
                None => self.cached((until - self.end).div_ceil(BLOCK)),
                Some(_) => {
                    answer.read(self.end, until - self.end, None);
                    self.sent();
                }
            }
            self.end = until;
        }
    }
}

impl Policy for ReadStream {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let Some((start, end)) = ask.readable(self.max, answer) else {
            return;
        };
        let goes_on = start == self.pos;
        if !goes_on {
            (self.combine, self.distance, self.hold_off, self.end) = (1, 1, 0, end);
        }
        let is_here = [start, end - 1].iter().all(|at| ask.probe.is_present(*at));
        if !is_here {
            self.waited((end - start).div_ceil(BLOCK));
        } else if self.end <= start {
            self.cached((end - start).div_ceil(BLOCK));
        }
        self.pos = end;
        self.end = self.end.max(end);
        answer.why = Some(if goes_on { Why::NotYet } else { Why::Broken });
        if goes_on {
            self.look_ahead(ask, answer);
        }
        if !answer.windows.is_empty() {
            answer.why = Some(Why::NextWindow);
        } else if goes_on && self.end >= ask.file_size {
            answer.why = Some(Why::EndOfFile);
        }
    }
}

pub static INFO: Info = Info {
    name: "read-stream",
    summary: "PostgreSQL 19's read stream: farther only when the reader waited, nearer only after a hold-off",
    origin: "PostgreSQL 19, read_stream, commit messages of Andres Freund, 2026",
    scope: Scope::Open,
    page_bytes: None,
    params: &[
        Param::bytes(
            "max",
            "2M",
            (0, 1 << 30),
            "largest distance (io_combine_limit x effective_io_concurrency); 0 is off",
        ),
        Param::bytes(
            "combine",
            "128K",
            (BLOCK, 1 << 30),
            "largest request (io_combine_limit)",
        ),
    ],
    build: |v| Box::new(ReadStream::new(v[0], v[1])),
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the header.
    #[test]
    fn distance_and_combine_size_are_two_numbers() {
        let mut stream = ReadStream::new(2 << 20, 128 << 10);
        stream.waited(16);
        assert_eq!((stream.distance, stream.combine, stream.max), (32, 16, 256));
        stream.waited(16);
        assert_eq!((stream.distance, stream.combine), (64, 16));
        // Requests without a wait do not change the distance, but the combine size grows.
        let mut early = ReadStream::new(2 << 20, 128 << 10);
        (0..3).for_each(|_| early.sent());
        assert_eq!((early.distance, early.combine), (1, 8));
        (0..9).for_each(|_| stream.waited(16));
        assert_eq!(stream.distance, 256);
    }

    /// Miss, hit, miss: the hits in between do not lower the distance. The hold-off is 256 consecutive hits.
    #[test]
    fn the_distance_is_held_for_a_whole_largest_distance() {
        let mut stream = ReadStream::new(2 << 20, 128 << 10);
        for _ in 0..10 {
            stream.waited(1);
            stream.cached(200);
        }
        assert_eq!(stream.distance, 256);
        stream.cached(56);
        assert_eq!(stream.distance, 256);
        stream.cached(10);
        assert_eq!(stream.distance, 246);
        stream.cached(1000);
        assert_eq!(stream.distance, 1);
    }
}
