//! A source whose bytes a Python function fetches: `fetch(start, end)` returns the bytes of that range.
//!
//! The engine calls it from its threads, several at once, each with the interpreter attached for the call and released for
//! the copy. An exception fails the reads that need these bytes; it is kept, so that the reader can raise it again.

use crate::calls::Call;
use foreread::source::{Defaults, Source, SourceError};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kind of such a source.
pub const KIND: &str = "python";
/// Exceptions that are kept for readers.
const MAX_KEPT: usize = 32;

/// See the head of this file.
pub struct Fetcher {
    fetch: Py<PyAny>,
    size: u64,
    name: String,
    defaults: Defaults,
    failed: Mutex<VecDeque<(Range<u64>, PyErr)>>,
}

impl Fetcher {
    /// `requests` is how many calls at once are as fast as one.
    pub fn new(fetch: Py<PyAny>, size: u64, name: String, requests: u32) -> Fetcher {
        let defaults =
            Defaults { kind: KIND, max_fetch_bytes: MAX_FETCH_BYTES, ..Defaults::OBJECT }.with_requests(requests);
        Fetcher { fetch, size, name, defaults, failed: Mutex::default() }
    }

    /// The function, for Python's collector.
    pub fn function(&self) -> &Py<PyAny> {
        &self.fetch
    }

    /// The exception that failed a fetch of some of these bytes.
    pub fn failure(&self, py: Python<'_>, bytes: &Range<u64>) -> Option<PyErr> {
        let overlaps = |(range, _): &&(Range<u64>, PyErr)| range.start < bytes.end && bytes.start < range.end;
        self.failed().iter().rev().find(overlaps).map(|(_, error)| error.clone_ref(py))
    }

    fn failed(&self) -> MutexGuard<'_, VecDeque<(Range<u64>, PyErr)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, range: Range<u64>, error: PyErr) {
        let mut failed = self.failed();
        let gone = if failed.len() == MAX_KEPT { failed.pop_front() } else { None };
        failed.push_back((range, error));
        // Without the lock: the end of an exception may run Python's code.
        drop(failed);
        drop(gone);
    }

    fn call(
        &self,
        py: Python<'_>,
        range: Range<u64>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> PyResult<Result<usize, SourceError>> {
        let answer = self.fetch.bind(py).call1((range.start, range.end))?;
        let answer = match answer.cast_into::<PyBytes>() {
            Ok(bytes) => bytes,
            // bytearray, memoryview, an array: anything that `bytes` takes, but no number.
            Err(other) => {
                let view = py.import("builtins")?.getattr("memoryview")?.call1((other.into_inner(),))?;
                view.call_method0("tobytes")?.cast_into::<PyBytes>()?
            }
        };
        let bytes = answer.as_bytes();
        let wanted = range.end - range.start;
        if bytes.len() as u64 > wanted {
            let what = format!("{}: {} bytes came for {wanted} at {}", self.name, bytes.len(), range.start);
            return Ok(Err(SourceError::Io { errno: libc::EIO, what }));
        }
        if (bytes.len() as u64) < wanted {
            return Ok(Err(SourceError::Short { at: range.start + bytes.len() as u64, size: self.size }));
        }
        Ok(Ok(py.detach(|| copy(bytes, bufs))))
    }
}

/// A larger fetch is served whole, so late; more requests than this costs were not measured to be cheaper.
const MAX_FETCH_BYTES: u64 = 1 << 20;

/// Fills the buffers in order.
fn copy(mut bytes: &[u8], bufs: &mut [IoSliceMut<'_>]) -> usize {
    let all = bytes.len();
    for buf in bufs {
        let (now, rest) = bytes.split_at(bytes.len().min(buf.len()));
        buf[..now.len()].copy_from_slice(now);
        bytes = rest;
    }
    all - bytes.len()
}

/// The number that an exception has, if it is an `OSError` with one.
fn errno(py: Python<'_>, error: &PyErr) -> i32 {
    let number = || error.value(py).getattr("errno").ok()?.extract::<i32>().ok();
    if error.is_instance_of::<PyOSError>(py) { number().filter(|&n| n > 0).unwrap_or(libc::EIO) } else { libc::EIO }
}

impl Source for Fetcher {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let room = bufs.iter().fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        let range = offset.min(self.size)..offset.saturating_add(room).min(self.size);
        if range.is_empty() {
            return Ok(0);
        }
        let ends = || SourceError::Io { errno: libc::EIO, what: format!("{}: Python ends", self.name) };
        let _call = Call::begin().ok_or_else(ends)?;
        let done = Python::try_attach(|py| {
            self.call(py, range.clone(), bufs).unwrap_or_else(|error| {
                let (errno, what) = (errno(py, &error), format!("{}: {error}", self.name));
                self.keep(range.clone(), error);
                Err(SourceError::Io { errno, what })
            })
        });
        done.unwrap_or_else(|| Err(ends()))
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn defaults(&self) -> Defaults {
        self.defaults
    }
}
