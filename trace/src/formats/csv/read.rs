//! Converts the rows of a CSV file to records.
//!
//! A row without quotes is split in place. A row with quotes is parsed by the crate `csv-core`, and may span several
//! lines. A row longer than 64 KiB is refused, and so is a row whose number of columns differs from that of the
//! header. No number is parsed as a floating-point number.

use super::super::scan::{Names, decimal_ns, number, small};
use super::super::step::Lines;
use super::columns::{Column, Columns, Role};
use crate::check::MAX_AFTER;
use crate::error::Fault;
use crate::input::MAX_LINE_BYTES;
use crate::{After, FileInfo, Flags, Item, Op, Record};
use foreread_core::event::Advice;
use std::collections::VecDeque;

/// Names of operations, in lower case.
const OPS: &[(&str, Op)] = &[
    ("read", Op::Read),
    ("r", Op::Read),
    ("pread", Op::Read),
    ("pread64", Op::Read),
    ("write", Op::Write),
    ("w", Op::Write),
    ("pwrite", Op::Write),
    ("pwrite64", Op::Write),
    ("fault", Op::Fault),
    ("hint-normal", Op::Hint(Advice::Normal)),
    ("hint-sequential", Op::Hint(Advice::Sequential)),
    ("hint-random", Op::Hint(Advice::Random)),
    ("hint-willneed", Op::Hint(Advice::WillNeed)),
    ("hint-dontneed", Op::Hint(Advice::DontNeed)),
];

const FLAGS: &[(&str, Flags)] = &[
    ("ahead", Flags::AHEAD),
    ("direct", Flags::DIRECT),
    ("executable", Flags::EXECUTABLE),
    ("metadata", Flags::METADATA),
];

const DAMAGED: &str = "the file is damaged, or its columns mean something else";

pub fn op_name(op: Op) -> &'static str {
    OPS.iter()
        .find(|(_, known)| *known == op)
        .map_or("read", |(name, _)| name)
}

/// Returns the names of the flags that are set, joined by `+`.
pub fn flag_names(flags: Flags) -> String {
    let names: Vec<&str> = FLAGS
        .iter()
        .filter(|(_, bit)| flags.has(*bit))
        .map(|(name, _)| *name)
        .collect();
    names.join("+")
}

fn op(word: &[u8]) -> Result<Op, Fault> {
    let known = OPS
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    known.map(|(_, op)| *op).ok_or((
        "an op is neither a read nor a write",
        "write read or write in that column",
    ))
}

pub struct Table {
    pub columns: Columns,
    pub files: Names,
    /// Lines of an unfinished row.
    pub pending: Vec<u8>,
    /// The splitter for rows with quotes, created at the first one.
    pub quoted: Option<Box<QuotedRows>>,
}

impl Lines for Table {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if !self.pending.is_empty() || line.contains(&b'"') {
            if self.pending.len() + line.len() > MAX_LINE_BYTES {
                return Err((
                    "a row longer than 64 KiB",
                    "a quote is not closed, or this is not CSV",
                ));
            }
            self.pending.extend_from_slice(line);
            // Quotes inside quotes are doubled, so a row is complete when their number is even.
            if self.pending.iter().filter(|b| **b == b'"').count() % 2 == 1 {
                self.pending.push(b'\n');
                return Ok(true);
            }
            let mut row = std::mem::take(&mut self.pending);
            let mut quoted = self
                .quoted
                .take()
                .unwrap_or_else(|| Box::new(QuotedRows::new()));
            self.row(quoted.split(&row)?, out)?;
            row.clear();
            (self.pending, self.quoted) = (row, Some(quoted));
            return Ok(true);
        }
        if line.is_empty() {
            return Ok(true);
        }
        self.row(line.split(|b| *b == b','), out).map(|()| true)
    }

    fn end(&mut self, _: &mut VecDeque<Item>) -> Result<(), Fault> {
        if self.pending.is_empty() {
            Ok(())
        } else {
            Err(("a quote that is not closed", DAMAGED))
        }
    }
}

