//! Tests what `run` promises to a program, and `record` and `replay` with it: its exit code, its signals and its output; a stopped one
//! goes on, no file that it deleted or closed is held, and nothing is left behind.
//!
//! Tests that use tracefs need root and tracefs, others setpriv or the tools for a slow disk; otherwise they are skipped.

use crate::common::{
    BINARY, Got, Program, SlowDisk, children, eventually, foreread, has, instances, items, needs,
    plan_of, signal, slow_disk, text, unprivileged, wait_until,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

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

/// A slow disk that may be written to, so that the run opens a file of it for itself and reads ahead.
fn disk() -> Option<SlowDisk> {
    has(&["setpriv", "--version"])
        .then(|| slow_disk(true))
        .flatten()
}

/// A program without privileges that reads the file of its argument, and the run.
fn by_sample(program: &str, file: &Path) -> Command {
    let run = [BINARY, "run", "--by", "sample", "--quiet", "--"];
    let program = ["python3", "-c", program, text(file)];
    unprivileged([&run[..], &program].concat())
}

/// The only child of a process, once it is in this state.
fn child_in(pid: u32, state: &str) -> Option<u32> {
    let child = children(pid).into_iter().next()?;
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
    let (_, now) = stat.rsplit_once(')')?;
    now.trim().starts_with(state).then_some(child)
}

#[test]
fn a_program_that_is_stopped_goes_on_at_the_signal() {
    needs!(let disk = disk());
    let stops = "import os, signal, sys
for _ in range(2):
    with open(sys.argv[1], 'rb') as file: file.read(1 << 20)
    if not _: os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(7)";
    let mut run = Program::start(&mut by_sample(stops, &disk.mount().join("big")));
    let program = eventually("it stops", || child_in(run.pid(), "T"));
    assert!(run.is_running());
    signal(program, "-CONT");
    assert_eq!(run.ended(), 7);
}

/// A file that the program deletes while it runs is closed by the run as well, so that its bytes are given back.
#[test]
fn a_deleted_file_is_not_kept() {
    needs!(let disk = disk());
    // It deletes the file, and waits for the end of its input with the file closed.
    let deletes = "import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(50):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for at in range(0, 1 << 20, 65536): os.pread(file, 65536, at)
os.unlink(sys.argv[1])
os.close(file)
print('deleted', flush=True)
sys.stdin.read()";
    let mut run = Program::start(&mut by_sample(deletes, &disk.mount().join("big")));
    run.hears("deleted");
    let is_it = |link: &Path| link.to_string_lossy().ends_with("/big (deleted)");
    wait_until("the run lets go of it", || !holds(run.pid(), is_it));
    assert_eq!(run.ended(), 0);
}

/// Whether a process has such a file open.
fn holds(pid: u32, is_it: impl Fn(&Path) -> bool) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut links = links.into_iter().flatten().flatten();
    links.any(|link| fs::read_link(link.path()).is_ok_and(|to| is_it(&to)))
}

/// The run holds no file of the program once that has closed it: its write leases are given, and its file system can be unmounted.
#[test]
fn a_file_that_was_closed_is_not_held() {
    needs!(let disk = disk());
    let closes = "import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
while os.read(file, 65536): pass
os.close(file)
print('closed', flush=True)
sys.stdin.readline()
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, 1024, 1)
os.close(file)
print('leased', flush=True)
sys.stdin.readline()";
    let mount = disk.mount();
    for by in ["trace", "sample"] {
        // So that its pages are read from the disk.
        disk.remount();
        let file = mount.join("big");
        let mut command = Command::new(BINARY);
        command.args(["run", "--by", by, "--quiet", "--", "python3", "-c", closes]);
        let mut run = Program::start(command.arg(&file).stderr(Stdio::null()));
        if run.line() != "closed" {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let is_there = |to: &Path| to.starts_with(&mount);
        wait_until("it holds nothing", || !holds(run.pid(), is_there));
        run.tell("");
        assert_eq!(run.line(), "leased", "{by}: its write lease was refused");
        // Not busy for the program, which works elsewhere.
        disk.remount();
        assert_eq!(run.ended(), 0);
    }
}

/// A file system of FUSE drops what is cached of a file when it is opened, so what the run reads ahead would be gone, and what it opens would drop
/// what the program has read: nothing is read ahead.
#[test]
fn nothing_is_read_ahead_where_an_open_drops_it() {
    needs!(let disk = slow_disk(false));
    let input = format!("if={}", text(&disk.as_file()));
    for by in ["trace", "sample"] {
        let run = ["run", "--quiet", "--json", "-", "--by", by, "--"];
        let got = foreread([&run[..], &["dd", &input, "of=/dev/null", "bs=4k"]].concat());
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let json = got.json();
        assert_eq!(json["schema"], "foreread.run/1");
        let done = ["exit_code", "ahead_bytes"].map(|key| json[key].as_u64());
        assert_eq!(done, [Some(0); 2], "{by}: {json:#}");
    }
}
