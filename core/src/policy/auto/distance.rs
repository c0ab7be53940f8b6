//! Limits how far ahead of a stream's reader bytes are fetched (the *distance*): far enough that the reader does not wait, but no farther
//! than the source can use.
//!
//! A new stream gets the distance that `survival.rs` finds worthwhile. If a read reaches a mark (the first page of a window) whose page is
//! still in flight, the readahead was late, and the distance doubles. The distance does not double again before the reader has passed all
//! bytes that were read ahead when it last doubled. The limits are:
//!
//! ```text
//!   most    = 4 x rate x latency, at least 512 KiB and 4 reads; active streams share it if the source answers fetches
//!             in parallel; at most half of the cache
//!   request = rate of one fetch x latency, 8 times that if one fetch gets the whole rate; between an eighth and a half of the
//!             distance, at least 128 KiB
//! ```
//! Twice rate x latency keeps the source busy; four times covers requests that take longer than the median. If a request has the length
//! `rate of one fetch x latency`, the transfer of its bytes takes as long as its latency. Shorter requests spend more time on latency,
//! longer requests use less of the source's concurrency. If one fetch in 20 takes longer than four latencies, a quarter of the time of such
//! a slow fetch replaces the latency in both formulas, except for a disk.
//!
//! If several streams share a link that one fetch can fill, each distance is split into at least three requests. With only two requests,
//! all bytes would arrive at once, and each reader would wait for both.
//!
//! A longer distance can make the measured rate higher, which raises the limit again; this ends when the source delivers no more.
//! `effort.rs` decides when the limit is raised further, and how much of the cache readahead may use.
//!
//! If there are at least as many readers as readahead requests may be in flight, the source is always busy, and only longer requests help.
//! Then all streams share the *room*, that is, the bytes that may be read ahead in total. Each stream requests its part of the room, at
//! least four reads, in one window. The stream requests the next window when only a small rest, its *lead*, is left. If the room is too
//! small for all streams, the first streams get it. With so many readers, each reader loses some readahead by chance. Therefore the share
//! of the cache that readahead may use shrinks only if the bytes evicted unread are more than an eleventh of the bytes used.
//!
//! Example: for a store with 15 ms latency that delivers 160 MB/s, the limit is 9.6 MB; for 1.1 GB/s it is 66 MB. With 16 streams, each
//! stream's limit is then rate x latency, 16.5 MB, or 8 MiB if the cache has 256 MiB. If one fetch gets 100 MB/s, requests are 1.4 MiB
//! long. Another example: 100 readers with reads of 32 KiB, on a disk with a cache of 256 MiB, start with a limit of 512 KiB each. While
//! the rate grows, the limit rises to 1.3 MiB, which is each reader's part of all bytes that may be read ahead; the lead is one read.
//!
//! Sources: PostgreSQL 19 read_stream, ZFS #13452 and mountpoint-s3 also grow only if readahead was late. BBR doubles until the rate no
//! longer grows. Rate x latency is Little's law. The lead is from AMP (Gill and Bathen, FAST 2007). The constants were chosen by measuring
//! the baseline workloads of the evaluation, and its workload with 100 streams.

use super::effort::{ALL, Effort};
use crate::policy::SourceView;
use crate::units::mul_div;

