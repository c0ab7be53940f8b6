//! The version of a source that a reader knows of, and what a read meets before it begins.
//!
//! ```text
//!   a newer version ──► told once: Changed ──► reads the new one
//!                  └──► pinned: Changed, now and ever after
//! ```
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
    /// The reader goes on with no other.
    pinned: bool,
}

impl Seen {
    pub fn new(version: u64) -> Seen {
        Seen { version: AtomicU64::new(version), pinned: false }
    }

    pub fn pin(&mut self) {
        self.pinned = true;
    }

    /// What a second reader begins with, where the source is at `version`: what reads one version only has no second
    /// description on another.
    pub fn again(&self, version: u64) -> Seen {
        let version = if self.pinned { self.version.load(Ordering::Relaxed) } else { version };
        Seen { version: AtomicU64::new(version), pinned: self.pinned }
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
        if !self.pinned {
            self.version.store(version, Ordering::Relaxed);
        }
    }
}

impl State {
    /// How a read ends that need not begin: the source is another now, or has nothing there.
    pub fn met(&self, file: FileId, seen: &Seen, range: ByteRange) -> Option<Result<usize, Fault>> {
        let (size, version) = self.known(file);
        if !seen.knows(version) {
            return Some(Err(Fault::Read(Error::Changed)));
        }
        (range.is_empty() || range.start() >= size).then_some(Ok(0))
    }
}
