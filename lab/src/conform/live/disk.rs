//! A file system of our own: memory behind a loop device, mounted nowhere.
//!
//! ```text
//!   memfd ◄── /dev/loopN (detaches itself) ◄── ext4 or xfs, read-only ◄── a mount without a place, held by a descriptor
//!   0.5 GiB, sparse     │ read_ahead_kb          5 files of known sizes          reached as /proc/PID/fd/N
//! ```
//! The files are written in a first mount and read in a second, read-only one: then no journal, no time stamp and no
//! write-back has a hand in the cache. Never: an existing device or file.

use super::{LiveError, RETRY, began};
use crate::conform::recording::PAGE;
use crate::device_number::DeviceNumber;
use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

/// Bytes of the files: less than four pages, 100 pages, one byte over and some bytes over a power of two, a page less
/// one byte over (docs/spec/linux-readahead.md 7).
pub(super) const SIZES: [u64; 5] = [12_411, 409_600, 1_048_577, 25_167_058, 134_221_823];
/// XFS wants 300 MB; the files take 160.
const DISK_BYTES: u64 = 512 << 20;
/// What the loop device's backing file is called, before our process number.
const BACKING: &str = "foreread-conform-";
/// How long a device may stay busy, in looks of 20 us to 1 ms.
const LOOKS: u32 = 20_000;

/// What is made on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with blocks of 4 KiB, as it is by default.
    Ext4,
    /// ext4 with blocks of 1 KiB.
    Ext4Small,
    /// ext4 with data=journal: no large folios.
    Ext4Journal,
    /// XFS with blocks of 4 KiB, as it is by default.
    Xfs,
    /// XFS with blocks of 8 KiB.
    Xfs8,
    /// XFS with blocks of 16 KiB.
    Xfs16,
    /// XFS with blocks of 32 KiB.
    Xfs32,
    /// XFS with blocks of 64 KiB.
    Xfs64,
}

impl FileSystem {
    /// All, in the order of a table.
    pub const ALL: [FileSystem; 8] = [
        FileSystem::Ext4,
        FileSystem::Ext4Small,
        FileSystem::Ext4Journal,
        FileSystem::Xfs,
        FileSystem::Xfs8,
        FileSystem::Xfs16,
        FileSystem::Xfs32,
        FileSystem::Xfs64,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext4Small => "ext4-1k",
            FileSystem::Ext4Journal => "ext4-journal",
            FileSystem::Xfs => "xfs",
            FileSystem::Xfs8 => "xfs-8k",
            FileSystem::Xfs16 => "xfs-16k",
            FileSystem::Xfs32 => "xfs-32k",
            FileSystem::Xfs64 => "xfs-64k",
        }
    }

    /// What it is, for help.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            FileSystem::Ext4 | FileSystem::Xfs => "Blocks of 4 KiB",
            FileSystem::Ext4Small => "Blocks of 1 KiB",
            FileSystem::Ext4Journal => "With data=journal: no large folios",
            FileSystem::Xfs8 => "Blocks of 8 KiB",
            FileSystem::Xfs16 => "Blocks of 16 KiB",
            FileSystem::Xfs32 => "Blocks of 32 KiB",
            FileSystem::Xfs64 => "Blocks of 64 KiB",
        }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(self) -> u64 {
        match self {
            FileSystem::Ext4Small => 1 << 10,
            FileSystem::Ext4 | FileSystem::Ext4Journal | FileSystem::Xfs => 4 << 10,
            FileSystem::Xfs8 => 8 << 10,
            FileSystem::Xfs16 => 16 << 10,
            FileSystem::Xfs32 => 32 << 10,
            FileSystem::Xfs64 => 64 << 10,
        }
    }

    /// The smallest folio that holds a block (docs/spec/linux-readahead.md 4.1).
    pub(super) fn min_order(self) -> u32 {
        (self.block_bytes() / PAGE).max(1).ilog2()
    }

    /// Whether it may make large folios.
    pub(super) fn large_folios(self) -> bool {
        self != FileSystem::Ext4Journal
    }

    /// What the kernel and mkfs call it.
    fn driver(self) -> &'static str {
        match self {
            FileSystem::Ext4 | FileSystem::Ext4Small | FileSystem::Ext4Journal => "ext4",
            _ => "xfs",
        }
    }

    /// The program that makes it, and its package.
    fn program(self) -> (&'static str, &'static str) {
        if self.driver() == "ext4" { ("mkfs.ext4", "e2fsprogs") } else { ("mkfs.xfs", "xfsprogs") }
    }

    /// Whether it can be made here.
    pub(super) fn ready(self) -> Result<(), LiveError> {
        let (program, package) = self.program();
        run("losetup", &["--version"], "mount (util-linux)")?;
        run(program, &["-V"], package).map(|_| ())
    }

    /// Makes it on a device.
    fn make(self, device: &str) -> Result<(), LiveError> {
        let (program, package) = self.program();
        let block = self.block_bytes();
        let said = if self.driver() == "ext4" {
            run(program, &["-q", "-F", "-b", &block.to_string(), device], package)
        } else {
            run(program, &["-q", "-f", "-b", &format!("size={block}"), device], package)
        };
        said.map(|_| ())
    }
}

