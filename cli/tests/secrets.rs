//! Tests "Never printed": the name of a source contains a canary, and every command that accepts a source gets it. The
//! tests search all output: stdout, stderr at the most detailed log level, JSON, HTML, metrics, event logs, recordings.
#[cfg(feature = "mount")]
use crate::common::process::can_mount;
use crate::common::server::Server;
use foreread::source::{Mem, Nbd, Source};
use foreread_testing::{Lie, RangeServer, pattern};
use std::ffi::OsStr;
use std::io::{IoSliceMut, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CANARY: &str = "canary9f3e";
/// Nothing listens there, so that it fails at once.
const NOWHERE: &str = "127.0.0.1:1";

/// The command, as talkative as it can be, with no way to a real cloud.
fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreread"));
    command
        .args(args)
        .env("FOREREAD_LOG", "trace")
        .env("FOREREAD_OBJECT", "retries=0")
        .env("RUST_BACKTRACE", "1");
    command
        .env("AWS_ENDPOINT_URL", format!("http://{NOWHERE}"))
        .env("AWS_ALLOW_HTTP", "true");
    command
        .env("AWS_ACCESS_KEY_ID", CANARY)
        .env("AWS_SECRET_ACCESS_KEY", CANARY)
        .env("AWS_SESSION_TOKEN", CANARY);
    for (name, value) in [
        ("STORAGE_EMULATOR_HOST", NOWHERE),
        ("GOOGLE_BEARER_TOKEN", CANARY),
        ("AZURE_STORAGE_ACCOUNT", "account"),
        ("AZURE_STORAGE_KEY", "Y2FuYXJ5OWYzZQ=="),
        ("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1"),
        ("AZURE_STORAGE_SAS_TOKEN", CANARY),
        ("AZURE_STORAGE_CONNECTION_STRING", CANARY),
        ("AZURE_CLIENT_SECRET", CANARY),
        ("IDENTITY_HEADER", CANARY),
    ] {
        command.env(name, value);
    }
    command
        .env("HF_ENDPOINT", format!("http://{NOWHERE}"))
        .env("HF_TOKEN", CANARY);
    command
}

#[track_caller]
fn is_clean(what: &str, bytes: &[u8]) {
    let found = bytes
        .windows(CANARY.len())
        .any(|part| part.eq_ignore_ascii_case(CANARY.as_bytes()));
    assert!(
        !found,
        "{what} shows it: {}",
        String::from_utf8_lossy(&bytes[..bytes.len().min(4000)])
    );
}

/// Every file in a folder and below. How many there are.
#[track_caller]
fn files_are_clean(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let look = |path: std::path::PathBuf| {
        is_clean("a file's name", path.as_os_str().as_encoded_bytes());
        if path.is_dir() {
            return files_are_clean(&path);
        }
        if path.is_file() {
            is_clean(
                &path.display().to_string(),
                &std::fs::read(&path).expect("readable"),
            );
        }
        1
    };
    entries.map(look).sum()
}

/// As a hasty user types it, and where it fails before, while and after it is taken for a URL.
fn spellings() -> Vec<String> {
    let c = CANARY;
    vec![
        format!("http://user:{c}@{NOWHERE}/x?token={c}#{c}"),
        format!("HTTP://user:{c}@{NOWHERE}/x"),
        format!("  https://{c}@{NOWHERE}/x"),
        format!("file:http://user:{c}@{NOWHERE}/x"),
        format!("http:/user:{c}@{NOWHERE}/x"),
        format!("http//user:{c}@{NOWHERE}/x"),
        format!("http://user:pass/{c}@{NOWHERE}/x"),
        format!("s3://KEY:{c}@bucket/key"),
        format!("S3://bucket/prefix/?X-Amz-Signature={c}"),
        format!("gs://KEY:{c}@bucket/key"),
        format!("gs://bucket/key?token={c}"),
        format!("az://KEY:{c}@bucket/key"),
        format!("abfss://box:{c}@account.dfs.core.windows.net/key"),
        format!("https://account.blob.core.windows.net/box/key?sv=1&sig={c}"),
        format!("https://account.blob.core.windows.net/box/?sv=1&sig={c}"),
        format!("hf://{c}@user/repo/path"),
        format!("hf://user:{c}@user/repo"),
        format!("nbd://user:{c}@{NOWHERE}/disk"),
        format!("NBD://{NOWHERE}/?password={c}"),
        format!("nbds://{c}@{NOWHERE}/disk?tls-username={c}"),
        format!("nbds://{NOWHERE}/?tls-psk-file={c}&tls-{c}"),
        format!("rbd:pool/image?key={c}"),
        format!("rbd:pool/image:id=admin:key={c}"),
        format!("ftp://user:{c}@{NOWHERE}/x"),
        format!("user:{c}@{NOWHERE}/x"),
    ]
}

