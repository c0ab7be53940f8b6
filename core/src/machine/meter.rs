//! The meter: a source's latency and rate, measured on every fetch, demand included.
//!
//! It outlives a stream and a file, because latency and rate belong to the source. It is fed only when the policy wants it
//! ([`crate::policy::Wants::meter`]). Five figures:
//!
//! ```text
//!   latency   median of the last 16 first-byte times of fetches that were submitted while nothing else was in flight
//!   tail      the value that three of the last 64 first-byte times exceed, less the transfer time of the bytes before each
//!   rate      greatest delivery rate: bytes that the source delivered while a fetch was in flight / the time that it took; of the last
//!             256 fetches of a busy source, since a reader that asks for little shows no lower rate
//!   single    greatest rate of one fetch after its first bytes, of sources that deliver in parts
//!   busy      fetches while four or more were in flight, long ones by their MiB: only these show the source's maximum rate
//! ```
//! Example: four fetches of 1 MiB go out together and arrive after 15, 20, 25, 30 ms. Their samples are 67, 100, 120 and 133
//! MB/s, so the rate is 133 MB/s. The first of them alone was submitted to an idle source: its 15 ms are the latency.
//!
//! A fetch of 4 KiB is in flight for 0.2 ms, while a fetch of 8 MiB submitted 40 ms earlier completes. Its bytes did not arrive in 0.2 ms: of
//! transfers longer than the fetch itself only a part counts, as if their bytes had arrived evenly (`ArrivalHistogram`).
//!
//! If eight consecutive fetches of a source that is not busy take more than twice the latency, or less than half of it, they replace
//! all samples: the latency has changed, for example by a new route.
//!
//! The latency of an idle source does not contain the queue made by readahead. A source that is never idle still
//! updates it, by 16 fetches queued after others. A queue only adds to their first-byte times, so a median below the latency means a lower
//! latency. (The minimum of 16 is not usable: on a store whose first bytes take 15 ms in the median it is 5, and windows become too
//! short.) The latency has increased if the minimum, less the transfer time of the bytes before it and its own, is more
//! than twice the latency. Without that part a scan that keeps 700 KB in flight on a link of 62 MB/s shows 11 ms where the round
//! trip is 0.7 ms, and reads farther ahead because of it.
//!
//! Source: delivery-rate samples as in BBR (Cardwell et al., ACM Queue 2016), the greatest of the last rounds.

use crate::units::mul_div;

/// Samples of the latency that are kept. Chosen: the median of fewer follows single slow requests.
const LATENCIES: usize = 16;
/// Fetches behind others after which their first-byte times are looked at.
const LOADED_EVERY: usize = 16;
/// Rows of that many fetches of which the tail is looked at, and how many of all are slower than it: one of 21.
const TAIL_ROWS: usize = 4;
const SLOWER: usize = 3;
/// Fetches in a row that show another latency. Chosen: eight slow requests of a store with a long tail are rare, and a step of
/// the latency is known after two windows.
const CHANGED_AFTER: u32 = 8;
/// Fetches of a round of the rate; the greatest of the last two rounds counts.
const ROUND: u32 = 128;
/// Requests in flight from which on a source counts as busy.
const BUSY: u32 = 4;
/// Bytes of a long fetch that count as one. 16 fetches of 8 MiB would be known after half a second of 200 MB/s, when a window
/// for the rate before that has gone out.
const PIECE: u64 = 1 << 19;

/// Classes of `ArrivalHistogram`, and the bits of the first: a fetch that takes less than 8 us has no queue behind it.
const CLASSES: usize = 24;
const FIRST_CLASS: u32 = 13;

/// The measured figures of a source. Zero means unknown.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    latencies: [u64; LATENCIES],
    next: usize,
    known: usize,
    latency_ns: u64,
    /// The same of a request that was no fetch.
    answer_ns: u64,
    /// First-byte times of the latest fetches behind others, how many these are, and the least of them less the time of the bytes
    /// before it.
    loaded: [u64; LOADED_EVERY],
    loaded_count: usize,
    free_ns: u64,
    /// First-byte times of the latest fetches less the time of the bytes before each, how many there were, and the tail of them.
    slow: [[u64; LOADED_EVERY]; TAIL_ROWS],
    slow_count: usize,
    tail_ns: u64,
    /// Least and greatest first-byte time of the latest fetches of a source that was not busy, and how many these are.
    quiet: (u64, u64),
    quiet_count: u32,
    rates: [u64; 2],
    /// The same of one fetch alone, from its first bytes to its last.
    singles: [u64; 2],
    in_round: u32,
    delivered: ArrivalHistogram,
    /// Bytes of fetches in flight that have not arrived.
    outstanding: u64,
    busy: u32,
}

