//! Tests of the advice of `tune` for small traces on models: it reports a gain if there is one, and otherwise none.
//!
//! No real storage is probed (see `probe.rs`), and the clock is not used.

use crate::common::{loaded, replay_of};
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::replay::{Replay, is_walk};
use foreread_lab::report::table::Style;
use foreread_lab::tune::{TuneOptions, TuneReport, WorkloadChoice, find, render, tune};
use foreread_lab::verdict::Means;
use foreread_report::progress::Silent;
use foreread_testing::says;
use foreread_trace::{FileInfo, Header, Item, Record};
use std::path::PathBuf;
use std::sync::Arc;

const PAGE: u64 = 4096;

fn file(name: &str, size: u64) -> Item {
    let (name, size) = (name.to_string(), Some(size));
    Item::File(FileInfo::new(name, size))
}

fn replay(name: &str, size: u64, reads: impl Iterator<Item = (u64, u64)>) -> Arc<Replay> {
    let read = |(page, pages)| Item::Record(Record::read(0, page * PAGE, pages * PAGE));
    let items = std::iter::once(file(name, size)).chain(reads.map(read));
    replay_of("small.trace", items.collect())
}

fn tuned(model: &str, reads: impl Iterator<Item = (u64, u64)>) -> TuneReport {
    tuned_of(model, replay("/data/file", 64 << 20, reads), None)
}

fn tuned_of(model: &str, replay: Arc<Replay>, chosen: Option<WorkloadChoice>) -> TuneReport {
    let plan = ComparePlan {
        replay: Some(replay),
        runs: Some(3),
        seed: 1,
        ..ComparePlan::default()
    };
    let options = TuneOptions {
        plan,
        storage: compare::model(model).expect("a model"),
        chosen,
        partial: false,
        is_dropped: false,
        seconds: 1.0,
        trace: None,
        command: Vec::new(),
    };
    tune(&options, &mut Silent).expect("it can be tuned")
}

#[test]
fn a_long_sequence_over_a_long_round_trip_wants_a_larger_window() {
    let tuned = tuned("object-near", (0..1000).map(|n| (n * 8, 8)));
    let today = (tuned.today.as_str(), tuned.today_is_known);
    assert_eq!(today, ("linux-6.18:max=128K", false));
    let kernel = tuned.verdict.gain(Means::Setting).expect("a gain");
    let [low, high] = kernel.ratio_ci95.expect("several runs");
    let ratio = kernel.ratio;
    assert!(ratio < 0.5 && low <= ratio && ratio <= high, "{ratio}");
    let run = tuned.verdict.gain(Means::Run).expect("a gain");
    let [least_s, most_s] = run.with_range_s.expect("a range");
    assert!(least_s < kernel.with_s && (run.ratio - most_s / run.today_s).abs() < 1e-9);
    let steps = &tuned.verdict.steps;
    let lines: Vec<&str> = steps.iter().map(|s| s.text.as_str()).collect();
    assert!(lines.contains(&"foreread run -- CMD"), "{lines:?}");
    says(lines[0], &["foreread doctor --fix DEVICE --to "]);
    let words = ["Set the kernel's readahead to ", " times faster"];
    says(&tuned.verdict.why, &words);
    let text = render(&tuned, Style::default());
    says(&text, &["Expected: x0."]);
    assert!(!lines.iter().any(|line| line.contains("foreread serve")));
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100) && text.lines().count() <= 25, "{text}");
}

#[test]
fn a_mount_without_a_disk_is_set_at_the_mount() {
    let reads = replay("/proc/version", 64 << 20, (0..1000).map(|n| (n * 8, 8)));
    let tuned = tuned_of("object-near", reads, None);
    let lines = Vec::from_iter(tuned.verdict.steps.iter().map(|s| s.text.as_str()));
    says(lines[0], &["echo ", " > /sys/class/bdi/0:"]);
    assert!(!lines.concat().contains("doctor"), "{lines:?}");
}

#[test]
fn on_one_model_all_files_are_taken_to_be_there() {
    let text = |replay| render(&tuned_of("rbd", replay, None), Style::default());
    let note = "All files of the trace are taken to be on model:rbd (3 files); --only selects some";
    says(&text(two_disks("/a", "/b")), &[note]);
    let one = text(replay("/a", 64 << 20, (0..20).map(|n| (n, 1))));
    assert!(!one.contains("All files"), "{one}");
}

