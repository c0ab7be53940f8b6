//! A workload on real storage: through the engine, or through the kernel's page cache.
//!
//! Every run starts cold: the engine is new and reads past the page cache; before a kernel run the pages of this
//! file, and of no other, are dropped. Never: writes to anything but its own scratch file, or drops caches globally.

mod scratch;

use crate::report::RunResult;
use crate::stats::{latency_histogram, record_latency};
use crate::workload::{Job, Workload};
use foreread::source::{FileSource, Source};
use foreread::{OpenError, Options, ReadError, Reader};
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use hdrhistogram::Histogram;
use rustix::fs::Advice;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use scratch::Scratch;

/// Why reading failed: one line that says what, where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The source cannot be opened.
    #[error("{0}")]
    Source(#[from] foreread::source::SourceOpenError),
    /// The engine cannot be set up.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A read through the engine failed.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// The system refused something.
    #[error("{what}: {error}")]
    Io {
        /// What was being done, and to what.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A read that lay within the file ended early.
    #[error(
        "the file became shorter while it was read: {got} of {len} bytes at offset {offset}; leave it alone and try again"
    )]
    Short {
        /// Where.
        offset: u64,
        /// Asked for.
        len: u64,
        /// Got.
        got: u64,
    },
}

impl LiveError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LiveError {
        let what = what.into();
        |error| LiveError::Io { what, error }
    }
}

/// What can be known of a file before it is measured.
pub struct Look {
    /// In bytes.
    pub size: u64,
    /// The device's `read_ahead_kb`, in bytes.
    pub readahead: Option<u64>,
    /// Smallest cache page that it can be read in without a copy.
    pub smallest_page: u64,
    /// How it will be read.
    pub about: String,
    /// What the reader of a table must know.
    pub notes: Vec<String>,
}

/// Looks at a file or block device.
///
/// # Errors
/// It cannot be opened for reading.
pub fn look(path: &Path) -> Result<Look, LiveError> {
    let source = FileSource::open(path)?;
    let describe = source.describe();
    // `file:PATH, direct`: the path is shown elsewhere.
    let about = describe.rsplit_once(", ").map_or(describe.as_str(), |(_, how)| how).to_string();
    Ok(Look {
        size: source.size(),
        readahead: foreread::source::default_readahead_bytes(path),
        smallest_page: u64::from(source.alignment().offset).max(512),
        notes: Vec::new(),
        about,
    })
}

/// Time that something may take, on the wall clock.
pub struct Budget {
    until: Instant,
}

impl Budget {
    /// That long from now.
    #[must_use]
    pub fn seconds(seconds: u64) -> Budget {
        Budget { until: Instant::now() + Duration::from_secs(seconds) }
    }

    /// It is over.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// How the engine is set up for a run.
pub struct Setup<'a> {
    /// Which readahead.
    pub policy: &'a PolicySpec,
    /// Size of the cache in bytes.
    pub cache_bytes: u64,
    /// Size of a cache page in bytes.
    pub page_bytes: u64,
    /// Where the event log goes, if it is wanted.
    pub event_log: Option<PathBuf>,
}

/// One run through the engine, in a cache of its own.
///
/// # Errors
/// The file cannot be opened or read, or the log cannot be written.
pub fn engine(path: &Path, workload: &Workload, setup: &Setup<'_>) -> Result<RunResult, LiveError> {
    let Setup { policy, cache_bytes, page_bytes, ref event_log } = *setup;
    let event_log = event_log.clone();
    let options = Options { policy: policy.clone().into(), cache_bytes, page_bytes, event_log, ..Options::default() };
    let first = Reader::open(Arc::new(FileSource::open(path)?), options)?;
    let opens = workload.jobs.iter().map(|j| j.open).max().unwrap_or(0);
    let others: Vec<Reader> = (0..opens).map(|_| first.reopen()).collect::<Result<_, _>>()?;
    let reader = |open: u32| if open == 0 { &first } else { &others[open as usize - 1] };
    let timed = run_jobs(workload, &|open, buf, offset| Ok(reader(open).read_at(buf, offset)?))?;
    first.flush_event_log().map_err(LiveError::io("writing the event log"))?;
    Ok(result(timed, first.stats(), workload, page_bytes, false))
}

