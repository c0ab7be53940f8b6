//! Devices that have a readahead setting: disks, and mounts without a disk (such as NFS and FUSE).
//!
//! ```text
//!   sys/block/sda        8:0    queue: read_ahead_kb, rotational, ...; device: vendor, model, driver
//!   sys/class/bdi/0:44   0:44   read_ahead_kb; mountinfo: nfs4 at /mnt
//!   sys/class/bdi/btrfs-1       read_ahead_kb; the mount of that kind, if there is only one
//! ```
//! This module opens no device. A value that is not a number is treated as absent.

use super::devices::{entries, last};
use super::{DeviceNumber, Host, Mount, number, text};
use std::path::{Path, PathBuf};

const SECTOR_BYTES: u64 = 512;
/// The longest name of a vendor or a model.
const MAX_NAME_CHARS: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackingDevice {
    /// `sda`, or the name of the mount in `sys/class/bdi`.
    pub name: String,
    pub number: Option<DeviceNumber>,
    /// Whether it is a disk with a queue; if not, it is a mount.
    pub is_disk: bool,
    pub setting: PathBuf,
    /// `read_ahead_kb`, in bytes.
    pub read_ahead: Option<u64>,
    /// `optimal_io_size`, in bytes; 0 if the device reports none.
    pub optimal: Option<u64>,
    /// `max_sectors_kb`, in bytes: the largest request.
    pub max_request: Option<u64>,
    pub rotates: Option<bool>,
    pub size: Option<u64>,
    pub scheduler: Option<String>,
    /// Such as `sd`, `virtio_blk`, `nvme`.
    pub driver: Option<String>,
    /// Vendor and model, as reported by the device.
    pub model: Option<String>,
    /// The name of a mapped device (LVM, LUKS), and the level of an MD array.
    pub mapped_name: Option<String>,
    pub mapped_kind: Option<String>,
    pub raid_level: Option<String>,
    /// The file of a loop device.
    pub file: Option<String>,
    pub below: Vec<String>,
    pub partitions: Vec<DeviceNumber>,
    /// Mount points of the device or its partitions.
    pub mounts: Vec<Mount>,
    pub is_swap: bool,
}

impl Host {
    /// Returns all devices that have a readahead setting: first disks, by name, then mounts.
    pub fn backing_devices(&self) -> Vec<BackingDevice> {
        let (mounts, swaps) = (self.mounts_of_root(), self.swaps());
        let mut disks: Vec<BackingDevice> = entries(&self.sys.join("block"))
            .filter_map(|folder| disk(&folder))
            .collect();
        disks.sort_by_key(|device| natural(&device.name));
        for disk in &mut disks {
            let is_its = |mount: &&Mount| {
                Some(mount.number) == disk.number || disk.partitions.contains(&mount.number)
            };
            disk.mounts = mounts.iter().filter(is_its).cloned().collect();
            disk.is_swap = swaps.iter().any(|swap| is_part(&disk.name, swap));
        }
        let taken: Vec<String> = disks
            .iter()
            .filter_map(|disk| Some(disk.number?.to_string()))
            .collect();
        let mut others: Vec<BackingDevice> = entries(&self.sys.join("class/bdi"))
            .filter_map(|folder| mount(&folder, &mounts))
            .filter(|mount| !taken.contains(&mount.name))
            .collect();
        others.sort_by_key(|device| natural(&device.name));
        disks.extend(others);
        disks
    }

    fn swaps(&self) -> Vec<String> {
        let text = text(&self.proc.join("swaps")).unwrap_or_default();
        let names = text.lines().skip(1).filter_map(|line| {
            let path = line.split_whitespace().next()?;
            Some(path.strip_prefix("/dev/")?.to_string())
        });
        names.collect()
    }
}

/// Whether a node is the disk or a partition of it: `sda2` of `sda`, `nvme0n1p2` of `nvme0n1`.
fn is_part(disk: &str, node: &str) -> bool {
    node.strip_prefix(disk).is_some_and(|rest| {
        let rest = rest.strip_prefix('p').unwrap_or(rest);
        rest.chars().all(|letter| letter.is_ascii_digit())
    })
}

/// Sorts `loop10` after `loop9`.
fn natural(name: &str) -> (String, u64) {
    let digits = name.chars().rev().take_while(char::is_ascii_digit).count();
    let (word, digits) = name.split_at(name.len() - digits);
    (word.to_string(), digits.parse().unwrap_or(0))
}

