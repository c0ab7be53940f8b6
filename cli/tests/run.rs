//! `foreread run`: the command's exit code, its signals, its output; what is left behind.
//!
//! Those of tracefs need root and tracefs, else they are skipped.

use crate::common::process::{instances, signal, wait_until};
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(cargo_bin("foreread"))
        .arg("run")
        .args(arguments)
        .output()
        .expect("foreread runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether reads can be watched here.
fn can_watch() -> bool {
    let can = run(&["-q", "--", "true"]).status.success();
    if !can {
        println!("skipped: needs root, tracefs and the initial PID namespace");
    }
    can
}

#[test]
fn the_exit_code_and_the_output_are_the_commands() {
    if !can_watch() {
        return;
    }
    let done = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(
        (done.status.code(), text(&done.stdout).as_str()),
        (Some(7), "out\n")
    );
    let said = text(&done.stderr);
    assert!(
        said.starts_with("err\nforeread: nothing to gain: "),
        "{said}"
    );
    let done = run(&["-q", "--json", "-", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(
        (done.status.code(), text(&done.stderr).as_str()),
        (Some(128 + 15), "")
    );
    let json = text(&done.stdout);
    assert!(
        json.contains("\"schema\": \"foreread.run/1\"") && json.contains("\"exit_code\": 143"),
        "{json}"
    );
}

#[test]
fn a_command_that_cannot_run_has_a_shells_code() {
    if can_watch() {
        let done = run(&["--", "/no/such/command"]);
        assert_eq!(done.status.code(), Some(127));
        assert!(
            text(&done.stderr).contains("cannot run: /no/such/command"),
            "{}",
            text(&done.stderr)
        );
        let done = run(&["--", "/etc/passwd"]);
        assert_eq!(done.status.code(), Some(126));
    }
}

/// `nohup`, `trap ''` and a shell's background job: what is ignored stays ignored for the command, SIGPIPE too, and nothing else is.
#[test]
fn ignored_signals_stay_ignored_for_the_command() {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let plan = dir.path().join("plan");
    fs::write(dir.path().join("data"), "x").expect("room");
    let head = "foreread-plan 1\nruns: 1\nfiles: 1\nranges: 1\n";
    fs::write(
        &plan,
        format!(
            "{head}f 1 - {}\nr 0 0 1 - - - 1 0\nend\n",
            dir.path().join("data").display()
        ),
    )
    .expect("room");
    let (foreread, plan) = (
        cargo_bin("foreread").display().to_string(),
        plan.display().to_string(),
    );
    let trace = dir.path().join("t.frt").display().to_string();
    let signals = |traps: &str, before: &[&str]| {
        let script = format!("{traps} exec \"$@\"");
        let done = Command::new("sh")
            .args(["-c", &script, "sh"])
            .args(before)
            .args(["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"])
            .output()
            .expect("sh runs");
        // Signals 32 and 33 are the C library's: it needs them for threads.
        let of = |line: &str| {
            u64::from_str_radix(line.split('\t').next_back()?, 16)
                .ok()
                .map(|mask| mask & 0x7fff_ffff)
        };
        (
            done.status.code(),
            text(&done.stdout).lines().map(of).collect::<Vec<_>>(),
        )
    };
    for traps in ["", "trap '' HUP;", "trap '' HUP INT QUIT TERM PIPE USR1;"] {
        let alone = signals(traps, &[]);
        assert_eq!(alone.0, Some(0));
        let mut ways = vec![vec![foreread.as_str(), "replay", &plan, "--"]];
        if can_watch() {
            ways.push(vec![&foreread, "replay", &plan, "--report", "--"]);
            ways.push(vec![&foreread, "run", "-q", "--"]);
            ways.push(vec![
                &foreread, "record", "-q", "--force", "-o", &trace, "--",
            ]);
        }
        for way in ways {
            assert_eq!(signals(traps, &way), alone, "{traps} {way:?}");
        }
    }
}

/// SIGTERM to us ends the command, and SIGKILL leaves the command running and no tracing behind.
#[test]
fn signals_are_passed_on_and_a_kill_leaves_nothing() {
    if !can_watch() {
        return;
    }
    let begin = |words: &[&str]| {
        let mut command = Command::new(cargo_bin("foreread"));
        command
            .arg("run")
            .arg("--")
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().expect("foreread runs")
    };
    let read_line = |child: &mut std::process::Child| {
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
        line.trim().to_string()
    };
    let mut child = begin(&[
        "sh",
        "-c",
        "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done",
    ]);
    assert_eq!(read_line(&mut child), "ready");
    signal(child.id(), "-TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
    wait_until("the guard removes the instance", || {
        instances(child.id()).is_empty()
    });
    let mut child = begin(&["sh", "-c", "echo $$; exec sleep 1000"]);
    let command = read_line(&mut child);
    signal(child.id(), "-KILL");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    wait_until("the guard removes the instance", || {
        instances(child.id()).is_empty()
    });
    assert!(
        PathBuf::from(format!("/proc/{command}")).exists(),
        "the command goes on"
    );
    signal(command.parse().expect("a number"), "-KILL");
}
