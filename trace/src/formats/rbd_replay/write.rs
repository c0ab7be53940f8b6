//! Writes a trace for rbd-replay, version 1: every read and write as an asynchronous action, and what it waits for.
//!
//! ```text
//!   record n             action 2n, its end 2n + 1
//!   threads and opens    ids from the top downwards, so that they never meet
//!
//!   has dependencies     those of it
//!   has a start          the first record's start, and the nanoseconds since: an error of one does not move the next
//!   has neither          the end of the record before it in its thread
//! ```
//!
//! An image is opened when it is first read. Never: an id that happens twice, or one that never does.

use super::read::BANNER;
use crate::error::{TraceError, TracePosition};
use crate::format::{ExportReport, Output, Pairs};
use crate::{After, Header, Item, Items, LeftOut, Op, Record};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufWriter, Write};

/// Records that one file can hold: ids have 32 bits, two of them go to a record, and a quarter is left for opens.
pub const MAX_RECORDS: u64 = 3 << 29;
/// Hints of one trace: their numbers are kept, so that nothing waits for them.
pub const MAX_HINTS: usize = 1 << 20;
/// The context of open description 0; each other one is an integer more. Any value would do.
const FIRST_CONTEXT: u64 = 0x1000;

pub fn export(
    _header: &Header,
    pairs: Pairs,
    items: Items,
    output: Output,
) -> Result<ExportReport, TraceError> {
    pairs.finish(&output.path, super::FORMAT.name, &[])?;
    let mut writer = RbdReplayWriter::new(output);
    writer.put(BANNER)?;
    for item in items {
        match item? {
            Item::File(file) => writer.names.push(file.name),
            Item::Record(record) => writer.record(&record)?,
        }
    }
    writer.finish()
}

struct RbdReplayWriter {
    path: std::path::PathBuf,
    to: BufWriter<Box<dyn Write + Send>>,
    names: Vec<String>,
    /// By number, so that they are stopped in order; each with its latest record.
    threads: BTreeMap<u32, Option<u64>>,
    /// Open descriptions by file and number: context and id of the open.
    opens: HashMap<(u32, u32), (u64, u32)>,
    records: u64,
    /// The last id of a thread or an open.
    other: u32,
    /// Number and start of the first record that has one.
    first: Option<(u64, u64)>,
    hints: Vec<u64>,
    body: Vec<u8>,
    left_out: LeftOut,
}

