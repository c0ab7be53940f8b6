//! How far ahead a stream reads: as far as its reader had to wait, and no farther than the source can use.
//!
//! A stream starts with what the gate allows. When a read reaches a mark whose page is still in flight, readahead was late: the
//! distance doubles, and does not double again before the reader has passed what was read ahead by then. It ends at
//!
//! ```text
//!   most = 4 x rate x latency, at least 512 KiB and 8 reads, shared by the streams that are active; 3/8 of the cache at most
//! ```
//! Twice the product keeps the source busy; four times covers requests that take longer than the median. A window goes out as
//! requests of an eighth of the distance. The rate grows with the distance, so the limit moves up until the source delivers no more.
//!
//! Example: a store of 15 ms. The first window of 4 MiB arrives at 160 MB/s, so the limit is 9.6 MB; the second of 8 MiB at
//! 300 MB/s, then 18 MB, and so on to 64 MiB at 1.1 GB/s: four round trips.
//!
//! Sources: lateness as the only reason to grow: PostgreSQL 19 read_stream, ZFS #13452, mountpoint-s3; doubling until the rate
//! grows no more: BBR; the product: Little's law.

use crate::policy::SourceView;

/// Rate that a source is taken for while it has not been busy, in bytes a second: between a disk and an object store.
const PRIOR_RATE: u64 = 256_000_000;
/// Fetches of a busy source after which its rate is known.
const KNOWN_AFTER: u32 = 16;
/// Products of rate and latency that streams may be ahead together, and how often that may be doubled.
const PRODUCTS: u64 = 4;
const MAX_RAISED: u32 = 3;
/// Decisions after which a raise is judged, for each active stream, and after which another one is tried.
const TRIAL: u64 = 4;
const PAUSE: u64 = 512;
/// The least limit.
const MIN_MOST: u64 = 512 << 10;
/// Requests of a window, and the least of one.
const REQUESTS: u64 = 8;
const MIN_REQUEST: u64 = 128 << 10;
/// What a stream may be ahead before anything is known: also the least debt of the credit.
const FIRST: u64 = 4 << 20;

/// Rate x latency in bytes, with the prior while the rate is not known.
pub fn product(source: &SourceView) -> u64 {
    let rate = if source.busy < KNOWN_AFTER { source.rate.max(PRIOR_RATE) } else { source.rate };
    bytes(rate, source.latency_ns)
}

fn bytes(rate: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Rate x latency as far as it is measured.
pub fn measured(source: &SourceView) -> u64 {
    bytes(source.rate, source.latency_ns)
}

/// How far a stream of reads of `len` bytes may be ahead, as one of `active` streams, with the limit doubled `raised` times.
pub fn most(source: &SourceView, len: u64, active: u64, raised: u32) -> u64 {
    let active = active.max(1);
    let product = product(source);
    let link = (PRODUCTS * product / active).max(product);
    let link = if source.busy < KNOWN_AFTER { link.min(FIRST) } else { link };
    let least = MIN_MOST.max(REQUESTS * len);
    (link.max(least) << raised).min(source.room * 3 / 8 / active).max(len)
}

/// How often the limit is doubled. Where requests take much longer than the median, four products of rate and latency do not
/// keep a source busy: readers that are late at the limit raise it, for as long as the rate grows with it.
#[derive(Default)]
pub struct Effort {
    raised: u32,
    /// The rate before the latest raise, while that is on trial.
    before: Option<u64>,
    /// Decision before which nothing changes.
    until: u64,
}

impl Effort {
    /// Doublings of the limit.
    pub fn raised(&self) -> u32 {
        self.raised
    }

    /// A reader was late though it is as far ahead as it may be.
    pub fn late(&mut self, rate: u64, clock: u64, active: u64) {
        if clock < self.until {
            return;
        }
        let grew = self.before.is_none_or(|before| rate > before + before / 8);
        if grew && self.raised < MAX_RAISED {
            self.raised += 1;
            self.before = Some(rate);
            self.until = clock + TRIAL * active;
        } else {
            self.raised = self.raised.saturating_sub(u32::from(!grew));
            self.before = None;
            self.until = clock + PAUSE;
        }
    }
}

/// Length of a request of a window.
pub fn request(distance: u64, max_fetch: u64) -> u64 {
    let eighth = (distance / REQUESTS).max(1);
    (1_u64 << eighth.ilog2()).clamp(MIN_REQUEST, max_fetch.max(MIN_REQUEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(rate: u64, latency_ns: u64, busy: u32) -> SourceView {
        SourceView { latency_ns, rate, busy, room: 256 << 20, max_fetch: 4 << 20, ..SourceView::default() }
    }

    /// The example of the header.
    #[test]
    fn the_limit_grows_with_the_rate() {
        assert_eq!(most(&source(8_000_000, 15_000_000, 0), 128 << 10, 1, 0), 4 << 20, "nothing is known");
        assert_eq!(most(&source(160_000_000, 15_000_000, 16), 128 << 10, 1, 0), 9_600_000);
        assert_eq!(most(&source(1_100_000_000, 15_000_000, 16), 128 << 10, 1, 0), 66_000_000);
        assert_eq!(
            most(&source(1_100_000_000, 15_000_000, 16), 128 << 10, 16, 0),
            6 << 20,
            "a 16th of 3/8 of the cache"
        );
        assert_eq!(most(&source(62_500_000, 690_000, 99), 4096, 1, 0), 512 << 10, "four times 43 KB");
        assert_eq!((request(66_000_000, 4 << 20), request(512 << 10, 4 << 20)), (4 << 20, 128 << 10));
    }

    /// A raise that brings no rate is taken back.
    #[test]
    fn effort_follows_the_rate() {
        let mut effort = Effort::default();
        effort.late(100, 0, 1);
        assert_eq!(effort.raised(), 1);
        effort.late(150, 2, 1);
        assert_eq!(effort.raised(), 1, "on trial");
        effort.late(150, 16, 1);
        effort.late(150, 32, 1);
        assert_eq!(effort.raised(), 1, "the second raise brought nothing");
    }
}
