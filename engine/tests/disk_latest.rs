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
    (0..len)
        .map(|n| (n as u8).wrapping_mul(31) ^ seed)
        .collect()
}

/// Opens the object and reads it whole; what it was asked at its opening, and in all.
fn read(cache: &DiskCache, bucket: &Bucket, wanted: &[u8]) -> [(u64, u64); 2] {
    let object = cache.open_object(bucket.name(KEY), bucket.settings());
    let object = Arc::new(object.unwrap_or_else(|error| panic!("{error}")));
    let asked = |object: &Object| (object.asked().requests, object.asked().bytes);
    let opened = asked(&object);
    let options = Options::default().policy("none").disk_cache(cache);
    let engine = Engine::new(options).expect("an engine");
    let reader = engine.open(Arc::clone(&object)).expect("opened");
    let mut there = vec![0; wanted.len() + 1];
    let len = reader.read_at(&mut there, 0);
    assert_eq!(len.unwrap_or_else(|error| panic!("{error}")), wanted.len());
    assert!(
        there[..wanted.len()] == *wanted,
        "another version, or wrong bytes"
    );
    flushed(cache);
    [opened, asked(&object)]
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
            assert_eq!(
                opened,
                (1, 131_072.min(len as u64)),
                "another version: its first bytes"
            );
            for process in 0..2 {
                let [opened, all] = read(&rig.open_other(process), &bucket, &wanted);
                if bucket.kind == Kind::Google {
                    println!(
                        "skipped: needs a server of Google's that answers x-goog-if-generation-not-match"
                    );
                    continue;
                }
                assert_eq!(opened, (1, 0), "version {seed}, process {process}");
                assert_eq!(all.1, 0, "all of it is on the disk");
            }
        }
        assert_eq!(noted(&rig).len(), 1, "one file an object");
    }
}

/// A torn file, one of another object, a folder, text that is no version: opened as without it, and right.
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
        let cut = right.len() - 4;
        let long = "a".repeat(10_000);
        let other_size = right.replace("50000", "50001");
        let no_hash = right.split_once(' ').expect("two parts").1;
        for wrong in ["", "\n", &right[..cut], &long, &other_size, no_hash] {
            std::fs::write(&path, wrong).expect("written");
            let [opened, _] = read(&rig.open_other(9), &bucket, &wanted);
            assert_eq!(opened, (1, 50_000), "{wrong:?}");
            let now = std::fs::read_to_string(&path);
            assert_eq!(now.ok().as_ref(), Some(&right), "it is noted again");
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        let [opened, _] = read(&rig.open_other(9), &bucket, &wanted);
        assert_eq!(opened, (1, 50_000));
    }
}

/// Files that were evicted: opened with the first bytes, as one that was never read.
#[test]
fn without_its_files_an_object_is_opened_with_its_first_bytes() {
    for bucket in Bucket::all() {
        println!("{:?}", bucket.kind);
        let rig = Rig::new();
        let wanted = bytes(1, 50_000);
        bucket.put(KEY, wanted.clone());
        read(&rig.open(), &bucket, &wanted);
        for file in rig.objects() {
            std::fs::remove_file(file).expect("removed");
        }
        let [opened, all] = read(&rig.open_other(1), &bucket, &wanted);
        assert_eq!((opened, all), ((1, 50_000), (1, 50_000)));
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
        let options = Options::default().policy("none").disk_cache(&cache);
        let reader = Engine::new(options).expect("an engine").open(open(&cache));
        let mut bytes = vec![0; SIZE as usize];
        reader
            .expect("opened")
            .read_at(&mut bytes, 0)
            .expect("read");
        flushed(&cache);
        assert_eq!(noted(&rig).len(), 1);
        server.lie(Lie::Unmodified(etag), 1);
        let asked = open(&rig.open_other(1)).asked();
        let wanted = if is_believed { (1, 0) } else { (2, SIZE) };
        assert_eq!((asked.requests, asked.bytes), wanted, "{etag:?}");
        let asked = open(&rig.open_other(2)).asked();
        assert_eq!(
            (asked.requests, asked.bytes),
            (1, SIZE),
            "{etag:?}: this one is honest and knows no condition"
        );
    }
}
