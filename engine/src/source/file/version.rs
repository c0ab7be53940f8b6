//! The version of a file: how to recognise it, and how to treat a file that has grown.
//!
//! If a file grew, either data was appended, or a longer file was copied over it (`cp` truncates, then writes; between two checks
//! only the larger size remains visible). To tell these cases apart, foreread remembers the hashes of a few samples of the data
//! that it reads, and reads these samples again when the file has grown. If the samples are unchanged, the file is the same
//! version with a larger size. Otherwise the file has changed.
//!
//! ```text
//!   read ──► same size and time? ── yes ──► Ok, and now and then a piece of it is added to the sample
//!               │ larger                      (the old last page, and at most 16 pieces of 4 KiB, spread over all reads)
//!               ├─ `appending` is set ───────────────────────────────► Ok, the new size
//!               ├─ the sample is read again ── equal ────────────────► Ok, the new size
//!               │                           └─ different, or shorter ► Changed
//!               └─ open for writing ─────────────────────────────────► Changed
//!   anything else differs ──► Changed
//! ```
//!
//! The samples do not cover a read that was in flight while the file grew. So all bytes of a read that was in flight are compared with
//! the file once more:
//!
//! ```text
//!   read A: ── begin, growths 0 ── bytes of version 1 ─────────────────────── growths 1: compare ── different ► Changed
//!   read B:              ── begin ── bytes of version 2 ── longer, sample empty: growths 1 ──► Ok
//! ```
//!
//! If a longer file is copied over this file, and both have the same bytes in all samples, foreread does not detect the change.

use super::{Core, SourceError};
use crate::sync::lock;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::hash::{BuildHasher, Hasher};
use std::io::IoSliceMut;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of a piece, and of the last page.
const PIECE_BYTES: u64 = 4096;
/// Bytes compared at a time if the file grew during a read.
const COMPARE_BYTES: usize = 64 << 10;
/// Maximum pieces remembered, besides the last page. With 16 pieces from different pages, a copy that differs in a tenth of its
/// pages is missed once in five times, and a copy that differs in half of them once in 65,536.
const MAX_PIECES: u64 = 16;
/// An append updates the time before the size. So if only the time is new, the size gets this long to grow. The grace period
/// starts once for each new time, not with each read that finds it.
const APPEND_GRACE: Duration = Duration::from_millis(42);
/// Delay until the next check; four times as long each time.
const FIRST_LOOK: Duration = Duration::from_micros(20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub size: u64,
    /// Nanoseconds since 1970; zero for a device.
    pub mtime_ns: i128,
    pub inode: u64,
}

#[derive(Debug, Default)]
pub struct AcceptedVersion {
    pub identity: Identity,
    /// Number of versions accepted so far. A sample from a read of an earlier version is discarded.
    accepted: u64,
    pieces: Vec<SamplePiece>,
    /// The last page.
    tail: Option<SamplePiece>,
    /// An identity with a new time and the old size, and until when it may still turn out to be an append.
    suspect: Option<(Identity, Instant)>,
}

impl AcceptedVersion {
    pub fn new(identity: Identity) -> AcceptedVersion {
        AcceptedVersion {
            identity,
            ..AcceptedVersion::default()
        }
    }

    /// How long this identity, in which only the time is new, may still turn out to be an append. The period starts with the
    /// first read that finds the identity.
    fn grace(&mut self, now: Identity) -> Duration {
        let until = match self.suspect {
            Some((same, until)) if same == now => until,
            _ => Instant::now() + APPEND_GRACE,
        };
        self.suspect = Some((now, until));
        until.saturating_duration_since(Instant::now())
    }
}

/// A sample of the accepted version's bytes.
#[derive(Clone, Copy, Debug)]
struct SamplePiece {
    offset: u64,
    len: usize,
    hash: u64,
}

