//! Tests of the NBD source's TLS: with servers of other projects, hostile servers and networks, and invalid certificates.

use crate::common::nbd::{MIB, Peer, Running, Served, has, hello, option, option_reply, read};
use crate::common::tls::Certificates;
use crate::common::{
    Rng, in_threads, named, opened, quiet, read_and_check, read_right, wait_until,
};
use foreread::front::nbd::{Listen, NbdSettings};
use foreread::nbd::wire;
use foreread::source::{Nbd, Source, SourceOpenError};
use foreread::{ErrorKind, Options, Reader};
use foreread_testing::{self as testing, needs, says};
use std::io::{IoSliceMut, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// What must never go over the network in plain text.
const EXPORT: &str = "canary-export";
/// A port that no test listens on.
const CLOSED: &str = "1";

fn settings(certificates: &Certificates, verify: bool) -> NbdSettings {
    NbdSettings {
        tls: Some(certificates.server(verify)),
        export: EXPORT.to_string(),
        ..NbdSettings::default()
    }
}

fn served(certificates: &Certificates, verify: bool) -> Served {
    let reader = opened(named(16 * MIB), Options::default());
    Served::of(reader, settings(certificates, verify))
}

/// The server with the name `host` at a socket.
fn uri(socket: &Path, host: &str, dir: &Path) -> String {
    let (socket, dir) = (socket.display(), dir.display());
    format!("nbds+unix://{host}/{EXPORT}?socket={socket}&tls-certificates={dir}")
}

/// An export of 1 MiB by nbdkit.
fn bare(tls: &[&str]) -> Peer {
    let args = [&["-f", "-U", "SOCKET"], tls, &["memory", "1M"]];
    Peer::start("nbdkit", &args.concat())
}

/// The error has each of these words, between which is ` + `.
#[track_caller]
fn refused(uri: &str, words: &str) -> SourceOpenError {
    let error = crate::common::refused(Nbd::open(uri), uri);
    says(&error.to_string(), &Vec::from_iter(words.split(" + ")));
    error
}

#[test]
fn nbdkit_and_qemu_nbd_with_tls_are_sources() {
    needs!(let certificates = Certificates::new());
    let dir = certificates.path();
    let image = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(image.path(), testing::pattern(0, 16 << 20, 0)).expect("written");
    let image = image.path().to_str().expect("UTF-8");
    let folder = dir.display().to_string();
    let mut peers = Vec::new();
    if has("nbdkit", "nbdkit") {
        let credentials = format!("--tls-certificates={folder}");
        let tls = ["--tls=require", "--tls-verify-peer", &credentials];
        let args = [&["-f", "-r", "-U", "SOCKET"][..], &tls, &["file", image]];
        peers.push(Peer::start("nbdkit", &args.concat()));
    }
    if has("qemu-nbd", "qemu-utils") {
        let credentials =
            format!("tls-creds-x509,id=t,endpoint=server,dir={folder},verify-peer=yes");
        let tls = ["--object", &credentials, "--tls-creds", "t", "-x", EXPORT];
        let args = ["-r", "-t", "-e", "8", "-f", "raw", "-k", "SOCKET"];
        let args = [&args[..], &tls, &[image]].concat();
        peers.push(Peer::start("qemu-nbd", &args));
    }
    for peer in peers {
        let name = uri(&peer.socket(), "localhost", dir);
        let reader = Reader::open(name.as_str(), Options::default()).expect("connected");
        let mut rng = Rng(3);
        let mut buf = vec![0; 300_000];
        for _ in 0..200 {
            let len = 1 + rng.below(300_000) as usize;
            let offset = rng.below(15 * MIB);
            assert_eq!(read_and_check(&reader, &mut buf[..len], offset, 0), len);
        }
        quiet(&reader);
        let source = Nbd::open(&name).expect("connected");
        read_right(&source, 12_345, 9 << 20, 0);
        // A server that requires TLS, asked without.
        let plain = format!("nbd+unix:///{EXPORT}?socket={}", peer.socket().display());
        refused(&plain, "requires TLS + ; write nbds://");
        let none = certificates.only(&["ca-cert.pem"]);
        let uri = uri(&peer.socket(), "localhost", none.path());
        refused(&uri, "client-cert.pem");
    }
}

/// Many threads on the connections of one source, and a network in between: a host's name, its address, another name.
#[test]
fn every_byte_is_the_source_s_for_many_threads_over_tcp() {
    needs!(let certificates = Certificates::new());
    let server = Running::tcp(named(16 * MIB + 13), settings(&certificates, true));
    let address = &server.uri;
    let dir = certificates.path().display();
    let by_name = address.replace("127.0.0.1", "localhost") + &format!("?tls-certificates={dir}");
    let source = Nbd::open(&by_name).expect("connected");
    assert_eq!(source.size(), 16 * MIB + 13);
    in_threads(8, |seed| {
        let mut rng = Rng(seed);
        for _ in 0..100 {
            let (offset, len) = (rng.below(16 * MIB), 1 + rng.below(600_000) as usize);
            read_right(&source, offset, len, 0);
        }
    });
    assert!(read(&source, 16 * MIB + 13, 10).is_empty());
    let by_address = format!("{address}?tls-certificates={dir}");
    refused(&by_address, "another name + tls-hostname");
    for terms in ["tls-hostname=localhost", "tls-verify-peer=0"] {
        let source = Nbd::open(&format!("{by_address}&{terms}")).expect("connected");
        read_right(&source, MIB, 4096, 0);
    }
}

#[test]
fn certificates_that_do_not_serve_are_refused_with_a_remedy() {
    let (Some(certificates), Some(others)) = (Certificates::new(), Certificates::new()) else {
        return;
    };
    let server = served(&certificates, true);
    let own = certificates.path();
    let at = |host: &str, dir: &Path| uri(&server.path(), host, dir);
    Nbd::open(&at("", own)).expect("a socket has no name, and needs none");
    let other_name = "another name + tls-hostname=NAME";
    refused(&at("disks.example", own), other_name);
    // Another authority: with a name, and without.
    let untrusted = "not from a trusted authority + ca-cert.pem";
    for host in ["localhost", ""] {
        refused(&at(host, others.path()), untrusted);
    }
    // None of the system's has issued it.
    let by_folder = |dir: &Path, words: &str| refused(&at("localhost", dir), words);
    let bare = certificates.only(&["client-cert.pem", "client-key.pem"]);
    let error = by_folder(bare.path(), "ca-cert.pem");
    assert!(error.why.contains("authority"), "{error}");
    // A client of another authority, and one without a certificate.
    let wrong = certificates.with_client_of(&others);
    let none = certificates.only(&["ca-cert.pem"]);
    for dir in [wrong.path(), none.path()] {
        let error = by_folder(dir, "requires another client certificate");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    // Files that are missing, or hold something else.
    let nowhere = Path::new("/nonexistent");
    by_folder(nowhere, "not a folder + tls-certificates");
    let half = certificates.only(&["ca-cert.pem", "client-cert.pem"]);
    by_folder(half.path(), "client-key.pem + neither");
    let key = half.path().join("client-key.pem");
    std::fs::copy(own.join("server-key.pem"), key).expect("copied");
    by_folder(half.path(), "client-key.pem");
    std::fs::write(none.path().join("ca-cert.pem"), "no certificate").expect("written");
    by_folder(none.path(), "ca-cert.pem + cannot be used");
    server.wait_for(0);
    assert_eq!((server.counts)().requests, 0);
    // Without a look at the certificate, any will do.
    let any = at("disks.example", wrong.path()) + "&tls-verify-peer=0";
    refused(&any, "requires another client certificate");
    let lax = served(&certificates, false);
    let any = uri(&lax.path(), "disks.example", bare.path()) + "&tls-verify-peer=0";
    let source = Nbd::open(&any).expect("connected");
    read_right(&source, 5, 4096, 0);
}

/// A server's certificate that was revoked, has expired, or is not valid yet.
#[test]
fn certificates_have_their_time() {
    needs!(let certificates = Certificates::new());
    needs!(has("nbdkit", "nbdkit"));
    let credentials = format!("--tls-certificates={}", certificates.path().display());
    let start = || bare(&["--tls=require", &credentials]);
    let at = |peer: &Peer, host: &str| uri(&peer.socket(), host, certificates.path());
    certificates.revoke("server", None);
    let peer = start();
    for host in ["localhost", ""] {
        let revoked = "was revoked + have a new certificate issued";
        refused(&at(&peer, host), revoked);
    }
    certificates.revoke("client", None);
    Nbd::open(&at(&peer, "localhost")).expect("another one is revoked");
    certificates.revoke("client", Some("2021-01-01 00:00:00 UTC"));
    let no_list = "no valid revocation list + certtool --generate-crl";
    refused(&at(&peer, "localhost"), no_list);
    std::fs::remove_file(certificates.path().join("ca-crl.pem")).expect("removed");
    certificates.issue_server_of("2020-01-01 00:00:00 UTC", "2021-01-01 00:00:00 UTC");
    let peer = start();
    for host in ["localhost", ""] {
        let expired = "has expired + have a new certificate issued";
        refused(&at(&peer, host), expired);
    }
    certificates.issue_server_of("2040-01-01 00:00:00 UTC", "2041-01-01 00:00:00 UTC");
    refused(&at(&start(), "localhost"), "not valid yet + the clock");
}

/// Keys that were agreed on beforehand: by name, and a server that has nothing else.
#[test]
fn keys_agreed_on_beforehand_are_refused_by_name() {
    needs!(let certificates = Certificates::new());
    let psk = |uri: &str| {
        let error = refused(uri, "(PSK) + tls-certificates=DIR");
        assert!(error.remedy.contains("tunnel"), "{error}");
    };
    let own = format!("nbds://localhost:{CLOSED}/?tls-psk-file=/keys.psk");
    psk(&own);
    psk(&format!("nbds://alice@localhost:{CLOSED}/"));
    needs!(has("nbdkit", "nbdkit"));
    let keys = certificates.file("keys.psk");
    std::fs::write(&keys, "alice:0123456789abcdef0123456789abcdef\n").expect("written");
    let keys = format!("--tls-psk={keys}");
    let peer = bare(&["--tls=require", &keys]);
    let uri = uri(&peer.socket(), "localhost", certificates.path());
    refused(&uri, "(PSK)");
}

/// A server by hand, for one client after another. What each of them has sent.
fn by_hand(path: &Path, answers: Vec<Vec<u8>>) -> JoinHandle<Vec<Vec<u8>>> {
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        let serve = |answer: Vec<u8>| {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&hello()).expect("sent");
            let mut sent = vec![0; 4 + 16];
            stream.read_exact(&mut sent).expect("flags and an option");
            assert_eq!(sent[4..], option(wire::option::STARTTLS, &[]));
            let _ = stream.write_all(&answer);
            // Until the client leaves.
            let _ = stream.read_to_end(&mut sent);
            sent
        };
        answers.into_iter().map(serve).collect()
    })
}

