//! Tests of a real object store: `foreread check store URL` checks the properties on which foreread depends.
//!
//! The test writes nothing, and it reads at most a given number of bytes. If the URL names a prefix, the prefix is
//! listed first and one of its files is read; if it names an object, this object is read.
//!
//! ```text
//!   prefix ──► list ──► look-ups agree with it ──► a file of it ─┐
//!   object ──────────────────────────────────────────────────────┴─► version, ranges, end, threads, rate
//! ```
//! Example: the object `s3://bucket/big.bin` has 3 GB, and the limit is 256 MiB. The test first reads 128 MiB sequentially from the
//! start. Then the test reads 32 parts at random positions, one after the other, and again with eight threads. Finally, the test reads
//! the last byte, and a range beyond the end. After these reads, the test requests the object's version a second time.

use foreread::source::object::{Object, ObjectRequests, Prefix, names_a_prefix};
use foreread::source::tree::{Entry, FolderNames, Kind, Tree};
use foreread::source::{Source, SourceError, SourceName, SourceOpenError};
use foreread::{Options, Reader};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Number of pieces that are read at random positions, and their maximum length.
const PIECES: u64 = 32;
const PIECE_BYTES: u64 = 64 << 10;
const THREADS: u64 = 8;
/// Length of a sequential read.
const RECORD: usize = 1 << 20;
/// Names of a folder that are looked up individually.
const LOOKED_UP: usize = 3;

const NOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();

/// One property of the store that was tested, and the result of the test.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StoreCheck {
    pub check: &'static str,
    pub passed: bool,
    /// A line that describes what was observed.
    pub seen: String,
}

#[derive(Debug, Default, serde::Serialize)]
pub struct StoreOutcome {
    /// The credentials that requests carry; `None` if there are none.
    pub credentials: Option<String>,
    pub checks: Vec<StoreCheck>,
    pub requests: u64,
    pub bytes: u64,
    /// Bytes per second of sequential reads.
    pub rate: Option<f64>,
    /// Seconds until the header of the first answer.
    pub first_answer: Option<f64>,
}

impl StoreOutcome {
    fn add(&mut self, check: &'static str, done: Result<String, String>) {
        self.checks.push(StoreCheck {
            check,
            passed: done.is_ok(),
            seen: done.unwrap_or_else(|why| why),
        });
    }

    fn count(&mut self, asked: ObjectRequests) {
        self.requests += asked.requests;
        self.bytes += asked.bytes;
    }
}

/// Tests a store; all tests together read at most `limit` bytes.
pub fn run(name: &SourceName, limit: u64) -> Result<StoreOutcome, SourceOpenError> {
    let mut outcome = StoreOutcome::default();
    let object = if names_a_prefix(name) {
        let prefix = Prefix::open(name)?;
        let Some(path) = listing(&prefix, &mut outcome) else {
            return Ok(outcome);
        };
        let text = name.unredacted_text().unwrap_or_default();
        // A signature comes after the path.
        let (front, query) = text.split_at(text.find('?').unwrap_or(text.len()));
        let front = front.trim_end_matches('/');
        Object::open(format!("{front}/{}{query}", path.display()))?
    } else {
        Object::open(name)?
    };
    outcome.credentials = object.credentials();
    outcome.first_answer = object.answered_in().map(|time| time.as_secs_f64());
    let object = Arc::new(object);
    outcome.add("it has a version", version(&object));
    outcome.add("any range can be read repeatedly", pieces(&object, limit));
    outcome.add("a read after its end returns no bytes", end(&object));
    let done = in_order(&object, limit / 2, &mut outcome.rate);
    outcome.add("sequential reads with readahead", done);
    outcome.count(object.asked());
    Ok(outcome)
}

/// Lists a prefix, and returns its largest file.
fn listing(prefix: &Prefix, outcome: &mut StoreOutcome) -> Option<PathBuf> {
    let names = prefix.names(Path::new(""));
    let size = |entry: Entry| {
        let meta = entry.meta.filter(|_| entry.kind == Kind::File)?;
        Some((meta.size, PathBuf::from(entry.name)))
    };
    let found = names.as_ref().into_iter().flat_map(|names| names.entries());
    let files: Vec<_> = found.filter_map(size).collect();
    let seen = |names: Arc<FolderNames>| format!("{} names, {} files", names.len(), files.len());
    outcome.add(
        "its names can be listed",
        names.map(seen).map_err(|error| error.to_string()),
    );
    let looked_up = files.iter().take(LOOKED_UP).try_fold(0, |n, (size, path)| {
        let meta = prefix.look(path).map_err(|error| error.to_string())?;
        let is_same = meta.size == *size && meta.kind == Kind::File;
        is_same.then_some(n + 1).ok_or(format!(
            "a look-up of {} differs from the listing",
            path.display()
        ))
    });
    let seen = looked_up.map(|n: usize| format!("{n} of {n} names"));
    outcome.add("a look-up agrees with the listing", seen);
    let absent = prefix.look(Path::new("foreread-check-no-such-name"));
    let is_absent = absent
        .as_ref()
        .err()
        .is_some_and(|error| matches!(error, SourceError::Io { errno, .. } if *errno == NOENT));
    let seen = if is_absent {
        Ok("refused".to_string())
    } else {
        Err(format!("{absent:?}"))
    };
    outcome.add("a missing name is not found", seen);
    let (size, path) = files.into_iter().max()?;
    (size > 0).then_some(path)
}

