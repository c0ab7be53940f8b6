//! What tests of traces share: to read and to write one, and the fixtures.

use super::bytes::SharedBytes;
use foreread_trace::format::Output;
use foreread_trace::input::Input;
use foreread_trace::{FileInfo, Header, Item, Items, Record, catalog, open};
use std::path::{Path, PathBuf};

/// A trace as it was read: its items up to the end or the first error, what was left out.
#[derive(Default)]
pub struct Read {
    /// Nothing where it was refused before its first item.
    pub header: Option<Header>,
    pub items: Vec<Item>,
    pub error: Option<String>,
    pub left_out: Vec<(&'static str, u64)>,
}

impl Read {
    pub fn records(&self) -> Vec<&Record> {
        let records = self.items.iter().filter_map(|item| match item {
            Item::Record(record) => Some(record),
            Item::File(_) => None,
        });
        records.collect()
    }

    pub fn files(&self) -> Vec<&FileInfo> {
        let files = self.items.iter().filter_map(|item| match item {
            Item::File(file) => Some(file),
            Item::Record(_) => None,
        });
        files.collect()
    }

    pub fn clean(self) -> Read {
        assert_eq!(self.error, None);
        self
    }
}

/// Reads an input as `format` (a name with its keys), or as what it looks like.
pub fn read(format: Option<&str>, input: Input) -> Read {
    let mut read = Read::default();
    match open::read(input, format) {
        Ok(import) => {
            read.header = Some(import.header);
            for item in import.items {
                match item {
                    Ok(item) => read.items.push(item),
                    Err(error) => read.error = Some(error.to_string()),
                }
            }
            read.left_out = import.left_out.so_far();
        }
        Err(error) => read.error = Some(error.to_string()),
    }
    read
}

pub fn input(name: &str, bytes: Vec<u8>) -> Input {
    Input::of(Path::new(name), Box::new(std::io::Cursor::new(bytes))).expect("memory")
}

pub fn read_bytes(format: &str, bytes: impl Into<Vec<u8>>) -> Read {
    read(Some(format), input("t", bytes.into()))
}

/// Asserts that `bytes` are refused with one line, and that it begins so.
pub fn refused(format: &str, bytes: impl Into<Vec<u8>>, begin: &str) {
    let error = read_bytes(format, bytes).error.expect("refused");
    let is_line = !error.contains('\n') && error.len() < 400;
    assert!(is_line && error.starts_with(begin), "{error}");
}

/// Each line of a table is what a trace is made of, and the beginning of its refusal.
pub fn each_refused(format: &str, table: &str, made: impl Fn(&str) -> String) {
    for row in table.lines() {
        let (from, begin) = row.trim().split_once(" | ").expect("two cells");
        refused(format, made(from), begin);
    }
}

/// The bytes of a trace, and what was left out of it.
pub type Written = (Vec<u8>, Vec<(&'static str, u64)>);

/// Writes items as `format`; what was written, or the line that it was refused with.
pub fn write(format: &str, header: &Header, items: &[Item]) -> Result<Written, String> {
    let to = SharedBytes::default();
    let path = Path::new("out");
    let format = catalog::to_write(format, path).map_err(|e| e.to_string())?;
    let items: Items = Box::new(Vec::from(items).into_iter().map(Ok));
    let output = Output::new(path, Box::new(to.clone()));
    let export = format.export.expect("it can be written");
    let done = export(header, items, output).map_err(|e| e.to_string())?;
    Ok((to.bytes(), done.left_out))
}

pub fn fixture(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    traces.join(name)
}

/// The fixtures of a format, in order: those with this ending, or without it.
pub fn fixtures(format: &str, items: bool) -> Vec<PathBuf> {
    let files = std::fs::read_dir(fixture(format)).expect("a folder of its name");
    let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "items") == items);
    files.sort();
    files
}

/// The format that the first line of a text of items names, or nothing where it is to be detected.
pub fn named(items: &str) -> Option<&str> {
    let first = items.lines().next()?.strip_prefix("format: ")?;
    (first != "detected").then_some(first)
}

/// The bytes of digits; what follows a `#` is a comment.
pub fn hex(text: &str) -> Vec<u8> {
    let digits = text.lines().flat_map(|line| line.split('#').next());
    let digits = digits.flat_map(str::bytes).filter(u8::is_ascii_hexdigit);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let pairs = digits.collect::<Vec<u8>>();
    let bytes = pairs.chunks(2).map(|pair| byte(pair).expect("hexadecimal"));
    bytes.collect()
}

/// The trace in a file; `.hex` is text for [`hex`].
pub fn trace(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("a fixture");
    match path.extension().is_some_and(|e| e == "hex") {
        true => hex(&String::from_utf8(bytes).expect("text")),
        false => bytes,
    }
}
