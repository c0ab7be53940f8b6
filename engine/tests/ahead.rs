//! Tests with a program's own `ObjectStore`: read as a source, and with readahead in front of it.
//!
//! No test waits for a fixed time. `ThrottledStore` makes requests overlap.

use crate::common::{opened, runtime};
use foreread::front::Ahead;
use foreread::source::{Object, Source, SourceError};
use foreread::{ErrorKind, Options};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions,
};
use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SIZE: usize = 5_000_001;

/// Bytes that say where they are, and of which version.
fn pattern(version: u8, size: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8 ^ version;
    (0..size).map(byte).collect()
}

fn payload(version: u8, size: usize) -> PutPayload {
    pattern(version, size).into()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    runtime(2).block_on(work)
}

fn slow(store: Arc<InMemory>) -> ThrottledStore<Arc<InMemory>> {
    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(2),
        ..ThrottleConfig::default()
    };
    ThrottledStore::new(store, config)
}

fn ahead<S: ObjectStore>(store: S) -> Ahead<S> {
    Ahead::new(store, Options::default().cache_bytes(8 << 20)).expect("it fits")
}

#[test]
fn an_object_of_a_programs_store_is_a_source() {
    let store = Arc::new(InMemory::new());
    let (path, empty) = (Path::from("a/b"), Path::from("empty"));
    run(store.put(&path, payload(1, SIZE))).expect("put");
    run(store.put(&empty, payload(1, 0))).expect("put");

    let object = Object::in_store(store.clone(), &path).expect("it is there");
    assert_eq!(object.describe(), "a/b of InMemory, by ETag");
    assert_eq!(object.exact_version(), None);
    let reader = opened(object, Options::default());
    let mut all = vec![0; SIZE + 9];
    assert_eq!(reader.read_at(&mut all, 0).expect("reads"), SIZE);
    assert!(all[..SIZE] == pattern(1, SIZE));

    let nothing = Object::in_store(store.clone(), &empty).expect("it is there");
    assert_eq!((nothing.size(), nothing.check()), (0, Ok(0)));

    let missing = Object::in_store(store.clone(), &Path::from("c")).map(drop);
    assert_eq!(missing.expect_err("none").kind(), ErrorKind::NotFound);
}

#[test]
fn a_source_of_a_store_notices_another_version_and_keeps_the_stores_error() {
    let store = Arc::new(InMemory::new());
    let path = Path::from("a");
    run(store.put(&path, payload(1, 9000))).expect("put");
    let object = Object::in_store(store.clone(), &path).expect("it is there");
    let reader = opened(object, Options::default());
    run(store.put(&path, payload(2, 9000))).expect("put");
    let mut buf = vec![0; 9000];
    let error = reader.read_at(&mut buf, 0).expect_err("another version");
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert_eq!(reader.read_at(&mut buf, 0).expect("the new one"), 9000);
    assert!(buf == pattern(2, 9000));

    let meta = run(store.head(&path)).expect("it is there");
    let object = Object::of_store(store.clone(), meta);
    let reader = opened(object, Options::default());
    run(store.delete(&path)).expect("deleted");
    let error = reader.read_at(&mut buf, 0).expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let of_source = error.source().and_then(|e| e.downcast_ref::<SourceError>());
    let of_store = of_source.and_then(|e| e.source()?.downcast_ref::<Error>());
    let is_gone = matches!(of_store, Some(Error::NotFound { .. }));
    assert!(is_gone, "{error:?}");
}

/// What a store says of a read, to be compared with what another one says.
async fn said(store: &dyn ObjectStore, path: &Path, range: Option<GetRange>) -> String {
    let options = GetOptions::new().with_range(range);
    match store.get_opts(path, options).await {
        Err(Error::NotFound { .. }) => "not found".to_string(),
        Err(_) => "refused".to_string(),
        Ok(answer) => {
            let (range, meta) = (answer.range.clone(), answer.meta.clone());
            let bytes = answer.bytes().await.expect("the body comes");
            let sum = bytes.iter().fold(0_u64, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
            });
            format!("{range:?} {meta:?} {} {sum}", bytes.len())
        }
    }
}

