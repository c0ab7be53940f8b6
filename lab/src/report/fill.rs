//! Fills a report from raw runs: rows, comparisons and notes. `row.rs` defines each field of the report.
//!
//! Ratios are never averaged: the values are first summed over the runs, and then the sums are divided.

use super::row::{
    Comparison, NOTE_OF_UNUSED, OracleBeaten, Report, Row, SCHEMA, Time, WORTH_SAYING,
};
use super::{Judge, PolicyRuns, RowKind, RunResult, Table};
use foreread_core::stats::Stats;
use foreread_report::number;
use foreread_sim::limits::bound::Bound;
use foreread_sim::stats::{
    ALPHA, Summary, difference_ci95, equivalent, holm, merged, paired_t_test, percentile_ns, ratio,
    ratio_ci95,
};

const NS_PER_S: f64 = 1e9;
const NS_PER_US: f64 = 1e3;

/// The percentages of a latency curve: dense enough to show its steps, and denser at the slow end, where few reads
/// are.
const CURVE: [f64; 27] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0,
    75.0, 80.0, 85.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0,
];

impl Report {
    /// Computes the report from the raw runs.
    pub fn of(table: &Table) -> Report {
        let comparisons = comparisons(table);
        let none = table
            .policies
            .iter()
            .position(|p| p.kind == RowKind::NoReadahead);
        Report {
            schema: SCHEMA.to_string(),
            foreread: env!("CARGO_PKG_VERSION").to_string(),
            workload: table.workload.clone(),
            source: table.source.clone(),
            source_about: table.source_about.clone(),
            runs: table.runs,
            seed: table.seed,
            cache_bytes: table.cache_bytes,
            page_bytes: table.page_bytes,
            alpha: ALPHA,
            notes: table
                .notes
                .iter()
                .cloned()
                .chain(own_notes(table))
                .collect(),
            bound_s: mean_s(&table.bounds, Bound::ns),
            bound_device_s: mean_s(&table.bounds, |b| b.device_ns),
            bound_readers_s: mean_s(&table.bounds, |b| b.readers_ns),
            bound_path_s: mean_s(&table.bounds, |b| b.path_ns),
            mode: table.pace.map(|pace| pace.mode.json_name().to_string()),
            think: table.pace.and_then(|pace| pace.think),
            judged_by: if table.judge() == Judge::Latency {
                "latency_s"
            } else {
                "time_s"
            }
            .to_string(),
            oracle_beaten: oracle_beaten(table),
            best: best(table, &comparisons),
            shortened: table.shortened,
            is_walk: false,
            rows: (0..table.policies.len())
                .map(|i| row(table, i, none, &comparisons))
                .collect(),
            comparisons,
        }
    }
}

/// The mean of a bound over the runs, in seconds.
fn mean_s(bounds: &[Bound], part: fn(&Bound) -> u64) -> Option<f64> {
    let sum: u128 = bounds.iter().map(|b| u128::from(part(b))).sum();
    ratio(sum as f64 / NS_PER_S, bounds.len() as f64)
}

