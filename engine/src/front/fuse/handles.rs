//! What is open through a mount: files, folders, and the names that listings hold.
//!
//! ```text
//!   open ──► Handle (a pinned reader)      opendir ──► number ──readdir──► FolderListing, its bytes counted while it is made
//! ```
//! A listing takes room for each name before it keeps it ([`FolderNames`]), and gives it back when it fails, or when the folder is
//! closed and the kernel knows none of its names.

use crate::Reader;
use crate::source::tree::FolderNames;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// One open file.
pub struct Handle {
    pub number: u64,
    pub reader: Reader,
    pub base: Weak<Reader>,
    pub size: u64,
}

/// What was listed, and when it was asked for.
pub struct FolderListing {
    pub names: Arc<FolderNames>,
    pub seen: Instant,
}

#[derive(Default)]
pub struct Handles {
    pub next: u64,
    pub files: HashMap<u64, Arc<Handle>>,
    pub folders: HashMap<u64, (u64, Option<Arc<FolderListing>>)>,
}
