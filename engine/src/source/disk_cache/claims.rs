//! Claims (file locks on ranges): if several processes share a cache folder, only one of them fetches each byte.
//!
//! A process that is about to fetch a range locks it, and unlocks each part once that part is written. Another process that wants the
//! same range finds it locked, waits for the lock, and then finds the bytes on disk. All locks are byte-range locks on one empty file.
//! The hash of the version determines an offset in this file; from this offset on, the lock on each byte covers 1 MiB of the object. Two
//! versions whose hashes give the same offset sometimes wait for each other needlessly. When a process ends, the kernel releases its
//! locks.
//!
//! ```text
//!   hash of the version (38 bits) | megabyte of the object (24 bits)        a byte of `claims`
//! ```
//! Example: two processes read 4 GiB sequentially at the same time. The second process is always slightly behind the first: it
//! waits until the first has written the next 1 MiB, and reads this 1 MiB from the disk.

use super::folder::CacheFolder;
use super::hash::VersionHash;
use crate::source::descriptor::lock;
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ops::Range;

const FILE: &str = "claims";
const MEGABYTE_BITS: u32 = 24;
/// The number of bytes of an object that the lock on one byte of the lock file covers. A claim covers one or more aligned ranges
/// of this length.
pub const CLAIM_BYTES: u64 = 1 << 20;

pub struct Claims {
    file: OwnedFd,
}

/// The result of an attempt to claim (lock) a range of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Taken,
    /// Another process has claimed some of it.
    Busy,
    /// The file system has no locks.
    Unknown,
}

impl Claims {
    pub fn open(folder: &CacheFolder) -> Result<Claims, Errno> {
        let file = folder.own_file(FILE)?;
        Ok(Claims { file })
    }

    /// Claims (locks) a range of a version for this process, unless another process has claimed part of it.
    pub fn take(&self, version: VersionHash, bytes: &Range<u64>) -> Claim {
        match self.lock(libc::F_WRLCK, version, bytes) {
            Ok(()) => Claim::Taken,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Claim::Busy,
            Err(_) => Claim::Unknown,
        }
    }

    /// Releases the claim on a range.
    pub fn give_back(&self, version: VersionHash, bytes: &Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let _ = self.lock(libc::F_UNLCK, version, bytes);
    }

    fn lock(&self, kind: libc::c_int, version: VersionHash, bytes: &Range<u64>) -> nix::Result<()> {
        let mask = (1_u64 << MEGABYTE_BITS) - 1;
        let (first, last) = (bytes.start / CLAIM_BYTES, (bytes.end - 1) / CLAIM_BYTES);
        let place = version.number() >> 26 << MEGABYTE_BITS;
        let start = (place | first & mask) as i64;
        let len = (last - first + 1).min(mask) as i64;
        lock(&self.file, kind, start, len)
    }
}
