//! `biosnoop`: block requests as biosnoop of bcc and of libbpf-tools prints them.
//!
//! ```text
//!   TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)            bcc
//!   0.000004    supervise      1950    xvda1     W 13092560   4096      0.74
//!   TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)    bcc -Q, libbpf-tools
//!   TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P LAT(ms)          bcc -P: R at random, S in order
//!   0.000103    dd             4123    nvme0n1   RA 50124520  131072    0.310           libbpf-tools: the kernel's letters, RA is readahead
//! ```
//! Times are completion times, relative to the first completion; the start of a request (when it is issued to the device) is its completion
//! time minus the column LAT. The name of a process may contain spaces, so a line is parsed from its end. The header line says which
//! columns follow the column BYTES. Requests without a sector or without bytes (flushes) are left out. Source: the example output files of
//! bcc.

use super::block::{BlockKind, rwbs};
use super::scan::{MS_NS, Names, SECOND_NS, SECTOR, decimal_ns, number, word};
use super::step::{Lines, Text, items};
use crate::error::Fault;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{
    FileInfo, Flags, Header, Import, Item, Lacks, LeftOut, Level, Op, Record, TraceError, order,
};
use std::collections::VecDeque;

pub static FORMAT: Format = Format {
    name: "biosnoop",
    summary: "text of biosnoop (bcc, libbpf-tools) with its header; seconds and ms, 512 B sectors",
    keys: &[],
    detect,
    import,
    export: None,
};

const BAD: Fault = (
    "the line does not have the fields TIME COMM PID DISK T SECTOR BYTES [P] [QUE] LAT",
    "the file is damaged, or printed without its header; see --format",
);

/// The number of columns between BYTES and LAT; `None` if the line is not a header.
fn header(line: &[u8]) -> Option<usize> {
    let words: Vec<&[u8]> = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    const NAMES: [&[u8]; 7] = [
        b"TIME(s)", b"COMM", b"PID", b"DISK", b"T", b"SECTOR", b"BYTES",
    ];
    match words.strip_prefix(&NAMES)? {
        [between @ .., b"LAT(ms)"] => {
            let is_known = |word: &&[u8]| matches!(*word, b"QUE(ms)" | b"P");
            between.iter().all(is_known).then_some(between.len())
        }
        _ => None,
    }
}

fn detect(head: &[u8]) -> Fit {
    let first = head.split(|b| *b == b'\n').next().unwrap_or_default();
    Fit::sure_if(header(first).is_some())
}

fn import(mut input: Input, _: Pairs) -> Result<Import, TraceError> {
    let mut lines = input.head()?.split(|b| *b == b'\n');
    let between = lines.next().and_then(header).unwrap_or(0);
    let units = [
        "seconds since the first completion (to the us)",
        "512 B sectors",
    ];
    let notes = [
        "a request starts when it is issued to the device: at the time of its line minus LAT",
        "PID is the process that the kernel charged for the request; its thread is not recorded",
    ];
    let about = Header::of(
        FORMAT.name,
        units,
        Lacks::REQUEST,
        Level::BelowCache,
        &notes,
    );
    let path = input.path().to_path_buf();
    let left_out = LeftOut::default();
    let lines = Biosnoop {
        between,
        disks: Names::default(),
        left_out: left_out.clone(),
    };
    let items = order::by_start(items(Text { input, lines }), &path);
    Ok(Import::new(about, items, left_out))
}

struct Biosnoop {
    /// Number of columns between BYTES and LAT.
    between: usize,
    disks: Names,
    left_out: LeftOut,
}

impl Lines for Biosnoop {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if line.is_empty() || header(line).is_some() {
            return Ok(true);
        }
        match row(line, self.between)? {
            Ok((disk, mut record)) => {
                let named = || FileInfo::new(String::from_utf8_lossy(disk), None);
                let file = self.disks.file(disk, out, named);
                record.file = file.ok_or(("too many disk names", "cut the trace into parts"))?;
                record.open = record.file;
                out.push_back(Item::Record(record));
            }
            Err(reason) => self.left_out.count(reason),
        }
        Ok(true)
    }
}

/// The disk and the request of a line, or the reason why the line is left out (a plural).
type Row<'a> = Result<(&'a [u8], Record), &'static str>;

fn row(line: &[u8], between: usize) -> Result<Row<'_>, Fault> {
    let mut rest = line.trim_ascii();
    let time = word(&mut rest);
    let mut last = || {
        let text = rest.trim_ascii_end();
        let at = text.iter().rposition(u8::is_ascii_whitespace)?;
        rest = &text[..at];
        Some(&text[at + 1..])
    };
    let latency = last().ok_or(BAD)?;
    for _ in 0..between {
        last().ok_or(BAD)?;
    }
    let mut last = || last().ok_or(BAD);
    let (bytes, sector, op, disk, pid) = (last()?, last()?, last()?, last()?, last()?);
    // A process without a name leaves its column empty.
    number(pid)
        .or_else(|| number(pid.strip_prefix(b"-")?))
        .ok_or(BAD)?;
    let (kind, ahead) = rwbs(op);
    let op = match kind {
        BlockKind::Read => Op::Read,
        BlockKind::Write => Op::Write,
        _ => return Ok(Err("requests that neither read nor write")),
    };
    let (end, latency) = (
        decimal_ns(time, SECOND_NS).ok_or(BAD)?,
        decimal_ns(latency, MS_NS).ok_or(BAD)?,
    );
    let (Some(sector), Some(len)) = (number(sector), number(bytes)) else {
        return Err(BAD);
    };
    if len == 0 {
        return Ok(Err("requests without bytes (flushes)"));
    }
    let offset = sector
        .checked_mul(SECTOR)
        .ok_or(("a sector beyond 2^64 bytes", BAD.1))?;
    // The first completion is at time 0, so earlier starts are negative.
    let signed = |ns: u64| i64::try_from(ns).map_err(|_| BAD);
    let (end, latency) = (signed(end)?, signed(latency)?);
    let (start, end) = (order::signed(end - latency), order::signed(end));
    Ok(Ok((
        disk,
        Record::read(0, offset, len)
            .op(op)
            .flags(if ahead {
                Flags::AHEAD
            } else {
                Flags::default()
            })
            .between(start, end),
    )))
}
