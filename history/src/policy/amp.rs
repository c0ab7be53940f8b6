//! `amp`: adaptive multi-stream prefetching (Gill and Bathen, 2007).
//!
//! Each stream has a degree `p`, the size of a readahead window, and a trigger distance `g`. When the reader is `g` before the end of the
//! window, the next window is requested. In theory, with a request rate `r`, `p` should be `r` times the time that an unread page stays in
//! the cache, and `g` should be `r` times the latency of the storage.
//!
//! ```text
//!      pos                    tag = end - 4K - g       end
//!   ┄┄┄┼──────────────────────────────┼────────────────┤
//!      reader     p, read ahead       ▲◄────── g ─────►│  a read of the tag requests the next p
//!
//!   the last page of a part is read, nothing of it was evicted   p += size of the read
//!   a read waits for the first page of a part                    g += size of the read
//!   unread pages are evicted                                     p -= their size, but at least a read; g stays below p
//! ```
//! Example: sequential reads of 128 KiB. The second read starts the stream: p = 128 KiB, and the page that triggers the next readahead (the
//! tag) is 12 KiB before the end of the window. The third read reaches the tag and the end of the window: p = 256 KiB. The third read waits
//! for readahead that is still in flight, so g = 136 KiB. From then on, the next window is requested when half of the current window is
//! left.
//!
//! Differences from the publication: an unread page at the end of the LRU list gets no second chance, because a policy cannot see the LRU
//! list. Instead, the eviction of an unread page lowers `p`. Our cache evicts up to 64 pages together, so `p` never falls below the size
//! of a read: without this minimum, a single eviction could lower `p` to one page. `p` and `g` are stored for each stream, not for each
//! page, and for at most 256 streams of a file. The publication says "increment" `g`, but not by how much. We add the size of the read:
//! reads are then faster than if `g` grows by one page.
//!
//! Source: Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache", FAST 2007, section "AMP Algorithm".

use foreread_core::policy::{Answer, Ask, Info, Outcome, Param, Policy, Scope, Wants, Why};
use std::collections::{BTreeMap, VecDeque};

/// The publication counts pages of 4 KiB.
const PAGE: u64 = 4096;
/// Asynchronous prefetch threshold: there is no tag until `p` is larger. "An empirically reasonable value of 4".
const THRESHOLD: u64 = 4 * PAGE;
/// The initial trigger distance: half of the threshold.
const FIRST_G: u64 = THRESHOLD / 2;
/// Maximum number of streams of a file. The publication has no limit; this is more than the 100 of its experiments.
const MAX_STREAMS: usize = 256;

struct Part {
    start: u64,
    end: u64,
    /// Unread pages of the stream were evicted.
    old: bool,
    /// A read waited for the first page of the part; this counts once.
    late: bool,
}

/// A run of reads in which each begins where the previous one ended.
#[derive(Default)]
struct AmpStream {
    /// The end of its readahead.
    end: u64,
    p: u64,
    g: u64,
    /// Size of the latest read.
    len: u64,
    parts: VecDeque<Part>,
    /// The time of its last read.
    clock: u64,
}

/// All streams of a file.
struct Amp {
    max: u64,
    /// Streams, by the position at which the next read is expected.
    streams: BTreeMap<u64, AmpStream>,
    clock: u64,
}

impl AmpStream {
    /// A read from `start` to `end` continues the stream; `waiting`: its first byte is in flight.
    fn advance(&mut self, start: u64, end: u64, waiting: bool, max: u64) {
        let len = end - start;
        self.len = len;
        if let Some(part) = self
            .parts
            .iter_mut()
            .find(|part| (start..end).contains(&part.start))
        {
            if waiting && !part.late {
                self.g += len;
            }
            part.late = true;
        }
        let had_tag = self.p > THRESHOLD;
        while let Some(part) = self.parts.front().filter(|part| part.end <= end) {
            if !part.old {
                self.p = (self.p + len).min(max);
            }
            self.parts.pop_front();
        }
        if !had_tag && self.p > THRESHOLD {
            self.g = self.g.max(FIRST_G);
        }
        self.g = self.g.min(self.p.saturating_sub(PAGE));
    }

    /// Unread pages of the stream were evicted.
    fn shrink(&mut self, bytes: u64) {
        self.p = self
            .p
            .saturating_sub(bytes.next_multiple_of(PAGE))
            .max(self.len.min(self.p))
            .max(PAGE);
        self.g = self.g.min(self.p - PAGE);
        if let Some(last) = self.parts.back_mut() {
            last.old = true;
        }
    }

    /// Requests the next part.
    fn fetch(&mut self, answer: &mut Answer) {
        answer.read(self.end, self.p, None);
        let end = self.end + self.p;
        self.parts.push_back(Part {
            start: self.end,
            end,
            old: false,
            late: false,
        });
        self.end = end;
    }

    /// Whether a read up to `end` has touched the tag.
    fn is_tagged(&self, end: u64) -> bool {
        self.p > THRESHOLD && end > self.end.saturating_sub(PAGE + self.g)
    }
}

