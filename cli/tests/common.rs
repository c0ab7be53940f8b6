//! What the tests of the command share: running it, servers, mounts, recordings, snapshots.

pub use foreread_testing::command::*;
pub use foreread_testing::machine::*;
pub use foreread_testing::{needs, says};

use foreread::source::disk_cache::{DiskCache, DiskCacheSettings, FreeSpace};
use foreread::source::object::ObjectSettings;
use foreread::source::{Nbd, Source};
use foreread_testing::BucketServer;
use foreread_trace::{Item, Op, open};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

pub const BINARY: &str = env!("CARGO_BIN_EXE_foreread");
pub const FOREREAD: Binary = Binary(BINARY);

pub fn foreread<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Got {
    FOREREAD.with(args)
}

pub fn run(words: impl AsRef<str>) -> Got {
    FOREREAD.run(words)
}

/// With these variables alone.
pub fn foreread_in<A: AsRef<OsStr>>(
    variables: &[(&str, &OsStr)],
    args: impl IntoIterator<Item = A>,
) -> Got {
    FOREREAD.at(Path::new("."), variables, args)
}

#[track_caller]
pub fn inside(page: &Path) -> serde_json::Value {
    let html = std::fs::read_to_string(page).expect("written");
    let is_whole = html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>");
    assert!(is_whole, "{}", page.display());
    let (_, data) = html.split_once("id=\"foreread-json\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

/// A command with no capability, though its user is root: as any other user beside the programs of this user.
pub fn unprivileged<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command.args(words);
    command
}

/// The items of a trace, of which each has to be whole.
pub fn items(trace: &Path, format: Option<&str>) -> impl Iterator<Item = Item> {
    let import = open::open(trace, format).expect("a trace");
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

/// A slow disk in a folder of the test's own; nothing if this machine cannot.
pub fn slow_disk(is_writable: bool) -> Option<SlowDisk> {
    SlowDisk::new(folder(), is_writable)
}

/// The cache on disk in this folder, which is written however full the disk of this machine is, and used however slow that is.
pub fn disk_cache(dir: &Path) -> DiskCache {
    let settings = DiskCacheSettings {
        free: FreeSpace::Bytes(0),
        reads_slow_disk: true,
        ..DiskCacheSettings::new(dir)
    };
    DiskCache::open(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Lists these folders of a bucket, and keeps their names in a cache.
pub fn list_in(cache: &DiskCache, server: &BucketServer, folders: &[&str]) {
    let settings = ObjectSettings {
        variables: server.variables(),
        ..ObjectSettings::default()
    };
    let tree = cache.open_prefix("s3://bucket/", settings);
    let tree = tree.unwrap_or_else(|error| panic!("{error}"));
    for folder in folders {
        tree.names(Path::new(folder)).expect("listed");
    }
    assert!(cache.flush(Duration::from_secs(60)), "written");
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

/// A read as a test wants it: what, offset, bytes that came (of a hint and a touch: its length).
pub type Step = (Op, u64, u64);

/// A scratch folder on a disk, with a file of 1 MiB in it.
pub fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = folder();
    let data = dir.path().join("data");
    std::fs::write(&data, vec![7; 1 << 20]).expect("room");
    (dir, data)
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

/// A program that talks by lines on its stdin and stdout, until it is dropped.
pub struct Program {
    process: Running,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(command: &mut Command) -> Program {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Running(command.spawn().expect("it starts"));
        let output = BufReader::new(process.0.stdout.take().expect("piped"));
        let input = process.0.stdin.take();
        Program {
            process,
            input,
            output,
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// The next line without its end; empty where it ends without.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("its line");
        line.trim_end().to_string()
    }

    #[track_caller]
    pub fn hears(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it has no end yet");
        writeln!(input, "{line}").expect("it listens");
    }

    /// Ends its input.
    pub fn close(&mut self) {
        self.input = None;
    }

    pub fn is_running(&mut self) -> bool {
        self.process.0.try_wait().expect("its state").is_none()
    }

    /// Ends its input, and waits for its exit code, or 128 and the signal.
    pub fn ended(mut self) -> i32 {
        self.close();
        code(self.process.0.wait().expect("waited"))
    }
}

/// A command that serves or mounts, until it is dropped.
pub struct Server {
    process: Running,
    err: BufReader<ChildStderr>,
    /// What it says on stdout when it serves.
    pub line: String,
}

impl Server {
    /// Waits until it serves.
    #[track_caller]
    pub fn start(command: &mut Command) -> Server {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Running(command.spawn().expect("the binary starts"));
        let (mut line, out) = (String::new(), process.0.stdout.take());
        let mut out = BufReader::new(out.expect("piped"));
        out.read_line(&mut line).expect("its line");
        line.truncate(line.trim_end().len());
        let err = BufReader::new(process.0.stderr.take().expect("piped"));
        let server = Server { process, err, line };
        if server.line.is_empty() {
            panic!("it does not serve: {}", server.ended().1);
        }
        server
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    #[track_caller]
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Stops all of its threads.
    pub fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.pid());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") T ")
        };
        let all = || std::fs::read_dir(&tasks).expect("there").flatten();
        wait_until("it stops", || all().all(is_stopped));
    }

    /// Waits for a line on stderr that has these parts.
    #[track_caller]
    pub fn hears(&mut self, parts: &[&str]) {
        let mut lines = self.err.by_ref().lines().map_while(Result::ok).take(100);
        let is_it = |line: String| parts.iter().all(|part| line.contains(part));
        assert!(lines.any(is_it), "it does not say: {parts:?}");
    }

    /// Waits for its end: the exit code, or 128 and the signal, and the rest of what it said on stderr.
    pub fn ended(mut self) -> (i32, String) {
        let mut said = Vec::new();
        self.err.read_to_end(&mut said).expect("text");
        let status = self.process.0.wait().expect("waited");
        (code(status), String::from_utf8_lossy(&said).into_owned())
    }

    /// Ends it by a signal such as `-TERM`, and gives what it said on stderr.
    #[track_caller]
    pub fn ended_by(self, by: &str) -> String {
        self.signal(by);
        let (code, said) = self.ended();
        assert_eq!(code, 0, "{said}");
        said
    }
}

/// The exit code, or 128 and the signal.
fn code(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

/// Waits for the end of a process, and calls `meanwhile` until then: its exit code, or 128 and the signal, and what it said on stderr.
pub fn ended(child: &mut Child, mut meanwhile: impl FnMut(&mut Child)) -> (i32, String) {
    let status = eventually("it ends", || {
        meanwhile(child);
        child.try_wait().expect("waited")
    });
    let err = child.stderr.take().expect("piped");
    (code(status), std::io::read_to_string(err).expect("text"))
}

/// The command as a shell in the foreground begins it. A test that is begun in the background has no SIGINT to give on.
pub fn interruptible() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", BINARY]);
    command
}

/// A mount by the command; ended and taken away, whatever happens.
pub struct Mounted {
    pub server: Server,
    pub dir: MountPoint,
}

impl Mounted {
    pub fn new(source: &Path, more: &[&str]) -> Mounted {
        Mounted::with(source, more, Vec::new())
    }

    pub fn with(source: &Path, more: &[&str], variables: Vec<(String, String)>) -> Mounted {
        let dir = MountPoint::empty();
        let mut command = Command::new(BINARY);
        command.arg("mount").arg(source).arg(dir.place()).args(more);
        let server = Server::start(command.envs(variables));
        assert_eq!(server.line, dir.place());
        Mounted { server, dir }
    }

    pub fn open(&self, name: &str) -> File {
        File::open(self.dir.path(name)).expect("opened")
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

/// A scratch folder on a disk.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory")
}
