//! The number of a block device, as the kernel writes it: `8:1` is the first partition of the first SCSI disk.

use std::fmt;

/// Major and minor number of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Of the driver.
    pub major: u32,
    /// Of the device among those of the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Of a `dev_t`, as `stat` returns it.
    #[must_use]
    pub fn of(dev: u64) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(dev),
            minor: rustix::fs::minor(dev),
        }
    }

    /// Reads `MAJOR:MINOR`.
    #[must_use]
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// Those of the mounted file systems, by the text of `/proc/self/mountinfo` (`31 24 254:0 / / rw - ext4 /dev/vda rw`).
    pub fn mounted(mounts: &str) -> impl Iterator<Item = DeviceNumber> {
        mounts
            .lines()
            .filter_map(|line| DeviceNumber::parse(line.split(' ').nth(2)?))
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
        let mounts =
            "31 24 254:0 / / rw - ext4 /dev/vda rw\n\n40 24 0:45 / /mnt rw - nfs a:/b rw\n";
        let mounted: Vec<String> = DeviceNumber::mounted(mounts)
            .map(|number| number.to_string())
            .collect();
        assert_eq!(mounted, ["254:0", "0:45"]);
        assert_eq!(
            (DeviceNumber::parse("259"), DeviceNumber::parse("a:1")),
            (None, None)
        );
    }
}
