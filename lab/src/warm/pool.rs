//! The threads that fetch: each takes the next piece of the plan, as long as the storage and the memory take one.
//!
//! ```text
//!   State: next range, offset in it ──take──► in flight ──► done: counts, meter ──► wakes a thread that waits
//!          budget is empty ──► one thread looks every 5 ms whether the program has come to the next range
//! ```
//! Threads, and no ring: opening a cold file waits for the storage as well, and readahead(2) has no other form. A thread that waits
//! costs the processor nothing.

use super::budget::Budget;
use super::files::open_as_planned;
use foreread_core::machine::{Meter, Sent};
use foreread_pagecache::{device, readahead, resident};
use foreread_plan::Plan;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a piece. Chosen: a fetch of it takes 5 ms at 200 MB/s, so the depth is set finely enough.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces in flight at most; small files need many.
const MAX_IN_FLIGHT: u32 = 64;
/// Pieces in flight before the meter knows anything. Small ones go on to [`MAX_IN_FLIGHT`] with what it learns.
const MIN_IN_FLIGHT: u32 = 16;
/// Bytes in flight before the meter knows anything, and at least.
const MIN_BYTES: u64 = 2 << 20;
/// Bytes in flight at most.
const MAX_BYTES: u64 = 64 << 20;
/// How often is looked whether the program has come to the first range that the memory had no room for.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A storage that answers faster is left to the kernel's own readahead when the memory has no room for all of a plan: the program then
/// pays for the reclaim of pages that the kernel would have read in time (`bench/plan-in-a-group`).
const MIN_LATENCY_NS: u64 = 500_000;
/// Bytes that are fetched before a storage is judged by that.
const JUDGED_BYTES: u64 = 8 << 20;
/// Files that are left out and named.
const MAX_LEFT_OUT: usize = 1000;

/// How a plan is brought into the cache.
#[derive(Clone, Copy, Debug)]
pub struct FillSettings {
    /// Bytes that may be fetched.
    pub budget: Budget,
    /// A program reads along: when the budget is used up, wait until it has used that. Otherwise end.
    pub follows_program: bool,
    /// Keep the time of each fetch, for [`super::judge`].
    pub keeps_times: bool,
}

/// Something that is not read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

impl LeftOut {
    /// Those that are named, by their paths.
    pub(crate) fn named(all: impl Iterator<Item = LeftOut>) -> Vec<LeftOut> {
        let mut all: Vec<LeftOut> = all.collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.truncate(MAX_LEFT_OUT);
        all
    }
}

/// Counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FillCounts {
    /// Bytes of the plan.
    pub planned_bytes: u64,
    /// Bytes of it that were looked at.
    pub done_bytes: u64,
    /// Of these: were cached already.
    pub cached_bytes: u64,
    /// Of these: brought in.
    pub fetched_bytes: u64,
    /// Of these: of files that are left out, or that the storage failed for.
    pub left_out_bytes: u64,
    /// Ranges of the plan.
    pub planned_ranges: u64,
}

/// What was fetched: file, bytes, when it had arrived since the start.
pub type Fetch = (u32, Range<u64>, Duration);

/// The end of a filling.
#[derive(Clone, Debug)]
pub struct Filled {
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Counts.
    pub counts: FillCounts,
    /// What was not read.
    pub left_out: Vec<LeftOut>,
    /// The memory had no room for the rest.
    pub out_of_room: bool,
    /// Files of which the kernel does not say what is cached: they were read whole.
    pub unknown_files: u64,
    /// What a lone fetch waits for its first bytes, in nanoseconds; 0 where nothing was fetched.
    pub latency_ns: u64,
    /// The greatest rate, in bytes a second.
    pub rate: u64,
    /// From the start to the last fetch.
    pub seconds: f64,
    /// Each fetch, where times are kept.
    pub fetches: Vec<Fetch>,
}

/// A filling under way.
pub struct Filler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    plan: Arc<Plan>,
    settings: FillSettings,
    since: Instant,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// The next range, and how much of it went out.
    next: usize,
    within: u64,
    in_flight: u32,
    in_flight_bytes: u64,
    meter: Meter,
    budget: Budget,
    looks: bool,
    ended: bool,
    out_of_room: bool,
    counts: FillCounts,
    pieces: HashMap<u64, u64>,
    bad: HashMap<u32, String>,
    unknown: HashSet<u32>,
    last: Duration,
    fetches: Vec<Fetch>,
}

/// A piece that is being fetched.
struct Piece {
    file: u32,
    range: Range<u64>,
    sent: Sent,
}

/// What became of a piece.
#[derive(Default)]
struct Done {
    fetched: Vec<Range<u64>>,
    first_ns: u64,
    is_unknown: bool,
    failed: Option<String>,
}

