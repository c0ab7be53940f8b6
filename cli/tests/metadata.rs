//! Tests with a program that only reads names and dates of files: the blocks of inodes and folders that it waits for
//! are recorded, planned and read into the cache.
//!
//! Needs root, tracefs, mkfs.ext4 and a loop device; otherwise the tests are skipped.

use crate::common::{Got, foreread, recorded};
use foreread_trace::{Flags, Item, open};
use recorded::{record, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders, and files of each: some blocks of inodes.
const FOLDERS: u64 = 20;
const FILES: u64 = 20;

/// ext4 on a loop device; unmounted when it is dropped.
struct Disk {
    dir: tempfile::TempDir,
    device: String,
}

fn runs(words: &[&str]) -> Option<String> {
    let done = Command::new(words[0])
        .args(&words[1..])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    done.status
        .success()
        .then(|| String::from_utf8_lossy(&done.stdout).trim().to_string())
}

impl Disk {
    fn new() -> Option<Disk> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let [files, mount, image] = ["files", "mount", "image"].map(|name| dir.path().join(name));
        fs::create_dir(&mount).expect("room");
        for folder in 0..FOLDERS {
            let folder = files.join(folder.to_string());
            fs::create_dir_all(&folder).expect("room");
            (0..FILES).for_each(|n| fs::write(folder.join(n.to_string()), b"").expect("room"));
        }
        fs::File::create(&image)
            .and_then(|file| file.set_len(16 << 20))
            .expect("room");
        let mut disk = Disk {
            dir,
            device: String::new(),
        };
        let device = runs(&["mkfs.ext4", "-q", "-F", "-d", text(&files), text(&image)])
            .and_then(|_| runs(&["losetup", "-f", "--show", "-r", text(&image)]));
        disk.device = device.unwrap_or_default();
        let is_there = disk.device.starts_with("/dev/loop") && disk.mounts();
        if !is_there {
            println!("skipped: needs root, mkfs.ext4 and a loop device");
        }
        is_there.then_some(disk)
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    fn mounts(&self) -> bool {
        runs(&[
            "mount",
            "-o",
            "ro,noload,noatime",
            &self.device,
            text(&self.mount()),
        ])
        .is_some()
    }

    /// Mounts it anew: nothing of it is in memory.
    fn forget(&self) {
        assert!(runs(&["umount", text(&self.mount())]).is_some() && self.mounts());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        runs(&["umount", text(&self.mount())]);
        runs(&["losetup", "-d", &self.device]);
    }
}

/// Bytes of the device that the trace has as the file system's own.
fn metadata_bytes(trace: &Path, device: &str) -> u64 {
    let (mut names, mut bytes) = (Vec::new(), 0);
    for item in open::open(&[trace.to_path_buf()], None)
        .expect("a trace")
        .items
    {
        match item.expect("whole") {
            Item::File(file) => names.push(file.name),
            Item::Record(r) if r.flags.has(Flags::METADATA) => {
                assert!(r.flags.has(Flags::AHEAD) && r.end_ns >= r.start_ns, "{r:?}");
                bytes += if names[r.file as usize] == device {
                    r.len
                } else {
                    0
                };
            }
            Item::Record(_) => {}
        }
    }
    bytes
}

fn number(got: &Got, key: &str) -> u64 {
    let json: Value = serde_json::from_str(&got.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", got.out, got.err));
    json[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {json}"))
}

#[test]
fn names_and_dates_are_brought_in() {
    let Some(disk) = Disk::new() else { return };
    let [trace, plan] = ["a.frt", "a.plan"].map(|name| disk.dir.path().join(name));
    let mount = disk.mount();
    let look = ["find", text(&mount), "-size", "+1"];
    disk.forget();
    let Some(_) = record(&trace, &[], &look) else {
        return;
    };
    let recorded = metadata_bytes(&trace, &disk.device);
    let folders = FOLDERS * 4096;
    assert!(
        recorded > folders,
        "a block of each folder, and inodes: {recorded} bytes"
    );
    foreread(["plan", "-o", text(&plan), text(&trace)]).is_done();
    let planned = fs::read_to_string(&plan).expect("a plan");
    assert!(
        planned.contains(&format!("f {} - {}\n", 16 << 20, disk.device)),
        "{planned}"
    );

    disk.forget();
    let replay = ["replay", text(&plan), "--json", "-"];
    let fetched = number(&foreread(replay), "fetched_bytes");
    assert!(fetched >= folders, "{fetched} of {recorded} bytes");
    // What is there is not read again, by the file system either.
    assert_eq!(number(&foreread(replay), "fetched_bytes"), 0);
    let Some(_) = record(&trace, &[], &look) else {
        return;
    };
    assert_eq!(metadata_bytes(&trace, &disk.device), 0);

    // A device that has no file system any more is left alone.
    assert!(runs(&["umount", text(&mount)]).is_some());
    let got = foreread(["replay", text(&plan)]);
    assert!(
        got.err
            .contains("it is not a block device with a mounted file system"),
        "{}",
        got.err
    );
    assert!(disk.mounts());
}
