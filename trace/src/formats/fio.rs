//! `fio`: reads and writes fio's I/O log, versions 2 and 3.
//!
//! ```text
//!   2:     FILE add|open|close          FILE read|write|trim|sync|datasync|wait OFFSET LENGTH
//!   3:  US FILE add|open|close       US FILE read|write|trim|sync|datasync      OFFSET LENGTH
//! ```
//!
//! Times of version 3 are microseconds since the start of the run. Version 2 has no times, only `wait` lines. At such a line, fio 3.33
//! waits until the given number of milliseconds after its start (measured; its manual says microseconds since the previous line). If a
//! version 3 log starts at 0, fio skips the first gap (measured), so foreread's logs start at 1 or later. The parser of fio splits fields
//! at spaces and stores lengths in 32 bits. So foreread refuses names with spaces and longer requests, when it reads and when it writes a
//! log.
//!
//! Empty requests are also refused, because fio 3.33 ends its replay at an empty request. If the log has no times, none are invented.

use super::super::error::{Fault, TraceError, TracePosition};
use super::super::format::{ExportReport, Fit, Format, Output, Pairs};
use super::super::input::Input;
use super::super::{
    FileInfo, Flags, Header, Import, Item, Items, Lacks, LeftOut, Level, Op, Record,
};
use super::scan::{self, Names};
use super::step::{self, Lines, Text};
use std::collections::VecDeque;
use std::io::{BufWriter, Write};

/// Maximum bytes of a file name that fio does not truncate.
pub const MAX_NAME: usize = 255;

pub static FORMAT: Format = Format {
    name: "fio",
    summary: "fio's iolog, versions 2 (no times) and 3 (us); offsets in bytes",
    keys: &[],
    detect,
    import,
    export: Some(export),
};

const MAGIC: &[u8] = b"fio version ";
const SPACES: Fault = (
    "a line with too many or too few fields",
    "fio does not allow spaces in file names; rename the file",
);
const SEVERAL: Fault = (
    "a second log in the file: fio wrote the logs of several jobs to it",
    "give each job its own write_iolog and import one of them; or cut the file before this line",
);
const UNKNOWN: Fault = (
    "an action unknown to fio",
    "the file is damaged; cut it before this line",
);

fn detect(head: &[u8]) -> Fit {
    Fit::sure_if(head.starts_with(MAGIC))
}

fn import(mut input: Input, _: Pairs) -> Result<Import, TraceError> {
    let waits = input.head()?.split(|b| *b == b'\n').any(is_wait);
    let version = match input.line()? {
        Some(b"fio version 2 iolog") => 2,
        Some(b"fio version 3 iolog") => 3,
        _ => {
            let remedy = "versions 2 and 3 can be read; record it again with fio 3.31 or later";
            return Err(input.error("no first line 'fio version 3 iolog'", remedy));
        }
    };
    let timed = version == 3 || waits;
    const WAITS: &str =
        "version 2 has waits instead of start times, so the times are the earliest possible";
    let (time_unit, notes) = match (version, waits) {
        (3, _) => ("us", &[][..]),
        (_, true) => ("waits", &[WAITS][..]),
        (_, false) => ("none", &[][..]),
    };
    let lacks = Lacks {
        starts: !timed,
        ends: true,
        threads: true,
        ..Lacks::default()
    };
    let header = Header::of(
        FORMAT.name,
        [time_unit, "bytes"],
        lacks,
        Level::Program,
        notes,
    );
    let left_out = LeftOut::default();
    let lines = Log {
        version,
        clock_ns: timed.then_some(0),
        names: Names::default(),
        opens: Vec::new(),
        next_open: 0,
        left_out: left_out.clone(),
    };
    let items = step::items(Text { input, lines });
    Ok(Import::new(header, items, left_out))
}

fn is_wait(mut line: &[u8]) -> bool {
    scan::word(&mut line);
    scan::word(&mut line) == b"wait"
}

struct Log {
    version: u8,
    /// The current time of the log; `None` in a version 2 log before the first wait.
    clock_ns: Option<u64>,
    names: Names,
    /// For each file the number of its latest open.
    opens: Vec<u32>,
    next_open: u32,
    left_out: LeftOut,
}