/// Data recorded when a fetch is submitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchTiming {
    delivered: ArrivalHistogram,
    in_flight: u32,
    /// Its bytes, and those that were in flight before it.
    len: u64,
    ahead_of_it: u64,
    /// How many bytes arrived first, 0 until they have, and when.
    first: u64,
    first_ns: u64,
    /// All that has arrived of it, and when the last of that did.
    own: u64,
    last_ns: u64,
    /// It counts by its pieces.
    is_counted: bool,
    /// It is not measured.
    is_left_out: bool,
}

impl Meter {
    /// Median time from a fetch to its first bytes, of an idle source, in nanoseconds. Before the first fetch that of another request.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        if self.known == 0 {
            self.answer_ns
        } else {
            self.latency_ns
        }
    }

    /// What one fetch of 21 exceeds, from its start to its first bytes in nanoseconds, queues left out; 0: not known.
    #[must_use]
    pub fn tail_ns(&self) -> u64 {
        self.tail_ns
    }

    /// A request that was no fetch was answered after so long. It may have had to connect, so a fetch knows better.
    pub fn answered(&mut self, ns: u64) {
        self.answer_ns = ns;
    }

    /// The greatest rate of the last rounds in bytes a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// The greatest rate of one fetch after its first bytes, in bytes a second; 0 where fetches arrive whole.
    #[must_use]
    pub fn single_rate(&self) -> u64 {
        self.singles[0].max(self.singles[1])
    }

    /// Fetches while the source was busy, long ones by their MiB.
    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// A fetch of `len` bytes goes out while `in_flight` others are in flight.
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

    /// The source is not asked for what is still to come of a fetch.
    pub fn leave_out(&mut self, sent: &mut FetchTiming) {
        if !sent.is_left_out {
            self.outstanding = self
                .outstanding
                .saturating_sub(sent.len.saturating_sub(sent.own));
            sent.is_left_out = true;
        }
    }

    /// Bytes of a fetch have arrived, `after_ns` after it went out.
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
        // What lands whole shows no more at its end than that it is there.
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

    /// A fetch is over, `after_ns` after it went out.
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

    /// What the source delivered while the fetch was in flight, by the time that it took.
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

    /// The latency itself has changed when several fetches in a row took more than twice or less than half of it.
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

    /// A fetch was submitted behind others. The median of 16 such fetches counts where it is below the latency. Where the least of them is
    /// above it, the bytes that were in flight before the fetch and its own may explain it: only what is left counts, and only if the
    /// latency has doubled.
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
            // Nothing went out while the source was idle. What a queue explains is a guess by a rate that is hardly known.
            self.latency_sample(self.loaded[0].max(1));
        } else if self.free_ns > self.latency_ns.saturating_mul(2) {
            (self.known, self.next) = (0, 0);
            self.latency_sample(self.free_ns);
        } else if median < self.latency_ns {
            self.latency_sample(median);
        }
    }

    /// First bytes came, of an idle source or not, `free_ns` after what was in flight before them. Looked at once a row.
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

    /// Of the samples of the latency; 0 if there is none.
    fn median(&self) -> u64 {
        let mut sorted = self.latencies;
        let sorted = &mut sorted[..self.known];
        sorted.sort_unstable();
        sorted.get(self.known / 2).copied().unwrap_or(0)
    }
}

/// Bytes that have arrived, by how long they had been under way: since their fetch went out, or since bytes of it had arrived before.
/// Each class is twice the one before; the first is up to 16 us, the last from 69 s on.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalHistogram([u64; CLASSES]);

impl ArrivalHistogram {
    fn note(&mut self, bytes: u64, ns: u64) {
        let all = &mut self.0[class(ns)];
        *all = all.saturating_add(bytes);
    }

    /// Bytes that came in the `ns` since `before`. Of a class of longer times `ns` / its middle counts.
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