/// The rate assumed for a source that has not been busy yet, in bytes per second: that of an object store over 10 Gbit/s.
const PRIOR_RATE: u64 = 1_000_000_000;
/// The rate of a source is known after this number of fetches while it was busy.
const KNOWN_AFTER: u32 = 16;
/// For a source that delivers fetches in parts, the rate is final after this number of fetches. Until then it may reflect windows that
/// were too short, and is multiplied by [`GROWTH`]: a store that delivers 75 MB in a round trip shows 300 MB/s with 24 MB in flight.
const GROWN_AFTER: u32 = 128;
const GROWTH: u64 = 3;
/// The distance that such a rate allows is this number of times the length of the run: only a long run is worth it.
const RUNS: u64 = 2;
/// All streams together may be ahead by this number of times rate x latency.
const PRODUCTS: u64 = 4;
/// With many readers, the next window is requested when this number of times rate x latency is left ahead; the streams share these bytes.
const LEAD_PRODUCTS: u64 = 2;
/// The limit is at least this number of bytes and of reads.
const MIN_MOST: u64 = 512 << 10;
const MIN_READS: u64 = 4;
/// The most and the fewest requests in a distance, and the shortest request.
const MAX_REQUESTS: u64 = 8;
const MIN_REQUESTS: u64 = 2;
const MIN_REQUEST: u64 = 128 << 10;
/// The fewest requests if streams share a link that one fetch alone can fill, for distances from [`MIN_SHARED`] on.
const SHARED_REQUESTS: u64 = 3;
const MIN_SHARED: u64 = 3 << 20;
/// Length of a request, as a multiple of rate x latency, if one fetch alone gets the whole rate. Then other requests in flight hide no
/// latency, and about an eighth of the time is spent on it.
const SERIAL_PRODUCTS: u64 = 8;

/// This number of readers keeps a source busy, however many requests may be ahead of them.
const MANY: u64 = 16;

/// The number of readers of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readers {
    /// Readers that share the rate of the source.
    pub link: u64,
    /// Readers that share the room for readahead.
    pub room: u64,
    /// Bytes held by streams that continued recently.
    pub held: u64,
}

impl Readers {
    /// Returns whether the readers alone keep the source busy: there are at least two, and at least as many as readahead requests may be in
    /// flight.
    pub fn are_many(self, source: &SourceView) -> bool {
        source.ahead_slots > 0 && self.link >= u64::from(source.ahead_slots).clamp(2, MANY)
    }
}

/// Whether the source has been busy for long enough to show its rate.
fn is_known(source: &SourceView) -> bool {
    source.busy >= KNOWN_AFTER
}

/// Rate x latency in bytes. While the rate is not known, at least [`PRIOR_RATE`] is used for it.
pub fn product(source: &SourceView) -> u64 {
    let rate = if is_known(source) {
        source.rate
    } else {
        source.rate.max(PRIOR_RATE)
    };
    bytes(rate, source.latency_ns)
}

/// The latency that a distance must cover: the usual one, or a quarter of a slow fetch's time if that is longer. If one fetch in 20 takes
/// ten times the latency, a distance of four times rate x latency would stall at each of them.
fn wait_ns(source: &SourceView) -> u64 {
    if source.single_rate == 0 {
        source.latency_ns
    } else {
        source.latency_ns.max(source.tail_ns / PRODUCTS)
    }
}

/// Like [`product`], but with growth added if the rate may still grow.
fn product_to_come(source: &SourceView) -> u64 {
    let product = product(source);
    if !is_known(source) || source.busy >= GROWN_AFTER || source.single_rate == 0 {
        return product;
    }
    let prior = bytes(source.rate.max(PRIOR_RATE), source.latency_ns);
    product.saturating_mul(GROWTH).min(prior)
}

/// The rate if it is known, otherwise 0.
pub fn known_rate(source: &SourceView) -> u64 {
    if is_known(source) { source.rate } else { 0 }
}

fn bytes(rate: u64, ns: u64) -> u64 {
    mul_div(rate, ns, 1_000_000_000)
}

/// The measured rate x latency.
pub fn measured(source: &SourceView) -> u64 {
    bytes(source.rate, source.latency_ns)
}

/// Bytes that one round trip can transfer, as measured: by all fetches together, or by one fetch.
pub fn shown(source: &SourceView) -> u64 {
    bytes(source.rate.max(source.single_rate), source.latency_ns)
}

/// Returns how many bytes may be read ahead for all streams together: half of the cache, or less if readahead was evicted unread.
pub fn room(source: &SourceView, effort: &Effort) -> u64 {
    source.room / 2 * effort.share() / ALL
}

/// The smallest value of the limit on the distance, for reads of `len` bytes.
pub fn least(len: u64) -> u64 {
    MIN_MOST.max(len.saturating_mul(MIN_READS))
}

