//! Finds the names of files from the kernel's device and inode numbers.
//!
//! ```text
//!   while the command runs, from time to time: /proc/PID/fd, /proc/PID/maps of followed processes
//!   after the end, while names are missing: programs that it ran, its arguments, library folders, the folders of found files,
//!   folders below its arguments, then the folders nearest to found files
//! ```
//! The nearest folder is the one with the shortest path to the folder of a found file, counted in steps up and down the folder tree.
//! Example: if `site-packages/numpy/core/a.so` was mapped, `numpy` is one step away from the file's folder, and `numpy/lib` and
//! `site-packages` are two steps away. Nearer folders are searched first, so a large folder far away cannot use up the limit of the
//! search before them. The order of folders is the same in every run.
//!
//! A name is accepted only if device and inode agree and the file is not newer than the recording, because inode
//! numbers are reused.
//!
//! A file system may hang, so the search runs on a thread that can be abandoned. The names found so far are available to other
//! threads, because all clones of a [`Finder`] share the names. Open files of a process are queried with AT_STATX_DONT_SYNC, which
//! sends no request to a server.
//!
//! The number of examined folder entries is limited, and a search follows no links.

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

/// Maximum number of folder entries that are examined in a search; examining that many takes a few seconds.
pub const MAX_ENTRIES: u64 = 2 << 20;
/// Most entries that are examined elsewhere: about a second. A deleted file would cost all of them.
pub(crate) const MAX_FAR_ENTRIES: u64 = 1 << 18;
/// Where every program reads most: its binary, its libraries, its settings.
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
    pub size: u64,
}

impl FoundName {
    pub fn info(&self) -> FileInfo {
        FileInfo::new(self.path.display().to_string(), Some(self.size))
    }
}

/// The names that were found, and where to search for others.
#[derive(Debug, Default)]
struct NameIndex {
    found: HashMap<FileKey, FoundName>,
    /// Folders where a search may begin.
    roots: Vec<PathBuf>,
}

/// Finds the names of files. All clones of a `Finder` share the names that were found.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    known: Arc<Mutex<NameIndex>>,
    /// Files and folder entries that were examined: it increases as long as file systems answer.
    looked: Arc<AtomicU64>,
}

/// Where a search continues from a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    Flat,
    Down,
    Around,
}

struct Search {
    missing: HashSet<FileKey>,
    /// Devices with the wanted files: no other device is searched.
    devices: HashSet<u32>,
    seen: HashSet<FileKey>,
    until_unix_ns: i128,
    entries: u64,
}

fn folder_of(path: &Path) -> Option<PathBuf> {
    path.parent().map(Path::to_path_buf)
}

/// Converts the device and inode number that stat(2) returns to the form in which the kernel's events contain them.
pub fn file_key(dev: u64, ino: u64) -> FileKey {
    FileKey::new(rustix::fs::major(dev), rustix::fs::minor(dev), ino)
}

