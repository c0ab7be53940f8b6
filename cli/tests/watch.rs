//! `foreread watch` on a loop device of the test's own: what it sets, what it puts back, and what it leaves alone.
//!
//! A shell reads a file of 16 MiB in order, again and again, each time from an empty cache. On the model of a store far away a window
//! of 8 MiB gains much, so the answer is known. Without root, tracefs or a loop device the tests are skipped.

use crate::common::foreread;
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A file system on a loop device, with a reader.
struct Disk {
    dir: tempfile::TempDir,
    device: String,
    reader: Option<Child>,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn runs(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Reads the file in order, again and again, each time from an empty cache.
const IN_ORDER: [&str; 3] = [
    "sh",
    "-c",
    "while :; do dd if=$0 iflag=nocache count=0 2>&-; dd if=$0 of=/dev/null bs=32k status=none; done",
];

/// Touches a page of a mapping at random, some two hundred a second, each time from an empty cache.
const FAULTS: [&str; 3] = [
    "python3",
    "-c",
    "import mmap, os, random, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
pages = mmap.mmap(file, 0, prot=mmap.PROT_READ)
while True:
    pages.madvise(mmap.MADV_DONTNEED)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    pages[random.randrange(size)]
    time.sleep(0.005)",
];

impl Disk {
    fn new() -> Option<Disk> {
        Disk::read_by(16, &IN_ORDER)
    }

    /// With a file of this size and its reader.
    fn read_by(mib: usize, program: &[&str]) -> Option<Disk> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let (image, files) = (dir.path().join("image"), dir.path().join("files"));
        fs::create_dir_all(&files).expect("room");
        fs::create_dir_all(dir.path().join("mount")).expect("room");
        fs::write(files.join("big"), vec![7; mib << 20]).expect("room");
        fs::File::create(&image)
            .and_then(|file| file.set_len((3 * mib as u64) << 20))
            .expect("room");
        let made = runs(&["mkfs.ext4", "-q", "-F", "-d", text(&files), text(&image)]);
        let loops = Command::new("losetup")
            .args(["-f", "--show", text(&image)])
            .output();
        let device = String::from_utf8_lossy(&loops.map_or(Vec::new(), |done| done.stdout))
            .trim()
            .to_string();
        let mut disk = Disk {
            dir,
            device,
            reader: None,
        };
        let ready = made && disk.device.starts_with("/dev/loop") && {
            disk.set(128);
            runs(&[
                "mount",
                "-o",
                "ro",
                &disk.device,
                text(&disk.dir.path().join("mount")),
            ])
        };
        let ready =
            ready && foreread(["watch", &disk.device, "--once", "--for", "100ms"]).code == Some(0);
        if !ready {
            println!("skipped: needs root, tracefs, mkfs.ext4 and a loop device");
            return None;
        }
        let mut reader = Command::new(program[0]);
        reader
            .args(&program[1..])
            .arg(disk.dir.path().join("mount/big"))
            .stderr(Stdio::null());
        disk.reader = Some(reader.spawn().expect("it begins"));
        Some(disk)
    }

    fn setting(&self) -> PathBuf {
        Path::new("/sys/block")
            .join(self.device.trim_start_matches("/dev/"))
            .join("queue/read_ahead_kb")
    }

    /// This device is the test's own.
    fn set(&self, kib: u64) {
        fs::write(self.setting(), kib.to_string()).expect("root may");
    }

    fn now(&self) -> u64 {
        fs::read_to_string(self.setting())
            .expect("it is there")
            .trim()
            .parse()
            .expect("a number")
    }

    fn watch(&self, more: &[&str]) -> Watch {
        let mut command = Command::new("env");
        // A test that is begun in the background has no SIGINT to give on.
        command.args([
            "--default-signal=INT",
            text(&cargo_bin("foreread")),
            "watch",
            &self.device,
            "--json",
        ]);
        command.args(["--every", "1s", "--for", "700ms"]).args(more);
        if !more.contains(&"--on") {
            command.args(["--on", "model:object-far"]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Watch { child, lines }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(mut reader) = self.reader.take() {
            let _ = reader.kill();
            let _ = reader.wait();
        }
        let mount = self.dir.path().join("mount");
        // A dd that the shell has begun may still read.
        let _ = (0..100).any(|_| {
            runs(&["umount", text(&mount)])
                || (std::thread::sleep(Duration::from_millis(20)), false).1
        });
        if !self.device.is_empty() {
            // A loop device keeps its value for the next user.
            self.set(128);
            runs(&["losetup", "-d", &self.device]);
        }
    }
}

/// Events that a test waits for one: an event a second, so that a machine under load fails the test and does not block it.
const EVENTS: usize = 60;

/// A watcher that runs.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    /// The next event with this name; those before it are passed over.
    #[track_caller]
    fn next(&mut self, event: &str) -> serde_json::Value {
        for line in self.lines.by_ref().take(EVENTS) {
            let line = line.expect("UTF-8");
            let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(json["schema"], "foreread.watch/1");
            assert_ne!(json["event"], "failed", "{line}");
            if json["event"] == event {
                return json;
            }
        }
        panic!("{EVENTS} events, or its end, without '{event}'");
    }

    fn signal(&self, name: &str) {
        assert!(runs(&[
            "kill",
            &format!("-{name}"),
            &self.child.id().to_string()
        ]));
    }

    fn code(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

/// A test that failed leaves no watcher behind; the guard puts the value back.
impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tracing instances of a process.
fn instances_of(pid: u32) -> Vec<String> {
    let folder = fs::read_dir("/sys/kernel/tracing/instances")
        .into_iter()
        .flatten()
        .flatten();
    let names = folder.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(&format!("foreread-{pid}-")))
        .collect()
}

#[track_caller]
fn within_10_s(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn two_recordings_change_it_and_every_end_puts_it_back() {
    let Some(disk) = Disk::new() else { return };
    for end in ["TERM", "INT", "KILL"] {
        let mut watch = disk.watch(&[]);
        assert_eq!(watch.next("started")["read_ahead_kb"], 128);
        let first = watch.next("recorded");
        assert_eq!(
            (&first["decision"], disk.now()),
            (&"once".into(), 128),
            "{first}"
        );
        assert!(
            first["reads"].as_u64() > Some(100) && first["best_ratio"].as_f64() < Some(0.5),
            "{first}"
        );
        let set = watch.next("set");
        let kib = set["read_ahead_kb"].as_u64().expect("a number");
        assert!(kib > 128 && disk.now() == kib, "{set}");
        let other = foreread(["watch", &disk.device]);
        assert!(
            other
                .is_refused()
                .contains("another 'foreread watch' has it"),
            "{}",
            other.err
        );
        let pid = watch.child.id();
        watch.signal(end);
        if end == "KILL" {
            let _ = watch.child.wait();
            within_10_s("the guard puts it back", || disk.now() == 128);
            within_10_s("the guard removes the instance", || {
                instances_of(pid).is_empty()
            });
            // The guard has given up its lock as well: it can be watched again.
            within_10_s("the lock", || {
                foreread(["watch", &disk.device, "--once", "--for", "100ms"]).code == Some(0)
            });
        } else {
            assert_eq!(watch.next("ended")["is_old"], true);
            assert_eq!((watch.code(), disk.now()), (Some(0), 128), "{end}");
            assert!(instances_of(pid).is_empty());
        }
    }
}

#[test]
fn what_another_program_sets_stays() {
    let Some(disk) = Disk::new() else { return };
    for end in ["TERM", "KILL"] {
        disk.set(128);
        let mut watch = disk.watch(&[]);
        watch.next("set");
        disk.set(96);
        let decided = |watch: &mut Watch| watch.next("recorded")["decision"].clone();
        // A recording that was under way may have been decided before.
        assert!((0..2).any(|_| decided(&mut watch) == "foreign"));
        assert_eq!(
            (decided(&mut watch), disk.now()),
            ("foreign".into(), 96),
            "also after it"
        );
        watch.signal(end);
        if end == "TERM" {
            assert_eq!(watch.next("ended")["is_old"], false);
        }
        watch.code();
        // A guard that lives has the lock.
        within_10_s("the guard ends", || {
            runs(&["flock", "-n", text(&disk.setting()), "true"])
        });
        assert_eq!(disk.now(), 96, "{end}");
    }
}

#[test]
fn a_dry_run_sets_nothing_and_one_recording_neither() {
    let Some(disk) = Disk::new() else { return };
    let mut watch = disk.watch(&["--dry-run"]);
    let decisions: Vec<_> = (0..3)
        .map(|_| watch.next("recorded")["decision"].clone())
        .collect();
    assert!(
        decisions.contains(&"set".into()) && disk.now() == 128,
        "{decisions:?}"
    );
    // It takes no lock, so that it can run beside another.
    let got = foreread([
        "watch",
        &disk.device,
        "--once",
        "--for",
        "700ms",
        "--on",
        "model:object-far",
    ]);
    let said = got.is_done();
    assert!(
        said.contains("the next recording has to say so too")
            && said.contains("ended; read_ahead_kb is 128"),
        "{said}"
    );
    watch.signal("TERM");
    watch.next("ended");
    assert_eq!((watch.code(), disk.now()), (Some(0), 128));
}

/// It begins with the verdict of `doctor`, and acts on it where the reads are page faults.
#[test]
fn a_value_too_large_for_page_faults_gives_way() {
    let Some(disk) = Disk::read_by(128, &FAULTS) else {
        return;
    };
    disk.set(8192);
    let mut watch = disk.watch(&["--on", "model:x25-m"]);
    let started = watch.next("started");
    assert_eq!(
        (&started["read_ahead_kb"], &started["doctor"]["verdict"]),
        (&8192.into(), &"suspicious".into()),
        "{started}"
    );
    let mut once = watch.next("recorded");
    while once["decision"] != "once" {
        once = watch.next("recorded");
    }
    assert_eq!(once["too_large_for_faults"], true, "{once}");
    assert!(once["faults"].as_u64() >= Some(50), "{once}");
    // At most what doctor advises: the comparison may find less.
    let set = watch.next("set");
    let kib = set["read_ahead_kb"].as_u64().expect("a number");
    assert!(kib <= 128 && disk.now() == kib, "{set}");
    watch.signal("TERM");
    assert_eq!(watch.next("ended")["is_old"], true);
    assert_eq!((watch.code(), disk.now()), (Some(0), 8192));
}

/// Nothing reads: there is no answer, and no measurement of the disk.
#[test]
fn without_reads_there_is_no_answer() {
    let Some(mut disk) = Disk::new() else { return };
    if let Some(mut reader) = disk.reader.take() {
        let _ = reader.kill();
        let _ = reader.wait();
    }
    std::thread::sleep(Duration::from_millis(500));
    let got = foreread(["watch", &disk.device, "--once", "--for", "300ms"]);
    assert!(
        got.is_done().contains("too little to say anything"),
        "{}",
        got.out
    );
}

#[test]
fn what_cannot_be_watched_is_refused_by_what_it_is() {
    let refused = |words: &[&str]| {
        foreread(["watch"].iter().chain(words))
            .is_refused()
            .to_string()
    };
    assert!(refused(&["/dev/no-such-disk"]).contains("no such device: /dev/no-such-disk"));
    assert!(refused(&["/dev/null"]).contains("not a block device: /dev/null"));
    assert!(refused(&["/"]).contains("not a block device: /; 'findmnt"));
    assert!(refused(&["/dev/null", "--min-gain", "5%"]).contains("10% to 90%"));
    assert!(
        refused(&["/dev/null", "--every", "10s"]).contains("a recording longer than its interval")
    );
    assert!(refused(&["/dev/null", "--every", "1h", "--for", "11m"]).contains("at most 10m"));
}

/// A loop device with one partition, and a node of that. Not all systems make a node for it in /dev.
struct Partitioned {
    dir: tempfile::TempDir,
    device: String,
}

impl Partitioned {
    fn new() -> Option<Partitioned> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let image = dir.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(4 << 20))
            .expect("room");
        let loops = Command::new("losetup")
            .args(["-f", "--show", text(&image)])
            .output();
        let device = String::from_utf8_lossy(&loops.map_or(Vec::new(), |done| done.stdout))
            .trim()
            .to_string();
        let one = Partitioned { dir, device };
        let number = || fs::read_to_string(format!("/sys/class/block/{}p1/dev", one.name())).ok();
        // From sector 2048 on, 4096 sectors.
        let made = one.device.starts_with("/dev/loop")
            && runs(&["addpart", &one.device, "1", "2048", "4096"]);
        let numbers = number().filter(|_| made);
        let is_ready = numbers.is_some_and(|numbers| {
            let (major, minor) = numbers.trim().split_once(':').expect("two numbers");
            runs(&["mknod", text(&one.node()), "b", major, minor])
        });
        is_ready.then_some(one)
    }

    fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    fn node(&self) -> PathBuf {
        self.dir.path().join("partition")
    }
}

impl Drop for Partitioned {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            runs(&["delpart", &self.device, "1"]);
            runs(&["losetup", "-d", &self.device]);
        }
    }
}

#[test]
fn a_partition_is_refused_with_the_name_of_its_disk() {
    let Some(disk) = Partitioned::new() else {
        println!("skipped: needs root, addpart, mknod and a loop device");
        return;
    };
    let got = foreread(["watch", text(&disk.node())]);
    let said = got.is_refused();
    let expected = format!("a partition: {} ", disk.node().display());
    assert!(
        said.contains(&expected) && said.contains(&format!("name the disk, {}", disk.device)),
        "{said}"
    );
}

#[test]
fn without_root_it_says_so() {
    let Some(disk) = Disk::new() else { return };
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--clear-groups",
        text(&cargo_bin("foreread")),
        "watch",
        &disk.device,
    ]);
    let Ok(done) = command.output() else {
        println!("skipped: needs setpriv");
        return;
    };
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("setpriv: ") {
        println!("skipped: the binary cannot be run by another user ({said})");
        return;
    }
    assert!(
        done.status.code() == Some(3) && said.ends_with("run it as root\n"),
        "{said}"
    );
}
