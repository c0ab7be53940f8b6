//! Runs a workload on real storage, through the engine or through the kernel's page cache.
//!
//! Every run starts with an empty cache: a run through the engine uses a new engine that bypasses the page cache.
//! Before a run through the page cache, only the cached pages of the measured file are dropped. No file is written,
//! except the scratch file. A workload is refused if it maps files or reads more than one file.

mod paced;
mod scratch;

use foreread::source::{FileSource, Source};
use foreread::{OpenError, Options, ReadError, Reader};
use foreread_core::event::Advice;
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use foreread_os::failure::{Failure, FailureKind};
use foreread_os::threads::spawn_scoped;
use foreread_sim::simulator::RunResult;
use foreread_sim::stats::{latency_histogram, merged, percentile_ns, record_latency};
use foreread_sim::workload::{Job, RequestKind, Workload};
use hdrhistogram::Histogram;
pub use scratch::Scratch;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
#[cfg(feature = "rbd")]
pub mod librbd;

/// The error of a run on real storage: one line that says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error("{0}")]
    Source(#[from] foreread::source::SourceOpenError),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
    /// The run was ended by its [`Cut`].
    #[error("the run was ended early")]
    Cut,
    /// The workload needs more than reads of one file.
    #[error(
        "{workload} {does}, which is not supported with --on FILE; use --on model:NAME ('foreread list models' lists them)"
    )]
    Unfit { workload: String, does: String },
    /// A replay did not keep the times of its trace.
    #[error(
        "the replayer itself was late: {late_us} us behind the recorded times (99th percentile), with a median latency of \
         {p50_us} us; free the machine, replay a quieter part, or use --mode closed or asap"
    )]
    Late { late_us: u64, p50_us: u64 },
    #[error(
        "a reader thread of the replay panicked: {0}; this is a bug in foreread, please report it"
    )]
    Broken(String),
    /// A read within the file ended early.
    #[error(
        "the file became shorter while it was read: {got} of {len} bytes at offset {offset}; do not change it, and try again"
    )]
    Short { offset: u64, len: u64, got: u64 },
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        Failure::of(FailureKind::Input, error)
    }
}

impl LiveError {
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LiveError {
        let what = what.into();
        |error| LiveError::Io { what, error }
    }
}

/// Returns an error if the workload does more than read one file and give hints about it.
pub fn check(workload: &Workload) -> Result<(), LiveError> {
    let files = workload.files.len();
    let does = if workload.touches() {
        "takes page faults in mapped files".to_string()
    } else if files > 1 {
        format!("opens {files} files")
    } else if opens(workload) > MAX_OPENS {
        format!("opens its file more than {MAX_OPENS} times")
    } else {
        return Ok(());
    };
    Err(LiveError::Unfit {
        workload: workload.name.clone(),
        does,
    })
}

/// Most open descriptions of one file: for the row of the kernel each needs a descriptor, and a process may usually
/// have 1,024.
const MAX_OPENS: u32 = 512;

fn opens(workload: &Workload) -> u32 {
    workload
        .jobs
        .iter()
        .map(|job| job.open + 1)
        .max()
        .unwrap_or(0)
}

/// A time limit by the wall clock.
pub struct Budget {
    began: Instant,
    until: Instant,
}

impl Budget {
    /// Creates a time limit of this length that starts now.
    pub fn milliseconds(milliseconds: u64) -> Budget {
        let began = Instant::now();
        Budget {
            began,
            until: began + Duration::from_millis(milliseconds),
        }
    }

    /// Returns when the time limit is reached.
    pub fn end(&self) -> Instant {
        self.until
    }

    /// Returns whether the time limit is reached.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns whether one more step would exceed the time limit, if the step takes as long as the mean of the `done` steps so far.
    pub fn is_too_short_for_more(&self, done: u32) -> bool {
        let now = Instant::now();
        now + now.duration_since(self.began) / done.max(1) > self.until
    }
}

/// What ends a run before its last read: a time, or an interrupt (`stop` is not 0).
#[derive(Clone, Copy)]
pub struct Cut<'a> {
    /// `None`: no time limit.
    pub until: Option<Instant>,
    pub stop: &'a AtomicUsize,
}

