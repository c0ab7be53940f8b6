//! Executes one run of a policy in a cell with a seed, and returns the measured figures.
//!
//! ```text
//!   Key (cell, policy, seed) ──► workload, device, machine ──simulator, Watcher──► Figures
//! ```
//! The limits are those of `compare` on a model: as many requests in flight as the device accepts, and at most half of
//! them readahead. The size of a cache page is the size that the policy sets or, if the policy sets none, the size that the workload sets.
//! If the policy is `oracle`, the result is the best schedule found with perfect foresight; only its time can be compared with that of a
//! policy.

use super::{Cell, devices, opponents, workloads};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Note};
use foreread_core::policy::{PolicySpec, SpecError};
use foreread_core::units::PageSize;
use foreread_history::parse_spec;
use foreread_sim::limits::bound::Bound;
use foreread_sim::limits::{ORACLE, oracle};
use foreread_sim::simulator::{self, RunResult, Setup, Watch};
use foreread_sim::stats::percentile_ns;
use foreread_sim::workload::Workload;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Workload, device, cache.
    pub cell: Cell,
    /// As in `--policy`, or [`ORACLE`].
    pub policy: String,
    /// Seed of the workload and of the device.
    pub seed: u64,
}

/// The measured figures of a run. Undefined values are `None`. Fractions are rounded to 15 digits, so that reading them
/// back from JSON gives the same number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Virtual seconds.
    pub time_s: f64,
    /// Bytes fetched for each distinct byte demanded.
    pub overfetch: Option<f64>,
    pub requests: u64,
    /// Readahead bytes that were never demanded: those that left the cache, and those left over at the end.
    pub unused_bytes: u64,
    /// 99th percentile of a read's latency; in a cell with an antagonist, of the random reader's waits.
    pub p99_us: Option<f64>,
    /// Unread readahead held, in byte seconds.
    pub held_byte_s: f64,
    /// The bytes that determine the credit of `auto`: demanded, used and left unused.
    pub demand_bytes: u64,
    /// Readahead bytes that were demanded.
    pub used_bytes: u64,
    /// Bytes that reads had to fetch themselves.
    pub missed_bytes: u64,
}

/// Executes one run. Returns `None` for the oracle if the workload is too large for its search, or if the speed of the device changes.
/// Returns an error if a name is unknown or a value is invalid.
pub fn measure(key: &Key) -> Result<Option<Figures>, SpecError> {
    measure_workload(key, &workloads::build(&key.cell.workload, key.seed)?)
}

/// Like [`measure`], for a workload that the caller has built, such as a recorded one. Errors: those of [`measure`].
pub(crate) fn measure_workload(
    key: &Key,
    workload: &Workload,
) -> Result<Option<Figures>, SpecError> {
    let device = devices::find(&key.cell.device)?;
    if key.policy == ORACLE {
        let config = config(&key.cell, &device, workload.page_bytes);
        let Some(preset) = device.steady() else {
            return Ok(None);
        };
        let bound = Bound::of_run(workload, preset, &config, key.seed);
        let found = oracle::run(&oracle::Setup {
            workload,
            config,
            preset,
            seed: key.seed,
            bound,
        });
        return Ok(found.map(|result| figures(&result, &Watcher::new(config.page.bytes(), None))));
    }
    let policy = opponents::build(&key.policy, device.preset.capacity_bytes)?;
    Ok(Some(simulate(workload, &device, key, &policy)))
}

/// Executes one run of any policy, even of a policy that is in no list of opponents.
pub fn simulate(
    workload: &Workload,
    device: &devices::DeviceChoice,
    key: &Key,
    policy: &PolicySpec,
) -> Figures {
    let config = config(
        &key.cell,
        device,
        policy.info.page_bytes.unwrap_or(workload.page_bytes),
    );
    let setup = Setup::new(workload, policy, config, device.preset.host_ns_per_kib);
    let mut watcher = Watcher::new(
        config.page.bytes(),
        workloads::antagonist(&key.cell.workload),
    );
    let device = device.build(key.seed, workload.bytes());
    let result = simulator::run_watched(&setup, device, &mut watcher);
    figures(&result, &watcher)
}

/// Whether `auto` wasted at most as much as its bound allows: the part `max-overfetch` of the demanded, missed or
/// read-ahead bytes, plus the debt (at most a quarter of the cache, at least 1 MiB).
pub(crate) fn is_within_credit(policy: &str, figures: &Figures, cache: u64) -> bool {
    let spec =
        parse_spec(policy).unwrap_or_else(|_| PolicySpec::parse("auto").expect("a policy of ours"));
    let excess = u128::from(spec.values[0].saturating_sub(1000));
    let demanded = u128::from(figures.used_bytes) + u128::from(figures.missed_bytes);
    let earned = excess * demanded / 1000;
    let most = earned + u128::from((cache / 4).max(1 << 20));
    u128::from(figures.unused_bytes) <= most
}

