//! Finds the names of files from the kernel's device and inode numbers.
//!
//! ```text
//!   while it runs, now and then: /proc/PID/fd, /proc/PID/maps of what is followed
//!   after the end, while names are missing: what it ran, its words, where libraries are, the folders of what was found,
//!   what is below the words, then whatever is nearest to what was found
//! ```
//! Nearest: the fewest steps up and down the tree. Of `site-packages/numpy/core/a.so`, which was mapped, `numpy` is one step away,
//! `numpy/lib` and `site-packages` two. One large folder far away takes no part of the limit before them, and the order is the same in
//! every run.
//!
//! A name is accepted only if device and inode agree and the file is not newer than the recording: a
//! number is given again.
//!
//! A file system may hang. So the search runs on a thread that can be abandoned, and other threads have the names found so far:
//! clones of a [`Finder`] share it. What a process has open is asked with AT_STATX_DONT_SYNC, which asks no server.
//!
//! Never: more entries of folders than the limit, or a link followed while searching.

use crate::touch::{place_of, place_of_open};
use foreread_os::host::{DeviceNumber, Host, mapped_files};
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_trace::FileInfo;
use foreread_trace::follow::call::FileKey;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that are looked at below the command's words and its folders, at most: some seconds.
pub const MAX_ENTRIES: u64 = 2 << 20;
/// Entries that are looked at elsewhere, at most: about a second. A file that was removed would cost all of them.
pub(crate) const MAX_FAR_ENTRIES: u64 = 1 << 18;
/// Where most of what every program reads is: its binary, its libraries, its settings.
const USUAL: [&str; 10] = [
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/etc",
    "/usr/lib/locale",
    "/usr/share/zoneinfo",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundName {
    pub path: PathBuf,
    /// Its size in bytes, when it was looked at.
    pub size: u64,
}

impl FoundName {
    pub fn info(&self) -> FileInfo {
        FileInfo {
            name: self.path.display().to_string(),
            size: Some(self.size),
        }
    }
}

/// The names that were found, and where to look for others.
#[derive(Debug, Default)]
struct NameIndex {
    found: HashMap<FileKey, FoundName>,
    /// Folders where a search may begin.
    roots: Vec<PathBuf>,
}

/// Finds names. Clones share the results.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    known: Arc<Mutex<NameIndex>>,
    /// Files and entries of folders that were looked at: it moves as long as file systems answer.
    looked: Arc<AtomicU64>,
}

/// Where a search goes on from a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    Flat,
    Down,
    Around,
}

/// A search under way.
struct Search {
    missing: HashSet<FileKey>,
    /// Where the files are: no other is searched.
    devices: HashSet<u32>,
    /// Folders that were looked at.
    seen: HashSet<FileKey>,
    until_unix_ns: i128,
    entries: u64,
}

fn folder_of(path: &Path) -> Option<PathBuf> {
    path.parent().map(Path::to_path_buf)
}

/// The kernel's numbers of a file, from those of stat(2).
pub fn file_key(dev: u64, ino: u64) -> FileKey {
    FileKey::new(rustix::fs::major(dev), rustix::fs::minor(dev), ino)
}

impl Finder {
    fn known(&self) -> MutexGuard<'_, NameIndex> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files and entries that were looked at until now.
    pub fn looked(&self) -> u64 {
        self.looked.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.looked.fetch_add(1, Ordering::Relaxed);
    }

    /// A folder where files may be that are read, or a file; the first are searched first.
    pub fn root(&self, path: PathBuf) {
        let mut known = self.known();
        if !known.roots.contains(&path) {
            known.roots.push(path);
        }
    }

    pub fn get(&self, place: FileKey) -> Option<FoundName> {
        self.known().found.get(&place).cloned()
    }

    /// How many of these have no name.
    pub fn nameless(&self, wanted: &[FileKey]) -> usize {
        let known = self.known();
        wanted
            .iter()
            .filter(|place| !known.found.contains_key(place))
            .count()
    }

    fn insert(&self, place: FileKey, path: PathBuf, size: u64) {
        let mut known = self.known();
        let found = known.found.entry(place);
        // A file that was still being written when it was first looked at.
        let found = found.and_modify(|named| named.size = named.size.max(size));
        found.or_insert(FoundName { path, size });
    }

