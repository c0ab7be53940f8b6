//! Helpers that several test files share.
#![allow(dead_code, reason = "each test file uses its part")]

#[cfg(feature = "nbd")]
pub mod nbd;
#[cfg(feature = "object")]
pub mod stores;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "object")]
use foreread::source::object::ObjectSettings;
use foreread::source::{Mem, Source, SourceError};
use foreread::{Gauges, Options, Origin, Reader};
use foreread_testing as testing;
pub use foreread_testing::machine::{LoopDisk, SmallDisk, wait_until};
#[cfg(feature = "object")]
use foreread_testing::{Lie, ServedAnswer, ServedRequest};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::IoSliceMut;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Numbers that look random and are the same in every run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A source of self-naming bytes.
pub fn named(size: u64) -> Mem {
    watch();
    Mem::generated(size, |offset, buf| testing::fill(buf, offset, 0))
}

/// A file of self-naming bytes of this version.
pub fn file_of(size: usize, version: u16) -> tempfile::NamedTempFile {
    watch();
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(file.path(), testing::pattern(0, size, version)).expect("room");
    file
}

/// Bytes of a source from `offset` on, up to its end.
pub fn read_source(source: &dyn Source, offset: u64, len: usize) -> Result<Vec<u8>, SourceError> {
    let mut buf = vec![0; len];
    let read = source.read_at(&mut [IoSliceMut::new(&mut buf)], offset)?;
    buf.truncate(read);
    Ok(buf)
}

/// These bytes are those of the pattern in this version.
#[track_caller]
pub fn right(bytes: &[u8], offset: u64, version: u16) {
    if let Err(wrong) = testing::check(bytes, offset, version) {
        panic!("{} bytes at {offset}: {wrong}", bytes.len());
    }
}

/// Reads from a source of the pattern, as far as it goes, and checks every byte.
#[track_caller]
pub fn read_right(source: &dyn Source, offset: u64, len: usize, version: u16) {
    let bytes = read_source(source, offset, len).unwrap_or_else(|error| panic!("{error}"));
    let left = source.size().saturating_sub(offset);
    assert_eq!(bytes.len() as u64, left.min(len as u64));
    right(&bytes, offset, version);
}

/// It is the error that says that the source has changed.
#[track_caller]
pub fn changed<T: Debug>(read: Result<T, SourceError>, what: &str) {
    let is_change = matches!(read, Err(SourceError::Changed { .. }));
    assert!(is_change, "{what}: {read:?}");
}

/// The error of what has to fail; its success need not be printable.
#[track_caller]
pub fn refused<T, E>(done: Result<T, E>, what: &str) -> E {
    match done {
        Ok(_) => panic!("not refused: {what}"),
        Err(error) => error,
    }
}