fn config(cell: &Cell, device: &devices::DeviceChoice, page: u64) -> Config {
    let page = PageSize::new(page).unwrap_or_else(|| {
        unreachable!("the page sizes of workloads and policies are powers of two")
    });
    device.preset.config(page, cell.cache)
}

fn figures(result: &RunResult, watcher: &Watcher) -> Figures {
    let stats = &result.stats;
    let p99_ns = watcher
        .antagonist_p99_ns()
        .or_else(|| percentile_ns(&result.latency, 99.0));
    Figures {
        time_s: digits(result.time_s),
        overfetch: foreread_sim::stats::ratio(
            stats.source_bytes as f64,
            result.distinct_bytes as f64,
        )
        .map(digits),
        requests: stats.source_reads,
        unused_bytes: stats.unused_bytes + stats.unresolved_bytes,
        p99_us: p99_ns.map(|ns| digits(ns as f64 / 1e3)),
        held_byte_s: digits(watcher.held_byte_s()),
        demand_bytes: stats.demand_bytes,
        used_bytes: stats.used_bytes,
        missed_bytes: stats
            .source_bytes
            .saturating_sub(stats.used_bytes + stats.unused_bytes + stats.unresolved_bytes),
    }
}

/// The number with 15 significant digits, which a 53-bit number can represent without loss.
fn digits(value: f64) -> f64 {
    format!("{value:.14e}").parse().unwrap_or(value)
}

// Takes measurements during a run: how many bytes that were read ahead are in the cache but not yet read, and how long a random reader
// waits.
//
// ```text
//   held    integral of (bytes planned - bytes touched - bytes that left unused) over time
// ```

/// Takes the measurements of one run.
pub struct Watcher {
    page: u64,
    now_ns: u64,
    held: u64,
    held_byte_s: f64,
    antagonist: Option<u32>,
    waits_ns: Vec<u64>,
}

impl Watcher {
    /// Creates a watcher for a run with pages of `page` bytes. The watcher records the waits of the open file description `antagonist`.
    pub fn new(page: u64, antagonist: Option<u32>) -> Watcher {
        Watcher {
            page,
            now_ns: 0,
            held: 0,
            held_byte_s: 0.0,
            antagonist,
            waits_ns: Vec::new(),
        }
    }

    /// Returns the number of bytes that are in the cache but not yet read, integrated over time (byte seconds).
    pub fn held_byte_s(&self) -> f64 {
        self.held_byte_s
    }

    /// The 99th percentile of the antagonist's waits in nanoseconds, if there is one.
    pub(crate) fn antagonist_p99_ns(&self) -> Option<u64> {
        let mut waits = self.waits_ns.clone();
        waits.sort_unstable();
        let at = (waits.len() * 99 / 100).min(waits.len().saturating_sub(1));
        waits.get(at).copied()
    }

    fn see(&mut self, note: &Note) {
        match note {
            Note::Planned { pages, .. } => self.held += pages.len() * self.page,
            Note::Touched { first, .. } => self.release(*first),
            Note::Left { unused, .. } => self.release(*unused),
            Note::Lost { pages, used, .. } => self.release(pages & !used),
            Note::Served { open, stall_ns, .. } if self.antagonist == Some(open.0) => {
                self.waits_ns.push(*stall_ns);
            }
            _ => {}
        }
    }

    fn release(&mut self, pages: u64) {
        let bytes = u64::from(pages.count_ones()) * self.page;
        self.held = self.held.saturating_sub(bytes);
    }
}

impl Watch for Watcher {
    fn time(&mut self, now_ns: u64) {
        self.held_byte_s += self.held as f64 * (now_ns - self.now_ns) as f64 / 1e9;
        self.now_ns = now_ns;
    }

    fn event(&mut self, _event: &Event) {}

