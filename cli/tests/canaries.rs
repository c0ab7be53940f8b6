//! Puts a canary into a name at every position of every command line. The test goes through the table of commands, so
//! new commands are tested as well. It searches stdout, stderr, files, and the arguments of child processes for the
//! canary.

use crate::common::process::{can_mount, children, eventually};
use clap::CommandFactory;
use foreread_cli::command::Args;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const CANARY: &str = "CANARY7c1e";
/// Nothing listens there.
const AT: &str = "127.0.0.1:1";

/// One of each kind of name, in a spelling that a user may choose. Each has a slash: none becomes the name of a file.
fn names() -> Vec<String> {
    let c = CANARY;
    vec![
        format!("HTTPS://u:{c}@{AT}/x?sig={c}"),
        format!("http:/u:{c}@{AT}/x"),
        format!("http%3A%2F%2Fu%3A{c}%40h/x"),
        format!("S3://K:{c}@b/k"),
        format!("az://c/k?SIG={c}"),
        format!("hf://{c}@u/r"),
        format!("NBD://u:{c}@{AT}/d"),
        format!("nbds://{AT}/?password={c}"),
        format!("rbd:p/i:id=a:key={c}"),
        format!("u:{c}@{AT}/x"),
    ]
}

/// The command lines that have a name somewhere: as each word, and as the value of each option.
fn lines(command: &clap::Command, path: &[String], all: &mut Vec<Vec<String>>) {
    for below in command.get_subcommands() {
        let path = [path, &[below.get_name().to_string()]].concat();
        lines(below, &path, all);
    }
    if path.is_empty() {
        return;
    }
    let line = |words: &[String]| [path, words].concat();
    let names = names();
    for name in &names {
        let name = name.clone();
        all.push(line(std::slice::from_ref(&name)));
        all.push(line(&["--".into(), name.clone()]));
        all.push(line(&["none/there".into(), name]));
    }
    for option in command
        .get_arguments()
        .filter(|option| option.get_action().takes_values())
    {
        let Some(long) = option.get_long() else {
            continue;
        };
        all.push(line(&[
            format!("--{long}={}", names[0]),
            "none/there".into(),
        ]));
        all.push(line(&[
            "none/there".into(),
            format!("--{long}"),
            names[3].clone(),
        ]));
    }
}

fn command(folder: &Path, line: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreread"));
    command.args(line).current_dir(folder);
    command
        .env("FOREREAD_LOG", "debug")
        .env("FOREREAD_OBJECT", "retries=0")
        .env("AWS_ENDPOINT_URL", format!("http://{AT}"))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("HF_ENDPOINT", format!("http://{AT}"))
        .env("XDG_CONFIG_HOME", folder)
        .env("XDG_CACHE_HOME", folder)
        .env("HOME", folder);
    command.stdin(Stdio::null());
    command
}

fn is_clean(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    assert!(
        !text.contains(&CANARY.to_ascii_lowercase()),
        "{what}: {text}"
    );
}

fn files_are_clean(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        is_clean("a name", path.as_os_str().as_encoded_bytes());
        if path.is_dir() {
            files_are_clean(&path);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).expect("readable");
            is_clean(&path.display().to_string(), &bytes);
        }
    }
}

/// Those that go on until they are ended: what is said by then is looked at.
fn ended(mut child: Child) -> std::process::Output {
    for _ in 0..100 {
        if child.try_wait().expect("ours").is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let _ = child.kill();
    child.wait_with_output().expect("ended")
}

#[test]
fn no_command_of_the_table_shows_a_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = Vec::new();
    lines(&Args::command(), &[], &mut all);
    assert!(all.len() > 500, "{}", all.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let work = || {
                while let Some(line) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let child = command(folder.path(), line)
                        .stdout(Stdio::piped())
                        .stderr(Stdio::piped())
                        .spawn();
                    let output = ended(child.expect("the binary starts"));
                    let text = [output.stdout, output.stderr].concat();
                    let text = String::from_utf8_lossy(&text);
                    if let Some(shown) = text.lines().find(|line| line.contains(CANARY)) {
                        let mut failed = failed.lock().expect("no panic");
                        failed.push(format!("{}: {shown}", line.join(" ")));
                    }
                }
            };
            foreread_os::threads::spawn_scoped(scope, "canary", work).expect("a thread");
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        all.len(),
        failed.join("\n")
    );
    files_are_clean(folder.path());
}

