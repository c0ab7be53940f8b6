//! The cells to measure: combinations of a workload, a device and a cache size, chosen before the policy `auto` was
//! tuned.
//!
//! `baseline` is every valid combination of 7 devices, 21 workloads and 2 cache sizes: 290 cells. `fractional` has so
//! many workloads and devices that running all combinations would take too long, so each workload runs on only a few
//! devices. A fixed rule chooses the devices, so that each device is combined with about the same number of workloads.
//!
//! ```text
//!   fractional:  workload i  on devices  (3 i + 5 j) mod 12, j = 0, 1, 2     cache 256M where i + j is even, else 16M
//! ```
//! `validation` replays the recordings of `check/recordings`, each on two randomly generated devices that no other
//! recording uses. `validation` also has 24 cells in which small files are read at random, each on a randomly generated device.
//!
//! `fractional` also has four cells in which 16 or 64 readers take turns, since a rule of a policy may matter to many readers only.
//!
//! In the rule of `fractional`, the step 5 and the number of devices, 12, have no common divisor. Therefore a workload
//! never gets the same device twice, and neighbouring devices in the list get different workloads.
//!
//! In geometric means over cells, all cells have the same weight. The lists of workloads and devices come from issue 18 and its evaluation
//! plan.

use super::measure::Key;
use super::{devices, drawn, opponents, workloads};
use foreread_report::number;
use foreread_sim::limits::ORACLE;
use foreread_sim::rng::{Rng, mix};
use serde::Serialize;
use std::fmt;

/// A set of cells to measure. The texts are the help of `bench policies --cells`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Design {
    /// 7 devices, 21 workloads, 2 caches, 12 opponents and an imitation of mountpoint-s3
    Baseline,
    /// 12 devices, 37 workloads, each workload on 3 devices; 8 opponents
    Fractional,
    /// Recorded programs, each on 2 devices drawn at random; 24 seeds, 12 opponents
    // No constant of a policy is chosen on them.
    Validation,
}

/// A cell: a workload, a device and the size of a cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cell {
    /// A text for [`workloads::build`], or [`TRACE`] and the name of a recorded workload.
    pub workload: String,
    /// A text for [`devices::find`].
    pub device: String,
    pub cache: u64,
}

/// Formatted as `sequential on rbd, cache 256M`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = number::size(self.cache);
        write!(f, "{} on {}, cache {cache}", self.workload, self.device)
    }
}

pub(crate) const BASELINE_DEVICES: [&str; 7] = [
    "hdd-7200",
    "ssd-sata",
    "nvme",
    "usb-cruzer",
    "rbd",
    "object-near",
    "object-far",
];

pub(crate) const BASELINE_WORKLOADS: [&str; 21] = [
    "sequential",
    "sequential:record=4K",
    "sequential:depth=4",
    "sequential:think=2000",
    "random",
    "dense-random",
    "interleaved",
    "interleaved:streams=16",
    "readers",
    "out-of-order",
    "strided",
    "skip",
    "backward",
    "thrash",
    "tree",
    "processes",
    "boot-ide",
    "boot-virtio",
    "grep-ide",
    "grep-virtio",
    "aio-random",
];

/// Many readers of one file that take turns: on a near store and a disk, with a cache that holds the file.
const MANY_READERS: [&str; 2] = ["interleaved:streams=16", "interleaved:streams=64"];
const MANY_READERS_ON: [&str; 2] = ["object-near", "hdd-7200"];

/// Sizes of the cache: one that holds a workload of 128 MiB, and one that does not.
pub(crate) const CACHES: [u64; 2] = [256 << 20, 16 << 20];

/// Prefix of the names of recorded workloads. A policy cannot predict the reads of a recorded workload from earlier
/// reads, so cells with such a workload do not count as predictable.
pub const TRACE: &str = "trace:";

/// Workloads whose next read follows from earlier ones.
const PREDICTABLE: [&str; 9] = [
    "sequential",
    "interleaved",
    "readers",
    "out-of-order",
    "skip",
    "strided",
    "backward",
    "list-of-archive",
    "new-files",
];

/// Number of devices for each workload in a fractional design.
const DEVICES_A_WORKLOAD: usize = 3;

/// Seed of the order of the cells.
const ORDER: u64 = 1;

/// The small files of the validation: MiB of a file, percentage of its records that are read, KiB of a record.
const SMALL_FILES: [(u64, u64, u64); 12] = [
    (1, 2, 4),
    (1, 10, 4),
    (1, 25, 64),
    (4, 2, 4),
    (4, 10, 4),
    (4, 25, 64),
    (16, 1, 4),
    (16, 5, 4),
    (16, 25, 64),
    (64, 1, 4),
    (64, 5, 4),
    (64, 25, 64),
];
const SMALL_CACHES: [u64; 2] = [16 << 20, 32 << 20];

