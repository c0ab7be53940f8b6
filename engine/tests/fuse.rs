//! Tests with real mounts: the bytes are right, an inode number stands for one version, no reader is delayed by
//! another's slow file, and the mount ends cleanly.

use crate::common::{Rng, by, in_threads, passed, refused, right, watch};
use foreread::front::fuse::{FuseSettings, FuseStop, Mount, Planner, UnmountOutcome};
use foreread::source::tree::{FolderNames, Kind, Meta, Tree};
use foreread::source::{self, Defaults, Mem, Source, SourceError};
use foreread::{Engine, Options};
use foreread_testing::{self as testing, FaultAction, Faulty, needs};
use rustix::fs::Advice;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

/// A mount that serves, and goes away in the end.
pub struct Here {
    pub dir: tempfile::TempDir,
    pub stop: Arc<FuseStop>,
    runs: Option<JoinHandle<std::io::Result<()>>>,
    engine: Engine,
    pub planner: Planner,
}

impl Here {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn open(&self, name: &str) -> File {
        File::open(self.path(name)).expect("opened")
    }

    pub fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    /// A file has the bytes of this version alone. Its size.
    #[track_caller]
    pub fn check(&self, name: &str, version: u16) -> usize {
        let bytes = self.read(name).expect("read");
        right(&bytes, 0, version);
        bytes.len()
    }

    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("listed");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("one").file_name();
        let names = entries.map(|entry| name(entry).into_string().expect("text"));
        let mut names = Vec::from_iter(names);
        names.sort();
        names
    }

    pub fn ino(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).expect("there").ino()
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn end(self) -> UnmountOutcome {
        let how = self.stop.stop().expect("unmounted");
        self.joined();
        how
    }

    /// Waits for the end of a mount that was stopped.
    pub fn joined(mut self) {
        let runs = self.runs.take().expect("once");
        runs.join().expect("no panic").expect("ended");
        assert!(self.names("").is_empty(), "a folder again");
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // After a failed check; open files are not waited for.
        if self.runs.is_some() {
            let _ = self.stop.stop();
        }
    }
}

pub fn can_mount() -> bool {
    watch();
    foreread_testing::machine::can_mount()
}

pub fn mount_with(tree: Arc<dyn Tree>, settings: &FuseSettings, options: Options) -> Here {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = Engine::new(options).expect("an engine");
    let (mount, stop) = Mount::new(tree, engine.clone(), dir.path(), settings).expect("mounted");
    let planner = mount.planner();
    let runs = Some(std::thread::spawn(move || mount.run()));
    Here {
        dir,
        stop: Arc::new(stop),
        runs,
        engine,
        planner,
    }
}

/// The settings of a mount that believes what it has listed for this long.
pub fn believed(time: Duration) -> FuseSettings {
    FuseSettings {
        attr_ttl: Some(time),
        ..FuseSettings::default()
    }
}

pub fn small() -> Options {
    by("linux-6.18:max=128K", 16 << 20)
}

/// A folder of this machine, of which changes are seen at once.
fn mount(source: &Path) -> Here {
    mount_with(tree(source), &believed(Duration::ZERO), small())
}

fn tree(source: &Path) -> Arc<dyn Tree> {
    source::open_tree(&source.display().to_string()).expect("a tree")
}

/// A folder with `file`, of this size and version.
fn with_file(size: usize, version: u16) -> tempfile::TempDir {
    let source = tempfile::tempdir().expect("a folder");
    put(&source, size, version);
    source
}

/// Writes `file` in its place.
fn put(source: &tempfile::TempDir, size: usize, version: u16) {
    let bytes = testing::pattern(0, size, version);
    fs::write(source.path().join("file"), bytes).expect("written");
}

/// Puts another `file` in its place, by a rename.
fn replace(source: &tempfile::TempDir, size: usize, version: u16) {
    let [new, name] = ["new", "file"].map(|name| source.path().join(name));
    fs::write(&new, testing::pattern(0, size, version)).expect("written");
    fs::rename(&new, &name).expect("renamed");
}

/// A tree in memory whose files may be slow: `slow*` waits at every read.
struct Slow;

impl Tree for Slow {
    fn names(&self, _: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let mut names = FolderNames::default();
        assert!(names.push("fast".as_ref(), Kind::File, None));
        assert!(names.push("slow".as_ref(), Kind::File, None));
        Ok(Arc::new(names))
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        let is_root = path.as_os_str().is_empty();
        Ok(Meta {
            kind: if is_root { Kind::Folder } else { Kind::File },
            size: 8 << 20,
            mtime_ns: 0,
            permissions: 0o555,
            owner: None,
            version: [1].into(),
        })
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let mem = Mem::generated(8 << 20, |offset, buf| testing::fill(buf, offset, 1));
        let verdict = match path.display().to_string().starts_with("slow") {
            true => FaultAction::Slow(Duration::from_millis(1500)),
            false => FaultAction::Pass,
        };
        let source = Arc::new(Faulty::new(mem, move |_| verdict));
        Ok((source, self.look(path)?))
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }

