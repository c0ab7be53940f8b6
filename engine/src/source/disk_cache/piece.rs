//! A piece as a file: bytes of one version of one source, that say by themselves what they are and whether they are whole.
//!
//! ```text
//!   0     8 magic | 4 format | 4 blocks | 8 offset | 8 length | 16 version | 8 length of the text | 8 checksum of all up to the first byte
//!   64    8 for each block of 32 KiB: its checksum
//!   512   text for people: the name of the source without secrets, its version and its size
//!   4096  the bytes
//! ```
//! Numbers are little-endian, checksums CRC-64/NVME. A reader of part of a piece looks at the blocks of that part alone. A file that was
//! torn, cut, exchanged for another or that has a bit flipped does not agree with its name or its checksums, and is no piece.
//!
//! Example: 100,000 bytes from offset 1 MiB on are the file `100000.186a0` of 104,096 bytes with 4 checksums of blocks.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::num::NonZeroU64;
use std::ops::Range;

/// Bytes before those of the source: one page, so that they can be written past the page cache.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of the largest piece; pieces end where a multiple of it does.
pub const MAX_PIECE_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: usize = 32 << 10;
const TABLE_AT: usize = 64;
const TEXT_AT: usize = 512;
const MAGIC: [u8; 8] = *b"forepiec";
const FORMAT: u32 = 1;
/// Behind the name of a piece that was used again after it had been written.
const USED_AGAIN: &str = ".again";

/// Letters of the name of a version that its first folder has: 256 of these are soon there, and a small object costs one folder.
pub const FIRST_LETTERS: usize = 2;

/// What identifies a version of a source: half of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionHash([u8; 16]);

impl VersionHash {
    pub fn of(source: &str, version: &str) -> VersionHash {
        let mut hasher = Sha256::new();
        hasher.update((source.len() as u64).to_le_bytes());
        hasher.update(source.as_bytes());
        hasher.update(version.as_bytes());
        let digest = hasher.finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        VersionHash(half)
    }

    /// Its folder, below that of the cache: `ab/abcdef...`.
    pub fn folder(self) -> String {
        let name = self.name();
        format!("{}/{name}", &name[..FIRST_LETTERS])
    }

