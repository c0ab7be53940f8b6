//! A list of checks that every source has to pass, with one row for each source.
//!
//! A row creates a source with version 0 of a pattern that encodes offset and version, and changes it to version 1, if
//! that is possible. A new kind of source is one line in `ROWS`. Behaviour that only one kind has is tested elsewhere.

#[cfg(feature = "nbd")]
use crate::common::nbd::Peer;
#[cfg(feature = "object")]
use crate::common::stores::Kind;
use crate::common::{
    Rng, changed, in_threads, named, plain, read_right, read_source as read, right,
};
use foreread::Reader;
use foreread::source::{Defaults, FileSource, Io, Mem, Source};
use foreread_testing::{Call, FaultAction, Faulty, QueuedSource, needs, pattern, says};
use std::any::Any;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// Odd, and more than one group of pages.
const SIZE: usize = 1_000_001;

/// A source to be checked, and what has to stay alive with it.
struct Subject {
    source: Arc<dyn Source>,
    /// Makes the storage hold version 1, of the same size; none where it could not be noticed.
    replace: Option<Box<dyn Fn()>>,
    _keep: Box<dyn Any>,
}

impl Subject {
    fn new(source: impl Source + 'static, keep: impl Any) -> Option<Subject> {
        Some(Subject {
            source: Arc::new(source),
            replace: None,
            _keep: Box::new(keep),
        })
    }

    fn replaced_by(mut self, replace: impl Fn() + 'static) -> Subject {
        self.replace = Some(Box::new(replace));
        self
    }
}

type Make = fn() -> Option<Subject>;

/// Every source, and how its kind is read. A row that cannot be made here says what it needs and gives nothing.
const ROWS: &[(&str, Defaults, Make)] = &[
    ("file by io_uring", Defaults::FILE, || file(Io::Queue)),
    ("file by threads", Defaults::FILE, || file(Io::Threads)),
    ("file without direct I/O", Defaults::FILE, in_memory),
    ("mem", Defaults::MEMORY, mem),
    ("mem, generated", Defaults::MEMORY, || {
        Subject::new(named(SIZE as u64), ())
    }),
    ("queued", Defaults::MEMORY, || {
        Subject::new(QueuedSource::new(named(SIZE as u64), 1), ())
    }),
    ("faulty, slow", Defaults::MEMORY, || {
        let slow = |call: Call| match call.nth.is_multiple_of(16) {
            true => FaultAction::Slow(Duration::from_millis(1)),
            false => FaultAction::Pass,
        };
        Subject::new(Faulty::new(named(SIZE as u64), slow), ())
    }),
    #[cfg(feature = "nbd")]
    ("nbd", Defaults::NBD, nbd),
    #[cfg(feature = "tls")]
    ("nbds", Defaults::NBD, nbds),
    #[cfg(feature = "object")]
    ("http", PARTS, || object::of(Kind::Http)),
    #[cfg(feature = "object")]
    ("s3", PARTS, || object::of(Kind::S3)),
    #[cfg(feature = "object")]
    ("gs", PARTS, || object::of(Kind::Google)),
    #[cfg(feature = "object")]
    ("az", PARTS, || object::of(Kind::Azure)),
    #[cfg(feature = "object")]
    ("hub, large file", PARTS, || object::hub(true)),
    #[cfg(feature = "object")]
    ("hub, small file", PARTS, || object::hub(false)),
];

/// Of objects that are read in parts of 64 KiB.
#[cfg(feature = "object")]
const PARTS: Defaults = Defaults {
    max_fetch_bytes: 64 << 10,
    ..Defaults::OBJECT
};

type Check = fn(&Subject);

/// What each has to pass, in this order; the last one changes it.
const CHECKS: &[(&str, Check)] = &[
    ("its size is right", size),
    ("it describes itself in one line", describe),
    ("its granules are powers of two", granules),
    ("any offset, length and number of buffers", anything),
    ("nothing at and past the end", past_the_end),
    ("several threads at once", threads),
    ("a reader on it", reader),
    ("another version", version),
];

#[test]
fn every_source_passes_every_check() {
    crate::common::watch();
    let mut made = 0;
    for (row, defaults, make) in ROWS {
        let Some(subject) = make() else { continue };
        println!("{row}: {}", subject.source.describe());
        assert_eq!(subject.source.defaults(), *defaults, "{row}");
        for (check, run) in CHECKS {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&subject)));
            assert!(outcome.is_ok(), "{row}: {check}");
        }
        made += 1;
    }
    assert!(made >= 6, "only {made} of {} rows", ROWS.len());
}

// ---- the rows ----