/// One run through the page cache, at the device's own setting, with a descriptor for each open description.
///
/// # Errors
/// The file cannot be opened or read.
pub fn kernel(path: &Path, workload: &Workload) -> Result<RunResult, LiveError> {
    let open = || File::open(path).map_err(LiveError::io(format!("opening {}", path.display())));
    let first = open()?;
    rustix::fs::fadvise(&first, 0, None, Advice::DontNeed)
        .map_err(|e| LiveError::io(format!("dropping the cached pages of {}", path.display()))(e.into()))?;
    let opens = workload.jobs.iter().map(|j| j.open).max().unwrap_or(0);
    let mut files = vec![first];
    for _ in 0..opens {
        files.push(open()?);
    }
    let read = |open: u32, buf: &mut [u8], offset: u64| {
        files[open as usize].read_at(buf, offset).map_err(LiveError::io(format!("reading {}", path.display())))
    };
    let timed = run_jobs(workload, &read)?;
    let stats = Stats { demand_reads: workload.reads(), demand_bytes: workload.bytes(), ..Stats::default() };
    Ok(result(timed, stats, workload, 4096, true))
}

fn result((time, latency): Timed, stats: Stats, workload: &Workload, page_bytes: u64, kernel: bool) -> RunResult {
    let distinct_bytes = workload.distinct_bytes(page_bytes);
    RunResult { time_s: time.as_secs_f64(), stats, latency, distinct_bytes, kernel }
}

/// Wall-clock time of a run, and the latency of each read.
type Timed = (Duration, Histogram<u64>);

/// A read through whatever is measured: open description, buffer, offset.
type ReadFn<'a> = &'a (dyn Fn(u32, &mut [u8], u64) -> Result<usize, LiveError> + Sync);

/// Carries out every job, a thread for each request that a job keeps going.
fn run_jobs(workload: &Workload, read: ReadFn<'_>) -> Result<Timed, LiveError> {
    let lanes: Vec<(&Job, AtomicUsize)> = workload.jobs.iter().map(|j| (j, AtomicUsize::new(0))).collect();
    let began = Instant::now();
    if let [(job, next)] = lanes.as_slice()
        && job.depth <= 1
    {
        // A single reader needs no thread of its own, and none is timed.
        let latency = lane(job, next, read)?;
        return Ok((began.elapsed(), latency));
    }
    let latency = std::thread::scope(|scope| {
        let threads: Vec<_> = (lanes.iter())
            .flat_map(|(job, next)| (0..job.depth.max(1)).map(move |_| (*job, next)))
            .map(|(job, next)| scope.spawn(move || lane(job, next, read)))
            .collect();
        let mut all = latency_histogram();
        for thread in threads {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            // The same bounds on both sides: adding cannot fail.
            let _ = all.add(&part);
        }
        Ok::<_, LiveError>(all)
    })?;
    Ok((began.elapsed(), latency))
}

/// One request after the other until the job has no more.
fn lane(job: &Job, next: &AtomicUsize, read: ReadFn<'_>) -> Result<Histogram<u64>, LiveError> {
    let mut latency = latency_histogram();
    let longest = job.requests.iter().map(|r| r.len).max().unwrap_or(0);
    let mut buffer = vec![0; longest as usize];
    while let Some(request) = job.requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        if request.think_ns > 0 {
            std::thread::sleep(Duration::from_nanos(request.think_ns));
        }
        let began = Instant::now();
        let got = read(job.open, &mut buffer[..request.len as usize], request.offset)? as u64;
        record_latency(&mut latency, began.elapsed().as_nanos() as u64);
        if got != request.len {
            return Err(LiveError::Short { offset: request.offset, len: request.len, got });
        }
    }
    Ok(latency)
}
