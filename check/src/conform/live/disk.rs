//! A temporary file system on a loop device in memory, mounted without a mount point in the directory tree.
//!
//! ```text
//!   memfd ◄── /dev/loopN (detaches itself) ◄── ext4 or xfs, read-only ◄── a mount without a place, held by a descriptor
//!   0.5 GiB, sparse     │ read_ahead_kb          5 files of known sizes          reached as /proc/PID/fd/N
//! ```
//! The files are written while the file system is mounted for the first time. The file system is then mounted again read-only for the test,
//! so that no journal, time stamp or write-back affects the page cache. Existing devices and files are never used.

use super::file_system::{FileSystem, run};
use super::{LiveError, RETRY, began};
use crate::conform::recording::PAGE;
use foreread_os::host::devices::{disk_setting, read_setting, write_setting};
use foreread_os::host::{DeviceNumber, Host};
use foreread_os::open::shared_descriptor_path;
use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// File sizes in bytes: less than four pages; 100 pages; 1 MiB and one byte; 24 MiB and some bytes; 128 MiB and a page
/// less one byte (docs/spec/linux-readahead.md 7).
pub(super) const SIZES: [u64; 5] = [12_411, 409_600, 1_048_577, 25_167_058, 134_221_823];
/// XFS needs 300 MB; the files take 160.
const DISK_BYTES: u64 = 512 << 20;
/// Prefix of the name of the loop device's backing file; our process ID follows.
const BACKING: &str = "foreread-conform-";
/// How often a busy device is checked, every 20 us to 1 ms, before giving up.
const LOOKS: u32 = 20_000;

/// The device, mounted.
pub(super) struct Disk {
    mount: OwnedFd,
    stat: File,
    /// Keeps the device ours from the first moment on.
    _device: File,
    /// The device name, for example `loop7`.
    name: String,
    /// The path of its readahead setting.
    read_ahead: String,
    pub number: DeviceNumber,
    pub inodes: [u64; SIZES.len()],
}

impl Disk {
    /// Creates the device and the files.
    pub fn new(kind: FileSystem) -> Result<Disk, LiveError> {
        detach_stale();
        let label = format!(
            "{BACKING}{}-{}",
            std::process::id(),
            began(std::process::id()).unwrap_or(0)
        );
        let memory = memfd_create(&label, MemfdFlags::CLOEXEC)
            .map_err(|e| LiveError::io("cannot create a memory file (memfd_create)", e))?;
        ftruncate(&memory, DISK_BYTES)
            .map_err(|e| LiveError::io("cannot create a memory file of 512 MiB", e))?;
        let path = attach(&shared_descriptor_path(&memory).display().to_string())?;
        let device = File::options().read(true).write(true).open(&path);
        // Detaching an open device only marks it; the kernel detaches it when the last descriptor is closed.
        let marked = run("losetup", &["-d", &path], "mount (util-linux)");
        let device = device.map_err(|e| LiveError::io(format!("cannot open {path}"), e))?;
        marked?;
        let name = path.rsplit('/').next().unwrap_or_default().to_string();
        kind.make(&path)?;
        let written = mount(kind, &path, false)?;
        SIZES.iter().enumerate().try_for_each(|(nth, &size)| {
            let failed = |e| LiveError::io(format!("cannot write to {path}"), e);
            write(&written, nth, size).map_err(failed)
        })?;
        drop(written);
        let mount = mount(kind, &path, true)?;
        let mut inodes = [0; SIZES.len()];
        let mut number = DeviceNumber::default();
        for (nth, inode) in inodes.iter_mut().enumerate() {
            let file = open(&mount, nth, &path)?;
            let stat = fstat(&file).map_err(|e| LiveError::io("fstat", e))?;
            *inode = stat.st_ino;
            number = DeviceNumber::of(stat.st_dev);
        }
        let stat = Host::here().open_disk_counters(&name);
        let stat = stat.map_err(|e| LiveError::io(format!("counters of {name}"), e))?;
        Ok(Disk {
            mount,
            stat,
            _device: device,
            read_ahead: disk_setting(&name),
            name,
            number,
            inodes,
        })
    }

    /// Opens a file of the disk, and returns a new descriptor.
    pub fn open(&self, nth: usize) -> Result<File, LiveError> {
        open(&self.mount, nth, &format!("/dev/{}", self.name))
    }

    /// Returns a path by which another process can open a file of the disk; the path is valid while this process lives.
    pub fn path(&self, nth: usize) -> String {
        let path = shared_descriptor_path(&self.mount).join(file_name(nth));
        path.display().to_string()
    }

