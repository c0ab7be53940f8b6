//! What the tests of the command share: running it (`command`), servers, signals, recordings, loop devices, snapshots.
#![allow(dead_code, reason = "each feature set uses its part of this")]

#[path = "common/command.rs"]
mod command;

pub use command::*;
pub use foreread_testing::needs;

use foreread::source::{Nbd, Source};
use foreread_trace::{Item, Op, open};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader, IoSliceMut, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const BINARY: &str = env!("CARGO_BIN_EXE_foreread");

/// The first line of what runs, with its end: by it a server or a mount says that it is there. Nothing where it ends without.
pub fn first_line(process: &mut Child) -> String {
    let mut line = String::new();
    let mut out = BufReader::new(process.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("its line");
    line
}

/// The JSON inside a page.
#[track_caller]
pub fn inside(page: &Path) -> serde_json::Value {
    let html = std::fs::read_to_string(page).expect("written");
    let is_whole = html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>");
    assert!(is_whole, "{}", page.display());
    let (_, data) = html.split_once("id=\"foreread-json\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

/// Sends a signal such as `-TERM`.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill").success(), "{name} {pid}");
}

/// Waits up to a minute, for a machine with much else to do.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happened: {what}")
}

#[track_caller]
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    eventually(what, || so().then_some(()));
}

/// A command with no capability, though its user is root: as any other user beside the programs of this user.
pub fn unprivileged<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command.args(words);
    command
}

/// Ended when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The items of a trace, of which each has to be whole.
pub fn items(trace: &Path, format: Option<&str>) -> impl Iterator<Item = Item> {
    let import = open::open(&[trace.to_path_buf()], format).expect("a trace");
    import.items.map(|item| item.expect("whole"))
}

/// The children of a process, whichever thread began them.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let texts = tasks.filter_map(|task| of(task).ok());
    let all = Vec::from_iter(texts).join(" ");
    let pids = all.split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether the first thread of a process waits in poll.
pub fn polls(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|waits| waits.contains("poll"))
}

/// The instances of tracefs that a process of ours made.
pub fn instances(pid: u32) -> Vec<PathBuf> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let folders = places.map(|place| format!("{place}/instances"));
    let all = folders.iter().flat_map(std::fs::read_dir).flatten();
    let own = format!("/foreread-{pid}-");
    let paths = all.flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().contains(&own))
        .collect()
}

pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|out| out.stdout == b"0\n")
}

/// Whether this machine can mount by FUSE.
pub fn can_mount() -> bool {
    let has_fuse = Path::new("/dev/fuse").exists();
    let can = has_fuse && is_root() && Command::new("fusermount3").arg("-V").output().is_ok();
    if !can {
        println!("skipped: needs root, /dev/fuse and fuse3");
    }
    can
}

/// A read as a test wants it: what, offset, bytes that came (of a hint and a touch: its length).
pub type Step = (Op, u64, u64);

/// A scratch folder on a disk, with a file of 1 MiB in it.
pub fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = folder();
    let data = dir.path().join("data");
    std::fs::write(&data, vec![7; 1 << 20]).expect("room");
    (dir, data)
}

pub fn has(program: &[&str]) -> bool {
    let mut command = Command::new(program[0]);
    let command = command.args(&program[1..]).stdout(Stdio::null());
    let runs = command.stderr(Stdio::null()).status();
    let runs = runs.is_ok_and(|status| status.success());
    if !runs {
        println!("skipped: needs {}", program.join(" "));
    }
    runs
}

/// Records a command; nothing where this machine cannot.
pub fn record(trace: &Path, options: &[&str], command: &[&str]) -> Option<Got> {
    let fixed = ["record", "--by", "trace", "--force", "-o", text(trace)];
    let got = foreread([&fixed, options, &["--"], command].concat());
    if got.code == Some(3) {
        println!("skipped: needs root and tracefs ({})", got.err.trim_end());
        return None;
    }
    Some(got)
}