impl Cut<'_> {
    /// Nothing ends the run early.
    pub fn never() -> Cut<'static> {
        static NO_STOP: AtomicUsize = AtomicUsize::new(0);
        Cut {
            until: None,
            stop: &NO_STOP,
        }
    }

    fn check(&self) -> Result<(), LiveError> {
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        match is_late || self.stop.load(Ordering::Relaxed) != 0 {
            true => Err(LiveError::Cut),
            false => Ok(()),
        }
    }
}

/// The settings of the engine for a run.
pub struct Setup<'a> {
    /// What ends the run early.
    pub cut: Cut<'a>,
    pub policy: &'a PolicySpec,
    pub cache_bytes: u64,
    /// Size of a cache page in bytes.
    pub page_bytes: u64,
    /// Where to write the event log, if one is needed.
    pub event_log: Option<PathBuf>,
}

/// Executes one run of a workload through the engine, with a new cache.
/// Returns an error if the source cannot be read, if the log cannot be written, or if [`check`] refuses the workload.
pub fn engine(
    source: Arc<dyn Source>,
    workload: &Workload,
    setup: &Setup<'_>,
) -> Result<RunResult, LiveError> {
    check(workload)?;
    let Setup {
        cut,
        policy,
        cache_bytes,
        page_bytes,
        ref event_log,
    } = *setup;
    let options = Options {
        policy: policy.clone().into(),
        cache_bytes,
        page_bytes,
        event_log: event_log.clone(),
        ..Options::default()
    };
    let first = Reader::open(source, options)?;
    let others: Vec<Reader> = (1..opens(workload))
        .map(|_| first.try_clone())
        .collect::<Result<_, _>>()?;
    let reader = |open: u32| {
        if open == 0 {
            &first
        } else {
            &others[open as usize - 1]
        }
    };
    let target = ReadCalls {
        read: &|open, buf, offset| {
            cut.check()?;
            Ok(reader(open).read_at(buf, offset)?)
        },
        advise: &|open, advice, offset, len| {
            Ok(reader(open).advise(advice, offset..offset.saturating_add(len))?)
        },
    };
    let timed = run_jobs(workload, &target)?;
    let stats = first
        .engine()
        .end_event_log()
        .map_err(LiveError::io("writing the event log"))?;
    Ok(result(timed, stats, workload, page_bytes, false))
}

/// Opens a file as a source that is read with direct I/O.
///
/// Returns an error if the file cannot be opened for reading.
pub fn file(path: &Path) -> Result<Arc<dyn Source>, LiveError> {
    Ok(Arc::new(FileSource::open(path)?))
}

/// Executes one run of a workload through the page cache, with the device's current readahead setting. Each open file
/// description of the workload is a separate descriptor.
/// Returns an error if the file cannot be opened or read, or if [`check`] refuses the workload.
pub fn kernel(path: &Path, workload: &Workload, cut: Cut<'_>) -> Result<RunResult, LiveError> {
    check(workload)?;
    let open = || {
        foreread_os::open::look(path)
            .and_then(|looked| looked.for_reading())
            .map_err(LiveError::io(format!("opening {}", path.display())))
    };
    let first = open()?;
    rustix::fs::fadvise(&first, 0, None, rustix::fs::Advice::DontNeed).map_err(|e| {
        LiveError::io(format!("dropping the cached pages of {}", path.display()))(e.into())
    })?;
    let mut files = vec![first];
    for _ in 1..opens(workload) {
        files.push(open()?);
    }
    let read = |open: u32, buf: &mut [u8], offset: u64| {
        cut.check()?;
        files[open as usize]
            .read_at(buf, offset)
            .map_err(LiveError::io(format!("reading {}", path.display())))
    };
    let advise = |open: u32, advice, offset, len| {
        // A length of 0 would mean the whole rest of the file.
        let Some(len) = NonZeroU64::new(len) else {
            return Ok(());
        };
        rustix::fs::fadvise(
            &files[open as usize],
            offset,
            Some(len),
            kernel_advice(advice),
        )
        .map_err(|e| LiveError::io(format!("a hint about {}", path.display()))(e.into()))
    };
    let timed = run_jobs(
        workload,
        &ReadCalls {
            read: &read,
            advise: &advise,
        },
    )?;
    let stats = Stats::of(|stats| {
        stats.demand_reads = workload.reads();
        stats.demand_bytes = workload.bytes();
    });
    Ok(result(timed, stats, workload, 4096, true))
}

