//! `amp`: adaptive multi-stream prefetching (Gill and Bathen, 2007).
//!
//! Each stream has a degree `p`, how much it reads ahead at a time, and a trigger distance `g`, how far before the end of that
//! the next part is asked for. The theory: with a request rate `r`, `p` should be `r` times the time that an unread page
//! survives in the cache, and `g` should be `r` times the time that the storage takes.
//!
//! ```text
//!      pos                    tag = end - 4K - g       end
//!   ┄┄┄┼──────────────────────────────┼────────────────┤
//!      reader     p, read ahead       ▲◄────── g ─────►│  a read of the tag asks for the next p
//!
//!   the last page of a part is read, nothing of it was evicted   p += size of the read
//!   a read waits for the first page of a part                    g += size of the read
//!   unread pages are evicted                                     p -= them, down to the size of a read; g stays below p
//! ```
//! Example: reads of 128 KiB in order. The second one starts the stream: p = 128 KiB, tag 12 KiB before the end. The third reads
//! the tag and the end of the part: p = 256 KiB. It waits for the part, so g = 136 KiB: from then on half of a part is left
//! when the next one is asked for.
//!
//! Differs from the publication: an unread page that reaches the end of the LRU list is not given a second turn, for a policy
//! cannot see it there; that it was evicted lowers `p` instead. Our cache evicts up to 64 pages together, so a read is the floor:
//! without it one eviction would leave requests of a page. `p` and `g` are kept by stream and not by page, for at most 256
//! streams of a file. The publication says "increment" of `g`; the size of the read is our reading, the faster one.
//!
//! Source: Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache", FAST 2007, section "AMP Algorithm".

use foreread_core::policy::{Answer, Ask, Info, Outcome, Param, Policy, Scope, Unit, Wants, Why};
use std::collections::{BTreeMap, VecDeque};

/// The publication counts pages of 4 KiB.
const PAGE: u64 = 4096;
/// Asynchronous prefetch threshold: no tag before `p` is larger. "An empirically reasonable value of 4".
const THRESHOLD: u64 = 4 * PAGE;
/// The first trigger distance: half of the threshold.
const FIRST_G: u64 = THRESHOLD / 2;
/// Streams of a file. The publication has no limit; this is more than the 100 of its experiments.
const MAX_STREAMS: usize = 256;

struct Part {
    start: u64,
    end: u64,
    /// Pages of it were evicted unread.
    old: bool,
    /// A read waited for its first page, which counts once.
    late: bool,
}

/// A run of reads, each of which begins where the one before it ended.
#[derive(Default)]
struct AmpStream {
    /// Up to where has been read ahead.
    end: u64,
    p: u64,
    g: u64,
    /// Size of the latest read.
    len: u64,
    parts: VecDeque<Part>,
    /// When it was last read.
    clock: u64,
}

/// All streams of a file.
struct Amp {
    max: u64,
    /// By the place where the next read is expected.
    streams: BTreeMap<u64, AmpStream>,
    clock: u64,
}

impl AmpStream {
    /// A read from `start` to `end` goes on with it; `waiting`: its first byte is in flight.
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

    /// Unread pages of it were evicted.
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

    /// Reads the next part ahead.
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
            read: true,
            outcome: true,
            ..Wants::default()
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
            // Evicted, or refused because there was no room: what is left of it counts as gone.
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
        // The page at the end of an LRU list is of the stream that was read longest ago.
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
    /// Keeps a stream whose next read is expected at `pos`; the one that was read longest ago makes room.
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
    params: &[Param {
        key: "max",
        unit: Unit::Bytes,
        // The publication has none.
        default: "64M",
        range: (0, 1 << 30),
        help: "largest degree; 0 is off",
    }],
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

    /// The example of the header: the third read waits for the part and ends it.
    #[test]
    fn degree_and_trigger_distance_grow() {
        let mut late = stream(128 * KIB, FIRST_G);
        late.advance(128 * KIB, 256 * KIB, true, 64 << 20);
        assert_eq!((late.p, late.g), (256 * KIB, 136 * KIB));
        let mut early = stream(128 * KIB, FIRST_G);
        early.advance(128 * KIB, 256 * KIB, false, 64 << 20);
        assert_eq!((early.p, early.g), (256 * KIB, 8 * KIB));
        // Half of a part: nothing ends, and a second wait for the same first page counts no more.
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
        // The part is old now, so its end raises nothing.
        stream.advance(128 * KIB, 192 * KIB, false, 64 << 20);
        assert_eq!((stream.p, stream.g), (48 * KIB, 44 * KIB));
        // No less than a read.
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
