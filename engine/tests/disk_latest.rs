//! Tests of objects whose first bytes are in the disk cache: opening them takes one request without a body, and this
//! request detects another version. Runs with every emulator that is installed.

use crate::common::stores::{Kind, Store as Bucket};
use crate::common::{named, object_settings};
use crate::disk_cache::{Rig, files, flushed};
use foreread::source::Object;
use foreread::source::disk_cache::DiskCache;
use foreread::{Engine, Options};
use foreread_testing::{Lie, RangeServer};
use std::path::PathBuf;
use std::sync::Arc;

const KEY: &str = "deep/object";

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    let byte = |n: usize| (n as u8).wrapping_mul(31) ^ seed;
    (0..len).map(byte).collect()
}

/// Opens the object and reads it whole; what it was asked at its opening, and in all.
fn read(cache: &DiskCache, bucket: &Bucket, wanted: &[u8]) -> [(u64, u64); 2] {
    let object = cache.open_object(bucket.name(KEY), bucket.settings());
    let object = Arc::new(object.unwrap_or_else(|error| panic!("{error}")));
    let asked = |object: &Object| (object.asked().requests, object.asked().bytes);
    let opened = asked(&object);
    read_whole(cache, Arc::clone(&object), wanted);
    [opened, asked(&object)]
}

fn read_whole(cache: &DiskCache, object: Arc<Object>, wanted: &[u8]) {
    let options = Options::default().policy("none").disk_cache(cache);
    let engine = Engine::new(options).expect("an engine");
    let reader = engine.open(object).expect("opened");
    let mut there = vec![0; wanted.len() + 1];
    let len = reader.read_at(&mut there, 0);
    assert_eq!(len.unwrap_or_else(|error| panic!("{error}")), wanted.len());
    let is_right = there[..wanted.len()] == *wanted;
    assert!(is_right, "another version, or wrong bytes");
    flushed(cache);
}

/// Files that say which version was read last.
fn noted(rig: &Rig) -> Vec<PathBuf> {
    files(&rig.settings.dir.join("foreread-cache-2/latest"))
}

#[test]
fn an_object_on_the_disk_is_opened_without_its_bytes() {
    for bucket in Bucket::all() {
        println!("{:?}", bucket.kind);
        let rig = Rig::new();
        for (seed, len) in [(1, 100_000), (2, 300_000), (3, 100_000)] {
            let wanted = bytes(seed, len);
            bucket.put(KEY, wanted.clone());
            let [opened, _] = read(&rig.open(), &bucket, &wanted);
            let first_bytes = 131_072.min(len as u64);
            assert_eq!(opened, (1, first_bytes), "another version");
            for process in 0..2 {
                let [opened, all] = read(&rig.open_other(process), &bucket, &wanted);
                if bucket.kind == Kind::Google {
                    println!("skipped: needs a server that knows x-goog-if-generation-not-match");
                    continue;
                }
                assert_eq!(opened, (1, 0), "version {seed}, process {process}");
                assert_eq!(all.1, 0, "all of it is on the disk");
            }
        }
        assert_eq!(noted(&rig).len(), 1, "one file an object");
    }
}

/// A note that is torn, of another object, a folder, or no text of a version, and files that were evicted: opened with the first bytes, as an
/// object that was never read, and right.
#[test]
fn a_wrong_note_of_a_version_costs_nothing() {
    for bucket in Bucket::all() {
        println!("{:?}", bucket.kind);
        let rig = Rig::new();
        let wanted = bytes(1, 50_000);
        bucket.put(KEY, wanted.clone());
        read(&rig.open(), &bucket, &wanted);
        let path = noted(&rig).remove(0);
        let right = std::fs::read_to_string(&path).expect("a text");
        let is_opened_anew = |what: &str| {
            let [opened, all] = read(&rig.open_other(9), &bucket, &wanted);
            assert_eq!(opened, (1, 50_000), "{what:?}");
            all
        };
        let cut = right.len() - 4;
        let long = "a".repeat(10_000);
        let other_size = right.replace("50000", "50001");
        let no_hash = right.split_once(' ').expect("two parts").1;
        for wrong in ["", "\n", &right[..cut], &long, &other_size, no_hash] {
            std::fs::write(&path, wrong).expect("written");
            is_opened_anew(wrong);
            let now = std::fs::read_to_string(&path);
            assert_eq!(now.ok().as_ref(), Some(&right), "it is noted again");
        }
        for file in rig.objects() {
            std::fs::remove_file(file).expect("removed");
        }
        let all = is_opened_anew("evicted");
        assert_eq!(all, (1, 50_000), "no other request");
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        is_opened_anew("a folder");
    }
}

/// A 304 counts unless it names another version than was asked for, which costs a second request, and the condition is sent no more.
#[test]
fn a_304_of_another_version_is_not_believed() {
    const SIZE: u64 = 50_000;
    for (etag, is_believed) in [
        (Some("\"e1\""), true),
        (Some("W/\"e1\""), false),
        (Some("\"e2\""), false),
        (None, true),
    ] {
        let rig = Rig::new();
        let server = RangeServer::start(named(SIZE)).expect("a port");
        server.replace(named(SIZE), Some("\"e1\""), None);
        let open = |cache: &DiskCache| {
            let object = cache.open_object(server.url(), object_settings(Vec::new()));
            Arc::new(object.unwrap_or_else(|error| panic!("{error}")))
        };
        let cache = rig.open();
        let whole = foreread_testing::pattern(0, SIZE as usize, 0);
        read_whole(&cache, open(&cache), &whole);
        assert_eq!(noted(&rig).len(), 1);
        server.lie(Lie::Unmodified(etag), 1);
        let asked = |number| {
            let asked = open(&rig.open_other(number)).asked();
            (asked.requests, asked.bytes)
        };
        let wanted = if is_believed { (1, 0) } else { (2, SIZE) };
        assert_eq!(asked(1), wanted, "{etag:?}");
        // This one is honest and knows no condition.
        assert_eq!(asked(2), (1, SIZE), "{etag:?}");
    }
}
