//! A cache on disk: right bytes whatever becomes of its folder, one copy for all processes, and its limits.

use crate::common::{Rng, alone, only, quiet, watch};
use foreread::source::disk_cache::{
    DiskCache, DiskCacheCounts, DiskCacheSettings, FreeSpace, SharedCache, SharedFolder,
};
use foreread::source::{Defaults, ExactVersion, Mem, Sink, Source, SourceError, StreamingSource};
use foreread::{Engine, Options};
use foreread_testing as testing;
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Self-naming bytes as an object: with an exact version, a count of what is asked, and a version that can be changed.
pub struct Store {
    bytes: Mem,
    name: String,
    shown: String,
    version: AtomicU64,
    accepted: AtomicU64,
    requests: AtomicU64,
    asked_bytes: AtomicU64,
    /// Taken for the time of each request.
    gate: Mutex<()>,
}

impl Store {
    pub fn new(name: &str, size: u64) -> Arc<Store> {
        Arc::new(Store::of(name, size))
    }

    fn of(name: &str, size: u64) -> Store {
        Store {
            shown: name.to_string(),
            bytes: Mem::generated(size, |_, _| {}),
            name: name.to_string(),
            version: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            gate: Mutex::default(),
        }
    }

    fn replace(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub fn asked(&self) -> (u64, u64) {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (get(&self.requests), get(&self.asked_bytes))
    }

    fn now(&self) -> Result<u16, SourceError> {
        let accepted = self.accepted.load(Ordering::Relaxed);
        if accepted == self.version.load(Ordering::Relaxed) {
            return Ok(accepted as u16);
        }
        Err(SourceError::Changed {
            what: "another version".to_string(),
        })
    }
}

impl Source for Store {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let mut at = offset;
        for buf in bufs {
            let len = (buf.len() as u64).min(self.size().saturating_sub(at)) as usize;
            testing::fill(&mut buf[..len], at, self.now()?);
            at += len as u64;
        }
        Ok((at - offset) as usize)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        Some(ExactVersion {
            source: self.name.clone(),
            version: self.accepted.load(Ordering::Relaxed).to_string(),
            shown: self.shown.clone(),
        })
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.now().map(|_| self.size())
    }

    fn accept(&self) -> u64 {
        self.accepted
            .store(self.version.load(Ordering::Relaxed), Ordering::Relaxed);
        self.size()
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        Some(self)
    }
}

impl StreamingSource for Store {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.asked_bytes.fetch_add(len, Ordering::Relaxed);
        drop(self.gate.lock());
        let end = (offset + len).min(self.size());
        let mut at = offset;
        while at < end {
            let Some(room) = sink.room() else { break };
            let len = room.len().min((end - at) as usize);
            let read = self.read_at(&mut [IoSliceMut::new(&mut room[..len])], at)?;
            sink.filled(read);
            at += read as u64;
        }
        Ok((at - offset) as usize)
    }
}

pub struct Rig {
    pub dir: TempDir,
    pub settings: DiskCacheSettings,
}

impl Rig {
    pub fn new() -> Rig {
        watch();
        let dir = tempfile::tempdir().expect("a folder");
        let settings = DiskCacheSettings {
            free: FreeSpace::Bytes(0),
            // On a busy machine the disk is slower than a store in memory.
            reads_slow_disk: true,
            ..DiskCacheSettings::new(dir.path().join("cache"))
        };
        Rig { dir, settings }
    }

