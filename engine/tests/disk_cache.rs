//! Tests of the disk cache: the bytes are right whatever happens to its folder, all processes share one copy, and its
//! limits hold.

use crate::common::{Rng, SmallDisk, is_alone, only, quiet, this_test, wait_until, watch};
use foreread::source::Source;
use foreread::source::disk_cache::{
    DiskCache, DiskCacheCounts, DiskCacheSettings, FreeSpace, SharedCache,
};
use foreread::{Engine, ErrorKind, Options};
pub use foreread_testing::VersionedSource as Store;
use foreread_testing::{needs, says};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

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
        self.open_with(|_| {})
    }

    /// As another process would: with other descriptors and nothing in memory.
    pub fn open_other(&self, number: u64) -> DiskCache {
        self.open_with(|settings| settings.size_bytes -= number)
    }

    pub fn open_with(&self, change: impl FnOnce(&mut DiskCacheSettings)) -> DiskCache {
        let mut settings = self.settings.clone();
        change(&mut settings);
        DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The files of all versions: `.data` and `.sums`.
    pub fn objects(&self) -> Vec<PathBuf> {
        let mut all = files(&self.settings.dir.join("foreread-cache-2"));
        all.retain(|path| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            matches!(ending, Some("data" | "sums"))
        });
        all.sort();
        all
    }

    /// What they take on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.objects().iter().map(|path| disk_bytes(path)).sum()
    }
}

fn disk_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.blocks() * 512)
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

/// An engine with the cache and nothing in its memory, which reads nothing ahead.
fn engine(cache: &DiskCache) -> Engine {
    Engine::new(Options::default().policy("none").disk_cache(cache)).expect("an engine")
}

/// A read has the bytes of this version.
#[track_caller]
fn right(read: Result<usize, foreread::ReadError>, buf: &[u8], offset: u64, version: u16) {
    let len = read.unwrap_or_else(|error| panic!("{error}"));
    crate::common::right(&buf[..len], offset, version);
}

/// Reads a source below an engine that has nothing in its memory, and checks every byte.
pub fn read(cache: &DiskCache, store: &Arc<Store>, ranges: &[(u64, usize)]) {
    let version = store.accepted();
    let reader = engine(cache).open(Arc::clone(store)).expect("opened");
    for (offset, len) in ranges {
        let mut buf = vec![0; *len];
        let read = reader.read_at(&mut buf, *offset);
        let there = (store.size() - offset).min(*len as u64) as usize;
        assert!(read.as_ref().map_or(true, |read| *read == there));
        right(read, &buf, *offset, version);
    }
    quiet(&reader);
}

pub fn whole(store: &Store) -> Vec<(u64, usize)> {
    let step = 3 * MIB / 2;
    let starts = (0..store.size()).step_by(step as usize);
    starts.map(|start| (start, step as usize)).collect()
}

pub fn flushed(cache: &DiskCache) -> DiskCacheCounts {
    assert!(cache.flush(PATIENCE), "what was fetched is written");
    cache.counts()
}

/// Reads all of a source, and waits until what was fetched is written.
pub fn read_whole(cache: &DiskCache, store: &Arc<Store>) -> DiskCacheCounts {
    read(cache, store, &whole(store));
    flushed(cache)
}

/// The account of a cache is what its files take on the disk, but for a little.
fn check_account(cache: &DiskCache, rig: &Rig) {
    let (held, there) = (cache.bytes().expect("an account"), rig.disk_bytes());
    assert!(held.abs_diff(there) < 64 * KIB, "{held} for {there}");
}

