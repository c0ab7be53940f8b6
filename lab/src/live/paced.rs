//! Executes the reads of a workload on real storage, in worker threads. A workload consists of jobs; a job may pause
//! between reads, wait for other jobs, or read at recorded times.
//!
//! ```text
//!   job scheduler ──requests that are due──► tasks ──► worker: read ──► served ──► job scheduler
//!        └── time of the next one ──► one idle worker waits for it (the timekeeper), the others sleep
//! ```
//!
//! The job scheduler of `foreread-sim` determines which read is due; this module provides the threads and the clock. A worker is started
//! whenever all other workers are reading. Worked example: two timed reads start at 1.0 and 1.2 ms, and each takes 0.5 ms. The first worker
//! sleeps until 0.85 ms, polls the clock until 1.0 ms, and issues the first read. The first worker then wakes a second worker, which waits
//! for the start time of the second read. For each read, this module measures how late a worker issued it, because a delay of the worker
//! must not be mistaken for a delay of the storage.

use super::{LiveError, ReadCalls, TimedRun};
use foreread_os::threads::spawn_scoped;
use foreread_sim::scheduler::{Issue, JobScheduler, Step};
use foreread_sim::stats::{latency_histogram, record_latency};
use foreread_sim::workload::{RequestKind, Workload};
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Maximum number of reads in flight. Reads that would exceed this number start late.
pub const MAX_WORKERS: u32 = 256;
/// Most bytes of the buffers of all workers together: long reads have fewer workers.
const BUFFER_BYTES: u64 = 2 << 30;
/// Workers at the start of a run of timed jobs: starting one takes as long as a read.
const FIRST_WORKERS: u32 = 8;
/// Nanoseconds by which a sleep may end late: for this last part the clock is polled.
const WATCH_NS: u64 = 150_000;

struct PacedState<'a> {
    scheduler: JobScheduler<'a>,
    /// Requests that are due but not yet taken by a worker.
    tasks: VecDeque<Issue>,
    /// Number of workers: all, those that are carrying out a request, and those that sleep until they are needed.
    workers: u32,
    active: u32,
    idle: u32,
    /// The time for which the timekeeper waits, if there is a timekeeper.
    kept_until: Option<u64>,
    ended_ns: u64,
    latency: Histogram<u64>,
    late: Histogram<u64>,
    failed: Option<LiveError>,
}

impl PacedState<'_> {
    /// Takes the due requests from the scheduler.
    fn collect(&mut self, now: u64) {
        loop {
            while let Some(step) = self.scheduler.poll(now) {
                if let Step::Issue(issue) = step {
                    self.tasks.push_back(issue);
                }
            }
            if !self.scheduler.expire(now) {
                return;
            }
        }
    }

    /// When a free worker next has something to do.
    fn first_ns(&self) -> Option<u64> {
        if self.tasks.is_empty() {
            self.scheduler.next_time()
        } else {
            Some(0)
        }
    }
}

struct PacedRun<'a> {
    workload: &'a Workload,
    target: &'a ReadCalls<'a>,
    began: Instant,
    max_workers: u32,
    state: Mutex<PacedState<'a>>,
    /// Signalled when a sleeping worker is needed, or when the timekeeper has to wake earlier.
    needed: Condvar,
    earlier: Condvar,
    /// The time until which the timekeeper polls the clock.
    first_ns: AtomicU64,
}

