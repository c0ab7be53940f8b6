//! `foreread tune -- CMD` as a whole: a program is recorded, its reads are replayed on a model or on what the storage was
//! measured to be, and it is said what to set; the trace stays, and nothing else.
//!
//! Needs root and tracefs, else it is skipped; the slow disk needs nbdkit, nbdfuse and a loop device. What `tune` makes of a trace: `explain.rs` here and `tune.rs` of the lab.
//! Never: a figure of a probe, which is the machine's.

mod common;
use common::Got;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// A folder on a disk for the data, and one for what is temporary.
struct Bench {
    data: tempfile::TempDir,
    scratch: tempfile::TempDir,
    /// Tracing instances before.
    instances: BTreeSet<String>,
}

fn instances() -> BTreeSet<String> {
    let all = std::fs::read_dir(INSTANCES).into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

impl Bench {
    fn new() -> Bench {
        let folder = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let bench = Bench { data: folder(), scratch: folder(), instances: instances() };
        std::fs::write(bench.data.path().join("data"), vec![7; 16 << 20]).expect("room");
        bench
    }

    /// The command with the data's folder around it; nothing where this machine cannot record.
    fn tune(&self, options: &[&str], command: &[&str]) -> Option<Got> {
        let mut tune = assert_cmd::Command::new(env!("CARGO_BIN_EXE_foreread"));
        tune.current_dir(self.data.path()).env("TMPDIR", self.scratch.path()).env_remove("COLUMNS");
        let output = tune.arg("tune").args(options).arg("--").args(command).output().expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got = Got { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs ({})", got.err.trim_end());
            return None;
        }
        Some(got)
    }

    /// The kept trace; but no temporary file, and no tracing instance of a process that is gone.
    #[track_caller]
    fn only_the_traces_are_left(&self, traces: &[&str]) {
        let names = |path: &Path| -> Vec<String> {
            let all = std::fs::read_dir(path).expect("a folder").flatten();
            let mut names: Vec<String> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(self.scratch.path()), [""; 0], "temporary files");
        let mut expected = [&["data"], traces].concat();
        expected.sort_unstable();
        assert_eq!(names(self.data.path()), expected, "files beside the data");
        let dead = |name: &&String| {
            let pid = name.strip_prefix("foreread-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        };
        let now = instances();
        let left: Vec<&String> = now.difference(&self.instances).filter(dead).collect();
        assert!(left.is_empty(), "tracing instances: {left:?}");
    }
}

const IN_ORDER: [&str; 5] = ["dd", "if=data", "of=/dev/null", "bs=32k", "status=none"];

/// 16 MiB in order from an object store: a larger window is worth much, and it is said where to set it.
#[test]
fn a_command_is_recorded_and_told_what_to_set() {
    let bench = Bench::new();
    let options = ["--on", "model:object-near", "--runs", "5", "--only", "data"];
    let Some(got) = bench.tune(&options, &IN_ORDER) else { return };
    assert_eq!(got.code, Some(0), "{}", got.err);
    for part in [
        "\nthe kernel:\n    echo ",
        "read_ahead_kb",
        "\nforeread:\n    foreread serve SOURCE",
        "--policy linux-6.18:max=",
    ] {
        assert!(got.out.contains(part), "{part} is missing:\n{}", got.out);
    }
    assert!(got.out.contains("Against today's readahead of 128K") && got.out.contains("Expected: x0."), "{}", got.out);
    assert!(got.out.lines().all(|line| line.chars().count() <= 100), "{}", got.out);
    // What a user is told to do next is there.
    assert!(got.err.contains("foreread-dd.frt"), "{}", got.err);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
    let again =
        common::foreread(["tune", text(&bench.data.path().join("foreread-dd.frt")), "--on", "model:object-near"]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    // A second one does not take its place.
    bench.tune(&options, &["true"]).expect("as before");
    bench.tune(&["--on", "model:object-near"], &["dd", "if=data", "of=/dev/null", "count=9"]).expect("as before");
    let traces = ["foreread-dd-2.frt", "foreread-dd.frt", "foreread-true.frt"];
    bench.only_the_traces_are_left(&traces);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The JSON is JSON, whatever the command itself prints; a command that fails has been recorded all the same, and its exit
/// code is ours.
#[test]
fn the_json_is_whole() {
    let bench = Bench::new();
    let options = ["--on", "model:object-near", "--runs", "5", "--only", "data", "--json", "-"];
    let talks = ["sh", "-c", "echo a line of its own; dd if=data of=/dev/null bs=32k status=none; exit 7"];
    let Some(got) = bench.tune(&options, &talks) else { return };
    assert_eq!(got.code, Some(7), "{}", got.err);
    assert!(got.err.contains("a line of its own"), "{}", got.err);
    let json: serde_json::Value = serde_json::from_str(&got.out).unwrap_or_else(|e| panic!("{e}: {}", got.out));
    assert_eq!(
        (json["schema"].as_str(), json["storage"].as_str()),
        (Some("foreread.tune/1"), Some("model:object-near"))
    );
    assert!(json["policy"]["what"].as_str().is_some_and(|what| what.contains("max=")), "{}", json["policy"]);
    let places: Vec<_> = json["settings"].as_array().expect("a list").iter().map(|s| s["place"].as_str()).collect();
    assert!(places.contains(&Some("the kernel")) && places.contains(&Some("foreread")), "{places:?}");
    bench.only_the_traces_are_left(&["foreread-sh.frt"]);
}

/// Nothing named but the command: the storage is found by the trace and measured, as short as that can be. What comes of it
/// is the machine's matter; that it is said, and about this file, is ours.
#[test]
fn the_storage_is_found_and_measured() {
    let bench = Bench::new();
    let Some(got) = bench.tune(&["--seconds", "1", "--runs", "3", "--only", "data"], &IN_ORDER) else { return };
    assert_eq!(got.code, Some(0), "{}", got.err);
    let storage = format!("Storage: file:{}", bench.data.path().join("data").display());
    let flat = got.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.starts_with(&storage), "{}", got.out);
    assert!(flat.contains("today's readahead of "), "{}", got.out);
    let measured =
        format!("Measured: {}, the file there that most was read of.", bench.data.path().join("data").display());
    assert!(flat.contains("Chosen: ") && flat.contains(&measured), "{}", got.out);
    bench.only_the_traces_are_left(&["foreread-dd.frt"]);
}

/// A command that cannot be run leaves nothing either, and the exit code says that there was nothing to tune.
#[test]
fn a_command_that_is_not_there() {
    let bench = Bench::new();
    let Some(got) = bench.tune(&["--on", "model:rbd"], &["/no/such/program"]) else { return };
    assert_eq!((got.code, got.out.as_str()), (Some(2), ""), "{}", got.err);
    assert!(
        got.err.contains("cannot run: /no/such/program") && got.err.contains("nothing was recorded"),
        "{}",
        got.err
    );
    bench.only_the_traces_are_left(&[]);
}

/// Ctrl-C while the command runs, or while a process is recorded: the trace is kept, and the advice follows.
#[test]
fn after_ctrl_c_the_advice_follows() {
    let bench = Bench::new();
    if bench.tune(&["--on", "model:rbd"], &["head", "-c", "1000", "data"]).is_none() {
        return;
    }
    let begin = |words: &[&str]| {
        // A test that is begun in the background has no SIGINT to give on.
        let mut command = std::process::Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_foreread"), "tune", "--on", "model:object-near"]);
        command.args(["--runs", "5", "--only", "data"]).args(words).current_dir(bench.data.path());
        command.env("TMPDIR", bench.scratch.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let ended = |child: Child| {
        let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(kill.expect("it runs").success());
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(out.contains("Against today's readahead of 128K") && out.contains("\nthe kernel:\n"), "{out}{err}");
        output.status.code()
    };
    let all_read = "dd if=data of=/dev/null bs=32k status=none; : > ready; exec sleep 100";
    let ready = bench.data.path().join("ready");
    let tune = begin(&["--", "sh", "-c", all_read]);
    wait_until(|| ready.exists());
    assert_eq!(ended(tune), Some(130), "as the command, which SIGINT has ended");
    std::fs::remove_file(&ready).expect("it is there");

    // A process that runs already reads when the recorder has begun, and goes on when it has ended.
    let mut reader = std::process::Command::new("sh");
    reader.args(["-c", &format!("read go; {}", all_read.replace("exec sleep 100", "read end"))]);
    let mut reader = reader.current_dir(bench.data.path()).stdin(Stdio::piped()).spawn().expect("it starts");
    let tune = begin(&["--pid", &reader.id().to_string(), "--out", "by-pid.frt"]);
    let mut input = reader.stdin.take().expect("a pipe");
    let recorder = || children(tune.id()).into_iter().next();
    // When it knows what is open it has a thread that takes events, and one that waits for signals.
    wait_until(|| recorder().is_some_and(|pid| threads(pid) > 2));
    writeln!(input).expect("it listens");
    wait_until(|| ready.exists());
    assert_eq!(ended(tune), Some(0));
    writeln!(input).expect("it still listens");
    assert!(reader.wait().expect("ends").success(), "the process was ended too");
    std::fs::remove_file(&ready).expect("it is there");
    bench.only_the_traces_are_left(&["by-pid.frt", "foreread-head.frt", "foreread-sh.frt"]);
}

fn wait_until(mut so: impl FnMut() -> bool) {
    // Only a test that fails comes to the end of it.
    assert!((0..6000).any(|_| so() || (std::thread::sleep(Duration::from_millis(10)), false).1), "it never happened");
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks
        .map(of)
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// A disk with a delay: an image behind nbdkit, as a file by nbdfuse, with a loop device over it. Nothing of it is left.
struct SlowDisk {
    dir: tempfile::TempDir,
    device: String,
    servers: Vec<Child>,
}

impl SlowDisk {
    /// With `big`, 24 MiB, and many small files in `src`; nothing where this machine cannot.
    fn new() -> Option<SlowDisk> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let (image, socket, fuse) = (dir.path().join("image"), dir.path().join("socket"), dir.path().join("fuse"));
        let files = dir.path().join("files");
        std::fs::create_dir_all(files.join("src")).expect("room");
        std::fs::create_dir_all(&fuse).expect("room");
        std::fs::create_dir_all(dir.path().join("mount")).expect("room");
        std::fs::write(files.join("big"), vec![7; 24 << 20]).expect("room");
        for n in 0..300 {
            std::fs::write(files.join(format!("src/{n}")), vec![b'x'; 3000 + 37 * n]).expect("room");
        }
        std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("room");
        let mut disk = SlowDisk { dir, device: String::new(), servers: Vec::new() };
        let made = disk.runs(&["mkfs.ext4", "-q", "-F", "-d", text(&files), text(&image)])
            && disk.serves(&[
                "nbdkit",
                "-f",
                "-U",
                text(&socket),
                "--filter=delay",
                "file",
                text(&image),
                "rdelay=2ms",
            ])
            && disk.waits(|| socket.exists())
            && disk.serves(&["nbdfuse", text(&fuse), "--unix", text(&socket)])
            && disk.waits(|| fuse.join("nbd").exists());
        let nbd = fuse.join("nbd");
        let losetup =
            std::process::Command::new("losetup").args(["-f", "--show", "-r", "--direct-io=on", text(&nbd)]).output();
        disk.device = String::from_utf8_lossy(&losetup.map_or(Vec::new(), |done| done.stdout)).trim().to_string();
        let ready = made && disk.device.starts_with("/dev/loop") && {
            disk.set(128);
            disk.runs(&["mount", "-o", "ro,noload", &disk.device, text(&disk.mount())])
        };
        if !ready {
            println!("skipped: needs nbdkit, nbdfuse, mkfs.ext4 and a loop device");
        }
        ready.then_some(disk)
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    fn runs(&self, words: &[&str]) -> bool {
        let mut command = std::process::Command::new(words[0]);
        command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn serves(&mut self, words: &[&str]) -> bool {
        let server = std::process::Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).spawn();
        server.map(|server| self.servers.push(server)).is_ok()
    }

    fn waits(&self, so: impl Fn() -> bool) -> bool {
        (0..500).any(|_| so() || (std::thread::sleep(Duration::from_millis(10)), false).1)
    }

    /// Sets the kernel's readahead for this device, which is the test's own.
    fn set(&self, kib: u64) {
        let path = format!("/sys/block/{}/queue/read_ahead_kb", self.name());
        std::fs::write(path, kib.to_string()).expect("root may");
    }

    /// What a scan of the mapped file takes, from an empty cache.
    fn scan(&self) -> Duration {
        let began = Instant::now();
        assert!(self.runs(&["python3", "-S", "-c", SCAN, text(&self.mount().join("big"))]));
        began.elapsed()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.runs(&["umount", text(&self.mount())]);
        if !self.device.is_empty() {
            self.runs(&["losetup", "-d", &self.device]);
        }
        self.runs(&["umount", text(&self.dir.path().join("fuse"))]);
        for server in self.servers.iter_mut().rev() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

const SCAN: &str = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
for at in range(0, len(m), 4096): m[at]
";

/// A program that maps a file on a slow disk, and libraries on a fast one: the slow one is chosen, a larger readahead is
/// advised for it and nothing else, and with that setting the program is faster.
#[test]
fn a_mapping_on_a_slow_disk_is_told_what_helps() {
    let bench = Bench::new();
    let Some(disk) = SlowDisk::new() else { return };
    let big = disk.mount().join("big");
    let options = ["--seconds", "2", "--runs", "5", "--json", "-"];
    let Some(got) = bench.tune(&options, &["python3", "-S", "-c", SCAN, text(&big)]) else { return };
    assert_eq!(got.code, Some(0), "{}", got.err);
    let json: serde_json::Value = serde_json::from_str(&got.out).expect("JSON");
    assert_eq!(json["chosen"]["disk"]["disk"], disk.name(), "{:#}", json["chosen"]);
    assert_eq!((json["today"].as_str(), json["today_is_known"].as_bool()), (Some("linux-6.18:max=128K"), Some(true)));
    let kernel = &json["settings"][0];
    assert_eq!(kernel["place"], "the kernel", "{:#}", json["settings"]);
    let setting = kernel["text"].as_str().expect("a text");
    let kib = setting.strip_prefix("echo ").and_then(|rest| {
        rest.strip_suffix(&format!(" > /sys/block/{}/queue/read_ahead_kb", disk.name()))?.parse::<u64>().ok()
    });
    let kib = kib.unwrap_or_else(|| panic!("{setting}"));
    assert!(kib > 128, "{setting}");
    let before = disk.scan();
    disk.set(kib);
    let after = disk.scan();
    assert!(after.as_secs_f64() < before.as_secs_f64() * 0.75, "{before:?} before, {after:?} with {kib} KiB");
}

/// Many small files: none is large enough to measure, so the disk itself is, or a large file beside them.
#[test]
fn small_files_are_tuned_by_their_disk() {
    let bench = Bench::new();
    let Some(disk) = SlowDisk::new() else { return };
    let src = disk.mount().join("src");
    let options = ["--seconds", "2", "--runs", "3", "--only", text(&src), "--json", "-"];
    let Some(got) = bench.tune(&options, &["grep", "-r", "nothing", text(&src)]) else { return };
    assert_eq!(got.code, Some(1), "grep has found nothing: {}", got.err);
    let json: serde_json::Value = serde_json::from_str(&got.out).expect("JSON");
    let probed = json["chosen"]["probed"].as_str().expect("a text");
    let beside = disk.mount().join("big");
    let is_there = probed.starts_with(&disk.device) || probed.starts_with(text(&beside));
    assert!(is_there && probed.contains("no file of the trace there has 8 MiB"), "{probed}");
    assert_eq!((&json["kernel"], &json["chosen"]["disk"]["files"]), (&serde_json::Value::Null, &300.into()));
    assert!(json["verdict"].as_str().is_some_and(|text| text.contains("worth changing")), "{}", json["verdict"]);
}
