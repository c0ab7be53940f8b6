//! Announces to the engine which files follow an opened file, so that a policy can read them ahead.
//!
//! The order is that of the folder's listing, that of the inode numbers (`nodes/orders.rs`), or a list from the caller. If a program does
//! not list the folder, but looks up names in their order, it is that of the listing or page that these look-ups requested (`names.rs`).
//! A file is announced only if this needs no further request: the listings of the tree contain versions, and the file's listing is still
//! trusted. If a file cannot be announced, this is no error; it is opened like any other file.
//!
//! ```text
//!   listing    a ──► b ──► c ──► ...            Nodes::next
//!   open a     list b after a, c after b, ...       up to MAX_BEHIND files that have no reader
//!   open b     the reader that the engine has for it; its bytes may be in the cache
//! ```
//!
//! Example: `grep -r` over 500 objects of 12 KiB, on storage with 30 ms latency. The kernel reads the listing, grep opens the files
//! in that order, and `auto` reads ahead the files after the open one.

use super::{KernelErrno, View};
use crate::front::fuse::nodes::{Node, by_number};
use crate::source::tree::Kind;
use crate::source::tree::Meta;
use crate::sync::lock;
use crate::{FilePosition, Listing, Reader};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Number of files after an open file that the engine knows. It is the maximum number of small files that are read ahead on storage
/// with high latency (`core/src/policy/auto/files.rs`).
const MAX_BEHIND: usize = 256;
/// Maximum number of files listed at the same time, over all folders: each is a source and an entry of the engine, about 2 KiB
/// together.
const MAX_LISTED: usize = 4096;

struct FileToList {
    number: u64,
    path: Arc<Path>,
    meta: Meta,
    listing: Listing,
}

impl View {
    /// Lists the files after one that was opened.
    pub(super) fn list_behind(&self, number: u64, opened: &Reader) {
        if !self.lists_versions || !self.engine.follows_order() {
            return;
        }
        // Sorting takes up to 50 ms, so it is done without the lock.
        if let Some(listing) = self.change(|nodes| nodes.follow(number)) {
            let files = by_number(&listing);
            self.change(|nodes| nodes.sorted(&listing, files));
        }
        let (behind, unlisted) = self.unlisted_behind(number);
        let Some(mut after) = behind.or_else(|| opened.position()) else {
            return;
        };
        for FileToList {
            number,
            path,
            meta,
            listing,
        } in unlisted
        {
            let Ok((source, _)) = self.tree.open_listed(&path, &meta) else {
                return;
            };
            let Ok(file) = self.engine.list(source, Some(after), listing) else {
                return;
            };
            after = file.position();
            self.change(|nodes| nodes.list(number, Arc::new(file), MAX_LISTED));
        }
    }

    /// Of the next `MAX_BEHIND` files: those that are not listed, and the position of the last file before them that is listed.
    fn unlisted_behind(&self, number: u64) -> (Option<FilePosition>, Vec<FileToList>) {
        let (mut behind, mut unlisted, mut at) = (None, Vec::new(), number);
        let mut nodes = lock(&self.nodes);
        for _ in 0..MAX_BEHIND {
            let Some((next, node)) = nodes.next(at) else {
                break;
            };
            match (&node.listed, &node.base) {
                (Some(file), _) if unlisted.is_empty() => behind = Some(file.position()),
                // Attributes of a planned file are requested before it is listed.
                (None, None)
                    if (node.planned || self.is_believed(node))
                        && !self.tree.is_unsure(&node.path) =>
                {
                    let (path, meta) = (Arc::clone(&node.path), node.meta.clone());
                    let listing = if node.planned {
                        Listing::Planned
                    } else {
                        Listing::Found
                    };
                    unlisted.push(FileToList {
                        number: next,
                        path,
                        meta,
                        listing,
                    });
                }
                // It has an order already: the files after it were listed when it was opened. Or its version is not known for
                // certain.
                _ => break,
            }
            at = next;
        }
        (behind, unlisted)
    }

    fn is_believed(&self, node: &Node) -> bool {
        lock(&self.said).says(&node.path, &node.meta) == Some(true)
    }
}

// The caller's order of files. Each name of the caller's list becomes an inode number, which is linked after the inode number of the
// previous name and kept until the file is opened.
//
// [`View::list_behind`] then uses the caller's order, and announces these files to the engine as certain to be read ([`crate::Listing::Planned`]).
// A name costs at most one request; if the reply is a page of a listing, it also answers the look-ups of the next names. A name is never
// trusted for longer than the kernel may trust it.
//
// ```text
//   push "b" ──► known and trusted? ── no ──► requested ──► number, kept ──► after the previous one
//   open b   ──► no longer kept, and the next 256 files are listed in the engine
// ```

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
                view.change(|nodes| nodes.plan(self.last, number, MAX_PLANNED));
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
