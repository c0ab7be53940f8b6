//! A description of a published table: columns with units, separator, names of reads and writes.
//!
//! ```text
//!   0,R,126703661056,4096,1577808000000046      a line of `alibaba`
//!   │ │ │            │    └ Start: us            ──► file 0 "device 0"
//!   │ │ │            └ Len: bytes                    Read at 126703661056 len 4096 start ...
//!   │ │ └ Offset: bytes
//!   │ └ Op: R and W
//!   └ Volume
//! ```
//! The rows are in `published`; a table that cannot be described this way has its own file. Without floats and quotes.

use super::scan::{decimal_ns, number};
use super::table::{self, Row, lines_fit};
use crate::error::Fault;
use crate::format::{ExportFn, Fit, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Op, Record, TraceError};
use std::ops::Range;

pub const DAMAGED: &str = "the file is damaged or of another format; see --format";
const MAX_COLUMNS: usize = 8;

pub struct Ops {
    pub reads: &'static [&'static str],
    pub writes: &'static [&'static str],
    /// A skipped operation, and its name in the report (a plural).
    pub left_out: Option<(&'static str, &'static str)>,
    pub refusal: &'static str,
}

impl Ops {
    pub const fn of(
        reads: &'static [&'static str],
        writes: &'static [&'static str],
        refusal: &'static str,
    ) -> Ops {
        Ops {
            reads,
            writes,
            left_out: None,
            refusal,
        }
    }
}

pub struct Clock {
    pub unit_ns: u64,
    pub decimals: bool,
    /// The valid range of times, in units, and the error for others.
    pub range: Option<(Range<u64>, &'static str)>,
}

impl Clock {
    pub const fn whole(unit_ns: u64) -> Clock {
        Clock {
            unit_ns,
            decimals: false,
            range: None,
        }
    }

    pub const fn decimal(unit_ns: u64) -> Clock {
        Clock {
            decimals: true,
            ..Clock::whole(unit_ns)
        }
    }

    fn ns(&self, text: &[u8], bad: Fault) -> Result<u64, Fault> {
        if self.decimals {
            return decimal_ns(text, self.unit_ns).ok_or(bad);
        }
        let units = number(text).ok_or(bad)?;
        match &self.range {
            Some((range, why)) if !range.contains(&units) => {
                Err((why, "the file is of another format; see --format"))
            }
            _ => units.checked_mul(self.unit_ns).ok_or(bad),
        }
    }
}

pub enum Column {
    /// Part of the volume's name. Columns beside each other make one name, with the separator in it.
    Volume,
    /// The volume's name, which is a number.
    VolumeNumber,
    Op(Ops),
    /// First byte, in units of this many bytes.
    Offset(u64),
    /// Bytes asked for, in units of this many bytes.
    Len(u64),
    Start(Clock),
    Dur(Clock),
    /// How long it took; unknown where the field is empty.
    DurOrNothing(Clock),
    /// A number without a meaning here.
    Number,
}

pub struct Preset {
    pub name: &'static str,
    pub summary: &'static str,
    pub columns: &'static [Column],
    /// Between the columns; none: any number of spaces and tabs.
    pub separator: Option<u8>,
    /// The line that names the columns, where there is one.
    pub header: Option<&'static str>,
    /// Why a line without this shape is refused.
    pub refusal: &'static str,
    /// Why a place is refused that is too far.
    pub too_far: &'static str,
    pub time_unit: &'static str,
    pub offset_unit: &'static str,
    pub level: Level,
    pub notes: &'static [&'static str],
    /// The file's name of a volume.
    pub volume: fn(&[u8]) -> String,
    pub fit: fn(&Preset, &[u8]) -> Fit,
    pub export: Option<ExportFn>,
}

impl Preset {
    /// Most tables: without a header, in bytes, of requests to a device.
    pub const CSV: Preset = Preset {
        name: "",
        summary: "",
        columns: &[],
        separator: Some(b','),
        header: None,
        refusal: "",
        too_far: "a place beyond 2^64 bytes",
        time_unit: "none",
        offset_unit: "bytes",
        level: Level::BelowCache,
        notes: &[],
        volume: |volume| String::from_utf8_lossy(volume).into_owned(),
        fit: |_, _| Fit::No,
        export: None,
    };

    fn has(&self, is: impl Fn(&Column) -> bool) -> bool {
        self.columns.iter().any(is)
    }

