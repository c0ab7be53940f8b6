//! Creates output files atomically; existing files are replaced only on request.
//!
//! ```text
//!   create ──► unnamed file in the same folder ──► write ──► keep: it gets its name (with force, replaces a file)
//! ```
//! The new file has no name until it is complete, so it disappears if the process ends early, even by SIGKILL. If the file system does not
//! support unnamed files (O_TMPFILE), a temporary file in the same folder is used, which remains after SIGKILL.
//!
//! | at the path is | without force | with force |
//! |---|---|---|
//! | nothing | made | made |
//! | a regular file | refused | replaced; owner and mode stay, without setuid and similar bits |
//! | a link | refused | the link is replaced, never what it points to |
//! | a FIFO, a terminal, `/dev/null`, `/dev/stdout`, `/dev/fd/3` | written as it is | the same |
//! | a folder, a disk, a socket | refused | refused |
//!
//! An existing file is kept until the new file is complete.

use crate::open::kind_in_words;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::{File, Metadata, Permissions, symlink_metadata};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub struct AtomicFile {
    file: File,
    path: PathBuf,
    /// Whether an existing file may be replaced.
    force: bool,
    kind: Destination,
}

enum Destination {
    Unnamed,
    /// Removed when it is dropped.
    Named(tempfile::TempPath),
    /// Not a regular file: it is written directly, and nothing remains to do at the end.
    Direct,
}

impl AtomicFile {
    /// Starts to write a file that will be named `path`. If `force` is true, it may replace an existing file. Returns
    /// [`ErrorKind::AlreadyExists`] if the file exists and `force` is false, or another error if the path cannot be an output or
    /// the system refuses.
    pub fn create(path: &Path, force: bool) -> Result<AtomicFile> {
        let there = place(path, force)?;
        let (file, kind) = match there {
            Place::Stream => (open_stream(path)?, Destination::Direct),
            _ => new_file(folder(path))?,
        };
        if let Place::File(before) = there {
            // Only root can keep the owner; others may replace a file if the folder permits it.
            let is_given =
                std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid())).is_ok();
            let mode = before.mode() & if is_given { 0o777 } else { 0o755 };
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(AtomicFile {
            file,
            path: path.to_path_buf(),
            force,
            kind,
        })
    }

    pub fn writer(&self) -> Result<File> {
        self.file.try_clone()
    }

    /// Gives the complete file its name. Returns an error if another process has created a file with that name in the meantime, or if the
    /// system refuses. After an error, no temporary file remains.
    pub fn keep(self) -> Result<()> {
        let AtomicFile {
            file,
            path,
            force,
            kind,
        } = self;
        match kind {
            Destination::Direct => return Ok(()),
            Destination::Named(name) => {
                file.sync_all()?;
                let kept = match force {
                    true => name.persist(&path),
                    false => name.persist_noclobber(&path),
                };
                return kept.map_err(|error| error.error);
            }
            Destination::Unnamed => file.sync_all()?,
        }
        let link = |to: &Path| -> Result<()> {
            let from = crate::open::descriptor_path(&file);
            let flags = AtFlags::SYMLINK_FOLLOW;
            Ok(rustix::fs::linkat(CWD, from, CWD, to, flags)?)
        };
        match link(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && force => {
                let mut name = path.file_name().unwrap_or_default().to_os_string();
                name.push(format!(".{}.new", std::process::id()));
                let beside = folder(&path).join(name);
                link(&beside)?;
                std::fs::rename(&beside, &path).inspect_err(|_| {
                    // The error is returned; the temporary file is removed.
                    let _ = std::fs::remove_file(&beside);
                })
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists()),
            done => done,
        }
    }
}

/// Checks whether [`AtomicFile::create`] would accept `path`. If the path is a FIFO, it is not opened for this check, because its
/// reader would then see an end of file. Returns the same errors as [`AtomicFile::create`].
pub fn check(path: &Path, force: bool) -> Result<()> {
    match place(path, force)? {
        Place::Stream => Ok(()),
        _ => AtomicFile::create(path, force).map(drop),
    }
}

/// Writes these bytes to the file `path`.
/// Returns the same errors as [`AtomicFile::create`] and [`AtomicFile::keep`].
pub fn write(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    let mut whole = AtomicFile::create(path, force)?;
    whole.file.write_all(bytes)?;
    whole.keep()
}

/// Creates or replaces the file `path` with mode 0644, independent of the umask.
/// Returns the same errors as [`AtomicFile::create`] and [`AtomicFile::keep`].
pub fn write_for_all(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut whole = AtomicFile::create(path, true)?;
    whole.file.write_all(bytes)?;
    if !matches!(whole.kind, Destination::Direct) {
        whole.file.set_permissions(Permissions::from_mode(0o644))?;
    }
    whole.keep()
}

