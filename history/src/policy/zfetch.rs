//! `zfetch`: the speculative prefetcher of ZFS as of 2022.
//!
//! A read that continues a stream is a hit, and reads ahead up to the stream's distance. The distance is initially the size of the read,
//! and doubles with each hit up to the parameter `min`. Beyond `min`, the distance grows by an eighth, up to the parameter `max`, but
//! only after a prefetch that came too late for its read.
//!
//! ```text
//!   hit        1     2     3  ...   6    7    8 (late)  9   10 (late)
//!   distance   128K  256K  512K     4M   4M   4608K          5184K       reads of 128 KiB
//! ```
//! All positions are counted in records of 128 KiB, the default record size of ZFS. A read is a hit if the stream expects the read's first
//! record, or the record after it, because an unaligned read begins in the previous read's last record. A further read in a record that
//! was already read is not a hit. If a program reads 4 KiB at a time, the other 31 reads in each record therefore do not count, and the
//! distances are the same as for larger reads.
//!
//! A file has 8 streams. A read that is not a hit starts a new stream if the file has fewer than 8, or if one of the 8 may be
//! replaced:
//!
//! ```text
//!   never hit           at once                 oldest first
//!   hit before          after 1 s without one
//!   2 s without a hit   removed
//! ```
//! Example: one program reads randomly, another sequentially. Each random read then replaces a stream that was never hit, so the
//! sequential reader keeps its stream.
//!
//! Differences from the original: a read that misses fetches only its pages and not its whole record, and indirect blocks are not
//! prefetched. Here, the distance keeps doubling even if requests in flight take a large part of the cache.
//!
//! Source: openzfs pull request 13452, "More speculative prefetcher improvements" (Alexander Motin, 2022); names and defaults from
//! the manual page zfs(4) (`zfetch_min_distance` 4 MiB, `zfetch_max_distance` 64 MiB, `zfetch_max_streams` 8, `zfetch_min_sec_reap`
//! 1, `zfetch_max_sec_reap` 2).

use foreread_core::policy::{Answer, Ask, Info, Param, Policy, Scope, Unit, Wants, Why};
use foreread_core::units::Nanos;

/// Streams of a file: `zfetch_max_streams`.
const MAX_STREAMS: usize = 8;
/// Nanoseconds without a hit after which a stream that was hit may be replaced, and after which any stream is removed.
const MIN_REAP_NS: u64 = 1_000_000_000;
const MAX_REAP_NS: u64 = 2_000_000_000;
/// Once the distance is `min`, it grows by this fraction of itself.
const LATE_PART: u64 = 8;

/// A run of reads.
struct ZfetchStream {
    /// The record in which the next read is expected.
    pos: u64,
    /// The end of its readahead.
    end: u64,
    distance: u64,
    hits: u64,
    /// The time of its last read.
    at: Nanos,
}

/// All streams of a file.
struct Zfetch {
    min: u64,
    max: u64,
    record: u64,
    streams: Vec<ZfetchStream>,
}

impl ZfetchStream {
    /// The distance after a hit of `len` bytes; `late`: a prefetch came too late for this read.
    fn grow(&mut self, len: u64, late: bool, min: u64, max: u64) {
        self.distance = if self.hits == 0 {
            len.min(min)
        } else if self.distance < min {
            (2 * self.distance).min(min)
        } else if late {
            self.distance + self.distance / LATE_PART
        } else {
            self.distance
        };
        self.distance = self.distance.min(max);
        self.hits += 1;
    }
}

impl Policy for Zfetch {
    fn wants(&self) -> Wants {
        Wants {
            read: true,
            ..Wants::default()
        }
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let Some((start, end)) = ask.readable(self.max, answer) else {
            return;
        };
        self.streams.retain(|s| ask.now.since(s.at) <= MAX_REAP_NS);
        let (first, next) = (start / self.record, end.div_ceil(self.record));
        let is_expected = |s: &&mut ZfetchStream| s.pos == first || s.pos == first + 1;
        let Some(stream) = self.streams.iter_mut().find(is_expected) else {
            answer.why = Some(Why::NoHistory);
            return self.begin(next, ask.now);
        };
        stream.at = ask.now;
        if stream.pos == next {
            answer.why = Some(Why::NotYet);
            return;
        }
        let late =
            start < stream.end && [start, end - 1].iter().any(|at| !ask.probe.is_present(*at));
        let len = (next - stream.pos) * self.record;
        stream.grow(len, late, self.min, self.max);
        stream.pos = next;
        let from = stream.end.max(end);
        let to = (next * self.record + stream.distance).min(ask.file_size);
        answer.why = Some(if from >= ask.file_size {
            Why::EndOfFile
        } else {
            Why::NotYet
        });
        if from < to {
            answer.why = Some(if stream.hits == 1 {
                Why::Sequential
            } else {
                Why::NextWindow
            });
            answer.read(from, to - from, None);
            stream.end = to;
        }
    }
}

