//! Measures one point (request size and queue depth) on a real source, with threads that read for a while.
//!
//! Reads go through the engine's [`Source`], as the engine's own reads do, and each read in flight has its own thread. The buffers are
//! in huge pages, as the engine's are, and their memory is faulted in before the measurement: a virtual disk read 2 MiB at 550 MB/s into
//! scattered pages of 4 KiB, and at 3000 MB/s into a huge page. Nothing is written to the source.

use super::grid::{Offsets, Task};
use super::{About, Slice, Spread, Station, cached, too_small};
use foreread::source::{FileSource, Source, default_readahead_bytes};
use foreread::{Options, Reader};
use foreread_os::failure::{Failure, FailureKind};
use foreread_os::host::Host;
use foreread_os::open::regular;
use foreread_os::threads::spawn_scoped;
use foreread_os::threads::waited_for_processor;
use foreread_sim::stats::{latency_histogram, merged, record_latency};
use memmap2::{Advice, MmapMut};
use rustix::fs::fadvise;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Bytes that are resident while hits are timed, and bytes of one hit: the size that many programs read at once.
const HIT_SPAN: u64 = 8 << 20;
const HIT_BYTES: u64 = 128 << 10;
const HIT_ROUNDS: usize = 7;

/// The first buffer begins at a multiple of this, which is the size of a huge page.
const ALIGN: usize = 2 << 20;

/// A real source, opened.
pub(crate) struct Live {
    path: PathBuf,
    pub(crate) source: Arc<FileSource>,
    span: u64,
    arena: MmapMut,
}

/// When the threads of a measurement stop; each does at least one read.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    pub time: Duration,
    /// Most reads of one thread.
    pub reads: usize,
    /// Whether a read that does not count comes first.
    pub warm_up: bool,
}

/// What a thread has measured.
pub(crate) struct Lane {
    pub began: Instant,
    pub ended: Instant,
    /// How long it waited for a processor.
    pub waited: Duration,
    /// When each read ended.
    pub done: Vec<Instant>,
    pub latency: hdrhistogram::Histogram<u64>,
}

impl Live {
    /// Opens a file or block device, of which the first `most` bytes will be read.
    pub(crate) fn open(path: &Path, most: u64) -> Result<Live, Failure> {
        let source = FileSource::open(path)?;
        let span = source.size().min(most);
        Ok(Live {
            path: path.to_path_buf(),
            source: Arc::new(source),
            span,
            arena: buffers_of(0)?,
        })
    }

    /// Reads with one thread for each read in flight.
    pub(crate) fn lanes(
        &mut self,
        task: Task,
        stop: Stop,
        seed: u64,
    ) -> Result<Vec<Lane>, Failure> {
        let size = task.bytes as usize * task.depth as usize + ALIGN;
        if self.arena.len() < size {
            self.arena = buffers_of(size)?;
        }
        let skip = self.arena.as_ptr().align_offset(ALIGN).min(ALIGN);
        let buffers = self.arena[skip..]
            .chunks_exact_mut(task.bytes as usize)
            .take(task.depth as usize);
        let offsets = Mutex::new(Offsets::new(task, self.span, seed));
        let next = || {
            offsets
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next()
        };
        let source = &*self.source;
        if task.depth == 1 {
            return buffers
                .map(|buffer| lane(source, buffer, &next, stop, None))
                .collect();
        }
        let barrier = Barrier::new(task.depth as usize);
        std::thread::scope(|scope| {
            let (next, barrier) = (&next, &barrier);
            let (mut threads, mut gates) = (Vec::new(), Vec::new());
            for buffer in buffers {
                // If a thread cannot be started, none begins: the others would wait for it at the barrier.
                let (gate, opened) = channel::<()>();
                let work = move || {
                    opened
                        .recv()
                        .ok()
                        .map(|()| lane(source, buffer, next, stop, Some(barrier)))
                };
                let refused = |error| Failure::of(FailureKind::Input, error);
                threads.push(spawn_scoped(scope, "foreread-probe", work).map_err(refused)?);
                gates.push(gate);
            }
            gates
                .iter()
                .for_each(|gate| gate.send(()).unwrap_or_default());
            let join = |t: ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|p| std::panic::resume_unwind(p))
            };
            threads.into_iter().filter_map(join).collect()
        })
    }
}

/// Maps memory in huge pages where the kernel has them, and writes to it: otherwise a page fault would interrupt a read.
fn buffers_of(bytes: usize) -> Result<MmapMut, Failure> {
    let refused = |error| Failure::of(FailureKind::Input, error);
    let mut memory = MmapMut::map_anon(bytes.max(1)).map_err(refused)?;
    let _ = memory.advise(Advice::HugePage);
    memory.fill(1);
    Ok(memory)
}

impl Station for Live {
    fn about(&self) -> Result<About, Failure> {
        let source = format!("file:{}", self.path.display());
        if !self.source.is_direct() {
            return Err(cached(&source));
        }
        Ok(About {
            source,
            how: "direct".to_string(),
            capacity_bytes: self.source.size(),
            readahead_bytes: default_readahead_bytes(&self.path),
            disk: Host::here().device_of(&self.path).ok(),
        })
    }

