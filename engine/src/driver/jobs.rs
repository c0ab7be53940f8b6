//! The fetches that wait for a thread, with demand before readahead, and the rules that say which thread may take which fetch.
//!
//! ```text
//!   submitted ──► demand ─┬─ a caller that waits for it ──┐
//!             └─► ahead ──┴─ a worker, demand first ──────┴──► running ──► answered
//!                     └─ cancelled before a thread took it ──► answered without a transfer; while it streams ──► ended early
//! ```
//!
//! Example: a read of 8 KiB misses, and the policy adds 128 KiB of readahead. The read makes two jobs: the caller takes the demand job,
//! and a worker takes the readahead job.

use crate::budget::Claim;
use crate::chunk::Chunk;
use crate::store::{Lease, Store};
use foreread_core::event::Class;
use foreread_core::machine::{GROUP_PAGES, Machine};
use foreread_core::units::{ByteRange, FetchId, FileId, GroupSlot, Nanos, PageSize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A fetch that waits until a thread runs it.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub fetch: FetchId,
    pub file: FileId,
    pub range: ByteRange,
    /// The version of the file for which the job was created.
    pub version: u64,
}

/// The pages of a fetch that belong to one group.
pub struct Part {
    /// Offset of the first byte.
    pub start: u64,
    pub chunk: Chunk,
}

/// What a successful transfer has found: the number of bytes read, and the current size of the source.
#[derive(Clone, Copy, Debug)]
pub struct TransferReport {
    pub bytes: u64,
    /// The current size of the source.
    pub size: u64,
}

#[derive(Default)]
pub struct Jobs {
    pub demand: VecDeque<Job>,
    ahead: VecDeque<Job>,
    /// Files whose sources a worker must ask for their size, on behalf of tasks.
    pub checks: VecDeque<FileId>,
    /// Number of jobs that threads are running now.
    pub running: u32,
    /// The running jobs that stream, and their cancel flags.
    streaming: Vec<(FetchId, CancelFlag)>,
}

/// A flag that asks a streaming transfer to stop early. The flag can be read without the driver's lock.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Jobs {
    // ---- getters ----

    /// Whether no work is left for a worker.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.demand.is_empty() && self.ahead.is_empty() && self.checks.is_empty()
    }

    /// Number of waiting fetches.
    pub fn len(&self) -> usize {
        self.demand.len() + self.ahead.len()
    }

    pub fn has_demand_of(&self, file: FileId) -> bool {
        self.demand.iter().any(|job| job.file == file)
    }

    /// Whether at least two fetches of this file are waiting.
    pub fn has_several_of(&self, file: FileId) -> bool {
        self.len() > 1
            && self
                .demand
                .iter()
                .chain(&self.ahead)
                .filter(|job| job.file == file)
                .nth(1)
                .is_some()
    }

    pub fn has_for(&self, file: FileId, range: ByteRange, alone: bool) -> bool {
        let demand = self.demand.iter().any(|job| alone || job.file == file);
        demand || self.ahead.iter().any(|job| brings(job, file, range))
    }

    // ---- in and out ----

    pub fn push(&mut self, job: Job, class: Class) {
        match class {
            Class::Demand => self.demand.push_back(job),
            Class::Ahead => self.ahead.push_back(job),
        }
    }

    /// Takes a demand job that fetches bytes of `range`, or else any demand job of the same file. If `alone` is true (there are no
    /// workers), any demand job is taken as a last resort, because the caller that needed it may no longer wait. If there are workers, a
    /// caller never runs a job of another file, because the other source may take any amount of time.
    pub fn take_demand(&mut self, file: FileId, range: ByteRange, alone: bool) -> Option<Job> {
        let index = |fits: &dyn Fn(&Job) -> bool| self.demand.iter().position(fits);
        let found = index(&|job| brings(job, file, range))
            .or_else(|| index(&|job| alone || job.file == file));
        self.demand.remove(found?)
    }

    /// Takes a job for a caller that waits for `range`: any job that fetches bytes of this range, or else a job as in
    /// [`Jobs::take_demand`].
    pub fn take_for(&mut self, file: FileId, range: ByteRange, alone: bool) -> Option<Job> {
        if !self.demand.iter().any(|job| brings(job, file, range))
            && let Some(i) = self.ahead.iter().position(|job| brings(job, file, range))
        {
            return self.ahead.remove(i);
        }
        self.take_demand(file, range, alone)
    }

    /// Takes the next job for a worker, demand before readahead.
    pub fn take_any(&mut self) -> Option<(Job, Class)> {
        let demand = self.demand.pop_front().map(|job| (job, Class::Demand));
        demand.or_else(|| Some((self.ahead.pop_front()?, Class::Ahead)))
    }

    /// Passes every job to `accept`, demand jobs first, and removes the jobs for which `accept` returns true.
    pub fn take_if(&mut self, mut accept: impl FnMut(&Job, Class) -> bool) {
        self.demand.retain(|job| !accept(job, Class::Demand));
        self.ahead.retain(|job| !accept(job, Class::Ahead));
    }

    /// Puts back jobs that were taken but not started. The jobs that were put back are treated as demand jobs, because a caller may wait
    /// for them.
    pub fn put_back(&mut self, jobs: impl IntoIterator<Item = Job>) {
        self.demand.extend(jobs);
    }

    /// Cancels a job whose result is no longer needed. If the job already runs, it ends early only if its transfer streams; any other
    /// transfer continues to its last byte.
    pub fn cancel(&mut self, fetch: FetchId) -> Option<Job> {
        if let Some((_, cancelled)) = self.streaming.iter().find(|(running, _)| *running == fetch) {
            cancelled.0.store(true, Ordering::Relaxed);
        }
        [&mut self.demand, &mut self.ahead]
            .into_iter()
            .find_map(|queue| {
                let i = queue.iter().position(|job| job.fetch == fetch)?;
                queue.remove(i)
            })
    }

    /// Counts a job that a thread starts.
    pub fn begins(&mut self) {
        self.running += 1;
    }

    /// Records that the started job streams its bytes, and returns the flag that can cancel it.
    pub fn streams(&mut self, fetch: FetchId) -> CancelFlag {
        let cancelled = CancelFlag::default();
        self.streaming.push((fetch, cancelled.clone()));
        cancelled
    }

    /// Counts a job that a thread has finished.
    pub fn ends(&mut self, fetch: FetchId) {
        self.running -= 1;
        self.streaming.retain(|(running, _)| *running != fetch);
    }

    /// Cancels all streaming fetches at shutdown, because no caller waits for them any more.
    pub fn cancel_streams(&mut self) {
        self.streaming
            .iter()
            .for_each(|(_, cancelled)| cancelled.0.store(true, Ordering::Relaxed));
    }

    // ---- sources that must be asked for their size ----

    /// Requests that a worker asks the source of this file for its size.
    pub fn push_check(&mut self, file: FileId) {
        if !self.checks.contains(&file) {
            self.checks.push_back(file);
        }
    }
}

