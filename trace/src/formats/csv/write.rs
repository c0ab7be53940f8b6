//! Writes a trace as CSV that reads back identically.
//!
//! ```text
//!   start_ns,end_ns,file,file_size,open,thread,op,offset,length,returned,flags,after
//!   1000,1500,/data/a,,0,7,read,0,4096,,ahead+direct,
//!   ,,vm@base,1048576,1,0,read,4096,512,,,0e0 0s2000
//! ```
//!
//! Columns without data are omitted. `after` lists what a record waits for: nanoseconds after the end (`e`) or the
//! start (`s`) of a record, counted from 0. Two files of the same name become one, which is reported.

use super::read::{flag_names, op_name};
use crate::error::TraceError;
use crate::format::{ExportReport, Output, Pairs};
use crate::{After, FileInfo, Header, Item, Items, Lacks, LeftOut, Record};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

pub fn export(
    header: &Header,
    pairs: Pairs,
    items: Items,
    output: Output,
) -> Result<ExportReport, TraceError> {
    pairs.finish(&output.path, super::FORMAT.name, &[])?;
    let path = output.path;
    let mut writer = Writer {
        to: ::csv::WriterBuilder::new()
            .buffer_capacity(1 << 16)
            .from_writer(output.to),
        lacks: header.lacks,
        files: Vec::new(),
        text: String::new(),
    };
    let lacks = header.lacks;
    let columns = [
        ("start_ns", lacks.starts),
        ("end_ns", lacks.ends),
        ("file", false),
        ("file_size", false),
        ("open", lacks.opens),
        ("thread", lacks.threads),
        ("op", lacks.ops),
        ("offset", false),
        ("length", false),
        ("returned", false),
        ("flags", false),
        ("after", false),
    ];
    let columns = columns
        .into_iter()
        .filter(|(_, lacks)| !lacks)
        .map(|(name, _)| name);
    writer
        .to
        .write_record(columns)
        .map_err(|error| failed(&path, error))?;
    let (mut names, mut records) = (HashSet::new(), 0);
    let left_out = LeftOut::default();
    for item in items {
        match item? {
            Item::File(file) => {
                if !names.insert(file.name.clone()) {
                    left_out.count("files that became one with another of their name");
                }
                writer.files.push(file);
            }
            Item::Record(record) => {
                records += 1;
                writer
                    .record(&record)
                    .map_err(|error| failed(&path, error))?;
            }
        }
    }
    writer
        .to
        .flush()
        .map_err(|error| TraceError::not_written(&path, &error))?;
    Ok(ExportReport {
        records,
        left_out: left_out.so_far(),
    })
}

fn after_text(after: &[After]) -> String {
    let one = |after: &After| {
        format!(
            "{}{}{}",
            after.record,
            if after.end { 'e' } else { 's' },
            after.delay_ns
        )
    };
    after.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn failed(path: &Path, error: ::csv::Error) -> TraceError {
    TraceError::not_written(path, &std::io::Error::from(error))
}

struct Writer {
    to: ::csv::Writer<Box<dyn std::io::Write + Send>>,
    lacks: Lacks,
    files: Vec<FileInfo>,
    /// The field that is being written.
    text: String,
}

impl Writer {
    fn number(&mut self, n: Option<u64>) -> Result<(), ::csv::Error> {
        self.text.clear();
        if let Some(n) = n {
            write!(self.text, "{n}").expect("memory");
        }
        self.to.write_field(&self.text)
    }

    fn record(&mut self, record: &Record) -> Result<(), ::csv::Error> {
        let lacks = self.lacks;
        if !lacks.starts {
            self.number(record.start_ns)?;
        }
        if !lacks.ends {
            self.number(record.end_ns)?;
        }
        let file = &self.files[record.file as usize];
        let size = file.size;
        self.to.write_field(&file.name)?;
        self.number(size)?;
        if !lacks.opens {
            self.number(Some(u64::from(record.open)))?;
        }
        if !lacks.threads {
            self.number(Some(u64::from(record.thread)))?;
        }
        if !lacks.ops {
            self.to.write_field(op_name(record.op))?;
        }
        self.number(Some(record.offset))?;
        self.number(Some(record.len))?;
        self.number(record.returned)?;
        self.to.write_field(flag_names(record.flags))?;
        self.to.write_field(after_text(&record.after))?;
        self.to.write_record(None::<&[u8]>)
    }
}
