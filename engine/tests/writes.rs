//! Tests of writes through the server and the reader to the source: a read that starts after a write never returns old bytes.

use crate::common::nbd as served;

use crate::common::{
    LoopDisk, Rng, SmallDisk, by, file_of, in_threads, named, only, opened, passed, quiet, refused,
    right, this_test,
};
use foreread::front::nbd::{Listen, NbdSettings, Server};
use foreread::nbd::wire::{self, command, command_flag, errno};
use foreread::source::{FileSource, Mem, WritableSource};
use foreread::{Options, Reader, WriteError};
use foreread_testing::{self as testing, Faulty, Other, needs, says};
use served::{Client, MIB, Served, has, run, writing};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options() -> Options {
    by("linux-6.18:max=256K", 2 * MIB)
}

/// A file, and a server that lets clients write it.
fn writable(size: usize) -> (tempfile::NamedTempFile, Served) {
    let file = file_of(size, 0);
    let reader = Reader::open(file.path(), options()).expect("opened");
    (file, Served::of(reader, writing()))
}

/// Another program writes into a file.
fn overwrite(file: &tempfile::NamedTempFile, bytes: &[u8]) {
    let other = std::fs::File::options().write(true).open(file.path());
    let other = other.expect("there");
    other.write_all_at(bytes, 0).expect("written");
}

fn write(client: &mut Client, offset: u64, bytes: &[u8]) -> u32 {
    client.send(command::WRITE, 77, offset, bytes.len() as u32);
    client.0.write_all(bytes).expect("sent");
    client.answer().1
}

fn read(client: &mut Client, offset: u64, len: usize) -> Vec<u8> {
    client.send(command::READ, 78, offset, len as u32);
    assert_eq!(client.answer(), (78, 0));
    client.data(len)
}

/// What was written is read: by the writing client, by another client that had it cached or in flight, and from the file.
#[test]
fn every_client_reads_the_writes_of_one() {
    let (file, served) = writable(4 << 20);
    let (mut one, mut other) = (served.client(), served.client());
    for round in 0..40_u8 {
        let at = 4096 * u64::from(round) * 20 + 100;
        // Cached, with readahead in flight behind it.
        other.reads(1, (at + 4096) & !4095, 4096);
        let bytes = vec![round; 9000];
        assert_eq!(write(&mut one, at, &bytes), 0);
        assert_eq!(read(&mut other, at, 9000), bytes, "round {round}");
        assert_eq!(read(&mut one, at, 9000), bytes);
        let mut all = vec![0; 9000];
        let read = file.as_file().read_exact_at(&mut all, at);
        read.expect("readable");
        assert_eq!(all, bytes);
        // Its neighbours stay.
        one.reads(2, at - 100, 100);
        one.reads(3, at + 9000, 5000);
    }
    assert_eq!((served.counts)().failed_requests, 0);
}

/// A write of more than a piece, one into the middle of a page, zeroes, and all the ways to be refused.
#[test]
fn long_writes_zeroes_and_refusals() {
    let (_file, served) = writable(4 << 20);
    let mut client = served.client();
    let long: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    assert_eq!(write(&mut client, 12_345, &long), 0);
    assert_eq!(read(&mut client, 12_345, long.len()), long);
    assert_eq!(client.asks(command::WRITE_ZEROES, 20_000, 700_000), 0);
    assert_eq!(read(&mut client, 20_000, 700_000), vec![0; 700_000]);
    let behind = read(&mut client, 720_000, 10);
    assert_eq!(behind, long[720_000 - 12_345..][..10]);
    for (what, offset, len, error) in [
        (command::WRITE, 4 * MIB - 10, 11, errno::ENOSPC),
        (command::WRITE, u64::MAX, 500_000, errno::ENOSPC),
        (command::WRITE, 0, 0, errno::EINVAL),
        (command::WRITE_ZEROES, 0, 5 << 20, errno::ENOSPC),
        (command::TRIM, 0, 4096, errno::EINVAL),
    ] {
        client.send(what, 2, offset, len);
        if what == command::WRITE {
            client.0.write_all(&vec![0; len as usize]).expect("sent");
        }
        assert_eq!(client.answer(), (2, error), "{what} at {offset} of {len}");
    }
    let kept = read(&mut client, 12_345, 1000);
    assert_eq!(kept, long[..1000], "a refused write writes nothing");
}