/// The text of a plan of one run that read all of these files.
pub fn plan_of(files: &[(&Path, u64)]) -> String {
    let count = files.len();
    let mut text = format!("foreread-plan 1\nruns: 1\nfiles: {count}\nranges: {count}\n");
    for (path, bytes) in files {
        writeln!(text, "f {bytes} - {}", path.display()).expect("memory");
    }
    for (number, (_, bytes)) in files.iter().enumerate() {
        writeln!(text, "r {number} 0 {bytes} - - - 1 0").expect("memory");
    }
    text + "end\n"
}

/// Reads from an NBD server, as far as its source goes.
#[track_caller]
pub fn read_nbd(client: &Nbd, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = client.read_at(&mut [IoSliceMut::new(&mut bytes)], offset);
    bytes.truncate(read.expect("readable"));
    bytes
}

/// A safetensors file with the tensors `a` and `b` of this many bytes each.
pub fn safetensors(each: usize) -> Vec<u8> {
    let tensor = |n: usize| {
        let offsets = [n * each, (n + 1) * each];
        format!(r#"{{"dtype":"U8","shape":[{each}],"data_offsets":{offsets:?}}}"#)
    };
    let header = format!(r#"{{"a":{},"b":{}}}"#, tensor(0), tensor(1));
    let begin = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    [begin, foreread_testing::pattern(0, 2 * each, 0)].concat()
}

/// What is in a trace, by the name of the file.
pub fn steps(trace: &Path, format: Option<&str>) -> BTreeMap<String, Vec<Step>> {
    let (mut names, mut all) = (Vec::new(), BTreeMap::<String, Vec<Step>>::new());
    for item in items(trace, format) {
        match item {
            Item::File(file) => names.push(file.name),
            Item::Record(r) => {
                let bytes = r.returned.unwrap_or(r.len);
                let steps = all.entry(names[r.file as usize].clone()).or_default();
                steps.push((r.op, r.offset, bytes));
            }
        }
    }
    all
}

pub fn python(script: &str) -> Vec<&str> {
    vec!["python3", "-S", "-c", script]
}

/// Which bytes of each file were read or touched, as sorted ranges without gaps or overlaps.
pub fn ranges(steps: BTreeMap<String, Vec<Step>>) -> BTreeMap<String, Vec<(u64, u64)>> {
    let of = |all: Vec<Step>| {
        let reads = all
            .into_iter()
            .filter(|(op, _, len)| matches!(op, Op::Read | Op::Fault) && *len > 0);
        let mut reads = Vec::from_iter(reads.map(|(_, offset, len)| (offset, offset + len)));
        reads.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in reads {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        joined
    };
    let all = steps.into_iter();
    all.map(|(name, steps)| (name, of(steps))).collect()
}

/// Ended whatever happens.
pub struct Server {
    pub process: Child,
    /// What it says on stdout when it serves.
    pub line: String,
}

impl Server {
    /// Waits until it serves.
    #[track_caller]
    pub fn start(command: &mut Command) -> Server {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let line = first_line(&mut process).trim_end().to_string();
        let mut server = Server { process, line };
        if server.line.is_empty() {
            panic!("it does not serve: {}", server.said());
        }
        server
    }

    fn said(&mut self) -> String {
        let mut said = Vec::new();
        let mut err = self.process.stderr.take().expect("piped");
        err.read_to_end(&mut said).expect("text");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Ends it by a signal such as `-TERM`, and gives what it said on stderr.
    #[track_caller]
    pub fn ended_by(mut self, by: &str) -> String {
        signal(self.process.id(), by);
        let said = self.said();
        let status = self.process.wait().expect("waited");
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What one command printed, below its command line.
pub fn entry(words: &str, got: &Got) -> String {
    let Got { code, out, err } = got;
    let mut text = format!("$ foreread {words}\n{out}{err}");
    if *code != Some(0) {
        writeln!(text, "exit code {code:?}").expect("memory");
    }
    text + "\n"
}

fn snapshot(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    folder.join(format!("{name}.txt"))
}

/// The command lines in the file of this name.
pub fn lines_of(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(snapshot(name)).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("$ foreread "));
    lines.map(str::to_string).collect()
}

/// Compares a text with the file of this name.
#[track_caller]
pub fn same(name: &str, text: &str) {
    let path = snapshot(name);
    if std::env::var_os("FOREREAD_BLESS").is_some() {
        std::fs::write(&path, text).expect("written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let mut pairs = expected.lines().zip(text.lines());
    let shorter = expected.lines().count().min(text.lines().count());
    let differs = pairs
        .position(|(one, other)| one != other)
        .unwrap_or(shorter);
    let line = |of: &str| of.lines().nth(differs).unwrap_or("(its end)").to_string();
    let is_same = expected == text && !text.is_empty();
    let (file, now, number) = (line(&expected), line(text), differs + 1);
    let what = format!("snapshots/{name}.txt differs in line {number}; FOREREAD_BLESS=1 writes it");
    assert!(is_same, "{what}\n  file: {file}\n  now:  {now}");
}

/// What a program prints on stdout, if it succeeds.
pub fn runs(words: &[&str]) -> Option<String> {
    let mut command = Command::new(words[0]);
    let done = command.args(&words[1..]).stderr(Stdio::null()).output();
    let done = done.ok().filter(|done| done.status.success())?;
    Some(String::from_utf8_lossy(&done.stdout).trim().to_string())
}

/// A scratch folder on a disk.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory")
}

/// A file of this length without blocks.
pub fn sparse(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path);
    file.and_then(|file| file.set_len(bytes)).expect("room");
}

/// A loop device of the test's own, given back when it is dropped.
pub struct LoopDisk {
    pub node: String,
}

impl LoopDisk {
    /// Over a file, with options of losetup.
    pub fn over(file: &Path, options: &[&str]) -> Option<LoopDisk> {
        let words = [&["losetup", "-f", "--show"], options, &[text(file)]];
        let node = runs(&words.concat());
        if node.is_none() {
            println!("skipped: needs root and a loop device");
        }
        node.map(|node| LoopDisk { node })
    }

    pub fn name(&self) -> &str {
        self.node.trim_start_matches("/dev/")
    }

    fn queue(&self, file: &str) -> PathBuf {
        let block = Path::new("/sys/block").join(self.name());
        block.join("queue").join(file)
    }

    pub fn kib(&self) -> u64 {
        let text = std::fs::read_to_string(self.queue("read_ahead_kb"));
        text.expect("a setting").trim().parse().expect("a number")
    }

    /// Sets a value of its queue; false where sysfs may not be written.
    pub fn set(&self, file: &str, value: u64) -> bool {
        let is_set = std::fs::write(self.queue(file), value.to_string()).is_ok();
        if !is_set {
            println!("skipped: needs a sysfs that may be written");
        }
        is_set
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        runs(&["losetup", "-d", &self.node]);
    }
}

/// A disk with a delay, taken down when it is dropped.
///
/// ```text
///   image ── nbdkit, 2 ms a read ── nbdfuse: a file ── loop device ── ext4, read-only
/// ```
pub struct SlowDisk {
    dir: tempfile::TempDir,
    disk: Option<LoopDisk>,
    servers: Vec<Child>,
    /// Of its mount.
    options: &'static str,
}

impl SlowDisk {
    /// With `big`, 24 MiB, and 300 small files in `src`; nothing if this machine cannot.
    pub fn new() -> Option<SlowDisk> {
        SlowDisk::made(false)
    }

    /// The same, and it may be written to.
    pub fn writable() -> Option<SlowDisk> {
        SlowDisk::made(true)
    }

    fn made(is_writable: bool) -> Option<SlowDisk> {
        let dir = folder();
        let [image, socket, fuse, files] =
            ["image", "socket", "fuse", "files"].map(|name| dir.path().join(name));
        for folder in [&files.join("src"), &fuse, &dir.path().join("mount")] {
            std::fs::create_dir_all(folder).expect("room");
        }
        std::fs::write(files.join("big"), vec![7; 24 << 20]).expect("room");
        for n in 0..300 {
            let file = files.join(format!("src/{n}"));
            std::fs::write(file, vec![b'x'; 3000 + 37 * n]).expect("room");
        }
        sparse(&image, 96 << 20);
        let options = if is_writable { "noatime" } else { "ro,noload" };
        let mut disk = SlowDisk {
            dir,
            disk: None,
            servers: Vec::new(),
            options,
        };
        let make = ["mkfs.ext4", "-q", "-F", "-d", text(&files), text(&image)];
        let nbdkit = "nbdkit -f --filter=delay file rdelay=2ms -U".split(' ');
        let nbdkit = nbdkit.chain([text(&socket), text(&image)]);
        let nbdkit = Vec::from_iter(nbdkit);
        let nbdfuse = ["nbdfuse", text(&fuse), "--unix", text(&socket)];
        let made = runs(&make).is_some()
            && disk.serves(&nbdkit, || socket.exists())
            && disk.serves(&nbdfuse, || fuse.join("nbd").exists());
        let options = ["--direct-io=on", "-r"];
        let options = &options[..2 - usize::from(is_writable)];
        disk.disk = LoopDisk::over(&fuse.join("nbd"), options).filter(|_| made);
        let is_ready = disk
            .disk
            .as_ref()
            .is_some_and(|device| device.set("read_ahead_kb", 128) && disk.mounts());
        if !is_ready {
            println!("skipped: needs nbdkit, nbdfuse, mkfs.ext4, python3 and a loop device");
        }
        is_ready.then_some(disk)
    }

    fn serves(&mut self, words: &[&str], is_there: impl Fn() -> bool) -> bool {
        let mut command = Command::new(words[0]);
        let server = command.args(&words[1..]).stderr(Stdio::null()).spawn();
        let is_begun = server.map(|server| self.servers.push(server)).is_ok();
        let wait = || std::thread::sleep(Duration::from_millis(10));
        is_begun && (0..500).any(|_| is_there() || (wait(), false).1)
    }

    fn mounts(&self) -> bool {
        let (device, mount) = (self.node(), self.mount());
        runs(&["mount", "-o", self.options, device, text(&mount)]).is_some()
    }

    /// The whole disk as a file of FUSE, whose server does not ask the kernel to keep what is cached.
    pub fn as_file(&self) -> PathBuf {
        self.dir.path().join("fuse/nbd")
    }

    pub fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    pub fn name(&self) -> &str {
        self.disk.as_ref().expect("made").name()
    }

    pub fn node(&self) -> &str {
        &self.disk.as_ref().expect("made").node
    }

    /// Unmounts it, which nothing may hold, and mounts it again: nothing of it is in memory.
    #[track_caller]
    pub fn remount(&self) {
        let is_free = runs(&["umount", text(&self.mount())]).is_some();
        assert!(is_free && self.mounts(), "it is busy");
    }

    /// Drops the pages of every file on it.
    pub fn forget(&self) {
        let mount = self.mount();
        let words = ["python3", "-S", "-c", FORGET, text(&mount)];
        assert!(runs(&words).is_some(), "pages are dropped");
    }
}

/// Drops the pages of every file below a folder.
const FORGET: &str = "
import os, sys
for folder, _, names in os.walk(sys.argv[1], onerror=lambda error: None):
    for name in names:
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
";

impl Drop for SlowDisk {
    fn drop(&mut self) {
        runs(&["umount", text(&self.mount())]);
        self.disk = None;
        runs(&["umount", text(&self.dir.path().join("fuse"))]);
        for server in self.servers.iter_mut().rev() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
