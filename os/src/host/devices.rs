//! Block devices and their settings in sysfs.
//!
//! ```text
//!   stat: 254:1 ──► sys/dev/block/254:1 is a partition ──► ../queue: read_ahead_kb 8192, max_sectors_kb 4096
//!   stat: 0:52  ──► no block device (NFS, FUSE, btrfs)  ──► sys/class/bdi/0:52/read_ahead_kb
//! ```
//! This module changes a setting only if the caller requests it.

use super::{DeviceNumber, Host, number, text};
use crate::open::read_small;
use rustix::fs::{fstat, stat};
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: u64 = 512;

/// The device on which a file is: a whole disk, or a mount that is not on a single disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The disk's number, or the mount's: `8:0` or `0:44`.
    pub number: DeviceNumber,
    /// The disk's name, such as `sdb`; a mount without a disk (NFS, FUSE) has none.
    pub name: Option<String>,
    /// `read_ahead_kb`, in bytes.
    pub read_ahead: Option<u64>,
    /// `max_sectors_kb`, in bytes: the largest request.
    pub max_request: Option<u64>,
    pub rotates: Option<bool>,
}

impl Device {
    pub fn setting(&self) -> String {
        self.name
            .as_deref()
            .map_or_else(|| mount_setting(&self.number.to_string()), disk_setting)
    }
}

/// Returns the path of a disk's `read_ahead_kb`.
pub fn disk_setting(name: &str) -> String {
    format!("/sys/block/{name}/queue/read_ahead_kb")
}

/// Returns the path of the `read_ahead_kb` of a mount with this device number.
pub fn mount_setting(number: &str) -> String {
    format!("/sys/class/bdi/{number}/read_ahead_kb")
}

pub fn read_setting(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("'{}' is not a number", text.trim())))
}

/// Checks that a setting may be written, by opening it for writing. Returns an error if the caller has no permission, or if the
/// kernel refuses.
pub fn writable_setting(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).open(path)
}

/// Writes a value to a setting. Returns an error if the caller has no permission, or if the kernel refuses the value.
pub fn write_setting(path: &Path, value: u64) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).truncate(true).open(path)?;
    file.write_all(value.to_string().as_bytes())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockNode {
    pub number: DeviceNumber,
    /// Its path below `/dev`.
    pub path: PathBuf,
    pub size: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    /// Its name, such as `loop7`.
    pub name: String,
    pub file: Option<String>,
}

impl Host {
    /// Returns the device that holds the file system of `path`, or `path` itself if it is a device.
    pub fn device_of(&self, path: &Path) -> io::Result<Device> {
        Ok(self.device(DeviceNumber::below(&stat(path)?)))
    }

    /// Returns the device that holds the file system of `file`, or `file` itself if it is a device.
    pub fn device_of_file(&self, file: impl AsFd) -> io::Result<Device> {
        Ok(self.device(DeviceNumber::below(&fstat(file)?)))
    }

    /// Returns the kernel's sequence number of a disk (since 5.15). No two disks get the same number until the machine restarts, and a loop
    /// device gets a new number with each file. Returns `None` if the kernel reports no number.
    pub fn disk_sequence(&self, name: &str) -> Option<u64> {
        number(&self.sys.join("block").join(name).join("diskseq"))
    }

    /// Returns the device with this number or, if it is a partition, the disk that contains it.
    pub fn device(&self, of: DeviceNumber) -> Device {
        let link = self.sys.join("dev/block").join(of.to_string());
        let folder = fs::canonicalize(link).ok();
        // A partition has no queue.
        let disk = folder.map(|folder| match folder.parent() {
            Some(up) if folder.join("partition").exists() => up.to_path_buf(),
            _ => folder,
        });
        let queue = |name: &str| number(&disk.as_ref()?.join("queue").join(name));
        let bdi = self.sys.join("class/bdi").join(of.to_string());
        // Saturates, because the value may be hostile.
        let kib = |n: u64| n.saturating_mul(1024);
        let read_ahead = queue("read_ahead_kb").or_else(|| number(&bdi.join("read_ahead_kb")));
        Device {
            number: disk
                .as_ref()
                .and_then(|disk| DeviceNumber::parse(&text(&disk.join("dev"))?))
                .unwrap_or(of),
            name: disk.as_deref().and_then(last),
            read_ahead: read_ahead.map(kib),
            max_request: queue("max_sectors_kb").map(kib),
            rotates: queue("rotational").map(|flag| flag == 1),
        }
    }

    pub fn block_nodes(&self) -> Vec<BlockNode> {
        let node = |folder: PathBuf| {
            let uevent = text(&folder.join("uevent"))?;
            let name = uevent
                .lines()
                .find_map(|line| line.strip_prefix("DEVNAME="))?;
            Some(BlockNode {
                number: DeviceNumber::parse(&last(&folder)?)?,
                path: Path::new("/dev").join(name),
                size: number(&folder.join("size"))?.saturating_mul(SECTOR_BYTES),
            })
        };
        entries(&self.sys.join("dev/block"))
            .filter_map(node)
            .collect()
    }