impl Zfetch {
    /// Starts a stream whose next read is expected in record `pos`, if there is room.
    fn begin(&mut self, pos: u64, now: Nanos) {
        if self.streams.len() >= MAX_STREAMS {
            let may_go = |s: &ZfetchStream| s.hits == 0 || now.since(s.at) > MIN_REAP_NS;
            let going = self.streams.iter().enumerate().filter(|(_, s)| may_go(s));
            let Some((at, _)) = going.min_by_key(|(_, s)| (s.hits > 0, s.at)) else {
                return;
            };
            self.streams.swap_remove(at);
        }
        self.streams.push(ZfetchStream {
            pos,
            end: pos * self.record,
            distance: 0,
            hits: 0,
            at: now,
        });
    }
}

pub static INFO: Info = Info {
    name: "zfetch",
    summary: "ZFS's prefetcher: doubles to 4 MiB, then an eighth more where it came too late",
    origin: "OpenZFS pull request 13452 (Alexander Motin, 2022) and zfs(4)",
    scope: Scope::File,
    page_bytes: None,
    params: &[
        Param {
            key: "max",
            unit: Unit::Bytes,
            default: "64M",
            range: (0, 1 << 30),
            help: "largest distance (zfetch_max_distance); 0 is off",
        },
        Param {
            key: "min",
            unit: Unit::Bytes,
            default: "4M",
            range: (0, 1 << 30),
            help: "distance that is doubled up to (zfetch_min_distance)",
        },
        Param {
            key: "record",
            unit: Unit::Bytes,
            default: "128K",
            range: (512, 16 << 20),
            help: "size of a record of the file (recordsize)",
        },
    ],
    build: |v| {
        Box::new(Zfetch {
            max: v[0],
            min: v[1].min(v[0]),
            record: v[2],
            streams: Vec::new(),
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const MIB: u64 = 1 << 20;

    /// The example in the header.
    #[test]
    fn the_distance_doubles_and_then_waits_for_lateness() {
        let mut stream = ZfetchStream {
            pos: 0,
            end: 0,
            distance: 0,
            hits: 0,
            at: Nanos(0),
        };
        let late = [
            false, true, true, true, true, true, false, true, false, true,
        ];
        let grown: Vec<u64> = late
            .map(|late| {
                stream.grow(128 * KIB, late, 4 * MIB, 64 * MIB);
                stream.distance / KIB
            })
            .to_vec();
        assert_eq!(
            grown,
            [128, 256, 512, 1024, 2048, 4096, 4096, 4608, 4608, 5184]
        );
        (0..100).for_each(|_| stream.grow(128 * KIB, true, 4 * MIB, 64 * MIB));
        assert_eq!(stream.distance, 64 * MIB);
    }

    #[test]
    fn streams_that_were_never_hit_make_room_first() {
        let mut zfetch = Zfetch {
            min: 4 * MIB,
            max: 64 * MIB,
            record: MIB,
            streams: Vec::new(),
        };
        (0..8).for_each(|n| zfetch.begin(n, Nanos(n)));
        zfetch
            .streams
            .iter_mut()
            .filter(|s| s.pos != 3)
            .for_each(|s| s.hits = 1);
        let has = |zfetch: &Zfetch, record: u64| zfetch.streams.iter().any(|s| s.pos == record);
        zfetch.begin(100, Nanos(10));
        assert!(has(&zfetch, 100) && !has(&zfetch, 3) && has(&zfetch, 0));
        zfetch.streams.iter_mut().for_each(|s| s.hits = 1);
        zfetch.begin(200, Nanos(20));
        assert!(!has(&zfetch, 200), "all were hit within a second");
        zfetch.begin(200, Nanos(MIN_REAP_NS + 1));
        assert!(
            has(&zfetch, 200) && !has(&zfetch, 0) && zfetch.streams.len() == 8,
            "the oldest went"
        );
    }
}
