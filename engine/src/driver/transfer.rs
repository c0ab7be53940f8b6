//! What a thread does for a fetch: it reads the source, and asks the source for its version and size.
//!
//! The thread reads without the driver's lock, and takes the lock to report the result.
//!
//! ```text
//!   a job ─unlock─ source.read_at, or streaming.stream piece by piece ─lock─► Done, Failed
//!   a read that reaches the known end ─unlock─ source.check ─lock─► grown, changed
//!   changed ─unlock─ source.accept ─lock─► accepted: readers of the file continue
//! ```
//!
//! Example: a read of 4 KiB reaches past the known end of a log file. `check` asks the source for its size, which has grown by 1 MiB; the
//! state machine learns the new size, and the read is served. If a source panics, the panic is reported as an error of that source.

use super::jobs::{CancelFlag, Job, Part, TransferReport};
use super::lock::{WAKEUP_TIMEOUT, guarded};
use super::shared::{DriverShared, Guard, Outside};
use crate::budget::Claim;
use crate::error::Fault;
use crate::source::{self, EIO, Sink, Source, SourceError};
use foreread_core::event::{Error, Event};
use foreread_core::units::FileId;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;

/// Runs a job: reads the source without the lock, and reports the result with the lock.
pub fn run<'a>(mut state: Guard<'a>, job: &Job, claim: Claim) -> Result<Guard<'a>, Fault> {
    let Some(source) = state.files.source(job.file) else {
        // The file is closed, so there is no read that needs it.
        let now = state.now();
        state.fail(now, job.fetch, Error::Io(EIO));
        return Ok(state);
    };
    state.jobs.begins();
    let cancelled = state
        .files
        .streams(job.file)
        .then(|| state.jobs.streams(job.fetch));
    let shared = state.shared();
    let began = shared.now();
    let outside = state.unlock();
    let (result, parts) = source.once(&outside, |source| transfer(source, job, shared, cancelled));
    let now = shared.now();
    let ahead = claim.is_ahead();
    drop(claim);
    let mut state = outside.lock()?;
    state.jobs.ends(job.fetch);
    state.clocked[usize::from(ahead)].record(now.since(began));
    state.complete(now, job, parts, result);
    accept(state, job.file)
}

/// Reads the source. Also returns the buffers that are not stored yet.
fn transfer(
    source: &dyn Source,
    job: &Job,
    shared: &Arc<DriverShared>,
    cancelled: Option<CancelFlag>,
) -> (Result<TransferReport, SourceError>, Vec<Part>) {
    let _span = tracing::debug_span!("fetch", offset = job.range.start(), bytes = job.range.len())
        .entered();
    let mut parts = shared.parts(job.range);
    if let Some((streaming, cancelled)) = source.streaming().zip(cancelled) {
        let room = parts.iter().map(|part| part.chunk.bytes().len()).sum();
        let mut landing = Landing {
            shared,
            job,
            parts: parts.into(),
            ended: false,
            cancelled,
        };
        let result = guarded(|| {
            let read = streaming.stream(room as u64, job.range.start(), &mut landing)?;
            let read = source::within(read, room, "stream")?;
            Ok(TransferReport {
                bytes: read as u64,
                size: source.size(),
            })
        });
        return (result, landing.parts.into());
    }
    let result = guarded(|| {
        let mut bufs: Vec<IoSliceMut<'_>> = parts
            .iter_mut()
            .map(|p| IoSliceMut::new(p.chunk.bytes_mut()))
            .collect();
        let read = source::read_on(source, &mut bufs, job.range.start(), job.range.len())?;
        Ok(TransferReport {
            bytes: read as u64,
            size: source.size(),
        })
    });
    (result, parts)
}

