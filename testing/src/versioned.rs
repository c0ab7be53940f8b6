//! An object as a store has it: with an exact version that can be replaced, and a count of what is asked.
//!
//! Example: `VersionedSource::new("s/a", 1 << 20)` reads version 0 of the pattern; after `replace` a read fails with "changed" until the
//! new version is accepted.

use crate::fill;
use foreread::source::{Defaults, ExactVersion, Mem, Sink, Source, SourceError, StreamingSource};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Self-naming bytes as an object: with an exact version, a count of what is asked, and a version that can be changed.
pub struct VersionedSource {
    bytes: Mem,
    name: String,
    version: AtomicU64,
    accepted: AtomicU64,
    requests: AtomicU64,
    asked_bytes: AtomicU64,
    /// Taken for the time of each request.
    pub gate: Mutex<()>,
    /// In place of each read.
    pub fails: Mutex<Option<fn() -> SourceError>>,
    /// Whether it says which version it has.
    pub is_exact: bool,
    /// Whether it is read as a stream.
    pub streams: bool,
}

impl VersionedSource {
    /// With this name and size.
    pub fn new(name: &str, size: u64) -> Arc<VersionedSource> {
        Arc::new(VersionedSource::of(name, size))
    }

    /// The same, to be changed before it is shared.
    pub fn of(name: &str, size: u64) -> VersionedSource {
        VersionedSource {
            bytes: Mem::generated(size, |_, _| {}),
            name: name.to_string(),
            version: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            gate: Mutex::default(),
            fails: Mutex::default(),
            is_exact: true,
            streams: true,
        }
    }

    /// Puts the next version in its place.
    pub fn replace(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Has had this version from the start.
    pub fn begin_with(&self, version: u16) {
        self.version.store(version.into(), Ordering::Relaxed);
        self.accept();
    }

    /// The version that it reads.
    pub fn accepted(&self) -> u16 {
        self.accepted.load(Ordering::Relaxed) as u16
    }

    /// Requests so far, and the bytes that they asked for.
    pub fn asked(&self) -> (u64, u64) {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (get(&self.requests), get(&self.asked_bytes))
    }

    /// Counts a request, which waits for the gate.
    fn ask(&self, len: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.asked_bytes.fetch_add(len, Ordering::Relaxed);
        drop(self.gate.lock());
    }

    fn now(&self) -> Result<u16, SourceError> {
        let accepted = self.accepted.load(Ordering::Relaxed);
        if accepted == self.version.load(Ordering::Relaxed) {
            return Ok(accepted as u16);
        }
        Err(SourceError::Changed {
            what: "another version".to_string(),
        })
    }
}

impl Source for VersionedSource {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        if !self.streams {
            self.ask(bufs.iter().map(|buf| buf.len() as u64).sum());
        }
        let fails = *self.fails.lock().expect("no panic");
        if let Some(error) = fails {
            return Err(error());
        }
        let mut at = offset;
        for buf in bufs {
            let len = (buf.len() as u64).min(self.size().saturating_sub(at)) as usize;
            fill(&mut buf[..len], at, self.now()?);
            at += len as u64;
        }
        Ok((at - offset) as usize)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults::OBJECT
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        self.is_exact.then(|| ExactVersion {
            source: self.name.clone(),
            version: self.accepted.load(Ordering::Relaxed).to_string(),
            shown: self.name.clone(),
        })
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.now().map(|_| self.size())
    }

    fn accept(&self) -> u64 {
        self.accepted
            .store(self.version.load(Ordering::Relaxed), Ordering::Relaxed);
        self.size()
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        self.streams.then_some(self as &dyn StreamingSource)
    }
}

impl StreamingSource for VersionedSource {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        self.ask(len);
        let end = (offset + len).min(self.size());
        let mut at = offset;
        while at < end {
            let Some(room) = sink.room() else { break };
            let len = room.len().min((end - at) as usize);
            let read = self.read_at(&mut [IoSliceMut::new(&mut room[..len])], at)?;
            sink.filled(read);
            at += read as u64;
        }
        Ok((at - offset) as usize)
    }
}
