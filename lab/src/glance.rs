//! A short measurement of a device by a few dozen direct reads: the latency of a random page and the rate of large
//! reads.
//!
//! ```text
//!   4 KiB at random, one at a time     256 at most, 0.8 s     the median is the latency
//!   1 MiB at random, four at a time     96 at most, 1.2 s     the rate is that of the last two thirds
//! ```
//! The two measurements together read at most 97 MiB. Only the last two thirds of the large reads are measured, because storage that was
//! idle may answer the first reads faster than it can sustain. Example: a 200 MB/s link with 20 MB of burst credit delivers 490 MB/s over
//! 33 MiB, but 205 MB/s over the last two thirds of 96 MiB. The reads bypass the page cache.

use foreread::source::{FileSource, Source};
use foreread_os::failure::{Failure, FailureKind};
use foreread_os::threads::spawn_scoped;
use foreread_sim::rng::Rng;
use std::io::IoSliceMut;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Buffers are aligned to this many bytes: no direct I/O needs more.
pub(crate) const ALIGN: usize = 4096;
const SMALL_BYTES: u64 = 4 << 10;
const SMALL_READS: usize = 256;
const SMALL_TIME: Duration = Duration::from_millis(800);
const LARGE_BYTES: u64 = 1 << 20;
const LARGE_READS: usize = 24;
const LARGE_TIME: Duration = Duration::from_millis(1200);
const READERS: u64 = 4;

/// The result of a short measurement: latency and rate of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    /// Median latency of random reads of a page, in microseconds.
    pub latency_us: f64,
    /// Rate of large reads, in 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Measures a device. Returns `None` if direct reads are refused or the device is too small.
///
/// # Errors
/// Returns an error if the device cannot be opened or read.
pub fn glance(path: &Path) -> Result<Option<Glance>, Failure> {
    let source = FileSource::open(path)?;
    if !source.is_direct() || source.size() < 2 * READERS * LARGE_BYTES {
        return Ok(None);
    }
    // Use other offsets than the last time: the device or its host may have cached those.
    let seed = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = seed.map_or(1, |since| since.as_nanos() as u64);
    let mut waits = series(&source, SMALL_BYTES, SMALL_READS, SMALL_TIME, seed)?;
    let large = |n: u64| {
        let seed = seed.wrapping_add(n);
        series(&source, LARGE_BYTES, LARGE_READS, LARGE_TIME, seed)
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
            .collect::<Result<Vec<Vec<TimedRead>>, Failure>>()
    })?;
    let ends: Vec<Duration> = all.iter().flatten().map(|read| read.end - began).collect();
    waits.sort_unstable_by_key(|read| read.took);
    Ok(Some(Glance {
        latency_us: waits[waits.len() / 2].took.as_secs_f64() * 1e6,
        mb_per_s: lasting_rate(&ends),
        bytes: ends.len() as u64 * LARGE_BYTES + waits.len() as u64 * SMALL_BYTES,
    }))
}

/// Bytes of one sequential measurement, and its time limit.
const IN_ORDER_BYTES: u64 = 8 << 20;
const IN_ORDER_TIME: Duration = Duration::from_millis(80);
/// Larger windows are no faster.
const MAX_WINDOW_BYTES: u64 = 4 << 20;

