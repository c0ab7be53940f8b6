//! The disk that is watched: its number, its partitions, and the file of its `read_ahead_kb`.

use super::WatchError;
use foreread_os::device_number::DeviceNumber;
use rustix::fs::{FileType, stat};
use std::fs;
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
        let folder = fs::canonicalize(format!("/sys/dev/block/{number}"));
        let folder = folder.map_err(|error| WatchError::NoDevice(named(), error))?;
        if folder.join("partition").exists() {
            let disk = folder
                .parent()
                .and_then(Path::file_name)
                .unwrap_or_default()
                .to_string_lossy();
            return Err(WatchError::Partition(named(), format!("/dev/{disk}")));
        }
        let setting = folder.join("queue/read_ahead_kb");
        if !setting.exists() {
            return Err(WatchError::NoSetting(setting));
        }
        let partitions = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let partitions = partitions.filter(|path| path.join("partition").exists());
        let of =
            |path: PathBuf| DeviceNumber::parse(fs::read_to_string(path.join("dev")).ok()?.trim());
        let devices = [number]
            .into_iter()
            .chain(partitions.filter_map(of))
            .collect();
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(WatchedDisk {
            name,
            path: path.to_path_buf(),
            devices,
            setting,
        })
    }
}

/// The value in KiB.
pub(super) fn read(setting: &Path) -> std::io::Result<u64> {
    let text = fs::read_to_string(setting)?;
    text.trim()
        .parse()
        .map_err(|_| std::io::Error::other(format!("'{}' is no number", text.trim())))
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
