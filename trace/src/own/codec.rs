//! Encodes items as bytes. A field with the same value as in the previous item takes no space; other fields are stored as differences, in
//! as few bytes as possible.
//!
//! ```text
//!   first byte:  7 new shape | 6 offset follows | 5 same length | 4 same file, open, thread | 3..0 what
//!   then, where there: shape, reader, offset, length, start, end, returned, flags, after
//! ```
//! A sequential read with the same length as the previous read takes one byte plus its times. Decoding never panics, whatever the bytes
//! are, and refuses numbers that do not fit their field.

use crate::check::{MAX_AFTER, MAX_NAME_BYTES};
use crate::{After, FileInfo, Flags, Item, Op, Record};
use foreread_core::event::Advice;

/// The lower bits of the first byte: 0 is a file, the others are these operations in order.
const OPS: [Op; 8] = [
    Op::Read,
    Op::Write,
    Op::Fault,
    Op::Hint(Advice::Normal),
    Op::Hint(Advice::Sequential),
    Op::Hint(Advice::Random),
    Op::Hint(Advice::WillNeed),
    Op::Hint(Advice::DontNeed),
];
const WHAT: u8 = 0x0f;
const SAME_WHO: u8 = 0x10;
const SAME_LEN: u8 = 0x20;
const FOLLOWS: u8 = 0x40;
const NEW_SHAPE: u8 = 0x80;
/// Bit of a file's first byte: its size is known.
const HAS_SIZE: u8 = 0x10;

/// Bits for the optional fields of a record.
const START: u8 = 1;
const END: u8 = 2;
const RETURNED: u8 = 4;
const FLAGS: u8 = 8;
const AFTER: u8 = 16;

/// The values of the previous item, relative to which the next item of a block is encoded. At the start of a block, these values are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodecState {
    file: u32,
    open: u32,
    thread: u32,
    /// The byte after the end of the previous record.
    end: u64,
    len: u64,
    start_ns: u64,
    shape: u8,
}

impl CodecState {
    fn follow(&mut self, record: &Record) {
        (self.file, self.open, self.thread) = (record.file, record.open, record.thread);
        (self.end, self.len) = (record.offset.wrapping_add(record.len), record.len);
        self.start_ns = record.start_ns.unwrap_or(self.start_ns);
    }
}

/// Appends an item that has passed [`crate::check`] to a block; `number` is the record number, counted from 0.
pub fn put(to: &mut Vec<u8>, state: &mut CodecState, item: &Item, number: u64) {
    match item {
        Item::File(file) => {
            to.push(if file.size.is_some() { HAS_SIZE } else { 0 });
            put_number(to, file.name.len() as u64);
            to.extend_from_slice(file.name.as_bytes());
            file.size.into_iter().for_each(|size| put_number(to, size));
        }
        Item::Record(record) => put_record(to, state, record, number),
    }
}

fn put_record(to: &mut Vec<u8>, state: &mut CodecState, record: &Record, number: u64) {
    let bit = |there: bool, bit: u8| if there { bit } else { 0 };
    let shape = bit(record.start_ns.is_some(), START)
        | bit(record.end_ns.is_some(), END)
        | bit(record.returned.is_some(), RETURNED)
        | bit(record.flags != Flags::default(), FLAGS)
        | bit(!record.after.is_empty(), AFTER);
    let same_who =
        (record.file, record.open, record.thread) == (state.file, state.open, state.thread);
    let (same_len, follows) = (record.len == state.len, record.offset == state.end);
    let what = OPS
        .iter()
        .position(|op| *op == record.op)
        .map_or(0, |at| at as u8 + 1);
    let first = bit(same_who, SAME_WHO) | bit(same_len, SAME_LEN) | bit(follows, FOLLOWS);
    to.push(what | first | bit(shape != state.shape, NEW_SHAPE));
    if shape != state.shape {
        to.push(shape);
        state.shape = shape;
    }
    if !same_who {
        put_difference(to, u64::from(record.file), u64::from(state.file));
        put_difference(to, u64::from(record.open), u64::from(record.file));
        put_difference(to, u64::from(record.thread), u64::from(state.thread));
    }
    if !follows {
        put_difference(to, record.offset, state.end);
    }
    if !same_len {
        put_number(to, record.len);
    }
    if let Some(start) = record.start_ns {
        put_number(to, start.wrapping_sub(state.start_ns));
        record
            .end_ns
            .into_iter()
            .for_each(|end| put_number(to, end.wrapping_sub(start)));
    }
    record
        .returned
        .into_iter()
        .for_each(|returned| put_difference(to, returned, record.len));
    if record.flags != Flags::default() {
        put_number(to, u64::from(record.flags.0));
    }
    if !record.after.is_empty() {
        put_number(to, record.after.len() as u64);
        for after in &record.after {
            put_number(
                to,
                number.wrapping_sub(after.record) << 1 | u64::from(after.end),
            );
            put_number(to, after.delay_ns);
        }
    }
    state.follow(record);
}

