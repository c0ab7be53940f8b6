//! How far ahead a stream reads: as far as its reader had to wait, and no farther than the source can use.
//!
//! A stream starts with what is worth it (`survival.rs`). When a read reaches a mark whose page is still in flight, readahead was late: the
//! distance doubles, and does not double again before the reader has passed what was read ahead by then. It ends at
//!
//! ```text
//!   most    = 4 x rate x latency, at least 512 KiB and 4 reads, shared by the streams that are active where fetches run beside
//!             each other; half of the cache at most
//!   request = rate of one fetch x latency, 8 times that where one fetch gets the whole rate; between an eighth and a half of the
//!             distance, at least 128 KiB
//! ```
//! Twice the product keeps the source busy; four times covers requests that take longer than the median. A request of `rate of
//! one fetch x latency` spends as long on its bytes as on its latency: shorter ones waste latency, longer ones concurrency.
//! Where one fetch of 20 takes more than four latencies, a quarter of its time is taken for the latency in both, but not of a disk.
//!
//! Streams that share a link which one fetch fills have three requests of a distance: two would come all at once, and each reader waits for both.
//!
//! The rate grows with the distance, so the limit moves up until the source delivers no more (`effort.rs`: raises, and the share of the
//! cache that is used).
//!
//! With more readers than requests that may be ahead the source is busy whatever is read ahead, and only longer requests help. Then
//! a stream asks for all of its part of the room in one window, and for the next one when its *lead* is left. The part is at least four
//! reads: where the room does not suffice for all streams, those that come first have it. The share shrinks only when more than
//! an eleventh of what was used has left the cache unread, since each reader loses some of it by chance.
//!
//! Example: a store of 15 ms that delivers 160 MB/s: 9.6 MB. At 1.1 GB/s it is 66 MB; 16 streams then have 16.5 MB, the product
//! itself, each, or 8 MiB of a cache of 256 MiB. One fetch gets 100 MB/s, so its requests are 1.4 MiB long.
//! 100 readers of 32 KiB on a disk with a cache of 256 MiB: 512 KiB each, raised to their 1.3 MiB of the room while the rate grows,
//! with a lead of one read.
//!
//! Sources: lateness as the only reason to grow: PostgreSQL 19 read_stream, ZFS #13452, mountpoint-s3; doubling until the rate
//! grows no more: BBR; the product: Little's law; a lead of rate x service time and all else in the window: AMP (Gill and Bathen,
//! FAST 2007). Figures: chosen on the baseline of the evaluation, and on its 100 streams.

use super::effort::{ALL, Effort};
use crate::policy::SourceView;
use crate::units::mul_div;

/// Rate that a source is taken for while it has not been busy, in bytes a second: that of an object store over 10 Gbit/s.
const PRIOR_RATE: u64 = 1_000_000_000;
/// Fetches of a busy source after which its rate is known.
const KNOWN_AFTER: u32 = 16;
/// Fetches after which a rate is all that a source delivers which delivers in parts. Until then it may be that of windows that were short, and is
/// taken for this many times as much: 24 MB in flight of a store that delivers 75 show 300 MB/s.
const GROWN_AFTER: u32 = 128;
const GROWTH: u64 = 3;
/// The distance that such a rate allows, in lengths of the run: only one that has shown to be long is worth it.
const RUNS: u64 = 2;
/// Products of rate and latency that streams may be ahead together.
const PRODUCTS: u64 = 4;
/// Products of rate and latency, shared by the streams, that a reader of a crowded source has left when the next window goes out.
const LEAD_PRODUCTS: u64 = 2;
/// The least limit.
const MIN_MOST: u64 = 512 << 10;
const MIN_READS: u64 = 4;
/// Requests of a distance, and the least of one.
const MAX_REQUESTS: u64 = 8;
const MIN_REQUESTS: u64 = 2;
const MIN_REQUEST: u64 = 128 << 10;
/// The least number where streams share a link that one fetch alone can fill, and from which distance on.
const SHARED_REQUESTS: u64 = 3;
const MIN_SHARED: u64 = 3 << 20;
/// Length of a request in products, where one fetch alone gets the whole rate: then others in flight hide no latency, and an
/// eighth of the time is spent on it.
const SERIAL_PRODUCTS: u64 = 8;

/// This number of readers keeps a source busy, however many requests may be ahead.
const MANY: u64 = 16;

/// How many readers there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readers {
    /// Those that share the rate of the source.
    pub link: u64,
    /// Those that share the room of readahead.
    pub room: u64,
    /// Bytes that streams hold which went on lately.
    pub held: u64,
}

impl Readers {
    /// They keep the source busy whatever is read ahead: more than the requests that may be ahead. One alone does not.
    pub fn are_many(self, source: &SourceView) -> bool {
        source.ahead_slots > 0 && self.link >= u64::from(source.ahead_slots).clamp(2, MANY)
    }
}

/// The source has been busy for long enough to show its rate.
fn is_known(source: &SourceView) -> bool {
    source.busy >= KNOWN_AFTER
}

