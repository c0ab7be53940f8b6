//! Opens traces: detects the format of a file, and checks its items.
//!
//! ```text
//!   path ──► Input (unpacked) ──► named or detected ──► importer ──► Checked ──► Import
//! ```

use super::check::CheckedItems;
use super::error::TraceError;
use super::format::Pairs;
use super::input::{Input, opened};
use super::{Import, catalog};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens the trace in the file `path`, in the given format (`NAME` or `NAME:key=value,...`) or the detected format. The items of the trace
/// are checked by [`CheckedItems`].
pub fn open(path: &Path, format: Option<&str>) -> Result<Import, TraceError> {
    open_watched(path, format, &Watch::default())
}

/// Like [`open()`], but `watch` reports progress.
pub fn open_watched(
    path: &Path,
    format: Option<&str>,
    watch: &Watch,
) -> Result<Import, TraceError> {
    read(watch.input(path)?, format)
}

/// Like [`open()`], for an input that is already open.
pub fn read(mut input: Input, format: Option<&str>) -> Result<Import, TraceError> {
    let path = input.path().to_path_buf();
    let (format, pairs) = match format {
        Some(text) => catalog::parse(text, &path)?,
        None => (catalog::detect(input.head()?, &path)?, Pairs::default()),
    };
    let mut import = (format.import)(input, pairs)?;
    import.items = Box::new(CheckedItems::new(import.items, &path));
    Ok(import)
}

/// Counts the bytes read from the file of a trace, as stored on disk (compressed bytes, if the file is compressed).
/// All clones share one counter.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Returns the number of bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn input(&self, path: &Path) -> Result<Input, TraceError> {
        let (file, watch) = (opened(path)?, self.clone());
        Input::of(path, Box::new(StreamWithWatch { file, watch }))
    }
}

struct StreamWithWatch {
    file: File,
    watch: Watch,
}

impl Read for StreamWithWatch {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let got = self.file.read(buf)?;
        self.watch.0.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}
