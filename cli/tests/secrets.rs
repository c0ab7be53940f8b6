//! Tests "Never printed": a canary is in the name of a source, at every position of every command line of the table of
//! commands, and in the environment. The tests search all output: stdout, stderr at the most detailed log level, JSON, HTML,
//! metrics, event logs, recordings, and the arguments of child processes.

use crate::common::{BINARY, Got, Server, can_mount, children, has, needs, says, wait_until};
use clap::CommandFactory;
use foreread::source::{Mem, Nbd, Source};
use foreread_cli::command::Args;
use foreread_testing::{Lie, RangeServer, pattern};
use std::ffi::OsStr;
use std::io::{IoSliceMut, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const CANARY: &str = "canary9f3e";
/// Nothing listens there, so that it fails at once.
const NOWHERE: &str = "127.0.0.1:1";

/// The command in a folder that is its user's home, as talkative as it can be, with no way to a real cloud.
fn command(home: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let nowhere = format!("http://{NOWHERE}");
    let mut command = Command::new(BINARY);
    command.args(args).current_dir(home).stdin(Stdio::null());
    for name in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env(name, home);
    }
    command.envs([
        ("FOREREAD_LOG", "trace"),
        ("FOREREAD_OBJECT", "retries=0"),
        ("RUST_BACKTRACE", "1"),
        ("AWS_ENDPOINT_URL", &nowhere),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_ACCESS_KEY_ID", CANARY),
        ("AWS_SECRET_ACCESS_KEY", CANARY),
        ("AWS_SESSION_TOKEN", CANARY),
        ("STORAGE_EMULATOR_HOST", NOWHERE),
        ("GOOGLE_BEARER_TOKEN", CANARY),
        ("AZURE_STORAGE_ACCOUNT", "account"),
        ("AZURE_STORAGE_KEY", "Y2FuYXJ5OWYzZQ=="),
        ("AZURE_STORAGE_ENDPOINT", &nowhere),
        ("AZURE_STORAGE_SAS_TOKEN", CANARY),
        ("AZURE_STORAGE_CONNECTION_STRING", CANARY),
        ("AZURE_CLIENT_SECRET", CANARY),
        ("IDENTITY_HEADER", CANARY),
        ("HF_ENDPOINT", &nowhere),
        ("HF_TOKEN", CANARY),
    ]);
    command
}

fn shows(bytes: &[u8]) -> bool {
    let mut windows = bytes.windows(CANARY.len());
    windows.any(|part| part.eq_ignore_ascii_case(CANARY.as_bytes()))
}

#[track_caller]
fn is_clean(what: &str, bytes: &[u8]) {
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]);
    assert!(!shows(bytes), "{what} shows it: {begin}");
}

/// Every file in a folder and below. How many there are.
#[track_caller]
fn files_are_clean(folder: &Path) -> usize {
    let look = |path: std::path::PathBuf| {
        is_clean("a file's name", path.as_os_str().as_encoded_bytes());
        if path.is_dir() {
            return files_are_clean(&path);
        }
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("readable");
            is_clean(&path.display().to_string(), &bytes);
        }
        1
    };
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(look).sum()
}

/// Runs a line of words, in which `NAME` is the name of a source: it and its outputs are clean. What it says.
#[track_caller]
fn runs_clean(home: &Path, line: &str, name: &str) -> Got {
    let words = line.split(' ').map(|word| word.replace("NAME", name));
    let output = command(home, words).output().expect("it starts");
    is_clean(line, &[&output.stdout[..], &output.stderr].concat());
    Got::from(&output)
}

