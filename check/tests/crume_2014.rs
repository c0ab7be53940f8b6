//! [Crume 2014]'s other three workloads on the model of its volume: the counts that are met, the rows that come out.
//!
//! `boot-ide` has a separate file. Figures of the posting stand here as published; how far a modelled one may be off
//! is what was seen, rounded up. Never: more than one seed of a grep, which takes a second without optimisation.

use foreread_check::reproduce::published::crume_2014::{self, WORKLOADS};
use foreread_history::parse_workload as parse;
use foreread_lab::compare::{self, ComparePlan};
use foreread_report::progress::Silent;
use foreread_sim::simulator::RunResult;

const BLOCK: u64 = 4096;
const GIB: u64 = 1 << 30;
const DETECTORS: [&str; 4] = ["none", "rbd-plain", "rbd-aligned", "rbd-eager"];

/// The published counts of a workload, and its lines.
fn published(name: &str) -> (u64, u64, [Row; 4]) {
    let of: &crume_2014::Workload = WORKLOADS
        .iter()
        .find(|w| w.name == name)
        .expect("a workload");
    (
        of.reads,
        of.mb,
        of.lines.map(|l| (l.time_s, l.ra_ops, l.ra_mb)),
    )
}

/// Seconds, requests and MB of a detector.
type Row = (f64, f64, f64);

/// What came out of one detector: means over the runs.
struct Mean {
    row: Row,
    source_mb: f64,
}

/// A few runs of each detector, in the order of [`DETECTORS`].
fn run(workload: &str, runs: u32) -> Vec<Mean> {
    let plan = ComparePlan {
        workload: Some(workload.to_string()),
        on: Some(compare::model("rbd").expect("a model")),
        policies: DETECTORS
            .iter()
            .map(|p| foreread_history::parse(p).expect("a policy"))
            .collect(),
        runs: Some(runs),
        seed: 1,
        ..ComparePlan::default()
    };
    let table = compare::run(&plan, &mut Silent).expect("a table").remove(0);
    let mean = |results: &[RunResult]| {
        let of = |f: fn(&RunResult) -> f64| results.iter().map(f).sum::<f64>() / f64::from(runs);
        let mb = of(|r| r.stats.ra_planned_bytes as f64 / 1e6);
        let row = (of(|r| r.time_s), of(|r| r.stats.ra_planned_ops as f64), mb);
        Mean {
            row,
            source_mb: of(|r| r.stats.source_bytes as f64 / 1e6),
        }
    };
    table.policies.iter().map(|p| mean(&p.runs)).collect()
}

/// Every figure is within these parts of the published one: the time without readahead, other times, requests and MB
/// of `plain`, those of the others.
#[track_caller]
fn assert_near(means: &[Mean], published: [Row; 4], parts: [f64; 4]) {
    let [none, time, plain, other] = parts;
    for ((detector, mean), published) in DETECTORS.iter().zip(means).zip(published) {
        println!("{detector}: {:.2?}, published {published:.2?}", mean.row);
        let near = |value: f64, published: f64, part: f64| {
            let off = if published == 0.0 {
                value
            } else {
                (value / published - 1.0).abs()
            };
            assert!(off <= part, "{detector}: {value:.2}, published {published}");
        };
        near(
            mean.row.0,
            published.0,
            if *detector == "none" { none } else { time },
        );
        let part = if *detector == "rbd-plain" {
            plain
        } else {
            other
        };
        near(mean.row.1, published.1, part);
        near(mean.row.2, published.2, part);
    }
}

