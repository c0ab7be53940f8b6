//! Userspace readahead (prefetch) for files, S3, NBD and RBD.
//!
//! ```
//! use foreread::{Options, Reader};
//! use std::io::Read;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("big.img");
//! # std::fs::write(&path, vec![7; 1 << 20])?;
//!
//! // A file, a block device, or a name such as "s3://bucket/key", "nbd://host/export" or "rbd:pool/image".
//! let reader = Reader::open(path, Options::default())?;
//!
//! // At an offset, from any number of threads.
//! let mut buf = [0; 4096];
//! let read = reader.read_at(&mut buf, 8192)?;
//!
//! // Sequentially, with std::io::Read and Seek.
//! let mut all = Vec::new();
//! reader.cursor().read_to_end(&mut all)?;
//! # assert_eq!((read, all.len()), (4096, 1 << 20));
//!
//! println!("{} of {} reads were hits", reader.stats().hits, reader.stats().demand_reads);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look next
//! | task | see |
//! |---|---|
//! | read from tasks of any runtime | [`Reader::read_at_async`] |
//! | fetch ranges that are known beforehand | [`Reader::prefetch`] |
//! | many files in one cache | [`Engine`] |
//! | files in a known order, read ahead before they are opened | [`Engine::list`] |
//! | choose a policy, the size of the cache, limits | [`Options`] |
//! | bytes from elsewhere: a client of your own that blocks | [`source::Source`], and the example `custom_source` |
//! | the same with an async client | `source::from_async` (feature `tokio`), and the example `async_source` |
//! | an object of a store of the crate `object_store` | `source::Object::in_store` (feature `object`) |
//! | a policy of your own | [`policy`], and the example `custom_policy` |
//! | serve or mount | [`front`] |
//! | statistics and diagnosis | [`Reader::stats`], [`why_no_readahead`], [`eventlog`] |
//!
//! # Features
//! | feature | default | content |
//! |---|---|---|
//! | `uring` | yes | files with io_uring, if the kernel allows it |
//! | `nbd` | yes | the NBD server, and exports of other servers as a source |
//! | `rbd` | yes | Ceph images, through the installed librbd |
//! | `metrics` | yes | counters as OpenMetrics text |
//! | `object` | no | `s3://` and `http(s)://`; adds about 150 crates |
//! | `disk-cache` | no | keeps bytes of objects on disk between runs: `source::disk_cache`; includes `object` |
//! | `fuse` | no | the FUSE mount |
//! | `tls` | no | TLS for the NBD server, and `nbds://` |
//! | `tokio` | no | async clients as sources: `source::from_async` |
//!
//! Programs with their own sources need only `foreread = { version = "0.1", default-features = false }`; files are then read by
//! threads.
//!
//! Log lines and the spans `open` and `fetch` go through the facade `tracing`. The spans have the level DEBUG. A fetch through io_uring
//! or another asynchronous queue has no span, because no thread waits for it.
//!
//! # How it works
//! The state machine of [`foreread_core`] decides what to read ahead; this crate sends events to it and executes its actions. The crate
//! never returns a byte that the source does not have, never fails a read because of readahead, and never exceeds its limits. The crate
//! keeps nothing on disk unless `Options::disk_cache` sets a folder. `unsafe` is used in only two modules: the io_uring ring and librbd.
//!
//! ```text
//!   Reader ──► driver ──event──► machine (foreread-core)
//!     ▲          │  ▲               │
//!     │          │  └────action─────┘
//!     │ copy     ├──► source   the origin of the bytes: file, block device, memory, your own
//!     └───────── store   the bytes that are cached
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic if a thread cannot be started"
    )
)]

mod arena;
mod budget;
mod chunk;
mod driver;
mod engine;
mod error;
mod error_kind;
pub mod eventlog;
mod fork;
pub mod front;
mod health;
pub mod io;
mod latency;
mod log;
#[cfg(feature = "nbd")]
pub mod nbd;
mod options;
mod reader;
pub mod source;
mod store;
/// Internal: for the simulated sources of `foreread-testing`, which wait with the same locks as the driver.
#[doc(hidden)]
pub mod sync;
/// Internal: for `foreread-testing`, which injects refusals of system requests.
#[doc(hidden)]
pub mod system;

pub use budget::{Budget, BudgetLimits, BudgetUse, MIN_MEMORY_BYTES};
pub use chunk::MemoryMeter;
pub use driver::{Gauges, StreamView};
pub use engine::Engine;
pub use error::{OpenError, Place, ReadError, WriteError};
pub use error_kind::ErrorKind;
pub use foreread_core::event::Advice;
/// The interface for writing your own policy; see the example `custom_policy`.
pub use foreread_core::policy;
pub use foreread_core::policy::{PolicySpec, Tuning};
pub use foreread_core::stats::Stats;
pub use foreread_core::units::{SizeError, parse_size};
pub use fork::Fork;
pub use health::{ReadaheadState, readahead_state, why_no_readahead};
pub use latency::Latencies;
pub use options::{Limits, Options, PolicyChoice, Storage};
pub use reader::{FilePosition, ListedFile, Listing, Origin, ReadAt, Reader};
