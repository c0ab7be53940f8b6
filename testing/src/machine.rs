//! What a test asks of its machine: programs, processes that end with the test, signals, mounts, loop devices, groups, a slow disk.
//!
//! Example: `needs!(let disk = LoopDisk::over(file, &[]))` skips a test without root; else `disk.node` is `/dev/loopN` until it is dropped.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a program prints on stdout, if it succeeds.
pub fn runs(words: &[&str]) -> Option<String> {
    let mut command = Command::new(words[0]);
    let done = command.args(&words[1..]).stderr(Stdio::null()).output();
    let done = done.ok().filter(|done| done.status.success())?;
    Some(String::from_utf8_lossy(&done.stdout).trim().to_string())
}

/// Whether a program runs with these arguments; else a line says that it is missing.
pub fn has(program: &[&str]) -> bool {
    let runs = runs(program).is_some();
    if !runs {
        println!("skipped: needs {}", program.join(" "));
    }
    runs
}

/// Whether this machine can mount by FUSE.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && runs(&["id", "-u"]).is_some_and(|id| id == "0");
    if !can {
        println!("skipped: needs root, /dev/fuse and fuse3");
    }
    can
}

/// Waits up to a minute, for a machine with much else to do.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until it holds, up to a minute.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// Sends a signal such as `-TERM`.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let sent = runs(&["kill", name, &pid.to_string()]);
    assert!(sent.is_some(), "{name} {pid}");
}

/// A process that is ended when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on a free port of this machine, which `command` gets, and waits until it listens. Gives the port, too.
pub fn server(command: impl Fn(u16) -> Command) -> (Running, u16) {
    // Another program may take the port in between: then the next one.
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a port").port();
        let mut command = command(port);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Running(command.spawn().expect("started"));
        let listens = eventually("it listens or ends", || {
            let is_over = server.0.try_wait().expect("a child").is_some();
            let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
            (listens || is_over).then_some(!is_over)
        });
        if listens {
            return (server, port);
        }
    }
    panic!("the server does not start");
}

/// A folder to mount at; what is mounted there is taken away when it is dropped.
pub struct MountPoint(pub TempDir);