    fn span(&self) -> u64 {
        self.span
    }

    fn slice(&mut self, task: Task, length: Duration, seed: u64) -> Result<Slice, Failure> {
        let began = Instant::now();
        let stop = Stop {
            time: length,
            reads: usize::MAX,
            warm_up: true,
        };
        let lanes = self.lanes(task, stop, seed)?;
        let reads = lanes.iter().map(|lane| lane.done.len() as u64).sum();
        Ok(Slice {
            reads,
            bytes_per_s: rate(&lanes, task.bytes),
            late_bytes_per_s: late_rate(&lanes, task.bytes),
            latency: merged(lanes.iter().map(|lane| &lane.latency)),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    fn host_ns_per_kib(&self) -> Result<Spread, Failure> {
        let span = self.span.min(HIT_SPAN);
        let bytes = HIT_BYTES.min(span);
        let options = Options {
            cache_bytes: 4 * HIT_SPAN,
            ..Options::default()
        };
        let reader = Reader::open(Arc::clone(&self.source) as Arc<dyn Source>, options)?;
        let mut buffer = vec![1; bytes as usize];
        let mut rounds = Vec::new();
        for round in 0..=HIT_ROUNDS {
            let began = Instant::now();
            let mut got = 0;
            for at in (0..span / bytes).map(|n| n * bytes) {
                got += reader.read_at(&mut buffer, at)? as u64;
            }
            // The first round brings the bytes into the cache.
            if round > 0 && got > 0 {
                rounds.push(began.elapsed().as_nanos() as f64 * 1024.0 / got as f64);
            }
        }
        Spread::of(&rounds).ok_or_else(|| too_small(self.span))
    }
}

/// The larger of two rates: all bytes over the time from the first start to the last end; or the bytes that arrived while all threads
/// were still reading, over that time. In a slice of a few reads some threads finish early, and that end is a large part. Neither exceeds
/// what the storage delivers. The rates of the threads are not summed: if each thread has one read in a queue, the first read ends at
/// once, and its rate would count as much as that of the last.
pub(crate) fn rate(lanes: &[Lane], read_bytes: u64) -> f64 {
    let Some(began) = lanes.iter().map(|lane| lane.began).min() else {
        return 0.0;
    };
    let until = |end: Option<Instant>| {
        let end = end.unwrap_or(began);
        let done = lanes.iter().flat_map(|lane| &lane.done);
        let reads = done.filter(|done| **done <= end).count();
        match (end - began).as_secs_f64() {
            seconds if seconds > 0.0 => reads as f64 * read_bytes as f64 / seconds,
            _ => 0.0,
        }
    };
    let ends = || lanes.iter().map(|lane| lane.ended);
    until(ends().max()).max(until(ends().min()))
}

/// Like [`rate`], for the second half of the time in which all threads read.
fn late_rate(lanes: &[Lane], read_bytes: u64) -> f64 {
    let (began, ended) = (
        lanes.iter().map(|lane| lane.began).min(),
        lanes.iter().map(|lane| lane.ended).min(),
    );
    let Some((began, ended)) = began.zip(ended) else {
        return 0.0;
    };
    let half = ended.saturating_duration_since(began) / 2;
    let done = lanes.iter().flat_map(|lane| &lane.done);
    let late = done.filter(|done| (began + half..=ended).contains(done));
    let seconds = half.as_secs_f64();
    match seconds > 0.0 {
        true => late.count() as f64 * read_bytes as f64 / seconds,
        false => 0.0,
    }
}

/// One thread: reads until there are enough reads or the time is over.
fn lane(
    source: &dyn Source,
    buffer: &mut [u8],
    next: &(dyn Fn() -> u64 + Sync),
    stop: Stop,
    barrier: Option<&Barrier>,
) -> Result<Lane, Failure> {
    let first = match stop.warm_up {
        true => read(source, buffer, next()),
        false => Ok(()),
    };
    if let Some(barrier) = barrier {
        // Wait before checking for a failure: the other threads wait here too.
        barrier.wait();
    }
    first?;
    let mut latency = latency_histogram();
    let waited = || waited_for_processor().unwrap_or_default();
    let waited_before = waited();
    let began = Instant::now();
    let (mut done, mut last) = (Vec::new(), began);
    while done.is_empty() || done.len() < stop.reads && last - began < stop.time {
        read(source, buffer, next())?;
        let now = Instant::now();
        record_latency(&mut latency, (now - last).as_nanos() as u64);
        done.push(now);
        last = now;
    }
    Ok(Lane {
        began,
        ended: last,
        waited: waited().saturating_sub(waited_before),
        done,
        latency,
    })
}

fn read(source: &dyn Source, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
    let wanted = buffer.len();
    let got = source
        .read_at(&mut [IoSliceMut::new(buffer)], offset)
        .map_err(|error| {
            let remedy = "check the storage, and do not change the file while it is measured";
            Failure::input("reading the source", "", remedy).caused_by(error)
        })?;
    if got == wanted {
        return Ok(());
    }
    let what = format!("the source became shorter while it was read, at offset {offset}");
    Err(Failure::input(what, "", "do not change it, and try again"))
}

/// Today's date in UTC, such as `2026-11-30`.
pub fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_string()
}

// Measures how long it takes to read whole small files of a FUSE file system, one at a time and several in parallel.
//
// The time cannot be derived from reads of one large file: rclone makes a separate request for each open file, and
// discards its data whenever a reader jumps.
//
// ```text
//   files of the trace ──► one after the other, 24 at most, 2 s     33 ms a file
//                     └──► 16 at once, 128 at most                  2.4 ms a file
// ```
// Files are read through the page cache, as programs do.

/// Number of files that are read one at a time, and the time limit for that.
const ALONE: usize = 24;
const ALONE_TIME: Duration = Duration::from_secs(2);
/// Number of files that are read in parallel, and by how many readers: as many requests as a mount has in flight.
const TOGETHER: usize = 128;
const READERS: usize = 16;
const MAX_BYTES: u64 = 1 << 20;

/// Mean times to read a small file, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct FileTimes {
    pub alone_s: f64,
    /// With other reads in flight.
    pub together_s: f64,
}

/// Reads a file as a whole after dropping its cached pages. Returns `None` if it is large or missing.
fn read_whole(name: &str, buffer: &mut [u8]) -> Option<()> {
    let file = regular(Path::new(name)).ok()?;
    let size = file.metadata().ok()?.len();
    if size == 0 || size > MAX_BYTES {
        return None;
    }
    fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).ok()?;
    file.read_exact_at(&mut buffer[..size as usize], 0).ok()
}

