//! `policies`, `models` and `workloads`: complete, for people and as JSON, and fit for a pipe.

use crate::common::foreread;
use foreread_core::policy::Info;
use foreread_history::{policies, workloads};
use std::io::Read;
use std::process::{Command, Stdio};

/// In the order of the list.
fn everyone() -> Vec<&'static Info> {
    policies()
}

#[test]
fn policies_tell_everything_of_everyone() {
    let got = foreread(["list", "policies"]);
    let text = got.is_done();
    for info in everyone() {
        assert!(
            text.contains(info.name) && text.contains(info.params.first().map_or("", |p| p.key)),
            "{}",
            info.name
        );
        for param in info.params {
            assert!(
                text.contains(&format!("{}={}", param.key, param.default)),
                "{} {}",
                info.name,
                param.key
            );
            assert!(text.contains(param.help), "{} {}", info.name, param.key);
        }
    }
    assert!(
        text.matches("Origin: ").count() == everyone().len(),
        "{text}"
    );
    assert!(
        text.contains("max=capacity is no more than")
            && text.contains("0 to 1G, capacity  read_ahead_kb")
    );
    assert!(
        !text.contains("seed 0"),
        "publications are named by author and year:\n{text}"
    );
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn policies_as_json() {
    let got = foreread(["list", "policies", "--json"]);
    let json: serde_json::Value = serde_json::from_str(got.is_done()).expect("JSON");
    assert_eq!(json["schema"], "foreread.policies/1");
    let policies = json["policies"].as_array().expect("an array");
    assert_eq!(policies.len(), everyone().len());
    for (policy, info) in policies.iter().zip(everyone()) {
        assert_eq!(policy["name"], info.name);
        for key in ["summary", "origin", "scope", "page_bytes", "params"] {
            assert!(policy.get(key).is_some(), "{} has no {key}", info.name);
        }
        let keys: Vec<&str> = policy["params"]
            .as_array()
            .expect("array")
            .iter()
            .flat_map(|p| p["key"].as_str())
            .collect();
        assert_eq!(keys, info.params.iter().map(|p| p.key).collect::<Vec<_>>());
    }
}

#[test]
fn models_and_workloads() {
    for preset in foreread_sim::device::presets::PRESETS {
        assert!(
            foreread(["list", "models"])
                .is_done()
                .contains(&format!("{}\n  {}", preset.name, preset.summary))
        );
    }
    for info in workloads() {
        assert!(
            foreread(["list", "workloads"])
                .is_done()
                .contains(&format!("{}\n  ", info.name)),
            "{}",
            info.name
        );
    }
    for (kind, count) in [
        ("models", foreread_sim::device::presets::PRESETS.len()),
        ("workloads", workloads().len()),
    ] {
        let json: serde_json::Value =
            serde_json::from_str(foreread(["list", kind, "--json"]).is_done()).expect("JSON");
        assert_eq!(json["schema"], format!("foreread.{kind}/1"));
        let entries = json[kind].as_array().expect("an array");
        assert_eq!(entries.len(), count);
        assert!(
            entries.iter().all(|e| e["name"].is_string()
                && e["origin"].is_string()
                && e["params"].is_array())
        );
    }
}

/// For people: what it is made of and how far it is off, narrow enough for a terminal. As JSON: the kind and its figures.
#[test]
fn models_tell_figures_origin_and_fit() {
    let presets = foreread_sim::device::presets::PRESETS;
    let text = foreread(["list", "models"]).is_done().to_string();
    for word in ["\n  Origin: ", "\n  Figures: ", "\n  Fit: "] {
        assert_eq!(text.matches(word).count(), presets.len(), "{word}\n{text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 90), "{text}");
    // One device of each kind, and words that only its own figures give.
    let words: Vec<&str> = text.split_whitespace().collect();
    for figures in [
        "446 us a transfer of at most 120K, 48.25 us/KiB, 39.22 us/KiB from 16K on",
        "300 us a command; seek 1 ms + 12.78 ms * sqrt(share of the disk) up to 0.3 of the way, 16 ms for all of it",
        "50 us a command; seek 17.37 ms * sqrt(share of the disk); 7200 rpm; 52 to 31 MB/s",
        "4.66 us/KiB; a command costs, by readers: 306 us from 1, 373 us from 2",
        "8 channels of 400 MB/s, 4 dies each; page of 16K in 60 us; link 550 MB/s",
        "first byte after 15 ms (p99 75 ms); 100 MB/s a connection, 1250 MB/s in total",
    ] {
        assert!(words.join(" ").contains(figures), "{figures}\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(foreread(["list", "models", "--json"]).is_done()).expect("JSON");
    for (entry, preset) in json["models"]
        .as_array()
        .expect("an array")
        .iter()
        .zip(presets)
    {
        assert_eq!(
            (&entry["name"], &entry["calibrated"]),
            (&preset.name.into(), &preset.calibrated.into())
        );
        assert_eq!(
            (&entry["fit_error"], &entry["origin"]),
            (&preset.fit_error.into(), &preset.origin.into())
        );
        let figure = match entry["kind"].as_str().expect("a kind") {
            "disk" => "slopes",
            "hdd" => "seek_root_ns",
            "array" => "overhead_ns",
            "ssd" => "dies_per_channel",
            "net" => "rtt_ns",
            other => panic!("{other}"),
        };
        assert!(!entry[figure].is_null(), "{} has no {figure}", preset.name);
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for args in [
        &["list", "policies"][..],
        &["list", "policies", "--json"],
        &["completions", "bash"],
        &["man"],
        &["compare", "--help"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_foreread"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // Closed before the command can have written: its write goes to a pipe without a reader.
        drop(child.stdout.take());
        let mut err = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut err)
            .expect("UTF-8");
        let code = child.wait().expect("it ends").code();
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
    }
}
