//! Reads the ranges of a plan into the kernel's page cache, for unmodified programs.
//!
//! ```text
//!   plan, in order ──► pieces ──► threads: open, ask cachestat, readahead(2), wait ──► meter: latency and rate
//!                        ▲                                                               │
//!                        └── bytes in flight: twice what the storage delivers in a round trip, if memory allows
//! ```
//! Example: storage with 1 ms latency and 200 MB/s delivers 200 kB per round trip, so 400 kB are kept in flight. With this amount in
//! flight, the link to the storage is always busy, and a read of the program waits for readahead for at most 1 ms.
//!
//! Data that is already cached is not read again. An interrupted plan therefore continues at the range where it stopped, and ranges that
//! the program itself has already read are skipped. Files that have changed since the plan was made are skipped. foreread writes to no
//! file, and reads no more than memory can hold.

mod budget;
pub mod engine;
mod files;
mod filler;
mod state;
mod whole;

pub use budget::Budget;
pub use filler::{FillReport, FillSettings, Filler};
pub use state::FillCounts;
use std::path::PathBuf;
pub use whole::whole_files;
#[cfg(feature = "lab")]
mod judge;
#[cfg(feature = "lab")]
pub(crate) use files::mounted_device;
#[cfg(feature = "lab")]
pub use judge::{FetchUse, judge};

/// Maximum number of left-out files that are listed by name.
pub const MAX_LEFT_OUT: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub path: PathBuf,
    pub why: String,
}

impl LeftOut {
    /// The left-out files to list, by path.
    pub(crate) fn named(all: impl Iterator<Item = LeftOut>) -> Vec<LeftOut> {
        let mut all: Vec<LeftOut> = all.collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.truncate(MAX_LEFT_OUT);
        all
    }
}