#[test]
fn the_next_process_reads_fetched_bytes_from_disk() {
    let rig = Rig::new();
    let store = Store::new("s/a", 5 * MIB + 17);
    let cache = rig.open();
    let counts = read_whole(&cache, &store);
    let fetched = (counts.miss_bytes, counts.written_bytes);
    assert_eq!(fetched, (store.size(), store.size()));
    assert_eq!((counts.dropped_bytes, counts.refused_writes), (0, 0));
    drop(cache);
    let before = store.asked();
    let cache = rig.open();
    read(&cache, &store, &whole(&store));
    // Any part of it, too, and by reads that do not stream.
    let parts = [(0, 1), (MIB - 1, 2), (70_000, 5), (store.size() - 1, 10)];
    read(&cache, &store, &parts);
    let source = cache.over(Arc::clone(&store) as Arc<dyn Source>);
    let mut buf = vec![0; 3 * MIB as usize];
    let (head, tail) = buf.split_at_mut(12_345);
    let mut bufs = [head, &mut [], tail].map(IoSliceMut::new);
    assert_eq!(source.read_at(&mut bufs, 77), Ok(3 * MIB as usize));
    crate::common::right(&buf, 77, 0);
    assert_eq!(store.asked(), before, "nothing is asked again");
    let counts = cache.counts();
    let bad = (counts.miss_bytes, counts.wrong, counts.read_errors);
    assert_eq!(bad, (0, 0, 0));
    check_account(&cache, &rig);
}

#[test]
fn another_version_is_never_served_for_this_one() {
    let rig = Rig::new();
    let store = Store::new("s/a", 2 * MIB);
    let cache = rig.open();
    let reader = engine(&cache).open(Arc::clone(&store)).expect("opened");
    let mut buf = vec![0; MIB as usize];
    for version in 0..4 {
        for offset in [0, MIB] {
            right(reader.read_at(&mut buf, offset), &buf, offset, version);
        }
        flushed(&cache);
        store.replace();
        // A read at the end has the store asked.
        let changed = reader.read_at(&mut buf, store.size());
        let changed = changed.expect_err("it has changed").kind();
        assert_eq!(changed, ErrorKind::Changed);
    }
    let other = Store::new("s/b", 2 * MIB);
    read(&cache, &other, &whole(&other));
    assert!(other.asked().1 >= 2 * MIB, "nor bytes of another source");
}

/// Damages files of the cache, one in this many, and gives how many files there are.
fn damage_one_in(many: u64, rig: &Rig, rng: &mut Rng) -> usize {
    let files = rig.objects();
    for path in &files {
        if rng.below(many) == 0 {
            let other = &files[rng.below(files.len() as u64) as usize];
            damage(path, other, rng);
        }
    }
    files.len()
}

#[test]
fn damaged_files_are_fetched_again() {
    let rig = Rig::new();
    let sizes = [8 * MIB, 100_000, 20_000, 1];
    let stores = sizes.map(|size| Store::new(&format!("s/{size}"), size));
    let read_all = |cache: &DiskCache| stores.each_ref().map(|store| read_whole(cache, store))[3];
    read_all(&rig.open());
    let (mut rng, mut wrong) = (Rng(7), 0);
    for round in 0..60 {
        assert!(damage_one_in(2, &rig, &mut rng) >= 4);
        let counts = read_all(&rig.open_other(round + 1));
        let failed = (counts.refused_writes, counts.read_errors);
        assert_eq!(failed, (0, 0), "{counts:?}");
        wrong += counts.wrong;
        let asked = || stores.each_ref().map(|store| store.asked());
        let before = asked();
        read_all(&rig.open_other(100 + round));
        assert_eq!(asked(), before, "all is there again");
    }
    assert!(wrong > 50, "{wrong}");
}

#[test]
fn a_second_process_waits_for_the_first_and_fetches_nothing() {
    let rig = Rig::new();
    let store = Store::new("s/a", MIB);
    let (first, second) = (rig.open(), rig.open_other(1));
    std::thread::scope(|scope| {
        let held = store.gate.lock().expect("not poisoned");
        scope.spawn(|| read(&first, &store, &whole(&store)));
        wait_until("the first asks", || store.asked().0 == 1);
        scope.spawn(|| read(&second, &store, &whole(&store)));
        wait_until("the second waits", || second.counts().waits == 1);
        drop(held);
    });
    assert_eq!(store.asked(), (1, MIB));
    assert_eq!(flushed(&second).hit_bytes, MIB);
}

