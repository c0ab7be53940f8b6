//! Tests of unusual files, and of files that another program changes while they are read.
//!
//! Changes that cannot be noticed are not tested (SEMANTICS.md lists them).

use crate::common::{
    LoopDisk, changed as source_changed, check_memory, file_of, in_threads, plain, quiet,
    read_and_check, read_source, right, watch,
};
use foreread::source::{self, Defaults, Mem, Source, SourceError};
use foreread::{OpenError, Options, ReadError, Reader};
use foreread_testing::{self as testing, needs, passed_on, pattern, says};
use std::fs::{File, Permissions, set_permissions};
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, tempdir};

fn open(path: &Path) -> Result<Reader, OpenError> {
    open_by(path, Options::default())
}

fn open_by(path: &Path, options: Options) -> Result<Reader, OpenError> {
    watch();
    Reader::open(format!("file:{}", path.display()), options)
}

fn refused(path: &Path) -> String {
    let error = crate::common::refused(open(path), "a path");
    assert!(error.errno() > 0);
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    says(&line, &[&path.display().to_string()]);
    line
}

/// It is an error that says that the file has changed.
fn changed<T: std::fmt::Debug>(read: Result<T, ReadError>) {
    let error = read.expect_err("it has changed");
    assert!(matches!(error, ReadError::Changed { .. }), "{error}");
    assert_eq!(error.errno(), rustix::io::Errno::STALE.raw_os_error());
    says(&error.to_string(), &["start over"]);
}

#[test]
fn non_files_are_refused_in_one_line() {
    let dir = tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let _listener = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), fifo, 0o600.into(), 0).expect("a pipe");
    std::os::unix::fs::symlink(at("circle"), at("circle")).expect("a link");
    for (name, why) in [
        ("", "is a directory; use a regular file or a block device"),
        ("missing", "No such file or directory; check the path"),
        ("/dev/null", "is a character device"),
        ("socket", "is a socket"),
        ("pipe", "is a pipe"),
        ("circle", "circle"),
    ] {
        let line = refused(&at(name));
        assert!(line.contains(why), "{name}: {line}");
    }
    let error = Reader::open("moddel:rbd", Options::default());
    let line = error.err().expect("no such source").to_string();
    says(&line, &["the supported sources are file:PATH"]);
}

#[test]
fn no_permission() {
    let file = file_of(100, 0);
    set_permissions(file.path(), Permissions::from_mode(0o000)).expect("it is ours");
    if File::open(file.path()).is_ok() {
        return println!("skipped: needs a non-root user");
    }
    assert!(refused(file.path()).contains("grant read permission"));
}

#[test]
fn settings_that_do_not_fit() {
    let of = |policy: &str| Options::default().policy(policy);
    let wrong_page = of("linux-6.18").page_bytes(8192);
    let no_log = of("auto").event_log("/no/such/place/log");
    for (options, why) in [
        (of("linux-9"), "'linux-9' is not a policy"),
        (of("none:x=1"), "foreread list policies"),
        (of("auto").page_bytes(1000), "page size of 1000 bytes"),
        (wrong_page, "linux-6.18 needs pages of 4096 bytes"),
        (no_log, "/no/such/place/log"),
    ] {
        let error = Reader::open(Arc::new(Mem::new(vec![1])), options);
        let line = error.err().expect("refused").to_string();
        assert!(line.contains(why), "{why}: {line}");
    }
}

#[test]
fn at_and_past_the_end() {
    let sizes = [
        0_u64, 1, 511, 512, 513, 4095, 4096, 4097, 10_000, 262_144, 262_145,
    ];
    for size in sizes {
        let file = file_of(size as usize, 0);
        for policy in ["none", "linux-6.18", "rbd-plain"] {
            let reader = open_by(file.path(), Options::default().policy(policy)).expect("opens");
            assert_eq!(reader.size(), size);
            let mut buf = vec![0xEE; 300_000];
            assert_eq!(read_and_check(&reader, &mut buf, 0, 0) as u64, size);
            let is_kept = buf[size as usize..].iter().all(|b| *b == 0xEE);
            assert!(is_kept, "nothing is written past the end");
            for offset in [size.saturating_sub(1), size / 2, size] {
                let read = read_and_check(&reader, &mut buf, offset, 0);
                assert_eq!(read as u64, size - offset);
            }
            let largest = i64::MAX as u64;
            let far = [1 << 62, (1 << 62) + 1, largest, u64::MAX - 1, u64::MAX];
            for offset in far.into_iter().chain([size, size + 1]) {
                assert_eq!(reader.read_at(&mut buf, offset), Ok(0), "{offset}");
            }
            assert_eq!(reader.read_at(&mut [], 0), Ok(0));
        }
    }
}

