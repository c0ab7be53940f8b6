//! The version of a source that a reader knows of, and whether a read may begin.
//!
//! Example: a reader opened at version 1 reads a file that is now at version 4. That read fails with `Changed` and moves the
//! cursor to 4; the next read is served from version 4. A pinned reader stays at 1, and every read of it fails.
//!
//! ```text
//!   a newer version ──► Changed once ──► reads the new one
//!                  └──► pinned: Changed, now and ever after
//!   a larger size   ──► goes on: the same version, longer
//!                  └──► pinned to its size: Changed, now and ever after
//! ```
//!
//! A pinned reader has promised a size to a client with a cache. Whether a file that grew was appended to can only
//! be guessed from a sample of its bytes, so for such a client any other size is another version.

use super::files::Files;
use crate::error::Fault;
use crate::store::Known;
use foreread_core::event::Error;
use foreread_core::units::{ByteRange, FileId};
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
        VersionCursor {
            version: AtomicU64::new(version),
            pin: Pin::No,
        }
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
        let version = if self.is_pinned() {
            self.version.load(Ordering::Relaxed)
        } else {
            version
        };
        VersionCursor {
            version: AtomicU64::new(version),
            pin: self.pin,
        }
    }

    fn is_pinned(&self) -> bool {
        !matches!(self.pin, Pin::No)
    }

    /// Whether a read of this reader may begin on a file of which this is known, and need not look further.
    #[inline]
    pub fn allows(&self, known: Known) -> bool {
        self.version.load(Ordering::Relaxed) == known.version
            && self.size().is_none_or(|pinned| pinned == known.size)
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

/// How a read comes to begin, as far as its source has a say.
pub enum Gate {
    /// It need not begin: the source is another now, or has nothing there.
    Over(Result<usize, Fault>),
    /// The source has changed and has not said what it holds now.
    Accepting,
    /// It reaches the end known so far: the source is to be asked how large it is.
    Ask,
    /// The source is being asked for it.
    Asking,
    Open,
}

/// Whether the source has been asked for its size, for one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeQuestion {
    NotAsked,
    Asking,
    Answered,
}

/// Whether a read of `range` may begin on this file.
#[inline]
pub fn gate(
    files: &Files,
    file: FileId,
    cursor: &VersionCursor,
    range: ByteRange,
    question: SizeQuestion,
) -> Gate {
    let (known, accepting) = files.known_now(file);
    if !cursor.knows(known.version) {
        return Gate::Over(Err(Fault::Read(Error::Changed)));
    }
    if accepting {
        return Gate::Accepting;
    }
    match question {
        SizeQuestion::Asking => return Gate::Asking,
        SizeQuestion::NotAsked if range.end() > known.size && !range.is_empty() => {
            return Gate::Ask;
        }
        SizeQuestion::NotAsked | SizeQuestion::Answered => {}
    }
    if cursor.size().is_some_and(|pinned| pinned != known.size) {
        return Gate::Over(Err(Fault::Read(Error::Changed)));
    }
    if range.is_empty() || range.start() >= known.size {
        return Gate::Over(Ok(0));
    }
    Gate::Open
}

/// How a read has ended: one that was served while the source grew may hold bytes from after that.
#[inline]
pub fn settle(
    files: &Files,
    file: FileId,
    cursor: &VersionCursor,
    outcome: Result<usize, Error>,
) -> Result<usize, Error> {
    if cursor.size().is_none() && outcome.is_ok() {
        return outcome;
    }
    let known = files.known(file);
    let grew = cursor.size().is_some_and(|pinned| pinned != known.size);
    let outcome = if grew {
        outcome.and(Err(Error::Changed))
    } else {
        outcome
    };
    if outcome == Err(Error::Changed) {
        cursor.told(known.version);
    }
    outcome
}