pub(super) fn run(workload: &Workload, target: &ReadCalls<'_>) -> Result<TimedRun, LiveError> {
    let demands = workload
        .jobs
        .iter()
        .flat_map(|job| &job.requests)
        .filter(|r| r.demands());
    let longest = demands.map(|r| r.len).max().unwrap_or(0).max(1);
    let state = PacedState {
        scheduler: JobScheduler::new(&workload.jobs),
        tasks: VecDeque::new(),
        workers: 1,
        active: 0,
        idle: 0,
        kept_until: None,
        ended_ns: 0,
        latency: latency_histogram(),
        late: latency_histogram(),
        failed: None,
    };
    let paced = PacedRun {
        workload,
        target,
        began: Instant::now(),
        max_workers: (BUFFER_BYTES / longest).clamp(1, u64::from(MAX_WORKERS)) as u32,
        state: Mutex::new(state),
        needed: Condvar::new(),
        earlier: Condvar::new(),
        first_ns: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        if workload.jobs.iter().any(|job| job.timed) {
            let mut state = paced.lock();
            (1..FIRST_WORKERS.min(paced.max_workers))
                .for_each(|_| paced.spawn_worker(&mut state, scope));
        }
        paced.guarded(scope);
    });
    let state = paced
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match state.failed {
        Some(error) => Err(error),
        None => Ok(TimedRun {
            time: Duration::from_nanos(state.ended_ns),
            latency: state.latency,
            late: Some(state.late),
        }),
    }
}

impl<'a> PacedRun<'a> {
    fn lock(&self) -> MutexGuard<'_, PacedState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn spawn_worker<'scope>(
        &'scope self,
        state: &mut PacedState<'a>,
        scope: &'scope Scope<'scope, '_>,
    ) {
        match spawn_scoped(scope, "foreread-reader", move || self.guarded(scope)) {
            Ok(_) => state.workers += 1,
            // With fewer readers the measured time would be wrong.
            Err(error) => {
                state
                    .failed
                    .get_or_insert(LiveError::io("beginning a reader")(error));
                self.needed.notify_all();
                self.earlier.notify_all();
            }
        }
    }

    /// Wakes the timekeeper if something is due earlier than it waits for. Returns false if there is no timekeeper.
    fn hurry(&self, state: &PacedState<'a>) -> bool {
        let first = state.first_ns().unwrap_or(u64::MAX);
        if state.kept_until.is_some_and(|until| first < until) {
            self.first_ns.store(first, Ordering::Relaxed);
            self.earlier.notify_one();
        }
        state.kept_until.is_some()
    }

    /// The next request, when it is due. Returns `None` when all are done or one has failed.
    fn next<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Option<Issue> {
        let mut state = self.lock();
        loop {
            let now = self.now_ns();
            state.collect(now);
            if state.failed.is_some() || (state.first_ns().is_none() && state.active == 0) {
                self.needed.notify_all();
                self.earlier.notify_all();
                return None;
            }
            if let Some(task) = state.tasks.pop_front() {
                state.active += 1;
                self.replace(&mut state, scope);
                return Some(task);
            }
            match state.first_ns() {
                Some(at) if state.kept_until.is_none() => state = self.keep_time(state, at, now),
                _ => {
                    self.hurry(&state);
                    state.idle += 1;
                    state = self
                        .needed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
            }
        }
    }

    /// Lets another worker carry out the remaining requests while this one reads.
    fn replace<'scope>(&'scope self, state: &mut PacedState<'a>, scope: &'scope Scope<'scope, '_>) {
        if state.first_ns().is_none() || self.hurry(state) {
            return;
        }
        if state.idle > 0 {
            self.needed.notify_one();
        } else if state.workers < self.max_workers {
            self.spawn_worker(state, scope);
        }
    }

