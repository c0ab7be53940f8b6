//! What tests of traces share: to read one through the checks, and to write its items as lines that can be read.

#![allow(dead_code, reason = "each test file takes what it needs")]

use super::bytes::SharedBytes;
use foreread_trace::catalog;
use foreread_trace::check::CheckedItems;
use foreread_trace::format::Output;
use foreread_trace::input::Input;
use foreread_trace::{FileInfo, Flags, Header, Item, Items, Op, Record};
use std::path::{Path, PathBuf};

/// A trace as it was read: its header, its items up to the end or the first error, what was left out.
pub struct Read {
    pub header: Header,
    pub items: Vec<Item>,
    pub error: Option<String>,
    pub left_out: Vec<(&'static str, u64)>,
}

impl Read {
    pub fn records(&self) -> Vec<&Record> {
        let records = self.items.iter().filter_map(|item| {
            if let Item::Record(r) = item {
                Some(r)
            } else {
                None
            }
        });
        records.collect()
    }

    pub fn files(&self) -> Vec<&FileInfo> {
        self.items
            .iter()
            .filter_map(|item| {
                if let Item::File(f) = item {
                    Some(f)
                } else {
                    None
                }
            })
            .collect()
    }

    pub fn clean(self) -> Read {
        assert_eq!(self.error, None);
        self
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces")
        .join(name)
}

/// Reads inputs as `format` (a name with its keys).
pub fn read(format: &str, inputs: Vec<Input>) -> Read {
    let none = |error: String| Read {
        header: Header::default(),
        items: vec![],
        error: Some(error),
        left_out: vec![],
    };
    let path = inputs
        .first()
        .map_or_else(PathBuf::new, |input| input.path().to_path_buf());
    let (format, pairs) = match catalog::parse(format, &path) {
        Ok(known) => known,
        Err(error) => return none(error.to_string()),
    };
    let import = match format.import.expect("it can be read")(inputs, pairs) {
        Ok(import) => import,
        Err(error) => return none(error.to_string()),
    };
    let (mut items, mut error) = (Vec::new(), None);
    for item in CheckedItems::new(import.items, &path) {
        match item {
            Ok(item) => items.push(item),
            Err(e) => error = Some(e.to_string()),
        }
    }
    Read {
        header: import.header,
        items,
        error,
        left_out: import.left_out.so_far(),
    }
}

pub fn read_files(format: &str, paths: &[PathBuf]) -> Read {
    read(
        format,
        paths
            .iter()
            .map(|path| Input::open(path).expect("a file"))
            .collect(),
    )
}

pub fn read_bytes(format: &str, bytes: impl Into<Vec<u8>>) -> Read {
    let input = Input::of(Path::new("t"), Box::new(std::io::Cursor::new(bytes.into())));
    read(format, vec![input.expect("memory")])
}

/// The one line that `bytes` are refused with.
pub fn refusal(format: &str, bytes: impl Into<Vec<u8>>) -> String {
    let error = read_bytes(format, bytes).error.expect("refused");
    assert!(
        !error.contains('\n') && error.len() < 400,
        "one line: {error}"
    );
    error
}

/// The bytes of a trace, and what was left out of it.
pub type Written = (Vec<u8>, Vec<(&'static str, u64)>);

/// Writes items as `format`; what was written, or the line that it was refused with.
pub fn write(format: &str, header: &Header, items: &[Item]) -> Result<Written, String> {
    let to = SharedBytes::default();
    let path = Path::new("out");
    let (format, pairs) = catalog::parse(format, path).map_err(|e| e.to_string())?;
    let owned: Items = Box::new(
        items
            .iter()
            .cloned()
            .map(Ok)
            .collect::<Vec<_>>()
            .into_iter(),
    );
    let output = Output {
        path: path.to_path_buf(),
        to: Box::new(to.clone()),
    };
    let done = format.export.expect("it can be written")(header, pairs, owned, output)
        .map_err(|e| e.to_string())?;
    let bytes = to.bytes();
    Ok((bytes, done.left_out))
}

/// Header, items and what was left out, a line each.
pub fn shown(read: &Read) -> String {
    let (h, mut lines) = (&read.header, Vec::new());
    lines.push(format!(
        "header {} times={} offsets={} {:?}",
        h.format, h.time_unit, h.offset_unit, h.level
    ));
    let l = h.lacks;
    let lacks = [
        (l.starts, "starts"),
        (l.ends, "ends"),
        (l.opens, "opens"),
        (l.threads, "threads"),
        (l.lens, "lens"),
    ];
    let lacks: Vec<&str> = lacks
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, what)| *what)
        .collect();
    lines.push(format!("lacks [{}]", lacks.join(" ")));
    lines.extend(h.notes.iter().map(|note| format!("note {note}")));
    for item in &read.items {
        lines.push(match item {
            Item::File(file) => format!("file {:?} size={}", file.name, number(file.size)),
            Item::Record(r) => record(r),
        });
    }
    lines.extend(
        read.left_out
            .iter()
            .map(|(what, n)| format!("left out {n} {what}")),
    );
    lines.extend(read.error.iter().map(|error| format!("error {error}")));
    lines.join("\n") + "\n"
}

fn number(n: Option<u64>) -> String {
    n.map_or("-".to_string(), |n| n.to_string())
}

fn record(r: &Record) -> String {
    let op = match r.op {
        Op::Read => "read".to_string(),
        Op::Write => "write".to_string(),
        Op::Fault => "fault".to_string(),
        Op::Hint(advice) => format!("hint-{advice:?}").to_lowercase(),
    };
    let flags = [
        (Flags::AHEAD, " ahead"),
        (Flags::DIRECT, " direct"),
        (Flags::EXECUTABLE, " executable"),
    ];
    let flags: String = flags
        .iter()
        .filter(|(flag, _)| r.flags.has(*flag))
        .map(|(_, name)| *name)
        .collect();
    let (start, end) = (number(r.start_ns), number(r.end_ns));
    let came = r.returned.map_or(String::new(), |n| format!(" came={n}"));
    format!(
        "{op} file={} open={} thread={} {}+{}{came} {start}..{end}{flags}",
        r.file, r.open, r.thread, r.offset, r.len
    )
}

/// Compares with the text beside the fixture, or writes it where `FOREREAD_BLESS` is set.
pub fn golden(expected: &str, read: &Read) {
    let path = fixture(expected);
    // Errors and notes name the fixture by its path: only its name is the same everywhere.
    let text = shown(read).replace(
        &format!("{}/", fixture("").display()).replace("//", "/"),
        "",
    );
    if std::env::var_os("FOREREAD_BLESS").is_some() {
        std::fs::write(&path, &text).expect("writable");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, wanted, "{expected}: not as expected");
}