/// Rate x latency in bytes, with the prior while the rate is not known.
pub fn product(source: &SourceView) -> u64 {
    let rate = if is_known(source) {
        source.rate
    } else {
        source.rate.max(PRIOR_RATE)
    };
    bytes(rate, source.latency_ns)
}

/// The latency, or the part of a slow fetch's time that the products of a distance make whole: where one fetch of 20 takes ten times the
/// latency, four products of rate and latency would stall behind each.
fn wait_ns(source: &SourceView) -> u64 {
    if source.single_rate == 0 {
        source.latency_ns
    } else {
        source.latency_ns.max(source.tail_ns / PRODUCTS)
    }
}

/// The same of a rate that may still grow.
fn product_to_come(source: &SourceView) -> u64 {
    let product = product(source);
    if !is_known(source) || source.busy >= GROWN_AFTER || source.single_rate == 0 {
        return product;
    }
    let prior = bytes(source.rate.max(PRIOR_RATE), source.latency_ns);
    product.saturating_mul(GROWTH).min(prior)
}

/// The rate once it is known, else 0.
pub fn known_rate(source: &SourceView) -> u64 {
    if is_known(source) { source.rate } else { 0 }
}

fn bytes(rate: u64, ns: u64) -> u64 {
    mul_div(rate, ns, 1_000_000_000)
}

/// Rate x latency as far as it is measured.
pub fn measured(source: &SourceView) -> u64 {
    bytes(source.rate, source.latency_ns)
}

/// What one round trip has shown to bring: by all fetches together, or by one.
pub fn shown(source: &SourceView) -> u64 {
    bytes(source.rate.max(source.single_rate), source.latency_ns)
}

/// Bytes that all streams together may be ahead: half of the cache, or the share of it that was not evicted unread.
pub fn room(source: &SourceView, effort: &Effort) -> u64 {
    source.room / 2 * effort.share() / ALL
}

/// The least limit for reads of `len` bytes.
pub fn least(len: u64) -> u64 {
    MIN_MOST.max(len.saturating_mul(MIN_READS))
}

/// How far a stream of reads of `len` bytes may be ahead, as one of `active` streams.
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
    // What one fetch after the other keeps busy (a disk) loses a seek at each change of the stream: no sharing.
    let shared = if source.single_rate == 0 { 1 } else { active };
    let link = (product.saturating_mul(PRODUCTS) / shared).max(product);
    let all = room(source, effort);
    // Where that is less than some reads for each stream, those that come first have it.
    let room = (all / sharing).max(len.saturating_mul(MIN_READS)).min(all);
    (link.max(least(len)) << effort.raised()).min(room).max(len)
}

/// Whether one fetch alone gets all that the source delivers.
fn is_serial(source: &SourceView) -> bool {
    source.single_rate == 0 || is_known(source) && source.rate < 2 * source.single_rate
}

/// With more readers than requests that may be ahead the source is busy whatever is read ahead, and each request costs it the same
/// overhead: then a window is all that a stream may be ahead but for the bytes that its reader needs while the window comes.
/// These bytes, or none where the readers alone do not keep the source busy.
pub fn lead(ahead: u64, len: u64, active: Readers, source: &SourceView) -> Option<u64> {
    active.are_many(source).then(|| {
        (product(source).saturating_mul(LEAD_PRODUCTS) / active.room)
            .max(len)
            .min(ahead / 2)
    })
}

/// One fetch alone gets nearly all that the source delivers, though there was room for four: requests beside it come no sooner,
/// however late they are.
pub fn is_filled_by_one(source: &SourceView, distance: u64) -> bool {
    let single = source.single_rate;
    let was_room = distance / PRODUCTS >= bytes(single, source.latency_ns);
    single > 0 && is_known(source) && was_room && source.rate < single + single / 4
}