/// Number of drawn devices for each recording: 152 recordings are read on 304 devices.
const DEVICES_A_RECORDING: u64 = 2;

impl Cell {
    pub fn new(workload: &str, device: &str, cache: u64) -> Cell {
        Cell {
            workload: workload.to_string(),
            device: device.to_string(),
            cache,
        }
    }

    /// Returns whether each read of the cell's workload can be predicted from earlier reads (a fixed list of workloads). Only predictable
    /// cells count for a policy's share of the oracle's gain, that is, of the time that the oracle saves compared with no readahead (see
    /// `verdict.rs`).
    pub fn predictable(&self) -> bool {
        let name = self.workload.split(':').next().unwrap_or("");
        PREDICTABLE.contains(&name)
    }

    /// Whether its pattern is one that no published policy follows; a mean without such cells is also shown.
    pub(crate) fn strided_or_backward(&self) -> bool {
        self.workload.starts_with("strided") || self.workload.starts_with("backward")
    }
}

impl Design {
    pub fn name(self) -> &'static str {
        match self {
            Design::Baseline => "baseline",
            Design::Fractional => "fractional",
            Design::Validation => "validation",
        }
    }

    /// Returns the cells with generated workloads in this design (set of cells), without cells whose workload does not fit on the device.
    pub fn cells(self) -> Vec<Cell> {
        let mut workloads: Vec<&str> = BASELINE_WORKLOADS.to_vec();
        workloads.extend(workloads::NAMES);
        let devices = self.devices();
        let mut cells = match self {
            Design::Baseline => all(&BASELINE_WORKLOADS, &devices),
            Design::Fractional => fraction(&workloads, &devices),
            Design::Validation => Vec::new(),
        };
        cells.retain(|c| workloads::fits(&c.workload, &c.device));
        cells
    }

    /// Recorded workloads, each on its own devices drawn from the seed `draw`.
    pub(crate) fn cells_of_traces<'a>(
        names: impl IntoIterator<Item = &'a str>,
        draw: u64,
    ) -> Vec<Cell> {
        let names = names.into_iter().map(|name| format!("{TRACE}{name}"));
        // Devices are keyed by the recording's name, so adding a recording does not change the devices of others.
        let on_drawn = |name: String| {
            (0..DEVICES_A_RECORDING).filter_map(move |j| {
                let number = name
                    .bytes()
                    .fold(j, |number, byte| mix(number ^ u64::from(byte)));
                let device = drawn::name(draw, number % (1 << 32));
                let (_, cache) = drawn::find(&device)?;
                Some(Cell::new(&name, &device, cache))
            })
        };
        names.flat_map(on_drawn).collect()
    }

    /// Small files that are read at random, each with a small cache on a drawn device.
    pub(crate) fn cells_of_small_files(draw: u64) -> Vec<Cell> {
        let numbered = SMALL_FILES
            .iter()
            .flat_map(|of| SMALL_CACHES.map(|cache| (of, cache)));
        let on_drawn = |(n, ((file, percent, record), cache)): (u64, (&(u64, u64, u64), u64))| {
            let name =
                format!("small-files-random:file={file}M,percent={percent},record={record}K");
            Cell::new(&name, &drawn::name(draw, n), cache)
        };
        (0..).zip(numbered).map(on_drawn).collect()
    }

    fn devices(self) -> Vec<&'static str> {
        let mut devices = BASELINE_DEVICES.to_vec();
        if self != Design::Baseline {
            devices.extend(devices::NAMES);
        }
        devices
    }

    /// Returns the seeds that are used to choose the best opponent of a cell, and the seeds that are used to judge all policies.
    pub fn seeds(self) -> (Vec<u64>, Vec<u64>) {
        match self {
            Design::Baseline => (vec![1], vec![4]),
            Design::Fractional => (vec![1], vec![4, 5]),
            Design::Validation => ((1..=3).collect(), (4..=27).collect()),
        }
    }

    /// Returns the opponents, that is, the policies with which a policy is compared.
    pub fn opponents(self) -> Vec<String> {
        let names: &[&str] = match self {
            Design::Baseline => &opponents::BASELINE,
            Design::Fractional => &opponents::SEVEN,
            Design::Validation => &opponents::VALIDATION,
        };
        names.iter().map(|name| (*name).to_string()).collect()
    }

    /// Returns the keys of all runs of this design, cell by cell: the runs of its opponents and of the policies in `judged`. The oracle
    /// runs with only one of the seeds that judge the policies. The cells are in a fixed shuffled order, so that the remaining time can be
    /// estimated from the elapsed time. All runs of a cell follow each other, so that nearly all started cells are complete if the
    /// benchmark is stopped.
    pub fn keys(self, mut cells: Vec<Cell>, judged: &[String]) -> Vec<Key> {
        let (choose, judge) = self.seeds();
        let opponents = self.opponents();
        let others = judged.iter().filter(|policy| !opponents.contains(policy));
        let with_oracle = |cell: &Cell| self != Design::Fractional || cell.predictable();
        cells.sort();
        cells.dedup();
        Rng::new(ORDER).shuffle(&mut cells);
        let mut keys = Vec::new();
        for cell in &cells {
            let key = |policy: &str, seed: u64| Key {
                cell: cell.clone(),
                policy: policy.to_string(),
                seed,
            };
            for policy in &opponents {
                let seeds = choose.iter().chain(&judge);
                keys.extend(seeds.map(|seed| key(policy, *seed)));
            }
            for policy in others.clone() {
                keys.extend(judge.iter().map(|seed| key(policy, *seed)));
            }
            let oracle = judge.first().filter(|_| with_oracle(cell));
            keys.extend(oracle.map(|seed| key(ORACLE, *seed)));
        }
        keys
    }
}

