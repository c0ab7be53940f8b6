//! What is not read, and why.

use std::path::PathBuf;

/// Files that are left out and named.
pub const MAX_LEFT_OUT: usize = 1000;

/// Something that is not read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file or folder.
    pub path: PathBuf,
    pub why: String,
}

impl LeftOut {
    /// Those that are named, by their paths.
    pub(crate) fn named(all: impl Iterator<Item = LeftOut>) -> Vec<LeftOut> {
        let mut all: Vec<LeftOut> = all.collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.truncate(MAX_LEFT_OUT);
        all
    }
}