    /// Sets the device's readahead. Returns the resulting number of pages: the kernel rounds down to whole pages, so 65
    /// KiB are 16 pages.
    pub fn set_read_ahead(&self, kib: u64) -> Result<u64, LiveError> {
        let (path, page) = (&self.read_ahead, PAGE / 1024);
        let failed = |error| LiveError::io(path.clone(), error);
        write_setting(Path::new(path), kib).map_err(failed)?;
        let set = read_setting(Path::new(path)).map_err(failed)?;
        if set != kib / page * page {
            return Err(LiveError::Cannot(format!(
                "{path} is {set} after writing {kib}; does another program change it?"
            )));
        }
        Ok(set / page)
    }

    /// Returns the size of the largest request that the device accepts, in pages.
    pub fn io_pages(&self) -> Result<u64, LiveError> {
        let largest = Host::here().device(self.number).max_request;
        largest.map(|bytes| bytes / PAGE).ok_or_else(|| {
            LiveError::Cannot(format!("/dev/{} has no max_sectors_kb; {RETRY}", self.name))
        })
    }

    /// Waits until no request to the device is in flight. A page that is still being read can neither be dropped nor be mapped by a fault
    /// on a neighbouring page.
    pub fn settle(&self) -> Result<(), LiveError> {
        let mut text = [0; 512];
        for look in 0..LOOKS {
            let got = self
                .stat
                .read_at(&mut text, 0)
                .map_err(|e| LiveError::io("counters of a disk", e))?;
            // The ninth number: requests that were started and whose pages were not reported yet. The neighbouring
            // number 'inflight' decreases a moment earlier.
            let under_way = text[..got]
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .nth(8);
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
            "/dev/{} does not become idle; run this on a machine with less load",
            self.name
        )))
    }
}

fn file_name(nth: usize) -> String {
    format!("file{nth}")
}

fn open(mount: &OwnedFd, nth: usize, place: &str) -> Result<File, LiveError> {
    openat(
        mount,
        file_name(nth),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map(File::from)
    .map_err(|e| LiveError::io(format!("cannot open {} on {place}", file_name(nth)), e))
}

/// Writes words that differ from page to page, as realistic data.
fn write(mount: &OwnedFd, nth: usize, size: u64) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(
        mount,
        file_name(nth),
        flags,
        Mode::from_raw_mode(0o600),
    )?);
    let mut left = size as usize;
    let block = vec![0x66; 1 << 20];
    while left > 0 {
        let part = left.min(block.len());
        file.write_all(&block[..part])?;
        left -= part;
    }
    file.sync_all()
}

/// A mount that only its descriptor keeps alive.
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
            fsmount(
                &fs,
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::MOUNT_ATTR_NOATIME,
            )
        })();
        match mounted {
            // The previous mount is still being removed.
            Err(rustix::io::Errno::BUSY) if tried < 1000 => {
                std::thread::sleep(Duration::from_millis(2))
            }
            Err(rustix::io::Errno::NODEV) => {
                return Err(LiveError::Unsupported(format!(
                    "this kernel has no {name}; leave it out with --fs"
                )));
            }
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if kind.min_order() > 0 => {
                let what = format!(
                    "cannot mount {name} with blocks of {} bytes",
                    kind.block_bytes()
                );
                return Err(LiveError::Unsupported(format!(
                    "{what}: Linux supports this since 6.12; leave it out with --fs"
                )));
            }
            Err(error) => {
                let what = format!("cannot mount {name} from {device}");
                return Err(LiveError::Io {
                    what,
                    error: error.into(),
                    remedy: RETRY,
                });
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
        said => Err(LiveError::Cannot(format!(
            "losetup attached nothing: '{said}'; is there a free /dev/loopN?"
        ))),
    }
}

/// Detaches devices of runs that were killed between attaching and marking.
fn detach_stale() {
    for device in Host::here().loop_devices() {
        let backing = device.file.unwrap_or_default();
        let Some(owner) = backing.strip_prefix(&format!("/memfd:{BACKING}")) else {
            continue;
        };
        let owner = owner.trim_end_matches(" (deleted)");
        if is_gone(owner) {
            let _ = run("losetup", &["-d", &format!("/dev/{}", device.name)], "");
        }
    }
}

/// Whether the process that used the name `PID-START` has ended.
fn is_gone(owner: &str) -> bool {
    let Some((pid, start)) = owner.split_once('-') else {
        return false;
    };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else {
        return false;
    };
    began(pid) != Some(start)
}
