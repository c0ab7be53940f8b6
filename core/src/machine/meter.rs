//! The meter: measures a source's latency and rate on all fetches, both readahead and demand.
//!
//! The measurements are kept when a stream or file is closed, because latency and rate are properties of the source. The meter measures
//! only if the policy needs the measurements ([`crate::policy::Wants::meter`]). The meter has five figures:
//!
//! ```text
//!   latency   median of the last 16 first-byte times of fetches that were submitted while nothing else was in flight
//!   tail      the value that three of the last 64 first-byte times exceed, less the transfer time of the bytes before each
//!   rate      greatest delivery rate: bytes that the source delivered while a fetch was in flight / time in flight; over the last
//!             256 fetches of a busy source, because a slow reader does not mean a slow source
//!   single    greatest rate of one fetch after its first bytes, for sources that deliver in parts
//!   busy      number of fetches while four or more were in flight, long ones counted by MiB: only these show the source's maximum rate
//! ```
//! Example: four fetches of 1 MiB are submitted together and arrive after 15, 20, 25 and 30 ms. The four fetches give rate samples of 67,
//! 100, 120 and 133 MB/s, so the measured rate is 133 MB/s. Only the first fetch was submitted to an idle source: its 15 ms are the
//! latency.
//!
//! Example: a fetch of 4 KiB is in flight for 0.2 ms, while a fetch of 8 MiB that was submitted 40 ms earlier completes. The 8 MiB did
//! not all arrive within these 0.2 ms. So if a transfer took longer than the measured fetch, the meter assumes a constant rate, and counts
//! only the part that arrived during the measured fetch (`ArrivalHistogram`).
//!
//! The latency may change, for example because of a new route. The meter notices a change if eight consecutive fetches of a source that is
//! not busy all take more than twice the latency, or all less than half of it. The meter then drops all samples and starts with the
//! shortest of the eight times.
//!
//! The latency is measured on an idle source, so it does not include the queue that readahead creates. If a source is never idle, the
//! meter corrects the latency with 16 fetches that were queued after others. Queueing can only increase the first-byte times of these
//! fetches, so if their median is below the measured latency, the true latency is lower. (The minimum of these times cannot replace the
//! median: a store with a median of 15 ms has a minimum of 5 ms, and windows would become too short.) To find an increase of the latency,
//! the meter reduces each of the 16 first-byte times by the time to transfer the fetch and all bytes in flight before it. If the minimum of
//! these differences is more than twice the measured latency, the true latency is higher. Example: a scan keeps 700 KB in flight on a 62
//! MB/s link with a round trip of 0.7 ms. Without the subtraction, the meter would report a latency of 11 ms. With a latency that is too
//! high, the policy would read ahead too far.
//!
//! Source: the delivery-rate samples of BBR (Cardwell et al., ACM Queue 2016). Like BBR, the meter uses the maximum of the samples over the
//! latest rounds.

use crate::units::mul_div;

/// Latency samples kept. Chosen because the median of fewer samples follows single slow requests.
const LATENCIES: usize = 16;
/// Number of queued fetches after which their first-byte times are evaluated.
const LOADED_EVERY: usize = 16;
/// Rows of `LOADED_EVERY` fetches of which the tail is taken, and the number of all these fetches that are slower: one
/// of 21.
const TAIL_ROWS: usize = 4;
const SLOWER: usize = 3;
/// Consecutive fetches that must show another latency. Chosen because eight consecutive slow requests are rare on a
/// store with a long tail, and because a step of the latency is then detected after two windows.
const CHANGED_AFTER: u32 = 8;
/// Fetches in a round of the rate; the maximum of the last two rounds counts.
const ROUND: u32 = 128;
/// A source with this many requests in flight counts as busy.
const BUSY: u32 = 4;
/// A long fetch counts once per this many bytes. Otherwise 16 fetches of 8 MiB at 200 MB/s would be known only after half a
/// second, after a window for the earlier rate has been submitted.
const PIECE: u64 = 1 << 19;

