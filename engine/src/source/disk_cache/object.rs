//! One version of a source on disk: a file with its bytes, and a file with their checksums.
//!
//! ```text
//!   ab/abcd....sums   0     8 magic | 4 format | 4 unused | 8 source size | 16 version | 8 header checksum (skips itself and the next two)
//!                     48    8 offset where the next eviction of a part begins (evict.rs)
//!                     56    8 identity of the data file when all of its bytes were known to be right, 0 before (whole.rs)
//!                     64    text for users: the name of the source without secrets, its version and its size
//!                     2048  8 for each block of 4 KiB: its checksum, 0 where the block is absent
//!                     ...   an extra last byte, which makes the length odd, if the version was used again after it had been written
//!   ab/abcd....data   the bytes at their own offsets, sparse, as long as the source
//! ```
//! A source of at most 32 KiB has only one file, in which its bytes follow the checksums. Numbers are little-endian. A checksum is the
//! CRC-64/NVME of a block and of its position. Bytes are written before their checksums. If the source has more than 1 MiB, its bytes are
//! written with direct I/O, so that they are not copied into the page cache. A block counts as cached if its checksum is not 0 and
//! matches, so the files need no fsync. Every read verifies the checksum, so a block that was only partly written, changed, moved or
//! evicted counts as absent. If several processes write the same block at the same time, they write the same bytes.
//!
//! Example: in an object of 100,000 bytes, the second block begins at byte 4096 of `.data`, and its checksum at byte 2056 of `.sums`.

use super::folder::{CacheFolder, disk_bytes, inside, read_full, used_ns};
use super::hash::{BLOCK_BYTES, VersionHash, checksum};
use crate::source::descriptor::{lock, write_all};
use crate::source::sinks::FillPlace;
use crate::sync;
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

pub const HEADER_BYTES: u64 = 2048;
const TEXT_AT: usize = 64;
const CURSOR_AT: u64 = 48;
const NOTED_AT: u64 = 56;
const MAGIC: [u8; 8] = *b"foreobje";
const FORMAT: u32 = 2;
/// A source of at most this many bytes is stored in one file.
pub const SMALL_BYTES: u64 = 32 << 10;
/// A version larger than this is written piece by piece with direct I/O, and recorded as valid when it is complete. A smaller version is
/// written as a whole, and verified when it is opened.
pub const LARGE_BYTES: u64 = 1 << 20;
/// The memory address of a buffer for direct I/O must be a multiple of this number.
pub const DIRECT_ALIGN: usize = BLOCK_BYTES as usize;
/// The offset of the byte in the checksum file that is locked while the data must not be removed. A process that uses the file for
/// FUSE passthrough holds a shared lock on this byte; to evict a part of the data, a process needs an exclusive lock.
pub const PIN_AT: i64 = 1 << 60;
/// Maximum number of blocks that are verified together.
pub const MAX_BLOCKS: u64 = 4096;
/// How often a process checks whether another process has removed an open file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A use is noted at most this often.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Why bytes cannot be read from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Io(Errno),
    /// A file of the version does not exist.
    NoFile,
    /// The bytes are not cached.
    Absent,
    /// The checksum does not match: that of this block, or of the whole version.
    Wrong(Option<u64>),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        match errno {
            Errno::NOENT | Errno::STALE => Fault::NoFile,
            // There is a link, a folder or a device instead of a file.
            Errno::LOOP | Errno::INVAL | Errno::NXIO | Errno::XDEV | Errno::ISDIR => {
                Fault::Wrong(None)
            }
            errno => Fault::Io(errno),
        }
    }
}

pub struct ObjectFiles {
    hash: VersionHash,
    size: u64,
    sums: OwnedFd,
    /// `None` for a small source.
    data: Option<OwnedFd>,
    /// The data file of a large version for direct writes.
    direct: Option<OwnedFd>,
    is_writable: bool,
    /// Number of blocks of a large version that this process has written; `None` if it did not create the data file.
    own_blocks: Option<AtomicU64>,
    /// Whether some of them were written through the page cache.
    is_unsynced: AtomicBool,
    looked: Mutex<Look>,
}

struct Look {
    at: Instant,
    noted: Option<Instant>,
}

fn sums_name(hash: VersionHash) -> String {
    format!("{}.sums", hash.name())
}

fn data_name(hash: VersionHash) -> String {
    format!("{}.data", hash.name())
}

fn path(hash: VersionHash, name: fn(VersionHash) -> String) -> String {
    inside(&hash.folder(), &name(hash))
}

/// Whether a version has a checksum file.
pub fn is_there(folder: &CacheFolder, hash: VersionHash) -> bool {
    folder
        .open_file(&path(hash, sums_name), OFlags::RDONLY)
        .is_ok()
}

