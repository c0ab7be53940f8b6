//! `foreread`: foreread's own format, which stores everything that an importer can express. `docs/trace-format.md` specifies every
//! byte of the format, with an example.
//!
//! ```text
//!   magic + version   header (JSON)   block  block  block ...  end (JSON: counts)
//!                     length, crc     └─ head: length packed and plain, items, crc; then a zstd frame of items
//! ```
//! Blocks are decoded independently, except for the numbers of files and records. Blocks are small, so reading a terabyte needs as much
//! memory as reading a kilobyte. A truncated file has no end marker, so reading it ends with an error at the place where the file stops.
//! Every length is compared with its limit before it is used, and every item is covered by a checksum.

use super::format::{Fit, Format};
pub use read::import;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub(super) use write::around;
pub use write::{export, write};

mod codec;
mod read;
mod write;

/// The first bytes of every file in foreread's own format. The bytes are not text, so that a conversion of line ends damages them and is
/// noticed. The last of these bytes is the version of the format.
pub const MAGIC: [u8; 8] = [0x89, b'F', b'R', b'T', b'\r', b'\n', 0x1a, VERSION];
/// The version of the format that is written, and the only version that can be read.
pub const VERSION: u8 = 1;
/// Maximum size of the JSON in the header and in the end marker, in bytes.
pub const MAX_JSON_BYTES: usize = 64 << 10;
/// Maximum size of an unpacked block in bytes.
pub const MAX_BLOCK_BYTES: usize = 1 << 20;
/// Maximum size of a stored block in bytes: the size of a full block that zstd cannot compress.
pub const MAX_STORED_BYTES: usize = MAX_BLOCK_BYTES + (MAX_BLOCK_BYTES >> 8);
/// Maximum number of items in a block.
pub const MAX_BLOCK_ITEMS: usize = 1 << 16;

/// The description of foreread's own format for the list of formats.
pub static FORMAT: Format = Format {
    name: "foreread",
    summary: "foreread's own format: keeps everything, compressed; ns and bytes",
    keys: &[],
    detect,
    import,
    export: Some(export),
};

/// Detects the magic number with any version: the importer refuses other versions.
fn detect(head: &[u8]) -> Fit {
    if head.starts_with(&MAGIC[..7]) {
        Fit::Sure
    } else {
        Fit::No
    }
}

#[cfg(test)]
mod tests;

// The parts of a file that are not items: the end as JSON (the header is [`crate::Header`]), and the head of a block.
//
// The JSON may get more keys within one version, and older readers ignore them. A key never changes its meaning.

/// A block of items.
pub(crate) const BLOCK: [u8; 4] = *b"blok";
/// The end of the file.
pub(crate) const DONE: [u8; 4] = *b"done";
/// Bytes of a [`BlockHead`].
pub(crate) const HEAD_BYTES: usize = 20;

/// The head of a block, and of the end. All numbers are little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHead {
    /// [`BLOCK`] or [`DONE`].
    pub tag: [u8; 4],
    /// Number of bytes that follow.
    pub stored: u32,
    /// Number of bytes after decompression. The end is not compressed, so there it equals `stored`.
    pub plain: u32,
    /// Number of items; 0 for the end.
    pub items: u32,
    /// CRC-32 of the four fields above and the bytes that follow.
    pub crc: u32,
}

impl BlockHead {
    /// Sets the block's checksum, which covers `body`.
    pub fn sealed(mut self, body: &[u8]) -> BlockHead {
        self.crc = self.sum(body);
        self
    }

    /// Computes the checksum of the block with these bytes.
    pub fn sum(&self, body: &[u8]) -> u32 {
        let mut crc = flate2::Crc::new();
        crc.update(&self.bytes()[..HEAD_BYTES - 4]);
        crc.update(body);
        crc.sum()
    }

    /// Encodes the head of a block.
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.tag);
        let numbers = [self.stored, self.plain, self.items, self.crc];
        for (at, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a head.
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
pub(crate) struct End {
    /// Number of files of the trace.
    pub files: u64,
    /// Number of records of the trace.
    pub records: u64,
    /// Entries that were left out when the file was made, by reason.
    #[serde(default)]
    pub left_out: BTreeMap<String, u64>,
}