/// The device, mounted.
pub(super) struct Disk {
    mount: OwnedFd,
    stat: File,
    /// Keeps the device ours from its first moment on.
    _device: File,
    /// `loop7`.
    name: String,
    /// Its number.
    pub number: DeviceNumber,
    /// Inode of each file of [`SIZES`].
    pub inodes: [u64; SIZES.len()],
}

impl Disk {
    /// Makes everything.
    pub fn new(kind: FileSystem) -> Result<Disk, LiveError> {
        detach_stale();
        let label = format!("{BACKING}{}-{}", std::process::id(), began(std::process::id()).unwrap_or(0));
        let memory =
            memfd_create(&label, MemfdFlags::CLOEXEC).map_err(|e| LiveError::io("no memory file (memfd_create)", e))?;
        ftruncate(&memory, DISK_BYTES).map_err(|e| LiveError::io("no memory file of 512 MiB", e))?;
        let path = attach(&format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()))?;
        let device = File::options().read(true).write(true).open(&path);
        // Detaching a device that is open only marks it: the kernel detaches it when the last of us closes it.
        let marked = run("losetup", &["-d", &path], "mount (util-linux)");
        let device = device.map_err(|e| LiveError::io(format!("cannot open {path}"), e))?;
        marked?;
        kind.make(&path)?;
        let name = path.rsplit('/').next().unwrap_or_default().to_string();
        let writing = mount(kind, &path, false)?;
        for (nth, &size) in SIZES.iter().enumerate() {
            write(&writing, nth, size).map_err(|e| LiveError::io(format!("cannot write to {path}"), e))?;
        }
        drop(writing);
        let mount = mount(kind, &path, true)?;
        let stat = format!("/sys/block/{name}/stat");
        let stat = File::open(&stat).map_err(|e| LiveError::io(stat, e))?;
        let mut disk =
            Disk { mount, stat, _device: device, name, number: DeviceNumber::default(), inodes: [0; SIZES.len()] };
        for nth in 0..SIZES.len() {
            let stat = fstat(disk.open(nth)?).map_err(|e| LiveError::io("fstat", e))?;
            disk.number = DeviceNumber::of(stat.st_dev);
            disk.inodes[nth] = stat.st_ino;
        }
        Ok(disk)
    }

    /// A fresh descriptor of a file.
    pub fn open(&self, nth: usize) -> Result<File, LiveError> {
        openat(&self.mount, file_name(nth), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|e| LiveError::io(format!("cannot open {} on /dev/{}", file_name(nth), self.name), e))
    }

    /// The way to a file for another process, as long as this one lives.
    pub fn path(&self, nth: usize) -> String {
        format!("/proc/{}/fd/{}/{}", std::process::id(), self.mount.as_raw_fd(), file_name(nth))
    }

    /// Sets the device's readahead. Returns the pages that the kernel made of it: it counts whole ones, so 65 KiB are 16.
    pub fn set_read_ahead(&self, kib: u64) -> Result<u64, LiveError> {
        let path = self.queue("read_ahead_kb");
        std::fs::write(&path, kib.to_string()).map_err(|e| LiveError::io(path.clone(), e))?;
        let (set, page) = (self.kib("read_ahead_kb")?, PAGE / 1024);
        if set != kib / page * page {
            return Err(LiveError::Cannot(format!(
                "{path} is {set} after {kib} was written; is another program at it?"
            )));
        }
        Ok(set / page)
    }

    /// The largest command, in KiB.
    pub fn max_command(&self) -> Result<u64, LiveError> {
        self.kib("max_sectors_kb")
    }

    fn queue(&self, key: &str) -> String {
        format!("/sys/block/{}/queue/{key}", self.name)
    }

    fn kib(&self, key: &str) -> Result<u64, LiveError> {
        let path = self.queue(key);
        let text = std::fs::read_to_string(&path).map_err(|e| LiveError::io(path.clone(), e))?;
        text.trim().parse().map_err(|_| LiveError::Cannot(format!("{path} holds '{}', no number", text.trim())))
    }

    /// Waits until nothing is under way: a page that has not arrived cannot be dropped, nor mapped by a neighbour's fault.
    pub fn settle(&self) -> Result<(), LiveError> {
        let mut text = [0; 512];
        for look in 0..LOOKS {
            let got = self.stat.read_at(&mut text, 0).map_err(|e| LiveError::io("/sys/block/*/stat", e))?;
            // The ninth number: requests that were begun and whose pages have not been told. What the neighbour
            // 'inflight' counts has left it a moment before that.
            let under_way = text[..got].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(8);
            if under_way == Some(b"0") {
                return Ok(());
            }
            match look {
                0..20 => std::thread::yield_now(),
                20..200 => std::thread::sleep(Duration::from_micros(20)),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(LiveError::Cannot(format!(
            "/dev/{} does not come to rest; run this on a machine with less to do",
            self.name
        )))
    }
}

fn file_name(nth: usize) -> String {
    format!("file{nth}")
}

/// Words that differ from page to page, as data that could be read.
fn write(mount: &OwnedFd, nth: usize, size: u64) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(mount, file_name(nth), flags, Mode::from_raw_mode(0o600))?);
    let mut left = size as usize;
    let block = vec![0x66; 1 << 20];
    while left > 0 {
        let part = left.min(block.len());
        file.write_all(&block[..part])?;
        left -= part;
    }
    file.sync_all()
}

