//! A search for cells in which a policy beats the oracle, or any run the bound: random policies, workloads, devices and
//! sizes of cache, small enough that hundreds are tried in a second.
//!
//! ```text
//!   rng ──► cell: workload, device, cache, seed ──► oracle ──┐
//!              └──► policies with random parameters ─────────┴──► lost? by how much?      every run ──► below the bound?
//! ```

use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_sim::device::presets::{self, PRESETS, Preset};
use foreread_sim::limits::bound::Bound;
use foreread_sim::limits::oracle;
use foreread_sim::rng::Rng;
use foreread_sim::simulator;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::Workload;
use std::fmt;

/// Policies for each cell.
const POLICIES: usize = 4;

/// What a policy may be faster by and the row not count as lost: figures are printed with four digits.
const MARGIN: f64 = 1.0005;

/// Everything that a run depends on but the policy.
pub struct Cell {
    pub workload: Workload,
    pub preset: &'static Preset,
    pub size: u64,
    pub cache: u64,
    pub seed: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell {
            workload,
            preset,
            size,
            cache,
            seed,
        } = self;
        let (size, cache) = (size >> 10, cache >> 10);
        write!(
            f,
            "{} --on model:{} --size {size}K --cache {cache}K --seed {seed}",
            workload.name, preset.name
        )
    }
}

/// The limits that `compare` gives every policy.
fn config(preset: &Preset, page: u64, cache: u64) -> Config {
    let mut config = Config::new(PageSize::new(page).expect("a page"), cache);
    config.max_in_flight = preset.connections;
    config.max_ahead_in_flight = preset.connections / 2;
    config.max_short_ahead_in_flight = config.max_ahead_in_flight;
    config.bounded()
}

impl Cell {
    pub fn new(workload: &str, model: &str, size: u64, cache: u64, seed: u64) -> Option<Cell> {
        let chosen = foreread_history::parse_workload(workload).expect("a workload");
        let workload = chosen.build(size, seed).ok()?;
        Some(Cell {
            workload,
            preset: presets::find(model).expect("a preset"),
            size,
            cache,
            seed,
        })
    }

    pub fn bound(&self) -> f64 {
        let config = config(self.preset, self.workload.page_bytes.min(512), self.cache);
        Bound::of_run(&self.workload, self.preset, &config, self.seed).ns() as f64 / 1e9
    }

    pub fn oracle(&self) -> RunResult {
        let config = config(self.preset, self.workload.page_bytes, self.cache);
        let bound = Bound::of_run(&self.workload, self.preset, &config, self.seed);
        let setup = oracle::Setup {
            workload: &self.workload,
            config,
            preset: self.preset,
            seed: self.seed,
            bound,
        };
        oracle::run(&setup).expect("few touches")
    }

    pub fn run(&self, policy: &PolicySpec) -> RunResult {
        let page = policy.info.page_bytes.unwrap_or(self.workload.page_bytes);
        let config = config(self.preset, page, self.cache);
        let host_ns_per_kib = self.preset.host_ns_per_kib;
        let setup = simulator::Setup {
            workload: &self.workload,
            policy,
            config,
            host_ns_per_kib,
        };
        simulator::run(&setup, self.preset.build(self.seed))
    }

    pub fn policy(&self, text: &str) -> PolicySpec {
        let draft = foreread_history::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        draft
            .ready(Some(self.preset.capacity_bytes))
            .expect("a policy")
    }
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.below(of.len() as u64) as usize]
}

