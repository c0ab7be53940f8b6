//! Fills a cache with all objects below a prefix; cached data is skipped.
//!
//! ```text
//!   folders ──list──► objects ──open──► ranges that are not on the disk ──fetch──► writer ──► disk
//!      └──── each thread takes the last of these that has work ────┘          └─ waits while a third of its queue is full
//! ```
//! This module does not keep fetched data in memory, and ends as soon as more data would exceed the cache's size limit.

use super::claims::CLAIM_BYTES;
use super::hash::BLOCK_BYTES;
use super::object::HEADER_BYTES;
use super::{DiskCache, DiskCacheCounts};
use crate::source::of_panic;
use crate::source::tree::{self, FolderNames, Kind, Meta, Tree};
use crate::source::{Sink, Source, SourceError};
use crate::sync::lock;
use foreread_os::threads::spawn_scoped;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Maximum bytes of one request. Requests are smaller if many concurrent ones would fill the writer's queue.
const MAX_RANGE_BYTES: u64 = 8 << 20;
/// Size of the buffer that takes the bytes of a reply; its content is discarded.
const SCRATCH_BYTES: usize = 256 << 10;
/// While fewer names than this wait, folders are listed before objects are opened, so that the total is known early.
const MAX_EARLY_NAMES: usize = 1 << 20;
/// Maximum number of folders that wait to be listed.
const MAX_FOLDERS: usize = 1 << 20;
/// Maximum number of skipped objects that are reported by name.
const MAX_LEFT_OUT: usize = 1000;
/// How often a waiting thread checks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the caller gets the progress.
const TICK: Duration = Duration::from_millis(50);
/// How long to wait for the last writes at the end.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// The progress of [`DiskCache::fill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheFillCounts {
    /// Number of objects found so far.
    pub objects: u64,
    /// Total bytes of these objects.
    pub bytes: u64,
    /// Bytes that were in the cache before, or that another process has put there meanwhile.
    pub held_bytes: u64,
    /// Bytes fetched so far.
    pub fetched_bytes: u64,
}

/// Why [`DiskCache::fill`] ended before it had fetched everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFillEnd {
    /// The cache's size limit is reached.
    Full,
    /// The disk is full, or it refused a write, or data of this fill was evicted.
    Refused,
    /// The caller stopped it.
    Stopped,
}

/// The result of [`DiskCache::fill`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheFillReport {
    /// The progress at the end.
    pub counts: CacheFillCounts,
    /// The names of the first thousand objects and folders that could not be read, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Why it ended early. `None` if it did not.
    pub ended: Option<CacheFillEnd>,
    /// Bytes of other data that were evicted to make room.
    pub evicted_bytes: u64,
    /// Bytes that were fetched but not written, because the disk did not keep up.
    pub dropped_bytes: u64,
}

struct FillWork<'a> {
    cache: &'a DiskCache,
    tree: &'a dyn Tree,
    state: Mutex<FillState>,
    /// Signalled when there is new work, or when there will be no more.
    changed: Condvar,
    stopped: Arc<AtomicBool>,
    range_bytes: u64,
    /// The most bytes that the cache may have on its disk.
    most_bytes: u64,
    /// The cache's counters and bytes at the start.
    before: DiskCacheCounts,
    before_bytes: u64,
}

#[derive(Default)]
struct FillState {
    folders: Vec<PathBuf>,
    listings: Vec<UnopenedNames>,
    ranges: Vec<MissingRange>,
    /// Number of listed files that have not been opened yet.
    names: usize,
    /// Number of threads that are working.
    busy: usize,
    /// Bytes on disk of all files that this run found cached or has begun to write.
    file_bytes: u64,
    counts: CacheFillCounts,
    left_out: Vec<(String, String)>,
    ended: Option<CacheFillEnd>,
}

struct UnopenedNames {
    folder: PathBuf,
    names: Arc<FolderNames>,
    next: usize,
}

struct MissingRange {
    source: Arc<dyn Source>,
    name: String,
    range: Range<u64>,
}

enum FillJob {
    List(PathBuf),
    Open(PathBuf, Option<Meta>),
    Fetch(MissingRange),
}

