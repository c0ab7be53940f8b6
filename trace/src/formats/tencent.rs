//! `tencent`: volumes of Tencent's cloud block storage, 2018.
//!
//! `Timestamp,Offset,Size,IOType,VolumeID`, no header; whole seconds, sectors of 512 bytes, 0 = read and 1 = write.
//! Thousands of requests share a second, so the records come without times, in the order of the file. Five plain
//! numbers could be anything: the format has to be named. Never: spacing that was not recorded.

use super::scan::number;
use super::table::{ColumnPlan, Row, SECTOR, import as table, lines_fit, split};
use crate::error::Fault;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Op, Record, TraceError};

/// The format.
pub static FORMAT: Format = Format {
    name: "tencent",
    summary: "Tencent block storage: CSV without header; seconds (left out), sectors of 512 bytes",
    keys: &[],
    detect: |head| {
        lines_fit(head, |_, line| {
            if row(line).is_ok() {
                Fit::Maybe
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
        time_unit: "none (whole seconds, left out)".to_string(),
        offset_unit: "512 B sectors".to_string(),
        lacks: Lacks { starts: true, ends: true, opens: true, threads: true, ..Lacks::default() },
        level: Level::BelowCache,
        notes: vec![
            "Requests of virtual machines to their volumes, below their page caches; a volume is a file.".to_string(),
            "The times are whole seconds that thousands of requests share: left out, the order of the file is kept."
                .to_string(),
        ],
    };
    let name = |volume: &[u8]| format!("volume {}", String::from_utf8_lossy(volume));
    table(
        inputs,
        &pairs,
        header,
        ColumnPlan {
            row,
            name,
            sort: false,
        },
    )
}

fn row(line: &[u8]) -> Result<Row<'_>, Fault> {
    const BAD: Fault = (
        "not a line of Timestamp,Offset,Size,IOType,VolumeID",
        "the file is damaged or of another format; see --format",
    );
    let [stamp, offset, len, op, volume] = split(line, b',').ok_or(BAD)?;
    let op = match op {
        b"0" => Op::Read,
        b"1" => Op::Write,
        _ => return Err(("an IOType that is neither 0 nor 1", BAD.1)),
    };
    let sectors = |text| {
        number(text)
            .ok_or(BAD)?
            .checked_mul(SECTOR)
            .ok_or(("a sector beyond 2^64 bytes", BAD.1))
    };
    number(stamp).and_then(|_| number(volume)).ok_or(BAD)?;
    Ok(Row::Record(
        volume,
        Record {
            op,
            ..Record::read(0, sectors(offset)?, sectors(len)?)
        },
    ))
}
