//! A source whose bytes are kept on disk: reads what is there, asks the source below for the rest, and keeps that.
//!
//! ```text
//!   fetch ──► which version is it exactly? ── not known ──► the source below
//!                 │
//!                 ▼ part after part (index.rs)
//!             on the disk ──► piece, looked at ── gone or wrong: forgotten, asked of the store
//!             not on it ──► claimed by another process? ── no ──► the source below, and a copy to the disk (writer.rs)
//!                                          └─ yes: waits for its pieces, not for long
//! ```
//! Never: fails a read because of the disk, mixes two versions, or makes a reader wait for a write.

use super::claims::Claim;
use super::folder::PieceFile;
use super::index::Part;
use super::parts::Parts;
use super::piece::{MAX_PIECE_BYTES, PieceFault};
use super::shared::{CachedVersion, Counts};
use super::sinks::{FillPlace, Slices};
use super::speed::TimedRead;
use super::writer::{Tee, VersionCount};
use crate::source::{
    Alignment, Defaults, ExactVersion, Holes, Queue, Sink, Source, SourceError, StreamingSource,
    WritableSource,
};
use std::io::IoSliceMut;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a fetch waits for another process that has begun the same and writes nothing. Chosen: longer than a fetch of 1 MiB takes over 30 ms and 1 MB/s.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How often it looks whether that has come.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A shorter range of a larger object is not claimed: to wait for another process would cost more than the bytes.
const CLAIMED_BYTES: u64 = 64 << 10;

pub struct CachedSource {
    below: Arc<dyn Source>,
    parts: Arc<Parts>,
    version: Mutex<Option<Arc<CachedVersion>>>,
    /// Bytes of that version came from the disk.
    has_served: AtomicBool,
    /// Counts the versions: one that comes back is not the one that was read before.
    accepted: Arc<AtomicU64>,
}

impl CachedSource {
    /// The source behind the cache, with the shared tier between them if there is one.
    pub fn over(source: Arc<dyn Source>, parts: &Arc<Parts>) -> Arc<dyn Source> {
        let below = match &parts.below {
            Some(shared) => CachedSource::over(source, &shared.0),
            None => source,
        };
        Arc::new(CachedSource {
            below,
            parts: Arc::clone(parts),
            version: Mutex::default(),
            has_served: AtomicBool::new(false),
            accepted: Arc::default(),
        })
    }

    /// The version that is read, where it is known exactly.
    fn current(&self) -> Result<Option<Arc<CachedVersion>>, SourceError> {
        let exact = self.below.exact_version();
        let mut held = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = held.as_ref() {
            if exact.as_ref() == Some(&version.exact) {
                return Ok(Some(Arc::clone(version)));
            }
            if self.has_served.load(Ordering::Relaxed) {
                let version = Arc::clone(version);
                drop(held);
                return self.is_still(&version).map(|()| Some(version));
            }
        }
        let state = self.parts.tier.state();
        *held = exact.map(|exact| state.version(exact, self.below.size()));
        if let Some(version) = held.as_ref().filter(|_| self.below.answered_in().is_some()) {
            version.is_named.store(true, Ordering::Relaxed);
            self.parts.writer.note_latest(version);
        }
        Ok(held.clone())
    }

    /// Does the source read the version of which bytes came from the disk? One that does not say it exactly any more is asked.
    fn is_still(&self, version: &CachedVersion) -> Result<(), SourceError> {
        match self.below.exact_version() {
            Some(exact) if exact == version.exact => Ok(()),
            Some(_) => {
                let source = self.below.describe();
                let what = format!("{source}: it is not the version of which bytes are on disk");
                Err(SourceError::Changed { what })
            }
            None => self.below.check().map(|_| ()),
        }
    }

    fn serve(
        &self,
        version: Option<Arc<CachedVersion>>,
        len: u64,
        offset: u64,
        sink: &mut dyn Sink,
    ) -> Result<usize, SourceError> {
        let end = offset.saturating_add(len).min(self.below.size());
        let range = offset.min(end)..end;
        if range.is_empty() {
            return Ok(0);
        }
        let mut place = FillPlace::new(sink, range.start);
        match version {
            Some(version) => self.read(&version, range.clone(), &mut place)?,
            None => {
                let _ = self.fetch(None, range.clone(), &mut place)?;
            }
        }
        let read = place.at - range.start;
        place.end();
        Ok(read as usize)
    }

