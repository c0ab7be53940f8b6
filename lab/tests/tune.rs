//! Tests of the advice of `tune` for small traces on models: it reports a gain if there is one, and otherwise none.
//!
//! No real storage is probed (see `probe.rs`), and the clock is not used.

use crate::common::replay_of;
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::replay::{Replay, is_walk};
use foreread_lab::report::table::Style;
use foreread_lab::tune::{TuneOptions, TuneReport, find, render, tune};
use foreread_lab::verdict::Means;
use foreread_report::progress::Silent;
use foreread_trace::{FileInfo, Item, Record};
use std::sync::Arc;

const PAGE: u64 = 4096;

fn replay(name: &str, size: u64, reads: impl Iterator<Item = (u64, u64)>) -> Arc<Replay> {
    let file = Item::File(FileInfo {
        name: name.to_string(),
        size: Some(size),
    });
    let records =
        reads.map(|(page, pages)| Item::Record(Record::read(0, page * PAGE, pages * PAGE)));
    let items: Vec<Item> = [file].into_iter().chain(records).collect();
    replay_of("small.trace", items)
}

fn tuned(model: &str, reads: impl Iterator<Item = (u64, u64)>) -> TuneReport {
    let replay = Some(replay("/data/file", 64 << 20, reads));
    let plan = ComparePlan {
        replay,
        runs: Some(3),
        seed: 1,
        ..ComparePlan::default()
    };
    let storage = compare::model(model).expect("a model");
    tune(
        &TuneOptions {
            plan,
            storage,
            chosen: None,
            partial: false,
            is_dropped: false,
            seconds: 1.0,
            trace: None,
            command: Vec::new(),
        },
        &mut Silent,
    )
    .expect("it can be tuned")
}

#[test]
fn a_long_sequence_over_a_long_round_trip_wants_a_larger_window() {
    let tuned = tuned("object-near", (0..1000).map(|n| (n * 8, 8)));
    assert_eq!(
        (tuned.today.as_str(), tuned.today_is_known),
        ("linux-6.18:max=128K", false)
    );
    let kernel = tuned.verdict.gain(Means::Setting).expect("a gain");
    assert!(
        kernel.ratio < 0.5
            && kernel
                .ratio_ci95
                .is_some_and(|[low, high]| low <= kernel.ratio && kernel.ratio <= high)
    );
    let run = tuned.verdict.gain(Means::Run).expect("a gain");
    let [least_s, most_s] = run.with_range_s.expect("a range");
    assert!(least_s < kernel.with_s && (run.ratio - most_s / run.today_s).abs() < 1e-9);
    let steps = &tuned.verdict.steps;
    let lines: Vec<&str> = steps.iter().map(|s| s.text.as_str()).collect();
    assert!(lines.contains(&"foreread run -- CMD"), "{lines:?}");
    assert!(
        lines[0].starts_with("foreread doctor --fix DEVICE --to "),
        "{lines:?}"
    );
    let why = &tuned.verdict.why;
    assert!(
        why.starts_with("Set the kernel's readahead to ") && why.contains(" times faster"),
        "{why}"
    );
    let text = render(&tuned, Style::default());
    assert!(
        !lines.iter().any(|line| line.contains("foreread serve")) && text.contains("Expected: x0."),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100) && text.lines().count() <= 25,
        "{text}"
    );
}

#[test]
fn random_reads_gain_by_a_plan_alone_and_it_says_so() {
    let tuned = tuned(
        "rbd",
        (0..200).map(|n| ((n * 7919 + n * n * 131 + 17) % 16_000, 1)),
    );
    let means: Vec<Means> = tuned.verdict.steps.iter().map(|step| step.means).collect();
    assert_eq!(means, [Means::Plan], "{:#?}", tuned.report.rows);
    let why = &tuned.verdict.why;
    let plan = " If the program reads the same data each time, replay a plan of it: reads take ";
    assert!(
        why.starts_with("Nothing to change") && why.contains(plan) && why.contains(" s at best "),
        "{why}"
    );
}