/// Number of classes of `ArrivalHistogram`, and the bits of the first class: a fetch that takes less than 8 us has no
/// queue before it.
const CLASSES: usize = 24;
const FIRST_CLASS: u32 = 13;

/// The measured figures of a source. A figure is 0 as long as it is not known.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    latencies: [u64; LATENCIES],
    next: usize,
    known: usize,
    latency_ns: u64,
    /// Latency of a request that was not a fetch.
    answer_ns: u64,
    /// First-byte times of the latest queued fetches, their number, and the minimum of these times after subtracting
    /// the time of the bytes before each.
    loaded: [u64; LOADED_EVERY],
    loaded_count: usize,
    free_ns: u64,
    /// First-byte times of the latest fetches, less the time of the bytes before each; their number; and their tail.
    slow: [[u64; LOADED_EVERY]; TAIL_ROWS],
    slow_count: usize,
    tail_ns: u64,
    /// Minimum and maximum first-byte time of the latest fetches of a source that was not busy, and their number.
    quiet: (u64, u64),
    quiet_count: u32,
    rates: [u64; 2],
    /// The rate of one fetch alone, from its first bytes to its last, in the last two rounds.
    singles: [u64; 2],
    in_round: u32,
    delivered: ArrivalHistogram,
    /// Bytes of fetches in flight that have not arrived.
    outstanding: u64,
    busy: u32,
}

/// What the meter records about one fetch, from the submission of the fetch to its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchTiming {
    delivered: ArrivalHistogram,
    in_flight: u32,
    /// Bytes of the fetch, and bytes that were in flight before it.
    len: u64,
    ahead_of_it: u64,
    /// The number of bytes that arrived first (0 until then), and the time.
    first: u64,
    first_ns: u64,
    /// All bytes of the fetch that have arrived, and the time of the last of them.
    own: u64,
    last_ns: u64,
    /// It has been counted in pieces.
    is_counted: bool,
    /// It is excluded from measurement.
    is_left_out: bool,
}