/// Returns the largest distance of a stream with reads of `len` bytes, if `active` readers share the source.
pub fn most(source: &SourceView, (len, run): (u64, u64), active: Readers, effort: &Effort) -> u64 {
    let sharing = if active.are_many(source) {
        active.room
    } else {
        active.link
    }
    .max(1);
    let active = active.link.max(1);
    let slow = bytes(known_rate(source), wait_ns(source));
    let product = product(source)
        .max(slow)
        .max(product_to_come(source).min(RUNS * run / PRODUCTS));
    // A source that one fetch at a time keeps busy (a disk) loses a seek whenever the stream changes, so its streams do not share the
    // limit.
    let shared = if source.single_rate == 0 { 1 } else { active };
    let link = (product.saturating_mul(PRODUCTS) / shared).max(product);
    let all = room(source, effort);
    // If the room is less than some reads for each stream, the first streams get it.
    let room = (all / sharing).max(len.saturating_mul(MIN_READS)).min(all);
    (link.max(least(len)) << effort.raised()).min(room).max(len)
}

/// Whether one fetch alone gets most of the rate of the source.
fn is_serial(source: &SourceView) -> bool {
    source.single_rate == 0 || is_known(source) && source.rate < 2 * source.single_rate
}

/// Returns the *lead*, or `None` if the readers alone do not keep the source busy. The lead is the number of bytes that are still ahead of
/// a reader when its next window is requested: as many as it reads until the window arrives. All other bytes that may be ahead are
/// requested in one window, because the source is always busy and each request costs the same overhead.
pub fn lead(ahead: u64, len: u64, active: Readers, source: &SourceView) -> Option<u64> {
    active.are_many(source).then(|| {
        (product(source).saturating_mul(LEAD_PRODUCTS) / active.room)
            .max(len)
            .min(ahead / 2)
    })
}