/// The run in which a policy beats the oracle by the largest factor.
fn oracle_beaten(table: &Table) -> Option<OracleBeaten> {
    /// The search ends within 0.01 % of the bound, so a difference of less than a thousandth is ignored.
    const BEATEN: f64 = 0.999;
    let times = |policy: &PolicyRuns| policy.judged_s(table.judge());
    let oracle = times(table.policies.iter().find(|p| p.kind.is_limit())?);
    let least = |policy: &PolicyRuns| {
        let runs = times(policy).into_iter().zip(&oracle).zip(table.seed..);
        let ratios = runs.filter_map(|((own, oracle), seed)| Some((ratio(own, *oracle)?, seed)));
        ratios.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let policies = table.policies.iter().filter(|p| !p.kind.is_limit());
    let beating: Vec<OracleBeaten> = policies
        .filter_map(|policy| {
            let (ratio, seed) = least(policy).filter(|(ratio, _)| *ratio < BEATEN)?;
            Some(OracleBeaten {
                policy: policy.policy.clone(),
                ratio,
                seed,
                policies: 0,
            })
        })
        .collect();
    let policies = beating.len();
    let most = beating
        .into_iter()
        .min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    Some(OracleBeaten { policies, ..most })
}

/// The share of the oracle's gain that a row reaches.
fn score(table: &Table, index: usize, none: Option<usize>) -> Option<f64> {
    let mean = |policy: &PolicyRuns| policy.mean_s(table.judge());
    let none = mean(&table.policies[none?])?;
    let gain = none - mean(table.policies.iter().find(|p| p.kind.is_limit())?)?;
    ratio(none - mean(&table.policies[index])?, gain).filter(|_| gain >= none * WORTH_SAYING)
}

/// The mean over the runs, if every run has it.
fn refault_bytes(policy: &PolicyRuns) -> Option<u64> {
    let runs: Option<Vec<u64>> = policy.runs.iter().map(|run| run.refault_bytes).collect();
    let runs = runs.filter(|runs| !runs.is_empty())?;
    Some((runs.iter().sum::<u64>() as f64 / runs.len() as f64).round() as u64)
}

fn row(table: &Table, index: usize, none: Option<usize>, comparisons: &[Comparison]) -> Row {
    let policy = &table.policies[index];
    let sums = Sums::of(policy);
    let time = |values: Vec<f64>| {
        Summary::of(&values).map(|t| Time {
            mean: t.mean,
            median: t.median,
            ci95: t.ci95,
            runs: values,
        })
    };
    let judged = |policy: &PolicyRuns| policy.mean_s(table.judge());
    let of_none = none.map(|i| &table.policies[i]);
    let beside_none = of_none.and_then(|none| {
        let mut pairs = comparisons.iter();
        pairs.find(|pair| pair.is_of(&none.policy, &policy.policy))
    });
    let stats = sums.ours();
    let count = |field: fn(&Stats) -> u64| stats.map(|_| sums.mean(field));
    // librbd counts only the readahead that it plans, none of the other counters in these rows.
    let planned_by = |field: fn(&Stats) -> u64| {
        (stats.is_some() || policy.kind == RowKind::Librbd).then(|| sums.mean(field))
    };
    let demand =
        |field: fn(&Stats) -> u64| Some(sums.mean(field)).filter(|n| stats.is_some() || *n > 0);
    let latency = merged(policy.runs.iter().map(|run| &run.latency));
    let percentile = |percent| percentile_ns(&latency, percent).map(|ns| ns as f64 / NS_PER_US);
    let bytes = |field: fn(&Stats) -> u64| stats.map(|_| sums.total(field));
    let part = |a: Option<f64>, b: Option<f64>| a.zip(b).and_then(|(a, b)| ratio(a, b));
    let (planned, used) = (bytes(|s| s.ra_bytes), bytes(|s| s.used_bytes));
    // A policy that maps pages around a fault is asked for fewer bytes of a mapping: without readahead each is asked for.
    let asked = of_none.filter(|none| none.runs.len() == policy.runs.len());
    let asked = Sums::of(asked.unwrap_or(policy)).total(|s| s.demand_bytes);
    let missed = of_none.map(|p| Sums::of(p).per_run(|s| s.source_bytes));
    Row {
        policy: policy.policy.clone(),
        kind: policy.kind,
        limit: policy.kind.is_limit(),
        score: score(table, index, none),
        ratio_to_none: part(judged(policy), of_none.and_then(judged)),
        ratio_to_none_ci95: of_none.and_then(|none| ratio_ci95(&none.times_s(), &policy.times_s())),
        p_value: beside_none.and_then(|pair| pair.p_value),
        differs_from_none: beside_none.and_then(|pair| pair.differs),
        throughput_mb_s: demand(|s| s.demand_bytes)
            .and_then(|_| ratio(asked, policy.times_s().iter().sum::<f64>()))
            .map(|bytes_s| bytes_s / number::MB),
        time_s: time(policy.times_s()),
        latency_s: (table.judge() == Judge::Latency)
            .then(|| time(policy.latencies_s()))
            .flatten(),
        late_p99_us: policy
            .runs
            .iter()
            .filter_map(|r| r.late_p99_ns)
            .max()
            .map(|ns| ns as f64 / NS_PER_US),
        demand_reads: demand(|s| s.demand_reads),
        demand_bytes: demand(|s| s.demand_bytes),
        ra_planned_ops: planned_by(|s| s.ra_planned_ops),
        ra_planned_bytes: planned_by(|s| s.ra_planned_bytes),
        ra_ops: count(|s| s.ra_ops),
        ra_bytes: count(|s| s.ra_bytes),
        refused_bytes: count(|s| s.ra_refused_bytes),
        source_reads: count(|s| s.source_reads),
        source_bytes: count(|s| s.source_bytes),
        used_bytes: count(|s| s.used_bytes),
        late_bytes: count(|s| s.late_bytes),
        unused_bytes: count(|s| s.unused_bytes),
        unresolved_bytes: count(|s| s.unresolved_bytes),
        failed_bytes: count(|s| s.ra_failed_bytes),
        thrash_bytes: count(|s| s.thrash_bytes),
        refault_bytes: refault_bytes(policy),
        distinct_bytes: stats.map(|_| sums.rounded(sums.distinct)),
        hits: count(|s| s.hits),
        late_hits: count(|s| s.late_hits),
        misses: count(|s| s.misses),
        failed_reads: count(|s| s.failed_reads),
        stall_s: stats.map(|_| sums.per_run(|s| s.stall_ns) / NS_PER_S),
        p50_us: percentile(50.0),
        p95_us: percentile(95.0),
        p99_us: percentile(99.0),
        p999_us: percentile(99.9),
        max_us: percentile(100.0),
        latency_us: CURVE
            .into_iter()
            .filter_map(|percent| Some([percent, percentile(percent)?]))
            .collect(),
        accuracy: part(used, planned),
        coverage: part(stats.map(|_| sums.per_run(|s| s.used_bytes)), missed),
        timeliness: part(bytes(|s| s.late_bytes), used).map(|late| 1.0 - late),
        overfetch: part(
            bytes(|s| s.source_bytes),
            stats.map(|_| sums.distinct as f64),
        ),
    }
}

/// The counters of all runs of a policy.
struct Sums<'a> {
    policy: &'a PolicyRuns,
    /// Distinct demanded bytes, over all runs.
    distinct: u128,
}