    /// Where the fields of a line are, if there is one for each column.
    pub fn split(&self, line: &[u8]) -> Option<[Range<usize>; MAX_COLUMNS]> {
        let mut places = [const { 0..0 }; MAX_COLUMNS];
        let mut found = 0;
        let mut put = |place: Range<usize>| {
            let free = places.get_mut(found).map(|free| *free = place);
            found += 1;
            free
        };
        let is_between = |byte: &u8| match self.separator {
            Some(by) => *byte == by,
            None => matches!(byte, b' ' | b'\t'),
        };
        let mut at = 0;
        for field in line.split(is_between) {
            if self.separator.is_some() || !field.is_empty() {
                put(at..at + field.len())?;
            }
            at += field.len() + 1;
        }
        (found == self.columns.len()).then_some(places)
    }

    pub fn row<'a>(&self, line: &'a [u8]) -> Result<Row<'a>, Fault> {
        let bad = (self.refusal, DAMAGED);
        if self.header.is_some_and(|header| header.as_bytes() == line) {
            return Ok(Row::Nothing);
        }
        let places = self.split(line).ok_or(bad)?;
        let mut record = Record::read(0, 0, 0);
        for (column, place) in self.columns.iter().zip(&places) {
            let Column::Op(ops) = column else { continue };
            let word = &line[place.clone()];
            let is = |words: &[&str]| words.iter().any(|known| known.as_bytes() == word);
            record.op = match ops.left_out {
                _ if is(ops.reads) => Op::Read,
                _ if is(ops.writes) => Op::Write,
                Some((known, what)) if is(&[known]) => return Ok(Row::LeftOut(what)),
                _ => return Err((ops.refusal, DAMAGED)),
            };
        }
        let (mut volume, mut dur) = (None::<Range<usize>>, None);
        // A line of another shape is refused for that, whatever else is wrong with it.
        let mut is_far = false;
        for (column, place) in self.columns.iter().zip(&places) {
            let field = &line[place.clone()];
            let mut bytes = |unit: u64| {
                let bytes = number(field).ok_or(bad)?.checked_mul(unit);
                is_far |= bytes.is_none();
                Ok::<u64, Fault>(bytes.unwrap_or(0))
            };
            match column {
                Column::Op(_) => {}
                Column::Volume => {
                    let start = volume.map_or(place.start, |volume| volume.start);
                    volume = Some(start..place.end);
                }
                Column::VolumeNumber => {
                    number(field).ok_or(bad)?;
                    volume = Some(place.clone());
                }
                Column::Offset(unit) => record.offset = bytes(*unit)?,
                Column::Len(unit) => record.len = bytes(*unit)?,
                Column::Start(clock) => record.start_ns = Some(clock.ns(field, bad)?),
                Column::DurOrNothing(_) if field.is_empty() => {}
                Column::Dur(clock) | Column::DurOrNothing(clock) => {
                    dur = Some(clock.ns(field, bad)?)
                }
                Column::Number => {
                    number(field).ok_or(bad)?;
                }
            }
        }
        if is_far {
            return Err((self.too_far, DAMAGED));
        }
        if let (Some(start), Some(dur)) = (record.start_ns, dur) {
            record.end_ns = Some(start.checked_add(dur).ok_or(bad)?);
        }
        Ok(Row::Record(&line[volume.unwrap_or(0..0)], record))
    }

    /// The fit of each line, where it has the shape of this table, as `sure` says.
    pub fn lines(&self, head: &[u8], sure: impl Fn(&[u8], &Record) -> bool) -> Fit {
        lines_fit(head, |_, line| match self.row(line) {
            Ok(Row::Record(_, record)) if sure(line, &record) => Fit::Sure,
            Ok(Row::Record(..)) => Fit::Maybe,
            _ => Fit::No,
        })
    }

    pub fn import(&'static self, inputs: Vec<Input>, pairs: &Pairs) -> Result<Import, TraceError> {
        let input = Input::only(inputs, self.name)?;
        pairs.finish(input.path(), self.name, &[])?;
        let lacks = Lacks {
            starts: !self.has(|column| matches!(column, Column::Start(_))),
            ends: !self.has(|c| matches!(c, Column::Dur(_) | Column::DurOrNothing(_))),
            ops: !self.has(|column| matches!(column, Column::Op(_))),
            ..Lacks::REQUEST
        };
        let units = [self.time_unit, self.offset_unit];
        let header = Header::of(self.name, units, lacks, self.level, self.notes);
        Ok(table::import(input, header, self.volume, |line| {
            self.row(line)
        }))
    }
}
