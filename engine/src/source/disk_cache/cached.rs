//! A source with a disk cache: reads cached bytes from disk, and fetches and caches all other bytes from the underlying source.
//!
//! ```text
//!   fetch ──► is the exact version known? ── no ──► the source below
//!                 │
//!                 ▼ part after part (tier.rs)
//!             cached ──► read and verified ── gone or invalid: fetched from the store
//!             absent ──► claimed by another process? ── no ──► the source below, and a copy to the disk (writer.rs)
//!                                        └─ yes: waits while that process lives
//! ```
//! A read never fails because of an error of the disk, never returns bytes of two versions, and never waits for a write to the
//! cache.

use super::claims::{CLAIM_BYTES, Claim};
use super::object::LARGE_BYTES;
use super::shared::{CachedVersion, Counts};
use super::speed::TimedRead;
use super::tier::{Note, Part};
use super::writer::{Parts, Tee};
use crate::source::sinks::{FillPlace, Slices};
use crate::source::{
    Alignment, Defaults, ExactVersion, Holes, Sink, Source, SourceError, StreamingSource, WholeFile,
};
use crate::sync::lock;
use foreread_os::threads::spawn;
use std::io::IoSliceMut;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a fetch waits for another process that has claimed the range but makes no progress. The kernel releases the claims of a process
/// that ends, so this limit is for a process that is stopped.
const STOPPED_AFTER: Duration = Duration::from_secs(30);
/// Interval between checks for the other process's data: the first, and the longest.
const LOOK_EVERY: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(20);
/// A range shorter than this is not claimed if the object is larger: waiting for another process would cost more than fetching the bytes.
const CLAIMED_BYTES: u64 = 64 << 10;

pub struct CachedSource {
    below: Arc<dyn Source>,
    parts: Arc<Parts>,
    version: Mutex<Option<Arc<CachedVersion>>>,
    /// Whether bytes of the version being read came from the disk.
    has_served: AtomicBool,
    /// Counts version changes, so that a version that comes back is not taken for its earlier occurrence.
    accepted: Arc<AtomicU64>,
}

