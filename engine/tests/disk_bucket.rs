//! Tests of a disk cache whose data machines share through a bucket: each piece is fetched once from the store, and the
//! bytes are right whatever the bucket contains or answers. Each test runs with every emulator that is installed;
//! missing ones are reported: `skipped: needs X`.
//!
//! ```text
//!   machine a ──► folder a ─┬─► bucket (emulator behind a proxy) ──► the store (bytes in memory, counted)
//!   machine b ──► folder b ─┘
//! ```

use crate::common::stores::{Kind, Store as Bucket};
use crate::common::{Traced, is_alone, object_settings, read_all, this_test};
use crate::disk_cache::{Rig, Store, flushed, read, whole};
use crate::stores::lists;
use foreread::source::disk_cache::{
    DiskCache, DiskCacheCounts, DiskCacheSettings, SharedBucket, SharedCache,
};
use foreread::source::{Object, Source};
use foreread_testing::{Latch, Method, ServedAnswer, ServedRequest, needs};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PREFIX: &str = "near/pieces";

struct Machines<'b> {
    rig: Rig,
    bucket: &'b Bucket,
    /// Long, so that a machine that is busy is not taken for a bucket that is slow.
    patience: Duration,
}

impl Machines<'_> {
    fn new(bucket: &Bucket) -> Machines<'_> {
        Machines {
            rig: Rig::new(),
            bucket,
            patience: Duration::from_secs(300),
        }
    }

    /// The bucket has a store of as many pieces, which the first machine has read.
    fn filled(bucket: &Bucket, pieces: u64) -> (Machines<'_>, Arc<Store>) {
        let (machines, store) = (Machines::new(bucket), Store::new("s/a", pieces * MIB));
        let first = machines.open("a");
        read(&first, &store, &pieces_of(&store));
        flushed(&first);
        (machines, store)
    }

    /// One with a folder of this name.
    fn open(&self, name: &str) -> DiskCache {
        let shared = SharedBucket {
            name: self.bucket.name(PREFIX).into(),
            endpoint_url: None,
            profile: None,
            patience: self.patience,
        };
        let settings = DiskCacheSettings {
            dir: self.rig.dir.path().join(name),
            shared: Some(SharedCache::Bucket(shared)),
            ..self.rig.settings.clone()
        };
        let objects = object_settings(self.bucket.variables());
        DiskCache::open_with(settings, objects).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Keys and bytes of the objects that were put so far.
    fn pieces(&self) -> BTreeMap<String, Vec<u8>> {
        let seen = self.bucket.objects.seen();
        let puts = seen.iter().filter(|seen| seen.method == "PUT");
        let keys = puts.filter_map(|seen| {
            let path = seen.target.split('?').next()?;
            Some(path[path.find(PREFIX)?..].to_string())
        });
        keys.map(|key| {
            let object = Object::open_with(self.bucket.name(&key), self.bucket.settings());
            let object = object.unwrap_or_else(|error| panic!("{key}: {error}"));
            (key, read_all(&object).expect("read"))
        })
        .collect()
    }
}

/// Every emulator that may be a bucket.
fn each(work: impl Fn(&Bucket)) {
    let buckets = Bucket::all().filter(|bucket| bucket.kind != Kind::Hub);
    buckets.for_each(|bucket| {
        println!("{:?}", bucket.kind);
        work(&bucket);
    });
}

/// Those that take a PUT: fake-gcs-server is written by the JSON interface of Google alone, which object_store does not use.
fn each_writable(work: impl Fn(&Bucket)) {
    each(|bucket| match bucket.kind {
        Kind::Google => {
            println!("skipped: needs a server of Google's XML interface that takes a PUT")
        }
        _ => work(bucket),
    });
}

/// Ranges that become one piece each.
fn pieces_of(store: &Store) -> Vec<(u64, usize)> {
    let count = store.size() / MIB;
    (0..count).map(|n| (n * MIB, MIB as usize)).collect()
}

fn shared_counts(cache: &DiskCache) -> DiskCacheCounts {
    cache.shared_counts().expect("a bucket")
}

#[test]
fn machines_that_share_a_bucket_fetch_one_copy() {
    let put = Mutex::new(BTreeMap::new());
    each(|bucket| {
        let machines = Machines::new(bucket);
        let store = Store::new("s/a", 5 * MIB + 17);
        let first = machines.open("a");
        read(&first, &store, &whole(&store));
        flushed(&first);
        let counts = shared_counts(&first);
        assert_eq!(store.asked().1, store.size());
        let mut put = put.lock().expect("no panic");
        if bucket.kind == Kind::Google {
            if put.is_empty() {
                return println!("skipped: needs a store that takes a PUT");
            }
            // As another store has got it.
            put.iter()
                .for_each(|(key, bytes): (&String, &Vec<u8>)| bucket.put(key, bytes.clone()));
        } else {
            assert_eq!(counts.written_bytes, store.size(), "{counts:?}");
            *put = machines.pieces();
        }
        let before = store.asked();
        let late = machines.open("b");
        read(&late, &store, &whole(&store));
        assert_eq!(flushed(&late).written_bytes, store.size());
        let counts = shared_counts(&late);
        assert_eq!(counts.hit_bytes, store.size(), "{counts:?}");
        assert_eq!((counts.written, counts.wrong), (0, 0), "{counts:?}");
        // Parts of pieces: their fronts, their ends, and what crosses from one to the next.
        let ranges = [
            (0, 1),
            (MIB - 1, 2),
            (70_000, 5),
            (2 * MIB + 600_000, 65_536),
            (3 * MIB - 40_000, 80_000),
            (store.size() - 1, 10),
        ];
        read(&machines.open("c"), &store, &ranges);
        assert_eq!(store.asked(), before, "nothing is asked again");
    });
}

