//! Versions that are completely on disk, as files for FUSE passthrough.
//!
//! The kernel reads such a file without this process, so nothing verifies checksums during these reads. A version is whole if one of
//! these holds:
//! - all of its blocks were verified when it was opened;
//! - it is *synced*: the process that wrote all of it has made the bytes durable, and the file has not changed since.
//!
//! ```text
//!   last block is written ──► thread: fdatasync ──► identity of the file ──► header of the checksum file, byte 56
//!   open ──► does the identity in the header match the file's? ── yes ──► whole
//!              └─ no ──► verify all blocks ──► whole
//! ```
//! Example: a first mount writes an object of 1 GiB. A second mount opens it without reading it; verifying it would take half as long as
//! copying it. Any write, truncation, replacement or restored copy of the file changes its inode number or change time, and the file is
//! then verified. A write never waits for a sync.

use super::folder::{CacheFolder, inside};
use super::hash::{BLOCK_BYTES, VersionHash, checksum};
use super::object::{Fault, ObjectFiles, PIN_AT, data_name};
use crate::source::descriptor::lock;
use foreread_os::threads::spawn;
use nix::libc;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of bytes verified at a time; they fit into the processor's cache.
const STEP_BYTES: usize = 64 << 10;
/// Number of checksums read at a time.
const STEP_SUMS: u64 = 4096;
/// Maximum number of files that wait to be synced. Further files are verified when they are opened.
const MAX_WAITING: usize = 16;

/// How to make sure that a version is valid.
#[derive(Clone, Copy)]
pub enum Look<'a> {
    /// Only accept a synced version.
    Synced,
    /// If the version is not synced, verify all blocks for as long as this returns true.
    Verify(&'a dyn Fn() -> bool),
}

/// A whole version. Its data is locked while this exists.
pub struct WholeFile {
    data: OwnedFd,
    files: ObjectFiles,
    /// Whether this process verified all blocks.
    pub is_verified: bool,
}

impl WholeFile {
    /// # Errors
    /// Returns an error if the version is not whole.
    pub fn open(
        folder: &CacheFolder,
        hash: VersionHash,
        size: u64,
        look: Look<'_>,
    ) -> Result<WholeFile, Fault> {
        // These descriptors are used here only, so that the lock does not end together with a writer's.
        let files = ObjectFiles::open(folder, hash, size)?;
        lock(files.checksums(), libc::F_RDLCK, PIN_AT, 1).map_err(|_| Fault::Absent)?;
        let path = inside(&hash.folder(), &data_name(hash));
        let (data, stat) = folder.open_file(&path, OFlags::RDONLY)?;
        if stat.st_size.cast_unsigned() != size || files.data_stat()?.st_ino != stat.st_ino {
            return Err(Fault::Absent);
        }
        let is_synced = files.synced()? == identity(&stat);
        let verifies = match look {
            Look::Verify(goes_on) if !is_synced => Some(goes_on),
            Look::Synced if !is_synced => return Err(Fault::Absent),
            _ => None,
        };
        look_at_all(&files, size, verifies)?;
        let whole = WholeFile {
            data,
            files,
            is_verified: verifies.is_some(),
        };
        // If the file was removed meanwhile, the lock protects nothing.
        if whole.is_linked() {
            Ok(whole)
        } else {
            Err(Fault::Absent)
        }
    }

    /// Whether the file still exists under its name.
    pub fn is_linked(&self) -> bool {
        self.files.is_linked()
    }
}

impl AsFd for WholeFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.data.as_fd()
    }
}

/// Returns an error unless all blocks are cached and, if they are verified, valid.
fn look_at_all(
    files: &ObjectFiles,
    size: u64,
    verifies: Option<&dyn Fn() -> bool>,
) -> Result<(), Fault> {
    let blocks = size.div_ceil(BLOCK_BYTES);
    let mut buffer = vec![0; verifies.map_or(0, |_| STEP_BYTES)];
    let mut first = 0;
    while first < blocks {
        let sums = files.sums(first, STEP_SUMS)?;
        if sums.is_empty() || sums.contains(&0) {
            return Err(Fault::Absent);
        }
        let steps = sums.chunks(STEP_BYTES / BLOCK_BYTES as usize);
        for (sums, at) in steps.zip((first..).step_by(STEP_BYTES / BLOCK_BYTES as usize)) {
            let Some(goes_on) = verifies else { break };
            if !goes_on() {
                return Err(Fault::Absent);
            }
            let len = (size - at * BLOCK_BYTES).min((sums.len() as u64) * BLOCK_BYTES);
            files.read_blocks(at, &mut buffer[..len as usize], sums)?;
        }
        first += sums.len() as u64;
    }
    Ok(())
}

/// A number that changes with each change of a file. Never 0.
fn identity(stat: &Stat) -> u64 {
    let of = [
        stat.st_ino,
        stat.st_size.cast_unsigned(),
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec,
    ];
    checksum(of.map(u64::to_le_bytes).as_flattened()).max(1)
}

