//! The threads that fetch: each takes the next piece of the plan, as long as the storage and the memory take one.
//!
//! ```text
//!   State ──next piece──► a thread: opens, readahead(2), waits ──► State ──► wakes threads that wait
//!     └─ budget is empty ──► one thread looks every 5 ms whether the program has come to the next range
//! ```
//! A storage that does not answer keeps a thread in the kernel, and nothing but the end of the process ends it. So at the end a thread is
//! waited for 1.5 s after the last sign of any, and then given up.
//!
//! Threads, and no ring: opening a cold file waits for the storage as well, and readahead(2) has no other form. A thread that waits
//! costs the processor nothing.

use super::budget::Budget;
use super::files::open_as_planned;
use super::state::{Done, MAX_IN_FLIGHT, Next, PIECE_BYTES, Piece, State};
use foreread_os::threads::{END_PATIENCE, spawn_with_stack};
use foreread_pagecache::{readahead, resident};
use foreread_plan::Plan;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often is looked whether the program has come to the first range that the memory had no room for.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Stack of a thread: it opens files and calls the kernel.
const STACK_BYTES: usize = 256 << 10;
/// Files that are left out and named.
pub const MAX_LEFT_OUT: usize = 1000;

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
    /// Fetches that were given up, because the storage did not answer.
    pub given_up: u32,
}

impl Filled {
    /// Whether every file of the plan is gone, or another one by now.
    #[must_use]
    pub fn has_nothing(&self) -> bool {
        self.counts.planned_bytes > 0 && self.counts.left_out_bytes == self.counts.planned_bytes
    }
}

/// A filling under way.
pub struct Filler {
    shared: Arc<Shared>,
}

struct Shared {
    plan: Arc<Plan>,
    settings: FillSettings,
    since: Instant,
    state: Mutex<State>,
    wake: Condvar,
}

impl Filler {
    /// Begins.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn start(plan: Arc<Plan>, settings: FillSettings) -> std::io::Result<Filler> {
        let state = State::new(&plan, settings.budget);
        let pieces: u64 = plan
            .ranges
            .iter()
            .map(|range| range.len.div_ceil(PIECE_BYTES))
            .sum();
        let shared = Shared {
            plan,
            settings,
            since: Instant::now(),
            state: Mutex::new(state),
            wake: Condvar::new(),
        };
        let filler = Filler {
            shared: Arc::new(shared),
        };
        for number in 0..pieces.min(u64::from(MAX_IN_FLIGHT)) {
            let running = Thread::of(&filler.shared);
            match spawn_with_stack("foreread-warm", STACK_BYTES, move || running.0.work()) {
                Err(error) if number == 0 => return Err(error),
                // Fewer are slower, and as right.
                Err(_) => break,
                Ok(_) => {}
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
        self.shared.lock().threads == 0
    }

    /// Begins no more fetches.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        (state.ended, state.stopped) = (true, true);
        drop(state);
        self.shared.wake.notify_all();
    }

    /// Waits for all of the plan; once it was stopped, for what is in flight, and no longer than 1.5 s after the last sign of it.
    #[must_use]
    pub fn end(&self) -> Filled {
        let mut state = self.shared.lock();
        while state.threads > 0 {
            let wake = &self.shared.wake;
            if !state.stopped {
                state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = wake
                .wait_timeout(state, END_PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                break;
            }
        }
        let path = |file: &u32| self.shared.plan.files[*file as usize].path.clone();
        let left_out = LeftOut::named(state.bad.iter().filter(|(_, why)| !why.is_empty()).map(
            |(file, why)| LeftOut {
                path: path(file),
                why: why.clone(),
            },
        ));
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
            given_up: state.in_flight(),
        }
    }
}

/// A thread, counted while it is there, however it ends.
struct Thread(Arc<Shared>);

impl Thread {
    fn of(shared: &Arc<Shared>) -> Thread {
        shared.lock().threads += 1;
        Thread(Arc::clone(shared))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(piece) = self.take() {
            let since = Instant::now();
            let done = self.fetch(&piece);
            let (took, at) = (since.elapsed(), self.since.elapsed());
            self.lock().finish(piece, done, took, at, &self.settings);
            self.wake.notify_all();
        }
    }

    /// The next piece, when there is room for it.
    fn take(&self) -> Option<Piece> {
        let mut state = self.lock();
        loop {
            match state.next(&self.plan, self.settings.follows_program) {
                Next::Piece(piece) => return Some(*piece),
                Next::Wait => {
                    state = self
                        .wake
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
                Next::Look(file, range) => {
                    drop(state);
                    self.look(file, &range);
                    state = self.lock();
                    state.looked();
                    self.wake.notify_all();
                }
                Next::End => {
                    // The others may wait for what is not sent any more.
                    self.wake.notify_all();
                    return None;
                }
            }
        }
    }

    /// Waits until more of this range is cached than at first: the program is there. Or until the end.
    fn look(&self, file: u32, range: &Range<u64>) {
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
            let most = self.piece_bytes(dev, &file);
            let text = |error: std::io::Error| error.to_string();
            let absent = resident::fetch_absent(&file, piece.range.clone(), most).map_err(text)?;
            if let Some(first) = absent.first() {
                done.is_unknown = resident::cached(&file, first).map_err(text)?.is_none();
                readahead::wait(&file, &(first.start..first.start + 1)).map_err(text)?;
                done.first_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            }
            absent
                .iter()
                .try_for_each(|part| readahead::wait(&file, part))
                .map_err(text)?;
            // The kernel leaves out what it finds no memory for at once.
            if !absent.is_empty() && !done.is_unknown {
                let again =
                    resident::fetch_absent(&file, piece.range.clone(), most).map_err(text)?;
                again
                    .iter()
                    .try_for_each(|part| readahead::wait(&file, part))
                    .map_err(text)?;
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
        let bytes = readahead::piece_bytes(file);
        self.lock().pieces.insert(dev, bytes);
        bytes
    }
}
