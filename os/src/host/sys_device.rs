//! The attributes of a device in sysfs, and its partitions.
//!
//! ```text
//!   sys/block/md0 ──► sys/devices/virtual/block/md0     md/uuid
//! ```

use super::Host;
use super::devices::entries;
use crate::open::read_small;
use std::path::{Path, PathBuf};

const MAX_ATTRIBUTE_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug)]
pub struct SysDevice {
    folder: PathBuf,
}

impl Host {
    /// Returns the device with this folder below `/sys`, such as `block/sda`.
    pub fn sys_device(&self, folder: &str) -> Option<SysDevice> {
        let folder = std::fs::canonicalize(self.sys.join(folder)).ok()?;
        Some(SysDevice { folder })
    }

    /// Returns the names of a disk's partitions.
    pub fn partitions(&self, disk: &str) -> Vec<String> {
        let folders = entries(&self.sys.join("block").join(disk));
        let partitions = folders.filter(|folder| folder.join("partition").exists());
        partitions.map(|folder| last(&folder)).collect()
    }
}

impl SysDevice {
    /// Returns the value of an attribute, without trailing blanks.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let bytes = read_small(&self.folder.join(name), MAX_ATTRIBUTE_BYTES).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_string())
    }
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
