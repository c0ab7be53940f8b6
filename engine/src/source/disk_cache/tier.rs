//! Where pieces are kept: a folder (`folder_tier.rs`), or a bucket (`bucket.rs`). All else knows a tier alone.
//!
//! ```text
//!   CachedSource ──► Tier ─┬─ FolderTier: files, claims, room     of this machine, or of a shared file system
//!        │                 └─ BucketTier: keys below a prefix     shared by machines
//!        └─► Writer ──► Tier
//! ```
//! A cache is one tier of this machine; the shared one, if there is one, is below it in the same way: what the first does not have it asks
//! of the second, and that asks the store.

use super::cached::CachedSource;
use super::claims::Claim;
use super::folder::PieceFile;
use super::names::NewListing;
use super::piece::{PieceBuffer, PieceFault};
use super::settings::{DiskCacheSettings, SharedCache};
use super::shared::{CachedVersion, DiskCacheCounts, TierState};
use super::sinks::FillPlace;
use super::writer::Writer;
use super::{DiskCache, OpenSettings};
use crate::source::{Source, SourceOpenError};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub trait Tier: Send + Sync {
    fn state(&self) -> &TierState;

    /// Learns which pieces of a version there are, unless it was asked a moment ago. Takes a limited time.
    fn look(&self, version: &Arc<CachedVersion>);

    /// The same before a range is fetched that others may have written a moment ago.
    fn look_again(&self, _: &Arc<CachedVersion>, _offset: u64) {}

    /// Reads a piece from where `place` is up to `end`. What was read before an error is right and stays.
    fn read(
        &self,
        version: &CachedVersion,
        piece: PieceFile,
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), PieceFault>;

    /// Is a range that is here to be read from the store, which has shown to be faster?
    fn passes_over(&self, bytes: u64) -> bool;

    /// A piece is not to be read any more.
    fn close(&self, _: &CachedVersion, _: PieceFile) {}

    /// Claims bytes of a version, if no other process has any of them.
    fn claim(&self, _: &Arc<CachedVersion>, _: &Range<u64>) -> Claim {
        Claim::Unknown
    }

    fn give_back(&self, _: &CachedVersion, _: &Range<u64>) {}

    /// What changes when another process writes a piece of a version.
    fn stamp(&self, _: &CachedVersion) -> i128 {
        0
    }

    /// Is anything written now?
    fn is_writing(&self) -> bool;

    /// Writes a piece. Is it there now?
    fn write(&self, version: &CachedVersion, buffer: &mut PieceBuffer) -> bool;

    /// Are uses noted, and what is no piece removed? Else neither is queued for the writer.
    fn is_tended(&self) -> bool {
        false
    }

    /// A piece was used.
    fn note(&self, _: &CachedVersion, _: PieceFile) {}

    /// An object was opened by its name, and is this version.
    fn note_latest(&self, _: &CachedVersion) {}

    /// A folder of a store was listed.
    fn keep_names(&self, _: &NewListing) {}

    /// What has the name of a piece is none.
    fn remove(&self, _: &CachedVersion, _: PieceFile) {}
}

/// A tier, what writes it, and the one below it.
pub struct Parts {
    pub tier: Arc<dyn Tier>,
    pub writer: Arc<Writer>,
    pub below: Option<SharedTier>,
}

impl Parts {
    pub fn over(self: &Arc<Parts>, source: Arc<dyn Source>) -> Arc<dyn Source> {
        let source = match &self.below {
            Some(below) => below.0.over(source),
            None => source,
        };
        Arc::new(CachedSource::new(source, Arc::clone(self)))
    }

    /// Is a third of a queue full?
    pub fn is_behind(&self) -> bool {
        self.writer.queued_bytes() > self.writer.most_queued() / 3
            || self.below.as_ref().is_some_and(|below| below.0.is_behind())
    }

    pub fn flush(&self, most: Duration) -> bool {
        let began = Instant::now();
        let own = self.writer.flush(most);
        let left = most.saturating_sub(began.elapsed());
        own & self.below.as_ref().is_none_or(|below| below.0.flush(left))
    }
}

/// What several machines share, below a cache of this machine.
pub struct SharedTier(Arc<Parts>);

impl SharedTier {
    pub(super) fn open(
        shared: &SharedCache,
        own: &DiskCacheSettings,
        open: &OpenSettings,
    ) -> Result<SharedTier, SourceOpenError> {
        match shared {
            SharedCache::Folder(shared) => {
                let settings = DiskCacheSettings {
                    dir: shared.dir.clone(),
                    size_bytes: shared.size_bytes,
                    others_trusted: true,
                    shared: None,
                    ..own.clone()
                };
                Ok(SharedTier(DiskCache::open(settings)?.parts))
            }
            #[cfg(feature = "object")]
            SharedCache::Bucket(bucket) => {
                let tier = super::bucket::BucketTier::open(bucket, own, open)?;
                Ok(SharedTier(Arc::new(Parts {
                    writer: Arc::new(Writer::new(tier.clone(), super::bucket::WRITERS)),
                    tier,
                    below: None,
                })))
            }
            #[cfg(not(feature = "object"))]
            SharedCache::Bucket(bucket) => {
                let _ = open;
                Err(SourceOpenError {
                    what: bucket.name.clone(),
                    why: "a bucket cannot be a shared cache: foreread was built without the feature `object`"
                        .to_string(),
                    remedy: "build it with that feature, or share a folder".to_string(),
                    errno: rustix::io::Errno::OPNOTSUPP.raw_os_error(), cause: None,
})
            }
        }
    }

    /// What it has done for this process.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        self.0.tier.state().counts.now()
    }
}
