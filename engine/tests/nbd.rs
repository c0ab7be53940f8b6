//! Tests of the NBD server and the NBD source: with each other, with hostile clients, and with other programs. A
//! program that is missing is reported: `skipped: needs X`.

use crate::common::nbd as served;

use crate::common::{
    Rng, by, file_of, named, opened, plain, quiet, read_and_check, read_right, refused, right,
    wait_until, watch,
};
use foreread::front::FrontErrorKind;
use foreread::front::nbd::{Listen, NbdSettings, Server};
use foreread::nbd::wire::{self, command, errno};
use foreread::source::{Extent, Mem, Nbd, Source, SourceError};
use foreread::{Options, ReadError, Reader};
use foreread_testing::{self as testing, Call, FaultAction, Faulty, needs, says};
use served::{Client, MIB, Peer, Running, Served, by_python, has, hello, option_reply, read, run};
use std::error::Error as _;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn sequential() -> Options {
    by("linux-6.18:max=128K", 4 * MIB)
}

/// Bytes go to several buffers, and a request of more than the protocol's 32 MiB is several.
#[test]
fn large_and_scattered_reads() {
    let served = Served::new(named(80 * MIB));
    let source = Nbd::open(&served.uri()).expect("connected");
    let (mut a, mut b, mut c) = (vec![0; 3], vec![0; 0], vec![0; 70 << 20]);
    let mut bufs = [&mut a, &mut b, &mut c].map(|buf| IoSliceMut::new(buf));
    assert_eq!(source.read_at(&mut bufs, 5), Ok((70 << 20) + 3));
    right(&a, 5, 0);
    right(&c, 8, 0);
}

#[test]
fn refused_requests_are_answered_and_the_client_continues() {
    let served = Served::new(named(MIB));
    let mut client = served.client();
    assert_eq!(client.asks(command::READ, MIB, 1), errno::EINVAL);
    // The payload of a write is thrown away, whatever its length.
    client.send(command::WRITE, 2, 0, 100_000);
    client.0.write_all(&vec![0xff; 100_000]).expect("sent");
    assert_eq!(client.answer(), (2, errno::EPERM));
    assert_eq!(client.asks(99, 0, 0), errno::EINVAL);
    assert_eq!(client.asks(command::FLUSH, 0, 0), 0);
    assert_eq!(client.asks(command::CACHE, 0, MIB as u32), 0);
    client.reads(6, MIB - 10, 10);
    client.send(command::DISC, 7, 0, 0);
    assert!(client.is_gone());
    served.wait_for(0);
    let counts = (served.counts)();
    let counted = (counts.requests, counts.failed_requests, counts.bytes);
    assert_eq!(counted, (3, 3, 10));
}

/// A client gets one size: a file that a longer one is copied over, or that is appended to, ends its connection; one that was
/// opened with `appending` is read on.
#[test]
fn growth_ends_the_connection() {
    for (appending, over) in [(false, true), (false, false), (true, false)] {
        let file = file_of(1 << 20, 1);
        let options = Options::default().policy("none").appending(appending);
        let reader = Reader::open(file.path(), options).expect("opened");
        let served = Served::of(reader, NbdSettings::default());
        let mut client = served.client();
        assert_eq!(client.asks(command::READ, 0, 4096), 0);
        right(&client.data(4096), 0, 1);
        if over {
            std::fs::write(file.path(), testing::pattern(0, 2 << 20, 2)).expect("copied over it");
        } else {
            let more = testing::pattern(MIB, 4096, 1);
            file.as_file().write_all_at(&more, MIB).expect("appended");
        }
        for offset in [500_000, 0] {
            let error = if appending { 0 } else { errno::ESHUTDOWN };
            assert_eq!(client.asks(command::READ, offset, 4096), error, "{over}");
            if appending {
                right(&client.data(4096), offset, 1);
            }
        }
        let (version, size) = if over { (2, 2 * MIB) } else { (1, MIB + 4096) };
        let source = Nbd::open(&served.uri()).expect("connected");
        assert_eq!(source.size(), size, "a new connection gets the new size");
        read_right(&source, 500_000, 4096, version);
    }
}

