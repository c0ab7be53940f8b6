//! Writes foreread's own format: items are collected into blocks; a full block is compressed and gets its checksum.
//!
//! Only one block is held in memory at a time. The end marker contains the counts of records and files; a file without an end marker counts
//! as truncated.

use super::codec::{CodecState, put};
use super::{BLOCK, BlockHead, DONE, End, MAGIC, MAX_BLOCK_BYTES, MAX_BLOCK_ITEMS, MAX_JSON_BYTES};
use crate::check::CheckedItems;
use crate::error::TraceError;
use crate::format::{ExportReport, Output};
use crate::{Header, Item, Items, LeftOut};
use serde::Serialize;

/// A block is closed when it reaches this size: the largest item still fits (1024 dependencies of 20 bytes each).
const FULL_BYTES: usize = MAX_BLOCK_BYTES / 2;
/// Compression level. 3 is zstd's own default; 19 makes a trace 10 to 20 % smaller, but takes thirty times as long.
const LEVEL: i32 = 3;

/// Writes a trace for which no entries were skipped.
pub fn export(header: &Header, items: Items, output: Output) -> Result<ExportReport, TraceError> {
    write(header, items, &LeftOut::default(), output)
}

/// Writes a trace, and in its end marker the counts of skipped entries.
pub fn write(
    header: &Header,
    items: Items,
    left_out: &LeftOut,
    output: Output,
) -> Result<ExportReport, TraceError> {
    let mut writer = Writer::new(output)?;
    writer.header(header)?;
    // The limits of the format are those of [`crate::check`].
    let path = writer.output.path.clone();
    for item in CheckedItems::new(items, &path) {
        writer.item(&item?)?;
    }
    writer.finish(left_out)
}

/// Creates a file with these bytes as its only block and without an end marker, for fuzzing.
pub fn around(plain: &[u8], items: u32) -> Vec<u8> {
    let json = to_json(&Header::default());
    let packed = zstd::bulk::compress(plain, LEVEL).unwrap_or_default();
    let (stored, plain) = (packed.len() as u32, plain.len() as u32);
    let head = BlockHead {
        tag: BLOCK,
        stored,
        plain,
        items,
        crc: 0,
    }
    .sealed(&packed);
    let mut crc = flate2::Crc::new();
    crc.update(&json);
    let (len, sum) = ((json.len() as u32).to_le_bytes(), crc.sum().to_le_bytes());
    [&MAGIC, &len[..], &sum, &json, &head.bytes(), &packed].concat()
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers can always be written")
}

struct Writer {
    output: Output,
    packer: zstd::bulk::Compressor<'static>,
    plain: Vec<u8>,
    items: u32,
    state: CodecState,
    files: u64,
    records: u64,
    cut_notes: u64,
}

impl Writer {
    fn new(output: Output) -> Result<Writer, TraceError> {
        let packer = zstd::bulk::Compressor::new(LEVEL);
        let packer = packer.map_err(|error| TraceError::not_written(&output.path, &error))?;
        let plain = Vec::with_capacity(FULL_BYTES + (64 << 10));
        Ok(Writer {
            output,
            packer,
            plain,
            items: 0,
            state: CodecState::default(),
            files: 0,
            records: 0,
            cut_notes: 0,
        })
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.output
            .to
            .write_all(bytes)
            .map_err(|error| TraceError::not_written(&self.output.path, &error))
    }

    fn header(&mut self, header: &Header) -> Result<(), TraceError> {
        let mut header = header.clone();
        let mut json = to_json(&header);
        while json.len() > MAX_JSON_BYTES && header.notes.pop().is_some() {
            self.cut_notes += 1;
            json = to_json(&header);
        }
        if json.len() > MAX_JSON_BYTES {
            let what = "a header larger than 64 KiB";
            let remedy = "this is a bug in the importer: please report it";
            return Err(TraceError::whole(&self.output.path, what, remedy));
        }
        let mut crc = flate2::Crc::new();
        crc.update(&json);
        self.bytes(&MAGIC)?;
        self.bytes(&(json.len() as u32).to_le_bytes())?;
        self.bytes(&crc.sum().to_le_bytes())?;
        self.bytes(&json)
    }

    fn item(&mut self, item: &Item) -> Result<(), TraceError> {
        put(&mut self.plain, &mut self.state, item, self.records);
        self.items += 1;
        match item {
            Item::File(_) => self.files += 1,
            Item::Record(_) => self.records += 1,
        }
        if self.plain.len() >= FULL_BYTES || self.items as usize == MAX_BLOCK_ITEMS {
            self.block()
        } else {
            Ok(())
        }
    }

    fn block(&mut self) -> Result<(), TraceError> {
        let packed = self.packer.compress(&self.plain);
        let packed = packed.map_err(|error| TraceError::not_written(&self.output.path, &error))?;
        let (stored, plain) = (packed.len() as u32, self.plain.len() as u32);
        let head = BlockHead {
            tag: BLOCK,
            stored,
            plain,
            items: self.items,
            crc: 0,
        }
        .sealed(&packed);
        self.bytes(&head.bytes())?;
        self.bytes(&packed)?;
        self.plain.clear();
        (self.items, self.state) = (0, CodecState::default());
        Ok(())
    }

    fn finish(mut self, left_out: &LeftOut) -> Result<ExportReport, TraceError> {
        if self.items > 0 {
            self.block()?;
        }
        let mut end = End {
            files: self.files,
            records: self.records,
            left_out: left_out.in_all(),
        };
        let mut json = to_json(&end);
        // Reasons are few and short; only a hostile file could have more, and its own end was not larger than this.
        while json.len() > MAX_JSON_BYTES && end.left_out.pop_last().is_some() {
            json = to_json(&end);
        }
        let len = json.len() as u32;
        let head = BlockHead {
            tag: DONE,
            stored: len,
            plain: len,
            items: 0,
            crc: 0,
        }
        .sealed(&json);
        self.bytes(&head.bytes())?;
        self.bytes(&json)?;
        self.output
            .to
            .flush()
            .map_err(|error| TraceError::not_written(&self.output.path, &error))?;
        let cut = (self.cut_notes > 0).then_some(("notes", self.cut_notes));
        Ok(ExportReport {
            records: self.records,
            left_out: cut.into_iter().collect(),
        })
    }
}
