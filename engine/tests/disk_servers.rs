//! What a cache on disk keeps of servers: latency and rate, which the next process begins with, and nothing that a file makes up.

use crate::common::{quiet, watch};
use crate::disk_cache::{Rig, files};
use foreread::eventlog::check_log;
use foreread::source::Mem;
use foreread::source::disk_cache::{CacheInspector, DiskCache, ServerSummary};
use foreread::{Engine, Options, Tuning};
use foreread_testing::ExactSource;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;
const SERVER: &str = "t://host";

fn open(rig: &Rig) -> DiskCache {
    DiskCache::open(rig.settings.clone()).unwrap_or_else(|error| panic!("{error}"))
}

fn engine(cache: &DiskCache) -> Engine {
    Engine::new(Options::default().disk_cache(cache)).expect("an engine")
}

fn source(name: &str) -> Arc<ExactSource<Mem>> {
    Arc::new(ExactSource::new(Mem::new(vec![7; 8 * MIB]), name, "1"))
}

/// Reads an object in order.
fn read(engine: &Engine, name: &str) {
    let reader = engine.open(source(name)).expect("opened");
    let mut buf = vec![0; MIB];
    (0..8).for_each(|n| {
        let read = reader.read_at(&mut buf, (n * MIB) as u64);
        assert_eq!(read.expect("read"), MIB);
    });
    quiet(&reader);
}

/// What an engine of the cache has come to before its first read.
fn begins_with(cache: &DiskCache) -> Tuning {
    let engine = engine(cache);
    let _reader = engine.open(source("t://host/new")).expect("opened");
    engine.gauges().tuning.expect("it sets itself")
}

fn learned(rig: &Rig) -> Vec<ServerSummary> {
    let cache = CacheInspector::open(rig.settings.clone());
    cache.unwrap_or_else(|error| panic!("{error}")).servers()
}

fn file(rig: &Rig) -> PathBuf {
    let mut all = files(&rig.settings.dir.join("foreread-cache-1/servers"));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn flushed(cache: &DiskCache) {
    assert!(cache.flush(Duration::from_secs(60)), "it is written");
}

/// A cache of which one engine has read from the server.
fn filled() -> Rig {
    let rig = Rig::new();
    let cache = open(&rig);
    let engine = engine(&cache);
    read(&engine, "t://host/a");
    drop(engine);
    flushed(&cache);
    rig
}

#[test]
fn the_next_process_begins_with_what_one_has_learned() {
    let rig = filled();
    let servers = learned(&rig);
    assert_eq!((servers.len(), servers[0].name.as_str()), (1, SERVER));
    let figures = servers[0].figures;
    assert!(figures.latency_ns > 0, "{figures:?}");
    let log = tempfile::NamedTempFile::new().expect("a file");
    let cache = open(&rig);
    let options = Options::default().disk_cache(&cache).event_log(log.path());
    let engine = Engine::new(options).expect("an engine");
    let reader = engine.open(source("t://host/b")).expect("opened");
    let tuning = engine.gauges().tuning.expect("it sets itself");
    assert_eq!(
        (tuning.latency_ns, tuning.rate),
        (figures.latency_ns, figures.rate)
    );
    drop(reader);
    read(&engine, "t://host/b");
    drop(engine);
    let text = fs::read_to_string(log.path()).expect("the log");
    assert!(text.contains(" prior "), "{text}");
    assert!(text.contains(" runs start "), "{text}");
    check_log(text.as_bytes()).expect("identical");
}

#[test]
fn an_engine_that_runs_is_asked_when_the_cache_is_flushed() {
    watch();
    let rig = Rig::new();
    let cache = open(&rig);
    let engine = engine(&cache);
    read(&engine, "t://host/a");
    assert!(learned(&rig).is_empty());
    flushed(&cache);
    let before = learned(&rig);
    assert_eq!(before.len(), 1);
    fs::remove_file(file(&rig)).expect("removed");
    flushed(&cache);
    assert!(learned(&rig).is_empty(), "it has learned nothing since");
}

#[test]
fn another_server_has_its_own_file_and_two_at_once_have_none() {
    let rig = filled();
    let cache = open(&rig);
    let both = engine(&cache);
    read(&both, "t://host/c");
    read(&both, "t://other/c");
    drop(both);
    flushed(&cache);
    assert_eq!(learned(&rig).len(), 1, "its figures are of neither");
    let other = engine(&cache);
    read(&other, "t://other/d");
    drop(other);
    flushed(&cache);
    let names: Vec<_> = learned(&rig).into_iter().map(|one| one.name).collect();
    assert_eq!(names, [SERVER, "t://other"]);
}

#[test]
fn a_file_that_is_not_right_is_no_prior() {
    let rig = filled();
    let (cache, path) = (open(&rig), file(&rig));
    let text = fs::read_to_string(&path).expect("text");
    assert!(begins_with(&cache).latency_ns > 0, "{text}");
    let outside = rig.dir.path().join("outside");
    fs::write(&outside, &text).expect("written");
    let huge = format!("{text}{}", "rate 1000 1\n".repeat(1000));
    let lines = text.lines().count();
    let cut: String = text.lines().take(lines - 1).collect();
    for wrong in [
        huge.as_str(),
        &cut,
        "",
        "\u{0}",
        &text.replace("server 1", "server 9"),
        &text.replace("t://host", "t://else"),
        &text.replace("latency_ns ", "latency_ns 9999999"),
    ] {
        fs::write(&path, wrong).expect("written");
        assert_eq!(begins_with(&cache).latency_ns, 0, "{wrong}");
        assert!(learned(&rig).is_empty(), "{wrong}");
    }
    fs::remove_file(&path).expect("removed");
    symlink(&outside, &path).expect("a link");
    assert_eq!(begins_with(&cache).latency_ns, 0, "a link is not followed");
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    assert_eq!(begins_with(&cache).latency_ns, 0, "a folder");
    fs::remove_dir(&path).expect("removed");
    // What is not right is written over.
    fs::write(&path, "torn").expect("written");
    let again = engine(&cache);
    read(&again, "t://host/e");
    drop(again);
    flushed(&cache);
    assert!(begins_with(&cache).latency_ns > 0);
}

#[test]
fn without_a_cache_nothing_is_known_and_with_all_removed_nothing_is_left() {
    let rig = filled();
    let engine = Engine::new(Options::default()).expect("an engine");
    let _reader = engine.open(source("t://host/a")).expect("opened");
    let tuning = engine.gauges().tuning.expect("it sets itself");
    assert_eq!(tuning.latency_ns, 0);
    let cache = CacheInspector::open(rig.settings.clone());
    let cache = cache.unwrap_or_else(|error| panic!("{error}"));
    cache
        .remove_servers()
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(cache.servers().is_empty());
    assert!(!rig.settings.dir.join("foreread-cache-1/servers").exists());
}
