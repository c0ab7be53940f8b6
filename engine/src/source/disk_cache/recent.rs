//! Open files of the versions that were used last, for the next use.
//!
//! Example: a reader of a large object opens its files once, and not for each read. The space of a removed file is freed only when the file
//! is closed, so an eviction closes the removed ones ([`RecentFiles::retain`]).

use super::hash::VersionHash;
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Open files of at most this many versions; those opened first are closed first.
pub struct RecentFiles<T> {
    files: Mutex<VecDeque<(VersionHash, Arc<T>)>>,
    most: usize,
}

impl<T> RecentFiles<T> {
    pub fn new(most: usize) -> RecentFiles<T> {
        RecentFiles {
            files: Mutex::default(),
            most,
        }
    }

    pub fn get(&self, hash: VersionHash) -> Option<Arc<T>> {
        let files = lock(&self.files);
        let found = files.iter().find(|(known, _)| *known == hash);
        found.map(|(_, files)| Arc::clone(files))
    }

    /// Keeps the open files of a version, in place of earlier ones.
    pub fn put(&self, hash: VersionHash, opened: T) -> Arc<T> {
        let opened = Arc::new(opened);
        let mut files = lock(&self.files);
        files.retain(|(known, _)| *known != hash);
        files.push_back((hash, Arc::clone(&opened)));
        if files.len() > self.most {
            files.pop_front();
        }
        opened
    }

    pub fn close(&self, hash: VersionHash) {
        lock(&self.files).retain(|(known, _)| *known != hash);
    }

    /// Closes all files but those for which `is_kept` returns true.
    pub fn retain(&self, is_kept: fn(&T) -> bool) {
        lock(&self.files).retain(|(_, files)| is_kept(files));
    }
}
