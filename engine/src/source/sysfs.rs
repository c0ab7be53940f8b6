//! What the kernel itself would read ahead on a device: the setting that `linux-*` policies start from.
//!
//! Never: writes a setting, or fails. What cannot be found is `None`.

use rustix::fs::{FileType, major, minor, stat};
use std::path::Path;

/// The readahead setting of the block device that is, or holds, `path`; of the mounted file system where it is on
/// no single device (btrfs, NFS).
#[must_use]
pub fn default_readahead_bytes(path: &Path) -> Option<u64> {
    let stat = stat(path).ok()?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let device = if is_device { stat.st_rdev } else { stat.st_dev };
    setting(
        Path::new("/sys"),
        &format!("{}:{}", major(device), minor(device)),
    )
}

/// Looks for the device's own queue, its disk's (a partition has none), and the mount's.
fn setting(sys: &Path, number: &str) -> Option<u64> {
    let places = [
        sys.join("dev/block")
            .join(number)
            .join("queue/read_ahead_kb"),
        sys.join("dev/block")
            .join(number)
            .join("../queue/read_ahead_kb"),
        sys.join("class/bdi").join(number).join("read_ahead_kb"),
    ];
    let text = places
        .iter()
        .find_map(|p| std::fs::read_to_string(p).ok())?;
    text.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn disk_partition_and_mount() {
        let sys = tempfile::tempdir().expect("a directory");
        let make = |dir: &str, text: &str| {
            let dir = sys.path().join(dir);
            create_dir_all(&dir).expect("a directory");
            write(dir.join("read_ahead_kb"), text).expect("a file");
        };
        make("block/sda/queue", "128\n");
        create_dir_all(sys.path().join("block/sda/sda1")).expect("a directory");
        create_dir_all(sys.path().join("dev/block")).expect("a directory");
        for (link, to) in [("8:0", "../../block/sda"), ("8:1", "../../block/sda/sda1")] {
            std::os::unix::fs::symlink(to, sys.path().join("dev/block").join(link))
                .expect("a link");
        }
        make("class/bdi/0:44", "15360\n");
        make("class/bdi/0:45", "many\n");
        assert_eq!(setting(sys.path(), "8:0"), Some(128 << 10));
        assert_eq!(setting(sys.path(), "8:1"), Some(128 << 10));
        assert_eq!(setting(sys.path(), "0:44"), Some(15 << 20));
        assert_eq!(setting(sys.path(), "0:45"), None);
        assert_eq!(setting(sys.path(), "9:9"), None);
        assert_eq!(default_readahead_bytes(Path::new("/no/such/file")), None);
    }
}
