//! Tests of folder listings from an earlier mount: they are shown before the store answers, an open does not trust
//! them, and an invalid listing file is ignored. Runs with every emulator that is installed.

use crate::common::stores::{Kind, Store as Bucket};
use crate::common::{object_settings, read_all};
use crate::disk_cache::{Rig, files, flushed};
use foreread::source::SourceError;
use foreread::source::disk_cache::{CacheInspector, DiskCache};
use foreread::source::object::ObjectSettings;
use foreread::source::tree::{Meta, Tree};
use foreread_testing::{BucketServer, Latch, LyingProxy, Method, needs};
use rustix::io::Errno;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No answer comes through this proxy before the latch is released, as far as `is_held` says so of the target.
pub fn hold(
    proxy: &LyingProxy,
    is_held: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Arc<Latch> {
    let latch = Arc::new(Latch::default());
    latch.hang(Method::ReadAt);
    let held = Arc::clone(&latch);
    proxy.edit(move |seen, _| {
        if is_held(&seen.target) {
            held.pass(Method::ReadAt);
        }
    });
    latch
}

/// A server that is silent for long is waited for.
pub fn patient(variables: Vec<(String, String)>) -> ObjectSettings {
    ObjectSettings {
        first_byte: Duration::from_secs(60),
        total: Duration::from_secs(120),
        ..object_settings(variables)
    }
}

fn tree(cache: &DiskCache, bucket: &Bucket) -> Arc<dyn Tree> {
    tree_of(cache, &bucket.name("d/"), bucket.variables())
}

fn tree_of(cache: &DiskCache, name: &str, variables: Vec<(String, String)>) -> Arc<dyn Tree> {
    let tree = cache.open_prefix(name, patient(variables));
    tree.unwrap_or_else(|error| panic!("{error}"))
}

fn names(tree: &dyn Tree, folder: &str) -> Result<Vec<String>, SourceError> {
    let names = tree.names(Path::new(folder))?;
    let all = (0..names.len()).filter_map(|at| names.name(at));
    let text = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    Ok(all.map(text).collect())
}

/// All that a folder of [`fill`] and the one below it have are shown.
#[track_caller]
fn shows_all(tree: &dyn Tree) {
    assert_eq!(names(tree, "").expect("listed"), ALL);
    assert_eq!(names(tree, "sub").expect("listed"), ["x"]);
}

const ALL: [&str; 4] = ["a", "b", "c", "sub"];

fn look(tree: &dyn Tree, path: &str) -> Result<Meta, SourceError> {
    tree.look(Path::new(path))
}

/// All bytes of the version that was listed.
fn read(tree: &dyn Tree, path: &str, listed: &Meta) -> Result<Vec<u8>, SourceError> {
    read_all(&*tree.open_listed(Path::new(path), listed)?.0)
}

fn is_changed<T>(done: &Result<T, SourceError>) -> bool {
    matches!(done, Err(SourceError::Changed { .. }))
}

fn fill(bucket: &Bucket) {
    for (key, byte) in [("d/a", 1), ("d/b", 2), ("d/c", 3), ("d/sub/x", 4)] {
        bucket.put(key, vec![byte; 5000]);
    }
}

/// The files that have the names of folders.
fn kept(rig: &Rig) -> Vec<PathBuf> {
    files(&rig.settings.dir.join("foreread-cache-2/names"))
}

fn list_once(rig: &Rig, bucket: &Bucket) {
    let cache = rig.open();
    shows_all(&*tree(&cache, bucket));
    flushed(&cache);
    assert_eq!(kept(rig).len(), 2, "one file a folder");
}

/// With every store that is installed, and files in its folder that no mount has listed.
fn each_filled(work: impl Fn(&Bucket, &Rig)) {
    for bucket in Bucket::all() {
        println!("{:?}", bucket.kind);
        fill(&bucket);
        work(&bucket, &Rig::new());
    }
}

/// The same, and a mount has listed them.
fn each_listed(work: impl Fn(&Bucket, &Rig)) {
    each_filled(|bucket, rig| {
        list_once(rig, bucket);
        work(bucket, rig);
    });
}

/// Puts another version of `b`, and takes `c` away, unless a commit keeps it. True if it is gone.
fn change(bucket: &Bucket) -> bool {
    bucket.put("d/b", vec![9; 6000]);
    let is_gone = bucket.kind != Kind::Hub;
    if is_gone {
        bucket.delete("d/c");
    }
    is_gone
}

#[test]
fn names_are_shown_before_the_store_answers_and_checked_before_an_open() {
    each_listed(|bucket, rig| {
        let is_gone = change(bucket);
        bucket.put("d/new", vec![7; 10]);
        let gate = hold(&bucket.names, |_| true);
        let cache = rig.open_other(1);
        let second = tree(&cache, bucket);
        shows_all(&*second);
        let [a, b, c] = ["a", "b", "c"].map(|name| look(&*second, name).expect("kept"));
        assert_eq!([a.size, b.size, c.size], [5000; 3]);
        assert!(second.is_unsure(Path::new("a")), "not checked yet");
        let root = Path::new("");
        let shown = second.names(root).expect("kept");
        assert!(!second.shows(root, &shown), "not checked yet");
        gate.release();
        assert_eq!(read(&*second, "a", &a).expect("as listed"), [1; 5000]);
        assert!(is_changed(&read(&*second, "b", &b)), "replaced since");
        assert_eq!(is_changed(&read(&*second, "c", &c)), is_gone, "removed");
        let now = look(&*second, "b").expect("there");
        assert_eq!(now.size, 6000);
        assert_eq!(read(&*second, "b", &now).expect("the new one"), [9; 6000]);
        assert!(is_changed(&read(&*second, "b", &b)), "and not the old one");
        if is_gone {
            let gone = look(&*second, "c").expect_err("removed");
            assert_eq!(gone.errno(), Errno::NOENT.raw_os_error());
        }
        let now = names(&*second, "").expect("listed");
        assert!(now.contains(&"new".to_string()), "{now:?}");
        assert_eq!(now.contains(&"c".to_string()), !is_gone, "{now:?}");
        assert!(!second.is_unsure(Path::new("a")));
        assert!(
            !second.shows(root, &shown),
            "the store has listed other names"
        );
        let listed = second.names(root).expect("listed");
        assert!(second.shows(root, &listed));
        flushed(&cache);
        // The next mount begins with what this one has found.
        let gate = hold(&bucket.names, |_| true);
        let third = tree(&rig.open_other(2), bucket);
        assert_eq!(names(&*third, "").expect("kept"), now);
        gate.release();
    });
}

/// A file of names that is torn, of another folder, a link or a folder: the store is asked, and the file is right again.
#[test]
fn invalid_names_are_rejected() {
    each_listed(|bucket, rig| {
        let [first, second] = kept(rig).try_into().expect("two files");
        let text = |path: &Path| std::fs::read_to_string(path).expect("a text");
        let (one, other) = (text(&first), text(&second));
        let elsewhere = rig.dir.path().join("elsewhere");
        std::fs::write(&elsewhere, &one).expect("written");
        let flipped = one.replace("\t0\t", "\t1\t").replace("5000", "5001");
        let version_9 = one.replace("names 1 ", "names 9 ");
        let half = &one[..one.len() / 2];
        let wrong = ["", half, &flipped, &other, &version_9, "a\0b"];
        let is_asked = |number: u64| {
            let before = bucket.names.seen().len();
            let cache = rig.open_other(number);
            let tree = tree(&cache, bucket);
            shows_all(&*tree);
            assert_eq!(look(&*tree, "a").expect("there").size, 5000);
            flushed(&cache);
            bucket.names.seen().len() > before
        };
        for wrong in wrong {
            for path in [&first, &second] {
                std::fs::write(path, wrong).expect("written");
            }
            // The one that is given the other's text is right by its checksum.
            assert!(is_asked(3), "{wrong:?}");
            // A date is that of each listing.
            let names = |text: &str| text.split_once("\nnames").map(|text| text.1.to_string());
            assert_eq!(names(&text(&first)), names(&one), "{wrong:?}");
        }
        std::fs::remove_file(&first).expect("removed");
        symlink(&elsewhere, &first).expect("linked");
        std::fs::remove_file(&second).expect("removed");
        std::fs::create_dir(&second).expect("made");
        assert!(is_asked(4));
        assert_eq!(text(&elsewhere), one, "a link is not followed");
    });
}

/// Without the option nothing is kept or used.
#[test]
fn names_are_not_kept_if_switched_off() {
    each_filled(|bucket, rig| {
        let open = || rig.open_with(|settings| settings.keeps_names = false);
        let off = open();
        assert_eq!(names(&*tree(&off, bucket), "sub").expect("listed"), ["x"]);
        flushed(&off);
        assert!(kept(rig).is_empty());
        list_once(rig, bucket);
        bucket.put("d/new", vec![7; 10]);
        let listed = names(&*tree(&open(), bucket), "").expect("listed");
        assert!(listed.contains(&"new".to_string()));
    });
}

/// A check that the store refuses ends what is shown from the disk: then the folder is what the store says.
#[test]
fn a_check_that_is_refused_opens_nothing() {
    each_listed(|bucket, rig| {
        // The check is answered once its folder was shown.
        let (shown, waits) = channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for proxy in [&bucket.names, &bucket.objects] {
            let waits = Arc::clone(&waits);
            proxy.edit(move |_, answer| {
                let _ = waits.lock().expect("no panic").recv();
                answer.status = 403;
                answer.body.clear();
            });
        }
        let second = tree(&rig.open_other(1), bucket);
        assert_eq!(names(&*second, "").expect("kept"), ALL);
        let a = look(&*second, "a").expect("kept");
        drop(shown);
        assert!(read(&*second, "a", &a).is_err());
        // The check is over, or its folder would be waited for.
        while second.is_unsure(Path::new("a")) && names(&*second, "").is_ok() {
            std::thread::yield_now();
        }
        assert!(names(&*second, "").is_err(), "as the store says");
        bucket.honest();
        assert_eq!(names(&*second, "").expect("listed"), ALL);
        assert_eq!(read(&*second, "a", &a).expect("as listed"), [1; 5000]);
    });
}

/// A folder of more than a page is not waited for: each open asks for its file while the listing is under way.
#[test]
fn an_open_in_a_long_folder_requests_only_its_file() {
    let rig = Rig::new();
    let server = BucketServer::start().expect("a port");
    for n in 0..1200 {
        server.put(&format!("d/{n:04}"), vec![n as u8; 100]);
    }
    let proxy = LyingProxy::start(server.address()).expect("a port");
    let own = server.address().to_string();
    let through =
        |(name, value): (String, String)| (name, value.replace(&own, &proxy.address().to_string()));
    let variables: Vec<_> = server.variables().into_iter().map(through).collect();
    let open = |cache: &DiskCache| tree_of(cache, "s3://bucket/d/", variables.clone());
    let cache = rig.open();
    assert_eq!(names(&*open(&cache), "").expect("listed").len(), 1200);
    flushed(&cache);
    server.put("d/0007", vec![0; 100]);
    server.delete("d/0008");
    // Pages alone are held back.
    let gate = hold(&proxy, |target| target.contains("max-keys=1000"));
    let second = open(&rig.open_other(1));
    assert_eq!(names(&*second, "").expect("kept").len(), 1200);
    let listed = ["0006", "0007", "0008"].map(|name| look(&*second, name).expect("kept"));
    assert_eq!(read(&*second, "0006", &listed[0]).expect("read"), [6; 100]);
    assert!(is_changed(&read(&*second, "0007", &listed[1])));
    assert!(is_changed(&read(&*second, "0008", &listed[2])));
    let now = look(&*second, "0007").expect("there");
    assert_ne!(now, listed[1], "what is known to be outdated is asked for");
    assert_eq!(read(&*second, "0007", &now).expect("read"), [0; 100]);
    assert!(second.is_unsure(Path::new("0006")), "the pages are held");
    gate.release();
}

/// All listings have a 32nd of the limit: the oldest make way, and one that is larger is not kept. Trim leaves as much of a smaller limit.
#[test]
fn names_have_a_limit() {
    const LIMIT: u64 = 2 << 20;
    let server = BucketServer::start().expect("a port");
    for folder in 0..100 {
        for n in 0..10 {
            server.put(&format!("d/{folder:02}/{}{n}", "x".repeat(100)), Vec::new());
        }
    }
    (0..500).for_each(|n| server.put(&format!("d/large/{}{n:03}", "x".repeat(200)), Vec::new()));
    let mut rig = Rig::new();
    rig.settings.size_bytes = LIMIT;
    let cache = rig.open();
    let tree = tree_of(&cache, "s3://bucket/d/", server.variables());
    let all = names(&*tree, "").expect("listed");
    assert_eq!(all.len(), 101);
    for folder in all {
        names(&*tree, &folder).expect("listed");
    }
    flushed(&cache);
    let bytes = || -> u64 {
        let len = |path: &PathBuf| std::fs::metadata(path).expect("there").len();
        kept(&rig).iter().map(len).sum()
    };
    assert!((LIMIT / 64..=LIMIT / 32).contains(&bytes()), "{}", bytes());
    let inspector = CacheInspector::open(rig.settings.clone()).unwrap_or_else(|e| panic!("{e}"));
    let listings = inspector.listings();
    assert_eq!(listings.len(), kept(&rig).len());
    let has = |source: &str| listings.iter().any(|listing| listing.source == source);
    assert!(has("s3://bucket/d/99/") && !has("s3://bucket/d/large/"));
    let trimmed = inspector.trim(LIMIT / 2, &mut |_| true);
    trimmed.unwrap_or_else(|error| panic!("{error}"));
    assert!(bytes() <= LIMIT / 64, "{}", bytes());
    let left = inspector.listings();
    let one = left.first().expect("some are left");
    assert!(one.is_of("s3://bucket/d/"));
    inspector.remove_listing(one).expect("removed");
    assert_eq!(inspector.listings().len(), left.len() - 1);
    inspector.remove_listings().expect("removed");
    assert!(kept(&rig).is_empty());
}

/// Through the kernel, which believes names for ten minutes here: the second mount answers `ls` and `stat` while the store is silent, opens what
/// is as it was without its bytes, and a file that was replaced as the new one.
#[cfg(feature = "fuse")]
#[test]
fn a_second_mount_shows_names_while_the_store_is_silent() {
    use crate::fuse::{believed, can_mount, mount_with, small};
    use std::os::unix::fs::MetadataExt;
    needs!(can_mount());
    let believed = believed(Duration::from_secs(600));
    each_filled(|bucket, rig| {
        let mount = |cache: &DiskCache| {
            let options = small().policy("none").disk_cache(cache);
            mount_with(tree(cache, bucket), &believed, options)
        };
        let cache = rig.open();
        let here = mount(&cache);
        assert_eq!(here.names(""), ALL);
        assert_eq!(here.names("sub"), ["x"]);
        for (name, byte) in [("a", 1), ("b", 2), ("c", 3), ("sub/x", 4)] {
            assert_eq!(here.read(name).expect("read"), [byte; 5000]);
        }
        here.end();
        flushed(&cache);
        let is_gone = change(bucket);
        let gate = hold(&bucket.names, |_| true);
        let cache = rig.open_other(1);
        let here = mount(&cache);
        assert_eq!(here.names(""), ALL);
        assert_eq!(here.names("sub"), ["x"]);
        for name in ["a", "b", "c", "sub/x"] {
            let meta = std::fs::metadata(here.path(name)).expect("known");
            assert_eq!((meta.size(), meta.is_file()), (5000, true), "{name}");
        }
        gate.release();
        let read = |name: &str| here.read(name);
        assert_eq!(read("b").expect("the new one"), [9; 6000]);
        if is_gone {
            let error = read("c").expect_err("removed");
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
        assert_eq!(read("a").expect("as it was"), [1; 5000]);
        assert_eq!(read("sub/x").expect("as it was"), [4; 5000]);
        here.end();
        let counts = flushed(&cache);
        // A version of this store may be exact by its reply alone.
        if bucket.kind == Kind::S3 {
            assert_eq!((counts.hit_bytes, counts.miss_bytes), (10_000, 6000));
        }
    });
}
