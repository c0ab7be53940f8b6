//! The disk that is watched: its number, its partitions, and the file of its `read_ahead_kb`.

use foreread_os::failure::Failure;
use foreread_os::host::{DeviceNumber, Host};
use rustix::fs::{FileType, stat};
use std::path::{Path, PathBuf};

/// A whole disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedDisk {
    /// Its name below `/sys/block`.
    pub name: String,
    /// Its node, as it was named.
    pub path: PathBuf,
    /// Its number and those of its partitions: files have the number of what their file system is on.
    pub devices: Vec<DeviceNumber>,
    /// Its `read_ahead_kb`.
    pub setting: PathBuf,
}

impl WatchedDisk {
    /// Finds it by its node.
    ///
    /// # Errors
    /// There is no such device, it is no block device, or a partition, or it has no `read_ahead_kb`.
    pub fn find(path: &Path) -> Result<WatchedDisk, Failure> {
        let node = Path::new("/dev").join(path);
        // A bare name is a disk's before it is a file's of this folder.
        let is_bare = path.components().count() == 1 && node.exists();
        let path = if is_bare { &node } else { path };
        let named = path.display();
        let missing = |error: std::io::Error| {
            Failure::input("no such device", &named, "'lsblk' lists the disks").caused_by(error)
        };
        let stat = stat(path).map_err(|error| missing(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            let remedy = "'findmnt -no SOURCE -T PATH' names the device of a file or folder";
            return Err(Failure::input("not a block device", &named, remedy));
        }
        let number = DeviceNumber::of(stat.st_rdev);
        let block = Host::here().block_device(number).map_err(missing)?;
        if block.is_partition() {
            let place = format!("{named} has no read_ahead_kb of its disk");
            let remedy = format!("name the disk, /dev/{}", block.disk().name());
            return Err(Failure::input("a partition", place, remedy));
        }
        let setting = block.setting();
        if !setting.exists() {
            let remedy = "name the disk that the file system is on";
            return Err(Failure::input(
                "the device has no readahead setting",
                setting.display(),
                remedy,
            ));
        }
        let devices = [vec![number], block.partitions()].concat();
        Ok(WatchedDisk {
            name: block.name(),
            path: path.to_path_buf(),
            devices,
            setting,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disk_is_refused_by_what_it_is() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let text = |path: &Path| WatchedDisk::find(path).expect_err("no disk").to_string();
        assert!(text(&dir.path().join("gone")).starts_with("no such device: "));
        assert!(text(dir.path()).starts_with("not a block device: "));
        assert!(text(Path::new("/dev/null")).starts_with("not a block device: /dev/null; "));
    }
}
