//! The formats: what each is called, how it is recognised, and the functions that read and write it.
//!
//! A format is written `NAME` or `NAME:key=value,...`, as policies and workloads are. Recognition is by content alone
//! and refuses what would be a guess. Adding a format is one file and one row of [`ALL`]. Recognition sees the head of a
//! file alone.

use super::error::{TraceError, TracePosition};
use super::formats;
use super::input::Input;
use super::{Header, Import, Items};
use foreread_core::notation::Spec;
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

/// `key=value` pairs behind a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Takes `key` out, if it is there.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(k, _)| k == key)?;
        Some(self.0.remove(at).1)
    }

    /// Refuses keys that no part of the importer took; `known` are the keys that there are.
    ///
    /// # Errors
    /// A key is left.
    pub fn finish(&self, path: &Path, format: &str, known: &[&str]) -> Result<(), TraceError> {
        let Some((key, _)) = self.0.first() else { return Ok(()) };
        let remedy = match known {
            [] => format!("{format} has no keys"),
            known => format!("{format} has the keys {}", known.join(", ")),
        };
        Err(TraceError::new(path, TracePosition::Whole, format!("unknown key '{key}' of the format {format}"), remedy))
    }
}

/// Opens a trace: its inputs (several only where the format is one file for each CPU), and the keys of `--format`.
pub type ImportFn = fn(Vec<Input>, Pairs) -> Result<Import, TraceError>;

/// Writes a trace: what holds for it, the keys of `--format`, its items, and where to.
pub type ExportFn = fn(&Header, Pairs, Items, Output) -> Result<Exported, TraceError>;

/// Where a trace is written to.
pub struct Output {
    /// What errors call it.
    pub path: std::path::PathBuf,
    /// Where the bytes go.
    pub to: Box<dyn Write + Send>,
}

/// What an exporter did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
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
    pub import: Option<ImportFn>,
    /// Writes it.
    pub export: Option<ExportFn>,
}

/// Every format. A file is asked in this order; the order decides nothing but the order of lists.
pub static ALL: &[&Format] = &[
    &super::own::FORMAT, // one row a line
    &formats::blkparse::FORMAT,
    &formats::blktrace::FORMAT,
    &formats::fio::FORMAT,
    &formats::ftrace::FORMAT,
    &formats::strace::FORMAT,
    &formats::vscsi::FORMAT,
    &super::formats::alibaba::FORMAT,
    &super::formats::arc::FORMAT,
    &super::formats::biosnoop::FORMAT,
    &super::formats::csv::FORMAT,
    &super::formats::darshan::FORMAT,
    &super::formats::disksim::FORMAT,
    &super::formats::lirs::FORMAT,
    &super::formats::msr::FORMAT,
    &super::formats::oracle_general::FORMAT,
    &super::formats::parquet::FORMAT,
    &super::formats::perf_trace::FORMAT,
    &super::formats::rbd_replay::FORMAT,
    &super::formats::spc::FORMAT,
    &super::formats::systor::FORMAT,
    &super::formats::tencent::FORMAT,
];

/// A format by its name, and the pairs behind it.
///
/// # Errors
/// It does not exist, or a pair is not one. `path` is what the error is about.
pub fn parse(text: &str, path: &Path) -> Result<(&'static Format, Pairs), TraceError> {
    let whole = |what: String, remedy: String| TraceError::new(path, TracePosition::Whole, what, remedy);
    let spec = Spec::parse(text).map_err(|error| whole(error.to_string(), "write NAME:key=value,...".to_string()))?;
    let name = spec.name;
    let names = || ALL.iter().map(|f| f.name).collect::<Vec<_>>().join(", ");
    let format = ALL.iter().find(|f| f.name == name);
    let format = *format.ok_or_else(|| whole(format!("unknown format '{name}'"), format!("one of {}", names())))?;
    Ok((format, Pairs(spec.pairs)))
}

/// The format of what begins with `head`.
///
/// # Errors
/// None fits, or several might.
pub fn detect(head: &[u8], path: &Path) -> Result<&'static Format, TraceError> {
    let fits = |least: Fit| ALL.iter().copied().filter(move |f| (f.detect)(head) >= least).collect::<Vec<_>>();
    let names = |formats: &[&Format]| formats.iter().map(|f| f.name).collect::<Vec<_>>().join(" or ");
    match (fits(Fit::Sure).as_slice(), fits(Fit::Maybe).as_slice()) {
        ([one], _) => Ok(one),
        ([], []) => {
            let known: Vec<&str> = ALL.iter().filter(|f| f.import.is_some()).map(|f| f.name).collect();
            let remedy = format!("name its format with --format, one of {}", known.join(", "));
            Err(TraceError::new(path, TracePosition::Whole, "no known format of traces", remedy))
        }
        (_, may) => {
            let what = format!("it could be {}", names(may));
            Err(TraceError::new(path, TracePosition::Whole, what, "say which with --format, since their units differ"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_named_with_its_pairs() {
        let path = Path::new("t");
        let (format, mut pairs) = parse("csv: unit = us ,", path).expect("a format");
        assert_eq!((format.name, pairs.take("unit").as_deref(), pairs.take("unit")), ("csv", Some("us"), None));
        for (text, words) in [
            ("csv:unit", "'unit' in 'csv:unit' is not key=value: t; write NAME:key=value,..."),
            ("csv:a=1,a=2", "'a=2' in 'csv:a=1,a=2' sets 'a' a second time: t; write NAME:key=value,..."),
            ("cvs", "unknown format 'cvs': t; one of foreread, blkparse, "),
        ] {
            let error = parse(text, path).err().expect(text).to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