fn brings(job: &Job, file: FileId, range: ByteRange) -> bool {
    job.file == file && !job.range.intersect(range).is_empty()
}

// Moving bytes of a fetch to their pages, and bytes of pages to a read.
//
// The machine has already decided which pages these are.
//
// ```text
//   parts of a fetch ──keep──► groups of the store ──fill──► a lease: memory that a read may copy from
// ```

/// Stores the bytes that have arrived: all whole pages, and the last page of the file.
pub fn keep(machine: &Machine, store: &mut Store, job: &Job, parts: Vec<Part>, bytes: u64) {
    let page_size = machine.config().page;
    let arrived = job.range.start() + bytes;
    for part in parts {
        let page = page_size.page_of(part.start);
        let end = part.start + part.chunk.bytes().len() as u64;
        let slot = machine.group_slot(job.file, page / GROUP_PAGES);
        let at = page % GROUP_PAGES;
        if arrived < end.min(job.range.end()) {
            // A short fetch is rare: keep the complete pages at its start, and discard the rest.
            let whole = page_size.page_of(arrived - part.start.min(arrived));
            if let Some(slot) = slot.filter(|_| whole > 0) {
                keep_front(store, slot, part.chunk, (at, whole));
            }
            return;
        }
        if let Some(slot) = slot {
            store.put(slot, at as usize, Arc::new(part.chunk));
        }
    }
}

/// Keeps this many pages at the start of a chunk that belongs at page `at` of its group.
fn keep_front(store: &mut Store, slot: GroupSlot, chunk: Chunk, (at, whole): (u64, u64)) {
    let gone = (chunk.pages() as u64).saturating_sub(whole);
    store.put(slot, at as usize, Arc::new(chunk));
    if gone > 0 {
        store.drop_pages(slot, (u64::MAX >> (GROUP_PAGES - gone)) << (at + whole));
    }
}

/// Adds the cached bytes of a range to `lease`. All pages of the range must be present. If a page is missing, which is a bug in foreread,
/// returns false.
pub fn fill(
    machine: &Machine,
    store: &Store,
    file: FileId,
    range: ByteRange,
    lease: &mut Lease,
) -> bool {
    let group_bytes = machine.config().page.bytes() * GROUP_PAGES;
    let mut at = range.start();
    while at < range.end() {
        let number = at / group_bytes;
        let base = number * group_bytes;
        let end = range.end().min(base + group_bytes);
        let Some(slot) = machine.group_slot(file, number) else {
            return false;
        };
        if !store.lease(slot, (at - base) as usize..(end - base) as usize, lease) {
            return false;
        }
        at = end;
    }
    true
}

// A fetch that was submitted to a queue in pieces, one for each group of pages, and the order in which the pieces are stored.
//
// Example: a fetch of three pieces. Piece 1 arrives first and waits. Piece 0 arrives, and both are stored. Piece 2 arrives and ends
// the fetch. A piece that ends early (at the end of the file) ends the fetch at once.

