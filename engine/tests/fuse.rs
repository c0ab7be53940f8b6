//! Tests with real mounts: the bytes are right, an inode number stands for one version, no reader is delayed by
//! another's slow file, and the mount ends cleanly.

use crate::common::{Rng, by, watch};
use foreread::front::fuse::{FuseSettings, FuseStop, Mount, Planner, UnmountOutcome};
use foreread::source::tree::{Entry, Kind, Meta, Tree};
use foreread::source::{self, Defaults, Mem, Source, SourceError};
use foreread::{Engine, Options};
use foreread_testing::{self as testing, FaultAction, Faulty, needs};
use rustix::fs::Advice;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
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
        self.runs
            .take()
            .expect("once")
            .join()
            .expect("no panic")
            .expect("ended");
        assert_eq!(
            fs::read_dir(self.dir.path())
                .expect("a folder again")
                .count(),
            0
        );
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

/// Root and /dev/fuse, or a line that says what is missing.
pub fn can_mount() -> bool {
    watch();
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs /dev/fuse and fuse3");
    }
    can
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

fn mount(source: &Path) -> Here {
    let tree = source::open_tree(&source.display().to_string()).expect("a tree");
    // Changes are to be seen at once.
    let settings = believed(Duration::ZERO);
    mount_with(tree, &settings, small())
}

/// A tree in memory whose files may be slow: `slow*` waits at every read.
struct Slow;

impl Tree for Slow {
    fn list(&self, _: &Path, each: &mut dyn FnMut(Entry) -> bool) -> Result<(), SourceError> {
        for name in ["fast", "slow"] {
            each(Entry::new(name, Kind::File));
        }
        Ok(())
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        let kind = if path.as_os_str().is_empty() {
            Kind::Folder
        } else {
            Kind::File
        };
        Ok(Meta {
            kind,
            size: 8 << 20,
            mtime_ns: 0,
            permissions: 0o555,
            owner: None,
            version: [1].into(),
        })
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let mem = Mem::generated(8 << 20, |offset, buf| testing::fill(buf, offset, 1));
        let slow = path.display().to_string().starts_with("slow");
        let verdict = if slow {
            FaultAction::Slow(Duration::from_millis(1500))
        } else {
            FaultAction::Pass
        };
        Ok((
            Arc::new(Faulty::new(mem, move |_| verdict)),
            self.look(path)?,
        ))
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }

    fn describe(&self) -> String {
        "slow, and a comma".to_string()
    }
}

fn sum(folder: &Path) -> String {
    let script = "find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%y %p %l\\n' | sort";
    let out = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .expect("a shell");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
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
        let size = [0, 1, 4095, 4096, 4097, 131_072, 131_073, 1_500_000][usize::from(n) % 8]
            + rng.below(3);
        fs::write(
            folder.join(format!("file {n}")),
            testing::pattern(0, size as usize, n),
        )
        .expect("written");
    }
    symlink("e0/file 0", source.path().join("d0/link")).expect("linked");
    symlink("/no/where", source.path().join("broken")).expect("linked");
    let here = mount(source.path());
    assert_eq!(sum(here.dir.path()), sum(source.path()));
    let before = here.engine.stats().source_bytes;
    assert_eq!(sum(here.dir.path()), sum(source.path()));
    assert_eq!(
        here.engine.stats().source_bytes,
        before,
        "nothing was read twice"
    );
    for denied in ["new", "d0/e0/file 0"] {
        let error = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(here.path(denied))
            .expect_err("denied");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(here.end(), UnmountOutcome::Clean);
}

