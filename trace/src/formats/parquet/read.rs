//! Reads Parquet: batch by batch, the columns that are known by their names.
//!
//! Never: a column of lists or structures, or a group or page that is larger than it may be.

use super::columns::{SCHEMA_VERSION, op};
use super::footer::{self, FooterRefusal};
use super::pages;
use super::quiet::quiet;
use crate::check::MAX_END;
use crate::error::{TraceError, TracePosition};
use crate::format::Pairs;
use crate::formats::csv::read::after as parse_after;
use crate::formats::scan::Names;
use crate::formats::step::{Step, items};
use crate::input::Input;
use crate::{FileInfo, Flags, Header, Import, Item, Lacks, LeftOut, Level, Record, order};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::ByteArray;
use ::parquet::file::metadata::{FileMetaData, RowGroupMetaData};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

pub const MAX_FOOTER_BYTES: u64 = 64 << 20;
/// Bytes of what is no plain file that are copied into a temporary one.
const MAX_COPY_BYTES: u64 = 4 << 30;
const MAX_COLUMNS: usize = 1024;
/// Rows that are read at once.
const BATCH: usize = 4096;

/// The columns that are read: see the head of the module.
const NAMES: [&str; 13] = [
    "t_start_ns",
    "t_end_ns",
    "file",
    "file_id",
    "file_size",
    "stream",
    "tid",
    "op",
    "offset",
    "len_req",
    "len_ret",
    "flags",
    "after",
];
const START: usize = 0;
const END: usize = 1;
const FILE: usize = 2;
const FILE_ID: usize = 3;
const FILE_SIZE: usize = 4;
const STREAM: usize = 5;
const TID: usize = 6;
const OP: usize = 7;
const OFFSET: usize = 8;
const LEN: usize = 9;
const RETURNED: usize = 10;
const FLAGS: usize = 11;
const AFTER: usize = 12;

fn refuse(path: &Path, what: impl Into<String>, remedy: &str) -> TraceError {
    TraceError::new(path, TracePosition::Whole, what, remedy)
}

/// What the library says, on one line of bounded length.
fn one_line(error: &::parquet::errors::ParquetError) -> String {
    let text: String = error.to_string().chars().take(160).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let input = Input::only(inputs, super::FORMAT.name)?;
    let path = input.path().to_path_buf();
    pairs.finish(&path, super::FORMAT.name, &[])?;
    let file = input.into_file(MAX_COPY_BYTES)?;
    check(&file, &path)?;
    let clone = file
        .try_clone()
        .map_err(|error| TraceError::io(&path, TracePosition::Whole, &error))?;
    let damaged = |error: ::parquet::errors::ParquetError| {
        refuse(
            &path,
            format!("no whole Parquet file ({})", one_line(&error)),
            "copy it again; its list of contents is at its end",
        )
    };
    let reader = quiet(|| SerializedFileReader::new(clone));
    let panicked = || {
        refuse(
            &path,
            "no whole Parquet file",
            "copy it again; its list of contents is at its end",
        )
    };
    let reader = reader.ok_or_else(panicked)?.map_err(damaged)?;
    let about = reader.metadata().file_metadata();
    let columns = columns(about, &path)?;
    let header = header(about, &columns);
    let sort = columns[AFTER].is_none() && columns[START].is_some();
    let groups = reader.metadata().num_row_groups();
    let table = ParquetTable {
        path: path.clone(),
        file,
        reader,
        columns,
        group: 0,
        groups,
        open: None,
        files: Names::default(),
        rows: 0,
    };
    let items = items(table);
    let items = if sort {
        order::by_start(items, &path)
    } else {
        items
    };
    Ok(Import::new(header, items, LeftOut::default()))
}

/// Looks at the list of contents before the library reads it.
fn check(mut file: &File, path: &Path) -> Result<(), TraceError> {
    let io = |error: std::io::Error| TraceError::io(path, TracePosition::Whole, &error);
    let damaged = || {
        refuse(
            path,
            "no whole Parquet file",
            "copy it again; its list of contents is at its end",
        )
    };
    let mut tail = [0; 8];
    let len = file.metadata().map_err(io)?.len();
    if len < 12 {
        return Err(damaged());
    }
    file.seek(SeekFrom::End(-8))
        .and_then(|_| file.read_exact(&mut tail))
        .map_err(io)?;
    let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if &tail[4..] != super::MAGIC || footer > len - 12 {
        return Err(damaged());
    }
    if footer > MAX_FOOTER_BYTES {
        return Err(refuse(
            path,
            "a list of contents of over 64 MiB",
            "write it with larger row groups",
        ));
    }
    let alone = "write the columns of the trace alone";
    footer::check(file, len - 8 - footer, footer).map_err(|refused| match refused {
        FooterRefusal::Damaged => damaged(),
        FooterRefusal::Deep => refuse(path, "a schema that is nested more than 32 deep", alone),
        FooterRefusal::Wide => refuse(path, "a schema of more than 4096 columns and groups", alone),
        FooterRefusal::Groups => refuse(
            path,
            "more than 1048576 row groups",
            "write it with larger row groups",
        ),
    })
}

