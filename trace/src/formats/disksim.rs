//! `disksim`: what disks were asked, in three dialects of text.
//!
//! ```text
//!   validate   R|W label lbn sectors service_us next_us       a measured disk; next_us: until the next request comes
//!   ascii      time_ms device lbn sectors flags               flags hexadecimal, bit 0 set: a read
//!   mqsim      time_ns device lbn sectors kind                kind decimal, 1: a read, 0: a write
//! ```
//!
//! Sectors of 512 bytes in all of them. The last two have the same columns with other units, so which of them it is has
//! to be said. Never: a guess at that.

use super::scan::{choice, number};
use super::table::{self, Row, SECTOR, decimal_ns, lines_fit, words};
use crate::error::{Fault, TracePosition};
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Op, Record, TraceError};

const DIALECTS: &[&str] = &["validate", "ascii", "mqsim"];
const DAMAGED: &str = "the file is damaged or of another dialect or format; see --format";

/// The format.
pub static FORMAT: Format = Format {
    name: "disksim",
    summary: "DiskSim: text; validate (us), ascii (ms) or mqsim (ns), sectors of 512 bytes",
    keys: &[(
        "dialect",
        "validate (R|W LABEL LBN N US US), ascii (times in ms) or mqsim (times in ns)",
    )],
    detect,
    import: Some(import),
    export: None,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Validate,
    Ascii,
    Mqsim,
}

fn detect(head: &[u8]) -> Fit {
    let is_five = |line: &[u8]| {
        let is = |dialect| five(line, dialect).is_ok();
        is(Dialect::Ascii) || is(Dialect::Mqsim)
    };
    let validate = lines_fit(head, |_, line| Fit::sure_if(validate(line).is_ok()));
    let others = lines_fit(head, |_, line| Fit::sure_if(is_five(line)));
    validate.max(others.min(Fit::Maybe))
}

fn import(inputs: Vec<Input>, mut pairs: Pairs) -> Result<Import, TraceError> {
    let mut input = Input::only(inputs, FORMAT.name)?;
    let dialect = choice(&mut pairs, "dialect", DIALECTS, input.path())?;
    pairs.finish(input.path(), FORMAT.name, &["dialect"])?;
    let first = input
        .head()?
        .split(|b| *b == b'\n')
        .find(|line| !line.trim_ascii().is_empty())
        .unwrap_or(b"");
    let dialect = match dialect {
        None if words::<5>(first.trim_ascii()).is_some() => {
            let what = "two dialects of DiskSim have five columns, with other units";
            let remedy = "name disksim:dialect=ascii (ms, bit 0 of the flags set: a read) or \
                          disksim:dialect=mqsim (ns, 1: a read)";
            return Err(TraceError::new(
                input.path(),
                TracePosition::Whole,
                what,
                remedy,
            ));
        }
        None | Some(0) => Dialect::Validate,
        Some(1) => Dialect::Ascii,
        Some(_) => Dialect::Mqsim,
    };
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: match dialect {
            Dialect::Validate => "us until the next request",
            Dialect::Ascii => "ms",
            Dialect::Mqsim => "ns",
        }
        .to_string(),
        offset_unit: "512 B sectors".to_string(),
        lacks: Lacks {
            ends: dialect != Dialect::Validate,
            ..Lacks::REQUEST
        },
        level: Level::BelowCache,
        notes: vec![
            "Requests to a disk, below whatever cache was above it; a disk is a file.".to_string(),
        ],
    };
    let mut elapsed_ns = 0_u64;
    Ok(table::import(input, header, named, move |line| {
        row(line, dialect, &mut elapsed_ns)
    }))
}

fn named(disk: &[u8]) -> String {
    match disk {
        b"" => "disk".to_string(),
        disk => format!("disk {}", String::from_utf8_lossy(disk)),
    }
}

/// A line; `elapsed_ns` is when its request comes, in the dialect that gives only the time between requests.
fn row<'a>(line: &'a [u8], dialect: Dialect, elapsed_ns: &mut u64) -> Result<Row<'a>, Fault> {
    if line.trim_ascii().is_empty() {
        return Ok(Row::Nothing);
    }
    if dialect != Dialect::Validate {
        return five(line, dialect).map(|(disk, record)| Row::Record(disk, record));
    }
    let (mut record, next_ns) = validate(line)?;
    let late = ("times that add up to over 2^64 ns", DAMAGED);
    let start = *elapsed_ns;
    record.start_ns = Some(start);
    record.end_ns = Some(start.checked_add(record.end_ns.unwrap_or(0)).ok_or(late)?);
    *elapsed_ns = start.checked_add(next_ns).ok_or(late)?;
    Ok(Row::Record(b"", record))
}

fn sectors(text: &[u8]) -> Result<u64, Fault> {
    let sectors = number(text).ok_or(("a sector or a count that is no number", DAMAGED))?;
    sectors
        .checked_mul(SECTOR)
        .ok_or(("a sector beyond 2^64 bytes", DAMAGED))
}

/// A request whose end is how long it took, and how long until the next one, in nanoseconds.
fn validate(line: &[u8]) -> Result<(Record, u64), Fault> {
    const BAD: Fault = (
        "not a line of R|W LABEL LBN SECTORS SERVICE_US NEXT_US",
        DAMAGED,
    );
    let [op, _, lbn, count, service, next] = words(line).ok_or(BAD)?;
    let op = match op {
        b"R" => Op::Read,
        b"W" => Op::Write,
        _ => return Err(BAD),
    };
    let us = |text| decimal_ns(text, 1_000).ok_or(BAD);
    let record = Record {
        op,
        end_ns: Some(us(service)?),
        ..Record::read(0, sectors(lbn)?, sectors(count)?)
    };
    Ok((record, us(next)?))
}

/// A request of the two dialects with five columns, and its disk.
fn five(line: &[u8], dialect: Dialect) -> Result<(&[u8], Record), Fault> {
    const BAD: Fault = ("not a line of TIME DEVICE LBN SECTORS FLAGS", DAMAGED);
    let [time, disk, lbn, count, flags] = words(line).ok_or(BAD)?;
    number(disk).ok_or(BAD)?;
    let (start, read) = if dialect == Dialect::Ascii {
        let flags = std::str::from_utf8(flags)
            .ok()
            .filter(|flags| !flags.starts_with('+'));
        let flags = flags
            .and_then(|flags| u32::from_str_radix(flags, 16).ok())
            .ok_or(BAD)?;
        (decimal_ns(time, 1_000_000), flags & 1 == 1)
    } else {
        let read = match flags {
            b"1" => true,
            b"0" => false,
            _ => return Err(("a kind that is neither 0 nor 1", DAMAGED)),
        };
        (number(time), read)
    };
    let op = if read { Op::Read } else { Op::Write };
    let start = start.ok_or(BAD)?;
    Ok((
        disk,
        Record {
            op,
            start_ns: Some(start),
            ..Record::read(0, sectors(lbn)?, sectors(count)?)
        },
    ))
}