/// Bytes of two versions, in the same file, are never in one answer: each number has one version.
#[test]
fn a_replaced_file_is_another_number_and_never_a_mix() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    let (name, size) = (source.path().join("file"), 2 << 20);
    let write = |version: u16| {
        let new = source.path().join("new");
        fs::write(&new, testing::pattern(0, size, version)).expect("written");
        fs::rename(&new, &name).expect("renamed");
    };
    write(1);
    let here = mount(source.path());
    let old = File::open(here.path("file")).expect("opened");
    let mut buf = vec![0; size / 2];
    old.read_exact_at(&mut buf, 0).expect("read");
    write(2);
    let new = File::open(here.path("file")).expect("opened");
    assert_ne!(
        old.metadata().expect("known").ino(),
        new.metadata().expect("known").ino()
    );
    let mut whole = vec![0; size];
    new.read_exact_at(&mut whole, 0).expect("read");
    testing::check(&whole, 0, 2).expect("the new version");
    old.read_exact_at(&mut whole, 0)
        .expect("the file that was opened is still there");
    testing::check(&whole, 0, 1).expect("the old version");

    // Rewritten in place: what is open fails from the next fetch on, and is never given the new bytes.
    let path = here.path("file");
    fs::write(&name, testing::pattern(0, size, 3)).expect("rewritten");
    let kept = new.read_exact_at(&mut whole, 0);
    assert!(
        kept.is_err() || testing::check(&whole, 0, 2).is_ok(),
        "the version that was opened, or an error"
    );
    let mut again = Vec::new();
    File::open(&path)
        .expect("opened")
        .read_to_end(&mut again)
        .expect("read");
    testing::check(&again, 0, 3).expect("the third version");
    drop((old, new));
    assert_eq!(here.end(), UnmountOutcome::Clean);
}

/// A longer file copied over one that is open: between two looks only its size is larger. The handle fails; it is never given
/// bytes of the new file under the number of the old one. With `appending` a file that grew is read on.
#[test]
fn a_longer_file_copied_over_an_open_one_is_another() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    let (name, size) = (source.path().join("file"), 2 << 20);
    fs::write(&name, testing::pattern(0, size, 1)).expect("written");
    let here = mount(source.path());
    let old = File::open(here.path("file")).expect("opened");
    let mut buf = vec![0; 4096];
    old.read_exact_at(&mut buf, 0).expect("read");
    fs::write(&name, testing::pattern(0, 2 * size, 2)).expect("copied over it");
    let met = old.read_exact_at(&mut buf, size as u64 - 4096);
    assert!(
        met.is_err(),
        "{:?}",
        testing::name_of(buf[..8].try_into().expect("eight bytes"))
    );
    let new = fs::read(here.path("file")).expect("opened anew");
    assert_eq!(new.len(), 2 * size);
    testing::check(&new, 0, 2).expect("the new version");
    drop(old);
    assert_eq!(here.end(), UnmountOutcome::Clean);

    let tree = source::open_tree(&source.path().display().to_string()).expect("a tree");
    let here = mount_with(tree, &FuseSettings::default(), small().appending(true));
    let old = File::open(here.path("file")).expect("opened");
    let mut more = File::options().append(true).open(&name).expect("there");
    std::io::Write::write_all(&mut more, &testing::pattern(2 * size as u64, 5000, 2))
        .expect("appended");
    let mut whole = vec![0; 2 * size];
    old.read_exact_at(&mut whole, 0).expect("it is read on");
    testing::check(&whole, 0, 2).expect("right bytes");
    drop(old);
    assert_eq!(here.end(), UnmountOutcome::Clean);
}