/// Random reads and writes of several clients, each in its own part of one file and in those of the others, against a
/// model: a read shows what was written last, or one of the writes that are going on.
#[test]
fn clients_agree_with_a_model() {
    const BLOCK: u64 = 8192;
    let (_file, served) = writable(2 << 20);
    let blocks = 2 * MIB / BLOCK;
    // For each block: the number of the last write that was answered, and whether one is under way.
    let model: Vec<Mutex<u8>> = (0..blocks).map(|_| Mutex::new(0)).collect();
    in_threads(4, |seed| {
        let (mut client, mut rng, mut next) = (served.client(), Rng(seed), 0_u8);
        for _ in 0..400 {
            let block = rng.below(blocks);
            let at = block * BLOCK;
            let mut known = model[block as usize].lock().expect("no panic");
            if rng.below(3) == 0 {
                next = next % 250 + 1;
                let written = write(&mut client, at, &vec![next; BLOCK as usize]);
                assert_eq!(written, 0);
                *known = next;
            } else {
                let bytes = read(&mut client, at, BLOCK as usize);
                match *known {
                    0 => right(&bytes, at, 0),
                    n => assert_eq!(bytes, vec![n; BLOCK as usize], "block {block}"),
                }
                drop(known);
                // And one that runs into others' blocks, for the readahead.
                read(&mut client, rng.below(blocks / 2) * BLOCK, 100_000);
            }
        }
    });
    assert_eq!((served.counts)().failed_requests, 0);
}

/// A write while the old bytes are in flight: a later read gets the new ones, and the fetch counts for nothing.
#[test]
fn a_write_overtakes_the_readahead() {
    let memory = Mem::new(testing::pattern(0, 4 << 20, 0));
    let slow = Faulty::slow(memory, 3, Duration::from_millis(3));
    let reader = opened(slow, options());
    reader.allow_writes().expect("allowed");
    let mut buf = vec![0; 16 << 10];
    for round in 0..30_u64 {
        let at = round * (100 << 10);
        for step in 0..3 {
            let read = reader.read_at(&mut buf, at + step * (16 << 10));
            read.expect("readable");
        }
        // Into what is being read ahead now.
        let (ahead, bytes) = (at + (48 << 10), vec![round as u8; 10_000]);
        reader.write_at(&bytes, ahead + 10).expect("written");
        let got = reader.read_at(&mut buf[..10_000], ahead + 10);
        assert_eq!(buf[..got.expect("readable")], bytes, "round {round}");
        // Back, for the next round.
        let old = testing::pattern(ahead + 10, 10_000, 0);
        reader.write_at(&old, ahead + 10).expect("written");
    }
    quiet(&reader);
}

/// A reader that writes all the time is no other program: no reader gets a change. Another program's write is one.
#[test]
fn our_own_writes_are_no_change_and_those_of_others_are() {
    let (file, served) = writable(8 << 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut reads, mut writes) = (served.client(), served.client());
        let end = &done;
        scope.spawn(move || {
            for i in 0..300 {
                assert_eq!(write(&mut writes, i % 16 * 65_536, &vec![1; 65_536]), 0);
            }
            end.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            read(&mut reads, 0, 1 << 20);
        }
    });
    let mut client = served.client();
    read(&mut client, 6 * MIB, 4096);
    overwrite(&file, &[9; 4096]);
    let changed = client.asks(command::READ, 7 * MIB, 4096);
    assert_eq!(changed, errno::ESHUTDOWN);
    // Nor does it write into another version.
    assert_eq!(write(&mut client, 0, &[1]), errno::ESHUTDOWN);
    assert_eq!((served.counts)().written_bytes, 300 * 65_536);
}