/// All that the client reads is cached: only the question for the version, when it connects, shows the change.
#[test]
fn a_new_client_gets_the_current_version_of_cached_bytes() {
    let source = Arc::new(Mem::new(testing::pattern(0, 1 << 20, 1)));
    let reader = plain(Arc::clone(&source));
    assert_eq!(read_and_check(&reader, &mut vec![0; 8192], 0, 1), 8192);
    source.replace(testing::pattern(0, 1 << 20, 2));
    let served = Served::of(reader, NbdSettings::default());
    let mut client = served.client();
    assert_eq!(client.asks(command::READ, 0, 4096), 0);
    right(&client.data(4096), 0, 2);
}

/// foreread behind foreread: the first one's source changes, and it answers ESHUTDOWN. That is a change of ours, and then we
/// read the new version.
#[test]
fn a_server_that_ends_its_version_is_a_change_and_no_end() {
    let first = Arc::new(Mem::new(testing::pattern(0, 1 << 20, 1)));
    let served = Served::of(plain(Arc::clone(&first)), NbdSettings::default());
    let reader = plain(served.uri().as_str());
    let mut buf = vec![0; 8192];
    assert_eq!(read_and_check(&reader, &mut buf, 0, 1), 8192);
    for (version, size) in [(2, 1 << 20), (3, 3 << 20), (4, 1 << 18)] {
        first.replace(testing::pattern(0, size, version));
        // Where nothing is cached.
        let at = 50_000 * u64::from(version);
        let error = reader.read_at(&mut buf, at).expect_err("it has changed");
        assert!(matches!(error, ReadError::Changed { .. }), "{error}");
        for at in [at, 0] {
            assert_eq!(read_and_check(&reader, &mut buf, at, version), 8192);
        }
        assert_eq!(reader.size(), size as u64);
    }
}

/// The server restarts before the change is accepted: the next read connects, and reports no second change.
#[test]
fn a_server_that_restarts_after_a_change_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let memory = Arc::new(Mem::new(testing::pattern(0, 1 << 20, 1)));
    let server = mortal(&path, Arc::clone(&memory));
    let source = Nbd::open(&server.uri).expect("connected");
    let mut buf = vec![0; 4096];
    let mut read = |at| source.read_at(&mut [IoSliceMut::new(&mut buf)], at);
    assert_eq!(read(0), Ok(4096));
    memory.replace(testing::pattern(0, 1 << 20, 2));
    for _ in 0..2 {
        let error = read(MIB / 2).expect_err("it has changed");
        assert!(matches!(error, SourceError::Changed { .. }), "{error}");
    }
    drop(server);
    assert_eq!(source.accept(), MIB);
    let _server = mortal(&path, memory);
    assert_eq!(read(MIB / 2), Ok(4096));
    right(&buf, MIB / 2, 2);
}

/// A server that ends before its client.
fn mortal(path: &Path, source: Arc<Mem>) -> Running {
    let place = Listen::Unix(path.to_path_buf());
    Running::at(place, plain(source), NbdSettings::default()).expect("a place")
}

/// The server dies under its client, and comes back: reads fail meanwhile, at once when it has been dead for a while, and go
/// on afterwards.
#[test]
fn a_server_that_died_is_connected_to_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let start = || mortal(&path, Arc::new(named(8 * MIB)));
    let server = start();
    let reader = plain(server.uri.as_str());
    let mut buf = vec![0; 4096];
    read_and_check(&reader, &mut buf, 0, 0);
    drop(server);
    let error = reader.read_at(&mut buf, MIB).expect_err("it is dead");
    assert!(matches!(error, ReadError::Io { .. }), "{error}");
    read_and_check(&reader, &mut buf, 0, 0);
    let server = start();
    let mut is_back = || reader.read_at(&mut buf, 2 * MIB).is_ok();
    wait_until("it has come back, and is not read", &mut is_back);
    right(&buf, 2 * MIB, 0);
    // Restarted in less time than a read waits: no read fails.
    drop(server);
    let server = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            start()
        });
        read_and_check(&reader, &mut buf, 3 * MIB, 0);
        server.join().expect("started")
    });
    drop(reader);
    drop(server);
}