/// A server without TLS, and a machine in between that says so, or goes on in plain text: no name, no request, no byte is exchanged.
#[test]
fn nothing_is_sent_in_plain_text_if_tls_was_requested() {
    needs!(let certificates = Certificates::new());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let export = [&[0, 0][..], &MIB.to_be_bytes(), &[0, 1]].concat();
    let go = |kind, data: &[u8]| option_reply(wire::option::GO, kind, data);
    let starttls = |kind, data: &[u8]| option_reply(wire::option::STARTTLS, kind, data);
    let plain = [go(3, &export), go(1, &[])].concat();
    let ack = starttls(wire::reply::ACK, &[]);
    let cut = [&ack[..], &[0x16, 3, 3, 0xff, 0xff]].concat();
    let unsupported = starttls(wire::reply::ERR_UNSUP, b"what?");
    let answers: [(Vec<u8>, &str); 8] = [
        (unsupported, "has no TLS (what?)"),
        (starttls(wire::reply::ERR_POLICY, &[]), "has no TLS"),
        (starttls(wire::reply::ERR_INVALID, &[]), "refuses TLS"),
        ([&ack[..], &plain].concat(), "TLS data is invalid"),
        (starttls(wire::reply::ACK, b"x"), "violates the protocol"),
        (plain, "a reply to an option that was not requested"),
        (starttls(wire::reply::INFO, &export), "refuses TLS"),
        (cut, "TLS data is invalid"),
    ];
    let (answers, words): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let server = by_hand(&path, answers);
    for word in words {
        let error = refused(&uri(&path, "localhost", certificates.path()), word);
        let said = error.to_string();
        let has_remedy = said.contains("; start it with TLS");
        assert!(has_remedy || !said.contains("has no TLS"), "{said}");
    }
    for sent in server.join().expect("no panic") {
        assert!(!has_bytes(&sent, EXPORT.as_bytes()), "{sent:?}");
        // After the option comes a record of TLS, or nothing.
        let is_tls = sent.get(20).is_none_or(|kind| matches!(kind, 0x15 | 0x16));
        assert!(is_tls, "{sent:?}");
    }
    if has("nbdkit", "nbdkit") {
        let peer = bare(&["--tls=off"]);
        let name = uri(&peer.socket(), "localhost", certificates.path());
        refused(&name, "has no TLS + ; start it with TLS");
    }
}

