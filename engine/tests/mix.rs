//! Six threads read while the storage fails in every way that its test double supports, one after another: each read
//! gets the bytes of one version or an error, none hangs, and after each fault the next reads succeed.
//!
//! ```text
//!   6 threads ──► reader ──► object over HTTP ──► a server that is honest, then wrong, then honest again, ...
//!     ├─────────► reader ──► NBD ──► server ──► another reader of the same object
//!     └─────────► reader ──► cache on disk of a third of it ──► shared folder of half of it ──► the same object
//! ```
//! It runs for 20 seconds, and with `FOREREAD_SECONDS=600 ./test-long mix` for ten minutes. The seed is printed, and
//! `FOREREAD_SEED` sets it.

use crate::common::Rng;
use crate::common::nbd::Served;
use foreread::front::nbd::NbdSettings;
use foreread::source::disk_cache::DiskCache;
use foreread::source::object::{Object, ObjectSettings};
use foreread::source::{Mem, Source};
use foreread::{Options, Reader};
use foreread_testing::{self as testing, Lie, RangeServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SIZE: u64 = 24 << 20;
/// A cache of a third of it, so that most reads fetch.
const CACHE_BYTES: u64 = 8 << 20;
const THREADS: u64 = 6;
/// The longest read.
const MAX_READ: u64 = 300_000;

/// What is wrong for a while: with the server's answers, or with the object.
#[derive(Clone, Debug)]
enum Fault {
    Answers(Lie),
    Replaced,
}

fn faults() -> Vec<Fault> {
    let answers = [
        Lie::IgnoreRange,
        Lie::ContentRange,
        Lie::NoContentRange,
        Lie::OtherSize,
        Lie::Length(7),
        Lie::Length(-7),
        Lie::Gzip,
        Lie::OtherEtag,
        Lie::NoEtag,
        Lie::Silence,
        Lie::Stall(5000),
        Lie::Reset(5000),
        Lie::Close(5000),
        Lie::Status(503, Some(0)),
        Lie::Status(500, None),
        Lie::Status(404, None),
        Lie::EndlessError,
        Lie::RedirectLoop,
        Lie::EndlessHeaders,
        Lie::Garbage,
    ];
    let answers = answers.map(Fault::Answers).into_iter();
    answers.chain([Fault::Replaced]).collect()
}

fn object(version: u16) -> Mem {
    Mem::generated(SIZE, move |offset, buf| testing::fill(buf, offset, version))
}

fn settings() -> ObjectSettings {
    ObjectSettings {
        first_byte: Duration::from_millis(500),
        stall: Duration::from_millis(500),
        total: Duration::from_secs(5),
        retries: 1,
        pause: Duration::from_millis(1),
        variables: Vec::new(),
        ..ObjectSettings::default()
    }
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Versions of the object so far.
    versions: AtomicU64,
    reads: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

/// Ends the readers however the test ends: one that fails shall say why at once, and not hang until it is ended.
struct StopAtEnd<'a>(&'a Shared);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// One read at a random place. True where it had bytes.
fn read(reader: &Reader, rng: &mut Rng, shared: &Shared) -> bool {
    let (offset, len) = (rng.below(SIZE), 1 + rng.below(MAX_READ));
    let mut bytes = vec![0; len as usize];
    let got = reader.read_at(&mut bytes, offset);
    shared.reads.fetch_add(1, Ordering::Relaxed);
    let Ok(got) = got else {
        shared.errors.fetch_add(1, Ordering::Relaxed);
        return false;
    };
    assert_eq!(got as u64, len.min(SIZE - offset), "at {offset}");
    let versions = shared.versions.load(Ordering::SeqCst) as u16;
    let wrong = |version| testing::check(&bytes[..got], offset, version).is_err();
    let is_wrong = (0..=versions).all(wrong);
    assert!(!is_wrong, "{got} bytes at {offset} are of no version alone");
    shared.bytes.fetch_add(got as u64, Ordering::Relaxed);
    true
}

/// Reads succeed again: within the time that a server has for an answer, with tries that begin as soon as the last one failed.
fn heals(reader: &Reader, rng: &mut Rng, shared: &Shared, fault: &Fault, seed: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while !read(reader, rng, shared) {
        let is_late = Instant::now() >= until;
        assert!(!is_late, "no read succeeds after {fault:?}, seed {seed}");
        std::thread::yield_now();
    }
}

#[test]
fn every_fault_costs_errors_and_no_wrong_byte() {
    let number = |name: &str, usual: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let seed = number("FOREREAD_SEED", std::process::id().into());
    let time = Duration::from_secs(number("FOREREAD_SECONDS", 20));
    let server = RangeServer::start(object(0)).expect("a port");
    let options = || Options::default().cache_bytes(CACHE_BYTES);
    let open = || -> Arc<dyn Source> {
        Arc::new(Object::open_with(&server.url(), settings()).expect("an object"))
    };
    let direct = Reader::open(open(), options()).expect("opened");
    let behind = Reader::open(open(), options()).expect("opened");
    let served = Served::of(behind, NbdSettings::default());
    let by_nbd = Reader::open(served.uri(), options()).expect("opened");
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let cache = format!(
        "{0}/own,size=8M,free=0,slow-disk=read,shared={0}/shared,shared-size=12M",
        dir.path().display()
    );
    let cache = DiskCache::named(&cache).expect("a cache").expect("on");
    let cached = Reader::open(cache.over(open()), options()).expect("opened");
    let shared = Arc::new(Shared::default());
    println!("seed {seed}");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&shared);
        for thread in 0..THREADS {
            let reader = [&direct, &by_nbd, &cached][thread as usize % 3];
            let reader = reader.try_clone().expect("another");
            let shared = Arc::clone(&shared);
            scope.spawn(move || {
                let mut rng = Rng(seed ^ thread << 32 | 1);
                while !shared.stop.load(Ordering::Relaxed) {
                    read(&reader, &mut rng, &shared);
                }
            });
        }
        let (all, mut rng) = (faults(), Rng(seed | 1));
        let mut seen = vec![0_u64; all.len()];
        while begun.elapsed() < time || seen.contains(&0) {
            let unseen = seen.iter().position(|times| *times == 0);
            let nth = unseen.unwrap_or(rng.below(all.len() as u64) as usize);
            seen[nth] += 1;
            match &all[nth] {
                Fault::Answers(lie) => server.lie(lie.clone(), 1 + rng.below(8)),
                Fault::Replaced => {
                    let version = shared.versions.fetch_add(1, Ordering::SeqCst) + 1;
                    let etag = format!("\"{version}\"");
                    server.replace(object(version as u16), Some(&etag), None);
                }
            }
            // Until some reads have ended, or wait for an answer that does not come.
            let enough = shared.reads.load(Ordering::Relaxed) + 1 + rng.below(16);
            let until = Instant::now() + Duration::from_millis(300);
            while shared.reads.load(Ordering::Relaxed) < enough && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.honest();
            for reader in [&direct, &by_nbd, &cached] {
                heals(reader, &mut rng, &shared, &all[nth], seed);
            }
        }
        println!("{} faults of {} kinds", seen.iter().sum::<u64>(), all.len());
    });
    let [reads, errors, bytes] =
        [&shared.reads, &shared.errors, &shared.bytes].map(|n| n.load(Ordering::Relaxed));
    let took = begun.elapsed();
    println!("{reads} reads, {errors} errors, {bytes} bytes compared in {took:?}");
    let (own, tier) = (cache.counts(), cache.shared_counts());
    println!("{own:?} {tier:?}");
    assert!(own.hits > 0, "{own:?}");
    let is_enough = errors > 0 && bytes > SIZE;
    assert!(is_enough, "{reads} reads, {errors} errors, {bytes} bytes");
}
