//! Versions that are completely on disk, as files for FUSE passthrough.
//!
//! The kernel reads such a file without this process, so nothing verifies checksums during these reads. A version is whole if one of
//! these holds:
//! - all of its blocks were verified when it was opened;
//! - it is *noted* as whole, and its data file has not changed since.
//!
//! ```text
//!   all blocks were written by one process, and synced ──┐
//!   all blocks of a large version were verified ─────────┴──► identity of the file ──► header of the checksum file, byte 56
//!   open ──► does the identity in the header match the file's? ── yes ──► whole
//!              └─ no ──► verify all blocks ──► whole
//! ```
//! The identity of a file consists of its inode number, size and change time, and of this boot of the machine. Any write, truncation,
//! replacement or restored copy changes inode, size or change time. The boot is included because a power loss may lose bytes that the disk
//! has confirmed. Direct I/O returns errors of the disk to its writer, so a note needs no sync. Bytes that were written through the page
//! cache, because the disk was behind, are synced before the note or before they are verified. If the sync fails, all blocks are forgotten.
//! Verification reads from the disk: after a failed writeback, the page cache has bytes that the disk has not. A partial last block is
//! always written through the page cache and verified at each open; a note does not wait for it. A version of at most 1 MiB is verified
//! at each open too, and as far as it is in the page cache, it is verified there.
//!
//! Example: a first mount fetches an object of 1 GiB into the disk cache. A second mount opens it without reading it; verifying it would
//! take half as long as copying it. After the machine was started again, the first mount verifies it, and notes it anew.

use super::folder::CacheFolder;
use super::hash::{BLOCK_BYTES, VersionHash, checksum};
use super::object::{Fault, LARGE_BYTES, ObjectFiles, PIN_AT, is_local};
use crate::source::descriptor::lock;
use foreread_os::host::Host;
use nix::libc;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Stat, fdatasync, fstat};
use std::num::NonZeroU64;
use std::sync::OnceLock;

/// Number of bytes verified at a time; they fit into the processor's cache.
const STEP_BYTES: usize = 64 << 10;
/// Number of checksums read at a time.
const STEP_SUMS: u64 = 4096;
/// The pages of a version larger than this fraction (one quarter) of the machine's memory leave the page cache when they were verified:
/// they would push out everything else.
const MEMORY_PART: u64 = 4;

/// A whole version. A large one is locked while this exists: no part of it is evicted.
pub struct WholeFile {
    pub files: ObjectFiles,
    /// Whether this process verified all blocks.
    pub is_verified: bool,
}

impl WholeFile {
    /// `verify`: if the version is not noted, verify all blocks for as long as this returns true. `None`: only accept a noted version.
    ///
    /// # Errors
    /// Returns an error if the version is not whole.
    pub fn open(
        folder: &CacheFolder,
        hash: VersionHash,
        size: u64,
        verify: Option<&dyn Fn() -> bool>,
    ) -> Result<WholeFile, Fault> {
        // These descriptors are used here only, so that the lock does not end together with a writer's.
        let (files, stat, noted) = ObjectFiles::open_to_pass(folder, hash, size)?;
        if stat.st_size.cast_unsigned() != size {
            return Err(Fault::Absent);
        }
        let is_large = size > LARGE_BYTES;
        if is_large {
            lock(files.checksums(), libc::F_RDLCK, PIN_AT, 1).map_err(|_| Fault::Absent)?;
        }
        let identity = identity(&stat, boot());
        let is_noted = identity == Some(noted);
        if !is_noted && verify.is_none() {
            return Err(Fault::Absent);
        }
        let verifies = verify.filter(|_| !is_noted);
        if is_large && verifies.is_some() {
            fdatasync(files.data_file())?;
            files.drop_pages(0, None);
        }
        look_at_all(&files, size, verifies)?;
        if let Some(identity) = identity.filter(|_| is_large && verifies.is_some()) {
            // Without the note, the next mount verifies the version again.
            let _ = files.note(identity);
        }
        // If the file was removed meanwhile, the lock protects nothing.
        if is_large && !files.is_linked() {
            return Err(Fault::Absent);
        }
        Ok(WholeFile {
            files,
            is_verified: verifies.is_some(),
        })
    }
}

impl AsFd for WholeFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.files.data_file().as_fd()
    }
}

