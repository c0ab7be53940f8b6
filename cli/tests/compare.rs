//! Tests of `compare` and `sweep`: traces and their formats, the output after Ctrl-C, and cells of a sweep, which agree with
//! `compare` and are measured only once. The lab's tests cover the replay modes.

use crate::common::{BINARY, foreread, has, run, says, signal, text};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first table is said on stderr; Ctrl-C then ends the comparison with what there is.
#[test]
fn ctrl_c_prints_what_was_measured_and_what_was_not() {
    if !has(&["env", "--default-signal=INT", "true"]) {
        return;
    }
    let mut command = Command::new("env");
    // A test that is begun in the background has no SIGINT to give on.
    command.args(["--default-signal=INT", BINARY]);
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

fn fixture(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/traces");
    traces.join(name)
}

/// The bytes of a fixture in hexadecimal digits, as a file.
fn from_hex(name: &str, folder: &Path) -> PathBuf {
    let digits = std::fs::read_to_string(fixture(name)).expect("there");
    let lines = digits.lines().filter(|line| !line.starts_with('#'));
    let digits = lines.flat_map(str::chars).filter(char::is_ascii_hexdigit);
    let digits = Vec::from_iter(digits);
    let byte = |two: &[char]| u8::from_str_radix(&String::from_iter(two), 16).expect("digits");
    let path = folder.join("rbd.trace");
    std::fs::write(&path, Vec::from_iter(digits.chunks(2).map(byte))).expect("room");
    path
}

/// A program that reads through one open file, waits, and reads again, in our table.
fn table(folder: &Path) -> PathBuf {
    let row = |n: u64| {
        let (at, start) = (n % 20 * 65_536, n * 3_000_000);
        format!("{at},4096,{start},{}\n", start + 1_000_000)
    };
    let rows: String = (0..40).map(row).collect();
    let path = folder.join("reads.csv");
    std::fs::write(&path, "offset,length,start_ns,end_ns\n".to_string() + &rows).expect("room");
    path
}

/// Compares in the simulator: two runs of each policy, as JSON.
fn compare(trace: &Path, more: &str) -> Value {
    let fixed = "--on model:ssd-sata --policy none,linux-6.18 --runs 2 --json -";
    let got = run(format!("compare {} {fixed} {more}", text(trace)));
    got.is_done();
    got.json()
}

#[test]
fn a_trace_that_was_imported_gives_the_same_figures() {
    let table_of_pairs = compare(&fixture("alibaba/unsure.csv"), "--format alibaba");
    let found = [&table_of_pairs["workload"], &table_of_pairs["mode"]];
    assert_eq!(
        found,
        ["unsure.csv", "afap"],
        "ambiguous content needs a format"
    );
    let folder = tempfile::tempdir().expect("a scratch directory");
    let traces = [
        from_hex("rbd-replay/every-action.hex", folder.path()),
        fixture("strace/full.strace"),
        table(folder.path()),
        fixture("csv/dftracer.csv"),
    ];
    let out = folder.path().join("imported.frt");
    for trace in traces {
        foreread(["trace", "import", text(&trace), "-o", text(&out), "--force"]).is_done();
        let (direct, imported) = (compare(&trace, ""), compare(&out, ""));
        for key in ["mode", "think", "rows", "notes", "bound_s", "page_bytes"] {
            assert_eq!(direct[key], imported[key], "{key} of {}", trace.display());
        }
        assert_ne!(direct["workload"], imported["workload"]);
        assert!(direct["rows"].is_array());
    }
}

const TRACES: &str = "../lab/traces/grep-ide.frt boot-virtio ../lab/traces/grep-virtio.frt";

fn cells(words: &str) -> Vec<Value> {
    let got = run(format!("sweep {words} --json -"));
    let lines = got.is_done().lines();
    let cell = |line| serde_json::from_str(line).expect("JSON");
    lines.map(cell).collect()
}

/// The cells that a sweep would measure.
fn missing(words: &str) -> Vec<Value> {
    let got = run(format!("sweep {words} --dry-run"));
    serde_json::from_str(got.is_done()).expect("JSON")
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
    let missing = missing(&format!("--on model:nvme {TRACES}"));
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
