//! Counts the bytes that a cache's files use on disk, including files that other processes write to the same cache. The account
//! file has one number for each of the 256 folders of the cache. A process changes these numbers only while it holds a lock.
//!
//! Each process counts the bytes that it writes, and adds them to the account file from time to time. A folder's number becomes
//! wrong if a process is killed before it has added its bytes, or if a user removes files. Each scan of a folder (evict.rs) sets its
//! number, and a writing process scans one folder after the other. So no process has to scan all folders at once, and a damaged
//! account file is soon correct again.

use super::folder::{CacheFolder, read_full};
use crate::source::descriptor::{lock, write_all};
use crate::sync;
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Mutex;
use std::time::Duration;

const FILE: &str = "size";
pub const FOLDERS: usize = 256;
/// Number of attempts to get the lock, 2 ms apart.
const LOCK_TRIES: u32 = 50;

pub struct Account {
    /// A file lock excludes other processes, but not other threads of this process; the mutex does that.
    file: Mutex<OwnedFd>,
}

type Numbers = [u64; FOLDERS];

impl Account {
    pub fn open(folder: &CacheFolder) -> Result<Account, Errno> {
        let file = Mutex::new(folder.own_file(FILE)?);
        Ok(Account { file })
    }

    /// Returns the total number of bytes that the cache uses, according to the account file.
    pub fn bytes(&self) -> u64 {
        let file = sync::lock(&self.file);
        let sum = |sum: u64, bytes: &u64| sum.saturating_add(*bytes);
        read(&file).iter().fold(0, sum)
    }

    /// Adds to each folder's number in the account file how many bytes were written there since; negative if files were removed.
    pub fn add(&self, changes: &[i64; FOLDERS]) {
        self.change(|numbers| {
            for (number, change) in numbers.iter_mut().zip(changes) {
                *number = number.saturating_add_signed(*change);
            }
        });
    }

    /// Sets the number of bytes of a folder, after a scan has counted them.
    pub fn set(&self, folder: usize, bytes: u64) {
        self.change(|numbers| numbers[folder] = bytes);
    }

    fn change(&self, change: impl FnOnce(&mut Numbers)) {
        let file = sync::lock(&self.file);
        // If the file system has no locks, or a stopped process holds the lock, a number may miss concurrent writes.
        for _ in 0..LOCK_TRIES {
            match lock(&*file, libc::F_WRLCK, 0, 0) {
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => break,
            }
        }
        let mut numbers = read(&file);
        change(&mut numbers);
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        // This fails if the disk is full; later scans of the folders set the numbers.
        let _ = write_all(&file, &bytes, 0);
        let _ = lock(&*file, libc::F_UNLCK, 0, 0);
    }
}

/// Missing numbers are 0.
fn read(file: &OwnedFd) -> Numbers {
    let mut bytes = [0; 8 * FOLDERS];
    let _ = read_full(file, &mut bytes, 0);
    let mut numbers = [0; FOLDERS];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    numbers
}