impl Meter {
    /// Median time from a fetch to its first bytes on an idle source, in nanoseconds. Before the first fetch, the latency of another
    /// request is returned, such as the request that opened the source.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        if self.known == 0 {
            self.answer_ns
        } else {
            self.latency_ns
        }
    }

    /// A high percentile of the time from a fetch to its first bytes, in nanoseconds, without queueing: one fetch in 21 takes longer.
    /// Returns 0 if it is not known.
    #[must_use]
    pub fn tail_ns(&self) -> u64 {
        self.tail_ns
    }

    /// Records the response time of a request that was not a fetch. The time may include the time to connect, so it is less accurate than
    /// the latency measured on a fetch.
    pub fn answered(&mut self, ns: u64) {
        self.answer_ns = ns;
    }

    /// The maximum transfer rate of the source in the latest rounds, in bytes per second; a round is 128 fetches of a busy source.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// The maximum rate of one fetch after its first bytes, in bytes per second; 0 if each fetch arrives in one piece.
    #[must_use]
    pub fn single_rate(&self) -> u64 {
        self.singles[0].max(self.singles[1])
    }

    /// Number of fetches that ended while the source was busy; a long fetch is counted once for each MiB.
    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Records that a fetch of `len` bytes is submitted while `in_flight` others are in flight.
    pub fn sent(&mut self, in_flight: u32, len: u64) -> FetchTiming {
        let ahead_of_it = self.outstanding;
        self.outstanding += len;
        FetchTiming {
            delivered: self.delivered,
            in_flight,
            len,
            ahead_of_it,
            ..FetchTiming::default()
        }
    }

    /// Excludes a fetch from the measurement from now on. The driver calls this when the bytes of the fetch that have not arrived yet come
    /// from a place other than the source, such as the disk cache.
    pub fn leave_out(&mut self, sent: &mut FetchTiming) {
        if !sent.is_left_out {
            self.outstanding = self
                .outstanding
                .saturating_sub(sent.len.saturating_sub(sent.own));
            sent.is_left_out = true;
        }
    }

    /// Records that bytes of a fetch have arrived, `after_ns` after it was submitted.
    pub fn arrived(&mut self, sent: &mut FetchTiming, bytes: u64, after_ns: u64) {
        if sent.is_left_out {
            return;
        }
        self.outstanding = self.outstanding.saturating_sub(bytes);
        self.delivered
            .note(bytes, after_ns.saturating_sub(sent.last_ns));
        sent.last_ns = after_ns;
        let pieces = sent.own / PIECE;
        sent.own = sent.own.saturating_add(bytes);
        let pieces = sent.own / PIECE - pieces;
        // A fetch that arrives as a whole shows only its end.
        if pieces > 0 && bytes < sent.len {
            sent.is_counted = true;
            self.rates[0] = self.rates[0].max(self.delivery_rate(sent, after_ns));
            self.count_busy(sent, pieces);
        }
        if bytes > 0 && sent.first == 0 {
            if sent.in_flight < BUSY {
                self.quiet_sample(after_ns);
            }
            (sent.first, sent.first_ns) = (bytes, after_ns);
            let queued_ns = time_of(sent.ahead_of_it.saturating_add(bytes), self.rate());
            self.tail_sample(after_ns.saturating_sub(queued_ns));
            if sent.in_flight == 0 {
                self.latency_sample(after_ns);
            } else {
                self.loaded_sample(after_ns, queued_ns);
            }
        }
    }

    /// Records that a fetch has ended, `after_ns` after it was submitted.
    pub fn ended(&mut self, sent: &FetchTiming, after_ns: u64) {
        if sent.is_left_out {
            return;
        }
        self.outstanding = self
            .outstanding
            .saturating_sub(sent.len.saturating_sub(sent.own));
        self.rates[0] = self.rates[0].max(self.delivery_rate(sent, after_ns));
        if sent.own > sent.first && after_ns > sent.first_ns {
            self.singles[0] =
                self.singles[0].max(rate(sent.own - sent.first, after_ns - sent.first_ns));
        }
        self.count_busy(sent, u64::from(!sent.is_counted));
        self.in_round += u32::from(sent.in_flight >= BUSY);
        if self.in_round == ROUND {
            self.in_round = 0;
            self.rates = [0, self.rates[0]];
            self.singles = [0, self.singles[0]];
        }
    }

    /// The bytes that the source delivered while the fetch was in flight, divided by the time.
    fn delivery_rate(&self, sent: &FetchTiming, after_ns: u64) -> u64 {
        rate(self.delivered.since(&sent.delivered, after_ns), after_ns)
    }

    fn count_busy(&mut self, sent: &FetchTiming, fetches: u64) {
        let fetches = if sent.in_flight >= BUSY {
            u32::try_from(fetches).unwrap_or(u32::MAX)
        } else {
            0
        };
        self.busy = self.busy.saturating_add(fetches);
    }

    /// The latency has changed if several consecutive fetches took more than twice or less than half of it.
    fn quiet_sample(&mut self, ns: u64) {
        let (least, greatest) = if self.quiet_count == 0 {
            (ns, ns)
        } else {
            self.quiet
        };
        self.quiet = (least.min(ns), greatest.max(ns));
        self.quiet_count += 1;
        if self.quiet_count == CHANGED_AFTER {
            self.quiet_count = 0;
            if self.quiet.0 > self.latency_ns.saturating_mul(2)
                || self.quiet.1 < self.latency_ns / 2
            {
                (self.known, self.next) = (0, 0);
                self.latency_sample(self.quiet.0);
            }
        }
    }

    /// Handles a fetch that was queued after others. The median of 16 such fetches counts if it is below the latency.
    /// If their minimum is above the latency, the bytes in flight before the fetch and its own bytes may explain that:
    /// only the remaining time counts, and only if the latency has doubled.
    fn loaded_sample(&mut self, ns: u64, queued_ns: u64) {
        let free_ns = ns.saturating_sub(queued_ns);
        self.free_ns = if self.loaded_count == 0 {
            free_ns
        } else {
            self.free_ns.min(free_ns)
        };
        self.loaded[self.loaded_count] = ns;
        self.loaded_count += 1;
        if self.loaded_count < LOADED_EVERY {
            return;
        }
        self.loaded_count = 0;
        self.loaded.sort_unstable();
        let median = self.loaded[LOADED_EVERY / 2 - 1];
        if self.known == 0 {
            // No fetch was submitted while the source was idle. The queueing time is only an estimate, because the rate
            // is hardly known.
            self.latency_sample(self.loaded[0].max(1));
        } else if self.free_ns > self.latency_ns.saturating_mul(2) {
            (self.known, self.next) = (0, 0);
            self.latency_sample(self.free_ns);
        } else if median < self.latency_ns {
            self.latency_sample(median);
        }
    }

    /// The first bytes of a fetch came `free_ns` after the bytes in flight before them, on an idle or busy source. The
    /// tail is computed once per row.
    fn tail_sample(&mut self, free_ns: u64) {
        let (row, at) = (
            self.slow_count / LOADED_EVERY,
            self.slow_count % LOADED_EVERY,
        );
        self.slow[row % TAIL_ROWS][at] = free_ns;
        self.slow_count += 1;
        if at + 1 == LOADED_EVERY && row + 1 >= TAIL_ROWS {
            let mut sorted = self.slow;
            let sorted = sorted.as_flattened_mut();
            sorted.sort_unstable();
            self.tail_ns = sorted[sorted.len() - 1 - SLOWER];
        }
    }

    fn latency_sample(&mut self, ns: u64) {
        self.loaded_count = 0;
        self.latencies[self.next] = ns;
        self.next = (self.next + 1) % LATENCIES;
        self.known = (self.known + 1).min(LATENCIES);
        self.latency_ns = self.median();
    }

    /// The median of the latency samples; 0 if there is none.
    fn median(&self) -> u64 {
        let mut sorted = self.latencies;
        let sorted = &mut sorted[..self.known];
        sorted.sort_unstable();
        sorted.get(self.known / 2).copied().unwrap_or(0)
    }
}

