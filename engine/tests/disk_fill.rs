//! Tests of a disk cache that is filled before it is read: every byte is fetched once, and the cache stays within its limit.

use crate::common::watch;
use foreread::source::disk_cache::{
    CacheFillEnd, CacheFillReport, CacheFiller, DiskCache, DiskCacheSettings, FreeSpace,
};
use foreread::source::tree::{Entry, Kind, Meta, Tree};
use foreread::source::{Defaults, ExactVersion, Mem, Source, SourceError};
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const FOLDER: &str = "below";
const FILES: [(&str, u64); 5] = [
    ("a", 9 * MIB + 3),
    ("below/b", 100),
    ("below/c", 2 * MIB),
    ("below/empty", 0),
    ("below/unknown", 5),
];

/// Reads wait until it is open.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    began: bool,
    is_open: bool,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().expect("no panic"));
        self.changed.notify_all();
    }

    fn until(&self, is_so: impl Fn(&GateState) -> bool) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |state| !is_so(state)));
    }

    fn pass(&self) {
        self.change(|state| state.began = true);
        self.until(|state| state.is_open);
    }
}

/// Files in a folder and in one below it, whose listing has their sizes. One says of no version which it is.
#[derive(Default)]
struct Listed {
    requests: Arc<AtomicU64>,
    /// Every read waits here.
    gate: Option<Arc<Gate>>,
    fails: AtomicBool,
    /// What fails panics.
    panics: bool,
}

struct ListedFile {
    bytes: Mem,
    name: PathBuf,
    requests: Arc<AtomicU64>,
    gate: Option<Arc<Gate>>,
    fails: bool,
    panics: bool,
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
    fn list(&self, folder: &Path, each: &mut dyn FnMut(Entry) -> bool) -> Result<(), SourceError> {
        if folder.as_os_str().is_empty() {
            each(Entry::new(FOLDER, Kind::Folder));
        }
        for (path, size) in FILES {
            let path = Path::new(path);
            if path.parent() == Some(folder) {
                let name = path.file_name().expect("a name");
                let meta = Some(meta(Kind::File, size));
                each(Entry {
                    meta,
                    ..Entry::new(name, Kind::File)
                });
            }
        }
        Ok(())
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        self.open(path).map(|(_, meta)| meta)
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let found = FILES.iter().find(|(name, _)| Path::new(name) == path);
        let (_, size) = found.expect("it was listed");
        let source = ListedFile {
            bytes: Mem::generated(*size, |_, _| {}),
            name: path.to_path_buf(),
            requests: Arc::clone(&self.requests),
            gate: self.gate.clone(),
            fails: self.fails.load(Ordering::Relaxed) && path.ends_with("c"),
            panics: self.panics,
        };
        Ok((Arc::new(source), meta(Kind::File, *size)))
    }

    fn describe(&self) -> String {
        "files".to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }
}

impl Source for ListedFile {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.gate.iter().for_each(|gate| gate.pass());
        if self.fails {
            assert!(!self.panics, "a fault of the source");
            let what = "the store".to_string();
            return Err(SourceError::Io { errno: 5, what });
        }
        self.bytes.read_at(bufs, offset)
    }

    fn describe(&self) -> String {
        self.name.display().to_string()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        let name = self.name.display().to_string();
        (!name.ends_with("unknown")).then(|| ExactVersion {
            source: name.clone(),
            version: "1".to_string(),
            shown: name,
        })
    }
}

struct Fill {
    _dir: TempDir,
    cache: DiskCache,
}

impl Fill {
    fn new(size_bytes: u64) -> Fill {
        watch();
        let dir = tempfile::tempdir().expect("a folder");
        let settings = DiskCacheSettings {
            size_bytes,
            free: FreeSpace::Bytes(0),
            ..DiskCacheSettings::new(dir.path())
        };
        let cache = DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"));
        Fill { _dir: dir, cache }
    }

    fn run(&self, tree: Listed) -> CacheFillReport {
        let filler = CacheFiller::start(&self.cache, Arc::new(tree)).expect("threads");
        filler.end()
    }
}

const ALL: u64 = 9 * MIB + 3 + 100 + 2 * MIB + 5;

#[test]
fn all_that_has_a_version_is_fetched_once() {
    let fill = Fill::new(64 * MIB);
    let first = fill.run(Listed::default());
    let counts = first.counts;
    assert_eq!((counts.objects, counts.bytes), (5, ALL));
    assert_eq!((counts.held_bytes, counts.fetched_bytes), (0, ALL - 5));
    assert_eq!((first.ended, first.dropped_bytes), (None, 0));
    let left_out: Vec<&str> = first.left_out.iter().map(|one| &*one.name).collect();
    assert_eq!(left_out, ["below/unknown"]);
    assert_eq!(fill.cache.counts().written_bytes, ALL - 5);
    let again = Listed::default();
    let requests = Arc::clone(&again.requests);
    let second = fill.run(again);
    assert_eq!(
        (second.counts.held_bytes, second.counts.fetched_bytes),
        (ALL - 5, 0)
    );
    assert_eq!(
        requests.load(Ordering::Relaxed),
        0,
        "nothing is asked again"
    );
}

#[test]
fn it_ends_at_the_limit_and_when_it_is_stopped() {
    // Also where the first range alone is more than the limit.
    for limit in [4 * MIB, 2 * MIB] {
        let fill = Fill::new(limit);
        let report = fill.run(Listed::default());
        assert_eq!(report.ended, Some(CacheFillEnd::Full));
        let bytes = fill.cache.bytes().expect("something was written");
        assert!(
            (MIB..=limit).contains(&bytes) && report.evicted_bytes == 0,
            "{bytes} {report:?}"
        );
    }

    let fill = Fill::new(64 * MIB);
    let gate = Arc::new(Gate::default());
    let tree = Listed {
        gate: Some(Arc::clone(&gate)),
        ..Listed::default()
    };
    let filler = CacheFiller::start(&fill.cache, Arc::new(tree)).expect("threads");
    gate.until(|state| state.began);
    filler.stop();
    gate.change(|state| state.is_open = true);
    let report = filler.end();
    assert_eq!(report.ended, Some(CacheFillEnd::Stopped));
}

#[test]
fn refused_objects_are_named_and_the_rest_is_fetched() {
    for panics in [false, true] {
        let fill = Fill::new(64 * MIB);
        let tree = Listed {
            panics,
            ..Listed::default()
        };
        tree.fails.store(true, Ordering::Relaxed);
        let report = fill.run(tree);
        let mut left_out: Vec<&str> = report.left_out.iter().map(|one| &*one.name).collect();
        left_out.sort_unstable();
        left_out.dedup();
        assert_eq!(left_out, ["below/c", "below/unknown"]);
        assert_eq!(report.counts.fetched_bytes, ALL - 5 - 2 * MIB);
        assert_eq!(fill.run(Listed::default()).counts.fetched_bytes, 2 * MIB);
    }
}
