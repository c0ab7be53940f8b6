//! `systor`: the virtual desktops of SYSTOR 2017.
//!
//! `Timestamp,Response,IOType,LUN,Offset,Size` with that header; seconds with nine decimals, of which six are measured,
//! and bytes. A blank IOType is a request whose reply was not seen: it is left out. Never: a time as a float.

use super::scan::number;
use super::table::{ColumnPlan, Row, decimal_ns, import as table, lines_fit, split};
use crate::error::Fault;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Op, Record, TraceError};

const HEADER: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size";
const SECOND_NS: u64 = 1_000_000_000;

/// The format.
pub static FORMAT: Format = Format {
    name: "systor",
    summary: "SYSTOR '17 virtual desktops: CSV with header; seconds with decimals, bytes",
    keys: &[],
    detect: |head| {
        lines_fit(head, |i, line| {
            if i > 0 || line == HEADER {
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
        time_unit: "seconds since 1970 (to the us)".to_string(),
        offset_unit: "bytes".to_string(),
        lacks: Lacks { opens: true, threads: true, ..Lacks::default() },
        level: Level::BelowCache,
        notes: vec![
            "Captured in front of a storage array, below the page caches of the desktops; a LUN is a file.".to_string(),
            "Where an hour's log ends, some requests are missing.".to_string(),
        ],
    };
    let name = |volume: &[u8]| format!("LUN {}", String::from_utf8_lossy(volume));
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
        "not a line of Timestamp,Response,IOType,LUN,Offset,Size",
        "the file is damaged or of another format; see --format",
    );
    let [stamp, response, op, lun, offset, len] = split(line, b',').ok_or(BAD)?;
    let op = match op {
        b"R" => Op::Read,
        b"W" => Op::Write,
        b"" => return Ok(Row::LeftOut("requests without a reply")),
        _ if line == HEADER => return Ok(Row::Nothing),
        _ => return Err(("an IOType that is neither R nor W nor blank", BAD.1)),
    };
    let start = decimal_ns(stamp, SECOND_NS).ok_or(BAD)?;
    let end = if response.is_empty() {
        None
    } else {
        let took = decimal_ns(response, SECOND_NS).ok_or(BAD)?;
        Some(start.checked_add(took).ok_or(BAD)?)
    };
    let (offset, len) = (number(offset).ok_or(BAD)?, number(len).ok_or(BAD)?);
    Ok(Row::Record(
        lun,
        Record {
            op,
            start_ns: Some(start),
            end_ns: end,
            ..Record::read(0, offset, len)
        },
    ))
}
