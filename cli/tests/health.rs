//! Tests `foreread health` with servers: an NBD server, a server of another protocol, and none. `mount.rs` tests it with mounts.

use crate::common::foreread;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;

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
