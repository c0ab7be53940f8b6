//! Carries out jobs that pause, wait for each other, or have fixed times: the live twin of the simulator's readers.
//!
//! ```text
//!   tokens by the time they are due     workers, one more whenever all others read
//!     job 3 at 1.2 ms ──┐ popped by a free worker at its time ──► one request ──► the job's next, when it is due
//!     job 1 at 5.0 ms   └ one of them watches the clock              └── last one: the jobs that waited for it
//! ```
//!
//! An untimed job has a token for each request that it keeps going; the token waits out the pause and comes back when it
//! has been served. A timed job has one, which comes back at the time of the next request, whether or not others still read.
//! How late requests are issued is measured always: what a worker was too late for is not the storage's fault.
//!
//! Never: reads the clock for anything but pacing and latency.

use super::{LiveError, Target};
use crate::stats::{latency_histogram, record_latency};
use crate::workload::waits::Waits;
use crate::workload::{Kind, Workload};
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Reads outstanding at once. More than that is late.
pub const MAX_WORKERS: u32 = 256;
/// Buffers of all workers together, in bytes: long reads have fewer workers.
const BUFFER_BYTES: u64 = 2 << 30;
/// Workers from the start of a run of timed jobs: making one takes as long as a read.
const FIRST_WORKERS: u32 = 8;
/// A sleep ends this much later than asked for, or so: the rest is spent looking at the clock. In nanoseconds.
const WATCH_NS: u64 = 150_000;

/// What came of it.
pub struct Ran {
    /// When the last read was served.
    pub time: Duration,
    /// Of each read: since it was issued, or, of a timed job, since it was due.
    pub latency: Histogram<u64>,
    /// How late each request was issued.
    pub late: Histogram<u64>,
}

/// A request of this job is due.
type Token = Reverse<(u64, u64, u32)>;

/// How far a job is.
#[derive(Clone, Copy, Default)]
struct Progress {
    next: usize,
    /// Tokens, and requests of a timed job that are being served.
    busy: u32,
    /// Tokens that wait for the rest of their batch.
    spare: u32,
}

struct State {
    due: BinaryHeap<Token>,
    order: u64,
    jobs: Vec<Progress>,
    waits: Waits,
    /// Workers: all, those that do a request, and those that wait to be needed.
    workers: u32,
    active: u32,
    idle: u32,
    /// Until when one watches the clock.
    watched_until: Option<u64>,
    ended_ns: u64,
    latency: Histogram<u64>,
    late: Histogram<u64>,
    failed: Option<LiveError>,
}

struct Crew<'a> {
    workload: &'a Workload,
    target: &'a Target<'a>,
    began: Instant,
    most: u32,
    state: Mutex<State>,
    /// Something to do for one that waits, and something earlier for the one that watches.
    needed: Condvar,
    earlier: Condvar,
    /// When the first token is due, for the one that watches closely.
    first_ns: AtomicU64,
}

/// A request to be done.
struct Task {
    job: u32,
    request: usize,
    due_ns: u64,
}

/// Runs the workload to its end.
///
/// # Errors
/// The first of a request.
pub fn run(workload: &Workload, target: &Target<'_>) -> Result<Ran, LiveError> {
    let demands = workload.jobs.iter().flat_map(|job| &job.requests).filter(|r| r.demands());
    let longest = demands.map(|r| r.len).max().unwrap_or(0).max(1);
    let waits = Waits::of(&workload.jobs);
    let free = waits.free();
    let state = State {
        due: BinaryHeap::new(),
        order: 0,
        jobs: vec![Progress::default(); workload.jobs.len()],
        waits,
        workers: 1,
        active: 0,
        idle: 0,
        watched_until: None,
        ended_ns: 0,
        latency: latency_histogram(),
        late: latency_histogram(),
        failed: None,
    };
    let crew = Crew {
        workload,
        target,
        began: Instant::now(),
        most: (BUFFER_BYTES / longest).clamp(1, u64::from(MAX_WORKERS)) as u32,
        state: Mutex::new(state),
        needed: Condvar::new(),
        earlier: Condvar::new(),
        first_ns: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let mut state = crew.lock();
        if workload.jobs.iter().any(|job| job.timed) {
            (1..FIRST_WORKERS.min(crew.most)).for_each(|_| crew.hire(&mut state, scope));
        }
        free.into_iter().for_each(|job| crew.begin(&mut state, job, 0));
        drop(state);
        crew.guarded(scope);
    });
    let state = crew.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.failed {
        Some(error) => Err(error),
        None => Ok(Ran { time: Duration::from_nanos(state.ended_ns), latency: state.latency, late: state.late }),
    }
}

