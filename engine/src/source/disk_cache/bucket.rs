//! A bucket near by as the place of pieces that machines share: `shared=s3://BUCKET/PREFIX`.
//!
//! Pieces are the same as in a folder, and so are their names, as keys below the prefix. Which there are is known from a listing of the
//! version, begun when it is read first and again while reads go to the store. What is fetched from the store is put behind the reader.
//!
//! ```text
//!   read ──► listing (waits for its first one, 1.5 s at most) ── not on it ──► the store, and a PUT behind the reader
//!              │ on it
//!              ▼
//!            GET of header and blocks ── gone, wrong ──► forgotten, the store
//!                                     └─ late, refused ──► the bucket is not asked for a while, the store
//! ```
//! Example: 64 KiB at 512 KiB of a piece are two requests at once, for its first 4 KiB and for two blocks of 32 KiB.
//!
//! A bucket has no claims: machines that begin the same at the same time fetch it each for itself. Nothing is removed from it, and it has
//! no limit here; a rule of the bucket ends what is old. What is no piece is made an empty object. Never: fails a read, or waits longer
//! than 1.5 s for a listing, for one piece, or to set one aside.

use super::OpenSettings;
use super::claims::Claim;
use super::folder::{FORMAT_FOLDER, PieceFile};
use super::piece::{Extent, HEADER_BYTES, PieceBuffer, PieceFault, PieceHeader};
use super::settings::{DiskCacheSettings, SharedBucket};
use super::shared::{CachedVersion, Counts, TierState, VersionListing, VersionListingState};
use super::sinks::FillPlace;
use super::tier::Tier;
use crate::source::SourceOpenError;
use crate::source::object::{KeyRefusal, Keys, begin};
use bytes::Bytes;
use futures_util::future::try_join;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Pieces that are put at once.
pub const WRITERS: usize = 4;
/// How long a PUT may take.
const PUT_PATIENCE: Duration = Duration::from_secs(10);
/// How often a version is listed again while reads of it go to the store, and the part of the time that this may take.
const LIST_EVERY: Duration = Duration::from_secs(10);
const LIST_PART: u32 = 20;
/// What comes before the bytes in a piece is asked for with them where that is no more than this.
const FRONT_BYTES: u64 = 128 << 10;

pub struct BucketTier(Arc<Bucket>);

struct Bucket {
    keys: Keys,
    tier: TierState,
    reads_slow: bool,
    patience: Duration,
}

impl BucketTier {
    /// Asks nothing yet.
    pub fn open(
        shared: &SharedBucket,
        own: &DiskCacheSettings,
        open: &OpenSettings,
    ) -> Result<Arc<BucketTier>, SourceOpenError> {
        let mut settings = open.object_settings(&shared.name)?;
        if let Some(endpoint) = &shared.endpoint_url {
            settings.endpoint_url = endpoint.unredacted_text().map(str::to_string);
        }
        settings.profile = shared.profile.clone().or(settings.profile);
        Ok(Arc::new(BucketTier(Arc::new(Bucket {
            keys: Keys::open(&shared.name, &settings)?,
            tier: TierState::new(format!("shared cache {}", shared.name)),
            reads_slow: own.reads_slow_disk,
            patience: shared.patience,
        }))))
    }

    /// Begins to list a version, unless that is under way.
    fn list(&self, version: &Arc<CachedVersion>) {
        {
            let mut state = version.listing.hold();
            let me = Some(std::process::id());
            if state.runs_in == me {
                return;
            }
            (state.runs_in, state.began) = (me, Some(Instant::now()));
        }
        let (bucket, own) = (Arc::clone(&self.0), Arc::clone(version));
        let work = async move {
            bucket.list(&own).await;
            own.listing.end();
        };
        if begin(work).is_err() {
            version.listing.end();
        }
    }
}

impl Bucket {
    async fn list(&self, version: &CachedVersion) {
        let folder = folder_of(version);
        let listed = self.keys.names(&folder, self.patience, |name, size| {
            let Some((extent, false)) = Extent::of_name(name) else {
                return;
            };
            // One that was set aside.
            if size == 0 {
                return;
            }
            if size == HEADER_BYTES as u64 + u64::from(extent.len) && extent.end() <= version.size {
                version.index.found(extent);
            } else {
                Counts::add(&self.tier.counts.wrong, 1);
            }
        });
        match listed.await.map_err(|refusal| self.keys.refused(&refusal)) {
            Ok(()) | Err(KeyRefusal::Absent) => {}
            Err(refusal) => self.read_failed("listing", &refusal, false),
        }
    }

    /// The bucket gave no answer, or refuses: it is not read for a while, since each read would wait for it. A refusal that may be of one
    /// object, such as one in an archive, counts as much at the third in a row.
    fn read_failed(&self, what: &str, refusal: &KeyRefusal, may_be_of_one: bool) {
        Counts::add(&self.tier.counts.read_errors, 1);
        let now = Instant::now();
        if may_be_of_one && !self.tier.reads.failed(now) {
            return;
        }
        self.tier.reads.off(now);
        let why = refusal.to_string();
        self.tier.report(what, &why, "the store is read instead");
    }