/// The model's time of the reads is 2 to 15 s. The rest of a sampled program's time is not from these reads.
#[test]
fn a_sampled_program_keeps_the_time_besides_its_reads() {
    let (_dir, path) = large();
    let name = path.to_str().expect("UTF-8");
    let of_seconds = |seconds: u64| {
        let header = Header {
            sampled_ns: Some(seconds * 1_000_000_000),
            ..Header::default()
        };
        let read =
            |n: u64| Record::read(0, n * 8 * PAGE, 8 * PAGE).between(n * 1000, n * 1000 + 500);
        let items = std::iter::once(file(name, 64 << 20));
        let items = items.chain((0..1000).map(|n| Item::Record(read(n))));
        let loaded = loaded("sampled.trace", header, items.collect());
        let replay = Arc::new(Replay::of(&loaded, None, None).expect("asap"));
        says(
            &replay.notes.join(". "),
            &["mode asap, because the reads were sampled"],
        );
        let chosen = find(&replay).expect("it is here").chosen;
        tuned_of("object-near", replay, Some(chosen))
    };
    let slow = of_seconds(20);
    says(&slow.verdict.why, &[": the program takes "]);
    let gain = slow.verdict.gain(Means::Setting).expect("a gain");
    let reads_s = slow
        .recorded_s
        .expect("between the waits and the whole time");
    assert!((gain.today_s - 20.0).abs() < 1e-9 && (reads_s + slow.own_s - 20.0).abs() < 1e-9);
    assert!(
        gain.with_s > slow.own_s && (2.0..15.0).contains(&reads_s),
        "{gain:?} {reads_s}"
    );
    let busy = of_seconds(3600).verdict;
    assert!(busy.steps.is_empty(), "{:?}", busy.why);
    says(&busy.why, &["Nothing to change"]);
    let cached = of_seconds(1).verdict;
    says(
        &cached.why,
        &["No advice from the model", "that took 1.000 s"],
    );
}

#[test]
fn random_reads_gain_by_a_plan_alone_and_it_says_so() {
    let random = (0..200).map(|n| ((n * 7919 + n * n * 131 + 17) % 16_000, 1));
    let tuned = tuned("rbd", random);
    let means = Vec::from_iter(tuned.verdict.steps.iter().map(|step| step.means));
    assert_eq!(means, [Means::Plan], "{:#?}", tuned.report.rows);
    let plan =
        " If the program reads the same data each time, replay a plan of it: the reads take ";
    says(
        &tuned.verdict.why,
        &["Nothing to change", plan, " s at best "],
    );
}

#[test]
fn the_storage_is_found_by_the_largest_file_that_is_here() {
    let (_dir, path) = large();
    let name = path.to_str().expect("UTF-8");
    let reads = |name: &str| replay(name, 16 << 20, (0..4).map(|n| (n, 1)));
    let found = find(&reads(name)).expect("it is here");
    assert_eq!((found.path, found.chosen.bytes_share), (path, Some(1.0)));
    let disk = &found.chosen.disk;
    assert_eq!((disk.files, disk.bytes), (1, 4 * PAGE));
    let error = |name: &str| find(&reads(name)).expect_err("not here").to_string();
    let none = "none of its files exists on this machine";
    says(&error("/no/such/file"), &[none]);
    says(&error("relative"), &["--on model:NAME"]);
}

/// A sparse file of 16 MiB.
fn large() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = dir.path().join("large");
    let file = std::fs::File::create(&path);
    file.and_then(|file| file.set_len(16 << 20)).expect("room");
    (dir, path)
}

/// Two files, and one that is not here: `bytes` and `took` are of each read.
fn two_disks(slow: &str, fast: &str) -> Arc<Replay> {
    let names = [slow, fast, "/no/such/file"];
    let mut items = Vec::from(names.map(|name| file(name, 64 << 20)));
    let mut at = 0;
    for n in 0..20 {
        for (file, bytes, took) in [(0, PAGE, 2_000_000), (1, 16 * PAGE, 10_000), (2, PAGE, 1)] {
            items.push(Item::Record(Record {
                open: file,
                start_ns: Some(at),
                end_ns: Some(at + took),
                ..Record::read(file, n * bytes, bytes)
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
    let (_dir, path) = large();
    let name = path.to_str().expect("UTF-8");
    let found = find(&two_disks(name, "/proc/version")).expect("it is here");
    assert_eq!(found.path, path);
    let chosen = &found.chosen;
    assert!(chosen.time_share > Some(0.99), "{chosen:?}");
    assert!(chosen.bytes_share.is_some_and(|share| share < 0.1));
    let counts = [chosen.others.len(), found.names.len()];
    assert_eq!((counts, chosen.not_here.files), ([1, 1], 1));
    let other = find(&two_disks("/proc/version", name)).expect_err("nothing there");
    says(&other.to_string(), &["can be measured"]);
}

/// Files of a folder that are read whole, in this order.
fn whole_files(names: &[String]) -> Arc<Replay> {
    let files = names.iter().map(|name| file(name, PAGE));
    let reads = (0..names.len() as u32).map(|open| Item::Record(Record::read(open, 0, PAGE)));
    replay_of("files.trace", files.chain(reads).collect())
}

/// `run` reads ahead what a folder lists next. A compiler reads whole files of one folder too, and in another order.
#[test]
fn only_files_in_the_order_of_their_folder_are_a_walk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    (0..64).for_each(|n| std::fs::write(dir.path().join(format!("f{n}")), "x").expect("room"));
    let entries = std::fs::read_dir(dir.path()).expect("a folder");
    let path = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").path();
    let listed = entries.map(|entry| path(entry).to_string_lossy().into_owned());
    let listed: Vec<String> = listed.collect();
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
