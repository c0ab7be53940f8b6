//! Finds the file with a given device and inode number, and opens it for foreread.
//!
//! The kernel's events contain only the device and inode number of a file. On slow storage, the observed thread usually still waits for its
//! bytes when foreread searches for the file; but a small file may already be closed. foreread searches in these places:
//!
//! ```text
//!   inode 12 of 7:0 ──► ext4: the file of inode 12, by its handle, at any time
//!                   └─► others: /proc/4711/fd/3           while the thread of the event has it open
//!                               /proc/4711/map_files/...  or mapped
//!                               a folder of /proc/4711/fd has it, or the folder where the thread works
//! ```
//! When foreread opens a file, its open file description has a separate position and readahead state, so the command is not affected.
//! foreread soon closes the file again: an open file keeps its file system mounted, keeps its bytes on disk after it was deleted, and
//! prevents a write lease. Therefore foreread does not keep files open, but stores how each file can be opened again (its [`Way`]).
//!
//! foreread opens only the file that the event names, and only if it is a regular file. A file for which a program holds a write lease is
//! never opened, because that would break the lease.

use foreread_observe::record::names::file_key;
use foreread_os::host::{DeviceNumber, Host, mapped_files};
use foreread_os::open::{UnopenedFile, descriptor_path, look};
use foreread_pagecache::kept::Dropping;
use foreread_pagecache::{handle, readahead};
use foreread_trace::follow::call::FileKey;
use rustix::fs::{OFlags, fstat};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most descriptors of a thread that are examined.
const MAX_DESCRIPTORS: usize = 4096;
/// Most folders that are examined, and most entries of each.
const MAX_FOLDERS_LOOKED: usize = 32;
const MAX_ENTRIES_LOOKED: usize = 4096;

pub struct FoundFile {
    pub size: u64,
    /// Its path, which leads to the files next to it.
    pub path: Option<PathBuf>,
    pub way: Way,
}

#[derive(Clone, Debug)]
pub enum Way {
    /// By its inode, on the file system mounted here.
    Inode(Arc<PathBuf>),
    /// By one of these paths, the best first: its name, or a link in /proc that is valid while a program has it open.
    Places(Vec<PathBuf>),
}

impl Way {
    /// Opens the file, or returns `None` if it can no longer be opened or is no longer the file `wanted`.
    pub fn open(&self, wanted: FileKey) -> Option<File> {
        let is_it = |file: &File| key_of(file).is_some_and(|(key, _)| key == wanted);
        match self {
            Way::Inode(_) if may_have(wanted.ino) => None,
            Way::Inode(mount) => {
                let folder = folder_of(mount, wanted)?;
                let file = handle::open(&folder, wanted.ino).ok().filter(is_it)?;
                let _ = readahead::only_as_asked(&file);
                Some(file)
            }
            Way::Places(places) => places
                .iter()
                .find_map(|place| open(place, wanted.ino).filter(is_it)),
        }
    }
}

/// Returns the device and inode numbers and the size of an open file, or `None` if it is not a regular file.
pub fn key_of(file: impl AsFd) -> Option<(FileKey, u64)> {
    let stat = fstat(file).ok()?;
    let is_file =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
    is_file.then_some((
        file_key(stat.st_dev, stat.st_ino),
        stat.st_size.try_into().unwrap_or(0),
    ))
}

/// Opens a regular file for readahead: its access time is not changed, and single bytes that foreread waits for cause no readahead by
/// the kernel.
fn open(path: &Path, inode: u64) -> Option<File> {
    let looked = look(path).and_then(UnopenedFile::regular).ok()?;
    opened(&looked).filter(|_| looked.meta().ino() == inode)
}

fn opened(looked: &UnopenedFile) -> Option<File> {
    if may_have(looked.meta().ino()) {
        return None;
    }
    let file = looked
        .open(OFlags::RDONLY | OFlags::NOATIME)
        .or_else(|_| looked.for_reading())
        .ok()?;
    let _ = readahead::only_as_asked(&file);
    Some(file)
}

#[derive(Default)]
pub struct Finder {
    /// Mount points of the file systems whose files can be opened by inode.
    mounts: Mutex<HashMap<u32, Option<Arc<PathBuf>>>>,
    /// Which file systems drop the cached pages of a file when it is opened.
    dropping: Dropping,
}

