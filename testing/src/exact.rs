//! Any source, wrapped so that it says exactly which version it reads, as an object of a store does: what a cache on disk keeps it by.
//!
//! Never: changes what it reads.

use foreread::source::{Defaults, ExactVersion, Source, SourceError};
use std::io::IoSliceMut;

/// A source with a name and a version.
pub struct ExactSource<S> {
    source: S,
    exact: ExactVersion,
}

impl<S: Source> ExactSource<S> {
    pub fn new(source: S, name: &str, version: &str) -> ExactSource<S> {
        let exact = ExactVersion {
            source: name.to_string(),
            version: version.to_string(),
            shown: name.to_string(),
        };
        ExactSource { source, exact }
    }
}

impl<S: Source> Source for ExactSource<S> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        self.source.read_at(bufs, offset)
    }

    fn describe(&self) -> String {
        self.exact.shown.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        Some(self.exact.clone())
    }
}
