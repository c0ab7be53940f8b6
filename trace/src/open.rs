//! The one door to a trace: opens the files, finds out their format, and checks what comes out of them.
//!
//! ```text
//!   paths ──► Input (unpacked) ──► named or detected ──► importer ──► Checked ──► Import
//! ```
//!
//! Never: mixes formats, or takes several files where one would do (each importer says whether it takes several).

use super::Import;
use super::catalog;
use super::check::CheckedItems;
use super::error::{TraceError, TracePosition};
use super::format::{Format, Pairs};
use super::input::{Input, opened};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files of one trace: a tracer writes one for each CPU, and no machine has more.
pub const MAX_INPUTS: usize = 4096;

/// Opens the trace in `paths`, in the format that is named (`NAME` or `NAME:key=value,...`), or in the one that it
/// looks like. Its items have passed [`CheckedItems`].
///
/// # Errors
/// A file cannot be read, the format is not known or would be a guess, or the importer refuses what it sees first.
pub fn open(paths: &[PathBuf], format: Option<&str>) -> Result<Import, TraceError> {
    open_watched(paths, format, &Watch::default())
}

/// The same, and `watch` reports progress.
///
/// # Errors
/// Those of [`open`].
pub fn open_watched(
    paths: &[PathBuf],
    format: Option<&str>,
    watch: &Watch,
) -> Result<Import, TraceError> {
    let Some(first) = paths.first() else {
        return Err(TraceError::new(
            Path::new("nothing"),
            TracePosition::Whole,
            "no trace is named",
            "name a file",
        ));
    };
    if paths.len() > MAX_INPUTS {
        return Err(TraceError::new(
            first,
            TracePosition::Whole,
            "more than 4096 files",
            "name those of one trace",
        ));
    }
    let inputs = paths
        .iter()
        .map(|path| watch.input(path))
        .collect::<Result<Vec<_>, _>>()?;
    read(inputs, format)
}

/// The same for what is open already.
///
/// # Errors
/// Those of [`open`].
pub fn read(mut inputs: Vec<Input>, format: Option<&str>) -> Result<Import, TraceError> {
    let Some(first) = inputs.first() else {
        return Err(TraceError::new(
            Path::new("nothing"),
            TracePosition::Whole,
            "no trace is named",
            "name a file",
        ));
    };
    let path = first.path().to_path_buf();
    let (format, pairs) = match format {
        Some(text) => catalog::parse(text, &path)?,
        None => (detected(&mut inputs)?, Pairs::default()),
    };
    let Some(import) = format.import else {
        let what = format!("the format {} is only written, never read", format.name);
        return Err(TraceError::new(
            &path,
            TracePosition::Whole,
            what,
            "see 'foreread trace formats'",
        ));
    };
    let Import {
        header,
        items,
        left_out,
    } = import(inputs, pairs)?;
    Ok(Import {
        header,
        items: Box::new(CheckedItems::new(items, &path)),
        left_out,
    })
}

/// The one format that all of them look like.
fn detected(inputs: &mut [Input]) -> Result<&'static Format, TraceError> {
    let mut found: Option<&'static Format> = None;
    for input in inputs {
        let path = input.path().to_path_buf();
        let this = catalog::detect(input.head()?, &path)?;
        match found {
            Some(first) if !std::ptr::eq(first, this) => {
                let what = format!(
                    "it is {}, and the file before it is {}",
                    this.name, first.name
                );
                return Err(TraceError::new(
                    &path,
                    TracePosition::Whole,
                    what,
                    "name the files of one trace",
                ));
            }
            _ => found = Some(this),
        }
    }
    found.ok_or_else(|| {
        TraceError::new(
            Path::new("nothing"),
            TracePosition::Whole,
            "no trace is named",
            "name a file",
        )
    })
}

/// How many bytes of the files of a trace have been read, as they are on disk. Clones share one count.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn input(&self, path: &Path) -> Result<Input, TraceError> {
        let io = |error: std::io::Error| TraceError::io(path, TracePosition::Whole, &error);
        let file = opened(path)?;
        let again = file.try_clone().map_err(io)?;
        Input::of(
            path,
            Box::new(StreamWithWatch {
                file,
                watch: self.clone(),
            }),
        )?
        .beside(again)
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
