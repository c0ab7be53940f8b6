//! The default settings for each kind of storage, in one table.
//!
//! `serve`, `mount`, `compare --on` and the libraries for Rust and C use the same defaults, so a measurement with `compare`
//! predicts how the server performs. Each implementation of a source or a tree must state its defaults.
//!
//! ```text
//!   Source::defaults, Tree::defaults ──► requests ──► worker threads, fetches ahead in flight;  max_fetch ──► largest fetch
//!                                    └─► window   ──► `max` of a linux-* policy that leaves it open
//!   a device's read_ahead_kb, --policy NAME:max=..., Options::threads override it
//! ```
//!
//! | kind | requests | window | reason |
//! |---|---|---|---|
//! | memory, file | 4 | 128K | Linux: `VM_READAHEAD_PAGES`; a device's own setting overrides it |
//! | object | 16; 48 of at most 3 MiB together | 24M | four times the bytes in flight at 30 ms and 200 MB/s (docs/decisions/0100) |
//! | nbd | 16 | 8M | fastest at 0, 1 and 5 ms of delay together (docs/decisions/0100) |
//! | rbd | 16 | 4M | one object of an image, and the `max` of the 2014 experiment on RBD |
//! | model-live | 4 | 128K | as the simulator for the same model |
//!
//! A fetch is at most 1 MiB, but 8 MiB for objects. The limit for objects is higher because a reader gets the bytes of an object as they
//! arrive, but the bytes of other sources only when the fetch is complete. The policy `auto` uses only the number of requests and the
//! largest fetch size from this table, and measures the rest.

use foreread_core::storage::{KindLimits, LOCAL_FETCH_BYTES};
use foreread_os::host::Host;
use std::path::Path;

/// The kernel's default readahead for a device without a setting: `VM_READAHEAD_PAGES` in include/linux/mm.h, 128 KiB.
pub const LINUX_READAHEAD_BYTES: u64 = 128 << 10;

/// The readahead setting of the block device at `path`, or of the device that holds the file. If the file system is not on a single
/// device (btrfs, NFS), this is the readahead setting of the mounted file system.
#[must_use]
pub fn default_readahead_bytes(path: &Path) -> Option<u64> {
    Host::here().device_of(path).ok()?.read_ahead
}

/// How foreread reads a kind of storage: the number of concurrent requests, their maximum size, and the maximum readahead.
///
/// For a client that you implement, choose the defaults by the latency of a request:
///
/// | latency of a request | use | why |
/// |---|---|---|
/// | less than 100 us: a local disk, memory | [`Defaults::FILE`], [`Defaults::MEMORY`] | 4 threads and windows of 128 KiB are enough |
/// | about 1 ms: a server on the same network | [`Defaults::NBD`] | 16 requests of at most 1 MiB, windows of 8 MiB |
/// | 10 ms and more: an object store, another site | [`Defaults::OBJECT`] | 16 requests, 48 short ones, windows of 24 MiB |
///
/// [`Defaults::OBJECT`] allows fetches of up to 8 MiB, because an object's bytes are served while they arrive
/// ([`StreamingSource`](super::StreamingSource)). A client that returns each reply as a whole over a slow link should set
/// `Defaults { max_fetch_bytes: 1 << 20, ..Defaults::OBJECT }`, so that a reader waits for less data. A client for remote storage
/// that uses [`Defaults::FILE`] reads several times more slowly than with fitting defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The name of the kind, for display.
    pub kind: &'static str,
    /// The number of concurrent reads that the storage serves as fast as a single read, at least 1. Remote storage needs many:
    /// while one reply arrives, other requests are in flight.
    pub requests: u32,
    /// The number of concurrent reads while all of them are short ([`foreread_core::storage::SHORT_AHEAD_BYTES`] together):
    /// each costs a round trip whatever its length.
    pub short_requests: u32,
    /// The largest readahead of a policy that follows a device's setting, if the device has none.
    pub window_bytes: u64,
    /// Maximum bytes of a fetch.
    pub max_fetch_bytes: u64,
}

impl Defaults {
    /// The defaults for memory, and for storage that answers as fast as memory.
    pub const MEMORY: Defaults = Defaults {
        kind: "memory",
        requests: 4,
        short_requests: 4,
        window_bytes: LINUX_READAHEAD_BYTES,
        max_fetch_bytes: LOCAL_FETCH_BYTES,
    };
    /// The defaults for a file or a block device on this machine.
    pub const FILE: Defaults = Defaults {
        kind: "file",
        ..Defaults::MEMORY
    };
    /// The defaults for an object over HTTP or S3, and for the objects below a prefix.
    pub const OBJECT: Defaults = Defaults {
        kind: "object",
        requests: KindLimits::OBJECT.ahead_requests,
        short_requests: KindLimits::OBJECT.short_ahead_requests,
        window_bytes: 24 << 20,
        max_fetch_bytes: KindLimits::OBJECT.max_fetch_bytes,
    };
    /// The defaults for an export on an NBD server.
    pub const NBD: Defaults = Defaults {
        kind: "nbd",
        requests: 16,
        short_requests: 16,
        window_bytes: 8 << 20,
        ..Defaults::MEMORY
    };
    /// The defaults for a Ceph RBD image.
    pub const RBD: Defaults = Defaults {
        kind: "rbd",
        requests: 16,
        short_requests: 16,
        window_bytes: 4 << 20,
        ..Defaults::MEMORY
    };
    /// The defaults for a device model that runs in real time: each read sleeps for as long as the modelled device takes.
    pub const MODEL_LIVE: Defaults = Defaults {
        kind: "model-live",
        ..Defaults::MEMORY
    };

    /// Returns these defaults with another number of concurrent requests. The readahead window changes in proportion to the number
    /// of requests.
    #[must_use]
    pub fn with_requests(self, requests: u32) -> Defaults {
        let requests = requests.max(1);
        let window_bytes =
            self.window_bytes / u64::from(self.requests.max(1)) * u64::from(requests);
        Defaults {
            requests,
            short_requests: requests,
            window_bytes,
            ..self
        }
    }

    /// The largest readahead in a cache of this size: at most a quarter of the cache, so that four streams do not evict each
    /// other, but at least 128 KiB, the kernel's default. The result never exceeds `window_bytes`.
    #[must_use]
    pub fn window_in(self, cache_bytes: u64) -> u64 {
        self.window_bytes
            .min((cache_bytes / 4).max(LINUX_READAHEAD_BYTES))
    }
}
