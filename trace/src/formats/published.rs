//! Imports published block traces whose files are tables with one row for each request; each format is described by a `preset`.

use super::scan::{Names, SECOND_NS, SECTOR, US_NS, decimal_ns, number, whole_lines};
use super::step::{Lines, Text, items};
use crate::error::Fault;
use crate::format::{Fit, Format};
use crate::input::Input;
use crate::{FileInfo, Header, Import, Item, Lacks, LeftOut, Level, Op, Record, TraceError, order};
use std::collections::VecDeque;
use std::ops::Range;

macro_rules! published {
    ($($(#[$doc:meta])* $format:ident { $($key:ident: $value:expr,)* })*) => {$(
        $(#[$doc])*
        pub static $format: Format = {
            static TABLE: Preset = Preset { $($key: $value,)* ..Preset::CSV };
            Format {
                name: TABLE.name,
                summary: TABLE.summary,
                keys: &[],
                detect: |head| (TABLE.fit)(&TABLE, head),
                import: |inputs, _| TABLE.import(inputs),
                export: None,
            }
        };
    )*};
}

/// Nanoseconds of the years 2001 to 2100.
const THIS_CENTURY_NS: std::ops::Range<u64> = 1_000_000_000_000_000_000..4_102_444_800_000_000_000;
/// Times between 1970 and 2185, in ticks of 100 ns since 1601. A file with other numbers has another format.
const TICKS: std::ops::Range<u64> = 116_444_736_000_000_000..184_467_440_737_095_516;
/// Number of `arc` lines whose numbers must be consecutive for a certain match.
const SURE_LINES: usize = 3;

fn named(kind: &str, volume: &[u8]) -> String {
    format!("{kind} {}", String::from_utf8_lossy(volume))
}

published! {
    /// A thousand volumes of Alibaba Cloud's block storage, 2020. Other tables have five columns too, so the match is
    /// certain only with timestamps of this century and whole sectors. The later table with other columns is not
    /// supported.
    ALIBABA {
        name: "alibaba",
        summary: "Alibaba block traces 2020: CSV without header; us since 1970, bytes",
        columns: &[
            Column::VolumeNumber,
            Column::Op(Ops::of(&["R"], &["W"], "an opcode is neither R nor W")),
            Column::Offset(1),
            Column::Len(1),
            Column::Start(Clock::whole(US_NS)),
        ],
        refusal: "not a line of device_id,opcode,offset,length,timestamp",
        time_unit: "us since 1970",
        notes: &[
            "Requests of virtual machines to their volumes, below their page caches; each volume is imported as a file.",
        ],
        volume: |volume| named("device", volume),
        fit: |table, head| table.lines(head, |_, record| {
            let century = record.start_ns.is_some_and(|start| THIS_CENTURY_NS.contains(&start));
            century && record.offset.is_multiple_of(SECTOR) && record.len.is_multiple_of(SECTOR)
        }),
    }

    /// The lists of requests used to evaluate the adaptive replacement cache (`P1.lis` and others). The third field is
    /// 0 in most traces and another number in P2, P3, P6 and P12; it is ignored here.
    ARC {
        name: "arc",
        summary: "ARC .lis: START BLOCKS IGNORED NUMBER; no times, blocks of 512 bytes, reads only",
        columns: &[
            Column::Offset(SECTOR),
            Column::Len(SECTOR),
            Column::Number,
            Column::Number,
        ],
        separator: None,
        refusal: "the line does not have the fields START, BLOCKS, IGNORED and NUMBER",
        too_far: "a block beyond 2^64 bytes",
        offset_unit: "512 B blocks",
        level: Level::Unknown,
        notes: &["All requests are imported as reads of one file."],
        volume: |_| "blocks".to_string(),
        fit: counted,
    }

    /// The block traces of servers at Microsoft Research Cambridge, 2007. Times need 57 bits. Rows are in order of completion.
    MSR {
        name: "msr",
        summary: "MSR Cambridge: CSV without header; 100 ns since 1601, bytes",
        columns: &[
            Column::Start(Clock {
                range: Some((TICKS, "a time that is not in 100 ns since 1601")),
                ..Clock::whole(100)
            }),
            Column::Volume,
            Column::Volume,
            Column::Op(Ops::of(&["Read"], &["Write"], "a type is neither Read nor Write")),
            Column::Offset(1),
            Column::Len(1),
            Column::Dur(Clock::whole(100)),
        ],
        refusal: "not a line of Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        time_unit: "100 ns since 1601",
        notes: &["Taken below the file cache of a server; each volume is imported as a file."],
        volume: |volume| String::from_utf8_lossy(volume).replace(',', "."),
        fit: |table, head| table.lines(head, |_, _| true),
    }

    /// The format of the Storage Performance Council, used for example by the traces of the UMass repository. With
    /// whole seconds, it could be another table with the same columns.
    SPC {
        name: "spc",
        summary: "SPC, UMass: CSV without header; seconds with decimals, blocks of 512 bytes, sizes in bytes",
        columns: &[
            Column::VolumeNumber,
            Column::Offset(SECTOR),
            Column::Len(1),
            Column::Op(Ops::of(&["r", "R"], &["w", "W"], "an opcode is neither r nor w")),
            Column::Start(Clock::decimal(SECOND_NS)),
        ],
        refusal: "not a line of ASU,LBA,Size,Opcode,Timestamp",
        too_far: "a block beyond 2^64 bytes",
        time_unit: "seconds",
        offset_unit: "512 B blocks",
        notes: &["Requests to storage units, taken below any cache; each unit is imported as a file."],
        volume: |volume| named("ASU", volume),
        fit: |table, head| table.lines(head, |line, _| {
            line.rsplit(|b| *b == b',').next().is_some_and(|stamp| stamp.contains(&b'.'))
        }),
    }

    /// The virtual desktops of SYSTOR 2017. Times have nine decimals, of which six are measured. A blank IOType is a
    /// request whose reply was not seen.
    SYSTOR {
        name: "systor",
        summary: "SYSTOR '17 virtual desktops: CSV with header; seconds with decimals, bytes",
        columns: &[
            Column::Start(Clock::decimal(SECOND_NS)),
            Column::DurOrNothing(Clock::decimal(SECOND_NS)),
            Column::Op(Ops {
                left_out: Some(("", "requests without a reply")),
                ..Ops::of(&["R"], &["W"], "an IOType is neither R, W nor blank")
            }),
            Column::Volume,
            Column::Offset(1),
            Column::Len(1),
        ],
        header: Some("Timestamp,Response,IOType,LUN,Offset,Size"),
        refusal: "not a line of Timestamp,Response,IOType,LUN,Offset,Size",
        time_unit: "seconds since 1970 (to the us)",
        notes: &[
            "Captured in front of a storage array, below the page caches of the desktops; each LUN is imported as a file.",
            "Some requests are missing at the end of each hour's log.",
        ],
        volume: |volume| named("LUN", volume),
        fit: |table, head| lines_fit(head, |i, line| {
            let is_header = table.header.is_some_and(|header| header.as_bytes() == line);
            if i > 0 || is_header { Fit::Sure } else { Fit::No }
        }),
    }

    /// Volumes of Tencent's cloud block storage, 2018. Thousands of requests share a second, so the records have no
    /// times and keep the order of the file. Five plain numbers could be any table, so the user has to name the format.
    TENCENT {
        name: "tencent",
        summary: "Tencent block storage: CSV without header; seconds (left out), sectors of 512 bytes",
        columns: &[
            Column::Number,
            Column::Offset(SECTOR),
            Column::Len(SECTOR),
            Column::Op(Ops::of(&["0"], &["1"], "an IOType is neither 0 nor 1")),
            Column::VolumeNumber,
        ],
        refusal: "not a line of Timestamp,Offset,Size,IOType,VolumeID",
        too_far: "a sector beyond 2^64 bytes",
        time_unit: "none (whole seconds, left out)",
        offset_unit: "512 B sectors",
        notes: &[
            "Requests of virtual machines to their volumes, below their page caches; each volume is imported as a file.",
            "The times are left out, because thousands of requests share each second; the order of the file is kept.",
        ],
        volume: |volume| named("volume", volume),
        fit: |table, head| table.lines(head, |_, _| false),
    }
}

/// Certain if the last column numbers the lines.
fn counted(table: &Preset, head: &[u8]) -> Fit {
    let last = |line: &[u8]| number(&line[table.split(line)?[3].clone()]);
    let Some(first) = head.split(|b| *b == b'\n').next().and_then(last) else {
        return Fit::No;
    };
    let counts = |i: usize, line: &[u8]| last(line) == first.checked_add(i as u64);
    let fit = lines_fit(head, |i, line| {
        match (table.row(line).is_ok(), counts(i, line)) {
            (true, true) => Fit::Sure,
            (true, false) => Fit::Maybe,
            (false, _) => Fit::No,
        }
    });
    let few = head.iter().filter(|b| **b == b'\n').count() < SURE_LINES;
    if few { fit.min(Fit::Maybe) } else { fit }
}

// Shared by the published tables of block requests: a line is a row with a fixed number of fields, and a volume is a file.
//
// Numbers are never parsed as floats. Quotes are not supported: the tables have none (`csv` supports them).

/// Number of lines that a detector checks.
const DETECT_LINES: usize = 100;
/// Returns how well the lines of `head` fit a format: `line` rates each line, and every line must fit. The last line may be truncated and
/// is ignored.
pub fn lines_fit(head: &[u8], line: impl Fn(usize, &[u8]) -> Fit) -> Fit {
    let lines = whole_lines(head).take(DETECT_LINES).enumerate();
    let fits = lines.map(|(i, text)| line(i, text.strip_suffix(b"\r").unwrap_or(text)));
    fits.min().filter(|_| !head.is_empty()).unwrap_or(Fit::No)
}

pub enum Row<'a> {
    /// A record of the volume with this name; the caller fills in the file number.
    Record(&'a [u8], Record),
    /// A row that is left out for this reason (a plural).
    LeftOut(&'static str),
    /// A row that is ignored: a header.
    Nothing,
}

struct Table<R> {
    row: R,
    name: fn(&[u8]) -> String,
    volumes: Names,
    left_out: LeftOut,
}

impl<R> Lines for Table<R>
where
    R: FnMut(&[u8]) -> Result<Row<'_>, Fault> + Send,
{
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if line.is_empty() {
            return Ok(true);
        }
        match (self.row)(line)? {
            Row::Record(volume, mut record) => {
                let named = || FileInfo::new((self.name)(volume), None);
                let file = self.volumes.file(volume, out, named);
                record.file = file.ok_or(("too many volume names", "cut the trace into parts"))?;
                record.open = record.file;
                out.push_back(Item::Record(record));
            }
            Row::LeftOut(reason) => self.left_out.count(reason),
            Row::Nothing => {}
        }
        Ok(true)
    }
}

/// Imports a table. `row` converts a line, and `name` returns the file name for a volume. The caller must have evaluated the keys of
/// `--format`. If the table has times, the records are sorted by time, and the first record starts at time 0.
pub fn import_table<R>(input: Input, header: Header, name: fn(&[u8]) -> String, row: R) -> Import
where
    R: FnMut(&[u8]) -> Result<Row<'_>, Fault> + Send + 'static,
{
    let left_out = LeftOut::default();
    let path = input.path().to_path_buf();
    let lines = Table {
        row,
        name,
        volumes: Names::default(),
        left_out: left_out.clone(),
    };
    let mut items = items(Text { input, lines });
    if !header.lacks.starts {
        items = order::by_start(items, &path);
    }
    Import::new(header, items, left_out)
}

// A description of a published table: columns with units, separator, names of reads and writes.
//
// ```text
//   0,R,126703661056,4096,1577808000000046      a line of `alibaba`
//   │ │ │            │    └ Start: us            ──► file 0 "device 0"
//   │ │ │            └ Len: bytes                    Read at 126703661056 len 4096 start ...
//   │ │ └ Offset: bytes
//   │ └ Op: R and W
//   └ Volume
// ```
// The rows are in `published`; a table that cannot be described this way has its own file. Floats and quotes are not supported.

pub const DAMAGED: &str = "the file is damaged or of another format; see --format";
const MAX_COLUMNS: usize = 8;

pub struct Ops {
    pub reads: &'static [&'static str],
    pub writes: &'static [&'static str],
    /// A skipped operation, and its name in reports (a plural).
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
    /// Part of the volume's name. Adjacent columns of this kind form one name, including the separator.
    Volume,
    /// The volume's name, which is a number.
    VolumeNumber,
    Op(Ops),
    /// First byte, in units of this many bytes.
    Offset(u64),
    /// Bytes requested, in units of this many bytes.
    Len(u64),
    Start(Clock),
    Dur(Clock),
    /// Duration; unknown if the field is empty.
    DurOrNothing(Clock),
    /// A number that is ignored.
    Number,
}

