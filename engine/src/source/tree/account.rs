//! Accounts for the memory that names use in this process, in listings and in the inode tables of mounts.
//!
//! A name takes some hundred bytes, and a server may send any number of names of any length. So foreread limits bytes, not the
//! number of names. The limit counts the bytes of names, of their attributes, and of the tables that hold both. All listings and
//! mounts of the process share one limit ([`max_name_bytes`]). A listing that would exceed the limit fails at once, without
//! waiting, and releases its memory.
//!
//! ```text
//!   current listing ──grow──► NameBytes ──drop──► returned
//!   open folder, numbers of a mount ──grow──► ...      all of them: at most max_name_bytes
//! ```
//! Example: a folder of 1,000,000 objects, with names of 17 bytes and ETags of 32 hex digits. The listing of this folder and the
//! inode numbers that a mount gives the kernel take about 90 MB. Each file that a program then looks up or opens takes 400 bytes
//! more.

use foreread_os::host::Host;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limit in bytes for all names in this process, on a machine with 4 GiB of memory or more.
pub const MAX_NAME_BYTES: u64 = 1 << 30;

static USED: AtomicU64 = AtomicU64::new(0);

/// Maximum bytes for the names of all listings and mounts of this process: [`MAX_NAME_BYTES`], or a quarter of the memory of
/// this machine or control group if that is less.
#[must_use]
pub fn max_name_bytes() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| MAX_NAME_BYTES.min(Host::here().memory_bytes() / 4))
}

/// Returns the number of bytes that the names of all listings and mounts of this process use now.
#[must_use]
pub fn name_bytes() -> u64 {
    USED.load(Ordering::Relaxed)
}

/// The bytes that one listing or mount has reserved for names, out of the process's limit for all names; dropping this value releases
/// them.
#[derive(Debug, Default)]
pub struct NameBytes(u64);

impl NameBytes {
    /// Reserves more bytes. Returns false, and reserves nothing, if the process's limit for all names would be exceeded.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let more = |used: u64| {
            used.checked_add(bytes)
                .filter(|used| *used <= max_name_bytes())
        };
        let taken = USED
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok();
        self.0 += if taken { bytes } else { 0 };
        taken
    }

    /// Releases some of the reserved bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.0);
        self.0 -= bytes;
        USED.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that are reserved now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0
    }
}

impl Drop for NameBytes {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Returns the error message for names that would exceed the limit.
#[must_use]
pub fn too_many_bytes() -> String {
    format!(
        "the file names that this process caches for all listings and mounts exceed the limit of {} bytes; read a smaller folder",
        max_name_bytes()
    )
}