    /// Looks at what these processes have open and mapped. Those that are gone have nothing.
    pub fn look(&self, processes: &[u32]) {
        for pid in processes {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            if let Ok(cwd) = fs::read_link(folder.join("cwd")) {
                self.root(cwd);
            }
            for entry in fs::read_dir(folder.join("fd"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let link = entry.path();
                self.count();
                if let (Some((place, size)), Ok(path)) =
                    (place_of_open(&link), fs::read_link(&link))
                    && path.is_absolute()
                {
                    self.insert(place, path, size);
                }
            }
            let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
            let mut latest = "";
            for path in mapped_files(&maps).map(|mapping| mapping.path) {
                if path != latest {
                    latest = path;
                    self.count();
                    let path = PathBuf::from(path);
                    if let Some((place, size)) = place_of(&path) {
                        self.insert(place, path, size);
                    }
                }
            }
        }
    }

    /// Searches for these files from `roots` and from what was run (`ran`) on, on a thread, as long as file systems answer; whether they did to the
    /// end. Without a thread, or an answer, names are those that were found meanwhile.
    pub(super) fn search_while_answered(
        &self,
        wanted: Vec<FileKey>,
        roots: Vec<PathBuf>,
        ran: Vec<PathBuf>,
        until_unix_ns: i128,
    ) -> bool {
        let finder = self.clone();
        let search = move || {
            // Our own libraries are mostly those of the command.
            finder.look(&[std::process::id()]);
            for root in roots {
                fs::canonicalize(root)
                    .into_iter()
                    .for_each(|root| finder.root(root));
            }
            ran.into_iter().for_each(|name| finder.root(name));
            finder.search(&wanted, until_unix_ns);
        };
        let search = Task::start("foreread-names", search).ok();
        search.is_some_and(|search| {
            search
                .while_moving(END_PATIENCE, || self.looked())
                .is_some()
        })
    }

    /// Searches for the files of `wanted` that have no name yet. A file that was made after `until_unix_ns` is another one.
    pub fn search(&self, wanted: &[FileKey], until_unix_ns: i128) {
        self.search_up_to(wanted, until_unix_ns, MAX_FAR_ENTRIES);
    }

    fn search_up_to(&self, wanted: &[FileKey], until_unix_ns: i128, max_far_entries: u64) {
        let (missing, roots): (HashSet<FileKey>, Vec<PathBuf>) = {
            let known = self.known();
            let missing = wanted
                .iter()
                .copied()
                .filter(|place| !known.found.contains_key(place))
                .collect();
            (missing, known.roots.clone())
        };
        let devices: HashSet<u32> = wanted.iter().map(|place| place.dev).collect();
        let mut search = Search {
            missing,
            devices,
            seen: HashSet::new(),
            until_unix_ns,
            entries: 0,
        };
        for folder in roots.iter().cloned().chain(USUAL.map(PathBuf::from)) {
            self.walk([folder], &mut search, Walk::Flat, MAX_ENTRIES);
        }
        self.walk(self.found_folders(), &mut search, Walk::Flat, MAX_ENTRIES);
        search.seen.clear();
        for folder in roots {
            self.walk([folder], &mut search, Walk::Down, MAX_ENTRIES);
        }
        // What is near was listed already, but not where it leads to.
        search.seen.clear();
        let most = search.entries + max_far_entries;
        self.walk(self.found_folders(), &mut search, Walk::Around, most);
        // File systems of which nothing was found.
        let mounted = Host::here().mounts().into_iter().filter(|mount| {
            let key = FileKey::new(mount.number.major, mount.number.minor, 0);
            search.devices.contains(&key.dev)
        });
        let points: Vec<PathBuf> = mounted.map(|mount| mount.point).collect();
        self.walk(points, &mut search, Walk::Down, most);
    }

    /// The folders of what was found, in the order of their names.
    fn found_folders(&self) -> BTreeSet<PathBuf> {
        let known = self.known();
        let folders = known.found.values().map(|named| folder_of(&named.path));
        folders.flatten().collect()
    }

    /// Folder by folder, the nearest first.
    fn walk(
        &self,
        from: impl IntoIterator<Item = PathBuf>,
        search: &mut Search,
        walk: Walk,
        most: u64,
    ) {
        let mut folders = VecDeque::from_iter(from);
        while let Some(folder) = folders.pop_front() {
            if search.missing.is_empty() {
                return;
            }
            let Ok(meta) = fs::metadata(&folder) else {
                continue;
            };
            let here = file_key(meta.dev(), meta.ino());
            if !meta.is_dir() {
                self.take(here, &folder, search);
                continue;
            }
            if !search.devices.contains(&here.dev) || !search.seen.insert(here) {
                continue;
            }
            if walk == Walk::Around {
                folders.extend(folder_of(&folder));
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                search.entries += 1;
                self.count();
                if search.entries > most {
                    return;
                }
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() && walk != Walk::Flat {
                    folders.push_back(entry.path());
                } else if kind.is_file() {
                    let place = FileKey {
                        dev: here.dev,
                        ino: entry.ino(),
                    };
                    if search.missing.contains(&place) {
                        self.take(place, &entry.path(), search);
                    }
                }
            }
        }
    }

    fn take(&self, place: FileKey, path: &Path, search: &mut Search) {
        if !search.missing.contains(&place) {
            return;
        }
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let Ok(stat) = statx(CWD, path, AtFlags::empty(), flags) else {
            return;
        };
        let now = FileKey::new(stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let born =
            i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec);
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let is_file = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::RegularFile;
        if now == place && is_file && (!has_birth || born <= search.until_unix_ns) {
            search.missing.remove(&place);
            self.insert(place, path.to_path_buf(), stat.stx_size);
        }
    }
}

// Block devices, by their names in page cache events.
//
// File systems read their own data (inodes, folders) through the page cache of the block device. Its pages belong to a file system of the
// kernel's own that is never mounted; the number of the inode is that of the device:
//
// ```text
//   add_to_page_cache dev 0:3 ino 0x700000     0:3 is not mounted, there is a device 7:0    ──► /dev/loop0
//   add_to_page_cache dev 0:45 ino 0x700000    0:45 is a mount (NFS)                       ──► a file
// ```

/// Those of the machine, when it was looked at.
#[derive(Debug, Default)]
pub(super) struct BlockDevices {
    /// By the number that their inodes have.
    known: HashMap<u64, FoundName>,
    /// Numbers of the file systems that are mounted.
    mounted: HashSet<u32>,
}

impl BlockDevices {
    pub(super) fn of_machine() -> BlockDevices {
        BlockDevices::of(&Host::here())
    }