impl RbdReplayWriter {
    fn new(output: Output) -> RbdReplayWriter {
        RbdReplayWriter {
            path: output.path,
            to: BufWriter::with_capacity(1 << 16, output.to),
            names: Vec::new(),
            threads: BTreeMap::new(),
            opens: HashMap::new(),
            records: 0,
            other: 0,
            first: None,
            hints: Vec::new(),
            body: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.to
            .write_all(bytes)
            .map_err(|error| TraceError::not_written(&self.path, &error))
    }

    fn refuse(&self, what: &str, remedy: &str) -> TraceError {
        TraceError::new(
            &self.path,
            TracePosition::Record(self.records),
            what,
            remedy,
        )
    }

    /// The next id that is not one of a record.
    fn id(&mut self) -> Result<u32, TraceError> {
        self.other = self.other.wrapping_sub(2);
        let free = u64::from(self.other) > 2 * MAX_RECORDS;
        if free {
            Ok(self.other)
        } else {
            Err(self.refuse("too many threads and opens", "cut the trace in parts"))
        }
    }

    /// One entry: what `more` adds goes behind the part that all actions have.
    fn entry(
        &mut self,
        kind: u8,
        id: u32,
        thread: u32,
        after: &[(u32, u64)],
        more: &[u8],
    ) -> Result<(), TraceError> {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.push(kind);
        body.extend(id.to_le_bytes());
        body.extend(u64::from(thread).to_le_bytes());
        body.extend(
            u32::try_from(after.len())
                .expect("at most 1024 and one")
                .to_le_bytes(),
        );
        for (id, delay) in after {
            body.extend(id.to_le_bytes());
            body.extend(delay.to_le_bytes());
        }
        body.extend(more);
        let len = u32::try_from(body.len())
            .expect("names and dependencies are limited")
            .to_le_bytes();
        self.put(&[1, 1, len[0], len[1], len[2], len[3]])?;
        self.put(&body)?;
        self.body = body;
        Ok(())
    }

    /// The open description of a record, opened if it is not yet.
    fn open(&mut self, record: &Record) -> Result<(u64, u32), TraceError> {
        if let Some(open) = self.opens.get(&(record.file, record.open)) {
            return Ok(*open);
        }
        if self.opens.len() == super::MAX_OPENS {
            return Err(self.refuse("more than 65536 open images", "cut the trace in parts"));
        }
        let (id, context) = (self.id()?, FIRST_CONTEXT + self.opens.len() as u64);
        let name = self.names[record.file as usize].clone();
        let (image, snapshot) = name.rsplit_once('@').unwrap_or((&name, ""));
        let mut more = context.to_le_bytes().to_vec();
        for part in [image, snapshot] {
            more.extend(
                u32::try_from(part.len())
                    .expect("at most 4096")
                    .to_le_bytes(),
            );
            more.extend(part.as_bytes());
        }
        more.push(0);
        self.entry(6, id, record.thread, &[], &more)?;
        self.opens.insert((record.file, record.open), (context, id));
        Ok((context, id))
    }

    fn record(&mut self, record: &Record) -> Result<(), TraceError> {
        let number = self.records;
        self.records += 1;
        if number == MAX_RECORDS {
            return Err(self.refuse(
                "more records than rbd-replay has ids for",
                "cut the trace in parts",
            ));
        }
        let kind = match record.op {
            Op::Write => 5,
            Op::Read => 4,
            Op::Fault => {
                self.left_out.count("page faults, written as reads");
                4
            }
            Op::Hint(_) => {
                self.left_out.count("hints");
                self.hints.push(number);
                let many = self.hints.len() > MAX_HINTS;
                return if many {
                    Err(self.refuse("more than 1048576 hints", "take them out"))
                } else {
                    Ok(())
                };
            }
        };
        if !self.threads.contains_key(&record.thread) {
            if self.threads.len() == super::MAX_THREADS {
                return Err(self.refuse(
                    "more than 4096 threads",
                    "rbd-replay starts each; cut the trace in parts",
                ));
            }
            let id = self.id()?;
            self.entry(0, id, record.thread, &[], &[])?;
            self.threads.insert(record.thread, None);
        }
        let (context, opened) = self.open(record)?;
        let mut after = vec![(opened + 1, 0)];
        self.waits(record, number, &mut after);
        let mut more = context.to_le_bytes().to_vec();
        more.extend(record.offset.to_le_bytes());
        more.extend(record.len.to_le_bytes());
        self.entry(kind, action(number), record.thread, &after, &more)?;
        self.threads.insert(record.thread, Some(number));
        Ok(())
    }

    fn waits(&mut self, record: &Record, number: u64, after: &mut Vec<(u32, u64)>) {
        if !record.after.is_empty() {
            for &After {
                record,
                end,
                delay_ns,
            } in &record.after
            {
                if self.hints.binary_search(&record).is_ok() {
                    self.left_out.count("dependencies on hints");
                } else {
                    after.push((action(record) + u32::from(end), delay_ns));
                }
            }
        } else if let Some(start) = record.start_ns {
            let (first, first_start) = *self.first.get_or_insert((number, start));
            if first != number {
                after.push((action(first), start.saturating_sub(first_start)));
            }
        } else if let Some(Some(latest)) = self.threads.get(&record.thread) {
            after.push((action(*latest) + 1, 0));
        }
    }

    fn finish(mut self) -> Result<ExportReport, TraceError> {
        for thread in std::mem::take(&mut self.threads).into_keys() {
            let id = self.id()?;
            self.entry(1, id, thread, &[], &[])?;
        }
        self.to
            .flush()
            .map_err(|error| TraceError::not_written(&self.path, &error))?;
        Ok(ExportReport {
            records: self.records - self.hints.len() as u64,
            left_out: self.left_out.so_far(),
        })
    }
}

fn action(record: u64) -> u32 {
    u32::try_from(2 * record).expect("below MAX_RECORDS, and no record waits for a later one")
}
