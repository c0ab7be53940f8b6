//! The number of a block device in the kernel's notation: `8:1` is the first partition of the first SCSI disk.

use rustix::fs::{FileType, Stat};
use std::fmt;

/// Major and minor number of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    pub major: u32,
    /// Of the device among those of the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Of a `dev_t`, as `stat` returns it.
    pub fn of(dev: u64) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(dev),
            minor: rustix::fs::minor(dev),
        }
    }

    /// The number of a block device node, or of the device of a file's file system.
    pub(super) fn below(stat: &Stat) -> DeviceNumber {
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        DeviceNumber::of(if is_device { stat.st_rdev } else { stat.st_dev })
    }

    /// Reads `MAJOR:MINOR`.
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_and_written() {
        let number = DeviceNumber::of(rustix::fs::makedev(259, 300_000));
        assert_eq!(
            (number.major, number.minor, number.to_string().as_str()),
            (259, 300_000, "259:300000")
        );
        assert_eq!(DeviceNumber::parse("259:300000"), Some(number));
        assert_eq!(
            (DeviceNumber::parse("259"), DeviceNumber::parse("a:1")),
            (None, None)
        );
    }
}
