//! What `tune` advises for small traces on models: a gain where there is one, and nothing where there is none.
//!
//! Never: a probe of a real storage (`probe.rs`), or the clock.

use foreread_lab::compare::Plan;
use foreread_lab::device::presets;
use foreread_lab::replay::{Part, Replay, load};
use foreread_lab::report::Silent;
use foreread_lab::report::table::Style;
use foreread_lab::trace::{FileInfo, Header, Import, Item, LeftOut, Level, Record};
use foreread_lab::tune::{Asked, Storage, Tuned, largest_file, render, tune};
use std::sync::Arc;

const PAGE: u64 = 4096;

fn replay(name: &str, size: u64, reads: impl Iterator<Item = (u64, u64)>) -> Arc<Replay> {
    let file = Item::File(FileInfo { name: name.to_string(), size: Some(size) });
    let records = reads.map(|(page, pages)| Item::Record(Record::read(0, page * PAGE, pages * PAGE)));
    let items: Vec<Item> = [file].into_iter().chain(records).collect();
    let header = Header { level: Level::Program, ..Header::default() };
    let import = Import { header, items: Box::new(items.into_iter().map(Ok)), left_out: LeftOut::default() };
    let loaded = Arc::new(load("small.trace", import, &Part::default()).expect("readable"));
    Arc::new(Replay::of(&loaded, None, None).expect("a mode fits"))
}

fn tuned(model: &str, reads: impl Iterator<Item = (u64, u64)>) -> Tuned {
    let replay = Some(replay("/data/file", 64 << 20, reads));
    let plan = Plan { replay, runs: Some(3), seed: 1, ..Plan::default() };
    let storage = Storage::Model(presets::find(model).expect("a preset"));
    tune(&Asked { plan, storage, seconds: 1.0 }, &mut Silent).expect("it can be tuned")
}

#[test]
fn a_long_sequence_over_a_long_round_trip_wants_a_larger_window() {
    let tuned = tuned("object-near", (0..1000).map(|n| (n * 8, 8)));
    assert_eq!((tuned.today.as_str(), tuned.today_is_known), ("linux-6.18:max=128K", false));
    let kernel = tuned.kernel.as_ref().expect("a gain");
    assert!(
        kernel.ratio < 0.5 && kernel.ratio_ci95.is_some_and(|[low, high]| low <= kernel.ratio && kernel.ratio <= high)
    );
    assert!(tuned.policy.as_ref().is_some_and(|gain| gain.ratio <= kernel.ratio));
    let places: Vec<&str> = tuned.settings.iter().map(|s| s.place.as_str()).collect();
    assert!(places.contains(&"the kernel") && places.contains(&"foreread"), "{places:?}");
    assert!(tuned.settings[0].text.starts_with("echo ") && tuned.settings[0].text.ends_with("read_ahead_kb"));
    assert!(tuned.verdict.starts_with("Against today's readahead of 128K"), "{}", tuned.verdict);
    let text = render(&tuned, Style::default());
    assert!(text.contains("foreread serve SOURCE --unix") && text.contains("Expected: x0."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn random_reads_gain_nothing_and_it_says_so() {
    let tuned = tuned("rbd", (0..200).map(|n| ((n * 7919 + n * n * 131 + 17) % 16_000, 1)));
    assert_eq!((&tuned.kernel, &tuned.policy), (&None, &None), "{:#?}", tuned.report.rows);
    assert!(tuned.settings.is_empty() && tuned.verdict.starts_with("There is nothing to gain"), "{}", tuned.verdict);
}

#[test]
fn the_json_has_the_promised_keys() {
    let tuned = tuned("rbd", (0..100).map(|n| (n, 1)));
    let json = serde_json::to_value(&tuned).expect("JSON");
    assert_eq!((json["schema"].as_str(), json["storage"].as_str()), (Some("foreread.tune/1"), Some("model:rbd")));
    for key in "foreread trace probe today today_bytes report kernel hint hint_files policy verdict settings".split(' ')
    {
        assert!(json.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(json["report"]["schema"].as_str(), Some("foreread.compare/1"));
    let back: Tuned = serde_json::from_value(json).expect("what was written can be read");
    assert_eq!(back, tuned);
}

#[test]
fn the_storage_is_found_by_the_largest_file_that_is_here() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("large");
    std::fs::File::create(&path).and_then(|f| f.set_len(16 << 20)).expect("a sparse file");
    let name = path.to_str().expect("UTF-8");
    assert_eq!(largest_file(&replay(name, 16 << 20, (0..4).map(|n| (n, 1)))).expect("it is here"), path);
    let error =
        |name: &str| largest_file(&replay(name, 16 << 20, (0..4).map(|n| (n, 1)))).expect_err("not here").to_string();
    assert!(error("/no/such/file").starts_with("none of its files is on this machine"));
    assert!(error("relative").contains("--on model:NAME"));
    std::fs::write(dir.path().join("small"), b"x").expect("written");
    assert!(error(dir.path().join("small").to_str().expect("UTF-8")).contains("too small to measure"));
}
