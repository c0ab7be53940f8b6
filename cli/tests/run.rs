//! Tests `run`, `record` and `replay` with a command: its exit code, its signals and its output, and that `run` leaves
//! nothing behind.
//!
//! Tests that use tracefs need root and tracefs; otherwise they are skipped.

use crate::common::{
    BINARY, Got, Program, foreread, instances, items, needs, plan_of, signal, text, wait_until,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether reads can be watched here.
fn can_watch() -> bool {
    let can = foreread(["run", "-q", "--", "true"]).code == Some(0);
    if !can {
        println!("skipped: needs root, tracefs and the initial PID namespace");
    }
    can
}

/// A plan of one byte.
fn plan(dir: &Path) -> String {
    let (data, plan) = (dir.join("data"), dir.join("plan"));
    fs::write(&data, "x").expect("room");
    fs::write(&plan, plan_of(&[(&data, 1)])).expect("room");
    text(&plan).to_string()
}

/// Each way to run a command that prints nothing itself: `replay` always, the others where reads can be watched.
fn ways(dir: &Path) -> Vec<Vec<String>> {
    let (replay, trace) = (format!("replay {}", plan(dir)), dir.join("t.frt"));
    let mut ways = vec![format!("{replay} --")];
    if can_watch() {
        ways.extend([
            format!("{replay} --report --"),
            "run -q --".to_string(),
            "run -q --by sample --".to_string(),
            format!("record -q --force -o {} --", text(&trace)),
        ]);
    }
    let words = |way: String| way.split(' ').map(str::to_string).collect::<Vec<_>>();
    let all = ways.into_iter();
    all.map(|way| [vec![BINARY.to_string()], words(way)].concat())
        .collect()
}

#[test]
fn the_exit_code_and_the_output_are_the_commands() {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    for way in ways(dir.path()) {
        let done = |words: &[&str]| {
            let mut command = Command::new(&way[0]);
            let done = command.args(&way[1..]).args(words).output();
            Got::from(&done.expect("foreread runs"))
        };
        let is_reported = way.contains(&"--report".to_string());
        let got = done(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!((got.code, got.out.as_str()), (Some(7), "out\n"), "{way:?}");
        assert!(got.err == "err\n" || is_reported, "{way:?}: {}", got.err);
        assert_eq!(done(&["sh", "-c", "kill -9 $$"]).code, Some(137), "{way:?}");
        // As a shell has it.
        for (program, shells) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
            let got = done(&[program]);
            let line = format!("foreread: cannot run: {program}: ");
            assert!(got.assert_code(shells).starts_with(&line), "{way:?}");
        }
    }
}

/// `nohup`, `trap ''` and a shell's background job: what is ignored stays ignored for the command, SIGPIPE too, and nothing else is.
#[test]
fn ignored_signals_stay_ignored_for_the_command() {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let signals = |traps: &str, before: &[String]| {
        let script = format!("{traps} exec \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).args(before);
        let status = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"];
        let done = Got::from(&shell.args(status).output().expect("sh runs"));
        // Signals 32 and 33 are the C library's: it needs them for threads.
        let of = |line: &str| {
            let mask = u64::from_str_radix(line.split('\t').next_back()?, 16);
            mask.ok().map(|mask| mask & 0x7fff_ffff)
        };
        (done.code, Vec::from_iter(done.out.lines().map(of)))
    };
    let ways = ways(dir.path());
    for traps in ["", "trap '' HUP;", "trap '' HUP INT QUIT TERM PIPE USR1;"] {
        let alone = signals(traps, &[]);
        assert_eq!(alone.0, Some(0));
        for way in &ways {
            assert_eq!(signals(traps, way), alone, "{traps} {way:?}");
        }
    }
}

/// SIGTERM to us ends the command, and SIGKILL leaves the command running and no tracing behind.
#[test]
fn signals_are_passed_on_and_a_kill_leaves_nothing() {
    needs!(can_watch());
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("t.frt");
    let record = format!("record --by trace -q --force -o {} --", text(&trace));
    let replay = format!("replay {} --", plan(dir.path()));
    for way in ["run -q --by trace --", &record, &replay] {
        let begin = |script: &str| {
            let mut command = Command::new(BINARY);
            command.args(way.split(' ')).args(["sh", "-c", script]);
            command.stderr(Stdio::null());
            let mut child = Program::start(&mut command);
            let line = child.line();
            let is_traced = || !way.contains("--by") || !instances(child.pid()).is_empty();
            wait_until("it is traced", is_traced);
            (child, line)
        };
        let ends = |child: Program, by: &str, code| {
            let pid = child.pid();
            signal(pid, by);
            assert_eq!(child.ended(), code, "{way}");
            let is_gone = || instances(pid).is_empty();
            wait_until("the guard removes the instance", is_gone);
        };
        let (child, line) = begin("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done");
        assert_eq!(line, "ready");
        ends(child, "-TERM", 9);
        let (child, command) = begin("echo $$; exec sleep 1000");
        ends(child, "-KILL", 128 + 9);
        let command: u32 = command.parse().expect("a number");
        let folder = format!("/proc/{command}");
        assert!(Path::new(&folder).exists(), "{way}: the command goes on");
        signal(command, "-KILL");
    }
    assert!(items(&trace, None).count() > 0, "what was recorded is kept");
}
