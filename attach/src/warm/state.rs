//! The state of reading a plan into the page cache: which part is fetched next, and which parts have arrived.
//!
//! ```text
//!   next range, offset in it ──next──► in flight ──finished──► counts, meter ──► the depth
//!                               ├─► wait: the storage or the memory can take no more now
//!                               ├─► look: the memory is full; where is the program?
//!                               └─► the end
//! ```
//! This module never waits, makes no system calls and uses no clock.

use super::MAX_LEFT_OUT;
use super::budget::Budget;
use crate::pool::Next;
use foreread_core::machine::{FetchTiming, Meter};
use foreread_plan::{Plan, PlanRange};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

/// Size in bytes of the parts (pieces) in which a plan is fetched. A fetch of this size takes 5 ms at 200 MB/s, so the number of pieces in
/// flight can be adjusted in small steps.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Maximum number of pieces (parts of a plan) that are fetched at the same time; a plan of small files needs many pieces in flight.
pub const MAX_IN_FLIGHT: u32 = 64;
/// Most pieces in flight before the meter has measured. With its results, small pieces may use up to
/// [`MAX_IN_FLIGHT`].
const MIN_IN_FLIGHT: u32 = 16;
/// Bytes in flight before the meter has measured; also the least.
const MIN_BYTES: u64 = 2 << 20;
const MAX_BYTES: u64 = 64 << 20;
/// If not all of a plan fits into memory, storage that answers faster than this is left to the kernel's own readahead: otherwise the
/// program pays for the reclaim of pages that the kernel would have read in time (`bench/plan-in-a-group`).
const MIN_LATENCY_NS: u64 = 500_000;
/// Bytes that are fetched before a storage is judged by that latency.
const JUDGED_BYTES: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FillCounts {
    pub planned_bytes: u64,
    pub done_bytes: u64,
    /// Processed bytes that were already cached.
    pub cached_bytes: u64,
    /// Processed bytes that were read into the cache.
    pub fetched_bytes: u64,
    /// Processed bytes of files that are left out, or that the storage failed to read.
    pub left_out_bytes: u64,
    pub planned_ranges: u64,
}

#[derive(Clone, Debug)]
pub struct Fetch {
    pub file: u32,
    pub range: Range<u64>,
    /// Time of arrival since the start.
    pub at: Duration,
}

#[derive(Default)]
pub struct FillState {
    /// The next range, and how much of it has been submitted.
    next: usize,
    within: u64,
    pub in_flight: u32,
    in_flight_bytes: u64,
    pub meter: Meter,
    pub budget: Budget,
    looks: bool,
    /// Whether no further piece is submitted.
    ended: bool,
    pub out_of_room: bool,
    pub counts: FillCounts,
    pub bad: HashMap<u32, String>,
    pub unknown: HashSet<u32>,
    pub last: Duration,
    pub fetches: Vec<Fetch>,
}

pub struct Piece {
    pub file: u32,
    pub range: Range<u64>,
    sent: FetchTiming,
}

#[derive(Default)]
pub struct FillOutcome {
    pub fetched: Vec<Range<u64>>,
    pub first_ns: u64,
    pub is_unknown: bool,
    pub failed: Option<String>,
}

pub enum FillTask {
    Fetch(Box<Piece>),
    /// Wait until the program reads this range of a file, on behalf of all threads.
    Look(u32, Range<u64>),
}

impl FillState {
    pub fn new(plan: &Plan, budget: Budget) -> FillState {
        FillState {
            budget,
            counts: FillCounts {
                planned_bytes: plan.bytes(),
                planned_ranges: plan.ranges.len() as u64,
                ..FillCounts::default()
            },
            ..FillState::default()
        }
    }

    /// Bytes in flight that fill the link while a read of the program waits at most one round trip.
    fn target(&self) -> u64 {
        let round_trip =
            u128::from(self.meter.rate()) * u128::from(self.meter.latency_ns()) / 1_000_000_000;
        u64::try_from(2 * round_trip)
            .unwrap_or(u64::MAX)
            .clamp(MIN_BYTES, MAX_BYTES)
    }

    fn has_depth(&self, len: u64) -> bool {
        self.in_flight == 0
            || self.in_flight_bytes + len <= self.target()
                && (self.in_flight < MIN_IN_FLIGHT
                    || self.meter.rate() > 0 && self.in_flight < MAX_IN_FLIGHT)
    }

    fn answers_at_once(&self) -> bool {
        self.meter.latency_ns() < MIN_LATENCY_NS
    }

    /// Whether the program is faster without a fill: the plan does not fit into memory, and the storage answers fast.
    fn is_better_alone(&self) -> bool {
        let fits = self.counts.planned_bytes <= self.budget.whole();
        !fits && self.answers_at_once() && self.counts.fetched_bytes >= JUDGED_BYTES
    }

