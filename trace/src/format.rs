//! What a format of traces is: its name, its keys, how it is recognised, and the functions that read and write it.
//!
//! A file of `formats/` has a `static FORMAT: Format`; `catalog` lists them all. Example: the row of `csv` has the name
//! "csv", its keys, a `detect` that says [`Fit::Maybe`] for a line of numbers, and an importer. An importer takes the keys
//! that it knows out of its [`Pairs`] and refuses the rest.

use super::error::TraceError;
use super::input::Input;
use super::{Header, Import, Items};
use std::io::Write;
use std::path::Path;

/// How well the first bytes of a file fit a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It is something else.
    No,
    /// It could be this, and could be something else with other units: not taken without being named.
    Maybe,
    /// It is this: a magic number, a header line, or a shape that nothing else here has.
    Sure,
}

impl Fit {
    pub(crate) fn sure_if(sure: bool) -> Fit {
        if sure { Fit::Sure } else { Fit::No }
    }
}

/// `key=value` pairs behind a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Those of a parsed `NAME:key=value,...`.
    pub(crate) fn of(pairs: Vec<(String, String)>) -> Pairs {
        Pairs(pairs)
    }

    /// Takes `key` out, if it is there.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(k, _)| k == key)?;
        Some(self.0.remove(at).1)
    }

    /// Refuses keys that no part of the importer took; `known` are the keys that there are.
    pub fn finish(
        &self,
        path: &Path,
        format: &str,
        known: &[(&str, &str)],
    ) -> Result<(), TraceError> {
        let Some((key, _)) = self.0.first() else {
            return Ok(());
        };
        let known: Vec<&str> = known.iter().map(|(key, _)| *key).collect();
        let remedy = if known.is_empty() {
            format!("{format} has no keys")
        } else {
            format!("{format} has the keys {}", known.join(", "))
        };
        let what = format!("unknown key '{key}' of the format {format}");
        Err(TraceError::whole(path, what, remedy))
    }
}

/// Opens a trace: its inputs (several only where the format is one file for each CPU), and the keys of `--format`.
pub type ImportFn = fn(Vec<Input>, Pairs) -> Result<Import, TraceError>;

/// Writes a trace: what holds for it, the keys of `--format`, its items, and where to.
pub type ExportFn = fn(&Header, Pairs, Items, Output) -> Result<ExportReport, TraceError>;

/// Where a trace is written to.
pub struct Output {
    /// What errors call it.
    pub path: std::path::PathBuf,
    /// Where the bytes go.
    pub to: Box<dyn Write + Send>,
}

/// What an exporter did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Records written.
    pub records: u64,
    /// What the format cannot say and was left out or changed, with how often ("hints", 3).
    pub left_out: Vec<(&'static str, u64)>,
}

/// A format of traces.
pub struct Format {
    /// What it is called.
    pub name: &'static str,
    /// What it is, in one line, with its units.
    pub summary: &'static str,
    /// The keys of `NAME:key=value`, each with what it means.
    pub keys: &'static [(&'static str, &'static str)],
    /// Whether these are the first bytes of one.
    pub detect: fn(&[u8]) -> Fit,
    /// Reads it.
    pub import: ImportFn,
    /// Writes it.
    pub export: Option<ExportFn>,
}