fn has_bytes(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// A server that comes back is connected to by TLS again; one that comes back without TLS, or as another, is not read.
#[test]
fn a_server_that_comes_back_is_the_same_or_is_not_read() {
    let (Some(certificates), Some(others)) = (Certificates::new(), Certificates::new()) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let start = |settings: NbdSettings| {
        let reader = opened(named(8 * MIB), Options::default());
        Running::at(Listen::Unix(path.clone()), reader, settings).expect("a place")
    };
    let mut server = Some(start(settings(&certificates, true)));
    let mut restart = |settings: NbdSettings| {
        drop(server.take());
        server = Some(start(settings));
    };
    let source = Nbd::open(&uri(&path, "localhost", certificates.path())).expect("connected");
    let check = |at: u64| read_right(&source, at, 4096, 0);
    let tried = || source.read_at(&mut [IoSliceMut::new(&mut [0; 10])], 0);
    // The pause before another try may be over or not; in the end the reason is the last server's.
    let fails = |word: &str| {
        wait_until(word, || {
            let error = tried().expect_err("not that server");
            error.to_string().contains(word)
        });
    };
    check(0);
    restart(settings(&certificates, true));
    check(MIB);
    let plain = NbdSettings {
        export: EXPORT.to_string(),
        ..NbdSettings::default()
    };
    restart(plain);
    fails("has no TLS");
    restart(settings(&others, false));
    fails("not from a trusted authority");
    restart(settings(&certificates, true));
    wait_until("it has come back, and is not read", || tried().is_ok());
    check(2 * MIB);
}

/// What a machine in between does to the bytes of the server.
#[derive(Clone, Copy, Debug)]
enum Tampering {
    CutAt(usize),
    FlipAt(usize),
    Nothing,
}

/// Passes on what both sides send, until one of them leaves. Bytes of the server that came by, and what the client has sent.
fn between(listener: &UnixListener, server: &Path, tampering: Tampering) -> (usize, Vec<u8>) {
    let (mut client, _) = listener.accept().expect("a client");
    let mut server = UnixStream::connect(server).expect("connected");
    let mut from_client = client.try_clone().expect("a socket");
    let mut to_server = server.try_clone().expect("a socket");
    let requests = std::thread::spawn(move || {
        let (mut sent, mut buf) = (Vec::new(), [0; 4096]);
        while let Ok(got @ 1..) = from_client.read(&mut buf) {
            sent.extend(&buf[..got]);
            if to_server.write_all(&buf[..got]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(std::net::Shutdown::Both);
        sent
    });
    let (mut passed, mut buf) = (0, [0; 4096]);
    while let Ok(got @ 1..) = server.read(&mut buf) {
        let mut piece = &mut buf[..got];
        let mut is_cut = false;
        match tampering {
            Tampering::CutAt(at) if at < passed + got => {
                piece = &mut piece[..at - passed];
                is_cut = true;
            }
            Tampering::FlipAt(at) if (passed..passed + got).contains(&at) => {
                piece[at - passed] ^= 1 << (at % 8);
            }
            _ => {}
        }
        passed += piece.len();
        if client.write_all(piece).is_err() || is_cut {
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
    (passed, requests.join().expect("no panic"))
}

/// The handshake ends at any byte, or any byte of it is another: an error, at once or after the time for silence, and no plain text.
/// A byte that means nothing, such as one of the greeting's flags, may be passed over; the bytes that are read are right then.
#[test]
fn a_handshake_that_is_cut_or_changed_is_an_error() {
    needs!(let certificates = Certificates::new());
    let server = served(&certificates, true);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (name, to) = (uri(&path, "localhost", certificates.path()), server.path());
    let silence = Duration::from_millis(250);
    let attempt = |tampering: Tampering| {
        std::thread::scope(|scope| {
            let network = scope.spawn(|| between(&listener, &to, tampering));
            let opened = Nbd::open_within(name.as_str(), silence);
            if let Ok(source) = &opened {
                read_right(source, 0, 10, 0);
            }
            let opened = opened.map(drop);
            let (passed, sent) = network.join().expect("no panic");
            assert!(!has_bytes(&sent, EXPORT.as_bytes()), "{tampering:?}");
            (opened, passed)
        })
    };
    let (opened, whole) = attempt(Tampering::Nothing);
    opened.expect("connected");
    assert!(whole > 700, "{whole} bytes of a handshake and a read");
    // The answer to the read, and what a signature may be shorter, are no part of the handshake.
    let handshake = whole - 200;
    for at in (0..60).chain((60..handshake).step_by(29)) {
        let (opened, _) = attempt(Tampering::CutAt(at));
        let error = opened.expect_err("cut").to_string();
        assert!(error.contains("closed the connection"), "{at}: {error}");
    }
    let mut passed_over = 0;
    for at in (0..50).chain((50..handshake).step_by(43)) {
        passed_over += u32::from(attempt(Tampering::FlipAt(at)).0.is_ok());
    }
    assert!(passed_over < 10, "{passed_over} changes were passed over");
}
