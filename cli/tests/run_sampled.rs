//! Tests `foreread run --by sample` on a slow disk, without any privilege: which reads of a program it sees, and what
//! it does not touch.
//!
//! Each read of the disk takes 2 ms. On a loaded machine, samples may be too rare, so each test is repeated until it
//! sees enough, at most ten times. Without root, nbdkit, nbdfuse, setpriv and a loop device the tests are skipped.

use crate::common::{
    BINARY, Got, Program, Running, SlowDisk, needs, says, slow_disk, text, unprivileged, wait_until,
};
use serde_json::Value;
use std::process::Stdio;

/// Reads the file once, in the way that is named first; its exit code is 7.
const READER: &str = "
import mmap, os, sys
file = os.open(sys.argv[2], os.O_RDONLY)
size = os.fstat(file).st_size
if sys.argv[1] == 'read':
    while os.read(file, 32768): pass
elif sys.argv[1] == 'pread':
    for at in range(0, size, 32768): os.pread(file, 32768, at)
elif sys.argv[1] == 'mmap':
    pages = mmap.mmap(file, 0, prot=mmap.PROT_READ)
    for at in range(0, size, 4096): pages[at]
else:
    state = 1
    for _ in range(300):
        state = state * 6364136223846793005 % (1 << 64) + 1442695040888963407
        os.pread(file, 4096, (state >> 30) % (size // 4096) * 4096)
sys.exit(7)";

/// `foreread` without a privilege, by the words of a line and further ones.
fn foreread(line: &str, more: &[&str]) -> Got {
    let words = std::iter::once(BINARY).chain(line.split(' '));
    let mut command = unprivileged(words.chain(more.iter().copied()));
    Got::from(&command.output().expect("it starts"))
}

fn run(line: &str, more: &[&str]) -> Got {
    foreread(&format!("run --by sample {line}"), more)
}

fn can_drop() -> bool {
    let mut command = unprivileged(["true"]);
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        println!("skipped: needs root and setpriv");
    }
    can
}

/// A slow disk, and the large file on it.
fn disk() -> Option<(SlowDisk, String)> {
    let disk = can_drop().then(|| slow_disk(false)).flatten()?;
    let big = disk.mount().join("big").display().to_string();
    Some((disk, big))
}

/// Tries it until it is seen, each time with nothing of the disk in the page cache.
#[track_caller]
fn is_seen(disk: &SlowDisk, what: &str, mut is_so: impl FnMut() -> bool) {
    let mut tries = (0..10).map(|_| {
        disk.forget();
        is_so()
    });
    assert!(tries.any(|seen| seen), "{what} is not seen");
}

/// By `run`; and a recording has most of it, with the times of its waits.
#[test]
fn reads_and_faults_in_order_are_read_ahead_and_recorded() {
    needs!(let (disk, big) = disk());
    let dir = tempfile::tempdir().expect("a folder");
    let [trace, plan] = ["t.frt", "t.plan"].map(|name| dir.path().join(name));
    let [trace, plan] = [text(&trace), text(&plan)];
    let record = format!("record --force --by sample -o {trace} --json - -- python3 -S -c");
    let sampled = |line: &str, what: &str| {
        let got = foreread(line, &[READER, what, &big]);
        got.assert_code(7);
        let json = got.json();
        println!("{json:#}");
        assert_eq!(json["by"], "sample");
        json
    };
    for what in ["read", "pread", "mmap"] {
        is_seen(&disk, what, || {
            let json = sampled("run --by sample --json - -- python3 -S -c", what);
            assert_eq!(json["exit_code"], 7);
            json["used_bytes"].as_u64() > Some(4 << 20)
        });
        is_seen(&disk, what, || {
            assert_eq!(sampled(&record, what)["lost_events"], 0);
            let planned = foreread("plan --force --json -o", &[plan, trace]);
            let text = std::fs::read_to_string(plan).unwrap_or_default();
            let of_big = |line: &str| line.starts_with("f ") && line.ends_with("/big");
            planned.code == Some(0)
                && text.lines().any(of_big)
                && planned.json()["bytes"].as_u64() > Some(16 << 20)
        });
    }
}

#[test]
fn reads_at_random_are_left_alone() {
    needs!(let (disk, big) = disk());
    disk.forget();
    let json = run("--json - -- python3 -S -c", &[READER, "random", &big]).json();
    // 300 reads of 4 KiB of a file of 24 MiB.
    assert!(json["unused_bytes"].as_u64() < Some(1 << 20), "{json:#}");
}

#[test]
fn a_process_that_runs_is_joined_until_its_end() {
    needs!(let (disk, big) = disk());
    is_seen(&disk, "a process that runs", || {
        let mut command = unprivileged(["python3", "-S", "-c", READER, "read", &big]);
        let reader = Running(command.stdout(Stdio::null()).spawn().expect("it starts"));
        let pid = reader.0.id().to_string();
        // Until then it is setpriv, which has more rights than the run.
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let is_python = || name().is_ok_and(|name| name.starts_with("python"));
        wait_until("it begins", is_python);
        let got = run("--json - --pid", &[&pid]);
        // It may have read all by then.
        if got.err.contains("no such process") {
            return false;
        }
        got.assert_code(0);
        let json = got.json();
        assert_eq!(json["exit_code"], Value::Null);
        json["used_bytes"].as_u64() > Some(1 << 20)
    });
    let none = run("--pid", &["4194305"]);
    says(none.assert_code(2), &["no such process: 4194305"]);
}

#[test]
fn a_process_that_hides_cannot_be_joined() {
    needs!(can_drop());
    // prctl(PR_SET_DUMPABLE, 0), then it says so, and waits for the end of its input.
    let hides = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print('hidden', flush=True); sys.stdin.read()";
    let mut hidden = unprivileged(["python3", "-c", hides]);
    let mut hidden = Program::start(&mut hidden);
    hidden.hears("hidden");
    let pid = hidden.pid().to_string();
    // It ends at once, while the process goes on.
    let got = run("--pid", &[&pid]);
    let why = format!("cannot see what process {pid} reads");
    says(got.assert_code(3), &[&why]);
    assert!(hidden.is_running());
}

#[test]
fn a_command_that_hides_is_left_alone() {
    needs!(can_drop());
    let hides = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(float(__import__('sys').argv[1]))";
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("t.frt");
    let out = trace.display();
    let record = format!("record --force --by sample -o {out} -- python3 -c");
    let fails = format!("{hides}; raise SystemExit(5)");
    let run = "run --by sample -- python3 -c";
    // A recording of it has nothing, says so, and passes its exit code on.
    for (line, program, code, note) in [
        (run, hides, 0, "the program may not be inspected"),
        (&record, &fails, 5, "cannot be inspected"),
    ] {
        // Time for a look, more each time.
        let mut times = ["0.1", "0.4", "1", "3", "10", "30"].into_iter();
        let says = |time| {
            let got = foreread(line, &[program, time]);
            got.assert_code(code).contains(note)
        };
        assert!(times.any(says), "{line} does not say: {note}");
    }
}

/// Reads a cold file that it has a write lease of: an open by another process would break that, and be told by a signal.
const LEASER: &str = "
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
signal.signal(signal.SIGIO, lambda *_: os._exit(9))
while os.read(file, 32768): pass
sys.exit(7 if fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK else 8)";

#[test]
fn a_lease_of_the_program_is_not_broken() {
    needs!(let (disk, big) = disk());
    disk.forget();
    let alone = unprivileged(["python3", "-S", "-c", LEASER, &big]).status();
    if alone.expect("it starts").code() != Some(7) {
        return println!("skipped: needs a file system with leases");
    }
    let words = ["python3", "-S", "-c", LEASER, &big];
    disk.forget();
    let by_sample = foreread("run -q --by sample --", &words);
    by_sample.assert_code(7);
    // Tracing is for root; without tracefs nothing runs.
    disk.forget();
    let by_trace = ["run", "-q", "--by", "trace", "--"];
    let by_trace = crate::common::foreread([&by_trace[..], &words].concat());
    assert!(matches!(by_trace.code, Some(3 | 7)), "{}", by_trace.err);
}