#[test]
fn every_read_is_answered_as_the_store_itself_answers() {
    run(async {
        let store = Arc::new(InMemory::new());
        let (path, empty, missing) = (Path::from("a"), Path::from("b"), Path::from("c"));
        store.put(&path, payload(1, SIZE)).await.expect("put");
        store.put(&empty, payload(1, 0)).await.expect("put");
        let ahead = ahead(slow(store.clone()));
        let size = SIZE as u64;
        let mut ranges = vec![
            None,
            Some(GetRange::Suffix(0)),
            Some(GetRange::Suffix(1000)),
            Some(GetRange::Suffix(size * 2)),
            Some(GetRange::Offset(0)),
            Some(GetRange::Offset(size - 1)),
            Some(GetRange::Offset(size)),
            Some(GetRange::Bounded(5..5)),
            Some(GetRange::Bounded(size - 10..size + 10)),
            Some(GetRange::Bounded(size..size + 1)),
        ];
        let in_order = (0..40).map(|n| n * 65_536..(n + 1) * 65_536);
        let scattered = (0..40_u64).map(|n| {
            let from = n * 7_919_111 % size;
            from..from + 1 + n * 5_003
        });
        let parts = in_order.chain(scattered).map(GetRange::Bounded);
        ranges.extend(parts.map(Some));
        for path in [&path, &empty, &missing] {
            for range in &ranges {
                let own = said(&*store, path, range.clone()).await;
                let told = said(&ahead, path, range.clone()).await;
                assert_eq!(told, own, "{path} {range:?}");
            }
        }
        let all = vec![0..9, 4_000_000..4_100_000, 5..7];
        for ranges in [all, vec![], vec![7..size + 5, 0..1]] {
            let own = store.get_ranges(&path, &ranges).await.expect("ranges");
            let told = ahead.get_ranges(&path, &ranges).await.expect("ranges");
            assert_eq!(told, own, "{ranges:?}");
        }
        let beyond = [0..9, size..size + 1];
        assert!(ahead.get_ranges(&path, &beyond).await.is_err());
        assert!(ahead.engine().stats().hits > 0, "reads in order are hits");
    });
}

#[test]
fn writes_are_visible_at_once() {
    run(async {
        let store = ahead(InMemory::new()).check_after(HOUR);
        let (path, other) = (Path::from("a"), Path::from("b"));
        let read = async |path: &Path| store.get_range(path, 0..3).await;
        let of = |version| Ok::<_, String>(pattern(version, 3).into());
        let same = |got: object_store::Result<_>, version| {
            assert_eq!(got.map_err(|e| e.to_string()), of(version));
        };
        store.put(&path, payload(1, 9000)).await.expect("put");
        same(read(&path).await, 1);
        store.put(&path, payload(2, 9000)).await.expect("put");
        same(read(&path).await, 2);

        let mut upload = store.put_multipart(&path).await.expect("begun");
        upload.put_part(payload(3, 9000)).await.expect("a part");
        same(read(&path).await, 2);
        upload.complete().await.expect("ended");
        same(read(&path).await, 3);

        store.put(&other, payload(4, 9000)).await.expect("put");
        same(read(&other).await, 4);
        let copied = store.copy_opts(&path, &other, CopyOptions::default()).await;
        copied.expect("copied");
        same(read(&other).await, 3);
        store.put(&path, payload(5, 9000)).await.expect("put");
        let moved = store.rename_opts(&path, &other, RenameOptions::default());
        moved.await.expect("renamed");
        same(read(&other).await, 5);
        assert!(matches!(read(&path).await, Err(Error::NotFound { .. })));
        store.delete(&other).await.expect("deleted");
        assert!(matches!(read(&other).await, Err(Error::NotFound { .. })));
    });
}