#[test]
fn invalid_runs_in_a_bucket_are_fetched_again() {
    each_writable(|bucket| {
        let (machines, store) = Machines::filled(bucket, 6);
        let pieces: Vec<(String, Vec<u8>)> = machines.pieces().into_iter().collect();
        assert_eq!(pieces.len(), 6);
        let cut = pieces[0].1[..70_000].to_vec();
        let (mut flipped, mut no_header) = (pieces[1].1.clone(), pieces[2].1.clone());
        flipped[500_000] ^= 4;
        no_header[20] ^= 1;
        let of_another = pieces[4].1.clone();
        for (key, bytes) in pieces.iter().zip([cut, flipped, no_header, of_another]) {
            bucket.put(&key.0, bytes);
        }
        bucket.delete(&pieces[4].0);
        // What is no name of a run.
        let (folder, _) = pieces[0].0.rsplit_once('/').expect("a folder");
        for name in ["0.0", "zz.1", "about", "ffffffffffffffff.2", "100000.1"] {
            bucket.put(&format!("{folder}/{name}"), vec![1; 5000]);
        }
        let before = store.asked().1;
        let other = machines.open("b");
        read(&other, &store, &whole(&store));
        flushed(&other);
        let counts = shared_counts(&other);
        assert_eq!(store.asked().1 - before, 5 * MIB, "{counts:?}");
        assert!(counts.wrong >= 4, "{counts:?}");
        assert_eq!(counts.read_errors, 0, "{counts:?}");
        // What was fetched was put in their places.
        let before = store.asked();
        let late = machines.open("c");
        read(&late, &store, &whole(&store));
        assert_eq!(store.asked(), before);
    });
}

/// A listing without an end is asked ever more rarely and given up: the reads go on by the store.
#[test]
fn an_endless_bucket_listing_is_abandoned() {
    let bucket = Bucket::start(Kind::Memory).expect("a port");
    let pages = AtomicU64::new(0);
    bucket.names.edit(move |seen, answer| {
        needs!(lists(seen));
        let page = pages.fetch_add(1, Ordering::Relaxed);
        let mut query = seen.target.split(['?', '&']);
        let prefix = query.find_map(|pair| pair.strip_prefix("prefix="));
        let prefix = percent_encoding::percent_decode_str(prefix.unwrap_or("")).decode_utf8_lossy();
        let key = format!("<Key>{prefix}name-{page}</Key><Size>1</Size>");
        let token = format!("<NextContinuationToken>{page}</NextContinuationToken>");
        let more = format!("<IsTruncated>true</IsTruncated>{token}<Contents>{key}</Contents>");
        answer.status = 200;
        answer.body = format!("<ListBucketResult>{more}</ListBucketResult>").into_bytes();
    });
    let machines = Machines {
        patience: Duration::from_secs(60),
        ..Machines::new(&bucket)
    };
    let store = Store::new("s/a", 3 * MIB);
    let cache = machines.open("a");
    read(&cache, &store, &whole(&store));
    let asked = bucket
        .names
        .seen()
        .iter()
        .filter(|seen| lists(seen))
        .count();
    assert!((2..=12).contains(&asked), "{asked}");
    let counts = shared_counts(&cache);
    assert_eq!((counts.read_errors, counts.hit_bytes), (1, 0), "{counts:?}");
}

/// A piece that goes between the listing and the read.
#[test]
fn a_piece_that_was_removed_is_fetched_again() {
    each_writable(|bucket| {
        let (machines, store) = Machines::filled(bucket, 3);
        let late = machines.open("b");
        // Held, so that it is not listed anew.
        let held = late.over(store.clone());
        let mut byte = [0];
        let read_one = held.read_at(&mut [IoSliceMut::new(&mut byte)], 0);
        assert_eq!(read_one, Ok(1));
        for key in machines.pieces().keys() {
            bucket.delete(key);
        }
        let before = store.asked().1;
        read(&late, &store, &[(MIB, 2 * MIB as usize)]);
        assert_eq!(store.asked().1 - before, 2 * MIB);
        let counts = shared_counts(&late);
        assert_eq!((counts.wrong, counts.read_errors), (0, 0), "{counts:?}");
    });
}