    /// Its hexadecimal digits.
    pub fn name(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the name of such a folder: the part behind the slash.
    pub fn of_name(name: &str) -> Option<VersionHash> {
        let is_hex = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(name, 16).ok().filter(|_| is_hex)?;
        let hash = VersionHash(number.to_be_bytes());
        hash.folder().ends_with(name).then_some(hash)
    }

    /// A number that seldom is that of another version.
    pub fn number(self) -> u64 {
        self.0
            .iter()
            .take(8)
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}

/// Which bytes a piece has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    pub offset: u64,
    pub len: u32,
}

impl Extent {
    pub fn end(self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Bytes that its file takes: whole blocks of 4 KiB.
    pub fn file_bytes(self) -> u64 {
        (HEADER_BYTES as u64 + u64::from(self.len)).next_multiple_of(HEADER_BYTES as u64)
    }

    pub fn name(self, used_again: bool) -> String {
        let suffix = if used_again { USED_AGAIN } else { "" };
        format!("{:x}.{:x}{suffix}", self.offset, self.len)
    }

    /// Reads a name, and whether it was used again. Nothing for a file that is no piece.
    pub fn of_name(name: &str) -> Option<(Extent, bool)> {
        let (plain, used_again) = match name.strip_suffix(USED_AGAIN) {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        let (offset, len) = plain.split_once('.')?;
        let number = |text: &str| {
            let is_plain = !text.is_empty() && !text.starts_with('+');
            u64::from_str_radix(text, 16).ok().filter(|_| is_plain)
        };
        let (offset, len) = (number(offset)?, number(len)?);
        let fits = (1..=MAX_PIECE_BYTES).contains(&len) && offset.checked_add(len).is_some();
        fits.then_some((
            Extent {
                offset,
                len: len as u32,
            },
            used_again,
        ))
    }
}

/// A buffer for the file of one piece: a header and the bytes behind it. Its first byte is at a multiple of 4096, and it is filled up
/// behind the last one so that it can be written past the page cache.
pub struct PieceBuffer {
    bytes: Vec<u8>,
    /// Where the file begins.
    at: usize,
    len: usize,
    offset: u64,
    /// Bytes that were reserved for it.
    held: u64,
}

impl PieceBuffer {
    /// Room for bytes from `offset` on, up to the end of a piece; in the memory of one that is done, where that has room.
    pub fn new(offset: u64, most: u64, spare: Option<Vec<u8>>) -> PieceBuffer {
        let held = PieceBuffer::held_for(offset, most);
        let spare = spare.filter(|bytes| bytes.len() as u64 >= held);
        let bytes = spare.unwrap_or_else(|| vec![0; held as usize]);
        let at = bytes.as_ptr().align_offset(HEADER_BYTES).min(HEADER_BYTES);
        PieceBuffer {
            bytes,
            at,
            len: 0,
            offset,
            held,
        }
    }

    /// Its memory, for another.
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes that such a buffer takes in memory.
    pub fn held_for(offset: u64, most: u64) -> u64 {
        let most = most.min(MAX_PIECE_BYTES - offset % MAX_PIECE_BYTES);
        2 * HEADER_BYTES as u64 + most.next_multiple_of(HEADER_BYTES as u64)
    }

    pub fn extent(&self) -> Extent {
        Extent {
            offset: self.offset,
            len: self.len as u32,
        }
    }

    /// Bytes that it takes in memory.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Takes what fits; returns how many bytes those are.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let most = (MAX_PIECE_BYTES - self.offset % MAX_PIECE_BYTES) as usize;
        let start = self.at + HEADER_BYTES + self.len;
        let left = (most - self.len).min(self.bytes.len() - start);
        let len = bytes.len().min(left);
        self.bytes[start..start + len].copy_from_slice(&bytes[..len]);
        self.len += len;
        len
    }

    /// Is there room for no more?
    pub fn is_full(&self) -> bool {
        (self.offset + self.len as u64).is_multiple_of(MAX_PIECE_BYTES)
            || self.at + HEADER_BYTES + self.len == self.bytes.len()
    }

    /// The file, and what it is when it is filled up to a multiple of 4096.
    pub fn seal(&mut self, version: VersionHash, text: &str) -> SealedPiece<'_> {
        let extent = self.extent();
        let (head, rest) = self.bytes[self.at..].split_at_mut(HEADER_BYTES);
        head.fill(0);
        let blocks = rest[..self.len].chunks(BLOCK_BYTES);
        let count = blocks.len();
        for (block, room) in blocks.zip(head[TABLE_AT..].chunks_mut(8)) {
            room.copy_from_slice(&checksum(block).to_le_bytes());
        }
        let text = &text.as_bytes()[..text.len().min(HEADER_BYTES - TEXT_AT)];
        head[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text);
        head[48..56].copy_from_slice(&(text.len() as u64).to_le_bytes());
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        head[12..16].copy_from_slice(&(count as u32).to_le_bytes());
        head[16..24].copy_from_slice(&extent.offset.to_le_bytes());
        head[24..32].copy_from_slice(&u64::from(extent.len).to_le_bytes());
        head[32..48].copy_from_slice(&version.0);
        let sum = checksum_of_header(head);
        head[56..64].copy_from_slice(&sum.to_le_bytes());
        let len = HEADER_BYTES + self.len;
        let padded = len
            .next_multiple_of(HEADER_BYTES)
            .min(self.bytes.len() - self.at);
        SealedPiece {
            padded: &self.bytes[self.at..self.at + padded],
            len,
        }
    }
}

/// The file of a piece.
pub struct SealedPiece<'a> {
    pub padded: &'a [u8],
    /// Of these, bytes of the file.
    pub len: usize,
}

pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// Of a header and its table, but for the checksum itself.
fn checksum_of_header(head: &[u8]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    digest.update(&head[..56]);
    digest.update(&head[TABLE_AT..]);
    digest.finalize()
}