impl Filler {
    /// Begins.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn start(plan: Arc<Plan>, settings: FillSettings) -> std::io::Result<Filler> {
        let counts = FillCounts {
            planned_bytes: plan.bytes(),
            planned_ranges: plan.ranges.len() as u64,
            ..FillCounts::default()
        };
        let state = State { budget: settings.budget, counts, ..State::default() };
        let pieces: u64 = plan.ranges.iter().map(|range| range.len.div_ceil(PIECE_BYTES)).sum();
        let shared = Shared { plan, settings, since: Instant::now(), state: Mutex::new(state), wake: Condvar::new() };
        let mut filler = Filler { shared: Arc::new(shared), threads: Vec::new() };
        for _ in 0..pieces.min(u64::from(MAX_IN_FLIGHT)) {
            let shared = Arc::clone(&filler.shared);
            let thread = std::thread::Builder::new().name("foreread-warm".into()).stack_size(256 << 10);
            match thread.spawn(move || shared.work()) {
                Ok(thread) => filler.threads.push(thread),
                Err(error) if filler.threads.is_empty() => return Err(error),
                // Fewer are slower, and as right.
                Err(_) => break,
            }
        }
        Ok(filler)
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> FillCounts {
        self.shared.lock().counts
    }

    /// Whether nothing more will be fetched.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Begins no more fetches.
    pub fn stop(&self) {
        self.shared.lock().ended = true;
        self.shared.wake.notify_all();
    }

    /// Waits for what is in flight, and for all of the plan unless it was stopped.
    #[must_use]
    pub fn end(self) -> Filled {
        for thread in self.threads {
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        let path = |file: &u32| self.shared.plan.files[*file as usize].path.clone();
        let left_out =
            LeftOut::named(state.bad.iter().map(|(file, why)| LeftOut { path: path(file), why: why.clone() }));
        Filled {
            plan: Arc::clone(&self.shared.plan),
            counts: state.counts,
            left_out,
            out_of_room: state.out_of_room,
            unknown_files: state.unknown.len() as u64,
            latency_ns: state.meter.latency_ns(),
            rate: state.meter.rate(),
            seconds: state.last.as_secs_f64(),
            fetches: std::mem::take(&mut state.fetches),
        }
    }
}

impl State {
    /// Bytes that are in flight when the link is full and a read of the program waits a round trip at most.
    fn target(&self) -> u64 {
        let round_trip = u128::from(self.meter.rate()) * u128::from(self.meter.latency_ns()) / 1_000_000_000;
        u64::try_from(2 * round_trip).unwrap_or(u64::MAX).clamp(MIN_BYTES, MAX_BYTES)
    }

    /// Whether a fetch of `len` bytes may go out beside those in flight.
    fn has_depth(&self, len: u64) -> bool {
        self.in_flight == 0
            || self.in_flight_bytes + len <= self.target()
                && (self.in_flight < MIN_IN_FLIGHT || self.meter.rate() > 0 && self.in_flight < MAX_IN_FLIGHT)
    }

    /// Whether the program is faster alone: the plan does not fit, and the storage answers at once.
    fn is_better_alone(&self) -> bool {
        let fits = self.counts.planned_bytes <= self.budget.whole();
        !fits && self.meter.latency_ns() < MIN_LATENCY_NS && self.counts.fetched_bytes >= JUDGED_BYTES
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(mut piece) = self.take() {
            let since = Instant::now();
            let done = self.fetch(&piece);
            self.finish(&mut piece, done, since.elapsed());
        }
    }

