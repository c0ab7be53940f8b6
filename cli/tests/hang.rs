//! Tests with a file system that does not answer: a stopped FUSE server, which behaves like an unreachable NFS server.
//! No command hangs at its end, and a signal ends each command.
//!
//! Needs FUSE and root; `run` and `record` also need tracefs. Otherwise the tests are skipped.

use crate::common::{
    Mounted, Running, can_mount, interruptible, needs, plan_of, says, signal, text, wait_until,
};
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// A mount whose server is stopped.
fn silent(source: &Path) -> Option<Mounted> {
    can_mount().then_some(())?;
    if fs::read_to_string("/proc/self/stack").is_err() {
        println!("skipped: needs root and /proc/PID/stack");
        return None;
    }
    let silent = Mounted::new(source, &["--attr-ttl", "0s"]);
    silent.server.stop();
    Some(silent)
}

fn start(arguments: &[&str]) -> Running {
    let mut command = interruptible();
    let command = command.args(arguments).stdin(Stdio::null());
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    Running(command.spawn().expect("started"))
}

fn ended(mut child: Running) -> (i32, String) {
    crate::common::ended(&mut child.0, |_| ())
}

/// A command that ends with this code when a thread of its parent waits for the file system; with 99 when none does for too long.
fn until_it_waits(code: u8) -> String {
    // Each look takes some milliseconds.
    let looks = "i=0; until cat /proc/$PPID/task/*/stack 2>/dev/null | grep -q fuse; do i=$((i+1)); [ $i -lt 20000 ] || exit 99; done";
    format!("{looks}; exit {code}")
}

/// Waits until a thread waits for the file system.
fn waits_for_it(Running(child): &mut Running) {
    let tasks = format!("/proc/{}/task", child.id());
    let waits = || {
        let all = fs::read_dir(&tasks).into_iter().flatten().flatten();
        let mut stacks = all.filter_map(|task| fs::read_to_string(task.path().join("stack")).ok());
        stacks.any(|stack| stack.contains("fuse"))
    };
    wait_until("a thread waits for the file system", || {
        assert!(child.try_wait().expect("waited").is_none(), "it has ended");
        waits()
    });
}

#[test]
fn a_file_system_that_does_not_answer_holds_no_command() {
    let source = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        fs::write(source.path().join(name), vec![7; 1 << 20]).expect("room");
    }
    needs!(let silent = silent(source.path()));
    let (a, b) = (silent.dir.path("a"), silent.dir.path("b"));
    let of_both = plan_of(&[(&a, 1 << 20), (&b, 1 << 20)]);
    let (a, b, plan) = (text(&a), text(&b), source.path().join("plan"));
    fs::write(&plan, of_both).expect("room");
    let (plan, trace) = (text(&plan), source.path().join("t.frt"));
    let trace = text(&trace);
    let replay = |options: &[&str], code| {
        let waits = until_it_waits(code);
        let words = [&["replay", plan], options, &["--", "sh", "-c", &waits]].concat();
        let (ended, err) = ended(start(&words));
        assert_eq!(ended, i32::from(code), "{err}");
        err
    };
    says(
        &replay(&[], 3),
        &["reads were given up: the storage did not answer"],
    );
    for (name, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut alone = start(&["replay", plan]);
        waits_for_it(&mut alone);
        signal(alone.0.id(), name);
        let (code, err) = ended(alone);
        assert_eq!(code, 128 + number, "{err}");
    }
    // The list of files is not even made.
    let plan_of = ["plan", "--format", "gguf", a, "-o", trace];
    for arguments in [&["warm", a, b][..], &plan_of] {
        let mut child = start(arguments);
        waits_for_it(&mut child);
        signal(child.0.id(), "-INT");
        assert_eq!(ended(child).0, 130, "{arguments:?}");
    }
    replay(&["--report"], 4);
    // The program itself waits for the file system, and is ended from outside.
    for arguments in [
        &["run", "-q"][..],
        &["run", "-q", "--by", "sample"],
        &["record", "--by", "trace", "-q", "-o", trace],
    ] {
        let words = [arguments, &["--", "timeout", "0.5", "cat", a]].concat();
        let (code, err) = ended(start(&words));
        if code == 3 {
            println!("skipped: needs root, tracefs and the initial PID namespace");
            continue;
        }
        assert_eq!(code, 124, "{arguments:?}: {err}");
    }
}