impl Log {
    fn file(&mut self, name: &[u8], action: &[u8], out: &mut VecDeque<Item>) -> Result<(), Fault> {
        let known = self.names.get(name);
        match (action, known) {
            (b"add", Some(_)) => Ok(()),
            (b"add", None) => {
                if name.len() > MAX_NAME {
                    return Err((
                        "a file name longer than 255 bytes",
                        "fio cannot read it either; rename the file",
                    ));
                }
                self.names
                    .add(name)
                    .ok_or(("more than 64 MiB of file names in total", "split the log"))?;
                self.opens.push(self.next_open);
                self.next_open = self.next_open.wrapping_add(1);
                let name = String::from_utf8_lossy(name).into_owned();
                out.push_back(Item::File(FileInfo::new(name, None)));
                Ok(())
            }
            (b"open", Some(file)) => {
                self.opens[file as usize] = self.next_open;
                self.next_open = self.next_open.wrapping_add(1);
                Ok(())
            }
            (b"close", Some(_)) => Ok(()),
            (b"open" | b"close", None) => Err(NOT_ADDED),
            _ => Err(SPACES),
        }
    }

    fn wait(&mut self, until_ms: u64) -> Result<(), Fault> {
        let long = (
            "a wait of more than 500 years",
            "the file is damaged; cut it before this line",
        );
        let late = (
            "the first wait comes too late in the log",
            "record it again with fio 3.31 or later, whose logs have times",
        );
        let clock = self.clock_ns.ok_or(late)?;
        let next = until_ms.checked_mul(scan::MS_NS).ok_or(long)?;
        self.clock_ns = Some(next.max(clock));
        Ok(())
    }
}

const NOT_ADDED: Fault = (
    "a file that was not added before",
    "the file is damaged; cut it before this line",
);

impl Lines for Log {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if line.starts_with(MAGIC) {
            return Err(SEVERAL);
        }
        let mut rest = line;
        if self.version == 3 {
            let us = scan::number(scan::word(&mut rest)).and_then(|us| us.checked_mul(1000));
            self.clock_ns =
                Some(us.ok_or(("no time in microseconds at the start of the line", SPACES.1))?);
        }
        let (name, action) = (scan::word(&mut rest), scan::word(&mut rest));
        let (offset, len) = (scan::word(&mut rest), scan::word(&mut rest));
        if action.is_empty() || !scan::word(&mut rest).is_empty() {
            return Err(SPACES);
        }
        if offset.is_empty() {
            return self.file(name, action, out).map(|()| true);
        }
        let digits = ("an offset or a length is not a number", SPACES.1);
        let (offset, len) = (
            scan::number(offset).ok_or(digits)?,
            scan::number(len).ok_or(digits)?,
        );
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" | b"sync" | b"datasync" => {
                self.left_out
                    .count(if action == b"trim" { "trims" } else { "syncs" });
                return Ok(true);
            }
            b"wait" if self.version == 2 => return self.wait(offset).map(|()| true),
            b"wait" => {
                return Err((
                    "a wait in a log that has times",
                    "remove it, or make it a version 2 log",
                ));
            }
            _ => return Err(UNKNOWN),
        };
        if len > u64::from(u32::MAX) {
            return Err((
                "a length of more than 32 bits",
                "fio cannot read it either; split the request into smaller ones",
            ));
        }
        let file = self.names.get(name).ok_or(NOT_ADDED)?;
        let open = self.opens[file as usize];
        let record = Record {
            op,
            open,
            start_ns: self.clock_ns,
            ..Record::read(file, offset, len)
        };
        out.push_back(Item::Record(record));
        Ok(true)
    }
}

fn export(header: &Header, items: Items, to: Output) -> Result<ExportReport, TraceError> {
    let version = if header.lacks.starts { 2 } else { 3 };
    let mut log = FioWriter {
        path: to.path,
        to: BufWriter::new(to.to),
        timed: version == 3,
        now: 1,
        shift: None,
        names: Names::default(),
        files: Vec::new(),
        records: 0,
        left_out: LeftOut::default(),
    };
    log.put(format_args!("fio version {version} iolog"))?;
    for item in items {
        match item? {
            Item::File(file) => log.add(file)?,
            Item::Record(record) => log.record(&record)?,
        }
    }
    log.finish()
}

