//! Tests `serve` on a socket that another program created and passes on, and `health` with servers: an NBD server, a server of
//! another protocol, and none. `mount.rs` tests it with mounts.

use crate::common::{foreread, needs, says, signal, wait_until};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Runs a program of libnbd that starts `foreread serve DISK` with its socket.
fn with_server(program: &str, before: &[&str], disk: &str, after: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(before).args([
        "--",
        "[",
        env!("CARGO_BIN_EXE_foreread"),
        "serve",
        disk,
        "]",
    ]);
    command.args(after);
    let made = command
        .env("XDG_CONFIG_HOME", "/dev/null")
        .env_remove("FOREREAD_POLICY")
        .output();
    if made.is_err() {
        println!("skipped: needs {program} (Debian package libnbd-bin)");
    }
    made.ok()
}

#[test]
fn libnbd_starts_a_server_with_its_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(at("disk"), &bytes).expect("written");
    needs!(let info = with_server("nbdinfo", &["--size"], &at("disk"), &[]));
    assert_eq!(
        String::from_utf8_lossy(&info.stdout).lines().last(),
        Some("300000"),
        "{info:?}"
    );
    needs!(let copied = with_server("nbdcopy", &[], &at("disk"), &[&at("copy")]));
    assert!(copied.status.success(), "{copied:?}");
    assert!(
        std::fs::read(at("copy")).expect("copied") == bytes,
        "right bytes"
    );
}

/// systemd's own program for that: it makes the socket, and becomes the server when the first client connects.
#[test]
fn systemd_starts_a_server_with_its_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("disk"), vec![7; 300_000]).expect("written");
    let mut command = Command::new("systemd-socket-activate");
    command.args(["-l", &at("s"), "-E", "XDG_CONFIG_HOME=/dev/null"]);
    command.args([env!("CARGO_BIN_EXE_foreread"), "serve", &at("disk")]);
    let Ok(mut server) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("skipped: needs systemd-socket-activate (Debian package systemd)");
        return;
    };
    // The first connection starts the server. A file alone may be a socket that does not listen yet.
    wait_until("it listens", || UnixStream::connect(at("s")).is_ok());
    let uri = format!("nbd+unix:///?socket={}", at("s"));
    let sizes = [(); 2].map(|()| Command::new("nbdinfo").args(["--size", &uri]).output());
    signal(server.id(), "-TERM");
    let code = server.wait().expect("it ends").code();
    for size in sizes {
        let Ok(size) = size else {
            return println!("skipped: needs nbdinfo (Debian package libnbd-bin)");
        };
        assert_eq!(
            String::from_utf8_lossy(&size.stdout).trim(),
            "300000",
            "{size:?}"
        );
    }
    assert_eq!(code, Some(0), "a clean end");
    assert!(
        Path::new(&at("s")).exists(),
        "the socket is not the server's to remove"
    );
}

/// systemd starts what comes after it when it hears this: the server listens by then.
#[test]
fn systemd_hears_that_it_listens() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let heard = UnixDatagram::bind(at("notify")).expect("a socket");
    let limit = heard.set_read_timeout(Some(Duration::from_secs(60)));
    limit.expect("a socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreread"));
    command.args(["serve", "Cargo.toml", "--unix"]);
    command.arg(at("nbd")).env("NOTIFY_SOCKET", at("notify"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().expect("started");
    let mut line = [0; 64];
    let len = heard.recv(&mut line);
    let connected = UnixStream::connect(at("nbd"));
    server.kill().and_then(|()| server.wait()).expect("ended");
    assert_eq!(&line[..len.expect("it is said")], b"READY=1");
    assert!(connected.is_ok(), "{connected:?}");
}

/// What is passed on has to be a socket that listens. The numbers are those of this process's shell, which becomes foreread.
#[test]
fn a_path_that_is_not_a_socket_is_refused() {
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve Cargo.toml 3</dev/null";
    let out = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_foreread")])
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2));
    let remedy = "; pass a listening unix or TCP socket";
    says(&said, &["cannot listen", "socket 0 of LISTEN_FDS", remedy]);
}

/// A server that says this to each client, and its address.
fn saying(greeting: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let serve = move || {
        for client in listener.incoming() {
            let _ = client.and_then(|mut client| client.write_all(greeting));
        }
    };
    foreread_os::threads::spawn("greets", serve).expect("a thread");
    format!("nbd://{address}")
}

#[test]
fn a_server_is_healthy_that_greets() {
    let (good, bad) = (
        saying(b"NBDMAGICIHAVEOPT\0\x03"),
        saying(b"HTTP/1.1 400 Bad"),
    );
    assert_eq!(
        foreread(["health", &good]).is_done(),
        format!("{good}: answers\n")
    );
    let got = foreread(["health", &bad, &good]);
    let lines = format!("{bad}: not an NBD server\n{good}: answers\n");
    assert_eq!((got.code, got.out), (Some(1), lines));
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let none = format!("nbd://{}", gone.local_addr().expect("bound"));
    drop(gone);
    let got = foreread(["health", &none]);
    assert_eq!(
        (got.code, got.out),
        (Some(1), format!("{none}: nothing listens there\n"))
    );
    let got = foreread(["health", "/proc"]);
    assert_eq!(got.out, "/proc: not a foreread mount\n");
}

#[test]
fn a_server_on_a_unix_socket_is_checked_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a socket");
    let listener = UnixListener::bind(&path).expect("room");
    let serve = move || {
        for client in listener.incoming() {
            let _ = client.and_then(|mut client| client.write_all(b"NBDMAGICIHAVEOPT\0\x03"));
        }
    };
    foreread_os::threads::spawn("greets", serve).expect("a thread");
    let name = |path: &Path| format!("nbd+unix:///?socket={}", path.display()).replace(' ', "%20");
    let good = name(&path);
    let answers = format!("{good}: answers\n");
    assert_eq!(foreread(["health", &good]).is_done(), answers);
    let gone = name(&dir.path().join("gone"));
    let got = foreread(["health", &gone]);
    assert_eq!(got.code, Some(1));
    assert!(got.out.contains("No such file"), "{}", got.out);
    for (name, says) in [
        ("nbd+unix:///", "no socket is given"),
        ("nbdx://h", "not the name of an NBD server"),
    ] {
        let got = foreread(["health", name]);
        assert_eq!(got.code, Some(1), "{name}");
        assert!(got.out.contains(says), "{}", got.out);
    }
}
