//! All file operations in a cache's folder. These operations use file descriptors, never follow a symbolic link, and never leave
//! the folder.
//!
//! ```text
//!   DIR/foreread-cache-2/        2 is the version of the format; folders of other versions are not touched
//!     CACHEDIR.TAG               makes backup programs skip the folder
//!     size                       bytes of each of the 256 folders, changed under a lock (account.rs)
//!     claims                     empty; a process locks bytes of it while it fetches (claims.rs)
//!     latest/0123...             the version of an object that was read last (latest.rs)
//!     names/0123...              the last listing of a folder (names.rs)
//!     ab/abcd....sums, .data     checksums and bytes of a version (object.rs)
//! ```
//! If a group of users shares the folder, each of them can replace the files in it at any time. So a file or folder is first
//! opened with `openat2`, then checked, and then changed only through its descriptor. Operations by name (create, remove, rename)
//! use the descriptor of the containing folder and a name without a slash.

use super::settings::DiskCacheSettings;
use crate::source::descriptor::write_all;
use crate::source::{SourceOpenError, errno_text};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatVfs};
use rustix::io::Errno;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The name of the subfolder for this version of the cache format.
pub const FORMAT_FOLDER: &str = "foreread-cache-2";
/// The name of the subfolder for the previous version of the cache format. foreread reports this folder to the user, but never
/// reads or changes it.
pub const OLD_FOLDER: &str = "foreread-cache-1";
/// Tells backup programs that the folder can be recreated (bford.info/cachedir).
const TAG_NAME: &str = "CACHEDIR.TAG";
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by foreread; it may be removed at any time.\n";
/// Suffix of a file while it is being written.
const NEW: &str = ".new";
/// A file with that suffix that has not changed for this long was left behind by a process that has ended.
const ABANDONED: Duration = Duration::from_secs(3600);
/// How often an open is tried if it fails for a temporary reason.
const MAX_OPENS: u32 = 16;
const OTHERS_MAY_WRITE: u32 = 0o022;

pub struct CacheFolder {
    root: OwnedFd,
    /// Mode of created files and folders. It never gives access to others than the owner and the group.
    mode: Mode,
    /// Whether a group shares the folder; created files then ignore the umask.
    shares: bool,
    /// Whether a folder of the previous format version exists beside it.
    pub has_old: bool,
}

/// How messages begin if a folder cannot be used.
const CANNOT_USE: &str = "this folder cannot be used as a disk cache";
const CANNOT_INSPECT: &str = "cannot inspect the disk cache";

fn refused(
    dir: &Path,
    what: &str,
    why: impl Display,
    remedy: &str,
    errno: Errno,
) -> SourceOpenError {
    SourceOpenError::new(dir, format!("{what}: {why}"), remedy, errno.raw_os_error())
}

fn text_of(errno: Errno) -> String {
    errno_text(errno.raw_os_error())
}

