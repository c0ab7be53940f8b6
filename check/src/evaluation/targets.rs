//! The targets of a policy, each as one number with its limit.
//!
//! ```text
//!   Report ──rows of the policy──► the worst value of the cells of a target ──► at most (or at least) the limit
//! ```
//! Example: in the workloads `random`, `dense-random` and `processes`, a policy may fetch at most 1.02 bytes for each demanded byte. In the
//! worst of the 42 cells with these workloads, 1.031 bytes are fetched for each demanded byte, so the target is missed, and the report
//! names that cell.
//!
//! If none of the cells of a target were run, the target has no value, and is neither met nor missed. If only some of the cells were run,
//! targets for means are not judged. Source of the targets: issue 18. The targets for live sources are not in this file, because a
//! simulation cannot judge them.

use super::verdict::{MAX_RATIO, ONE_SETTING, Report, Row, geometric, is_judged};
use super::{Cell, Design};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    pub policy: String,
    pub target: &'static str,
    pub limit: f64,
    /// Whether the value must be at least the limit; otherwise at most.
    pub at_least: bool,
    pub value: Option<f64>,
    /// Whether the target is met. If only a part of the target's cells was measured, a cell beyond the limit is a miss
    /// (`false`); otherwise the result is `None`, as it is for a mean and if no cell was measured.
    pub met: Option<bool>,
    /// The cell that has this value, if the value is the worst of several cells.
    pub cell: Option<Cell>,
}

/// Maximum time of a policy relative to no readahead.
const MAX_BESIDE_NONE: f64 = 1.02;
/// Workloads with unpredictable reads: readahead must not cost anything there.
const UNPREDICTABLE: [&str; 3] = ["random", "dense-random", "processes"];
/// The recorded workloads of [Crume 2014] for which there is a target, and the device on which they were measured.
const RECORDED: [&str; 3] = ["boot-ide", "grep-ide", "grep-virtio"];
const RECORDED_ON: &str = "rbd";

/// Returns the targets of `policy` in a design (set of cells). If `is_partial` is true, only a part of the cells was run.
pub fn targets(report: &Report, policy: &str, design: Design, is_partial: bool) -> Vec<Target> {
    let mut view = View {
        report,
        policy,
        is_partial,
        targets: Vec::new(),
    };
    match design {
        Design::Validation => view.of_validation(),
        Design::Baseline | Design::Fractional => view.of_workloads(),
    }
    view.targets
}

/// The rows of a policy, and those of the others.
struct View<'a> {
    report: &'a Report,
    policy: &'a str,
    is_partial: bool,
    targets: Vec<Target>,
}

