//! AMP's experiment: 100 readers in order at once, by size of the cache and by think time.
//!
//! With 100 streams a cache holds some hundred KiB of each. Readahead that is too long evicts what the other streams have not
//! read yet; readahead that is too short turns the disk into a random reader. AMP was made for this, so its throughput is the
//! measure: `auto` has to reach at least 0.98 of it in each cell.
//!
//! ```text
//!   9 cells = caches of 16, 64 and 256 MiB  x  pauses of 0, 20 and 200 ms between reads of 32 KiB
//!             164, 655, 2621 KiB a stream     wanted: all that the disk gives, 164 MB/s, 16 MB/s
//! ```
//! Example: with 16 MiB and no pause, windows of 4 MiB do not fit 100 times: they are refused, or evicted unread.
//!
//! The disk is `hdd-7200`; the publication had five SCSI disks. 100 files of 4 MiB: long enough for AMP's degree, which grows by
//! the size of a read for each part, to reach its end in the two smaller caches.
//! Source: Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache", FAST 2007 (100 concurrent streams); sizes chosen.

use super::measure::{Figures, Key, simulate};
use super::{Cell, devices, opponents};
use foreread_core::policy::SpecError;
use foreread_history::parse_workload;

pub const DEVICE: &str = "hdd-7200";
/// Sizes of the cache in bytes.
pub(crate) const CACHES: [u64; 3] = [16 << 20, 64 << 20, 256 << 20];
/// Pauses between two reads of a reader in microseconds.
pub(crate) const THINKS_US: [u64; 3] = [0, 20_000, 200_000];
/// The policy that is the measure.
pub(crate) const MEASURE: &str = "amp";

const STREAMS: u64 = 100;
const FILE_BYTES: u64 = 4 << 20;

/// One policy in one cell.
#[derive(Clone, Debug)]
pub struct StreamsRow {
    pub cell: Cell,
    pub policy: String,
    pub figures: Figures,
    /// Throughput, in that of [`MEASURE`] in the same cell.
    pub share: f64,
}

impl StreamsRow {
    /// 10^6 bytes for each second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        (STREAMS * FILE_BYTES) as f64 / 1e6 / self.figures.time_s
    }
}

/// The cells, by cache and think time.
#[must_use]
pub fn cells() -> Vec<Cell> {
    let workload = |think: u64| {
        format!("readers:streams={STREAMS},record=32K,bytes={FILE_BYTES},think={think}")
    };
    let of = |cache: u64| {
        THINKS_US.map(|think| Cell {
            workload: workload(think),
            device: DEVICE.to_string(),
            cache,
        })
    };
    CACHES.iter().flat_map(|cache| of(*cache)).collect()
}

