//! A nearby bucket as a cache shared by machines: `shared=s3://BUCKET/PREFIX`.
//!
//! Each object below the prefix holds a run: consecutive blocks of one version, at most 1 MiB. foreread lists the keys of a
//! version to find its runs. The first read of a version starts this listing. The listing is repeated from time to time, as long
//! as some reads have to go to the store. Data fetched from the store is uploaded in the background.
//!
//! ```text
//!   PREFIX/foreread-cache-2/ab/abcd.../100.20     32 blocks of 4 KiB from block 256 on:
//!     16 version | 8 checksum of the checksums | 8 checksum of each block | the bytes
//!
//!   read ──► listing (waits for the first one, 1.5 s at most) ── not listed ──► the store, and a PUT in the background
//!              │ listed
//!              ▼
//!            GET of checksums and blocks ── gone, wrong ──► run forgotten, the store
//!                                        └─ late, refused ──► the store; the bucket is not used for a while
//! ```
//! A bucket has no locks: if several machines start to read the same data at the same time, each of them fetches it from the store.
//! foreread deletes nothing in the bucket and enforces no size limit; let a lifecycle rule expire old objects. If the checksum of a run's
//! data is wrong, foreread replaces the run by an empty object. An error of the bucket never makes a read fail. Each wait of a read for
//! the bucket is limited to 1.5 s.

use super::claims::Claim;
use super::hash::{BLOCK_BYTES, VersionHash, checksum};
use super::object::Fault;
use super::runs::{BlockRun, FRONT, folder_of};
use super::settings::SharedBucket;
use super::shared::{CachedVersion, Counts, TierState};
use super::tier::{Part, Tier};
use crate::source::SourceOpenError;
use crate::source::object::{self, KeyRefusal, Keys, ObjectSettings, begin};
use crate::source::sinks::FillPlace;
use crate::sync::lock;
use bytes::Bytes;
use futures_util::future::try_join;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Maximum number of concurrent PUT requests.
pub const WRITERS: usize = 4;
/// Time limit of a PUT.
const PUT_PATIENCE: Duration = Duration::from_secs(10);
/// How long the bucket is not read after it has refused.
const READ_PAUSE: Duration = Duration::from_secs(30);
/// If a range starts inside a run, the bytes before it are fetched too, unless they are more than this.
const FRONT_BYTES: u64 = 128 << 10;

pub struct BucketTier {
    keys: Keys,
    tier: TierState,
    patience: Duration,
    /// This tier, for the listings in the background.
    own: Weak<BucketTier>,
}

impl BucketTier {
    /// Prepares access to the bucket; sends no request yet.
    pub fn open(
        shared: &SharedBucket,
        objects: Option<ObjectSettings>,
    ) -> Result<Arc<BucketTier>, SourceOpenError> {
        let mut settings = objects.map_or_else(|| object::settings(&shared.name), Ok)?;
        if let Some(endpoint) = &shared.endpoint_url {
            settings.endpoint_url = endpoint.unredacted_text().map(str::to_string);
        }
        settings.profile = shared.profile.clone().or(settings.profile);
        let keys = Keys::open(&shared.name, settings)?;
        Ok(Arc::new_cyclic(|own| BucketTier {
            keys,
            tier: TierState::new(format!("shared cache {}", shared.name)),
            patience: shared.patience,
            own: Weak::clone(own),
        }))
    }

    /// Starts to list a version, unless a listing is already running.
    fn begin_list(&self, version: &Arc<CachedVersion>) {
        {
            let mut state = lock(&version.listing.state);
            let me = Some(std::process::id());
            if state.runs_in == me {
                return;
            }
            (state.runs_in, state.began) = (me, Some(Instant::now()));
        }
        let (bucket, listed) = (Weak::clone(&self.own), Arc::clone(version));
        let work = async move {
            if let Some(bucket) = bucket.upgrade() {
                bucket.list(&listed).await;
            }
            listed.listing.end();
        };
        if begin(work).is_err() {
            version.listing.end();
        }
    }

    async fn list(&self, version: &CachedVersion) {
        let folder = folder_of(version.hash);
        let listed = self.keys.names(&folder, self.patience, |name, size| {
            // An empty object marks an invalid run.
            let Some(run) = BlockRun::of_name(name).filter(|_| size > 0) else {
                return;
            };
            let bytes = run.bytes(version.size);
            let is_within = run.first + run.blocks <= version.size.div_ceil(BLOCK_BYTES);
            if is_within && size == run.data_at() + bytes.end - bytes.start {
                lock(&version.listing.state).add(run);
            } else {
                Counts::add(&self.tier.counts.wrong, 1);
            }
        });
        match listed.await.map_err(|refusal| self.keys.refused(&refusal)) {
            Ok(()) | Err(KeyRefusal::Absent) => {}
            Err(refusal) => self.read_failed("listing", &refusal, false),
        }
    }

    /// Stops reading from the bucket for a while, because it did not answer or refused: otherwise each read would wait for it. A refusal
    /// that may concern only one object, such as an archived one, has this effect only the third time in a row.
    fn read_failed(&self, what: &str, refusal: &KeyRefusal, may_be_of_one: bool) {
        Counts::add(&self.tier.counts.read_errors, 1);
        if may_be_of_one && !self.tier.reads.failed() {
            return;
        }
        self.tier.reads.off(READ_PAUSE);
        let why = refusal.to_string();
        self.tier.report(what, &why, "the store is read instead");
    }

