//! Shows a local folder, or one file in it, as a tree.
//!
//! The folder is opened once. The kernel resolves every path below that descriptor (`openat2`), and refuses links in the
//! middle, `..`, and other file systems that are mounted inside. So no path can lead outside the folder, even if the folder changes
//! later, and a mount inside its own source folder does not read itself. Opened files are checked by their descriptors. Links are
//! never followed.
//!
//! ```text
//!   root (fd) ──openat2, beneath──► fd ──fstat──► Meta     one descriptor for both, so there is no race
//!                                    └──/proc/self/fd──► FileSource
//! ```

use super::{FolderNames, Kind, Meta, Tree, too_many};
use crate::source::{
    Defaults, FileSource, Source, SourceError, SourceOpenError, default_readahead_bytes, errno_text,
};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A local folder, or one file in it, as a tree.
pub struct Folder {
    root: OwnedFd,
    path: PathBuf,
    /// The only name that is shown.
    only: Option<OsString>,
}

impl Folder {
    /// Opens a folder and everything below it.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist, is not a folder, or is not readable.
    pub fn open(path: impl AsRef<Path>) -> Result<Folder, SourceOpenError> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
            SourceOpenError::new(
                path,
                errno_text(errno.raw_os_error()),
                "check the path and its permissions",
                errno.raw_os_error(),
            )
            .of_system()
        })?;
        Ok(Folder {
            root,
            path: path.to_path_buf(),
            only: None,
        })
    }

    /// Opens one file; the tree is a folder with only that file. If the file is replaced later, the tree shows the new file.
    ///
    /// # Errors
    /// Returns an error if the file's folder cannot be read, or if the path is not that of a readable file.
    pub fn only(path: impl AsRef<Path>) -> Result<Folder, SourceOpenError> {
        let path = path.as_ref();
        // Open the file that a link points to, not the link.
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        // Report errors immediately, with the message of the source.
        drop(FileSource::open(&real)?);
        let parent = real
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut folder = Folder::open(parent)?;
        folder.only = real.file_name().map(OsStr::to_os_string);
        folder.path = real;
        Ok(folder)
    }

    /// A descriptor of the file at a path, without opening the file: devices and pipes do not notice.
    fn descriptor(&self, path: &Path) -> Result<OwnedFd, Errno> {
        if let Some(only) = &self.only
            && !path.as_os_str().is_empty()
            && path.as_os_str() != only.as_os_str()
        {
            return Err(Errno::NOENT);
        }
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        // These flags open a link at the end as a link; a link in the middle is refused.
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn fails(&self, path: &Path, errno: Errno) -> SourceError {
        let errno = errno.raw_os_error();
        SourceError::io(errno, self.path.join(path).display().to_string())
    }
}

impl Tree for Folder {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let mut names = FolderNames::default();
        let mut put = |name: &OsStr, kind| match names.push(name, kind, None) {
            true => Ok(()),
            false => Err(too_many(self, folder, Errno::OVERFLOW)),
        };
        if let Some(only) = &self.only {
            put(only, Kind::File)?;
            return Ok(Arc::new(names));
        }
        let fails = |errno| self.fails(folder, errno);
        let fd = self.descriptor(folder).map_err(fails)?;
        for entry in
            Dir::read_from(reopened(&fd, OFlags::DIRECTORY).map_err(fails)?).map_err(fails)?
        {
            let entry = entry.map_err(fails)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let mut kind = kind_of(entry.file_type());
            if entry.file_type() == FileType::Unknown {
                kind = match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => kind_of_mode(&stat),
                    Err(Errno::NOENT) => None,
                    // A name whose attributes cannot be read exists all the same.
                    Err(errno) => return Err(fails(errno)),
                };
            }
            if let Some(kind) = kind {
                put(name, kind)?;
            }
        }
        Ok(Arc::new(names))
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        let stat = self
            .descriptor(path)
            .and_then(rustix::fs::fstat)
            .map_err(|errno| self.fails(path, errno))?;
        meta_of(&stat).ok_or_else(|| self.fails(path, Errno::NOENT))
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let fails = |errno| self.fails(path, errno);
        let fd = self.descriptor(path).map_err(fails)?;
        let meta = rustix::fs::fstat(&fd).map_err(fails)?;
        let meta = meta_of(&meta)
            .filter(|meta| meta.kind == Kind::File)
            .ok_or_else(|| fails(Errno::ISDIR))?;
        let by_descriptor = foreread_os::open::descriptor_path(&fd);
        let opened = FileSource::open_called(&by_descriptor, self.path_of(path));
        let source = opened.map_err(|error| fails(Errno::from_raw_os_error(error.errno)))?;
        // The source has read the attributes in between: if they are equal before and after, it has seen the same ones.
        if meta_of(&rustix::fs::fstat(&fd).map_err(fails)?).as_ref() != Some(&meta) {
            return Err(SourceError::Changed {
                what: format!("{} is changing", self.path_of(path).display()),
            });
        }
        Ok((Arc::new(source), meta))
    }

    fn link(&self, path: &Path) -> Result<PathBuf, SourceError> {
        let text = self
            .descriptor(path)
            .and_then(|fd| rustix::fs::readlinkat(&fd, "", Vec::new()));
        let text = text.map_err(|errno| self.fails(path, errno))?;
        Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
    }

    fn describe(&self) -> String {
        format!("file:{}", self.path.display())
    }

    fn defaults(&self) -> Defaults {
        Defaults::FILE
    }

    fn readahead_bytes(&self) -> Option<u64> {
        default_readahead_bytes(&self.path)
    }
}

