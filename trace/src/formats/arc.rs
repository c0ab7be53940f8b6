//! `arc`: the lists that the adaptive replacement cache was measured with (`P1.lis` and others).
//!
//! `start_block nblocks ignored number`: blocks of 512 bytes, reads only, no times. The third field is 0 in most traces and
//! another number in P2, P3, P6 and P12; it has no meaning here. Never: a block of another size.

use super::scan::number;
use super::table::{ColumnPlan, Row, SECTOR, import as table, lines_fit, words};
use crate::error::Fault;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Record, TraceError};

/// Lines whose numbers have to go up one by one before it is sure.
const SURE_LINES: usize = 3;

/// The format.
pub static FORMAT: Format = Format {
    name: "arc",
    summary: "ARC .lis: START BLOCKS IGNORED NUMBER; no times, blocks of 512 bytes, reads only",
    keys: &[],
    detect,
    import: Some(import),
    export: None,
};

fn detect(head: &[u8]) -> Fit {
    let first = head
        .split(|b| *b == b'\n')
        .next()
        .and_then(words::<4>)
        .and_then(|[_, _, _, n]| number(n));
    let Some(first) = first else { return Fit::No };
    let counts = |i: usize, line: &[u8]| {
        words::<4>(line).and_then(|w| number(w[3])) == first.checked_add(i as u64)
    };
    let fit = lines_fit(head, |i, line| match (row(line).is_ok(), counts(i, line)) {
        (true, true) => Fit::Sure,
        (true, false) => Fit::Maybe,
        (false, _) => Fit::No,
    });
    let few = head.iter().filter(|b| **b == b'\n').count() < SURE_LINES;
    if few { fit.min(Fit::Maybe) } else { fit }
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "none".to_string(),
        offset_unit: "512 B blocks".to_string(),
        lacks: Lacks {
            starts: true,
            ends: true,
            opens: true,
            threads: true,
            lens: false,
            ops: true,
        },
        level: Level::Unknown,
        notes: vec!["Everything is one file; every request counts as a read.".to_string()],
    };
    table(
        inputs,
        &pairs,
        header,
        ColumnPlan {
            row,
            name: |_| "blocks".to_string(),
            sort: false,
        },
    )
}

fn row(line: &[u8]) -> Result<Row<'_>, Fault> {
    const BAD: Fault = (
        "not a line of START BLOCKS IGNORED NUMBER",
        "the file is damaged or of another format; see --format",
    );
    let [start, count, ignored, seq] = words(line).ok_or(BAD)?;
    number(ignored).and(number(seq)).ok_or(BAD)?;
    let blocks = |text| {
        number(text)
            .ok_or(BAD)?
            .checked_mul(SECTOR)
            .ok_or(("a block beyond 2^64 bytes", BAD.1))
    };
    Ok(Row::Record(
        b"",
        Record::read(0, blocks(start)?, blocks(count)?),
    ))
}