#[test]
fn an_answer_has_one_version_and_names_it() {
    run(async {
        let store = Arc::new(InMemory::new());
        let path = Path::from("a");
        // Larger than the cache: some of it has not come when it is replaced.
        const SIZE: usize = 30_000_000;
        store.put(&path, payload(1, SIZE)).await.expect("put");
        let strict = ahead(store.clone()).check_after(Duration::ZERO);
        let lasting = ahead(store.clone()).check_after(HOUR);
        let first = strict.get_range(&path, 0..100).await.expect("reads");
        assert!(first == pattern(1, 100));
        lasting.get_range(&path, 0..100).await.expect("reads");
        let running = lasting.get(&path).await.expect("it begins");

        store.put(&path, payload(2, SIZE)).await.expect("put");
        let again = strict.get_range(&path, 0..100).await.expect("reads");
        assert!(again == pattern(2, 100), "a head comes first");
        // The stream has promised the first version.
        let mut body = running.into_stream();
        let mut had = Vec::new();
        let error = loop {
            match body.next().await.expect("it is not whole") {
                Ok(bytes) => had.extend_from_slice(&bytes),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Precondition { .. }), "{error:?}");
        assert!(had == pattern(1, SIZE)[..had.len()]);

        let size = SIZE as u64;
        let tail = GetOptions::new().with_range(Some(size - 100..size));
        let answer = lasting.get_opts(&path, tail).await.expect("the new one");
        let now = store.head(&path).await.expect("it is there");
        assert_eq!(answer.meta, now);
        let bytes = answer.bytes().await.expect("the body comes");
        assert!(bytes == pattern(2, SIZE)[SIZE - 100..]);
    });
}

#[test]
fn no_more_objects_stay_open_than_may() {
    run(async {
        let store = ahead(InMemory::new());
        for n in 0..70 {
            let path = Path::from(format!("{n}"));
            store.put(&path, payload(n, 9000)).await.expect("put");
            let bytes = store.get_range(&path, 5..9).await.expect("reads");
            assert!(bytes == pattern(n, 9000)[5..9]);
        }
        assert_eq!(store.engine().gauges().files, 64);
    });
}

/// What the wrapper has said is never contradicted by what it reads, however long versions are believed.
#[test]
fn a_head_and_a_listing_of_a_newer_version_end_the_older_one() {
    run(async {
        let store = Arc::new(InMemory::new());
        let path = Path::from("d/a");
        let ahead = ahead(store.clone()).check_after(HOUR);
        let (version, prefix) = (AtomicU8::new(0), Path::from("d"));
        let replaced = async || {
            let next = version.fetch_add(1, Ordering::Relaxed) + 1;
            store.put(&path, payload(next, 9000)).await.expect("put");
        };
        let read = async || {
            let bytes = ahead.get_range(&path, 0..3).await.expect("reads");
            assert!(bytes == pattern(version.load(Ordering::Relaxed), 3));
        };
        replaced().await;
        read().await;
        replaced().await;
        ahead.head(&path).await.expect("it is there");
        read().await;
        replaced().await;
        assert_eq!(ahead.list(None).count().await, 1);
        read().await;
        replaced().await;
        let below = ahead.list_with_delimiter(Some(&prefix)).await;
        assert_eq!(below.expect("lists").objects.len(), 1);
        read().await;
        replaced().await;
        let first = ahead.list_with_offset(Some(&prefix), &Path::from("d/0"));
        assert_eq!(first.count().await, 1);
        read().await;
        // It deleted, and another program wrote it again: the stream is given up before it says so.
        replaced().await;
        let paths = futures_util::stream::iter([Ok(path.clone())]).boxed();
        drop(ahead.delete_stream(paths));
        read().await;
        store.delete(&path).await.expect("deleted");
        assert!(ahead.head(&path).await.is_err());
        assert!(ahead.get_range(&path, 0..3).await.is_err());
    });
}