pub struct Preset {
    pub name: &'static str,
    pub summary: &'static str,
    pub columns: &'static [Column],
    /// Separator of the columns; `None` means any number of spaces and tabs.
    pub separator: Option<u8>,
    /// The header line, if the table has one.
    pub header: Option<&'static str>,
    /// The error for a line of another shape.
    pub refusal: &'static str,
    /// The error for an offset that is too large.
    pub too_far: &'static str,
    pub time_unit: &'static str,
    pub offset_unit: &'static str,
    pub level: Level,
    pub notes: &'static [&'static str],
    /// Makes a file name from a volume's name.
    pub volume: fn(&[u8]) -> String,
    pub fit: fn(&Preset, &[u8]) -> Fit,
}

impl Preset {
    /// The default description of a table: no header, offsets in bytes, requests to a device.
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
    };

    fn has(&self, is: impl Fn(&Column) -> bool) -> bool {
        self.columns.iter().any(is)
    }

    /// Returns the byte range of each field of a line, or `None` if the number of fields differs from the number of columns.
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
        // A line of another shape is refused for its shape, even if it has other errors.
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

    /// Returns how well the first lines of a file fit this table. For a line with the right columns, `sure` decides whether the fit is
    /// certain.
    pub fn lines(&self, head: &[u8], sure: impl Fn(&[u8], &Record) -> bool) -> Fit {
        lines_fit(head, |_, line| match self.row(line) {
            Ok(Row::Record(_, record)) if sure(line, &record) => Fit::Sure,
            Ok(Row::Record(..)) => Fit::Maybe,
            _ => Fit::No,
        })
    }

    pub fn import(&'static self, inputs: Vec<Input>) -> Result<Import, TraceError> {
        let input = Input::only(inputs, self.name)?;
        let lacks = Lacks {
            starts: !self.has(|column| matches!(column, Column::Start(_))),
            ends: !self.has(|c| matches!(c, Column::Dur(_) | Column::DurOrNothing(_))),
            ops: !self.has(|column| matches!(column, Column::Op(_))),
            ..Lacks::REQUEST
        };
        let units = [self.time_unit, self.offset_unit];
        let header = Header::of(self.name, units, lacks, self.level, self.notes);
        Ok(import_table(input, header, self.volume, |line| {
            self.row(line)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_line_decides_and_a_cut_one_does_not_count() {
        let fit = |_: usize, line: &[u8]| if line == b"x" { Fit::Sure } else { Fit::No };
        assert_eq!(lines_fit(b"x\r\nx\ny", fit), Fit::Sure);
        assert_eq!(lines_fit(b"x\ny\nx\n", fit), Fit::No);
        assert_eq!(lines_fit(b"x", fit), Fit::Sure);
        assert_eq!(lines_fit(b"", fit), Fit::No);
    }
}