/// A mount that only its descriptor holds.
fn mount(kind: FileSystem, device: &str, read_only: bool) -> Result<OwnedFd, LiveError> {
    let name = kind.driver();
    let mut tried = 0;
    loop {
        let mounted = (|| {
            let fs = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_set_string(&fs, "source", device)?;
            if kind == FileSystem::Ext4Journal {
                fsconfig_set_string(&fs, "data", "journal")?;
            }
            if read_only {
                fsconfig_set_flag(&fs, "ro")?;
            }
            fsconfig_create(&fs)?;
            fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOATIME)
        })();
        match mounted {
            // The mount before this one is still being removed.
            Err(rustix::io::Errno::BUSY) if tried < 1000 => std::thread::sleep(Duration::from_millis(2)),
            Err(rustix::io::Errno::NODEV) => {
                return Err(LiveError::Unsupported(format!("this kernel has no {name}; leave it out with --fs")));
            }
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if kind.min_order() > 0 => {
                let what = format!("cannot mount {name} with blocks of {} bytes", kind.block_bytes());
                return Err(LiveError::Unsupported(format!("{what}: Linux can since 6.12; leave it out with --fs")));
            }
            Err(error) => {
                let what = format!("cannot mount {name} from {device}");
                return Err(LiveError::Io { what, error: error.into(), remedy: RETRY });
            }
            Ok(mount) => return Ok(mount),
        }
        tried += 1;
    }
}

fn attach(file: &str) -> Result<String, LiveError> {
    let said = run("losetup", &["--find", "--show", file], "mount (util-linux)")?;
    match said.trim() {
        path if path.starts_with("/dev/") => Ok(path.to_string()),
        said => Err(LiveError::Cannot(format!("losetup attached nothing: '{said}'; is there a free /dev/loopN?"))),
    }
}

/// Runs a program and returns what it said.
fn run(program: &str, arguments: &[&str], package: &str) -> Result<String, LiveError> {
    let ran = Command::new(program).args(arguments).stdin(std::process::Stdio::null()).output();
    let ran = ran.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            LiveError::Cannot(format!("{program} is missing; install the package {package}"))
        }
        _ => LiveError::io(format!("cannot run {program}"), error),
    })?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let said = said.lines().last().unwrap_or("no reason given").trim();
    Err(LiveError::Cannot(format!("{program} failed: {said}; there has to be a free loop device (/dev/loop-control)")))
}

/// Detaches devices of runs that were killed in the moment between attaching and marking.
fn detach_stale() {
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(backing) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let Some(owner) = backing.trim().strip_prefix(&format!("/memfd:{BACKING}")) else { continue };
        let owner = owner.trim_end_matches(" (deleted)");
        if is_gone(owner) {
            let _ = run("losetup", &["-d", &format!("/dev/{name}")], "");
        }
    }
}

/// Whether the process that named something `PID-START` has ended.
fn is_gone(owner: &str) -> bool {
    let Some((pid, start)) = owner.split_once('-') else { return false };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else { return false };
    began(pid) != Some(start)
}
