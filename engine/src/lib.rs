//! The room that **does**: threads, bytes, storage.
//!
//! [`Reader`] reads a [`source::Source`] through a cache with readahead. What is read ahead is decided by the machine
//! of [`foreread_core`]; this crate feeds it what happens and does what it says.
//!
//! Never: decides what to read ahead, holds more than its limits say, returns a byte that is not the source's, or
//! fails a read because of a readahead. There is no cache on disk. `unsafe` stands in two rooms only: the ring of
//! io_uring and librbd.
//!
//! ```text
//!   Reader ──► driver ──event──► machine (foreread-core)
//!     ▲          │  ▲               │
//!     │          │  └────action─────┘
//!     │ copy     ├──► source   where bytes come from: file, block device, memory, yours
//!     └───────── store   the bytes that are cached
//! ```

mod arena;
mod budget;
mod cgroup;
mod chunk;
mod driver;
mod engine;
mod error;
pub mod eventlog;
pub mod front;
mod health;
mod latency;
mod log;
#[cfg(feature = "nbd")]
pub mod nbd;
mod options;
mod plan;
mod prefault;
mod readahead;
mod reader;
pub mod source;
mod store;
mod sync;
mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use budget::{Budget, BudgetLimits, BudgetUse, MIN_MEMORY_BYTES};
pub use chunk::MemoryMeter;
pub use driver::{Gauges, StreamView};
pub use engine::Engine;
pub use error::{OpenError, Place, ReadError, WriteError};
pub use foreread_core::event::Advice;
/// How a policy of one's own is written; see the example `custom_policy`.
pub use foreread_core::policy;
pub use foreread_core::policy::PolicySpec;
pub use foreread_core::stats::Stats;
pub use health::{ReadaheadState, readahead_state, why_no_readahead};
pub use latency::Latencies;
pub use options::{Limits, Options, PolicyChoice, Storage};
pub use plan::ReadPlan;
pub use readahead::{ByCapacity, Largest, Readahead};
pub use reader::{Origin, ReadAt, Reader};