/// As a hasty user types it, and where it fails before, while and after it is taken for a URL. Each has a slash: none becomes
/// the name of a file.
fn spellings() -> Vec<String> {
    let c = CANARY;
    vec![
        format!("http://user:{c}@{NOWHERE}/x?token={c}#{c}"),
        format!("S3://bucket/prefix/?X-Amz-Signature={c}"),
        format!("nbds://{NOWHERE}/?tls-psk-file={c}&tls-{c}"),
        format!("user:{c}@{NOWHERE}/x"),
        format!("HTTPS://u:{c}@{NOWHERE}/x?sig={c}"),
        format!("  https://{c}@{NOWHERE}/x"),
        format!("file:http://user:{c}@{NOWHERE}/x"),
        format!("http:/user:{c}@{NOWHERE}/x"),
        format!("http//user:{c}@{NOWHERE}/x"),
        format!("http%3A%2F%2Fu%3A{c}%40h/x"),
        format!("http://user:pass/{c}@{NOWHERE}/x"),
        format!("s3://KEY:{c}@bucket/key"),
        format!("gs://KEY:{c}@bucket/key"),
        format!("gs://bucket/key?token={c}"),
        format!("az://KEY:{c}@bucket/key"),
        format!("az://c/k?SIG={c}"),
        format!("abfss://box:{c}@account.dfs.core.windows.net/key"),
        format!("https://account.blob.core.windows.net/box/key?sv=1&sig={c}"),
        format!("https://account.blob.core.windows.net/box/?sv=1&sig={c}"),
        format!("hf://{c}@user/repo/path"),
        format!("hf://user:{c}@user/repo"),
        format!("nbd://user:{c}@{NOWHERE}/disk"),
        format!("NBD://{NOWHERE}/?password={c}"),
        format!("nbds://{c}@{NOWHERE}/disk?tls-username={c}"),
        format!("rbd:pool/image?key={c}"),
        format!("rbd:pool/image:id=admin:key={c}"),
    ]
}

/// Where a source is opened; `NAME` is it, and `t.csv` and `mnt` are in the folder.
const PLACES: &str = "\
compare sequential --size 1M --runs 1 --on NAME
explain sequential --on NAME
tune t.csv --on NAME
probe NAME --seconds 1
probe NAME --verify model:nvme
serve NAME --tcp 0.0.0.0:0
serve /dev/null --tcp NAME
mount NAME mnt
check replay-log NAME
list policies --log NAME";

/// The command lines that have a name somewhere: as each word of each command, and as the value of each option.
fn lines(command: &clap::Command, path: &[String], all: &mut Vec<Vec<String>>) {
    for below in command.get_subcommands() {
        let path = [path, &[below.get_name().to_string()]].concat();
        lines(below, &path, all);
    }
    if path.is_empty() {
        return;
    }
    let names = spellings();
    let mut line = |words: &[&str]| {
        let words = words.iter().map(|word| word.to_string());
        all.push(path.iter().cloned().chain(words).collect());
    };
    for name in &names {
        line(&[name]);
    }
    for name in &names[..4] {
        line(&["--", name]);
        line(&["none/there", name]);
    }
    let options = command.get_arguments();
    let options = options.filter(|option| option.get_action().takes_values());
    for long in options.filter_map(clap::Arg::get_long) {
        line(&[&format!("--{long}={}", names[0]), "none/there"]);
        line(&["none/there", &format!("--{long}"), &names[1]]);
    }
}

/// Those that go on until they are ended: what is said by then is looked at.
fn ended(mut child: Child) -> Output {
    for _ in 0..100 {
        if child.try_wait().expect("ours").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    child.wait_with_output().expect("ended")
}

#[test]
fn no_command_prints_secrets_of_names() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("mnt")).expect("made");
    let table = "offset,size\n0,4096\n4096,4096\n";
    std::fs::write(folder.path().join("t.csv"), table).expect("room");
    let mut all = Vec::new();
    for name in spellings() {
        let word = |word: &str| word.replace("NAME", &name);
        let words = |line: &str| line.split(' ').map(word).collect();
        all.extend(PLACES.lines().map(words));
    }
    // These have to say something.
    let opens = all.len();
    lines(&Args::command(), &[], &mut all);
    assert!(all.len() > opens + 1000, "{}", all.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let work = || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(line) = all.get(number) else { return };
                    let mut child = command(folder.path(), line);
                    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
                    let output = ended(child.spawn().expect("it starts"));
                    let (status, said) = (output.status, !output.stderr.is_empty());
                    let is_over = matches!(status.code(), Some(1..=3)) && said;
                    let text = [output.stdout, output.stderr].concat();
                    let text = String::from_utf8_lossy(&text);
                    let shown = text.lines().find(|line| shows(line.as_bytes()));
                    if shown.is_some() || number < opens && !is_over {
                        let mut failed = failed.lock().expect("no panic");
                        failed.push(format!("{}: {status}: {shown:?}", line.join(" ")));
                    }
                }
            };
            foreread_os::threads::spawn_scoped(scope, "canary", work).expect("a thread");
        }
    });
    let failed = failed.into_inner().expect("no panic");
    let count = failed.len();
    assert!(failed.is_empty(), "{count}:\n{}", failed.join("\n"));
    files_are_clean(folder.path());
}

