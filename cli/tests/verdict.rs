//! Tests with one disk and one program: every command that recommends a readahead recommends the same value, or gives the reason for
//! another one in the same sentence.
//!
//! The disk has a latency of 2 ms and is created by the test (root, nbdkit, nbdfuse, a loop device); the recorded
//! program reads a file on it sequentially.

use crate::common::recorded::{record, text};
use crate::common::{Got, foreread};
use crate::tune::slow_disk::SlowDisk;
use serde_json::Value;

fn json(words: &[&str]) -> Value {
    let got = foreread(words);
    serde_json::from_str(got.is_done()).expect("JSON")
}

fn bytes(size: &str) -> u64 {
    let (number, unit) = size.split_at(size.len() - 1);
    let unit = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => panic!("a size in K or M: {size}"),
    };
    number.parse::<u64>().expect("a number") * unit
}

/// The sizes of the lines that set a readahead.
fn set_by(text: &str) -> Vec<&str> {
    let lines = text.split("--to ").skip(1);
    lines
        .map(|rest| {
            rest.split([' ', '\n', '"', '\\'])
                .next()
                .unwrap_or_default()
        })
        .collect()
}

#[test]
fn one_disk_has_one_value() {
    let Some(disk) = SlowDisk::new() else { return };
    let big = disk.mount().join("big");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let (big, trace) = (text(&big), dir.path().join("dd.frt"));
    let input = format!("if={big}");
    disk.forget();
    let read = ["dd", &input, "of=/dev/null", "bs=32k", "status=none"];
    let Some(recorded) = record(&trace, &[], &read) else {
        return;
    };
    assert_eq!(recorded.code, Some(0), "{}", recorded.err);
    let trace = text(&trace);
    let doctor = json(&["doctor", disk.name(), "--json", "-"]);
    let doctor = &doctor["devices"][0];
    let should = doctor["should_bytes"].as_u64().expect("a value");
    assert_eq!(
        (doctor["has_bytes"].as_u64(), &doctor["standing"]),
        (Some(128 << 10), &Value::from("gain"))
    );
    let line = doctor["steps"][0]["text"].as_str().expect("a line");
    let value = set_by(line)[0];
    assert_eq!(
        line,
        format!("foreread doctor --fix {} --to {value}", disk.name())
    );

    let watch = json(&["watch", disk.name(), "--once", "--every", "100ms", "--json"]);
    let probe = json(&["probe", big, "--time", "2s", "--json", "-"]);
    let tune = json(&[
        "tune", trace, "--on", big, "--time", "2s", "--runs", "3", "--json", "-",
    ]);
    for (command, verdict) in [
        ("watch", &watch["disks"][0]["doctor"]),
        ("probe", &probe["verdict"]),
        ("tune", &tune["verdict"]),
    ] {
        assert_eq!(verdict["should_bytes"], should, "{command}: {verdict:#}");
        assert_eq!(verdict["has_bytes"], 128 << 10, "{command}: {verdict:#}");
    }
    let are_equal = |sizes: &[&str]| sizes.iter().all(|size| bytes(size) == should);
    let by_probe = probe["verdict"]["steps"].to_string();
    let by_probe = set_by(&by_probe);
    assert!(by_probe.len() == 1 && are_equal(&by_probe), "{by_probe:?}");
    // Reads that want another value have both in one sentence.
    let steps = tune["verdict"]["steps"].as_array().expect("a list");
    let setting = steps
        .iter()
        .find(|step| step["means"] == "setting")
        .expect("a setting");
    let what = setting["what"].as_str().expect("words");
    let own = setting["text"].to_string();
    let names_both =
        |words: &str| words.contains(" for these reads (the advice for the disk in general is ");
    assert!(names_both(what) || are_equal(&set_by(&own)), "{setting:#}");

    let compare = foreread([
        "compare", trace, "--only", "big", "--on", big, "--time", "3s",
    ]);
    let said = |got: &Got| {
        set_by(&format!("{}{}", got.out, got.err))
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(compare.code, Some(0), "{}", compare.err);
    let by_compare = said(&compare);
    let by_compare: Vec<&str> = by_compare.iter().map(String::as_str).collect();
    let words: Vec<&str> = compare.out.split_whitespace().collect();
    assert!(
        names_both(&words.join(" ")) || are_equal(&by_compare),
        "{}",
        compare.out
    );
    for words in [
        &["explain", trace, "--on", big, "--only", "big"][..],
        &[&["run", "--"], &read[..]].concat(),
    ] {
        assert_eq!(said(&foreread(words)), [""; 0], "{words:?} names no value");
    }
}

/// On a model the policy that `compare` takes is that of `tune`.
#[test]
fn one_model_has_one_policy() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let trace = dir.path().join("reads.csv");
    let rows: String = (0..800_u64)
        .map(|n| format!("{},65536\n", n * 65_536))
        .collect();
    std::fs::write(&trace, format!("offset,length\n{rows}")).expect("room");
    let (trace, on) = (text(&trace), "model:object-near");
    let tune = json(&["tune", trace, "--on", on, "--runs", "3", "--json", "-"]);
    let steps = tune["verdict"]["steps"].as_array().expect("a list");
    let policy = steps
        .iter()
        .find(|step| step["means"] == "run")
        .expect("'run' has the policy");
    let policy = policy["gain"]["what"].as_str().expect("a name");
    let compare = foreread(["compare", trace, "--on", on, "--runs", "3"]);
    let said = compare
        .is_done()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        said.starts_with(&format!("Nothing to set on {on}: {policy}, the default"))
            || said.starts_with(&format!("Use {policy} ")),
        "{policy}: {said}"
    );
}
