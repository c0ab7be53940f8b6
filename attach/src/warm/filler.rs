//! Reads a plan into the page cache: threads of the pool fetch it in parts, as fast as the storage allows and as far as memory allows.
//!
//! ```text
//!   FillState ──next piece──► a thread: opens, readahead(2), waits ──► FillState
//!     └─ budget is empty ──► one thread checks every 5 ms whether the program has reached the next range
//! ```

use super::LeftOut;
use super::budget::Budget;
use super::files::open_as_planned;
use super::state::{
    Fetch, FillCounts, FillOutcome, FillState, FillTask, MAX_IN_FLIGHT, PIECE_BYTES, Piece,
};
use crate::pool::{Next, Pool, Work};
use foreread_pagecache::{readahead, resident};
use foreread_plan::Plan;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often to check whether the program has reached the first range for which memory had no room.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
pub struct FillSettings {
    pub budget: Budget,
    /// If a program reads the same data: when the budget is used up, wait until the program has used that much.
    /// Otherwise the fill ends.
    pub follows_program: bool,
    /// Whether to record the time of each fetch, for [`super::judge`].
    pub keeps_times: bool,
}

#[derive(Clone, Debug)]
pub struct FillReport {
    pub plan: Arc<Plan>,
    pub counts: FillCounts,
    pub left_out: Vec<LeftOut>,
    /// Whether memory had no room for the rest.
    pub out_of_room: bool,
    /// Files for which the kernel does not report what is cached: they were read as a whole.
    pub unknown_files: u64,
    /// Time from a single fetch to its first bytes, in nanoseconds; 0 if nothing was fetched.
    pub latency_ns: u64,
    /// The highest rate, in bytes a second.
    pub rate: u64,
    /// Seconds from the start to the last fetch.
    pub seconds: f64,
    /// Each fetch, if times are recorded.
    pub fetches: Vec<Fetch>,
    /// Fetches that were abandoned because the storage did not answer.
    pub given_up: u32,
}

impl FillReport {
    /// Returns whether every file of the plan is missing or has been replaced.
    pub fn has_nothing(&self) -> bool {
        self.counts.planned_bytes > 0 && self.counts.left_out_bytes == self.counts.planned_bytes
    }
}

pub struct Filler {
    pool: Pool<FillContext>,
}

/// Data that the threads share and do not change.
struct FillContext {
    plan: Arc<Plan>,
    settings: FillSettings,
    since: Instant,
    is_stopped: AtomicBool,
    pieces: Mutex<HashMap<u64, u64>>,
}

