//! The version of a source that a reader knows of, what a read meets before it begins, and how one version follows another.
//!
//! ```text
//!   a newer version ──► told once: Changed ──► reads the new one
//!                  └──► pinned: Changed, now and ever after
//!   a larger size   ──► goes on: the same version, longer
//!                  └──► pinned to its size: Changed, now and ever after
//! ```
//!
//! ```text
//!   changed: the old one is dropped ──► Due ──the thread that noticed──► Asked ──accepted: the size──► No
//! ```
//!
//! A pinned reader has promised a size to a client with a cache of its own. Whether a file that grew was appended to can only
//! be guessed from a sample of its bytes, so for such a client any other size is another version.
//!
//! Never: finds out by itself; the driver says what the version is.

use super::lock::Remote;
use super::state::State;
use crate::error::Fault;
use crate::source::Source;
use foreread_core::event::{Error, Event};
use foreread_core::units::{ByteRange, FileId, Nanos};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the head of this file.
pub struct VersionCursor {
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

impl VersionCursor {
    pub fn new(version: u64) -> VersionCursor {
        VersionCursor { version: AtomicU64::new(version), pin: Pin::No }
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
    pub fn again(&self, version: u64) -> VersionCursor {
        let version = if self.is_pinned() { self.version.load(Ordering::Relaxed) } else { version };
        VersionCursor { version: AtomicU64::new(version), pin: self.pin }
    }

    fn is_pinned(&self) -> bool {
        !matches!(self.pin, Pin::No)
    }

    /// Whether the reader knew of this version. If not, it learns of it.
    pub fn knows(&self, version: u64) -> bool {
        let known = self.version.load(Ordering::Relaxed) == version;
        if !known {
            self.told(version);
        }
        known
    }

    /// The reader learns of a version.
    pub fn told(&self, version: u64) {
        if !self.is_pinned() {
            self.version.store(version, Ordering::Relaxed);
        }
    }
}

/// Whether a file's source has said what it holds since it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// It has, or it never changed.
    No,
    /// The thread that noticed the change has to ask.
    Due,
    /// It is asking.
    Asked,
}

impl State {
    /// How a read ends whose reader has not heard of the version that there is now.
    pub fn outcome_if_changed(&self, file: FileId, seen: &VersionCursor) -> Option<Fault> {
        let (_, version) = self.known(file);
        (!seen.knows(version)).then_some(Fault::Read(Error::Changed))
    }

    /// How a read ends that need not begin: the source is another now, or has nothing there.
    pub fn met(&self, file: FileId, seen: &VersionCursor, range: ByteRange) -> Option<Result<usize, Fault>> {
        if let Some(fault) = self.outcome_if_changed(file, seen) {
            return Some(Err(fault));
        }
        let (size, _) = self.known(file);
        if seen.size().is_some_and(|pinned| pinned != size) {
            return Some(Err(Fault::Read(Error::Changed)));
        }
        (range.is_empty() || range.start() >= size).then_some(Ok(0))
    }

    /// How a read has ended: one that was served while the source grew may hold bytes from after that.
    pub fn settle(&self, file: FileId, seen: &VersionCursor, outcome: Result<usize, Error>) -> Result<usize, Error> {
        let grew = seen.size().is_some_and(|pinned| pinned != self.known(file).0);
        if grew { outcome.and(Err(Error::Changed)) } else { outcome }
    }

    /// This version of the source may be larger than the machine knows.
    pub fn grown(&mut self, now: Nanos, file: FileId, version: u64, size: u64) {
        let Some(entry) = self.files.get_mut(file.0 as usize).and_then(Option::as_mut) else { return };
        if entry.version == version && size > entry.size {
            entry.size = size;
            self.feed(now, Event::Grown { file, size });
        }
    }

    /// The source is another version than `version`. The first to say so drops everything of the old one.
    pub fn changed(&mut self, now: Nanos, file: FileId, version: u64) {
        let Some(entry) = self.files.get_mut(file.0 as usize).and_then(Option::as_mut) else { return };
        if entry.version == version {
            self.versions += 1;
            (entry.version, entry.size, entry.accepting) = (self.versions, 0, Accepting::Due);
            // The size comes with `accepted`. The source is asked without the lock, which is given up in between: nothing can
            // be read of the new version before the old one is gone.
            self.feed(now, Event::Changed { file, size: 0 });
        }
    }

    /// Whether a file's source still has to say what it holds since it changed.
    pub fn is_accepting(&self, file: FileId) -> bool {
        self.file(file).is_some_and(|file| file.accepting != Accepting::No)
    }

    /// The source to be asked what it holds since it changed, and the version that this will be. Given to one caller only, which asks.
    pub fn begin_accept(&mut self, file: FileId) -> Option<(Remote<dyn Source>, u64)> {
        let entry = self.files.get_mut(file.0 as usize)?.as_mut()?;
        if entry.accepting != Accepting::Due {
            return None;
        }
        entry.accepting = Accepting::Asked;
        Some((entry.source.share(), entry.version))
    }

    /// The source has said how large it is since it changed.
    pub fn accepted(&mut self, now: Nanos, file: FileId, version: u64, size: u64) {
        let Some(entry) = self.files.get_mut(file.0 as usize).and_then(Option::as_mut) else { return };
        if entry.version == version {
            entry.accepting = Accepting::No;
            self.grown(now, file, version, size);
            self.tell(file);
        }
    }
}