/// Does the work in as many threads at once; each gets its number.
pub fn in_threads(many: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..many {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

/// This policy, and a cache of this size.
pub fn by(policy: &str, cache_bytes: u64) -> Options {
    Options::default().policy(policy).cache_bytes(cache_bytes)
}

/// A reader of a source or a name that reads nothing ahead.
pub fn plain(origin: impl Into<Origin>) -> Reader {
    watch();
    Reader::open(origin, Options::default().policy("none")).expect("opened")
}

/// A reader on a source of the test's own.
pub fn opened(source: impl Source + 'static, options: Options) -> Reader {
    watch();
    Reader::open(Arc::new(source), options).expect("opened")
}

/// All bytes of a source, and what it gives behind them.
pub fn read_all(source: &dyn Source) -> Result<Vec<u8>, SourceError> {
    read_source(source, 0, source.size() as usize + 10)
}

/// For an honest server: it is asked again at once.
#[cfg(feature = "object")]
pub fn object_settings(variables: Vec<(String, String)>) -> ObjectSettings {
    ObjectSettings {
        variables,
        pause: Duration::from_millis(1),
        ..ObjectSettings::default()
    }
}

/// Settings with these variables, such as `HOME=/x AWS_PROFILE=y`.
#[cfg(feature = "object")]
pub fn settings_of(variables: &str) -> ObjectSettings {
    let pairs = variables.split_whitespace();
    let pairs = pairs.map(|pair| pair.split_once('=').expect("a value"));
    let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
    object_settings(pairs.collect())
}

/// The part of an object of the pattern that is asked for, with all headers that any store needs.
#[cfg(feature = "object")]
pub fn part_of(seen: &ServedRequest, size: u64) -> ServedAnswer {
    let range = seen.range().unwrap_or(0..1);
    let (from, end) = (range.start, range.end.min(size));
    let mut answer = ServedAnswer::new(206, testing::pattern(from, (end - from) as usize, 0));
    answer.set("content-range", &format!("bytes {from}-{}/{size}", end - 1));
    answer.set("etag", "\"one\"");
    answer.set("x-goog-generation", "1");
    answer.set("last-modified", "Fri, 02 Jan 2026 03:04:05 GMT");
    answer
}

/// Short pauses, and deadlines that an honest server keeps on a busy machine too.
#[cfg(feature = "object")]
pub fn short_settings(variables: Vec<(String, String)>) -> ObjectSettings {
    ObjectSettings {
        first_byte: Duration::from_secs(1),
        stall: Duration::from_secs(1),
        total: Duration::from_secs(20),
        retries: 2,
        part_bytes: 64 << 10,
        ..object_settings(variables)
    }
}

/// Wrong answers that no retry can mend, and the words of the line that says so.
#[cfg(feature = "object")]
pub const UNMENDABLE: [(Lie, &str); 13] = [
    (Lie::IgnoreRange, "does not support ranges"),
    (Lie::ContentRange, "a different part"),
    (Lie::NoContentRange, "has no Content-Range"),
    (Lie::Length(-1), "4095 bytes, but 4096"),
    (Lie::Length(1), "4097 bytes, but 4096"),
    (Lie::Gzip, "compressed (gzip)"),
    (Lie::NoEtag, "reply has no ETag"),
    (Lie::Status(403, None), "answered 403"),
    (Lie::Status(404, None), "answered 404"),
    (Lie::Status(429, Some(3600)), "answered 429"),
    (Lie::RedirectLoop, "redirects"),
    (Lie::EndlessHeaders, "makes no sense"),
    (Lie::Garbage, "makes no sense"),
];

/// Wrong answers that pass when they are asked for again; three of them wait for deadlines.
#[cfg(feature = "object")]
pub const PASSING: [Lie; 11] = [
    Lie::Status(500, None),
    Lie::Status(503, Some(0)),
    Lie::Status(429, None),
    Lie::Silence,
    Lie::Stall(10_000),
    Lie::Stall(0),
    Lie::Reset(0),
    Lie::Reset(10_000),
    Lie::Close(0),
    Lie::Close(10_000),
    Lie::EndlessError,
];

/// Ends the whole run when the test that calls this hangs: a read that never returns is an error, not a long wait.
///
/// A test has a thread to itself; when that ends, or its next test begins, the sender goes and the watch with it.
pub fn watch() {
    thread_local!(static RUNNING: RefCell<Option<Sender<()>>> = const { RefCell::new(None) });
    if std::env::var_os("FOREREAD_READS").is_some() {
        // A long run on purpose.
        return;
    }
    let (running, ended) = channel::<()>();
    RUNNING.replace(Some(running));
    let test = std::thread::current();
    let test = test.name().unwrap_or("a test").to_string();
    std::thread::spawn(move || {
        if ended.recv_timeout(TEST_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{test} still runs after {TEST_TIMEOUT:?}: it hangs");
            std::process::exit(101);
        }
    });
}

/// How long one test may take. The longest take 20 s on two busy cores.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Set where this process is one test's alone: what the system refuses, it refuses to every thread.
const ALONE: &str = "FOREREAD_TEST_ALONE";

/// The name of the test in whose body this is, as `faults::a_panic_is_an_error`.
macro_rules! this_test {
    () => {{
        fn here() {}
        crate::common::test_of(std::any::type_name_of_val(&here))
    }};
}
pub(crate) use this_test;

/// The test that has the item with this path.
pub fn test_of(item: &'static str) -> &'static str {
    let test = item.strip_suffix("::here").expect("an item of a test");
    test.split_once("::").expect("a module of this binary").1
}

/// The arguments by which the test binary runs this one test.
pub fn only(test: &str) -> [&str; 4] {
    [test, "--exact", "--nocapture", "--test-threads=1"]
}

/// Whether this process is the test's alone. If not, the test runs in another process. `needs!(is_alone(this_test!()));`
pub fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut me = Command::new(std::env::current_exe().expect("this test"));
    let again = me.args(only(test)).env(ALONE, "1").output();
    passed(&again.expect("started"));
    false
}

/// A runtime of as many threads, or of the calling one alone.
pub fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if threads > 0 {
        builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads);
    }
    builder.enable_all().build().expect("a runtime")
}