impl View<'_> {
    /// Targets for recorded programs and drawn devices. The limits were chosen before the first run.
    fn of_validation(&mut self) {
        const KERNEL_512K: &str = "linux-6.18:max=512K";
        let (report, policy) = (self.report, self.policy);
        let own = || report.of(policy);
        let times = |other| geometric(own().filter_map(|row| time(report, row, other)));
        let fetched = |other| geometric(own().filter_map(|row| bytes(report, row, other)));
        let cells = own().count() as f64;
        let among = |count: usize| (cells > 0.0).then_some(count as f64);
        let slow = own().filter(|row| row.ratio > Some(MAX_RATIO)).count();
        let is_slow = |row: &&Row| time(report, row, "none") > Some(MAX_BESIDE_NONE);
        let beside_none = own().filter(is_slow).count();
        let total = report.total(policy);
        let mean = total.and_then(|t| t.mean_against_best);
        let share = total.and_then(|t| t.oracle_share);
        let what = "geometric mean of the times, relative to the best opponent of each cell";
        self.at_most(what, 0.75, mean);
        let what = "share of cells over 5 % slower than the best opponent";
        self.at_most(what, 0.08, among(slow).map(|slow| slow / cells));
        let all = |_: &Row| true;
        let what = "highest time in any cell, relative to the cell's best opponent";
        self.worst(what, 1.15, &all, &|r| r.ratio);
        self.worst("worst seed of a cell", 1.15, &all, &|r| r.worst_seed);
        let what = "geometric mean against linux-6.18:max=512K";
        self.at_most(what, 0.85, times(KERNEL_512K));
        let what = "bytes read, relative to linux-6.18:max=512K";
        self.at_most(what, 1.0, fetched(KERNEL_512K));
        let what = "geometric mean against linux-6.18:max=4M";
        self.at_most(what, 0.9, times(ONE_SETTING));
        let what = "bytes read, relative to linux-6.18:max=4M";
        self.at_most(what, 1.0, fetched(ONE_SETTING));
        let what = "bytes read, relative to none, geometric mean";
        self.at_most(what, 1.15, fetched("none"));
        let what = "bytes read, relative to none, in the worst cell";
        self.worst(what, 1.3, &all, &|r| bytes(report, r, "none"));
        let what = "cells over 2 % slower than none";
        self.at_most(what, 0.0, among(beside_none));
        self.at_least("share of the oracle's gain", 0.35, share);
    }

    fn of_workloads(&mut self) {
        let (report, policy) = (self.report, self.policy);
        let total = report.total(policy);
        let others = total.filter(|_| policy != ONE_SETTING);
        let is = |row: &Row, names: &[&str]| names.contains(&row.cell.workload.as_str());
        let is_random = |row: &Row| is(row, &UNPREDICTABLE);
        let is_recorded = |row: &Row| is(row, &RECORDED) && row.cell.device == RECORDED_ON;
        let is_grep = |row: &Row| is_recorded(row) && row.cell.workload.starts_with("grep");
        let is_fsspec = |row: &Row| row.cell.workload.starts_with("fsspec-");
        let overfetch = |row: &Row| row.figures.overfetch;
        let p99 = |row: &Row| {
            let other = report.row(&row.cell, "none")?.figures.p99_us;
            Some(row.figures.p99_us? / other.filter(|us| *us > 0.0)?)
        };
        let unused = |row: &Row| {
            let other = report.row(&row.cell, "rbd-plain")?.figures.unused_bytes;
            (other > 0).then(|| row.figures.unused_bytes as f64 / other as f64)
        };
        let what = "highest time in any cell, relative to the cell's best opponent";
        self.worst(what, MAX_RATIO, &|_| true, &|r| r.ratio);
        let what = "geometric mean of the times, relative to linux-6.18:max=4M";
        self.at_most(what, 0.75, others.and_then(|t| t.against_max_4m));
        let what = "geometric mean of the times, relative to linux-6.18:max=4M, without strided and backward workloads";
        let less = others.and_then(|t| t.against_max_4m_without_strided_backward);
        self.at_most(what, 0.84, less);
        let share = total.and_then(|t| t.oracle_share);
        self.at_least("share of the oracle's gain", 0.85, share);
        let what = "overfetch of random, dense-random, processes";
        self.worst(what, 1.02, &is_random, &overfetch);
        self.worst(
            "p99 latency of random, dense-random, processes, relative to none",
            1.02,
            &is_random,
            &p99,
        );
        let what = "p99 latency of a random reader beside a scan, relative to none";
        self.worst(what, 1.10, &|r| is(r, &["antagonist"]), &p99);
        let what = "overfetch of fsspec's seven patterns";
        self.worst(what, 1.5, &is_fsspec, &overfetch);
        let what = "overfetch of fsspec's random pattern";
        self.worst(what, 1.02, &|r| is(r, &["fsspec-random"]), &overfetch);
        let what = "time of boot-ide, grep-ide and grep-virtio on rbd, relative to rbd-plain";
        self.worst(what, 1.0, &is_recorded, &|r| time(report, r, "rbd-plain"));
        let what = "unused bytes of boot-ide, grep-ide and grep-virtio, relative to rbd-plain";
        self.worst(what, 0.5, &is_recorded, &unused);
        let what = "time of grep-ide and grep-virtio on rbd, relative to none";
        self.worst(what, 1.0, &is_grep, &|r| time(report, r, "none"));
        if is_judged(policy) && total.is_some() {
            let over = report.over_credit.iter();
            let over: Vec<_> = over.filter(|key| key.policy == policy).collect();
            let cell = over.first().map(|key| key.cell.clone());
            let what = "runs with more unused bytes than auto's limit allows";
            self.add(what, false, 0.0, Some(over.len() as f64), cell);
        }
    }

    /// The largest value among the cells of a target.
    fn worst(
        &mut self,
        target: &'static str,
        limit: f64,
        about: &dyn Fn(&Row) -> bool,
        value: &dyn Fn(&Row) -> Option<f64>,
    ) {
        let rows = self.report.of(self.policy).filter(|row| about(row));
        let values = rows.filter_map(|row| Some((value(row)?, row.cell.clone())));
        let (value, cell) = values.max_by(|a, b| a.0.total_cmp(&b.0)).unzip();
        self.add(target, false, limit, value, cell);
    }

    fn at_most(&mut self, target: &'static str, limit: f64, value: Option<f64>) {
        self.add(target, false, limit, value, None);
    }

    fn at_least(&mut self, target: &'static str, limit: f64, value: Option<f64>) {
        self.add(target, true, limit, value, None);
    }

    fn add(
        &mut self,
        target: &'static str,
        at_least: bool,
        limit: f64,
        value: Option<f64>,
        cell: Option<Cell>,
    ) {
        let is_met = |value: f64| match at_least {
            true => value >= limit,
            false => value <= limit,
        };
        let is_known = |met: &bool| !self.is_partial || (!met && cell.is_some());
        let met = value.map(is_met).filter(is_known);
        let policy = self.policy.to_string();
        self.targets.push(Target {
            policy,
            target,
            limit,
            at_least,
            value,
            met,
            cell,
        });
    }
}

