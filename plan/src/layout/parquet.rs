//! Parquet: the footer lists the chunk of each column in each row group. The parts of the plan are in the order in
//! which a scan reads them: row group by row group.
//!
//! ```text
//!   footer, length u32, "PAR1"       the footer is a struct of Thrift's compact protocol:
//!   file 4: row groups ─► group 1: chunks ─► chunk 3: metadata ─► 3: path, a list of texts    7: bytes
//!                                                                 9: first data page         11: dictionary page, 0 for none
//! ```
//! A field of a struct starts with a byte: four bits contain the difference to the previous field's number, four bits the field's type.
//! The type determines the length of a field, so a field that is not needed can be skipped. Integers of 16 and of 32 bits have the same
//! encoding and are both accepted, because old writers mix the two types. Sources: the format's public description (parquet-format,
//! README and parquet.thrift), Thrift's compact protocol.

use super::{LayoutError, MAX_HEADER_BYTES, Parts, ReadAt};
use std::ops::Range;

/// The end of a file: the footer's length and "PAR1".
const TAIL_BYTES: u64 = 8;
/// Maximum nesting of structs; a footer has five levels.
const MAX_DEPTH: u32 = 32;

const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

pub fn parts(source: &dyn ReadAt, parts: &mut Parts) -> Result<(), LayoutError> {
    let size = source.size()?;
    let mut tail = [0; TAIL_BYTES as usize];
    if size < TAIL_BYTES {
        return Err(damaged("shorter than a footer"));
    }
    source.read_at(&mut tail, size - TAIL_BYTES)?;
    let len = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if &tail[4..] != b"PAR1" {
        return Err(damaged("wrong magic at the end, or an encrypted footer"));
    }
    if len > MAX_HEADER_BYTES.min(size - TAIL_BYTES) {
        return Err(damaged(
            "the footer is longer than the file, or than 100 MB",
        ));
    }
    let start = size - TAIL_BYTES - len;
    let mut footer = vec![0; len as usize];
    source.read_at(&mut footer, start)?;
    parts.header(start..size);
    let mut walk = Walk {
        bytes: &footer,
        at: 0,
    };
    walk.fields(0, &mut |walk, field, kind| match (field, kind) {
        (4, LIST) => walk.structs(&mut |walk| row_group(walk, parts)),
        _ => walk.skip(kind, 1),
    })
}

fn row_group(walk: &mut Walk<'_>, parts: &mut Parts) -> Result<(), LayoutError> {
    walk.fields(2, &mut |walk, field, kind| match (field, kind) {
        (1, LIST) => walk.structs(&mut |walk| {
            let mut is_there = false;
            walk.fields(3, &mut |walk, field, kind| match (field, kind) {
                (3, STRUCT) => {
                    is_there = true;
                    chunk(walk, parts)
                }
                _ => walk.skip(kind, 4),
            })?;
            is_there
                .then_some(())
                .ok_or_else(|| damaged("a column with encrypted offsets"))
        }),
        _ => walk.skip(kind, 3),
    })
}

fn chunk(walk: &mut Walk<'_>, parts: &mut Parts) -> Result<(), LayoutError> {
    let (mut name, mut bytes, mut data, mut dictionary) = (String::new(), None, None, None);
    walk.fields(4, &mut |walk, field, kind| {
        match (field, kind) {
            (3, LIST) => name = walk.path()?,
            (7, 4..=6) => bytes = Some(walk.integer()?),
            (9, 4..=6) => data = Some(walk.integer()?),
            (11, 4..=6) => dictionary = Some(walk.integer()?),
            _ => walk.skip(kind, 5)?,
        }
        Ok(())
    })?;
    let (Some(bytes), Some(data)) = (bytes, data) else {
        return Err(damaged("a column chunk without offsets"));
    };
    // Old writers set the offset of a missing dictionary to 0, which is the offset of the magic number.
    let first = dictionary
        .filter(|&offset| offset != 0)
        .unwrap_or(i64::MAX)
        .min(data);
    parts.add(name, range(first, bytes)?)
}