impl Finder {
    fn known(&self) -> MutexGuard<'_, NameIndex> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of files and folder entries examined so far.
    pub fn looked(&self) -> u64 {
        self.looked.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.looked.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a file to the places to search, or a folder that may contain files without a known name. Paths are searched in the order in
    /// which they are added.
    pub fn root(&self, path: PathBuf) {
        let mut known = self.known();
        if !known.roots.contains(&path) {
            known.roots.push(path);
        }
    }

    pub fn get(&self, place: FileKey) -> Option<FoundName> {
        self.known().found.get(&place).cloned()
    }

    /// Returns how many of these files have no known name.
    pub fn nameless(&self, wanted: &[FileKey]) -> usize {
        let known = self.known();
        let is_nameless = |place: &&FileKey| !known.found.contains_key(place);
        wanted.iter().filter(is_nameless).count()
    }

    fn insert(&self, place: FileKey, path: PathBuf, size: u64) {
        let mut known = self.known();
        let found = known.found.entry(place);
        // The file was still being written when it was first examined.
        let found = found.and_modify(|named| named.size = named.size.max(size));
        found.or_insert(FoundName { path, size });
    }

    /// Examines the open and mapped files of these processes, to find names. Processes that have ended are skipped.
    pub fn look(&self, processes: &[u32]) {
        for pid in processes {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            if let Ok(cwd) = fs::read_link(folder.join("cwd")) {
                self.root(cwd);
            }
            let entries = fs::read_dir(folder.join("fd")).into_iter();
            for entry in entries.flatten().flatten() {
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

    /// Searches for these files on a thread, starting at `roots` and at the started programs (`ran`), as long as file systems answer.
    /// Returns whether they did until the end. Without a thread or an answer, only the names found so far are known.
    pub(super) fn search_while_answered(
        &self,
        wanted: Vec<FileKey>,
        roots: Vec<PathBuf>,
        ran: Vec<PathBuf>,
        until_unix_ns: i128,
    ) -> bool {
        let finder = self.clone();
        let search = move || {
            // Most of the command's libraries are also foreread's own.
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

    /// Searches for the files in `wanted` that have no name yet. A file that was created after `until_unix_ns` is ignored, because it
    /// may have the inode number of a deleted file.
    pub fn search(&self, wanted: &[FileKey], until_unix_ns: i128) {
        self.search_up_to(wanted, until_unix_ns, MAX_FAR_ENTRIES);
    }

    fn search_up_to(&self, wanted: &[FileKey], until_unix_ns: i128, max_far_entries: u64) {
        let known = self.known();
        let is_missing = |place: &&FileKey| !known.found.contains_key(place);
        let missing = wanted.iter().filter(is_missing).copied().collect();
        let roots = known.roots.clone();
        drop(known);
        let mut search = Search {
            missing,
            devices: wanted.iter().map(|place| place.dev).collect(),
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
        // Nearby folders were already listed, but not what they lead to.
        search.seen.clear();
        let most = search.entries + max_far_entries;
        self.walk(self.found_folders(), &mut search, Walk::Around, most);
        // Continue with file systems on which nothing was found.
        let mounted = Host::here().mounts().into_iter().filter(|mount| {
            let key = FileKey::new(mount.number.major, mount.number.minor, 0);
            search.devices.contains(&key.dev)
        });
        let points: Vec<PathBuf> = mounted.map(|mount| mount.point).collect();
        self.walk(points, &mut search, Walk::Down, most);
    }

    /// The folders of the found files, sorted by name.
    fn found_folders(&self) -> BTreeSet<PathBuf> {
        let known = self.known();
        let folders = known.found.values().map(|named| folder_of(&named.path));
        folders.flatten().collect()
    }

    /// Searches folder by folder, the nearest first.
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
                    let ino = entry.ino();
                    let place = FileKey { ino, ..here };
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
// File systems read their metadata (inodes, folders) through the page cache of the block device. The pages belong to an internal file
// system of the kernel that is never mounted; their inode number is the number of the device:
//
// ```text
//   add_to_page_cache dev 0:3 ino 0x700000     0:3 is not mounted, there is a device 7:0    ──► /dev/loop0
//   add_to_page_cache dev 0:45 ino 0x700000    0:45 is a mount (NFS)                       ──► a file
// ```

/// The block devices of the machine, when they were examined.
#[derive(Debug, Default)]
pub(super) struct BlockDevices {
    /// Block devices by the number of their inodes.
    known: HashMap<u64, FoundName>,
    /// Numbers of the mounted file systems.
    mounted: HashSet<u32>,
}

impl BlockDevices {
    pub(super) fn of(host: &Host) -> BlockDevices {
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

    pub(super) fn has(&self, place: FileKey) -> bool {
        self.get(place).is_some()
    }

    pub(super) fn get(&self, place: FileKey) -> Option<&FoundName> {
        let (major, _) = place.device();
        self.known
            .get(&place.ino)
            .filter(|_| major == 0 && !self.mounted.contains(&place.dev))
    }
}

/// The number in one integer, as in the kernel's events.
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
