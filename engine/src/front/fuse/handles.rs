//! What is open through a mount: files, folders, and the names that listings hold.
//!
//! ```text
//!   open ──► Handle (a pinned reader)      opendir ──► number ──readdir──► Listed, its bytes counted while it is made
//! ```
//! A listing under way takes room for each name before it keeps it ([`NameBytes`]), and gives it back when it fails, or when the folder is
//! closed.

use crate::Reader;
use crate::source::tree::{Entry, NameBytes};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Bytes of a name of an open folder, beside its letters and those of its version: the entry, room of the list that is not filled yet, and
/// what the allocator adds to both.
const ENTRY_BYTES: u64 = (2 * size_of::<Entry>() + 2 * 16) as u64;

/// One open file.
pub struct Handle {
    pub number: u64,
    pub reader: Reader,
    pub base: Weak<Reader>,
    pub size: u64,
}

/// What was listed, and when it was asked for.
pub struct FolderListing {
    pub entries: Vec<Entry>,
    pub seen: Instant,
    bytes: NameBytes,
}

impl FolderListing {
    /// Nothing yet.
    pub fn new(seen: Instant) -> FolderListing {
        FolderListing {
            entries: Vec::new(),
            seen,
            bytes: NameBytes::default(),
        }
    }

    /// One name more. False: there is no room for it.
    pub fn push(&mut self, entry: Entry) -> bool {
        let heap = entry.meta.as_ref().map_or(0, |meta| meta.heap_bytes());
        let fits = self
            .bytes
            .grow(ENTRY_BYTES + entry.name.len() as u64 + heap);
        if fits {
            self.entries.push(entry);
        }
        fits
    }
}

#[derive(Default)]
pub struct Handles {
    pub next: u64,
    pub files: HashMap<u64, Arc<Handle>>,
    pub folders: HashMap<u64, (u64, Option<Arc<FolderListing>>)>,
}
