//! What is open through a mount: files, folders, and the names that listings hold.
//!
//! ```text
//!   open ──► Handle (a pinned reader)      opendir ──► number ──readdir──► Names, counted among all while they are made
//! ```
//! A listing under way takes room for its names a thousand at a time, before it keeps them, and gives it back when it
//! fails. So all listings together stay within [`MAX_NAMES`].

use crate::Reader;
use crate::source::tree::Entry;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Names of one folder that can be listed, and of all open folders together.
pub const MAX_NAMES: usize = 1 << 20;

/// One open file.
pub struct Handle {
    pub number: u64,
    pub reader: Reader,
    pub size: u64,
}

/// What was listed, and when it was asked for.
pub type Names = Arc<(Vec<Entry>, Instant)>;

/// What is open, and how many names all listings hold.
#[derive(Default)]
pub struct Handles {
    pub next: u64,
    pub files: HashMap<u64, Arc<Handle>>,
    pub folders: HashMap<u64, (u64, Option<Names>)>,
    pub names: usize,
}

/// Names that a listing under way counts at once.
pub const NAMES_AT_ONCE: usize = 1024;

/// Names of a listing under way, counted among all names until it is dropped.
pub struct Counted<'a> {
    handles: &'a Mutex<Handles>,
    pub names: usize,
}

impl<'a> Counted<'a> {
    /// None yet.
    pub fn new(handles: &'a Mutex<Handles>) -> Counted<'a> {
        Counted { handles, names: 0 }
    }

    /// Whether this listing may have this many names.
    pub fn room_for(&mut self, names: usize) -> bool {
        if names <= self.names {
            return true;
        }
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let more = NAMES_AT_ONCE.min(MAX_NAMES.saturating_sub(handles.names));
        handles.names += more;
        self.names += more;
        names <= self.names
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).names -= self.names;
    }
}
