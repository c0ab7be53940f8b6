//! Tests `serve` on a socket that another program created and passes on, and `health` with servers: an NBD server, a server of
//! another protocol, and none. `mount.rs` tests it with mounts.

use crate::common::{BINARY, Got, Running, foreread, says, signal, wait_until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// systemd's own program for that: it makes the socket, and becomes the server when the first client connects.
#[test]
fn systemd_starts_a_server_with_its_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("disk"), vec![7; 300_000]).expect("written");
    let mut command = Command::new("systemd-socket-activate");
    command.args(["-l", &at("s"), "-E", "XDG_CONFIG_HOME=/dev/null"]);
    command.args([BINARY, "serve", &at("disk")]);
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
        let size = Got::from(&size);
        assert_eq!(size.out.trim(), "300000", "{}", size.err);
    }
    assert_eq!(code, Some(0), "a clean end");
    let is_kept = Path::new(&at("s")).exists();
    assert!(is_kept, "the socket is not the server's to remove");
}

/// systemd starts what comes after it when it hears this: the server listens by then.
#[test]
fn systemd_hears_that_it_listens() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let heard = UnixDatagram::bind(at("notify")).expect("a socket");
    let limit = heard.set_read_timeout(Some(Duration::from_secs(60)));
    limit.expect("a socket");
    let mut command = Command::new(BINARY);
    command.args(["serve", "Cargo.toml", "--unix"]);
    command.arg(at("nbd")).env("NOTIFY_SOCKET", at("notify"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Running(command.spawn().expect("started"));
    let mut line = [0; 64];
    let len = heard.recv(&mut line);
    let connected = UnixStream::connect(at("nbd"));
    assert_eq!(&line[..len.expect("it is said")], b"READY=1");
    assert!(connected.is_ok(), "{connected:?}");
}

/// What is passed on has to be a socket that listens. The numbers are those of this process's shell, which becomes foreread.
#[test]
fn a_path_that_is_not_a_socket_is_refused() {
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve Cargo.toml 3</dev/null";
    let out = Command::new("sh").args(["-c", script, BINARY]).output();
    let remedy = "; pass a listening unix or TCP socket";
    let got = Got::from(&out.expect("started"));
    let parts = ["cannot listen", "socket 0 of LISTEN_FDS", remedy];
    says(got.is_refused(), &parts);
}

/// Says the same to each client.
fn greet(
    clients: impl Iterator<Item = impl Read + Write> + Send + 'static,
    greeting: &'static [u8],
) {
    let serve = move || clients.for_each(|mut client| _ = client.write_all(greeting));
    foreread_os::threads::spawn("greets", serve).expect("a thread");
}

/// A server that says this to each client, and its address.
fn saying(greeting: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let clients = std::iter::from_fn(move || Some(listener.accept().expect("a client").0));
    greet(clients, greeting);
    format!("nbd://{address}")
}

/// A server that greets is healthy, by TCP and at a socket; of another the line says why it is not.
#[test]
fn a_server_is_healthy_that_greets() {
    const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
    let (good, bad) = (saying(GREETING), saying(b"HTTP/1.1 400 Bad"));
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let none = format!("nbd://{}", gone.local_addr().expect("bound"));
    drop(gone);
    let dir = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(dir.path().join("a socket")).expect("room");
    let clients = std::iter::from_fn(move || Some(listener.accept().expect("a client").0));
    greet(clients, GREETING);
    let socket = |name: &str| {
        let path = dir.path().join(name).display().to_string();
        format!("nbd+unix:///?socket={}", path.replace(' ', "%20"))
    };
    for (name, code, says) in [
        (good.as_str(), 0, "answers"),
        (&bad, 1, "not an NBD server"),
        (&none, 1, "nothing listens there"),
        ("/proc", 1, "not a foreread mount"),
        (&socket("a socket"), 0, "answers"),
        (&socket("gone"), 1, "No such file"),
        ("nbd+unix:///", 1, "no socket is given"),
        ("nbdx://h", 1, "not the name of an NBD server"),
    ] {
        let got = foreread(["health", name]);
        got.assert_code(code);
        let begin = format!("{name}: ");
        assert!(got.out.starts_with(&begin), "{}", got.out);
        assert!(got.out.contains(says), "{}", got.out);
    }
    // One that is not healthy is enough.
    let got = foreread(["health", &bad, &good]);
    let lines = format!("{bad}: not an NBD server\n{good}: answers\n");
    assert_eq!((got.code, got.out), (Some(1), lines));
}
