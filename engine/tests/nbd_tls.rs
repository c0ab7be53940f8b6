//! Tests of the NBD server's TLS: with clients of other projects, a handwritten client, and hostile clients.

use crate::common::nbd::{Client, MIB, Running, Served, by_python, has, option, request, run};
use crate::common::tls::{Certificates, TlsClient, reply};
use crate::common::{by, named, opened, refused, right};
use crate::nbd_flights::keeps_within_the_limit;
use foreread::Options;
use foreread::front::nbd::{NbdSettings, NbdTls};
use foreread::nbd::wire::{command, reply as kind};
use foreread::source::Mem;
use foreread_testing::{self as testing, needs, says};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Serves 16 MiB.
fn served(tls: NbdTls) -> Served {
    served_with(by_tls(tls))
}

fn by_tls(tls: NbdTls) -> NbdSettings {
    NbdSettings {
        tls: Some(tls),
        ..NbdSettings::default()
    }
}

fn served_with(settings: NbdSettings) -> Served {
    let options = by("linux-6.18:max=128K", 8 * MIB);
    Served::of(opened(named(16 * MIB), options), settings)
}

/// What a client is called with: `certificates` is its folder.
fn uri(served: &Served, scheme: &str, certificates: &Path) -> String {
    let socket = served.path().display().to_string();
    let folder = certificates.display();
    format!("{scheme}+unix://localhost/?socket={socket}&tls-certificates={folder}")
}