    /// The next piece, when there is room for it.
    fn take(&self) -> Option<Piece> {
        let mut state = self.lock();
        loop {
            let range = self.plan.ranges.get(state.next).filter(|_| !state.ended)?;
            let start = range.offset + state.within;
            let len = PIECE_BYTES.min(range.end() - start);
            if state.bad.contains_key(&range.file) {
                state.counts.left_out_bytes += range.len - state.within;
                state.counts.done_bytes += range.len - state.within;
                (state.next, state.within) = (state.next + 1, 0);
            } else if self.settings.follows_program && state.is_better_alone() {
                (state.ended, state.out_of_room) = (true, true);
                self.wake.notify_all();
            } else if !state.has_depth(len) || state.looks {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if state.budget.take(len) {
                state.within += len;
                if state.within == range.len {
                    (state.next, state.within) = (state.next + 1, 0);
                }
                let sent = {
                    let in_flight = state.in_flight;
                    state.meter.sent(in_flight, len)
                };
                state.in_flight += 1;
                state.in_flight_bytes += len;
                return Some(Piece { file: range.file, range: start..start + len, sent });
            } else if state.in_flight > 0 {
                // What is in flight may turn out to be cached, and then gives its part back.
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if self.settings.follows_program && state.meter.latency_ns() >= MIN_LATENCY_NS {
                state.looks = true;
                drop(state);
                self.look(range.file, &(start..start + len));
                state = self.lock();
                state.looks = false;
                state.budget.renew();
                self.wake.notify_all();
            } else {
                (state.ended, state.out_of_room) = (true, true);
                self.wake.notify_all();
            }
        }
    }

    /// Waits until more of this range is cached than at first: the program is there. Or until the end.
    fn look(&self, file: u32, range: &Range<u64>) {
        self.lock().out_of_room = true;
        let cached = || {
            let (file, _) = open_as_planned(&self.plan.files[file as usize]).ok()?;
            resident::cached(&file, range).ok().flatten()
        };
        let first = cached();
        while !self.lock().ended {
            std::thread::sleep(LOOK_EVERY);
            // A file that cannot be asked any more, or is all there, is looked at by the fetch.
            if cached() > first || first.is_none() || first == Some(range.end - range.start) {
                return;
            }
        }
    }

    /// Brings a piece in, as far as it is not there.
    fn fetch(&self, piece: &Piece) -> Done {
        let mut done = Done::default();
        let since = Instant::now();
        let mut run = || -> Result<(), String> {
            let (file, dev) = open_as_planned(&self.plan.files[piece.file as usize])?;
            let missing =
                |file, range: &Range<u64>| resident::absent(file, range.clone()).map_err(|error| error.to_string());
            let absent = missing(&file, &piece.range)?;
            let most = self.piece_bytes(dev, &file);
            let text = |error: std::io::Error| error.to_string();
            for part in &absent {
                readahead::start(&file, part.clone(), most).map_err(text)?;
            }
            if let Some(first) = absent.first() {
                done.is_unknown = resident::cached(&file, first).map_err(text)?.is_none();
                readahead::wait(&file, &(first.start..first.start + 1)).map_err(text)?;
                done.first_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            }
            absent.iter().try_for_each(|part| readahead::wait(&file, part)).map_err(text)?;
            // The kernel leaves out what it finds no memory for at once.
            let again = if absent.is_empty() || done.is_unknown { Vec::new() } else { missing(&file, &piece.range)? };
            for part in &again {
                readahead::start(&file, part.clone(), most).map_err(text)?;
                readahead::wait(&file, part).map_err(text)?;
            }
            done.fetched = absent;
            Ok(())
        };
        done.failed = run().err();
        done
    }

    fn piece_bytes(&self, dev: u64, file: &File) -> u64 {
        if let Some(known) = self.lock().pieces.get(&dev) {
            return *known;
        }
        let bytes = device::piece_bytes(file);
        self.lock().pieces.insert(dev, bytes);
        bytes
    }

    fn finish(&self, piece: &mut Piece, done: Done, took: Duration) {
        let len = piece.range.end - piece.range.start;
        let cut = |part: &Range<u64>| part.start.max(piece.range.start)..part.end.min(piece.range.end);
        let fetched: Vec<Range<u64>> = done.fetched.iter().map(cut).collect();
        let bytes: u64 = fetched.iter().map(|part| part.end - part.start).sum();
        let mut state = self.lock();
        state.in_flight -= 1;
        state.in_flight_bytes -= len;
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if bytes == len {
            let first = len.min(foreread_pagecache::page_bytes());
            state.meter.arrived(&mut piece.sent, first, done.first_ns.min(took_ns));
            if len > first {
                state.meter.arrived(&mut piece.sent, len - first, took_ns);
            }
        } else {
            state.meter.leave_out(&mut piece.sent);
        }
        state.meter.ended(&piece.sent, took_ns);
        state.counts.done_bytes += len;
        state.counts.fetched_bytes += bytes;
        if let Some(why) = done.failed {
            state.counts.left_out_bytes += len;
            state.bad.insert(piece.file, why);
        } else {
            state.counts.cached_bytes += len - bytes;
        }
        if done.is_unknown {
            state.unknown.insert(piece.file);
        }
        if bytes < len {
            state.budget.give_back(len - bytes);
        }
        if bytes > 0 {
            state.last = self.since.elapsed();
        }
        if self.settings.keeps_times {
            let at = self.since.elapsed();
            state.fetches.extend(fetched.into_iter().map(|part| (piece.file, part, at)));
        }
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state after lone fetches that took this long, of a plan of 1 GiB.
    fn state(latency_us: u64, fetched_bytes: u64, budget: u64) -> State {
        let counts = FillCounts { planned_bytes: 1 << 30, fetched_bytes, ..FillCounts::default() };
        let mut state = State { budget: Budget::bytes(budget), counts, ..State::default() };
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
        let is_left = |latency_us, fetched, budget| state(latency_us, fetched, budget).is_better_alone();
        assert!(is_left(80, JUDGED_BYTES, 1 << 29));
        assert!(!is_left(1000, JUDGED_BYTES, 1 << 29), "a slow storage is read ahead of in turns");
        assert!(!is_left(80, JUDGED_BYTES, 1 << 30), "it fits");
        assert!(!is_left(80, JUDGED_BYTES - 1, 1 << 29), "not judged yet");
    }
}
