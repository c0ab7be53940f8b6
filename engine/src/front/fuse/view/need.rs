//! How much of the cache a mount uses: what its readers need.
//!
//! The kernel keeps what programs have read of a mount. The cache has to hold what is read ahead, and what is read again after the kernel has
//! dropped it. So a mount begins with a part of the cache for one reader in order, and takes more of it for more readers and while bytes that
//! left are demanded again. Memory that it does not take is not touched: with all of 256 MiB the first touch was a quarter of the processor
//! time of one file of an object store in order.
//!
//! ```text
//!   a file is open ──► 96 MiB   three are open, or 13 reads wait ──► all of 256 MiB
//!   1/64 of it was dropped and demanded again ──► twice as much
//! ```
//! Never: gives memory back; the next reader takes what is there.

use crate::Engine;
use std::sync::atomic::{AtomicU64, Ordering};

/// For a reader in order: half of it may be in flight, which is two windows of 24 MiB. With 64 MiB a file of 256 MiB over 30 ms and 200 MB/s
/// took up to a fifth longer.
const READER_BYTES: u64 = 96 << 20;
/// Requests of the kernel that one reader in order has under way at once, at most.
const REQUESTS: u64 = 6;
/// The part of the cache that is dropped and demanded again before it grows.
const THRASHED_PART: u64 = 64;
/// Reads between two looks: a look takes the engine's lock.
const LOOK_EVERY: u64 = 256;

#[derive(Debug)]
pub struct CacheNeed {
    now: AtomicU64,
    reads: AtomicU64,
    /// Those under way.
    reading: AtomicU64,
    /// Bytes dropped and demanded again until it last grew.
    thrashed: AtomicU64,
}

/// A read, until it is dropped.
pub struct CountedRead<'a>(&'a CacheNeed);

impl Drop for CountedRead<'_> {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CacheNeed {
    /// Of a mount of which the kernel keeps what was read, or does not.
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

    /// So many files are open.
    pub fn opened(&self, engine: &Engine, files: usize) {
        self.grow(engine, READER_BYTES.saturating_mul(files as u64));
    }

    /// A read begins.
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
