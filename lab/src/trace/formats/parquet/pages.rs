//! Looks at the heads of a column's pages before anybody unpacks them: each says how large it becomes.
//!
//! A page's head is a Thrift structure in the compact protocol, whose fields 2 and 3 are its size unpacked and packed; the
//! others are passed over. Never: a page's data.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Bytes of the largest page, unpacked. Writers make pages of about 1 MiB.
pub const MAX_PAGE_BYTES: i64 = 64 << 20;
/// Bytes of the largest head: it may hold the least and the largest value of the page.
const MAX_HEAD_BYTES: u64 = 1 << 20;
/// Structures within structures.
const MAX_DEPTH: u32 = 8;

/// Reads one head.
struct Head<'a> {
    from: &'a mut BufReader<File>,
    taken: u64,
}

impl Head<'_> {
    fn bytes(&mut self, n: u64) -> Option<()> {
        self.taken = self.taken.checked_add(n).filter(|taken| *taken <= MAX_HEAD_BYTES)?;
        self.from.seek_relative(i64::try_from(n).ok()?).ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.taken += 1;
        let mut byte = [0];
        self.from.read_exact(&mut byte).ok().filter(|()| self.taken <= MAX_HEAD_BYTES)?;
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

    fn integer(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Passes over a value of this type.
    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            // True and false are in the type.
            1 | 2 => Some(()),
            3 => self.bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.bytes(8),
            8 => {
                let len = self.varint()?;
                self.bytes(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let len = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                (0..len).try_for_each(|_| match head & 15 {
                    1 | 2 => self.bytes(1),
                    kind => self.skip(kind, depth + 1),
                })
            }
            12 if depth < MAX_DEPTH => self.structure(depth + 1, |_, _| ()),
            _ => None,
        }
    }

    /// Passes over a structure; `integers` is given its 32-bit fields.
    fn structure(&mut self, depth: u32, mut integers: impl FnMut(i64, i64)) -> Option<()> {
        let mut field = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = if head >> 4 == 0 { self.integer()? } else { field + i64::from(head >> 4) };
            match head & 15 {
                5 => integers(field, self.integer()?),
                kind => self.skip(kind, depth)?,
            }
        }
    }
}

/// Whether the pages between two places of `file` are of a size that may be unpacked.
#[must_use]
pub fn fit(file: &File, start: u64, len: u64) -> bool {
    let Ok(file) = file.try_clone() else { return false };
    let mut from = BufReader::new(file);
    if from.seek(SeekFrom::Start(start)).is_err() {
        return false;
    }
    let mut left = len;
    while left > 0 {
        let mut sizes = [-1_i64; 2];
        let mut head = Head { from: &mut from, taken: 0 };
        let read = head.structure(0, |field, value| match field {
            2 => sizes[0] = value,
            3 => sizes[1] = value,
            _ => {}
        });
        let taken = head.taken;
        let Ok(packed) = u64::try_from(sizes[1]) else { return false };
        let whole = taken.saturating_add(packed);
        let sane = (0..=MAX_PAGE_BYTES).contains(&sizes[0]) && sizes[1] <= MAX_PAGE_BYTES && whole <= left;
        if read.is_none() || !sane || from.seek_relative(sizes[1]).is_err() {
            return false;
        }
        left -= whole;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The head of an empty page that says it becomes so large, with `more` fields behind.
    fn page(size: u64, more: &[u8]) -> (File, u64) {
        let mut bytes = vec![0x15, 0, 0x15];
        let mut zigzag = size * 2;
        while zigzag > 0x7f {
            bytes.push(u8::try_from(zigzag & 0x7f).expect("seven bits") | 0x80);
            zigzag >>= 7;
        }
        bytes.push(u8::try_from(zigzag).expect("seven bits"));
        bytes.extend([0x15, 0]);
        bytes.extend(more);
        bytes.push(0);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        (file, bytes.len() as u64)
    }

    #[test]
    fn a_page_has_a_largest_size_and_its_other_fields_are_passed_over() {
        let most = MAX_PAGE_BYTES.cast_unsigned();
        // A structure with a text, a list of two numbers and a list of one true, a byte and a double in it.
        let more =
            [0x2c, 0x18, 2, b'a', b'b', 0x19, 0x25, 1, 2, 0x19, 0x11, 1, 0x13, 7, 0x17, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        for (size, more, fits) in [(most, &more[..], true), (most, &[], true), (most + 1, &[], false)] {
            let (file, len) = page(size, more);
            assert_eq!(fit(&file, 0, len), fits);
            assert!(!fit(&file, 0, len + 1), "what follows is no page");
        }
        let (file, len) = page(1, &[0x1c; 40]);
        assert!(!fit(&file, 0, len), "deeper than any head");
    }
}
