//! What a thread does for a fetch: reads the source, and asks it for its version and size. Without the lock, which it takes to
//! say what came.
//!
//! ```text
//!   a job ─unlock─ source.read_at, or source.stream piece by piece ─lock─► Done, Failed
//!   a read that reaches the end as known ─unlock─ source.check ─lock─► grown, changed
//!   changed ─unlock─ source.accept ─lock─► accepted: readers of the file go on
//! ```
//!
//! Never: decides what to read. A panic in a source is an error of that source.

use super::jobs::{Job, Part};
use super::lock::Guard;
use super::streamed::Landing;
use super::{LOOK_UP, Shared, guarded, submitted};
use crate::budget::Claim;
use crate::error::Fault;
use crate::source::{self, EIO, Source, SourceError};
use foreread_core::event::{Error, Event};
use foreread_core::units::{ByteRange, FileId};
use std::io::IoSliceMut;
use std::sync::Arc;

impl Shared {
    /// Runs a job: the transfer without the lock, its end with it.
    pub(super) fn run<'a>(&self, mut state: Guard<'a>, job: &Job, claim: Claim) -> Result<Guard<'a>, Fault> {
        let Some(source) = state.file(job.file).map(|file| file.source.share()) else {
            // Its file is closed, and with it every read of it.
            let now = state.now();
            state.feed(now, Event::Failed { fetch: job.fetch, error: Error::Io(EIO) });
            return Ok(state);
        };
        state.running += 1;
        let began = self.now();
        let outside = state.unlock();
        let (result, parts) = source.once(&outside, |source| self.transfer(source, job, outside.shared()));
        let now = self.now();
        let ahead = claim.is_ahead();
        drop(claim);
        let mut state = outside.lock()?;
        state.running -= 1;
        state.clocked[usize::from(ahead)].record(now.since(began));
        state.complete(now, job, parts, result);
        self.accept(state, job.file)
    }

    /// How much was read and how large the source is, and the buffers that are not in place yet.
    fn transfer(
        &self,
        source: &dyn Source,
        job: &Job,
        shared: &Arc<Shared>,
    ) -> (Result<(usize, u64), SourceError>, Vec<Part>) {
        let mut parts = self.parts(job.range);
        if source.streams() {
            let mut landing = Landing::new(shared, job, parts);
            let room = landing.room_bytes();
            let result = guarded(|| Ok((source.stream(room, job.range.start(), &mut landing)?, source.size())));
            return (result, landing.rest());
        }
        let result = guarded(|| {
            let mut bufs: Vec<IoSliceMut<'_>> =
                parts.iter_mut().map(|p| IoSliceMut::new(p.chunk.bytes_mut())).collect();
            let read = source::read_on(source, &mut bufs, job.range.start(), job.range.len())?;
            Ok((read, source.size()))
        });
        (result, parts)
    }

    /// Buffers for whole pages, one for each group the range touches.
    pub(super) fn parts(&self, range: ByteRange) -> Vec<Part> {
        let part = |(first, end)| {
            let chunk = self.pool.take((end - first) as usize);
            Part { start: self.page.start_of(first), chunk }
        };
        submitted::groups(self.page, range).map(part).collect()
    }

    /// Asks the source for its version and size, because a read reaches the end known so far.
    pub(super) fn check<'a>(&self, state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        // Where it is being asked already, nothing has to be.
        let Some(entry) = state.file(file).filter(|_| !state.is_accepting(file)) else { return Ok(state) };
        let (source, version) = (entry.source.share(), entry.version);
        let outside = state.release();
        let found = source.once(&outside, |source| guarded(|| source.check()));
        let now = self.now();
        let mut state = outside.lock()?;
        match found {
            Ok(size) => state.grown(now, file, version, size),
            Err(SourceError::Changed { .. }) => state.changed(now, file, version),
            // A source that cannot say now is asked again by the next fetch.
            Err(_) => {}
        }
        self.accept(state, file)
    }

    /// Has a source that was found to be another version say what it holds now. Done by the thread that found it; readers of
    /// the file wait meanwhile, and no others.
    pub(super) fn accept<'a>(&self, mut state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        let Some((source, version)) = state.begin_accept(file) else { return Ok(state) };
        // Reads that wait for bytes of the old version fail now.
        let outside = state.unlock();
        let size = source.once(&outside, |source| guarded(|| Ok(source.accept()))).unwrap_or(0);
        let now = self.now();
        let mut state = outside.lock()?;
        state.accepted(now, file, version, size);
        self.accepted.notify_all();
        Ok(state)
    }

    /// Waits until the source of the file, if it has changed, has said what it holds now.
    pub(super) fn await_accepted<'a>(&self, mut state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        while state.is_accepting(file) {
            if let Some(wakeups) = state.wakeups() {
                state = state.release().wake(wakeups).lock()?;
                continue;
            }
            state = state.sleep_on(&self.accepted, LOOK_UP)?.0;
        }
        Ok(state)
    }
}