/// Another program rewrites the file, and we write before we look: the write notices, and does not take the new time for its own.
#[test]
fn a_write_of_ours_does_not_hide_that_of_another() {
    for longer in [false, true] {
        let file = file_of(1 << 20, 1);
        let reader = Reader::open(file.path(), options().policy("none")).expect("opened");
        reader.allow_writes().expect("allowed");
        let mut buf = vec![0; 8192];
        reader.write_at(&[7; 10], 0).expect("written");
        reader.read_at(&mut buf, 8192).expect("readable");
        std::thread::sleep(Duration::from_millis(20));
        let size = if longer { 2 << 20 } else { 1 << 20 };
        overwrite(&file, &testing::pattern(0, size, 2));
        let error = reader.write_at(&[8; 10], 4096).expect_err("it has changed");
        assert!(matches!(error, WriteError::Changed { .. }), "{error}");
        // Told once, by the write; nothing was written, and nothing of the old version is left.
        for at in [0, 4096, 8192] {
            reader.read_at(&mut buf, at).expect("readable");
            right(&buf, at, 2);
        }
        let again = reader.write_at(&[8; 10], 4096);
        again.expect("into the new version");
        assert_eq!(reader.size(), size as u64);
    }
}

fn flush(client: &mut Client) -> u32 {
    client.asks(command::FLUSH, 0, 0)
}

fn write_safely(client: &mut Client, offset: u64, bytes: &[u8]) -> u32 {
    let len = bytes.len() as u32;
    let request = wire::Request {
        flags: command_flag::FUA,
        command: command::WRITE,
        cookie: 77,
        offset,
        len,
    };
    let bytes = [&request.bytes()[..], bytes].concat();
    client.0.write_all(&bytes).expect("sent");
    client.answer().1
}

/// After a flush that failed every flush fails, whichever client asked first: by FLUSH or by FUA, on an old connection or a new one.
#[test]
fn a_flush_error_is_kept_for_every_client() {
    // The system reports it once.
    let faulty = Faulty::nth_of(Mem::new(vec![0; 1 << 20]), Other::Flush, 0, false);
    let source = Arc::new(faulty);
    let open = || {
        let reader = Reader::open(Arc::clone(&source), options()).expect("opened");
        Served::of(reader, writing())
    };
    let served = open();
    let (mut one, mut other) = (served.client(), served.client());
    assert_eq!(write(&mut one, 0, &[1; 4096]), 0);
    assert_eq!(flush(&mut other), errno::EIO, "the other asks first");
    assert_eq!(flush(&mut one), errno::EIO, "the writing client as well");
    assert_eq!(write_safely(&mut one, 0, &[2; 4096]), errno::EIO);
    let later = (write(&mut one, 0, &[3; 4096]), flush(&mut one));
    assert_eq!(later, (0, errno::EIO));
    // A new connection is the same export.
    assert_eq!(flush(&mut served.client()), errno::EIO);
    drop((one, other, served));
    assert_eq!(flush(&mut open().client()), 0, "opened anew");
}

/// The same with a real disk: a loop device over a file for which there is no room. The kernel takes the write, and its flush
/// finds out; it says so once.
#[test]
fn a_disk_that_loses_writes() {
    needs!(let disk = SmallDisk::of(512));
    needs!(let device = LoopDisk::over(&disk.sparse(8 * MIB), &[]));
    let open = || {
        let reader = Reader::open(device.node.as_str(), options()).expect("opened");
        Served::of(reader, writing())
    };
    let served = open();
    let (mut one, mut other) = (served.client(), served.client());
    assert_eq!(write(&mut one, 0, &[1; 4 << 20]), 0);
    let first = flush(&mut other);
    assert!([errno::EIO, errno::ENOSPC].contains(&first), "{first}");
    let safe = write_safely(&mut one, 0, &[2; 4096]);
    assert_eq!([safe, flush(&mut one), flush(&mut other)], [first; 3]);
}

/// A disk is written through /dev: what was written is read and is there.
#[test]
fn a_block_device_is_written() {
    let file = file_of(2 << 20, 0);
    needs!(let device = LoopDisk::over(file.path(), &[]));
    let reader = Reader::open(device.node.as_str(), options()).expect("opened");
    let served = Served::of(reader, writing());
    let mut client = served.client();
    client.reads(1, 0, 1 << 20);
    for (at, len) in [(0, 4096), (4097, 10), (500_001, 300_000)] {
        assert_eq!(write(&mut client, at, &vec![9; len]), 0);
        assert_eq!(read(&mut client, at, len), vec![9; len]);
    }
    assert_eq!(flush(&mut client), 0);
    assert_eq!(write(&mut client, 2 * MIB - 1, &[1, 2]), errno::ENOSPC);
    client.reads(2, 4107, 10_000);
    let there = std::fs::read(file.path()).expect("there");
    assert_eq!(there[500_001..800_001], vec![9; 300_000]);
}