fn range(first: i64, bytes: i64) -> Result<Range<u64>, LayoutError> {
    let (Ok(first), Ok(bytes)) = (u64::try_from(first), u64::try_from(bytes)) else {
        return Err(damaged("a negative offset"));
    };
    Ok(first
        ..first
            .checked_add(bytes)
            .ok_or_else(|| damaged("an offset larger than any file"))?)
}

fn damaged(what: &str) -> LayoutError {
    LayoutError::damaged("Parquet", what)
}

type Each<'e, 'a> = &'e mut dyn FnMut(&mut Walk<'a>, i64, u8) -> Result<(), LayoutError>;

/// A cursor in the bytes of a struct.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], LayoutError> {
        let end = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| self.at.checked_add(bytes));
        let taken = end
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or_else(|| damaged("a truncated footer"))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, LayoutError> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, LayoutError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number of more than 64 bits"))
    }

    /// Signed: 0, -1, 1, -2, ... are written as 0, 1, 2, 3, ...
    fn integer(&mut self) -> Result<i64, LayoutError> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    /// The length of a list and the type of its elements.
    fn list(&mut self) -> Result<(u64, u8), LayoutError> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 {
            self.number()?
        } else {
            u64::from(head >> 4)
        };
        Ok((count, head & 15))
    }

    /// Calls a function for each struct of a list. Each struct has at least a byte, so the end of the data stops a count that is too large.
    fn structs(
        &mut self,
        each: &mut dyn FnMut(&mut Walk<'a>) -> Result<(), LayoutError>,
    ) -> Result<(), LayoutError> {
        let (count, kind) = self.list()?;
        if kind != STRUCT {
            return Err(damaged("a list whose elements are not structs"));
        }
        (0..count).try_for_each(|_| each(self))
    }

    /// Calls a function with the number and type of each field of a struct; the function consumes the value.
    fn fields(&mut self, depth: u32, each: Each<'_, 'a>) -> Result<(), LayoutError> {
        if depth > MAX_DEPTH {
            return Err(damaged("structs are nested too deeply"));
        }
        let mut field = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = if head >> 4 == 0 {
                self.integer()?
            } else {
                field.saturating_add(i64::from(head >> 4))
            };
            each(self, field, head & 15)?;
        }
    }

    /// A list of strings, joined with dots.
    fn path(&mut self) -> Result<String, LayoutError> {
        let (count, kind) = self.list()?;
        if kind != BINARY {
            return Err(damaged("a path is not UTF-8"));
        }
        let mut path = String::new();
        for nth in 0..count {
            let bytes = self.number()?;
            let text = std::str::from_utf8(self.take(bytes)?)
                .map_err(|_| damaged("a path is not UTF-8"))?;
            path.push_str(if nth > 0 { "." } else { "" });
            path.push_str(text);
        }
        Ok(path)
    }

    /// Skips the value of a field. A boolean (1, 2) has no bytes beyond its type.
    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), LayoutError> {
        match kind {
            1 | 2 => Ok(()),
            _ => self.element(kind, depth),
        }
    }

    /// Skips an element of a list, where a boolean takes a byte, or a value that is not a boolean.
    fn element(&mut self, kind: u8, depth: u32) -> Result<(), LayoutError> {
        match kind {
            1..=3 => self.take(1).map(drop),
            4..=6 => self.number().map(drop),
            7 => self.take(8).map(drop),
            BINARY => self.number().and_then(|bytes| self.take(bytes)).map(drop),
            LIST | 10 if depth <= MAX_DEPTH => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.element(kind, depth + 1))
            }
            STRUCT => self.fields(depth + 1, &mut |walk, _, kind| walk.skip(kind, depth + 1)),
            _ => Err(damaged("a value of an unknown type")),
        }
    }
}