/// The lines about a bucket since the last call; none with a secret.
fn lines(traced: &Traced) -> Vec<String> {
    let all = std::mem::take(&mut *traced.warnings.lock().expect("no panic"));
    for line in &all {
        let secret = |text: &str| line.contains(text);
        assert!(!secret("Signature") && !secret("AccountKey"), "{line}");
    }
    all
}

fn refuse(bucket: &Bucket, is_refused: impl Fn(&ServedRequest) -> bool + Send + Sync + 'static) {
    bucket.objects.edit(move |seen, answer| {
        if is_refused(seen) {
            *answer = ServedAnswer::error(403, "AccessDenied");
        }
    });
}

/// In a process without other tests, whose lines are its own.
#[test]
fn a_bucket_that_refuses_costs_one_line_and_no_read() {
    needs!(is_alone(this_test!()));
    let traced = Traced::default();
    tracing::subscriber::set_global_default(traced.clone()).expect("the first");
    each(|bucket| {
        let machines = Machines::new(bucket);
        let read_by = |name: &str| {
            let (cache, store) = (machines.open(name), Store::new(name, 4 * MIB));
            read(&cache, &store, &whole(&store));
            flushed(&cache);
            assert_eq!(store.asked().1, store.size());
            let said = lines(&traced);
            assert_eq!(said.len(), 1, "{said:?}");
            (shared_counts(&cache), said.concat())
        };
        // Nothing is allowed.
        refuse(bucket, |_| true);
        let (counts, said) = read_by("a");
        assert_eq!(counts.written, 0, "{counts:?}");
        assert!(counts.read_errors > 0, "{counts:?}");
        assert!(said.contains(PREFIX) && said.contains("403"), "{said}");
        // To write alone is not allowed.
        refuse(bucket, |seen| seen.method == "PUT");
        let (counts, said) = read_by("b");
        assert!(counts.refused_writes > 0, "{counts:?}");
        assert_eq!((counts.written, counts.read_errors), (0, 0), "{counts:?}");
        assert!(said.contains("writing failed"), "{said}");
        bucket.honest();
    });
}

#[test]
fn without_its_server_a_bucket_costs_no_read() {
    needs!(let bucket = Bucket::start(Kind::S3));
    let machines = Machines::new(&bucket);
    let store = Store::new("s/a", 4 * MIB);
    // Nothing listens there.
    let endpoint = "http://127.0.0.1:1";
    let text = format!(
        "{},free=0,slow-disk=read,shared=s3://bucket/{PREFIX},shared-endpoint={endpoint}",
        machines.rig.dir.path().join("a").display()
    );
    let settings = DiskCacheSettings::parse(&text).expect("a notation");
    let cache = DiskCache::open_with(settings, object_settings(bucket.variables()));
    let cache = cache.unwrap_or_else(|error| panic!("{error}"));
    read(&cache, &store, &whole(&store));
    flushed(&cache);
    let counts = shared_counts(&cache);
    assert_eq!(store.asked().1, store.size());
    let (reads, writes) = (counts.read_errors, counts.refused_writes);
    assert!(reads > 0 && writes > 0, "{counts:?}");
}

/// The bucket takes requests for pieces and gives no answer, or refuses each.
#[test]
fn a_bucket_that_hangs_costs_no_read() {
    needs!(let bucket = Bucket::start(Kind::S3));
    let (mut machines, store) = Machines::filled(&bucket, 8);
    let is_piece = |seen: &ServedRequest| seen.method == "GET" && !seen.target.contains('?');
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    bucket.objects.edit(move |seen, answer| {
        if is_piece(seen) {
            counted.fetch_add(1, Ordering::SeqCst);
            *answer = ServedAnswer::error(403, "InvalidObjectState");
        }
    });
    let cache = machines.open("b");
    read(&cache, &store, &pieces_of(&store));
    let counts = shared_counts(&cache);
    assert_eq!(store.asked().1, 2 * store.size(), "{counts:?}");
    assert_eq!((counts.hit_bytes, counts.read_errors), (0, 3), "{counts:?}");
    let asked_now = || asked.load(Ordering::SeqCst);
    assert_eq!(asked_now(), 3, "then it is left alone");

    machines.patience = Duration::from_millis(100);
    let latch = Arc::new(Latch::default());
    latch.hang(Method::ReadAt);
    let (held, counted) = (Arc::clone(&latch), Arc::clone(&asked));
    bucket.objects.edit(move |seen, _| {
        if is_piece(seen) {
            counted.fetch_add(1, Ordering::SeqCst);
            held.pass(Method::ReadAt);
        }
    });
    let cache = machines.open("c");
    read(&cache, &store, &pieces_of(&store));
    assert_eq!(store.asked().1, 3 * store.size());
    let counts = shared_counts(&cache);
    assert_eq!(counts.hit_bytes, 0, "{counts:?}");
    assert!(asked_now() <= 4, "left alone at once: {}", asked_now());
    latch.release();
}