/// Syncs files that this process has written completely, one after the other.
#[derive(Default)]
pub struct Syncs {
    state: Mutex<SyncsState>,
    done: Condvar,
}

#[derive(Default)]
struct SyncsState {
    waiting: VecDeque<Arc<ObjectFiles>>,
    /// The process whose thread syncs the files: a forked child does not have that thread.
    works_in: Option<u32>,
}

impl Syncs {
    fn hold(&self) -> MutexGuard<'_, SyncsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(self: &Arc<Syncs>, files: Arc<ObjectFiles>) {
        let here = Some(std::process::id());
        let mut state = self.hold();
        if state.waiting.len() >= MAX_WAITING {
            return;
        }
        state.waiting.push_back(files);
        if state.works_in == here {
            return;
        }
        state.works_in = here;
        drop(state);
        let syncs = Arc::clone(self);
        if spawn("foreread-sync", move || syncs.work()).is_err() {
            let mut state = self.hold();
            state.waiting.clear();
            state.works_in = None;
        }
    }

    fn work(&self) {
        let mut state = self.hold();
        while let Some(files) = state.waiting.pop_front() {
            drop(state);
            if let Err(errno) = sync(&files) {
                // The file is verified when it is opened.
                tracing::debug!("a file of the disk cache is not synced: {errno}");
            }
            state = self.hold();
        }
        state.works_in = None;
        self.done.notify_all();
    }

    /// Waits at most this long until all files are synced. Returns whether they are.
    pub fn wait(&self, most: Duration) -> bool {
        let here = Some(std::process::id());
        let waited = self
            .done
            .wait_timeout_while(self.hold(), most, |state| state.works_in == here);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

fn sync(files: &ObjectFiles) -> Result<(), Errno> {
    let before = files.data_stat()?;
    files.sync()?;
    let after = files.data_stat()?;
    // If the identity has changed, another process is writing the same bytes.
    if identity(&before) == identity(&after) {
        files.note_synced(identity(&after))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::descriptor::write_all;
    use crate::source::disk_cache::settings::DiskCacheSettings;

    const SIZE: u64 = (5 << 20) + 777;

    fn folder() -> (tempfile::TempDir, CacheFolder) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = CacheFolder::open(&DiskCacheSettings::new(dir.path().join("c")));
        (dir, folder.expect("opened"))
    }

    fn write(files: &ObjectFiles, from: u64, to: u64) {
        let bytes: Vec<u8> = (from..to).map(|at| (at / 3) as u8).collect();
        files.write(from, &bytes).expect("written");
    }

    fn made(folder: &CacheFolder, hash: VersionHash) -> Arc<ObjectFiles> {
        let (files, _) = ObjectFiles::make(folder, hash, SIZE, "source s\n").expect("made");
        Arc::new(files)
    }

    fn synced(files: &Arc<ObjectFiles>) {
        let syncs = Arc::new(Syncs::default());
        syncs.push(Arc::clone(files));
        assert!(syncs.wait(Duration::from_secs(60)));
    }

    #[test]
    fn a_synced_version_is_whole_until_its_file_is_changed() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let files = made(&folder, hash);
        write(&files, 0, SIZE);
        assert!(files.is_own());
        let open = |look| WholeFile::open(&folder, hash, SIZE, look);
        let fault = |look| open(look).err();
        assert_eq!(fault(Look::Synced), Some(Fault::Absent), "not synced yet");
        assert!(open(Look::Verify(&|| true)).is_ok_and(|file| file.is_verified));
        synced(&files);
        assert!(open(Look::Synced).is_ok_and(|file| !file.is_verified));
        assert!(open(Look::Verify(&|| true)).is_ok_and(|file| !file.is_verified));

        let path = inside(&hash.folder(), &data_name(hash));
        let (data, _) = folder.open_file(&path, OFlags::RDWR).expect("opened");
        write_all(&data, &[99], 4096).expect("changed");
        assert_eq!(fault(Look::Synced), Some(Fault::Absent));
        let wrong = fault(Look::Verify(&|| true));
        assert_eq!(wrong, Some(Fault::Wrong(Some(1))));
    }

    #[test]
    fn a_synced_version_without_a_block_is_not_whole() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let files = made(&folder, hash);
        write(&files, 0, SIZE);
        synced(&files);
        files.forget(7, 1).expect("forgotten");
        let opened = WholeFile::open(&folder, hash, SIZE, Look::Synced);
        assert_eq!(opened.err(), Some(Fault::Absent));
    }

    #[test]
    fn bytes_of_another_process_are_not_synced_unseen() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        write(&made(&folder, hash), 0, 1 << 20);
        let later = made(&folder, hash);
        write(&later, 1 << 20, SIZE);
        assert!(!later.is_own());
        let first = made(&folder, VersionHash::of("b", "1"));
        write(&first, 0, 1 << 20);
        write(&first, 0, 1 << 20);
        assert!(!first.is_own(), "the same blocks twice");
    }
}
