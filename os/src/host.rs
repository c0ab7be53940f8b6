//! Facts about the host from `/proc` and `/sys`. Other modules open these folders only for processes and tracefs.
//!
//! ```text
//!   backing        disks and mounts that read ahead, with their attributes
//!   devices        the device below a file: read_ahead_kb, max_sectors_kb, rotational; disks, partitions, loop devices
//!   device_number  8:1, as in stat(2), mountinfo and sysfs
//!   maps           mappings of files of a process
//!   mounts         the mounts of mountinfo
//!   memory         memory of the machine, limits of control groups, room for more cached data
//!   pressure       whether memory is short: faults, refaults, stalls
//!   programs       programs with open files on a device
//!   settings       files in /etc, /run and /usr that set readahead; what udev knows about a device
//!   sys_device     a device's attributes and parents, as in udev rules
//! ```
//! A test creates a [`Host`] with its own `proc` and `sys` in a temporary folder.
//!
//! Reading never fails: a value that the kernel does not report is absent.

pub mod backing;
mod device_number;
pub mod devices;
pub mod maps;
pub mod memory;
mod mounts;
pub mod pressure;
pub mod programs;
pub mod settings;
pub mod sys_device;
mod version;

pub use device_number::DeviceNumber;
pub use mounts::{FOREREAD_MOUNT, Mount, last_at};
pub use version::KernelVersion;

use std::path::{Path, PathBuf};

/// The root folder of a host's `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    proc: PathBuf,
    sys: PathBuf,
}

impl Host {
    pub fn here() -> Host {
        Host::below(Path::new("/"))
    }

    /// A host with its `proc` and `sys` in this folder.
    pub fn below(root: &Path) -> Host {
        Host {
            root: root.to_path_buf(),
            proc: root.join("proc"),
            sys: root.join("sys"),
        }
    }

    /// A path of this host: `/etc` is `ROOT/etc`.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn has_sysfs(&self) -> bool {
        self.sys.join("class").is_dir() || self.sys.join("block").is_dir()
    }

    /// The release of the kernel, such as `6.18.5`.
    pub fn kernel_release(&self) -> Option<String> {
        text(&self.proc.join("sys/kernel/osrelease"))
    }

    /// The firmware's strings for the machine's vendor and cloud, one line each; empty if there are none.
    pub fn maker(&self) -> String {
        let files = [
            "sys_vendor",
            "product_name",
            "bios_version",
            "chassis_asset_tag",
        ];
        let folder = self.sys.join("class/dmi/id");
        let facts = files.iter().filter_map(|file| text(&folder.join(file)));
        facts.collect::<Vec<String>>().join("\n")
    }
}

fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_string())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}