impl<'a> Sums<'a> {
    fn of(policy: &'a PolicyRuns) -> Sums<'a> {
        Sums {
            policy,
            distinct: policy
                .runs
                .iter()
                .map(|r| u128::from(r.distinct_bytes))
                .sum(),
        }
    }

    /// The policy's runs, if foreread did them and there are any.
    fn ours(&self) -> Option<&'a [RunResult]> {
        (!self.policy.runs.is_empty() && !self.policy.kind.is_external())
            .then_some(&self.policy.runs)
    }

    fn sum(&self, field: fn(&Stats) -> u64) -> u128 {
        self.policy
            .runs
            .iter()
            .map(|r| u128::from(field(&r.stats)))
            .sum()
    }

    fn total(&self, field: fn(&Stats) -> u64) -> f64 {
        self.sum(field) as f64
    }

    fn per_run(&self, field: fn(&Stats) -> u64) -> f64 {
        self.total(field) / self.policy.runs.len().max(1) as f64
    }

    fn mean(&self, field: fn(&Stats) -> u64) -> u64 {
        self.rounded(self.sum(field))
    }

    /// The mean of `sum` over the runs; half is rounded up.
    fn rounded(&self, sum: u128) -> u64 {
        let runs = self.policy.runs.len().max(1) as u128;
        u64::try_from((sum + runs / 2) / runs).unwrap_or(u64::MAX)
    }
}

/// Tests every pair of rows that are not limits, by a paired t test on the times or latencies ([`Judge`]). Holm's correction is over the
/// pairs of the table, because many pairs are tested, and because the same tests determine the best row.
fn comparisons(table: &Table) -> Vec<Comparison> {
    let choices = table.policies.iter().filter(|row| !row.kind.is_limit());
    let choices = Vec::from_iter(choices);
    let pairs = (0..choices.len()).flat_map(|a| (a + 1..choices.len()).map(move |b| (a, b)));
    let pairs = Vec::from_iter(pairs.map(|(a, b)| (choices[a], choices[b])));
    let judged = |row: &PolicyRuns| row.judged_s(table.judge());
    let test = |(a, b): &(&PolicyRuns, &PolicyRuns)| paired_t_test(&judged(a), &judged(b));
    let p_values = holm(&Vec::from_iter(pairs.iter().map(test)));
    let mean = |row: &PolicyRuns| row.mean_s(Judge::Time);
    let compare = |((a, b), p_value): ((&PolicyRuns, &PolicyRuns), Option<f64>)| Comparison {
        a: a.policy.clone(),
        b: b.policy.clone(),
        ratio: mean(b).zip(mean(a)).and_then(|(b, a)| ratio(b, a)),
        ratio_ci95: ratio_ci95(&a.times_s(), &b.times_s()),
        difference_ci95_s: difference_ci95(&a.times_s(), &b.times_s()),
        p_value,
        differs: p_value.map(|p| p < ALPHA),
        equivalent: equivalent(&judged(a), &judged(b)),
    };
    pairs.into_iter().zip(p_values).map(compare).collect()
}