/// Splits rows in which fields may be quoted. The same splitter is used for all rows, because creating its parser takes
/// as long as parsing a thousand fields.
pub struct QuotedRows {
    parser: csv_core::Reader,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl QuotedRows {
    pub fn new() -> QuotedRows {
        QuotedRows {
            parser: csv_core::Reader::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    pub fn split(&mut self, row: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Fault> {
        // No field is longer than its quoted form, and each has at least its delimiter.
        self.bytes.resize(self.bytes.len().max(row.len() + 1), 0);
        self.ends.resize(self.ends.len().max(row.len() + 2), 0);
        self.parser.reset();
        let (_, _, wrote, fields) = self
            .parser
            .read_record(row, &mut self.bytes, &mut self.ends);
        let (bytes, ends) = (&mut self.bytes[wrote..], &mut self.ends[fields..]);
        let (result, _, _, more) = self.parser.read_record(&[], bytes, ends);
        if !matches!(result, csv_core::ReadRecordResult::Record) {
            return Err(("a row is not CSV", DAMAGED));
        }
        let (bytes, ends) = (&self.bytes, &self.ends[..fields + more]);
        let begin = |n: usize| if n == 0 { 0 } else { ends[n - 1] };
        Ok(ends
            .iter()
            .enumerate()
            .map(move |(n, end)| &bytes[begin(n)..*end]))
    }
}

/// The fields of a row, before it becomes a record.
#[derive(Default)]
struct Row<'a> {
    file: &'a [u8],
    file_size: Option<u64>,
    open: Option<u32>,
    dur: Option<u64>,
}

impl Table {
    fn row<'a>(
        &mut self,
        fields: impl Iterator<Item = &'a [u8]>,
        out: &mut VecDeque<Item>,
    ) -> Result<(), Fault> {
        let mut record = Record::read(0, 0, 0);
        let mut row = Row {
            file: b"file",
            ..Row::default()
        };
        let mut seen = 0;
        for field in fields {
            let column = self
                .columns
                .0
                .get(seen)
                .ok_or(("a row has more columns than are named", DAMAGED))?;
            if let Some(column) = column {
                self.field(*column, field, &mut record, &mut row)?;
            }
            seen += 1;
        }
        if seen < self.columns.0.len() {
            return Err(("a row has fewer columns than are named", DAMAGED));
        }
        if let Some(dur) = row.dur
            && let Some(start) = record.start_ns
        {
            let end = start.checked_add(dur);
            record.end_ns = Some(end.ok_or(("a time of over 2^64 ns", DAMAGED))?);
        }
        let named = || FileInfo::new(String::from_utf8_lossy(row.file), row.file_size);
        let file = self.files.file(row.file, out, named);
        let file = file.ok_or(("too many file names", "cut the trace into parts"))?;
        (record.file, record.open) = (file, row.open.unwrap_or(file));
        out.push_back(Item::Record(record));
        Ok(())
    }

    fn field<'a>(
        &self,
        column: Column,
        field: &'a [u8],
        record: &mut Record,
        row: &mut Row<'a>,
    ) -> Result<(), Fault> {
        const PLACE: Fault = (
            "an offset or length is not a whole number of bytes",
            DAMAGED,
        );
        const TIME: Fault = (
            "a time is not a decimal number",
            "write times as decimals, without exponents",
        );
        const NUMBER: Fault = (
            "a thread or open description is not a number below 2^32",
            DAMAGED,
        );
        let bytes = || number(field)?.checked_mul(column.unit);
        let place = || bytes().ok_or(PLACE);
        let time = || decimal_ns(field, column.unit).ok_or(TIME);
        let small = || small(field).ok_or(NUMBER);
        match column.role {
            Role::Offset => record.offset = place()?,
            Role::Len => record.len = place()?,
            Role::Op => record.op = op(field)?,
            Role::File => row.file = field,
            // All others may be empty.
            _ if field.is_empty() => {}
            Role::Returned => record.returned = Some(place()?),
            Role::Start => record.start_ns = Some(time()?),
            Role::End => record.end_ns = Some(time()?),
            Role::Dur => row.dur = Some(time()?),
            Role::FileSize => row.file_size = Some(place()?),
            Role::Open => row.open = Some(small()?),
            Role::Thread => record.thread = small()?,
            Role::Flags => record.flags = flags(field)?,
            Role::After => record.after = after(field)?,
        }
        Ok(())
    }
}

fn flags(field: &[u8]) -> Result<Flags, Fault> {
    let bit = |name: &[u8]| {
        FLAGS
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map(|(_, bit)| *bit)
    };
    let joined = field
        .split(|b| *b == b'+')
        .map(bit)
        .try_fold(Flags::default(), |all, bit| Some(all.with(bit?)));
    joined.ok_or((
        "an unknown flag",
        "the flags are ahead, direct, executable and metadata, joined by +",
    ))
}

/// `12e500 13s0`: 500 ns after the end of record 12, and after the start of record 13.
fn after(field: &[u8]) -> Result<Vec<After>, Fault> {
    const BAD: Fault = (
        "a dependency is not RECORD, then e or s, then NANOSECONDS",
        DAMAGED,
    );
    let one = |word: &[u8]| {
        let at = word.iter().position(|b| matches!(b, b'e' | b's'))?;
        Some(After::new(
            number(&word[..at])?,
            word[at] == b'e',
            number(&word[at + 1..])?,
        ))
    };
    let words = field.split(|b| *b == b' ').take(MAX_AFTER + 1);
    words.map(|word| one(word).ok_or(BAD)).collect()
}
