//! `csv`: reads and writes tables with named columns.
//!
//! A header with unambiguous names needs no options (see [`columns`]); otherwise the options name each column:
//! `csv:offset=off,len=size,start=ts,unit=us`. If a table has no header, an option replaces it:
//! `csv:columns=file+op+offset+len+time_us`. Records are sorted by start time, and the first start becomes 0; if records refer to each
//! other (column `after`), their order and times stay as in the table. Units are never guessed.

use self::columns::{Columns, MAX_COLUMNS, Role, TIMES, by_keys, by_names, remedy};
use self::read::Table;
use super::scan::Names;
use super::step::{Text, items};
use crate::error::{TraceError, TracePosition};
use crate::format::{ExportReport, Fit, Format, Output, Pairs};
use crate::input::Input;
use crate::{After, FileInfo, Header, Import, Item, Items, Lacks, LeftOut, Level, Record, order};
use read::{flag_names, op_name};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

mod columns;
mod read;

pub static FORMAT: Format = Format {
    name: "csv",
    summary: "CSV: columns by name or by option",
    keys: &[
        (
            "columns",
            "names of all columns, joined by +, if the first line does not name them",
        ),
        ("offset", "column of the first byte"),
        ("len", "column of the number of bytes requested"),
        ("returned", "column of the number of bytes returned"),
        ("start", "column of the start time"),
        (
            "end",
            "column of the end time (if the trace has durations instead, use 'dur')",
        ),
        ("dur", "column of the duration"),
        ("op", "column of the operation"),
        ("file", "column of the file's name"),
        ("file-size", "column of the file's size in bytes"),
        ("thread", "column of the thread's number"),
        ("open", "column of the open description's number"),
        ("unit", "unit of times: ns, 100ns, us, ms or s"),
        (
            "offset-unit",
            "unit of offsets: bytes, sectors or a number of bytes (bytes)",
        ),
        (
            "len-unit",
            "unit of lengths: bytes, sectors or a number of bytes (bytes)",
        ),
    ],
    detect,
    import,
    export: Some(export),
};

fn detect(head: &[u8]) -> Fit {
    let line = head.split(|b| *b == b'\n').next().unwrap_or(b"");
    names(line).map_or(Fit::No, |names| columns::fit(&names))
}

fn names(line: &[u8]) -> Option<Vec<String>> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut quoted = read::QuotedRows::new();
    let names: Option<Vec<String>> = quoted
        .split(line)
        .ok()?
        .map(|field| String::from_utf8(field.to_vec()).ok())
        .collect();
    names.filter(|names| names.len() <= MAX_COLUMNS)
}

fn import(mut input: Input, pairs: Pairs) -> Result<Import, TraceError> {
    let path = input.path().to_path_buf();
    let whole =
        |what: String, remedy: &str| TraceError::new(&path, TracePosition::Line(1), what, remedy);
    let names = match pairs.get("columns") {
        Some(named) => names(named.replace('+', ",").as_bytes()),
        None => names(input.line()?.unwrap_or(b"")),
    };
    let names = names.ok_or_else(|| {
        whole(
            "the first line names no columns".to_string(),
            "name them, as in --format csv:columns=offset+len+time_us",
        )
    })?;
    let columns = match by_keys(&pairs, &names, &path)? {
        Some(columns) => columns,
        None => by_names(&names).map_err(|what| whole(what, &remedy(&names)))?,
    };
    let header = describe(&columns, &names);
    let sort = columns.of(Role::Start).is_some() && columns.of(Role::After).is_none();
    let table = Table {
        columns,
        files: Names::default(),
        pending: Vec::new(),
        quoted: None,
    };
    let mut items = items(Text {
        input,
        lines: table,
    });
    if sort {
        items = order::by_start(items, &path);
    }
    Ok(Import::new(header, items, LeftOut::default()))
}

fn describe(columns: &Columns, names: &[String]) -> Header {
    let has = |role| columns.of(role).is_some();
    let time = columns
        .of(Role::Start)
        .and_then(|c| TIMES.iter().find(|(_, unit)| *unit == c.unit));
    let offset = columns.of(Role::Offset).map_or(1, |column| column.unit);
    let mut notes = Vec::new();
    let unused: Vec<&str> = columns
        .0
        .iter()
        .zip(names)
        .filter(|(c, _)| c.is_none())
        .map(|(_, n)| n.as_str())
        .collect();
    if !unused.is_empty() {
        let shown: Vec<&str> = unused.iter().take(20).copied().collect();
        notes.push(format!("Columns that were not used: {}.", shown.join(", ")));
    }
    if !has(Role::Op) {
        notes.push(
            "The table does not tell reads from writes, so every row counts as a read.".to_string(),
        );
    }
    let offset_unit = match offset {
        1 => "bytes".to_string(),
        bytes => format!("units of {bytes} B"),
    };
    let lacks = Lacks {
        starts: !has(Role::Start),
        ends: !has(Role::End) && !has(Role::Dur),
        opens: !has(Role::Open),
        threads: !has(Role::Thread),
        ops: !has(Role::Op),
    };
    let units = [time.map_or("none", |(name, _)| name), &offset_unit];
    let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
    Header::of(FORMAT.name, units, lacks, Level::Unknown, &notes)
}

