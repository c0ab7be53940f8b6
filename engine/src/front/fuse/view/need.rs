//! Decides how much of the configured cache a mount uses: as much as its readers need.
//!
//! The kernel caches what programs have read from a mount. So the engine's cache only has to hold bytes that are read ahead, and bytes
//! that are read again after the kernel has dropped them. A mount therefore starts with the part of the cache that one sequential reader
//! needs. If there are more readers, or if evicted bytes are read again, the mount uses more of the cache. Memory that the mount does not
//! use is not touched. When a mount filled a 256 MiB cache with one sequential file of an object store, the first touches of this memory
//! took a quarter of the CPU time.
//!
//! ```text
//!   a file is open ──► 96 MiB   three are open, or 13 reads wait ──► all of 256 MiB
//!   1/64 of it was evicted and demanded again ──► twice as much
//! ```
//! The mount never gives memory back; later readers reuse it.

use crate::Engine;
use std::sync::atomic::{AtomicU64, Ordering};

/// For one sequential reader: half of it may be in flight, which is two windows of 24 MiB. With 64 MiB, a file of 256 MiB on storage
/// with 30 ms latency and 200 MB/s took up to a fifth longer.
const READER_BYTES: u64 = 96 << 20;
/// Maximum number of kernel requests that one sequential reader has in flight.
const REQUESTS: u64 = 6;
/// When this fraction of the cache was evicted and demanded again, the cache grows.
const THRASHED_PART: u64 = 64;
/// Number of reads between two checks, because a check takes the engine's lock.
const LOOK_EVERY: u64 = 256;

#[derive(Debug)]
pub struct CacheNeed {
    now: AtomicU64,
    reads: AtomicU64,
    reading: AtomicU64,
    /// Bytes that were evicted and demanded again, at the time when it last grew.
    thrashed: AtomicU64,
}

/// A read in progress: it is counted until this value is dropped.
pub struct CountedRead<'a>(&'a CacheNeed);

impl Drop for CountedRead<'_> {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CacheNeed {
    /// Creates the state for a mount; `kernel_keeps` is true if the kernel caches the bytes that programs read.
    pub fn new(engine: &Engine, kernel_keeps: bool) -> CacheNeed {
        let all = engine.cache_bytes();
        let now = if kernel_keeps {
            READER_BYTES.min(all)
        } else {
            all
        };
        if now < all {
            engine.bound_cache(now);
        }
        CacheNeed {
            now: AtomicU64::new(now),
            reads: AtomicU64::new(0),
            reading: AtomicU64::new(0),
            thrashed: AtomicU64::new(0),
        }
    }

    pub fn opened(&self, engine: &Engine, files: usize) {
        self.grow(engine, READER_BYTES.saturating_mul(files as u64));
    }

    /// Reports that a read starts.
    pub fn begin(&self, engine: &Engine) -> CountedRead<'_> {
        let reading = self.reading.fetch_add(1, Ordering::Relaxed) + 1;
        let read = CountedRead(self);
        let now = self.now.load(Ordering::Relaxed);
        if now >= engine.cache_bytes() {
            return read;
        }
        let readers = reading.div_ceil(REQUESTS);
        self.grow(engine, READER_BYTES.saturating_mul(readers));
        let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if reads.is_multiple_of(LOOK_EVERY) {
            let thrashed = engine.stats().thrash_bytes;
            let before = self.thrashed.load(Ordering::Relaxed);
            if thrashed.saturating_sub(before) >= now / THRASHED_PART {
                self.thrashed.store(thrashed, Ordering::Relaxed);
                self.grow(engine, now.saturating_mul(2));
            }
        }
        read
    }

    fn grow(&self, engine: &Engine, bytes: u64) {
        let bytes = bytes.min(engine.cache_bytes());
        if self.now.fetch_max(bytes, Ordering::Relaxed) < bytes {
            engine.bound_cache(bytes);
        }
    }
}