/// The state of one read: which version it started with, and which piece of its data becomes a sample (a remembered hash) if the
/// read succeeds. For most reads, no piece becomes a sample.
#[derive(Default)]
pub struct Pick {
    accepted: u64,
    /// [`Core::growths`] when the read began.
    pub(super) growths: u64,
    wanted: Option<u64>,
    found: Option<SamplePiece>,
}

impl Pick {
    /// Hashes the piece that was chosen as a sample, if it is in `bufs`, which hold `read` bytes from offset `at` on.
    #[inline]
    pub fn look(&mut self, core: &Core, bufs: &[IoSliceMut<'_>], at: u64, read: usize) {
        if let Some(offset) = self
            .wanted
            .filter(|offset| (at..at + read as u64).contains(offset))
        {
            self.wanted = None;
            let len = PIECE_BYTES.min(at + read as u64 - offset) as usize;
            self.found =
                bytes_at(bufs, (offset - at) as usize, len).map(|bytes| core.piece(offset, bytes));
        }
    }
}

/// At most `len` bytes after the first `skip`, limited to one buffer.
fn bytes_at<'a>(bufs: &'a [IoSliceMut<'_>], mut skip: usize, len: usize) -> Option<&'a [u8]> {
    for buf in bufs {
        if skip < buf.len() {
            return Some(&buf[skip..buf.len().min(skip + len)]);
        }
        skip -= buf.len();
    }
    None
}

impl Core {
    pub(super) fn identity_now(&self) -> Result<Identity, Errno> {
        let stat = rustix::fs::fstat(&self.file)?;
        if self.device {
            // No other code uses the position of this descriptor.
            let size = rustix::fs::seek(&self.file, SeekFrom::End(0))?;
            return Ok(Identity {
                size,
                mtime_ns: 0,
                inode: stat.st_ino,
            });
        }
        let mtime_ns = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
        Ok(Identity {
            size: stat.st_size as u64,
            mtime_ns,
            inode: stat.st_ino,
        })
    }

    /// Accepts the current state of the file as its version.
    pub(super) fn accept_now(&self) -> u64 {
        let now = self.identity_now();
        let mut known = lock(&self.known);
        let identity = now.unwrap_or(known.identity);
        *known = AcceptedVersion {
            identity,
            accepted: known.accepted + 1,
            ..AcceptedVersion::default()
        };
        self.reads.store(0, Ordering::Relaxed);
        self.tail_due.store(true, Ordering::Relaxed);
        identity.size
    }

    /// Compares the file with the accepted version. A longer file that is otherwise the same is accepted. `pick` describes the
    /// read.
    pub(super) fn same_version(&self, pick: Pick) -> Result<u64, SourceError> {
        let ask = || {
            self.identity_now()
                .map_err(|errno| self.io("reading the size and modification time", errno))
        };
        let mut now = ask()?;
        let mut pause = FIRST_LOOK;
        loop {
            let mut known = lock(&self.known);
            if now == known.identity {
                self.remember(&mut known, pick);
                return Ok(now.size);
            }
            // Another thread may have noticed the growth since the query, so an unequal identity is queried again under the
            // lock.
            now = ask()?;
            let what = match (now.size, known.identity.size) {
                _ if now == known.identity => return Ok(now.size),
                _ if now.inode != known.identity.inode => "is another file now".to_string(),
                (new, old) if new < old => format!("shrank from {old} to {new} bytes"),
                (new, old) if new > old && self.writes.is_open() && !self.appends() => {
                    format!("was extended by another program from {old} to {new} bytes")
                }
                (new, old) if new > old => return self.grown(known, now, pick),
                // Our own write: the file's time is recorded when the write has ended.
                _ if self.writes.under_way() => return Ok(now.size),
                _ => match known.grace(now) {
                    Duration::ZERO => "was written to".to_string(),
                    left => {
                        drop(known);
                        std::thread::sleep(pause.min(left));
                        pause *= 4;
                        now = ask()?;
                        continue;
                    }
                },
            };
            return Err(self.changed(&what));
        }
    }

    /// Checks whether the file, which is longer than the accepted version, is the same version.
    fn grown(
        &self,
        known: MutexGuard<'_, AcceptedVersion>,
        now: Identity,
        pick: Pick,
    ) -> Result<u64, SourceError> {
        let (accepted, old) = (known.accepted, known.identity.size);
        let sample: Vec<SamplePiece> = known.pieces.iter().chain(&known.tail).copied().collect();
        // Not under the lock: this reads the file.
        drop(known);
        if !self.appends() {
            for piece in sample {
                if !self.holds(&piece)? {
                    let new = now.size;
                    return Err(self.changed(&format!(
                        "was replaced: it grew from {old} to {new} bytes, and earlier bytes differ"
                    )));
                }
            }
        }
        let mut known = lock(&self.known);
        // Bytes read before this check are of the same version, too.
        self.remember(&mut known, pick);
        if known.accepted == accepted && known.identity.size < now.size {
            known.identity = now;
            self.growths.fetch_add(1, Ordering::Release);
            // The page at the old end is longer now.
            known.tail = None;
            self.tail_due.store(true, Ordering::Relaxed);
        }
        Ok(known.identity.size)
    }

    fn changed(&self, what: &str) -> SourceError {
        SourceError::Changed {
            what: format!("{} {what}", self.path.display()),
        }
    }

    // ---- the sample ----

    /// Whether growth is accepted as an append, without comparing the sample.
    pub(super) fn appends(&self) -> bool {
        self.appending.load(Ordering::Relaxed)
    }

    /// Chooses the bytes of a read to remember: some of each of the first 16 reads, and of n reads about 16 * ln(n / 16).
    pub(super) fn pick(&self, offset: u64, len: u64) -> Pick {
        let growths = self.growths.load(Ordering::Acquire);
        let nth = self.reads.fetch_add(1, Ordering::Relaxed);
        let random = self.hasher.hash_one(nth);
        if random % (nth + 1) >= MAX_PIECES || len == 0 || self.appends() || self.writes.is_open() {
            return Pick {
                growths,
                ..Pick::default()
            };
        }
        let (accepted, size) = {
            let known = lock(&self.known);
            (known.accepted, known.identity.size)
        };
        // Within the file: a buffer may reach beyond its end.
        let at = offset + random.rotate_left(32) % len.min(size.saturating_sub(offset)).max(1);
        let start = (at - at % PIECE_BYTES).max(offset);
        Pick {
            accepted,
            growths,
            wanted: Some(start),
            found: None,
        }
    }

    /// Reads the last page of a version into the sample, once.
    pub(super) fn note_tail(&self) -> Result<(), Errno> {
        let due =
            self.tail_due.load(Ordering::Relaxed) && self.tail_due.swap(false, Ordering::Relaxed);
        if !due || self.appends() || self.writes.is_open() {
            return Ok(());
        }
        let (accepted, size) = {
            let known = lock(&self.known);
            (known.accepted, known.identity.size)
        };
        let offset = size.saturating_sub(1) / PIECE_BYTES * PIECE_BYTES;
        // At least one byte is requested, though there may be none: this also tests direct I/O.
        let mut bytes = vec![0; (size - offset).max(1) as usize];
        let read = self.fill(
            &mut [IoSliceMut::new(&mut bytes)],
            offset,
            &mut Pick::default(),
        )?;
        let mut known = lock(&self.known);
        if known.accepted == accepted && known.identity.size == size && read as u64 == size - offset
        {
            known.tail = Some(self.piece(offset, &bytes[..read]));
        }
        Ok(())
    }

    /// Adds the found piece to the sample of the accepted version. If the sample is full, it replaces another piece.
    fn remember(&self, known: &mut AcceptedVersion, pick: Pick) {
        let Some(piece) = pick
            .found
            .filter(|_| pick.accepted == known.accepted && !self.writes.is_open())
        else {
            return;
        };
        if (known.pieces.len() as u64) < MAX_PIECES {
            known.pieces.push(piece);
        } else {
            let place = self.hasher.hash_one((piece.offset, piece.hash)) % MAX_PIECES;
            known.pieces[place as usize] = piece;
        }
    }

    fn piece(&self, offset: u64, bytes: &[u8]) -> SamplePiece {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(bytes);
        SamplePiece {
            offset,
            len: bytes.len(),
            hash: hasher.finish(),
        }
    }

    /// Whether the file, which grew during a read, still has all of the first `read` bytes in `bufs`.
    pub(super) fn still_holds(
        &self,
        bufs: &[IoSliceMut<'_>],
        offset: u64,
        read: usize,
    ) -> Result<(), SourceError> {
        if self.appends() || self.writes.is_open() {
            return Ok(());
        }
        let mut again = vec![0; COMPARE_BYTES.min(read)];
        let mut done = 0;
        while done < read {
            let Some(bytes) = bytes_at(bufs, done, again.len().min(read - done)) else {
                break;
            };
            let again = &mut again[..bytes.len()];
            let at = offset + done as u64;
            let got = self.fill(&mut [IoSliceMut::new(again)], at, &mut Pick::default());
            let got = got.map_err(|errno| self.io("reading again", errno))?;
            if again[..got] != *bytes {
                return Err(
                    self.changed("was replaced: it grew during a read, and its bytes differ")
                );
            }
            done += bytes.len();
        }
        Ok(())
    }

    /// Whether the bytes of a piece, read again, are the same.
    fn holds(&self, piece: &SamplePiece) -> Result<bool, SourceError> {
        let mut bytes = vec![0; piece.len];
        let read = self.fill(
            &mut [IoSliceMut::new(&mut bytes)],
            piece.offset,
            &mut Pick::default(),
        );
        let read = read.map_err(|errno| self.io("reading again", errno))?;
        Ok(read == piece.len && self.piece(piece.offset, &bytes).hash == piece.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FileSource;
    use super::*;
    use std::io::Write;

    /// Read A has its bytes and is not checked yet; then a longer file is copied over, and read B, the first to be checked,
    /// finds an empty sample. A's bytes are of the old file, so A is refused.
    #[test]
    fn a_read_that_was_under_way_while_the_file_was_replaced_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), vec![1; 100_000]).expect("written");
        let core = FileSource::open(file.path()).expect("opened").core;
        core.accept_now();
        let begin = |buf: &mut [u8]| {
            let mut pick = core.pick(0, buf.len() as u64);
            let done = core
                .fill(&mut [IoSliceMut::new(buf)], 0, &mut pick)
                .expect("read");
            (done, pick)
        };
        let (mut a, mut b) = (vec![0; 16_384], vec![0; 16_384]);
        let (of_a, picked_by_a) = begin(&mut a);
        std::fs::write(file.path(), vec![2; 200_000]).expect("copied over it");
        let (of_b, picked_by_b) = begin(&mut b);
        let end_b = core.read_on(&mut [IoSliceMut::new(&mut b)], 0, of_b, picked_by_b);
        assert_eq!(end_b.ok(), Some(16_384), "an empty sample refuses nothing");
        let end_a = core.read_on(&mut [IoSliceMut::new(&mut a)], 0, of_a, picked_by_a);
        assert!(
            matches!(end_a, Err(SourceError::Changed { .. })),
            "{end_a:?}"
        );

        // A file that was appended to under a read is no other.
        core.accept_now();
        let (of_a, picked_by_a) = begin(&mut a);
        std::fs::OpenOptions::new()
            .append(true)
            .open(file.path())
            .expect("opened")
            .write_all(&[3; 10])
            .expect("appended");
        assert_eq!(core.same_version(Pick::default()).ok(), Some(200_010));
        assert_eq!(
            core.read_on(&mut [IoSliceMut::new(&mut a)], 0, of_a, picked_by_a)
                .ok(),
            Some(16_384)
        );
    }
}
