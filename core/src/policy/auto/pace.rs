//! Limits readahead for a reader that is slower than its source.
//!
//! A distance grows whenever its reader waits, and never shrinks by itself. A reader that reads 20 MB/s from a source of 200 MB/s waits
//! only at its start, but its readahead would stay 24 MB ahead until its end. Readahead that is longer than needed costs memory, and
//! fetches bytes that nothing reads if the reader stops. Therefore the *pace* of each reader, the bytes that it reads in two latencies, is
//! measured over periods (*spans*) that begin and end when the policy is called:
//!
//! ```text
//!   span     two latencies or longer, at least 12 ms
//!   pace     bytes read in a span, per two latencies; or bytes read in its first two latencies, if that is more: a burst
//!   calm     16 latencies and four spans without a wait: the limit becomes four times the largest pace, but at least 1/4 of the last one
//!   a wait   removes the limit; the next limit needs twice as much calm
//! ```
//! Example: a latency of 30 ms and a reader of 20 MB/s. A span takes two latencies, that is, 60 ms. If the policy is called only every 8
//! MiB, a span is as long as the reader takes for them: 420 ms. In both cases the pace is 20 MB/s x 60 ms = 1.2 MB. After 1.7 s without a
//! wait, the limit is a quarter of the 24 MB; after half a second more, it is four times the pace, 4.8 MB. In contrast, a data loader that
//! reads 8 MB at once every two seconds has a pace of 8 MB, so its distance does not shrink.
//!
//! The limit applies to sources that deliver fetches in parts. The limit does not apply to a disk that answers one request at a time,
//! because shorter requests would cost it more seeks.
//!
//! Sources: read_stream of PostgreSQL 19 also waits before it shrinks a distance; data loaders need a distance that covers a burst. The
//! factors were measured on a mount with a reader of 20 MB/s, and chosen so that no workload becomes slower on any device.

use crate::policy::SourceView;
use crate::units::mul_div;

/// Length of a span in latencies, and its minimum in nanoseconds: shorter spans would measure the scheduler of the machine.
const SPAN: u64 = 2;
const MIN_SPAN_NS: u64 = 12_000_000;
/// Calm before a limit is set or lowered: a number of spans, and a time in multiples of the minimum span.
const CALM: u32 = 4;
const CALM_SPANS: u64 = 8;
/// The limit as a multiple of the largest pace, and the divisor of the previous limit that gives the lowest new one.
const ENOUGH: u64 = 4;
const LEAST_PART: u64 = 4;
/// The required calm is doubled at most this number of times: 31 s at 30 ms.
const MAX_DOUBLED: u32 = 6;

/// The length of a reader's run at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    run: u64,
    ns: u64,
}

/// The pace of one stream's reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The start of the calm, the start of the span, and the latest decision.
    calm_from: Point,
    from: Point,
    latest: Point,
    /// Number of spans in the calm, and the largest of their paces in bytes.
    spans: u32,
    greatest: u64,
    /// The limit in bytes; 0 if there is none.
    limit: u64,
    /// Number of waits while there was a limit.
    regrets: u32,
}

impl Pace {
    /// Returns whether the reader has been slower than the source for so long that its readahead is now limited.
    pub fn is_slow(&self) -> bool {
        self.limit > 0
    }

