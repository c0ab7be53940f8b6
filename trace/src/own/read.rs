//! Reads foreread's own format block by block. The limits and the checksum of a block are checked before it is unpacked.
//!
//! ```text
//!   next item ──► of this block ─┬─ there is one ──► it
//!                                └─ none left ──► head ──► checksum ──► unpack ──► the first of the next block
//!                                                     └─► end: do the counts agree? is nothing behind it?
//! ```
//! Only one block is held in memory at a time, and reading stops at the first error.

use super::codec::{Bytes, CodecState};
use super::{
    BLOCK, BlockHead, DONE, End, HEAD_BYTES, MAGIC, MAX_BLOCK_BYTES, MAX_BLOCK_ITEMS,
    MAX_JSON_BYTES, MAX_STORED_BYTES, VERSION,
};
use crate::error::{TraceError, TracePosition};
use crate::format::Pairs;
use crate::input::Input;
use crate::{Import, Item, LeftOut};

const DAMAGED: &str = "the file is damaged: copy it again, or import the trace again";

/// Opens a trace.
pub fn import(mut input: Input, _: Pairs) -> Result<Import, TraceError> {
    let path = input.path().to_path_buf();
    let refuse = |what: &str, remedy: &str| Err(TraceError::whole(&path, what, remedy));
    let mut head = [0; MAGIC.len() + 8];
    let got = input.fill(&mut head)?;
    if got < MAGIC.len() || head[..7] != MAGIC[..7] {
        return refuse("this is not a foreread trace", "see --format");
    }
    let version = head[7];
    if version != VERSION {
        let what =
            format!("a foreread trace of version {version}; only version {VERSION} can be read");
        let remedy = "import the trace again, or use the version of foreread that wrote it";
        return refuse(&what, remedy);
    }
    if got < head.len() {
        return refuse("the file ends within its header", DAMAGED);
    }
    let [len, sum] = [8, 12]
        .map(|at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    if len as usize > MAX_JSON_BYTES {
        return refuse("a header larger than 64 KiB", DAMAGED);
    }
    let mut json = vec![0; len as usize];
    if input.fill(&mut json)? < json.len() {
        return refuse("the file ends within its header", DAMAGED);
    }
    let mut crc = flate2::Crc::new();
    crc.update(&json);
    if crc.sum() != sum {
        return refuse("a header whose checksum differs", DAMAGED);
    }
    let header = match serde_json::from_slice(&json) {
        Ok(header) => header,
        Err(error) => return refuse(&format!("a bad header ({error})"), DAMAGED),
    };
    let left_out = LeftOut::default();
    let reader = Reader {
        input,
        unpacker: zstd::bulk::Decompressor::default(),
        stored: Vec::new(),
        plain: Vec::new(),
        at: 0,
        items: 0,
        state: CodecState::default(),
        files: 0,
        records: 0,
        left_out: left_out.clone(),
        ended: false,
    };
    Ok(Import {
        header,
        items: Box::new(reader),
        left_out,
    })
}

struct Reader {
    input: Input,
    unpacker: zstd::bulk::Decompressor<'static>,
    /// The block as stored.
    stored: Vec<u8>,
    /// The unpacked block, and how much of it has become items.
    plain: Vec<u8>,
    at: usize,
    /// Number of items of the block that are still to be decoded.
    items: u32,
    state: CodecState,
    files: u64,
    records: u64,
    left_out: LeftOut,
    ended: bool,
}

impl Reader {
    fn error(&self, what: impl Into<String>) -> TraceError {
        TraceError::new(
            self.input.path(),
            TracePosition::Record(self.records + 1),
            what,
            DAMAGED,
        )
    }

    /// Reads the next block that has at least one item; returns false at the end of the file.
    fn block(&mut self) -> Result<bool, TraceError> {
        let mut bytes = [0; HEAD_BYTES];
        match self.input.fill(&mut bytes)? {
            HEAD_BYTES => {}
            0 => return Err(self.error("the trace stops without its end marker")),
            n => {
                return Err(self.error(format!(
                    "the trace stops in the head of a block ({n} of {HEAD_BYTES} bytes)"
                )));
            }
        }
        let head = BlockHead::of(&bytes);
        let (most_stored, most_plain) = match head.tag {
            BLOCK => (MAX_STORED_BYTES, MAX_BLOCK_BYTES),
            DONE => (MAX_JSON_BYTES, MAX_JSON_BYTES),
            _ => return Err(self.error("no block where one should begin")),
        };
        if head.stored as usize > most_stored || head.plain as usize > most_plain {
            return Err(self.error(format!(
                "a block whose header states {} bytes, {} unpacked",
                head.stored, head.plain
            )));
        }
        if head.items as usize > MAX_BLOCK_ITEMS || (head.tag == BLOCK) != (head.items > 0) {
            return Err(self.error(format!("a block whose header states {} items", head.items)));
        }
        self.stored.resize(head.stored as usize, 0);
        let got = self.input.fill(&mut self.stored)?;
        if got < self.stored.len() {
            let what = format!(
                "the trace stops in the middle of a block ({got} of {} bytes)",
                self.stored.len()
            );
            return Err(self.error(what));
        }
        if head.sum(&self.stored) != head.crc {
            return Err(self.error("a block whose checksum differs"));
        }
        if head.tag == DONE {
            self.end().map(|()| false)
        } else {
            self.unpack(head).map(|()| true)
        }
    }

    fn unpack(&mut self, head: BlockHead) -> Result<(), TraceError> {
        self.plain.resize(head.plain as usize, 0);
        match self
            .unpacker
            .decompress_to_buffer(&self.stored, &mut self.plain[..])
        {
            Ok(got) if got == self.plain.len() => {}
            Ok(got) => {
                return Err(self.error(format!("a block of {} bytes unpacks to {got}", head.plain)));
            }
            // Usually the block yields more than it claims; nothing beyond the claimed size is unpacked.
            Err(error) => {
                return Err(self.error(format!("a block that cannot be unpacked ({error})")));
            }
        }
        (self.at, self.items, self.state) = (0, head.items, CodecState::default());
        Ok(())
    }

    fn end(&mut self) -> Result<(), TraceError> {
        let end: End = serde_json::from_slice(&self.stored)
            .map_err(|error| self.error(format!("a bad end ({error})")))?;
        let (files, records) = (self.files, self.records);
        if (end.files, end.records) != (files, records) {
            let what = format!(
                "{records} records of {files} files, but the end marker says {} of {}",
                end.records, end.files
            );
            return Err(self.error(what));
        }
        if self.input.fill(&mut [0])? > 0 {
            return Err(self.error("bytes after the end of the trace"));
        }
        end.left_out
            .into_iter()
            .for_each(|(reason, n)| self.left_out.earlier(reason, n));
        Ok(())
    }

    fn item(&mut self) -> Result<Option<Item>, TraceError> {
        if self.items == 0 {
            if self.at < self.plain.len() {
                return Err(self.error("a block with bytes after its last item"));
            }
            if !self.block()? {
                return Ok(None);
            }
        }
        let mut bytes = Bytes {
            all: &self.plain,
            at: self.at,
        };
        let item = bytes.item(&mut self.state, self.records);
        self.at = bytes.at;
        let item = item.map_err(|fault| self.error(fault))?;
        self.items -= 1;
        match item {
            Item::File(_) => self.files += 1,
            Item::Record(_) => self.records += 1,
        }
        Ok(Some(item))
    }
}

impl Iterator for Reader {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.item();
        self.ended = !matches!(item, Ok(Some(_)));
        item.transpose()
    }
}