/// A large read whose end fails can only be ended by hanging up: half of it is out.
#[test]
fn an_error_in_the_middle_of_an_answer_hangs_up() {
    let rule = |call: Call| match call.offset >= 4 * MIB {
        true => FaultAction::Fail(5),
        false => FaultAction::Pass,
    };
    let source = Faulty::new(named(8 * MIB), rule);
    let reader = plain(Arc::new(source));
    let served = Served::of(reader, NbdSettings::default());
    let mut client = served.client();
    let error = client.asks(command::READ, 5 * MIB, 4096);
    assert_eq!(error, errno::EIO, "an error at the start is reported");
    assert_eq!(client.asks(command::READ, 3 * MIB, 2 << 20), 0);
    let mut all = Vec::new();
    let ended = client.0.read_to_end(&mut all);
    assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    let len = all.len() as u64;
    assert!(len <= MIB, "{len} bytes of what could not be read");
    right(&all, 3 * MIB, 0);
}

/// Half a greeting, half a request, silence, garbage, and an answer that is not taken: each loses its own connection,
/// soon, and no other.
#[test]
fn bad_clients_lose_their_connection_and_no_other() {
    let settings = NbdSettings {
        handshake: Duration::from_millis(300),
        stall: Duration::from_millis(300),
        ..NbdSettings::default()
    };
    let reader = opened(named(64 * MIB), Options::default());
    let served = Served::of(reader, settings);
    let mut good = served.client();
    let mut bad: Vec<Client> = Vec::new();
    for bytes in [&[][..], &[0, 0], &[0, 0, 0, 9], &[0xff; 64]] {
        let mut stream = served.connect();
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        stream.write_all(bytes).expect("sent");
        bad.push(Client(stream));
    }
    let mut half = served.client();
    let magic = wire::REQUEST_MAGIC.to_be_bytes();
    half.0.write_all(&magic).expect("sent");
    let mut garbage = served.client();
    garbage.0.write_all(&[7; 28]).expect("sent");
    let mut stingy = served.client();
    stingy.send(command::WRITE, 1, 0, u32::MAX);
    let mut slow = served.client();
    slow.send(command::READ, 1, 0, 32 << 20);
    for mut client in bad.into_iter().chain([half, garbage, stingy]) {
        assert!(client.is_gone());
    }
    served.wait_for(1);
    drop(slow);
    for cookie in 0..10 {
        good.reads(cookie, cookie * MIB, 4096);
    }
}

#[test]
fn one_client_too_many_is_refused() {
    let reader = opened(named(MIB), Options::default());
    let settings = NbdSettings {
        max_clients: 2,
        ..NbdSettings::default()
    };
    let served = Served::of(reader, settings);
    let (mut one, two) = (served.client(), served.client());
    assert!(Client(served.connect()).is_gone());
    assert_eq!((served.counts)().turned_away, 1);
    drop(two);
    served.wait_for(1);
    let _again = served.client();
    one.reads(1, 0, 1);
}

#[test]
fn a_socket_is_private_and_replaces_no_other() {
    let served = Served::new(named(MIB));
    let meta = std::fs::metadata(served.path()).expect("there");
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let again = |path: &Path| {
        let reader = opened(named(MIB), Options::default());
        let place = Listen::Unix(path.to_path_buf());
        Server::bind(&[place], reader, NbdSettings::default()).map(drop)
    };
    let error = again(&served.path()).expect_err("taken");
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let cause = cause.map(std::io::Error::kind);
    assert_eq!(error.kind, FrontErrorKind::Address);
    assert_eq!(cause, Some(ErrorKind::AddrInUse));
    let remedy = "; stop the server that uses this address, or use another address";
    says(&error.to_string(), &["in use", remedy]);
    let file = served.dir.path().join("file");
    std::fs::write(&file, b"precious").expect("written");
    let error = again(&file).expect_err("a file").to_string();
    says(&error, &["it is not a socket; use another path"]);
    assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
    // What a killed server left may be replaced, and what a server made goes with it.
    let stale = served.dir.path().join("stale");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket"));
    again(&stale).expect("replaced");
    assert!(!stale.exists());
    let left = std::fs::read_dir(served.dir.path()).expect("there");
    assert_eq!(left.count(), 2, "no hidden directory is left");
}