/// Bytes that have arrived, by their time in flight: since their fetch was submitted, or since earlier bytes of it
/// arrived. Each class covers twice the time of the previous one; the first is up to 16 us, the last starts at 69 s.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalHistogram([u64; CLASSES]);

impl ArrivalHistogram {
    fn note(&mut self, bytes: u64, ns: u64) {
        let all = &mut self.0[class(ns)];
        *all = all.saturating_add(bytes);
    }

    /// Bytes that came in the `ns` since `before`. If a class has longer times, only the fraction `ns` / its middle
    /// counts.
    fn since(&self, before: &Self, ns: u64) -> u64 {
        let own = class(ns);
        let came = |n: usize| self.0[n] - before.0[n];
        let whole = (0..=own).fold(0, |sum: u64, n| sum.saturating_add(came(n)));
        let middle = |n: usize| 3 << (n - 1) << FIRST_CLASS;
        (own + 1..CLASSES).fold(whole, |sum, n| {
            sum.saturating_add(mul_div(came(n), ns, middle(n)))
        })
    }
}

fn class(ns: u64) -> usize {
    ((ns >> FIRST_CLASS).max(1).ilog2() as usize).min(CLASSES - 1)
}

/// Nanoseconds that `bytes` take at `rate`; 0 if the rate is unknown.
fn time_of(bytes: u64, rate: u64) -> u64 {
    if rate == 0 { 0 } else { billions(bytes, rate) }
}

fn rate(bytes: u64, ns: u64) -> u64 {
    billions(bytes, ns)
}

/// `value` x 10^9 / `divisor`: nanoseconds from a rate, or a rate from nanoseconds.
fn billions(value: u64, divisor: u64) -> u64 {
    mul_div(value, 1_000_000_000, divisor)
}

#[cfg(test)]
mod tests;
