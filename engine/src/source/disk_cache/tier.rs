//! A cache tier: a folder (`disk.rs`), or a bucket (`bucket.rs`). Other code uses only this interface.
//!
//! ```text
//!   CachedSource ──► Tier ─┬─ DiskTier: files, claims, room       of this machine, or of a shared file system
//!        │                 └─ BucketTier: keys below a prefix     shared by machines
//!        └─► Writer ──► Tier
//! ```
//! A cache has one tier on this machine; an optional shared tier is below it: the first requests missing data
//! from the second, and that from the store.

use super::claims::Claim;
use super::names::NewListing;
use super::object::Fault;
use super::shared::{CachedVersion, TierState};
use super::sinks::FillPlace;
use super::whole::{Look, WholeFile};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The next part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Here, up to there, with the checksums of its blocks where this tier has them apart.
    Here(u64, Vec<u64>),
    /// Not here up to there.
    Store(u64),
}

pub trait Tier: Send + Sync {
    fn state(&self) -> &TierState;

    /// The first part of a range, as it is now. Takes a limited time.
    fn next(&self, version: &Arc<CachedVersion>, range: &Range<u64>) -> Part;

    /// Reads a part that is here from where `place` is up to `end`. What was read before an error is right and stays; what is wrong is no
    /// longer here.
    fn read(
        &self,
        version: &Arc<CachedVersion>,
        sums: &[u64],
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), Fault>;

    /// Whether to read a cached range from the store, because it is faster.
    fn passes_over(&self, bytes: u64) -> bool;

    /// Claims bytes of a version, if no other process has any of them.
    fn claim(&self, _: &Arc<CachedVersion>, _: &Range<u64>) -> Claim {
        Claim::Unknown
    }

    fn give_back(&self, _: &CachedVersion, _: &Range<u64>) {}

    /// Is anything written now?
    fn is_writing(&self) -> bool;

    /// Writes whole blocks. Returns whether they are cached now.
    fn write(&self, version: &Arc<CachedVersion>, offset: u64, bytes: &[u8]) -> bool;

    /// A version as a file that the kernel may read by itself, if it is whole.
    fn whole(&self, _: &CachedVersion, _: Look<'_>) -> Option<Arc<WholeFile>> {
        None
    }

    /// Are uses noted? Else they are not queued for the writer.
    fn is_tended(&self) -> bool {
        false
    }

    /// A version was used.
    fn note_use(&self, _: &CachedVersion) {}

    /// An object was opened by its name, and is this version.
    fn note_latest(&self, _: &CachedVersion) {}

    /// A folder of a store was listed.
    fn keep_names(&self, _: &NewListing) {}

    /// All that was queued is written.
    fn settle(&self) {}

    /// Waits until what was written is synced where it is to be, at most this long. Returns whether it is.
    fn sync(&self, _most: Duration) -> bool {
        true
    }
}