    fn notes(&mut self, notes: Vec<Note>) {
        notes.iter().for_each(|note| self.see(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, workload: &str, device: &str) -> Figures {
        let figures = measure(&key(policy, workload, device));
        figures.expect("valid").expect("a run")
    }

    fn key(policy: &str, workload: &str, device: &str) -> Key {
        let cell = Cell::new(workload, device, 16 << 20);
        let policy = policy.to_string();
        Key {
            cell,
            policy,
            seed: 1,
        }
    }

    #[test]
    fn a_run_with_readahead_is_faster_and_the_oracle_fastest() {
        let on = |policy| run(policy, "fsspec-seq-64K", "http-30ms");
        let [none, linux, oracle] = ["none", "linux-6.18:max=4M", ORACLE].map(on);
        assert!(oracle.time_s < linux.time_s && linux.time_s < none.time_s / 4.0);
        let bytes = (none.requests, none.unused_bytes, none.overfetch);
        assert_eq!(bytes, (256, 0, Some(1.0)));
        assert!(linux.held_byte_s > 0.0 && none.held_byte_s == 0.0);
        assert_eq!(measure(&key(ORACLE, "fsspec-seq-64K", "step")), Ok(None));
        assert!(measure(&key("oracel", "fsspec-seq-64K", "rbd")).is_err());
    }

    /// If readahead cannot help, it costs almost nothing, and the waste stays within the credit.
    #[test]
    fn auto_loses_no_more_than_its_credit() {
        for (workload, most) in [
            ("random", 1.02),
            ("dense-random", 1.05),
            ("limit", 1.6),
            ("phases", 1.25),
        ] {
            for device in ["nvme", "http-30ms", "step"] {
                let figures = run("auto", workload, device);
                let within = |policy: &str, figures| is_within_credit(policy, &figures, 16 << 20);
                let overfetch = figures.overfetch.expect("demanded");
                assert!(overfetch <= most, "{workload} on {device}: {overfetch}");
                assert!(within("auto", figures.clone()), "{workload} on {device}");
                let wasted = |unused_bytes| Figures {
                    unused_bytes,
                    used_bytes: figures.demand_bytes,
                    ..figures.clone()
                };
                assert!(!within("auto", wasted(1 << 40)));
                let as_much_as_used = wasted(figures.demand_bytes);
                assert!(within("auto:max-overfetch=2", as_much_as_used));
            }
        }
    }

    /// Patterns on which `auto` once took many times as long as a fixed window, or as no readahead.
    #[test]
    fn auto_has_no_cliffs() {
        let waste = "mapped-libraries:waste=5000";
        let small = "small-files-random:file=4M,record=64K,percent=25";
        for (workload, device, beside, most) in [
            ("list-of-archive", "http-30ms", "linux-6.18:max=4M", 1.05),
            ("list-of-archive", "rbd", "linux-6.18:max=4M", 1.15),
            ("small-files-random", "rbd", "none", 1.02),
            ("small-files-random", "ssd-sata", "none", 1.02),
            ("small-files-random", "http-30ms", "none", 1.02),
            (small, "rbd", "none", 1.2),
            (small, "ssd-sata", "none", 1.2),
            ("mapped-libraries", "rbd", "linux-6.18", 1.05),
            ("mapped-libraries", "object-near", "linux-6.18", 1.25),
            (waste, "rbd", "linux-6.18", 1.05),
            (waste, "object-near", "linux-6.18", 1.6),
            ("new-files", "object-near", "linux-6.18:max=4M", 1.05),
        ] {
            let time = |policy| run(policy, workload, device).time_s;
            let ratio = time("auto") / time(beside);
            assert!(ratio <= most, "{workload} on {device}: {ratio} of {beside}");
        }
    }

    /// Whatever overfetch is allowed, no more is wasted, and with 1 nothing is read ahead.
    #[test]
    fn auto_holds_each_bound() {
        let workloads = [
            "mapped-libraries:waste=3000",
            "small-files-random:file=2M,percent=20",
            "list-of-archive",
            "seeks",
            "limit",
            "cursors",
        ];
        for (n, workload) in (1..).zip(workloads) {
            for device in ["rbd", "http-30ms", "tail", "hdd-7200"] {
                for bound in ["1", "1.1", "1.5", "2", "4"] {
                    let policy = format!("auto:max-overfetch={bound}");
                    let key = Key {
                        seed: n,
                        ..key(&policy, workload, device)
                    };
                    let figures = measure(&key).expect("valid").expect("a run");
                    let what = format!("{policy}, {workload} on {device}: {figures:?}");
                    let is_within = is_within_credit(&policy, &figures, key.cell.cache);
                    assert!(is_within, "{what}");
                    let ahead = figures.used_bytes + figures.unused_bytes;
                    assert!(bound != "1" || ahead == 0, "{what}");
                }
            }
        }
    }

    /// A run with gaps of a fifth of its bytes stays within a tight bound, and has readahead until its end.
    #[test]
    fn a_tight_bound_holds_for_a_run_with_gaps() {
        let tight = run("auto:max-overfetch=1.1", "skip", "rbd");
        let overfetch = tight.overfetch.expect("demanded");
        assert!(overfetch <= 1.15, "{overfetch}");
        let time = run("auto", "skip", "rbd").time_s;
        assert!(tight.time_s <= 1.3 * time, "{} and {time}", tight.time_s);
    }

    #[test]
    fn auto_follows_strides_and_backward_reads() {
        for workload in ["strided", "backward", "pairs", "streams"] {
            let time = |policy| run(policy, &format!("fsspec-{workload}"), "http-30ms").time_s;
            let (none, auto) = (time("none"), time("auto"));
            assert!(auto < none / 4.0, "{workload}: {auto} beside {none}");
        }
    }
}

#[cfg(test)]
mod tests_of_watcher {
    use super::*;

    #[test]
    fn held_bytes_and_waits() {
        let mut watcher = Watcher::new(4096, Some(1));
        watcher.held = 1 << 20;
        watcher.time(2_000_000_000);
        watcher.release(0b11);
        watcher.time(3_000_000_000);
        assert!((watcher.held_byte_s() - (2.0 * 1_048_576.0 + 1_040_384.0)).abs() < 1.0);
        assert_eq!(watcher.antagonist_p99_ns(), None);
        watcher.waits_ns.extend(1..=100);
        assert_eq!(watcher.antagonist_p99_ns(), Some(100));
    }
}