/// Another size is another version, until it is accepted.
#[test]
fn a_server_that_comes_back_larger_is_a_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let first = mortal(&path, Arc::new(named(MIB)));
    let source = Nbd::open(&first.uri).expect("connected");
    let fails = |why: &str| {
        let error = source.read_at(&mut [IoSliceMut::new(&mut [0; 10])], 0);
        says(&error.expect_err(why).to_string(), &[why]);
    };
    drop(first);
    fails("No such file");
    let _second = mortal(&path, Arc::new(named(2 * MIB)));
    fails("the export now has 2097152 bytes, but had 1048576 before");
    assert_eq!(source.accept(), 2 * MIB);
    read_right(&source, MIB, 100, 0);
}

/// A server by hand at a socket: its work gets the listener. The folder of the socket, the URI, and the thread.
fn by_hand(
    work: impl FnOnce(UnixListener) + Send + 'static,
) -> (tempfile::TempDir, String, JoinHandle<()>) {
    watch();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let thread = std::thread::spawn(move || work(listener));
    let uri = format!("nbd+unix:///?socket={}", path.display());
    (dir, uri, thread)
}

/// A server that answers wrongly loses its connection, and gives never a wrong byte.
#[test]
fn a_server_that_answers_wrongly_is_left() {
    let too_old = [&hello()[..16], &[0, 0]].concat();
    let mut of_4_gib = [hello(), option_reply(7, 3, &[])].concat();
    let len = of_4_gib.len() - 4;
    of_4_gib[len..].fill(0xff);
    let ssh = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".to_vec();
    let wrong_answers = [
        (ssh, "not a newstyle NBD server"),
        (too_old, "too old"),
        (of_4_gib, "a reply of more than 65536 bytes to an option"),
    ];
    let answers = wrong_answers.clone();
    let (_dir, uri, server) = by_hand(move |listener| {
        for (lie, _) in answers {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&lie).expect("sent");
            // Until the client leaves.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for (_, why) in wrong_answers {
        says(&refused(Nbd::open(&uri), why).to_string(), &[why]);
    }
    server.join().expect("no panic");
}

/// A bug of hf-mount (issue 12): a reply was cut where the prefetched buffer ended; the kernel took it for the end of the file, and all readers
/// of the page cache with it.
#[test]
fn an_answer_has_the_requested_length() {
    let size = 3 * MIB + 777;
    // The source stops short all the time as well.
    let short = Faulty::new(named(size), |call: Call| {
        FaultAction::Cut(4096 * (1 + call.nth as usize % 7) - 5)
    });
    let served = Served::of(opened(short, sequential()), NbdSettings::default());
    let mut client = served.client();
    let mut rng = Rng(12);
    let mut at = 0;
    while at < size {
        let len = (1 + rng.below(150_000)).min(size - at);
        // As many bytes as were asked for, or the next answer would not be one.
        client.reads(at, at, len as u32);
        at += len;
    }
}

/// With one window for all connections, clients that read in order would look like one at random.
#[test]
fn each_client_has_its_own_window() {
    let reader = opened(named(64 * MIB), sequential());
    let watched = reader.try_clone().expect("opened");
    let served = Served::of(reader, NbdSettings::default());
    let mut clients = [served.client(), served.client(), served.client()];
    for i in 0..256_u64 {
        for (place, client) in (0..).step_by(20).zip(&mut clients) {
            client.reads(i, place * MIB + i * 4096, 4096);
        }
    }
    quiet(&watched);
    let stats = watched.stats();
    let served_ahead = stats.hits + stats.late_hits;
    // Of 768 reads, each stream misses its first and hardly another.
    assert!(served_ahead >= 768 - 9, "{served_ahead} of 768, {stats:?}");
    // Three windows of at most 128 KiB that were not read yet.
    let (bytes, asked) = (stats.source_bytes, 3 * 256 * 4096);
    assert!(bytes <= asked + 3 * 2 * (128 << 10), "{bytes} for {asked}");
}

/// The handshake of a server by hand, with an export of 16 MiB. Gives the first request.
fn first_request(stream: &mut UnixStream) -> wire::Request {
    stream.write_all(&hello()).expect("sent");
    let mut head = [0; 20];
    stream.read_exact(&mut head).expect("flags and an option");
    let len = u32::from_be_bytes(head[16..].try_into().expect("four"));
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data).expect("its data");
    let flags = wire::transmission::HAS_FLAGS | wire::transmission::READ_ONLY;
    let export = [&[0, 0][..], &(16 * MIB).to_be_bytes(), &flags.to_be_bytes()].concat();
    for (kind, data) in [(wire::reply::INFO, &export[..]), (wire::reply::ACK, &[])] {
        let reply = option_reply(wire::option::GO, kind, data);
        stream.write_all(&reply).expect("sent");
    }
    let mut bytes = [0; wire::Request::BYTES];
    stream.read_exact(&mut bytes).expect("a request");
    wire::Request::parse(&bytes).expect("a request")
}

