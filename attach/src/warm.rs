//! Brings the ranges of a plan into the kernel's page cache, for programs that are not changed.
//!
//! ```text
//!   plan, in order ──► pieces ──► threads: open, ask cachestat, readahead(2), wait ──► meter: latency and rate
//!                        ▲                                                               │
//!                        └── as many bytes in flight as twice what the storage delivers in a round trip, within the memory
//! ```
//! Example: a storage with 1 ms and 200 MB/s delivers 200 kB in a round trip, so 400 kB are in flight: the link is full, and a read of
//! the program waits behind 1 ms of readahead at most.
//!
//! What is cached already is not read again, so a plan that was half done goes on where it stopped, and a program that is ahead of
//! the plan is not followed. Never: writes to a file, reads one that has changed since the plan was made, or more than the memory takes.

mod budget;
pub mod engine;
mod files;
mod filler;
#[cfg(feature = "lab")]
mod judge;
mod left_out;
mod state;
mod whole;

pub use budget::Budget;
#[cfg(feature = "lab")]
pub(crate) use files::mounted_device;
pub use filler::{FillReport, FillSettings, Filler};
#[cfg(feature = "lab")]
pub use judge::{FetchUse, judge};
pub use left_out::{LeftOut, MAX_LEFT_OUT};
pub use state::FillCounts;
pub use whole::whole_files;