impl DiskCache {
    /// Fills this cache with all objects of a tree. Calls `goes_on` with the progress about every 50 ms; if it returns false, the fill
    /// stops and cancels running requests. Returns when the last data is written.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn fill(
        &self,
        tree: &dyn Tree,
        goes_on: &mut dyn FnMut(CacheFillCounts) -> bool,
    ) -> std::io::Result<CacheFillReport> {
        let requests = u64::from(tree.defaults().requests.max(1));
        let share = self.parts.writer.most_queued() / 2 / requests / CLAIM_BYTES * CLAIM_BYTES;
        let work = FillWork {
            cache: self,
            tree,
            state: Mutex::new(FillState {
                folders: vec![PathBuf::new()],
                ..FillState::default()
            }),
            changed: Condvar::new(),
            stopped: Arc::default(),
            before: self.counts(),
            before_bytes: self.bytes().unwrap_or(0),
            most_bytes: self.disk.most_bytes(),
            range_bytes: share.clamp(CLAIM_BYTES, MAX_RANGE_BYTES),
        };
        std::thread::scope(|scope| {
            for thread in 0..requests {
                match spawn_scoped(scope, "foreread-fill", || work.run()) {
                    Err(error) if thread == 0 => return Err(error),
                    Err(_) => break,
                    Ok(_) => {}
                }
            }
            while !lock(&work.state).is_done() {
                if !goes_on(work.counts()) {
                    work.end(CacheFillEnd::Stopped);
                }
                std::thread::sleep(TICK);
            }
            Ok(())
        })?;
        if !self.flush(WRITE_PATIENCE) || work.has_refused() {
            work.end(CacheFillEnd::Refused);
        }
        let (now, counts) = (self.counts(), work.counts());
        let state = lock(&work.state);
        Ok(CacheFillReport {
            counts,
            left_out: state.left_out.clone(),
            ended: state.ended,
            evicted_bytes: now.evicted_bytes - work.before.evicted_bytes,
            dropped_bytes: now.dropped_bytes - work.before.dropped_bytes,
        })
    }
}

impl FillState {
    fn is_done(&self) -> bool {
        let is_empty =
            self.folders.is_empty() && self.listings.is_empty() && self.ranges.is_empty();
        self.busy == 0 && (is_empty || self.ended.is_some())
    }

    fn take(&mut self) -> Option<FillJob> {
        if self.ended.is_some() {
            return None;
        }
        if self.names < MAX_EARLY_NAMES
            && let Some(folder) = self.folders.pop()
        {
            return Some(FillJob::List(folder));
        }
        if let Some(range) = self.ranges.pop() {
            return Some(FillJob::Fetch(range));
        }
        while let Some(listing) = self.listings.last_mut() {
            let Some(entry) = listing.names.entry(listing.next) else {
                self.listings.pop();
                continue;
            };
            listing.next += 1;
            if entry.kind != Kind::File {
                continue;
            }
            let path = listing.folder.join(entry.name);
            self.names -= 1;
            return Some(FillJob::Open(path, entry.meta));
        }
        self.folders.pop().map(FillJob::List)
    }

    fn leave_out(&mut self, name: String, why: String) {
        if self.left_out.len() < MAX_LEFT_OUT {
            self.left_out.push((name, why));
        }
    }
}