impl Finder {
    /// Finds the file that this thread reads, and opens it. This function may wait for a file system that does not respond.
    pub fn find(&self, thread: u32, wanted: FileKey, is_mapped: bool) -> Option<(File, FoundFile)> {
        let folder = PathBuf::from(format!("/proc/{thread}"));
        let by_descriptor = || in_folder(&folder.join("fd"), wanted);
        let by_mapping = || mapped(&folder, wanted);
        self.by_inode(wanted)
            .or_else(|| {
                if is_mapped {
                    by_mapping().or_else(by_descriptor)
                } else {
                    by_descriptor().or_else(by_mapping)
                }
            })
            .or_else(|| beside(&folder, wanted))
    }

    /// Returns whether a test has shown that the file system of this file drops the cached pages of a file when the file is opened.
    pub fn is_dropping(&self, of: FileKey) -> bool {
        self.dropping.is(u64::from(of.dev))
    }

    /// Like [`Self::is_dropping`], but tests the file system on `file` if it was not tested before. `read` is the range that was read from
    /// the file, if known. This function may wait for a file system that does not respond.
    pub fn look(&self, of: FileKey, file: &File, read: Option<&Range<u64>>) -> bool {
        self.dropping.look(u64::from(of.dev), file, read)
    }

    fn by_inode(&self, wanted: FileKey) -> Option<(File, FoundFile)> {
        let way = Way::Inode(self.mount(wanted)?);
        let file = way.open(wanted)?;
        let (_, size) = key_of(&file)?;
        let path = fs::read_link(descriptor_path(&file)).ok();
        // A memory file without a name has the path of the root.
        let path = path.filter(|path| path.parent().is_some());
        Some((file, FoundFile { size, path, way }))
    }

    /// The mount point of this file's file system. The lock is not held, because the query may wait.
    fn mount(&self, wanted: FileKey) -> Option<Arc<PathBuf>> {
        let known = || self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mount) = known().get(&wanted.dev) {
            return mount.clone();
        }
        let mount = mount_of(wanted).map(Arc::new);
        known().insert(wanted.dev, mount.clone());
        mount
    }
}

fn mount_of(wanted: FileKey) -> Option<PathBuf> {
    let (major, minor) = wanted.device();
    let number = DeviceNumber { major, minor };
    let mut mounts = Host::here().mounts().into_iter();
    let mount = mounts.find(|mount| mount.number == number && mount.root == Path::new("/"))?;
    let folder = folder_of(&mount.point, wanted)?;
    handle::is_supported(&folder).then_some(mount.point)
}

fn folder_of(mount: &Path, of: FileKey) -> Option<File> {
    let place = look(mount).ok()?;
    let meta = place.meta();
    let is_mount = meta.is_dir() && file_key(meta.dev(), meta.ino()).dev == of.dev;
    let place = Some(place).filter(|_| is_mount)?;
    place.open(OFlags::RDONLY | OFlags::DIRECTORY).ok()
}

fn in_folder(folder: &Path, wanted: FileKey) -> Option<(File, FoundFile)> {
    fs::read_dir(folder)
        .ok()?
        .flatten()
        .take(MAX_DESCRIPTORS)
        .find_map(|entry| taken(&entry.path(), wanted))
}

/// The file in a folder that the thread has open, as programs that walk through folders do, or in its working
/// directory.
fn beside(process: &Path, wanted: FileKey) -> Option<(File, FoundFile)> {
    let open = fs::read_dir(process.join("fd"))
        .ok()?
        .flatten()
        .take(MAX_FOLDERS_LOOKED)
        .map(|entry| entry.path());
    let folders = open.chain([process.join("cwd")]);
    let of_device = |meta: &fs::Metadata| file_key(meta.dev(), meta.ino()).dev == wanted.dev;
    let mut folders = folders
        .filter(|place| fs::metadata(place).is_ok_and(|meta| meta.is_dir() && of_device(&meta)));
    folders.find_map(|folder| {
        let entries = fs::read_dir(&folder)
            .ok()?
            .flatten()
            .take(MAX_ENTRIES_LOOKED);
        let name = entries
            .filter(|entry| entry.ino() == wanted.ino)
            .map(|entry| entry.file_name())
            .next()?;
        let path = fs::read_link(&folder).ok()?.join(name);
        let (file, mut found) = taken(&path, wanted)?;
        found.path = Some(path);
        Some((file, found))
    })
}

