//! The block device below a file, and what the kernel reads of it at once.
//!
//! ```text
//!   stat: 254:1 ──► /sys/dev/block/254:1 is a partition ──► ../queue: read_ahead_kb 8192, max_sectors_kb 4096 ──► 8 MiB
//!   stat: 0:52  ──► no block device (NFS, FUSE, btrfs)  ──► /sys/class/bdi/0:52/read_ahead_kb                 ──► 128 KiB
//! ```
//! Never: writes to a setting.

use rustix::fs::{fstat, major, minor};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What is read at once where no setting can be found: Linux' default of `read_ahead_kb`.
pub const DEFAULT_PIECE_BYTES: u64 = 128 << 10;

/// The device below a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Major and minor number; major 0 is no block device.
    pub number: (u32, u32),
    /// The folder of its queue in sysfs, where it is a block device.
    pub queue: Option<PathBuf>,
    /// `read_ahead_kb`, in bytes.
    pub read_ahead: Option<u64>,
    /// `max_sectors_kb`, in bytes: the largest request.
    pub max_request: Option<u64>,
    /// Whether it is a disk that turns.
    pub rotates: Option<bool>,
}

impl Device {
    /// The device whose file system has `file`, or the block device that `file` is.
    ///
    /// # Errors
    /// The file cannot be asked.
    pub fn of(file: impl AsFd) -> io::Result<Device> {
        let stat = fstat(file)?;
        let is_block =
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice;
        let number = if is_block { stat.st_rdev } else { stat.st_dev };
        Ok(Device::by_number(
            Path::new("/sys"),
            (major(number), minor(number)),
        ))
    }

    /// The device of this number, as the sysfs below `sys` has it.
    #[must_use]
    pub fn by_number(sys: &Path, number: (u32, u32)) -> Device {
        let name = format!("{}:{}", number.0, number.1);
        let block = sys.join("dev/block").join(&name);
        // A partition has no queue; its disk is the folder above.
        let queue = [block.join("queue"), block.join("../queue")]
            .into_iter()
            .find(|queue| queue.is_dir());
        let setting = |name: &str| number_in(&queue.as_ref()?.join(name));
        let of_bdi = || number_in(&sys.join("class/bdi").join(&name).join("read_ahead_kb"));
        Device {
            number,
            read_ahead: setting("read_ahead_kb").or_else(of_bdi).map(kib),
            max_request: setting("max_sectors_kb").map(kib),
            rotates: setting("rotational").map(|flag| flag == 1),
            queue,
        }
    }

    /// The most bytes that one call of readahead(2) reads.
    #[must_use]
    pub fn piece_bytes(&self) -> u64 {
        let page = crate::page_bytes();
        let piece = self
            .read_ahead
            .unwrap_or(0)
            .max(self.max_request.unwrap_or(0));
        // A setting of 0 leaves what the file system asks for at once, which no file says.
        if piece < page {
            DEFAULT_PIECE_BYTES
        } else {
            piece / page * page
        }
    }
}

/// The most bytes that one call of readahead(2) reads of `file`.
#[must_use]
pub fn piece_bytes(file: impl AsFd) -> u64 {
    Device::of(file).map_or(DEFAULT_PIECE_BYTES, |device| device.piece_bytes())
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A hostile or mad setting does not overflow.
fn kib(n: u64) -> u64 {
    n.saturating_mul(1024)
}
