//! Tests of `compare` and `sweep`: the output after Ctrl-C, and cells of a sweep, which agree with `compare`. The lab's tests cover
//! the replay modes.

use crate::common::{Got, has, interruptible, needs, run, says, signal, wait_until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

/// The first table is said on stderr; Ctrl-C then ends the comparison with what there is.
#[test]
fn ctrl_c_prints_what_was_measured_and_what_was_not() {
    needs!(has(&["env", "--default-signal=INT", "true"]));
    let mut command = interruptible();
    command.args(["compare", "--on", "model:rbd", "--runs", "40"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut err = String::new();
    said.read_line(&mut err).expect("a line");
    let begin = "foreread: sequential on model:rbd: ";
    assert!(err.starts_with(begin), "{err}");
    signal(child.id(), "-INT");
    let out = std::io::read_to_string(child.stdout.take().expect("a pipe")).expect("text");
    said.read_to_string(&mut err).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{err}");
    says(&out, &["\nsequential on model:rbd (", "time: mean ± half"]);
    says(&err, &["foreread: interrupted; not measured: "]);
    assert!(err.ends_with("boot-ide on model:rbd\n"), "{err}");
}

/// The cells that were measured are in the file, and the same command measures the others.
#[test]
fn ctrl_c_keeps_the_cells_of_a_sweep() {
    needs!(has(&["env", "--default-signal=INT", "true"]));
    let dir = tempfile::tempdir().expect("a scratch directory");
    let file = dir.path().join("cells.jsonl");
    let line = "sweep random --on model:rbd --policy all --runs 20 --jobs 1 --resume";
    let mut command = interruptible();
    command.args(line.split(' ')).arg(&file);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().expect("it starts");
    let kept = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("a cell is measured", || !kept().is_empty());
    signal(child.id(), "-INT");
    let got = Got::from(&child.wait_with_output().expect("it ends"));
    let said = format!("foreread: stopped after {} of ", kept().lines().count());
    let next = "the same command continues from ";
    says(got.assert_code(130), &[&said, next, "cells.jsonl\n"]);
    assert_eq!(got.out, "");
}

const TRACES: &str = "../lab/traces/grep-ide.frt boot-virtio ../lab/traces/grep-virtio.frt";

fn cells(words: &str) -> Vec<Value> {
    let got = run(format!("sweep {words} --json -"));
    let lines = got.is_done().lines();
    let cell = |line| serde_json::from_str(line).expect("JSON");
    lines.map(cell).collect()
}

#[test]
fn a_cell_is_the_row_of_compare() {
    let asked = "interleaved --policy linux-6.18 --vary streams=2,4 --memory 16M";
    let cells = cells(&format!("{asked} --on model:object-near,model:nvme"));
    assert_eq!(cells.len(), 4, "no row of none that was not asked for");
    let of = |cell: &&Value| {
        let is_near = cell["key"]["device"] == "model:object-near";
        is_near && cell["key"]["trace"] == "interleaved:streams=4"
    };
    let cell = cells.iter().find(of).expect("it was asked for");
    assert_eq!(cell["schema"], "foreread.cell/1");
    let got = run(format!(
        "compare {asked} --on model:object-near --runs 1 --json -"
    ));
    got.is_done();
    let compared = got.json();
    let mut rows = compared[1]["rows"].as_array().expect("rows").iter();
    let row = rows
        .find(|row| row["policy"] == "linux-6.18")
        .expect("there");
    assert!(row["ra_bytes"].as_u64() > Some(0));
    for key in "ra_bytes time_s source_bytes hits misses stall_s p99_us".split(' ') {
        assert_eq!(cell["result"]["row"][key], row[key], "{key}");
    }
}

/// Each thread loads a trace, and the results are those of one thread. At the end of a sweep its threads and workers wait for a
/// short cell: large ones are first.
#[test]
fn cells_of_many_traces_are_the_same_on_any_number_of_threads() {
    let dry = run(format!("sweep --on model:nvme {TRACES} --dry-run"));
    let missing: Vec<Value> = serde_json::from_str(dry.is_done()).expect("JSON");
    let bytes = missing.iter().map(|key| key["trace_bytes"].as_u64());
    let bytes = Vec::from_iter(bytes);
    assert!(bytes.is_sorted_by(|a, b| a >= b) && bytes[0] > bytes[bytes.len() - 1]);
    let fixed = format!("{TRACES} --on model:object-near");
    let on = |jobs, policies| cells(&format!("{fixed} --policy {policies} --jobs {jobs}"));
    let (one, two) = (on(1, "none"), on(2, "none,linux-6.18"));
    assert_eq!((one.len(), &one), (3, &on(3, "none")));
    let bytes = |cell: &Value| cell["result"]["row"]["demand_bytes"].as_u64();
    let reads: std::collections::BTreeSet<_> = one.iter().map(bytes).collect();
    assert!(reads.len() > 1, "each its trace: {reads:?}");
    assert_eq!(two.len(), 6);
    assert!(one.iter().all(|cell| two.contains(cell)));
}
