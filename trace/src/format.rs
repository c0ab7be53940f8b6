//! The description of a trace format: name, keys, detection, and the functions that read and write it.
//!
//! Each file of `formats/` has a `static FORMAT: Format`; `catalog` lists all of them. Example: the `FORMAT` of `csv` has the name "csv",
//! its keys, a `detect` that returns [`Fit::Maybe`] for a line of numbers, and an importer function. `catalog` refuses keys that are not in
//! the list.

use super::error::TraceError;
use super::input::Input;
use super::{Header, Import, Items};
use std::io::Write;

/// How well the first bytes of a file fit a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// Not this format.
    No,
    /// Possibly this format, possibly another one with other units: used only if the user names it.
    Maybe,
    /// Certainly this format: a magic number, a header line, or a unique structure.
    Sure,
}

impl Fit {
    pub(crate) fn sure_if(sure: bool) -> Fit {
        if sure { Fit::Sure } else { Fit::No }
    }
}

/// The `key=value` pairs that follow a format's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Wraps the pairs of a parsed `NAME:key=value,...`.
    pub(crate) fn of(pairs: Vec<(String, String)>) -> Pairs {
        Pairs(pairs)
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut pairs = self.0.iter().filter(|(k, _)| k == key);
        pairs.next().map(|(_, value)| value.as_str())
    }
}

/// A function that opens a trace. The arguments of this function are the input, and the keys of `--format`.
pub type ImportFn = fn(Input, Pairs) -> Result<Import, TraceError>;

/// A function that writes a trace.
pub type ExportFn = fn(&Header, Items, Output) -> Result<ExportReport, TraceError>;

/// The destination to which a trace is written.
pub struct Output {
    /// Path of the destination, for errors.
    pub path: std::path::PathBuf,
    /// Writer for the bytes.
    pub to: Box<dyn Write + Send>,
}

impl Output {
    /// Writes to `to`, which errors name by `path`.
    pub fn new(path: impl Into<std::path::PathBuf>, to: Box<dyn Write + Send>) -> Output {
        let path = path.into();
        Output { path, to }
    }
}

/// The result of writing a trace in a format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Records written.
    pub records: u64,
    /// Data that was left out or changed because the format cannot express it, with counts ("hints", 3).
    pub left_out: Vec<(&'static str, u64)>,
}

/// The description of a trace format.
pub struct Format {
    /// Name of the format.
    pub name: &'static str,
    /// A one-line description with its units.
    pub summary: &'static str,
    /// The keys of `NAME:key=value`, each with its meaning.
    pub keys: &'static [(&'static str, &'static str)],
    /// Detects whether the first bytes of a file fit.
    pub detect: fn(&[u8]) -> Fit,
    /// Reads a trace.
    pub import: ImportFn,
    /// Writes a trace; `None` if the format is read-only.
    pub export: Option<ExportFn>,
}