    fn describe(&self) -> String {
        "slow, and a comma".to_string()
    }
}

/// What `find` and `sha256sum` say of a folder.
fn sum(folder: &Path) -> String {
    let script = "find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%y %p %l\\n' | sort";
    let mut shell = Command::new("sh");
    output(shell.args(["-c", script]).current_dir(folder))
}

/// What a program prints that succeeds.
#[track_caller]
fn output(command: &mut Command) -> String {
    let out = command.output().expect("a program");
    passed(&out);
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn a_tree_is_the_same_tree() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    let mut rng = Rng(1);
    for n in 0..40u16 {
        let folder = source.path().join(format!("d{}/e{}", n % 3, n % 5));
        fs::create_dir_all(&folder).expect("made");
        let sizes = [0, 1, 4095, 4096, 4097, 131_072, 131_073, 1_500_000];
        let size = sizes[usize::from(n) % 8] + rng.below(3) as usize;
        let bytes = testing::pattern(0, size, n);
        fs::write(folder.join(format!("file {n}")), bytes).expect("written");
    }
    symlink("e0/file 0", source.path().join("d0/link")).expect("linked");
    symlink("/no/where", source.path().join("broken")).expect("linked");
    let here = mount(source.path());
    assert_eq!(sum(here.dir.path()), sum(source.path()));
    let before = here.engine.stats().source_bytes;
    assert_eq!(sum(here.dir.path()), sum(source.path()));
    let after = here.engine.stats().source_bytes;
    assert_eq!(after, before, "nothing was read twice");
    for denied in ["new", "d0/e0/file 0"] {
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let error = options.open(here.path(denied)).expect_err("denied");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(here.end(), UnmountOutcome::Clean);
}

/// Bytes of two versions, in the same file, are never in one answer: each number has one version.
#[test]
fn a_replaced_file_is_another_number_and_never_a_mix() {
    needs!(can_mount());
    let size = 2 << 20;
    let source = with_file(size, 1);
    let here = mount(source.path());
    let old = here.open("file");
    let mut buf = vec![0; size / 2];
    old.read_exact_at(&mut buf, 0).expect("read");
    replace(&source, size, 2);
    let new = here.open("file");
    let ino = |file: &File| file.metadata().expect("known").ino();
    assert_ne!(ino(&old), ino(&new));
    let mut whole = vec![0; size];
    for (file, version) in [(&new, 2), (&old, 1)] {
        file.read_exact_at(&mut whole, 0).expect("still there");
        right(&whole, 0, version);
    }
    // Rewritten in place: what is open fails from the next fetch on, and is never given the new bytes.
    put(&source, size, 3);
    let kept = new.read_exact_at(&mut whole, 0);
    let is_old = kept.is_err() || testing::check(&whole, 0, 2).is_ok();
    assert!(is_old, "the version that was opened, or an error");
    assert_eq!(here.check("file", 3), size);
    drop((old, new));
    assert_eq!(here.end(), UnmountOutcome::Clean);
}

/// A longer file copied over one that is open: between two looks only its size is larger. The handle fails; it is never given
/// bytes of the new file under the number of the old one. With `appending` a file that grew is read on.
#[test]
fn a_longer_file_copied_over_an_open_one_is_another() {
    needs!(can_mount());
    let size = 2 << 20;
    let source = with_file(size, 1);
    let here = mount(source.path());
    let old = here.open("file");
    let mut buf = vec![0; 4096];
    old.read_exact_at(&mut buf, 0).expect("read");
    put(&source, 2 * size, 2);
    let met = old.read_exact_at(&mut buf, size as u64 - 4096);
    assert!(met.is_err(), "{:?}", &buf[..8]);
    assert_eq!(here.check("file", 2), 2 * size);
    drop(old);
    assert_eq!(here.end(), UnmountOutcome::Clean);

    let appending = small().appending(true);
    let here = mount_with(tree(source.path()), &FuseSettings::default(), appending);
    let old = here.open("file");
    let more = testing::pattern(2 * size as u64, 5000, 2);
    let name = source.path().join("file");
    let mut file = File::options().append(true).open(name).expect("there");
    std::io::Write::write_all(&mut file, &more).expect("appended");
    let mut whole = vec![0; 2 * size];
    old.read_exact_at(&mut whole, 0).expect("it is read on");
    right(&whole, 0, 2);
    drop(old);
    assert_eq!(here.end(), UnmountOutcome::Clean);
}

#[test]
fn readers_never_see_a_mix_while_a_file_is_replaced() {
    needs!(can_mount());
    let size = 600_000;
    let source = with_file(size, 0);
    let here = mount(source.path());
    let done = Barrier::new(4);
    in_threads(4, |thread| {
        done.wait();
        if thread == 0 {
            for version in 1..60 {
                replace(&source, size, version);
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        // A change while it is opened or read is an error, and that is right.
        for bytes in (0..60).filter_map(|_| here.read("file").ok()) {
            // The first word has the version, and all others must be of the same.
            let (_, version) = testing::name_of(bytes[..8].try_into().expect("eight bytes"));
            assert_eq!(bytes.len(), size);
            right(&bytes, 0, version);
        }
    });
    here.end();
}

/// The kernel takes a short answer for the end of the file and keeps that for all readers (hf-mount, issue 12). Readers
/// that throw pages out while others read make every boundary be met again and again.
#[test]
fn thirty_two_readers_that_drop_pages_get_every_byte() {
    needs!(can_mount());
    let size = 3_000_001;
    let source = with_file(size as usize, 9);
    let here = mount(&source.path().join("file"));
    in_threads(32, |n| {
        let (file, mut rng, mut at) = (here.open("file"), Rng(n), 0);
        let mut buf = vec![0; 150_000];
        while at < size {
            let len = 1 + rng.below(150_000) as usize;
            let read = file.read_at(&mut buf[..len], at).expect("read");
            let wanted = (size - at).min(len as u64);
            assert_eq!(read as u64, wanted, "no short read before the end");
            right(&buf[..read], at, 9);
            at += wanted;
            if rng.below(3) == 0 {
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
            }
        }
        assert_eq!(file.read_at(&mut buf, size).expect("the end"), 0);
    });
    here.end();
}

/// 64 threads fault random pages of one mapping, 16 times as large as the cache: each gets the right bytes, and none waits without end. A copy by
/// `memcpy` faults without Python's lock, so that the threads do so at once.
#[test]
fn many_threads_fault_one_mapping() {
    needs!(can_mount());
    let source = with_file(64 << 20, 4);
    let options = by("auto", 4 << 20);
    let here = mount_with(tree(source.path()), &FuseSettings::default(), options);
    let script = "\
import ctypes, mmap, os, random, sys, threading
views, places = [], []
for name in sys.argv[1:]:
    file = os.open(name, os.O_RDONLY)
    view = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    views.append(view)
    places.append(ctypes.addressof(ctypes.c_char.from_buffer(view)))
copy = ctypes.CDLL(None).memcpy
copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
start, wrong = threading.Barrier(64), []
def fault(thread):
    draw, page = random.Random(thread), [ctypes.create_string_buffer(4096) for _ in places]
    start.wait()
    for _ in range(100):
        at = draw.randrange(len(views[0]) // 4096) * 4096
        for to, place in zip(page, places):
            copy(to, place + at, 4096)
        if page[0].raw != page[1].raw:
            wrong.append(at)
threads = [threading.Thread(target=fault, args=(n,)) for n in range(64)]
[one.start() for one in threads]
[one.join() for one in threads]
print(len(wrong), 'wrong')";
    let mut python = Command::new("python3");
    let files = [here.path("file"), source.path().join("file")];
    let Ok(out) = python.args(["-c", script]).args(files).output() else {
        return println!("skipped: needs python3");
    };
    let [said, errors] = [out.stdout, out.stderr].map(String::from_utf8);
    assert_eq!(said.as_deref(), Ok("0 wrong\n"), "{errors:?}");
    here.end();
}

/// More requests wait for a slow file than there are threads: another file is read all the same.
#[test]
fn a_slow_file_delays_no_other_reader() {
    needs!(can_mount());
    let here = mount_with(Arc::new(Slow), &FuseSettings::default(), small());
    let (done, finished) = channel();
    std::thread::scope(|scope| {
        for n in 0..40u64 {
            let (here, done) = (&here, done.clone());
            scope.spawn(move || {
                let (file, mut buf) = (here.open(&format!("slow{n}")), [0; 4096]);
                file.read_exact_at(&mut buf, 4096 * n).expect("read");
                right(&buf, 4096 * n, 1);
                done.send("slow").expect("counted");
            });
        }
        // All of them are in flight: the last one has asked its source.
        while here.engine.gauges().running_fetches < 40 {
            std::thread::sleep(Duration::from_millis(1));
        }
        here.check("fast", 1);
        done.send("fast").expect("counted");
    });
    assert_eq!(finished.recv(), Ok("fast"), "before any of the slow ones");
    here.end();
}

#[test]
fn unmounted_under_load_it_leaves_an_empty_folder() {
    needs!(can_mount());
    let source = with_file(4 << 20, 5);
    let here = mount(source.path());
    let (begun, begins) = channel();
    let unmounted = Arc::new(AtomicBool::new(false));
    let readers: Vec<JoinHandle<u64>> = (0..6)
        .map(|_| {
            let (mut file, begun) = (here.open("file"), begun.clone());
            let unmounted = Arc::clone(&unmounted);
            std::thread::spawn(move || {
                begun.send(()).expect("counted");
                let mut buf = vec![0; 100_000];
                // What is open can be read to the end, wherever the mount has gone. Before that a reader begins again at the
                // end, or a machine that is late with the unmount would find nothing open.
                loop {
                    let last = unmounted.load(Ordering::Acquire);
                    let mut sum = 0;
                    file.rewind().expect("sought");
                    loop {
                        let read = file.read(&mut buf).expect("read");
                        right(&buf[..read], sum, 5);
                        sum += read as u64;
                        std::thread::sleep(Duration::from_millis(2));
                        if read == 0 {
                            break;
                        }
                    }
                    if last {
                        return sum;
                    }
                }
            })
        })
        .collect();
    (0..6).for_each(|_| begins.recv().expect("opened"));
    let how = here.stop.stop().expect("unmounted");
    unmounted.store(true, Ordering::Release);
    assert_eq!(how, UnmountOutcome::Detached);
    here.joined();
    for reader in readers {
        assert_eq!(reader.join().expect("no panic"), 4 << 20);
    }
}

#[test]
fn an_unfit_mount_point_is_one_error_line() {
    needs!(can_mount());
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("there"), b"x").expect("written");
    let refusal = |at: &Path| {
        let engine = Engine::new(small()).expect("an engine");
        let mounted = Mount::new(Arc::new(Slow), engine, at, &FuseSettings::default());
        let error = refused(mounted, "a mount point");
        assert_eq!(error.kind, foreread::front::FrontErrorKind::Directory);
        let error = error.to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(refusal(dir.path()).starts_with("the folder is not empty"));
    assert!(refusal(&dir.path().join("there")).starts_with("not a folder"));
    assert!(refusal(&dir.path().join("nothing")).starts_with("No such file"));
}

#[cfg(feature = "object")]
mod of_a_bucket {
    use super::*;
    use crate::common::{object_settings, wait_until};
    use foreread::front::fuse::{Control, MAX_PLANNED, send};
    use foreread::source::object::Prefix;
    use foreread_testing::{BucketServer, Link};
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const MINUTE: Duration = Duration::from_secs(60);

    /// With listings that are believed for this time.
    fn mount(server: &BucketServer, time: impl Into<Option<Duration>>) -> Here {
        mount_by(server, time, small())
    }

    fn mount_by(
        server: &BucketServer,
        time: impl Into<Option<Duration>>,
        options: Options,
    ) -> Here {
        let settings = object_settings(server.variables());
        let tree = Arc::new(Prefix::open_with("s3://bucket/", settings).expect("a bucket"));
        let attr_ttl = time.into();
        let settings = FuseSettings {
            attr_ttl,
            ..FuseSettings::default()
        };
        mount_with(tree, &settings, options)
    }

    fn mount_auto(server: &BucketServer) -> Here {
        mount_by(server, MINUTE, small().policy("auto"))
    }

    fn started() -> BucketServer {
        BucketServer::start().expect("a port")
    }

    /// One whose answers take this long.
    fn slow(milliseconds: u64) -> BucketServer {
        let server = started();
        server.link(Link::new(Duration::from_millis(milliseconds), 0));
        server
    }

    /// How many reads of a mount found their bytes read ahead.
    fn ahead(here: &Here) -> u64 {
        let stats = here.engine.stats();
        stats.hits + stats.late_hits
    }

    /// `count` files in folders of 100, each with its own bytes.
    fn files(server: &BucketServer, count: u16) -> Vec<String> {
        let name = |n: u16| format!("d{:02}/file{n:04}", n / 100);
        let size = |n: u16| 100 + usize::from(n) * 7;
        (0..count).for_each(|n| server.put(&name(n), testing::pattern(0, size(n), n)));
        (0..count).map(name).collect()
    }

    /// Numbers up to `count` in an order that is none.
    fn shuffled(seed: u64, count: u16) -> Vec<u16> {
        let mut order: Vec<u16> = (0..count).collect();
        Rng(seed).shuffle(&mut order);
        order
    }

    fn run(here: &Here, words: &str) -> String {
        let words = Vec::from_iter(words.split(' '));
        let mut command = Command::new(words[0]);
        output(command.args(&words[1..]).arg(here.dir.path()))
    }

    /// What `stat` says of each name, without the device, which is of the mount.
    fn stats(dir: &Path, first: &[&str]) -> BTreeMap<PathBuf, Vec<i64>> {
        for name in first {
            fs::metadata(dir.join(name)).expect("there");
        }
        let (mut all, mut folders) = (BTreeMap::new(), vec![dir.to_path_buf()]);
        while let Some(folder) = folders.pop() {
            let meta = fs::symlink_metadata(&folder).expect("there");
            let [mtime, ctime] = [meta.mtime(), meta.ctime()];
            let times = [mtime, meta.mtime_nsec(), ctime, meta.ctime_nsec()];
            let [ino, nlink, size] = [meta.ino(), meta.nlink(), meta.size()].map(|n| n as i64);
            let numbers = [ino, nlink, size, meta.mode().into(), meta.uid().into()];
            let name = folder.strip_prefix(dir).expect("below").to_path_buf();
            all.insert(name, [&times[..], &numbers].concat());
            if meta.is_dir() {
                let names = fs::read_dir(&folder).expect("a folder");
                folders.extend(names.map(|entry| entry.expect("a name").path()));
            }
        }
        all
    }

    /// How it is mounted, what is looked up first the second time, and how many names it has.
    type Mounted<'a> = (&'a dyn Fn() -> Here, Vec<&'a str>, usize);

    /// What a second mount shows is what the first one showed, in whatever order names are looked up: number, times, links, size. `tar` and
    /// `git` believe it, and take no file for another one.
    #[test]
    fn a_second_mount_shows_the_same_attributes() {
        needs!(can_mount());
        let server = started();
        let names = files(&server, 300);
        server.put("flat", b"x".to_vec());
        let local = tempfile::tempdir().expect("a folder");
        fs::create_dir(local.path().join("sub")).expect("made");
        for name in ["a", "b", "sub/c"] {
            fs::write(local.path().join(name), name).expect("written");
        }
        symlink("a", local.path().join("link")).expect("linked");
        let of_bucket = || mount(&server, None);
        let of_folder = || super::mount(local.path());
        let first = vec![names[299].as_str(), names[0].as_str(), "d02", "flat"];
        let mounts: [Mounted<'_>; 2] = [
            (&of_bucket, first, 1 + 300 + 3 + 1),
            (&of_folder, vec!["sub/c", "b"], 1 + 2 + 3),
        ];
        for (mount, first, count) in mounts {
            let here = mount();
            let before = stats(here.dir.path(), &[]);
            assert_eq!(before.len(), count);
            let numbers: BTreeSet<i64> = before.values().map(|stat| stat[4]).collect();
            assert_eq!(numbers.len(), count, "one for each");
            let snapshot = tempfile::NamedTempFile::new().expect("a file");
            assert_eq!(archived(&here, snapshot.path()), count);
            here.end();
            let here = mount();
            assert_eq!(stats(here.dir.path(), &first), before);
            let folders = count - files_of(&before);
            assert_eq!(archived(&here, snapshot.path()), folders);
            here.end();
        }
        let here = of_bucket();
        let before = stats(here.dir.path(), &[]);
        here.end();
        server.put(&names[7], b"another".to_vec());
        let here = of_bucket();
        let after = stats(here.dir.path(), &[]);
        let is_other = |name: &&PathBuf| before[*name][4] != after[*name][4];
        let other = Vec::from_iter(after.keys().filter(is_other));
        assert_eq!(other, [Path::new(&names[7])], "a version has its number");
        here.end();
    }

    fn files_of(stats: &BTreeMap<PathBuf, Vec<i64>>) -> usize {
        let is_file = |stat: &&Vec<i64>| stat[7] & 0o170_000 != 0o040_000;
        stats.values().filter(is_file).count()
    }

    /// What `tar` takes into an archive that follows the one of the snapshot.
    fn archived(here: &Here, snapshot: &Path) -> usize {
        let mut tar = Command::new("tar");
        tar.args("--no-check-device -cvf /dev/null --listed-incremental".split(' '));
        let tar = tar.arg(snapshot).arg("-C").arg(here.dir.path()).arg(".");
        output(tar).lines().count()
    }

    /// A listing is asked for once for each folder and 1000 names; what it said is enough to look at each file, and to open it.
    #[test]
    fn a_listing_is_enough_to_look_at_files_and_to_open_them() {
        needs!(can_mount());
        let server = started();
        let count = 900;
        (0..3000).for_each(|n| server.put(&format!("flat/{n:04}"), b"x".to_vec()));
        files(&server, count);
        let here = mount(&server, MINUTE);
        let before = server.requests().all();
        let of_flat = run(&here, "ls -lR").matches("flat").count();
        assert_eq!(of_flat, 2, "the folder, and its head");
        let asked = server.requests().all() - before;
        // The root, nine folders, and three pages of the flat one.
        assert!(asked <= 1 + 9 + 3, "{asked} requests for ls -lR");

        let before = server.requests();
        let found = run(&here, "grep -r -c --exclude-dir=flat ^");
        let found = found.lines().count();
        let now = server.requests();
        assert_eq!(found, usize::from(count));
        assert_eq!(now.heads, before.heads);
        let asked = now.all() - before.all();
        let is_few = asked * 10 <= u64::from(count) * 11;
        assert!(is_few, "{asked} requests for {count} files: {now:?}");
        here.end();
    }

    /// A program that reads file after file takes longer than the time in which the listing is believed: one request more
    /// each time, not one for each file.
    #[test]
    fn a_slow_scan_asks_for_a_thousand_names_at_a_time() {
        needs!(can_mount());
        let server = slow(3);
        let names = files(&server, 300);
        let here = mount(&server, Duration::from_millis(400));
        for folder in ["d00", "d01", "d02"] {
            assert_eq!(here.names(folder).len(), 100);
        }
        let (before, begun) = (server.requests(), Instant::now());
        for (n, name) in names.iter().enumerate() {
            here.check(name, n as u16);
        }
        let now = server.requests();
        let times = begun.elapsed().as_millis() as u64 / 400 + 1;
        // An open that comes just after the time asks for itself.
        let gets = now.gets - before.gets;
        assert!(gets <= 300 + times, "{gets} requests for objects");
        // Once each time, for a file and a folder on the way to it.
        let lists = now.lists - before.lists;
        assert!(lists <= times * 3 + 6, "{lists} lists in {times} times");
        here.end();
    }

    /// A file that was put anew after it was listed: its bytes are never shown as those of the other, an inode has one
    /// version, and the next open has the new one.
    #[test]
    fn a_file_that_changed_since_the_listing_is_an_error_once_and_then_the_new_one() {
        needs!(can_mount());
        let (server, size) = (started(), 300_000);
        let put = |name: &str, version| server.put(name, testing::pattern(0, size, version));
        (1..4).for_each(|n| put(&format!("file{n}"), 0));
        let here = mount(&server, MINUTE);
        let list = || here.names("").len();
        assert_eq!(list(), 3);
        for version in 1..4 {
            let name = format!("file{version}");
            let before = here.ino(&name);
            assert_eq!(list(), 3);
            assert_eq!(here.ino(&name), before, "listed again it is the same");
            put(&name, version);
            let error = here.read(&name).expect_err("listed in another version");
            assert_eq!(error.raw_os_error(), stale());
            assert_eq!(here.check(&name, version), size);
            assert_ne!(here.ino(&name), before);
        }
        // What was read is the version that was opened, as long as it is believed; a part of another is never among it.
        put("file3", 9);
        here.check("file3", 3);
        server.delete("file2");
        assert_eq!(list(), 3, "and so is the listing");
        here.check("file3", 3);
        here.end();

        // Believed for nothing, it is asked for each time, and no read fails.
        let here = mount(&server, Duration::ZERO);
        let list = || here.names("").len();
        assert_eq!(list(), 2);
        for version in 1..4 {
            put("file3", version);
            here.check("file3", version);
        }
        let before = here.ino("file3");
        put("file3", 4);
        assert_eq!(list(), 2);
        assert_ne!(here.ino("file3"), before, "listed, it is another");
        here.check("file3", 4);
        server.delete("file3");
        assert_eq!(list(), 1);
        here.end();
    }

    fn stale() -> Option<i32> {
        Some(rustix::io::Errno::STALE.raw_os_error())
    }

    /// A program that lists a folder and reads its files in that order finds them read ahead; each is fetched once.
    #[test]
    fn the_files_of_a_folder_are_read_ahead_in_the_order_of_its_listing() {
        needs!(can_mount());
        let server = slow(10);
        files(&server, 300);
        for (policy, expected) in [("auto", 250..=300), ("linux-6.18", 0..=0)] {
            let here = mount_by(&server, MINUTE, small().policy(policy));
            let before = server.requests();
            assert_eq!(run(&here, "grep -r -c ^").lines().count(), 300);
            let (now, ahead) = (server.requests(), ahead(&here));
            assert!(expected.contains(&ahead), "{policy}: {ahead} ahead");
            // A file that its reader takes just before its turn may be asked for twice.
            let is_once = now.gets - before.gets <= 303 && now.heads == before.heads;
            assert!(is_once, "{policy}: {now:?} after {before:?}");
            here.end();
        }
    }

    /// `cp -r` opens the files of a folder in the order of their inode numbers.
    #[test]
    fn the_files_of_a_folder_are_read_ahead_in_the_order_of_their_numbers() {
        needs!(can_mount());
        let server = slow(10);
        files(&server, 300);
        let (here, copy) = (mount_auto(&server), tempfile::tempdir().expect("a folder"));
        let before = server.requests();
        let target = copy.path().display();
        run(&here, &format!("cp -r -t {target}"));
        let (now, ahead) = (server.requests(), ahead(&here));
        assert!((230..=300).contains(&ahead), "{ahead} ahead");
        assert!(now.gets - before.gets <= 303, "{now:?} after {before:?}");
        let name = here.dir.path().file_name().expect("a name").display();
        run(&here, &format!("diff -r {target}/{name}"));
        here.end();
    }

    /// A file that was read ahead is read through foreread, also if the disk cache has it as a whole: otherwise `auto` would count it as unused, and
    /// stop.
    #[cfg(feature = "disk-cache")]
    #[test]
    fn files_that_were_read_ahead_are_not_passed_to_the_kernel() {
        use foreread::source::disk_cache::{DiskCache, DiskCacheSettings};
        needs!(can_mount());
        let server = slow(10);
        let name = |n: u16| format!("f{n:02}");
        (0..60).for_each(|n| server.put(&name(n), testing::pattern(0, 100_000, n)));
        let dir = tempfile::tempdir().expect("a folder");
        let cache = DiskCache::open(DiskCacheSettings::new(dir.path().join("c"))).expect("opened");
        let here = mount_by(&server, MINUTE, small().policy("auto").disk_cache(&cache));
        assert_eq!(here.names("").len(), 60);
        for n in 0..60 {
            here.check(&name(n), n);
            assert!(cache.flush(MINUTE));
        }
        let (reads, ahead) = (here.engine.stats().demand_reads, ahead(&here));
        assert!(reads >= 60 && ahead >= 50, "{reads} {ahead}");
        here.end();
    }

    /// A program that opens files in the order of their names, and does not list their folder, finds them read ahead as well: the names
    /// come from one listing of a small folder, or from the pages of a large one.
    #[test]
    fn files_that_are_opened_in_the_order_of_their_names_are_read_ahead() {
        needs!(can_mount());
        let server = slow(10);
        let mut names = files(&server, 300);
        for n in 300..1600 {
            names.push(format!("large/file{n}"));
            server.put(&names[usize::from(n)], testing::pattern(0, 900, n));
        }
        // Each folder is looked up, and its first name; then all names or a page are requested.
        for (range, most_lists) in [(0..300, 12), (300..600, 8)] {
            let here = mount_auto(&server);
            let before = server.requests();
            for n in range {
                here.check(&names[usize::from(n)], n);
            }
            let (now, ahead) = (server.requests(), ahead(&here));
            assert!(ahead >= 250, "{ahead} ahead");
            let lists = now.lists - before.lists;
            let is_once = now.gets - before.gets <= 303 + 256 && now.heads - before.heads <= 6;
            assert!(is_once && lists <= most_lists, "{now:?} after {before:?}");
            here.end();
        }
    }

    /// A program that has a list of its files looks up each one without listing a folder: a page of names answers most look-ups.
    #[test]
    fn files_that_are_opened_by_name_in_any_order_cost_a_request_each() {
        needs!(can_mount());
        let server = started();
        let names = files(&server, 400);
        let here = mount_auto(&server);
        let before = server.requests();
        for n in shuffled(7, 400) {
            here.check(&names[usize::from(n)], n);
        }
        let now = server.requests();
        assert_eq!((now.gets - before.gets, now.heads - before.heads), (400, 0));
        let lists = now.lists - before.lists;
        assert!(lists <= 80, "{lists} lists for 400 names of four folders");
        let absent = here.read("d00/no").expect_err("it is not there");
        assert_eq!(absent.kind(), std::io::ErrorKind::NotFound);
        here.end();
    }

    /// With the caller's list files are read ahead in its order, however they lie in the bucket, and each is fetched once. Names that
    /// are no files of the mount are counted, and a file that changed since is its new version.
    #[test]
    fn files_are_read_ahead_in_the_order_that_the_caller_gives() {
        needs!(can_mount());
        let server = slow(10);
        let (names, order) = (files(&server, 300), shuffled(9, 300));
        let here = mount_auto(&server);
        let name = |n: u16| names[usize::from(n)].as_str();
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("control");
        let control = Control::start(&socket, here.planner.clone()).expect("listens");
        assert_eq!(fs::metadata(&socket).expect("there").mode() & 0o777, 0o600);
        let list = order.iter().map(|n| here.path(name(*n)).into());
        let mut list = Vec::<OsString>::from_iter(list);
        list.extend(["d00", "../etc/passwd", "d00/no such", "/etc/passwd"].map(OsString::from));
        let answer = send(&socket, &mut list.into_iter().map(Ok)).expect("taken");
        assert_eq!(answer, "300 files, 4 unknown");
        let last = name(order[299]);
        server.put(last, testing::pattern(0, 5000, 999));
        let before = server.requests();
        for n in &order[..299] {
            here.check(name(*n), *n);
        }
        let (now, ahead) = (server.requests(), ahead(&here));
        assert!(ahead >= 290, "{ahead} read ahead");
        let is_once = now.gets - before.gets <= 303 && now.heads == before.heads;
        assert!(is_once, "{now:?} after {before:?}");
        let changed = here.read(last).or_else(|_| here.read(last));
        let changed = changed.expect("the new one");
        assert_eq!(changed.len(), 5000);
        right(&changed, 0, 999);
        drop(control);
        assert!(!socket.exists());
        here.end();
    }

    /// What a client sends has limits, and a bad list harms no other.
    #[test]
    fn bad_lists_get_one_line() {
        needs!(can_mount());
        let server = started();
        server.put("file", testing::pattern(0, 100, 0));
        let here = mount(&server, MINUTE);
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("control");
        let control = Control::start(&socket, here.planner.clone()).expect("listens");
        let send = |count: u64, name: &str| {
            let names = (0..count).map(|_| Ok(OsString::from(name)));
            send(&socket, &mut { names }).map_err(|error| error.to_string())
        };
        let refused = |count: u64, name: &str, words: &str| {
            let line = send(count, name).expect_err(words);
            assert!(line.starts_with(words), "{line}");
        };
        let long = "x".repeat(5000);
        refused(1, &long, "a file name is longer than 4096 bytes");
        let many = MAX_PLANNED as u64 + 1;
        refused(many, "file", "the list has more than 65536 files");
        // A client that goes away in the middle of a name is over; the next one is served.
        let connect = || UnixStream::connect(&socket).expect("there");
        connect().write_all(b"fi").expect("sent");
        let taken = Ok("1 files, 0 unknown".to_string());
        assert_eq!(send(1, "file"), taken);
        let again = Control::start(&socket, here.planner.clone());
        assert!(again.is_err(), "it is in use");
        // Clients that say nothing keep their own places alone, and there are 16 places.
        let mut others = vec![connect()];
        assert_eq!(send(1, "file"), taken);
        others[0].set_nonblocking(true).expect("set");
        let waits = others[0].read(&mut [0]).expect_err("no answer, and no end");
        let would_block = std::io::ErrorKind::WouldBlock;
        assert_eq!(waits.kind(), would_block, "it still has its place");
        // The client that went away may have its place still: then one of the silent ones has got none, and one more takes it.
        others.extend((1..16).map(|_| connect()));
        let full = loop {
            match send(1, "file") {
                Err(full) => break full,
                Ok(_) => others.push(connect()),
            }
        };
        assert!(full.starts_with("16 other clients"), "{full}");
        drop(others);
        while send(1, "file").is_err() {}
        // The end waits for no client that says nothing.
        let _silent = connect();
        let begun = Instant::now();
        drop(control);
        assert!(begun.elapsed() < Duration::from_secs(5) && !socket.exists());
        here.end();
    }

    /// A file that is put anew when it has been read ahead: its reader gets one version whole, the listed one or the new one.
    #[test]
    fn a_file_that_changed_after_it_was_read_ahead_is_one_version() {
        needs!(can_mount());
        let server = started();
        let name = |n: u16| format!("file{n:03}");
        let put = |n, version| server.put(&name(n), testing::pattern(0, 20_000, version));
        (0..100).for_each(|n| put(n, n));
        let here = mount_auto(&server);
        assert_eq!(here.names("").len(), 100);
        let (mut listed, mut new, mut refused) = (0, 0, 0);
        for n in 0..100 {
            if n == 20 {
                // What is read ahead by then has the listed version.
                let is_ahead = || (20..100).any(|n| server.was_asked_for(&name(n)));
                wait_until("something is read ahead", is_ahead);
                (20..100).for_each(|n| put(n, n + 1000));
            }
            let read = here.read(&name(n)).or_else(|error| {
                assert_eq!(error.raw_os_error(), stale(), "{n}");
                refused += 1;
                here.read(&name(n))
            });
            let bytes = read.expect("read");
            assert_eq!(bytes.len(), 20_000);
            if testing::check(&bytes, 0, n).is_ok() {
                listed += 1;
            } else {
                new += 1;
                right(&bytes, 0, n + 1000);
            }
        }
        // After a refusal a page is asked for, which has the versions of the others.
        let is_right = listed > 20 && (1..=new).contains(&refused);
        assert!(is_right, "{listed} listed, {new} new, {refused} refused");
        here.end();
    }
}
