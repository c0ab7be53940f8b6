//! The line that sets the readahead of a device.

use foreread_os::host::devices::{Device, mount_setting};
use foreread_report::number::exact_size as size;
use serde::{Deserialize, Serialize};

/// Something to set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Where: `the kernel`, `Ceph RBD through librbd`, `FUSE`, `NFS`, `foreread`.
    pub place: String,
    /// The lines to paste; ends without a newline.
    pub text: String,
    /// Why, and what it needs; one sentence.
    pub why: String,
}

impl Setting {
    /// On a page: where, the lines, and why.
    #[must_use]
    pub fn copy(&self) -> [String; 3] {
        [self.place.clone(), self.text.clone(), self.why.clone()]
    }
}

/// The line for a device, and what is to be known of it. A disk is set by `doctor`, now and at every boot; a mount by its number.
#[must_use]
pub fn to_set(device: Option<&Device>, bytes: u64) -> Setting {
    let kib = bytes / 1024;
    let is_mount = device.is_some_and(|device| device.name.is_none());
    let (text, why) = match device {
        Some(mount) if is_mount => (
            format!("echo {kib} > {}", mount_setting(&mount.number.to_string())),
            "Run as root. Lasts until it is unmounted; files already open keep the old value.",
        ),
        _ => {
            let name = device.and_then(|device| device.name.as_deref());
            let name = name.unwrap_or("DEVICE");
            (
                format!("foreread doctor --fix {name} --to {}", size(bytes)),
                "Run as root. Sets it now and at every boot, by a udev rule; --undo puts the old value back. Files already open keep it.",
            )
        }
    };
    Setting {
        place: "the kernel".to_string(),
        text,
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_os::host::DeviceNumber;

    #[test]
    fn a_disk_is_set_by_doctor_and_a_mount_by_its_number() {
        let disk = Device {
            name: Some("sdb".to_string()),
            ..Device::default()
        };
        let text = |device| to_set(device, 2 << 20).text;
        assert_eq!(text(Some(&disk)), "foreread doctor --fix sdb --to 2M");
        assert_eq!(text(None), "foreread doctor --fix DEVICE --to 2M");
        let mount = Device {
            number: DeviceNumber {
                major: 0,
                minor: 44,
            },
            ..Device::default()
        };
        assert_eq!(
            text(Some(&mount)),
            "echo 2048 > /sys/class/bdi/0:44/read_ahead_kb"
        );
    }
}