/// Why a file is no piece, or not the one that its name says.
#[derive(Debug, thiserror::Error)]
pub enum PieceFault {
    #[error("{0}")]
    Io(Errno),
    /// Gone, or never there.
    #[error("it is gone")]
    Gone,
    #[error("its header or a checksum is wrong")]
    Wrong,
}

impl From<Errno> for PieceFault {
    fn from(errno: Errno) -> PieceFault {
        match errno {
            // Removed by another machine; or this process has no descriptor or memory for it, which is no fault of the disk.
            Errno::NOENT | Errno::STALE | Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
                PieceFault::Gone
            }
            errno => PieceFault::Io(errno),
        }
    }
}

/// The first page of a file, whose checksum is right.
struct Header(Vec<u8>);

impl Header {
    fn read(file: &OwnedFd) -> Result<Header, PieceFault> {
        let mut page = vec![0; HEADER_BYTES];
        read_exact(file, &mut page, 0)?;
        Header::of(page)
    }

    fn of(page: Vec<u8>) -> Result<Header, PieceFault> {
        let head = Header(page);
        if head.0[..8] == MAGIC && head.number(56) == checksum_of_header(&head.0) {
            return Ok(head);
        }
        Err(PieceFault::Wrong)
    }

    /// # Errors
    /// It is not that piece of that version.
    fn of_piece(&self, extent: Extent, version: VersionHash) -> Result<PieceHeader, PieceFault> {
        let blocks = (extent.len as usize).div_ceil(BLOCK_BYTES);
        let is_right = self.number(8) == u64::from(FORMAT) | (blocks as u64) << 32
            && self.number(16) == extent.offset
            && self.number(24) == u64::from(extent.len)
            && self.0[32..48] == version.0;
        if !is_right {
            return Err(PieceFault::Wrong);
        }
        let sums = (0..blocks).map(|block| self.number(TABLE_AT + 8 * block));
        Ok(PieceHeader {
            extent,
            sums: sums.collect(),
        })
    }

    fn number(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }
}

/// The header of a piece, which is right.
pub struct PieceHeader {
    extent: Extent,
    sums: Vec<u64>,
}

impl PieceHeader {
    /// Reads the first page of a file.
    ///
    /// # Errors
    /// It is not that piece of that version.
    #[cfg(feature = "object")]
    pub fn of(
        page: &[u8],
        extent: Extent,
        version: VersionHash,
    ) -> Result<PieceHeader, PieceFault> {
        if page.len() != HEADER_BYTES {
            return Err(PieceFault::Wrong);
        }
        Header::of(page.to_vec())?.of_piece(extent, version)
    }

    /// The part of the file with the blocks of some bytes of the source, all of which the piece has.
    #[cfg(feature = "object")]
    pub fn blocks(extent: Extent, bytes: Range<u64>) -> Range<u64> {
        let block = BLOCK_BYTES as u64;
        let (start, end) = (bytes.start - extent.offset, bytes.end - extent.offset);
        let end = end.next_multiple_of(block).min(extent.len.into());
        HEADER_BYTES as u64 + start / block * block..HEADER_BYTES as u64 + end
    }

    /// Are these its bytes, from the block on that is at `start` of the file?
    pub fn has(&self, start: u64, bytes: &[u8]) -> bool {
        let first = (start as usize - HEADER_BYTES) / BLOCK_BYTES;
        let sums = self.sums.iter().skip(first);
        bytes
            .chunks(BLOCK_BYTES)
            .zip(sums)
            .all(|(block, sum)| checksum(block) == *sum)
    }
}

/// A piece that is open, and whose header is right.
pub struct OpenPiece {
    file: OwnedFd,
    head: PieceHeader,
}

