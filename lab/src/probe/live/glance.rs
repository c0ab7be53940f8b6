//! A short look at a device: the latency of a random page and the rate of large reads, by a few dozen direct reads.
//!
//! ```text
//!   4 KiB at random, one at a time     256 at most, 0.8 s     the median is the latency
//!   1 MiB at random, four at a time     32 at most, 1.2 s     all bytes over all the time is the rate
//! ```
//! Together 33 MiB at most. Never: a read through the page cache.

use super::{ALIGN, read, refused};
use foreread::source::{FileSource, Source};
use foreread_os::failure::Failure;
use foreread_os::threads::spawn_scoped;
use foreread_sim::rng::Rng;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SMALL_BYTES: u64 = 4 << 10;
const SMALL_READS: usize = 256;
const SMALL_TIME: Duration = Duration::from_millis(800);
const LARGE_BYTES: u64 = 1 << 20;
const LARGE_READS: usize = 8;
const LARGE_TIME: Duration = Duration::from_millis(1200);
const READERS: u64 = 4;

/// What it shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    /// Median of random reads of a page, in microseconds.
    pub latency_us: f64,
    /// In 10^6 bytes a second.
    pub mb_per_s: f64,
    /// What was read.
    pub bytes: u64,
}

/// Looks; nothing where direct reads are refused or the device is small.
///
/// # Errors
/// It cannot be opened or read.
pub fn glance(path: &Path) -> Result<Option<Glance>, Failure> {
    let source = FileSource::open(path)?;
    if !source.is_direct() || source.size() < 2 * READERS * LARGE_BYTES {
        return Ok(None);
    }
    // Other places than the last time: the device or its host may have cached those.
    let seed = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = seed.map_or(1, |since| since.as_nanos() as u64);
    let mut waits = series(&source, SMALL_BYTES, SMALL_READS, SMALL_TIME, seed)?;
    let large = |n: u64| {
        series(
            &source,
            LARGE_BYTES,
            LARGE_READS,
            LARGE_TIME,
            seed.wrapping_add(n),
        )
    };
    let began = Instant::now();
    let all = std::thread::scope(|scope| {
        let start = |n| spawn_scoped(scope, "foreread-glance", move || large(n)).map_err(refused);
        let threads: Vec<_> = (1..=READERS).map(start).collect::<Result<_, Failure>>()?;
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads
            .into_iter()
            .map(join)
            .collect::<Result<Vec<Vec<Duration>>, Failure>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = all.iter().map(Vec::len).sum::<usize>() as u64 * LARGE_BYTES;
    waits.sort_unstable();
    Ok(Some(Glance {
        latency_us: waits[waits.len() / 2].as_secs_f64() * 1e6,
        mb_per_s: bytes as f64 / 1e6 / seconds.max(1e-9),
        bytes: bytes + waits.len() as u64 * SMALL_BYTES,
    }))
}

/// How long each read took; one at least.
fn series(
    source: &FileSource,
    bytes: u64,
    most: usize,
    time: Duration,
    seed: u64,
) -> Result<Vec<Duration>, Failure> {
    let mut arena = vec![1; bytes as usize + ALIGN];
    let skip = arena.as_ptr().align_offset(ALIGN).min(ALIGN);
    let buffer = &mut arena[skip..skip + bytes as usize];
    let mut rng = Rng::new(seed);
    let (began, mut waits) = (Instant::now(), Vec::new());
    while waits.len() < most && (waits.is_empty() || began.elapsed() < time) {
        let before = Instant::now();
        read(source, buffer, rng.below(source.size() / bytes) * bytes)?;
        waits.push(before.elapsed());
    }
    Ok(waits)
}
