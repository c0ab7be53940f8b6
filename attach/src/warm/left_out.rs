//! The files of a plan that are not read, each with the reason.

use std::path::PathBuf;

/// Maximum number of left-out files that are listed by name.
pub const MAX_LEFT_OUT: usize = 1000;

/// A file or folder that is not read, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file or folder.
    pub path: PathBuf,
    pub why: String,
}

impl LeftOut {
    /// The left-out files to list, by path.
    pub(crate) fn named(all: impl Iterator<Item = LeftOut>) -> Vec<LeftOut> {
        let mut all: Vec<LeftOut> = all.collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.truncate(MAX_LEFT_OUT);
        all
    }
}
