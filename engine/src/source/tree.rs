//! A tree of files: a folder, or any other source that lists names and opens them.
//!
//! Paths are relative and consist of plain names; the root is the empty path. A [`Tree`] is called by many threads at once and may
//! block. Never: follows a link (the reading process does, with its rights), leaves its root, or opens an unchecked
//! file: [`Tree::open`] returns the version of the opened file, not of the file that has the name now.
//!
//! ```text
//!   list(folder) ──► names        look(path) ──► Meta with a version        open(path) ──► Source and its Meta
//! ```

mod account;
mod folder;
mod names;
mod need;
mod single;

use super::{Defaults, Source, SourceError};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use account::{MAX_NAME_BYTES, NameBytes, max_name_bytes, name_bytes, too_many_bytes};
pub use folder::Folder;
pub use names::FolderNames;
pub use need::{LOOKS_EVERY, Need, needed, while_needed};
pub use single::Single;

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that can be read.
    File,
    /// Something that can be listed.
    Folder,
    /// A symbolic link, with only its text.
    Link,
}

/// The attributes of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Time of the last change, in nanoseconds since 1970; 0 if unknown.
    pub mtime_ns: i128,
    /// Permission bits, such as `0o644`.
    pub permissions: u16,
    /// Owner and group; `None` for objects.
    pub owner: Option<(u32, u32)>,
    /// Equal for two files of one path if and only if they are the same version, where the same call told of both.
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

#[cfg(any(feature = "object", feature = "disk-cache"))]
impl Meta {
    /// A file of a listing, which all may read.
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

    /// A folder of a listing, of which nothing is known.
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
    /// What it is.
    pub kind: Kind,
    /// What is known of it, where the listing says so by itself.
    pub meta: Option<Meta>,
}

impl Entry {
    /// A name of which the listing says no more.
    #[must_use]
    pub fn new(name: impl Into<OsString>, kind: Kind) -> Entry {
        Entry {
            name: name.into(),
            kind,
            meta: None,
        }
    }
}

/// A tree of files: a folder, or any other source that lists names and opens them.
pub trait Tree: Send + Sync {
    /// Calls `each` with every name in a folder, in any order, until it says false. Names that are neither files, folders
    /// nor links are left out.
    ///
    /// # Errors
    /// The folder is not there, or cannot be read.
    fn list(&self, folder: &Path, each: &mut dyn FnMut(Entry) -> bool) -> Result<(), SourceError>;

    /// The same at once: of each name one, sorted where [`Tree::lists_versions`].
    ///
    /// # Errors
    /// As [`Tree::list`]; `EOVERFLOW` where there is no room for all.
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let (mut names, mut whole) = (FolderNames::default(), true);
        self.list(folder, &mut |entry| {
            whole = whole && names.push(&entry.name, entry.kind, entry.meta.as_ref());
            whole
        })?;
        if whole {
            return Ok(Arc::new(names));
        }
        // Part of a folder that looks like all of it would be a lie.
        Err(SourceError::Io {
            errno: rustix::io::Errno::OVERFLOW.raw_os_error(),
            what: format!(
                "{}: {}: {}",
                self.describe(),
                folder.display(),
                too_many_bytes()
            ),
        })
    }

    /// Whether a listing says all there is to know of each name, with its version, and asking again is dear: storage over a
    /// network. Then what was just listed is believed for a while, and [`Tree::open_listed`] need not ask.
    fn lists_versions(&self) -> bool {
        false
    }

    /// Whether what it says of a path may be from long ago: then an open of that file asks first.
    fn is_unsure(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Whether a file that was opened is the version that was listed or looked at: a listing and an open file may say it in two ways.
    fn is_same(&self, listed: &Meta, opened: &Meta) -> bool {
        listed.version == opened.version
    }

    /// Whether no other version of a file has what these attributes say of it. Else another one may be taken for it.
    fn names_exactly(&self, meta: &Meta) -> bool {
        let _ = meta;
        true
    }

    /// Opens a file that was opened before, and that [`Tree::names_exactly`]: every read of another version fails.
    ///
    /// # Errors
    /// As [`Tree::open`].
    fn open_again(&self, path: &Path, meta: &Meta) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.open_listed(path, meta)
    }

    /// The current attributes of a path.
    ///
    /// # Errors
    /// `ENOENT` where nothing is, and what the storage says.
    fn look(&self, path: &Path) -> Result<Meta, SourceError>;

    /// [`Tree::look`], where the same answer may also tell of names that come after it in its folder: `each` is called with
    /// their paths.
    ///
    /// # Errors
    /// As [`Tree::look`].
    fn look_ahead(
        &self,
        path: &Path,
        each: &mut dyn FnMut(PathBuf, Meta),
    ) -> Result<Meta, SourceError> {
        let _ = each;
        self.look(path)
    }

    /// Opens a file that was just listed or looked at. Where its version can be asked for with the first read, nothing is
    /// asked before; a file that has changed since then fails that read with [`SourceError::Changed`].
    ///
    /// # Errors
    /// As [`Tree::open`]; [`SourceError::Changed`] where it is known to be another version by now.
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
    /// It does not exist, is not a file, or may not be read.
    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError>;

    /// The text of a link.
    ///
    /// # Errors
    /// It is none.
    fn link(&self, path: &Path) -> Result<PathBuf, SourceError> {
        Err(SourceError::Io {
            errno: EINVAL,
            what: format!("{} is no link", path.display()),
        })
    }

    /// A description for messages, without passwords.
    fn describe(&self) -> String;

    /// How its files are read; see [`Source::defaults`].
    fn defaults(&self) -> Defaults;

    /// Number of names omitted from listings, because they cannot be file names.
    fn left_out(&self) -> u64 {
        0
    }

    /// The readahead that its device is set to, where there is one. Bytes.
    fn readahead_bytes(&self) -> Option<u64> {
        None
    }
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