/// Whatever a command begins of itself has no name with a secret among its arguments.
#[test]
fn no_process_that_a_command_begins_shows_a_name() {
    needs!(has(&["strace", "-V"]));
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let mut begun = 0;
    let begins = "health NAME|mount -d NAME m|mount m m -d --endpoint-url NAME|\
        mount -d --disk-cache=c,shared=NAME m m|serve NAME --unix s|umount NAME";
    for name in &spellings()[..12] {
        for line in begins.split('|') {
            let words = line.split(' ').map(|word| word.replace("NAME", name));
            let own = command(folder.path(), words);
            let mut traced = Command::new("strace");
            traced.args("-f -qq -e trace=execve -s 65536 -v -o".split(' '));
            traced.arg(&log).arg(own.get_program()).args(own.get_args());
            for (name, value) in own.get_envs() {
                traced.env(name, value.expect("set"));
            }
            let traced = traced.current_dir(folder.path()).stdin(Stdio::null());
            let traced = traced.stdout(Stdio::null()).stderr(Stdio::null());
            ended(traced.spawn().expect("strace starts"));
            let calls = std::fs::read_to_string(&log).expect("written");
            let calls = calls.lines().skip(1);
            for call in calls.filter(|call| call.contains("execve(")) {
                begun += 1;
                // What comes after the arguments is the environment, which its user alone sees.
                let arguments = call.split("], [").next().unwrap_or_default();
                is_clean(line, arguments.as_bytes());
            }
        }
    }
    assert!(begun >= 10, "{begun}");
}

fn served(bytes: usize) -> (RangeServer, String) {
    let server = RangeServer::start(Mem::new(pattern(0, bytes, 0))).expect("a port");
    let address = server.address();
    let name = format!("http://user:{CANARY}@{address}/object?token={CANARY}");
    (server, name)
}

#[test]
fn what_is_measured_on_a_source_is_written_without_its_password() {
    let (server, name) = served(1 << 20);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("logs")).expect("made");
    let quick = "--size 256K --runs 2 --policy none,linux-6.18 --on NAME";
    // It is the source that is shown, not nothing at all.
    let shown = format!("http://{}/object?...", server.address());
    for line in [
        format!("compare sequential --html c.html --event-log logs --json c.json {quick}"),
        format!("compare sequential --vary cache=1M,2M --html v.html --json v.json {quick}"),
        "explain sequential --on NAME --json e.json".to_string(),
    ] {
        let got = runs_clean(folder.path(), &line, &name);
        got.assert_code(0);
        says(&got.out, &[&shown]);
    }
    let files = files_are_clean(folder.path());
    assert!(files >= 5 + 2, "pages, JSON, event logs: {files}");
    let seen = server.seen().into_iter();
    let mut sent = seen.filter(|seen| seen.header("authorization").is_some());
    // It was asked with both.
    assert!(sent.any(|seen| shows(seen.target.as_bytes())));
}

/// The command line of a recorded program may hold a password: neither the trace nor what is said of it does.
#[test]
fn a_recorded_command_line_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("http://user:{CANARY}@{NOWHERE}/x");
    std::fs::write(folder.path().join("data"), vec![7; 1 << 20]).expect("room");
    let record = "record --by trace -o t.frt --json t.json -- sh -c".split(' ');
    let record = record.chain(["cat \"$1\" > /dev/null", &url, "data"]);
    let explain = "explain t.frt --on model:nvme --json e.json".split(' ');
    let info = "trace info t.frt --json i.json".split(' ');
    for line in [Vec::from_iter(record), explain.collect(), info.collect()] {
        let output = command(folder.path(), &line).output().expect("it starts");
        is_clean(line[0], &[&output.stdout[..], &output.stderr].concat());
        if output.status.code() == Some(3) {
            println!("skipped: needs root and tracefs");
            return;
        }
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line:?}: {err}");
    }
    assert_eq!(files_are_clean(folder.path()), 5);
}