fn time(report: &Report, row: &Row, policy: &str) -> Option<f64> {
    Some(row.figures.time_s / report.row(&row.cell, policy)?.figures.time_s)
}

fn bytes(report: &Report, row: &Row, policy: &str) -> Option<f64> {
    let other = report.row(&row.cell, policy)?.figures.overfetch?;
    Some(row.figures.overfetch? / other)
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{self, Runs};
    use super::super::{Design, Figures};
    use super::*;

    fn figures(time_s: f64, p99_us: f64, unused_bytes: u64) -> Figures {
        Figures {
            time_s,
            overfetch: Some(1.0 + unused_bytes as f64 / 100.0),
            unused_bytes,
            p99_us: Some(p99_us),
            demand_bytes: 100,
            ..Figures::default()
        }
    }

    /// Two cells of each kind; the second one is worse.
    #[test]
    fn the_worst_cell_is_the_value() {
        let mut runs = Runs::new();
        for (workload, device, worse) in [
            ("random", "nvme", 1.0),
            ("random", "hdd-7200", 2.0),
            ("boot-ide", "nvme", 9.0),
            ("boot-ide", "rbd", 1.0),
            ("grep-ide", "rbd", 2.0),
        ] {
            let cell = Cell::new(workload, device, 1 << 20);
            let of_cell = runs.entry(cell).or_default();
            let auto = figures(1.5 * worse, 10.0 * worse, (8.0 * worse) as u64);
            for (policy, figures) in [
                ("none", figures(3.0, 10.0, 0)),
                ("rbd-plain", figures(2.0, 10.0, 40)),
                ("auto", auto),
            ] {
                let seeds = [1, 4].map(|seed| (seed, figures.clone()));
                of_cell.insert(policy.to_string(), seeds.into());
            }
        }
        let report = verdict::report(&runs, Design::Baseline);
        let find = |is_partial: bool, what: &str| {
            let targets = targets(&report, "auto", Design::Baseline, is_partial);
            let found = targets.into_iter().find(|t| t.target.starts_with(what));
            let found = found.expect(what);
            let value = found.value.map(|value| (value * 1e6).round() / 1e6);
            (value, found.met, found.cell.map(|cell| cell.device))
        };
        let on = |device: &str| Some(device.to_string());
        for (what, value, met, device) in [
            ("overfetch of random,", 1.16, false, on("hdd-7200")),
            ("p99 latency of random, ", 2.0, false, on("hdd-7200")),
            // boot-ide on nvme is 4.5 times as slow as with rbd-plain, but the target does not include that device.
            ("time of boot-ide", 1.5, false, on("rbd")),
            ("unused bytes of boot-ide", 0.4, true, on("rbd")),
            ("time of grep-ide and", 1.0, true, on("rbd")),
            ("runs with more unused bytes", 0.0, true, None),
        ] {
            let expected = (Some(value), Some(met), device.clone());
            assert_eq!(find(false, what), expected, "{what}");
            // If only a part of the cells was run, only a miss is certain.
            let expected = (Some(value), (!met).then_some(false), device);
            assert_eq!(find(true, what), expected, "{what}");
        }
        for what in ["share of the", "p99 latency of a ", "geometric mean"] {
            assert_eq!(find(false, what), (None, None, None), "{what}");
        }
    }
}
