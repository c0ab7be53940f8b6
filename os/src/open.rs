//! Opens files that users name or that are in users' folders: the file type is checked first, and only the checked file is opened.
//!
//! ```text
//!   path ──O_PATH──► descriptor without access ──fstat──► the right kind? ──/proc/self/fd──► the same file, opened
//! ```
//! open(2) has side effects: a FIFO blocks and wakes a writer, a tape rewinds, a watchdog starts. Between stat(2) and open(2), the owner of
//! the folder can replace a regular file by a FIFO or a device. With O_PATH the type of a file is checked before the file is opened for
//! reading, and the file that is then opened is the file that was checked. Symbolic links of users are followed.
//!
//! Source: open(2), "O_PATH"; proc_pid_fd(5).

use rustix::fs::{Mode, OFlags, fstatfs};
use std::fs::{File, FileType, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns a path (in `/proc/self/fd`) to an open file of this process, even if the file was renamed. The path is valid while the
/// file is open.
pub fn descriptor_path(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

pub fn shared_descriptor_path(file: impl AsFd) -> PathBuf {
    let (own, descriptor) = (std::process::id(), file.as_fd().as_raw_fd());
    PathBuf::from(format!("/proc/{own}/fd/{descriptor}"))
}

/// `FUSE_SUPER_MAGIC` of linux/magic.h.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// Returns true if a file is on FUSE. This function calls fstatfs, which queries the FUSE server. `file` may be a descriptor that
/// was opened with O_PATH.
pub fn is_on_fuse(file: impl AsFd) -> bool {
    // The type of the number differs between machines.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    fstatfs(file).is_ok_and(|about| about.f_type as u64 == FUSE_SUPER_MAGIC)
}

/// Asks the file system at a path for its free space (statfs). The kernel never answers this call from its cache, but always passes
/// it to a FUSE server. Returns an error if the path does not exist, or if the server has ended or refuses. If the server hangs,
/// this function does not return.
pub fn ask_file_system(place: &Path) -> Result<()> {
    Ok(rustix::fs::statvfs(place).map(drop)?)
}

/// A file whose type is known, but which is not opened yet.
#[derive(Debug)]
pub struct UnopenedFile {
    /// Opened with O_PATH, which gives no access to the data.
    file: File,
    meta: Metadata,
    path: PathBuf,
}

/// Checks the type of the file at `path`; symbolic links are followed. Returns an error if the file does not exist, or if a folder above it
/// may not be entered.
pub fn look(path: &Path) -> Result<UnopenedFile> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    Ok(UnopenedFile {
        meta: file.metadata()?,
        file,
        path: path.to_path_buf(),
    })
}

impl UnopenedFile {
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// Returns true if the file is on a FUSE file system.
    pub fn is_on_fuse(&self) -> bool {
        is_on_fuse(&self.file)
    }

    /// Returns an error if the file is not a regular file.
    pub fn regular(self) -> Result<UnopenedFile> {
        match self.meta.is_file() {
            true => Ok(self),
            false => Err(no_regular_file(self.meta.file_type())),
        }
    }

    /// Opens exactly the checked file, with these `flags`.
    pub fn open(&self, flags: OFlags) -> Result<File> {
        // Without NONBLOCK, which would fail for a file under a lease (oplocks of Samba) instead of waiting. The caller has refused other kinds of
        // files, or accepts waiting for them.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let again = descriptor_path(&self.file);
        match rustix::fs::open(&again, flags, Mode::empty()) {
            // Without /proc, as in some chroots, the file is opened by name, and only if the name still refers to the same file.
            Err(rustix::io::Errno::NOENT) if !Path::new("/proc/self/fd").exists() => {
                self.open_by_name(flags)
            }
            opened => Ok(opened?.into()),
        }
    }

    /// Opens exactly the checked file for reading.
    pub fn for_reading(&self) -> Result<File> {
        self.open(OFlags::RDONLY)
    }

    fn open_by_name(&self, flags: OFlags) -> Result<File> {
        let flags = flags | OFlags::NONBLOCK;
        let opened = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let now = opened.metadata()?;
        match (now.dev(), now.ino()) == (self.meta.dev(), self.meta.ino()) {
            true => Ok(opened),
            false => Err(Error::other("the path refers to another file now")),
        }
    }
}

/// Opens a regular file for reading. Returns an error if the file does not exist, may not be read, or is not a regular file.
pub fn regular(path: &Path) -> Result<File> {
    look(path)?.regular()?.for_reading()
}

/// Opens a file for sequential reading: a regular file, a FIFO, or a terminal. Opening a FIFO blocks until a program writes to it.
/// Returns an error if the file does not exist, may not be read, or is a folder, a socket or a disk.
pub fn stream(path: &Path) -> Result<File> {
    let looked = look(path)?;
    let kind = looked.meta.file_type();
    if kind.is_file() || kind.is_fifo() || kind.is_char_device() {
        looked.for_reading()
    } else {
        Err(no_regular_file(kind))
    }
}

/// Returns all bytes of a small regular file. Returns an error if the file does not exist, may not be read, is not a regular file, or has
/// more than `max_bytes` bytes.
pub fn read_small(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    read_whole(&regular(path)?, max_bytes)
}

/// Like [`read_small`], but for text files. Returns an error in the same cases as [`read_small`], and if the file is not valid UTF-8.
pub fn read_small_text(path: &Path, max_bytes: u64) -> Result<String> {
    let bytes = read_small(path, max_bytes)?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// All bytes of an open file from its position on, if they are at most `max_bytes`. The reported size is not trusted: the file may grow
/// meanwhile, and some file systems report 0.
fn read_whole(file: &File, max_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut is_too_long = file.metadata()?.len() > max_bytes;
    if !is_too_long {
        let mut start = file.take(max_bytes.saturating_add(1));
        start.read_to_end(&mut bytes)?;
        is_too_long = bytes.len() as u64 > max_bytes;
    }
    if is_too_long {
        let why = format!("it has more than {max_bytes} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

pub(crate) fn no_regular_file(kind: FileType) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!("it is {}, not a regular file", kind_in_words(kind)),
    )
}

pub(crate) fn kind_in_words(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        kind if kind.is_symlink() => "a link",
        _ => "a file of another kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn fifo(path: &Path) {
        let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::from(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("made");
    }

    /// No case waits, fills memory or starts a device: the FIFO has no writer here, and /dev/zero has no end.
    #[test]
    fn a_small_file_is_a_regular_file_within_its_limit() {
        let dir = tempfile::tempdir().expect("a folder for temporary files");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), [7; 100]).expect("room");
        std::fs::write(path("binary"), [0xff]).expect("room");
        symlink(path("file"), path("link")).expect("made");
        symlink("/dev/zero", path("zero")).expect("made");
        fifo(&path("fifo"));
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("made");
        for name in ["file", "link"] {
            assert_eq!(read_small(&path(name), 100).expect("read"), [7; 100]);
        }
        // The kernel reports a size of 0 bytes.
        let status = Path::new("/proc/self/status");
        let text = read_small_text(status, 1 << 20).expect("text");
        assert!(text.contains("Pid:"));
        for (path, limit, said) in [
            (path("file"), 99, "it has more than 99 bytes"),
            (path("fifo"), 99, "it is a FIFO, not a regular file"),
            (path("zero"), 99, "it is a device, not a regular file"),
            (path("socket"), 99, "it is a socket, not a regular file"),
            (path(""), 99, "it is a folder, not a regular file"),
            (path("none"), 99, "No such file or directory (os error 2)"),
            (path("binary"), 9, "it is not UTF-8 text"),
            (status.to_path_buf(), 10, "it has more than 10 bytes"),
        ] {
            let refused = read_small_text(&path, limit).expect_err("refused");
            assert_eq!(refused.to_string(), said);
        }
    }

    /// The opened file is the checked file, even if another file has the name by then.
    #[test]
    fn a_file_that_is_replaced_after_the_look_is_not_opened() {
        let dir = tempfile::tempdir().expect("a folder for temporary files");
        let path = dir.path().join("file");
        std::fs::write(&path, "seen").expect("room");
        let looked = look(&path).and_then(UnopenedFile::regular);
        let looked = looked.expect("a regular file");
        std::fs::remove_file(&path).expect("removed");
        fifo(&path);
        let opened = looked.open(OFlags::RDONLY).expect("opened");
        assert_eq!(read_whole(&opened, 9).expect("read"), b"seen");
        let other = looked.open_by_name(OFlags::RDONLY).expect_err("another");
        assert!(other.to_string().contains("another file"));
    }
}
