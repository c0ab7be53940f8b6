//! Whether a file system keeps what is cached of a file when the file is opened once more.
//!
//! A server of FUSE that does not ask for `FOPEN_KEEP_CACHE` (rclone, s3fs, nbdfuse) has the kernel drop the pages of a file at each open.
//! What was read ahead for another program is gone when that program opens the file, and our own open drops what the program has read:
//!
//! ```text
//!   grep -r over rclone mount, 150 files of 33 ms:   5.4 s, and 5.3 s with all of them read ahead in time
//! ```
//! It is tried: a byte is read, or another program has read some; the file is opened again, and the kernel is asked whether the page is still
//! there. Other file systems keep it, and are not asked.
//!
//! Never: a file opened on another file system than FUSE.

use crate::resident;
use foreread_os::open::{descriptor_path, is_on_fuse};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of file systems, by the numbers that the caller has for their devices: each is tried one time.
#[derive(Default)]
pub struct Dropping(Mutex<BTreeMap<u64, bool>>);

impl Dropping {
    #[must_use]
    pub const fn new() -> Dropping {
        Dropping(Mutex::new(BTreeMap::new()))
    }

    /// Whether it is known to drop what is cached of a file when that is opened.
    #[must_use]
    pub fn is(&self, dev: u64) -> bool {
        self.known().get(&dev) == Some(&true)
    }

    /// The same, tried with a file of it where it is not known: one that was just opened, of which another program has `read` these bytes, where
    /// that is known. May wait for its server.
    pub fn look(&self, dev: u64, file: &File, read: Option<&Range<u64>>) -> bool {
        if let Some(known) = self.known().get(&dev) {
            return *known;
        }
        // Not under the lock: it may wait.
        let found = match read {
            Some(read) => is_dropped(file, read),
            None => is_dropped_by_open(file),
        };
        if let Some(found) = found {
            self.known().insert(dev, found);
        }
        found == Some(true)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether our open of this file has dropped what another program has read of it. Nothing where the kernel does not say. Nothing is read for it: a
/// server that reads ahead by itself would begin to.
fn is_dropped(file: &File, read: &Range<u64>) -> Option<bool> {
    if !is_on_fuse(file) {
        return Some(false);
    }
    Some(resident::cached(file, read).ok().flatten()? == 0)
}

/// Whether an open of this file drops what is cached of it. Nothing where the kernel does not say, or the file is empty. Waits for one byte.
#[must_use]
pub fn is_dropped_by_open(file: &File) -> Option<bool> {
    if !is_on_fuse(file) {
        return Some(false);
    }
    let mut byte = [0];
    if file.read_at(&mut byte, 0).ok()? == 0 {
        return None;
    }
    let first = 0..byte.len() as u64;
    let cached = || resident::cached(file, &first).ok().flatten();
    // What is not there after its own read passes the page cache by.
    if cached()? == 0 {
        return Some(true);
    }
    let again = File::open(descriptor_path(file)).ok()?;
    let is_there = cached()? > 0;
    drop(again);
    Some(!is_there)
}