impl OpenPiece {
    /// The text in a header that is right.
    pub fn text(file: &OwnedFd) -> Result<String, PieceFault> {
        let head = Header::read(file)?;
        let text = head.number(48) as usize;
        let text = head.0.get(TEXT_AT..TEXT_AT.saturating_add(text));
        let text = text.ok_or(PieceFault::Wrong)?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Looks at the header of a file.
    ///
    /// `first` is the part of its bytes that is read next.
    ///
    /// # Errors
    /// It is not that piece of that version.
    pub fn new(
        file: OwnedFd,
        extent: Extent,
        version: VersionHash,
        first: Range<u64>,
    ) -> Result<OpenPiece, PieceFault> {
        // The bytes are read next, so the disk may begin with them.
        let _ = rustix::fs::fadvise(
            &file,
            HEADER_BYTES as u64 + first.start,
            NonZeroU64::new(first.end - first.start),
            rustix::fs::Advice::WillNeed,
        );
        let head = Header::read(&file)?.of_piece(extent, version)?;
        Ok(OpenPiece { file, head })
    }

    pub fn extent(&self) -> Extent {
        self.head.extent
    }

    /// Fills `out` with the bytes from `offset` of the source on, all of which it must have. Nothing of `out` may be used after an error.
    ///
    /// # Errors
    /// The bytes cannot be read, or are not those that were written.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PieceFault> {
        let inside = offset >= self.head.extent.offset
            && offset + out.len() as u64 <= self.head.extent.end();
        if !inside {
            return Err(PieceFault::Wrong);
        }
        let (mut at, mut out) = ((offset - self.head.extent.offset) as usize, out);
        let mut scratch = Vec::new();
        while !out.is_empty() {
            let (block, within) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let whole = self.whole_blocks(block, out.len());
            let len = if within == 0 && whole > 0 {
                let (part, _) = out.split_at_mut(whole);
                self.read_blocks(block, part)?;
                whole
            } else {
                scratch.resize(self.block_len(block), 0);
                self.read_blocks(block, &mut scratch)?;
                let len = out.len().min(scratch.len() - within);
                out[..len].copy_from_slice(&scratch[within..within + len]);
                len
            };
            at += len;
            out = &mut out[len..];
        }
        Ok(())
    }

    fn block_len(&self, block: usize) -> usize {
        BLOCK_BYTES.min(self.head.extent.len as usize - block * BLOCK_BYTES)
    }

    /// Bytes of as many whole blocks from this one on as fit into `most`.
    fn whole_blocks(&self, block: usize, most: usize) -> usize {
        let left = self.head.extent.len as usize - block * BLOCK_BYTES;
        if most >= left {
            left
        } else {
            most - most % BLOCK_BYTES
        }
    }

    fn read_blocks(&self, first: usize, out: &mut [u8]) -> Result<(), PieceFault> {
        let at = HEADER_BYTES + first * BLOCK_BYTES;
        read_exact(&self.file, out, at as u64)?;
        if self.head.has(at as u64, out) {
            return Ok(());
        }
        Err(PieceFault::Wrong)
    }
}

