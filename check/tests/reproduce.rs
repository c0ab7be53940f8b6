//! Runs `reproduce` for every paper, with two runs each: there is no new miss, and inputs are as published. A wrong
//! constant in a model is detected. Every fitted device is compared with the rows it was fitted to, and the stated errors with
//! the computed ones.

use crate::common::{foreread, says};
use foreread_check::reproduce::published::Paper;
use foreread_check::reproduce::sweep::{self, Sweep};
use foreread_check::reproduce::{FigureKind, Options, Reproduction, Row, SCHEMA, run, show};
use foreread_report::progress::Silent;
use foreread_sim::device::disk::Form;
use foreread_sim::device::presets::{self, Model, Preset};
use foreread_sim::device::{Command, alone_ns};
use std::collections::HashSet;

fn reproduced(name: &str, instead: Vec<&'static Preset>) -> Reproduction {
    let options = Options {
        papers: vec![Paper::named(name).expect("a paper")],
        max_runs: Some(2),
        instead,
    };
    run(&options, &mut Silent).expect("the tables")
}

/// `known` checks are missed, all on record, and `off` fits and inputs are off.
#[track_caller]
fn assert_paper(name: &str, known: usize, off: usize) -> Reproduction {
    let done = reproduced(name, Vec::new());
    let new: Vec<_> = done.new_misses().map(|(_, row)| row).collect();
    assert!(new.is_empty(), "{new:#?}");
    let rows: Vec<&Row> = done.rows().map(|(_, row)| row).collect();
    let not_ok: Vec<&&Row> = rows.iter().filter(|row| !row.ok).collect();
    assert_eq!(not_ok.len(), known + off, "{not_ok:#?}");
    assert_eq!(done.missed().count(), known);
    let ids: HashSet<&String> = rows.iter().map(|row| &row.id).collect();
    assert_eq!(ids.len(), rows.len());
    for row in &rows {
        assert!(row.ours.is_some(), "{}", row.id);
        let judged = row.kind != FigureKind::Shown && !row.known_miss;
        assert!(judged || row.reason.is_some(), "{} has a reason", row.id);
    }
    let text = show::text(&done);
    let mut lines = text.lines();
    let fits = lines.all(|line| line.chars().count() <= show::WIDTH);
    assert!(fits, "{text}");
    done
}

#[test]
fn wu_2010a() {
    assert_paper("wu-2010a", 1, 0);
}

#[test]
fn wu_2010b() {
    assert_paper("wu-2010b", 2, 0);
}

#[test]
fn wu_2013() {
    // With two runs the fitted ratio is 2.1 % off, its bound is 2 %.
    assert_paper("wu-2013", 13, 1);
}

#[test]
fn bhattacharya_2003() {
    assert_paper("bhattacharya-2003", 1, 1);
}

#[test]
fn le_moal_2025() {
    assert_paper("le-moal-2025", 4, 0);
}

/// Two fitted times never make a checked order.
#[test]
fn crume_2014() {
    let done = assert_paper("crume-2014", 0, 0);
    let is_fitted = |workload: &str, strategy: &str| {
        done.rows().any(|(table, row)| {
            let is_time = row.kind == FigureKind::Fit && row.column == "time, s";
            is_time && (table.table.as_str(), row.row.as_str()) == (workload, strategy)
        })
    };
    for (_, row) in done.rows().filter(|(_, row)| row.column == "of times") {
        let (workload, pair) = row.row.split_once(": ").expect("workload: slower / faster");
        let mut both = pair.split(" / ");
        let are_fitted = both.all(|strategy| is_fitted(workload, strategy));
        assert!(!are_fitted, "{} is between two fitted times", row.row);
    }
}

/// A disk of 9 ms instead of 8 in the theory of [Wu 2010a]: its digits are not the printed ones.
#[test]
fn a_wrong_constant_fails_a_check() {
    let preset = presets::find("hdd-theory").expect("a preset");
    let mut model = preset.model;
    if let Model::Disk(disk) = &mut model {
        disk.command_ns = 9_000_000;
    }
    let slow: &'static Preset = Box::leak(Box::new(Preset { model, ..*preset }));
    let done = reproduced("wu-2010a", vec![slow]);
    let missed: Vec<&str> = done.new_misses().map(|(t, _)| t.table.as_str()).collect();
    let is_missed = missed.len() > 30 && missed[0].starts_with("theory");
    assert!(is_missed, "{missed:?}");
}

