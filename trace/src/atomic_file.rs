//! A file that appears when it is whole: until then it has no name, so nothing can leave half of it behind, not even
//! SIGKILL.
//!
//! ```text
//!   create ──► unnamed file in the same folder ──► write ──► keep: it gets its name (or, by force, takes one over)
//! ```
//! Where a file system has no unnamed files, a temporary name beside it is used, and a kill leaves that. What is no
//! file (a pipe, a terminal) is written as it is. Never: a file that was there is lost before the new one is whole.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// A file that is being written.
pub struct AtomicFile {
    file: File,
    /// Where it goes.
    path: PathBuf,
    /// Whether it may take the place of a file.
    force: bool,
    kind: Destination,
}

enum Destination {
    Unnamed,
    /// Removed when it is dropped.
    Named(tempfile::TempPath),
    /// No file: nothing is to be done at the end.
    Direct,
}

impl AtomicFile {
    /// Begins a file that will be called `path`. With `force` it may take the place of one.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] without `force`; whatever the system says.
    pub fn create(path: &Path, force: bool) -> Result<AtomicFile> {
        // A link stays one: what it points to is replaced.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if let Ok(meta) = std::fs::metadata(&path) {
            if !meta.is_file() {
                let file = OpenOptions::new().append(true).open(&path)?;
                return Ok(AtomicFile { file, path, force, kind: Destination::Direct });
            }
            if !force {
                return Err(exists());
            }
            // What may not be written is not replaced either, though its folder would allow it.
            OpenOptions::new().append(true).open(&path)?;
        }
        let (file, kind) = match rustix::fs::openat(CWD, folder(&path), unnamed(), Mode::from(0o666)) {
            Ok(file) => (OwnedFd::into(file), Destination::Unnamed),
            // As the manual page of open(2) has it for systems without O_TMPFILE.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let (file, name) = tempfile::Builder::new().tempfile_in(folder(&path))?.into_parts();
                (file, Destination::Named(name))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(AtomicFile { file, path, force, kind })
    }

    /// What to write with.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn writer(&self) -> Result<File> {
        self.file.try_clone()
    }

    /// It is whole: it gets its name.
    ///
    /// # Errors
    /// Another process made a file of that name meanwhile, or any error of the system. Then nothing is left behind.
    pub fn keep(self) -> Result<()> {
        let AtomicFile { file, path, force, kind } = self;
        match kind {
            Destination::Direct => return Ok(()),
            Destination::Named(name) => {
                file.sync_all()?;
                let kept = if force { name.persist(&path) } else { name.persist_noclobber(&path) };
                return kept.map_err(|error| error.error);
            }
            Destination::Unnamed => file.sync_all()?,
        }
        let link = |to: &Path| -> Result<()> {
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            Ok(rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
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

fn unnamed() -> OFlags {
    OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC
}

fn exists() -> Error {
    Error::new(ErrorKind::AlreadyExists, "it is there already")
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: Result<std::fs::DirEntry>| entry.expect("readable").file_name().display().to_string();
        std::fs::read_dir(folder).expect("readable").map(name).collect()
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = folder.path().join("a");
        let whole = AtomicFile::create(&path, false).expect("new");
        whole.writer().expect("open").write_all(b"one").expect("room");
        assert!(!path.exists());
        drop(whole);
        assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
        let whole = AtomicFile::create(&path, false).expect("new");
        whole.writer().expect("open").write_all(b"two").expect("room");
        whole.keep().expect("kept");
        assert_eq!(std::fs::read(&path).expect("there"), b"two");
    }

    #[test]
    fn a_file_is_replaced_by_force_only() {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let path = folder.path().join("a");
        // Another process makes it between the check and the end.
        let (late, forced) =
            (AtomicFile::create(&path, false).expect("new"), AtomicFile::create(&path, true).expect("new"));
        std::fs::write(&path, "old").expect("room");
        let refused = [late.keep().expect_err("there"), AtomicFile::create(&path, false).err().expect("there")];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&path).expect("there"), b"old");
        forced.writer().expect("open").write_all(b"new").expect("room");
        forced.keep().expect("kept");
        assert_eq!(std::fs::read(&path).expect("there"), b"new");
        assert_eq!(names(folder.path()), ["a"]);
        assert!(AtomicFile::create(Path::new("no/such/folder/a"), false).is_err());
    }
}