impl CachedSource {
    /// Wraps `source` with the cache that consists of these parts. If the cache has a shared tier, data that is missing on this
    /// machine is first searched there, then read from `source`.
    pub fn over(source: Arc<dyn Source>, parts: &Arc<Parts>) -> Arc<dyn Source> {
        let below = match &parts.below {
            Some(shared) => CachedSource::over(source, shared),
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

    /// The version being read. Returns `None` if it is not known exactly.
    fn current(&self) -> Result<Option<Arc<CachedVersion>>, SourceError> {
        let exact = self.below.exact_version();
        let mut held = lock(&self.version);
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
            self.parts.writer.note(Note::Latest(Arc::clone(version)));
        }
        Ok(held.clone())
    }

    /// Checks that the source still has the version whose bytes came from disk. Asks the store if the source no longer knows its exact
    /// version.
    fn is_still(&self, version: &CachedVersion) -> Result<(), SourceError> {
        match self.below.exact_version() {
            Some(exact) if exact == version.exact => Ok(()),
            Some(_) => {
                let source = self.below.describe();
                let what = format!(
                    "{source}: the store no longer has the version whose bytes are in the disk cache"
                );
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
        let mut is_first = true;
        while place.at < range.end && place.has_room() {
            let at = place.at;
            let part = if shared.reads.is_on() {
                tier.next(version, &(at..range.end))
            } else {
                Part::Store(range.end)
            };
            let goes_on = match part {
                Part::Here(..) if tier.passes_over(version, range.end - at) => {
                    // Bypass the disk for the whole rest of the range: probably more of it is cached.
                    Counts::add(&shared.counts.passed_over_bytes, range.end - at);
                    self.fetch(None, at..range.end, place)?
                }
                Part::Here(end, sums) => {
                    if std::mem::take(&mut is_first) {
                        place.at_hand();
                    }
                    self.read_here(version, &sums, end, place)?
                }
                Part::Store(end) => self.miss(version, at..end, place)?,
            };
            if goes_on.is_break() {
                break;
            }
            is_first = false;
        }
        Ok(())
    }

    /// Reads a cached part. Bytes that the disk does not deliver are fetched from the store.
    fn read_here(
        &self,
        version: &Arc<CachedVersion>,
        sums: &[u64],
        end: u64,
        place: &mut FillPlace<'_>,
    ) -> Result<ControlFlow<()>, SourceError> {
        let Parts { tier, writer, .. } = &*self.parts;
        let shared = tier.state();
        self.has_served.store(true, Ordering::Relaxed);
        let from = place.at;
        // The measured time includes opening the file: while the header is read, the kernel already reads ahead.
        let timed = shared.speeds.disk(end - from);
        let done = tier.read(version, sums, place, end);
        if let Some(mut timed) = timed {
            timed.add(place.at - from);
        }
        if done.is_err() {
            return self.fetch(Some((version, false)), place.at..end, place);
        }
        Counts::add(&shared.counts.hits, 1);
        shared.reads.worked();
        if tier.is_use_due(version) {
            writer.note(Note::Use(Arc::clone(version)));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Fetches the first part of an absent range, unless another process is fetching it. If this process claims the range, the claim on
    /// the rest is released.
    fn miss(
        &self,
        version: &Arc<CachedVersion>,
        mut range: Range<u64>,
        place: &mut FillPlace<'_>,
    ) -> Result<ControlFlow<()>, SourceError> {
        let tier = &self.parts.tier;
        let is_whole = range == (0..version.size);
        let is_short = !is_whole && range.end - range.start < CLAIMED_BYTES;
        if is_short || !tier.is_writing() || !version.waits.is_on() {
            return self.fetch(Some((version, false)), range, place);
        }
        let claimed = match tier.claim(version, &range) {
            Claim::Taken => true,
            Claim::Unknown => return self.fetch(Some((version, false)), range, place),
            Claim::Busy => {
                Counts::add(&tier.state().counts.waits, 1);
                version.is_shared.store(true, Ordering::Relaxed);
                let megabyte = (range.start / CLAIM_BYTES + 1) * CLAIM_BYTES;
                range.end = range.end.min(megabyte);
                self.await_other(version, &range, place)
            }
        };
        // Another process may just have written the range.
        let part = tier.next(version, &range);
        let end = match part {
            Part::Here(..) => range.start,
            Part::Store(end) => end,
        };
        if claimed && end < range.end {
            // Claims cover whole megabytes.
            let rest = match end == range.start {
                true => end,
                false => end.next_multiple_of(CLAIM_BYTES).min(range.end),
            };
            tier.give_back(version, &(rest..range.end));
        }
        match part {
            Part::Here(end, sums) => self.read_here(version, &sums, end, place),
            Part::Store(end) => self.fetch(Some((version, claimed)), range.start..end, place),
        }
    }

    /// Waits until another process has fetched this range, or has ended. Returns whether this process has claimed the range then.
    fn await_other(
        &self,
        version: &Arc<CachedVersion>,
        range: &Range<u64>,
        place: &FillPlace<'_>,
    ) -> bool {
        let (began, mut pause) = (Instant::now(), LOOK_EVERY.start);
        while !place.is_cancelled() {
            if began.elapsed() >= STOPPED_AFTER {
                version.waits.off(STOPPED_AFTER);
                break;
            }
            match self.parts.tier.claim(version, range) {
                Claim::Taken => return true,
                Claim::Unknown => break,
                Claim::Busy => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK_EVERY.end);
        }
        false
    }

    /// Fetches from the source below. Arriving bytes are queued for the disk, and any claim on them is released. Breaks if the source ends
    /// before the range does.
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
            let (source, accepted) = (&self.below, &self.accepted);
            writer.tee(version, source, accepted, range.clone(), claimed)
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

    /// For a source without streaming.
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
        let mut held = lock(&self.version);
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

    fn holes(&self) -> Option<&dyn Holes> {
        self.below.holes()
    }

    fn whole_file(&self) -> Option<WholeFile> {
        let version = self.current().ok().flatten()?;
        let Parts { tier, writer, .. } = &*self.parts;
        if tier.passes_over(&version, version.size) {
            return None;
        }
        // Larger versions are verified in the background.
        let is_small = version.size <= LARGE_BYTES;
        let verify = is_small.then_some::<&dyn Fn() -> bool>(&|| true);
        let file = tier.whole(&version, verify);
        // The kernel does not report its reads, so each open is a use.
        if file.as_ref().is_some_and(|file| file.files.is_due()) {
            writer.note(Note::Use(Arc::clone(&version)));
        }
        if file.is_some() || is_small {
            return Some(file?);
        }
        if !version.is_looked_at.swap(true, Ordering::Relaxed) {
            let tier = Arc::clone(tier);
            let looks = move || {
                // Verify only while a reader has the version open.
                let is_open = || Arc::strong_count(&version) > 1;
                tier.whole(&version, Some(&is_open));
                version.is_looked_at.store(false, Ordering::Relaxed);
            };
            // If no thread can be started, the version is read without passthrough.
            let _ = spawn("foreread-look", looks);
        }
        None
    }
}

impl StreamingSource for CachedSource {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        self.serve(self.current()?, len, offset, sink)
    }
}

/// A part from the store: arriving bytes are passed on, and queued for the disk.
struct StorePart<'p, 's> {
    place: &'p mut FillPlace<'s>,
    end: u64,
    tee: Option<Tee>,
    /// `None` if the part is too short to be measured.
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
