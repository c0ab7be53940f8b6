//! `reproduce --real` that is killed in the middle: no loop device stays, no setting of one, no file.
//!
//! Never: a device or a process that the test did not start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the programs that it started may go on by themselves.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn said(path: PathBuf) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_string()
}

/// Loop devices on a file below the directory.
fn attached(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    all.filter(|device| said(device.join("loop/backing_file")).starts_with(&*dir.to_string_lossy()))
        .collect()
}

/// How far each loop device is read ahead.
fn settings() -> Vec<(PathBuf, String)> {
    let all = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let loops =
        all.filter(|path| path.join("loop").exists() || path.to_string_lossy().contains("/loop"));
    loops
        .map(|path| (path.clone(), said(path.join("queue/read_ahead_kb"))))
        .collect()
}

/// Runs it in the directory until the moment, then kills it.
fn killed(dir: &Path, signal: &str, seed: &str, moment: &dyn Fn() -> bool) {
    // A test that is begun in the background has no SIGINT to give on.
    let mut child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_foreread-check")])
        .args(["reproduce", seed, "--real"])
        .current_dir(dir)
        .env("TMPDIR", dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let started = Instant::now();
    while !moment()
        && started.elapsed() < TEST_TIMEOUT
        && child.try_wait().expect("a status").is_none()
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = Command::new("kill")
        .args(["-s", signal, &child.id().to_string()])
        .status();
    assert!(
        kill.is_ok_and(|status| status.success()),
        "{signal}: it had ended"
    );
    let status = child.wait().expect("a status");
    assert!(!status.success(), "{signal}: {status}");
}

fn eventually(what: &str, is_so: &dyn Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Why it cannot be tried here.
fn missing() -> Option<&'static str> {
    let runs = |name: &str| {
        let call = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        call.is_ok_and(|status| status.success())
    };
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    match root && Path::new("/dev/loop-control").exists() {
        false => Some("root and loop devices"),
        true => ["losetup", "sysbench", "xargs", "kill"]
            .into_iter()
            .find(|name| !runs(name)),
    }
}

#[test]
fn killed_at_any_moment_it_leaves_nothing() {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return;
    }
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let dir = scratch.path().canonicalize().expect("a path");
    let empty = || std::fs::read_dir(&dir).expect("a directory").count() == 0;
    let in_use = || attached(&dir).first().cloned();
    for signal in ["INT", "TERM", "KILL"] {
        // As soon as it is attached, which is before it starts.
        killed(&dir, signal, "001", &|| in_use().is_some());
        eventually("a loop device stays", &|| in_use().is_none());
        // When its readahead has been set: 4 KiB is the first size of the sweep, and no device's own.
        let before = settings();
        let was_set =
            || in_use().is_some_and(|device| said(device.join("queue/read_ahead_kb")) == "4");
        killed(&dir, signal, "001", &was_set);
        eventually("a loop device stays", &|| in_use().is_none());
        eventually("its readahead stays", &|| {
            settings().iter().all(|s| s.1 != "4" || before.contains(s))
        });
        // While sysbench looks for its file.
        killed(&dir, signal, "002", &|| !empty());
        eventually("a file stays", &empty);
    }
}
