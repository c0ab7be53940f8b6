//! What this process knows about one version in a shared bucket: which runs of consecutive blocks are there, and whether they are
//! being listed now.

use super::folder::FORMAT_FOLDER;
use super::hash::{BLOCK_BYTES, VersionHash};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// While reads of a version go to the store, it is listed again at this interval. `LIST_PART`: the interval is at least this many times as
/// long as the last listing took.
const LIST_EVERY: Duration = Duration::from_secs(10);
const LIST_PART: u32 = 20;
/// Maximum number of blocks of a run.
const MAX_RUN: u64 = 256;
/// The length in bytes of the header of a run's object, which is followed by the checksums.
pub const FRONT: u64 = 24;

/// A run of consecutive blocks of a version, stored as one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    pub first: u64,
    pub blocks: u64,
}

impl BlockRun {
    pub fn of_name(name: &str) -> Option<BlockRun> {
        let (first, blocks) = name.split_once('.')?;
        let number = |text: &str| {
            let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(text, 16).ok().filter(|_| is_hex)
        };
        let (first, blocks) = (number(first)?, number(blocks)?);
        let fits = (1..=MAX_RUN).contains(&blocks) && first < 1 << 51;
        fits.then_some(BlockRun { first, blocks })
    }

    pub fn key(self, version: VersionHash) -> String {
        format!("{}{:x}.{:x}", folder_of(version), self.first, self.blocks)
    }

    /// Returns the range of the source that this run holds.
    pub fn bytes(self, size: u64) -> Range<u64> {
        let at = |block: u64| (block * BLOCK_BYTES).min(size);
        at(self.first)..at(self.first + self.blocks)
    }

    /// Returns the offset in the run's object at which the blocks begin.
    pub fn data_at(self) -> u64 {
        FRONT + 8 * self.blocks
    }
}

/// The runs of a version that are known to be in the bucket.
#[derive(Default)]
pub struct VersionListing {
    pub state: Mutex<ListingState>,
    ended: Condvar,
}

#[derive(Default)]
pub struct ListingState {
    /// The first block of each run, and the number of its blocks.
    pub runs: BTreeMap<u64, u64>,
    pub began: Option<Instant>,
    took: Duration,
    /// The process that is listing: a forked child does not have the thread that lists.
    pub runs_in: Option<u32>,
    has_ended: bool,
}

impl ListingState {
    pub fn run_of(&self, block: u64) -> Option<BlockRun> {
        let near = self.runs.range(block.saturating_sub(MAX_RUN)..=block).rev();
        let mut runs = near.map(|(&first, &blocks)| BlockRun { first, blocks });
        runs.find(|run| block < run.first + run.blocks)
    }

    pub fn add(&mut self, run: BlockRun) {
        let blocks = self.runs.entry(run.first).or_default();
        *blocks = run.blocks.max(*blocks);
    }
}

impl VersionListing {
    pub fn is_known(&self) -> bool {
        lock(&self.state).has_ended
    }

    /// Returns true if it is time to list the version's runs again.
    pub fn is_due(&self) -> bool {
        let state = lock(&self.state);
        let pause = LIST_EVERY.max(state.took * LIST_PART);
        state.has_ended && state.began.is_none_or(|began| began.elapsed() >= pause)
    }

    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.took = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        (state.runs_in, state.has_ended) = (None, true);
        drop(state);
        self.ended.notify_all();
    }

    /// Waits for the first listing to end, at most this long after it began. If the listing takes longer, it continues while reads
    /// go on.
    pub fn await_first(&self, most: Duration) {
        let state = lock(&self.state);
        let left = most.saturating_sub(state.began.map_or(most, |began| began.elapsed()));
        drop(
            self.ended
                .wait_timeout_while(state, left, |state| !state.has_ended),
        );
    }
}

/// Returns the key of a version's folder, relative to the prefix.
pub fn folder_of(hash: VersionHash) -> String {
    format!("{FORMAT_FOLDER}/{}/{}/", hash.folder(), hash.name())
}