/// Creates a folder and its parents with mode 0755, independent of the umask. Existing folders are not changed.
pub fn folder_for_all(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        folder_for_all(above)?;
    }
    std::fs::create_dir(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Opens or creates a file with mode 0600, such as a lock file. No other user may open the file, because any user that can open a file can
/// also lock it. Returns an error if the file is a symbolic link, belongs to another user, or is not a regular file.
pub fn own_file(path: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::from(0o600))?);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(crate::open::no_regular_file(meta.file_type()));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let why = format!("it belongs to the user {}", meta.uid());
        return Err(Error::new(ErrorKind::PermissionDenied, why));
    }
    // With a hard link, the other file would be changed.
    if meta.nlink() > 1 {
        let why = "it has several hard links";
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    if meta.mode() & 0o7777 != 0o600 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Creates a file that may be read while it grows, such as a log. The file has its final name from the start. If `force` is true, it
/// replaces an existing file. Returns the same errors as [`AtomicFile::create`].
pub fn growing(path: &Path, force: bool) -> Result<File> {
    match place(path, force)? {
        Place::Stream => return open_stream(path),
        Place::New => {}
        // Removes the name, also of a link; data with another name stays.
        Place::File(_) | Place::Link => std::fs::remove_file(path)?,
    }
    File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists(),
            _ => error,
        })
}

enum Place {
    New,
    File(Metadata),
    Link,
    Stream,
}

fn place(path: &Path, force: bool) -> Result<Place> {
    if is_own_descriptor(path) {
        return Ok(Place::Stream);
    }
    let meta = match symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::New),
        Err(error) => return Err(error),
    };
    let kind = meta.file_type();
    match kind {
        _ if kind.is_fifo() || kind.is_char_device() => Ok(Place::Stream),
        _ if !kind.is_file() && !kind.is_symlink() => {
            let why = format!("it is {}", kind_in_words(kind));
            Err(Error::new(ErrorKind::InvalidInput, why))
        }
        _ if !force => Err(exists()),
        _ if kind.is_symlink() => Ok(Place::Link),
        _ => {
            // A file without write permission is not replaced, even if its folder permits it.
            File::options().append(true).open(path)?;
            Ok(Place::File(meta))
        }
    }
}

/// Names of this process's open files: links of the kernel, which point to pipes, terminals and files alike.
fn is_own_descriptor(path: &Path) -> bool {
    let named = ["/dev/stdout", "/dev/stderr"]
        .iter()
        .any(|name| path == Path::new(name));
    let of_process =
        path.starts_with("/proc") && folder(path).ends_with("fd") && path.components().count() == 5;
    named || of_process || folder(path) == Path::new("/dev/fd")
}

fn open_stream(path: &Path) -> Result<File> {
    let follows = match is_own_descriptor(path) {
        true => OFlags::empty(),
        false => OFlags::NOFOLLOW,
    };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY | follows;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// A file that gets its name when it is complete.
fn new_file(folder: &Path) -> Result<(File, Destination)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder, flags, Mode::from(0o666)) {
        Ok(file) => Ok((OwnedFd::into(file), Destination::Unnamed)),
        // The fallback of open(2) for systems without O_TMPFILE.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            let (file, name) = tempfile::NamedTempFile::new_in(folder)?.into_parts();
            Ok((file, Destination::Named(name)))
        }
        Err(error) => Err(error.into()),
    }
}