struct FioWriter {
    path: std::path::PathBuf,
    to: BufWriter<Box<dyn Write + Send>>,
    /// Whether the log is version 3, which has times.
    timed: bool,
    /// The time of the latest line in us, in version 3.
    now: u64,
    /// Shift of all times in us, so that the first request is not at 0.
    shift: Option<u64>,
    names: Names,
    /// The name of each file; fio treats files with the same name as one file.
    files: Vec<String>,
    records: u64,
    left_out: LeftOut,
}

impl FioWriter {
    fn refuse(&self, what: impl Into<String>, remedy: &str) -> TraceError {
        TraceError::new(
            &self.path,
            TracePosition::Record(self.records + 1),
            what,
            remedy,
        )
    }

    fn put(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), TraceError> {
        let done = writeln!(self.to, "{line}");
        done.map_err(|error| TraceError::not_written(&self.path, &error))
    }

    /// A line of the log, with its time.
    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), TraceError> {
        let now = self.now;
        if self.timed {
            self.put(format_args!("{now} {line}"))
        } else {
            self.put(line)
        }
    }

    fn add(&mut self, file: FileInfo) -> Result<(), TraceError> {
        let name = file.name;
        if name.is_empty()
            || name.len() > MAX_NAME
            || name.contains(|c: char| c.is_whitespace() || c == '\0')
        {
            let what = "a file name that fio cannot read (empty, with a space, or over 255 bytes)";
            return Err(self.refuse(what, "rename the file, or export to another format"));
        }
        if self.names.get(name.as_bytes()).is_some() {
            self.left_out
                .count("files with the same name as another file");
        } else {
            let many = "more than 64 MiB of file names in total";
            self.names
                .add(name.as_bytes())
                .ok_or_else(|| TraceError::whole(&self.path, many, "cut the trace"))?;
            self.line(format_args!("{name} add"))?;
            self.line(format_args!("{name} open"))?;
        }
        self.files.push(name);
        Ok(())
    }

    /// Sets the time of the next line.
    fn time(&mut self, record: &Record) -> Result<(), TraceError> {
        if !self.timed {
            return Ok(());
        }
        let Some(ns) = record.start_ns else {
            return Err(self.refuse("a record without a time", "export it to another format"));
        };
        if !ns.is_multiple_of(1000) {
            self.left_out.count("parts of a microsecond");
        }
        let shift = *self.shift.get_or_insert(u64::from(ns < 1000));
        self.now = ns / 1000 + shift;
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), TraceError> {
        let action = match record.op {
            Op::Read if record.len > 0 => Ok("read"),
            Op::Write if record.len > 0 => Ok("write"),
            Op::Read | Op::Write => Err("empty requests"),
            Op::Fault => Err("page faults"),
            Op::Hint(_) => Err("hints"),
        };
        let action = match action {
            Ok(action) => action,
            Err(what) => {
                self.left_out.count(what);
                return Ok(());
            }
        };
        let (offset, len) = (record.offset, record.len);
        if len > u64::from(u32::MAX) {
            return Err(self.refuse(
                "a request of 4 GiB or more",
                "fio stores lengths in 32 bits; split the request into smaller ones",
            ));
        }
        let Some(name) = self.files.get(record.file as usize).cloned() else {
            return Err(self.refuse(
                "a record refers to a file that was not named before",
                "the trace is damaged",
            ));
        };
        let lost = [
            (record.end_ns.is_some(), "times of completion"),
            (
                record.returned.is_some_and(|n| n != len),
                "lengths that were returned",
            ),
            (record.flags != Flags::default(), "flags"),
            (!record.after.is_empty(), "dependencies"),
        ];
        lost.iter()
            .filter(|(is, _)| *is)
            .for_each(|(_, what)| self.left_out.count(what));
        self.time(record)?;
        self.line(format_args!("{name} {action} {offset} {len}"))?;
        self.records += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<ExportReport, TraceError> {
        let mut closed = Names::default();
        for name in std::mem::take(&mut self.files) {
            if closed.get(name.as_bytes()).is_none() {
                closed.add(name.as_bytes());
                self.line(format_args!("{name} close"))?;
            }
        }
        let flushed = self.to.flush();
        flushed.map_err(|error| TraceError::not_written(&self.path, &error))?;
        Ok(ExportReport {
            records: self.records,
            left_out: self.left_out.so_far(),
        })
    }
}
