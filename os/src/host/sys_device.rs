//! A device as udev rules see it: its attributes and its parents.
//!
//! ```text
//!   sys/block/sda ──► sys/devices/pci0000:00/.../0:0:0:0/block/sda     queue/rotational, size, ...
//!                     above it: 0:0:0:0 (scsi, driver sd: vendor, model), target0:0:0, host0, ...
//! ```

use super::devices::entries;
use super::{DeviceNumber, Host};
use crate::open::read_small;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_ATTRIBUTE_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug)]
pub struct SysDevice {
    folder: PathBuf,
    sys: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Partition {
    pub name: String,
    pub number: Option<DeviceNumber>,
}

impl Host {
    /// Returns the device with this folder below `/sys`, such as `block/sda`.
    pub fn sys_device(&self, folder: &str) -> Option<SysDevice> {
        let sys = fs::canonicalize(&self.sys).ok()?;
        let folder = fs::canonicalize(sys.join(folder)).ok()?;
        Some(SysDevice { folder, sys })
    }

    pub fn partitions(&self, disk: &str) -> Vec<Partition> {
        let partition = |folder: PathBuf| {
            let name = folder.file_name()?.to_str()?.to_string();
            let number = DeviceNumber::parse(super::text(&folder.join("dev")).as_deref()?);
            folder
                .join("partition")
                .exists()
                .then_some(Partition { name, number })
        };
        entries(&self.sys.join("block").join(disk))
            .filter_map(partition)
            .collect()
    }
}

impl SysDevice {
    /// Returns the kernel's name of the device.
    pub fn name(&self) -> String {
        last(&self.folder)
    }

    /// Returns the path of the device below `/sys`, with a leading slash.
    pub fn path(&self) -> String {
        let inner = self
            .folder
            .strip_prefix(&self.sys)
            .unwrap_or(Path::new("unknown"));
        format!("/{}", inner.display())
    }

    /// Returns the last component of the target of a symbolic link, such as `subsystem` or `driver`.
    pub fn link(&self, name: &str) -> Option<String> {
        Some(last(&fs::read_link(self.folder.join(name)).ok()?))
    }

    /// Returns the value of an attribute, without trailing blanks.
    pub fn attribute(&self, name: &str) -> Option<String> {
        if let Some(target) = self.link(name) {
            return Some(target);
        }
        let bytes = read_small(&self.folder.join(name), MAX_ATTRIBUTE_BYTES).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_string())
    }

    /// Returns true if the device has a file or folder with this name.
    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Returns the parent devices, the nearest first.
    pub fn parents(&self) -> Vec<SysDevice> {
        let device = fs::canonicalize(self.folder.join("device")).ok();
        let own = self.folder.as_path();
        let of_device = device.iter().flat_map(|folder| folder.ancestors().take(1));
        let above = match &device {
            Some(folder) if !folder.starts_with(own) => folder.ancestors().skip(1),
            _ => own.ancestors().skip(1),
        };
        let above = above
            .take_while(|folder| folder.starts_with(&self.sys) && *folder != self.sys)
            .filter(|folder| folder.join("uevent").exists());
        let folders = of_device.chain(above).map(Path::to_path_buf);
        let sys = &self.sys;
        folders
            .map(|folder| SysDevice {
                folder,
                sys: sys.clone(),
            })
            .collect()
    }
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