fn disk(folder: &Path) -> Option<BackingDevice> {
    let queue = folder.join("queue");
    if !queue.is_dir() {
        return None;
    }
    let of_queue = |name: &str| number(&queue.join(name));
    let kib = |n: u64| n.saturating_mul(1024);
    let device = folder.join("device");
    let below = entries(&folder.join("slaves")).filter_map(|path| disk_of(&path));
    let parts = entries(folder).filter(|path| path.join("partition").exists());
    Some(BackingDevice {
        name: last(folder)?,
        number: text(&folder.join("dev")).and_then(|text| DeviceNumber::parse(&text)),
        is_disk: true,
        setting: queue.join("read_ahead_kb"),
        read_ahead: of_queue("read_ahead_kb").map(kib),
        optimal: of_queue("optimal_io_size"),
        max_request: of_queue("max_sectors_kb").map(kib),
        rotates: of_queue("rotational").map(|flag| flag == 1),
        size: number(&folder.join("size")).map(|n| n.saturating_mul(SECTOR_BYTES)),
        scheduler: text(&queue.join("scheduler")).and_then(|text| in_use(&text)),
        driver: driver(folder),
        model: model(&device),
        mapped_name: clean(&folder.join("dm/name")),
        mapped_kind: clean(&folder.join("dm/uuid"))
            .and_then(|uuid| Some(uuid.split('-').next()?.to_string())),
        raid_level: clean(&folder.join("md/level")),
        file: clean(&folder.join("loop/backing_file")),
        below: below.collect(),
        partitions: parts
            .filter_map(|part| DeviceNumber::parse(&text(&part.join("dev"))?))
            .collect(),
        ..BackingDevice::default()
    })
}

fn mount(folder: &Path, mounts: &[Mount]) -> Option<BackingDevice> {
    let name = last(folder)?;
    let of_disk = name
        .split_once('-')
        .and_then(|(number, _)| DeviceNumber::parse(number));
    let number = DeviceNumber::parse(&name).or(of_disk);
    let its: Vec<Mount> = match number {
        Some(number) => {
            let is_its = |mount: &&Mount| mount.number == number;
            mounts.iter().filter(is_its).cloned().collect()
        }
        // The kernel numbers the mounts of a kind, but does not report which number belongs to which mount.
        None => {
            let kind = name.rsplit_once('-').map_or(&*name, |(kind, _)| kind);
            let mut its = mounts.to_vec();
            its.retain(|mount| mount.kind == kind);
            let is_one = its.iter().all(|mount| mount.device == its[0].device);
            its.into_iter().filter(|_| is_one).collect()
        }
    };
    let setting = folder.join("read_ahead_kb");
    Some(BackingDevice {
        name,
        number,
        read_ahead: super::number(&setting).map(|kib| kib.saturating_mul(1024)),
        setting,
        mounts: its,
        ..BackingDevice::default()
    })
}

fn disk_of(path: &Path) -> Option<String> {
    if !path.join("partition").exists() {
        return last(path);
    }
    last(std::fs::canonicalize(path).ok()?.parent()?)
}

/// `[none]` of `[none] mq-deadline`.
fn in_use(text: &str) -> Option<String> {
    let (_, behind) = text.split_once('[')?;
    Some(behind.split_once(']')?.0.to_string())
}

/// The driver of the nearest parent device: for an NVMe disk this is its controller.
fn driver(folder: &Path) -> Option<String> {
    let device = folder.join("device");
    let places = ["driver", "device/driver", "device/device/driver"];
    let of_link = |place: &str| last(&std::fs::read_link(device.join(place)).ok()?);
    places.iter().find_map(|place| of_link(place))
}

fn model(device: &Path) -> Option<String> {
    let words = [clean(&device.join("vendor")), clean(&device.join("model"))];
    // virtio reports a number as its vendor.
    let words: Vec<String> = words
        .into_iter()
        .flatten()
        .filter(|word| !word.starts_with("0x"))
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// An attribute as clean text; a device may put anything into it.
fn clean(path: &Path) -> Option<String> {
    let text = text(path)?;
    let kept = text.chars().filter(|letter| !letter.is_control());
    let kept: String = kept.take(MAX_NAME_CHARS).collect();
    let kept = kept.trim();
    (!kept.is_empty()).then(|| kept.to_string())
}