/// The limit on a whole answer grows with its length: this one takes three times as long as a server may be silent.
#[test]
fn a_large_answer_that_makes_progress_is_not_ended() {
    let (_dir, uri, _) = by_hand(|listener| {
        let (mut stream, _) = listener.accept().expect("a client");
        let request = first_request(&mut stream);
        let mut data = vec![0; request.len as usize];
        testing::fill(&mut data, request.offset, 0);
        let head = wire::simple(0, request.cookie);
        stream.write_all(&head).expect("sent");
        for piece in data.chunks(data.len().div_ceil(12)) {
            std::thread::sleep(Duration::from_millis(60));
            stream.write_all(piece).expect("sent");
        }
    });
    let source = Nbd::open_within(&uri, Duration::from_millis(240)).expect("connected");
    read_right(&source, 4096, 4 << 20, 0);
}

/// A server whose answer goes on byte by byte, never silent for long: the read ends, and so does the handshake.
#[test]
fn an_answer_that_dribbles_ends() {
    let silence = Duration::from_millis(400);
    let (_dir, uri, _) = by_hand(move |listener| {
        let dribble = |stream: &mut UnixStream, bytes: &[u8]| {
            for byte in bytes {
                std::thread::sleep(silence / 8);
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        };
        let (mut slow, _) = listener.accept().expect("a client");
        dribble(&mut slow, &hello());
        drop(slow);
        // A read that failed is tried again, each time on a new connection.
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let request = first_request(&mut stream);
            let head = wire::simple(0, request.cookie);
            stream.write_all(&head).expect("sent");
            dribble(&mut stream, &[0; 200]);
        }
    });
    let begun = Instant::now();
    let error = refused(Nbd::open_within(&uri, silence), "a greeting of a second");
    says(&error.to_string(), &["within the time limit"]);
    let nbd = Nbd::open_within(&uri, silence).expect("connected");
    let read = nbd.read_at(&mut [IoSliceMut::new(&mut [0; 4096])], 0);
    let error = read.expect_err("an answer of three minutes").to_string();
    says(&error, &["within the time limit"]);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

// ---- other people's programs ----

#[test]
fn libnbd_and_qemu_read_the_right_bytes_from_us() {
    let served = Served::new(named(24 * MIB));
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy");
    let copied = |what: &str| {
        let bytes = std::fs::read(&copy).expect("copied");
        assert_eq!(bytes.len() as u64, 24 * MIB, "{what}");
        right(&bytes, 0, 0);
        std::fs::remove_file(&copy).expect("removed");
    };
    let target = copy.to_str().expect("UTF-8");
    if has("nbdinfo", "libnbd-bin") {
        let info = run("nbdinfo", &[&served.uri()]);
        says(&info, &["export-size: 25165824", "is_read_only: true"]);
        says(&info, &["can_multi_conn: true", "structured"]);
        run("nbdcopy", &[&served.uri(), target]);
        copied("nbdcopy");
    }
    if has("qemu-img", "qemu-utils") {
        let raw = ["-f", "raw"];
        let convert = ["convert", "-f", "raw", "-O", "raw", &served.uri(), target];
        run("qemu-img", &convert);
        copied("qemu-img");
        let read = ["-r", raw[0], raw[1], "-c", "read 1M 64k", &served.uri()];
        run("qemu-io", &read);
    }
    let script = "assert h.pread(4096, 1<<20) == h.pread(4096, 1<<20)\n\
        for i in range(64): h.aio_pread(nbd.Buffer(65536), i * 65536)\n\
        while h.aio_in_flight() > 0: h.poll(-1)\n\
        try:\n  h.pread(1, 1<<40)\n  raise SystemExit(3)\nexcept nbd.Error: pass\n";
    by_python(&served.uri(), script);
    assert_eq!((served.counts)().turned_away, 0);
}

/// nbdkit's pattern: every eight bytes are their offset, big end first.
fn is_pattern(bytes: &[u8], offset: u64) -> bool {
    let right = |at: u64| (at & !7).to_be_bytes()[(at & 7) as usize];
    (offset..).zip(bytes).all(|(at, byte)| right(at) == *byte)
}

/// A server that fails requests which do not keep to its sizes: the smallest, and the largest.
#[test]
fn requests_keep_to_the_sizes_of_the_server() {
    needs!(has("nbdkit", "nbdkit"));
    for (minimum, maximum) in [("1", "64K"), ("64K", "1M"), ("4K", "4K")] {
        let preferred = if maximum == "4K" { "4K" } else { "64K" };
        let sizes = [
            ("minimum", minimum),
            ("preferred", preferred),
            ("maximum", maximum),
        ];
        let sizes = sizes
            .map(|(name, size)| format!("blocksize-{name}={size}"))
            .join(" ");
        let fixed =
            "-f -U SOCKET --filter=blocksize-policy pattern 4M blocksize-error-policy=error";
        let args = Vec::from_iter(fixed.split(' ').chain(sizes.split(' ')));
        let peer = Peer::start("nbdkit", &args);
        let source = Nbd::open(&peer.uri()).expect("connected");
        let places = [
            (0, 4 << 20),
            (12_345, 3 << 20),
            (4 * MIB - 10, 10),
            (65_536, 65_536),
            (511, 2),
        ];
        for (offset, len) in places {
            let is_right = is_pattern(&read(&source, offset, len), offset);
            assert!(is_right, "{sizes}: {len} bytes from {offset}");
        }
        let reader = Reader::open(peer.uri(), Options::default()).expect("connected");
        let mut bytes = vec![0; 4 << 20];
        let read = reader.read_at(&mut bytes, 0).expect("readable");
        assert_eq!(read, bytes.len(), "{sizes}");
        assert!(is_pattern(&bytes, 0), "{sizes}");
        quiet(&reader);
    }
}

/// One request in twenty fails there. No read of ours does that needs no failing byte twice in a row, and none is wrong. 64 MiB are
/// some 140 fetches; that none of them fails has a chance of one in a thousand.
#[test]
fn an_unreliable_nbdkit_costs_errors_and_no_wrong_byte() {
    needs!(has("nbdkit", "nbdkit"));
    let args = "-f --filter=error -U SOCKET pattern 16M error-rate=5% error=EIO";
    let peer = Peer::start("nbdkit", &Vec::from_iter(args.split(' ')));
    let options = Options::default().cache_bytes(2 * MIB);
    let reader = Reader::open(peer.uri(), options).expect("connected");
    let reads = 16 * 1024_u64;
    let (mut failed, mut buf) = (0, vec![0; 4096]);
    for round in 0..16 {
        for at in 0..1024_u64 {
            let offset = (at * 4096 + round * 4 * MIB) % (16 * MIB);
            match reader.read_at(&mut buf, offset) {
                Ok(got) => assert!(got == 4096 && is_pattern(&buf, offset), "at {offset}"),
                Err(_) => failed += 1,
            }
        }
    }
    let stats = reader.stats();
    let is_right = stats.ra_failed_bytes > 0 && failed < reads / 20;
    assert!(is_right, "{failed} of {reads} failed, {stats:?}");
}

// ---- holes of a file: what the library reports about them, and what clients do with that ----

/// 64 MiB: data in the first one and in that at 40, holes between and behind.
fn sparse() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let of = file.as_file();
    of.set_len(64 * MIB).expect("a hole");
    for start in [0, 40 * MIB] {
        let bytes = testing::pattern(start, MIB as usize, 0);
        of.write_all_at(&bytes, start).expect("written");
    }
    of.sync_all().expect("on disk");
    file
}