fn result(
    timed: TimedRun,
    stats: Stats,
    workload: &Workload,
    page_bytes: u64,
    kernel: bool,
) -> RunResult {
    RunResult {
        time_s: timed.time.as_secs_f64(),
        stats,
        late_p99_ns: timed.late_p99_ns(),
        latency: timed.latency,
        distinct_bytes: workload.distinct_bytes(page_bytes),
        kernel,
        refault_bytes: None,
    }
}

struct TimedRun {
    /// When the last read was served.
    time: Duration,
    /// Latency of each read since it was issued, or, in a timed job, since it was due.
    latency: Histogram<u64>,
    /// How late each request was issued, if that was measured.
    late: Option<Histogram<u64>>,
}

impl TimedRun {
    fn late_p99_ns(&self) -> Option<u64> {
        let late = self.late.as_ref()?;
        Some(percentile_ns(late, 99.0).unwrap_or(0))
    }
}

/// A replay at recorded times fails if the 99th percentile of its lateness is above this, in nanoseconds, ...
const MAX_LATE_NS: u64 = 100_000;
/// ... and above this part of the median latency. The evaluation rules state both limits. If each alone were enough to
/// fail, no run with cached reads would pass, because their median is a few microseconds.
const MAX_LATE_PART: f64 = 0.01;

/// A read through the storage under test: open description, buffer, offset.
type ReadFn<'a> = &'a (dyn Fn(u32, &mut [u8], u64) -> Result<usize, LiveError> + Sync);

/// A hint to the storage under test: open description, hint, offset, length.
type AdviseFn<'a> = &'a (dyn Fn(u32, Advice, u64, u64) -> Result<(), LiveError> + Sync);

struct ReadCalls<'a> {
    read: ReadFn<'a>,
    advise: AdviseFn<'a>,
}

fn kernel_advice(advice: Advice) -> rustix::fs::Advice {
    match advice {
        Advice::Normal => rustix::fs::Advice::Normal,
        Advice::Sequential => rustix::fs::Advice::Sequential,
        Advice::Random => rustix::fs::Advice::Random,
        Advice::WillNeed => rustix::fs::Advice::WillNeed,
        Advice::DontNeed => rustix::fs::Advice::DontNeed,
    }
}

/// Runs every job, with a thread for each request that a job has in flight.
fn run_jobs(workload: &Workload, target: &ReadCalls<'_>) -> Result<TimedRun, LiveError> {
    if needs_pacing(workload) {
        return run_paced(workload, target);
    }
    let lanes: Vec<(&Job, AtomicUsize)> = workload
        .jobs
        .iter()
        .map(|j| (j, AtomicUsize::new(0)))
        .collect();
    let began = Instant::now();
    if let [(job, next)] = lanes.as_slice()
        && job.depth <= 1
    {
        // A single reader needs no extra thread, and its thread start is not timed.
        let latency = lane(job, next, target)?;
        return Ok(TimedRun {
            time: began.elapsed(),
            latency,
            late: None,
        });
    }
    let latency = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (job, next) in lanes
            .iter()
            .flat_map(|(job, next)| (0..job.depth.max(1)).map(move |_| (*job, next)))
        {
            let thread = spawn_scoped(scope, "foreread-reader", move || lane(job, next, target));
            threads.push(thread.map_err(|error| {
                // The readers that have started stop: with fewer readers the measured time would be wrong.
                lanes
                    .iter()
                    .for_each(|(job, next)| next.store(job.requests.len(), Ordering::Relaxed));
                LiveError::io("beginning the readers")(error)
            })?);
        }
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let parts = ended.collect::<Result<Vec<_>, LiveError>>()?;
        Ok::<_, LiveError>(merged(&parts))
    })?;
    Ok(TimedRun {
        time: began.elapsed(),
        latency,
        late: None,
    })
}

