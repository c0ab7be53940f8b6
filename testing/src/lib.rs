//! Test sources: sources whose bytes identify their offset, sources that fail or hang, and servers that send wrong replies. This crate is
//! for foreread's own tests, and for tests of sources that other projects implement. No crate that users install depends on this crate.
//!
//! Example: `Faulty::nth(source, 3)` makes the fourth read fail with EIO, and `check` reports which byte is at the wrong offset.
//!
//! ```text
//!   pattern   bytes that identify their own offset and version, so that a misplaced byte is detected
//!   http_server  the common part of the servers below: wrong answers, edits, a link, and recorded requests
//!   bucket_server  an S3 server for one bucket in memory, with every key that S3 allows, which counts requests
//!   ceph      a Ceph cluster on one machine, removed when it is dropped
//!   command   runs a binary of this workspace, and looks at what it printed
//!   emulators versitygw, fake-gcs-server and azurite
//!   faulty    any source, wrapped: fails the Nth read, fails by chance, ends early, is slow, panics
//!   hanging   any source, wrapped: one of its methods hangs until it is released
//!   hub_server  a Hugging Face Hub: signed URLs that expire, paged trees, refusals, and the requests to each of its two servers
//!   range_server  an HTTP server for one object, and a proxy in front of any HTTP server
//!   link      a round-trip time and a bandwidth, in front of any server
//!   machine   programs, processes, signals, mounts, loop devices and a slow disk of the machine that runs the test
//!   queued    any source, wrapped: read by transfers that end late and out of order
//!   versioned an object with an exact version that can be replaced, and a count of what is asked
//!   fuzz      the bodies of the fuzz targets
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "a test may panic if a thread cannot be started"
)]

/// Methods of a source that pass each call on to another.
#[macro_export]
macro_rules! passed_on {
    ($me:ident => $to:expr; $($name:ident($($arg:ident: $of:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&$me, $($arg: $of),*) $(-> $result)? {
            $to.$name($($arg),*)
        }
    )*};
}

mod bucket_server;
mod ceph;
pub mod command;
#[cfg(feature = "object")]
pub mod emulators;
mod faulty;
pub mod fuzz;
mod hanging;
mod http_server;
mod hub_server;
mod link;
pub mod machine;
mod pattern;
mod queued;
mod range_server;
mod versioned;

pub use bucket_server::{BucketServer, Requests};
pub use ceph::{CephCluster, CephError, run_ceph};
pub use faulty::{Call, FaultAction, Faulty, Other};
pub use foreread::system::{SystemRequest, is_due, refuse};
pub use hanging::{HangingSource, Latch, Method};
pub use http_server::{HttpServer, Lie, ServedAnswer, ServedRequest};
pub use hub_server::{HubMirror, HubRoute, HubServer};
pub use link::{Link, Proxy};
pub use pattern::{ExactSource, Wrong, check, fill, name_of, pattern};
pub use queued::QueuedSource;
pub use range_server::{LyingProxy, RangeServer};
pub use versioned::VersionedSource;

/// Checks that a text contains all these parts; panics if one is missing.
#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// The rows of a table that is a text: a line each, with its cells between `|`.
pub fn rows<const CELLS: usize>(table: &str) -> impl Iterator<Item = [&str; CELLS]> {
    table.lines().map(|line| {
        let cells = Vec::from_iter(line.split('|').map(str::trim));
        let cells = cells.try_into();
        cells.unwrap_or_else(|_| panic!("a row has {CELLS} cells: {line}"))
    })
}

/// Ends a test that needs what this machine lacks; what is asked prints `skipped: needs X`.
#[macro_export]
macro_rules! needs {
    (let $name:pat = $made:expr) => {
        let Some($name) = $made else { return };
    };
    ($has:expr) => {
        if !$has {
            return;
        }
    };
}
