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
use foreread_history::OPPONENTS;
use foreread_sim::device::presets::{self, PRESETS, Preset};
use foreread_sim::limits::bound::Bound;
use foreread_sim::limits::oracle;
use foreread_sim::rng::Rng;
use foreread_sim::simulator;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::Workload;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Policies for each cell.
const POLICIES: usize = 4;

/// What a policy may be faster by and the row not count as lost: figures are printed with four digits.
pub const MARGIN: f64 = 1.0005;

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
    let others = ["peer-mountpoint-s3"];
    match rng.below(10) {
        0..=5 => format!("{}:max={max}", pick(rng, &kernels)),
        6 | 7 => format!(
            "{}:max={max}",
            pick(rng, &["rbd-plain", "rbd-eager", "rbd-aligned"])
        ),
        8 => "none".to_string(),
        _ => {
            let known = |name: &&&str| OPPONENTS.iter().any(|info| info.name == **name);
            let known: Vec<&&str> = others.iter().filter(known).collect();
            if known.is_empty() {
                "none".to_string()
            } else {
                (**pick(rng, &known)).to_string()
            }
        }
    }
}

/// Presets that came after the figures of this folder were published: not tried here unless named.
pub const LATER: [&str; 3] = ["ebs-gp3", "nfs", "s3-region"];

/// A random cell; nothing where its workload does not fit.
fn cell(rng: &mut Rng, only: Option<&str>) -> Option<Cell> {
    let size = *pick(rng, &[1_u64 << 20, 4 << 20, 16 << 20]);
    let cache = *pick(rng, &[256_u64 << 10, 512 << 10, 2 << 20, 8 << 20, 64 << 20]);
    let workload = workload(rng);
    let fits = |name: &str| only.map_or(!LATER.contains(&name), |only| only == name);
    let fitting: Vec<_> = PRESETS
        .iter()
        .filter(|p| p.capacity_bytes >= size && fits(p.name))
        .collect();
    let preset = pick(rng, &fitting);
    Cell::new(&workload, preset.name, size, cache, 1 + rng.below(1000))
}

#[derive(Default)]
pub struct Found {
    pub rows: u64,
    /// Rows that the oracle loses, by how much, with what was read and by which policy.
    pub lost: Vec<(f64, String)>,
    /// Rows below the bound.
    pub below: Vec<String>,
    of_device: BTreeMap<&'static str, [u64; 2]>,
    /// Sums of logarithms: oracle to bound, and none to oracle.
    gaps: [f64; 2],
    pub cells: u64,
    search: Duration,
    runs: Duration,
}

impl Found {
    fn mean(&self, sum: f64) -> f64 {
        (sum / self.cells.max(1) as f64).exp()
    }

    /// The time of the oracle, in bounds: the geometric mean over all cells.
    pub fn oracle_in_bounds(&self) -> f64 {
        self.mean(self.gaps[0])
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lost: Vec<_> = self.lost.iter().collect();
        lost.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (ratio, row) in lost.iter().take(40) {
            writeln!(f, "{ratio:.4} {row}")?;
        }
        for (device, [rows, lost]) in &self.of_device {
            writeln!(f, "{device}: {lost} of {rows} lost")?;
        }
        let above = |by: f64| self.lost.iter().filter(|(ratio, _)| *ratio > by).count();
        let Found { rows, cells, .. } = self;
        writeln!(
            f,
            "{rows} rows in {cells} cells: the oracle loses {}",
            self.lost.len()
        )?;
        writeln!(
            f,
            "by more than 1 %: {}, 5 %: {}, 20 %: {}",
            above(1.01),
            above(1.05),
            above(1.2)
        )?;
        writeln!(
            f,
            "geometric means: oracle {:.3} bounds, none {:.3} oracles",
            self.oracle_in_bounds(),
            self.mean(self.gaps[1])
        )?;
        write!(
            f,
            "below the bound: {:?}; oracle took {:.1} runs without readahead",
            self.below,
            self.search.as_secs_f64() / self.runs.as_secs_f64()
        )
    }
}

/// Tries this many cells.
pub fn search(cells: u64, seed: u64, only: Option<&str>) -> Found {
    let (mut rng, mut found) = (Rng::new(seed), Found::default());
    while found.cells < cells {
        let Some(cell) = cell(&mut rng, only) else {
            continue;
        };
        let began = Instant::now();
        let none = cell.run(&PolicySpec::none()).time_s;
        found.runs += began.elapsed();
        let began = Instant::now();
        let oracle = cell.oracle().time_s;
        found.search += began.elapsed();
        let bound = cell.bound();
        found.cells += 1;
        found.gaps[0] += (oracle / bound).ln();
        found.gaps[1] += (none / oracle).ln();
        if oracle < bound {
            found
                .below
                .push(format!("oracle: {oracle} s, bound {bound} s: {cell}"));
        }
        for _ in 0..POLICIES {
            let text = policy(&mut rng);
            let run = cell.run(&cell.policy(&text));
            found.rows += 1;
            let count = found.of_device.entry(cell.preset.name).or_default();
            count[0] += 1;
            if run.time_s < bound {
                found
                    .below
                    .push(format!("{text}: {} s, bound {bound} s: {cell}", run.time_s));
            }
            if run.time_s * MARGIN < oracle {
                count[1] += 1;
                let over = run.stats.source_bytes as f64 / run.distinct_bytes as f64;
                let what = format!(
                    "{cell} {text} ({over:.2}): {:.6} s, oracle {oracle:.6} s, bound {bound:.6} s",
                    run.time_s
                );
                found.lost.push((oracle / run.time_s, what));
            }
        }
    }
    found
}