fn scratch(dir: Option<&str>) -> Option<tempfile::NamedTempFile> {
    let file = match dir {
        Some(dir) => tempfile::NamedTempFile::new_in(dir),
        None => tempfile::NamedTempFile::new(),
    };
    let file = file.ok()?;
    let bytes = pattern(0, SIZE, 0);
    file.as_file().write_all_at(&bytes, 0).expect("room");
    file.as_file().sync_all().expect("written");
    Some(file)
}

fn rewritten(source: FileSource, file: tempfile::NamedTempFile) -> Option<Subject> {
    let handle = file.reopen().expect("it is there");
    Some(Subject::new(source, file)?.replaced_by(move || {
        // Past the tick of the file system's clock.
        std::thread::sleep(Duration::from_millis(20));
        let other = pattern(0, SIZE, 1);
        handle.write_all_at(&other, 0).expect("writes");
    }))
}

fn file(io: Io) -> Option<Subject> {
    let file = scratch(None)?;
    let source = FileSource::open_by(file.path(), io).expect("opens");
    if io == Io::Queue && source.is_direct() && source.queue().is_none() {
        let said = source.describe();
        println!("skipped: needs io_uring (kernel.io_uring_disabled=0): {said}");
        return None;
    }
    rewritten(source, file)
}

fn in_memory() -> Option<Subject> {
    let Some(file) = scratch(Some("/dev/shm")) else {
        println!("skipped: needs a tmpfs at /dev/shm");
        return None;
    };
    let source = FileSource::open(file.path()).expect("opens");
    says(&source.describe(), &["by the page cache"]);
    rewritten(source, file)
}

fn mem() -> Option<Subject> {
    let mem = Arc::new(Mem::new(pattern(0, SIZE, 0)));
    let other = Arc::clone(&mem);
    Some(Subject::new(mem, ())?.replaced_by(move || other.replace(pattern(0, SIZE, 1))))
}

#[cfg(feature = "nbd")]
fn nbd() -> Option<Subject> {
    nbdkit(&[], Peer::uri, ())
}

#[cfg(feature = "tls")]
fn nbds() -> Option<Subject> {
    let certificates = crate::common::tls::Certificates::new()?;
    let folder = certificates.file("");
    let credentials = format!("--tls-certificates={folder}");
    let tls = ["--tls=require", "--tls-verify-peer", &credentials];
    let name = |peer: &Peer| {
        let socket = peer.socket().display().to_string();
        format!("nbds+unix://localhost/?socket={socket}&tls-certificates={folder}")
    };
    nbdkit(&tls, name, certificates)
}

/// An export of nbdkit.
#[cfg(feature = "nbd")]
fn nbdkit(tls: &[&str], name: impl Fn(&Peer) -> String, keep: impl Any) -> Option<Subject> {
    crate::common::nbd::has("nbdkit", "nbdkit").then_some(())?;
    let image = scratch(None)?;
    let path = image.path().to_str().expect("UTF-8");
    let args = [&["-f", "-r", "-U", "SOCKET"][..], tls, &["file", path]];
    let peer = Peer::start("nbdkit", &args.concat());
    Some(Subject {
        source: foreread::source::open(&name(&peer)).expect("opens"),
        replace: None,
        _keep: Box::new((peer, image, keep)),
    })
}

#[cfg(feature = "object")]
mod object {
    use super::{SIZE, Subject, named, pattern};
    use crate::common::stores::{Kind, Store};
    use foreread::source::object::{Object, ObjectSettings};
    use foreread_testing::HubServer;
    use std::sync::Arc;

    /// Several requests for most reads.
    fn settings(variables: Vec<(String, String)>) -> ObjectSettings {
        ObjectSettings {
            part_bytes: 64 << 10,
            variables,
            ..ObjectSettings::default()
        }
    }

    pub fn of(kind: Kind) -> Option<Subject> {
        let store = Arc::new(Store::start(kind)?);
        store.put("x", pattern(0, SIZE, 0));
        let object = Object::open_with(&store.name("x"), settings(store.variables()));
        let other = Arc::clone(&store);
        let subject = Subject::new(object.expect("opens"), store)?;
        Some(subject.replaced_by(move || other.put("x", pattern(0, SIZE, 1))))
    }

    /// A commit stays what it is, so there is no other version.
    pub fn hub(is_large: bool) -> Option<Subject> {
        let hub = HubServer::start().expect("two ports");
        if is_large {
            hub.put("u/r", "x", named(SIZE as u64));
        } else {
            hub.put_small("u/r", "x", pattern(0, SIZE, 0));
        }
        // Each address is good for this number of requests.
        hub.set_uses(400);
        let object = Object::open_with("hf://u/r/x", settings(hub.variables()));
        Subject::new(object.expect("opens"), hub)
    }
}