/// Encodes seven bits per byte, the lowest first; the highest bit means that another byte follows.
fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// `number - from` as a number of 64 bits that may be negative: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
fn put_difference(to: &mut Vec<u8>, number: u64, from: u64) {
    let difference = number.wrapping_sub(from).cast_signed();
    put_number(to, (difference << 1 ^ difference >> 63).cast_unsigned());
}

/// The part of an unpacked block that has not been decoded yet.
pub struct Bytes<'a> {
    /// The whole block.
    pub all: &'a [u8],
    /// Number of bytes already decoded.
    pub at: usize,
}

/// A short description of an error in an item.
type Fault = &'static str;

impl Bytes<'_> {
    /// Decodes the next item; `number` is the number for a record, counted from 0.
    pub fn item(&mut self, state: &mut CodecState, number: u64) -> Result<Item, Fault> {
        let first = self.byte()?;
        match first & WHAT {
            0 => self.file(first).map(Item::File),
            what => {
                let op = OPS
                    .get(usize::from(what) - 1)
                    .ok_or("an item of an unknown kind")?;
                self.record(*op, first, state, number).map(Item::Record)
            }
        }
    }

    fn file(&mut self, first: u8) -> Result<FileInfo, Fault> {
        if first & !HAS_SIZE != 0 {
            return Err("a file with unknown bits");
        }
        let len = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if len > MAX_NAME_BYTES {
            return Err("a file name longer than 4096 bytes");
        }
        let name = self.all.get(self.at..self.at + len).ok_or(CUT)?;
        self.at += len;
        let name = std::str::from_utf8(name)
            .map_err(|_| "a file name that is not UTF-8")?
            .to_string();
        let size = if first & HAS_SIZE != 0 {
            Some(self.number()?)
        } else {
            None
        };
        Ok(FileInfo::new(name, size))
    }

    fn record(
        &mut self,
        op: Op,
        first: u8,
        state: &mut CodecState,
        number: u64,
    ) -> Result<Record, Fault> {
        if first & NEW_SHAPE != 0 {
            state.shape = self.byte()?;
            if state.shape >= AFTER << 1 || state.shape & (START | END) == END {
                return Err("a record of an unknown shape");
            }
        }
        let has = |bit: u8| state.shape & bit != 0;
        let (mut file, mut open, mut thread) = (state.file, state.open, state.thread);
        if first & SAME_WHO == 0 {
            file = self.small(u64::from(file))?;
            open = self.small(u64::from(file))?;
            thread = self.small(u64::from(thread))?;
        }
        let offset = if first & FOLLOWS != 0 {
            state.end
        } else {
            self.difference(state.end)?
        };
        let len = if first & SAME_LEN != 0 {
            state.len
        } else {
            self.number()?
        };
        let later = |from: u64, by: u64| from.checked_add(by).ok_or("a time beyond 2^64 ns");
        let start_ns = if has(START) {
            Some(later(state.start_ns, self.number()?)?)
        } else {
            None
        };
        let end_ns = match start_ns {
            Some(start) if has(END) => Some(later(start, self.number()?)?),
            _ => None,
        };
        let returned = if has(RETURNED) {
            Some(self.difference(len)?)
        } else {
            None
        };
        let flags = if has(FLAGS) { self.number()? } else { 0 };
        let flags = Flags(u16::try_from(flags).map_err(|_| "flags of more than 16 bits")?);
        let after = if has(AFTER) {
            self.after(number)?
        } else {
            Vec::new()
        };
        let record = Record {
            op,
            file,
            open,
            thread,
            offset,
            len,
            returned,
            start_ns,
            end_ns,
            flags,
            after,
        };
        state.follow(&record);
        Ok(record)
    }

    fn after(&mut self, number: u64) -> Result<Vec<After>, Fault> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > MAX_AFTER {
            return Err("a record waits for more than 1024 others");
        }
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let word = self.number()?;
            let record = number
                .checked_sub(word >> 1)
                .ok_or("a record waits for a record before the first one")?;
            all.push(After::new(record, word & 1 == 1, self.number()?));
        }
        Ok(all)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.all.get(self.at).ok_or(CUT)?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has only one bit left.
            if shift == 63 && byte > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits")
    }

    fn difference(&mut self, from: u64) -> Result<u64, Fault> {
        let word = self.number()?;
        Ok(from.wrapping_add(word >> 1 ^ (word & 1).wrapping_neg()))
    }

    fn small(&mut self, from: u64) -> Result<u32, Fault> {
        u32::try_from(self.difference(from)?)
            .map_err(|_| "a file, open or thread number of more than 32 bits")
    }
}

const CUT: Fault = "an item reaches beyond its block";