/// Opens a file below a folder. Never follows a link, leaves the folder or crosses a mount point.
fn open_below(folder: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let inside = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    // A signal or a concurrent rename may interrupt the open. If another user holds a lease on the file, it fails for longer.
    let mut left = MAX_OPENS;
    loop {
        left -= 1;
        match rustix::fs::openat2(folder, path, flags, mode, inside) {
            Err(Errno::INTR | Errno::AGAIN) if left > 0 => {}
            done => return done,
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl CacheFolder {
    /// Opens the folder, and creates it if needed.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or opened, or if other users may write to it.
    pub fn open(settings: &DiskCacheSettings) -> Result<CacheFolder, SourceOpenError> {
        let (dir, shares) = (&settings.dir, settings.others_trusted);
        let refuse = |why, errno| {
            let remedy = "use a folder that this user can write to";
            refused(dir, CANNOT_USE, why, remedy, errno)
        };
        let failed = |what: &str, errno| refuse(format!("{what}: {}", text_of(errno)), errno);
        make(dir).map_err(|errno| match errno {
            Errno::EXIST => refuse("it is a file".to_string(), errno),
            _ => failed("it cannot be made", errno),
        })?;
        let outer = rustix::fs::open(dir, DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| failed("it cannot be opened", errno))?;
        let outer_mode = trusted(settings, &outer, CANNOT_USE)?;
        let mode = Mode::from_raw_mode(if shares { outer_mode & 0o770 } else { 0o700 });
        let made = rustix::fs::mkdirat(&outer, FORMAT_FOLDER, mode);
        let root = open_below(&outer, FORMAT_FOLDER, DIRECTORY, Mode::empty());
        let root = root.map_err(|errno| match made {
            Ok(()) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS) => {
                failed(FORMAT_FOLDER, errno)
            }
            Err(errno) => failed("this user cannot write to it", errno),
        })?;
        trusted(settings, &root, CANNOT_USE)?;
        if made.is_ok() && shares {
            make_shared(&root, mode);
        }
        let folder = CacheFolder {
            has_old: has_old(&outer),
            root,
            mode,
            shares,
        };
        if folder.open_file(TAG_NAME, OFlags::RDONLY).is_err() {
            // The tag matters to backup programs only, so an error is ignored.
            let _ = folder.replace("", TAG_NAME, TAG.as_bytes());
        }
        Ok(folder)
    }

    /// Opens the folder if it contains a cache; creates nothing.
    ///
    /// # Errors
    /// Returns an error if there is no cache, if it cannot be opened, or if other users may write to it.
    pub fn open_existing(settings: &DiskCacheSettings) -> Result<CacheFolder, SourceOpenError> {
        let failed = |errno: Errno, absent: &str| {
            let (why, remedy) = match errno {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP => (
                    absent.to_string(),
                    "give the folder that was used with --disk-cache",
                ),
                _ => (
                    text_of(errno),
                    "run this command as the owner of the folder",
                ),
            };
            refused(&settings.dir, CANNOT_INSPECT, why, remedy, errno)
        };
        let outer = rustix::fs::open(&settings.dir, DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| failed(errno, "there is no such folder"))?;
        trusted(settings, &outer, CANNOT_INSPECT)?;
        let has_old = has_old(&outer);
        let old = match has_old {
            true => format!(
                ", only {OLD_FOLDER} of an older version of foreread (remove it with 'rm -r')"
            ),
            false => String::new(),
        };
        let root = open_below(&outer, FORMAT_FOLDER, DIRECTORY, Mode::empty())
            .map_err(|errno| failed(errno, &format!("it has no folder {FORMAT_FOLDER}{old}")))?;
        let mode = trusted(settings, &root, CANNOT_INSPECT)?;
        Ok(CacheFolder {
            has_old,
            root,
            mode: Mode::from_raw_mode(mode & 0o770),
            shares: settings.others_trusted,
        })
    }

    // ---- files ----

    /// Opens an existing regular file.
    pub fn open_file(&self, path: &str, flags: OFlags) -> Result<(OwnedFd, Stat), Errno> {
        let file = open_below(&self.root, path, flags | OFlags::NONBLOCK, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        // A file with a second hard link may also be a file outside the folder.
        if flags.contains(OFlags::RDWR) && stat.st_nlink > 1 {
            return Err(Errno::PERM);
        }
        Ok((file, stat))
    }

    /// Creates a new file, and its folder if needed.
    pub fn make_file(&self, folder: &str, name: &str) -> Result<OwnedFd, Errno> {
        let path = inside(folder, name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let mode = self.mode & Mode::from_raw_mode(0o666);
        let file = match open_below(&self.root, &path, flags, mode) {
            Err(Errno::NOENT) if !folder.is_empty() => {
                self.make_folder(folder)?;
                open_below(&self.root, &path, flags, mode)
            }
            done => done,
        }?;
        if self.shares {
            make_shared(&file, mode);
        }
        Ok(file)
    }

    /// Opens a regular file in this folder, so that it can be locked and changed. Creates the file if it does not exist.
    pub fn own_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        match self.open_file(name, OFlags::RDWR) {
            Err(Errno::NOENT) => match self.make_file("", name) {
                Err(Errno::EXIST) => self.open_file(name, OFlags::RDWR).map(|(file, _)| file),
                done => done,
            },
            done => done.map(|(file, _)| file),
        }
    }

    fn make_folder(&self, name: &str) -> Result<(), Errno> {
        match rustix::fs::mkdirat(&self.root, name, self.mode) {
            Ok(()) if self.shares => make_shared(&self.open_folder(name)?, self.mode),
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Opens a subfolder. An empty name opens the cache's folder itself.
    pub fn open_folder(&self, name: &str) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { "." } else { name };
        open_below(&self.root, name, DIRECTORY, Mode::empty())
    }

    /// Writes a file atomically, in place of an existing one, and creates its subfolder if needed.
    pub fn replace(&self, folder: &str, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let new = format!(".{:x}-{:x}{NEW}", std::process::id(), random());
        let file = self.make_file(folder, &new)?;
        let at = self.open_folder(folder)?;
        let done =
            write_all(&file, bytes, 0).and_then(|()| rustix::fs::renameat(&at, &new, &at, name));
        if done.is_err() {
            let _ = rustix::fs::unlinkat(&at, &new, AtFlags::empty());
        }
        done
    }

    pub fn small_text(&self, path: &str, most: usize) -> Result<String, Errno> {
        let (file, stat) = self.open_file(path, OFlags::RDONLY)?;
        let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
        if size > most {
            return Err(Errno::FBIG);
        }
        // The extra byte detects a file that has grown meanwhile.
        let mut bytes = vec![0; size + 1];
        let len = read_full(&file, &mut bytes, 0)?;
        bytes.truncate(len);
        let text = String::from_utf8(bytes).ok().filter(|_| len <= size);
        text.ok_or(Errno::INVAL)
    }

    pub fn remove(&self, folder: &str, name: &str) -> Result<(), Errno> {
        let at = self.open_folder(folder)?;
        rustix::fs::unlinkat(&at, name, AtFlags::empty())
    }

    /// Removes an empty subfolder.
    pub fn remove_folder(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.root, name, AtFlags::REMOVEDIR)
    }

    /// Calls `each` with the name and state of every entry of a subfolder, until `each` returns false. Also removes unfinished files
    /// whose writer has ended.
    pub fn entries(
        &self,
        folder: &str,
        each: &mut dyn FnMut(&str, &Stat) -> bool,
    ) -> Result<(), Errno> {
        let at = self.open_folder(folder)?;
        for entry in Dir::read_from(&at)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if name.starts_with('.') && name.ends_with(NEW) {
                if is_abandoned(&stat) {
                    let _ = rustix::fs::unlinkat(&at, name, AtFlags::empty());
                }
                continue;
            }
            if !each(name, &stat) {
                break;
            }
        }
        Ok(())
    }

    // ---- room ----

    /// Returns the bytes that are free for this user on the file system, and the size of the file system.
    pub fn free_bytes(&self) -> Result<(u64, u64), Errno> {
        Ok(room(&rustix::fs::fstatvfs(&self.root)?))
    }
}

/// Returns the free bytes and the size as `df` counts them: blocks that are reserved for others are in neither. Of a disk of 100 GB with
/// 40 GB reserved and 30 GB used, 30 GB of 60 GB are free.
fn room(stat: &StatVfs) -> (u64, u64) {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    let (mut free, total) = (
        bytes(stat.f_bavail),
        bytes(used.saturating_add(stat.f_bavail)),
    );
    // Few free inodes limit the room, too: each file needs one.
    if stat.f_files > 0 {
        let part = u128::from(stat.f_favail) * u128::from(total) / u128::from(stat.f_files);
        free = free.min(u64::try_from(part).unwrap_or(u64::MAX));
    }
    (free, total)
}

/// Gives a created file or folder this mode, whatever the umask is.
fn make_shared(made: &OwnedFd, mode: Mode) {
    let own = rustix::process::geteuid().as_raw();
    if rustix::fs::fstat(made).is_ok_and(|stat| stat.st_uid == own) {
        let _ = rustix::fs::fchmod(made, mode);
    }
}

fn has_old(outer: &OwnedFd) -> bool {
    open_below(outer, OLD_FOLDER, DIRECTORY, Mode::empty()).is_ok()
}

/// Returns true if a file has not changed for so long that its writer must have ended.
pub fn is_abandoned(stat: &Stat) -> bool {
    now_ns() - used_ns(stat) > ABANDONED.as_nanos() as i128
}

/// Returns when a file was last written or used, in nanoseconds since 1970.
pub fn used_ns(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// Returns the number of bytes that a file uses on disk.
pub fn disk_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512)
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes read.
pub fn read_full(file: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut len = 0;
    while len < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(len)
}

pub fn inside(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_string()
    } else {
        format!("{folder}/{name}")
    }
}

/// Creates a folder and its parents, with access for this user only.
fn make(dir: &Path) -> Result<(), Errno> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Returns the mode of a folder. Returns an error if other users may write to it and are not trusted.
fn trusted(
    settings: &DiskCacheSettings,
    folder: &OwnedFd,
    what: &str,
) -> Result<u32, SourceOpenError> {
    let refuse = |why: &str, remedy, errno| refused(&settings.dir, what, why, remedy, errno);
    let stat = rustix::fs::fstat(folder).map_err(|errno| {
        let why = format!("its owner cannot be read: {}", text_of(errno));
        refuse(&why, "use a folder that this user can write to", errno)
    })?;
    let own = rustix::process::geteuid().as_raw();
    let may_write = stat.st_mode & OTHERS_MAY_WRITE != 0;
    let is_of_other = stat.st_uid != own && stat.st_uid != 0;
    if settings.others_trusted || !(may_write || is_of_other) {
        return Ok(stat.st_mode);
    }
    let why = if may_write {
        "other users can write to it and so change the cached data"
    } else {
        "it belongs to another user, who could change the cached data"
    };
    let remedy = "use a folder that belongs to this user and has mode 0700, or add others=trusted";
    Err(refuse(why, remedy, Errno::PERM))
}

pub fn now_ns() -> i128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i128)
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_blocks_are_no_room() {
        let mut stat = rustix::fs::statvfs(".").expect("read");
        (stat.f_frsize, stat.f_files) = (1, 0);
        (stat.f_blocks, stat.f_bfree, stat.f_bavail) = (100, 70, 30);
        assert_eq!(room(&stat), (30, 60));
        // A tenth of the inodes are free.
        (stat.f_files, stat.f_favail) = (50, 5);
        assert_eq!(room(&stat), (6, 60));
    }
}