// ---- the checks ----

fn size(subject: &Subject) {
    assert_eq!(subject.source.size(), SIZE as u64);
    assert_eq!(subject.source.check(), Ok(SIZE as u64));
}

fn describe(subject: &Subject) {
    let text = subject.source.describe();
    let is_line = !text.is_empty() && !text.chars().any(char::is_control);
    assert!(is_line, "{text:?}");
}

fn granules(subject: &Subject) {
    let granules = subject.source.alignment();
    let numbers = [granules.offset, granules.memory];
    assert!(numbers.iter().all(|n| n.is_power_of_two()), "{granules:?}");
}

fn anything(subject: &Subject) {
    let mut rng = Rng(1);
    let mut memory = vec![0; 1 << 20];
    for _ in 0..100 {
        let (skip, offset) = (rng.below(5000) as usize, rng.below(SIZE as u64));
        let most = [1, 600, 5000, 200_000][rng.below(4) as usize];
        // Some buffers are empty, and some lists too.
        let mut len = || (rng.below(most) * rng.below(4).min(1)) as usize;
        let most_lens = [(); 4].map(|()| len());
        let lens = &most_lens[..rng.below(5) as usize];
        let mut rest = &mut memory[skip..];
        let mut bufs = Vec::new();
        for len in lens {
            let (front, back) = rest.split_at_mut(*len);
            bufs.push(IoSliceMut::new(front));
            rest = back;
        }
        let wanted = lens.iter().sum::<usize>();
        let read = subject.source.read_at(&mut bufs, offset);
        let read = read.unwrap_or_else(|error| panic!("{error}"));
        let there = wanted.min(SIZE - offset as usize);
        assert_eq!(read, there, "{lens:?} at {offset}");
        right(&memory[skip..skip + read], offset, 0);
    }
}

fn past_the_end(subject: &Subject) {
    let source = &*subject.source;
    let end = SIZE as u64;
    assert_eq!(read(source, end - 1, 100).map(|b| b.len()), Ok(1));
    for offset in [end, end + 1, end + 4096, 1 << 40] {
        assert_eq!(read(source, offset, 100), Ok(Vec::new()), "{offset}");
    }
    // Beyond what a file can be: nothing or an error, and no panic.
    let largest = i64::MAX as u64;
    for offset in [largest - 50, largest, u64::MAX - 99, u64::MAX] {
        let read = read(source, offset, 100);
        assert!(read.is_err() || read == Ok(Vec::new()), "{read:?}");
    }
    assert_eq!(read(source, 0, 0), Ok(Vec::new()));
}

fn threads(subject: &Subject) {
    let source = &*subject.source;
    in_threads(8, |thread| {
        let mut rng = Rng(thread);
        for _ in 0..50 {
            let offset = rng.below(SIZE as u64 - 20_000);
            read_right(source, offset, rng.below(20_000) as usize, 0);
        }
    });
}

fn reader(subject: &Subject) {
    for policy in ["none", "linux-6.18:max=256K", "rbd-plain"] {
        for threads in [0, 4] {
            let options = crate::common::by(policy, 512 << 10).threads(threads);
            let reader = Reader::open(Arc::clone(&subject.source), options).expect("opens");
            in_threads(3, |thread| {
                let own = reader.try_clone().expect("opens");
                let (mut buf, mut at) = (vec![0; 10_007 + thread as usize * 30_000], 0);
                while at < SIZE as u64 {
                    at += crate::common::read_and_check(&own, &mut buf, at, 0) as u64;
                }
            });
            let failed = (
                reader.stats().failed_reads,
                reader.engine().gauges().missed_calls,
            );
            assert_eq!(failed, (0, 0));
            let meter = reader.engine().meter();
            drop(reader);
            assert_eq!(meter.held_bytes(), 0);
        }
    }
}

fn version(subject: &Subject) {
    needs!(let replace = &subject.replace);
    let source = &*subject.source;
    let reader = plain(Arc::clone(&subject.source));
    replace();
    for _ in 0..2 {
        changed(read(source, 4096, 5000), "every read, until it is accepted");
        changed(source.check(), "every check");
    }
    let told = reader.read_at(&mut [0; 4096], 0);
    assert!(told.is_err(), "a reader on it gets an error");
    assert_eq!(source.accept(), SIZE as u64);
    read_right(source, 4096, 5000, 1);
    crate::common::read_and_check(&reader, &mut [0; 300_000], 500_000, 1);
}