#[test]
fn appended_while_it_is_read() {
    let file = file_of(10_000, 0);
    let reader = open(file.path()).expect("opens");
    let mut buf = vec![0; 200_000];
    assert_eq!(read_and_check(&reader, &mut buf, 0, 0), 10_000);
    let mut size = 10_000;
    for more in [1, 2287, 4096, 50_000, 13] {
        let bytes = pattern(size, more, 0);
        file.as_file().write_all_at(&bytes, size).expect("appends");
        size += more as u64;
        // A read that reaches the end sees the new bytes at once, those of the last old page too.
        let read = read_and_check(&reader, &mut buf, 9_000, 0);
        assert_eq!((read as u64, reader.size()), (size - 9_000, size));
    }
    assert_eq!(reader.stats().failed_reads, 0);
}

/// A writer appends all the time; no reader fails, and every byte is right.
#[test]
fn appended_by_another_thread() {
    let file = file_of(1000, 0);
    let reader = open(file.path()).expect("opens");
    let end = 3_000_000;
    in_threads(7, |thread| {
        if thread == 6 {
            let mut at = 1000;
            while at < end {
                let len = (at % 30_011 + 1).min(end - at);
                let bytes = pattern(at, len as usize, 0);
                file.as_file().write_all_at(&bytes, at).expect("appends");
                at += len;
            }
            return;
        }
        let own = reader.try_clone().expect("opens");
        let (mut buf, mut at) = (vec![0; 1500 + thread as usize * 1111], 0);
        while at < end {
            at += read_and_check(&own, &mut buf, at, 0) as u64;
        }
    });
    assert_eq!(reader.stats().failed_reads, 0);
}

/// `cp longer file`: the file is truncated and written, and between two looks only the larger size is left of that.
#[test]
fn a_longer_file_copied_over_it_is_not_an_append() {
    for policy in ["none", "linux-6.18"] {
        let file = file_of(300_000, 1);
        let reader = open_by(file.path(), Options::default().policy(policy)).expect("opens");
        let other = reader.try_clone().expect("opens");
        let mut buf = vec![0; 8192];
        read_and_check(&reader, &mut buf, 0, 1);
        std::fs::write(file.path(), pattern(0, 900_000, 2)).expect("copied over it");
        for reader in [&reader, &other] {
            changed(reader.read_at(&mut buf, 250_000));
        }
        for at in [0, 250_000, 890_000] {
            read_and_check(&reader, &mut buf, at, 2);
            read_and_check(&other, &mut buf, at, 2);
        }
        // A read that reaches the end asks first: the same.
        std::fs::write(file.path(), pattern(0, 1_900_000, 3)).expect("copied over it");
        changed(reader.read_at(&mut buf, 899_000));
        let read = read_and_check(&reader, &mut buf, 899_000, 3);
        assert_eq!((reader.size(), read), (1_900_000, 8192));
    }
}

/// Threads that read here and there until `is_over`: no read mixes two versions, and no reader that has read a version reads an older one.
fn never_mixed<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    reader: &Reader,
    [threads, end]: [u64; 2],
    may_be_cut: bool,
    is_over: impl Fn(u16, u64) -> bool + Send + Sync + Clone + 'static,
) {
    for thread in 0..threads {
        let (own, is_over) = (reader.try_clone().expect("opens"), is_over.clone());
        let work = move || {
            let (mut rng, mut buf) = (crate::common::Rng(thread), vec![0; 40_000]);
            let (mut newest, mut reads) = (0, 0);
            while !is_over(newest, reads) {
                let at = rng.below(end) & !7;
                match own.read_at(&mut buf, at) {
                    Err(ReadError::Changed { .. }) => {}
                    Err(ReadError::Short { .. }) if may_be_cut => {}
                    Err(error) => panic!("{error}"),
                    // Truncated, and not all written again.
                    Ok(len) if len < buf.len() && may_be_cut => {}
                    Ok(len) => {
                        let (offset, version) =
                            testing::name_of(buf[..8].try_into().expect("eight"));
                        assert_eq!((offset, len), (at, buf.len()));
                        assert!(version >= newest, "version {version} after {newest}");
                        right(&buf, at, version);
                        newest = version;
                    }
                }
                reads += 1;
            }
        };
        scope.spawn(work);
    }
}

