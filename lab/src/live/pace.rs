//! Estimates from a few timed reads how fast a source answers sequential reads, so that a comparison can choose how
//! much of a slow source to read. The estimate is rough, because it is based on only seven reads.
//!
//! Worked example: an object store answers 4 KiB in 30 ms and 1 MiB in 35 ms. So a workload of 16,384 reads of 4 KiB would take 8
//! minutes without readahead.

use foreread::source::Source;
use foreread_sim::workload::Workload;
use std::io::IoSliceMut;
use std::time::Instant;

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
    #[must_use]
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
    #[must_use]
    pub fn run_ns(&self, workload: &Workload) -> u64 {
        let bytes_ns = (workload.bytes() >> 10).saturating_mul(self.kib_ns);
        workload
            .reads()
            .saturating_mul(self.read_ns)
            .saturating_add(bytes_ns)
    }
}