/// The file at a link in /proc, if it is the right one.
fn taken(link: &Path, wanted: FileKey) -> Option<(File, FoundFile)> {
    // A pipe or a terminal must not be opened.
    let looked = look(link)
        .and_then(UnopenedFile::regular)
        .ok()
        .filter(|looked| looked.meta().ino() == wanted.ino)?;
    let file = opened(&looked)?;
    let (key, size) = key_of(&file)?;
    let path = fs::read_link(link).ok().filter(|path| path.is_absolute());
    let places = path.iter().cloned().chain([link.to_path_buf()]).collect();
    let way = Way::Places(places);
    (key == wanted).then_some((file, FoundFile { size, path, way }))
}

fn mapped(folder: &Path, wanted: FileKey) -> Option<(File, FoundFile)> {
    let maps = fs::read(folder.join("maps")).ok()?;
    // A name may not be valid UTF-8.
    let maps = String::from_utf8_lossy(&maps);
    // The device is compared later, by the number from stat(2).
    let mapping = mapped_files(&maps).find(|mapping| mapping.inode == wanted.ino)?;
    let (addresses, path) = (mapping.addresses, mapping.path);
    let place = format!("{:x}-{:x}", addresses.start, addresses.end);
    // Links in map_files need root; other users open the path as the process sees it.
    let by_path = || {
        let path = path.strip_prefix('/')?;
        taken(&folder.join("root").join(path), wanted)
    };
    taken(&folder.join("map_files").join(place), wanted).or_else(by_path)
}

// Determines whether a program holds a write lease for a file, because opening such a file would break the lease.
//
// The kernel has one list of all locks on the machine. Reading the kernel's list takes 33 us if there are ten locks, and 0.85 ms if
// there are a thousand. If foreread read this list for each file that it opens, a program with many small files would spend most of its
// time waiting for that. After foreread has read the list of locks, it therefore reuses the result for [`SERVES`] times as long as the
// reading took. A program can always take a lease after foreread has read the list and before it opens the file; reusing the list makes
// this interval longer.

/// A list is reused for this many times the time that it took to read. Chosen: then it takes an eleventh of the time of a thread that
/// opens files continuously.
const SERVES: u32 = 10;

struct LeaseList {
    inodes: BTreeSet<u64>,
    until: Instant,
}

static LATEST: Mutex<Option<LeaseList>> = Mutex::new(None);

/// Returns whether a program may hold a write lease for an inode with this number, on any file system.
pub fn may_have(inode: u64) -> bool {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = latest
        .take()
        .filter(|list| Instant::now() < list.until)
        .unwrap_or_else(|| listed(|| Host::here().write_leases()));
    latest.insert(fresh).inodes.contains(&inode)
}

fn listed(list: impl FnOnce() -> BTreeSet<u64>) -> LeaseList {
    let began = Instant::now();
    let inodes = list();
    let took = began.elapsed().max(Duration::from_micros(1));
    LeaseList {
        inodes,
        until: began + took * SERVES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_found_by_its_numbers_as_long_as_it_is_open() {
        let mut file = tempfile::NamedTempFile::new().expect("a folder for temporary files");
        file.write_all(b"0123456789").expect("room");
        let (key, size) = key_of(file.as_file()).expect("a regular file");
        assert_eq!(size, 10);
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let finder = Finder::default();
        let find = |thread, key, is_mapped| finder.find(thread, key, is_mapped);
        let (open, found) = find(me, key, false).expect("it is open");
        assert_eq!((found.size, found.path.as_deref()), (10, Some(file.path())));
        let dev = key.dev + 1;
        let other = find(me, FileKey { dev, ..key }, false);
        assert!(other.is_none(), "of another device");
        let way = found.way;
        drop(open);
        assert!(way.open(key).is_some(), "it is there");
        drop(file);
        assert!(way.open(key).is_none(), "deleted");
        assert!(find(me, key, false).is_none(), "closed");
        assert!(find(u32::MAX, key, true).is_none(), "no such thread");
    }

    #[test]
    fn a_list_serves_for_a_few_times_what_it_took() {
        let began = Instant::now();
        let list = listed(|| BTreeSet::from([7]));
        let took = began.elapsed();
        assert!(list.inodes.contains(&7) && list.until > began);
        assert!(list.until <= began + took + took * SERVES + Duration::from_micros(10));
    }
}
