//! Tests of `compare` from plan to table, on models: published figures that the lab must reproduce, and the lab's own rules.

use crate::common::{draft, plan_on, row, table_of};
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::report::table::Style;
use foreread_lab::report::{Report, Table, render};
use foreread_report::progress::{Progress, Silent};
use foreread_testing::says;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn on_model(workload: &str, model: &str, policies: &[&str], runs: u32) -> Table {
    table_of(&ComparePlan {
        workload: Some(workload.to_string()),
        runs: Some(runs),
        ..plan_on(model, policies)
    })
}

fn time_s(table: &Table, policy: &str) -> f64 {
    let times = row(table, policy).times_s();
    times.iter().sum::<f64>() / times.len() as f64
}

/// The same plan gives the same table, to the nanosecond.
#[test]
fn a_simulation_repeats() {
    let times = || {
        let policies = ["none", "linux-6.18"];
        let table = on_model("random:count=500", "object-near", &policies, 4);
        policies.map(|policy| row(&table, policy).times_s())
    };
    let (one, two) = (times(), times());
    assert_eq!(one, two);
    assert!(one[0][0] != one[0][1], "another run has another seed");
}

/// The greps, too long for a first look, are measured when they are asked for, on a file as large as they need.
#[test]
fn a_plan_without_a_workload_measures_the_usual_ones() {
    let tables = compare::run(&plan_on("rbd", &["none"]), &mut Silent).expect("tables");
    let names: Vec<&str> = tables.iter().map(|t| t.workload.as_str()).collect();
    assert_eq!(names, compare::USUAL_WORKLOADS);
    let is_whole = tables.iter().all(|t| t.notes.is_empty());
    assert!(is_whole, "one was left out");
}

/// Common random numbers: a policy that reads nothing ahead takes exactly as long as none.
#[test]
fn every_policy_has_the_same_random_numbers() {
    let policies = ["none", "linux-6.18:max=0", "rbd-plain:max=0"];
    let table = on_model("random:count=500", "object-far", &policies, 3);
    assert_eq!(table.policies[0].times_s(), table.policies[1].times_s());
    assert_eq!(table.policies[0].times_s(), table.policies[2].times_s());
}

/// 64 readers of one file in turns, more than a file has streams at first: `auto` finds them all, and reads ahead of each.
#[test]
fn auto_follows_many_readers_of_one_file() {
    let policies = ["linux-6.18", "auto"];
    let table = on_model("interleaved:streams=64", "object-near", &policies, 1);
    let [linux, auto] = policies.map(|policy| time_s(&table, policy));
    assert!(auto < 0.6 * linux, "{auto}, linux-6.18: {linux}");
    let stats = row(&table, "auto").runs[0].stats;
    assert!(stats.unused_bytes * 10 < stats.ra_bytes);
}

/// What goes by the capacity is printed in plain numbers; what does not is not.
#[test]
fn a_maximum_by_the_capacity_of_the_model() {
    let policies = [
        "linux-2.6.31:max=4M+capacity",
        "linux-2.6.31:max=4M+capacity-2010b",
        "linux-2.6.31:max=512K",
    ];
    let table = on_model("sequential:record=64K", "x25-m", &policies, 1);
    let told: Vec<&String> = table.notes.iter().filter(|n| n.contains("here")).collect();
    assert_eq!(
        told,
        [
            "linux-2.6.31:max=4M+capacity is linux-2.6.31:max=512K here: model:x25-m holds 80000000000 bytes",
            "linux-2.6.31:max=4M+capacity-2010b is linux-2.6.31:max=2M here: model:x25-m holds 80000000000 bytes",
        ]
    );
    let [first, second, third] = policies.map(|policy| time_s(&table, policy));
    assert_eq!(first, third, "512 KiB, however it is said");
    assert!(second < first);
}

/// On a file the capacity is its size, beside the device's own setting.
#[test]
fn a_maximum_by_the_size_of_the_file() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(8 << 20).expect("longer");
    let table = table_of(&ComparePlan {
        workload: Some("sequential".to_string()),
        on: Some(compare::file(file.path())),
        policies: vec![draft("linux-2.6.31:max=capacity")],
        runs: Some(1),
        ..ComparePlan::default()
    });
    let mut notes = table.notes.iter();
    let note = notes.find(|n| n.contains("here")).expect("a note");
    says(note, &["linux-2.6.31:max=8K here", "holds 8388608 bytes"]);
}

/// A workload that no file can serve is tried on a model, and the table says why there is no file.
#[test]
fn no_scratch_file_for_nothing() {
    let plan = ComparePlan {
        workload: Some("readers".to_string()),
        runs: Some(1),
        size_bytes: Some(1 << 20),
        ..ComparePlan::default()
    };
    let tables = compare::run(&plan, &mut Silent).expect("tables");
    let [table] = &tables[..] else {
        panic!("{} tables", tables.len())
    };
    assert_eq!(table.source, "model:rbd");
    let why = "No scratch file: readers opens 4 files,";
    says(&table.notes.join("\n"), &[why]);
}

/// Stops its plan after this number of runs.
struct Stopping {
    stop: Arc<AtomicUsize>,
    after: u64,
}

impl Progress for Stopping {
    fn stage(&mut self, _text: &str) {}

    fn step(&mut self, done: u64, _total: u64) {
        if done == self.after {
            self.stop.store(2, Ordering::Relaxed);
        }
    }
}

/// A comparison that is stopped has the rounds that are whole, or of the first one what there is, and names what is missing.
#[test]
fn a_stopped_comparison_keeps_what_was_measured() {
    let stopped = |after| {
        let plan = ComparePlan {
            runs: Some(4),
            ..plan_on("nvme", &["none", "linux-6.18", "rbd-plain"])
        };
        let stop = Arc::clone(&plan.stop);
        let mut tables: Vec<Table> = Vec::new();
        let mut progress = Stopping { stop, after };
        let missing = compare::run_each(&[plan], &mut progress, |_, table| tables.push(table));
        let first = tables.remove(0);
        assert!(tables.is_empty(), "the others were not begun");
        let wanted =
            ["random", "interleaved", "boot-ide"].map(|name| format!("{name} on model:nvme"));
        assert_eq!(missing.expect("no failure"), wanted);
        let runs: Vec<usize> = first.policies.iter().map(|row| row.runs.len()).collect();
        (runs, Report::of(&first))
    };
    let (runs, report) = stopped(8);
    assert_eq!((runs, report.runs), (vec![2, 2, 2], 2));
    let note = "Interrupted: 2 of 4 runs of each row were completed";
    says(&report.notes.join("\n"), &[note]);
    let (runs, report) = stopped(2);
    assert_eq!(runs, [1, 1, 0]);
    let note = "Interrupted: 2 of 3 rows were measured, each in a single run";
    says(&report.notes.join("\n"), &[note]);
    let text = render(&report, Style::default());
    says(&text, &["\n  rbd-plain ", note]);
}