/// [`MEASURE`] and `policies` in one cell.
///
/// # Errors
/// A name that does not exist or a value that does not fit.
pub fn measure(cell: &Cell, policies: &[&str], seed: u64) -> Result<Vec<StreamsRow>, SpecError> {
    let workload = parse_workload(&cell.workload)?.build(STREAMS * FILE_BYTES, seed)?;
    let device = devices::find(&cell.device)?;
    let mut rows: Vec<StreamsRow> = Vec::new();
    for name in [MEASURE].iter().chain(policies) {
        let policy = opponents::build(name, device.preset.capacity_bytes)?;
        let key = Key {
            cell: cell.clone(),
            policy: (*name).to_string(),
            seed,
        };
        let figures = simulate(&workload, &device, &key, &policy);
        let measure_s = rows
            .first()
            .map_or(figures.time_s, |row| row.figures.time_s);
        let share = measure_s / figures.time_s;
        rows.push(StreamsRow {
            cell: key.cell,
            policy: key.policy,
            figures,
            share,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::measure::is_within_credit;
    use super::super::verdict::JUDGED;
    use super::*;
    use foreread_sim::workload::{Job, Request};

    /// The least share of the throughput of [`MEASURE`].
    const TARGET: f64 = 0.98;

    /// One cell: AMP is itself the measure, and clearly faster than no readahead.
    #[test]
    fn amp_is_the_measure() {
        let cells = cells();
        assert_eq!(cells.len(), 9);
        let rows = measure(&cells[3], &["none", MEASURE], 1).expect("valid");
        assert_eq!(
            rows.iter().map(|r| r.policy.as_str()).collect::<Vec<_>>(),
            [MEASURE, "none", MEASURE]
        );
        assert!(
            (rows[0].share - 1.0).abs() < 1e-9 && (rows[2].share - 1.0).abs() < 1e-9,
            "the same run twice"
        );
        assert!(rows[1].share < 0.7, "none reaches {} of it", rows[1].share);
        assert!((rows[1].mb_per_s() / rows[0].mb_per_s() - rows[1].share).abs() < 1e-9);
    }

    /// The table: `cargo test --release -p foreread-lab --lib -- --ignored streams --nocapture`.
    #[test]
    #[ignore = "a minute"]
    fn the_table_of_100_streams() {
        let policies = [
            "none",
            "linux-6.18",
            "linux-6.18:max=4M",
            "zfetch",
            "read-stream",
            JUDGED,
        ];
        println!(
            "| cache | think | policy | MB/s | of AMP | overfetch |\n|---|---|---|---|---|---|"
        );
        let (mut missed, mut broken) = (0, 0);
        for cell in cells() {
            let think = cell.workload.rsplit('=').next().unwrap_or("");
            for row in measure(&cell, &policies, 1).expect("valid") {
                let (rate, share, overfetch) = (
                    row.mb_per_s(),
                    row.share,
                    row.figures.overfetch.unwrap_or(1.0),
                );
                let cache = cell.cache >> 20;
                println!(
                    "| {cache} MiB | {think} us | `{}` | {rate:.1} | {share:.2} | {overfetch:.2} |",
                    row.policy
                );
                let judged = row.policy == JUDGED;
                missed += usize::from(judged && row.share < TARGET);
                broken +=
                    usize::from(judged && !is_within_credit(JUDGED, &row.figures, cell.cache));
            }
        }
        println!(
            "of 9 cells, auto is below {TARGET} of {MEASURE} in {missed} and breaks its credit in {broken}"
        );
    }

    /// A small cache, and one that holds more than the disk's queue: in both AMP is passed, within the credit.
    #[test]
    fn auto_reaches_amp_with_100_streams() {
        for cell in [&cells()[1], &cells()[4], &cells()[8]] {
            let rows = measure(cell, &[JUDGED], 1).expect("valid");
            assert!(
                rows[1].share >= TARGET,
                "{cell:?}: {:.2} of {MEASURE}",
                rows[1].share
            );
            assert!(
                is_within_credit(JUDGED, &rows[1].figures, cell.cache),
                "{cell:?}: {:?}",
                rows[1].figures
            );
        }
    }

    /// Readers whose windows fill a cache of 64 MiB: 64 readers in each of 16 files, and 256 in a file each.
    fn many_readers(policy: &str, device: &str, (files, readers): (u32, u32)) -> Figures {
        let (bytes, record) = (1 << 20, 64 << 10);
        let size = u64::from(readers) * bytes;
        let mut workload = parse_workload(&format!("readers:streams={files},bytes={size}"))
            .and_then(|chosen| chosen.build(u64::from(files) * size, 1))
            .expect("valid");
        let job = |n: u32| {
            let start = u64::from(n % readers) * bytes;
            let reads = (0..bytes / record).map(|k| Request::read(start + k * record, record));
            Job::new(n / readers, n, reads.collect())
        };
        workload.jobs = (0..files * readers).map(job).collect();
        let cell = Cell {
            workload: String::new(),
            device: device.to_string(),
            cache: 64 << 20,
        };
        let device = devices::find(device).expect("a device");
        let chosen = opponents::build(policy, device.preset.capacity_bytes).expect("a policy");
        simulate(
            &workload,
            &device,
            &Key {
                cell,
                policy: policy.to_string(),
                seed: 1,
            },
            &chosen,
        )
    }

    /// At most a tenth of the readahead is unused.
    #[test]
    fn many_readers_leave_little_unused() {
        for shape in [(16, 64), (256, 1)] {
            for device in ["hdd-7200", "object-near", "nvme"] {
                let unused = |policy| {
                    let figures = many_readers(policy, device, shape);
                    figures.unused_bytes as f64
                        / (figures.unused_bytes + figures.used_bytes).max(1) as f64
                };
                let share = unused(JUDGED);
                println!(
                    "{shape:?} on {device}: {share:.3}, linux-6.18 {:.3}, max=4M {:.3}",
                    unused("linux-6.18"),
                    unused("linux-6.18:max=4M")
                );
                assert!(
                    share <= 0.1,
                    "{shape:?} on {device}: {share:.2} of the readahead is unused"
                );
            }
        }
    }
}