#[test]
fn readers_never_see_a_mix_while_a_file_is_replaced() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    let (name, size) = (source.path().join("file"), 600_000);
    fs::write(&name, testing::pattern(0, size, 0)).expect("written");
    let here = mount(source.path());
    let done = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                done.wait();
                for _ in 0..60 {
                    let mut bytes = Vec::new();
                    // A change while it is opened or read is an error, and that is right.
                    if File::open(here.path("file"))
                        .and_then(|mut f| f.read_to_end(&mut bytes))
                        .is_err()
                    {
                        continue;
                    }
                    // The first word has the version, and all others must be of the same.
                    let (_, version) =
                        testing::name_of(bytes[..8].try_into().expect("eight bytes"));
                    assert_eq!(bytes.len(), size);
                    testing::check(&bytes, 0, version).expect("one version");
                }
            });
        }
        scope.spawn(|| {
            done.wait();
            for version in 1..60u16 {
                let new = source.path().join("new");
                fs::write(&new, testing::pattern(0, size, version)).expect("written");
                fs::rename(&new, &name).expect("renamed");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
    here.end();
}

/// The kernel takes a short answer for the end of the file and keeps that for all readers (hf-mount, issue 12). Readers
/// that throw pages out while others read make every boundary be met again and again.
#[test]
fn thirty_two_readers_that_drop_pages_get_every_byte() {
    needs!(can_mount());
    let source = tempfile::NamedTempFile::new().expect("a file");
    let size = 3_000_001u64;
    fs::write(source.path(), testing::pattern(0, size as usize, 9)).expect("written");
    let here = mount(source.path());
    let name = here.path(
        source
            .path()
            .file_name()
            .expect("a name")
            .to_str()
            .expect("text"),
    );
    std::thread::scope(|scope| {
        for n in 0..32 {
            let name = &name;
            scope.spawn(move || {
                let file = File::open(name).expect("opened");
                let mut rng = Rng(n);
                let mut buf = vec![0; 150_000];
                let mut at = 0;
                while at < size {
                    let len = 1 + rng.below(150_000) as usize;
                    let read = file.read_at(&mut buf[..len], at).expect("read");
                    assert_eq!(
                        read as u64,
                        (size - at).min(len as u64),
                        "no short read before the end"
                    );
                    testing::check(&buf[..read], at, 9).expect("right bytes");
                    at += read as u64;
                    if rng.below(3) == 0 {
                        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
                    }
                }
                assert_eq!(file.read_at(&mut buf, size).expect("the end"), 0);
            });
        }
    });
    here.end();
}

/// 64 threads fault random pages of one mapping, 16 times as large as the cache: each gets the right bytes, and none waits without end. A copy by
/// `memcpy` faults without Python's lock, so that the threads do so at once.
#[test]
fn many_threads_fault_one_mapping() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    fs::write(source.path().join("file"), testing::pattern(0, 64 << 20, 4)).expect("written");
    let tree = source::open_tree(&source.path().display().to_string()).expect("a tree");
    let here = mount_with(tree, &FuseSettings::default(), by("auto", 4 << 20));
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
    let mut python = std::process::Command::new("python3");
    python
        .args(["-c", script])
        .args([here.path("file"), source.path().join("file")]);
    let Ok(out) = python.output() else {
        return println!("skipped: needs python3");
    };
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "0 wrong\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
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
                let file = File::open(here.path(&format!("slow{n}"))).expect("opened");
                let mut buf = [0; 4096];
                file.read_exact_at(&mut buf, 4096 * n).expect("read");
                testing::check(&buf, 4096 * n, 1).expect("right bytes");
                done.send("slow").expect("counted");
            });
        }
        // All of them are in flight: the last one has asked its source.
        while here.engine.gauges().running_fetches < 40 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut bytes = Vec::new();
        File::open(here.path("fast"))
            .expect("opened")
            .read_to_end(&mut bytes)
            .expect("read");
        testing::check(&bytes, 0, 1).expect("right bytes");
        done.send("fast").expect("counted");
    });
    assert_eq!(finished.recv(), Ok("fast"), "before any of the slow ones");
    here.end();
}

