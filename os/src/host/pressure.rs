//! Whether memory is short, and how many reads are page faults: counters since the machine started.
//!
//! Sources: proc_vmstat(5); the kernel's `accounting/psi.rst` and `admin-guide/iostats.rst`.

use super::memory::page_bytes;
use super::{Host, text};

/// Counters since the machine started, and the stalls of the latest minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPressure {
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Pages of files that were read again soon after they had been dropped.
    pub refaults: Option<u64>,
    /// Per cent of the latest minute in which some program waited for memory.
    pub stalled_percent: Option<f64>,
    /// Memory of the machine or of the control groups of this process, whichever is less.
    pub memory_bytes: u64,
}

impl MemoryPressure {
    /// Bytes of files that were read again soon after they had been dropped.
    #[must_use]
    pub fn refaulted_bytes(&self) -> Option<u64> {
        Some(self.refaults?.saturating_mul(page_bytes()))
    }
}

/// What a disk has done since it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads that ended.
    pub reads: u64,
    pub read_bytes: u64,
    /// Milliseconds that its reads took, all together.
    pub read_ms: u64,
    /// Requests that are under way.
    pub in_flight: u64,
    /// Milliseconds in which some request was.
    pub busy_ms: u64,
}

impl Host {
    #[must_use]
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

    /// The counters of a disk.
    #[must_use]
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