#[test]
fn counts_are_those_published() {
    for (name, depth) in [("boot-virtio", 4), ("grep-ide", 1), ("grep-virtio", 4)] {
        let (reads, mb, _) = published(name);
        let chosen = parse(name).expect("valid");
        let least = chosen.info.least_bytes;
        for (size, seed) in [(least, 1), (least + 511, 2), (100 * GIB, 3)] {
            let workload = chosen.build(size, seed).expect("fits");
            assert_eq!(
                (workload.reads(), (workload.bytes() + 500_000) / 1_000_000),
                (reads, mb),
                "{name}"
            );
            assert_eq!(
                workload.distinct_bytes(BLOCK),
                workload.bytes(),
                "{name}: a byte is read twice"
            );
            let most = workload.jobs.iter().map(|j| j.depth).max().expect("jobs");
            assert_eq!((most, workload.page_bytes), (depth, BLOCK));
            let requests = || workload.jobs.iter().flat_map(|job| &job.requests);
            assert!(
                requests()
                    .all(|r| r.offset % BLOCK == 0 && r.len % BLOCK == 0 && r.len <= 32 * BLOCK)
            );
            let last = requests().map(|r| r.offset + r.len).max().expect("reads");
            assert!(
                last > size / 10 * 9,
                "{name}: nothing in the last tenth of the file"
            );
        }
        let error = chosen
            .build(least - 1, 1)
            .expect_err("too small")
            .to_string();
        assert_eq!(
            error,
            format!(
                "{name}: size={} is less than the {least} bytes that it needs",
                least - 1
            )
        );
    }
}

/// The posting: `plain` and `aligned` help a little, `eager` reads three times as much ahead and wins nothing.
#[test]
fn boot_virtio_gains_by_plain_and_not_by_eager() {
    let means = run("boot-virtio", 3);
    assert_near(
        &means,
        published("boot-virtio").2,
        [0.015, 0.10, 0.01, 0.06],
    );
    assert_eq!(means[1].row.1, 451.0);
    let [none, plain, aligned, eager] = [0, 1, 2, 3].map(|i: usize| means[i].row.0);
    assert!(
        plain < 0.96 * none && aligned < 0.96 * none,
        "{none} {plain} {aligned}"
    );
    assert!(eager > 1.04 * plain, "{plain} {eager}");
}

/// The posting: no detector makes a difference worth the name.
#[test]
fn grep_ide_hardly_gains() {
    let means = run("grep-ide", 1);
    assert_near(&means, published("grep-ide").2, [0.001, 0.02, 0.01, 0.1]);
    assert_eq!(means[1].row.1, 397.0);
    assert!(
        means[1..]
            .iter()
            .all(|m| (m.row.0 / means[0].row.0 - 1.0).abs() < 0.02)
    );
}

/// The posting: `plain` and `aligned` make no difference, `eager` reads most and is the slowest.
#[test]
fn grep_virtio_loses_by_eager() {
    let means = run("grep-virtio", 1);
    assert_near(&means, published("grep-virtio").2, [0.005, 0.04, 0.01, 0.1]);
    assert_eq!(means[1].row.1, 1186.0);
    assert!(
        means[1..3]
            .iter()
            .all(|m| (m.row.0 / means[0].row.0 - 1.0).abs() < 0.05)
    );
    let (others, eager) = (&means[..3], &means[3]);
    assert!(
        others.iter().all(|m| m.source_mb < eager.source_mb),
        "eager reads the most"
    );
    assert!(
        others.iter().all(|m| m.row.0 < eager.row.0),
        "eager takes longest"
    );
}

/// [Crume 2014]: without readahead it takes four times as long as with plain.
#[test]
fn boot_ide_on_the_published_volume() {
    let table = crate::papers::table(
        "boot-ide",
        "rbd",
        &["none", "rbd-plain", "linux-6.18"],
        3,
        None,
    );
    let time_s = |policy| crate::papers::mean(&table, policy, |run| run.time_s);
    let (none, plain) = (time_s("none"), time_s("rbd-plain"));
    for row in &table.policies {
        let s = &row.runs[0].stats;
        println!(
            "{}: {:.2} s, RA {} ops {} MB, unused {}",
            row.policy,
            row.runs[0].time_s,
            s.ra_ops,
            s.ra_bytes / 1_000_000,
            s.unused_bytes
        );
    }
    let published = WORKLOADS[0].lines[0].time_s;
    assert!(
        (none / published - 1.0).abs() < 0.01,
        "none takes {none} s, published {published}"
    );
    assert!(
        none / plain >= 3.5,
        "plain is {:.2} times faster",
        none / plain
    );
    let first = &table.policies[0].runs[0].stats;
    assert_eq!(
        (first.demand_reads, first.demand_bytes / 1_000_000),
        (57_516, 407)
    );
    assert_eq!(
        first.source_reads, 57_516,
        "without readahead and re-reads every read goes out"
    );
}

