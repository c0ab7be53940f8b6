//! How many bytes the pieces of a folder have, over all processes that write it: a number in a file, changed under its lock.
//!
//! A piece that is written adds to it, one that is removed takes away. A process that is killed in between leaves it wrong by a piece; a
//! walk through the folder puts that right (evict.rs).

use super::folder::CacheFolder;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Mutex;
use std::sync::PoisonError;

const FILE: &str = "size";

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
        read(&file)
    }

    /// This many bytes were written and removed. Returns what there is then; nothing where that is not known.
    pub fn change(&self, written: u64, removed: u64) -> Option<u64> {
        self.under_lock(|file| {
            let bytes = read(file)?.saturating_add(written).saturating_sub(removed);
            write(file, bytes).then_some(bytes)
        })
    }

    /// A walk has found this many bytes.
    pub fn set(&self, bytes: u64) {
        self.under_lock(|file| Some(write(file, bytes)));
    }

    fn under_lock<T>(&self, work: impl FnOnce(&OwnedFd) -> Option<T>) -> Option<T> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Where a file system has no locks the number is off by what was written at the same time, until the next walk.
        let _ = fcntl(&*file, FcntlArg::F_OFD_SETLKW(&range(libc::F_WRLCK, 0, 0)));
        let done = work(&file);
        let _ = fcntl(&*file, FcntlArg::F_OFD_SETLK(&range(libc::F_UNLCK, 0, 0)));
        done
    }
}

/// A lock, or the end of one, of some bytes of a file; of all where `len` is 0.
pub fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn read(file: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = rustix::io::pread(file, &mut bytes, 0).ok()?;
    (len == 8).then(|| u64::from_le_bytes(bytes))
}

fn write(file: &OwnedFd, bytes: u64) -> bool {
    rustix::io::pwrite(file, &bytes.to_le_bytes(), 0) == Ok(8)
}
