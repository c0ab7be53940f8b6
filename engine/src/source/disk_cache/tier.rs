//! Where pieces are kept: a folder (`folder_tier.rs`), or a bucket (`bucket.rs`). All else knows a tier alone.
//!
//! ```text
//!   CachedSource ──► Tier ─┬─ FolderTier: files, claims, room     of this machine, or of a shared file system
//!        │                 └─ BucketTier: keys below a prefix     shared by machines
//!        └─► Writer ──► Tier
//! ```
//! A cache is one tier of this machine; the shared one, if there is one, is below it in the same way: what the first does not have it asks
//! of the second, and that asks the store.

use super::claims::Claim;
use super::folder::PieceFile;
use super::names::NewListing;
use super::piece::{PieceBuffer, PieceFault};
use super::shared::{CachedVersion, TierState};
use super::sinks::FillPlace;
use std::ops::Range;
use std::sync::Arc;

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
