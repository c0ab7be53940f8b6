//! Decodes a page of the kernel's ring buffer, as read from `trace_pipe_raw`: events with their times.
//!
//! ```text
//!   u64 time of the page │ u64 bytes in use, bit 31: events were lost before it │ events ...
//!   an event:  u32 = 5 bits type, 27 bits ns since the previous event
//!     1..=28  data of this many words          0  a word with the bytes follows, then data
//!     29      nothing, this many bytes long    30 a word of more ns     31 a word of an absolute time
//! ```
//! A page of the ring buffer has the size of the machine's memory pages. tracefs describes the page's layout in `events/header_page` and
//! `events/header_event`. The decoder never reads beyond the page, whatever the page contains.

use foreread_os::host::memory::page_bytes;
use std::fs::File;
use std::io::{ErrorKind, Read};

/// Bytes before the first event: the time, and the number of bytes in use.
const HEAD_BYTES: usize = 16;
/// A bit in the number of bytes in use: events were lost before this page. The lower 30 bits are the number.
const LOST: u64 = 1 << 31;
const IN_USE: u64 = (1 << 30) - 1;

/// Creates a buffer for one page, which is what one read of the kernel's ring buffer returns. If the buffer were smaller, the rest of the
/// page would be returned as another page.
pub fn empty_page() -> Vec<u8> {
    vec![0; page_bytes() as usize]
}

/// Reads the contents of a ring buffer into `page`, one page at a time, and calls `take` for each page. `take` gets the page, whose unused
/// end is filled with zeros, and the number of bytes read. Returns an error if the kernel refuses the read, or if `take` fails.
pub fn read_pages(
    mut ring: &File,
    page: &mut [u8],
    mut take: impl FnMut(&[u8], usize) -> std::io::Result<()>,
) -> std::io::Result<()> {
    loop {
        match ring.read(page) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                page[len..].fill(0);
                take(page, len)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// Whether events were lost between the previous page and this one.
    pub lost: bool,
    now_ns: u64,
    data: &'a [u8],
    at: usize,
}

impl<'a> Page<'a> {
    /// Decodes the header of the ring buffer page in `bytes`, or returns `None` if there are too few bytes.
    pub fn new(bytes: &'a [u8]) -> Option<Page<'a>> {
        let now_ns = word64(bytes, 0)?;
        let used = word64(bytes, 8)?;
        let data = bytes.get(HEAD_BYTES..)?;
        let len = usize::try_from(used & IN_USE).ok()?.min(data.len());
        Some(Page {
            lost: used & LOST != 0,
            now_ns,
            data: &data[..len],
            at: 0,
        })
    }

    /// Reads the word at `at`, and advances `at`.
    fn word(&mut self) -> Option<u32> {
        let bytes = self.data.get(self.at..self.at.checked_add(4)?)?;
        self.at += 4;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl<'a> Iterator for Page<'a> {
    /// The time of an event, in nanoseconds of the instance's clock, and its bytes.
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let head = self.word()?;
            let (what, delta) = (head & 31, u64::from(head >> 5));
            let (len, is_event) = match what {
                0 => (usize::try_from(self.word()?).ok()?.checked_sub(4)?, true),
                // A page may end in padding that has neither time nor length.
                29 if delta == 0 => return None,
                29 => (usize::try_from(self.word()?).ok()?.checked_sub(4)?, false),
                30 => {
                    self.now_ns = self
                        .now_ns
                        .wrapping_add(delta + (u64::from(self.word()?) << 27));
                    continue;
                }
                31 => {
                    // The event has 59 bits of the time; the page has the rest.
                    let time = delta + (u64::from(self.word()?) << 27);
                    self.now_ns = (self.now_ns & !((1 << 59) - 1)) | time;
                    continue;
                }
                words => (4 * words as usize, true),
            };
            self.now_ns = self.now_ns.wrapping_add(delta);
            let data = self.data.get(self.at..self.at.checked_add(len)?)?;
            // The next event begins at a multiple of 4.
            self.at += len.next_multiple_of(4);
            if is_event {
                return Some((self.now_ns, data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(used: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = [1000_u64.to_ne_bytes(), used.to_ne_bytes()].concat();
        words
            .iter()
            .for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    fn events(bytes: &[u8]) -> Vec<(u64, usize)> {
        Page::new(bytes)
            .expect("a page")
            .map(|(at, data)| (at, data.len()))
            .collect()
    }

    #[test]
    fn every_kind_of_event_is_passed() {
        let words = [
            (5 << 5) | 2,
            7,
            8, // 8 bytes after 5 ns
            (1 << 5) | 30,
            1, // 2^27 + 1 ns more
            (3 << 5) | 29,
            8,
            0, // nothing, 4 bytes and the word of the length
            (2 << 5),
            12,
            1,
            2, // 8 bytes with a length
            (9 << 5) | 31,
            1, // at 2^27 + 9
            1,
            3,
            29,
            77,
            77,
        ];
        let bytes = page(4 * words.len() as u64, &words);
        let far = 1005 + (1 << 27) + 1 + 3 + 2;
        assert_eq!(events(&bytes), [(1005, 8), (far, 8), ((1 << 27) + 9, 4)]);
    }

    #[test]
    fn a_page_may_say_anything() {
        let lost = page(LOST | 8, &[1, 5, 1, 5]);
        assert!(Page::new(&lost).is_some_and(|page| page.lost && page.count() == 1));
        assert!(Page::new(&lost[..15]).is_none());
        let claims = [u64::MAX, 4096, 7, 0];
        for used in claims {
            for word in [0, 1, 28, 29, 61, 30, 31, u32::MAX] {
                for cut in 16..=32 {
                    events(&page(used, &[word, 0, u32::MAX, 3])[..cut]);
                }
            }
        }
    }
}