/// Wherever a source is taken, and wherever one is named by mistake.
fn places(name: &str, folder: &Path) -> Vec<Vec<String>> {
    let at = |file: &str| folder.join(file).display().to_string();
    let rows: Vec<Vec<&str>> = vec![
        vec![
            "compare",
            "sequential",
            "--size",
            "1M",
            "--runs",
            "1",
            "--on",
            name,
        ],
        vec!["compare", "--on", "model:nvme", name],
        vec!["explain", "sequential", "--on", name],
        vec!["explain", name],
        vec!["probe", name, "--seconds", "1"],
        vec!["probe", name, "--verify", "model:nvme"],
        vec!["serve", name, "--tcp", "0.0.0.0:0"],
        vec!["serve", "/dev/null", "--tcp", name],
        vec!["tune", name],
        vec!["check", "replay-log", name],
        vec!["trace", "info", name],
        vec!["trace", "import", name, "-o", "/dev/null"],
        vec!["list", "policies", "--log", name],
    ];
    let mut rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| row.into_iter().map(str::to_string).collect())
        .collect();
    std::fs::write(at("t.csv"), "offset,size\n0,4096\n4096,4096\n").expect("room");
    rows.push(
        ["tune", &at("t.csv"), "--on", name]
            .map(str::to_string)
            .into(),
    );
    if cfg!(feature = "mount") {
        rows.push(["mount", name, &at("mnt")].map(str::to_string).into());
    }
    rows
}

#[test]
fn no_command_prints_secrets_of_names() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("mnt")).expect("made");
    for name in spellings() {
        for args in places(&name, folder.path()) {
            let output = command(&args)
                .stdin(Stdio::null())
                .output()
                .expect("the binary starts");
            let what = args.join(" ");
            is_clean(&format!("stdout of {what}"), &output.stdout);
            is_clean(&format!("stderr of {what}"), &output.stderr);
            assert!(
                matches!(output.status.code(), Some(1..=3)),
                "{what}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(!output.stderr.is_empty(), "{what} says nothing");
        }
    }
    files_are_clean(folder.path());
}

fn served() -> (RangeServer, String) {
    served_with(1 << 20)
}

fn served_with(bytes: usize) -> (RangeServer, String) {
    let server = RangeServer::start(Mem::new(pattern(0, bytes, 0))).expect("a port");
    let name = format!(
        "http://user:{CANARY}@{}/object?token={CANARY}",
        server.address()
    );
    (server, name)
}