#[test]
fn the_json_has_the_promised_keys() {
    let tuned = tuned("rbd", (0..100).map(|n| (n, 1)));
    let json = serde_json::to_value(&tuned).expect("JSON");
    assert_eq!(
        (json["schema"].as_str(), json["storage"].as_str()),
        (Some("foreread.tune/1"), Some("model:rbd"))
    );
    for key in "foreread trace chosen probe today today_bytes report recorded_s hint_files verdict"
        .split(' ')
    {
        assert!(json.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(
        json["report"]["schema"].as_str(),
        Some("foreread.compare/1")
    );
    let back: TuneReport = serde_json::from_value(json).expect("what was written can be read");
    assert_eq!(back, tuned);
}

#[test]
fn the_storage_is_found_by_the_largest_file_that_is_here() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = dir.path().join("large");
    std::fs::File::create(&path)
        .and_then(|f| f.set_len(16 << 20))
        .expect("a sparse file");
    let name = path.to_str().expect("UTF-8");
    let reads = |name: &str| replay(name, 16 << 20, (0..4).map(|n| (n, 1)));
    let found = find(&reads(name)).expect("it is here");
    assert_eq!(
        (found.path.as_path(), found.chosen.bytes_share),
        (path.as_path(), Some(1.0))
    );
    assert_eq!(
        (found.chosen.disk.files, found.chosen.disk.bytes),
        (1, 4 * PAGE)
    );
    let error = |name: &str| find(&reads(name)).expect_err("not here").to_string();
    assert!(error("/no/such/file").starts_with("none of its files exists on this machine"));
    assert!(error("relative").contains("--on model:NAME"));
}

/// Two files, and one that is not here: `bytes` and `took` are of each read.
fn two_disks(slow: &str, fast: &str) -> Arc<Replay> {
    let file = |name: &str| {
        Item::File(FileInfo {
            name: name.to_string(),
            size: Some(64 << 20),
        })
    };
    let mut items = vec![file(slow), file(fast), file("/no/such/file")];
    let mut at = 0;
    for n in 0..20 {
        for (file, bytes, took) in [(0, PAGE, 2_000_000), (1, 16 * PAGE, 10_000), (2, PAGE, 1)] {
            let times = (Some(at), Some(at + took));
            let read = Record::read(file, n * bytes, bytes);
            items.push(Item::Record(Record {
                open: file,
                start_ns: times.0,
                end_ns: times.1,
                ..read
            }));
            at += took;
        }
    }
    replay_of("two.trace", items)
}

/// The fast disk has most of the bytes, the slow one most of the time: that one is chosen, and the rest is named. A file of
/// /proc and one of the disk are two storages on every machine.
#[test]
fn the_storage_that_was_waited_for_is_chosen() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = dir.path().join("large");
    std::fs::File::create(&path)
        .and_then(|f| f.set_len(16 << 20))
        .expect("a sparse file");
    let found =
        find(&two_disks(path.to_str().expect("UTF-8"), "/proc/version")).expect("it is here");
    assert_eq!(found.path, path);
    assert!(
        found.chosen.time_share.is_some_and(|share| share > 0.99),
        "{:?}",
        found.chosen
    );
    assert!(
        found.chosen.bytes_share.is_some_and(|share| share < 0.1),
        "{:?}",
        found.chosen
    );
    assert_eq!(
        (
            found.chosen.others.len(),
            found.chosen.not_here.files,
            found.names.len()
        ),
        (1, 1, 1)
    );
    let other = find(&two_disks("/proc/version", path.to_str().expect("UTF-8")))
        .expect_err("nothing to measure there");
    assert!(other.to_string().contains("can be measured"), "{other}");
}

/// Files of a folder that are read whole, in this order.
fn whole_files(names: &[String]) -> Arc<Replay> {
    let mut items = Vec::new();
    for name in names {
        items.push(Item::File(FileInfo {
            name: name.clone(),
            size: Some(PAGE),
        }));
    }
    for open in 0..names.len() as u32 {
        items.push(Item::Record(Record::read(open, 0, PAGE)));
    }
    replay_of("files.trace", items)
}

/// `run` reads ahead what a folder lists next. A compiler reads whole files of one folder too, and in another order.
#[test]
fn only_files_in_the_order_of_their_folder_are_a_walk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    (0..64).for_each(|n| std::fs::write(dir.path().join(format!("f{n}")), "x").expect("room"));
    let entries = std::fs::read_dir(dir.path()).expect("a folder");
    let listed: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .path()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let is_walk = |names: &[String]| is_walk(&whole_files(names).loaded);
    assert!(is_walk(&listed));
    let every_second: Vec<String> = listed.iter().step_by(2).cloned().collect();
    assert!(is_walk(&every_second), "some are passed over");
    let backwards: Vec<String> = listed.iter().rev().cloned().collect();
    assert!(!is_walk(&backwards));
    let jumping: Vec<String> = (0..64).map(|n| listed[n * 23 % 64].clone()).collect();
    assert!(!is_walk(&jumping));
    let elsewhere: Vec<String> = (0..64).map(|n| format!("/no/such/folder/f{n}")).collect();
    assert!(is_walk(&elsewhere), "its order is not known here");
}