    /// Reads some blocks of a run and verifies their checksums.
    fn blocks(
        &self,
        version: &CachedVersion,
        run: BlockRun,
        blocks: &Range<u64>,
    ) -> Result<Vec<u8>, Fault> {
        let key = run.key(version.hash);
        let (data_at, first) = (run.data_at(), run.bytes(version.size).start);
        let at = |block: u64| data_at + (block * BLOCK_BYTES).min(version.size) - first;
        let wanted = at(blocks.start)..at(blocks.end);
        let got = self.keys.within(self.patience, async {
            if wanted.start <= FRONT_BYTES {
                let mut head = self.keys.get(&key, 0..wanted.end).await?;
                let rest = head.split_off(head.len().min(wanted.start as usize));
                head.truncate(data_at as usize);
                return Ok((head, rest));
            }
            let head = self.keys.get(&key, 0..data_at);
            try_join(head, self.keys.get(&key, wanted.clone())).await
        });
        let (head, bytes) = match got {
            Ok(got) => got,
            Err(KeyRefusal::Absent) => return Err(Fault::Absent),
            Err(refusal) => {
                let is_late = matches!(refusal, KeyRefusal::Late(_));
                self.read_failed("reading", &refusal, !is_late);
                return Err(Fault::Absent);
            }
        };
        let is_whole = bytes.len() as u64 == wanted.end - wanted.start;
        let sums = (blocks.start - run.first) as usize;
        if is_whole && has_blocks(&head, version.hash, run, &bytes, blocks.start, sums) {
            self.tier.reads.worked();
            return Ok(bytes);
        }
        Counts::add(&self.tier.counts.wrong, 1);
        self.set_aside(&key);
        Err(Fault::Wrong(Some(blocks.start)))
    }

    /// Replaces an invalid run by an empty object: in a listing, the invalid run would hide valid shorter runs. The replacement completes
    /// before the read continues, so that it cannot overwrite the PUT of the refetched data.
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
        &self.tier
    }

    fn next(&self, version: &Arc<CachedVersion>, range: &Range<u64>) -> Part {
        if !version.listing.is_known() {
            self.begin_list(version);
            version.listing.await_first(self.patience);
        }
        let state = lock(&version.listing.state);
        let run = state.run_of(range.start / BLOCK_BYTES);
        if let Some(run) = run {
            let end = run.bytes(version.size).end.min(range.end);
            return Part::Here(end, Vec::new());
        }
        let next = state.runs.range(range.start / BLOCK_BYTES..).next();
        let end = next.map_or(range.end, |(first, _)| first * BLOCK_BYTES);
        Part::Store(end.min(range.end))
    }

    fn read(
        &self,
        version: &Arc<CachedVersion>,
        _: &[u64],
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), Fault> {
        let blocks = place.at / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let run = lock(&version.listing.state).run_of(blocks.start);
        let run = run.ok_or(Fault::Absent)?;
        let bytes = self.blocks(version, run, &blocks).inspect_err(|_| {
            lock(&version.listing.state).runs.remove(&run.first);
        })?;
        let first = blocks.start * BLOCK_BYTES;
        let put = place.put(&bytes[(place.at - first) as usize..(end - first) as usize]);
        Counts::add(&self.tier.counts.hit_bytes, put as u64);
        Ok(())
    }

    /// A bucket has no claims. Runs that other machines upload meanwhile are found by a listing during the fetch.
    fn claim(&self, version: &Arc<CachedVersion>, _: &Range<u64>) -> Claim {
        if self.tier.reads.is_on() && version.listing.is_due() {
            self.begin_list(version);
        }
        Claim::Unknown
    }

    fn is_writing(&self) -> bool {
        self.tier.writes.is_on()
    }

    fn write(&self, version: &Arc<CachedVersion>, offset: u64, bytes: &[u8]) -> bool {
        let blocks = (bytes.len() as u64).div_ceil(BLOCK_BYTES);
        let run = BlockRun {
            first: offset / BLOCK_BYTES,
            blocks,
        };
        let key = run.key(version.hash);
        let object = object_of(version.hash, run, bytes);
        let put = self.keys.put(&key, object);
        match self.keys.within(PUT_PATIENCE, put) {
            Ok(()) => {
                self.tier.wrote(bytes.len() as u64);
                lock(&version.listing.state).add(run);
                true
            }
            Err(refusal) => {
                self.tier.write_failed(&refusal.to_string());
                false
            }
        }
    }
}

fn object_of(hash: VersionHash, run: BlockRun, bytes: &[u8]) -> Bytes {
    let blocks = bytes.chunks(BLOCK_BYTES as usize).zip(run.first..);
    let sums: Vec<u8> = blocks
        .flat_map(|(bytes, block)| hash.sum(block, bytes).to_le_bytes())
        .collect();
    let mut object = hash.bytes().to_vec();
    object.extend_from_slice(&checksum(&sums).to_le_bytes());
    object.extend_from_slice(&sums);
    object.extend_from_slice(bytes);
    object.into()
}

/// Returns whether these bytes are the blocks from `first` on. `head` has the checksums of the run; theirs start at `index`.
fn has_blocks(
    head: &[u8],
    hash: VersionHash,
    run: BlockRun,
    bytes: &[u8],
    first: u64,
    index: usize,
) -> bool {
    let (Some(sums), Some(sum)) = (head.get(FRONT as usize..), head.get(16..FRONT as usize)) else {
        return false;
    };
    let is_head = sums.len() as u64 == 8 * run.blocks && head[..16] == hash.bytes();
    let mut blocks = bytes
        .chunks(BLOCK_BYTES as usize)
        .zip(first..)
        .zip(sums.chunks_exact(8).skip(index));
    let is_block =
        |((bytes, block), sum): ((&[u8], u64), &[u8])| hash.sum(block, bytes).to_le_bytes() == sum;
    is_head && checksum(sums).to_le_bytes() == sum && blocks.all(is_block)
}