/// All combinations, with both caches.
fn all(workloads: &[&str], devices: &[&str]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in workloads {
        for device in devices {
            cells.extend(CACHES.map(|cache| Cell::new(workload, device, cache)));
        }
    }
    cells
}

fn fraction(workloads: &[&str], devices: &[&str]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (i, workload) in workloads.iter().enumerate() {
        for j in 0..DEVICES_A_WORKLOAD {
            let device = devices[(3 * i + 5 * j) % devices.len()];
            cells.push(Cell::new(workload, device, CACHES[(i + j) % 2]));
        }
    }
    for workload in MANY_READERS {
        cells.extend(MANY_READERS_ON.map(|device| Cell::new(workload, device, CACHES[0])));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// 7 x 21 x 2, less the two workloads of 5 and 6 GiB, which do not fit on a stick of 4 GB.
    #[test]
    fn the_baseline_has_290_cells() {
        let cells = Design::Baseline.cells();
        let different: BTreeSet<&Cell> = cells.iter().collect();
        assert_eq!((cells.len(), different.len()), (290, 290));
        assert_eq!(cells.iter().filter(|c| c.predictable()).count(), 11 * 7 * 2);
    }

    /// Each file size has two caches, and each cell has its own device.
    #[test]
    fn small_files_are_read_on_24_devices() {
        let cells = Design::cells_of_small_files(5);
        let different: BTreeSet<&str> = cells.iter().map(|cell| cell.device.as_str()).collect();
        assert_eq!((cells.len(), different.len()), (24, 24));
        for cell in &cells {
            workloads::build(&cell.workload, 1).expect("valid");
            devices::find(&cell.device).expect("drawn");
        }
    }

    /// Each recording has its own two devices, and other devices with another seed.
    #[test]
    fn no_two_recordings_share_a_device() {
        let cells = |draw| Design::cells_of_traces(["a", "b"], draw);
        let devices = |draw| cells(draw).into_iter().map(|cell| cell.device);
        let different: BTreeSet<String> = devices(5).chain(devices(6)).collect();
        assert_eq!(different.len(), 8);
        let alone = Design::cells_of_traces(["b"], 5);
        assert_eq!(alone[..], cells(5)[2..], "the same without the other one");
        let is_found = |cell: &Cell| devices::find(&cell.device).is_ok() && !cell.predictable();
        assert!(cells(5).iter().all(is_found));
        let (choose, judge) = Design::Validation.seeds();
        assert!(judge.len() == 24 && choose.iter().all(|seed| !judge.contains(seed)));
    }

    /// There are at most 3,400 runs; every workload and every device is included, and the runs of a cell follow each
    /// other.
    #[test]
    fn the_fractional_design_is_small_and_covers_everything() {
        let cells = Design::Fractional.cells();
        for name in BASELINE_WORKLOADS.iter().chain(&workloads::NAMES) {
            assert!(cells.iter().any(|c| c.workload == *name), "{name}");
        }
        for name in BASELINE_DEVICES.iter().chain(&devices::NAMES) {
            let on = cells.iter().filter(|c| c.device == *name);
            assert!(on.count() >= 4, "{name}");
        }
        let many = "interleaved:streams=64 on object-near, cache 256M";
        assert!(cells.iter().any(|cell| cell.to_string() == many));
        let keys = Design::Fractional.keys(cells.clone(), &["auto".to_string()]);
        let mut order: Vec<&Cell> = keys.iter().map(|key| &key.cell).collect();
        order.dedup();
        assert_eq!(order.len(), cells.len());
        assert!(!order.is_sorted() && keys.len() <= 3400, "{}", keys.len());
    }
}