/// The rows that may be the fastest: one, or several that are tied. A row is called the best only if, for every other row, a test shows
/// that it is slower, and the two are not equal within 5 % ([`equivalent`]). Empty if no test was possible.
fn best(table: &Table, comparisons: &[Comparison]) -> Vec<String> {
    let rows = table.policies.iter().filter(|row| !row.kind.is_limit());
    let timed = rows.filter_map(|row| Some((row.mean_s(table.judge())?, &row.policy)));
    let timed = Vec::from_iter(timed);
    let fastest = timed.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((_, fastest)) = fastest.filter(|_| comparisons.iter().any(|c| c.p_value.is_some()))
    else {
        return Vec::new();
    };
    let is_slower = |policy: &str| {
        let mut pairs = comparisons.iter();
        let pair = pairs.find(|pair| pair.is_of(fastest, policy));
        pair.is_some_and(|pair| pair.differs == Some(true) && pair.equivalent != Some(true))
    };
    let tied = timed.iter().map(|(_, policy)| policy.to_string());
    tied.filter(|policy| !is_slower(policy)).collect()
}

/// What the columns of the terminal's table would hide: readahead that was still in the cache at the end, not used so
/// far (neither used nor unused by definition); readahead that was refused; and reads that failed.
fn own_notes(table: &Table) -> Vec<String> {
    /// A smaller part of the readahead is the rest of the last windows.
    const TAIL: f64 = 0.05;
    /// A smaller part of the demanded bytes makes no difference.
    const FELT: f64 = 0.01;
    let (mut notes, mut untouched) = (Vec::new(), Vec::new());
    for policy in table.policies.iter().filter(|p| !p.kind.is_external()) {
        let (sums, name) = (Sums::of(policy), &policy.policy);
        let left = ratio(
            sums.total(|s| s.unresolved_bytes),
            sums.total(|s| s.ra_bytes),
        )
        .unwrap_or(0.0);
        if left > TAIL && sums.total(|s| s.unresolved_bytes) > FELT * sums.total(|s| s.demand_bytes)
        {
            untouched.push(format!("{name} {} %", number::percent(left)));
        }
        let refused = ratio(
            sums.total(|s| s.ra_refused_bytes),
            sums.total(|s| s.ra_planned_bytes),
        )
        .unwrap_or(0.0);
        if refused > TAIL {
            notes.push(format!(
                "{name}: {} % of the readahead that it planned was not read, because too little cache memory or too few requests were available",
                number::percent(refused)
            ));
        }
        let failed = sums.sum(|s| s.failed_reads);
        if failed > 0 {
            notes.push(format!(
                "{name}: {failed} reads failed, so its time is not that of the whole workload"
            ));
        }
    }
    if !untouched.is_empty() {
        notes.insert(0, format!("{NOTE_OF_UNUSED}{}", untouched.join(", ")));
    }
    if table.runs == 1 {
        notes.push(
            "only one run: no confidence interval and no test; use more with --runs".to_string(),
        );
    }
    if let Some(beaten) = oracle_beaten(table) {
        let several = match beaten.policies {
            1 => String::new(),
            n => format!("; {n} policies beat the oracle in some run"),
        };
        notes.push(format!("{beaten}{several}"));
    }
    if has_no_spread(table) {
        notes.push(
            "every run of a policy took the same time: nothing is random here, so more runs add nothing"
                .to_string(),
        );
    }
    notes
}