    fn of(host: &Host) -> BlockDevices {
        let mounts = host.mounts().into_iter();
        let known = host.block_nodes().into_iter().map(|node| {
            let inode = u64::from(kernel_number(node.number));
            let (path, size) = (node.path, node.size);
            (inode, FoundName { path, size })
        });
        BlockDevices {
            known: known.collect(),
            mounted: mounts.map(|mount| kernel_number(mount.number)).collect(),
        }
    }

    /// Whether this is a block device.
    pub(super) fn has(&self, place: FileKey) -> bool {
        self.get(place).is_some()
    }

    /// Where it is, and how large.
    pub(super) fn get(&self, place: FileKey) -> Option<&FoundName> {
        let (major, _) = place.device();
        self.known
            .get(&place.ino)
            .filter(|_| major == 0 && !self.mounted.contains(&place.dev))
    }
}

/// The same in one number, as the kernel's events have it.
fn kernel_number(number: DeviceNumber) -> u32 {
    FileKey::new(number.major, number.minor, 0).dev
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// A package whose library was mapped, and whose other files were closed before they could be looked at, beside a large folder of
    /// which something was found too.
    #[test]
    fn what_is_near_is_found_before_what_is_large() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str| {
            let path = folder.path().join("a/b/c/d").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(&path, name).expect("room");
            (place_of(&path).expect("a file").0, path)
        };
        let mapped = make("lib/packages/fast/core/a.so");
        let wanted = [
            make("lib/packages/fast/lib/io.py"),
            make("lib/packages/six.py"),
        ];
        let in_large = make("large/one.dat");
        for n in 0..400 {
            make(&format!("large/x/y/{}/{n}.dat", n % 20));
        }
        let keys = wanted.each_ref().map(|(key, _)| *key);
        let now = i128::MAX;
        for _ in 0..4 {
            let finder = Finder::default();
            for (key, path) in [&mapped, &in_large] {
                finder.insert(*key, path.clone(), 1);
            }
            finder.search_up_to(&keys, now, 150);
            for (key, path) in &wanted {
                assert_eq!(finder.get(*key).map(|named| named.path), Some(path.clone()));
            }
            assert!(finder.looked() > 0 && finder.nameless(&keys) == 0);
        }
    }

    /// The size is that of the latest look.
    #[test]
    fn a_file_that_grows_while_it_is_recorded_has_its_later_size() {
        let (finder, key) = (Finder::default(), FileKey::new(8, 1, 5));
        finder.insert(key, PathBuf::from("/a"), 0);
        finder.insert(key, PathBuf::from("/a"), 70_000);
        assert_eq!(finder.get(key).map(|named| named.size), Some(70_000));
    }

    #[test]
    fn a_block_device_is_an_inode_of_what_is_not_mounted() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(path, text).expect("room");
        };
        write(
            "sys/dev/block/7:0/uevent",
            "MAJOR=7\nMINOR=0\nDEVNAME=loop0\n",
        );
        write("sys/dev/block/7:0/size", "16\n");
        write(
            "proc/self/mountinfo",
            "31 24 254:0 / / rw - ext4 /dev/vda rw\n40 24 0:45 / /mnt rw - nfs a:/b rw\n",
        );
        let blocks = BlockDevices::of(&Host::below(root.path()));
        let key = |major, minor, ino| FileKey::new(major, minor, ino);
        let found = blocks.get(key(0, 3, 7 << 20)).expect("it is there");
        assert_eq!(
            (found.path.as_path(), found.size),
            (Path::new("/dev/loop0"), 8192)
        );
        for (other, why) in [
            (key(0, 45, 7 << 20), "a file of a mount"),
            (key(254, 0, 7 << 20), "a file of a disk"),
            (key(0, 3, 8 << 20), "no such device"),
        ] {
            assert!(!blocks.has(other), "{why}");
        }
    }
}
