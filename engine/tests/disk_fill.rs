//! Tests of a disk cache that is filled before it is read: every byte is fetched once, and the cache stays within its limit.

use crate::common::{SmallDisk, wait_until};
use crate::disk_cache::{Rig, Store};
use foreread::source::disk_cache::{CacheFillEnd, CacheFillReport, DiskCache, FreeSpace};
use foreread::source::tree::{FolderNames, Kind, Meta, Tree};
use foreread::source::{Defaults, Source, SourceError};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const FOLDER: &str = "below";
const FILES: [(&str, u64); 5] = [
    ("a", 9 * MIB + 3),
    ("below/b", 100),
    ("below/c", 2 * MIB),
    ("below/empty", 0),
    ("below/unknown", 5),
];

/// Files in a folder and in one below it, whose listing has their sizes. One says of no version which it is, and one does not stream.
struct Listed {
    files: Vec<(&'static str, Arc<Store>)>,
    requests: u32,
}

impl Listed {
    fn new() -> Arc<Listed> {
        Arc::new(Listed::of_files())
    }

    fn of_files() -> Listed {
        let file = |(path, size): (&'static str, u64)| {
            let mut store = Store::of(path, size);
            store.is_exact = !path.ends_with("unknown");
            store.streams = path != "a";
            (path, Arc::new(store))
        };
        Listed {
            files: FILES.map(file).into(),
            requests: Defaults::OBJECT.requests,
        }
    }

    fn file(&self, path: &Path) -> &Arc<Store> {
        let found = self.files.iter().find(|(name, _)| Path::new(name) == path);
        &found.expect("it was listed").1
    }

    fn requests(&self) -> u64 {
        self.files.iter().map(|(_, store)| store.asked().0).sum()
    }
}

fn meta(kind: Kind, size: u64) -> Meta {
    Meta {
        kind,
        size,
        mtime_ns: 0,
        permissions: 0o444,
        owner: None,
        version: Arc::default(),
    }
}

impl Tree for Listed {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let mut names = FolderNames::default();
        if folder.as_os_str().is_empty() {
            assert!(names.push(FOLDER.as_ref(), Kind::Folder, None));
        }
        for (path, size) in FILES {
            let path = Path::new(path);
            if path.parent() == Some(folder) {
                let name = path.file_name().expect("a name");
                assert!(names.push(name, Kind::File, Some(&meta(Kind::File, size))));
            }
        }
        Ok(Arc::new(names))
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        self.open(path).map(|(_, meta)| meta)
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let store = Arc::clone(self.file(path));
        let meta = meta(Kind::File, store.size());
        Ok((store, meta))
    }

    fn describe(&self) -> String {
        "files".to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            requests: self.requests,
            ..Defaults::OBJECT
        }
    }
}

fn cache(size_bytes: u64) -> (Rig, DiskCache) {
    let mut rig = Rig::new();
    rig.settings.size_bytes = size_bytes;
    let cache = rig.open();
    (rig, cache)
}

fn fill(cache: &DiskCache, tree: &Arc<Listed>) -> CacheFillReport {
    cache.fill(&**tree, &mut |_| true).expect("threads")
}

const ALL: u64 = 9 * MIB + 3 + 100 + 2 * MIB + 5;

/// What was left out, each name once.
fn named(report: &CacheFillReport) -> Vec<&str> {
    let mut names: Vec<&str> = report.left_out.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn all_that_has_a_version_is_fetched_once() {
    let (_rig, cache) = cache(64 * MIB);
    let first = fill(&cache, &Listed::new());
    let counts = first.counts;
    assert_eq!((counts.objects, counts.bytes), (5, ALL));
    assert_eq!((counts.held_bytes, counts.fetched_bytes), (0, ALL - 5));
    assert_eq!((first.ended, first.dropped_bytes), (None, 0));
    assert_eq!(named(&first), ["below/unknown"]);
    assert_eq!(cache.counts().written_bytes, ALL - 5);
    let again = Listed::new();
    let counts = fill(&cache, &again).counts;
    assert_eq!((counts.held_bytes, counts.fetched_bytes), (ALL - 5, 0));
    assert_eq!(again.requests(), 0, "nothing is asked again");
}

/// One has found all of `a` missing and waits for its first part; meanwhile the other fetches all of it.
#[test]
fn what_another_has_fetched_meanwhile_is_not_counted_as_fetched() {
    let (rig, cache) = cache(64 * MIB);
    let tree = Arc::new(Listed {
        requests: 1,
        ..Listed::of_files()
    });
    let slow = tree.file(Path::new("a"));
    let [own, other] = std::thread::scope(|scope| {
        let gate = slow.gate.lock();
        let filler = scope.spawn(|| fill(&cache, &tree).counts);
        wait_until("it asks", || slow.asked().0 > 0);
        let other = fill(&rig.open(), &Listed::new()).counts;
        drop(gate);
        [filler.join().expect("no panic"), other]
    });
    let sums = [own, other].map(|counts| counts.held_bytes + counts.fetched_bytes);
    assert_eq!(sums, [ALL - 5; 2]);
    assert!(other.fetched_bytes >= 9 * MIB + 3, "{other:?}");
    assert!(own.held_bytes > MIB, "the last part of `a`: {own:?}");
}

#[test]
fn it_ends_at_the_limit_and_when_it_is_stopped() {
    // Also where the first range alone is more than the limit.
    for limit in [4 * MIB, 2 * MIB] {
        let (_rig, cache) = cache(limit);
        let report = fill(&cache, &Listed::new());
        assert_eq!(report.ended, Some(CacheFillEnd::Full));
        let bytes = cache.bytes().expect("something was written");
        let is_right = (MIB..=limit).contains(&bytes) && report.evicted_bytes == 0;
        assert!(is_right, "{bytes} {report:?}");
    }

    // The disk is smaller than the limit, and its other data is not enough to evict.
    if let Some(disk) = SmallDisk::of(8 << 10) {
        let (mut rig, _) = cache(64 * MIB);
        rig.settings.dir = disk.dir.path().join("cache");
        rig.settings.free = FreeSpace::Bytes(MIB);
        let report = fill(&rig.open(), &Listed::new());
        assert_eq!(report.ended, Some(CacheFillEnd::Refused), "{report:?}");
    }

    let (_rig, cache) = cache(64 * MIB);
    let tree = Listed::new();
    let mut gates = Some(FILES.map(|(path, _)| tree.file(Path::new(path)).gate.lock()));
    let stopped = cache.fill(&*tree, &mut |_| {
        let asks = tree.requests() > 0;
        // Requests that have begun go on after the stop.
        gates = gates.take().filter(|_| !asks);
        !asks
    });
    let report = stopped.expect("threads");
    assert_eq!(report.ended, Some(CacheFillEnd::Stopped));
}

#[test]
fn refused_objects_are_named_and_the_rest_is_fetched() {
    let fails: fn() -> SourceError = || SourceError::Io {
        errno: 5,
        what: "the store".to_string(),
    };
    let panics: fn() -> SourceError = || panic!("a fault of the source");
    for fails in [fails, panics] {
        let (_rig, cache) = cache(64 * MIB);
        let tree = Listed::new();
        let refused = tree.file(Path::new("below/c"));
        *refused.fails.lock().expect("no panic") = Some(fails);
        let report = fill(&cache, &tree);
        assert_eq!(named(&report), ["below/c", "below/unknown"]);
        assert_eq!(report.counts.fetched_bytes, ALL - 5 - 2 * MIB);
        assert_eq!(fill(&cache, &Listed::new()).counts.fetched_bytes, 2 * MIB);
    }
}