fn read_exact(file: impl AsFd, mut out: &mut [u8], mut at: u64) -> Result<(), PieceFault> {
    while !out.is_empty() {
        match rustix::io::pread(&file, &mut *out, at) {
            Ok(0) => return Err(PieceFault::Wrong),
            Ok(len) => {
                out = &mut out[len..];
                at += len as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    fn sealed(offset: u64, bytes: &[u8], version: VersionHash) -> (Extent, Vec<u8>) {
        let mut buffer = PieceBuffer::new(offset, bytes.len() as u64, None);
        assert_eq!(buffer.take(bytes), bytes.len());
        let extent = buffer.extent();
        let file = buffer.seal(version, "source s3://b/k\n");
        assert_eq!(file.padded.as_ptr().align_offset(HEADER_BYTES), 0);
        assert!(file.padded.len().is_multiple_of(HEADER_BYTES));
        (extent, file.padded[..file.len].to_vec())
    }

    fn open(file: &[u8], extent: Extent, version: VersionHash) -> Result<OpenPiece, PieceFault> {
        let mut own = tempfile::tempfile().expect("a file");
        own.write_all(file).expect("written");
        own.seek(SeekFrom::Start(0)).expect("sought");
        let own: OwnedFd = own.into();
        if let Ok(text) = OpenPiece::text(&own) {
            assert_eq!(text, "source s3://b/k\n");
        }
        OpenPiece::new(own, extent, version, 0..1)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    #[test]
    fn what_was_written_is_read_at_any_offset() {
        let version = VersionHash::of("s3:b/k", "\"1\"");
        for len in [
            1,
            100,
            BLOCK_BYTES,
            BLOCK_BYTES + 1,
            3 * BLOCK_BYTES + 7,
            1 << 20,
        ] {
            let all = bytes(len);
            let (extent, file) = sealed(3 << 20, &all, version);
            assert_eq!(
                extent.file_bytes(),
                file.len().next_multiple_of(4096) as u64
            );
            let piece = open(&file, extent, version).expect("a piece");
            for (at, most) in [
                (0, len),
                (len / 2, len),
                (len / 3, 5),
                (len - 1, 1),
                (0, 40_000),
            ] {
                let part = &all[at..len.min(at + most)];
                let mut out = vec![0; part.len()];
                piece
                    .read(extent.offset + at as u64, &mut out)
                    .expect("right");
                assert!(out == part, "{at} of {len}");
            }
            assert!(piece.read(extent.end(), &mut [0]).is_err());
        }
    }

    #[test]
    fn every_flipped_bit_and_every_other_name_is_noticed() {
        let version = VersionHash::of("s3:b/k", "\"1\"");
        let all = bytes(70_000);
        let (extent, file) = sealed(0, &all, version);
        let read = |file: &[u8], extent: Extent, version: VersionHash| {
            let piece = open(file, extent, version)?;
            piece.read(extent.offset, &mut vec![0; extent.len as usize])
        };
        read(&file, extent, version).expect("right");
        let heads = (0..120).step_by(3);
        for at in heads.chain((HEADER_BYTES..file.len()).step_by(4099)) {
            let mut other = file.clone();
            other[at] ^= 1 << (at % 8);
            assert!(read(&other, extent, version).is_err(), "byte {at}");
        }
        for cut in [0, 10, HEADER_BYTES, file.len() - 1] {
            assert!(read(&file[..cut], extent, version).is_err(), "cut at {cut}");
        }
        assert!(read(&vec![0; file.len()], extent, version).is_err());
        assert!(read(&file, extent, VersionHash::of("s3:b/k", "\"2\"")).is_err());
        let moved = Extent {
            offset: 1 << 20,
            ..extent
        };
        assert!(read(&file, moved, version).is_err());
    }

    #[test]
    fn a_piece_of_another_format_is_none() {
        let version = VersionHash::of("s3:b/k", "\"1\"");
        let (extent, mut file) = sealed(0, &bytes(5000), version);
        let format_as = |file: &mut [u8], format: u32| {
            file[8..12].copy_from_slice(&format.to_le_bytes());
            let sum = checksum_of_header(&file[..HEADER_BYTES]);
            file[56..64].copy_from_slice(&sum.to_le_bytes());
        };
        format_as(&mut file, 9);
        let found = open(&file, extent, version).err();
        assert!(matches!(found, Some(PieceFault::Wrong)), "{found:?}");
        format_as(&mut file, FORMAT);
        assert!(open(&file, extent, version).is_ok());
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let extent = Extent {
            offset: 0x10_0000,
            len: 0x1_86a0,
        };
        assert_eq!(extent.name(false), "100000.186a0");
        for again in [false, true] {
            assert_eq!(Extent::of_name(&extent.name(again)), Some((extent, again)));
        }
        for name in [
            "about",
            ".1-2.new",
            "1.",
            ".1",
            "1.0",
            "1.100001",
            "g.1",
            "+1.1",
            "ffffffffffffffff.2",
        ] {
            assert_eq!(Extent::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn source_and_version_are_apart_in_the_hash() {
        assert!(VersionHash::of("a", "bc") != VersionHash::of("ab", "c"));
        let folder = VersionHash::of("a", "b").folder();
        assert_eq!((folder.len(), &folder[..2]), (35, &folder[3..5]));
        let own = VersionHash::of_name(&folder[3..]);
        assert!(own == Some(VersionHash::of("a", "b")));
        for name in [
            "",
            "+123456789abcdef0123456789abcdef",
            "ABCDEF00000000000000000000000000",
        ] {
            assert!(VersionHash::of_name(name).is_none(), "{name}");
        }
    }
}
