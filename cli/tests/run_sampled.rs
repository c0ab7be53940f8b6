//! Tests `foreread run --by sample` on a slow disk, without any privilege: which reads of a program it sees, and what
//! it does not touch.
//!
//! Each read of the disk takes 2 ms. On a loaded machine, samples may be too rare, so each test is repeated until it
//! sees enough, at most ten times. Without root, nbdkit, nbdfuse, setpriv and a loop device the tests are skipped.

use crate::common::{SlowDisk, needs, says};
use assert_cmd::cargo::cargo_bin;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Only a test that fails takes so long.
const LONGEST: Duration = Duration::from_secs(60);

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

/// A command with no capability, though its user is root: as any other user beside the programs of this user.
fn unprivileged(words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .args(words);
    command
}

fn run(words: &[&str]) -> Output {
    let foreread = cargo_bin("foreread");
    let foreread = foreread.to_str().expect("UTF-8");
    let all = [&[foreread, "run"], words].concat();
    unprivileged(&all).output().expect("it starts")
}

/// Whether privileges can be dropped here.
fn can_drop() -> bool {
    let mut command = unprivileged(&["true"]);
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
            let done = run(&[
                "--by", "sample", "--json", "-", "--", "python3", "-S", "-c", READER, what, big,
            ]);
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
    let done = run(&[
        "--by", "sample", "--json", "-", "--", "python3", "-S", "-c", READER, "random", big,
    ]);
    let json = summary(&done);
    // 300 reads of 4 KiB of a file of 24 MiB.
    assert!(json["unused_bytes"].as_u64() < Some(1 << 20), "{json:#}");
}

/// A process that is stopped when it is dropped.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_runs_is_joined_until_its_end() {
    needs!(let disk = disk());
    let big = disk.mount().join("big");
    let big = big.to_str().expect("UTF-8");
    let is_seen = (0..10).any(|_| {
        disk.forget();
        let mut command = unprivileged(&["python3", "-S", "-c", READER, "read", big]);
        let reader = Reader(command.stdout(Stdio::null()).spawn().expect("it starts"));
        let pid = reader.0.id().to_string();
        // Until then it is setpriv, which has more rights than the run.
        let is_python = || {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.starts_with("python"))
        };
        let until = Instant::now() + LONGEST;
        while !is_python() {
            assert!(Instant::now() < until, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = run(&["--by", "sample", "--json", "-", "--pid", &pid]);
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
    let done = run(&["--by", "sample", "--pid", "4194305"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("no such process: 4194305"));
}

#[test]
fn a_process_that_hides_cannot_be_joined() {
    needs!(can_drop());
    // prctl(PR_SET_DUMPABLE, 0), then it says so, and waits for the end of its input.
    let hides = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print('hidden', flush=True); sys.stdin.read()";
    let mut hidden = unprivileged(&["python3", "-c", hides]);
    let hidden = hidden.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hidden = Reader(hidden.spawn().expect("it starts"));
    let said = hidden.0.stdout.take().expect("a pipe");
    let line = BufReader::new(said).lines().next();
    assert_eq!(line.expect("a line").expect("UTF-8"), "hidden");
    let pid = hidden.0.id().to_string();
    // It ends at once, while the process goes on.
    let done = run(&["--by", "sample", "--pid", &pid]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    says(&said, &[&format!("cannot see what process {pid} reads")]);
    assert_eq!(hidden.0.try_wait().expect("its state"), None);
}

#[test]
fn a_command_that_hides_is_left_alone() {
    needs!(can_drop());
    let hides = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(float(__import__('sys').argv[1]))";
    let mut last = String::new();
    // Time for a look, more each time.
    let is_said = ["0.1", "0.4", "1", "3", "10", "30"]
        .into_iter()
        .any(|time| {
            let done = run(&["--by", "sample", "--", "python3", "-c", hides, time]);
            last = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(0), "{last}");
            last.contains("the program may not be inspected")
        });
    assert!(is_said, "{last}");
    // A recording of it has nothing, says so, and passes its exit code on.
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("t.frt");
    let (trace, foreread) = (trace.to_str().expect("UTF-8"), cargo_bin("foreread"));
    let foreread = foreread.to_str().expect("UTF-8");
    let hides = format!("{hides}; raise SystemExit(5)");
    let is_said = ["0.1", "0.4", "1", "3", "10", "30"]
        .into_iter()
        .any(|time| {
            let words = [
                foreread, "record", "--force", "--by", "sample", "-o", trace, "--", "python3",
                "-c", &hides, time,
            ];
            let done = unprivileged(&words).output().expect("it starts");
            last = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(5), "{last}");
            last.contains("cannot be inspected")
        });
    assert!(is_said, "{last}");
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
    let without = |big: &str| {
        let words = ["python3", "-S", "-c", LEASER, big];
        let done = unprivileged(&words).output().expect("it starts");
        done.status.code()
    };
    if without(&big_and_cold(&disk)) != Some(7) {
        println!("skipped: needs a file system with leases");
        return;
    }
    let big = &big_and_cold(&disk);
    let foreread = cargo_bin("foreread");
    let foreread = foreread.to_str().expect("UTF-8");
    for by in ["sample", "trace"] {
        disk.forget();
        // Tracing is for root.
        let words = [
            foreread, "run", "--by", by, "-q", "--", "python3", "-S", "-c", LEASER, big,
        ];
        let done = match by {
            "sample" => unprivileged(&words).output(),
            _ => Command::new(words[0]).args(&words[1..]).output(),
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
    let (trace, plan) = (
        trace.to_str().expect("UTF-8"),
        plan.to_str().expect("UTF-8"),
    );
    let foreread = cargo_bin("foreread");
    let foreread = foreread.to_str().expect("UTF-8");
    for what in ["read", "pread", "mmap"] {
        let mut last = String::new();
        let is_seen = (0..10).any(|_| {
            let big = big_and_cold(&disk);
            let words = [
                foreread, "record", "--force", "--by", "sample", "--json", "-", "-o", trace, "--",
                "python3", "-S", "-c", READER, what, &big,
            ];
            let done = unprivileged(&words).output().expect("it starts");
            let json = summary(&done);
            assert_eq!(
                (&json["by"], done.status.code(), &json["lost_events"]),
                (&"sample".into(), Some(7), &0.into()),
                "{json:#}"
            );
            let words = [foreread, "plan", trace, "--force", "-o", plan];
            let planned = unprivileged(&words).output().expect("it starts");
            let info = unprivileged(&[foreread, "trace", "info", trace, "--json", "-"]).output();
            let info = summary(&info.expect("it starts"));
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
    let words = [
        foreread,
        "record",
        "--force",
        "--by",
        "sample",
        "--kernel-decisions",
        "-o",
        trace,
        "--",
        "true",
    ];
    let done = unprivileged(&words).output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        said.contains("cannot be sampled") && done.status.code() == Some(2),
        "{said}"
    );
}

/// The bytes of all ranges of a plan: the third number of its lines `r FILE FIRST BYTES ...`.
fn planned_bytes(plan: &str) -> u64 {
    let ranges = plan.lines().filter(|line| line.starts_with("r "));
    let bytes = |line: &str| -> Option<u64> { line.split(' ').nth(3)?.parse().ok() };
    ranges.filter_map(bytes).sum()
}
