//! Determines the kind of a device, and whether a virtual disk wrongly claims to be rotational.
//!
//! ```text
//!   vda   rotational 1, driver virtio_blk     a virtual disk: `rotational` is only its host's default
//!   dm-0  made of sda2 and sdb2               virtual if all devices below it are
//! ```

use foreread_os::host::Host;
use foreread_os::host::backing::BackingDevice;

/// The kind of a device; it decides which rule of the kernel applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageKind {
    Disk,
    Loop,
    /// Made by the device mapper: LVM, LUKS, multipath.
    Mapped,
    Md,
    Zvol,
    /// Memory: zram, brd.
    Memory,
    Btrfs,
    Nfs,
    Fuse,
    Ceph,
    Cifs,
    NineP,
    Afs,
    Other,
}

impl StorageKind {
    pub fn is_network(self) -> bool {
        matches!(
            self,
            StorageKind::Nfs
                | StorageKind::Ceph
                | StorageKind::Cifs
                | StorageKind::NineP
                | StorageKind::Afs
        )
    }
}

/// A device, with the properties that are derived from the known facts about it.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    pub device: BackingDevice,
    pub kind: StorageKind,
    /// Why it counts as virtual, if it does.
    pub is_virtual: Option<&'static str>,
    /// Devices that LVM, MD or multipath have built on it. Reads of files go through those.
    pub used_by: Vec<String>,
}

/// Words in the vendor and model names of disks that a hypervisor or a cloud provides.
const VIRTUAL_MODELS: [(&str, &str); 12] = [
    ("QEMU", "a virtual disk of QEMU"),
    ("VBOX", "a virtual disk of VirtualBox"),
    ("VMware", "a virtual disk of VMware"),
    ("Msft", "a virtual disk of Hyper-V or Azure"),
    ("MSFT NVMe", "a virtual disk of Azure"),
    ("Microsoft NVMe", "a virtual disk of Azure"),
    ("Google", "a virtual disk of Google Cloud"),
    ("nvme_card", "a virtual disk of Google Cloud"),
    ("Amazon Elastic", "a virtual disk of EC2"),
    ("BlockVolume", "a virtual disk of Oracle Cloud"),
    ("Virtual", "a virtual disk"),
    ("VIRTUAL", "a virtual disk"),
];

pub fn look(host: &Host) -> Vec<DeviceFacts> {
    let devices = host.backing_devices();
    let mut facts: Vec<DeviceFacts> = devices
        .into_iter()
        .map(|device| DeviceFacts {
            kind: kind(&device),
            is_virtual: virtual_by_itself(&device),
            used_by: Vec::new(),
            device,
        })
        .collect();
    let made: Vec<(String, Vec<String>)> = facts
        .iter()
        .map(|facts| (facts.device.name.clone(), facts.device.below.clone()))
        .collect();
    for facts in &mut facts {
        let above = made
            .iter()
            .filter(|(_, below)| below.contains(&facts.device.name));
        facts.used_by = above.map(|(name, _)| name.clone()).collect();
    }
    // A device built on virtual devices is virtual. LVM on LUKS on MD has three levels.
    for _ in 0..4 {
        let virtual_names: Vec<String> = facts
            .iter()
            .filter(|facts| facts.is_virtual.is_some())
            .map(|facts| facts.device.name.clone())
            .collect();
        for facts in &mut facts {
            let below = &facts.device.below;
            if !below.is_empty() && below.iter().all(|name| virtual_names.contains(name)) {
                facts.is_virtual.get_or_insert("built on virtual disks");
            }
        }
    }
    facts
}

fn kind(device: &BackingDevice) -> StorageKind {
    if !device.is_disk {
        let of_name = device.name.split('-').next().unwrap_or_default();
        let word = device.mounts.first().map_or(of_name, |mount| &mount.kind);
        return match word {
            "btrfs" => StorageKind::Btrfs,
            "ceph" => StorageKind::Ceph,
            "cifs" | "smb3" => StorageKind::Cifs,
            "9p" => StorageKind::NineP,
            "afs" => StorageKind::Afs,
            _ if word.starts_with("nfs") => StorageKind::Nfs,
            _ if word.starts_with("fuse") || device.name.ends_with("-fuseblk") => StorageKind::Fuse,
            _ => StorageKind::Other,
        };
    }
    let begins = |word: &str| {
        let rest = device.name.strip_prefix(word);
        rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    match () {
        () if begins("loop") => StorageKind::Loop,
        () if device.mapped_name.is_some() || begins("dm-") => StorageKind::Mapped,
        () if device.raid_level.is_some() || begins("md") => StorageKind::Md,
        () if begins("zd") => StorageKind::Zvol,
        () if begins("zram") || begins("ram") => StorageKind::Memory,
        () => StorageKind::Disk,
    }
}

fn virtual_by_itself(device: &BackingDevice) -> Option<&'static str> {
    let model = device.model.as_deref().unwrap_or_default();
    let by_model = VIRTUAL_MODELS.iter().find(|(word, _)| model.contains(word));
    let name = device.name.as_str();
    match device.driver.as_deref() {
        _ if !device.is_disk => None,
        _ if name.starts_with("loop") => Some("a loop device"),
        _ if name.starts_with("nbd") => Some("an NBD disk"),
        _ if name.starts_with("rbd") => Some("a Ceph RBD disk"),
        Some("virtio_blk") => Some("a virtio disk"),
        Some("vbd") => Some("a virtual disk of Xen"),
        _ => by_model.map(|(_, what)| *what),
    }
}

impl DeviceFacts {
    /// Returns whether anything can be read from the device: a loop device without a file and a card reader without a card have no
    /// bytes.
    pub fn has_bytes(&self) -> bool {
        !self.device.is_disk || self.device.size.is_some_and(|size| size > 0)
    }

    /// Returns whether the device's own readahead setting has no effect on files, because files are only on devices that are built on it
    /// (such as LVM volumes).
    pub fn is_hidden(&self) -> bool {
        !self.used_by.is_empty() && self.device.mounts.is_empty() && !self.device.is_swap
    }

    pub fn claims_to_rotate(&self) -> bool {
        self.device.rotates == Some(true) && self.is_virtual.is_some()
    }
}