impl Filler {
    pub fn start(plan: Arc<Plan>, settings: FillSettings) -> std::io::Result<Filler> {
        let state = FillState::new(&plan, settings.budget);
        let lens = plan.ranges.iter().map(|range| range.len);
        let pieces: u64 = lens.map(|len| len.div_ceil(PIECE_BYTES)).sum();
        let filling = FillContext {
            plan,
            settings,
            since: Instant::now(),
            is_stopped: AtomicBool::new(false),
            pieces: Mutex::default(),
        };
        let pool = Pool::new("foreread-warm", filling, state);
        for number in 0..pieces.min(u64::from(MAX_IN_FLIGHT)) {
            match pool.add_thread() {
                Err(error) if number == 0 => return Err(error),
                // With fewer threads the fill is slower but still correct.
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(Filler { pool })
    }

    pub fn counts(&self) -> FillCounts {
        self.pool.look(|state| state.counts)
    }

    pub fn is_done(&self) -> bool {
        self.pool.threads() == 0
    }

    /// Stops reading the plan: no more fetches are started.
    pub fn stop(&self) {
        let is_stopped = &self.pool.work().is_stopped;
        self.pool
            .change(|_| is_stopped.store(true, Ordering::Release));
    }

    /// Waits until the whole plan is read. After [`Filler::stop`], this function waits only for the pieces in flight,
    /// and at most 1.5 s after a thread last made progress.
    pub fn end(&self) -> FillReport {
        let filling = self.pool.work();
        self.pool.join(|| filling.is_stopped());
        self.pool.look(|state| filling.filled(state))
    }
}

impl Work for FillContext {
    type Queue = FillState;
    type Task = FillTask;
    type Ended = FillEnded;

    fn next(&self, state: &mut FillState) -> Next<FillTask> {
        if self.is_stopped() {
            return Next::End;
        }
        state.next(&self.plan, self.settings.follows_program)
    }

    fn carry_out(&self, task: FillTask) -> FillEnded {
        match task {
            FillTask::Fetch(piece) => {
                let since = Instant::now();
                let done = self.fetch(&piece);
                FillEnded::Fetched {
                    piece,
                    done,
                    took: since.elapsed(),
                    at: self.since.elapsed(),
                }
            }
            FillTask::Look(file, range) => {
                self.look(file, &range);
                FillEnded::Looked
            }
        }
    }

    fn ended(&self, state: &mut FillState, ended: FillEnded) -> bool {
        match ended {
            FillEnded::Looked => state.looked(),
            FillEnded::Fetched {
                piece,
                done,
                took,
                at,
            } => state.finish(*piece, done, took, at, self.settings.keeps_times),
        }
        true
    }
}

enum FillEnded {
    Fetched {
        piece: Box<Piece>,
        done: FillOutcome,
        took: Duration,
        /// Time since the start of the fill.
        at: Duration,
    },
    Looked,
}

impl FillContext {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn filled(&self, state: &mut FillState) -> FillReport {
        let path = |file: &u32| self.plan.files[*file as usize].path.clone();
        let named = state.bad.iter().filter(|(_, why)| !why.is_empty());
        let left_out = LeftOut::named(named.map(|(file, why)| LeftOut {
            path: path(file),
            why: why.clone(),
        }));
        FillReport {
            plan: Arc::clone(&self.plan),
            counts: state.counts,
            left_out,
            out_of_room: state.out_of_room,
            unknown_files: state.unknown.len() as u64,
            latency_ns: state.meter.latency_ns(),
            rate: state.meter.rate(),
            seconds: state.last.as_secs_f64(),
            fetches: std::mem::take(&mut state.fetches),
            given_up: state.in_flight,
        }
    }

    /// Waits until more of this range is cached than at first, which means that the program has reached it, or until
    /// the fill ends.
    fn look(&self, file: u32, range: &Range<u64>) {
        let cached = || {
            let (file, _) = open_as_planned(&self.plan.files[file as usize]).ok()?;
            resident::cached(&file, range).ok().flatten()
        };
        let first = cached();
        while !self.is_stopped() {
            std::thread::sleep(LOOK_EVERY);
            // If the file cannot be queried any more, or all of the range is cached, the fetch itself finds out.
            if cached() > first || first.is_none() || first == Some(range.end - range.start) {
                return;
            }
        }
    }

    /// Reads a piece into the cache, except the part that is already cached.
    fn fetch(&self, piece: &Piece) -> FillOutcome {
        let mut done = FillOutcome::default();
        let since = Instant::now();
        let mut fetch = |file: &File, most: u64| -> std::io::Result<()> {
            let wait = |parts: &[Range<u64>]| {
                let mut parts = parts.iter();
                parts.try_for_each(|part| readahead::wait(file, part))
            };
            let absent = resident::fetch_absent(file, piece.range.clone(), most)?;
            if let Some(first) = absent.first() {
                done.is_unknown = resident::cached(file, first)?.is_none();
                readahead::wait(file, &(first.start..first.start + 1))?;
                done.first_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            }
            wait(&absent)?;
            // The kernel skips pages for which it finds no memory at once.
            if !absent.is_empty() && !done.is_unknown {
                wait(&resident::fetch_absent(file, piece.range.clone(), most)?)?;
            }
            done.fetched = absent;
            Ok(())
        };
        let opened = open_as_planned(&self.plan.files[piece.file as usize]);
        let fetched = opened.and_then(|(file, dev)| {
            let most = self.piece_bytes(dev, &file);
            fetch(&file, most).map_err(|error| error.to_string())
        });
        done.failed = fetched.err();
        done
    }

    fn piece_bytes(&self, dev: u64, file: &File) -> u64 {
        let pieces = || self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pieces().get(&dev).copied();
        // Do this without the lock: the file system may not answer.
        let bytes = known.unwrap_or_else(|| readahead::piece_bytes(file));
        pieces().insert(dev, bytes);
        bytes
    }
}