// Writes a trace as CSV that reads back identically.
//
// ```text
//   start_ns,end_ns,file,file_size,open,thread,op,offset,length,returned,flags,after
//   1000,1500,/data/a,,0,7,read,0,4096,,ahead+direct,
//   ,,vm@base,1048576,1,0,read,4096,512,,,0e0 0s2000
// ```
//
// Columns without data are omitted. `after` lists what a record waits for: nanoseconds after the end (`e`) or the start
// (`s`) of another record; records are counted from 0. Two files with the same name are merged into one, which is
// reported.

pub fn export(header: &Header, items: Items, output: Output) -> Result<ExportReport, TraceError> {
    let path = output.path;
    let mut writer = Writer {
        to: ::csv::WriterBuilder::new()
            .buffer_capacity(1 << 16)
            .from_writer(output.to),
        lacks: header.lacks,
        files: Vec::new(),
        text: String::new(),
    };
    let lacks = header.lacks;
    let columns = [
        ("start_ns", lacks.starts),
        ("end_ns", lacks.ends),
        ("file", false),
        ("file_size", false),
        ("open", lacks.opens),
        ("thread", lacks.threads),
        ("op", lacks.ops),
        ("offset", false),
        ("length", false),
        ("returned", false),
        ("flags", false),
        ("after", false),
    ];
    let columns = columns
        .into_iter()
        .filter(|(_, lacks)| !lacks)
        .map(|(name, _)| name);
    writer
        .to
        .write_record(columns)
        .map_err(|error| failed(&path, error))?;
    let (mut names, mut records) = (HashSet::new(), 0);
    let left_out = LeftOut::default();
    for item in items {
        match item? {
            Item::File(file) => {
                if !names.insert(file.name.clone()) {
                    left_out.count("files that were merged with another file of the same name");
                }
                writer.files.push(file);
            }
            Item::Record(record) => {
                records += 1;
                writer
                    .record(&record)
                    .map_err(|error| failed(&path, error))?;
            }
        }
    }
    writer
        .to
        .flush()
        .map_err(|error| TraceError::not_written(&path, &error))?;
    Ok(ExportReport {
        records,
        left_out: left_out.so_far(),
    })
}

fn after_text(after: &[After]) -> String {
    let one = |after: &After| {
        format!(
            "{}{}{}",
            after.record,
            if after.end { 'e' } else { 's' },
            after.delay_ns
        )
    };
    after.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn failed(path: &Path, error: ::csv::Error) -> TraceError {
    TraceError::not_written(path, &std::io::Error::from(error))
}

struct Writer {
    to: ::csv::Writer<Box<dyn std::io::Write + Send>>,
    lacks: Lacks,
    files: Vec<FileInfo>,
    /// The field being written.
    text: String,
}

impl Writer {
    fn number(&mut self, n: Option<u64>) -> Result<(), ::csv::Error> {
        self.text.clear();
        if let Some(n) = n {
            write!(self.text, "{n}").expect("memory");
        }
        self.to.write_field(&self.text)
    }

    fn record(&mut self, record: &Record) -> Result<(), ::csv::Error> {
        let lacks = self.lacks;
        if !lacks.starts {
            self.number(record.start_ns)?;
        }
        if !lacks.ends {
            self.number(record.end_ns)?;
        }
        let file = &self.files[record.file as usize];
        let size = file.size;
        self.to.write_field(&file.name)?;
        self.number(size)?;
        if !lacks.opens {
            self.number(Some(u64::from(record.open)))?;
        }
        if !lacks.threads {
            self.number(Some(u64::from(record.thread)))?;
        }
        if !lacks.ops {
            self.to.write_field(op_name(record.op))?;
        }
        self.number(Some(record.offset))?;
        self.number(Some(record.len))?;
        self.number(record.returned)?;
        self.to.write_field(flag_names(record.flags))?;
        self.to.write_field(after_text(&record.after))?;
        self.to.write_record(None::<&[u8]>)
    }
}