    pub fn open(&self) -> DiskCache {
        DiskCache::open(self.settings.clone()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As another process would: with other descriptors and nothing in memory.
    pub fn open_other(&self, number: u64) -> DiskCache {
        let settings = DiskCacheSettings {
            size_bytes: self.settings.size_bytes - number,
            ..self.settings.clone()
        };
        DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn pieces(&self) -> Vec<PathBuf> {
        let mut all = files(&self.settings.dir.join("foreread-cache-1"));
        all.retain(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            name.contains('.') && name != "CACHEDIR.TAG" && !name.starts_with('.')
        });
        all.sort();
        all
    }
}

pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Reads a source below an engine that has nothing in its memory, and checks every byte.
pub fn read(cache: &DiskCache, store: &Arc<Store>, ranges: &[(u64, usize)]) {
    let version = store.accepted.load(Ordering::Relaxed) as u16;
    let engine =
        Engine::new(Options::default().policy("none").disk_cache(cache)).expect("an engine");
    let reader = engine.open(Arc::clone(store)).expect("opened");
    for (offset, len) in ranges {
        let mut buf = vec![0; *len];
        let read = reader
            .read_at(&mut buf, *offset)
            .unwrap_or_else(|error| panic!("{error}"));
        let there = (store.size() - offset).min(*len as u64);
        assert_eq!(read as u64, there);
        testing::check(&buf[..read], *offset, version).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    quiet(&reader);
}

pub fn whole(store: &Store) -> Vec<(u64, usize)> {
    let step = 3 * MIB / 2;
    (0..store.size().div_ceil(step))
        .map(|n| (n * step, step as usize))
        .collect()
}

pub fn flushed(cache: &DiskCache) -> DiskCacheCounts {
    assert!(cache.flush(PATIENCE), "what was fetched is written");
    cache.counts()
}

#[test]
fn what_was_fetched_is_read_from_the_disk_by_the_next_process() {
    let rig = Rig::new();
    let store = Store::new("s/a", 5 * MIB + 17);
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    let counts = flushed(&cache);
    assert_eq!(
        (counts.miss_bytes, counts.written_bytes),
        (store.size(), store.size())
    );
    assert_eq!((counts.dropped_bytes, counts.refused_writes), (0, 0));
    drop(cache);
    let before = store.asked();
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    // Any part of it, too, and by reads that do not stream.
    read(
        &cache,
        &store,
        &[(0, 1), (MIB - 1, 2), (70_000, 5), (store.size() - 1, 10)],
    );
    let source = cache.over(Arc::clone(&store) as Arc<dyn Source>);
    let mut buf = vec![0; 3 * MIB as usize];
    let (head, tail) = buf.split_at_mut(12_345);
    let mut bufs = [
        IoSliceMut::new(head),
        IoSliceMut::new(&mut []),
        IoSliceMut::new(tail),
    ];
    assert_eq!(source.read_at(&mut bufs, 77), Ok(3 * MIB as usize));
    testing::check(&buf, 77, 0).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(store.asked(), before, "nothing is asked again");
    let counts = cache.counts();
    assert_eq!(
        (counts.miss_bytes, counts.wrong, counts.read_errors),
        (0, 0, 0)
    );
    let bytes: u64 = rig
        .pieces()
        .iter()
        .map(|path| path.metadata().expect("there").len().next_multiple_of(4096))
        .sum();
    assert_eq!(cache.bytes(), Some(bytes), "the account is right");
}

#[test]
fn another_version_is_never_served_for_this_one() {
    let rig = Rig::new();
    let store = Store::new("s/a", 2 * MIB);
    let cache = rig.open();
    let engine =
        Engine::new(Options::default().policy("none").disk_cache(&cache)).expect("an engine");
    let reader = engine.open(Arc::clone(&store)).expect("opened");
    let mut buf = vec![0; MIB as usize];
    for version in 0..4 {
        for offset in [0, MIB] {
            reader
                .read_at(&mut buf, offset)
                .unwrap_or_else(|error| panic!("{error}"));
            testing::check(&buf, offset, version).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        flushed(&cache);
        store.replace();
        // A read at the end has the store asked.
        let changed = reader
            .read_at(&mut buf, store.size())
            .expect_err("it has changed");
        assert!(
            matches!(changed, foreread::ReadError::Changed { .. }),
            "{changed}"
        );
    }
    let other = Store::new("s/b", 2 * MIB);
    read(&cache, &other, &whole(&other));
    assert!(other.asked().1 >= 2 * MIB, "nor bytes of another source");
}

/// One object under two names, such as two ways to write a URL.
#[test]
fn two_names_of_one_version_are_one_version() {
    let rig = Rig::new();
    let cache = rig.open();
    let stores = ["one", "two"].map(|shown| {
        let mut store = Store::of("s/a", 2 * MIB);
        store.shown = shown.to_string();
        Arc::new(store)
    });
    let engine = Engine::new(Options::default().policy("none").disk_cache(&cache));
    let engine = engine.expect("an engine");
    let readers = stores
        .clone()
        .map(|store| engine.open(store).expect("opened"));
    let mut buf = vec![0; MIB as usize];
    for offset in [0, MIB] {
        for reader in &readers {
            reader
                .read_at(&mut buf, offset)
                .unwrap_or_else(|error| panic!("{error}"));
            testing::check(&buf, offset, 0).unwrap_or_else(|wrong| panic!("{wrong}"));
            flushed(&cache);
        }
    }
    assert_eq!(stores[1].asked().1, 0, "what the first fetched is there");
}

#[test]
fn damaged_pieces_are_fetched_again() {
    let rig = Rig::new();
    let store = Store::new("s/a", 8 * MIB);
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    flushed(&cache);
    let mut rng = Rng(7);
    for round in 0..40 {
        let pieces = rig.pieces();
        assert!(pieces.len() >= 4, "{pieces:?}");
        let mut damaged = 0;
        for (at, path) in pieces.iter().enumerate() {
            let file = std::fs::File::options()
                .read(true)
                .write(true)
                .open(path)
                .expect("opened");
            let len = file.metadata().expect("there").len();
            damaged += 1;
            match rng.below(9) {
                0 => file.set_len(rng.below(len)).expect("cut"),
                1 => file
                    .write_all_at(&vec![0; 8192], rng.below(len / 4096) * 4096)
                    .expect("zeroed"),
                2 => {
                    let at = 4096 + rng.below(len - 4096);
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).expect("read");
                    file.write_all_at(&[byte[0] ^ 1], at).expect("flipped");
                }
                3 => {
                    let other = &pieces[(at + 1) % pieces.len()];
                    // The other may have been removed in this round.
                    let _ = std::fs::copy(other, path);
                }
                4 => std::fs::remove_file(path).expect("removed"),
                5 => file.set_len(len + 1 + rng.below(100)).expect("longer"),
                _ => damaged -= 1,
            }
        }
        let cache = rig.open_other(round + 1);
        read(&cache, &store, &whole(&store));
        let counts = flushed(&cache);
        assert!(
            counts.wrong <= damaged && counts.refused_writes == 0,
            "{counts:?}"
        );
    }
}

#[test]
fn a_second_process_waits_for_the_first_and_fetches_nothing() {
    let rig = Rig::new();
    let store = Store::new("s/a", MIB);
    let (first, second) = (rig.open(), rig.open_other(1));
    std::thread::scope(|scope| {
        let held = store.gate.lock().expect("not poisoned");
        scope.spawn(|| read(&first, &store, &whole(&store)));
        until(|| store.asked().0 == 1);
        scope.spawn(|| read(&second, &store, &whole(&store)));
        until(|| second.counts().waits == 1);
        drop(held);
    });
    assert_eq!(store.asked(), (1, MIB));
    assert_eq!(flushed(&second).hit_bytes, MIB);
}

/// Waits for an event of another thread.
fn until(happens: impl Fn() -> bool) {
    while !happens() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_scan_leaves_what_is_used_again_and_the_limit_holds() {
    let mut rig = Rig::new();
    rig.settings.size_bytes = 32 * MIB;
    let (used, scanned) = (
        Store::new("s/used", 16 * MIB - 256 * KIB),
        Store::new("s/scan", 320 * MIB),
    );
    let cache = rig.open();
    read(&cache, &used, &whole(&used));
    flushed(&cache);
    // Uses in one go with the fetch are not counted as such: these are another process's.
    let other = rig.open_other(1);
    read(&other, &used, &whole(&used));
    flushed(&other);
    assert!(
        rig.pieces()
            .iter()
            .all(|path| path.to_string_lossy().ends_with(".again"))
    );
    for part in whole(&scanned).chunks(8) {
        read(&cache, &scanned, part);
        flushed(&cache);
        let bytes: u64 = rig
            .pieces()
            .iter()
            .map(|path| path.metadata().map_or(0, |meta| meta.len()))
            .sum();
        assert!(bytes <= rig.settings.size_bytes, "{bytes} bytes");
    }
    let before = used.asked().1;
    read(&rig.open_other(2), &used, &whole(&used));
    let again = used.asked().1 - before;
    assert!(
        again <= used.size() / 10,
        "{again} bytes of the set were pushed out"
    );
    assert!(cache.counts().evicted > 200, "{:?}", cache.counts());
}

#[test]
fn a_folder_that_others_may_write_is_refused_and_links_are_not_followed() {
    let rig = Rig::new();
    std::fs::create_dir(&rig.settings.dir).expect("a folder");
    std::fs::set_permissions(&rig.settings.dir, PermissionsExt::from_mode(0o777))
        .expect("open to all");
    let error = DiskCache::open(rig.settings.clone())
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("other users may write it") && error.contains("others=trusted"),
        "{error}"
    );
    let trusted = DiskCacheSettings {
        others_trusted: true,
        ..rig.settings.clone()
    };
    drop(DiskCache::open(trusted).expect("trusted"));
    std::fs::set_permissions(&rig.settings.dir, PermissionsExt::from_mode(0o700)).expect("own");
    let inner = rig.settings.dir.join("foreread-cache-1");
    std::fs::remove_dir_all(&inner).expect("removed");

    // The folder of the format is a link; then that of a version and each piece.
    let elsewhere = rig.dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    symlink(&elsewhere, &inner).expect("a link");
    assert!(DiskCache::open(rig.settings.clone()).is_err());
    std::fs::remove_file(&inner).expect("removed");
    let store = Store::new("s/a", 2 * MIB);
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    flushed(&cache);
    drop(cache);
    let pieces = rig.pieces();
    for (number, piece) in pieces.iter().enumerate() {
        let moved = elsewhere.join(number.to_string());
        std::fs::rename(piece, &moved).expect("moved");
        symlink(&moved, piece).expect("a link");
    }
    let before = store.asked().1;
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    flushed(&cache);
    assert_eq!(store.asked().1 - before, store.size(), "a link is no piece");
    let version = pieces[0].parent().expect("a folder").to_path_buf();
    drop(cache);
    std::fs::rename(&version, elsewhere.join("version")).expect("moved");
    symlink(elsewhere.join("version"), &version).expect("a link");
    let before = store.asked().1;
    read(&rig.open(), &store, &whole(&store));
    assert_eq!(store.asked().1 - before, store.size(), "nor is a folder");
}

/// Removes a folder in which threads of a cache may still mark pieces as used.
fn remove_in_use(folder: &Path) {
    while let Err(error) = std::fs::remove_dir_all(folder) {
        let is_changed = matches!(
            error.kind(),
            std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::NotFound
        );
        assert!(is_changed, "{error}");
        if !folder.exists() {
            return;
        }
    }
}

#[test]
fn without_a_disk_reads_come_from_the_store() {
    let rig = Rig::new();
    let store = Store::new("s/a", 4 * MIB);
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    flushed(&cache);
    // Emptied by a person while it is used: it is made anew.
    remove_in_use(&rig.settings.dir.join("foreread-cache-1"));
    read(&cache, &store, &whole(&store));
    flushed(&cache);
    let before = store.asked();
    read(&rig.open_other(1), &store, &whole(&store));
    assert_eq!(store.asked(), before, "what was fetched then is there");
    // The folder itself is gone and cannot be made.
    remove_in_use(&rig.settings.dir);
    std::fs::write(&rig.settings.dir, "a file").expect("written");
    read(&cache, &store, &whole(&store));
    let counts = flushed(&cache);
    assert!(counts.refused_writes > 0, "{counts:?}");
    assert!(DiskCache::open(DiskCacheSettings::new(&rig.settings.dir)).is_err());
}

#[test]
fn machines_that_share_a_folder_fetch_one_copy() {
    let rig = Rig::new();
    let store = Store::new("s/a", 24 * MIB);
    let shared = SharedFolder {
        dir: rig.dir.path().join("shared"),
        size_bytes: 1 << 30,
    };
    let machine = |name: &str| {
        let settings = DiskCacheSettings {
            dir: rig.dir.path().join(name),
            shared: Some(SharedCache::Folder(SharedFolder {
                size_bytes: shared.size_bytes - name.len() as u64,
                ..shared.clone()
            })),
            ..rig.settings.clone()
        };
        DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"))
    };
    let first = machine("a");
    read(&first, &store, &whole(&store));
    flushed(&first);
    assert_eq!(store.asked().1, store.size());
    // Another one, later, fetches nothing; its own folder has all then.
    let before = store.asked();
    let late = machine("dddd");
    read(&late, &store, &whole(&store));
    assert_eq!(flushed(&late).written_bytes, store.size());
    assert_eq!(store.asked(), before);
    assert_eq!(late.shared().expect("one").counts().hit_bytes, store.size());
}

/// A small file system in memory that is full.
#[test]
fn a_full_disk_stops_writes_alone() {
    let rig = Rig::new();
    let at = rig.dir.path().join("small");
    std::fs::create_dir(&at).expect("a folder");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m,mode=0700", "none"])
        .arg(&at)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs root (mount -t tmpfs)");
        return;
    }
    let settings = DiskCacheSettings {
        dir: at.clone(),
        ..rig.settings.clone()
    };
    let store = Store::new("s/a", 16 * MIB);
    let other = at.join("of-another-program");
    std::fs::write(&other, vec![1; 4 * MIB as usize - 600_000]).expect("written");
    let cache = DiskCache::open(settings.clone()).expect("opened");
    read(&cache, &store, &whole(&store));
    let counts = flushed(&cache);
    assert!(counts.refused_writes > 0, "{counts:?}");
    drop(cache);
    std::fs::remove_file(&other).expect("removed");
    // With a reserve nothing is refused: pieces make way.
    let cache = DiskCache::open(DiskCacheSettings {
        free: FreeSpace::Percent(30),
        ..settings
    })
    .expect("opened");
    let other = Store::new("s/b", 16 * MIB);
    read(&cache, &other, &whole(&other));
    let counts = flushed(&cache);
    assert_eq!(counts.refused_writes, 0, "{counts:?}");
    assert!(counts.evicted > 0, "{counts:?}");
    drop(cache);
    let unmounted = std::process::Command::new("umount")
        .arg("-l")
        .arg(&at)
        .status();
    assert!(unmounted.is_ok_and(|status| status.success()));
}

/// A process that reads through a cache is killed at random moments.
#[test]
fn fifty_kills_leave_no_wrong_byte() {
    const FOLDER: &str = "FOREREAD_TEST_DISK_CACHE";
    let store = Store::new("s/a", 24 * MIB);
    if let Some(dir) = std::env::var_os(FOLDER) {
        let settings = DiskCacheSettings {
            free: FreeSpace::Bytes(0),
            size_bytes: 16 * MIB,
            reads_slow_disk: true,
            ..DiskCacheSettings::new(dir)
        };
        let cache = DiskCache::open(settings).expect("opened");
        println!("reads");
        loop {
            read(&cache, &store, &whole(&store));
        }
    }
    let mut rig = Rig::new();
    rig.settings.size_bytes = 16 * MIB;
    let mut rng = Rng(11);
    for round in 0..kills() {
        let me = std::env::current_exe().expect("this test");
        let mut child = std::process::Command::new(me)
            .args(only(module_path!(), "fifty_kills_leave_no_wrong_byte"))
            .env(FOLDER, &rig.settings.dir)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = [0; 1];
        let mut out = child.stdout.take().expect("its output");
        std::io::Read::read_exact(&mut out, &mut line).expect("it reads");
        std::thread::sleep(Duration::from_micros(rng.below(30_000)));
        child.kill().expect("killed");
        child.wait().expect("ended");
        for path in &rig.pieces() {
            if rng.below(5) == 0 {
                damage(path, &mut rng);
            }
        }
        let cache = rig.open_other(round + 1);
        read(&cache, &store, &whole(&store));
        flushed(&cache);
    }
}

/// A piece is cut, zeroed in part, changed in one bit, or has the bytes of another place.
fn damage(path: &std::path::Path, rng: &mut Rng) {
    let mut bytes = std::fs::read(path).expect("read");
    let at = rng.below(bytes.len().max(1) as u64) as usize;
    let end = bytes.len().min(at + 8192);
    match rng.below(4) {
        0 => bytes.truncate(at),
        1 => bytes[at..end].fill(0),
        2 => bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 4),
        _ => bytes.copy_within(at..end, at / 2),
    }
    std::fs::write(path, bytes).expect("written");
}

/// 50; 1000 in `./test-long`.
fn kills() -> u64 {
    let set = std::env::var("FOREREAD_KILLS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(50)
}

/// A child of a fork, and a second cache of the same folder in one process, both work.
#[test]
fn the_same_folder_is_one_cache_in_a_process() {
    alone(
        module_path!(),
        "the_same_folder_is_one_cache_in_a_process",
        || {
            let rig = Rig::new();
            let store = Store::new("s/a", 2 * MIB);
            let (one, two) = (rig.open(), rig.open());
            read(&one, &store, &whole(&store));
            assert_eq!(flushed(&two).written_bytes, store.size());
        },
    );
}
