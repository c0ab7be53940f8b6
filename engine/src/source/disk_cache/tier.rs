//! The interface of a cache tier, which is either a folder (`disk.rs`) or a bucket (`bucket.rs`). Other code uses a tier only
//! through this interface.
//!
//! ```text
//!   CachedSource ──► Tier ─┬─ DiskTier: files, claims, room       of this machine, or of a shared file system
//!        │                 └─ BucketTier: keys below a prefix     shared by machines
//!        └─► Writer ──► Tier
//! ```
//! A cache has one tier on this machine (local tier). Below the local tier, there may be a shared tier. Data missing in the local tier is
//! requested from the shared tier, and then from the store.

use super::claims::Claim;
use super::names::NewListing;
use super::object::Fault;
use super::shared::{CachedVersion, TierState};
use super::whole::WholeFile;
use crate::source::sinks::FillPlace;
use std::ops::Range;
use std::sync::Arc;

/// What a tier may store besides data. A note is dropped if the writer's queue is full.
pub enum Note {
    /// A version was used.
    Use(Arc<CachedVersion>),
    /// An object was opened by its name as this version.
    Latest(Arc<CachedVersion>),
    /// A folder of a store was listed.
    Names(NewListing),
}

/// The next part of a range, which the tier either has or lacks as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Cached up to this offset. The checksums of its blocks follow, if this tier keeps them separately.
    Here(u64, Vec<u64>),
    /// Not cached up to this offset.
    Store(u64),
}

pub trait Tier: Send + Sync {
    fn state(&self) -> &TierState;

    /// Returns the first part of a range, as it is now. Takes a bounded time.
    fn next(&self, version: &Arc<CachedVersion>, range: &Range<u64>) -> Part;

    /// Reads a cached part from the offset of `place` up to `end`. Bytes that were read before an error are valid and stay. Invalid bytes
    /// are removed from the cache.
    fn read(
        &self,
        version: &Arc<CachedVersion>,
        sums: &[u64],
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), Fault>;

    fn is_use_due(&self, _: &CachedVersion) -> bool {
        false
    }

    /// Whether to read a cached range from the store because the store is faster.
    fn passes_over(&self, _: &CachedVersion, _bytes: u64) -> bool {
        false
    }

    /// Claims a range of a version, unless another process has claimed any of it.
    fn claim(&self, _: &Arc<CachedVersion>, _: &Range<u64>) -> Claim {
        Claim::Unknown
    }

    fn give_back(&self, _: &CachedVersion, _: &Range<u64>) {}

    /// Whether the tier accepts writes now.
    fn is_writing(&self) -> bool;

    /// Writes whole blocks. Returns whether they are cached now.
    fn write(&self, version: &Arc<CachedVersion>, offset: u64, bytes: &[u8]) -> bool;

    /// A version as a file that the kernel may read directly. Returns `None` if it is not complete. See [`WholeFile::open`] for
    /// what is verified.
    fn whole(&self, _: &CachedVersion, _: Option<&dyn Fn() -> bool>) -> Option<Arc<WholeFile>> {
        None
    }

    fn take_note(&self, _: &Note) {}

    /// Call this when all queued writes are done: the account is written, and complete versions are noted.
    fn settle(&self) {}
}
