//! Reads the compact protocol of Thrift as far as it must be checked before the Parquet library reads it.
//!
//! A value is a head that names its type, then its bytes. Structures and lists nest; this reader goes [`MAX_DEPTH`] deep and
//! takes a number of bytes that its caller limits, so no file makes it recurse or read without end.
//!
//! ```text
//!   structure:  field head (id, type) value   field head value   ...   0
//!   list:       head (length, type) value value ...
//! ```
//!
//! The library reads a field by its id whatever type its head names. [`Compact::expect`] therefore takes one type alone:
//! with another one, the library and this reader would see different values in the same bytes.

use std::fs::File;
use std::io::{BufReader, Read};

/// Structures and lists within each other. Those of Parquet's own heads nest 5 deep.
pub const MAX_DEPTH: u32 = 16;

pub const I8: u8 = 3;
pub const I32: u8 = 5;
pub const I64: u8 = 6;
pub const BINARY: u8 = 8;
pub const LIST: u8 = 9;
pub const STRUCT: u8 = 12;

/// Reads from a place in a file, at most `most` bytes. Nothing is returned where the bytes are not what they should be.
pub struct Compact<'a> {
    from: &'a mut BufReader<File>,
    taken: u64,
    most: u64,
}

impl<'a> Compact<'a> {
    pub fn new(from: &'a mut BufReader<File>, most: u64) -> Compact<'a> {
        Compact {
            from,
            taken: 0,
            most,
        }
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }

    fn bytes(&mut self, n: u64) -> Option<()> {
        self.taken = self
            .taken
            .checked_add(n)
            .filter(|taken| *taken <= self.most)?;
        self.from.seek_relative(i64::try_from(n).ok()?).ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.taken += 1;
        let mut byte = [0];
        self.from
            .read_exact(&mut byte)
            .ok()
            .filter(|()| self.taken <= self.most)?;
        Some(byte[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub fn integer(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// The next field of a structure, as (id, type), behind the field `last`; nothing inside at its end.
    pub fn field(&mut self, last: i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        let id = if head >> 4 == 0 {
            self.integer()?
        } else {
            last.checked_add(i64::from(head >> 4))?
        };
        Some(Some((id, head & 15)))
    }

    /// The next field behind `last`, which has to be this one.
    pub fn expect(&mut self, last: i64, id: i64, kind: u8) -> Option<()> {
        (self.field(last)? == Some((id, kind))).then_some(())
    }

    /// The head of a list: how many there are, and of which type.
    pub fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let len = if head >> 4 == 15 {
            self.varint()?
        } else {
            u64::from(head >> 4)
        };
        Some((len, head & 15))
    }

    pub fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            // True and false are in the type.
            1 | 2 => Some(()),
            I8 => self.bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.bytes(8),
            BINARY => {
                let len = self.varint()?;
                self.bytes(len)
            }
            LIST | 10 if depth < MAX_DEPTH => {
                let (len, kind) = self.list()?;
                // A list of nothing but true takes a byte for each all the same.
                (0..len).try_for_each(|_| self.skip(if kind <= 2 { I8 } else { kind }, depth + 1))
            }
            STRUCT if depth < MAX_DEPTH => self.rest(0, depth + 1),
            _ => None,
        }
    }

    /// Passes over what follows the field `last` of a structure.
    pub fn rest(&mut self, mut last: i64, depth: u32) -> Option<()> {
        while let Some((id, kind)) = self.field(last)? {
            self.skip(kind, depth)?;
            last = id;
        }
        Some(())
    }
}
