//! The caller's order of files: each name becomes an inode number, linked after the previous one, that is kept until the file is opened.
//!
//! The order of `order.rs` is then the caller's, and the engine is given these files as certain ([`crate::Listing::Planned`]). A name costs
//! a request at most, and a page of a listing answers for those behind it. Never: believes a name for longer than the kernel may.
//!
//! ```text
//!   push "b" ──► known and believed? ── no ──► asked ──► number, held ──► behind the one before
//!   open b   ──► not held any more, and the next 256 are listed in the engine
//! ```

use super::{KernelErrno, View};
use crate::source::tree::Kind;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Files that are planned and not opened yet, of all orders; about 500 bytes each. With more those that were named first are not planned
/// any more; a longer order goes out in parts.
pub const MAX_PLANNED: usize = 1 << 16;

/// Takes orders for a mount.
#[derive(Clone)]
pub struct Planner {
    view: Arc<View>,
    dir: Arc<Path>,
}

/// An order that is being given: see the head of this file.
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

    /// A new order. What an earlier one named stays planned.
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
    /// The program will open this file after those before it. The name begins at the mount's folder or is the whole path; one that is no
    /// file is counted as unknown. False: the order is too long.
    ///
    /// # Errors
    /// The storage did not say whether there is such a file.
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

    /// Names that exist.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// Names that are not files of this mount.
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
    /// The number of a file, counted once for the plan; nothing where there is none.
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