/// Whether the workload needs more than one request after the other.
fn needs_pacing(workload: &Workload) -> bool {
    let waits =
        |job: &Job| job.timed || job.batch > 1 || job.after.is_some() || !job.links.is_empty();
    workload
        .jobs
        .iter()
        .any(|job| waits(job) || job.requests.iter().any(|r| r.think_ns > 0))
        || workload
            .jobs
            .iter()
            .map(|job| job.depth.max(1))
            .sum::<u32>()
            > paced::MAX_WORKERS
}

/// Runs jobs that pause or wait. Timed jobs fail if the reader was too late.
fn run_paced(workload: &Workload, target: &ReadCalls<'_>) -> Result<TimedRun, LiveError> {
    let timed = paced::run(workload, target)?;
    let late_ns = timed.late_p99_ns().unwrap_or(0);
    let p50_ns = percentile_ns(&timed.latency, 50.0).unwrap_or(0);
    let too_late = late_ns > MAX_LATE_NS && late_ns as f64 > MAX_LATE_PART * p50_ns as f64;
    if too_late && workload.jobs.iter().any(|job| job.timed) {
        return Err(LiveError::Late {
            late_us: late_ns / 1000,
            p50_us: p50_ns / 1000,
        });
    }
    Ok(timed)
}

/// Issues one request after the other until the job ends.
fn lane(
    job: &Job,
    next: &AtomicUsize,
    target: &ReadCalls<'_>,
) -> Result<Histogram<u64>, LiveError> {
    let mut latency = latency_histogram();
    let longest = job
        .requests
        .iter()
        .filter(|r| r.demands())
        .map(|r| r.len)
        .max()
        .unwrap_or(0);
    let mut buffer = vec![0; longest as usize];
    while let Some(request) = job.requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        if let RequestKind::Hint(advice) = request.kind {
            (target.advise)(job.open, advice, request.offset, request.len)?;
            continue;
        }
        let began = Instant::now();
        let got = (target.read)(
            job.open,
            &mut buffer[..request.len as usize],
            request.offset,
        )? as u64;
        record_latency(&mut latency, began.elapsed().as_nanos() as u64);
        if got != request.len {
            return Err(LiveError::Short {
                offset: request.offset,
                len: request.len,
                got,
            });
        }
    }
    Ok(latency)
}

// Estimates from a few timed reads how fast a source answers sequential reads, so that a comparison can choose how
// much of a slow source to read. The estimate is rough, because it is based on only seven reads.
//
// Worked example: an object store answers 4 KiB in 30 ms and 1 MiB in 35 ms. So a workload of 16,384 reads of 4 KiB would take 8
// minutes without readahead.

/// The estimated time of a small and of a large read from a source.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A read of one page.
    pub read_ns: u64,
    /// Each additional KiB.
    pub kib_ns: u64,
}

/// Number of small reads that are timed: with fewer, one slow answer would be the median.
const TIMED_READS: u64 = 5;
const SMALL_BYTES: u64 = 4 << 10;
const LARGE_BYTES: u64 = 1 << 20;

impl Pace {
    /// Estimates the pace of a source by reading a few pages spread over it, and one longer range. Returns `None` if
    /// reads fail; the measurement itself then reports why.
    pub fn of(source: &dyn Source) -> Option<Pace> {
        let time = |len: u64, offset: u64| {
            let mut buf = vec![0; len as usize];
            let begun = Instant::now();
            source
                .read_at(&mut [IoSliceMut::new(&mut buf)], offset)
                .ok()?;
            Some(begun.elapsed().as_nanos() as u64)
        };
        // The first read establishes the connection.
        time(SMALL_BYTES, 0)?;
        let place = |n: u64| source.size() / TIMED_READS * n / SMALL_BYTES * SMALL_BYTES;
        let mut small: Vec<u64> = (0..TIMED_READS)
            .map(|n| time(SMALL_BYTES, place(n)))
            .collect::<Option<_>>()?;
        small.sort_unstable();
        let read_ns = small[small.len() / 2];
        let more = time(LARGE_BYTES, source.size() / 2)?.saturating_sub(read_ns);
        Some(Pace {
            read_ns,
            kib_ns: more / (LARGE_BYTES >> 10),
        })
    }

