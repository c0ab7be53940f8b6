//! Opens traces: detects the format of the files, and checks their items.
//!
//! ```text
//!   paths ──► Input (unpacked) ──► named or detected ──► importer ──► Checked ──► Import
//! ```
//!
//! All files of a trace must have the same format. Each importer decides whether it accepts several files.

use super::check::CheckedItems;
use super::error::TraceError;
use super::format::{Format, Pairs};
use super::input::{Input, opened};
use super::{Import, catalog};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of files of one trace: a tracer writes one for each CPU, and no machine has more.
pub const MAX_INPUTS: usize = 4096;

/// Opens the trace in `paths`, in the given format (`NAME` or `NAME:key=value,...`) or the detected format. The items of the trace are
/// checked by [`CheckedItems`].
pub fn open(paths: &[PathBuf], format: Option<&str>) -> Result<Import, TraceError> {
    open_watched(paths, format, &Watch::default())
}

/// Like [`open()`], but `watch` reports progress.
pub fn open_watched(
    paths: &[PathBuf],
    format: Option<&str>,
    watch: &Watch,
) -> Result<Import, TraceError> {
    if paths.len() > MAX_INPUTS {
        let what = "more than 4096 files";
        return Err(TraceError::whole(
            &paths[0],
            what,
            "give only the files of one trace",
        ));
    }
    let inputs = paths.iter().map(|path| watch.input(path));
    read(inputs.collect::<Result<_, _>>()?, format)
}

/// Like [`open()`], for inputs that are already open.
pub fn read(mut inputs: Vec<Input>, format: Option<&str>) -> Result<Import, TraceError> {
    let path = inputs.first().ok_or_else(none)?.path().to_path_buf();
    let (format, pairs) = match format {
        Some(text) => catalog::parse(text, &path)?,
        None => (detected(&mut inputs)?, Pairs::default()),
    };
    let mut import = (format.import)(inputs, pairs)?;
    import.items = Box::new(CheckedItems::new(import.items, &path));
    Ok(import)
}

fn none() -> TraceError {
    TraceError::whole(
        Path::new("nothing"),
        "no trace file is given",
        "give a file",
    )
}

/// Detects the format that all inputs share.
fn detected(inputs: &mut [Input]) -> Result<&'static Format, TraceError> {
    let mut found: Option<&'static Format> = None;
    for input in inputs {
        let path = input.path().to_path_buf();
        let this = catalog::detect(input.head()?, &path)?;
        match found {
            Some(first) if !std::ptr::eq(first, this) => {
                let (this, first) = (this.name, first.name);
                let what = format!(
                    "this file has the format {this}, and the file before it has the format {first}"
                );
                return Err(TraceError::whole(
                    &path,
                    what,
                    "give only the files of one trace",
                ));
            }
            _ => found = Some(this),
        }
    }
    found.ok_or_else(none)
}

/// Counts the bytes read from the files of a trace, as stored on disk (compressed bytes, if a file is compressed).
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