/// Runs a program that has to fail. What it says.
fn fails(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("started");
    assert!(!out.status.success(), "{program} {args:?} succeeds");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn clients_of_libnbd_read_every_byte() {
    needs!(let certificates = Certificates::new());
    if !has("nbdcopy", "libnbd-bin") || !has("nbdinfo", "libnbd-bin") {
        return;
    }
    let server = Running::tcp(named(16 * MIB), by_tls(certificates.server(true)));
    says(&server.uri, &["nbds://127.0.0.1:"]);
    let uri = server.uri.replace("127.0.0.1", "localhost");
    let uri = uri + "?tls-certificates=" + &certificates.file("");
    let info = run("nbdinfo", &["--json", &uri]);
    says(&info, &["\"TLS\": true", "\"export-size\": 16777216"]);
    let copy = certificates.file("copy");
    run("nbdcopy", &[&uri, &copy]);
    right(&std::fs::read(&copy).expect("copied"), 0, 0);
    assert_eq!((server.counts)().failed_requests, 0);
    let script = "for i in range(64): h.aio_pread(nbd.Buffer(262144), i * 262144)\n\
        while h.aio_in_flight() > 0: h.poll(-1)\nassert h.pread(8, 4096) == h.pread(16, 4096)[:8]\n";
    by_python(&uri, script);
}

#[test]
fn a_client_without_tls_is_told_that_it_is_required() {
    needs!(let certificates = Certificates::new());
    let served = served(certificates.server(false));
    let mut client = served.connect();
    client.read_exact(&mut [0; 18]).expect("a greeting");
    client.write_all(&[0, 0, 0, 3]).expect("sent");
    for number in [3, 6, 7, 8, 10, 99] {
        client.write_all(&option(number, &[])).expect("sent");
        assert_eq!(reply(&mut client), (number, kind::ERR_TLS_REQD));
    }
    client.write_all(&option(1, &[])).expect("sent");
    assert!(Client(client).is_gone(), "the old way has no answer");
    if has("nbdinfo", "libnbd-bin") {
        fails("nbdinfo", &[&served.uri()]);
        run("nbdinfo", &[&uri(&served, "nbds", certificates.path())]);
    }
    if has("qemu-img", "qemu-utils") {
        says(&fails("qemu-img", &["info", &served.uri()]), &["TLS"]);
    }
}

/// Plain clients and others on one server. TLS begins once, and a server that is stopped says so to its clients.
#[test]
fn tls_may_be_optional_begins_once_and_ends_cleanly() {
    needs!(let certificates = Certificates::new());
    let served = served(certificates.server(false).allow_plain());
    served.client().reads(1, MIB, 4096);
    let mut client = TlsClient::new(&served, &certificates);
    assert_eq!(client.option(5, &[]), (5, kind::ERR_INVALID));
    assert_eq!(client.option(3, &[]), (3, kind::SERVER), "it goes on");
    let mut client = TlsClient::new(&served, &certificates).begun();
    client.reads(2, 2 * MIB, 4096);
    drop(served);
    assert_eq!(client.0.read(&mut [0; 1]).expect("a clean end"), 0);
}

#[test]
fn a_client_without_a_certificate_of_the_authority_is_refused() {
    let (Some(certificates), Some(others)) = (Certificates::new(), Certificates::new()) else {
        return;
    };
    let served = served(certificates.server(true));
    needs!(has("nbdinfo", "libnbd-bin"));
    let none = certificates.only(&["ca-cert.pem"]);
    fails("nbdinfo", &[&uri(&served, "nbds", none.path())]);
    let wrong = certificates.with_client_of(&others);
    fails("nbdinfo", &[&uri(&served, "nbds", wrong.path())]);
    served.wait_for(0);
    assert_eq!((served.counts)().requests, 0);
    run("nbdinfo", &[&uri(&served, "nbds", certificates.path())]);
}

/// A list of revoked certificates is used where there is one. A client of an authority that no valid list covers is refused, too.
#[test]
fn a_client_whose_certificate_was_revoked_is_refused() {
    needs!(let certificates = Certificates::new());
    needs!(has("nbdinfo", "libnbd-bin"));
    let all = ["ca-cert.pem", "client-cert.pem", "client-key.pem"];
    let revoked = certificates.only(&all);
    certificates.issue_client("another");
    let good = certificates.only(&all);
    let gone = revoked.path().join("client-cert.pem");
    std::fs::copy(gone, certificates.file("gone-cert.pem")).expect("copied");
    let load = |verify| NbdTls::load(certificates.path(), verify);
    let before = served(load(true).expect("loaded without a list"));
    run("nbdinfo", &[&uri(&before, "nbds", revoked.path())]);

    certificates.revoke("gone", None);
    let now = served(load(true).expect("loaded with a list"));
    run("nbdinfo", &[&uri(&now, "nbds", good.path())]);
    fails("nbdinfo", &[&uri(&now, "nbds", revoked.path())]);
    now.wait_for(0);

    certificates.revoke("gone", Some("2021-01-01 00:00:00 UTC"));
    let late = served(load(true).expect("loaded with an old list"));
    fails("nbdinfo", &[&uri(&late, "nbds", good.path())]);
    let others = Certificates::new().expect("certtool is there");
    others.revoke("client", None);
    std::fs::copy(others.file("ca-crl.pem"), certificates.file("ca-crl.pem")).expect("copied");
    let foreign = served(load(true).expect("loaded with another's list"));
    fails("nbdinfo", &[&uri(&foreign, "nbds", good.path())]);

    let list = certificates.path().join("ca-crl.pem");
    let is_refused = |why: &str| {
        let said = refused(load(true), why).to_string();
        says(&said, &["revoked", "ca-crl.pem", "; let the"]);
        load(false).expect("the list is only for clients' certificates");
    };
    let no_list = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    for text in ["", "no list", no_list] {
        std::fs::write(&list, text).expect("written");
        is_refused(text);
    }
    std::fs::remove_file(&list).expect("removed");
    std::os::unix::fs::symlink("nowhere", &list).expect("a link");
    is_refused("a link to nothing");
}

/// QEMU brings its own TLS (GnuTLS) and its own reading of the folder of certificates.
#[test]
fn qemu_reads_every_byte() {
    needs!(let certificates = Certificates::new());
    needs!(has("qemu-img", "qemu-utils"));
    let server = Running::tcp(named(16 * MIB), by_tls(certificates.server(true)));
    let port = server.uri.trim_end_matches('/').rsplit(':').next();
    let port = port.expect("a port");
    let image = format!("driver=nbd,host=localhost,port={port},tls-creds=t");
    let with = |dir: &Path| format!("tls-creds-x509,id=t,endpoint=client,dir={}", dir.display());
    let copy = certificates.file("copy");
    let (own, to) = (with(certificates.path()), ["-O", "raw", &copy]);
    let convert = ["convert", "--object", &own, "--image-opts", &image];
    run("qemu-img", &[&convert[..], &to].concat());
    right(&std::fs::read(&copy).expect("copied"), 0, 0);
    let none = certificates.only(&["ca-cert.pem"]);
    let with = with(none.path());
    let info = ["info", "--object", &with, "--image-opts", &image];
    fails("qemu-img", &info);
}

/// Bytes that leave the socket with those before them, and that no poll of it ever reports.
#[test]
fn requests_in_one_record_are_all_answered() {
    needs!(let certificates = Certificates::new());
    let served = served(certificates.server(false));
    let mut client = TlsClient::new(&served, &certificates).begun();
    for round in 0..20 {
        let many = 1 + round * 3;
        let ask = |i| request(command::READ, i, i * 100_000, 70_000);
        let all = Vec::from_iter((0..many).flat_map(ask));
        client.0.write_all(&all).expect("sent");
        let mut left: Vec<u64> = (0..many).collect();
        while !left.is_empty() {
            let cookie = client.takes(70_000, |cookie| cookie * 100_000);
            left.retain(|other| *other != cookie);
        }
    }
    // A request of 28 records.
    for byte in request(command::READ, 1, 5, 9) {
        client.0.write_all(&[byte]).expect("sent");
        client.0.flush().expect("sent");
    }
    assert_eq!(client.takes(9, |_| 5), 1);
    // An end that both sides say, so that no machine in between can make it up.
    client.send(command::DISC, 2, 0, 0);
    assert_eq!(client.0.read(&mut [0; 1]).expect("a clean end"), 0);
    served.wait_for(0);
}

/// Several answers are encrypted before the first of them is sent, and are dropped then.
#[test]
fn answers_of_a_slow_client_are_kept_within_the_limit() {
    needs!(let certificates = Certificates::new());
    let settings = by_tls(certificates.server(false).allow_plain());
    let connect = |served: &Served| TlsClient::new(served, &certificates).begun();
    keeps_within_the_limit(settings, 16_000, connect);
}

#[test]
fn writes_arrive_whole() {
    needs!(let certificates = Certificates::new());
    let reader = opened(Mem::new(vec![0; 4 << 20]), Options::default());
    let settings = NbdSettings {
        writable: true,
        ..by_tls(certificates.server(false))
    };
    let served = Served::of(reader, settings);
    let mut client = TlsClient::new(&served, &certificates).begun();
    for (cookie, offset, len) in [(1, 4096, 4096), (2, 1 << 20, 1_000_000), (3, 99, 300_000)] {
        client.send(command::WRITE, cookie, offset, len);
        let bytes = testing::pattern(offset, len as usize, 0);
        client.0.write_all(&bytes).expect("sent");
        assert_eq!(client.answer(), (cookie, 0));
        client.reads(cookie, offset, len);
    }
}

/// What a client can do wrong. Each loses its own connection, in the time for handshakes or stalls, and no other.
#[test]
fn bad_clients_lose_their_connection_and_no_other() {
    needs!(let certificates = Certificates::new());
    let served = served_with(NbdSettings {
        handshake: Duration::from_millis(500),
        stall: Duration::from_millis(500),
        ..by_tls(certificates.server(false))
    });
    let mut good = TlsClient::new(&served, &certificates).begun();
    let mut bad = Vec::new();
    // Plain options behind STARTTLS, silence, garbage, and the head of a record whose rest does not come.
    let go = option(7, &[0, 0, 0, 0, 0, 0]);
    let heads = [[22, 3, 1, 2, 0], [22, 3, 1, 0xff, 0xff]];
    for bytes in [&go[..], &[], &[0x55; 100], &heads[0], &heads[1]] {
        let mut stream = TlsClient::started(&served);
        stream.write_all(bytes).expect("sent");
        bad.push(stream);
    }
    let began = Instant::now();
    for mut stream in bad {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
        let is_alert = rest.len() < 20;
        assert!(is_alert, "an alert, and no answer in plain text: {rest:?}");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    // A byte now and then does not lengthen the handshake.
    let mut slow = TlsClient::started(&served);
    let began = Instant::now();
    while slow.write_all(&[22]).is_ok() {
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Answers that are not taken, and half a request.
    let mut greedy = TlsClient::new(&served, &certificates).begun();
    greedy.send(command::READ, 1, 0, 16 << 20);
    let mut half = TlsClient::new(&served, &certificates).begun();
    let request = request(command::READ, 1, 0, 1);
    half.0.write_all(&request[..9]).expect("sent");
    // After TLS has begun, plain bytes are no records.
    let mut plain = TlsClient::new(&served, &certificates).begun();
    plain.0.sock.write_all(&request).expect("sent");
    served.wait_for(1);
    drop((greedy, half, plain));
    for cookie in 0..10 {
        good.reads(cookie, cookie * MIB, 4096);
    }
}

#[test]
fn certificates_that_do_not_serve_are_refused_with_a_remedy() {
    needs!(let certificates = Certificates::new());
    let fails = |dir: &Path, verify: bool, words: &str| {
        let said = NbdTls::load(dir, verify).expect_err(words).to_string();
        says(&said, &Vec::from_iter(words.split(" + ")));
    };
    let own = ["server-cert.pem", "server-key.pem"];
    let (bare, some) = (certificates.only(&own[..1]), certificates.only(&own));
    let [cert, key] = own.map(|file| some.path().join(file));
    NbdTls::load(some.path(), false).expect("the authority is only for clients' certificates");
    let all = ["ca-cert.pem", "server-key.pem"].map(|file| format!("missing + {file}"));
    let no_authority = format!("{} + ; the folder must contain", all[0]);
    fails(some.path(), true, &no_authority);
    fails(bare.path(), false, &all[1]);
    fails(Path::new("/none"), false, "missing + /none/server-cert.pem");
    std::fs::copy(certificates.file("client-key.pem"), &key).expect("copied");
    let other =
        "does not belong to the certificate + server-key.pem + ; use the key of this certificate";
    fails(some.path(), false, other);
    std::fs::write(key, "no key").expect("written");
    let no_key = "no certificate or key + without a password";
    fails(some.path(), false, no_key);
    std::fs::write(cert, "-----BEGIN CERTIFICATE-----\n!\n").expect("written");
    fails(some.path(), false, "server-cert.pem + not PEM text");
    certificates.issue_server_of("2020-01-01 00:00:00 UTC", "2021-01-01 00:00:00 UTC");
    let expired = "has expired + server-cert.pem + ; get a new certificate";
    fails(certificates.path(), false, expired);
    fails(certificates.only(&own).path(), false, "has expired");
    certificates.issue_server_of("2040-01-01 00:00:00 UTC", "2041-01-01 00:00:00 UTC");
    let early = "not valid yet + check the clock";
    fails(certificates.path(), false, early);
}