/// Whatever a command begins of itself has no name with a secret among its arguments.
#[test]
fn no_process_that_a_command_begins_shows_a_name() {
    let has = Command::new("strace").arg("-V").output();
    if !has.is_ok_and(|out| out.status.success()) {
        println!("skipped: needs strace");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let names = names();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for name in &names {
        let line = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect();
        lines.push(line(&["health", name]));
        lines.push(line(&["mount", "-d", name, "m"]));
        lines.push(line(&["mount", "m", "m", "-d", "--endpoint-url", name]));
        lines.push(line(&[
            "mount",
            "-d",
            &format!("--disk-cache=c,shared={name}"),
            "m",
            "m",
        ]));
        lines.push(line(&["serve", name, "--unix", "s"]));
        lines.push(line(&["umount", name]));
    }
    let mut begun = 0;
    for line in &lines {
        let own = command(folder.path(), line);
        let mut traced = Command::new("strace");
        traced.args(["-f", "-qq", "-e", "trace=execve", "-s", "65536", "-v", "-o"]);
        traced.arg(&log).arg(own.get_program()).args(own.get_args());
        for (name, value) in own.get_envs() {
            traced.env(name, value.expect("set"));
        }
        let child = traced
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        ended(child.expect("strace starts"));
        let calls = std::fs::read_to_string(&log).expect("written");
        for call in calls
            .lines()
            .skip(1)
            .filter(|call| call.contains("execve("))
        {
            begun += 1;
            // What comes after the arguments is the environment, which its user alone sees.
            let arguments = call.split("], [").next().unwrap_or_default();
            is_clean(&line.join(" "), arguments.as_bytes());
        }
    }
    assert!(begun >= names.len(), "{begun}");
}

/// A mount in the background is there for long: its arguments name the source without its password.
#[test]
fn a_mount_in_the_background_has_no_password_among_its_arguments() {
    use foreread::source::Mem;
    use foreread_testing::{RangeServer, pattern};
    if !can_mount() {
        return;
    }
    let server = RangeServer::start(Mem::new(pattern(0, 10_000, 0))).expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("m");
    std::fs::create_dir(&dir).expect("made");
    let name = format!(
        "http://u:{CANARY}@{}/object?token={CANARY}",
        server.address()
    );
    let place = dir.display().to_string();
    let line = ["mount", "-d", &name, &place, "--cache", "16M"].map(str::to_string);
    let done = command(folder.path(), &line).output().expect("it starts");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    is_clean("stderr", &done.stderr);
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let arguments = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_it = |pid: &u32| {
        let text = String::from_utf8_lossy(&arguments(*pid)).into_owned();
        text.contains(&place) && text.contains("mount")
    };
    let found: Vec<u32> = pids.filter(is_it).collect();
    assert!(
        !found.is_empty(),
        "it is there, and its arguments say what it is"
    );
    for pid in found {
        let text = arguments(pid);
        is_clean("cmdline", &text);
        let text = String::from_utf8_lossy(&text).replace('\0', " ");
        assert!(text.contains("/object?..."), "{text}");
        assert!(children(pid).is_empty());
    }
    assert_eq!(
        std::fs::read(dir.join("object")).expect("read").len(),
        10_000
    );
    let umount = command(folder.path(), &["umount".to_string(), place.clone()]).output();
    assert!(umount.expect("it starts").status.success());
    eventually("the mount is gone", || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
        (!table.contains(&place)).then_some(())
    });
}
