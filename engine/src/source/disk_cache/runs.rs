//! The known blocks of a version in a bucket: runs of blocks, and the progress of their listing.

use super::folder::FORMAT_FOLDER;
use super::hash::{BLOCK_BYTES, VersionHash};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a version is listed again while reads of it go to the store, and the part of the time that this may take.
const LIST_EVERY: Duration = Duration::from_secs(10);
const LIST_PART: u32 = 20;
/// Blocks of a run, at most.
const MAX_RUN: u64 = 256;
/// Bytes before the checksums.
pub const FRONT: u64 = 24;

/// A run of blocks of a version, as an object.
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

    /// Its bytes in the source.
    pub fn bytes(self, size: u64) -> Range<u64> {
        let at = |block: u64| (block * BLOCK_BYTES).min(size);
        at(self.first)..at(self.first + self.blocks)
    }

    /// Where its bytes begin in the object.
    pub fn data_at(self) -> u64 {
        FRONT + 8 * self.blocks
    }
}

/// The known content of a bucket for a version.
#[derive(Default)]
pub struct VersionListing {
    state: Mutex<ListingState>,
    ended: Condvar,
}

#[derive(Default)]
pub struct ListingState {
    /// Blocks of the run that begins at a block.
    pub runs: BTreeMap<u64, u64>,
    pub began: Option<Instant>,
    took: Duration,
    /// The process that lists: a fork has none of its threads.
    pub runs_in: Option<u32>,
    has_ended: bool,
}

impl ListingState {
    /// The run that has a block.
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
    pub fn hold(&self) -> MutexGuard<'_, ListingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_known(&self) -> bool {
        self.hold().has_ended
    }

    /// Is it to be listed again?
    pub fn is_due(&self) -> bool {
        let state = self.hold();
        let pause = LIST_EVERY.max(state.took * LIST_PART);
        state.has_ended && state.began.is_none_or(|began| began.elapsed() >= pause)
    }

    pub fn end(&self) {
        let mut state = self.hold();
        state.took = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        (state.runs_in, state.has_ended) = (None, true);
        drop(state);
        self.ended.notify_all();
    }

    /// Waits for the end of the first one; a long one goes on beside the reads.
    pub fn await_first(&self, most: Duration) {
        let state = self.hold();
        let left = most.saturating_sub(state.began.map_or(most, |began| began.elapsed()));
        drop(
            self.ended
                .wait_timeout_while(state, left, |state| !state.has_ended),
        );
    }
}

/// The key of a version's folder below the prefix.
pub fn folder_of(hash: VersionHash) -> String {
    format!("{FORMAT_FOLDER}/{}/{}/", hash.folder(), hash.name())
}
