//! The disk that is watched: its number, its partitions, and the file of its `read_ahead_kb`.

use super::WatchError;
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
    pub fn find(path: &Path) -> Result<WatchedDisk, WatchError> {
        let named = || path.display().to_string();
        let stat = stat(path).map_err(|error| WatchError::NoDevice(named(), error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(WatchError::NoBlockDevice(named()));
        }
        let number = DeviceNumber::of(stat.st_rdev);
        let block = Host::here().block_device(number);
        let block = block.map_err(|error| WatchError::NoDevice(named(), error))?;
        if block.is_partition() {
            let disk = block.disk().name();
            return Err(WatchError::Partition(named(), format!("/dev/{disk}")));
        }
        let setting = block.setting();
        if !setting.exists() {
            return Err(WatchError::NoSetting(setting));
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