/// What clients may write is locked: against a second server, QEMU, a mount; and given back at the end.
#[test]
fn a_writable_source_is_locked() {
    let dir = tempfile::tempdir().expect("a directory");
    let bind = |path: &str, lock: bool| {
        let settings = NbdSettings {
            writable: true,
            lock,
            ..NbdSettings::default()
        };
        let reader = Reader::open(path, options()).expect("opened");
        let place = [Listen::Unix(dir.path().join("t"))];
        let bound = Server::bind(&place, reader, settings).map(drop);
        bound.map_err(|error| error.to_string())
    };
    let (file, served) = writable(1 << 20);
    let path = file.path().to_str().expect("UTF-8");
    let locked = bind(path, true).expect_err("locked");
    says(&locked, &["another program has locked it", "--no-lock"]);
    assert_eq!(bind(path, false), Ok(()));
    if has("qemu-io", "qemu-utils") {
        let mut qemu = Command::new("qemu-io");
        let qemu = qemu.args(["-f", "raw", "-c", "write 0 4k", path]);
        let out = qemu.output().expect("started");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains("lock"), "{out:?}");
    }
    // A child process that has been forked and has not begun its program holds copies of all descriptors.
    let copies = copies_of(path);
    assert!(copies.len() >= 2, "one reads, one writes: {}", copies.len());
    drop(served);
    assert_eq!(bind(path, true), Ok(()), "given back");
    drop(copies);
    // The threads of a server end with it: none holds the file, and its lock, a moment longer.
    for time in 0..300 {
        assert_eq!(bind(path, true), Ok(()), "given back, {time}");
    }
    // A device: claimed by a mount, or by another exclusive opener.
    needs!(let device = LoopDisk::over(file.path(), &[]));
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC;
    let claim = || rustix::fs::open(&device.node, flags, rustix::fs::Mode::empty());
    let other = claim().expect("free");
    let claimed = bind(device.node.as_str(), true).expect_err("claimed");
    let words = "mounted, or another program has opened it exclusively";
    says(&claimed, &[words]);
    assert_eq!(bind(device.node.as_str(), false), Ok(()));
    drop(other);
    // A device is free when its last descriptor is closed, and other tests fork children meanwhile.
    drop(within_seconds(&claim).expect("given back"));
    let served = || {
        let reader = Reader::open(device.node.as_str(), options()).expect("opened");
        Served::try_of(reader, writing())
    };
    let served = within_seconds(&served).expect("given back");
    assert_eq!(claim().expect_err("ours"), rustix::io::Errno::BUSY);
    drop(served);
    within_seconds(&claim).expect("given back");
}

/// Copies of every descriptor of this process for this file. Each shares its locks with the original.
fn copies_of(path: &str) -> Vec<std::os::fd::OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let us = pidfd_open(getpid(), PidfdFlags::empty()).expect("a process");
    let entries = std::fs::read_dir("/proc/self/fd").expect("a folder");
    let is_ours = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.to_str() == Some(path));
    let ours = entries.flatten().filter(|entry| is_ours(&entry.path()));
    let numbers = ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let copies = numbers.map(|number| pidfd_getfd(&us, number, PidfdGetfdFlags::empty()));
    copies.flatten().collect()
}