impl FillWork<'_> {
    /// What another process has written since an object was opened is not fetched again.
    fn counts(&self) -> CacheFillCounts {
        let hit_bytes = self.cache.counts().hit_bytes - self.before.hit_bytes;
        let mut counts = lock(&self.state).counts;
        let by_others = hit_bytes.min(counts.fetched_bytes);
        counts.held_bytes += by_others;
        counts.fetched_bytes -= by_others;
        counts
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn end(&self, why: CacheFillEnd) {
        // Requests that began before a limit was reached still fit.
        let stops = why == CacheFillEnd::Stopped || self.has_refused();
        let mut state = lock(&self.state);
        state.ended.get_or_insert(why);
        self.stopped.fetch_or(stops, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the disk has refused a write, or more was evicted than the cache's other data at the start.
    fn has_refused(&self) -> bool {
        let now = self.cache.counts();
        let others = self
            .before_bytes
            .saturating_sub(lock(&self.state).counts.held_bytes);
        now.refused_writes > self.before.refused_writes
            || now.evicted_bytes - self.before.evicted_bytes > others
    }

    fn run(&self) {
        let stopped = Arc::clone(&self.stopped);
        let need = move || !stopped.load(Ordering::Relaxed);
        tree::while_needed(Arc::new(need), || {
            let mut scratch = vec![0; SCRATCH_BYTES];
            let mut state = lock(&self.state);
            loop {
                let Some(job) = state.take() else {
                    if state.is_done() {
                        return self.changed.notify_all();
                    }
                    let waited = self.changed.wait_timeout(state, LOOK_EVERY);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                };
                state.busy += 1;
                drop(state);
                self.work(job, &mut scratch);
                state = lock(&self.state);
                state.busy -= 1;
                self.changed.notify_all();
            }
        });
    }

    /// Does one job. If a source panics, its object is skipped.
    fn work(&self, job: FillJob, scratch: &mut [u8]) {
        let name = match &job {
            FillJob::List(path) | FillJob::Open(path, _) => path.display().to_string(),
            FillJob::Fetch(missing) => missing.name.clone(),
        };
        let done = catch_unwind(AssertUnwindSafe(|| match job {
            FillJob::List(folder) => self.list(folder),
            FillJob::Open(path, meta) => self.open(&path, meta),
            FillJob::Fetch(missing) => self.fetch(&missing, scratch),
        }));
        match done.unwrap_or_else(|panic| Err(of_panic(&*panic))) {
            Err(_) if self.is_stopped() => {}
            Err(error) => lock(&self.state).leave_out(name, error.to_string()),
            Ok(()) => {}
        }
    }

    fn list(&self, folder: PathBuf) -> Result<(), SourceError> {
        let names = self.tree.names(&folder)?;
        let mut state = lock(&self.state);
        for entry in names.entries() {
            match entry.kind {
                Kind::Folder if state.folders.len() < MAX_FOLDERS => {
                    state.folders.push(folder.join(entry.name));
                }
                Kind::Folder => {
                    let name = folder.join(entry.name).display().to_string();
                    state.leave_out(name, "too many folders".to_string());
                }
                Kind::File => {
                    state.names += 1;
                    state.counts.objects += 1;
                    // The store reports the sizes; their sum must not overflow.
                    let size = entry.meta.map_or(0, |meta| meta.size);
                    state.counts.bytes = state.counts.bytes.saturating_add(size);
                }
                Kind::Link => {}
            }
        }
        state.listings.push(UnopenedNames {
            folder,
            names,
            next: 0,
        });
        Ok(())
    }

    /// Opens an object and determines its missing ranges.
    fn open(&self, path: &Path, meta: Option<Meta>) -> Result<(), SourceError> {
        let (mut source, _) = match &meta {
            Some(meta) if meta.size == 0 => return Ok(()),
            Some(meta) => self.tree.open_listed(path, meta)?,
            None => self.tree.open(path)?,
        };
        if source.exact_version().is_none() {
            // A reply has more information than a listing entry.
            source = self.tree.open(path)?.0;
        }
        let size = source.size();
        let Some(exact) = source.exact_version() else {
            let why = "the server does not report an exact version of the object (no strong ETag)";
            lock(&self.state).leave_out(path.display().to_string(), why.to_string());
            return Ok(());
        };
        let missing = self.cache.disk.missing(exact, size);
        let lacks: u64 = missing.iter().map(|range| range.end - range.start).sum();
        let source = self.cache.over(source);
        let mut state = lock(&self.state);
        let counts = &mut state.counts;
        let more = size - meta.map_or(0, |meta| meta.size).min(size);
        counts.bytes = counts.bytes.saturating_add(more);
        counts.held_bytes = counts.held_bytes.saturating_add(size - lacks);
        state.file_bytes = state.file_bytes.saturating_add(in_files(size - lacks));
        // The last range is taken first. Each is one request.
        let step = self.range_bytes;
        for range in missing.iter().rev() {
            for part in (range.start / step..range.end.div_ceil(step)).rev() {
                state.ranges.push(MissingRange {
                    source: Arc::clone(&source),
                    name: path.display().to_string(),
                    range: range.start.max(part * step)..range.end.min((part + 1) * step),
                });
            }
        }
        Ok(())
    }

    fn fetch(&self, missing: &MissingRange, scratch: &mut [u8]) -> Result<(), SourceError> {
        while self.cache.parts.is_behind() && !self.is_stopped() {
            self.cache.flush(LOOK_EVERY);
        }
        let start = missing.range.start;
        let len = self.fitting(&missing.range) - start;
        if self.has_refused() {
            self.end(CacheFillEnd::Refused);
        }
        if self.is_stopped() || len == 0 {
            return Ok(());
        }
        let mut sink = Forgotten {
            scratch,
            left: len,
            work: self,
        };
        // A source that has a disk cache streams.
        match missing.source.streaming() {
            Some(source) => source.stream(len, start, &mut sink).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The end of the part of a range that fits into the cache's limit and on the disk. If not all of it fits, the fill ends with this part.
    fn fitting(&self, range: &Range<u64>) -> u64 {
        let mut state = lock(&self.state);
        let limit = self.cache.settings().size_bytes.min(self.most_bytes);
        let room = limit.saturating_sub(state.file_bytes);
        let fits = range.start + room / in_files(CLAIM_BYTES) * CLAIM_BYTES;
        let is_all = in_files(range.end - range.start) <= room;
        let end = if is_all {
            range.end
        } else {
            // Take whole megabytes only.
            (fits.min(range.end) / CLAIM_BYTES * CLAIM_BYTES).max(range.start)
        };
        state.file_bytes += in_files(end - range.start);
        drop(state);
        if !is_all {
            self.end(match limit == self.most_bytes {
                true => CacheFillEnd::Refused,
                false => CacheFillEnd::Full,
            });
        }
        end
    }
}

/// The most disk space that the cache's files need for this many bytes of data.
fn in_files(bytes: u64) -> u64 {
    let blocks = bytes.div_ceil(BLOCK_BYTES);
    blocks * (BLOCK_BYTES + 8) + 2 * HEADER_BYTES
}

/// A sink that discards bytes; the cache has copied them before.
struct Forgotten<'a> {
    scratch: &'a mut [u8],
    left: u64,
    work: &'a FillWork<'a>,
}

impl Sink for Forgotten<'_> {
    fn room(&mut self) -> Option<&mut [u8]> {
        let len = self.left.min(self.scratch.len() as u64) as usize;
        (len > 0).then(|| &mut self.scratch[..len])
    }

    fn is_cancelled(&self) -> bool {
        self.work.is_stopped()
    }

    fn filled(&mut self, bytes: usize) {
        self.left -= bytes as u64;
        lock(&self.work.state).counts.fetched_bytes += bytes as u64;
    }
}