/// Measures the rate of a sequential reader with readahead windows of this size, in 10^6 bytes per second. Direct reads
/// imitate the kernel's readahead, which has two windows in flight. Returns `None` if direct reads are refused or the
/// file is too small.
///
/// # Errors
/// Returns an error if the file cannot be opened or read.
pub fn in_order(path: &Path, window_bytes: u64) -> Result<Option<f64>, Failure> {
    let source = FileSource::open(path)?;
    let window = window_bytes.clamp(SMALL_BYTES, MAX_WINDOW_BYTES);
    let span = IN_ORDER_BYTES.min(source.size() / 2 / window * window);
    if !source.is_direct() || span < 2 * window {
        return Ok(None);
    }
    let seed = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut rng = Rng::new(seed.map_or(1, |since| since.as_nanos() as u64));
    let first = rng.below((source.size() - span) / window + 1) * window;
    let began = Instant::now();
    let one = |n: u64| -> Result<(u64, Instant), Failure> {
        let mut arena = vec![1; window as usize + ALIGN];
        let skip = arena.as_ptr().align_offset(ALIGN).min(ALIGN);
        let buffer = &mut arena[skip..skip + window as usize];
        let (mut at, mut bytes) = (n * window, 0);
        while at < span && (bytes == 0 || began.elapsed() < IN_ORDER_TIME) {
            read(&source, buffer, first + at)?;
            bytes += window;
            at += 2 * window;
        }
        Ok((bytes, Instant::now()))
    };
    let (own, other) = std::thread::scope(|scope| {
        let other = spawn_scoped(scope, "foreread-glance", || one(1)).map_err(refused)?;
        let own = one(0)?;
        let other = other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<_, Failure>((own, other))
    })?;
    let seconds = (own.1.max(other.1) - began).as_secs_f64().max(1e-9);
    Ok(Some((own.0 + other.0) as f64 / 1e6 / seconds))
}

/// Rate of large reads by the times at which they ended, in 10^6 bytes a second. The first third is left out if
/// enough remains.
fn lasting_rate(ends: &[Duration]) -> f64 {
    let mut ends = ends.to_vec();
    ends.sort_unstable();
    let (skipped, since) = match ends.len() / 3 {
        third if third > READERS as usize => (third, ends[third - 1]),
        _ => (0, Duration::ZERO),
    };
    let until = ends.last().copied().unwrap_or_default();
    let bytes = (ends.len() - skipped) as u64 * LARGE_BYTES;
    bytes as f64 / 1e6 / (until - since).as_secs_f64().max(1e-9)
}

pub(crate) fn refused(error: std::io::Error) -> Failure {
    Failure::of(FailureKind::Input, error)
}

pub(crate) fn read(source: &dyn Source, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
    let wanted = buffer.len();
    let got = source
        .read_at(&mut [IoSliceMut::new(buffer)], offset)
        .map_err(|error| {
            let remedy = "check the storage, and do not change the file while it is measured";
            Failure::input("reading the source", "", remedy).caused_by(error)
        })?;
    if got == wanted {
        Ok(())
    } else {
        let what = "the source became shorter while it was read, at offset";
        let what = format!("{what} {offset}");
        Err(Failure::input(what, "", "do not change it, and try again"))
    }
}

/// A read, and how long it took.
struct TimedRead {
    took: Duration,
    end: Instant,
}

/// Reads until there are enough reads or the time is over; at least once.
fn series(
    source: &FileSource,
    bytes: u64,
    most: usize,
    time: Duration,
    seed: u64,
) -> Result<Vec<TimedRead>, Failure> {
    let mut arena = vec![1; bytes as usize + ALIGN];
    let skip = arena.as_ptr().align_offset(ALIGN).min(ALIGN);
    let buffer = &mut arena[skip..skip + bytes as usize];
    let mut rng = Rng::new(seed);
    let (began, mut done) = (Instant::now(), Vec::new());
    while done.len() < most && (done.is_empty() || began.elapsed() < time) {
        let before = Instant::now();
        read(source, buffer, rng.below(source.size() / bytes) * bytes)?;
        let end = Instant::now();
        let took = end - before;
        done.push(TimedRead { took, end });
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 MB at once, then 200 MB/s; and a storage that is too slow for more than a few reads.
    #[test]
    fn the_rate_is_the_one_that_lasts() {
        let ms = Duration::from_millis;
        let ends = |n: u64| ms(1 + 5 * n.saturating_sub(20));
        let saved: Vec<Duration> = (0..96).map(ends).collect();
        let rate = lasting_rate(&saved);
        assert!((rate - 1.048_576 / 0.005).abs() < 5.0, "{rate}");
        let slow = [ms(1000), ms(1000), ms(2000), ms(2000)];
        assert!((lasting_rate(&slow) - 4.0 * 1.048_576 / 2.0).abs() < 0.01);
    }
}
