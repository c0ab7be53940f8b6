//! Writing `spc`, the form of the Storage Performance Council; `published` has how it is read.
//!
//! The form needs times, so a trace without them is not written, and has no place for names.

use super::scan::{SECOND_NS, SECTOR};
use crate::error::TracePosition;
use crate::format::{ExportReport, Output, Pairs};
use crate::{Header, Item, Items, LeftOut, Op, TraceError};
use std::io::{BufWriter, Write};

pub fn export(
    _header: &Header,
    pairs: Pairs,
    items: Items,
    output: Output,
) -> Result<ExportReport, TraceError> {
    pairs.finish(&output.path, "spc", &[])?;
    let mut to = BufWriter::with_capacity(1 << 16, output.to);
    let (mut all, mut written) = (0, 0);
    let left_out = LeftOut::default();
    let count = |reason| left_out.count(reason);
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
    Ok(ExportReport {
        records: written,
        left_out: left_out.so_far(),
    })
}
