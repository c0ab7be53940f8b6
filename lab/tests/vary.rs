//! Tests of `--vary` from text to series: each value gives the same comparison as it does alone, and invalid input is
//! reported before anything runs.

use foreread_lab::compare::vary::{self, Vary, VaryError};
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::report::series::Value;
use foreread_lab::report::{Report, Series};
use foreread_report::{progress::Progress, progress::Silent};
use std::sync::atomic::{AtomicUsize, Ordering};

fn plan(workload: &str, policies: &[&str]) -> ComparePlan {
    ComparePlan {
        workload: Some(workload.to_string()),
        on: Some(compare::model("hdd-theory").expect("a model")),
        policies: policies
            .iter()
            .map(|p| foreread_history::parse(p).expect("a policy"))
            .collect(),
        runs: Some(2),
        seed: 1,
        size_bytes: Some(16 << 20),
        ..ComparePlan::default()
    }
}

fn series(text: &str, plan: &ComparePlan) -> Series {
    let measured = vary::run(&Vary::parse(text, plan).expect(text), &mut Silent).expect(text);
    assert!(measured.missing.is_empty());
    measured.series
}

/// The comparison of a single value, asked for alone.
fn alone(plan: &ComparePlan) -> Report {
    Report::of(&compare::run(plan, &mut Silent).expect("a table")[0])
}

fn ratio(series: &Series, value: usize, row: usize) -> f64 {
    let row = &series.reports[value].rows[row];
    row.ratio_to_none.expect("measured")
}

#[test]
fn a_parameter_of_the_workload() {
    let plan = plan(
        "interleaved:record=32K",
        &["none", "linux-2.6.23", "linux-2.6.31"],
    );
    let got = series("streams=1,8", &plan);
    assert_eq!(got.workload, "interleaved:record=32K");
    assert_eq!(got.vary.values, [Value::Number(1), Value::Number(8)]);
    assert_eq!(got.policies, ["none", "linux-2.6.23", "linux-2.6.31"]);
    for (report, streams) in got.reports.iter().zip([1, 8]) {
        let workload = Some(format!("interleaved:record=32K,streams={streams}"));
        let plan = ComparePlan {
            workload,
            ..plan.clone()
        };
        assert_eq!(*report, alone(&plan));
    }
    // One state for each open description cannot follow eight streams.
    let is_followed = |value, row| ratio(&got, value, row) < 0.3;
    assert!(is_followed(0, 1) && is_followed(1, 2) && ratio(&got, 1, 1) > 0.9);
}

#[test]
fn a_parameter_of_the_policies_that_have_it() {
    let policies = ["linux-2.6.31", "none", "rbd-plain:trigger=3"];
    let plan = plan("sequential", &policies);
    let got = series(" policy.max = 128K , 1M ", &plan);
    assert_eq!(got.policies, policies);
    let sizes = [Value::Number(128 << 10), Value::Number(1 << 20)];
    assert_eq!(got.vary.values, sizes);
    let rows = got.reports[1].rows.iter();
    let names: Vec<&str> = rows.map(|r| r.policy.as_str()).collect();
    let varied = ["linux-2.6.31:max=1M", "none", "rbd-plain:trigger=3,max=1M"];
    assert_eq!(names, varied);
    assert_eq!(got.reports[1], alone(&self::plan("sequential", &varied)));
    // Larger windows, fewer of the disk's 8 ms.
    assert!(ratio(&got, 1, 0) < ratio(&got, 0, 0) / 2.0);
    assert_eq!(ratio(&got, 0, 1), ratio(&got, 1, 1));
}

#[test]
fn words_and_the_usual_policies() {
    let got = series(
        "policy.context=slow-ramp,off",
        &plan("interleaved", &["linux-3.12"]),
    );
    assert_eq!((got.vary.bytes, got.policies.len()), (false, 2));
    let words = ["slow-ramp", "off"].map(|word| Value::Word(word.to_string()));
    assert_eq!(got.vary.values, words);
    let usual = series("policy.max=128K,4M", &plan("sequential", &[]));
    assert_eq!(usual.policies, compare::USUAL_POLICIES);
}

#[test]
fn the_cache() {
    let plan = plan("interleaved:streams=64", &["none", "linux-2.6.31"]);
    let got = series("cache=16M,1M", &plan);
    let sizes: Vec<u64> = got.reports.iter().map(|r| r.cache_bytes).collect();
    assert_eq!((sizes, got.vary.bytes), (vec![16 << 20, 1 << 20], true));
    let plan = ComparePlan {
        cache_bytes: Some(1 << 20),
        ..plan
    };
    assert_eq!(got.reports[1], alone(&plan));
    // 64 windows do not fit in 1 MiB.
    let overfetch = |value: usize| got.reports[value].rows[1].overfetch.expect("demand");
    assert!(overfetch(1) > overfetch(0));
}

/// On a file the kernel's row comes last, without bytes of ours.
#[test]
fn a_file() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(file.path(), vec![7; 1 << 20]).expect("written");
    let plan = ComparePlan {
        on: Some(compare::file(file.path().to_path_buf())),
        ..plan("sequential", &["none", "rbd-plain"])
    };
    let got = series("record=16K,64K", &plan);
    assert_eq!(got.policies, ["none", "rbd-plain", "kernel"]);
    for report in &got.reports {
        let kernel = &report.rows[2];
        assert!(kernel.source_bytes.is_none() && kernel.throughput_mb_s.is_some());
    }
}

