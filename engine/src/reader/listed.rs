//! Announces to the engine in which order a program will read files, known from a listing or from the program's own list.
//!
//! If a program reads files in the order of the list, a policy that uses the order (`auto`) reads the next files ahead before they are
//! opened. Other policies ignore the order. Listing a file opens no reader and sends no request.
//!
//! ```text
//!   list(A) ──► list(B, after A) ──► list(C, after B)       known to the engine, no reader
//!     └─ open ──► Reader of A, B's bytes are fetched ──► open B ──► a hit
//! ```
//!
//! Example: 200 objects of 12 KiB, on storage with 30 ms latency, opened and read in order of their names. If the order is not announced,
//! each object costs a round trip; if it is, most objects are in the cache when they are opened.

use crate::driver::{FileKey, VersionCursor};
use crate::engine::Engine;
use crate::error::OpenError;
use crate::reader::flush::Flushes;
use crate::reader::{Origin, Reader, opened};
use crate::source::Source;
use foreread_core::policy::Scope;
use std::sync::Arc;

/// A position in an engine's order of files, after which the next file can be listed. The position is valid only in this engine. If the
/// file at this position has been removed, a file that is listed after it has no predecessor in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePosition(FileKey);

/// How certain it is that a program will read a listed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listing {
    /// It was found in a listing of a folder or bucket. It is read ahead if the files before it are read one after the other.
    Found,
    /// The program will read it in its turn. Only the cache and the readahead distance limit how early it is read ahead.
    Planned,
}

/// A source that was announced with [`Engine::list`] and may be opened later. The pages of the source stay in the cache until this value
/// is dropped and the source has no reader.
///
/// ```
/// use foreread::source::Mem;
/// use foreread::{Engine, Listing, Options};
/// use std::sync::Arc;
///
/// let engine = Engine::new(Options::default().cache_bytes(16 << 20))?;
/// let source = |byte| Arc::new(Mem::new(vec![byte; 9000]));
/// let first = engine.list(source(1), None, Listing::Planned)?;
/// let second = engine.list(source(2), Some(first.position()), Listing::Planned)?;
/// let mut buf = [0; 2];
/// first.open()?.read_at(&mut buf[..1], 0)?;
/// second.open()?.read_at(&mut buf[1..], 0)?;
/// assert_eq!(buf, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListedFile {
    engine: Engine,
    source: Arc<dyn Source>,
    key: FileKey,
    flushes: Arc<Flushes>,
}

impl Engine {
    /// Announces that a source will be read after the source at `after`. If `after` is `None`, the source is the first file of a new
    /// order.
    ///
    /// # Errors
    /// Returns an error if the source cannot be opened by its name, the source is too large, or too many sources are open.
    pub fn list(
        &self,
        origin: impl Into<Origin>,
        after: Option<FilePosition>,
        listing: Listing,
    ) -> Result<ListedFile, OpenError> {
        let source = self.source(origin.into())?;
        let (own, after) = (Arc::clone(&source), after.map(|after| after.0));
        let planned = listing == Listing::Planned;
        let key = opened(self.driver().list(own, self.options().io, after, planned))?;
        Ok(ListedFile {
            engine: self.clone(),
            source,
            key,
            flushes: Arc::default(),
        })
    }

    /// Whether the engine's policy uses the order of files.
    #[must_use]
    pub fn follows_order(&self) -> bool {
        self.policy().info.scope == Scope::Source
    }
}

impl ListedFile {
    /// The position of this file in the engine's order of files.
    #[must_use]
    pub fn position(&self) -> FilePosition {
        FilePosition(self.key)
    }

    /// Opens a reader of the source, which must still have the version that was listed.
    ///
    /// # Errors
    /// Returns an error if the source has changed since it was listed, or too many readers are open.
    pub fn open(&self) -> Result<Reader, OpenError> {
        let opened = self.engine.driver().open_listed(self.key);
        let opened = opened.map_err(|_| OpenError::Stopped)?;
        let (at, version) = opened.ok_or_else(|| OpenError::Changed {
            place: self.source.describe(),
        })?;
        let seen = VersionCursor::new(version);
        Reader::beside(&self.engine, &self.source, &self.flushes, at, seen)
    }
}

impl Drop for ListedFile {
    fn drop(&mut self) {
        self.engine.driver().unlist(self.key);
    }
}

impl Reader {
    /// The position of this reader's file in the engine's order of files; the next file can be listed after it ([`Engine::list`]).
    #[must_use]
    pub fn position(&self) -> Option<FilePosition> {
        self.engine.driver().key(self.at.file).map(FilePosition)
    }
}