    /// Records that the reader has read `run` bytes of its stream by the time `ns`. `has_waited` says whether the reader has waited for
    /// data since the last call. Returns how far ahead of the reader the readahead needs to be, at least `least`.
    pub fn at(
        &mut self,
        (run, ns): (u64, u64),
        has_waited: bool,
        (distance, least): (u64, u64),
        source: &SourceView,
    ) -> u64 {
        let now = Point { run, ns };
        if has_waited || source.single_rate == 0 {
            let regrets = (self.regrets + u32::from(self.limit > 0)).min(MAX_DOUBLED);
            *self = Pace {
                calm_from: now,
                from: now,
                latest: now,
                regrets,
                ..Pace::default()
            };
            return u64::MAX;
        }
        let span_ns = (SPAN * source.latency_ns).max(MIN_SPAN_NS);
        let took_ns = ns.saturating_sub(self.from.ns);
        if took_ns >= span_ns {
            let burst = self.latest.run.saturating_sub(self.from.run);
            self.greatest = self.greatest.max(burst).max(mul_div(
                run.saturating_sub(self.from.run),
                span_ns,
                took_ns,
            ));
            self.spans += 1;
            self.from = now;
        }
        self.latest = now;
        let calm_ns = CALM_SPANS.saturating_mul(span_ns) << self.regrets;
        if self.spans >= CALM && ns.saturating_sub(self.calm_from.ns) >= calm_ns {
            let was = if self.limit > 0 { self.limit } else { distance };
            let enough = (ENOUGH * self.greatest).max(was / LEAST_PART).max(least);
            self.limit = if enough < distance { enough } else { 0 };
            (self.calm_from, self.spans, self.greatest) = (now, 0, 0);
        }
        if self.limit > 0 { self.limit } else { u64::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs a reader of 20 MB/s over `marks` marks, each an eighth of the readahead apart. Returns how far ahead is enough.
    fn paced(pace: &mut Pace, (run, now, enough): &mut (u64, u64, u64), marks: u32) -> u64 {
        let store = SourceView {
            latency_ns: 30 * MS,
            rate: 200_000_000,
            single_rate: 200_000_000,
            ..SourceView::default()
        };
        for _ in 0..marks {
            let step = (*enough).min(64_000_000) / 8;
            (*run, *now) = (*run + step, *now + step * 50);
            *enough = pace.at((*run, *now), false, (24_000_000, 512 << 10), &store);
        }
        *enough
    }

    /// The example of the header.
    #[test]
    fn a_slow_reader_needs_less() {
        let (mut pace, mut at) = (Pace::default(), (0, 0, u64::MAX));
        assert_eq!(paced(&mut pace, &mut at, 3), u64::MAX);
        assert_eq!(paced(&mut pace, &mut at, 1), 6_000_000);
        assert_eq!(paced(&mut pace, &mut at, 16), 4_800_000);
        assert!(at.1 < 2200 * MS, "{}", at.1);
        assert_eq!(paced(&mut pace, &mut at, 100), 4_800_000);
    }

    /// A wait removes the limit, and the next limit takes twice as long.
    #[test]
    fn a_wait_ends_the_limit() {
        let store = SourceView {
            latency_ns: 30 * MS,
            single_rate: 1,
            ..SourceView::default()
        };
        let mut pace = Pace::default();
        let mut calm = |from: u64, has_waited: bool| {
            _ = pace.at((from, from * 60 * MS), has_waited, (24_000_000, 1), &store);
            (1..).find(|n| {
                pace.at(
                    (from + n, (from + n) * 60 * MS),
                    false,
                    (24_000_000, 1),
                    &store,
                ) < u64::MAX
            })
        };
        assert_eq!(calm(0, true), Some(8));
        assert_eq!(calm(8, true), Some(16));
        assert_eq!(calm(24, true), Some(32));
    }

    /// 8 MB at once every two seconds are read in one span: the distance stays.
    #[test]
    fn a_burst_is_one_span() {
        let store = SourceView {
            latency_ns: 30 * MS,
            single_rate: 1,
            ..SourceView::default()
        };
        let mut pace = Pace::default();
        for n in 0..100 {
            let now = n / 8 * 2000 * MS + n % 8 * MS;
            assert_eq!(
                pace.at(((n + 1) * 1_000_000, now), false, (24_000_000, 1), &store),
                u64::MAX,
                "mark {n}"
            );
        }
    }

    /// A disk answers one request at a time: shorter ones cost seeks.
    #[test]
    fn a_disk_has_no_limit() {
        let disk = SourceView {
            latency_ns: 8 * MS,
            ..SourceView::default()
        };
        let mut pace = Pace::default();
        assert!(
            (1..100).all(
                |n| pace.at((n << 12, n * 100 * MS), false, (24_000_000, 1), &disk) == u64::MAX
            )
        );
    }
}
