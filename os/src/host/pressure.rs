//! Memory pressure, and how many reads are page faults: counters since boot.
//!
//! Sources: proc_vmstat(5); the kernel's `accounting/psi.rst` and `admin-guide/iostats.rst`.

use super::memory::page_bytes;
use super::{Host, text};

/// Counters since boot, and the stalls of the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPressure {
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// File pages that were read again soon after they were evicted (refaults).
    pub refaults: Option<u64>,
    /// Percentage of the last minute in which some program waited for memory.
    pub stalled_percent: Option<f64>,
    /// Memory of the machine or of the control groups of this process, whichever is less.
    pub memory_bytes: u64,
}

impl MemoryPressure {
    /// File bytes that were read again soon after they were evicted.
    pub fn refaulted_bytes(&self) -> Option<u64> {
        Some(self.refaults?.saturating_mul(page_bytes()))
    }
}

/// Counters of a disk since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub reads: u64,
    pub read_bytes: u64,
    /// Total milliseconds of its reads.
    pub read_ms: u64,
    pub in_flight: u64,
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
}

impl Host {
    pub fn memory_pressure(&self) -> MemoryPressure {
        let vmstat = text(&self.proc.join("vmstat")).unwrap_or_default();
        let counter = |name: &str| {
            let lines = vmstat.lines();
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            values.next()?.trim().parse().ok()
        };
        MemoryPressure {
            major_faults: counter("pgmajfault"),
            // Before Linux 5.9 files and other memory were counted together.
            refaults: counter("workingset_refault_file").or_else(|| counter("workingset_refault")),
            stalled_percent: self.stalled(),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// `some avg10=0.00 avg60=1.25 ...`
    fn stalled(&self) -> Option<f64> {
        let text = text(&self.proc.join("pressure/memory"))?;
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let mut words = some.split_whitespace();
        let percent: f64 = words
            .find_map(|word| word.strip_prefix("avg60="))?
            .parse()
            .ok()?;
        Some(percent).filter(|percent| percent.is_finite())
    }

    pub fn disk_counters(&self, name: &str) -> Option<DiskCounters> {
        let text = text(&self.sys.join("block").join(name).join("stat"))?;
        let numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        Some(DiskCounters {
            reads: *numbers.first()?,
            read_bytes: numbers.get(2)?.saturating_mul(512),
            read_ms: *numbers.get(3)?,
            in_flight: *numbers.get(8)?,
            busy_ms: *numbers.get(9)?,
        })
    }
}