type Columns = [Option<usize>; NAMES.len()];

fn columns(about: &FileMetaData, path: &Path) -> Result<Columns, TraceError> {
    let schema = about.schema_descr();
    if schema.num_columns() > MAX_COLUMNS {
        return Err(refuse(
            path,
            "more than 1024 columns",
            "write the columns of the trace alone",
        ));
    }
    let mut columns = [None; NAMES.len()];
    for (at, column) in schema.columns().iter().enumerate() {
        let Some(role) = NAMES
            .iter()
            .position(|name| *name == column.path().string())
        else {
            continue;
        };
        if column.max_rep_level() > 0 || column.max_def_level() > 1 {
            let what = format!("a column '{}' that is a list or a structure", NAMES[role]);
            return Err(refuse(path, what, "write it as a plain column"));
        }
        columns[role] = Some(at);
    }
    for role in [OFFSET, LEN] {
        if columns[role].is_none() {
            let remedy = "rename its columns as in 'foreread trace formats', or write it as CSV and name them there";
            return Err(refuse(path, format!("no column '{}'", NAMES[role]), remedy));
        }
    }
    Ok(columns)
}

fn header(about: &FileMetaData, columns: &Columns) -> Header {
    let pairs = about.key_value_metadata();
    let value = |key: &str| {
        let pair = pairs.into_iter().flatten().find(|pair| pair.key == key);
        pair.and_then(|pair| pair.value.clone())
    };
    let has = |role: usize| columns[role].is_some();
    let ours = value("schema_version").is_some_and(|version| version == SCHEMA_VERSION);
    let mut lacks = Lacks::default();
    for name in value("lacks").unwrap_or_default().split(' ') {
        lacks.set(name);
    }
    lacks.starts |= !has(START);
    lacks.ends |= !has(END);
    lacks.opens |= !has(STREAM);
    lacks.threads |= !has(TID);
    lacks.ops |= !has(OP);
    let level = match value("level").as_deref() {
        Some("Program") => Level::Program,
        Some("BelowCache") => Level::BelowCache,
        _ => Level::Unknown,
    };
    let mut notes: Vec<String> = value("notes")
        .unwrap_or_default()
        .lines()
        .map(str::to_string)
        .collect();
    if !ours {
        notes.push(
            "Not written by foreread, but with its column names: read as nanoseconds and bytes."
                .to_string(),
        );
    }
    Header {
        format: value("source_format").unwrap_or_else(|| super::FORMAT.name.to_string()),
        time_unit: value("time_unit_origin").unwrap_or_else(|| "ns".to_string()),
        offset_unit: value("offset_unit_origin").unwrap_or_else(|| "bytes".to_string()),
        lacks,
        level,
        notes,
    }
}

struct ParquetColumn {
    reader: ColumnReader,
    nullable: bool,
    known: Vec<i16>,
    ints: Vec<i32>,
    longs: Vec<i64>,
    texts: Vec<ByteArray>,
    /// The next value that is not null.
    at: usize,
}

impl ParquetColumn {
    fn fill(&mut self) -> Result<usize, String> {
        self.known.clear();
        self.ints.clear();
        self.longs.clear();
        self.texts.clear();
        self.at = 0;
        let known = self.nullable.then_some(&mut self.known);
        let read = match &mut self.reader {
            ColumnReader::Int32ColumnReader(r) => {
                r.read_records(BATCH, known, None, &mut self.ints)
            }
            ColumnReader::Int64ColumnReader(r) => {
                r.read_records(BATCH, known, None, &mut self.longs)
            }
            ColumnReader::ByteArrayColumnReader(r) => {
                r.read_records(BATCH, known, None, &mut self.texts)
            }
            _ => return Err("a column of another type than integers or text".to_string()),
        };
        read.map(|(rows, _, _)| rows)
            .map_err(|error| format!("a column that cannot be read ({})", one_line(&error)))
    }

    /// The place of a row's value, unless it is null.
    fn place(&mut self, row: usize) -> Option<usize> {
        if self.nullable && self.known.get(row) != Some(&1) {
            return None;
        }
        self.at += 1;
        Some(self.at - 1)
    }

    fn number(&mut self, row: usize) -> Option<i64> {
        let at = self.place(row)?;
        // Unsigned numbers of 32 bits are stored with their bits.
        self.ints
            .get(at)
            .map(|n| i64::from(n.cast_unsigned()))
            .or_else(|| self.longs.get(at).copied())
    }

    fn text(&mut self, row: usize) -> Option<ByteArray> {
        let at = self.place(row)?;
        self.texts.get(at).cloned()
    }
}

struct Group {
    columns: [Option<ParquetColumn>; NAMES.len()],
    left: u64,
}

struct ParquetTable {
    path: PathBuf,
    file: File,
    reader: SerializedFileReader<File>,
    columns: Columns,
    group: usize,
    groups: usize,
    open: Option<Group>,
    files: Names,
    rows: u64,
}