/// Measures how long it takes to read these small files. Returns `None` if too few of them can be read.
pub fn small_files(names: &[String]) -> Option<FileTimes> {
    let mut buffer = vec![0; MAX_BYTES as usize];
    let (began, mut alone) = (Instant::now(), Vec::new());
    let mut names_left = names.iter();
    while alone.len() < ALONE && began.elapsed() < ALONE_TIME {
        let Some(name) = names_left.next() else { break };
        let since = Instant::now();
        alone.extend(read_whole(name, &mut buffer).map(|()| since.elapsed().as_secs_f64()));
    }
    let rest: Vec<&String> = names_left.take(TOGETHER).collect();
    if alone.is_empty() || rest.len() < READERS {
        return None;
    }
    let (next, done, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        let work = || {
            let mut buffer = vec![0; MAX_BYTES as usize];
            while let Some(name) = rest.get(next.fetch_add(1, Ordering::Relaxed)) {
                let is_read = read_whole(name, &mut buffer).is_some();
                done.fetch_add(usize::from(is_read), Ordering::Relaxed);
            }
        };
        // If a thread cannot be started, the others read all.
        (0..READERS).for_each(|_| drop(spawn_scoped(scope, "foreread-files", work)));
    });
    let together = began.elapsed().as_secs_f64();
    let read = done.into_inner();
    (read >= READERS).then(|| FileTimes {
        alone_s: alone.iter().sum::<f64>() / alone.len() as f64,
        together_s: together / read as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten reads given at once to something that does one in a millisecond: ten in ten milliseconds, not 29.
    #[test]
    fn a_queue_is_not_faster_than_its_device() {
        let began = Instant::now();
        let lanes: Vec<Lane> = (1..=10).map(|n| done_at(began, &[n])).collect();
        let found = rate(&lanes, 1000);
        assert!((found - 1e6).abs() < 1.0, "{found}");
        assert_eq!(rate(&[], 0).to_bits(), 0.0_f64.to_bits());
    }

    fn done_at(began: Instant, ms: &[u64]) -> Lane {
        let done: Vec<Instant> = ms
            .iter()
            .map(|n| began + Duration::from_millis(*n))
            .collect();
        Lane {
            began,
            ended: done[done.len() - 1],
            waited: Duration::ZERO,
            done,
            latency: latency_histogram(),
        }
    }

    /// Eight threads, and a storage that does six reads at once in 10 ms: at first six have theirs, then the two, with four of the others.
    #[test]
    fn the_end_of_a_slice_is_not_slow_storage() {
        let began = Instant::now();
        let six = (0..6).map(|_| done_at(began, &[10, 20, 30]));
        let late = (0..2).map(|_| done_at(began, &[20, 30, 40]));
        let lanes: Vec<Lane> = six.chain(late).collect();
        let found = rate(&lanes, 1000);
        assert!((found - 22e3 / 0.030).abs() < 1.0, "{found}");
    }

    /// Ten reads in the first 10 ms, as of a budget that has been saved, then one in 10 ms.
    #[test]
    fn what_lasts_is_the_second_half() {
        let began = Instant::now();
        let mut ms: Vec<u64> = (1..=10).collect();
        ms.extend((2..=20).map(|n| 10 * n));
        let found = late_rate(&[done_at(began, &ms)], 1000);
        assert!((found - 11e3 / 0.1).abs() < 1.0, "{found}");
        assert_eq!(late_rate(&[], 1000).to_bits(), 0.0_f64.to_bits());
    }
}