#[test]
fn the_command_has_text_and_json() {
    let out = foreread(["reproduce", "wu-2010b"]);
    let out = out.is_done();
    says(out, &["[Wu 2010b] ", "Missed (known): [Wu 2010b]"]);
    assert!(!out.contains("MISSED"), "{out}");
    let got = foreread(["reproduce", "wu-2010b", "--json"]);
    let json: serde_json::Value = serde_json::from_str(got.is_done()).expect("JSON");
    assert_eq!(json["schema"], SCHEMA);
    assert!(json["tables"][0]["rows"][0]["ratio"].is_number(), "{json}");
    let unknown = foreread(["reproduce", "wu-2012"]);
    assert!(unknown.is_refused().contains("wu-2010a"), "{}", unknown.err);
}

fn preset(name: &str) -> &'static Preset {
    presets::find(name).expect("a preset")
}

fn largest(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, e| e.abs().max(most))
}

/// Whether the preset states `share` as its error, in percent with one digit.
#[track_caller]
fn states(name: &str, share: f64) {
    let percent = format!("{:.1} %", share * 100.0);
    let stated = preset(name).fit_error;
    let is_stated = stated.contains(&percent);
    assert!(is_stated, "{name} is {percent} off and states: {stated}");
}

#[test]
fn flash_of_2010_is_within_its_stated_errors() {
    for Sweep { device, rows, .. } in sweep::all() {
        let error = |(size, mb_per_s): &(u64, f64)| {
            let ns = alone_ns(&mut *preset(&device).build(0), *size);
            *size as f64 / ns as f64 * 1e3 / mb_per_s - 1.0
        };
        let errors: Vec<f64> = rows.iter().map(error).collect();
        states(&device, largest(&errors));
        let squares: f64 = errors.iter().map(|e| e * e).sum();
        states(&device, (squares / errors.len() as f64).sqrt());
    }
}

/// The largest error of throughput that one cost and one rate leave.
fn serial_error(rows: &[(u64, f64)]) -> f64 {
    let time = |&(bytes, mb_per_s): &(u64, f64)| (bytes, bytes as f64 / mb_per_s * 1e3);
    let times: Vec<(u64, f64)> = rows.iter().map(time).collect();
    let form = Form {
        max_transfer_bytes: None,
        knees: Vec::new(),
    };
    let fit = form.fit(times.iter().copied()).expect("enough rows");
    let errors = times.iter().map(|&(bytes, ns)| ns / fit(bytes) - 1.0);
    largest(&errors.collect::<Vec<f64>>())
}

/// The posting prints 4, 8, 16 KiB ..., its script sets 4, 16, 32 KiB ...: a device that does one command after the other explains the
/// rows under the second labels only.
#[test]
fn the_labels_of_the_script_are_the_likely_ones() {
    for Sweep { device, rows, .. } in sweep::all().into_iter().filter(|s| s.device != "x25-m") {
        let halved = rows.iter().map(|&(size, mb)| ((size / 2).max(4096), mb));
        let halved: Vec<_> = halved.collect();
        let (script, printed) = (serial_error(&rows), serial_error(&halved));
        let is_likely = script < 0.07 && printed > 2.5 * script;
        assert!(is_likely, "{device}: {script:.3} {printed:.3}");
    }
}

/// KiB/s of all `readers`, each of which reads one file to the end, a window after the other.
fn array_kib_per_s(name: &str, readers: u64, window_bytes: u64) -> f64 {
    let (windows, first) = (2000, 100);
    let mut device = preset(name).build(0);
    let mut next = vec![0; readers as usize];
    let mut command = |id: u64| {
        let start = next[id as usize];
        next[id as usize] += window_bytes;
        Command::new(id, id as u32, start, window_bytes)
    };
    (0..readers).for_each(|file| device.submit(0, command(file)));
    let (mut now, mut out, mut done, mut since) = (0, Vec::new(), 0, 0);
    while let Some(at) = device.next_time().filter(|_| done < windows) {
        now = at;
        device.advance(now, &mut out);
        for arrival in out.drain(..) {
            done += 1;
            // The first windows come before all readers are known.
            since = if done == first { now } else { since };
            device.submit(now, command(arrival.id));
        }
    }
    ((windows - first) * window_bytes) as f64 / 1024.0 / ((now - since) as f64 / 1e9)
}

#[test]
fn arrays_are_within_their_stated_errors() {
    let figures = Paper::named("wu-2010a").expect("a paper").figures();
    for name in ["eva", "raid-6disk"] {
        let errors = figures.iter().filter_map(|figure| {
            let words: Vec<&str> = figure.ours.split_whitespace().collect();
            let ["kib_s", "readers", readers, window, device] = words[..] else {
                return None;
            };
            let window = foreread_core::units::parse_size(window).expect("a size");
            let ours = array_kib_per_s(name, readers.parse().expect("a number"), window);
            (device == name).then(|| ours / figure.value().expect("a rate") - 1.0)
        });
        let errors: Vec<f64> = errors.collect();
        assert_eq!(errors.len(), 10);
        states(name, largest(&errors));
    }
}