#[test]
fn a_scan_keeps_reused_data_and_the_limit_holds() {
    let mut rig = Rig::new();
    rig.settings.size_bytes = 32 * MIB;
    let used = Store::new("s/used", 16 * MIB - 256 * KIB);
    let scanned = Store::new("s/scan", 320 * MIB);
    let cache = rig.open();
    read_whole(&cache, &used);
    let mut sums = rig.objects().into_iter();
    let sums = sums.find(|path| path.extension().is_some_and(|it| it == "sums"));
    let sums = File::options()
        .append(true)
        .open(sums.expect("a file"))
        .expect("opened");
    let is_used_again = || sums.metadata().expect("there").len() % 2 == 1;
    // Uses within a minute are one, also those of another process.
    read_whole(&rig.open_other(1), &used);
    assert!(!is_used_again());
    let before = SystemTime::now() - Duration::from_secs(120);
    sums.set_modified(before).expect("set");
    read_whole(&rig.open_other(2), &used);
    assert!(is_used_again());
    for part in whole(&scanned).chunks(8) {
        read(&cache, &scanned, part);
        flushed(&cache);
        let bytes = rig.disk_bytes();
        assert!(bytes <= rig.settings.size_bytes + MIB, "{bytes} bytes");
    }
    let before = used.asked().1;
    read(&rig.open_other(2), &used, &whole(&used));
    let again = used.asked().1 - before;
    assert!(again <= used.size() / 10, "{again} bytes were pushed out");
    assert!(cache.counts().evicted > 20, "{:?}", cache.counts());
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("its mode");
}

/// The folder of the format is a link; then that of a version and each file.
#[test]
fn links_are_not_followed() {
    let rig = Rig::new();
    std::fs::create_dir(&rig.settings.dir).expect("a folder");
    set_mode(&rig.settings.dir, 0o700);
    let inner = rig.settings.dir.join("foreread-cache-2");
    let elsewhere = rig.dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    symlink(&elsewhere, &inner).expect("a link");
    assert!(DiskCache::open(rig.settings.clone()).is_err());
    std::fs::remove_file(&inner).expect("removed");
    let store = Store::new("s/a", 2 * MIB);
    read_whole(&rig.open(), &store);
    let objects = rig.objects();
    for (number, file) in objects.iter().enumerate() {
        let moved = elsewhere.join(number.to_string());
        std::fs::rename(file, &moved).expect("moved");
        symlink(&moved, file).expect("a link");
    }
    let fetches_all = |cache: DiskCache| {
        let before = store.asked().1;
        read_whole(&cache, &store);
        assert_eq!(store.asked().1 - before, store.size(), "a link is no file");
    };
    fetches_all(rig.open());
    let version = objects[0].parent().expect("a folder").to_path_buf();
    let moved = elsewhere.join("version");
    std::fs::rename(&version, &moved).expect("moved");
    for file in files(&moved) {
        std::fs::remove_file(file).expect("removed");
    }
    set_mode(&moved, 0o500);
    symlink(&moved, &version).expect("a link");
    // Also where a group writes it: then modes are set.
    for others_trusted in [false, true] {
        fetches_all(rig.open_with(|settings| settings.others_trusted = others_trusted));
        assert_eq!(files(&moved), [] as [PathBuf; 0], "behind a link");
        let mode = moved.metadata().expect("there").mode();
        assert_eq!(mode & 0o7777, 0o500, "nor changed");
    }
}

