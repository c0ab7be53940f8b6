//! How many bytes the pieces of a folder have, over all processes that write it: a number in a file, changed under its lock.
//!
//! Behind it a number for each version (some share one) counts the pieces that were written: by it a process knows that another has written
//! some, and that it has not looked since. A time of the folder would not do: its own writes change that as well.
//!
//! A piece that is written adds to it, one that is removed takes away. A process that is killed in between leaves it wrong by a piece; a
//! walk through the folder puts that right (room.rs).

use super::folder::CacheFolder;
use super::piece::VersionHash;
use crate::source::descriptor::lock;
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FILE: &str = "size";
/// How often the lock is tried, 2 ms apart.
const LOCK_TRIES: u32 = 50;
/// Where the numbers of versions begin, and how many there are.
const COUNTS_AT: u64 = 4096;
const COUNTS: u64 = 4096;

pub struct Account {
    /// A lock of an open description keeps out other processes, and not other threads of this one.
    file: Mutex<OwnedFd>,
}

impl Account {
    pub fn open(folder: &CacheFolder) -> Result<Account, Errno> {
        let file = Mutex::new(folder.own_file(FILE)?);
        Ok(Account { file })
    }

    /// Bytes of all pieces; nothing where that is not known.
    pub fn bytes(&self) -> Option<u64> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        read(&file, 0)
    }

    /// Files of this many bytes were removed.
    pub fn removed(&self, bytes: u64) {
        self.under_lock(|file| {
            let left = read(file, 0)?.saturating_sub(bytes);
            Some(write(file, 0, left))
        });
    }

    /// A piece of a version was written. Returns how many there were of that version, this one included; nothing where that is not known.
    pub fn wrote(&self, version: VersionHash, bytes: u64) -> Option<u64> {
        self.under_lock(|file| {
            if let Some(before) = read(file, 0) {
                write(file, 0, before.saturating_add(bytes));
            }
            let at = place_of(version);
            let count = read(file, at).unwrap_or(0).wrapping_add(1);
            write(file, at, count).then_some(count)
        })
    }

    /// Pieces of a version that were written ever.
    pub fn writes(&self, version: VersionHash) -> u64 {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        read(&file, place_of(version)).unwrap_or(0)
    }

    /// A walk has found this many bytes.
    pub fn set(&self, bytes: u64) {
        self.under_lock(|file| Some(write(file, 0, bytes)));
    }

    fn under_lock<T>(&self, work: impl FnOnce(&OwnedFd) -> Option<T>) -> Option<T> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Where a file system has no locks, or a process was stopped with one, the number is off by what was written at the same time, until the next walk.
        for _ in 0..LOCK_TRIES {
            match lock(&*file, libc::F_WRLCK, 0, 0) {
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => break,
            }
        }
        let done = work(&file);
        let _ = lock(&*file, libc::F_UNLCK, 0, 0);
        done
    }
}

fn place_of(version: VersionHash) -> u64 {
    COUNTS_AT + 8 * (version.number() % COUNTS)
}

fn read(file: &OwnedFd, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = rustix::io::pread(file, &mut bytes, at).ok()?;
    (len == 8).then(|| u64::from_le_bytes(bytes))
}

fn write(file: &OwnedFd, at: u64, number: u64) -> bool {
    rustix::io::pwrite(file, &number.to_le_bytes(), at) == Ok(8)
}
