//! What a file is called that the kernel names by device and inode.
//!
//! ```text
//!   while it runs, now and then: /proc/PID/fd, /proc/PID/maps of what is followed
//!   after the end, while names are missing: what it ran, its words, where libraries are, the folders of what was found,
//!   what is below them, the rest of those file systems
//! ```
//! A name is taken only where device and inode agree, and where the file is no younger than the recording: a
//! number is given again. Never: more entries of folders than the limit, or a link followed while searching.

use foreread_trace::follow::event::FileKey;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Entries that are looked at below the command's words and its folders, at most: some seconds.
pub const MAX_ENTRIES: u64 = 2 << 20;
/// Entries that are looked at elsewhere, at most: about a second. A file that was removed would cost all of them.
pub const MAX_FAR_ENTRIES: u64 = 1 << 18;
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

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes, when it was looked at.
    pub size: u64,
}

/// The names that were found.
#[derive(Debug, Default)]
pub struct Finder {
    found: HashMap<FileKey, Named>,
    /// Folders where a search may begin.
    roots: Vec<PathBuf>,
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
#[must_use]
pub fn file_key(dev: u64, ino: u64) -> FileKey {
    FileKey::new(rustix::fs::major(dev), rustix::fs::minor(dev), ino)
}

/// The file at `path`, links followed, if it is one that can be read ahead.
#[must_use]
pub fn place_of(path: &Path) -> Option<(FileKey, u64)> {
    let meta = fs::metadata(path).ok()?;
    meta.is_file().then(|| (file_key(meta.dev(), meta.ino()), meta.len()))
}

impl Finder {
    /// A folder where files may be that are read, or a file; the first are searched first.
    pub fn root(&mut self, path: PathBuf) {
        if !self.roots.contains(&path) {
            self.roots.push(path);
        }
    }

    /// The name of a file.
    #[must_use]
    pub fn get(&self, place: FileKey) -> Option<&Named> {
        self.found.get(&place)
    }

    /// Looks at what these processes have open and mapped. Those that are gone have nothing.
    pub fn look(&mut self, processes: &[u32]) {
        for pid in processes {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            if let Ok(cwd) = fs::read_link(folder.join("cwd")) {
                self.root(cwd);
            }
            for entry in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
                let link = entry.path();
                if let (Some((place, size)), Ok(path)) = (place_of(&link), fs::read_link(&link))
                    && path.is_absolute()
                {
                    self.found.entry(place).or_insert(Named { path, size });
                }
            }
            let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
            let mut latest = "";
            for path in maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| path)) {
                if path != latest {
                    latest = path;
                    self.file(&PathBuf::from(format!("/{path}")));
                }
            }
        }
    }

    /// Takes the name of a file, if it is one.
    fn file(&mut self, path: &Path) {
        if let Some((place, size)) = place_of(path) {
            self.found.entry(place).or_insert_with(|| Named { path: path.to_path_buf(), size });
        }
    }

    /// Searches for the files of `wanted` that have no name yet; gives how many have none in the end. A file that was
    /// made after `until_unix_ns` is another one.
    pub fn search(&mut self, wanted: &[FileKey], until_unix_ns: i128) -> usize {
        let missing = wanted.iter().copied().filter(|place| !self.found.contains_key(place)).collect();
        let devices = wanted.iter().map(|place| place.dev).collect();
        let mut search = Search { missing, devices, seen: HashSet::new(), until_unix_ns, entries: 0 };
        let near = |finder: &Finder| -> Vec<PathBuf> {
            let all: HashSet<PathBuf> = finder.found.values().filter_map(|named| folder_of(&named.path)).collect();
            all.into_iter().collect()
        };
        let roots = self.roots.clone();
        for folder in roots.iter().cloned().chain(USUAL.map(PathBuf::from)).chain(near(self)) {
            self.walk(folder, &mut search, false, MAX_ENTRIES);
        }
        search.seen.clear();
        for folder in roots {
            self.walk(folder, &mut search, true, MAX_ENTRIES);
        }
        let most = search.entries + MAX_FAR_ENTRIES;
        for folder in near(self).into_iter().chain([PathBuf::from("/")]) {
            self.walk(folder, &mut search, true, most);
        }
        search.missing.len()
    }

    /// Folder by folder, the nearest first; `deep` goes into folders of folders.
    fn walk(&mut self, root: PathBuf, search: &mut Search, deep: bool, most: u64) {
        let mut folders = VecDeque::from([root]);
        while let Some(folder) = folders.pop_front() {
            if search.missing.is_empty() {
                return;
            }
            let Ok(meta) = fs::metadata(&folder) else { continue };
            let here = file_key(meta.dev(), meta.ino());
            if !meta.is_dir() {
                self.take(here, &folder, search);
                continue;
            }
            if !search.devices.contains(&here.dev) || !search.seen.insert(here) {
                continue;
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                search.entries += 1;
                if search.entries > most {
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && deep {
                    folders.push_back(entry.path());
                } else if kind.is_file() {
                    let place = FileKey { dev: here.dev, ino: entry.ino() };
                    if search.missing.contains(&place) {
                        self.take(place, &entry.path(), search);
                    }
                }
            }
        }
    }

    fn take(&mut self, place: FileKey, path: &Path, search: &mut Search) {
        if !search.missing.contains(&place) {
            return;
        }
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let Ok(stat) = statx(CWD, path, AtFlags::empty(), flags) else { return };
        let now = FileKey::new(stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let born = i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec);
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let is_file = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::RegularFile;
        if now == place && is_file && (!has_birth || born <= search.until_unix_ns) {
            search.missing.remove(&place);
            self.found.insert(place, Named { path: path.to_path_buf(), size: stat.stx_size });
        }
    }
}