/// Removes a folder in which threads of a cache may still note uses.
fn remove_in_use(folder: &Path) {
    use std::io::ErrorKind::{DirectoryNotEmpty, NotFound};
    while let Err(error) = std::fs::remove_dir_all(folder) {
        let is_changed = [DirectoryNotEmpty, NotFound].contains(&error.kind());
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
    read_whole(&cache, &store);
    // Emptied by a person while it is used: it is made anew.
    remove_in_use(&rig.settings.dir.join("foreread-cache-2"));
    read_whole(&cache, &store);
    let before = store.asked();
    read(&rig.open_other(1), &store, &whole(&store));
    assert_eq!(store.asked(), before, "what was fetched then is there");
    // The folder itself is gone and cannot be made.
    remove_in_use(&rig.settings.dir);
    std::fs::write(&rig.settings.dir, "a file").expect("written");
    let counts = read_whole(&cache, &store);
    assert!(counts.refused_writes > 0, "{counts:?}");
    assert!(DiskCache::open(DiskCacheSettings::new(&rig.settings.dir)).is_err());
}

#[test]
fn machines_that_share_a_folder_fetch_one_copy() {
    let rig = Rig::new();
    let store = Store::new("s/a", 24 * MIB);
    let machine = |name: &str| {
        let shared = SharedCache::Folder {
            dir: rig.dir.path().join("shared"),
            size_bytes: (1 << 30) - name.len() as u64,
        };
        rig.open_with(|settings| {
            settings.dir = rig.dir.path().join(name);
            settings.shared = Some(shared);
        })
    };
    let first = machine("a");
    read_whole(&first, &store);
    assert_eq!(store.asked().1, store.size());
    // Another one, later, fetches nothing; its own folder has all then.
    let before = store.asked();
    let late = machine("dddd");
    assert_eq!(read_whole(&late, &store).written_bytes, store.size());
    assert_eq!(store.asked(), before);
    assert_eq!(late.shared_counts().expect("one").hit_bytes, store.size());
}

/// A small file system in memory that is full.
#[test]
fn a_full_disk_stops_only_writes() {
    needs!(let disk = SmallDisk::of(4096));
    let mut rig = Rig::new();
    rig.settings.dir = disk.dir.path().to_path_buf();
    let store = Store::new("s/a", 16 * MIB);
    let other = rig.settings.dir.join("of-another-program");
    let cache = rig.open();
    let mut file = std::fs::File::create(&other).expect("made");
    let full = std::io::copy(&mut std::io::repeat(1), &mut file);
    let is_full = full.is_err_and(|error| error.raw_os_error() == Some(28));
    assert!(is_full, "not a byte is left");
    let counts = read_whole(&cache, &store);
    let is_refused = counts.refused_writes > 0 && counts.written == 0;
    assert!(is_refused, "{counts:?}");
    drop(cache);
    // With room for a part of it, and nothing that is to stay free: what is older makes way.
    file.set_len(2 * MIB).expect("cut");
    let makes_way = |cache: DiskCache, store: &Arc<Store>| {
        let counts = read_whole(&cache, store);
        let is_right = counts.evicted > 0 && counts.refused_writes == 0;
        assert!(is_right, "{counts:?}");
    };
    makes_way(rig.open_other(1), &store);
    drop(file);
    std::fs::remove_file(&other).expect("removed");
    // With a reserve it does so before the disk is full.
    let cache = rig.open_with(|settings| settings.free = FreeSpace::Percent(30));
    makes_way(cache, &Store::new("s/b", 16 * MIB));
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
        let mut child = std::process::Command::new(me);
        child.args(only(this_test!()));
        let child = child.env(FOLDER, &rig.settings.dir);
        let child = child.stdout(std::process::Stdio::piped());
        let mut child = child.spawn().expect("started");
        let mut line = [0; 1];
        let mut out = child.stdout.take().expect("its output");
        std::io::Read::read_exact(&mut out, &mut line).expect("it reads");
        std::thread::sleep(Duration::from_micros(rng.below(30_000)));
        child.kill().expect("killed");
        child.wait().expect("ended");
        damage_one_in(5, &rig, &mut rng);
        read_whole(&rig.open_other(round + 1), &store);
    }
}

