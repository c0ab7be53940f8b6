//! The list of all formats: a format by its name, or by the first bytes of a file.
//!
//! A format is written `NAME` or `NAME:key=value,...`, as policies and workloads are: `csv:unit=us`. Recognition looks at the
//! content alone, and at the head of a file alone. It refuses what would be a guess: a file that fits two formats with
//! different units is an error that names both. A new format is one file and one row of [`ALL`].

use super::error::{TraceError, TracePosition};
use super::format::{Fit, Format, Pairs};
use super::{formats, own};
use foreread_core::notation::Spec;
use std::path::Path;

/// Every format. A file is asked in this order; the order decides nothing but the order of lists.
pub static ALL: &[&Format] = &[
    &own::FORMAT, // one row a line
    &formats::blkparse::FORMAT,
    &formats::blktrace::FORMAT,
    &formats::fio::FORMAT,
    &formats::ftrace::FORMAT,
    &formats::strace::FORMAT,
    &formats::vscsi::FORMAT,
    &formats::alibaba::FORMAT,
    &formats::arc::FORMAT,
    &formats::biosnoop::FORMAT,
    &formats::csv::FORMAT,
    &formats::darshan::FORMAT,
    &formats::disksim::FORMAT,
    &formats::lirs::FORMAT,
    &formats::msr::FORMAT,
    &formats::oracle_general::FORMAT,
    &formats::parquet::FORMAT,
    &formats::perf_trace::FORMAT,
    &formats::rbd_replay::FORMAT,
    &formats::spc::FORMAT,
    &formats::systor::FORMAT,
    &formats::tencent::FORMAT,
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
    Ok((format, Pairs::of(spec.pairs)))
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