/// Returns the length in bytes of the requests into which a window is split.
pub fn request(distance: u64, streams: u64, source: &SourceView) -> u64 {
    let single = if source.single_rate > 0 {
        source.single_rate
    } else {
        source.rate
    };
    let even = bytes(single, wait_ns(source));
    let even = if is_serial(source) {
        even.saturating_mul(SERIAL_PRODUCTS)
    } else {
        even
    };
    let is_link = source.single_rate > 0 && is_serial(source);
    let least = if is_link && streams > 1 && distance >= MIN_SHARED {
        SHARED_REQUESTS
    } else {
        MIN_REQUESTS
    };
    let part = even.clamp(distance / MAX_REQUESTS, distance / least).max(1);
    (part / MIN_REQUEST * MIN_REQUEST).clamp(MIN_REQUEST, source.max_fetch.max(MIN_REQUEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::auto::effort::SHRINKS_AFTER;

    const MS: u64 = 1_000_000;

    fn source(rate: u64, latency_ns: u64, busy: u32) -> SourceView {
        SourceView {
            latency_ns,
            rate,
            busy,
            room: 256 << 20,
            max_fetch: 4 << 20,
            ..SourceView::default()
        }
    }

    /// A store that delivers fetches in parts.
    fn store(rate: u64, single_rate: u64, busy: u32) -> SourceView {
        let single = source(rate, 15 * MS, busy);
        SourceView {
            single_rate,
            ..single
        }
    }

    fn readers(n: u64) -> Readers {
        Readers {
            link: n,
            room: n,
            held: 0,
        }
    }

    fn limit(source: &SourceView, (len, run): (u64, u64), active: u64) -> u64 {
        most(source, (len, run), readers(active), &Effort::default())
    }

    /// The example of the header.
    #[test]
    fn the_limit_grows_with_the_rate() {
        let cases = [
            (source(8_000_000, 15 * MS, 0), 1, 60_000_000),
            (source(160_000_000, 15 * MS, 16), 1, 9_600_000),
            (source(1_100_000_000, 15 * MS, 16), 1, 66_000_000),
            // A 16th of half of the cache.
            (source(1_100_000_000, 15 * MS, 16), 16, 8 << 20),
            (source(62_500_000, 690_000, 99), 1, 512 << 10),
        ];
        for (source, active, expected) in cases {
            assert_eq!(limit(&source, (128 << 10, 0), active), expected);
        }
        let store = store(1_100_000_000, 100_000_000, 16);
        let requests = [66_000_000, 8 << 20, 1 << 20, 0].map(|most| request(most, 1, &store));
        assert_eq!(requests, [4 << 20, 11 << 17, 4 << 17, 128 << 10]);
    }

    /// If one fetch in 20 takes 160 ms, the limit is 64 MB instead of 24 MB, in longer requests. A disk's slow fetches are its seeks.
    #[test]
    fn a_long_tail_needs_more() {
        let store = store(400_000_000, 100_000_000, 128);
        let tail = SourceView {
            tail_ns: 160 * MS,
            ..store
        };
        let disk = SourceView {
            single_rate: 0,
            ..tail
        };
        let limits = [store, tail, disk].map(|source| limit(&source, (128 << 10, 0), 1));
        assert_eq!(limits, [24_000_000, 64_000_000, 24_000_000]);
        let requests = [store, tail].map(|source| request(25_600_000, 1, &source));
        assert_eq!(requests, [24 << 17, 30 << 17]);
    }

    /// The share shrinks by an eighth for each loss, and slowly recovers.
    #[test]
    fn what_is_evicted_unread_shrinks_the_share() {
        let mut effort = Effort::default();
        let store = source(1_100_000_000, 15 * MS, 16);
        let most = |effort: &Effort| most(&store, (4096, 0), readers(16), effort);
        assert_eq!(most(&effort), 8 << 20);
        let lost = |unused_bytes, used_bytes| SourceView {
            unused_bytes,
            used_bytes,
            ..SourceView::default()
        };
        effort.thrashed(1, false, &lost(4096, 0));
        effort.thrashed(2, false, &lost(8192, 0));
        let once = (8 << 20) * 55 / 64;
        assert_eq!(most(&effort), once, "one loss within eight decisions");
        (3..3 + 9 * 65 + SHRINKS_AFTER).for_each(|clock| effort.calm(clock));
        assert_eq!(most(&effort), 8 << 20);
        // Many readers lose some readahead by chance; a 32nd of the bytes used does not shrink the share.
        effort = Effort::default();
        effort.thrashed(1, true, &lost(1 << 19, 16 << 20));
        assert_eq!(most(&effort), 8 << 20);
        effort.thrashed(1, true, &lost(3 << 20, 16 << 20));
        assert_eq!(most(&effort), once);
    }

    /// A rate that was measured from few fetches may grow, but not for a short run, and not if fetches arrive whole.
    #[test]
    fn a_young_rate_may_grow() {
        let most =
            |busy, run, single| limit(&store(200_000_000, single, busy), (128 << 10, run), 1);
        let known = 12_000_000;
        assert_eq!(most(16, 1 << 20, 100_000_000), known);
        assert_eq!(most(128, 1 << 30, 100_000_000), known);
        assert_eq!(most(16, 1 << 30, 0), known);
        assert_eq!(most(16, 8 << 20, 100_000_000), 16 << 20);
        assert_eq!(most(16, 1 << 30, 100_000_000), 3 * known);
    }

    /// The second example of the header: AMP's window and lead, which few readers do not get.
    #[test]
    fn many_readers_have_long_windows() {
        let with = |ahead_slots| SourceView {
            ahead_slots,
            ..source(60_000_000, 8 * MS, 99)
        };
        let disk = with(16);
        let store = SourceView {
            single_rate: 30_000_000,
            ..disk
        };
        assert_eq!(limit(&store, (32 << 10, 0), 100), 512 << 10);
        let most = limit(&disk, (32 << 10, 0), 100);
        assert_eq!(most, (128 << 20) / 100, "streams share no rate");
        let small = SourceView {
            room: 16 << 20,
            ..disk
        };
        assert_eq!(limit(&small, (32 << 10, 0), 100), 128 << 10, "four reads");
        let lead = |readers_: u64, source| lead(512 << 10, 32 << 10, readers(readers_), source);
        assert_eq!(lead(100, &disk), Some(32 << 10));
        assert_eq!((lead(15, &disk), lead(1, &with(1))), (None, None));
    }
}