impl Folder {
    fn path_of(&self, path: &Path) -> PathBuf {
        if self.only.is_some() {
            self.path.clone()
        } else {
            self.path.join(path)
        }
    }
}

/// Reopens the same file, for reading.
fn reopened(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        fd,
        ".",
        OFlags::RDONLY | OFlags::CLOEXEC | flags,
        Mode::empty(),
    )
}

fn kind_of(kind: FileType) -> Option<Kind> {
    match kind {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Folder),
        FileType::Symlink => Some(Kind::Link),
        _ => None,
    }
}

fn kind_of_mode(stat: &Stat) -> Option<Kind> {
    kind_of(FileType::from_raw_mode(stat.st_mode))
}

fn meta_of(stat: &Stat) -> Option<Meta> {
    let kind = kind_of_mode(stat)?;
    // The type of the nanoseconds is signed on some systems.
    let mtime_ns = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    let ctime_ns = i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec);
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    // The change time (ctime) shows a modification time that was set back.
    let version = [
        &stat.st_dev.to_le_bytes()[..],
        &stat.st_ino.to_le_bytes(),
        &size.to_le_bytes(),
        &mtime_ns.to_le_bytes(),
        &ctime_ns.to_le_bytes(),
    ]
    .concat();
    let permissions = (stat.st_mode & 0o7777) as u16;
    Some(Meta {
        kind,
        size,
        mtime_ns,
        permissions,
        owner: Some((stat.st_uid, stat.st_gid)),
        version: version.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Emulators of other machines do not know openat2(2).
    fn is_emulated() -> bool {
        let is_set = std::env::var_os("FOREREAD_EMULATED").is_some();
        if is_set {
            println!("skipped: needs a kernel of this machine (FOREREAD_EMULATED is set)");
        }
        is_set
    }

    fn names(tree: &dyn Tree, folder: &str) -> BTreeMap<OsString, Kind> {
        let names = tree.names(Path::new(folder)).expect("listed");
        names
            .entries()
            .map(|entry| (entry.name, entry.kind))
            .collect()
    }

    #[test]
    fn everything_below_and_nothing_beside() {
        if is_emulated() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("sub")).expect("made");
        fs::write(dir.path().join("secret"), b"no").expect("written");
        fs::write(root.join("sub/file"), b"yes").expect("written");
        symlink("../secret", root.join("out")).expect("linked");
        symlink("sub", root.join("in")).expect("linked");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("pipe"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .expect("a pipe");
        let tree = Folder::open(&root).expect("opened");
        let kinds: Vec<Kind> = names(&tree, "").into_values().collect();
        assert_eq!(
            kinds,
            [Kind::Link, Kind::Link, Kind::Folder],
            "in, out, sub; no pipe"
        );
        let (source, meta) = tree.open(Path::new("sub/file")).expect("opened");
        assert_eq!((source.size(), meta.size), (3, 3));
        assert!(
            source.describe().contains("sub/file"),
            "{}",
            source.describe()
        );
        assert_eq!(tree.look(Path::new("sub/file")).expect("there"), meta);
        assert_eq!(
            tree.link(Path::new("out")).expect("a link"),
            Path::new("../secret")
        );
        assert_eq!(
            tree.look(Path::new("out")).expect("a link").kind,
            Kind::Link
        );
        for outside in [
            "out",
            "../secret",
            "in/file",
            "sub/../../secret",
            "/etc/passwd",
            "pipe",
            "sub",
        ] {
            assert!(tree.open(Path::new(outside)).is_err(), "{outside}");
        }
        assert!(tree.look(Path::new("pipe")).is_err());
    }

    #[test]
    fn one_file_and_its_replacement() {
        if is_emulated() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("a"), b"one").expect("written");
        fs::write(dir.path().join("b"), b"other").expect("written");
        let tree = Folder::only(&dir.path().join("a")).expect("opened");
        assert_eq!(names(&tree, "").len(), 1);
        assert!(tree.look(Path::new("b")).is_err() && tree.open(Path::new("b")).is_err());
        let before = tree.open(Path::new("a")).expect("opened").1;
        fs::rename(dir.path().join("b"), dir.path().join("a")).expect("renamed");
        let (source, after) = tree.open(Path::new("a")).expect("opened");
        assert!(source.size() == 5 && before.version != after.version);
    }
}
