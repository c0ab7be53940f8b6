//! Test data in which every byte is computed from its offset and its version.
//!
//! Each group of eight bytes encodes (offset / 8, version) reversibly, so the original offset of misplaced bytes can be computed.
//! The data is not random: the same offset and version always give the same byte.
//!
//! ```text
//!   offset / 8 + version * 2^48  ──× odd──► ──swap bytes──► ──× odd──►  8 bytes, little-endian
//! ```

use foreread::source::{Defaults, ExactVersion, Source, SourceError};
use std::fmt;
use std::io::IoSliceMut;

const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX: u64 = 0xD6E8_FEB8_6659_FD93;
const VERSION_SHIFT: u32 = 48;

/// The eight bytes at offset `8 * index`.
fn word(index: u64, version: u16) -> u64 {
    let name = (index & ((1 << VERSION_SHIFT) - 1)) | u64::from(version) << VERSION_SHIFT;
    name.wrapping_mul(SPREAD).swap_bytes().wrapping_mul(MIX)
}

/// The inverse of an odd number modulo 2^64 (by Newton's method: each step doubles the number of correct bits).
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Returns the offset and version for which these eight bytes were made. The function also returns a result for bytes that are not from
/// this pattern, but then the offset is almost always beyond the end of the file.
pub fn name_of(bytes: [u8; 8]) -> (u64, u16) {
    let word = u64::from_le_bytes(bytes);
    let name = word
        .wrapping_mul(inverse(MIX))
        .swap_bytes()
        .wrapping_mul(inverse(SPREAD));
    (
        (name & ((1 << VERSION_SHIFT) - 1)) * 8,
        (name >> VERSION_SHIFT) as u16,
    )
}

/// Fills `buf` with the bytes of this version from `offset` on.
pub fn fill(buf: &mut [u8], offset: u64, version: u16) {
    let lead = (offset.wrapping_neg() % 8) as usize;
    let (head, rest) = buf.split_at_mut(lead.min(buf.len()));
    let first = word(offset / 8, version).to_le_bytes();
    let skip = (offset % 8) as usize;
    let len = head.len();
    head.copy_from_slice(first.get(skip..skip + len).unwrap_or(&[0; 8][..len]));
    let mut index = offset.div_ceil(8);
    let mut words = rest.chunks_exact_mut(8);
    for eight in &mut words {
        eight.copy_from_slice(&word(index, version).to_le_bytes());
        index += 1;
    }
    let tail = words.into_remainder();
    let len = tail.len();
    tail.copy_from_slice(&word(index, version).to_le_bytes()[..len]);
}

/// Returns `len` bytes of this version from `offset` on.
pub fn pattern(offset: u64, len: usize, version: u16) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, offset, version);
    bytes
}

/// The first byte that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its offset in the file.
    pub at: u64,
    pub want: u8,
    pub got: u8,
    /// The offset and version of the eight bytes around it, if all eight are available.
    pub from: Option<(u64, u16)>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "byte {} is {:#04x}, not {:#04x}",
            self.at, self.got, self.want
        )?;
        match self.from {
            Some((0, 0)) | None => Ok(()),
            Some((offset, version)) => {
                write!(f, "; its word names offset {offset} of version {version}")
            }
        }
    }
}

impl std::error::Error for Wrong {}

/// Compares `buf` with the bytes of this version from `offset` on.
pub fn check(buf: &[u8], offset: u64, version: u16) -> Result<(), Wrong> {
    const STEP: usize = 4096;
    let mut want = [0; STEP];
    for (i, got) in buf.chunks(STEP).enumerate() {
        let start = offset + (i * STEP) as u64;
        let want = &mut want[..got.len()];
        fill(want, start, version);
        if got == want {
            continue;
        }
        if let Some(bad) = (0..got.len()).find(|&n| got[n] != want[n]) {
            let at = start + bad as u64;
            let in_buf = i * STEP + bad;
            let word = in_buf
                .checked_sub((at % 8) as usize)
                .and_then(|from| buf.get(from..from + 8));
            let from = word.and_then(|w| w.try_into().ok()).map(name_of);
            return Err(Wrong {
                at,
                want: want[bad],
                got: got[bad],
                from,
            });
        }
    }
    Ok(())
}

// Wraps any source with an exact version, as an object of a store has: the key of a disk cache.
//
// The bytes are not changed.

/// Creates a source with a name and an exact version.
pub struct ExactSource<S> {
    source: S,
    exact: ExactVersion,
}

impl<S: Source> ExactSource<S> {
    pub fn new(source: S, name: &str, version: &str) -> ExactSource<S> {
        let exact = ExactVersion {
            source: name.to_string(),
            version: version.to_string(),
            shown: name.to_string(),
        };
        ExactSource { source, exact }
    }
}

impl<S: Source> Source for ExactSource<S> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        self.source.read_at(bufs, offset)
    }

    fn describe(&self) -> String {
        self.exact.shown.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        Some(self.exact.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_is_the_same_bytes() {
        let all = pattern(0, 300, 7);
        for start in 0..40 {
            for end in start..100 {
                assert_eq!(
                    pattern(start as u64, end - start, 7),
                    all[start..end],
                    "{start}..{end}"
                );
            }
        }
        assert_eq!(name_of(all[160..168].try_into().expect("eight")), (160, 7));
    }

    #[test]
    fn the_first_wrong_byte_is_named() {
        let mut bytes = pattern(1000, 9000, 1);
        assert_eq!(check(&bytes, 1000, 1), Ok(()));
        let stray = pattern(64, 16, 1);
        bytes[8000..8016].copy_from_slice(&stray);
        let wrong = check(&bytes, 1000, 1).expect_err("a stray word");
        assert_eq!((wrong.at, wrong.from), (9000, Some((64, 1))));
        assert!(
            wrong.to_string().contains("byte 9000 is")
                && wrong.to_string().contains("offset 64 of version 1")
        );
        assert!(check(&pattern(0, 4096, 1), 0, 2).is_err());
        assert!(check(&pattern(4096, 4096, 1), 0, 1).is_err());
    }
}
