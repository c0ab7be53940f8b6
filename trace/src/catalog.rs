//! Finds a trace format by its name or by the first bytes of a file.
//!
//! A format is written as `NAME` or `NAME:key=value,...`, as policies and workloads are: for example, `csv:unit=us`. Detection uses only
//! the first bytes of a file. If a file fits two formats with different units, detection fails, and the error names both formats. The list
//! of formats is in `formats`.

use super::error::TraceError;
use super::format::{Fit, Format, Pairs};
pub use super::formats::ALL;
use foreread_core::notation::Spec;
use std::path::Path;

/// Finds a format by its name, and parses its key=value pairs.
pub fn parse(text: &str, path: &Path) -> Result<(&'static Format, Pairs), TraceError> {
    named(text, path, ALL, |format| format.keys)
}

/// Finds a format to write by its name: formats have keys only for reading.
pub fn to_write(text: &str, path: &Path) -> Result<&'static Format, TraceError> {
    let can = ALL.iter().copied().filter(|format| format.export.is_some());
    named(text, path, &Vec::from_iter(can), |_| &[]).map(|(format, _)| format)
}

fn named(
    text: &str,
    path: &Path,
    usual: &[&Format],
    keys: fn(&Format) -> &'static [(&'static str, &'static str)],
) -> Result<(&'static Format, Pairs), TraceError> {
    let whole = |what: String, remedy: String| TraceError::whole(path, what, remedy);
    let spec = Spec::parse(text)
        .map_err(|error| whole(error.to_string(), "write NAME:key=value,...".to_string()))?;
    let format = ALL.iter().find(|f| f.name == spec.name);
    let format = *format.ok_or_else(|| {
        let what = format!("unknown format '{}'", spec.name);
        whole(what, format!("one of {}", names(usual, ", ")))
    })?;
    let known = Vec::from_iter(keys(format).iter().map(|(key, _)| *key));
    if let Some((key, _)) = (spec.pairs.iter()).find(|(key, _)| !known.contains(&key.as_str())) {
        let name = format.name;
        let remedy = if known.is_empty() {
            format!("{name} has no keys")
        } else {
            format!("{name} has the keys {}", known.join(", "))
        };
        return Err(whole(
            format!("unknown key '{key}' of the format {name}"),
            remedy,
        ));
    }
    Ok((format, Pairs::of(spec.pairs)))
}

/// Detects the format of a file that starts with `head`.
pub fn detect(head: &[u8], path: &Path) -> Result<&'static Format, TraceError> {
    let fits = |least: Fit| {
        ALL.iter()
            .copied()
            .filter(move |f| (f.detect)(head) >= least)
            .collect::<Vec<_>>()
    };
    match (fits(Fit::Sure).as_slice(), fits(Fit::Maybe).as_slice()) {
        ([one], _) => Ok(one),
        ([], []) => Err(match other_file(head) {
            Some((what, remedy)) => TraceError::whole(path, what, remedy),
            None => {
                let known = names(ALL, ", ");
                let remedy = format!("name its format with --format, one of {known}");
                TraceError::whole(path, "not a known trace format", remedy)
            }
        }),
        (_, may) => {
            let what = format!("it could be {}", names(may, " or "));
            let first = may.first().map_or("", |format| format.name);
            let remedy = format!("name its format, such as --format {first}: units differ");
            Err(TraceError::whole(path, what, remedy))
        }
    }
}

fn names(formats: &[&Format], between: &str) -> String {
    let names: Vec<&str> = formats.iter().map(|f| f.name).collect();
    names.join(between)
}

/// An empty file, and files that are often mistaken for traces: what they are, and what to do. In a Darshan log the magic number follows
/// the version.
fn other_file(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.is_empty() {
        return Some(("the file is empty", "record a trace with 'foreread record'"));
    }
    const DARSHAN: u64 = 6_567_223;
    let number = head.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let is_darshan = number
        .is_some_and(|n| u64::from_le_bytes(n) == DARSHAN || u64::from_be_bytes(n) == DARSHAN);
    match head {
        _ if is_darshan => Some((
            "a binary Darshan log",
            "write its DXT records to a CSV file with named columns",
        )),
        _ if head.starts_with(b"version https://git-lfs.github.com/spec/") => Some((
            "a Git LFS pointer, not the file itself",
            "fetch the file: git lfs pull",
        )),
        [0..32, b't', b'a', b'e', ..] | [b'e', b'a', b't', 0..32, ..] => Some((
            "a binary file of blktrace",
            "print all of them: blkparse -i DEVICE > FILE.txt",
        )),
        _ if head.starts_with(b"PERFILE2")
            || head.starts_with(b"\x17\x08Dtracing")
            || head.starts_with(b"# tracer: ") =>
        {
            Some((
                "a recording of perf or ftrace",
                "record the program with 'foreread record'",
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_called_by_their_name() {
        let magic = 6_567_223_u64.to_le_bytes();
        let darshan = [&b"3.41\0\0\0\0"[..], &magic, &[0; 100]].concat();
        let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        for (head, what, then) in [
            (
                &darshan[..],
                "a binary Darshan log",
                "write its DXT records",
            ),
            (lfs, "a Git LFS pointer, not the file itself", "fetch the"),
            (
                b"PERFILE2\x68\0\0\0",
                "a recording of perf or ftrace",
                "record",
            ),
            (b"\x07tae\0\0\0\0", "a binary file of blktrace", "print all"),
            (b"hello", "not a known trace format", "name its format"),
        ] {
            let error = detect(head, Path::new("t")).err().expect(what).to_string();
            assert!(error.starts_with(&format!("{what}: t; {then}")), "{error}");
        }
    }

    #[test]
    fn a_format_is_named_with_its_pairs() {
        let path = Path::new("t");
        let (format, pairs) = parse("csv: unit = us ,", path).expect("a format");
        assert_eq!((format.name, pairs.get("unit")), ("csv", Some("us")));
        assert_eq!(pairs.get("len"), None);
        for (text, words) in [
            (
                "csv:unit",
                "'unit' in 'csv:unit' is not key=value: t; write ",
            ),
            (
                "csv:a=1,a=2",
                "'a=2' in 'csv:a=1,a=2' sets 'a' a second time",
            ),
            (
                "cvs",
                "unknown format 'cvs': t; one of foreread, blkparse, ",
            ),
        ] {
            let error = parse(text, path).err().expect(text).to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let error = to_write("csv:unit=us", path).err().expect("no key");
        let line = "unknown key 'unit' of the format csv: t; csv has no keys";
        assert_eq!(error.to_string(), line);
    }
}