/// Returns an error unless all blocks are cached and, if they are verified, valid. A partial last block is always verified.
fn look_at_all(
    files: &ObjectFiles,
    size: u64,
    verifies: Option<&dyn Fn() -> bool>,
) -> Result<(), Fault> {
    let blocks = size.div_ceil(BLOCK_BYTES);
    let is_verified = size > LARGE_BYTES && verifies.is_some();
    let drops = is_verified && size > Host::here().memory_bytes() / MEMORY_PART;
    let mut buffer = vec![0; verifies.map_or(BLOCK_BYTES as usize, |_| STEP_BYTES)];
    let mut first = 0;
    while first < blocks {
        let sums = files.sums(first, STEP_SUMS)?;
        if sums.is_empty() || sums.contains(&0) {
            return Err(Fault::Absent);
        }
        let mut look = |at: u64, sums: &[u64]| {
            let len = (size - at * BLOCK_BYTES).min((sums.len() as u64) * BLOCK_BYTES);
            files.read_blocks(at, &mut buffer[..len as usize], sums)
        };
        let next = first + sums.len() as u64;
        if let Some(goes_on) = verifies {
            let steps = sums.chunks(STEP_BYTES / BLOCK_BYTES as usize);
            for (sums, at) in steps.zip((first..).step_by(STEP_BYTES / BLOCK_BYTES as usize)) {
                if !goes_on() {
                    return Err(Fault::Absent);
                }
                look(at, sums)?;
            }
        } else if next == blocks && !size.is_multiple_of(BLOCK_BYTES) {
            look(blocks - 1, &sums[sums.len() - 1..])?;
        }
        if drops {
            files.drop_pages(
                first * BLOCK_BYTES,
                NonZeroU64::new(sums.len() as u64 * BLOCK_BYTES),
            );
        }
        first = next;
    }
    Ok(())
}

/// Notes that this process has written all bytes of a version. Waits until those in the page cache are on the disk.
pub fn note(files: &ObjectFiles) {
    // The file was opened before the bytes were written, so an error of writing one of them is returned here, and only once.
    if files.is_unsynced() && fdatasync(files.data_file()).is_err() {
        let _ = files.forget(0, u64::MAX);
        return;
    }
    let stat = fstat(files.data_file()).ok();
    if let Some(identity) = stat.and_then(|stat| identity(&stat, boot())) {
        // Without the note, the version is verified when it is opened.
        let _ = files.note(identity);
    }
}

/// This boot of the machine; empty if it is unknown.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| Host::here().boot_id().unwrap_or_default())
}

