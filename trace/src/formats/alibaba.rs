//! `alibaba`: a thousand volumes of the block storage of Alibaba Cloud, 2020.
//!
//! `device_id,opcode,offset,length,timestamp`, no header; bytes, microseconds since 1970. Other tables have five columns
//! too, so only stamps of our century and whole sectors count as sure. Never: the later table with other columns.

use super::scan::number;
use super::table::{ColumnPlan, Row, SECTOR, import as table, lines_fit, split};
use crate::error::Fault;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Op, Record, TraceError};

/// Microseconds of the years 2001 to 2100: 16 digits.
const THIS_CENTURY_US: std::ops::Range<u64> = 1_000_000_000_000_000..4_102_444_800_000_000;

/// The format.
pub static FORMAT: Format = Format {
    name: "alibaba",
    summary: "Alibaba block traces 2020: CSV without header; us since 1970, bytes",
    keys: &[],
    detect: |head| lines_fit(head, |_, line| fit(line)),
    import: Some(import),
    export: None,
};

fn fit(line: &[u8]) -> Fit {
    let Ok(Row::Record(_, record)) = row(line) else {
        return Fit::No;
    };
    let century = record
        .start_ns
        .is_some_and(|start| THIS_CENTURY_US.contains(&(start / 1_000)));
    let whole = record.offset.is_multiple_of(SECTOR) && record.len.is_multiple_of(SECTOR);
    if century && whole {
        Fit::Sure
    } else {
        Fit::Maybe
    }
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "us since 1970".to_string(),
        offset_unit: "bytes".to_string(),
        lacks: Lacks { ends: true, opens: true, threads: true, ..Lacks::default() },
        level: Level::BelowCache,
        notes: vec![
            "Requests of virtual machines to their volumes, below their page caches; a volume is a file.".to_string(),
        ],
    };
    let name = |volume: &[u8]| format!("device {}", String::from_utf8_lossy(volume));
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
        "not a line of device_id,opcode,offset,length,timestamp",
        "the file is damaged or of another format; see --format",
    );
    let [device, op, offset, len, stamp] = split(line, b',').ok_or(BAD)?;
    let op = match op {
        b"R" => Op::Read,
        b"W" => Op::Write,
        _ => return Err(("an opcode that is neither R nor W", BAD.1)),
    };
    number(device).ok_or(BAD)?;
    let start = number(stamp)
        .and_then(|us| us.checked_mul(1_000))
        .ok_or(BAD)?;
    let (offset, len) = (number(offset).ok_or(BAD)?, number(len).ok_or(BAD)?);
    Ok(Row::Record(
        device,
        Record {
            op,
            start_ns: Some(start),
            ..Record::read(0, offset, len)
        },
    ))
}
