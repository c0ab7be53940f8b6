//! Lists of 16-bit integers in a footer, which some writers use where the format has 32-bit ones.
//!
//! Thrift's compact protocol writes both as the same variable-length number, so a list of one is a list of the other but for the
//! element's type in its head:
//! ```text
//!   19 1c ...   a field, a list (9): one element (1_) of type struct (_c)
//!   29 24 00 06 a list of two elements (2_) of type I16 (_4): 0, 3     ──►  29 25 00 06, of type I32 (_5)
//! ```
//! pyarrow reads such footers; the library refuses them.

const I16: u8 = 4;
const I32: u8 = 5;
const STRUCT: u8 = 12;
/// Structs within structs; a footer has five.
const MAX_DEPTH: u32 = 32;

/// Writes I32 for I16 in the head of each list. Returns whether there was one; nothing where the bytes are no struct.
pub fn widen(footer: &mut [u8]) -> Option<bool> {
    let mut walk = Walk { bytes: footer, at: 0, found: false };
    walk.value(STRUCT, 0)?;
    Some(walk.found)
}

struct Walk<'a> {
    bytes: &'a mut [u8],
    at: usize,
    found: bool,
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        self.at = Some(end).filter(|&end| end <= self.bytes.len())?;
        Some(())
    }

    /// Passes over a value. A truth value of a struct's field is its type; in a list it is a byte.
    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            1..=3 => self.skip(1),
            I16 | I32 | 6 => self.number().map(drop),
            7 => self.skip(8),
            8 => self.number().and_then(|len| self.skip(len)),
            9 | 10 => self.list(depth),
            STRUCT if depth < MAX_DEPTH => self.fields(depth + 1),
            _ => None,
        }
    }

    fn list(&mut self, depth: u32) -> Option<()> {
        let (at, head) = (self.at, self.byte()?);
        if head & 15 == I16 {
            self.bytes[at] = head - I16 + I32;
            self.found = true;
        }
        let count = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        // Each element has a byte at least, so the bytes end before a count that is too large.
        (0..count).try_for_each(|_| self.value(head & 15, depth))
    }

    fn fields(&mut self, depth: u32) -> Option<()> {
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            if head >> 4 == 0 {
                self.number()?;
            }
            if !matches!(head & 15, 1 | 2) {
                self.value(head & 15, depth)?;
            }
        }
    }
}
