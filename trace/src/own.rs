//! `foreread`: foreread's own format, which keeps everything that an importer can express. `docs/trace-format.md` specifies it
//! to the byte, with an example.
//!
//! ```text
//!   magic + version   header (JSON)   block  block  block ...  end (JSON: counts)
//!                     length, crc     └─ head: length packed and plain, items, crc; then a zstd frame of items
//! ```
//! A block is decoded independently but for the numbers of files and records, and is small, so reading takes as much memory for a
//! terabyte as for a kilobyte. A truncated file has no end, and is refused where it stops. Never: a length that is
//! believed before it is compared with its limit, or an item that was not under a checksum.

mod codec;
mod head;
mod read;
mod write;

pub use read::import;
pub(super) use write::around;
pub use write::{export, write};

use super::format::{Fit, Format};

/// The first bytes of every file: no text, and damaged by whatever changes line ends; the last one is the version.
pub const MAGIC: [u8; 8] = [0x89, b'F', b'R', b'T', b'\r', b'\n', 0x1a, VERSION];
/// The version that is written, and the only one that is read.
pub const VERSION: u8 = 1;
/// The header and the end have at most this many bytes of JSON.
pub const MAX_JSON_BYTES: usize = 64 << 10;
/// A block has at most this many bytes when it is unpacked.
pub const MAX_BLOCK_BYTES: usize = 1 << 20;
/// A block has at most this many bytes as it is stored: what zstd makes of a full one that cannot be packed.
pub const MAX_STORED_BYTES: usize = MAX_BLOCK_BYTES + (MAX_BLOCK_BYTES >> 8);
/// A block has at most this many items.
pub const MAX_BLOCK_ITEMS: usize = 1 << 16;

/// The format.
pub static FORMAT: Format = Format {
    name: "foreread",
    summary: "foreread's own: all that a trace can say, packed; ns and bytes",
    keys: &[],
    detect,
    import,
    export: Some(export),
};

/// By its magic number, of any version: another version is ours to refuse.
fn detect(head: &[u8]) -> Fit {
    if head.starts_with(&MAGIC[..7]) {
        Fit::Sure
    } else {
        Fit::No
    }
}

#[cfg(test)]
mod tests;