/// A workload of a few hundred to a few thousand reads.
fn workload(rng: &mut Rng) -> String {
    let record = pick(rng, &["4K", "16K", "32K", "128K"]);
    let think = pick(rng, &["0", "0", "0", "100", "1000"]);
    let streams = pick(rng, &["2", "3", "4", "5", "8"]);
    let depth = pick(rng, &["1", "1", "2", "4"]);
    match rng.below(12) {
        0 | 1 => format!("sequential:record={record},depth={depth},think={think}"),
        2 => format!("random:record={record},count=200"),
        3 => format!("dense-random:record={record}"),
        4 => format!("interleaved:streams={streams},record={record}"),
        5 | 6 => format!("readers:streams={streams},record={record},think={think}"),
        7 => "out-of-order".to_string(),
        8 => {
            let (record, stride) = pick(
                rng,
                &[
                    ("4K", "8K"),
                    ("16K", "20K"),
                    ("16K", "64K"),
                    ("4K", "128K"),
                    ("64K", "256K"),
                ],
            );
            format!("strided:record={record},stride={stride}")
        }
        9 => "skip".to_string(),
        10 => "backward".to_string(),
        _ => format!("thrash:streams={streams},think={think}"),
    }
}

fn policy(rng: &mut Rng) -> String {
    let max = pick(
        rng,
        &[
            "16K", "32K", "64K", "128K", "256K", "512K", "1M", "4M", "16M", "64M",
        ],
    );
    let kernels = [
        "linux-6.18",
        "linux-6.18",
        "linux-2.6.0",
        "linux-2.6.23",
        "linux-2.6.31",
        "linux-3.12",
    ];
    match rng.below(10) {
        0..=5 => format!("{}:max={max}", pick(rng, &kernels)),
        6 | 7 => format!(
            "{}:max={max}",
            pick(rng, &["rbd-plain", "rbd-eager", "rbd-aligned"])
        ),
        8 => "none".to_string(),
        _ => (*pick(rng, &["peer-mountpoint-s3"])).to_string(),
    }
}

/// Presets that came after the figures of this folder were published: not tried here.
pub const LATER: [&str; 3] = ["ebs-gp3", "nfs", "s3-region"];

/// A random cell; nothing where its workload does not fit.
fn cell(rng: &mut Rng) -> Option<Cell> {
    let size = *pick(rng, &[1_u64 << 20, 4 << 20, 16 << 20]);
    let cache = *pick(rng, &[256_u64 << 10, 512 << 10, 2 << 20, 8 << 20, 64 << 20]);
    let workload = workload(rng);
    let fitting: Vec<_> = PRESETS
        .iter()
        .filter(|p| p.capacity_bytes >= size && !LATER.contains(&p.name))
        .collect();
    let preset = pick(rng, &fitting);
    Cell::new(&workload, preset.name, size, cache, 1 + rng.below(1000))
}

#[derive(Debug, Default)]
pub struct Found {
    pub rows: usize,
    /// Rows that the oracle loses, and by which policy.
    pub lost: Vec<String>,
    /// Runs below the bound.
    pub below: Vec<String>,
    /// The time of the oracle, in bounds: the geometric mean over all cells.
    pub oracle_in_bounds: f64,
}

/// Tries this many cells.
pub fn search(cells: u64, seed: u64) -> Found {
    let (mut rng, mut found, mut gap) = (Rng::new(seed), Found::default(), 0.0);
    let mut left = cells;
    while left > 0 {
        let Some(cell) = cell(&mut rng) else {
            continue;
        };
        left -= 1;
        let (oracle, bound) = (cell.oracle().time_s, cell.bound());
        gap += (oracle / bound).ln();
        if oracle < bound {
            let what = format!("oracle: {oracle} s, bound {bound} s: {cell}");
            found.below.push(what);
        }
        for _ in 0..POLICIES {
            let text = policy(&mut rng);
            let time_s = cell.run(&cell.policy(&text)).time_s;
            found.rows += 1;
            let what = format!("{cell} {text}: {time_s} s, oracle {oracle} s, bound {bound} s");
            if time_s < bound {
                found.below.push(what.clone());
            }
            if time_s * MARGIN < oracle {
                found.lost.push(what);
            }
        }
    }
    found.oracle_in_bounds = (gap / cells as f64).exp();
    found
}