/// Length of a request of a window.
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

    fn readers(n: u64) -> Readers {
        Readers {
            link: n,
            room: n,
            held: 0,
        }
    }

    /// The example of the header.
    #[test]
    fn the_limit_grows_with_the_rate() {
        let effort = Effort::default();
        let most =
            |source: &SourceView, len, active| most(source, (len, 0), readers(active), &effort);
        assert_eq!(
            most(&source(8_000_000, 15_000_000, 0), 128 << 10, 1),
            60_000_000,
            "the prior rate"
        );
        assert_eq!(
            most(&source(160_000_000, 15_000_000, 16), 128 << 10, 1),
            9_600_000
        );
        assert_eq!(
            most(&source(1_100_000_000, 15_000_000, 16), 128 << 10, 1),
            66_000_000
        );
        assert_eq!(
            most(&source(1_100_000_000, 15_000_000, 16), 128 << 10, 16),
            8 << 20,
            "a 16th of half of the cache"
        );
        assert_eq!(
            most(&source(62_500_000, 690_000, 99), 4096, 1),
            512 << 10,
            "four times 43 KB"
        );
        let store = SourceView {
            single_rate: 100_000_000,
            ..source(1_100_000_000, 15_000_000, 16)
        };
        assert_eq!(
            request(66_000_000, 1, &store),
            4 << 20,
            "an eighth, but no more than the largest fetch"
        );
        assert_eq!(
            (request(8 << 20, 1, &store), request(1 << 20, 1, &store)),
            (11 << 17, 4 << 17)
        );
        assert_eq!(request(0, 1, &store), 128 << 10);
    }

    /// A slow fetch of 20 takes 160 ms: 64 MB instead of 24, in longer requests.
    #[test]
    fn a_long_tail_needs_more() {
        let store = SourceView {
            single_rate: 100_000_000,
            ..source(400_000_000, 15_000_000, 128)
        };
        let tail = SourceView {
            tail_ns: 160_000_000,
            ..store
        };
        let most = |source| most(source, (128 << 10, 0), readers(1), &Effort::default());
        assert_eq!((most(&store), most(&tail)), (24_000_000, 64_000_000));
        assert_eq!(
            (
                request(25_600_000, 1, &store),
                request(25_600_000, 1, &tail)
            ),
            (24 << 17, 30 << 17)
        );
        let disk = SourceView {
            single_rate: 0,
            ..tail
        };
        assert_eq!(
            most(&disk),
            24_000_000,
            "a disk's slow fetches are its seeks"
        );
    }

    /// An eighth less for each loss, and slowly back.
    #[test]
    fn what_is_evicted_unread_shrinks_the_share() {
        let mut effort = Effort::default();
        let store = source(1_100_000_000, 15_000_000, 16);
        let most = |effort: &Effort| most(&store, (4096, 0), readers(16), effort);
        assert_eq!(most(&effort), 8 << 20);
        let lost = |unused_bytes, used_bytes| SourceView {
            unused_bytes,
            used_bytes,
            ..SourceView::default()
        };
        effort.thrashed(1, false, &lost(4096, 0));
        effort.thrashed(2, false, &lost(8192, 0));
        assert_eq!(
            most(&effort),
            (8 << 20) * 55 / 64,
            "one loss within eight decisions counts"
        );
        (3..3 + 9 * 65 + SHRINKS_AFTER).for_each(|clock| effort.calm(clock));
        assert_eq!(most(&effort), 8 << 20);
    }

    /// A rate that is young may grow, but not for a short run, nor where fetches land whole.
    #[test]
    fn a_young_rate_may_grow() {
        let most = |busy, run, single_rate| {
            let source = SourceView {
                single_rate,
                ..source(200_000_000, 15_000_000, busy)
            };
            most(&source, (128 << 10, run), readers(1), &Effort::default())
        };
        let known = 12_000_000;
        assert_eq!(
            (
                most(16, 1 << 20, 100_000_000),
                most(128, 1 << 30, 100_000_000)
            ),
            (known, known)
        );
        assert_eq!(most(16, 1 << 30, 0), known);
        assert_eq!(
            (
                most(16, 8 << 20, 100_000_000),
                most(16, 1 << 30, 100_000_000)
            ),
            (16 << 20, 3 * known)
        );
    }

    /// The second example of the header: AMP's window and lead, and neither for few readers.
    #[test]
    fn many_readers_have_long_windows() {
        let disk = SourceView {
            ahead_slots: 16,
            ..source(60_000_000, 8_000_000, 99)
        };
        let streaming = SourceView {
            single_rate: 30_000_000,
            ..disk
        };
        assert_eq!(
            most(&streaming, (32 << 10, 0), readers(100), &Effort::default()),
            512 << 10
        );
        let disks = most(&disk, (32 << 10, 0), readers(100), &Effort::default());
        assert_eq!(disks, (128 << 20) / 100, "streams share no rate");
        let mut raised = Effort::default();
        raised.late(1, 0, 1, false);
        raised.late(2, 4, 1, false);
        let most = most(&disk, (32 << 10, 0), readers(100), &raised);
        assert_eq!(most, (128 << 20) / 100);
        assert_eq!(lead(most, 32 << 10, readers(100), &disk), Some(32 << 10));
        assert_eq!(lead(most, 32 << 10, readers(15), &disk), None);
        let one_at_a_time = SourceView {
            ahead_slots: 1,
            ..disk
        };
        assert_eq!(lead(most, 32 << 10, readers(1), &one_at_a_time), None);
        let small = SourceView {
            room: 16 << 20,
            ..disk
        };
        assert_eq!(
            super::most(&small, (32 << 10, 0), readers(100), &Effort::default()),
            128 << 10,
            "four reads"
        );
        // Many readers lose some by chance; a 32nd of what they used is no reason.
        let mut effort = Effort::default();
        let lost = |unused_bytes| SourceView {
            unused_bytes,
            used_bytes: 16 << 20,
            ..disk
        };
        effort.thrashed(1, true, &lost(1 << 19));
        assert_eq!(room(&disk, &effort), 128 << 20);
        effort.thrashed(1, true, &lost(3 << 20));
        assert_eq!(room(&disk, &effort), (128 << 20) / 64 * 55);
    }
}
