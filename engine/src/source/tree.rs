//! A tree of files: a folder, or any other source that lists names and opens them.
//!
//! Paths are relative and consist of plain names; the root is the empty path. Many threads call a [`Tree`] concurrently, and its
//! calls may block. A tree never leaves its root, and never follows a symbolic link: in a mount, the kernel follows links, with
//! the permissions of the process that reads. [`Tree::open`] returns the version of the file that it has opened, even if another
//! file has that name by then.
//!
//! ```text
//!   list(folder) ──► names        look(path) ──► Meta with a version        open(path) ──► Source and its Meta
//! ```

mod account;
mod folder;
mod names;
mod need;
mod single;

use super::{Defaults, EINVAL, Source, SourceError};
use rustix::io::Errno;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use account::{MAX_NAME_BYTES, NameBytes, max_name_bytes, name_bytes, too_many_bytes};
pub use folder::Folder;
pub use names::FolderNames;
pub use need::{LOOKS_EVERY, Need, needed, while_needed};
pub use single::Single;

/// The kind of file that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that can be read.
    File,
    /// Something that can be listed.
    Folder,
    /// A symbolic link; only its text can be read.
    Link,
}

/// The attributes of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The kind of the path.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change, in nanoseconds since 1970; 0 if unknown.
    pub mtime_ns: i128,
    /// Permission bits, such as `0o644`.
    pub permissions: u16,
    /// Owner and group; `None` for objects.
    pub owner: Option<(u32, u32)>,
    /// Equal for two files at one path if and only if they are the same version, provided that both come from the same method.
    pub version: Arc<[u8]>,
}

#[cfg(feature = "fuse")]
impl Meta {
    pub(crate) fn heap_bytes(&self) -> u64 {
        if self.version.is_empty() {
            0
        } else {
            self.version.len() as u64 + 16
        }
    }
}

#[cfg(feature = "object")]
impl Meta {
    /// A file of a listing, readable for everyone.
    pub(crate) fn listed_file(size: u64, seconds: i128, version: &[u8]) -> Meta {
        Meta {
            kind: Kind::File,
            size,
            mtime_ns: seconds * 1_000_000_000,
            permissions: 0o444,
            owner: None,
            version: version.into(),
        }
    }

    /// A folder of a listing, without known attributes.
    pub(crate) fn listed_folder() -> Meta {
        Meta {
            kind: Kind::Folder,
            size: 0,
            mtime_ns: 0,
            permissions: 0o555,
            owner: None,
            version: Arc::default(),
        }
    }
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last part of its path.
    pub name: OsString,
    /// The kind of the name.
    pub kind: Kind,
    /// Its attributes, if the listing contains them.
    pub meta: Option<Meta>,
}

/// A tree of files: a folder, or any other source that lists names and opens them.
pub trait Tree: Send + Sync {
    /// The names in a folder, without duplicates, and sorted if [`Tree::lists_versions`]. Names that are neither files, folders nor links
    /// are left out.
    ///
    /// # Errors
    /// The folder does not exist, or cannot be read; `EOVERFLOW` if there is not enough memory for all names.
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError>;

    /// Whether a listing contains all attributes of each name, including its version, and a further request is expensive:
    /// storage over a network. Then a recent listing is trusted for a while, and [`Tree::open_listed`] need not send a request.
    fn lists_versions(&self) -> bool {
        false
    }

    /// Whether its information about a path may be old; then opening that file sends a request first.
    fn is_unsure(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Whether `names`, an earlier listing of a folder by this tree, may be shown again while it is trusted. False for a listing that
    /// did not come from the storage.
    fn shows(&self, folder: &Path, names: &Arc<FolderNames>) -> bool {
        let _ = (folder, names);
        true
    }

    /// Whether an opened file is the version that was listed or looked up: a listing and an open file may express a version in
    /// two ways.
    fn is_same(&self, listed: &Meta, opened: &Meta) -> bool {
        listed.version == opened.version
    }

    /// Whether these attributes identify a version uniquely. If not, another version may be mistaken for it.
    fn names_exactly(&self, meta: &Meta) -> bool {
        let _ = meta;
        true
    }

    /// Opens a file that was opened before, and that [`Tree::names_exactly`]. Every read of another version fails.
    ///
    /// # Errors
    /// Returns the errors of [`Tree::open`].
    fn open_again(&self, path: &Path, meta: &Meta) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.open_listed(path, meta)
    }

    /// The current attributes of a path.
    ///
    /// # Errors
    /// `ENOENT` if the path does not exist, or an error of the storage.
    fn look(&self, path: &Path) -> Result<Meta, SourceError>;

    /// Like [`Tree::look`], but the same reply may also contain later names in the folder: `each` is called with their paths.
    ///
    /// # Errors
    /// Returns the errors of [`Tree::look`].
    fn look_ahead(
        &self,
        path: &Path,
        each: &mut dyn FnMut(PathBuf, Meta),
    ) -> Result<Meta, SourceError> {
        let _ = each;
        self.look(path)
    }

    /// All names in a folder, if one request to the store lists them. `None` if the folder has more names.
    ///
    /// # Errors
    /// Returns the errors of [`Tree::names`].
    fn small_folder(&self, folder: &Path) -> Result<Option<Arc<FolderNames>>, SourceError> {
        let _ = folder;
        Ok(None)
    }

    /// Opens a file that was just listed or looked up. If the first read can request its version, no request is sent before; if
    /// the file has changed since, that read fails with [`SourceError::Changed`].
    ///
    /// # Errors
    /// Returns the errors of [`Tree::open`], and [`SourceError::Changed`] if the file is known to have another version now.
    fn open_listed(
        &self,
        path: &Path,
        meta: &Meta,
    ) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let _ = meta;
        self.open(path)
    }

    /// Opens a file and returns its version.
    ///
    /// # Errors
    /// The file does not exist, is not a file, or is not readable.
    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError>;

    /// The text of a link.
    ///
    /// # Errors
    /// The path is not a link.
    fn link(&self, path: &Path) -> Result<PathBuf, SourceError> {
        Err(SourceError::io(
            EINVAL,
            format!("{} is not a link", path.display()),
        ))
    }

    /// A description for messages, without passwords.
    fn describe(&self) -> String;

    /// How its files are read; see [`Source::defaults`].
    fn defaults(&self) -> Defaults;

    /// Number of names omitted from listings, because they cannot be file names.
    fn left_out(&self) -> u64 {
        0
    }

    /// The readahead setting of its device in bytes, if it has a device.
    fn readahead_bytes(&self) -> Option<u64> {
        None
    }
}

/// The error if the names of a folder exceed the limit: a part of a folder would look like the whole folder.
pub(crate) fn too_many(tree: &dyn Tree, folder: &Path, errno: Errno) -> SourceError {
    let (tree, folder) = (tree.describe(), folder.display());
    let what = format!("{tree}: {folder}: {}", too_many_bytes());
    SourceError::io(errno.raw_os_error(), what)
}
