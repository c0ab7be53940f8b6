//! Block devices, by their names in page cache events.
//!
//! File systems read their own data (inodes, folders) through the page cache of the block device. Its pages belong to a file system of the
//! kernel's own that is never mounted; the number of the inode is that of the device:
//!
//! ```text
//!   add_to_page_cache dev 0:3 ino 0x700000     0:3 is not mounted, there is a device 7:0    ──► /dev/loop0
//!   add_to_page_cache dev 0:45 ino 0x700000    0:45 is a mount (NFS)                       ──► a file
//! ```

use super::names::FoundName;
use foreread_os::host::{DeviceNumber, Host};
use foreread_trace::follow::event::FileKey;
use std::collections::{HashMap, HashSet};

/// Those of the machine, when it was looked at.
#[derive(Debug, Default)]
pub(super) struct BlockDevices {
    /// By the number that their inodes have.
    known: HashMap<u64, FoundName>,
    /// Numbers of the file systems that are mounted.
    mounted: HashSet<u32>,
}

impl BlockDevices {
    pub(super) fn of_machine() -> BlockDevices {
        BlockDevices::of(&Host::here())
    }

    fn of(host: &Host) -> BlockDevices {
        let mounts = host.mounts().into_iter();
        let known = host.block_nodes().into_iter().map(|node| {
            let inode = u64::from(kernel_number(node.number));
            let (path, size) = (node.path, node.size);
            (inode, FoundName { path, size })
        });
        BlockDevices {
            known: known.collect(),
            mounted: mounts.map(|mount| kernel_number(mount.number)).collect(),
        }
    }

    /// Whether this is a block device.
    pub(super) fn has(&self, place: FileKey) -> bool {
        self.get(place).is_some()
    }

    /// Where it is, and how large.
    pub(super) fn get(&self, place: FileKey) -> Option<&FoundName> {
        let (major, _) = place.device();
        self.known
            .get(&place.ino)
            .filter(|_| major == 0 && !self.mounted.contains(&place.dev))
    }
}

/// The same in one number, as the kernel's events have it.
fn kernel_number(number: DeviceNumber) -> u32 {
    FileKey::new(number.major, number.minor, 0).dev
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_block_device_is_an_inode_of_what_is_not_mounted() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(path, text).expect("room");
        };
        write(
            "sys/dev/block/7:0/uevent",
            "MAJOR=7\nMINOR=0\nDEVNAME=loop0\n",
        );
        write("sys/dev/block/7:0/size", "16\n");
        write(
            "proc/self/mountinfo",
            "31 24 254:0 / / rw - ext4 /dev/vda rw\n40 24 0:45 / /mnt rw - nfs a:/b rw\n",
        );
        let blocks = BlockDevices::of(&Host::below(root.path()));
        let key = |major, minor, ino| FileKey::new(major, minor, ino);
        let found = blocks.get(key(0, 3, 7 << 20)).expect("it is there");
        assert_eq!(
            (found.path.as_path(), found.size),
            (Path::new("/dev/loop0"), 8192)
        );
        for (other, why) in [
            (key(0, 45, 7 << 20), "a file of a mount"),
            (key(254, 0, 7 << 20), "a file of a disk"),
            (key(0, 3, 8 << 20), "no such device"),
        ] {
            assert!(!blocks.has(other), "{why}");
        }
    }
}