fn exists() -> Error {
    Error::new(ErrorKind::AlreadyExists, "it exists already")
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("readable").flatten();
        entries
            .map(|entry| entry.file_name().display().to_string())
            .collect()
    }

    fn fill(whole: &AtomicFile, bytes: &[u8]) {
        let mut writer = whole.writer().expect("open");
        writer.write_all(bytes).expect("room");
    }

    #[test]
    fn a_public_file_gets_mode_0644() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
        let path = folder.path().join("a/b/c");
        folder_for_all(path.parent().expect("a folder")).expect("made");
        assert_eq!(mode(path.parent().expect("a folder")), 0o755);
        for before in [0o666, 0o600] {
            std::fs::write(&path, b"old").expect("room");
            std::fs::set_permissions(&path, Permissions::from_mode(before)).expect("set");
            write_for_all(&path, b"new").expect("replaced");
            assert_eq!(mode(&path), 0o644);
        }
    }

    #[test]
    fn a_private_file_is_not_a_link_and_has_one_owner() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("wide"), b"").expect("room");
        std::fs::set_permissions(path("wide"), Permissions::from_mode(0o666)).expect("set");
        for name in ["new", "wide"] {
            let file = own_file(&path(name)).expect("ours");
            assert_eq!(file.metadata().expect("open").mode() & 0o7777, 0o600);
        }
        symlink(path("wide"), path("link")).expect("linked");
        assert!(own_file(&path("link")).is_err());
        assert!(own_file(folder.path()).is_err());
        std::fs::hard_link(path("wide"), path("second")).expect("linked");
        assert!(own_file(&path("second")).is_err());
        std::fs::remove_file(path("second")).expect("it is there");
        if std::os::unix::fs::chown(path("wide"), Some(1000), None).is_ok() {
            let error = own_file(&path("wide")).expect_err("of another user");
            assert_eq!(error.to_string(), "it belongs to the user 1000");
        }
    }

    /// If a program that runs as its owner is replaced, the new file does not run as root.
    #[test]
    fn a_file_that_is_replaced_keeps_its_owner_and_no_setuid() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = folder.path().join("a");
        std::fs::write(&path, b"old").expect("room");
        let given = std::os::unix::fs::chown(&path, Some(1000), Some(1000)).is_ok();
        std::fs::set_permissions(&path, Permissions::from_mode(0o4751)).expect("set");
        write(&path, b"new", true).expect("replaced");
        let meta = std::fs::metadata(&path).expect("there");
        assert_eq!(meta.mode() & 0o7777, 0o751);
        assert!(!given || (meta.uid(), meta.gid()) == (1000, 1000));
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = folder.path().join("a");
        let whole = AtomicFile::create(&path, false).expect("new");
        fill(&whole, b"one");
        assert!(!path.exists());
        drop(whole);
        assert_eq!(names(folder.path()), [""; 0]);
        let whole = AtomicFile::create(&path, false).expect("new");
        fill(&whole, b"two");
        whole.keep().expect("kept");
        assert_eq!(std::fs::read(&path).expect("there"), b"two");
    }

    #[test]
    fn a_file_is_replaced_by_force_only() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = folder.path().join("a");
        // Another process creates it between the check and the end.
        let (late, forced) = (
            AtomicFile::create(&path, false).expect("new"),
            AtomicFile::create(&path, true).expect("new"),
        );
        std::fs::write(&path, "old").expect("room");
        let refused = [
            late.keep().expect_err("there"),
            AtomicFile::create(&path, false).err().expect("there"),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&path).expect("there"), b"old");
        fill(&forced, b"new");
        forced.keep().expect("kept");
        assert_eq!(std::fs::read(&path).expect("there"), b"new");
        assert_eq!(names(folder.path()), ["a"]);
        assert!(AtomicFile::create(Path::new("no/such/folder/a"), false).is_err());
    }

    /// Another user's link in a shared folder must not decide which file is written.
    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let (path, other) = (folder.path().join("a"), folder.path().join("other"));
        std::fs::write(&other, "kept").expect("room");
        for target in [&other, &folder.path().join("none")] {
            for make in [
                |path: &Path, force| write(path, b"new", force),
                |path: &Path, force| {
                    growing(path, force).and_then(|mut file| file.write_all(b"new"))
                },
            ] {
                symlink(target, &path).expect("made");
                for done in [make(&path, false), check(&path, false)] {
                    let refused = done.expect_err("refused");
                    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
                }
                check(&path, true).expect("it may be replaced");
                make(&path, true).expect("replaced");
                let is_file = symlink_metadata(&path).expect("there").is_file();
                assert!(is_file, "the link is gone");
                assert_eq!(std::fs::read(&path).expect("there"), b"new");
                assert_eq!(std::fs::read(&other).expect("there"), b"kept");
                assert!(!folder.path().join("none").exists());
                std::fs::remove_file(&path).expect("removed");
            }
        }
    }

    #[test]
    fn streams_are_written_as_they_are_and_a_mode_stays() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = folder.path().join("a");
        std::fs::write(&path, "old").expect("room");
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("allowed");
        let refused = growing(&path, false).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        write(&path, b"new", true).expect("replaced");
        let mode = symlink_metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o640);
        write(Path::new("/dev/null"), b"gone", false).expect("a device that takes all");
        let own = File::options().append(true).open(&path).expect("open");
        for descriptors in ["/dev/fd", "/proc/self/fd"] {
            let name = Path::new(descriptors).join(own.as_raw_fd().to_string());
            check(&name, false).expect("open");
            write(&name, b"+", false).expect("what the descriptor is");
        }
        assert_eq!(std::fs::read(&path).expect("there"), b"new++");
        let socket = folder.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("made");
        for (path, said) in [
            (folder.path(), "it is a folder"),
            (&socket, "it is a socket"),
        ] {
            let refused = check(path, true).expect_err("refused");
            assert_eq!(refused.to_string(), said);
        }
    }
}
