//! What a thread does for a fetch: reads the source, and asks it for its version and size. Without the lock, which it takes to
//! say what came.
//!
//! ```text
//!   a job ─unlock─ source.read_at, or source.stream piece by piece ─lock─► Done, Failed
//!   a read that reaches the end as known ─unlock─ source.check ─lock─► grown, changed
//! ```
//!
//! Never: decides what to read. A panic in a source is an error of that source.

use super::jobs::{Job, Part};
use super::streamed::Landing;
use super::{Guard, Shared, guarded, line};
use crate::budget::Claim;
use crate::error::Fault;
use crate::source::{self, EIO, SourceError};
use foreread_core::event::{Error, Event};
use foreread_core::units::{ByteRange, FileId};
use std::io::IoSliceMut;
use std::sync::Arc;

impl Shared {
    /// Runs a job: the transfer without the lock, its end with it.
    pub(super) fn run<'a>(
        self: &'a Arc<Shared>,
        mut state: Guard<'a>,
        job: &Job,
        claim: Claim,
    ) -> Result<Guard<'a>, Fault> {
        let Some(source) = state.file(job.file).map(|file| Arc::clone(&file.source)) else {
            // Its file is gone, and with it everybody who wanted it.
            let now = state.now();
            state.feed(now, Event::Failed { fetch: job.fetch, error: Error::Io(EIO) });
            return Ok(state);
        };
        state.running += 1;
        let began = self.now();
        self.unlock(state);
        let mut parts = self.parts(job.range);
        let result = if source.streams() {
            let mut landing = Landing::new(self, job, parts);
            let room = landing.room_bytes();
            let result = guarded(|| Ok((source.stream(room, job.range.start(), &mut landing)?, source.size())));
            parts = landing.rest();
            result
        } else {
            guarded(|| {
                let mut bufs: Vec<IoSliceMut<'_>> =
                    parts.iter_mut().map(|p| IoSliceMut::new(p.chunk.bytes_mut())).collect();
                let read = source::read_on(&*source, &mut bufs, job.range.start(), job.range.len())?;
                Ok((read, source.size()))
            })
        };
        let now = self.now();
        let ahead = claim.is_ahead();
        drop(claim);
        let mut state = self.lock()?;
        state.running -= 1;
        state.clocked[usize::from(ahead)].record(now.since(began));
        state.complete(now, job, parts, result);
        Ok(state)
    }

    /// Buffers for whole pages, one for each group the range touches.
    pub(super) fn parts(&self, range: ByteRange) -> Vec<Part> {
        let part = |(first, end)| {
            let chunk = self.pool.take((end - first) as usize);
            Part { start: self.page.start_of(first), chunk }
        };
        line::groups(self.page, range).map(part).collect()
    }

    /// Asks the source for its version and size, because a read reaches the end known so far.
    pub(super) fn check<'a>(self: &'a Arc<Shared>, state: Guard<'a>, file: FileId) -> Result<Guard<'a>, Fault> {
        let Some(entry) = state.file(file) else { return Ok(state) };
        let (source, version) = (Arc::clone(&entry.source), entry.version);
        drop(state);
        let found = guarded(|| source.check());
        let now = self.now();
        let mut state = self.lock()?;
        match found {
            Ok(size) => state.grown(now, file, version, size),
            Err(SourceError::Changed { .. }) => state.changed(now, file, version),
            // A source that cannot say now is asked again by the next fetch.
            Err(_) => {}
        }
        Ok(state)
    }
}