    fn read(
        &self,
        version: &Arc<CachedVersion>,
        range: Range<u64>,
        place: &mut FillPlace<'_>,
    ) -> Result<(), SourceError> {
        let tier = &self.parts.tier;
        let shared = tier.state();
        tier.look(version);
        let mut is_first = true;
        while place.at < range.end && place.has_room() {
            let at = place.at;
            let part = if shared.reads.is_on() {
                version.index.next(&(at..range.end))
            } else {
                Part::Store(range.end)
            };
            match part {
                Part::Disk(..) if tier.passes_over(range.end - at) => {
                    // All of it at once: more is likely to be there.
                    Counts::add(&shared.counts.passed_over_bytes, range.end - at);
                    if self.fetch(None, at..range.end, place)?.is_break() {
                        break;
                    }
                }
                Part::Disk(piece, end) => {
                    if std::mem::take(&mut is_first) {
                        place.at_hand();
                    }
                    self.read_piece(version, piece, end, place);
                }
                Part::Store(end) => {
                    if self.miss(version, at..end, place)?.is_break() {
                        break;
                    }
                }
            }
            is_first = false;
        }
        Ok(())
    }

    /// Reads a piece as far as it is right; what it does not give is no longer in the index.
    fn read_piece(
        &self,
        version: &Arc<CachedVersion>,
        piece: PieceFile,
        end: u64,
        place: &mut FillPlace<'_>,
    ) {
        let Parts { tier, writer, .. } = &*self.parts;
        let shared = tier.state();
        self.has_served.store(true, Ordering::Relaxed);
        let from = place.at;
        // To open it counts as well: what its header waits for, the kernel reads ahead.
        let timed = shared.speeds.disk(end - from);
        let done = tier.read(version, piece, place, end);
        if let Some(mut timed) = timed {
            timed.add(place.at - from);
        }
        let fault = match done {
            Ok(()) => {
                Counts::add(&shared.counts.hits, 1);
                shared.reads.worked();
                if version.index.used(piece) {
                    writer.note(version, piece);
                }
                return;
            }
            Err(fault) => fault,
        };
        version
            .index
            .forget(piece, !matches!(fault, PieceFault::Gone));
        tier.close(version, piece);
        match fault {
            PieceFault::Gone => {}
            PieceFault::Io(errno) => shared.read_failed(errno),
            PieceFault::Wrong => {
                Counts::add(&shared.counts.wrong, 1);
                writer.remove(version, piece);
            }
        }
    }

    /// A range that is not on the disk: another process may be fetching it.
    fn miss(
        &self,
        version: &Arc<CachedVersion>,
        range: Range<u64>,
        place: &mut FillPlace<'_>,
    ) -> Result<ControlFlow<()>, SourceError> {
        let tier = &self.parts.tier;
        let shared = tier.state();
        let is_whole = range == (0..version.size);
        if !is_whole && range.end - range.start < CLAIMED_BYTES
            || !shared.writes.is_on()
            || !shared.waits.is_on()
        {
            return self.fetch(Some((version, false)), range, place);
        }
        match tier.claim(version, &range) {
            Claim::Taken => self.fetch_rest(version, range, true, place),
            Claim::Unknown => self.fetch(Some((version, false)), range, place),
            Claim::Busy => {
                let end = range
                    .end
                    .min((range.start / MAX_PIECE_BYTES + 1) * MAX_PIECE_BYTES);
                Counts::add(&shared.counts.waits, 1);
                self.await_piece(version, range.start..end, place)
            }
        }
    }

    /// Waits for what another process fetches, up to the end of a piece. It is read then, or fetched here.
    fn await_piece(
        &self,
        version: &Arc<CachedVersion>,
        range: Range<u64>,
        place: &mut FillPlace<'_>,
    ) -> Result<ControlFlow<()>, SourceError> {
        let tier = &self.parts.tier;
        let (mut stamp, mut moved) = (tier.stamp(version), Instant::now());
        let claimed = loop {
            if moved.elapsed() >= PATIENCE {
                // It is stopped, or very slow: that costs a reader this time once and not for each piece.
                tier.state().waits.off(Instant::now());
                break false;
            }
            if place.is_cancelled() {
                break false;
            }
            std::thread::sleep(LOOK_EVERY);
            match tier.claim(version, &range) {
                Claim::Taken => break true,
                Claim::Unknown => break false,
                Claim::Busy => {}
            }
            let now = tier.stamp(version);
            if now != stamp {
                (stamp, moved) = (now, Instant::now());
            }
        };
        self.fetch_rest(version, range, claimed, place)
    }