impl Step for ParquetTable {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        if self.open.is_none() {
            if self.group == self.groups {
                return Ok(false);
            }
            let group = quiet(|| self.open())
                .unwrap_or_else(|| Err("a group that cannot be opened".to_string()));
            let group = group.map_err(|what| self.error(what))?;
            (self.open, self.group) = (Some(group), self.group + 1);
        }
        let Some(mut group) = self.open.take() else {
            return Ok(false);
        };
        let mut rows = None;
        for column in group.columns.iter_mut().flatten() {
            let got = quiet(|| column.fill())
                .unwrap_or_else(|| Err("a column that cannot be read".to_string()));
            let got = got.map_err(|what| self.error(what))?;
            if *rows.get_or_insert(got) != got {
                return Err(self.error("columns of different lengths".to_string()));
            }
        }
        let rows = rows.unwrap_or(0);
        for row in 0..rows {
            self.rows += 1;
            self.row(row, &mut group, out)
                .map_err(|what| self.error(what.to_string()))?;
        }
        group.left = group.left.saturating_sub(rows as u64);
        if rows == 0 && group.left > 0 {
            return Err(self.error("a group that ends before its rows do".to_string()));
        }
        if group.left > 0 {
            self.open = Some(group);
        }
        Ok(true)
    }
}

impl ParquetTable {
    fn error(&self, what: String) -> TraceError {
        let remedy = "the file is damaged, or its columns mean something else";
        TraceError::new(
            &self.path,
            TracePosition::Record(self.rows.max(1)),
            what,
            remedy,
        )
    }

    fn open(&self) -> Result<Group, String> {
        let about: &RowGroupMetaData = self.reader.metadata().row_group(self.group);
        let group = self
            .reader
            .get_row_group(self.group)
            .map_err(|error| one_line(&error))?;
        let mut columns = [const { None }; NAMES.len()];
        for (column, at) in columns.iter_mut().zip(self.columns) {
            let Some(at) = at else { continue };
            let chunk = about.column(at);
            // `byte_range` panics where these are negative.
            let start = chunk
                .dictionary_page_offset()
                .unwrap_or(chunk.data_page_offset());
            let place = u64::try_from(start)
                .ok()
                .zip(u64::try_from(chunk.compressed_size()).ok());
            if !place.is_some_and(|(start, len)| pages::fit(&self.file, start, len)) {
                return Err("a column with a damaged page, or one of over 64 MiB".to_string());
            }
            let reader = group
                .get_column_reader(at)
                .map_err(|error| one_line(&error))?;
            let nullable = chunk.column_descr().max_def_level() > 0;
            let (known, ints, longs, texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            *column = Some(ParquetColumn {
                reader,
                nullable,
                known,
                ints,
                longs,
                texts,
                at: 0,
            });
        }
        let left = u64::try_from(about.num_rows())
            .map_err(|_| "a group of less than no rows".to_string())?;
        Ok(Group { columns, left })
    }

    fn row(
        &mut self,
        row: usize,
        group: &mut Group,
        out: &mut VecDeque<Item>,
    ) -> Result<(), &'static str> {
        let mut number = |role: usize| {
            group.columns[role]
                .as_mut()
                .and_then(|column| column.number(row))
        };
        let whole = |value: Option<i64>| match value {
            None => Ok(None),
            Some(n) => u64::try_from(n).map(Some).map_err(|_| "a negative number"),
        };
        let small = |value: Option<i64>| match value {
            None => Ok(None),
            Some(n) => u32::try_from(n)
                .map(Some)
                .map_err(|_| "a number of over 32 bits"),
        };
        let mut record = Record::read(0, 0, 0);
        record.offset = whole(number(OFFSET))?.ok_or("no offset")?;
        record.len = whole(number(LEN))?.ok_or("no len_req")?;
        record.returned = whole(number(RETURNED))?;
        record.start_ns = whole(number(START))?;
        record.end_ns = whole(number(END))?;
        record.op = op(number(OP).unwrap_or(0)).ok_or("an op that is not known")?;
        let flags = number(FLAGS).unwrap_or(0);
        record.flags = Flags(u16::try_from(flags).map_err(|_| "flags of over 16 bits")?);
        let thread = small(number(TID))?;
        let open = small(number(STREAM))?;
        let size = whole(number(FILE_SIZE))?.filter(|size| *size <= MAX_END);
        let id = number(FILE_ID);
        let mut text = |role: usize| {
            group.columns[role]
                .as_mut()
                .and_then(|column| column.text(row))
        };
        let name = text(FILE);
        if let Some(after) = text(AFTER) {
            record.after = parse_after(after.data()).map_err(|(what, _)| what)?;
        }
        let name = name.as_ref().map_or(&b"file"[..], ByteArray::data);
        let id = id.map(i64::to_le_bytes);
        let key: &[u8] = id.as_ref().map_or(name, |id| id);
        let named = || FileInfo {
            name: String::from_utf8_lossy(name).into_owned(),
            size,
        };
        let file = self.files.file(key, out, named);
        record.file = file.ok_or("too many names of files")?;
        record.thread = thread.unwrap_or(0);
        record.open = open.unwrap_or(record.file);
        out.push_back(Item::Record(record));
        Ok(())
    }
}
