//! The version of a source that a reader knows of, and what a read meets before it begins.
//!
//! ```text
//!   a newer version ──► told once: Changed ──► reads the new one
//!                  └──► pinned: Changed, now and ever after
//!   a larger size   ──► goes on: the same version, longer
//!                  └──► pinned to its size: Changed, now and ever after
//! ```
//!
//! A pinned reader has promised a size to a client with a cache of its own. Whether a file that grew was appended to can only
//! be guessed from a sample of its bytes, so for such a client any other size is another version.
//!
//! Never: finds out by itself; the driver says what the version is.

use super::state::State;
use crate::error::Fault;
use foreread_core::event::Error;
use foreread_core::units::{ByteRange, FileId};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the head of this file.
pub struct Seen {
    version: AtomicU64,
    pin: Pin,
}

/// What a reader goes on with.
#[derive(Clone, Copy)]
enum Pin {
    /// Any version.
    No,
    /// This version, however long it becomes.
    Version,
    /// This version of this size.
    Exact(u64),
}

impl Seen {
    pub fn new(version: u64) -> Seen {
        Seen { version: AtomicU64::new(version), pin: Pin::No }
    }

    /// Goes on with this version alone, and with this size alone where there is one.
    pub fn pin(&mut self, size: Option<u64>) {
        self.pin = size.map_or(Pin::Version, Pin::Exact);
    }

    /// The size that the reader is pinned to.
    pub fn size(&self) -> Option<u64> {
        match self.pin {
            Pin::Exact(size) => Some(size),
            Pin::No | Pin::Version => None,
        }
    }

    /// What a second reader begins with, where the source is at `version`: what reads one version only has no second
    /// description on another.
    pub fn again(&self, version: u64) -> Seen {
        let version = if self.is_pinned() { self.version.load(Ordering::Relaxed) } else { version };
        Seen { version: AtomicU64::new(version), pin: self.pin }
    }

    fn is_pinned(&self) -> bool {
        !matches!(self.pin, Pin::No)
    }

    /// Whether the reader knew of this version. When not it is told, and knows now.
    pub fn knows(&self, version: u64) -> bool {
        let known = self.version.load(Ordering::Relaxed) == version;
        if !known {
            self.told(version);
        }
        known
    }

    /// The reader is told of a version.
    pub fn told(&self, version: u64) {
        if !self.is_pinned() {
            self.version.store(version, Ordering::Relaxed);
        }
    }
}

impl State {
    /// How a read ends that need not begin: the source is another now, or has nothing there.
    pub fn met(&self, file: FileId, seen: &Seen, range: ByteRange) -> Option<Result<usize, Fault>> {
        let (size, version) = self.known(file);
        if !seen.knows(version) || seen.size().is_some_and(|pinned| pinned != size) {
            return Some(Err(Fault::Read(Error::Changed)));
        }
        (range.is_empty() || range.start() >= size).then_some(Ok(0))
    }

    /// How a read has ended: one that was served while the source grew may hold bytes from after that.
    pub fn settle(&self, file: FileId, seen: &Seen, outcome: Result<usize, Error>) -> Result<usize, Error> {
        let grew = seen.size().is_some_and(|pinned| pinned != self.known(file).0);
        if grew { outcome.and(Err(Error::Changed)) } else { outcome }
    }
}