    /// Returns the estimated time of a run without readahead, if each read of the workload starts after the previous read.
    pub fn run_ns(&self, workload: &Workload) -> u64 {
        let bytes_ns = (workload.bytes() >> 10).saturating_mul(self.kib_ns);
        workload
            .reads()
            .saturating_mul(self.read_ns)
            .saturating_add(bytes_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::Request;

    fn workload(files: Vec<u64>, jobs: Vec<Job>) -> Workload {
        Workload::of("any", files, jobs)
    }

    fn setup(policy: &PolicySpec) -> Setup<'_> {
        Setup {
            cut: Cut::never(),
            policy,
            cache_bytes: 4 << 20,
            page_bytes: 4096,
            event_log: None,
        }
    }

    #[test]
    fn what_a_file_cannot_do_is_refused_in_one_line() {
        let workload = |files: usize, jobs| workload(vec![8192; files], jobs);
        let reads = || Job::new(0, 0, vec![Request::read(0, 1)]);
        let hint = Request::hint(Advice::Random, 0, 8192);
        assert!(check(&workload(1, vec![reads(), Job::new(0, 1, vec![hint])])).is_ok());
        let touches = Job::new(0, 1, vec![Request::read(0, 1), Request::touch(0)]);
        let many = Job::new(0, MAX_OPENS, vec![Request::read(0, 1)]);
        assert!(
            check(&workload(
                1,
                vec![Job {
                    open: MAX_OPENS - 1,
                    ..many.clone()
                }]
            ))
            .is_ok()
        );
        for (workload, does) in [
            (
                workload(1, vec![reads(), touches]),
                "takes page faults in mapped files",
            ),
            (workload(2, vec![reads()]), "opens 2 files"),
            (
                workload(1, vec![many]),
                "opens its file more than 512 times",
            ),
        ] {
            let error = check(&workload).expect_err("refused").to_string();
            let remedy = "which is not supported with --on FILE; use --on model:NAME ('foreread list models' lists them)";
            assert_eq!(error, format!("any {does}, {remedy}"));
            assert!(engine_and_kernel_refuse(&workload));
        }
    }

    fn engine_and_kernel_refuse(workload: &Workload) -> bool {
        let path = Path::new("does/not/exist");
        let policy = PolicySpec::none();
        let unfit = |result| matches!(result, Err(LiveError::Unfit { .. }));
        let source = Arc::new(foreread::source::Mem::new(Vec::new()));
        unfit(engine(source, workload, &setup(&policy)))
            && unfit(kernel(path, workload, Cut::never()))
    }

    /// Hints reach the engine and the kernel, and are no reads.
    #[test]
    fn hints_are_passed_on() {
        let scratch = Scratch::make(1 << 20, &mut |_| ()).expect("room");
        let hints = [
            Advice::Normal,
            Advice::Sequential,
            Advice::Random,
            Advice::WillNeed,
            Advice::DontNeed,
        ];
        let mut requests: Vec<Request> =
            hints.map(|advice| Request::hint(advice, 0, 1 << 20)).into();
        requests.push(Request::read(4096, 100));
        let workload = workload(vec![1 << 20], vec![Job::new(0, 0, requests)]);
        let policy = PolicySpec::parse("linux-6.18").expect("a policy");
        let source = file(&scratch.path()).expect("readable");
        let run = engine(source, &workload, &setup(&policy)).expect("readable");
        assert_eq!((run.stats.demand_reads, run.latency.len()), (1, 1));
        assert!(
            run.stats.ra_bytes >= (1 << 20) - 4096,
            "WILLNEED reads it all: {:?}",
            run.stats
        );
        let run = kernel(&scratch.path(), &workload, Cut::never()).expect("readable");
        assert_eq!(
            (
                run.stats.demand_reads,
                run.stats.demand_bytes,
                run.latency.len()
            ),
            (1, 100, 1)
        );
    }
}