fn of_file(file: &tempfile::NamedTempFile) -> Reader {
    Reader::open(file.path(), Options::default()).expect("opened")
}

#[test]
fn a_reader_reports_holes() {
    let file = sparse();
    let reader = of_file(&file);
    assert!(reader.knows_holes());
    let data = |len| extent(len, false);
    let hole = |len| extent(len, true);
    let all = [data(MIB), hole(39 * MIB), data(MIB), hole(23 * MIB)];
    for (from, to, most, wanted) in [
        (0, 64 * MIB, 9, &all[..]),
        // The end of the file is the end.
        (0, u64::MAX, 9, &all),
        (0, 64 * MIB, 2, &all[..2]),
        // As far as it goes.
        (10 * MIB, 11 * MIB, 9, &[hole(30 * MIB)]),
        (64 * MIB - 1, 64 * MIB, 9, &[hole(1)]),
        (64 * MIB, u64::MAX, 9, &[]),
    ] {
        let extents = reader.extents(from, to, most).expect("said");
        assert_eq!(extents, wanted, "{from}..{to}");
    }
    // Another version has other holes.
    let written = file.as_file().write_all_at(&[1; 4096], 20 * MIB);
    written.expect("written");
    let error = reader.extents(0, 64 * MIB, 9).expect_err("it has changed");
    assert!(matches!(error, ReadError::Changed { .. }), "{error}");
    let new = reader.extents(0, 64 * MIB, 9).expect("of the new version");
    assert_eq!(new.len(), 6);
}

