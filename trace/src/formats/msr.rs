//! `msr`: the block traces of servers at Microsoft Research Cambridge, 2007.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, no header; times in ticks of 100 ns since 1601, which
//! need 57 bits. The file is in the order of completion, so it is sorted by start. Never: a time as a float.

use super::scan::number;
use super::table::{ColumnPlan, Row, import as table, lines_fit, split};
use crate::error::Fault;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Op, Record, TraceError};

/// Ticks of a time between 1970 and 2185: a file that holds other numbers is something else.
const TICKS: std::ops::Range<u64> = 116_444_736_000_000_000..184_467_440_737_095_516;

/// The format.
pub static FORMAT: Format = Format {
    name: "msr",
    summary: "MSR Cambridge: CSV without header; 100 ns since 1601, bytes",
    keys: &[],
    detect: |head| {
        lines_fit(head, |_, line| {
            if row(line).is_ok() {
                Fit::Sure
            } else {
                Fit::No
            }
        })
    },
    import: Some(import),
    export: None,
};

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "100 ns since 1601".to_string(),
        offset_unit: "bytes".to_string(),
        lacks: Lacks {
            opens: true,
            threads: true,
            ..Lacks::default()
        },
        level: Level::BelowCache,
        notes: vec!["Taken below the file cache of a server; a volume is a file.".to_string()],
    };
    let name = |volume: &[u8]| String::from_utf8_lossy(volume).replace(',', ".");
    table(
        inputs,
        &pairs,
        header,
        ColumnPlan {
            row,
            name,
            sort: true,
        },
    )
}

fn row(line: &[u8]) -> Result<Row<'_>, Fault> {
    const BAD: Fault = (
        "not a line of Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        "the file is damaged or of another format; see --format",
    );
    let [ticks, host, disk, op, offset, len, response] = split(line, b',').ok_or(BAD)?;
    let op = match op {
        b"Read" => Op::Read,
        b"Write" => Op::Write,
        _ => return Err(("a type that is neither Read nor Write", BAD.1)),
    };
    let start = number(ticks).ok_or(BAD)?;
    if !TICKS.contains(&start) {
        return Err((
            "a time that is not in 100 ns since 1601",
            "the file is of another format; see --format",
        ));
    }
    let end = start
        .checked_add(number(response).ok_or(BAD)?)
        .filter(|end| TICKS.contains(end))
        .ok_or(BAD)?;
    let (offset, len) = (number(offset).ok_or(BAD)?, number(len).ok_or(BAD)?);
    // Host and disk with the comma between them.
    let volume = &line[ticks.len() + 1..ticks.len() + 2 + host.len() + disk.len()];
    let record = Record {
        op,
        start_ns: Some(start * 100),
        end_ns: Some(end * 100),
        ..Record::read(0, offset, len)
    };
    Ok(Row::Record(volume, record))
}
