//! Tests `foreread run --by sample` on a slow disk, without any privilege: which reads of a program it sees, and what
//! it does not touch.
//!
//! Each read of the disk takes 2 ms. On a loaded machine, samples may be too rare, so each test is repeated until it
//! sees enough, at most ten times. Without root, nbdkit, nbdfuse, setpriv and a loop device the tests are skipped.

use crate::common::{Running, SlowDisk, eventually, needs, says, unprivileged};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

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

/// `foreread` without a privilege.
fn foreread<'a>(words: impl IntoIterator<Item = &'a str>) -> Output {
    let words = std::iter::once(env!("CARGO_BIN_EXE_foreread")).chain(words);
    unprivileged(words).output().expect("it starts")
}

/// The words of a line, and further ones.
fn words<'a>(line: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    line.split(' ').chain(more.iter().copied()).collect()
}

fn run(line: &str, more: &[&str]) -> Output {
    foreread(words(&format!("run --by sample {line}"), more))
}

/// Whether privileges can be dropped here.
fn can_drop() -> bool {
    let mut command = unprivileged(["true"]);
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        println!("skipped: needs root and setpriv");
    }
    can
}

fn disk() -> Option<SlowDisk> {
    can_drop().then(SlowDisk::new).flatten()
}

fn summary(done: &Output) -> serde_json::Value {
    serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&done.stderr)))
}

#[test]
fn reads_and_faults_in_order_are_read_ahead() {
    needs!(let disk = disk());
    let big = disk.mount().join("big");
    let big = big.to_str().expect("UTF-8");
    for what in ["read", "pread", "mmap"] {
        let mut last = serde_json::Value::Null;
        let is_seen = (0..10).any(|_| {
            disk.forget();
            let done = run("--json - -- python3 -S -c", &[READER, what, big]);
            last = summary(&done);
            assert_eq!(
                (&last["by"], &last["exit_code"], done.status.code()),
                (&"sample".into(), &7.into(), Some(7)),
                "{last:#}"
            );
            last["used_bytes"].as_u64() > Some(4 << 20)
        });
        assert!(is_seen, "{what}: {last:#}");
    }
}

/// The large file of the disk, of which nothing is in the page cache.
fn big_and_cold(disk: &SlowDisk) -> String {
    disk.forget();
    let big = disk.mount().join("big");
    big.to_str().expect("UTF-8").to_string()
}

#[test]
fn reads_at_random_are_left_alone() {
    needs!(let disk = disk());
    let big = &big_and_cold(&disk);
    let done = run("--json - -- python3 -S -c", &[READER, "random", big]);
    let json = summary(&done);
    // 300 reads of 4 KiB of a file of 24 MiB.
    assert!(json["unused_bytes"].as_u64() < Some(1 << 20), "{json:#}");
}

#[test]
fn a_process_that_runs_is_joined_until_its_end() {
    needs!(let disk = disk());
    let big = disk.mount().join("big");
    let big = big.to_str().expect("UTF-8");
    let is_seen = (0..10).any(|_| {
        disk.forget();
        let mut command = unprivileged(["python3", "-S", "-c", READER, "read", big]);
        let reader = Running(command.stdout(Stdio::null()).spawn().expect("it starts"));
        let pid = reader.0.id().to_string();
        // Until then it is setpriv, which has more rights than the run.
        let is_python = || {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.starts_with("python"))
        };
        eventually("it begins", || is_python().then_some(()));
        let done = run("--json - --pid", &[&pid]);
        // It may have read all by then.
        if String::from_utf8_lossy(&done.stderr).contains("no such process") {
            return false;
        }
        let json = summary(&done);
        assert_eq!(
            (done.status.code(), &json["exit_code"]),
            (Some(0), &serde_json::Value::Null)
        );
        json["used_bytes"].as_u64() > Some(1 << 20)
    });
    assert!(is_seen);
    let done = run("--pid", &["4194305"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("no such process: 4194305"));
}

