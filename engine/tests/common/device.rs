//! A loop device for tests: a block device with a file behind it. Never: a test, or a device that was there before.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, given back when dropped.
pub struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    /// Nothing, with a line that says so, where this user gets none.
    pub fn over(file: &Path) -> Option<LoopDevice> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match made {
            Ok(made) if made.status.success() => {
                let path = String::from_utf8(made.stdout).expect("a path");
                Some(LoopDevice {
                    path: path.trim().into(),
                })
            }
            _ => {
                println!("skipped: needs root, loop devices and losetup (Debian package mount)");
                None
            }
        }
    }

    /// Takes note that its file is longer now.
    pub fn resized(&self) {
        let status = Command::new("losetup")
            .arg("--set-capacity")
            .arg(&self.path)
            .status()
            .expect("started");
        assert!(status.success(), "losetup --set-capacity");
    }

    pub fn name(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
    }
}

/// A tmpfs of this many KiB, unmounted when dropped.
pub struct SmallDisk {
    pub dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Nothing, with a line that says so, where this user may not mount.
    pub fn of(kib: u32) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a directory");
        let size = format!("size={kib}k");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(SmallDisk { dir });
        }
        println!("skipped: needs root, to mount a tmpfs");
        None
    }

    /// A file of this length that has no blocks yet.
    pub fn sparse(&self, bytes: u64) -> PathBuf {
        let path = self.dir.path().join("disk");
        File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.dir.path())
            .status();
    }
}