/// The published margins, by the statistics of `foreread-sim`.
mod margins {
    use foreread_check::reproduce::published::crume_2014::{
        PublishedRow, SIGMAS, STRATEGIES, WORKLOADS,
    };
    use foreread_sim::stats::{ALPHA, PublishedMean, holm, z_test};

    fn near(got: f64, want: f64, within: f64) {
        assert!(
            (got - want).abs() <= within,
            "{got} is not {want} within {within}"
        );
    }

    /// A published time of [Crume 2014] and its margin.
    fn published(line: &PublishedRow) -> PublishedMean {
        PublishedMean {
            mean: line.time_s,
            margin: line.margin_s,
        }
    }

    /// Every pair of every workload, corrected as one family of 24: "workload slower>faster" and its p value.
    fn crume() -> Vec<(String, f64)> {
        let (mut names, mut family) = (Vec::new(), Vec::new());
        for workload in &WORKLOADS {
            for (i, one) in workload.lines.iter().enumerate() {
                for (j, other) in workload.lines.iter().enumerate().skip(i + 1) {
                    let (slow, fast) = if one.time_s > other.time_s {
                        (i, j)
                    } else {
                        (j, i)
                    };
                    names.push(format!(
                        "{} {}>{}",
                        workload.name, STRATEGIES[slow].0, STRATEGIES[fast].0
                    ));
                    family.push(z_test(published(one), published(other), SIGMAS));
                }
            }
        }
        assert_eq!(family.len(), 24);
        let corrected = holm(&family);
        names
            .into_iter()
            .zip(corrected.into_iter().map(|p| p.expect("defined")))
            .collect()
    }

    #[test]
    fn the_published_table_gives_its_findings() {
        let called = |alpha: f64| {
            crume()
                .into_iter()
                .filter(move |(_, p)| *p < alpha)
                .map(|(n, _)| n)
        };
        let at_5: Vec<String> = called(ALPHA).collect();
        let has = |name: &str| at_5.iter().any(|n| n == name);
        // What the post says and the test confirms: boots gain; eager is too eager; plain is never worse than none.
        for name in [
            "boot-ide none>plain",
            "boot-ide none>eager",
            "boot-virtio none>plain",
            "boot-ide eager>plain",
        ] {
            assert!(has(name), "{name} is missing of {at_5:?}");
        }
        assert!(has("grep-virtio eager>none") && has("grep-virtio eager>plain"));
        assert!(!at_5.iter().any(|n| n.ends_with("plain>none")), "{at_5:?}");
        assert!(!has("boot-ide aligned>plain") && !has("boot-virtio plain>aligned"));
        // What the post overlooks, comparing intervals by eye: one gain, and aligned slower on grep-virtio.
        for name in [
            "grep-ide none>plain",
            "grep-virtio aligned>plain",
            "grep-virtio aligned>none",
        ] {
            assert!(has(name), "{name} is missing of {at_5:?}");
        }
        // At the author's own 99.7 %, family-wise, only the last of these remains.
        let at_03: Vec<String> = called(0.003).collect();
        let has = |name: &str| at_03.iter().any(|n| n == name);
        assert!(has("grep-virtio aligned>none"));
        assert!(
            !has("grep-ide none>plain") && !has("grep-virtio aligned>plain"),
            "{at_03:?}"
        );
    }

    #[test]
    fn z_of_published_margins() {
        let at = |i: usize, j: usize, row: usize| {
            let of = |k: usize| published(&WORKLOADS[row].lines[k]);
            z_test(of(i), of(j), SIGMAS).expect("defined")
        };
        // Before correction, as the evaluation notes have them.
        near(at(0, 1, 2), 0.0012, 0.0001);
        near(at(1, 2, 3), 0.0008, 0.0001);
        near(at(0, 2, 3), 3e-5, 0.5e-5);
        let bare = PublishedMean {
            mean: 1.0,
            margin: 0.0,
        };
        assert_eq!(z_test(bare, bare, 3.0), None);
    }
}
