//! `foreread run`: the command's exit code, its signals, its output; what is left behind; and `--preload`.
//!
//! Those of tracefs need root and tracefs, else they are skipped. The library of `--preload` is the one that cargo has built beside the
//! command; where it was not built the test is skipped.

use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(cargo_bin("foreread")).arg("run").args(arguments).output().expect("foreread runs")
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

/// Instances of tracefs that a process has left.
fn instances_of(pid: u32) -> Vec<String> {
    let folder = fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let names = folder.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("foreread-{pid}-"))).collect()
}

/// Waits until a process has left none. Only a test that fails comes to the end of it.
fn is_removed(pid: u32) -> bool {
    (0..6000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        instances_of(pid).is_empty()
    })
}

#[test]
fn the_exit_code_and_the_output_are_the_commands() {
    if !can_watch() {
        return;
    }
    let done = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(7), "out\n"));
    let said = text(&done.stderr);
    assert!(said.starts_with("err\nforeread: nothing to gain: "), "{said}");
    let done = run(&["-q", "--json", "-", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!((done.status.code(), text(&done.stderr).as_str()), (Some(128 + 15), ""));
    let json = text(&done.stdout);
    assert!(json.contains("\"schema\": \"foreread.run/1\"") && json.contains("\"exit_code\": 143"), "{json}");
}

#[test]
fn a_command_that_cannot_run_has_a_shells_code() {
    if can_watch() {
        let done = run(&["--", "/no/such/command"]);
        assert_eq!(done.status.code(), Some(127));
        assert!(text(&done.stderr).contains("cannot run: /no/such/command"), "{}", text(&done.stderr));
        let done = run(&["--", "/etc/passwd"]);
        assert_eq!(done.status.code(), Some(126));
    }
    let done = Command::new(cargo_bin("foreread"))
        .env("FOREREAD_PRELOAD", "/no/such.so")
        .args(["run", "--preload", "--", "true"])
        .output()
        .expect("foreread runs");
    assert_eq!(done.status.code(), Some(3));
    let said = "foreread: no library for --preload: /no/such.so; correct FOREREAD_PRELOAD\n";
    assert_eq!(text(&done.stderr), said);
}

/// SIGTERM to us ends the command, and SIGKILL leaves the command running and no tracing behind.
#[test]
fn signals_are_passed_on_and_a_kill_leaves_nothing() {
    if !can_watch() {
        return;
    }
    let begin = |words: &[&str]| {
        let mut command = Command::new(cargo_bin("foreread"));
        command.arg("run").arg("--").args(words).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().expect("foreread runs")
    };
    let read_line = |child: &mut std::process::Child| {
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
        line.trim().to_string()
    };
    let send = |signal: &str, pid: &str| {
        let done = Command::new("kill").args([signal, pid]).status().expect("kill runs");
        assert!(done.success());
    };
    let mut child = begin(&["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"]);
    assert_eq!(read_line(&mut child), "ready");
    send("-TERM", &child.id().to_string());
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
    assert!(is_removed(child.id()), "the guard removes the instance");
    let mut child = begin(&["sh", "-c", "echo $$; exec sleep 1000"]);
    let command = read_line(&mut child);
    send("-KILL", &child.id().to_string());
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    assert!(is_removed(child.id()), "the guard removes the instance");
    assert!(PathBuf::from(format!("/proc/{command}")).exists(), "the command goes on");
    send("-KILL", &command);
}

/// Reads by every function that is replaced, a fork, threads, errors: the bytes and the error numbers are the same with the library.
const READER: &str = r#"
import errno, hashlib, os, sys, threading
f = os.open(sys.argv[1], os.O_RDONLY)
size, h = os.fstat(f).st_size, hashlib.sha256()
while got := os.read(f, 10000): h.update(got)
for at in range(0, size, 70000): h.update(os.pread(f, 5000, at))
a, b = bytearray(3000), bytearray(5000)
for at in range(0, size, 90000):
    os.preadv(f, [a, b], at); h.update(a + b)
os.lseek(f, 12345, 0)
os.readv(f, [a, b]); h.update(a + b)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
h.update(os.pread(f, 100, size - 50))
copy = os.dup2(f, 50)
os.close(f)
for bad in (f, 999):
    try: os.read(bad, 1)
    except OSError as error: h.update(str(error.errno).encode())
def part(n):
    return [os.pread(copy, 20000, at) for at in range(n * 100000, size, 400000)]
parts = [None] * 4
threads = [threading.Thread(target=lambda n=n: parts.__setitem__(n, part(n))) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
for p in parts: [h.update(x) for x in p]
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, hashlib.sha256(os.pread(copy, size, 0)).digest()); os._exit(0)
h.update(os.read(r, 32)); os.wait()
print(h.hexdigest())
"#;

#[test]
fn a_program_with_the_library_reads_the_same() {
    let beside = cargo_bin("foreread").with_file_name("libforeread_preload.so");
    if !beside.is_file() {
        println!("skipped: needs cargo build -p foreread-preload");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("data");
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&path, bytes).expect("room");
    let path = path.display().to_string();
    let words = ["python3", "-c", READER, &path];
    let Ok(plain) = Command::new(words[0]).args(&words[1..]).output() else {
        println!("skipped: needs python3");
        return;
    };
    let arguments: Vec<&str> = ["--preload", "--"].into_iter().chain(words).collect();
    let with = run(&arguments);
    assert!(plain.status.success() && with.status.success(), "{}{}", text(&plain.stderr), text(&with.stderr));
    assert_eq!((text(&with.stdout), text(&with.stderr)), (text(&plain.stdout), text(&plain.stderr)));
}
