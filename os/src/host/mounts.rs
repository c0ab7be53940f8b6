//! Finds mounts, and the file system on which a file lock is held (proc_pid_mountinfo(5), proc_locks(5)).
//!
//! ```text
//!   31 24 254:0 / /mnt rw,noatime shared:1 - ext4 /dev/vda rw
//!         number root point                  kind        options
//! ```

use super::{DeviceNumber, Host};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The file system type of foreread's mounts.
pub const FOREREAD_MOUNT: &str = "fuse.foreread";

/// A line of `/proc/PID/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `st_dev` of its files.
    pub number: DeviceNumber,
    /// The folder of the file system that is mounted (root).
    pub root: PathBuf,
    /// Its identifier, as in `fdinfo`.
    pub id: u64,
    pub point: PathBuf,
    /// The file system type, such as `ext4`.
    pub kind: String,
    /// What is mounted, such as `/dev/sda1` or `host:/export`.
    pub device: String,
    /// Mount options of the file system, separated by commas.
    pub options: String,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut words = line.split(|byte| *byte == b' ');
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let id = text(words.next()?).parse().ok()?;
        words.next()?;
        let number = DeviceNumber::parse(&text(words.next()?))?;
        let (root, point) = (path(words.next()?), path(words.next()?));
        let mut words = words.skip_while(|word| *word != b"-").skip(1);
        let kind = text(words.next()?);
        let device = path(words.next()?).to_string_lossy().into_owned();
        Some(Mount {
            id,
            number,
            root,
            point,
            kind,
            device,
            options: text(words.next()?),
        })
    }
}

/// Decodes a path in which blanks and other special characters are octal: `\040`.
fn path(word: &[u8]) -> PathBuf {
    let (mut bytes, mut at) = (Vec::with_capacity(word.len()), 0);
    while at < word.len() {
        let octal = word
            .get(at + 1..at + 4)
            .filter(|_| word[at] == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(word[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns the visible mount at a path, which is the last mount that was made there.
pub fn last_at<'a>(mounts: &'a [Mount], place: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.point == place)
}

impl Host {
    pub fn mounts(&self) -> Vec<Mount> {
        self.mounts_of("self")
    }

    /// Returns the mounts of process 1 if it has another root folder; otherwise the mounts of this process.
    pub fn mounts_of_root(&self) -> Vec<Mount> {
        let first = match self.path("").as_path() {
            root if root == Path::new("/") => Vec::new(),
            _ => self.mounts_of("1"),
        };
        if first.is_empty() {
            self.mounts()
        } else {
            first
        }
    }

    /// Opens a file that signals by poll(2) (`POLLPRI`) if this process's mounts have changed since it was opened.
    pub fn mount_changes(&self) -> std::io::Result<std::fs::File> {
        std::fs::File::open(self.proc.join("self/mountinfo"))
    }

    /// Returns the mounts of a process, given by its pid or `self`.
    pub fn mounts_of(&self, process: &str) -> Vec<Mount> {
        let text = std::fs::read(self.proc.join(process).join("mountinfo")).unwrap_or_default();
        text.split(|byte| *byte == b'\n')
            .filter_map(Mount::parse)
            .collect()
    }

    /// Returns the inode numbers, on all file systems, of files on which a program holds a write lease (fcntl F_SETLEASE, oplocks
    /// of Samba). Another process that opens such a file breaks the lease.
    pub fn write_leases(&self) -> BTreeSet<u64> {
        let locks = std::fs::read_to_string(self.proc.join("locks")).unwrap_or_default();
        write_leases(&locks)
    }
}

/// A line of the list of locks: `1: LEASE  ACTIVE    WRITE 811 00:2b:257 0 EOF`; `1: -> FLOCK ...` waits for the one before it.
fn write_leases(locks: &str) -> BTreeSet<u64> {
    let inode = |line: &str| {
        let words = line.split_ascii_whitespace().skip(1);
        let mut words = words.skip_while(|word| *word == "->");
        let is_lease = (words.next()?, words.nth(1)?) == ("LEASE", "WRITE");
        let inode = words.nth(1)?.rsplit(':').next()?.parse().ok()?;
        is_lease.then_some(inode)
    };
    locks.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_and_other_lines_passed_over() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let own = root.path().join("proc/self");
        std::fs::create_dir_all(&own).expect("room");
        let mounts = "31 24 254:0 / / rw - ext4 /dev/vda rw\n\n1 2 3 - cgroup2\n\
            40 24 0:45 /a /mnt\\040a\\134b rw shared:1 - nfs a:/b rw,vers=4\n";
        std::fs::write(own.join("mountinfo"), mounts).expect("room");
        let host = Host::below(root.path());
        let mounts = host.mounts();
        let numbers = mounts.iter().map(|mount| mount.number.to_string());
        assert_eq!(Vec::from_iter(numbers), ["254:0", "0:45"]);
        assert_eq!(mounts[1].point, Path::new("/mnt a\\b"));
        assert_eq!(mounts[1].root, Path::new("/a"));
        let Mount { kind, options, .. } = &mounts[1];
        assert_eq!((kind.as_str(), options.as_str()), ("nfs", "rw,vers=4"));
        assert!(Host::here().mounts().len() > 1, "this machine has some");
    }

    #[test]
    fn write_leases_are_found_by_their_inodes() {
        let locks = "1: LEASE  ACTIVE    WRITE 811 00:2b:257 0 EOF\n2: LEASE  ACTIVE    READ  811 00:2b:258 0 EOF\n\
                     3: POSIX  ADVISORY  WRITE 811 00:2b:259 0 EOF\nnonsense\n";
        assert_eq!(write_leases(locks), BTreeSet::from([257]));
    }
}
