//! Decides whether readahead by another process can gain anything on a storage device.
//!
//! Readahead can gain nothing in two cases. First, the kernel's own readahead may be enough. For a file that is read sequentially, the
//! kernel keeps `read_ahead_kb` in flight: enough if this is more than twice what the storage delivers in one round trip. Second, foreread
//! learns of a read half a millisecond after the read began, and by then fast storage has already answered.
//!
//! ```text
//!   latency 1.3 ms, 200 MB/s: 260 KB a round trip      kernel 128 KiB     worth it
//!   latency 0.1 ms, 1.5 GB/s: 150 KB a round trip      kernel 8 MiB       not worth it: stop
//!   no read waited                                                        quiet
//! ```

use foreread_core::stats::Stats;
use foreread_pagecache::advisor::Outcome;
use foreread_pagecache::page_bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The minimum latency of storage on which readahead by another process gains time: faster storage answers the command before foreread can
/// read ahead.
pub const MIN_LATENCY: Duration = Duration::from_micros(400);
/// A sample that comes later than this after a read says nothing about the storage's speed.
const MAX_LATE_NS: u64 = 1_000_000;
/// The number of reads after which foreread decides whether the storage is fast: it is fast if at most one of these reads waits.
pub const MIN_WAITS: usize = 8;
const SAMPLES: usize = 32;
/// The rate from which a disk is treated as fast.
pub const FAST_BYTES_PER_NS: u64 = 1;
/// Bytes that may arrive together with the first byte of a request: the largest request of a disk.
const FIRST_BYTES: u64 = 1 << 20;
/// Divisor of the time: if reads waited for less than this part of it, nothing can be gained.
const MIN_PART: u32 = 20;
/// Waiting reads, and time, before readahead is judged by its use. Chosen: by then a policy has recognized a pattern.
const MIN_JUDGED_WAITS: u64 = 64;
const MIN_JUDGED_TIME: Duration = Duration::from_millis(100);
/// For each this many waiting reads, at least one page that was read ahead must be used.
const MAX_WAITS_OF_PAGE: u64 = 8;
/// How long a storage device is observed before it is judged by the time that reads waited.
const MIN_TIME: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Too few reads have waited.
    Open,
    /// No read has waited since the last check.
    Quiet,
    Worth,
    Vain,
}

/// The reason why readahead by foreread gains nothing on a storage device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The storage answers before foreread observes the read.
    Fast,
    Busy,
    /// Almost nothing that was read ahead was used.
    Random,
    /// The file system drops the cached pages of a file when it is opened.
    Dropped,
}

/// The time from the request of a job until its bytes arrived.
#[derive(Clone, Copy, Debug)]
pub struct JobTimes {
    pub first: Duration,
    pub all: Duration,
}

pub struct Gain {
    /// `read_ahead_kb` of the storage, in bytes.
    pub kernel_bytes: u64,
    /// Whether reads that do not wait are observed as well, by tracepoints. A sample sees them afterwards, which says nothing about
    /// the storage.
    sees_hits: bool,
    samples: Vec<Duration>,
    next: usize,
    since: Instant,
    waits_before: u64,
    used_before: u64,
    /// Bytes of readahead that were used, in time or late: at the last check, and at the start of this one.
    read_before: u64,
    read_at_begin: u64,
    waited_before: Duration,
    /// Demand reads that waited for the storage.
    pub waits: u64,
    /// How long they waited, in sum.
    pub waited: Duration,
    /// Bytes that foreread requested from the storage, and in how many jobs.
    pub asked_bytes: u64,
    pub ahead_jobs: u64,
    /// The latest latencies of foreread's own requests.
    fetches: VecDeque<Duration>,
    reason: Option<Reason>,
}

impl Gain {
    pub fn new(kernel_bytes: u64, sees_hits: bool, now: Instant) -> Gain {
        Gain {
            kernel_bytes,
            sees_hits,
            samples: Vec::new(),
            next: 0,
            since: now,
            waits_before: 0,
            used_before: 0,
            read_before: 0,
            read_at_begin: 0,
            waited_before: Duration::ZERO,
            waits: 0,
            waited: Duration::ZERO,
            asked_bytes: 0,
            ahead_jobs: 0,
            fetches: VecDeque::new(),
            reason: None,
        }
    }

    /// Forgets earlier observations of the storage device, and starts to observe it again.
    pub fn begin(&mut self, now: Instant) {
        (self.since, self.waits_before, self.waited_before) = (now, self.waits, self.waited);
        (self.reason, self.next, self.read_at_begin) = (None, 0, self.read_before);
        self.samples.clear();
        self.fetches.clear();
    }

    /// Records that the bytes of the command's read were already cached when foreread checked, `after_ns` nanoseconds after the
    /// read began. If foreread checked late, the result says nothing about the storage.
    pub fn at_hand(&mut self, after_ns: u64) {
        if self.sees_hits && after_ns < MAX_LATE_NS {
            self.sample(Duration::ZERO);
        }
    }