    /// Waits until the first request is due, or shortly before: then the loop in `next` calls again.
    fn keep_time<'s>(
        &'s self,
        mut state: MutexGuard<'s, PacedState<'a>>,
        at: u64,
        now: u64,
    ) -> MutexGuard<'s, PacedState<'a>> {
        state.kept_until = Some(at);
        let mut state = if at - now > WATCH_NS {
            let sleep = Duration::from_nanos(at - now - WATCH_NS);
            self.earlier
                .wait_timeout(state, sleep)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        } else {
            self.first_ns.store(at, Ordering::Relaxed);
            drop(state);
            while self.now_ns() < self.first_ns.load(Ordering::Relaxed).min(at) {
                std::hint::spin_loop();
            }
            self.lock()
        };
        state.kept_until = None;
        state
    }

    /// A worker that ends the run if it panics: otherwise the others would wait for its read forever.
    fn guarded<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(scope))) else {
            return;
        };
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        let mut state = self.lock();
        state.failed.get_or_insert(LiveError::Broken(
            text.unwrap_or_else(|| "no message".to_string()),
        ));
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
                record_latency(
                    &mut latency,
                    now - if job.timed { task.due_ns } else { issued },
                );
                ended_ns = now;
            }
            let mut state = self.lock();
            state.active -= 1;
            match done {
                Err(error) => _ = state.failed.get_or_insert(error),
                Ok(()) => state.scheduler.served(now, task.slot),
            }
        }
        let mut state = self.lock();
        // Both histograms have the same bounds: adding cannot fail.
        let _ = state.latency.add(&latency);
        let _ = state.late.add(&late);
        state.ended_ns = state.ended_ns.max(ended_ns);
    }

    fn carry_out(&self, task: &Issue, buffer: &mut Vec<u8>) -> Result<(), LiveError> {
        let job = &self.workload.jobs[task.job as usize];
        let request = &job.requests[task.request];
        if let RequestKind::Hint(advice) = request.kind {
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
        Err(LiveError::Short {
            offset: request.offset,
            len: request.len,
            got,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::{Job, Request};

    fn workload(jobs: Vec<Job>) -> Workload {
        Workload::of("t", vec![1 << 30], jobs)
    }

    /// Reads of one page, each due at its time.
    fn timed(reads: u64, gap_ns: u64) -> Job {
        let read = |n| Request::read(n * 4096, 4096).think(n * gap_ns);
        Job {
            timed: true,
            depth: 1 << 14,
            ..Job::new(0, 0, (0..reads).map(read).collect())
        }
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
            drop(
                all_in
                    .wait_timeout_while(now, most, |now| now.1 < MAX_WORKERS)
                    .expect("no panic"),
            );
            // Time for one too many to come in.
            std::thread::sleep(Duration::from_millis(20));
            inside.lock().expect("no panic").0 -= 1;
            Ok(buffer.len())
        };
        let target = ReadCalls {
            read: &read,
            advise: &|_, _, _, _| Ok(()),
        };
        let ran = run(
            &workload(vec![timed(u64::from(MAX_WORKERS) + 40, 0)]),
            &target,
        )
        .expect("served");
        assert_eq!(ran.latency.len(), u64::from(MAX_WORKERS) + 40);
        assert_eq!(inside.lock().expect("no panic").1, MAX_WORKERS);
    }

    /// Eight may be outstanding and go out four at a time: no read begins while five to seven are under way.
    #[test]
    fn a_batch_goes_out_together() {
        let job = Job {
            depth: 8,
            batch: 4,
            ..Job::new(
                0,
                0,
                (0..30).map(|n| Request::read(n * 4096, 4096)).collect(),
            )
        };
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
        let target = ReadCalls {
            read: &read,
            advise: &|_, _, _, _| Ok(()),
        };
        let ran = run(&workload(vec![job]), &target).expect("served");
        assert_eq!(ran.latency.len(), 30);
        // Without batches no read but the last eight would find fewer than seven others when it ends.
        let left = inside.into_inner().expect("no panic").1;
        assert!(
            left[..20].iter().filter(|n| **n <= 5).count() >= 5,
            "{left:?}"
        );
    }

    /// With reads, pauses and waiting jobs all about, a panic is an error and no endless wait.
    #[test]
    fn a_worker_that_panics_ends_the_run() {
        let read = |_: u32, buffer: &mut [u8], offset: u64| {
            assert!(offset != 5 * 4096, "the sixth read");
            Ok(buffer.len())
        };
        let target = ReadCalls {
            read: &read,
            advise: &|_, _, _, _| Ok(()),
        };
        let waiting = Job::new(0, 1, vec![Request::read(0, 4096)]).after(0);
        let hours = Request::read(0, 4096).think(3_600_000_000_000);
        let pausing = Job::new(0, 2, vec![hours]);
        let result = run(
            &workload(vec![timed(20, 1_000_000), waiting, pausing]),
            &target,
        );
        let error = result.err().expect("a panic").to_string();
        assert!(
            error.starts_with("a reader thread of the replay panicked: the sixth read; "),
            "{error}"
        );
    }
}