/// Asks again for up to ten seconds.
fn within_seconds<T, E>(ask: &dyn Fn() -> Result<T, E>) -> Result<T, E> {
    let since = std::time::Instant::now();
    loop {
        let answer = ask();
        if answer.is_ok() || since.elapsed().as_secs() >= 10 {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn unwritable_outputs_are_reported() {
    let made_up = opened(named(MIB), options());
    let error = made_up.allow_writes().expect_err("it is made up");
    assert!(error.to_string().contains("cannot be written"), "{error}");
    let dir = tempfile::tempdir().expect("a directory");
    let settings = writing();
    let bound = Server::bind(&[Listen::Unix(dir.path().join("s"))], made_up, settings);
    let remedy = "serve it read-only, or run as a user that may write it";
    says(&refused(bound, "made up").to_string(), &[remedy]);
    assert!(!dir.path().join("s").exists());
    // No caller has asked to write it: it is not written.
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), [7; 100]).expect("written");
    let reader = Reader::open(file.path(), options()).expect("opened");
    let read_only = reader.write_at(&[1], 0);
    let is_denied = matches!(read_only, Err(WriteError::Io { errno: 30, .. }));
    assert!(is_denied, "{read_only:?}");
    reader.allow_writes().expect("allowed");
    let beyond = reader.write_at(&[1, 2], 99);
    let is_beyond = matches!(beyond, Err(WriteError::Beyond { .. }));
    assert!(is_beyond, "{beyond:?}");
    let written = reader.write_at(&[1], 99).and_then(|()| reader.flush());
    written.expect("written");
    // Renamed over: the file that was opened is the one that is read, and another one is not written.
    let source = FileSource::open(file.path()).expect("opened");
    let folder = file.path().parent().expect("a folder");
    let other = tempfile::NamedTempFile::new_in(folder).expect("a file");
    std::fs::rename(other.path(), file.path()).expect("renamed");
    let error = source.allow_writes().expect_err("another").to_string();
    says(&error, &["is another file now"]);
    std::fs::write(other.path(), []).expect("for its guard to remove");
}

#[cfg(feature = "object")]
#[test]
fn an_object_is_never_writable() {
    let server = testing::RangeServer::start(named(MIB)).expect("a port");
    let reader = Reader::open(server.url(), options()).expect("opened");
    let dir = tempfile::tempdir().expect("a directory");
    let bound = Server::bind(&[Listen::Unix(dir.path().join("s"))], reader, writing());
    let remedy = "an object of a store is never writable";
    says(&refused(bound, "an object").to_string(), &[remedy]);
}

/// nbdcopy writes a whole image into us, and qemu-io single blocks.
#[test]
fn other_people_s_programs_write() {
    let (file, served) = writable(24 << 20);
    let image = tempfile::NamedTempFile::new().expect("a file");
    let bytes = testing::pattern(0, 24 << 20, 5);
    std::fs::write(image.path(), &bytes).expect("written");
    let from = image.path().to_str().expect("UTF-8");
    if has("nbdcopy", "libnbd-bin") {
        run("nbdcopy", &["--flush", from, &served.uri()]);
        let there = std::fs::read(file.path()).expect("there");
        assert!(there == bytes, "nbdcopy");
    }
    if has("qemu-io", "qemu-utils") {
        let args = "-f|raw|-c|write -P 0xab 1M 64k|-c|read -P 0xab 1M 64k|-c|write -f -P 0xcd 1M 4k|\
            -c|write -z 2M 1M|-c|flush";
        let uri = served.uri();
        let args = Vec::from_iter(args.split('|').chain([uri.as_str()]));
        let said = run("qemu-io", &args);
        assert!(!said.contains("failed"), "{said}");
        let mut client = served.client();
        let wanted = [vec![0xcd; 4096], vec![0xab; 61_440]].concat();
        assert_eq!(read(&mut client, MIB, 65_536), wanted);
        assert_eq!(read(&mut client, 2 * MIB, 1 << 20), vec![0; 1 << 20]);
    }
}

/// FUA and FLUSH reach the file: a child process serves, and strace counts its system calls.
#[test]
fn a_flush_reaches_the_file() {
    const CHILD: &str = "FOREREAD_TEST_FLUSH";
    if std::env::var_os(CHILD).is_some() {
        let (_file, served) = writable(1 << 20);
        let mut client = served.client();
        assert_eq!(write(&mut client, 0, &[1; 4096]), 0);
        assert_eq!(flush(&mut client), 0);
        assert_eq!(write_safely(&mut client, 0, &[2; 4096]), 0);
        return;
    }
    needs!(has("strace", "strace"));
    let log = tempfile::NamedTempFile::new().expect("a file");
    let me = std::env::current_exe().expect("a path");
    let mut strace = Command::new("strace");
    strace.args("-f -e trace=fdatasync -o".split(' '));
    strace.arg(log.path()).arg(me).args(only(this_test!()));
    passed(&strace.env(CHILD, "1").output().expect("started"));
    let text = std::fs::read_to_string(log.path()).expect("readable");
    // A call that another thread interrupts in the log ends in a line without its bracket.
    let is_sync = |line: &&str| line.contains("fdatasync") && line.contains("= 0");
    assert_eq!(text.lines().filter(is_sync).count(), 2, "{text}");
}
