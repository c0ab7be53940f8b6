//! Looks at the heads of a column's pages before the library unpacks them: each says how large it becomes.
//!
//! A page's head is a Thrift structure whose first three fields are its type, its size unpacked and its size packed; the
//! others are passed over. Never: a page's data.

use super::thrift::{Compact, I32};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};

/// Bytes of the largest page, unpacked. Writers make pages of about 1 MiB.
pub const MAX_PAGE_BYTES: i64 = 64 << 20;
/// Bytes of the largest head: it may hold the least and the largest value of the page.
const MAX_HEAD_BYTES: u64 = 1 << 20;

/// The sizes in a head, unpacked and packed.
fn sizes(head: &mut Compact<'_>) -> Option<[i64; 2]> {
    head.expect(0, 1, I32)?;
    head.integer()?;
    head.expect(1, 2, I32)?;
    let unpacked = head.integer()?;
    head.expect(2, 3, I32)?;
    let packed = head.integer()?;
    head.rest(3, 0)?;
    Some([unpacked, packed])
}

/// Whether the pages between two places of `file` are of a size that may be unpacked.
pub fn fit(file: &File, start: u64, len: u64) -> bool {
    let Ok(file) = file.try_clone() else {
        return false;
    };
    let mut from = BufReader::new(file);
    if from.seek(SeekFrom::Start(start)).is_err() {
        return false;
    }
    let mut left = len;
    while left > 0 {
        let mut head = Compact::new(&mut from, MAX_HEAD_BYTES);
        let Some([unpacked, packed]) = sizes(&mut head) else {
            return false;
        };
        let whole = u64::try_from(packed)
            .ok()
            .and_then(|packed| head.taken().checked_add(packed));
        let Some(whole) = whole.filter(|whole| *whole <= left) else {
            return false;
        };
        let sane = (0..=MAX_PAGE_BYTES).contains(&unpacked) && packed <= MAX_PAGE_BYTES;
        if !sane || from.seek_relative(packed).is_err() {
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
        let more = [
            0x2c, 0x18, 2, b'a', b'b', 0x19, 0x25, 1, 2, 0x19, 0x11, 1, 0x13, 7, 0x17, 1, 2, 3, 4,
            5, 6, 7, 8, 0,
        ];
        for (size, more, fits) in [
            (most, &more[..], true),
            (most, &[], true),
            (most + 1, &[], false),
        ] {
            let (file, len) = page(size, more);
            assert_eq!(fit(&file, 0, len), fits);
            assert!(!fit(&file, 0, len + 1), "what follows is no page");
        }
        for deep in [0x1c, 0x19, 0x1a] {
            let (file, len) = page(1, &vec![deep; 1 << 19]);
            assert!(!fit(&file, 0, len), "deeper than any head: {deep:#x}");
        }
    }
}