/// Removes the files of a version. The data file is removed first: otherwise another process could create a new checksum file while
/// the data is still locked through the old one.
pub fn remove(folder: &CacheFolder, hash: VersionHash) -> Result<(), Errno> {
    let own = hash.folder();
    for name in [data_name(hash), sums_name(hash)] {
        match folder.remove(&own, &name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}

/// The end of a source's checksum file, and the offset of the extra byte.
fn end_of(size: u64) -> u64 {
    let small = if size <= SMALL_BYTES { size } else { 0 };
    HEADER_BYTES + 8 * blocks_of(size) + small.next_multiple_of(8)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

pub struct ObjectHeader {
    pub size: u64,
    pub text: String,
    /// The identity that [`ObjectFiles::note`] has stored, or 0.
    noted: u64,
}

impl ObjectHeader {
    fn bytes(hash: VersionHash, size: u64, text: &str) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[16..24].copy_from_slice(&size.to_le_bytes());
        header[24..40].copy_from_slice(&hash.bytes());
        let text = &text.as_bytes()[..text.len().min(HEADER_BYTES as usize - TEXT_AT)];
        header[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text);
        let sum = header_sum(&header);
        header[40..48].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Opens the checksum file of a version, and reads the header.
    pub fn open(folder: &CacheFolder, hash: VersionHash) -> Result<ObjectHeader, Fault> {
        let (sums, _) = folder.open_file(&path(hash, sums_name), OFlags::RDONLY)?;
        ObjectHeader::read(&sums, hash)
    }

    fn of_size(sums: &OwnedFd, hash: VersionHash, size: u64) -> Result<ObjectHeader, Fault> {
        let header = ObjectHeader::read(sums, hash)?;
        if header.size == size {
            return Ok(header);
        }
        Err(Fault::Wrong(None))
    }

    /// Reads the header of a file.
    fn read(sums: &OwnedFd, hash: VersionHash) -> Result<ObjectHeader, Fault> {
        let mut header = [0; HEADER_BYTES as usize];
        let len = read_full(sums, &mut header, 0)?;
        if len == 0 {
            // The file was created and is not written yet.
            return Err(Fault::Absent);
        }
        let is_right = len == header.len()
            && header[..8] == MAGIC
            && header[8..12] == FORMAT.to_le_bytes()
            && header[24..40] == hash.bytes()
            && number(&header, 40) == header_sum(&header)
            && number(&header, 16) <= i64::MAX as u64;
        if !is_right {
            return Err(Fault::Wrong(None));
        }
        let text = header[TEXT_AT..].split(|byte| *byte == 0).next();
        Ok(ObjectHeader {
            size: number(&header, 16),
            text: String::from_utf8_lossy(text.unwrap_or_default()).into_owned(),
            noted: number(&header, NOTED_AT as usize),
        })
    }
}

/// The checksums of these blocks, as they are stored.
fn sums_of(hash: VersionHash, first: u64, bytes: &[u8]) -> Vec<u8> {
    let blocks = bytes.chunks(BLOCK_BYTES as usize).zip(first..);
    blocks
        .flat_map(|(bytes, block)| hash.sum(block, bytes).to_le_bytes())
        .collect()
}

fn header_sum(header: &[u8]) -> u64 {
    checksum(&[&header[..40], &header[TEXT_AT..]].concat())
}

impl ObjectFiles {
    pub fn open(folder: &CacheFolder, hash: VersionHash, size: u64) -> Result<ObjectFiles, Fault> {
        let (sums, is_writable) = open_any(folder, &path(hash, sums_name))?;
        ObjectHeader::of_size(&sums, hash, size)?;
        let data = (size > SMALL_BYTES)
            .then(|| open_any(folder, &path(hash, data_name)))
            .transpose()?;
        let is_data_writable = data.as_ref().is_none_or(|(_, writable)| *writable);
        Ok(ObjectFiles {
            is_writable: is_writable && is_data_writable,
            ..ObjectFiles::of(hash, size, sums, data.map(|(file, _)| file))
        })
    }

    /// Opens the files of a version that has a data file; the data file is opened only for reading. Also returns the state of the data
    /// file (stat), and the identity that [`ObjectFiles::note`] has stored, or 0.
    pub fn open_to_pass(
        folder: &CacheFolder,
        hash: VersionHash,
        size: u64,
    ) -> Result<(ObjectFiles, Stat, u64), Fault> {
        let (sums, _) = open_any(folder, &path(hash, sums_name))?;
        let path = path(hash, data_name);
        let (data, stat) = folder.open_file(&path, OFlags::RDONLY)?;
        if size <= LARGE_BYTES {
            // All of it is verified soon: the disk then reads both files at the same time.
            let _ = rustix::fs::fadvise(&data, 0, None, rustix::fs::Advice::WillNeed);
        }
        let noted = ObjectHeader::of_size(&sums, hash, size)?.noted;
        let files = ObjectFiles::of(hash, size, sums, Some(data));
        Ok((files, stat, noted))
    }

    fn of(hash: VersionHash, size: u64, sums: OwnedFd, data: Option<OwnedFd>) -> ObjectFiles {
        let used = rustix::fs::fstat(&sums).map(|stat| stat.st_mtime.cast_unsigned());
        // A time in the future is of another clock.
        let age = used
            .ok()
            .and_then(|used| (UNIX_EPOCH + Duration::from_secs(used)).elapsed().ok());
        let age = age.filter(|age| *age < NOTE_EVERY);
        let noted = age.and_then(|age| Instant::now().checked_sub(age));
        ObjectFiles {
            hash,
            size,
            sums,
            data,
            direct: None,
            is_writable: true,
            own_blocks: None,
            is_unsynced: AtomicBool::new(false),
            looked: Mutex::new(Look {
                at: Instant::now(),
                noted,
            }),
        }
    }

    /// Creates the files of a version of at most [`LARGE_BYTES`], with all of its bytes. Returns the disk space that they use.
    ///
    /// # Errors
    /// Returns [`Errno::EXIST`] if files of this version already exist.
    pub fn create(
        folder: &CacheFolder,
        hash: VersionHash,
        bytes: &[u8],
        text: &str,
    ) -> Result<(ObjectFiles, u64), Errno> {
        let (own, size) = (hash.folder(), bytes.len() as u64);
        let sums = folder.make_file(&own, &sums_name(hash))?;
        let mut content = ObjectHeader::bytes(hash, size, text);
        content.extend(sums_of(hash, 0, bytes));
        let data = (size > SMALL_BYTES)
            .then(|| folder.make_file(&own, &data_name(hash)))
            .transpose()?;
        match &data {
            Some(data) => write_all(data, bytes, 0)?,
            None => content.extend(bytes),
        }
        content.resize(end_of(size) as usize, 0);
        write_all(&sums, &content, 0)?;
        let files = ObjectFiles::of(hash, size, sums, data);
        let in_data = u64::from(files.data.is_some()) * size.next_multiple_of(BLOCK_BYTES);
        Ok((files, end_of(size).next_multiple_of(BLOCK_BYTES) + in_data))
    }

    /// Creates the missing files of a version. Returns the disk space that these files use.
    pub fn make(
        folder: &CacheFolder,
        hash: VersionHash,
        size: u64,
        text: &str,
    ) -> Result<(ObjectFiles, u64), Errno> {
        let own = hash.folder();
        let file = |name: &str| match folder.make_file(&own, name) {
            Err(Errno::EXIST) => match folder.open_file(&inside(&own, name), OFlags::RDWR) {
                Ok((file, _)) => Ok((file, false)),
                // Removes what is there instead of a file, but not a folder.
                Err(Errno::LOOP | Errno::INVAL | Errno::NXIO | Errno::PERM) => {
                    folder.remove(&own, name)?;
                    folder.make_file(&own, name).map(|file| (file, true))
                }
                Err(errno) => Err(errno),
            },
            done => done.map(|file| (file, true)),
        };
        let (sums, is_new) = file(&sums_name(hash))?;
        let data = (size > SMALL_BYTES)
            .then(|| file(&data_name(hash)))
            .transpose()?;
        let has_new_data = data.as_ref().is_some_and(|(_, is_new)| *is_new);
        let is_right = !is_new && ObjectHeader::of_size(&sums, hash, size).is_ok();
        // Checksums without data are not trusted; neither are those with an invalid header.
        if !is_right || has_new_data {
            rustix::fs::ftruncate(&sums, 0)?;
            write_all(&sums, &ObjectHeader::bytes(hash, size, text), 0)?;
            // A small source of odd size must not make the length of the file odd: an odd length marks a second use.
            if size <= SMALL_BYTES {
                rustix::fs::ftruncate(&sums, end_of(size))?;
            }
        }
        let (mut direct, mut is_noted) = (None, false);
        if let Some((data, _)) = &data {
            let stat = rustix::fs::fstat(data)?;
            if stat.st_size.cast_unsigned() != size {
                rustix::fs::ftruncate(data, size)?;
            }
            if size > LARGE_BYTES && is_local(&stat) {
                is_noted = has_new_data;
                let path = path(hash, data_name);
                let opened = folder.open_file(&path, OFlags::RDWR | OFlags::DIRECT);
                // Without direct I/O, the file is written through the page cache.
                direct = opened.ok().filter(|(_, own)| own.st_ino == stat.st_ino);
            }
        }
        let made = u64::from(is_new) * end_of(size).next_multiple_of(BLOCK_BYTES);
        let files = ObjectFiles {
            direct: direct.map(|(file, _)| file),
            own_blocks: is_noted.then(AtomicU64::default),
            ..ObjectFiles::of(hash, size, sums, data.map(|(data, _)| data))
        };
        let _ = files.is_due();
        Ok((files, made))
    }

    /// Returns true if the files are open for writing and still exist under their names.
    pub fn is_written(&self) -> bool {
        self.is_writable && self.is_linked()
    }

    /// Returns true if the files still exist under their names.
    pub fn is_linked(&self) -> bool {
        rustix::fs::fstat(&self.sums).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// Like [`ObjectFiles::is_linked`], but for readers, and checked only from time to time. A removed file uses disk space until
    /// it is closed.
    pub fn is_current(&self) -> bool {
        let mut looked = sync::lock(&self.looked);
        if looked.at.elapsed() < LOOK_EVERY {
            return true;
        }
        looked.at = Instant::now();
        self.is_linked()
    }

    /// Returns the checksums of `count` blocks from `first` on, or fewer at the end of the source.
    pub fn sums(&self, first: u64, count: u64) -> Result<Vec<u64>, Fault> {
        let count = count
            .min(MAX_BLOCKS)
            .min(blocks_of(self.size).saturating_sub(first));
        let mut bytes = vec![0; 8 * count as usize];
        read_full(&self.sums, &mut bytes, HEADER_BYTES + 8 * first)?;
        Ok(bytes.chunks_exact(8).map(|sum| number(sum, 0)).collect())
    }

    fn data(&self) -> (&OwnedFd, u64) {
        let small = || (&self.sums, HEADER_BYTES + 8 * blocks_of(self.size));
        self.data.as_ref().map_or_else(small, |data| (data, 0))
    }

    fn block_len(&self, block: u64) -> usize {
        (self.size - block * BLOCK_BYTES).min(BLOCK_BYTES) as usize
    }

    /// Reads from the offset of `place` up to `end`; `sums` has the checksums of these blocks. If there is an error, the bytes that
    /// were read before it are valid and stay in `place`.
    pub fn read(&self, sums: &[u64], place: &mut FillPlace<'_>, end: u64) -> Result<(), Fault> {
        let first = place.at / BLOCK_BYTES;
        while place.at < end {
            let (at, block) = (place.at, place.at / BLOCK_BYTES);
            let sums = sums.get((block - first) as usize..).unwrap_or_default();
            let Some(room) = place.room(end - at) else {
                break;
            };
            let fits = match at.is_multiple_of(BLOCK_BYTES) {
                true if at + room.len() as u64 == self.size => room.len(),
                true => room.len() / BLOCK_BYTES as usize * BLOCK_BYTES as usize,
                false => 0,
            };
            if fits > 0 {
                let done = self.read_blocks(block, &mut room[..fits], sums);
                let right = match done {
                    Ok(()) => fits,
                    Err(Fault::Wrong(Some(wrong))) => ((wrong - block) * BLOCK_BYTES) as usize,
                    Err(fault) => return Err(fault),
                };
                place.advance(right);
                done?;
                continue;
            }
            let mut whole = [0; BLOCK_BYTES as usize];
            let whole = &mut whole[..self.block_len(block)];
            self.read_blocks(block, whole, sums)?;
            let from = (at - block * BLOCK_BYTES) as usize;
            let to = whole.len().min(from + (end - at) as usize);
            place.put(&whole[from..to]);
        }
        Ok(())
    }

    /// Reads whole blocks, and verifies each of them.
    pub fn read_blocks(&self, first: u64, buffer: &mut [u8], sums: &[u64]) -> Result<(), Fault> {
        let (file, data_at) = self.data();
        let len = read_full(file, buffer, data_at + first * BLOCK_BYTES)?;
        for (index, bytes) in buffer.chunks(BLOCK_BYTES as usize).enumerate() {
            let block = first + index as u64;
            let end = index * BLOCK_BYTES as usize + bytes.len();
            let sum = sums.get(index).copied().unwrap_or(0);
            if end > len || self.hash.sum(block, bytes) != sum {
                return Err(Fault::Wrong(Some(block)));
            }
        }
        Ok(())
    }

    /// Writes whole blocks; only the last block of the source may be shorter. Returns approximately how much disk space the blocks
    /// take.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let first = offset / BLOCK_BYTES;
        let sums = sums_of(self.hash, first, bytes);
        let mut before = vec![0; sums.len()];
        read_full(&self.sums, &mut before, HEADER_BYTES + 8 * first)?;
        let absent = before
            .chunks_exact(8)
            .filter(|sum| number(sum, 0) == 0)
            .count();
        let direct = self.write_direct(offset, bytes)?;
        let (file, data_at) = self.data();
        write_all(file, &bytes[direct..], data_at + offset + direct as u64)?;
        write_all(&self.sums, &sums, HEADER_BYTES + 8 * first)?;
        // The last block of a source may be partial; it is verified at each open (whole.rs).
        if bytes.len() - direct >= BLOCK_BYTES as usize {
            self.is_unsynced.store(true, Ordering::Relaxed);
        }
        if let Some(own) = &self.own_blocks {
            own.fetch_add(absent as u64, Ordering::Relaxed);
        }
        sync::lock(&self.looked).noted = Some(Instant::now());
        let has_data = u64::from(self.data.is_some());
        Ok(absent as u64 * has_data * (BLOCK_BYTES + 8))
    }

    /// Writes whole blocks with direct I/O, if this is possible. Returns the number of bytes written.
    fn write_direct(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let len = bytes.len() / BLOCK_BYTES as usize * BLOCK_BYTES as usize;
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(DIRECT_ALIGN);
        let Some(direct) = self.direct.as_ref().filter(|_| is_aligned && len > 0) else {
            return Ok(0);
        };
        match write_all(direct, &bytes[..len], offset) {
            Ok(()) => Ok(len),
            // The file system or the device requires more than this alignment.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// Returns true if this process itself has written all bytes of the version, each of them once.
    pub fn is_own(&self) -> bool {
        let own = self.own_blocks.as_ref();
        own.is_some_and(|own| own.load(Ordering::Relaxed) == blocks_of(self.size))
    }

    /// Returns true if bytes other than a partial last block were written through the page cache.
    pub fn is_unsynced(&self) -> bool {
        self.is_unsynced.load(Ordering::Relaxed)
    }

    pub fn checksums(&self) -> &OwnedFd {
        &self.sums
    }

    pub fn data_file(&self) -> &OwnedFd {
        self.data().0
    }

    /// Records that all bytes of the data file are valid: stores the file's identity (see `whole`) in the header of the checksum file.
    pub fn note(&self, identity: u64) -> Result<(), Errno> {
        write_all(&self.sums, &identity.to_le_bytes(), NOTED_AT)
    }

    /// Marks blocks as absent.
    pub fn forget(&self, first: u64, count: u64) -> Result<(), Errno> {
        let count = count.min(blocks_of(self.size).saturating_sub(first));
        write_all(
            &self.sums,
            &vec![0; 8 * count as usize],
            HEADER_BYTES + 8 * first,
        )
    }

    /// Returns true if a use of the version should be recorded now; at most one use per minute is recorded.
    pub fn is_due(&self) -> bool {
        let mut looked = sync::lock(&self.looked);
        let is_due = looked
            .noted
            .is_none_or(|noted| noted.elapsed() >= NOTE_EVERY);
        if is_due {
            looked.noted = Some(Instant::now());
        }
        is_due
    }

    /// Records that the version was used again.
    pub fn note_use(&self) -> Result<(), Errno> {
        let end = end_of(self.size);
        if rustix::fs::fstat(&self.sums)?.st_size.cast_unsigned() <= end {
            write_all(&self.sums, &[1], end)?;
        }
        self.set_used(0, rustix::fs::UTIME_NOW)
    }

    fn set_used(&self, tv_sec: i64, tv_nsec: i64) -> Result<(), Errno> {
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(&self.sums, &times)
    }

    /// Returns the runs of cached blocks in their order: the first block and the checksums of at most `most` blocks. Their number depends
    /// only on the real length of the checksum file, not on the size in its header.
    pub fn runs(&self, most: u64) -> impl Iterator<Item = Result<(u64, Vec<u64>), Fault>> {
        let len = rustix::fs::fstat(&self.sums).map_or(0, |stat| stat.st_size.cast_unsigned());
        let last = len.saturating_sub(HEADER_BYTES).div_ceil(8);
        let mut first = 0;
        std::iter::from_fn(move || {
            loop {
                let mut sums = match self.sums(first, most.min(last.saturating_sub(first))) {
                    Ok(sums) if sums.is_empty() => return None,
                    Ok(sums) => sums,
                    Err(fault) => {
                        first = last;
                        return Some(Err(fault));
                    }
                };
                let absent = sums.iter().take_while(|sum| **sum == 0).count();
                sums.drain(..absent);
                let here = sums.iter().take_while(|sum| **sum != 0).count();
                sums.truncate(here);
                let start = first + absent as u64;
                first = start + here as u64;
                if here > 0 {
                    return Some(Ok((start, sums)));
                }
            }
        })
    }

    /// The bytes of the source in these blocks.
    pub fn bytes_of(&self, first: u64, count: usize) -> Range<u64> {
        let at = |block: u64| (block * BLOCK_BYTES).min(self.size);
        at(first)..at(first + count as u64)
    }

    /// Drops `len` bytes of the data file, or all bytes up to its end, from the page cache, so that they do not displace other files'
    /// pages.
    pub fn drop_pages(&self, from: u64, len: Option<NonZeroU64>) {
        let (file, _) = self.data();
        let _ = rustix::fs::fadvise(file, from, len, rustix::fs::Advice::DontNeed);
    }

    // ---- eviction of parts ----

    /// Evicts a part of the version: frees the disk space of the `part` bytes after the range that was freed last. Returns the number of
    /// bytes freed. Returns `None` if the file system cannot punch holes, or if a process uses the file for passthrough.
    pub fn give_part(&self, part: u64) -> Option<u64> {
        let data = self.data.as_ref()?;
        lock(&self.sums, libc::F_WRLCK, PIN_AT, 1).ok()?;
        let freed = self.punch(data, part);
        let _ = lock(&self.sums, libc::F_UNLCK, PIN_AT, 1);
        freed.ok().filter(|freed| *freed > 0)
    }

    fn punch(&self, data: &OwnedFd, part: u64) -> Result<u64, Errno> {
        let used = rustix::fs::fstat(&self.sums)?;
        let mut cursor = [0; 8];
        read_full(&self.sums, &mut cursor, CURSOR_AT)?;
        let from = Some(number(&cursor, 0)).filter(|from| *from < self.size);
        let next = |from| rustix::fs::seek(data, rustix::fs::SeekFrom::Data(from));
        let at = match next(from.unwrap_or(0)) {
            // The end was reached: begin again at the start.
            Err(Errno::NXIO) => next(0),
            done => done,
        }?;
        let start = at / part * part;
        let before = disk_bytes(&rustix::fs::fstat(data)?);
        self.forget(start / BLOCK_BYTES, part / BLOCK_BYTES)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(data, hole, start, part)?;
        write_all(&self.sums, &(start + part).to_le_bytes(), CURSOR_AT)?;
        // This eviction must not count as a use.
        let _ = self.set_used(used.st_mtime, used.st_mtime_nsec.cast_signed());
        Ok(before.saturating_sub(disk_bytes(&rustix::fs::fstat(data)?)))
    }
}

/// Whether a file is on a disk of this machine. Files of NFS, FUSE and tmpfs, but also of Btrfs, have no block device.
pub fn is_local(stat: &Stat) -> bool {
    rustix::fs::major(stat.st_dev) != 0
}

/// Opens a file for writing, or for reading if it cannot be written. Returns whether it is writable.
fn open_any(folder: &CacheFolder, path: &str) -> Result<(OwnedFd, bool), Fault> {
    match folder.open_file(path, OFlags::RDWR) {
        Ok((file, _)) => Ok((file, true)),
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => {
            let (file, _) = folder.open_file(path, OFlags::RDONLY)?;
            Ok((file, false))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// A version that the scan of a subfolder found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObject {
    pub hash: VersionHash,
    /// Bytes that both files use on disk.
    pub bytes: u64,
    pub used_ns: i128,
    pub used_again: bool,
}

/// Scans a subfolder. Returns the versions in the subfolder, and the bytes that it uses, including the folder itself.
pub fn found(folder: &CacheFolder, own: &str) -> Result<(Vec<FoundObject>, u64), Errno> {
    let mut objects: BTreeMap<VersionHash, FoundObject> = BTreeMap::new();
    let mut bytes = match folder.open_folder(own) {
        Err(Errno::NOENT) => return Ok((Vec::new(), 0)),
        at => disk_bytes(&rustix::fs::fstat(&at?)?),
    };
    folder.entries(own, &mut |name, stat| {
        let Some((hash, kind @ ("sums" | "data"))) = name.split_once('.') else {
            return true;
        };
        let Some(hash) = VersionHash::of_name(hash).filter(|hash| hash.folder() == own) else {
            return true;
        };
        let object = objects.entry(hash).or_insert(FoundObject {
            hash,
            bytes: 0,
            used_ns: used_ns(stat),
            used_again: false,
        });
        object.bytes += disk_bytes(stat);
        bytes += disk_bytes(stat);
        if kind == "sums" {
            object.used_ns = used_ns(stat);
            object.used_again = stat.st_size % 2 == 1;
        }
        true
    })?;
    Ok((objects.into_values().collect(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::disk_cache::settings::DiskCacheSettings;
    use crate::source::disk_cache::whole::{WholeFile, note};
    use crate::source::sinks::Slices;
    use std::io::IoSliceMut;
    use std::os::unix::net::UnixStream;

    const SIZE: u64 = 3 * (8 << 20) + 5000;

    fn folder() -> (tempfile::TempDir, CacheFolder) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = CacheFolder::open(&DiskCacheSettings::new(dir.path().join("c")));
        (dir, folder.expect("opened"))
    }

    fn bytes(at: u64, len: usize) -> Vec<u8> {
        (at..)
            .take(len)
            .map(|at| (at / 7) as u8 ^ at as u8)
            .collect()
    }

    fn filled(folder: &CacheFolder, hash: VersionHash, size: u64) -> ObjectFiles {
        let (files, made) = ObjectFiles::make(folder, hash, size, "source s\n").expect("made");
        assert!(made > 0);
        let mut at = 0;
        while at < size {
            let len = (size - at).min(1 << 20);
            files.write(at, &bytes(at, len as usize)).expect("written");
            at += len;
        }
        files
    }

    /// Reads from `at` on. Returns the valid bytes, and the result.
    fn read(files: &ObjectFiles, at: u64, len: usize) -> (Vec<u8>, Result<(), Fault>) {
        let end = at + len as u64;
        let first = at / BLOCK_BYTES;
        let sums = files.sums(first, end.div_ceil(BLOCK_BYTES) - first);
        let mut buffer = vec![0; len];
        let mut bufs = [IoSliceMut::new(&mut buffer)];
        let mut slices = Slices::new(&mut bufs);
        let mut place: FillPlace<'_> = FillPlace::new(&mut slices, at);
        let done = files.read(&sums.expect("sums"), &mut place, end);
        let read = (place.at - at) as usize;
        buffer.truncate(read);
        (buffer, done)
    }

    fn is_whole(folder: &CacheFolder, hash: VersionHash, size: u64) -> bool {
        WholeFile::open(folder, hash, size, Some(&|| true)).is_ok()
    }

    #[test]
    fn any_part_is_read_as_it_was_written() {
        let (_dir, folder) = folder();
        let used_again = |hash: VersionHash| {
            let (found, _) = found(&folder, &hash.folder()).expect("looked at");
            let of = found.iter().find(|object| object.hash == hash);
            of.map(|object| object.used_again)
        };
        for size in [1, 4096, 32_768, 32_769, 100_000] {
            let name = size.to_string();
            let hash = VersionHash::of(&name, "1");
            let files = filled(&folder, hash, size);
            let (half, third) = (size / 2, size / 3);
            for part in [0..size, 0..1, half..size, size - 1..size, third..third + 1] {
                let (at, len) = (part.start, (part.end - part.start) as usize);
                assert_eq!(read(&files, at, len), (bytes(at, len), Ok(())), "{part:?}");
            }
            let later = ObjectFiles::open(&folder, hash, size).expect("opened");
            assert_eq!(read(&later, 0, size as usize).0, bytes(0, size as usize));
            let other = ObjectFiles::open(&folder, hash, size + 1);
            assert_eq!(other.err(), Some(Fault::Wrong(None)), "another size");
            assert_eq!(used_again(hash), Some(false));
            assert!(!later.is_due(), "its writer used it within the minute");
            later.note_use().expect("noted");
            assert_eq!(used_again(hash), Some(true));

            // The same by one call.
            let hash = VersionHash::of(&name, "2");
            let create = || ObjectFiles::create(&folder, hash, &bytes(0, size as usize), "s\n");
            drop(create().expect("created"));
            let later = ObjectFiles::open(&folder, hash, size).expect("opened");
            let all = (bytes(0, size as usize), Ok(()));
            assert_eq!(read(&later, 0, size as usize), all);
            assert_eq!(create().err(), Some(Errno::EXIST));
            assert_eq!(used_again(hash), Some(false));
        }
    }

    #[test]
    fn a_size_of_a_header_is_not_walked_beyond_its_checksums() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let size = 1 << 40;
        let (files, _) = ObjectFiles::make(&folder, hash, size, "source s\n").expect("made");
        assert!(files.runs(1).next().is_none());
        let header = ObjectHeader::bytes(hash, u64::MAX, "source s\n");
        write_all(&files.sums, &header, 0).expect("written");
        let read = ObjectHeader::read(&files.sums, hash);
        assert_eq!(read.err(), Some(Fault::Wrong(None)), "no file is as large");
    }

    #[test]
    fn a_block_that_is_wrong_or_gone_ends_a_read_before_it() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let files = filled(&folder, hash, 100_000);
        let data = files.data.as_ref().expect("a file");
        write_all(data, &[!bytes(50_000, 1)[0]], 50_000).expect("changed");
        let block = 50_000 / BLOCK_BYTES;
        let (right, done) = read(&files, 0, 100_000);
        assert_eq!(done, Err(Fault::Wrong(Some(block))));
        assert_eq!(right, bytes(0, (block * BLOCK_BYTES) as usize));
        assert_eq!(read(&files, 49_999, 10), (Vec::new(), done));
        files.forget(block, 1).expect("written");
        assert_eq!(files.sums(block, 1), Ok(vec![0]));
        rustix::fs::ftruncate(data, 10).expect("cut");
        assert_eq!(read(&files, 8192, 4096).1, Err(Fault::Wrong(Some(2))));
    }

    #[test]
    fn a_version_that_the_disk_did_not_take_is_forgotten() {
        let (_dir, folder) = folder();
        let mut files = filled(&folder, VersionHash::of("a", "1"), 100_000);
        // A socket cannot be synced.
        files.data = Some(UnixStream::pair().expect("a pair").0.into());
        files.is_unsynced = AtomicBool::new(true);
        note(&files);
        assert_eq!(files.sums(0, 99), Ok(vec![0; 25]));
    }

    #[test]
    fn a_header_of_another_format_is_invalid() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let files = filled(&folder, hash, 5000);
        let mut header = ObjectHeader::bytes(hash, 5000, "source s\n");
        header[8] = 3;
        let sum = header_sum(&header);
        header[40..48].copy_from_slice(&sum.to_le_bytes());
        write_all(&files.sums, &header, 0).expect("written");
        let opened = ObjectFiles::open(&folder, hash, 5000);
        assert_eq!(opened.err(), Some(Fault::Wrong(None)));
        // The file is created anew, without the blocks.
        let (files, _) = ObjectFiles::make(&folder, hash, 5000, "").expect("made");
        assert_eq!(files.sums(0, 9), Ok(vec![0, 0]));
    }

    #[test]
    fn parts_are_evicted_in_order_but_not_during_passthrough() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let files = filled(&folder, hash, SIZE);
        let whole = WholeFile::open(&folder, hash, SIZE, Some(&|| true)).expect("whole");
        let evictor = ObjectFiles::open(&folder, hash, SIZE).expect("opened");
        assert_eq!(evictor.give_part(8 << 20), None, "it is passed through");
        drop(whole);
        let before = found(&folder, &hash.folder()).expect("looked at").0;
        let freed = evictor.give_part(8 << 20);
        assert!(freed.is_some_and(|freed| freed >= 7 << 20), "{freed:?}");
        let after = found(&folder, &hash.folder()).expect("looked at").0;
        assert_eq!(after[0].used_ns, before[0].used_ns, "that was no use");
        assert_eq!(files.sums(0, 1), Ok(vec![0]));
        assert_eq!(read(&files, 8 << 20, 4096).1, Ok(()));
        assert!(evictor.give_part(8 << 20).is_some());
        assert_eq!(files.sums(2048, 1), Ok(vec![0]));
        assert!(!is_whole(&folder, hash, SIZE));
        // A refetched block must not be the next to be evicted.
        files.write(0, &bytes(0, 4096)).expect("written");
        assert!(evictor.give_part(8 << 20).is_some());
        assert_eq!(read(&files, 0, 4096).1, Ok(()));
    }

    #[test]
    fn a_file_that_was_removed_is_never_whole() {
        let (_dir, folder) = folder();
        let hash = VersionHash::of("a", "1");
        let files = filled(&folder, hash, 100_000);
        let whole = WholeFile::open(&folder, hash, 100_000, Some(&|| true)).expect("whole");
        assert!(whole.files.is_linked() && files.is_written());
        remove(&folder, hash).expect("removed");
        assert!(!whole.files.is_linked() && !files.is_written());
        assert!(!is_whole(&folder, hash, 100_000));
        let (again, _) = ObjectFiles::make(&folder, hash, 100_000, "").expect("made");
        assert_eq!(again.sums(0, 1), Ok(vec![0]));
        // The data file is gone, but the checksums are not.
        again.write(0, &bytes(0, 4096)).expect("written");
        let removed = folder.remove(&hash.folder(), &data_name(hash));
        removed.expect("removed");
        let (again, _) = ObjectFiles::make(&folder, hash, 100_000, "").expect("made");
        assert_eq!(again.sums(0, 99), Ok(vec![0; 25]));
    }
}
