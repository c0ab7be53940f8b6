//! The parts of a file that are not items: the end as JSON (the header is [`crate::Header`]), and the head of a block.
//!
//! JSON may get more keys within one version, and an older reader passes over them. Never: a key changes its meaning.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A block of items.
pub const BLOCK: [u8; 4] = *b"blok";
/// The end of the file.
pub const DONE: [u8; 4] = *b"done";
/// Bytes of a [`BlockHead`].
pub const HEAD_BYTES: usize = 20;

/// The head of a block, and of the end. All numbers little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// [`BLOCK`] or [`DONE`].
    pub tag: [u8; 4],
    /// Bytes that follow.
    pub stored: u32,
    /// Bytes that they unpack to. Of the end, which is not packed, the same.
    pub plain: u32,
    /// Items in them. Of the end: 0.
    pub items: u32,
    /// CRC-32 of the four fields above and of the bytes that follow.
    pub crc: u32,
}

impl BlockHead {
    /// With the checksum of `body`.
    pub fn sealed(mut self, body: &[u8]) -> BlockHead {
        self.crc = self.sum(body);
        self
    }

    /// The checksum that it should have.
    pub fn sum(&self, body: &[u8]) -> u32 {
        let mut crc = flate2::Crc::new();
        crc.update(&self.bytes()[..HEAD_BYTES - 4]);
        crc.update(body);
        crc.sum()
    }

    /// As it is in the file.
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.tag);
        let numbers = [self.stored, self.plain, self.items, self.crc];
        for (at, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Back again.
    pub fn of(bytes: &[u8; HEAD_BYTES]) -> BlockHead {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let number = |at: usize| u32::from_le_bytes(word(at));
        BlockHead {
            tag: word(0),
            stored: number(4),
            plain: number(8),
            items: number(12),
            crc: number(16),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Files of the trace.
    pub files: u64,
    /// Records of the trace.
    pub records: u64,
    /// What was left out when the file was made, by reason.
    #[serde(default)]
    pub left_out: BTreeMap<String, u64>,
}
