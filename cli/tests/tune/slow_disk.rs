//! A disk with a delay for the tests of `tune`.
//!
//! ```text
//!   image ── nbdkit, 2 ms a read ── nbdfuse: a file ── loop device ── ext4, read-only
//! ```
//! Never: left behind; it is taken down when it is dropped.

use super::text;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct SlowDisk {
    dir: tempfile::TempDir,
    pub device: String,
    servers: Vec<Child>,
}

impl SlowDisk {
    /// With `big`, 24 MiB, and 300 small files in `src`; nothing if this machine cannot.
    pub fn new() -> Option<SlowDisk> {
        SlowDisk::made(false)
    }

    /// The same, and it may be written to.
    pub fn writable() -> Option<SlowDisk> {
        SlowDisk::made(true)
    }

    fn made(is_writable: bool) -> Option<SlowDisk> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let (image, socket, fuse) = (
            dir.path().join("image"),
            dir.path().join("socket"),
            dir.path().join("fuse"),
        );
        let files = dir.path().join("files");
        std::fs::create_dir_all(files.join("src")).expect("room");
        std::fs::create_dir_all(&fuse).expect("room");
        std::fs::create_dir_all(dir.path().join("mount")).expect("room");
        std::fs::write(files.join("big"), vec![7; 24 << 20]).expect("room");
        for n in 0..300 {
            std::fs::write(files.join(format!("src/{n}")), vec![b'x'; 3000 + 37 * n])
                .expect("room");
        }
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(96 << 20))
            .expect("room");
        let mut disk = SlowDisk {
            dir,
            device: String::new(),
            servers: Vec::new(),
        };
        let made = disk.runs(&["mkfs.ext4", "-q", "-F", "-d", text(&files), text(&image)])
            && disk.serves(&[
                "nbdkit",
                "-f",
                "-U",
                text(&socket),
                "--filter=delay",
                "file",
                text(&image),
                "rdelay=2ms",
            ])
            && disk.waits(|| socket.exists())
            && disk.serves(&["nbdfuse", text(&fuse), "--unix", text(&socket)])
            && disk.waits(|| fuse.join("nbd").exists());
        let nbd = fuse.join("nbd");
        let losetup = Command::new("losetup")
            .args(["-f", "--show", "--direct-io=on", text(&nbd)])
            .args((!is_writable).then_some("-r"))
            .output();
        disk.device = String::from_utf8_lossy(&losetup.map_or(Vec::new(), |done| done.stdout))
            .trim()
            .to_string();
        let ready = made && disk.device.starts_with("/dev/loop") && {
            disk.set(128);
            let options = if is_writable { "noatime" } else { "ro,noload" };
            disk.runs(&["mount", "-o", options, &disk.device, text(&disk.mount())])
        };
        if !ready {
            println!("skipped: needs nbdkit, nbdfuse, mkfs.ext4, python3 and a loop device");
        }
        ready.then_some(disk)
    }

    /// The whole disk as a file of FUSE, whose server does not ask the kernel to keep what is cached.
    pub fn as_file(&self) -> PathBuf {
        self.dir.path().join("fuse/nbd")
    }

    pub fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    pub fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    pub fn runs(&self, words: &[&str]) -> bool {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn serves(&mut self, words: &[&str]) -> bool {
        let server = Command::new(words[0])
            .args(&words[1..])
            .stderr(Stdio::null())
            .spawn();
        server.map(|server| self.servers.push(server)).is_ok()
    }

    fn waits(&self, so: impl Fn() -> bool) -> bool {
        (0..500).any(|_| so() || (std::thread::sleep(Duration::from_millis(10)), false).1)
    }

    /// Sets the kernel's readahead for this device, which is the test's own.
    pub fn set(&self, kib: u64) {
        let path = format!("/sys/block/{}/queue/read_ahead_kb", self.name());
        std::fs::write(path, kib.to_string()).expect("root may");
    }

    /// Unmounts a writable one, which nothing may hold, and mounts it again.
    #[track_caller]
    pub fn remount(&self) {
        let mount = self.mount();
        assert!(self.runs(&["umount", text(&mount)]), "it is busy");
        assert!(self.runs(&["mount", "-o", "noatime", &self.device, text(&mount)]));
    }

    /// Drops the pages of every file on it.
    pub fn forget(&self) {
        assert!(
            self.runs(&["python3", "-S", "-c", FORGET, text(&self.mount())]),
            "pages are dropped"
        );
    }
}

/// Drops the pages of every file below a folder.
const FORGET: &str = "
import os, sys
for folder, _, names in os.walk(sys.argv[1], onerror=lambda error: None):
    for name in names:
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
";

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.runs(&["umount", text(&self.mount())]);
        if !self.device.is_empty() {
            self.runs(&["losetup", "-d", &self.device]);
        }
        self.runs(&["umount", text(&self.dir.path().join("fuse"))]);
        for server in self.servers.iter_mut().rev() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
