//! Tests `run`, `record` and `replay` with a command: its exit code, its signals and its output, and that `run` leaves
//! nothing behind.
//!
//! Tests that use tracefs need root and tracefs; otherwise they are skipped.

use crate::common::{first_line, instances, needs, signal, wait_until};
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
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

/// Each way to run a command that prints nothing itself: `replay` always, the others where reads can be watched.
fn ways(dir: &Path) -> Vec<Vec<String>> {
    let (data, plan) = (dir.join("data"), dir.join("plan"));
    fs::write(&data, "x").expect("room");
    let head = "foreread-plan 1\nruns: 1\nfiles: 1\nranges: 1\n";
    let plan_of_data = format!("{head}f 1 - {}\nr 0 0 1 - - - 1 0\nend\n", data.display());
    fs::write(&plan, plan_of_data).expect("room");
    let (plan, trace) = (plan.display(), dir.join("t.frt"));
    let watching = [
        format!("replay {plan} --report --"),
        "run -q --".to_string(),
        format!("record -q --force -o {} --", trace.display()),
    ];
    let ways = [format!("replay {plan} --")].into_iter();
    let ways = ways.chain(watching.into_iter().filter(|_| can_watch()));
    let foreread = cargo_bin("foreread").display().to_string();
    let words = |way: String| way.split(' ').map(str::to_string).collect::<Vec<_>>();
    ways.map(|way| [vec![foreread.clone()], words(way)].concat())
        .collect()
}

#[test]
fn the_exit_code_and_the_output_are_the_commands() {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    for way in ways(dir.path()) {
        let done = |words: &[&str]| {
            let mut command = Command::new(&way[0]);
            let done = command.args(&way[1..]).args(words).output();
            let done = done.expect("foreread runs");
            (done.status.code(), text(&done.stdout), text(&done.stderr))
        };
        let is_reported = way.contains(&"--report".to_string());
        let (code, out, err) = done(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!((code, out.as_str()), (Some(7), "out\n"), "{way:?}");
        assert!(err == "err\n" || is_reported, "{way:?}: {err}");
        assert_eq!(done(&["sh", "-c", "kill -9 $$"]).0, Some(137), "{way:?}");
        // As a shell has it.
        for (program, shells) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
            let (code, _, err) = done(&[program]);
            assert_eq!(code, Some(shells), "{way:?}: {err}");
            let line = format!("foreread: cannot run: {program}: ");
            assert!(err.starts_with(&line), "{way:?}: {err}");
        }
    }
}

/// `nohup`, `trap ''` and a shell's background job: what is ignored stays ignored for the command, SIGPIPE too, and nothing else is.
#[test]
fn ignored_signals_stay_ignored_for_the_command() {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let signals = |traps: &str, before: &[String]| {
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
    let begin = |script: &str| {
        let mut command = Command::new(cargo_bin("foreread"));
        command.args(["run", "--", "sh", "-c", script]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("foreread runs");
        let line = first_line(&mut child);
        (child, line)
    };
    let is_removed = |child: &std::process::Child| {
        wait_until("the guard removes the instance", || {
            instances(child.id()).is_empty()
        });
    };
    let (mut child, line) = begin("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done");
    assert_eq!(line, "ready\n");
    signal(child.id(), "-TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
    is_removed(&child);
    let (mut child, command) = begin("echo $$; exec sleep 1000");
    signal(child.id(), "-KILL");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    is_removed(&child);
    let command: u32 = command.trim().parse().expect("a number");
    assert!(
        Path::new(&format!("/proc/{command}")).exists(),
        "the command goes on"
    );
    signal(command, "-KILL");
}