    /// Records that a job has ended. `times` are relative to the read by the command, or to the request by the decision core.
    pub fn ended(&mut self, is_demand: bool, outcome: Outcome, times: JobTimes, asked: u64) {
        self.asked_bytes += asked;
        self.ahead_jobs += u64::from(asked > 0);
        if is_demand && outcome == Outcome::Arrived {
            self.waited_for(times.all);
        } else if !is_demand && asked > 0 && outcome == Outcome::Arrived {
            // Subtracts the transfer time at the rate of a fast disk. Remote storage may deliver more than that.
            let without = |time: Duration, bytes: u64| {
                time.saturating_sub(Duration::from_nanos(bytes / FAST_BYTES_PER_NS))
            };
            let first = without(times.first, asked.min(FIRST_BYTES));
            let latency = without(times.all, asked).max(first);
            if self.fetches.len() == SAMPLES {
                self.fetches.pop_front();
            }
            self.fetches.push_back(latency);
        }
    }

    pub fn waited_for(&mut self, time: Duration) {
        (self.waits, self.waited) = (self.waits + 1, self.waited + time);
        self.sample(time);
    }

    /// Records the total time that the command has waited for storage, as observed by samples, because jobs do not measure this time.
    pub fn has_waited(&mut self, waited: Duration) {
        self.waited = self.waited.max(waited);
    }

    fn sample(&mut self, latency: Duration) {
        if self.samples.len() < SAMPLES {
            self.samples.push(latency);
        } else {
            self.samples[self.next % SAMPLES] = latency;
        }
        self.next += 1;
    }

    /// Returns the lowest latency of the latest reads that waited, that is, the latency of idle storage. If no read waited, returns the
    /// lowest latency of foreread's own requests: they are in flight together and delay each other, so only the lowest latency is
    /// meaningful.
    pub fn latency(&self) -> Duration {
        let waited = self.samples.iter().filter(|one| !one.is_zero()).min();
        let latency = waited.or_else(|| self.fetches.iter().min());
        latency.copied().unwrap_or_default()
    }

    /// Whether almost no read waited long enough, or a quarter of foreread's own requests were answered as fast. A smaller part
    /// may have found pages that the kernel had already requested.
    fn is_fast(&self, is_used: bool) -> bool {
        let is_slow = |one: &&Duration| **one >= MIN_LATENCY;
        let slow = self.samples.iter().filter(is_slow).count();
        if !is_used && self.samples.len() >= MIN_WAITS && slow * MIN_WAITS <= self.samples.len() {
            return true;
        }
        let quick = self.fetches.len() - self.fetches.iter().filter(is_slow).count();
        self.fetches.len() >= MIN_WAITS && 4 * quick >= self.fetches.len()
    }

    /// Decides from the latest observation whether readahead gains time.
    pub fn judge(&mut self, stats: &Stats, now: Instant) -> Judgement {
        let waits = self.waits - self.waits_before;
        let used = stats.used_bytes.saturating_sub(stats.late_bytes);
        let has_gained = std::mem::replace(&mut self.used_before, used) < used;
        let is_used = has_gained && self.asked_bytes > 0;
        self.read_before = stats.used_bytes;
        // If foreread's readahead is used, reads find their bytes because of it, and only foreread's own requests show how fast the
        // storage is.
        if self.is_fast(is_used) {
            self.reason = Some(Reason::Fast);
            return Judgement::Vain;
        }
        let time = now - self.since;
        let read_pages = stats.used_bytes.saturating_sub(self.read_at_begin) / page_bytes();
        if time >= MIN_JUDGED_TIME
            && waits >= MIN_JUDGED_WAITS
            && read_pages * MAX_WAITS_OF_PAGE < waits
        {
            self.reason = Some(Reason::Random);
            return Judgement::Vain;
        }
        if is_used {
            return Judgement::Worth;
        }
        if time >= MIN_TIME
            && (self.waited - self.waited_before) * MIN_PART < time
            && self.asked_bytes == 0
        {
            self.reason = Some(Reason::Busy);
            return Judgement::Vain;
        }
        match waits {
            0 => Judgement::Quiet,
            _ if self.samples.len() < MIN_WAITS => Judgement::Open,
            _ => Judgement::Worth,
        }
    }

