//! The caller's order of files. Each name of the caller's list becomes an inode number, which is linked after the inode number of the
//! previous name and kept until the file is opened.
//!
//! `order.rs` then uses the caller's order, and announces these files to the engine as certain to be read ([`crate::Listing::Planned`]).
//! A name costs at most one request; if the reply is a page of a listing, it also answers the look-ups of the next names. A name is never
//! trusted for longer than the kernel may trust it.
//!
//! ```text
//!   push "b" ──► known and trusted? ── no ──► requested ──► number, kept ──► after the previous one
//!   open b   ──► no longer kept, and the next 256 files are listed in the engine
//! ```

use super::{KernelErrno, View};
use crate::source::tree::Kind;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Maximum number of files that are planned (announced by a program, and not opened yet), over all lists; each takes about 500 bytes of
/// memory. If more files are announced, the earliest are no longer planned, so a longer list should be sent in parts.
pub const MAX_PLANNED: usize = 1 << 16;

/// Accepts lists of files, in the order in which a program will open them.
#[derive(Clone)]
pub struct Planner {
    view: Arc<View>,
    dir: Arc<Path>,
}

/// A list of files that the caller is announcing, in the order in which it will open them.
pub struct FileOrder {
    planner: Planner,
    last: Option<u64>,
    files: usize,
    unknown: usize,
}

impl Planner {
    pub(in crate::front::fuse) fn new(view: Arc<View>, dir: &Path) -> Planner {
        Planner {
            view,
            dir: Arc::from(dir),
        }
    }

    /// Starts a new list. Files of earlier lists that have not been opened stay planned.
    #[must_use]
    pub fn begin(&self) -> FileOrder {
        FileOrder {
            planner: self.clone(),
            last: None,
            files: 0,
            unknown: 0,
        }
    }
}

impl FileOrder {
    /// Declares that the program will open this file after the files that were declared before. The name is relative to the mount point,
    /// or a full path. A name that is not a file is counted as unknown. Returns false if the file was not added because the list is too
    /// long.
    ///
    /// # Errors
    /// Returns an error if the look-up of the file in the storage fails.
    pub fn push(&mut self, name: &Path) -> std::io::Result<bool> {
        let Planner { view, dir } = &self.planner;
        let number = below(name, dir).map_or(Ok(None), |path| view.planned(path));
        match number.map_err(std::io::Error::from_raw_os_error)? {
            Some(number) => {
                if self.files == MAX_PLANNED {
                    view.forget(number, 1);
                    return Ok(false);
                }
                let displaced = view.nodes().plan(self.last, number, MAX_PLANNED);
                drop(displaced);
                (self.last, self.files) = (Some(number), self.files + 1);
            }
            None => self.unknown += 1,
        }
        Ok(true)
    }

    /// Number of listed names that exist.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// Number of listed names that are not files of this mount.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.unknown
    }
}

/// A name as a path below the mount point; `None` if it is outside.
fn below(name: &Path, dir: &Path) -> Option<PathBuf> {
    let name = if name.is_absolute() {
        name.strip_prefix(dir).ok()?
    } else {
        name
    };
    let mut path = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) if part != OsStr::new("") => path.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!path.as_os_str().is_empty()).then_some(path)
}

impl View {
    /// The number of a file, counted once for the plan. Returns `None` if there is no such file.
    fn planned(&self, path: PathBuf) -> Result<Option<u64>, KernelErrno> {
        let meta = match self.look(&path) {
            Ok((meta, _)) => meta,
            Err(errno) if errno == Errno::NOENT.raw_os_error() => return Ok(None),
            // A failed request does not mean that the file is absent.
            Err(errno) => return Err(errno),
        };
        if meta.kind != Kind::File {
            return Ok(None);
        }
        self.enter(path, &meta).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_mount() {
        let dir = Path::new("/mnt/x");
        for (name, path) in [
            ("a/b", Some("a/b")),
            ("./a//b", Some("a/b")),
            ("/mnt/x/a", Some("a")),
            ("/mnt/xy/a", None),
            ("../a", None),
            ("a/../../b", None),
            ("/mnt/x", None),
            (".", None),
        ] {
            assert_eq!(
                below(Path::new(name), dir),
                path.map(PathBuf::from),
                "{name}"
            );
        }
    }
}
