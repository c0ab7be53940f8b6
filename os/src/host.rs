//! Facts of the host, from `/proc` and `/sys`. No other module opens these folders, but for what processes and tracefs have there.
//!
//! ```text
//!   backing        all that reads ahead: disks, and mounts without one; what each says about itself
//!   devices        the device below a file: read_ahead_kb, max_sectors_kb, rotational; disks, partitions, loop devices
//!   device_number  8:1, as stat(2), mountinfo and sysfs have it
//!   maps           mappings of files of a process
//!   mounts         what is mounted where, by mountinfo
//!   memory         memory of the machine, limits of control groups, what may still be cached
//!   pressure       whether memory is short: faults, refaults, stalls
//!   programs       programs that have files of a device open
//!   settings       files in /etc, /run and /usr that set readahead; what udev knows about a device
//!   sys_device     a device's attributes and the devices above it, as rules of udev see them
//! ```
//! A test makes a [`Host`] with a `proc` and a `sys` in a folder for temporary files.
//!
//! Never: fails. What the kernel does not say is absent.

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

/// Where the kernel shows its facts.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    proc: PathBuf,
    sys: PathBuf,
}

impl Host {
    /// This one.
    #[must_use]
    pub fn here() -> Host {
        Host::below(Path::new("/"))
    }

    /// One with its `proc` and `sys` in this folder.
    #[must_use]
    pub fn below(root: &Path) -> Host {
        Host {
            root: root.to_path_buf(),
            proc: root.join("proc"),
            sys: root.join("sys"),
        }
    }

    /// A path of this host: `/etc` is `ROOT/etc`.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether there is a sysfs.
    #[must_use]
    pub fn has_sysfs(&self) -> bool {
        self.sys.join("class").is_dir() || self.sys.join("block").is_dir()
    }

    /// The release of the kernel, such as `6.18.5`.
    #[must_use]
    pub fn kernel_release(&self) -> Option<String> {
        text(&self.proc.join("sys/kernel/osrelease"))
    }

    /// What the firmware says of the machine's maker and of its cloud, a line for each fact; empty where it says nothing.
    #[must_use]
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