/// The runs of each row on a model are equal: an interval of zero width then means a deterministic model, not a precise
/// measurement.
fn has_no_spread(table: &Table) -> bool {
    let is_constant = |policy: &PolicyRuns| {
        let times = policy.judged_s(table.judge());
        times.windows(2).all(|pair| pair[0] == pair[1])
    };
    let is_simulated = !table.bounds.is_empty();
    is_simulated && table.runs > 1 && table.policies.iter().all(is_constant)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn near(got: Option<f64>, want: f64) {
        let got = got.expect("defined");
        assert!((got - want).abs() < 1e-9, "{got} is not {want}");
    }

    #[test]
    fn the_formulas_by_hand() {
        let mut boot = samples::boot();
        // A policy that maps around faults is asked for fewer bytes of the same workload.
        for run in &mut boot.policies[2].runs {
            run.stats.demand_bytes /= 2;
        }
        let report = Report::of(&boot);
        let (none, rbd) = (&report.rows[0], &report.rows[2]);
        near(rbd.ratio_to_none, 11.42 / 46.2);
        near(rbd.throughput_mb_s, 4.096 / 11.42);
        near(rbd.accuracy, 3_801_088.0 / 3_932_160.0);
        near(rbd.coverage, 3_801_088.0 / 4_096_000.0);
        near(rbd.timeliness, 1.0 - 380_108.0 / 3_801_088.0);
        near(rbd.overfetch, 4_200_000.0 / 4_096_000.0);
        near(rbd.stall_s, 0.5);
        assert_eq!(
            (rbd.ra_bytes, rbd.unused_bytes, rbd.hits),
            (Some(3_932_160), Some(131_072), Some(900))
        );
        near(none.ratio_to_none, 1.0);
        near(none.overfetch, 1.0);
        near(none.coverage, 0.0);
        assert_eq!(
            (none.accuracy, none.timeliness, none.p_value),
            (None, None, None)
        );
        assert_eq!(
            (rbd.differs_from_none, &report.best[..]),
            (Some(true), &["rbd-plain".to_string()][..])
        );
        assert!(
            rbd.p99_us.is_some_and(|p| (989.0..=991.0).contains(&p)),
            "{:?}",
            rbd.p99_us
        );
        // A thousand latencies from 1 to 1000 us in each run: the curve is a straight line.
        let near_line = |[percent, us]: &[f64; 2]| (us / percent / 10.0 - 1.0).abs() < 0.002;
        assert!(
            rbd.latency_us.len() == 27 && rbd.latency_us.iter().all(near_line),
            "{:?}",
            rbd.latency_us
        );
    }

    /// The p values of these rows' pairs, corrected, and the best rows.
    fn tested(rows: &[&[f64]]) -> (Vec<Option<f64>>, String) {
        let name = |n: usize| ["none", "a", "b", "c"][n];
        let rows = (0..).zip(rows);
        let rows = rows.map(|(n, times)| samples::runs(name(n), times, 0, 0, 0));
        let report = Report::of(&samples::table("w", "s", rows.collect()));
        let p_values = report.comparisons.iter().map(|pair| pair.p_value);
        (p_values.collect(), report.best.join(" "))
    }

    #[test]
    fn best_is_one_row_only_if_the_test_says_so() {
        let around = |mean: f64| [mean, mean + 0.125, mean - 0.125];
        let near = [1.01, 1.09, 0.92];
        let (p_values, best) = tested(&[&around(1.0), &around(1.0), &around(2.0), &near]);
        let same = [0, 1].map(|pair| p_values[pair]);
        assert_eq!((p_values.len(), same), (6, [Some(1.0), Some(0.0)]));
        assert_eq!(best, "none a c");
        for (rows, best) in [
            (
                &[&[3.0, 3.1, 2.9, 3.0][..], &[1.0, 1.1, 0.9, 1.01]][..],
                "a",
            ),
            // Faster on the mean, but the pairs do not agree.
            (&[&[3.0, 1.0, 2.9], &[1.0, 3.1, 2.0]], "none a"),
            // Surely faster, but by less than 5 %.
            (&[&[1.04, 1.04], &[1.0, 1.0]], "none a"),
            (&[&[1.06, 1.06], &[1.0, 1.0]], "a"),
            // The third lost a run: no test with it is possible, so no row may claim to be faster than it.
            (&[&[3.0, 3.1, 2.9], &[1.0, 1.1, 0.95], &[9.0, 9.0]], "a b"),
            (&[&[3.0], &[1.0]], ""),
            (&[], ""),
            (&[&[1.0, 1.0]], ""),
            (&[&[], &[]], ""),
        ] {
            assert_eq!(tested(rows).1, best, "{rows:?}");
        }
    }

    #[test]
    fn counters_are_means_and_ratios_are_of_sums() {
        let mut policy = samples::runs("none", &[1.0, 1.0], 0, 0, 1000);
        policy.runs[1].stats.source_bytes = 1003;
        let report = Report::of(&samples::table("w", "s", vec![policy]));
        assert_eq!(report.rows[0].source_bytes, Some(1002));
        near(report.rows[0].overfetch, 2003.0 / 8_192_000.0);
    }

    #[test]
    fn a_kernel_row_has_no_counters_of_ours() {
        let mut table = samples::boot();
        let mut kernel = samples::runs("kernel", &[20.0, 20.1, 19.9, 20.0, 20.2], 0, 0, 0);
        for run in &mut kernel.runs {
            run.kernel = true;
        }
        table.policies.push(kernel);
        let report = Report::of(&table);
        let row = &report.rows[3];
        assert!(row.kind == RowKind::Kernel && report.rows[0].kind == RowKind::NoReadahead);
        assert_eq!(
            (row.hits, row.source_bytes, row.overfetch, row.stall_s),
            (None, None, None, None)
        );
        assert_eq!(row.demand_reads, Some(1000));
        assert!(
            row.ratio_to_none.is_some() && row.throughput_mb_s.is_some() && row.p99_us.is_some()
        );
    }

    #[test]
    fn an_oracle_that_loses_a_run_is_no_bound() {
        let beaten = |auto: &[f64]| {
            let rows = [
                ("none", &[3.0, 3.0, 3.0][..]),
                ("auto", auto),
                ("oracle", &[1.0; 3]),
            ];
            let rows = rows.map(|(name, times)| samples::runs(name, times, 0, 0, 1000));
            Report::of(&samples::table("w", "s", rows.to_vec())).oracle_beaten
        };
        let found = beaten(&[1.1, 0.68, 1.5]).expect("the second run");
        assert_eq!((found.ratio, found.seed, found.policies), (0.68, 2, 1));
        assert_eq!(
            found.to_string(),
            "the oracle is not a lower bound here: auto took x0.68 of the oracle's time with seed 2"
        );
        assert_eq!(beaten(&[1.0, 0.9995, 1.5]), None);
    }

    #[test]
    fn runs_that_are_all_equal_are_said_to_have_no_spread() {
        let said = |times: &[f64], simulated: bool| {
            let policies = vec![
                samples::runs("none", &[2.0, 2.0], 0, 0, 1000),
                samples::runs("auto", times, 0, 0, 1000),
            ];
            let mut table = samples::table("w", "s", policies);
            table.bounds = vec![Bound::default(); if simulated { 2 } else { 0 }];
            Report::of(&table).notes.join("")
        };
        assert!(said(&[1.0, 1.0], true).starts_with("every run of a policy took the same time"));
        assert_eq!(said(&[1.0, 1.1], true), "");
        assert_eq!(said(&[1.0, 1.0], false), "");
    }

    #[test]
    fn notes_tell_what_the_columns_hide() {
        let mut table = samples::boot();
        for run in &mut table.policies[1].runs {
            run.stats.unresolved_bytes = run.stats.ra_bytes / 2;
            run.stats.ra_refused_bytes = run.stats.ra_planned_bytes / 4;
        }
        table.policies[2].runs[0].stats.failed_reads = 3;
        // All of very little: not worth a note.
        for run in &mut table.policies[2].runs {
            run.stats.ra_bytes = 4096;
            run.stats.unresolved_bytes = 4096;
        }
        table.notes.push("O_DIRECT was refused".to_string());
        let notes = Report::of(&table).notes;
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert_eq!(notes[0], "O_DIRECT was refused");
        assert!(
            notes[1].ends_with("not used so far: linux-6.18 50 %")
                && notes[2].contains("25 %")
                && notes[3].contains("3 reads")
        );
    }
}