/// What `tracing` passes to a subscriber from this crate: the fields of each span, with its name in `span`, and the warnings.
#[derive(Clone, Default)]
pub struct Traced {
    pub spans: Arc<Mutex<Vec<SpanFields>>>,
    pub warnings: Arc<Mutex<Vec<String>>>,
}

pub type SpanFields = BTreeMap<&'static str, String>;

struct FieldsOf<'a>(&'a mut SpanFields);

impl Visit for FieldsOf<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Traced {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        let is_kept = of.is_span() || *of.level() <= tracing::Level::WARN;
        is_kept && of.target().starts_with("foreread")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut all = self.spans.lock().expect("no panic");
        let name = attributes.metadata().name();
        let mut fields = BTreeMap::from([("span", name.to_string())]);
        attributes.record(&mut FieldsOf(&mut fields));
        all.push(fields);
        Id::from_u64(all.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut all = self.spans.lock().expect("no panic");
        values.record(&mut FieldsOf(&mut all[id.into_u64() as usize - 1]));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = SpanFields::new();
        event.record(&mut FieldsOf(&mut fields));
        let mut all = self.warnings.lock().expect("no panic");
        all.extend(fields.remove("message"));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Fails with what a program printed, if that failed. Its lines begin with `|`: `./test` counts failed tests by the lines of this process, and not by those of a test that ran in another.
#[track_caller]
pub fn passed(out: &std::process::Output) {
    let [text, errors] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let printed = format!("{text}{errors}").replace('\n', "\n| ");
    assert!(out.status.success(), "\n| {printed}");
}

/// Waits until nothing runs; readahead may outlive the reads that caused it.
pub fn quiet(reader: &Reader) -> Gauges {
    wait_until("something still runs", || {
        let now = reader.engine().gauges();
        now.reads + now.queued_fetches + now.running_fetches + now.open_fetches == 0
    });
    let gauges = reader.engine().gauges();
    assert_eq!(gauges.missed_calls, 0, "a thread was not woken");
    gauges
}

/// Memory follows the pages: at least their bytes, at most twice as much.
pub fn check_memory(gauges: &Gauges, page_bytes: u64) {
    let bytes = gauges.pages * page_bytes;
    let is_within = (bytes..=bytes * 2).contains(&gauges.held_bytes);
    assert!(is_within, "{gauges:?}");
}

/// Reads and checks every byte; returns how many there were.
pub fn read_and_check(reader: &Reader, buf: &mut [u8], offset: u64, version: u16) -> usize {
    let len = reader.read_at(buf, offset);
    let len = len.unwrap_or_else(|error| panic!("{error}"));
    right(&buf[..len], offset, version);
    len
}