/// A fetch that was submitted to a queue in several transfers.
pub struct SubmittedFetch {
    /// Distinguishes this use of a slot from earlier uses. Together with the piece number it is the tag of a transfer.
    pub serial: u64,
    pub job: Job,
    /// Number of pieces at the queue.
    pub left: u32,
    /// Pieces that have arrived and wait for an earlier one.
    early: Vec<FetchPiece>,
    /// Pieces and bytes that are stored.
    landed_pieces: u64,
    landed_bytes: u64,
    /// Whether the machine has its answer; pieces that arrive later are dropped.
    pub answered: bool,
    /// When it was submitted.
    pub began: Nanos,
    /// Its share of the budget.
    pub claim: Claim,
}

/// A piece of a submitted fetch that has arrived.
pub struct FetchPiece {
    /// Its index in the fetch.
    pub number: u64,
    pub part: Part,
    /// Number of bytes read.
    pub read: u64,
}

impl SubmittedFetch {
    pub fn new(serial: u64, job: Job, pieces: u32, began: Nanos, claim: Claim) -> SubmittedFetch {
        SubmittedFetch {
            serial,
            job,
            left: pieces,
            early: Vec::new(),
            landed_pieces: 0,
            landed_bytes: 0,
            answered: false,
            began,
            claim,
        }
    }

    /// Ends the fetch: its pieces that have arrived but are not stored yet are dropped.
    pub fn fail(&mut self) {
        self.answered = true;
        self.early.clear();
    }

    /// Handles a piece that has arrived. Returns the pieces that now follow the stored data without a gap, and the bytes of the fetch that
    /// are stored, including these. If no more of its data will be stored, the fetch is answered.
    pub fn arrive(&mut self, piece: Option<FetchPiece>) -> (Vec<Part>, u64) {
        self.early.extend(piece);
        let (mut parts, mut short) = (Vec::new(), false);
        while let Some(at) = self
            .early
            .iter()
            .position(|piece| piece.number == self.landed_pieces)
            .filter(|_| !short)
        {
            let FetchPiece { part, read, .. } = self.early.swap_remove(at);
            let wanted = (part.chunk.bytes().len() as u64).min(self.job.range.end() - part.start);
            short = read < wanted;
            self.landed_pieces += 1;
            self.landed_bytes += read.min(wanted);
            parts.push(part);
        }
        self.answered = short || self.landed_bytes >= self.job.range.len();
        (parts, self.landed_bytes)
    }
}

/// The pages of each group that a range touches.
pub fn groups(page: PageSize, range: ByteRange) -> impl Iterator<Item = Range<u64>> {
    let pages = page.cover(range);
    let cut = move |number| {
        pages.first.max(number * GROUP_PAGES)..pages.end.min((number + 1) * GROUP_PAGES)
    };
    (pages.first / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES)).map(cut)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// `demand` jobs of file 0, then `ahead` readahead jobs. Fetch `n` covers byte `n`.
    pub fn jobs(demand: u64, ahead: u64) -> Jobs {
        let mut jobs = Jobs::default();
        for n in 0..demand + ahead {
            let class = if n < demand {
                Class::Demand
            } else {
                Class::Ahead
            };
            jobs.push(
                Job {
                    fetch: FetchId(n),
                    file: FileId(0),
                    range: ByteRange::between(n, n + 1),
                    version: 0,
                },
                class,
            );
        }
        jobs
    }

    #[test]
    fn callers_take_their_own_first_and_workers_demand() {
        let mut jobs = jobs(2, 2);
        let mine = |n| ByteRange::between(n, n + 1);
        let take = |jobs: &mut Jobs, n| {
            jobs.take_for(FileId(0), mine(n), false)
                .map(|job| job.fetch.0)
        };
        assert_eq!(take(&mut jobs, 3), Some(3), "readahead it waits for");
        assert_eq!(take(&mut jobs, 1), Some(1));
        assert!(jobs.has_for(FileId(0), mine(9), false));
        assert!(
            !jobs.has_for(FileId(1), mine(0), false),
            "another file's source may hang"
        );
        assert!(jobs.take_for(FileId(1), mine(0), false).is_none());
        assert!(
            jobs.has_for(FileId(1), mine(0), true),
            "nothing else would run it"
        );
        assert_eq!(take(&mut jobs, 9), Some(0), "demand of another reader");
        assert_eq!(take(&mut jobs, 9), None, "no readahead of another");
        assert!(!jobs.has_for(FileId(1), mine(2), true) && jobs.has_for(FileId(0), mine(2), false));
        jobs.push(
            Job {
                fetch: FetchId(8),
                file: FileId(0),
                range: mine(8),
                version: 0,
            },
            Class::Demand,
        );
        assert_eq!(
            jobs.take_any().map(|(job, _)| job.fetch.0),
            Some(8),
            "a worker takes demand first"
        );
        assert!(
            jobs.cancel(FetchId(7)).is_none()
                && jobs.cancel(FetchId(2)).is_some()
                && jobs.is_empty()
        );
    }
}