    /// The bytes of some blocks of a piece, whose header and checksums are right.
    fn blocks(
        &self,
        version: &CachedVersion,
        extent: Extent,
        blocks: &Range<u64>,
    ) -> Result<Vec<u8>, PieceFault> {
        let key = key_of(version, extent);
        let header = HEADER_BYTES as u64;
        let got = self.keys.within(self.patience, async {
            if blocks.start - header <= FRONT_BYTES {
                let mut head = self.keys.get(&key, 0..blocks.end).await?;
                let rest = head.split_off(head.len().min(blocks.start as usize));
                head.truncate(HEADER_BYTES);
                return Ok((head, rest));
            }
            let head = self.keys.get(&key, 0..header);
            try_join(head, self.keys.get(&key, blocks.clone())).await
        });
        let (head, bytes) = match got {
            Ok(got) => got,
            Err(KeyRefusal::Absent) => return Err(PieceFault::Gone),
            Err(refusal) => {
                let is_late = matches!(refusal, KeyRefusal::Late(_));
                self.read_failed("reading", &refusal, !is_late);
                return Err(PieceFault::Wrong);
            }
        };
        let is_whole = bytes.len() as u64 == blocks.end - blocks.start;
        let head = PieceHeader::of(&head, extent, version.hash);
        if is_whole && head.is_ok_and(|head| head.has(blocks.start, &bytes)) {
            self.tier.reads.worked();
            return Ok(bytes);
        }
        self.set_aside(&key);
        Err(PieceFault::Wrong)
    }

    /// Makes what is no piece an empty object: a listing of it would hide shorter pieces that are right. It ends before the read goes on,
    /// so that it never comes behind the PUT of what that fetches.
    fn set_aside(&self, key: &str) {
        if !self.tier.writes.is_on() {
            return;
        }
        let put = self.keys.put(key, Bytes::new());
        if let Err(refusal) = self.keys.within(self.patience, put) {
            self.tier.write_failed(&refusal.to_string());
        }
    }
}

impl Tier for BucketTier {
    fn state(&self) -> &TierState {
        &self.0.tier
    }

    fn look(&self, version: &Arc<CachedVersion>) {
        if !self.0.tier.reads.is_on() || version.listing.is_known() {
            return;
        }
        self.list(version);
        version.listing.await_first(self.0.patience);
    }

    fn read(
        &self,
        version: &CachedVersion,
        piece: PieceFile,
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), PieceFault> {
        let extent = piece.extent;
        let blocks = PieceHeader::blocks(extent, place.at..end);
        let bytes = self.0.blocks(version, extent, &blocks)?;
        let first = extent.offset + blocks.start - HEADER_BYTES as u64;
        while place.at < end {
            let at = place.at;
            let Some(room) = place.room(end - at) else {
                break;
            };
            let (from, len) = ((at - first) as usize, room.len());
            room.copy_from_slice(&bytes[from..from + len]);
            place.advance(len);
            Counts::add(&self.0.tier.counts.hit_bytes, len as u64);
        }
        Ok(())
    }

    fn passes_over(&self, bytes: u64) -> bool {
        !self.0.reads_slow && self.0.tier.speeds.passes_over_disk(bytes)
    }

    /// There are no claims; what others have put since is listed beside the fetch.
    fn claim(&self, version: &Arc<CachedVersion>, _: &Range<u64>) -> Claim {
        if self.0.tier.reads.is_on() && version.listing.is_due() {
            self.list(version);
        }
        Claim::Unknown
    }

    fn is_writing(&self) -> bool {
        self.0.tier.writes.is_on()
    }

    fn write(&self, version: &CachedVersion, buffer: &mut PieceBuffer) -> bool {
        let extent = buffer.extent();
        let piece = buffer.seal(version.hash, &version.about());
        let bytes = Bytes::copy_from_slice(&piece.padded[..piece.len]);
        let key = key_of(version, extent);
        match self
            .0
            .keys
            .within(PUT_PATIENCE, self.0.keys.put(&key, bytes))
        {
            Ok(()) => {
                self.0.tier.wrote(extent);
                version.index.written(extent, None);
                true
            }
            Err(refusal) => {
                self.0.tier.write_failed(&refusal.to_string());
                false
            }
        }
    }
}

impl VersionListing {
    fn hold(&self) -> std::sync::MutexGuard<'_, VersionListingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_known(&self) -> bool {
        self.hold().has_ended
    }

    /// Is it to be listed again?
    fn is_due(&self) -> bool {
        let state = self.hold();
        let pause = LIST_EVERY.max(state.took * LIST_PART);
        state.has_ended && state.began.is_none_or(|began| began.elapsed() >= pause)
    }

    fn end(&self) {
        let mut state = self.hold();
        state.took = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        (state.runs_in, state.has_ended) = (None, true);
        drop(state);
        self.ended.notify_all();
    }

    /// Waits for the end of the first one; a long one goes on beside the reads.
    fn await_first(&self, most: Duration) {
        let state = self.hold();
        let left = most.saturating_sub(state.began.map_or(most, |began| began.elapsed()));
        drop(
            self.ended
                .wait_timeout_while(state, left, |state| !state.has_ended),
        );
    }
}

/// The key of a version's folder below the prefix.
fn folder_of(version: &CachedVersion) -> String {
    format!("{FORMAT_FOLDER}/{}/", version.hash.folder())
}

fn key_of(version: &CachedVersion, extent: Extent) -> String {
    format!("{}{}", folder_of(version), extent.name(false))
}