impl Policy for Amp {
    fn wants(&self) -> Wants {
        Wants {
            outcome: true,
            ..Wants::READ
        }
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let Some((start, end)) = ask.readable(self.max, answer) else {
            return;
        };
        self.clock += 1;
        let Some(mut stream) = self.streams.remove(&start) else {
            answer.why = Some(Why::NoHistory);
            return self.remember(
                end,
                AmpStream {
                    end,
                    clock: self.clock,
                    ..AmpStream::default()
                },
            );
        };
        stream.clock = self.clock;
        let is_gone = start < stream.end && !ask.probe.is_cached(start);
        let missed = is_gone || end > stream.end;
        if stream.p == 0 {
            (stream.p, stream.g) = ((end - start).next_multiple_of(PAGE).min(self.max), FIRST_G);
        } else if is_gone {
            // The bytes were evicted, or refused because there was no room; the rest of the part counts as gone.
            stream.shrink(PAGE);
            stream.parts.clear();
            stream.end = end;
        } else {
            let waiting = !ask.probe.is_present(start);
            stream.advance(start, end, waiting, self.max);
        }
        stream.end = stream.end.max(end);
        answer.why = Some(Why::NotYet);
        if stream.end >= ask.file_size {
            answer.why = Some(Why::EndOfFile);
        } else if missed || stream.is_tagged(end) {
            answer.why = Some(if missed {
                Why::Sequential
            } else {
                Why::NextWindow
            });
            stream.fetch(answer);
        }
        self.remember(end, stream);
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        let Outcome::Unused { bytes, .. } = outcome else {
            return;
        };
        // The page at the end of an LRU list belongs to the stream with the oldest last read.
        let unread = self
            .streams
            .iter_mut()
            .filter(|(pos, stream)| stream.end > **pos && stream.p > 0);
        if let Some((_, stream)) = unread.min_by_key(|(_, stream)| stream.clock) {
            stream.shrink(*bytes);
        }
    }
}

impl Amp {
    /// Keeps a stream whose next read is expected at `pos`; if there is no room, it replaces the stream with the oldest
    /// last read.
    fn remember(&mut self, pos: u64, stream: AmpStream) {
        if self.streams.len() >= MAX_STREAMS {
            let oldest = self
                .streams
                .iter()
                .min_by_key(|(_, s)| s.clock)
                .map(|(pos, _)| *pos);
            oldest.and_then(|pos| self.streams.remove(&pos));
        }
        self.streams.insert(pos, stream);
    }
}

pub static INFO: Info = Info {
    name: "amp",
    summary: "adaptive multi-stream prefetching: a degree and a trigger distance for each stream",
    origin: "Gill and Bathen, AMP, FAST 2007",
    scope: Scope::File,
    page_bytes: None,
    params: &[Param::bytes(
        "max",
        "64M",
        (0, 1 << 30),
        "largest degree; 0 is off",
    )],
    build: |v| {
        Box::new(Amp {
            max: v[0],
            streams: BTreeMap::new(),
            clock: 0,
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn stream(p: u64, g: u64) -> AmpStream {
        let mut stream = AmpStream {
            p,
            g,
            end: 128 * KIB,
            ..AmpStream::default()
        };
        stream.fetch(&mut Answer::default());
        stream
    }

    /// The example in the header: the third read waits for the part and ends it.
    #[test]
    fn degree_and_trigger_distance_grow() {
        let mut late = stream(128 * KIB, FIRST_G);
        late.advance(128 * KIB, 256 * KIB, true, 64 << 20);
        assert_eq!((late.p, late.g), (256 * KIB, 136 * KIB));
        let mut early = stream(128 * KIB, FIRST_G);
        early.advance(128 * KIB, 256 * KIB, false, 64 << 20);
        assert_eq!((early.p, early.g), (256 * KIB, 8 * KIB));
        // Half of a part: no part ends, and a second wait for the same first page does not count.
        let mut half = stream(512 * KIB, FIRST_G);
        half.advance(128 * KIB, 256 * KIB, true, 64 << 20);
        half.advance(256 * KIB, 384 * KIB, true, 64 << 20);
        assert_eq!((half.p, half.g), (512 * KIB, 136 * KIB));
    }

    #[test]
    fn evicted_pages_lower_the_degree() {
        let mut stream = stream(64 * KIB, 60 * KIB);
        stream.shrink(16 * KIB);
        assert_eq!((stream.p, stream.g), (48 * KIB, 44 * KIB));
        // Pages of the part were evicted, so its end does not increase `p`.
        stream.advance(128 * KIB, 192 * KIB, false, 64 << 20);
        assert_eq!((stream.p, stream.g), (48 * KIB, 44 * KIB));
        // The minimum is the size of a read.
        stream.shrink(1 << 30);
        assert_eq!((stream.p, stream.g), (48 * KIB, 44 * KIB));
        stream.len = PAGE;
        stream.shrink(1 << 30);
        assert_eq!((stream.p, stream.g), (PAGE, 0));
        assert!(
            !stream.is_tagged(u64::MAX),
            "no tag at or below the threshold"
        );
    }
}