fn extent(len: u64, is_hole: bool) -> Extent {
    Extent { len, is_hole }
}

#[test]
fn a_source_that_knows_no_holes_is_all_data() {
    let reader = opened(named(MIB), Options::default());
    assert!(!reader.knows_holes());
    let all = reader.extents(4096, MIB, 9).expect("said");
    assert_eq!(all, [extent(MIB - 4096, false)]);
    if has("nbdinfo", "libnbd-bin") {
        let served = Served::of(reader, NbdSettings::default());
        let info = run("nbdinfo", &["--json", &served.uri()]);
        assert!(!info.contains("base:allocation"), "{info}");
    }
}

/// They read the map, and of a copy the data alone is asked for.
#[test]
fn clients_copy_only_data() {
    needs!(has("nbdinfo", "libnbd-bin") && has("nbdcopy", "libnbd-bin"));
    needs!(has("qemu-img", "qemu-utils"));
    let file = sparse();
    let served = Served::of(of_file(&file), NbdSettings::default());
    let map = run("nbdinfo", &["--map", &served.uri()]);
    let words = |line: &str| Vec::from_iter(line.split_whitespace().take(3)).join(" ");
    let map = Vec::from_iter(map.lines().map(words)).join(", ");
    let wanted = "0 1048576 0, 1048576 40894464 3, 41943040 1048576 0, 42991616 24117248 3";
    assert_eq!(map, wanted);
    let seen = run("qemu-img", &["map", "--output=json", &served.uri()]);
    let kinds = ["\"data\": true", "\"zero\": true"];
    let counts = kinds.map(|kind| seen.matches(kind).count());
    assert_eq!(counts, [2, 2], "{seen}");
    let before = (served.counts)().bytes;
    let copy = served.dir.path().join("copy");
    run("nbdcopy", &[&served.uri(), copy.to_str().expect("UTF-8")]);
    let bytes = (served.counts)().bytes - before;
    assert!(bytes <= 3 * MIB, "{bytes} bytes for 2 MiB of data");
    let [copy, file] = [&copy, file.path()].map(|path| std::fs::read(path).expect("there"));
    assert!(copy == file, "right bytes");
}