/// The store's own requests, so that a wrapper that asks more often is seen.
#[test]
fn an_open_object_gets_requests_only_for_its_reads() {
    run(async {
        let counting = Arc::new(Counting::default());
        let path = Path::from("a");
        let put = counting.store.put(&path, payload(1, SIZE)).await;
        put.expect("put");
        let ahead = ahead(counting.clone()).check_after(HOUR);
        let ranges: Vec<_> = (0..40).map(|n| n * 20_000..n * 20_000 + 100).collect();
        let bytes = ahead.get_ranges(&path, &ranges).await.expect("ranges");
        assert!((bytes.iter().zip(&ranges)).all(|(got, range)| {
            got == &pattern(1, SIZE)[range.start as usize..range.end as usize]
        }));
        assert_eq!(counting.heads.load(Ordering::Relaxed), 1);
        // Neighbours are one read, as the store's own `get_ranges` has it.
        assert_eq!(ahead.engine().stats().demand_reads, 1);
        ahead.get_ranges(&path, &ranges).await.expect("ranges");
        ahead.head(&path).await.expect("it is there");
        ahead.get_range(&path, 5..6).await.expect("reads");
        assert_eq!(counting.heads.load(Ordering::Relaxed), 2, "its own alone");
    });
}

#[test]
fn a_range_may_be_larger_than_the_cache() {
    run(async {
        let store = Arc::new(InMemory::new());
        let path = Path::from("a");
        let size = 20_000_000;
        store.put(&path, payload(1, size)).await.expect("put");
        let ahead = ahead(store.clone());
        let all = ahead.get_range(&path, 0..size as u64).await.expect("reads");
        assert!(all == pattern(1, size));
        let body = ahead.get(&path).await.expect("reads").bytes().await;
        assert!(body.expect("comes") == pattern(1, size));
    });
}

/// A store may answer with another part than was asked for; that is an error, and never bytes.
#[test]
fn another_part_than_requested_is_an_error() {
    run(async {
        let counting = Arc::new(Counting {
            shift: 1,
            ..Counting::default()
        });
        let path = Path::from("a");
        let put = counting.store.put(&path, payload(1, 9000)).await;
        put.expect("put");
        let ahead = ahead(counting.clone());
        assert!(ahead.get_range(&path, 100..200).await.is_err());
        assert!(ahead.get_ranges(&path, &[100..200, 5..7]).await.is_err());
    });
}

/// Counts heads, and answers with a part that begins `shift` bytes late.
#[derive(Debug, Default)]
struct Counting {
    store: InMemory,
    heads: AtomicU64,
    shift: u64,
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counting")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Counting {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult, Error> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>, Error> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult, Error> {
        self.heads
            .fetch_add(u64::from(options.head), Ordering::Relaxed);
        let range = match options.range.clone() {
            Some(GetRange::Bounded(range)) => Some(GetRange::Bounded(
                range.start + self.shift..range.end + self.shift,
            )),
            range => range,
        };
        let options = GetOptions { range, ..options };
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path, Error>>,
    ) -> BoxStream<'static, Result<Path, Error>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta, Error>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult, Error> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<(), Error> {
        self.store.copy_opts(from, to, options).await
    }
}

/// Tasks that read, while one replaces the object by another of its length.
#[test]
fn readers_beside_a_writer_get_one_version_each() {
    run(async {
        let store = Arc::new(InMemory::new());
        let path = Path::from("a");
        store.put(&path, payload(0, 400_000)).await.expect("put");
        let ahead = Arc::new(ahead(slow(store.clone())).check_after(Duration::ZERO));
        let readers = (0..4_u64).map(|n| {
            let (ahead, path) = (Arc::clone(&ahead), path.clone());
            tokio::spawn(async move {
                for round in 0..40 {
                    let from = (n * 97 + round * 61) % 300 * 1000;
                    let got = ahead.get_range(&path, from..from + 90_000).await;
                    let Ok(bytes) = got else { continue };
                    let version = bytes[0] ^ pattern(0, from as usize + 1)[from as usize];
                    let all = pattern(version, from as usize + 90_000);
                    assert!(bytes == all[from as usize..], "version {version} at {from}");
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        for version in 1..60 {
            let put = store.put(&path, payload(version, 400_000)).await;
            put.expect("put");
            tokio::task::yield_now().await;
        }
        for reader in readers {
            reader.await.expect("every answer is of one version");
        }
    });
}