    /// Returns what a thread that fetches `plan` must do next. If `follows_program` is true, the thread waits for the program when the
    /// budget is used up.
    pub fn next(&mut self, plan: &Plan, follows_program: bool) -> Next<FillTask> {
        loop {
            let Some(range) = plan.ranges.get(self.next).filter(|_| !self.ended) else {
                return Next::End;
            };
            let start = range.offset + self.within;
            let len = PIECE_BYTES.min(range.end() - start);
            if self.bad.contains_key(&range.file) {
                self.leave_out(range);
                continue;
            }
            if follows_program && self.is_better_alone() {
                return self.end_out_of_room();
            }
            if !self.has_depth(len) || self.looks {
                return Next::Wait;
            }
            let piece = start..start + len;
            if self.budget.take(len) {
                return Next::Task(FillTask::Fetch(Box::new(self.send(range, piece))));
            }
            if self.in_flight > 0 {
                // A piece in flight may turn out to be cached; it then returns its part of the budget.
                return Next::Wait;
            }
            if !follows_program || self.answers_at_once() {
                return self.end_out_of_room();
            }
            (self.looks, self.out_of_room) = (true, true);
            return Next::Task(FillTask::Look(range.file, piece));
        }
    }

    fn end_out_of_room(&mut self) -> Next<FillTask> {
        (self.ended, self.out_of_room) = (true, true);
        Next::End
    }

    fn leave_out(&mut self, range: &PlanRange) {
        self.counts.left_out_bytes += range.len - self.within;
        self.counts.done_bytes += range.len - self.within;
        (self.next, self.within) = (self.next + 1, 0);
    }

    fn send(&mut self, of: &PlanRange, range: Range<u64>) -> Piece {
        let len = range.end - range.start;
        self.within += len;
        if self.within == of.len {
            (self.next, self.within) = (self.next + 1, 0);
        }
        let sent = self.meter.sent(self.in_flight, len);
        self.in_flight += 1;
        self.in_flight_bytes += len;
        Piece {
            file: of.file,
            range,
            sent,
        }
    }

    /// Records that the program has reached the range for which the threads wait.
    pub fn looked(&mut self) {
        self.looks = false;
        self.budget.renew();
    }

    /// Records that a fetch has ended. The fetch took the time `took`, and ended `at` after the start of the fill.
    pub fn finish(
        &mut self,
        mut piece: Piece,
        done: FillOutcome,
        took: Duration,
        at: Duration,
        keeps_times: bool,
    ) {
        let len = piece.range.end - piece.range.start;
        let cut =
            |part: &Range<u64>| part.start.max(piece.range.start)..part.end.min(piece.range.end);
        let fetched: Vec<Range<u64>> = done.fetched.iter().map(cut).collect();
        let bytes: u64 = fetched.iter().map(|part| part.end - part.start).sum();
        self.in_flight -= 1;
        self.in_flight_bytes -= len;
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if bytes == len {
            let first = len.min(foreread_pagecache::page_bytes());
            self.meter
                .arrived(&mut piece.sent, first, done.first_ns.min(took_ns));
            if len > first {
                self.meter.arrived(&mut piece.sent, len - first, took_ns);
            }
        } else {
            self.meter.leave_out(&mut piece.sent);
        }
        self.meter.ended(&piece.sent, took_ns);
        self.counts.done_bytes += len;
        self.counts.fetched_bytes += bytes;
        if let Some(why) = done.failed {
            self.counts.left_out_bytes += len;
            // If a million files of a plan are missing, only the first are listed by name.
            let is_listed = self.bad.len() < MAX_LEFT_OUT;
            self.bad
                .insert(piece.file, if is_listed { why } else { String::new() });
        } else {
            self.counts.cached_bytes += len - bytes;
        }
        if done.is_unknown {
            self.unknown.insert(piece.file);
        }
        if bytes < len {
            self.budget.give_back(len - bytes);
        }
        if bytes > 0 {
            self.last = at;
        }
        if keeps_times {
            self.fetches.extend(fetched.into_iter().map(|range| Fetch {
                file: piece.file,
                range,
                at,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state after lone fetches that took this long, of a plan of 1 GiB.
    fn state(latency_us: u64, fetched_bytes: u64, budget: u64) -> FillState {
        let mut state = FillState::new(&Plan::default(), Budget::bytes(budget));
        state.counts.planned_bytes = 1 << 30;
        state.counts.fetched_bytes = fetched_bytes;
        for _ in 0..16 {
            let mut sent = state.meter.sent(0, 4096);
            state.meter.arrived(&mut sent, 4096, latency_us * 1000);
            state.meter.ended(&sent, latency_us * 1000);
        }
        state
    }

    /// `bench/plan-in-a-group`: on a fast disk a plan of 2 GiB in a group of 512 MiB took 2.2 times as long as no plan.
    #[test]
    fn a_plan_that_does_not_fit_is_left_to_the_kernel_on_a_fast_storage_alone() {
        let is_left =
            |latency_us, fetched, budget| state(latency_us, fetched, budget).is_better_alone();
        assert!(is_left(80, JUDGED_BYTES, 1 << 29));
        let is_slow_left = is_left(1000, JUDGED_BYTES, 1 << 29);
        assert!(!is_slow_left, "a slow storage is read ahead of in turns");
        assert!(!is_left(80, JUDGED_BYTES, 1 << 30), "it fits");
        assert!(!is_left(80, JUDGED_BYTES - 1, 1 << 29), "not judged yet");
    }
}
