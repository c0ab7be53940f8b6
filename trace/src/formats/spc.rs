//! `spc`: the traces of the Storage Performance Council's form, such as those of the UMass repository; in and out.
//!
//! `ASU,LBA,Size,Opcode,Timestamp`: blocks of 512 bytes but sizes in bytes, `r` or `w` in either case, seconds with
//! decimals. The form needs times, so a trace without them is not written. Never: names, which it has no place for.

use super::scan::number;
use super::table::{ColumnPlan, Row, SECTOR, decimal_ns, import as table, lines_fit, split};
use crate::error::Fault;
use crate::error::TracePosition;
use crate::format::{Exported, Fit, Format, Output, Pairs};
use crate::input::Input;
use crate::{Header, Import, Item, Items, Lacks, Level, Op, Record, TraceError};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

const SECOND_NS: u64 = 1_000_000_000;

/// The format.
pub static FORMAT: Format = Format {
    name: "spc",
    summary: "SPC, UMass: CSV without header; seconds with decimals, blocks of 512 bytes, sizes in bytes",
    keys: &[],
    detect: |head| lines_fit(head, |_, line| fit(line)),
    import: Some(import),
    export: Some(export),
};

/// Whole seconds could be another table with the same columns.
fn fit(line: &[u8]) -> Fit {
    match row(line) {
        Ok(_)
            if line
                .rsplit(|b| *b == b',')
                .next()
                .is_some_and(|stamp| stamp.contains(&b'.')) =>
        {
            Fit::Sure
        }
        Ok(_) => Fit::Maybe,
        Err(_) => Fit::No,
    }
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "seconds".to_string(),
        offset_unit: "512 B blocks".to_string(),
        lacks: Lacks {
            ends: true,
            opens: true,
            threads: true,
            ..Lacks::default()
        },
        level: Level::BelowCache,
        notes: vec![
            "Requests to storage units, below whatever cache was above them; a unit is a file."
                .to_string(),
        ],
    };
    let name = |volume: &[u8]| format!("ASU {}", String::from_utf8_lossy(volume));
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
        "not a line of ASU,LBA,Size,Opcode,Timestamp",
        "the file is damaged or of another format; see --format",
    );
    let [asu, lba, len, op, stamp] = split(line, b',').ok_or(BAD)?;
    let op = match op {
        b"r" | b"R" => Op::Read,
        b"w" | b"W" => Op::Write,
        _ => return Err(("an opcode that is neither r nor w", BAD.1)),
    };
    number(asu).ok_or(BAD)?;
    let offset = number(lba)
        .ok_or(BAD)?
        .checked_mul(SECTOR)
        .ok_or(("a block beyond 2^64 bytes", BAD.1))?;
    let start = decimal_ns(stamp, SECOND_NS).ok_or(BAD)?;
    let len = number(len).ok_or(BAD)?;
    Ok(Row::Record(
        asu,
        Record {
            op,
            start_ns: Some(start),
            ..Record::read(0, offset, len)
        },
    ))
}

fn export(
    _header: &Header,
    pairs: Pairs,
    items: Items,
    output: Output,
) -> Result<Exported, TraceError> {
    pairs.finish(&output.path, FORMAT.name, &[])?;
    let mut to = BufWriter::with_capacity(1 << 16, output.to);
    let (mut all, mut written) = (0, 0);
    let mut left_out: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut count = |reason| *left_out.entry(reason).or_default() += 1;
    for item in items {
        let record = match item? {
            Item::File(_) => {
                count("names of files");
                continue;
            }
            Item::Record(record) => record,
        };
        all += 1;
        let op = match record.op {
            Op::Read => 'r',
            Op::Write => 'w',
            Op::Fault => {
                count("page faults, written as reads");
                'r'
            }
            Op::Hint(_) => {
                count("hints");
                continue;
            }
        };
        let Some(start) = record.start_ns else {
            let remedy = "write it as csv or in the own format";
            return Err(TraceError::new(
                &output.path,
                TracePosition::Record(all),
                "spc needs times, and this has none",
                remedy,
            ));
        };
        let before = record.offset % SECTOR;
        if before > 0 {
            count("reads and writes that now begin at the start of their block");
        }
        if record.end_ns.is_some() {
            count("ends");
        }
        if !record.after.is_empty() {
            count("dependencies");
        }
        let (block, len) = (record.offset / SECTOR, record.len + before);
        let (s, ns) = (start / SECOND_NS, start % SECOND_NS);
        let line = writeln!(to, "{},{block},{len},{op},{s}.{ns:09}", record.file);
        line.map_err(|error| TraceError::not_written(&output.path, &error))?;
        written += 1;
    }
    to.flush()
        .map_err(|error| TraceError::not_written(&output.path, &error))?;
    Ok(Exported {
        records: written,
        left_out: left_out.into_iter().collect(),
    })
}
