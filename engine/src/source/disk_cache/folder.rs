//! The folder of a cache, and all that is done in it: nothing here follows a symbolic link or leaves the folder.
//!
//! ```text
//!   DIR/foreread-cache-1/        version of the format; what has another number is left alone
//!     CACHEDIR.TAG               so that backups pass it over
//!     size                       bytes of all pieces, 8 bytes, changed under a lock
//!     claims                     empty; its bytes are locked by the process that fetches (claims.rs)
//!     latest/0123...             which version of an object was read last (latest.rs)
//!     names/0123...              the names of a folder as they were listed last (names.rs)
//!     ab/abcdef.../100000.186a0  a piece of a version; it says of what (piece.rs)
//! ```

use super::piece::{Extent, OpenPiece, PieceFault, SealedPiece, VersionHash};
use super::settings::DiskCacheSettings;
use crate::source::descriptor::write_all;
use crate::source::errno_text;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags, Timespec,
    Timestamps,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The folder of this version of the format.
pub const FORMAT_FOLDER: &str = "foreread-cache-1";
/// Says to backups that it can be made again (bford.info/cachedir).
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by foreread; it may be removed at any time.\n";
/// Behind the name of a file that is being written.
const NEW: &str = ".new";
/// A file that is being written for longer was left by a writer that is gone.
const ABANDONED: Duration = Duration::from_secs(3600);
/// How often a file is opened again that was not opened for a reason that passes.
const MAX_OPENS: u32 = 16;
/// Shorter files are written through the page cache.
const DIRECT_BYTES: usize = 256 << 10;
const OTHERS_MAY_WRITE: u32 = 0o022;

/// The folder of a cache.
pub struct CacheFolder {
    root: OwnedFd,
    /// Of what is made in it: that of the folder, without others, where its writers are trusted.
    mode: Mode,
    /// A group shares it, whatever the umask of a process is.
    shares: bool,
    /// Numbers files that are being written.
    written: AtomicU64,
}

/// Why a folder cannot be used, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct FolderError {
    pub why: String,
    pub remedy: String,
    pub errno: i32,
}

impl FolderError {
    pub fn of(what: &str, errno: Errno) -> FolderError {
        FolderError {
            why: format!("{what}: {}", errno_text(errno.raw_os_error())),
            remedy: "name a folder that this user can write".to_string(),
            errno: errno.raw_os_error(),
        }
    }
}

/// A file of a version's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceFile {
    pub extent: Extent,
    pub used_again: bool,
}

/// When a piece was used last, in nanoseconds since 1970, and the bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceUse {
    pub at_ns: i128,
    pub file_bytes: u64,
}

impl PieceUse {
    /// It has not changed for so long that the process which made it has ended.
    pub fn is_abandoned(self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos() as i128);
        now - self.at_ns > ABANDONED.as_nanos() as i128
    }
}

impl CacheFolder {
    /// Opens the folder, and makes it where it is not there.
    ///
    /// # Errors
    /// It cannot be made or opened, or others may write it.
    pub fn open(settings: &DiskCacheSettings) -> Result<CacheFolder, FolderError> {
        let dir = &settings.dir;
        make(dir).map_err(|errno| FolderError::of("it cannot be made", errno))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let outer = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(|errno| FolderError::of("it cannot be opened", errno))?;
        let outer_mode = trusted(&outer, settings.others_trusted)?;
        let shares = settings.others_trusted;
        let mode = Mode::from_raw_mode(if shares { outer_mode & 0o770 } else { 0o700 });
        match rustix::fs::mkdirat(&outer, FORMAT_FOLDER, mode) {
            // One that cannot be written and is there is read.
            Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS) => {}
            // Whatever the umask is.
            Ok(()) if shares => {
                let _ = rustix::fs::chmodat(&outer, FORMAT_FOLDER, mode, AtFlags::empty());
            }
            Ok(()) => {}
            Err(errno) => return Err(FolderError::of("nothing can be written there", errno)),
        }
        let root = rustix::fs::openat(
            &outer,
            FORMAT_FOLDER,
            flags | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .map_err(|errno| FolderError::of(FORMAT_FOLDER, errno))?;
        trusted(&root, settings.others_trusted)?;
        let folder = CacheFolder {
            root,
            mode,
            shares,
            written: AtomicU64::new(0),
        };
        // It is for backups alone.
        let _ = folder.put("CACHEDIR.TAG", TAG.as_bytes());
        Ok(folder)
    }