/// A file is cut, made longer, zeroed in part, changed in one bit, removed, or has the bytes of another place or file.
fn damage(path: &Path, other: &Path, rng: &mut Rng) {
    let mut bytes = std::fs::read(path).expect("read");
    let at = rng.below(bytes.len().max(1) as u64) as usize;
    let end = bytes.len().min(at + 8192);
    match rng.below(7) {
        0 => bytes.truncate(at),
        1 => bytes[at..end].fill(0),
        2 => bytes[at..end]
            .iter_mut()
            .take(1)
            .for_each(|byte| *byte ^= 4),
        3 => bytes.copy_within(at..end, at / 2),
        // That one may be removed by now.
        4 => bytes = std::fs::read(other).unwrap_or_default(),
        5 => bytes.resize(bytes.len() + 1 + at, 7),
        _ => return std::fs::remove_file(path).expect("removed"),
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
    needs!(is_alone(this_test!()));
    let rig = Rig::new();
    let store = Store::new("s/a", 2 * MIB);
    let (one, two) = (rig.open(), rig.open());
    read(&one, &store, &whole(&store));
    assert_eq!(flushed(&two).written_bytes, store.size());
}

/// Many objects of a few bytes: what they take on the disk, folders among it, is within the limit, and all of them were kept for a time.
#[test]
fn tiny_objects_stay_within_the_limit() {
    let mut rig = Rig::new();
    rig.settings.size_bytes = 4 * MIB;
    let cache = rig.open();
    let read_one = |cache: &DiskCache, n: u64| {
        let store = Store::new(&format!("s/{n}"), 16 + n % 7);
        let source = cache.over(Arc::clone(&store) as Arc<dyn Source>);
        crate::common::read_right(&*source, 0, 32, 0);
        store.asked().0
    };
    let count = 4000;
    for n in 0..count {
        assert_eq!(read_one(&cache, n), 1);
        if n % 500 == 0 {
            flushed(&cache);
        }
    }
    let counts = flushed(&cache);
    let written = (counts.written, counts.dropped_bytes);
    assert_eq!(written, (count, 0), "{counts:?}");
    let root = rig.settings.dir.join("foreread-cache-2");
    let folders = std::fs::read_dir(&root).expect("a folder").flatten();
    let folders: u64 = folders.map(|folder| disk_bytes(&folder.path())).sum();
    let bytes = rig.disk_bytes() + folders;
    let least = rig.settings.size_bytes / 2;
    let is_within = (least..=rig.settings.size_bytes + MIB / 4).contains(&bytes);
    assert!(is_within, "{bytes} bytes");
    let last = (count - 100..count).filter(|n| read_one(&cache, *n) == 0);
    let last = last.count();
    assert!(last >= 90, "of the last 100 {last} are there");
}

/// A mount that reads one small file after the other finds the writer idle after each. The account, four system calls, is not written each time.
#[test]
fn the_account_is_written_once_for_many_small_files() {
    let rig = Rig::new();
    let cache = rig.open();
    let (began, mut accounts) = (Instant::now(), BTreeSet::new());
    for n in 1..=100 {
        let source = cache.over(Store::new(&format!("s/{n}"), 16));
        let read = source.read_at(&mut [IoSliceMut::new(&mut [0; 16])], 0);
        assert_eq!(read, Ok(16));
        wait_until("it is written", || cache.counts().written == n);
        accounts.insert(cache.bytes());
    }
    let most = 1 + began.elapsed().as_millis() as usize / 500;
    assert!(accounts.len() <= most, "{} of {most}", accounts.len());
    flushed(&cache);
    check_account(&cache, &rig);
}

/// What is in the folder is not looked at before something is written, and not all of it after that: so the account knows only what this
/// process has written.
#[test]
fn a_process_that_writes_little_looks_at_no_other_file() {
    let rig = Rig::new();
    let first = rig.open();
    for n in 0..50 {
        let store = Store::new(&format!("s/{n}"), 50_000);
        read(&first, &store, &whole(&store));
    }
    let before = flushed(&first).written_bytes;
    assert_eq!(before, 50 * 50_000);
    // As if the others had been killed before they counted.
    let size = rig.settings.dir.join("foreread-cache-2/size");
    std::fs::write(&size, "").expect("written");
    let store = Store::new("s/new", 300_000);
    let short = rig.open_other(1);
    read_whole(&short, &store);
    let held = short.bytes().expect("an account");
    assert!((300_000..400_000).contains(&held), "{held}");
    let asked = store.asked();
    read(&rig.open_other(2), &store, &whole(&store));
    assert_eq!(store.asked(), asked, "it is kept");
}

/// An account that is damaged costs no more than what makes way.
#[test]
fn a_damaged_account_is_set_right() {
    let mut rig = Rig::new();
    rig.settings.size_bytes = 256 * MIB;
    let store = Store::new("s/a", 8 * MIB);
    let cache = rig.open();
    read_whole(&cache, &store);
    let size = rig.settings.dir.join("foreread-cache-2/size");
    for wrong in [vec![0xff; 2048], vec![0x55; 100], Vec::new()] {
        std::fs::write(&size, wrong).expect("written");
        let other = Store::new("s/b", 2 * MIB);
        other.begin_with(7);
        let cache = rig.open_other(1);
        let counts = read_whole(&cache, &other);
        let lost = (counts.refused_writes, counts.evicted);
        assert_eq!(lost, (0, 0), "{counts:?}");
        let asked = store.asked();
        read(&cache, &store, &whole(&store));
        assert_eq!(store.asked(), asked, "nothing made way");
    }
}

/// Where the folder cannot be used, a server starts without it; a setting that is wrong stays an error.
#[test]
fn a_folder_that_cannot_be_used_is_left_out() {
    let rig = Rig::new();
    let file = rig.dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let below = format!("{}/cache", file.display());
    assert!(DiskCache::named(&below).is_err());
    assert!(DiskCache::if_usable(&below).expect("no error").is_none());
    let dir = rig.settings.dir.display().to_string();
    for name in ["size", "claims"] {
        drop(rig.open());
        let path = rig.settings.dir.join("foreread-cache-2").join(name);
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        let store = Store::new("s/a", MIB);
        let cache = DiskCache::if_usable(&format!("{dir},size={}M", 20 + name.len()));
        let cache = cache.expect("no error").expect("it can be read");
        let written = read_whole(&cache, &store).written;
        assert_eq!((written, store.asked().1), (0, MIB), "{name}");
        std::fs::remove_dir(&path).expect("removed");
    }
    for wrong in ["/c,size=1K", ",size=1G"] {
        assert!(DiskCache::if_usable(wrong).is_err(), "{wrong}");
    }
    set_mode(&rig.settings.dir, 0o777);
    let error = DiskCache::if_usable(&dir).expect_err("refused").to_string();
    says(&error, &["other users can write to it", "others=trusted"]);
    drop(rig.open_with(|settings| settings.others_trusted = true));
}

/// Through the kernel: a second mount opens what is whole as a file, so that foreread reads nothing; beside a handle that is not passed no other
/// is, and an eviction leaves a file that is open what it is.
#[cfg(feature = "fuse")]
#[test]
fn a_whole_object_is_read_by_the_kernel() {
    use crate::fuse::{can_mount, mount_with, small};
    use foreread::front::fuse::FuseSettings;
    use foreread::source::tree::Single;
    use std::io::{Read, Seek};
    needs!(can_mount());
    let rig = Rig::new();
    let store = Store::new("s/a", 3_000_000);
    let mount = |cache: &DiskCache| {
        let store = Arc::clone(&store);
        let tree = Single::new("f", "an object", move || Ok(store.clone())).expect("opened");
        let options = small().policy("none").disk_cache(cache);
        mount_with(Arc::new(tree), &FuseSettings::default(), options)
    };
    let check = |file: &mut std::fs::File| {
        let mut bytes = Vec::new();
        file.rewind().expect("at its start");
        file.read_to_end(&mut bytes).expect("read");
        assert_eq!(bytes.len() as u64, store.size());
        crate::common::right(&bytes, 0, 0);
    };
    let cache = rig.open();
    let here = mount(&cache);
    let open = |path: PathBuf| std::fs::File::open(path).expect("opened");
    let mut first = open(here.path("f"));
    check(&mut first);
    flushed(&cache);
    let mut second = open(here.path("f"));
    check(&mut second);
    check(&mut first);
    drop((first, second));
    here.end();
    let asked = store.asked();
    let cache = rig.open_other(1);
    let here = mount(&cache);
    let mut first = open(here.path("f"));
    check(&mut first);
    assert_eq!(cache.counts().verified, 0, "noted by its writer");
    if here.engine().stats().demand_reads > 0 {
        println!("skipped: needs FUSE passthrough (Linux 6.9)");
        drop(first);
        here.end();
        return;
    }
    let mut second = open(here.path("f"));
    check(&mut second);
    remove_in_use(&rig.settings.dir.join("foreread-cache-2"));
    check(&mut first);
    drop((first, second));
    here.end();
    assert_eq!(store.asked(), asked, "nothing is asked again");
}