#[test]
fn what_is_measured_on_a_source_is_written_without_its_password() {
    let (server, name) = served();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |file: &str| folder.path().join(file).display().to_string();
    std::fs::create_dir(folder.path().join("logs")).expect("made");
    let json = [
        at("c.json"),
        at("e.json"),
        at("c.html"),
        at("v.json"),
        at("v.html"),
    ];
    let quick = [
        "--size",
        "256K",
        "--runs",
        "2",
        "--policy",
        "none,linux-6.18",
        "--on",
        &name,
    ];
    let compare = [
        "compare",
        "sequential",
        "--html",
        &json[2],
        "--event-log",
        &at("logs"),
        "--json",
        &json[0],
    ];
    let vary = [
        "compare",
        "sequential",
        "--vary",
        "cache=1M,2M",
        "--html",
        &json[4],
        "--json",
        &json[3],
    ];
    let explain = ["explain", "sequential", "--on", &name, "--json", &json[1]];
    let compare: Vec<&str> = compare.into_iter().chain(quick).collect();
    let vary: Vec<&str> = vary.into_iter().chain(quick).collect();
    for args in [&compare[..], &vary, &explain] {
        let output = command(args).output().expect("the binary starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {err}", args[0]);
        is_clean(args[0], &output.stdout);
        is_clean(args[0], &output.stderr);
        // It is the source that is shown, not nothing at all.
        let shown = format!("http://{}/object?...", server.address());
        assert!(
            String::from_utf8_lossy(&output.stdout).contains(&shown),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    assert!(json.iter().all(|path| Path::new(path).exists()));
    assert!(
        files_are_clean(folder.path()) >= json.len() + 2,
        "event logs of two policies"
    );
    let sent = server
        .seen()
        .iter()
        .filter(|seen| seen.target.contains(CANARY) && seen.header("authorization").is_some())
        .count();
    assert!(
        sent > 0,
        "the server was asked with the token and the password"
    );
}

/// The command line of a recorded program may hold a password: neither the trace nor what is said of it does.
#[test]
fn a_recorded_command_line_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |file: &str| folder.path().join(file).display().to_string();
    let url = format!("http://user:{CANARY}@{NOWHERE}/x");
    std::fs::write(at("data"), vec![7; 1 << 20]).expect("room");
    let script = ["sh", "-c", "cat \"$1\" > /dev/null", &url, &at("data")];
    let record = [
        "record",
        "--by",
        "trace",
        "-o",
        &at("t.frt"),
        "--json",
        &at("t.json"),
        "--",
    ];
    let output = command(record.iter().chain(&script))
        .output()
        .expect("the binary starts");
    is_clean("record", &output.stdout);
    is_clean("record", &output.stderr);
    if output.status.code() == Some(3) {
        println!("skipped: needs root and tracefs");
        return;
    }
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let explain = [
        "explain",
        &at("t.frt"),
        "--on",
        "model:nvme",
        "--json",
        &at("e.json"),
    ];
    for args in [
        &explain[..],
        &["trace", "info", &at("t.frt"), "--json", &at("i.json")],
    ] {
        let output = command(args).output().expect("the binary starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        is_clean(args[0], &output.stdout);
    }
    assert_eq!(files_are_clean(folder.path()), 5);
}

fn get(port: u16) -> Vec<u8> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .expect("sent");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("text");
    text
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port()
}

#[test]
fn a_server_hides_the_password_of_its_source() {
    // More than the first read reads ahead, so that the second one asks the source.
    let (server, name) = served_with(64 << 20);
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.frt").display().to_string();
    let port = free_port();
    let metrics = port.to_string();
    let serve = [
        "serve",
        &name,
        "--tcp",
        "0.0.0.0:0",
        "--record",
        &trace,
        "--stats-every",
        "100ms",
        "--metrics",
        &metrics,
    ];
    let running = Server::start(&mut command(serve));
    let uri = running.line.clone();
    let nbd = Nbd::open(&uri.replace("0.0.0.0", "127.0.0.1")).expect("connected");
    let mut bytes = vec![0; 65536];
    assert_eq!(
        nbd.read_at(&mut [IoSliceMut::new(&mut bytes)], 0)
            .expect("read"),
        65536
    );
    // What the server sends a client about the export.
    let listed = Command::new("nbdinfo")
        .args(["--list", &uri.replace("0.0.0.0", "127.0.0.1")])
        .output();
    listed
        .iter()
        .for_each(|output| is_clean("nbdinfo", &output.stdout));
    is_clean("metrics", &get(port));
    // A failing source is logged.
    server.lie(Lie::Status(403, None), 100);
    assert!(
        nbd.read_at(&mut [IoSliceMut::new(&mut bytes)], 60 << 20)
            .is_err()
    );
    std::thread::sleep(Duration::from_millis(150));
    drop(nbd);
    let err = running.ended_by("-TERM");
    is_clean("stderr of serve", err.as_bytes());
    assert!(
        err.contains("there is no password") && err.contains("/object?..."),
        "{err}"
    );
    assert!(err.contains("403"), "the source's error is logged: {err}");
    let exported = folder.path().join("t.csv").display().to_string();
    let output = command(["trace", "export", &trace, "--to", "csv", "-o", &exported])
        .output()
        .expect("the binary starts");
    is_clean("export", &output.stderr);
    assert!(files_are_clean(folder.path()) >= 1, "the recording");
}

#[cfg(feature = "mount")]
#[test]
fn a_mount_hides_the_password_of_its_source() {
    if !can_mount() {
        return;
    }
    let (_server, name) = served();
    let (folder, mnt) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (trace, dir) = (
        folder.path().join("t.frt").display().to_string(),
        mnt.path().display().to_string(),
    );
    let port = free_port();
    let running = Server::start(&mut command([
        "mount",
        &name,
        &dir,
        "--record",
        &trace,
        "--metrics",
        &port.to_string(),
    ]));
    assert_eq!(running.line, dir);
    let names: Vec<_> = std::fs::read_dir(&dir)
        .expect("listed")
        .map(|e| e.expect("one").file_name())
        .collect();
    assert_eq!(names, ["object"]);
    assert_eq!(
        std::fs::read(mnt.path().join("object"))
            .expect("read")
            .len(),
        1 << 20
    );
    is_clean("metrics", &get(port));
    is_clean(
        "the mount table",
        &std::fs::read("/proc/self/mountinfo").expect("readable"),
    );
    is_clean("stderr of mount", running.ended_by("-TERM").as_bytes());
    assert_eq!(files_are_clean(folder.path()), 1, "the recording");
}
