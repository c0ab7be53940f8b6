//! Tests of `--vary` from text to tables: each value gives the same comparison as it does alone, and invalid input is
//! reported before anything runs.

use crate::common::{plan_on, table_of};
use foreread_lab::compare::vary::Axis;
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::report::Report;
use foreread_os::failure::Failure;
use foreread_report::progress::Silent;

fn plan(workload: &str, policies: &[&str]) -> ComparePlan {
    ComparePlan {
        workload: Some(workload.to_string()),
        runs: Some(2),
        size_bytes: Some(16 << 20),
        ..plan_on("hdd-theory", policies)
    }
}

fn varied(text: &str, plan: &ComparePlan) -> Result<Vec<ComparePlan>, Failure> {
    Axis::parse(text)?.plans(plan)
}

fn reports(plans: &[ComparePlan]) -> Vec<Report> {
    let mut reports = Vec::new();
    let each = |_: &mut Silent, table| reports.push(Report::of(&table));
    let missing = compare::run_each(plans, &mut Silent, each).expect("tables");
    assert!(missing.is_empty());
    reports
}

/// The comparison of a single value, asked for alone.
fn alone(plan: &ComparePlan) -> Report {
    Report::of(&table_of(plan))
}

#[test]
fn a_parameter_of_the_workload_is_a_table_for_each_value() {
    let base = plan(
        "interleaved:record=32K",
        &["none", "linux-2.6.23", "linux-2.6.31"],
    );
    let got = reports(&varied("streams=1,8", &base).expect("fits"));
    for (report, streams) in got.iter().zip([1, 8]) {
        let workload = Some(format!("interleaved:record=32K,streams={streams}"));
        let plan = ComparePlan {
            workload,
            ..base.clone()
        };
        assert_eq!(*report, alone(&plan));
    }
    assert_eq!(got.len(), 2);
}

#[test]
fn a_parameter_of_the_policies_is_a_row_for_each_value() {
    let policies = ["linux-2.6.31", "none", "rbd-plain:trigger=3"];
    let got = varied(" policy.max = 128K , 1M ", &plan("sequential", &policies)).expect("fits");
    let rows = [
        "linux-2.6.31:max=128K",
        "linux-2.6.31:max=1M",
        "none",
        "rbd-plain:trigger=3,max=128K",
        "rbd-plain:trigger=3,max=1M",
    ];
    let names: Vec<String> = got[0].policies.iter().map(ToString::to_string).collect();
    assert_eq!((got.len(), names), (1, rows.map(String::from).to_vec()));
    let usual = varied("policy.max=128K,4M", &plan("sequential", &[])).expect("fits");
    assert!(usual[0].policies.len() > compare::USUAL_POLICIES.len());
}

/// Two tables of one workload: their names say which memory they have.
#[test]
fn the_memory() {
    let base = plan("interleaved:streams=64", &["none", "linux-2.6.31"]);
    let got = reports(&varied("cache=16M,1M", &base).expect("fits"));
    let plan = ComparePlan {
        cache_bytes: Some(1 << 20),
        varied: " with memory=1M".to_string(),
        ..base
    };
    assert_eq!(got[1], alone(&plan));
    assert_eq!(got[1].workload, "interleaved:streams=64 with memory=1M");
    // 64 windows do not fit in 1 MiB.
    let overfetch = |report: &Report| report.rows[1].overfetch.expect("demand");
    assert!(overfetch(&got[1]) > overfetch(&got[0]));
}

#[test]
fn a_value_that_does_not_fit_is_reported_before_anything_runs() {
    let plans = varied("streams=1,2,9999", &plan("interleaved", &[])).expect("numbers of streams");
    let mut tables = 0;
    let error = compare::run_each(&plans, &mut Silent, |_, _| tables += 1);
    let error = error.expect_err("too many for 16 MiB").to_string();
    assert!(error.contains("9999 records of 16384 bytes"), "{error}");
    assert_eq!(tables, 0);
}

#[test]
fn what_is_no_list_of_values_is_refused() {
    let refused = |text: &str, plan: &ComparePlan| varied(text, plan).expect_err(text);
    let here = plan("interleaved", &["none", "linux-2.6.31", "rbd-plain:max=1M"]);
    let streams = |most: u32| {
        let values: Vec<String> = (1..=most).map(|i| i.to_string()).collect();
        format!("streams={}", values.join(","))
    };
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
        ("policy.max=1M,1024K", "a value given twice"),
        (&streams(65), "65 values are too many"),
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
    assert!(varied(&streams(64), &here).is_ok(), "64 are not too many");
    let cached = ComparePlan {
        cache_bytes: Some(1),
        ..here.clone()
    };
    let twice = "streams is set twice: in 'interleaved:streams=4'";
    for (text, plan, part) in [
        ("streams=1", &plan("interleaved:streams=4", &[]), twice),
        ("cache=1M", &cached, "set twice"),
    ] {
        let error = refused(text, plan).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    for (key, near) in [
        ("streems", "nearest: streams"),
        ("policy.maxx", "nearest: policy.max"),
        ("memry", "nearest: memory"),
        ("policy.", ""),
        ("", ""),
    ] {
        let error = refused(&format!("{key}=1"), &here).to_string();
        let wanted = format!("unknown parameter in --vary: '{key}'; {near}");
        assert!(error.starts_with(&wanted), "{error}");
    }
}
