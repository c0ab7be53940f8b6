//! Traces of CloudPhysics: the requests of virtual disks as a hypervisor saw them, little-endian.
//!
//! ```text
//!   1: serial u32 · bytes u32 · segments u32 · command u16 · version u16 · block u64 · us u64                  32 bytes
//!   2: command u16 · version u16 · serial u32 · bytes u32 · segments u32 · block u64 · us u64 · response u64    40 bytes
//! ```
//!
//! The version is the upper byte of its field. Blocks are of 512 bytes, commands are those of SCSI. Time begins with the
//! first record. A response of version 2 has no unit that is written down anywhere: it is left open, unless `response=us`
//! says so. Never: commands that neither read nor write.

use super::super::error::{TraceError, TracePosition};
use super::super::format::{Fit, Format, Pairs};
use super::super::input::Input;
use super::super::order::{MAX_DISORDER, Sorter, TOO_LATE, TooLate};
use super::super::{FileInfo, Header, Import, Item, Lacks, LeftOut, Level, Op, Record};
use super::scan;
use super::step::{self, Step};
use std::collections::VecDeque;

pub static FORMAT: Format = Format {
    name: "vscsi",
    summary: "binary vscsi traces of CloudPhysics, version 1 and 2; us, 512 B blocks",
    keys: &[
        ("version", "1 or 2, where it cannot be seen"),
        ("response", "us, if version 2 has response times in us"),
    ],
    detect,
    import: Some(import),
    export: None,
};

/// Records that are looked at for the version.
const LOOK: usize = 16;
const BLOCK: u64 = 512;

fn size_of(version: u8) -> usize {
    if version == 1 { 32 } else { 40 }
}

/// How many of the first records have this version; none if one of them has not.
fn fits(head: &[u8], version: u8) -> usize {
    let field = if version == 1 { 14 } else { 2 };
    let mut records = head.chunks_exact(size_of(version)).take(LOOK);
    let count = records.len();
    if records.all(|record| record[field + 1] == version) {
        count
    } else {
        0
    }
}

fn detect(head: &[u8]) -> Fit {
    match (fits(head, 1), fits(head, 2)) {
        (0, 0) => Fit::No,
        // The byte is one of many values: a few records in a row are no chance.
        (n, 0) | (0, n) if n >= 4 => Fit::Sure,
        _ => Fit::Maybe,
    }
}

fn import(inputs: Vec<Input>, mut pairs: Pairs) -> Result<Import, TraceError> {
    let mut input = Input::only(inputs, FORMAT.name)?;
    let path = input.path().to_path_buf();
    let asked = scan::choice(&mut pairs, "version", &["1", "2"], &path)?;
    let response = scan::choice(&mut pairs, "response", &["us"], &path)?.is_some();
    pairs.finish(&path, FORMAT.name, &["version", "response"])?;
    let head = input.head()?;
    let version = match (asked, fits(head, 1), fits(head, 2)) {
        (Some(0), ..) | (None, 1.., 0) => 1,
        (Some(_), ..) | (None, 0, 1..) => 2,
        _ => {
            let remedy = "if it is one, say vscsi:version=1 or vscsi:version=2";
            return Err(TraceError::new(
                &path,
                TracePosition::Whole,
                "no version of vscsi at its beginning",
                remedy,
            ));
        }
    };
    let mut notes =
        vec!["taken below a guest's cache: hits are missing, its readahead is in it".to_string()];
    let ends = version == 2 && response;
    if version == 2 && !response {
        notes.push(
            "response times have no stated unit and were left out; vscsi:response=us takes them"
                .to_string(),
        );
    }
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "us".to_string(),
        offset_unit: "512 B sectors".to_string(),
        lacks: Lacks {
            ends: !ends,
            ..Lacks::REQUEST
        },
        level: Level::BelowCache,
        notes,
    };
    let left_out = LeftOut::default();
    let vscsi = Vscsi {
        input,
        version,
        ends,
        base_us: 0,
        sorter: Sorter::new(MAX_DISORDER),
        started: false,
        left_out: left_out.clone(),
    };
    Ok(Import::new(header, step::items(vscsi), left_out))
}

struct Vscsi {
    input: Input,
    version: u8,
    /// Responses are microseconds.
    ends: bool,
    base_us: u64,
    sorter: Sorter<Request>,
    started: bool,
    left_out: LeftOut,
}

/// A request with its times as they are in the file.
struct Request {
    us: u64,
    response_us: Option<u64>,
    record: Record,
}

fn number<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

impl Vscsi {
    fn error(&self, what: &str) -> TraceError {
        let remedy = "the file is damaged; cut it before this record";
        self.input
            .record_error(size_of(self.version) as u64, what, remedy)
    }

    fn parse(&self, record: &[u8]) -> Result<Option<Request>, TraceError> {
        let (command, version, bytes, block) = match self.version {
            1 => (12, 14, 4, 16),
            _ => (0, 2, 8, 16),
        };
        if record[version + 1] != self.version {
            return Err(self.error("a record of another version"));
        }
        let op = match u16::from_le_bytes(number(record, command)) {
            0x28 | 0x88 | 0x08 | 0xa8 => Op::Read,
            0x2a | 0x8a | 0x0a | 0xaa => Op::Write,
            _ => {
                self.left_out.count("commands that neither read nor write");
                return Ok(None);
            }
        };
        let block = u64::from_le_bytes(number(record, block));
        let offset = block
            .checked_mul(BLOCK)
            .ok_or_else(|| self.error("a block beyond 2^63 bytes"))?;
        let len = u64::from(u32::from_le_bytes(number(record, bytes)));
        let us = u64::from_le_bytes(number(record, 24));
        let response_us = if self.ends {
            Some(u64::from_le_bytes(number(record, 32)))
        } else {
            None
        };
        Ok(Some(Request {
            us,
            response_us,
            record: Record {
                op,
                ..Record::read(0, offset, len)
            },
        }))
    }

    /// Puts the times on and lets it go.
    fn leave(&mut self, request: Request, out: &mut VecDeque<Item>) -> Result<(), TraceError> {
        if !self.started {
            self.started = true;
            self.base_us = request.us;
            out.push_back(Item::File(FileInfo {
                name: FORMAT.name.to_string(),
                size: None,
            }));
        }
        let late = || self.error("a time of over 500 years");
        let start = (request.us - self.base_us)
            .checked_mul(1000)
            .ok_or_else(late)?;
        let end = request.response_us.map(|us| {
            us.checked_mul(1000)
                .and_then(|ns| start.checked_add(ns))
                .ok_or_else(late)
        });
        let record = Record {
            start_ns: Some(start),
            end_ns: end.transpose()?,
            ..request.record
        };
        out.push_back(Item::Record(record));
        Ok(())
    }
}

impl Step for Vscsi {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        let mut buffer = [0; 40];
        let record = &mut buffer[..size_of(self.version)];
        if !self.input.record(record)? {
            while let Some(request) = self.sorter.pop() {
                self.leave(request, out)?;
            }
            return Ok(false);
        }
        let Some(request) = self.parse(record)? else {
            return Ok(true);
        };
        let sorted = self.sorter.push(request.us, request);
        let (what, remedy) = TOO_LATE;
        let sorted = sorted.map_err(|TooLate| {
            self.input
                .record_error(size_of(self.version) as u64, what, remedy)
        })?;
        if let Some(request) = sorted {
            self.leave(request, out)?;
        }
        Ok(true)
    }
}