fn get(port: u16) -> Vec<u8> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let request = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    request.expect("sent");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("text");
    text
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address.expect("a port").port()
}

#[test]
fn a_server_hides_the_password_of_its_source() {
    // More than the first read reads ahead, so that the second one asks the source.
    let (server, name) = served(64 << 20);
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let serve = "--tcp 0.0.0.0:0 --record t.frt --stats-every 100ms --metrics".split(' ');
    let serve = ["serve", &name].into_iter().chain(serve);
    let mut serve = command(folder.path(), serve);
    let running = Server::start(serve.arg(port.to_string()));
    let uri = running.line.replace("0.0.0.0", "127.0.0.1");
    let nbd = Nbd::open(&uri).expect("connected");
    let mut bytes = vec![0; 65536];
    let read = nbd.read_at(&mut [IoSliceMut::new(&mut bytes)], 0);
    assert_eq!(read.expect("read"), 65536);
    // What the server sends a client about the export.
    let listed = Command::new("nbdinfo").args(["--list", &uri]).output();
    let listed = listed.map(|output| output.stdout);
    is_clean("nbdinfo", &listed.unwrap_or_default());
    is_clean("metrics", &get(port));
    // A failing source is logged.
    server.lie(Lie::Status(403, None), 100);
    let read = nbd.read_at(&mut [IoSliceMut::new(&mut bytes)], 60 << 20);
    assert!(read.is_err());
    std::thread::sleep(Duration::from_millis(150));
    drop(nbd);
    let err = running.ended_by("-TERM");
    is_clean("stderr of serve", err.as_bytes());
    says(&err, &["there is no password", "/object?...", "403"]);
    let export = "trace export t.frt --to csv -o t.csv";
    runs_clean(folder.path(), export, "");
    assert!(files_are_clean(folder.path()) >= 1, "the recording");
}

/// One in the foreground with a recording and metrics; and one in the background, which is there for long: its arguments name
/// the source without its password.
#[test]
fn a_mount_hides_the_password_of_its_source() {
    needs!(can_mount());
    let (_server, name) = served(1 << 20);
    let [home, mnt] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (port, dir) = (free_port(), mnt.path().display().to_string());
    let mut mount = command(home.path(), ["mount", &name, &dir, "--record", "t.frt"]);
    let running = Server::start(mount.args(["--metrics", &port.to_string()]));
    assert_eq!(running.line, dir);
    let names = std::fs::read_dir(&dir).expect("listed");
    let names = Vec::from_iter(names.map(|entry| entry.expect("one").file_name()));
    assert_eq!(names, ["object"]);
    let object = || std::fs::read(mnt.path().join("object")).map(|bytes| bytes.len());
    assert_eq!(object().expect("read"), 1 << 20);
    is_clean("metrics", &get(port));
    let table = std::fs::read("/proc/self/mountinfo").expect("readable");
    is_clean("the mount table", &table);
    is_clean("stderr of mount", running.ended_by("-TERM").as_bytes());
    assert_eq!(files_are_clean(home.path()), 1, "the recording");

    let line = format!("mount -d NAME {dir} --cache 16M");
    runs_clean(home.path(), &line, &name).assert_code(0);
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let arguments = |pid: u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let is_it = |text: &String| text.contains(&dir) && text.contains("mount");
    let found: Vec<u32> = pids.filter(|pid| is_it(&arguments(*pid))).collect();
    assert!(!found.is_empty(), "its arguments say what it is");
    for pid in found {
        is_clean("cmdline", arguments(pid).as_bytes());
        says(&arguments(pid), &["/object?..."]);
        assert!(children(pid).is_empty());
    }
    assert_eq!(object().expect("read"), 1 << 20);
    runs_clean(home.path(), &format!("umount {dir}"), "").assert_code(0);
    let table = || std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    wait_until("the mount is gone", || !table().contains(&dir));
}