fn version(object: &Object) -> Result<String, String> {
    let size = object.check().map_err(|error| error.to_string())?;
    if size != object.size() {
        return Err(format!(
            "{size} bytes now, but {} when it was opened",
            object.size()
        ));
    }
    let told_by = object.describe();
    let told_by = told_by.rsplit(", by ").next().unwrap_or_default();
    Ok(format!("by {told_by}; {size} bytes"))
}

/// Reads pieces at random positions: one after the other, and then with concurrent threads.
fn pieces(object: &Object, limit: u64) -> Result<String, String> {
    let size = object.size();
    let len = PIECE_BYTES.min(size).min(limit / 8 / PIECES).max(1);
    let places: Vec<u64> = (0..PIECES)
        .map(|n| (size - len.min(size)).saturating_mul(n * 7 % PIECES) / PIECES)
        .collect();
    let hash = |at: u64| -> Result<u64, String> {
        let bytes = read(object, at, len as usize)?;
        if bytes.len() as u64 != len.min(size) {
            return Err(format!("{} bytes of {len} at {at}", bytes.len()));
        }
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Ok(hasher.finish())
    };
    let first: Vec<u64> = places
        .iter()
        .map(|at| hash(*at))
        .collect::<Result<_, _>>()?;
    let again = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let (places, first, hash) = (&places, &first, &hash);
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let mine = (0..places.len()).filter(|n| *n as u64 % THREADS == thread);
                mine.into_iter().try_for_each(|n| {
                    let is_same = hash(places[n])? == first[n];
                    is_same.then_some(()).ok_or(format!(
                        "the second read at {} returned other bytes",
                        places[n]
                    ))
                })
            })
        });
        let threads: Vec<_> = threads
            .collect::<std::io::Result<_>>()
            .map_err(|e| e.to_string())?;
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Err("a panic".to_string())))
    });
    again.map(|()| format!("{PIECES} ranges of {len} bytes were read twice, by {THREADS} threads"))
}

fn end(object: &Object) -> Result<String, String> {
    let size = object.size();
    let last = if size == 0 {
        0
    } else {
        read(object, size - 1, 10)?.len()
    };
    let behind = read(object, size, 10)?.len() + read(object, size + (1 << 20), 10)?.len();
    if last as u64 == size.min(1) && behind == 0 {
        Ok("the last byte was read, and no byte after it".to_string())
    } else {
        Err(format!(
            "{last} bytes at the end of the object, {behind} bytes after it"
        ))
    }
}

/// Reads with the default policy, and compares the bytes with those of single reads.
fn in_order(object: &Arc<Object>, limit: u64, rate: &mut Option<f64>) -> Result<String, String> {
    let source: Arc<dyn Source> = object.clone();
    let reader = Reader::open(source, Options::default()).map_err(|error| error.to_string())?;
    let wanted = object.size().min(limit);
    let mut buf = vec![0; RECORD];
    let (since, mut at) = (Instant::now(), 0);
    while at < wanted {
        let len = RECORD.min((wanted - at) as usize);
        let n = reader
            .read_at(&mut buf[..len], at)
            .map_err(|error| error.to_string())?;
        if n == 0 {
            return Err(format!("the read ended after {at} of {wanted} bytes"));
        }
        if at == 0 && read(object, 0, n)? != buf[..n] {
            return Err("the bytes differ from those of a single read".to_string());
        }
        at += n as u64;
    }
    let seconds = since.elapsed().as_secs_f64().max(1e-9);
    *rate = (wanted > 0).then_some(wanted as f64 / seconds);
    Ok(format!("{:.1} MB in {seconds:.2} s", wanted as f64 / 1e6))
}

fn read(object: &Object, at: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut buf = vec![0; len];
    let read = object.read_at(&mut [IoSliceMut::new(&mut buf)], at);
    buf.truncate(read.map_err(|error| error.to_string())?);
    Ok(buf)
}
