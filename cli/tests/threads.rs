//! Tests with a system that refuses to create threads or processes (`pids.max` of a control group): every command
//! reports it in one line. There is no panic, no user's command keeps running alone, and no mount is left without a
//! server.
//!
//! Needs root and a control group for processes; otherwise the tests are skipped.

use crate::common::{BINARY, MountPoint, can_mount, ended, needs, plan_of, runs, signal, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A control group that is gone when it is dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("foreread-test-{}-{number}", std::process::id());
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            // Elsewhere it would be a plain folder.
            if !Path::new(root).join("cgroup.procs").exists() {
                continue;
            }
            let group = Path::new(root).join(&name);
            if fs::create_dir(&group).is_ok() {
                let group = Group(group);
                if group.0.join("pids.max").exists() {
                    return Some(group);
                }
            }
        }
        println!("skipped: needs root and a control group that limits processes");
        None
    }

    /// Starts foreread as one of at most `most` threads and processes.
    fn start(&self, most: u32, arguments: &[&str]) -> Child {
        fs::write(self.0.join("pids.max"), most.to_string()).expect("a limit");
        // The shell joins, and becomes the command: no process more.
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", BINARY]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().expect("sh runs")
    }

    fn named(&self, name: &str) -> Vec<u32> {
        let all = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm"));
        let is_it = |pid: &u32| comm(pid).is_ok_and(|comm| comm.trim() == name);
        let all = all.lines().filter_map(|line| line.parse().ok());
        all.filter(is_it).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("pids.max"), "max");
        for pid in self.named("cat") {
            runs(&["kill", &pid.to_string()]);
        }
        // It has processes until they have ended. Only a test that fails comes to the end of the wait.
        let wait = || std::thread::sleep(Duration::from_millis(10));
        (0..3000).any(|_| fs::remove_dir(&self.0).is_ok() || (wait(), false).1);
    }
}

#[track_caller]
fn is_no_bug(what: &str, code: i32, err: &str) {
    let is_own = code != 70 && code != 101 && !err.contains("internal error");
    let has_remedy = code == 0 || err.contains("ulimit -u");
    assert!(is_own && has_remedy, "{what}: {code}: {err}");
}

/// Whether this machine cannot do it at all.
fn cannot(err: &str) -> bool {
    let parts = ["not root", "tracefs", "unexpected argument"];
    parts.iter().any(|part| err.contains(part))
}

#[test]
fn a_refused_thread_is_an_error_and_leaves_no_command_behind() {
    needs!(let group = Group::new());
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(path("data"), vec![7; 1 << 16]).expect("room");
    let (plan, trace, data) = (path("plan"), path("t.frt"), path("data"));
    fs::write(&plan, plan_of(&[(Path::new(&data), 1 << 16)])).expect("room");
    let cells = path("cells.jsonl");
    let alone = format!(
        "warm {data}|replay {plan}|compare interleaved --on {data} --size 64K --runs 1 --policy none|\
        sweep random:count=64 --on model:nvme --runs 1 --resume {cells}|\
        tune --on model:nvme --runs 1 -o {trace} --force -- cat {data}"
    );
    let replay = format!("replay {plan} --|replay {plan} --report --");
    let beside = format!("run --|{replay}|record -o {trace} --force --");
    for most in [1, 2, 3, 4, 5, 7] {
        for arguments in alone.split('|') {
            let what = format!("{most}: {arguments}");
            let words = Vec::from_iter(arguments.split(' '));
            let (code, err) = ended(&mut group.start(most, &words), |_| {});
            if !cannot(&err) {
                is_no_bug(&what, code, &err);
            }
        }
        for arguments in beside.split('|') {
            // It runs until its input ends, which is when foreread is seen to run beside it.
            let words = Vec::from_iter(arguments.split(' ').chain(["cat"]));
            let mut child = group.start(most, &words);
            let mut input = child.stdin.take();
            let what = format!("{most}: {arguments}");
            let (code, err) = ended(&mut child, |child| {
                let runs = child.try_wait().is_ok_and(|ended| ended.is_none());
                if runs && !group.named("cat").is_empty() {
                    drop(input.take());
                }
            });
            let is_left = input.is_some() && !group.named("cat").is_empty();
            assert!(!is_left, "{what}: the command was left behind: {err}");
            if !cannot(&err) {
                is_no_bug(&what, code, &err);
            }
        }
    }
}

#[test]
fn a_refused_thread_leaves_no_dead_mount() {
    needs!(can_mount());
    needs!(let group = Group::new());
    let (source, dir) = (tempfile::tempdir().expect("a folder"), MountPoint::empty());
    fs::write(source.path().join("file"), "text").expect("room");
    let (from, at) = (text(source.path()), dir.place());
    let table = || fs::read_to_string("/proc/self/mountinfo").expect("a list");
    let is_mounted = || table().contains(&format!(" {at} "));
    let mut has_run = false;
    for most in (1..40).step_by(3) {
        let mut child = group.start(most, &["mount", from, at]);
        let (pid, mut is_asked) = (child.id(), false);
        let (code, err) = ended(&mut child, |_| {
            // It runs: it is ended as a user does. A second signal would end it at once.
            let read = || fs::read(dir.path("file"));
            if !is_asked && is_mounted() && read().is_ok_and(|bytes| bytes == b"text") {
                (has_run, is_asked) = (true, true);
                signal(pid, "-TERM");
            }
        });
        assert!(!is_mounted(), "{most}: a mount is left: {err}");
        is_no_bug(&most.to_string(), code, &err);
    }
    assert!(has_run, "with enough threads it runs");
}