impl MountPoint {
    pub fn empty() -> MountPoint {
        MountPoint(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn place(&self) -> &str {
        text(self.0.path())
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        runs(&["fusermount3", "-u", "-z", "-q", self.place()]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Makes a file of this length without blocks.
pub fn sparse(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path);
    file.and_then(|file| file.set_len(bytes)).expect("room");
}

/// Drops the pages of a file, or of every file below a folder. Needs python3.
#[track_caller]
pub fn forget(path: &Path) {
    let script = "
import ctypes, os, sys, time
files = [os.path.join(at, name) for at, _, names in os.walk(sys.argv[1]) for name in names]
kernel = ctypes.CDLL(None)
whole, counts = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
for file in files or sys.argv[1:]:
    fd = os.open(file, os.O_RDONLY)
    # A page that a processor is about to move between lists stays; cachestat (Linux 6.5) counts those.
    for _ in range(100):
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if kernel.syscall(451, fd, whole, counts, 0) != 0 or counts[0] == 0:
            break
        time.sleep(0.01)
    os.close(fd)
";
    let words = ["python3", "-S", "-c", script, text(path)];
    assert!(runs(&words).is_some(), "pages are dropped");
}

/// A loop device of the test's own, given back when it is dropped.
pub struct LoopDisk {
    /// Its path in /dev.
    pub node: String,
}

impl LoopDisk {
    /// Over a file, with options of losetup.
    pub fn over(file: &Path, options: &[&str]) -> Option<LoopDisk> {
        let words = [&["losetup", "-f", "--show"], options, &[text(file)]];
        let node = runs(&words.concat());
        if node.is_none() {
            println!("skipped: needs root, loop devices and losetup (Debian package mount)");
        }
        node.map(|node| LoopDisk { node })
    }

    /// Takes note that its file is longer now.
    pub fn resized(&self) {
        assert!(runs(&["losetup", "--set-capacity", &self.node]).is_some());
    }

    /// Its name in /sys/block.
    pub fn name(&self) -> &str {
        self.node.trim_start_matches("/dev/")
    }

    fn queue(&self, file: &str) -> PathBuf {
        let block = Path::new("/sys/block").join(self.name());
        block.join("queue").join(file)
    }

    /// The kernel's readahead of it, in KiB.
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

/// A memory control group below that of this process, of version 1 or 2, removed when it is dropped.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// With room for this many bytes.
    pub fn new(bytes: u64) -> Option<MemoryGroup> {
        let group = MemoryGroup::made(bytes);
        if group.is_none() {
            println!("skipped: needs root and a memory control group");
        }
        group
    }

    fn made(bytes: u64) -> Option<MemoryGroup> {
        let mine = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let v1 = mine.lines().find_map(|line| line.split_once(":memory:"));
        let (own, limit) = match v1 {
            Some((_, path)) => (format!("memory{path}/"), "memory.limit_in_bytes"),
            None => (String::new(), "memory.max"),
        };
        let path = format!("/sys/fs/cgroup/{own}foreread-test-{}", std::process::id());
        std::fs::create_dir(&path).ok()?;
        let group = MemoryGroup(PathBuf::from(path));
        std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }

    /// The file to which a process is written that belongs to it.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The last process of it may still be leaving.
        let is_gone = || std::fs::remove_dir(&self.0).is_ok();
        let wait = || std::thread::sleep(Duration::from_millis(5));
        let _ = (0..1000).any(|_| is_gone() || (wait(), false).1);
    }
}

/// A tmpfs of this many KiB, unmounted when it is dropped.
pub struct SmallDisk {
    /// Where it is mounted.
    pub dir: TempDir,
}

impl SmallDisk {
    /// Nothing, with a line that says so, where this user may not mount.
    pub fn of(kib: u32) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a folder");
        let options = format!("size={kib}k,mode=0700");
        let mount = ["mount", "-t", "tmpfs", "-o", &options, "tmpfs"];
        if runs(&[&mount[..], &[text(dir.path())]].concat()).is_some() {
            return Some(SmallDisk { dir });
        }
        println!("skipped: needs root, to mount a tmpfs");
        None
    }

    /// A file of this length on it that has no blocks yet.
    pub fn sparse(&self, bytes: u64) -> PathBuf {
        let path = self.dir.path().join("disk");
        sparse(&path, bytes);
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        runs(&["umount", "--lazy", text(self.dir.path())]);
    }
}

/// A disk with a delay, taken down when it is dropped.
///
/// ```text
///   image ── nbdkit, 2 ms a read ── nbdfuse: a file ── loop device ── ext4, read-only
/// ```
pub struct SlowDisk {
    dir: TempDir,
    disk: Option<LoopDisk>,
    servers: Vec<Running>,
    /// Of its mount.
    options: &'static str,
}

impl SlowDisk {
    /// In this folder, which must be on a disk: with `big`, 24 MiB, and 300 small files in `src`. Nothing if this machine cannot.
    pub fn new(dir: TempDir, is_writable: bool) -> Option<SlowDisk> {
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
        let mut disk = SlowDisk {
            dir,
            disk: None,
            servers: Vec::new(),
            options: if is_writable { "noatime" } else { "ro,noload" },
        };
        let make = ["mkfs.ext4", "-q", "-F", "-d", text(&files), text(&image)];
        let nbdkit = "nbdkit -f --filter=delay file rdelay=2ms -U".split(' ');
        let nbdkit = Vec::from_iter(nbdkit.chain([text(&socket), text(&image)]));
        let nbdfuse = ["nbdfuse", text(&fuse), "--unix", text(&socket)];
        let made = runs(&make).is_some()
            && disk.serves(&nbdkit, || socket.exists())
            && disk.serves(&nbdfuse, || fuse.join("nbd").exists());
        let options = &["--direct-io=on", "-r"][..2 - usize::from(is_writable)];
        disk.disk = LoopDisk::over(&fuse.join("nbd"), options).filter(|_| made);
        let device = disk.disk.as_ref();
        let is_ready = device.is_some_and(|device| device.set("read_ahead_kb", 128));
        let is_ready = is_ready && disk.mounts();
        if !is_ready {
            println!("skipped: needs nbdkit, nbdfuse, mkfs.ext4, python3 and a loop device");
        }
        is_ready.then_some(disk)
    }

    fn serves(&mut self, words: &[&str], is_there: impl Fn() -> bool) -> bool {
        let mut command = Command::new(words[0]);
        let server = command.args(&words[1..]).stderr(Stdio::null()).spawn();
        let is_begun = server.map(|server| self.servers.push(Running(server)));
        let wait = || std::thread::sleep(Duration::from_millis(10));
        is_begun.is_ok() && (0..500).any(|_| is_there() || (wait(), false).1)
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

    /// Its name in /sys/block.
    pub fn name(&self) -> &str {
        self.disk.as_ref().expect("made").name()
    }

    /// Its path in /dev.
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
        forget(&self.mount());
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        runs(&["umount", text(&self.mount())]);
        self.disk = None;
        runs(&["umount", text(&self.dir.path().join("fuse"))]);
        while self.servers.pop().is_some() {}
    }
}