/// Asks the source for its version and size, because a read reaches the known end of the file.
pub fn check(state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    // Nothing to do if the source is already being asked.
    let Some(source) = state
        .files
        .source(file)
        .filter(|_| !state.files.is_accepting(file))
    else {
        return Ok(state);
    };
    let (shared, version) = (state.shared(), state.files.known(file).version);
    let outside = state.release();
    let found = source.once(&outside, |source| guarded(|| source.check()));
    let now = shared.now();
    let mut state = outside.lock()?;
    match found {
        Ok(size) => state.grow(now, file, version, size),
        Err(SourceError::Changed { .. }) => state.change(now, file, version),
        // If the source cannot answer now, the next fetch asks again.
        Err(_) => {}
    }
    accept(state, file)
}

/// Asks a changed source for its size. The thread that noticed the change calls this function; meanwhile only readers of this file wait.
pub fn accept(mut state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    let Some((source, version)) = state.files.begin_accept(file) else {
        return Ok(state);
    };
    let shared = state.shared();
    // Reads that wait for bytes of the old version fail now.
    let outside = state.unlock();
    let size = source
        .once(&outside, |source| guarded(|| Ok(source.accept())))
        .unwrap_or(0);
    let now = shared.now();
    let mut state = outside.lock()?;
    state.accept(now, file, version, size);
    shared.accepted.notify_all();
    Ok(state)
}

/// Waits until the source of the file, if it has changed, has reported its size.
pub fn await_accepted(mut state: Guard<'_>, file: FileId) -> Result<Guard<'_>, Fault> {
    let shared = state.shared();
    while state.files.is_accepting(file) {
        if let Some(wakeups) = state.wakeups() {
            state = state.release().wake(wakeups).lock()?;
            continue;
        }
        state = state.sleep_on(&shared.accepted, WAKEUP_TIMEOUT)?.0;
    }
    Ok(state)
}

/// A fetch whose bytes arrive piece by piece: each buffer is put into the store as soon as it is full, and readers that wait for its
/// bytes continue.
///
/// Example: an HTTP body of 1 MiB, in four buffers of 256 KiB. A reader that waits for the first 4 KiB continues after a quarter of the
/// body. A buffer that is not full, which can only be the last, goes into the store at the end of the fetch (`State::complete`). If the
/// result of the fetch is no longer needed, its further bytes are dropped, and a source that checks for cancellation ends the transfer
/// early.
///
/// ```text
///   parts:  [full]  [full]  [being filled]  [room]  [room]
///             └──────┴─► store + Progress        └── what is left when the stream ends: Done or Failed
/// ```
struct Landing<'a> {
    shared: &'a Arc<DriverShared>,
    job: &'a Job,
    parts: VecDeque<Part>,
    ended: bool,
    cancelled: CancelFlag,
}

impl Sink for Landing<'_> {
    fn at_hand(&mut self) {
        let (now, fetch) = (self.shared.now(), self.job.fetch);
        if let Ok(mut state) = Outside::enter(self.shared).lock() {
            state.feed(now, Event::AtHand { fetch });
            state.unlock();
        }
    }

    fn is_awaited(&self) -> bool {
        let Ok(state) = Outside::enter(self.shared).lock() else {
            return false;
        };
        let fetch = state.machine().fetch(self.job.fetch);
        let awaited = fetch.is_some_and(|fetch| fetch.awaited);
        state.unlock();
        awaited
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.is_set()
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.parts
            .front_mut()
            .filter(|_| !self.ended)
            .map(|part| part.chunk.bytes_mut())
    }

    fn filled(&mut self, bytes: usize) {
        let full = self
            .parts
            .front()
            .is_some_and(|part| part.chunk.bytes().len() == bytes);
        self.ended |= !full || self.parts.len() == 1;
        if self.ended {
            return;
        }
        let now = self.shared.now();
        // After a panic under the lock, the end of the fetch wakes all waiting callers.
        if let Some(part) = self.parts.pop_front()
            && let Ok(mut state) = Outside::enter(self.shared).lock()
        {
            state.land(now, self.job, part);
            state.unlock();
        }
    }
}