/// A number that changes with each change of a file, and with each boot. Never 0. `None` if the file is not on a disk of this machine, or
/// if the boot is unknown.
fn identity(stat: &Stat, boot: &str) -> Option<u64> {
    if !is_local(stat) || boot.is_empty() {
        return None;
    }
    let of = [
        stat.st_ino,
        stat.st_size.cast_unsigned(),
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec,
    ];
    let of = of.map(u64::to_le_bytes);
    Some(checksum(&[of.as_flattened(), boot.as_bytes()].concat()).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::descriptor::write_all;
    use crate::source::disk_cache::object::DIRECT_ALIGN;
    use crate::source::disk_cache::settings::DiskCacheSettings;
    use rustix::fs::OFlags;
    use rustix::io::{ReadWriteFlags, pread, preadv2};
    use std::cell::Cell;
    use std::io::IoSliceMut;

    const SIZE: u64 = (5 << 20) + 777;

    /// A cache with direct I/O on a disk of this machine.
    fn folder() -> Option<(tempfile::TempDir, CacheFolder)> {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = CacheFolder::open(&DiskCacheSettings::new(dir.path().join("c")));
        let folder = folder.expect("opened");
        let probe = folder.own_file("probe").expect("made");
        let is_on_disk = fstat(&probe).is_ok_and(|stat| identity(&stat, boot()).is_some());
        let direct = OFlags::RDWR | OFlags::DIRECT;
        if is_on_disk && folder.open_file("probe", direct).is_ok() {
            return Some((dir, folder));
        }
        println!("skipped: needs a temporary folder on a disk, with direct I/O");
        None
    }

    /// Writes a part from memory at a multiple of [`DIRECT_ALIGN`], or from elsewhere.
    fn write(files: &ObjectFiles, from: u64, to: u64, is_aligned: bool) {
        let mut bytes: Vec<u8> = Vec::with_capacity(2 * DIRECT_ALIGN + (to - from) as usize);
        let aligned = bytes.as_ptr().align_offset(DIRECT_ALIGN);
        let start = aligned + usize::from(!is_aligned);
        bytes.resize(start, 0);
        bytes.extend((from..to).map(|at| (at / 3) as u8));
        files.write(from, &bytes[start..]).expect("written");
    }

    fn made(folder: &CacheFolder, hash: VersionHash) -> ObjectFiles {
        let made = ObjectFiles::make(folder, hash, SIZE, "source s\n");
        made.expect("made").0
    }

    fn noted(folder: &CacheFolder, hash: VersionHash) -> ObjectFiles {
        let files = made(folder, hash);
        write(&files, 0, SIZE, true);
        assert!(files.is_own());
        note(&files);
        files
    }

    #[test]
    fn a_noted_version_is_whole_until_its_file_is_changed() {
        let Some((_dir, folder)) = folder() else {
            return;
        };
        let hash = VersionHash::of("a", "1");
        let open = |look| WholeFile::open(&folder, hash, SIZE, look);
        let fault = |look| open(look).err();
        let files = noted(&folder, hash);
        assert!(open(None).is_ok_and(|file| !file.is_verified));
        assert!(open(Some(&|| true)).is_ok_and(|file| !file.is_verified));

        files.forget(7, 1).expect("forgotten");
        assert_eq!(fault(None), Some(Fault::Absent), "a block is absent");
        write(&files, 7 * BLOCK_BYTES, 8 * BLOCK_BYTES, true);
        note(&files);

        // The partial last block is verified, whatever is noted.
        let end = SIZE - 1;
        write_all(files.data_file(), &[99], end).expect("changed");
        assert_eq!(fault(None), Some(Fault::Absent));
        note(&files);
        assert_eq!(fault(None), Some(Fault::Wrong(Some(end / BLOCK_BYTES))));
        write(&files, end / BLOCK_BYTES * BLOCK_BYTES, SIZE, true);
        note(&files);
        assert!(open(None).is_ok());

        write_all(files.data_file(), &[99], 4096).expect("changed");
        assert_eq!(fault(None), Some(Fault::Absent));
        assert_eq!(fault(Some(&|| true)), Some(Fault::Wrong(Some(1))));
    }

    #[test]
    fn another_boot_and_another_machine_verify_once() {
        let Some((_dir, folder)) = folder() else {
            return;
        };
        let hash = VersionHash::of("a", "1");
        let open = |look| WholeFile::open(&folder, hash, SIZE, look);
        let files = noted(&folder, hash);
        let mut stat = fstat(files.data_file()).expect("stat");
        let other = identity(&stat, "another boot").expect("on a disk");
        files.note(other).expect("noted");
        assert_eq!(open(None).err(), Some(Fault::Absent));
        pread(files.data_file(), &mut [0_u8; 4096], 0).expect("read");
        let is_in_memory = || {
            let (mut byte, flags) = ([0], ReadWriteFlags::NOWAIT);
            let read = preadv2(
                files.data_file(),
                &mut [IoSliceMut::new(&mut byte)],
                0,
                flags,
            );
            read.is_ok()
        };
        assert!(is_in_memory());
        let seen = Cell::new(None);
        let goes_on = || seen.get().is_some() || seen.replace(Some(is_in_memory())).is_none();
        assert!(open(Some(&goes_on)).is_ok_and(|file| file.is_verified));
        assert_eq!(seen.get(), Some(false), "the disk's bytes are verified");
        assert!(open(None).is_ok(), "noted by the one that verified");
        assert_eq!(identity(&stat, ""), None, "an unknown boot");
        stat.st_dev = 42;
        assert_eq!(identity(&stat, boot()), None, "NFS, for example");
    }

    #[test]
    fn only_own_bytes_are_noted_unseen() {
        let Some((_dir, folder)) = folder() else {
            return;
        };
        let of = |name| made(&folder, VersionHash::of(name, "1"));
        write(&of("a"), 0, 1 << 20, true);
        let later = of("a");
        write(&later, 1 << 20, SIZE, true);
        assert!(!later.is_own(), "written by another process");
        let files = of("b");
        write(&files, 0, 1 << 20, true);
        write(&files, 0, 1 << 20, true);
        assert!(!files.is_own(), "the same blocks twice");
        let files = of("c");
        write(&files, 0, 1 << 20, true);
        assert!(!files.is_unsynced() && !files.is_own());
        write(&files, 1 << 20, SIZE, false);
        assert!(files.is_unsynced(), "some are in the page cache only");
        assert!(files.is_own());
    }
}