    /// Opens the folder if there is a cache in it, and makes nothing.
    ///
    /// # Errors
    /// There is none, it cannot be opened, or others may write it.
    pub fn open_existing(settings: &DiskCacheSettings) -> Result<CacheFolder, FolderError> {
        let failed = |why: &str, errno: Errno| FolderError {
            why: why.to_string(),
            remedy: "name the folder that --disk-cache named".to_string(),
            errno: errno.raw_os_error(),
        };
        let opened = |errno: Errno, absent: &str| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => failed(absent, errno),
            _ => FolderError {
                remedy: "run it as the user of the folder".to_string(),
                ..failed(&errno_text(errno.raw_os_error()), errno)
            },
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let outer = rustix::fs::open(&settings.dir, flags, Mode::empty())
            .map_err(|errno| opened(errno, "there is no such folder"))?;
        trusted(&outer, settings.others_trusted)?;
        let flags = flags | OFlags::NOFOLLOW;
        let root = rustix::fs::openat(&outer, FORMAT_FOLDER, flags, Mode::empty())
            .map_err(|errno| opened(errno, &format!("it has no folder {FORMAT_FOLDER}")))?;
        let mode = trusted(&root, settings.others_trusted)?;
        Ok(CacheFolder {
            root,
            mode: Mode::from_raw_mode(mode & 0o770),
            shares: settings.others_trusted,
            written: AtomicU64::new(0),
        })
    }

    // ---- files ----

    fn open_file(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = if flags.contains(OFlags::CREATE) {
            self.mode & Mode::from_raw_mode(0o666)
        } else {
            Mode::empty()
        };
        let inside =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // A signal may interrupt it, and a rename on the way. One that another user has leased stays so for long.
        let mut left = MAX_OPENS;
        loop {
            left -= 1;
            match rustix::fs::openat2(&self.root, path, flags, mode, inside) {
                Err(Errno::INTR | Errno::AGAIN) if left > 0 => {}
                Ok(file) if self.shares && flags.contains(OFlags::CREATE) => {
                    // Of a file that another user made it is so already.
                    let _ = rustix::fs::fchmod(&file, mode);
                    return Ok(file);
                }
                done => return done,
            }
        }
    }

