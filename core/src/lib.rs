//! Readahead (prefetch) policies without I/O: what to read next, as a pure state machine.
//!
//! ```
//! use foreread_core::event::{Action, Event};
//! use foreread_core::machine::{Config, Machine};
//! use foreread_core::policy::PolicySpec;
//! use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
//!
//! let page = PageSize::new(4096).ok_or("a power of two")?;
//! let policy = PolicySpec::parse("linux-6.18:max=128K").map_err(|error| error.to_string())?;
//! let mut machine = Machine::new(Config::new(page, 1 << 20), policy);
//!
//! // Events in, each with its time: a file of 1 MiB is opened and its first page read.
//! machine.handle(Nanos(0), Event::open(OpenId(0), FileId(0), 1 << 20));
//! let range = ByteRange::between(0, 4096);
//! machine.handle(Nanos(1), Event::read(ReadId(0), OpenId(0), range));
//!
//! // Actions out: the kernel's first window is four pages, the requested page and three pages of readahead.
//! let Some(Action::Submit { range, .. }) = machine.poll() else { return Err("a fetch".into()) };
//! assert_eq!((range.start(), range.end()), (0, 4 * 4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The caller does the I/O and reports the results as further events: [`event::Event::Done`], [`event::Event::Failed`]. The crate
//! `foreread` is the caller for real storage; the simulator is the caller with a virtual clock. For the same events, the engine and the
//! simulator get the same actions.
//!
//! The crate is `no_std` with `alloc` and has no dependency. The crate never waits, reads a clock, holds file data, does I/O or uses
//! floating point.
//!
//! ```text
//!            events in                                     actions out
//!   read, done, failed, ...  ──►  machine  ──►  submit a fetch, serve a read, drop pages, ...
//!                                 │     │
//!                      what next? │     │ what is cached?
//!                              policy  cache
//! ```
#![no_std]
#![warn(missing_docs)]
extern crate alloc;

mod cache;
pub mod event;
mod files;
pub mod machine;
pub mod notation;
pub mod policy;
pub mod stats;
pub mod storage;
pub mod units;