    /// Fetches the first part of a range that is not on the disk; another process may have written it a moment ago. The rest is given back
    /// where it was claimed.
    fn fetch_rest(
        &self,
        version: &Arc<CachedVersion>,
        range: Range<u64>,
        claimed: bool,
        place: &mut FillPlace<'_>,
    ) -> Result<ControlFlow<()>, SourceError> {
        let tier = &self.parts.tier;
        tier.look_again(version, range.start);
        let part = version.index.next(&range);
        let end = match part {
            Part::Disk(..) => range.start,
            Part::Store(end) => end,
        };
        if claimed && end < range.end {
            // A megabyte is claimed as a whole.
            let rest = end.next_multiple_of(MAX_PIECE_BYTES).min(range.end)..range.end;
            tier.give_back(version, &rest);
        }
        match part {
            Part::Disk(piece, end) => {
                self.read_piece(version, piece, end, place);
                Ok(ControlFlow::Continue(()))
            }
            Part::Store(end) => self.fetch(Some((version, claimed)), range.start..end, place),
        }
    }

    /// Asks the source below. What arrives is kept for the version, and given back if it was claimed. Breaks where the source ends before
    /// the range does.
    fn fetch(
        &self,
        keep: Option<(&Arc<CachedVersion>, bool)>,
        range: Range<u64>,
        place: &mut FillPlace<'_>,
    ) -> Result<ControlFlow<()>, SourceError> {
        let Parts { tier, writer, .. } = &*self.parts;
        let shared = tier.state();
        let len = range.end - range.start;
        let tee = keep.map(|(version, claimed)| {
            Counts::add(&shared.counts.misses, 1);
            Counts::add(&shared.counts.miss_bytes, len);
            let now = VersionCount::new(&self.accepted);
            writer.tee(version, &self.below, now, range.clone(), claimed)
        });
        let mut part = StorePart {
            place,
            end: range.end,
            tee,
            timed: shared.speeds.store(len),
        };
        let done = match self.below.streaming() {
            Some(streaming) => streaming.stream(len, range.start, &mut part).map(|_| ()),
            None => self.copy(&range, &mut part),
        };
        let at = part.place.at;
        part.timed = None;
        done?;
        if let Some((version, _)) = keep
            && self.has_served.load(Ordering::Relaxed)
        {
            self.is_still(version)?;
        }
        Ok({
            if at < range.end {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    /// Of a source whose bytes do not come one after the other.
    fn copy(&self, range: &Range<u64>, part: &mut StorePart<'_, '_>) -> Result<(), SourceError> {
        let mut at = range.start;
        while let Some(room) = part.room() {
            let wanted = room.len() as u64;
            let read =
                crate::source::read_on(&self.below, &mut [IoSliceMut::new(room)], at, wanted)?;
            if read == 0 {
                break;
            }
            part.filled(read);
            at += read as u64;
        }
        Ok(())
    }
}

impl Source for CachedSource {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let len = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        match self.current()? {
            None => self.below.read_at(bufs, offset),
            version => self.serve(version, len, offset, &mut Slices::new(bufs)),
        }
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn defaults(&self) -> Defaults {
        self.below.defaults()
    }

    fn answered_in(&self) -> Option<Duration> {
        self.below.answered_in()
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        self.below.exact_version()
    }

    fn modified_ns(&self) -> Option<i128> {
        self.below.modified_ns()
    }

    fn alignment(&self) -> Alignment {
        self.below.alignment()
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.below.check()
    }

    fn accept(&self) -> u64 {
        let size = self.below.accept();
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut held = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        self.has_served.store(false, Ordering::Relaxed);
        size
    }

    fn allow_appends(&self) {
        self.below.allow_appends();
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        Some(self)
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        None
    }

    fn holes(&self) -> Option<&dyn Holes> {
        self.below.holes()
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        None
    }
}

impl StreamingSource for CachedSource {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        self.serve(self.current()?, len, offset, sink)
    }
}

/// A part that comes from the store: what arrives is passed on, and noted for the disk.
struct StorePart<'p, 's> {
    place: &'p mut FillPlace<'s>,
    end: u64,
    tee: Option<Tee>,
    /// Of a long part.
    timed: Option<TimedRead<'p>>,
}

impl Sink for StorePart<'_, '_> {
    fn room(&mut self) -> Option<&mut [u8]> {
        let left = self.end - self.place.at;
        if left == 0 {
            return None;
        }
        self.place.room(left)
    }

    fn at_hand(&mut self) {
        self.place.at_hand();
    }

    fn is_awaited(&self) -> bool {
        self.place.is_awaited()
    }

    fn is_cancelled(&self) -> bool {
        self.place.is_cancelled()
    }

    fn filled(&mut self, bytes: usize) {
        let (at, left) = (self.place.at, self.end - self.place.at);
        if let (Some(tee), Some(room)) = (&mut self.tee, self.place.room(left)) {
            tee.take(at, &room[..bytes.min(room.len())]);
        }
        self.place.advance(bytes);
        if let Some(timed) = &mut self.timed {
            timed.add(bytes as u64);
        }
    }
}
