//! Processes of a test: signals, children, what they leave in tracefs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Sends a signal such as `-TERM`.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill").success(), "{name} {pid}");
}

/// Waits up to a minute, for a machine with much else to do.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happened: {what}")
}

#[track_caller]
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    eventually(what, || so().then_some(()));
}

/// The children of a process, whichever thread began them.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let texts = tasks.filter_map(|task| of(task).ok());
    let all = texts.collect::<Vec<_>>().join(" ");
    all.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Whether the first thread of a process waits in poll.
pub fn polls(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|waits| waits.contains("poll"))
}

/// The instances of tracefs that a process of ours made.
pub fn instances(pid: u32) -> Vec<PathBuf> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let folders = places.map(|place| format!("{place}/instances"));
    let all = folders.iter().flat_map(std::fs::read_dir).flatten();
    let own = format!("/foreread-{pid}-");
    all.flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains(&own))
        .collect()
}

pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|out| out.stdout == b"0\n")
}

/// Whether this machine can mount by FUSE.
pub fn can_mount() -> bool {
    let has_fuse = Path::new("/dev/fuse").exists();
    let can = has_fuse && is_root() && Command::new("fusermount3").arg("-V").output().is_ok();
    if !can {
        println!("skipped: needs root, /dev/fuse and fuse3");
    }
    can
}