    /// Returns the reason for the latest decision that readahead gains nothing on the storage device, if there was such a decision.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain() -> (Gain, Instant) {
        let now = Instant::now();
        (Gain::new(128 << 10, true, now), now)
    }

    fn ended(gain: &mut Gain, is_demand: bool, all: Duration, asked: u64) {
        let times = JobTimes { first: all, all };
        gain.ended(is_demand, Outcome::Arrived, times, asked);
    }

    fn waits(gain: &mut Gain, count: u64) {
        (0..count).for_each(|_| ended(gain, true, Duration::from_millis(1), 0));
    }

    fn fetches(gain: &mut Gain, all_us: u64, bytes: u64) {
        (0..8).for_each(|_| ended(gain, false, Duration::from_micros(all_us), bytes));
    }

    fn used(bytes: u64) -> Stats {
        Stats::of(|stats| stats.used_bytes = bytes)
    }

    /// 1.3 ms away, and more than 1 GB/s: the first bytes show it.
    #[test]
    fn a_storage_that_is_far_away_and_wide_is_not_fast() {
        let (mut gain, now) = gain();
        let us = Duration::from_micros;
        let times = JobTimes {
            first: us(2300),
            all: us(4500),
        };
        (0..8).for_each(|_| gain.ended(false, Outcome::Arrived, times, 4 << 20));
        assert_eq!(gain.judge(&used(1 << 20), now), Judgement::Worth);
        // A look that finds bytes in the cache says nothing.
        let mut gain = Gain::new(128 << 10, false, now);
        (0..16).for_each(|_| gain.at_hand(1000));
        assert_eq!(gain.judge(&used(0), now), Judgement::Quiet);
    }

    #[test]
    fn a_storage_that_answers_at_once_is_not_worth_it() {
        let (mut gain, now) = gain();
        let judged =
            |gain: &mut Gain, bytes| (gain.judge(&used(bytes), now), gain.reason().is_some());
        assert_eq!(judged(&mut gain, 0), (Judgement::Quiet, false));
        (0..8).for_each(|_| gain.at_hand(100_000));
        assert_eq!(judged(&mut gain, 0), (Judgement::Vain, true));
        assert_eq!(gain.reason(), Some(Reason::Fast));
        gain.begin(now);
        // Late looks say nothing.
        (0..100).for_each(|_| gain.at_hand(5_000_000));
        assert_eq!(judged(&mut gain, 0), (Judgement::Quiet, false));
        // Our own requests, of 1 MiB in 1.1 ms, are used, and come at once.
        fetches(&mut gain, 1100, 1 << 20);
        assert_eq!(judged(&mut gain, 1 << 20).0, Judgement::Vain);
    }

    #[test]
    fn a_slow_storage_is_worth_it_as_long_as_readahead_is_used() {
        let (mut gain, now) = gain();
        waits(&mut gain, 8);
        assert_eq!(gain.judge(&used(0), now), Judgement::Worth);
        fetches(&mut gain, 2000, 128 << 10);
        // Reads that find their bytes at once find what we have read ahead.
        (0..16).for_each(|_| gain.at_hand(100_000));
        assert_eq!(gain.judge(&used(1 << 20), now), Judgement::Worth);
        assert_eq!(
            (gain.waits, gain.waited, gain.asked_bytes),
            (8, Duration::from_millis(8), 1 << 20)
        );
        assert_eq!(gain.latency(), Duration::from_millis(1));
    }

    /// 16 requests at once over a latency of 1 ms: the last has waited for the others.
    #[test]
    fn the_latency_of_requests_at_once_is_that_of_the_first() {
        let (mut gain, _) = gain();
        let all = |n: u64| Duration::from_micros(1000 + 200 * n);
        (0..16).for_each(|n| ended(&mut gain, false, all(n), 4096));
        let latency = gain.latency();
        assert!(latency < Duration::from_millis(1), "{latency:?}");
    }

    /// A program that reads at random waits for each page, and a page that was read ahead for it is used by chance alone.
    #[test]
    fn random_reads_are_not_worth_it() {
        let (mut gain, now) = gain();
        let judge = |gain: &mut Gain, pages: u64, ms| {
            gain.judge(&used(pages * page_bytes()), now + Duration::from_millis(ms))
        };
        waits(&mut gain, 63);
        assert_eq!(judge(&mut gain, 0, 100), Judgement::Worth, "too few");
        waits(&mut gain, 1);
        assert_eq!(judge(&mut gain, 7, 99), Judgement::Worth, "too soon");
        assert_eq!(judge(&mut gain, 8, 100), Judgement::Worth, "one in eight");
        assert_eq!(judge(&mut gain, 7, 100), Judgement::Vain);
        assert_eq!(gain.reason(), Some(Reason::Random));
        // What was used before says nothing of the next look. A stream that is late has been seen.
        gain.begin(now);
        waits(&mut gain, 64);
        assert_eq!(judge(&mut gain, 14, 100), Judgement::Vain);
        gain.begin(now);
        waits(&mut gain, 64);
        let late = Stats::of(|stats| (stats.used_bytes, stats.late_bytes) = (1 << 20, 1 << 20));
        let after = now + Duration::from_millis(100);
        assert_eq!(gain.judge(&late, after), Judgement::Worth);
    }

    #[test]
    fn a_command_that_hardly_waits_is_not_worth_it() {
        let (mut gain, now) = gain();
        waits(&mut gain, 1);
        let mut judge = |ms| gain.judge(&used(0), now + Duration::from_millis(ms));
        assert_eq!(
            [50, 500].map(&mut judge),
            [Judgement::Open, Judgement::Vain]
        );
        assert_eq!(gain.reason(), Some(Reason::Busy));
    }
}