    pub fn loop_devices(&self) -> Vec<LoopDevice> {
        let device = |folder: PathBuf| {
            let name = last(&folder)?;
            name.starts_with("loop").then(|| LoopDevice {
                name,
                file: text(&folder.join("loop/backing_file")),
            })
        };
        entries(&self.sys.join("block"))
            .filter_map(device)
            .collect()
    }

    /// Opens the counters of a disk (`Documentation/block/stat.rst` of the kernel).
    pub fn open_disk_counters(&self, name: &str) -> io::Result<fs::File> {
        fs::File::open(self.sys.join("block").join(name).join("stat"))
    }
}

pub(super) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

const MAX_ATTRIBUTE_BYTES: u64 = 64 << 10;

impl Host {
    /// Returns the value of an attribute of a disk, without trailing blanks.
    pub fn disk_attribute(&self, disk: &str, name: &str) -> Option<String> {
        let path = self.sys.join("block").join(disk).join(name);
        let bytes = read_small(&path, MAX_ATTRIBUTE_BYTES).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_string())
    }

    pub fn partitions(&self, disk: &str) -> Vec<String> {
        let folders = entries(&self.sys.join("block").join(disk));
        let partitions = folders.filter(|folder| folder.join("partition").exists());
        partitions.filter_map(|folder| last(&folder)).collect()
    }
}

pub(super) fn last(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join("sys").join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// A machine with the disk 8:0 and its partition 8:1.
    fn machine() -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let host = Host::below(root.path());
        write(root.path(), "block/sda/queue/read_ahead_kb", "128\n");
        write(root.path(), "block/sda/queue/max_sectors_kb", "1280\n");
        write(root.path(), "block/sda/queue/rotational", "1\n");
        write(root.path(), "block/sda/dev", "8:0\n");
        write(root.path(), "block/sda/sda1/partition", "1\n");
        write(root.path(), "block/sda/sda1/dev", "8:1\n");
        let links = root.path().join("sys/dev/block");
        fs::create_dir_all(&links).expect("made");
        for (link, to) in [("8:0", "../../block/sda"), ("8:1", "../../block/sda/sda1")] {
            std::os::unix::fs::symlink(to, links.join(link)).expect("linked");
        }
        (root, host)
    }

    fn at(text: &str) -> DeviceNumber {
        DeviceNumber::parse(text).expect("a number")
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let (_root, host) = machine();
        let device = host.device(at("8:1"));
        assert_eq!(
            (device.read_ahead, device.max_request, device.rotates),
            (Some(128 << 10), Some(1280 << 10), Some(true))
        );
        assert_eq!(device.setting(), "/sys/block/sda/queue/read_ahead_kb");
        assert_eq!(
            (&device, device.number),
            (&host.device(at("8:0")), at("8:0"))
        );
        assert_eq!(host.device(at("9:9")).read_ahead, None);
        assert_eq!(device.name.as_deref(), Some("sda"));
    }

    #[test]
    fn without_a_block_device_the_bdi_is_used() {
        let (root, host) = machine();
        write(root.path(), "class/bdi/0:44/read_ahead_kb", "15360\n");
        write(root.path(), "class/bdi/0:45/read_ahead_kb", "many\n");
        let most = u64::MAX.to_string();
        write(root.path(), "class/bdi/0:46/read_ahead_kb", &most);
        let device = host.device(at("0:44"));
        assert_eq!((&device.name, device.read_ahead), (&None, Some(15 << 20)));
        assert_eq!(device.setting(), "/sys/class/bdi/0:44/read_ahead_kb");
        assert_eq!(host.device(at("0:45")).read_ahead, None);
        assert_eq!(host.device(at("0:46")).read_ahead, Some(u64::MAX));
        assert!(host.device_of(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn nodes_and_loop_devices_are_listed() {
        let (root, host) = machine();
        let uevent = "MAJOR=8\nMINOR=0\nDEVNAME=sda\n";
        write(root.path(), "block/sda/uevent", uevent);
        write(root.path(), "block/sda/size", "16\n");
        let node = BlockNode {
            number: at("8:0"),
            path: "/dev/sda".into(),
            size: 8192,
        };
        assert_eq!(host.block_nodes(), [node]);
        let file = "block/loop3/loop/backing_file";
        write(root.path(), file, "/tmp/a (deleted)\n");
        let device = LoopDevice {
            name: "loop3".into(),
            file: Some("/tmp/a (deleted)".into()),
        };
        assert_eq!(host.loop_devices(), [device]);
    }
}