#[test]
fn a_process_that_hides_cannot_be_joined() {
    needs!(can_drop());
    // prctl(PR_SET_DUMPABLE, 0), then it says so, and waits for the end of its input.
    let hides = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print('hidden', flush=True); sys.stdin.read()";
    let mut hidden = unprivileged(["python3", "-c", hides]);
    let hidden = hidden.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hidden = Running(hidden.spawn().expect("it starts"));
    let said = hidden.0.stdout.take().expect("a pipe");
    let line = BufReader::new(said).lines().next();
    assert_eq!(line.expect("a line").expect("UTF-8"), "hidden");
    let pid = hidden.0.id().to_string();
    // It ends at once, while the process goes on.
    let done = run("--pid", &[&pid]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    says(&said, &[&format!("cannot see what process {pid} reads")]);
    assert_eq!(hidden.0.try_wait().expect("its state"), None);
}

#[test]
fn a_command_that_hides_is_left_alone() {
    needs!(can_drop());
    let hides = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(float(__import__('sys').argv[1]))";
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("t.frt");
    let record = format!(
        "record --force --by sample -o {} -- python3 -c",
        trace.display()
    );
    let fails = format!("{hides}; raise SystemExit(5)");
    // A recording of it has nothing, says so, and passes its exit code on.
    for (line, program, code, note) in [
        (
            "run --by sample -- python3 -c",
            hides,
            0,
            "the program may not be inspected",
        ),
        (&record, &fails, 5, "cannot be inspected"),
    ] {
        let mut last = String::new();
        // Time for a look, more each time.
        let is_said = ["0.1", "0.4", "1", "3", "10", "30"]
            .into_iter()
            .any(|time| {
                let done = foreread(words(line, &[program, time]));
                last = String::from_utf8_lossy(&done.stderr).into_owned();
                assert_eq!(done.status.code(), Some(code), "{last}");
                last.contains(note)
            });
        assert!(is_said, "{last}");
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
    needs!(let disk = disk());
    let alone = unprivileged(["python3", "-S", "-c", LEASER, &big_and_cold(&disk)]).status();
    if alone.expect("it starts").code() != Some(7) {
        println!("skipped: needs a file system with leases");
        return;
    }
    for by in ["sample", "trace"] {
        let big = big_and_cold(&disk);
        let words = words(
            "run -q --by",
            &[by, "--", "python3", "-S", "-c", LEASER, &big],
        );
        // Tracing is for root.
        let done = match by {
            "sample" => Ok(foreread(words)),
            _ => Command::new(env!("CARGO_BIN_EXE_foreread"))
                .args(words)
                .output(),
        };
        let done = done.expect("it starts");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        // Without tracefs nothing runs.
        if by == "trace" && done.status.code() == Some(3) {
            continue;
        }
        assert_eq!((by, done.status.code()), (by, Some(7)), "{said}");
    }
}

/// What a recording by samples has of a program that reads a file of 24 MiB in order: most of it, with the times of its waits.
#[test]
fn a_recording_has_what_the_program_waits_for() {
    needs!(let disk = disk());
    let dir = tempfile::tempdir().expect("a folder");
    let (trace, plan) = (dir.path().join("t.frt"), dir.path().join("t.plan"));
    let [trace, plan] = [&trace, &plan].map(|path| path.to_str().expect("UTF-8"));
    let record = format!("record --force --by sample -o {trace}");
    for what in ["read", "pread", "mmap"] {
        let mut last = String::new();
        let is_seen = (0..10).any(|_| {
            let big = big_and_cold(&disk);
            let line = format!("{record} --json - -- python3 -S -c");
            let done = foreread(words(&line, &[READER, what, &big]));
            let json = summary(&done);
            assert_eq!(
                (&json["by"], done.status.code(), &json["lost_events"]),
                (&"sample".into(), Some(7), &0.into()),
                "{json:#}"
            );
            let planned = foreread(["plan", trace, "--force", "-o", plan]);
            let info = summary(&foreread(["trace", "info", trace, "--json", "-"]));
            last = format!(
                "{json:#}\n{}\n{info:#}",
                String::from_utf8_lossy(&planned.stderr)
            );
            let planned = std::fs::read_to_string(plan).unwrap_or_default();
            let of_big = |line: &&str| line.starts_with("f ") && line.ends_with("/big");
            planned.lines().find(of_big).is_some() && planned_bytes(&planned) > 16 << 20
        });
        assert!(is_seen, "{what}: {last}");
    }
}

/// The bytes of all ranges of a plan: the third number of its lines `r FILE FIRST BYTES ...`.
fn planned_bytes(plan: &str) -> u64 {
    let ranges = plan.lines().filter(|line| line.starts_with("r "));
    let bytes = |line: &str| -> Option<u64> { line.split(' ').nth(3)?.parse().ok() };
    ranges.filter_map(bytes).sum()
}