/// Counts the calls, to see that nothing ran, and remembers the stages.
#[derive(Default)]
struct Spy(u64, Vec<String>);

impl Progress for Spy {
    fn stage(&mut self, text: &str) {
        self.1.push(text.to_string());
    }
    fn step(&mut self, _done: u64, _total: u64) {
        self.0 += 1;
    }
}

#[test]
fn a_value_that_does_not_fit_is_named_before_anything_runs() {
    let asked =
        Vary::parse("streams=1,2,9999", &plan("interleaved", &[])).expect("a number of streams");
    let mut spy = Spy::default();
    let error = vary::run(&asked, &mut spy)
        .expect_err("too many for 16 MiB")
        .to_string();
    assert!(
        error.contains("9999 records of 16384 bytes") && error.ends_with("with streams=9999"),
        "{error}"
    );
    assert_eq!((spy.0, spy.1.len()), (0, 0));
    let asked = Vary::parse("streams=1,2", &plan("interleaved", &["none"])).expect("fits");
    vary::run(&asked, &mut spy).expect("a series");
    assert_eq!(
        spy.1,
        [
            "streams=1 on model:hdd-theory, 1 of 2",
            "streams=2 on model:hdd-theory, 2 of 2"
        ]
    );
}

/// Stops the plan in the second value.
struct Stops<'a>(&'a AtomicUsize);

impl Progress for Stops<'_> {
    fn stage(&mut self, text: &str) {
        if text.ends_with("2 of 3") {
            self.0.store(2, Ordering::Relaxed);
        }
    }
    fn step(&mut self, _done: u64, _total: u64) {}
}

#[test]
fn a_series_that_is_stopped_has_the_values_that_were_measured() {
    let plan = plan("interleaved", &["none", "linux-2.6.31"]);
    let asked = Vary::parse("streams=1,2,4", &plan).expect("fits");
    let measured = vary::run(&asked, &mut Stops(&plan.stop)).expect("a part of it");
    let missing = [
        "streams=2 on model:hdd-theory",
        "streams=4 on model:hdd-theory",
    ];
    assert_eq!(measured.missing, missing);
    let series = measured.series;
    assert_eq!(series.vary.values, [Value::Number(1)]);
    assert_eq!(series.reports.len(), 1);
    assert!(
        series
            .render(false)
            .contains("interleaved on model:hdd-theory by streams")
    );
    plan.stop.store(2, Ordering::Relaxed);
    let nothing = vary::run(&asked, &mut Silent).expect("nothing");
    assert_eq!(
        (nothing.series.reports.len(), nothing.missing.len()),
        (0, 3)
    );
}

#[test]
fn what_is_no_series_is_refused() {
    let refused = |text: &str, plan: &ComparePlan| Vary::parse(text, plan).expect_err(text);
    let here = plan("interleaved", &["none", "linux-2.6.31", "rbd-plain:max=1M"]);
    let many = format!(
        "streams={}",
        (1..=65)
            .map(|i| i.to_string())
            .collect::<Vec<_>>()
            .join(",")
    );
    for (text, part) in [
        ("", "no values given"),
        ("streams", "no values given"),
        ("streams=", "an empty value"),
        ("streams=1,,2", "an empty value"),
        ("streams=0", "streams=0 is not between 1"),
        ("streams=1,x", "streams=x is not a whole number"),
        ("streams=1=2", "streams=1=2 is not a whole number"),
        ("streams=2,1,2", "a value given twice: streams=2"),
        ("record=1024,1K", "a value given twice: record=1K"),
        (&many, "65 values are too many"),
        ("cache=0", "not a size: cache=0"),
        ("cache=16M,x", "not a size: cache=x"),
        ("cache=99999999999999999999", "not a size"),
        (
            "policy.max=1M,2M",
            "max is set twice: in 'rbd-plain:max=1M' and in --vary policy.max",
        ),
        (
            "policy.trigger=1,99999999999999999999",
            "is not a whole number",
        ),
    ] {
        let error = refused(text, &here).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(
        Vary::parse(&many.replace(",65", ""), &here).is_ok(),
        "64 are not too many"
    );
    let twice = "streams is set twice: in 'interleaved:streams=4'";
    let cached = ComparePlan {
        cache_bytes: Some(1),
        ..here.clone()
    };
    let logs = ComparePlan {
        event_logs: Some("logs".into()),
        ..here.clone()
    };
    let nowhere = ComparePlan {
        on: None,
        ..here.clone()
    };
    let nothing = ComparePlan {
        workload: None,
        ..here.clone()
    };
    for (text, plan, part) in [
        ("streams=1", &plan("interleaved:streams=4", &[]), twice),
        ("cache=1M", &cached, "set twice"),
        ("cache=1M", &logs, "--event-log"),
        ("streams=1", &nowhere, "no source"),
        ("streams=1", &nothing, "no workload"),
    ] {
        let error = refused(text, plan).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(Vary::parse("streams=1", &logs).is_ok());
    for key in ["streems", "policy.maxx", "policy.", "", "max"] {
        let VaryError::Key { known, .. } = refused(&format!("{key}=1"), &here) else {
            panic!("{key}")
        };
        assert_eq!(known[..3], ["streams", "record", "memory"]);
        assert!(
            known.iter().filter(|k| *k == "policy.max").count() == 1,
            "{known:?}"
        );
    }
}