/// The same while the copies go on, so that looks come at every moment of them.
#[test]
fn copied_over_again_and_again() {
    let file = file_of(200_000, 0);
    let options = Options::default().policy("linux-6.18:max=64K");
    let reader = open_by(file.path(), options.cache_bytes(128 << 10)).expect("opens");
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let is_done = Arc::clone(&done);
        let is_over = move |_, reads| is_done.load(Ordering::SeqCst) && reads >= 10;
        never_mixed(scope, &reader, [3, 160_000], true, is_over);
        for version in 1..=120_u16 {
            let size = 200_000 + usize::from(version) * 5000;
            std::fs::write(file.path(), pattern(0, size, version)).expect("copied over it");
        }
        done.store(true, Ordering::SeqCst);
    });
}

/// The source is replaced again and again under several readers. Each reply is of one version.
#[test]
fn replies_never_mix_versions() {
    const SIZE: usize = 256 << 10;
    let source = Arc::new(Mem::new(pattern(0, SIZE, 0)));
    let options = Options::default().policy("linux-6.18:max=64K");
    let reader = Reader::open(Arc::clone(&source), options.cache_bytes(128 << 10)).expect("opens");
    let rounds = 300;
    std::thread::scope(|scope| {
        let part = [4, SIZE as u64 - 40_000];
        never_mixed(scope, &reader, part, false, move |newest, _| {
            newest >= rounds
        });
        for version in 1..=rounds {
            source.replace(pattern(0, SIZE, version));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A pinned reader accepts no growth, append or not; unless its caller has said that files are appended to.
#[test]
fn growth_is_a_change_to_a_pinned_reader() {
    for appending in [false, true] {
        let file = file_of(300_000, 0);
        let options = Options::default().policy("none").appending(appending);
        let plain = open_by(file.path(), options).expect("opens");
        let pinned = plain.try_clone().expect("opens").pin_version();
        let mut buf = vec![0; 8192];
        // More than once: from the second read on its pages are read without asking, until one of their group of 64 is fetched.
        (0..3).for_each(|_| _ = read_and_check(&pinned, &mut buf, 0, 0));
        let more = pattern(300_000, 5000, 0);
        let appended = file.as_file().write_all_at(&more, 300_000);
        appended.expect("appends");
        // The first fetch after that notices, and its bytes are not handed over.
        let met = pinned.read_at(&mut buf, 280_000);
        assert_eq!(met.is_ok(), appending, "{met:?}");
        // To the other readers it is an append.
        assert_eq!(plain.read_at(&mut buf, 300_000), Ok(5000));
        let reads = |pinned: &Reader| pinned.read_at(&mut [0; 8192], 0).is_ok();
        assert_eq!(reads(&pinned), appending, "from then on");
        (0..3).for_each(|_| _ = read_and_check(&plain, &mut buf, 0, 0));
        // Though others read these pages again and again.
        assert_eq!(reads(&pinned), appending);
        assert_eq!(pinned.size(), if appending { 305_000 } else { 300_000 });
        assert_eq!(reads(&pinned.try_clone().expect("opens")), appending);
    }
}

#[test]
fn shrunk_while_it_is_read() {
    let file = file_of(4 << 20, 0);
    let reader = open(file.path()).expect("opens");
    let mut buf = vec![0; 64 << 10];
    read_and_check(&reader, &mut buf, 0, 0);
    quiet(&reader);
    file.as_file().set_len(1 << 20).expect("shrinks");
    changed(reader.read_at(&mut buf, 2 << 20));
    assert_eq!(reader.size(), 1 << 20);
    assert_eq!(reader.read_at(&mut buf, 2 << 20), Ok(0));
    assert_eq!(read_and_check(&reader, &mut buf, (1 << 20) - 5, 0), 5);
    file.as_file().set_len(0).expect("shrinks");
    // A read that reaches the end asks.
    assert!(reader.read_at(&mut buf, (1 << 20) - 5).is_err());
    assert_eq!(reader.read_at(&mut buf, 0), Ok(0));
    let gauges = quiet(&reader);
    assert_eq!((gauges.pages, gauges.held_bytes), (0, 0));
}

/// `touch`: a new time and nothing else. Whether it is an append in its first moment is waited for once, not by each read.
#[test]
fn a_touch_is_waited_for_once_and_not_by_each_read() {
    let file = NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(1 << 20).expect("room");
    let source = source::FileSource::open(file.path()).expect("opens");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(1000);
    let times = std::fs::FileTimes::new().set_modified(long_ago);
    file.as_file().set_times(times).expect("touched");
    let begun = Instant::now();
    for _ in 0..100 {
        source_changed(read_source(&source, 0, 4096), "touched");
    }
    // 42 ms once; 4.2 s if each of them waits.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2100), "{took:?} for 100 reads");
    source.accept();
    assert_eq!(read_source(&source, 0, 4096), Ok(vec![0; 4096]));
}

/// A source whose reads come back two at a time, once it has been replaced.
struct InPairs(Mem, Barrier);

impl Source for InPairs {
    passed_on! {self => self.0;
        size() -> u64;
        defaults() -> Defaults;
        describe() -> String;
        accept() -> u64;
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let read = self.0.read_at(bufs, offset);
        if read.is_err() {
            self.1.wait();
        }
        read
    }
}

/// Two fetches come back with the news of one change: it is one change, and each reader hears of it once.
#[test]
fn each_reader_gets_one_error() {
    let source = Arc::new(InPairs(Mem::new(pattern(0, 1 << 20, 1)), Barrier::new(2)));
    let first = plain(Arc::clone(&source));
    let second = first.try_clone().expect("opens");
    source.0.replace(pattern(0, 1 << 20, 2));
    in_threads(2, |nth| {
        let reader = [&first, &second][nth as usize];
        changed(reader.read_at(&mut [0; 4096], nth * 500_000));
    });
    for reader in [&first, &second] {
        read_and_check(reader, &mut [0; 4096], 0, 2);
    }
}

/// A block device by its node in /dev, which is in a devtmpfs and is read past the page cache all the same.
#[test]
fn a_block_device_is_read_directly() {
    let file = file_of(3 << 20, 0);
    needs!(let device = LoopDisk::over(file.path(), &[]));
    let source = source::FileSource::open(Path::new(&device.node)).expect("opens");
    assert!(source.is_direct(), "{}", source.describe());
    says(&source.describe(), &[", direct"]);
    assert_eq!(source.size(), 3 << 20);
    let reader = Reader::open(device.node.as_str(), Options::default()).expect("opens");
    assert_eq!(reader.size(), 3 << 20);
    let mut rng = crate::common::Rng(2);
    let mut buf = vec![0; 200_000];
    for _ in 0..100 {
        let (at, len) = (rng.below(3 << 20), 1 + rng.below(200_000) as usize);
        let got = read_and_check(&reader, &mut buf[..len], at, 0);
        assert_eq!(got, len.min((3 << 20) - at as usize));
    }
    assert_eq!(reader.read_at(&mut buf, 3 << 20), Ok(0));
    check_memory(&quiet(&reader), 4096);
}

/// A device that became larger (a volume that was extended) is read on, and a reader that is pinned to its size gets an error.
#[test]
fn a_block_device_that_grew() {
    let file = file_of(1 << 20, 0);
    needs!(let device = LoopDisk::over(file.path(), &[]));
    let reader = plain(device.node.as_str());
    let pinned = reader.try_clone().expect("opens").pin_version();
    let mut buf = vec![0; 8192];
    read_and_check(&reader, &mut buf, 1_040_000, 0);
    let more = pattern(1 << 20, 1 << 20, 0);
    let appended = file.as_file().write_all_at(&more, 1 << 20);
    appended.expect("appends");
    device.resized();
    assert_eq!(read_and_check(&reader, &mut buf, (1 << 20) - 96, 0), 8192);
    assert_eq!(reader.size(), 2 << 20);
    changed(pinned.read_at(&mut buf, 0));
}