#[test]
fn unmounted_under_load_it_leaves_an_empty_folder() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    fs::write(source.path().join("file"), testing::pattern(0, 4 << 20, 5)).expect("written");
    let here = mount(source.path());
    let (begun, begins) = channel();
    let unmounted = Arc::new(AtomicBool::new(false));
    let readers: Vec<JoinHandle<u64>> = (0..6)
        .map(|_| {
            let (name, begun, unmounted) =
                (here.path("file"), begun.clone(), Arc::clone(&unmounted));
            std::thread::spawn(move || {
                let mut file = File::open(name).expect("opened");
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
                        testing::check(&buf[..read], sum, 5).expect("right bytes");
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
        let error = Mount::new(Arc::new(Slow), engine, at, &FuseSettings::default())
            .err()
            .expect("refused");
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
    use crate::common::object_settings;
    use foreread::front::fuse::{Control, MAX_PLANNED, send};
    use foreread::source::object::Prefix;
    use foreread_testing::{BucketServer, Link};
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::time::Instant;

    fn mount(server: &BucketServer, attr_ttl: Option<Duration>) -> Here {
        mount_by(server, attr_ttl, small())
    }

    fn mount_by(server: &BucketServer, attr_ttl: Option<Duration>, options: Options) -> Here {
        let settings = object_settings(server.variables());
        let tree = Arc::new(Prefix::open_with("s3://bucket/", settings).expect("a bucket"));
        let settings = FuseSettings {
            attr_ttl,
            ..FuseSettings::default()
        };
        mount_with(tree, &settings, options)
    }

    /// With `auto`, and listings that are believed for a minute.
    fn mount_auto(server: &BucketServer) -> Here {
        mount_by(
            server,
            Some(Duration::from_secs(60)),
            small().policy("auto"),
        )
    }

    /// `count` files in folders of 100, each with its own bytes.
    fn files(server: &BucketServer, count: u16) -> Vec<String> {
        let name = |n: u16| format!("d{:02}/file{n:04}", n / 100);
        (0..count)
            .for_each(|n| server.put(&name(n), testing::pattern(0, 100 + usize::from(n) * 7, n)));
        (0..count).map(name).collect()
    }

    fn run(here: &Here, program: &str, arguments: &[&str]) -> String {
        let out = Command::new(program)
            .args(arguments)
            .arg(here.dir.path())
            .output()
            .expect("a program");
        String::from_utf8(out.stdout).expect("text")
    }

    /// What `stat` says of each name, without the device, which is of the mount.
    fn stats(dir: &Path, first: &[&str]) -> BTreeMap<PathBuf, Vec<i64>> {
        for name in first {
            fs::metadata(dir.join(name)).expect("there");
        }
        let (mut all, mut folders) = (BTreeMap::new(), vec![dir.to_path_buf()]);
        while let Some(folder) = folders.pop() {
            let meta = fs::symlink_metadata(&folder).expect("there");
            let times = [
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
            ];
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
        let server = BucketServer::start().expect("a port");
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
        let mounts: [Mounted<'_>; 2] = [
            (
                &of_bucket,
                vec![names[299].as_str(), names[0].as_str(), "d02", "flat"],
                1 + 300 + 3 + 1,
            ),
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
            assert_eq!(
                archived(&here, snapshot.path()),
                count - files_of(&before),
                "folders alone"
            );
            here.end();
        }
        let here = of_bucket();
        let before = stats(here.dir.path(), &[]);
        here.end();
        server.put(&names[7], b"another".to_vec());
        let here = of_bucket();
        let after = stats(here.dir.path(), &[]);
        let other: Vec<_> = after
            .iter()
            .filter(|(name, stat)| before[*name][4] != stat[4])
            .collect();
        assert_eq!(other.len(), 1);
        assert_eq!(
            other[0].0,
            Path::new(&names[7]),
            "a new version is a new number"
        );
        here.end();
    }

    fn files_of(stats: &BTreeMap<PathBuf, Vec<i64>>) -> usize {
        stats
            .values()
            .filter(|stat| stat[7] & 0o170_000 != 0o040_000)
            .count()
    }

    /// What `tar` takes into an archive that follows the one of the snapshot.
    fn archived(here: &Here, snapshot: &Path) -> usize {
        let mut tar = Command::new("tar");
        tar.args("--no-check-device -cvf /dev/null --listed-incremental".split(' '));
        let out = tar.arg(snapshot).arg("-C").arg(here.dir.path()).arg(".");
        let out = out.output().expect("tar");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).lines().count()
    }

    /// A listing is asked for once for each folder and 1000 names; what it said is enough to look at each file, and to open it.
    #[test]
    fn a_listing_is_enough_to_look_at_files_and_to_open_them() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        let count = 900;
        let flat: Vec<String> = (0..3000).map(|n| format!("flat/{n:04}")).collect();
        flat.iter().for_each(|key| server.put(key, b"x".to_vec()));
        files(&server, count);
        let here = mount(&server, Some(Duration::from_secs(60)));
        let before = server.requests().all();
        assert_eq!(
            run(&here, "ls", &["-lR"]).matches("flat").count(),
            2,
            "the folder, and its head"
        );
        let asked = server.requests().all() - before;
        // The root, ten folders, and three pages of the flat one.
        assert!(
            asked <= 1 + 9 + 3,
            "{asked} requests for ls -lR of {} files",
            flat.len() + usize::from(count)
        );

        let folders = std::fs::read_dir(here.dir.path())
            .expect("listed")
            .map(|entry| entry.expect("one").path());
        let before = server.requests();
        let mut found = 0;
        for folder in folders.filter(|path| !path.ends_with("flat")) {
            let out = Command::new("grep")
                .args(["-r", "-c", ""])
                .arg(folder)
                .output()
                .expect("grep");
            found += String::from_utf8_lossy(&out.stdout).lines().count();
        }
        let now = server.requests();
        assert_eq!(found, usize::from(count));
        assert_eq!(now.heads, before.heads);
        let asked = now.all() - before.all();
        assert!(
            asked * 10 <= u64::from(count) * 11,
            "{asked} requests for grep -r of {count} files: {now:?}"
        );
        here.end();
    }

    /// A program that reads file after file takes longer than the time in which the listing is believed: one request more
    /// each time, not one for each file.
    #[test]
    fn a_slow_scan_asks_for_a_thousand_names_at_a_time() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        let names = files(&server, 300);
        server.link(Link::new(Duration::from_millis(3), 0));
        let here = mount(&server, Some(Duration::from_millis(400)));
        for folder in ["d00", "d01", "d02"] {
            assert_eq!(
                std::fs::read_dir(here.path(folder))
                    .expect("listed")
                    .count(),
                100
            );
        }
        let (before, begun) = (server.requests(), Instant::now());
        for (n, name) in names.iter().enumerate() {
            let bytes = fs::read(here.path(name)).expect("read");
            assert_eq!(testing::check(&bytes, 0, n as u16), Ok(()), "{name}");
        }
        let (now, times) = (
            server.requests(),
            begun.elapsed().as_millis() as u64 / 400 + 1,
        );
        // An open that comes just after the time asks for itself.
        assert!(
            now.gets - before.gets <= 300 + times,
            "{} requests for objects",
            now.gets - before.gets
        );
        // Once each time, for a file and a folder on the way to it.
        assert!(
            now.lists - before.lists <= times * 3 + 6,
            "{} lists in {times} times",
            now.lists - before.lists
        );
        here.end();
    }

    /// A file that was put anew after it was listed: its bytes are never shown as those of the other, an inode has one
    /// version, and the next open has the new one.
    #[test]
    fn a_file_that_changed_since_the_listing_is_an_error_once_and_then_the_new_one() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        let size = 300_000;
        (1..4).for_each(|n| server.put(&format!("file{n}"), testing::pattern(0, size, 0)));
        let here = mount(&server, Some(Duration::from_secs(60)));
        let list = || fs::read_dir(here.dir.path()).expect("listed").count();
        let ino = |name: &str| fs::metadata(here.path(name)).expect("there").ino();
        assert_eq!(list(), 3);
        for version in 1..4 {
            let name = format!("file{version}");
            let before = ino(&name);
            assert_eq!(list(), 3);
            assert_eq!(ino(&name), before, "listed again it is the same");
            server.put(&name, testing::pattern(0, size, version));
            let error = fs::read(here.path(&name)).expect_err("it was listed in another version");
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::STALE.raw_os_error())
            );
            let bytes = fs::read(here.path(&name)).expect("the new one");
            assert_eq!(
                (bytes.len(), testing::check(&bytes, 0, version)),
                (size, Ok(()))
            );
            assert_ne!(ino(&name), before);
        }
        // What was read is the version that was opened, as long as it is believed; a part of another is never among it.
        server.put("file3", testing::pattern(0, size, 9));
        let bytes = fs::read(here.path("file3")).expect("in the kernel's cache");
        assert_eq!(testing::check(&bytes, 0, 3), Ok(()));
        let before = ino("file3");
        assert_eq!(list(), 3);
        assert_ne!(ino("file3"), before, "listed, it is another");
        let bytes = fs::read(here.path("file3")).expect("the new one");
        assert_eq!(testing::check(&bytes, 0, 9), Ok(()));
        server.delete("file3");
        assert_eq!(list(), 2);
        here.end();

        // Believed for nothing, it is asked for each time, and no read fails.
        server.put("file", testing::pattern(0, size, 0));
        let here = mount(&server, Some(Duration::ZERO));
        for version in 1..4 {
            server.put("file", testing::pattern(0, size, version));
            let bytes = fs::read(here.path("file")).expect("read");
            assert_eq!(testing::check(&bytes, 0, version), Ok(()));
        }
        here.end();
    }

    /// A program that lists a folder and reads its files in that order finds them read ahead; each is fetched once.
    #[test]
    fn the_files_of_a_folder_are_read_ahead_in_the_order_of_its_listing() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        files(&server, 300);
        server.link(Link::new(Duration::from_millis(10), 0));
        for (policy, expected) in [("auto", 250..=300), ("linux-6.18", 0..=0)] {
            let here = mount_by(
                &server,
                Some(Duration::from_secs(60)),
                small().policy(policy),
            );
            let before = server.requests();
            assert_eq!(run(&here, "grep", &["-r", "-c", ""]).lines().count(), 300);
            let (now, stats) = (server.requests(), here.engine.stats());
            let ahead = stats.hits + stats.late_hits;
            assert!(
                expected.contains(&ahead),
                "{policy}: {ahead} of {} read ahead",
                stats.demand_reads
            );
            // A file that its reader takes just before its turn may be asked for twice.
            assert!(
                now.gets - before.gets <= 303 && now.heads == before.heads,
                "{policy}: {now:?} after {before:?}"
            );
            here.end();
        }
    }

    /// A file that was read ahead is read through foreread, also if the disk cache has it as a whole: otherwise `auto` would count it as unused, and
    /// stop.
    #[cfg(feature = "disk-cache")]
    #[test]
    fn files_that_were_read_ahead_are_not_passed_to_the_kernel() {
        use foreread::source::disk_cache::{DiskCache, DiskCacheSettings};
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        (0..60).for_each(|n| server.put(&format!("f{n:02}"), testing::pattern(0, 100_000, n)));
        server.link(Link::new(Duration::from_millis(10), 0));
        let dir = tempfile::tempdir().expect("a folder");
        let cache = DiskCache::open(DiskCacheSettings::new(dir.path().join("c"))).expect("opened");
        let options = small().policy("auto").disk_cache(&cache);
        let here = mount_by(&server, Some(Duration::from_secs(60)), options);
        assert_eq!(fs::read_dir(here.dir.path()).expect("listed").count(), 60);
        for n in 0..60 {
            let bytes = fs::read(here.path(&format!("f{n:02}"))).expect("read");
            assert_eq!(testing::check(&bytes, 0, n), Ok(()), "{n}");
            assert!(cache.flush(Duration::from_secs(60)));
        }
        let stats = here.engine.stats();
        let ahead = stats.hits + stats.late_hits;
        assert!(stats.demand_reads >= 60 && ahead >= 50, "{stats:?}");
        here.end();
    }

    /// A program that has a list of its files looks up each one without listing a folder: a page of names answers most look-ups.
    #[test]
    fn files_that_are_opened_by_name_in_any_order_cost_a_request_each() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        let names = files(&server, 400);
        let mut order: Vec<u16> = (0..400).collect();
        Rng(7).shuffle(&mut order);
        let here = mount_auto(&server);
        let before = server.requests();
        for n in order {
            let bytes = fs::read(here.path(&names[usize::from(n)])).expect("read");
            assert_eq!(testing::check(&bytes, 0, n), Ok(()), "{n}");
        }
        let now = server.requests();
        assert_eq!((now.gets - before.gets, now.heads - before.heads), (400, 0));
        assert!(
            now.lists - before.lists <= 80,
            "{} lists for 400 names of four folders",
            now.lists - before.lists
        );
        let absent = fs::read(here.path("d00/no")).expect_err("it is not there");
        assert_eq!(absent.kind(), std::io::ErrorKind::NotFound);
        here.end();
    }

    /// With the caller's list files are read ahead in its order, however they lie in the bucket, and each is fetched once. Names that
    /// are no files of the mount are counted, and a file that changed since is its new version.
    #[test]
    fn files_are_read_ahead_in_the_order_that_the_caller_gives() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        let names = files(&server, 300);
        server.link(Link::new(Duration::from_millis(10), 0));
        let mut order: Vec<u16> = (0..300).collect();
        Rng(9).shuffle(&mut order);
        let here = mount_auto(&server);
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("control");
        let control = Control::start(&socket, here.planner.clone()).expect("listens");
        assert_eq!(fs::metadata(&socket).expect("there").mode() & 0o777, 0o600);
        let mut list: Vec<OsString> = order
            .iter()
            .map(|n| here.path(&names[usize::from(*n)]).into())
            .collect();
        list.extend(["d00", "../etc/passwd", "d00/no such", "/etc/passwd"].map(OsString::from));
        let answer = send(&socket, &mut list.into_iter().map(Ok)).expect("taken");
        assert_eq!(answer, "300 files, 4 unknown");
        let last = order[299];
        server.put(&names[usize::from(last)], testing::pattern(0, 5000, 999));
        let before = server.requests();
        for n in &order[..299] {
            let bytes = fs::read(here.path(&names[usize::from(*n)])).expect("read");
            assert_eq!(testing::check(&bytes, 0, *n), Ok(()), "{n}");
        }
        let (now, stats) = (server.requests(), here.engine.stats());
        let ahead = stats.hits + stats.late_hits;
        assert!(ahead >= 290, "{ahead} of {} read ahead", stats.demand_reads);
        assert!(
            now.gets - before.gets <= 303 && now.heads == before.heads,
            "{now:?} after {before:?}"
        );
        let changed = here.path(&names[usize::from(last)]);
        let bytes = fs::read(&changed)
            .or_else(|_| fs::read(&changed))
            .expect("the new one");
        assert_eq!(
            (bytes.len(), testing::check(&bytes, 0, 999)),
            (5000, Ok(()))
        );
        drop(control);
        assert!(!socket.exists());
        here.end();
    }

    /// What a client sends has limits, and a bad list harms no other.
    #[test]
    fn bad_lists_get_one_line() {
        needs!(can_mount());
        let server = BucketServer::start().expect("a port");
        server.put("file", testing::pattern(0, 100, 0));
        let here = mount(&server, Some(Duration::from_secs(60)));
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
        refused(
            1,
            &"x".repeat(5000),
            "a file name is longer than 4096 bytes",
        );
        refused(
            MAX_PLANNED as u64 + 1,
            "file",
            "the list has more than 65536 files",
        );
        // A client that goes away in the middle of a name is over; the next one is served.
        let connect = || UnixStream::connect(&socket).expect("there");
        connect().write_all(b"fi").expect("sent");
        let taken = Ok("1 files, 0 unknown".to_string());
        assert_eq!(send(1, "file"), taken);
        assert!(
            Control::start(&socket, here.planner.clone()).is_err(),
            "it is in use"
        );
        // Clients that say nothing keep their own places alone, and there are 16 places.
        let mut others = vec![connect()];
        assert_eq!(send(1, "file"), taken);
        others[0].set_nonblocking(true).expect("set");
        let waits = others[0].read(&mut [0]).expect_err("no answer, and no end");
        assert_eq!(
            waits.kind(),
            std::io::ErrorKind::WouldBlock,
            "it still has its place"
        );
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
        let server = BucketServer::start().expect("a port");
        let name = |n: u16| format!("file{n:03}");
        (0..100).for_each(|n| server.put(&name(n), testing::pattern(0, 20_000, n)));
        let here = mount_auto(&server);
        assert_eq!(fs::read_dir(here.dir.path()).expect("listed").count(), 100);
        let (mut listed, mut new, mut refused) = (0, 0, 0);
        for n in 0..100 {
            if n == 20 {
                // What is read ahead by then has the listed version.
                let begun = std::time::Instant::now();
                while !(20..100).any(|ahead| server.was_asked_for(&name(ahead))) {
                    assert!(
                        begun.elapsed() < Duration::from_secs(60),
                        "nothing is read ahead"
                    );
                    std::thread::yield_now();
                }
                (20..100).for_each(|n| server.put(&name(n), testing::pattern(0, 20_000, n + 1000)));
            }
            let read = fs::read(here.path(&name(n))).or_else(|error| {
                let stale = Some(rustix::io::Errno::STALE.raw_os_error());
                assert_eq!(error.raw_os_error(), stale, "{n}");
                refused += 1;
                fs::read(here.path(&name(n)))
            });
            let bytes = read.expect("read");
            assert_eq!(bytes.len(), 20_000);
            match testing::check(&bytes, 0, n) {
                Ok(()) => listed += 1,
                Err(_) => new += 1,
            }
            let is_new = testing::check(&bytes, 0, n + 1000).is_ok();
            assert!(
                is_new || testing::check(&bytes, 0, n).is_ok(),
                "{n}: two versions"
            );
        }
        // After a refusal a page is asked for, which has the versions of the others.
        assert!(
            listed > 20 && (1..=new).contains(&refused),
            "{listed} as listed, {new} new, {refused} refused"
        );
        here.end();
    }
}