impl Crew<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn hire<'scope>(&'scope self, state: &mut State, scope: &'scope Scope<'scope, '_>) {
        state.workers += 1;
        scope.spawn(move || self.guarded(scope));
    }

    /// A job may begin at this time.
    fn begin(&self, state: &mut State, number: u32, at: u64) {
        let job = &self.workload.jobs[number as usize];
        let tokens = if job.timed { 1 } else { (job.depth.max(1) as usize).min(job.requests.len().max(1)) };
        state.jobs[number as usize].busy = tokens as u32;
        (0..tokens).for_each(|_| self.come_back(state, number, at));
    }

    /// A token of a job goes on at `now`: when its next request is due.
    fn come_back(&self, state: &mut State, number: u32, now: u64) {
        let job = &self.workload.jobs[number as usize];
        let due = match job.requests.get(state.jobs[number as usize].next) {
            // However late the clock comes to it, it is late by its own time.
            Some(request) if job.timed => request.think_ns,
            Some(request) => now.saturating_add(request.think_ns),
            None => now,
        };
        state.order += 1;
        state.due.push(Reverse((due, state.order, number)));
        self.hurry(state);
    }

    /// A token of a job is served: all that wait go on when they are a batch.
    fn gather(&self, state: &mut State, number: u32, now: u64) {
        let progress = &mut state.jobs[number as usize];
        progress.spare += 1;
        if progress.spare as usize >= self.workload.jobs[number as usize].together(progress.next) {
            let together = std::mem::take(&mut progress.spare);
            (0..together).for_each(|_| self.come_back(state, number, now));
        }
    }

    /// Wakes the worker that watches the clock for something due earlier. False when there is none.
    fn hurry(&self, state: &State) -> bool {
        let first = state.due.peek().map_or(u64::MAX, |token| token.0.0);
        if state.watched_until.is_some_and(|until| first < until) {
            self.first_ns.store(first, Ordering::Relaxed);
            self.earlier.notify_one();
        }
        state.watched_until.is_some()
    }

    fn begin_all(&self, state: &mut State, ready: Vec<(u32, u64)>) {
        ready.into_iter().for_each(|(number, at)| self.begin(state, number, at));
    }

    /// A token, or a request of a timed job, is over. With the last one the job is.
    fn over(&self, state: &mut State, number: u32, now: u64) {
        let busy = &mut state.jobs[number as usize].busy;
        *busy -= 1;
        if *busy > 0 {
            return;
        }
        if self.workload.jobs[number as usize].requests.is_empty() {
            let ready = state.waits.started(number, now);
            self.begin_all(state, ready);
        }
        let ready = state.waits.ended(number, now);
        self.begin_all(state, ready);
    }

    /// The next request of a token, if its job has one left.
    fn take(&self, state: &mut State, number: u32, due_ns: u64, now: u64) -> Option<Task> {
        let job = &self.workload.jobs[number as usize];
        let request = state.jobs[number as usize].next;
        if request >= job.requests.len() {
            self.over(state, number, now);
            return None;
        }
        state.jobs[number as usize].next += 1;
        if request == 0 {
            let ready = state.waits.started(number, now);
            self.begin_all(state, ready);
        }
        if job.timed {
            state.jobs[number as usize].busy += 1;
            self.come_back(state, number, now);
        }
        Some(Task { job: number, request, due_ns })
    }

    /// The next request, at its time; nothing when all are done or one has failed.
    fn next<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() || (state.due.is_empty() && state.active == 0) {
                self.needed.notify_all();
                self.earlier.notify_all();
                return None;
            }
            let now = self.now_ns();
            match state.due.peek().map(|token| token.0) {
                Some((at, _, number)) if at <= now => {
                    state.due.pop();
                    if let Some(task) = self.take(&mut state, number, at, now) {
                        state.active += 1;
                        self.replace(&mut state, scope);
                        return Some(task);
                    }
                }
                Some((at, ..)) if state.watched_until.is_none() => state = self.watch(state, at, now),
                _ => {
                    state.idle += 1;
                    state = self.needed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
            }
        }
    }

    /// Another worker takes over the rest while this one reads.
    fn replace<'scope>(&'scope self, state: &mut State, scope: &'scope Scope<'scope, '_>) {
        if state.due.is_empty() || self.hurry(state) {
            return;
        }
        if state.idle > 0 {
            self.needed.notify_one();
        } else if state.workers < self.most {
            self.hire(state, scope);
        }
    }

    /// Waits until the first token is due, or about so.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State>, at: u64, now: u64) -> MutexGuard<'a, State> {
        state.watched_until = Some(at);
        let mut state = if at - now > WATCH_NS {
            let sleep = Duration::from_nanos(at - now - WATCH_NS);
            self.earlier.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0
        } else {
            self.first_ns.store(at, Ordering::Relaxed);
            drop(state);
            while self.now_ns() < self.first_ns.load(Ordering::Relaxed).min(at) {
                std::hint::spin_loop();
            }
            self.lock()
        };
        state.watched_until = None;
        state
    }

    /// A worker that ends the run if it panics: the others would wait for its read without end.
    fn guarded<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(scope))) else { return };
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        let mut state = self.lock();
        state.failed.get_or_insert(LiveError::Broken(text.unwrap_or_else(|| "no message".to_string())));
        self.needed.notify_all();
        self.earlier.notify_all();
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let (mut latency, mut late, mut ended_ns) = (latency_histogram(), latency_histogram(), 0);
        let mut buffer = Vec::new();
        while let Some(task) = self.next(scope) {
            let issued = self.now_ns();
            record_latency(&mut late, issued - task.due_ns);
            let done = self.carry_out(&task, &mut buffer);
            let now = self.now_ns();
            let job = &self.workload.jobs[task.job as usize];
            if job.requests[task.request].demands() {
                record_latency(&mut latency, now - if job.timed { task.due_ns } else { issued });
                ended_ns = now;
            }
            let mut state = self.lock();
            state.active -= 1;
            match done {
                Err(error) => _ = state.failed.get_or_insert(error),
                Ok(()) if job.timed => self.over(&mut state, task.job, now),
                Ok(()) => self.gather(&mut state, task.job, now),
            }
        }
        let mut state = self.lock();
        // The same bounds on both sides: adding cannot fail.
        let _ = state.latency.add(&latency);
        let _ = state.late.add(&late);
        state.ended_ns = state.ended_ns.max(ended_ns);
    }

    fn carry_out(&self, task: &Task, buffer: &mut Vec<u8>) -> Result<(), LiveError> {
        let job = &self.workload.jobs[task.job as usize];
        let request = &job.requests[task.request];
        if let Kind::Hint(advice) = request.kind {
            return (self.target.advise)(job.open, advice, request.offset, request.len);
        }
        let len = request.len as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let got = (self.target.read)(job.open, &mut buffer[..len], request.offset)? as u64;
        if got == request.len {
            return Ok(());
        }
        Err(LiveError::Short { offset: request.offset, len: request.len, got })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Job, Request};

    fn workload(jobs: Vec<Job>) -> Workload {
        Workload { name: "t".to_string(), files: vec![1 << 30], page_bytes: 4096, jobs }
    }

    /// Reads of one page, each due at its time.
    fn timed(reads: u64, gap_ns: u64) -> Job {
        let read = |n| Request { think_ns: n * gap_ns, ..Request::read(n * 4096, 4096) };
        Job { timed: true, depth: 1 << 14, ..Job::new(0, 0, (0..reads).map(read).collect()) }
    }

    /// More reads are due than may be outstanding: as many as the limit says are, and not one more.
    #[test]
    fn so_many_reads_are_outstanding_and_not_one_more() {
        let (inside, all_in) = (Mutex::new((0_u32, 0_u32)), Condvar::new());
        let read = |_: u32, buffer: &mut [u8], _: u64| {
            let mut now = inside.lock().expect("no panic");
            *now = (now.0 + 1, now.1.max(now.0 + 1));
            all_in.notify_all();
            let most = Duration::from_secs(60);
            drop(all_in.wait_timeout_while(now, most, |now| now.1 < MAX_WORKERS).expect("no panic"));
            // Time for one too many to come in.
            std::thread::sleep(Duration::from_millis(20));
            inside.lock().expect("no panic").0 -= 1;
            Ok(buffer.len())
        };
        let target = Target { read: &read, advise: &|_, _, _, _| Ok(()) };
        let ran = run(&workload(vec![timed(u64::from(MAX_WORKERS) + 40, 0)]), &target).expect("served");
        assert_eq!(ran.latency.len(), u64::from(MAX_WORKERS) + 40);
        assert_eq!(inside.lock().expect("no panic").1, MAX_WORKERS);
    }

    /// Eight may be outstanding and go out four at a time: no read begins while five to seven are under way.
    #[test]
    fn a_batch_goes_out_together() {
        let job =
            Job { depth: 8, batch: 4, ..Job::new(0, 0, (0..30).map(|n| Request::read(n * 4096, 4096)).collect()) };
        let inside = Mutex::new((0_u32, Vec::new()));
        let read = |_: u32, buffer: &mut [u8], offset: u64| {
            inside.lock().expect("no panic").0 += 1;
            std::thread::sleep(Duration::from_millis(1 + offset / 4096 % 3));
            let mut now = inside.lock().expect("no panic");
            now.0 -= 1;
            let left = now.0;
            now.1.push(left);
            Ok(buffer.len())
        };
        let target = Target { read: &read, advise: &|_, _, _, _| Ok(()) };
        let ran = run(&workload(vec![job]), &target).expect("served");
        assert_eq!(ran.latency.len(), 30);
        // Without batches no read but the last eight would find fewer than seven others when it ends.
        let left = inside.into_inner().expect("no panic").1;
        assert!(left[..20].iter().filter(|n| **n <= 5).count() >= 5, "{left:?}");
    }

    /// With reads, pauses and waiting jobs all about, a panic is an error and no endless wait.
    #[test]
    fn a_worker_that_panics_ends_the_run() {
        let read = |_: u32, buffer: &mut [u8], offset: u64| {
            assert!(offset != 5 * 4096, "the sixth read");
            Ok(buffer.len())
        };
        let target = Target { read: &read, advise: &|_, _, _, _| Ok(()) };
        let waiting = Job { after: Some(0), ..Job::new(0, 1, vec![Request::read(0, 4096)]) };
        let hours = Request { think_ns: 3_600_000_000_000, ..Request::read(0, 4096) };
        let pausing = Job::new(0, 2, vec![hours]);
        let result = run(&workload(vec![timed(20, 1_000_000), waiting, pausing]), &target);
        let error = result.err().expect("a panic").to_string();
        assert!(error.starts_with("a reader of the replay broke down: the sixth read; "), "{error}");
    }
}