    fn make_folder(&self, path: &str) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.root, path, self.mode)?;
        if self.shares {
            let _ = rustix::fs::chmodat(&self.root, path, self.mode, AtFlags::empty());
        }
        Ok(())
    }

    /// Opens a regular file to read it.
    pub fn read_file(&self, path: &str) -> Result<OwnedFd, Errno> {
        let file = self.open_file(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        Ok(file)
    }

    /// Opens a file of the cache to lock or change it, and makes it where it is not there.
    pub fn own_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Writes a file of the cache whole, where there is none.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<PutOutcome, Errno> {
        let new = self.begin("")?;
        self.finish(new, name, |file| write_all(file, bytes, 0))
    }

    /// Makes a folder of the cache beside those of the versions, where it is not there.
    pub fn make_own(&self, path: &str) -> Result<(), Errno> {
        match self.make_folder(path) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Writes a file of a folder whole, and puts it where another one may be.
    pub fn replace(&self, folder: &str, path: &str, bytes: &[u8]) -> Result<(), Errno> {
        let new = self.begin(folder)?;
        let done = write_all(&new.file, bytes, 0)
            .and_then(|()| rustix::fs::renameat(&self.root, &new.path, &self.root, path));
        if done.is_err() {
            let _ = self.remove(&new.path);
        }
        done
    }

    /// A file of at most `most` bytes, as text.
    pub fn small_text(&self, path: &str, most: usize) -> Result<String, Errno> {
        let file = self.read_file(path)?;
        let size = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(usize::MAX);
        if size > most {
            return Err(Errno::FBIG);
        }
        // One byte more: a file that grows meanwhile is not right.
        let (mut bytes, mut len) = (vec![0; size + 1], 0);
        while len < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        bytes.truncate(len);
        let text = String::from_utf8(bytes).ok().filter(|_| len <= size);
        text.ok_or(Errno::INVAL)
    }

    /// Writes a piece. It is there when this returns, and whole.
    pub fn put_piece(
        &self,
        version: VersionHash,
        extent: Extent,
        piece: &SealedPiece<'_>,
    ) -> Result<PutOutcome, Errno> {
        let folder = version.folder();
        let new = self.begin(&folder)?;
        self.finish(new, &inside(&folder, &extent.name(false)), |file| {
            // Past the page cache, since the engine has the bytes already; what is short costs more so than memory that can be freed.
            let direct = rustix::fs::fcntl_getfl(file)? | OFlags::DIRECT;
            if piece.len < DIRECT_BYTES || rustix::fs::fcntl_setfl(file, direct).is_err() {
                return write_all(file, &piece.padded[..piece.len], 0);
            }
            match write_all(file, piece.padded, 0) {
                Err(Errno::INVAL) => {
                    rustix::fs::fcntl_setfl(file, direct & !OFlags::DIRECT)?;
                    write_all(file, piece.padded, 0)?;
                }
                done => done?,
            }
            rustix::fs::ftruncate(file, piece.len as u64)
        })
    }

    fn begin(&self, folder: &str) -> Result<NewFile, Errno> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let path = inside(
            folder,
            &format!(".{:x}-{number:x}{NEW}", std::process::id()),
        );
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        match self.open_file(&path, flags) {
            Ok(file) => Ok(NewFile { file, path }),
            // Of a process of the same number, which is no more or on another machine.
            Err(Errno::EXIST) => {
                let path = inside(
                    folder,
                    &format!(".{:x}-{number:x}-{:x}{NEW}", std::process::id(), random()),
                );
                let file = self.open_file(&path, flags)?;
                Ok(NewFile { file, path })
            }
            Err(errno) => Err(errno),
        }
    }

    fn finish(
        &self,
        new: NewFile,
        path: &str,
        write: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<PutOutcome, Errno> {
        let done = write(&new.file).and_then(|()| {
            let keeps = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&self.root, &new.path, &self.root, path, keeps) {
                // Of a file system that does not know the flag.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::renameat(&self.root, &new.path, &self.root, path)
                }
                done => done,
            }
        });
        if done.is_err() {
            let _ = self.remove(&new.path);
        }
        match done {
            Ok(()) => Ok(PutOutcome::New),
            Err(Errno::EXIST) => Ok(PutOutcome::WasThere),
            Err(errno) => Err(errno),
        }
    }

    pub fn remove(&self, path: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.root, path, AtFlags::empty())
    }

    // ---- versions ----

    /// Makes the folder of a version.
    pub fn make_version(&self, version: VersionHash) -> Result<(), Errno> {
        let folder = version.folder();
        let (first, _) = folder.split_once('/').unwrap_or((&folder, ""));
        for path in [folder.as_str(), first, folder.as_str()] {
            match self.make_folder(path) {
                Ok(()) if path == folder => break,
                Ok(()) | Err(Errno::EXIST) => {}
                Err(Errno::NOENT) if path == folder => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The text about a version: that of its first piece which has one.
    pub fn about(&self, version_folder: &str) -> Result<String, Errno> {
        let mut about = Err(Errno::NOENT);
        self.names(version_folder, &mut |name| {
            let is_piece = name.to_str().and_then(Extent::of_name).is_some();
            if is_piece {
                let file = self.read_file(&inside(version_folder, &name.to_string_lossy()));
                let text = file.ok().and_then(|file| OpenPiece::text(&file).ok());
                about = text.ok_or(Errno::IO);
            }
            about.is_err()
        })?;
        about
    }

    /// When the folder of a version changed last; nothing where there is none.
    pub fn changed_at(&self, version: VersionHash) -> Result<i128, Errno> {
        self.use_of(&version.folder()).map(|used| used.at_ns)
    }

    /// When a folder was made, in nanoseconds since 1970, where its file system knows that.
    pub fn made_at(&self, path: &str) -> Option<i128> {
        let wanted = StatxFlags::BTIME;
        let stat = rustix::fs::statx(&self.root, path, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted);
        is_known.then(|| nanoseconds(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
    }

    fn open_dir(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open_file(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Calls `each` with the name of every entry of a folder, until it says false. The empty path is the folder of the cache.
    pub fn names(&self, path: &str, each: &mut dyn FnMut(&OsStr) -> bool) -> Result<(), Errno> {
        let folder = if path.is_empty() {
            rustix::fs::openat(
                &self.root,
                ".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?
        } else {
            self.open_dir(path)?
        };
        for entry in Dir::new(folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && !each(name) {
                break;
            }
        }
        Ok(())
    }

    /// The pieces of a version.
    pub fn pieces(
        &self,
        version: VersionHash,
        each: &mut dyn FnMut(PieceFile),
    ) -> Result<(), Errno> {
        let folder = version.folder();
        self.names(&folder, &mut |name| {
            self.remove_abandoned(&folder, name);
            let piece = name.to_str().and_then(Extent::of_name);
            if let Some((extent, used_again)) = piece {
                each(PieceFile { extent, used_again });
            }
            true
        })
    }

    /// Removes what a writer that is gone has left. Was it that?
    pub fn remove_abandoned(&self, version_folder: &str, name: &OsStr) -> bool {
        if !is_new(name) {
            return false;
        }
        let path = inside(version_folder, &name.to_string_lossy());
        self.use_of(&path).is_ok_and(|used| used.is_abandoned()) && self.remove(&path).is_ok()
    }

    /// Opens a piece under either name that it may have, and says whether it is that of one that was used again.
    pub fn open_piece(
        &self,
        version: VersionHash,
        piece: PieceFile,
    ) -> Result<OwnedFd, PieceFault> {
        let folder = version.folder();
        let name = |used_again| inside(&folder, &piece.extent.name(used_again));
        let file = match self.read_file(&name(piece.used_again)) {
            Err(Errno::NOENT) => self.read_file(&name(!piece.used_again)),
            done => done,
        }?;
        Ok(file)
    }

    /// A piece was used now; one that is used again gets the name that says so.
    pub fn note_use(&self, version: VersionHash, piece: PieceFile) -> Result<(), Errno> {
        let folder = version.folder();
        let path = |used_again| inside(&folder, &piece.extent.name(used_again));
        if !piece.used_again {
            rustix::fs::renameat(&self.root, path(false), &self.root, path(true))?;
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        rustix::fs::utimensat(&self.root, path(true), &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes a piece, whichever name it has.
    pub fn remove_piece(&self, version: VersionHash, piece: PieceFile) -> Result<(), Errno> {
        let folder = version.folder();
        let path = |used_again| inside(&folder, &piece.extent.name(used_again));
        match self.remove(&path(piece.used_again)) {
            Err(Errno::NOENT) => self.remove(&path(!piece.used_again)),
            done => done,
        }
    }

    /// What is known of a file: its last use and its length.
    pub fn use_of(&self, path: &str) -> Result<PieceUse, Errno> {
        let stat = rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(PieceUse {
            at_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            file_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        })
    }

    /// Removes the folder of a version, if nothing is in it.
    pub fn remove_version(&self, version_folder: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.root, version_folder, AtFlags::REMOVEDIR)
    }

    // ---- room ----

    /// Bytes that are free on the file system for this user, and all that it has.
    pub fn free_bytes(&self) -> Result<(u64, u64), Errno> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let (mut free, total) = (bytes(stat.f_bavail), bytes(stat.f_blocks));
        // A file system that is short of inodes is as short of room.
        if stat.f_files > 0 {
            let part = u128::from(stat.f_favail) * u128::from(total) / u128::from(stat.f_files);
            free = free.min(u64::try_from(part).unwrap_or(u64::MAX));
        }
        Ok((free, total))
    }
}

/// What became of a file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    New,
    /// Another process has written the same.
    WasThere,
}

struct NewFile {
    file: OwnedFd,
    path: String,
}

/// Is this the name of a file that is being written?
fn is_new(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(NEW.as_bytes())
}

pub fn inside(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_string()
    } else {
        format!("{folder}/{name}")
    }
}

/// Makes a folder for this user alone, and those above it.
fn make(dir: &Path) -> Result<(), Errno> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The mode of a folder that no other user may write, or whose writers are trusted.
fn trusted(folder: &OwnedFd, others_trusted: bool) -> Result<u32, FolderError> {
    let stat = rustix::fs::fstat(folder);
    let stat = stat.map_err(|errno| FolderError {
        why: errno_text(errno.raw_os_error()),
        remedy: "name another folder".to_string(),
        errno: errno.raw_os_error(),
    })?;
    let own = rustix::process::geteuid().as_raw();
    let may_write = stat.st_mode & OTHERS_MAY_WRITE != 0;
    let is_of_other = stat.st_uid != own && stat.st_uid != 0;
    if others_trusted || !(may_write || is_of_other) {
        return Ok(stat.st_mode);
    }
    let why = if may_write {
        "other users may write it, and so give any bytes to its readers"
    } else {
        "it belongs to another user, so that it may hold any bytes"
    };
    Err(FolderError {
        why: why.to_string(),
        remedy: "name a folder of this user with mode 0700, or write others=trusted".to_string(),
        errno: Errno::PERM.raw_os_error(),
    })
}

/// Seconds since 1970.
pub fn now_seconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn nanoseconds(seconds: impl Into<i128>, nanoseconds: impl Into<i128>) -> i128 {
    seconds.into() * 1_000_000_000 + nanoseconds.into()
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
