//! A source that reads through a Python function: `fetch(start, end)` returns the bytes of that range.
//!
//! Several threads of the engine may call the function at the same time. A thread attaches to the interpreter for the
//! call, and detaches from it while it copies the bytes. In Python without a GIL, the calls run in parallel. If the function raises an
//! exception, the reads that need these bytes fail, and raise the same exception.

use crate::calls::Call;
use foreread::source::{Defaults, Source, SourceError};
use pyo3::exceptions::{PyBaseException, PyOSError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kind of storage that a source with a Python function has.
pub const KIND: &str = "python";
/// Maximum number of exceptions kept for readers. Each is kept from the failure until the reader raises it, so many fetches may fail
/// in that time: with a limit of 64, eight threads on two busy cores got an OSError instead. An exception keeps its traceback's
/// frames alive.
const MAX_KEPT: usize = 1024;

/// Exceptions, each with the range whose fetch failed.
type FetchExceptions = VecDeque<(Range<u64>, Py<PyBaseException>)>;

pub struct Fetcher {
    fetch: Py<PyAny>,
    size: u64,
    name: String,
    defaults: Defaults,
    /// Bytes requested from the function, over all processes that opened it.
    asked: Arc<AtomicU64>,
    failed: Mutex<FetchExceptions>,
}

impl Fetcher {
    /// `requests` is the maximum number of concurrent calls, and `largest` is the maximum number of bytes per call.
    pub fn new(
        fetch: Py<PyAny>,
        size: u64,
        name: String,
        requests: u32,
        largest: u64,
        asked: Arc<AtomicU64>,
    ) -> Fetcher {
        let defaults = Defaults {
            kind: KIND,
            max_fetch_bytes: largest,
            ..Defaults::OBJECT
        }
        .with_requests(requests);
        Fetcher {
            fetch,
            size,
            name,
            defaults,
            asked,
            failed: Mutex::default(),
        }
    }

    /// Tells Python's garbage collector to which Python objects this fetcher refers: the function, and the stored exceptions. The stack
    /// frames of the exceptions refer to the file that owns this fetcher. If the stored exceptions are locked, they are skipped, because a
    /// collection may run at any time and must not wait for the lock.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.fetch)?;
        let Ok(failed) = self.failed.try_lock() else {
            return Ok(());
        };
        failed.iter().try_for_each(|(_, error)| visit.call(error))
    }

    /// Returns the exception that the function raised for bytes of this range.
    pub fn failure(&self, py: Python<'_>, bytes: &Range<u64>) -> Option<PyErr> {
        let failed = self.failed();
        let overlaps = |range: &Range<u64>| range.start < bytes.end && bytes.start < range.end;
        let (_, error) = failed.iter().rev().find(|(range, _)| overlaps(range))?;
        Some(PyErr::from_value(error.bind(py).clone().into_any()))
    }

    fn failed(&self) -> MutexGuard<'_, FetchExceptions> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, range: Range<u64>, error: Py<PyBaseException>) {
        let mut failed = self.failed();
        // For the same range, the last exception replaces earlier ones.
        let same = failed.iter().position(|(of, _)| *of == range);
        let gone = match same {
            Some(at) => failed.remove(at),
            None if failed.len() == MAX_KEPT => failed.pop_front(),
            None => None,
        };
        failed.push_back((range, error));
        // Outside the lock, because dropping an exception may run Python code.
        drop(failed);
        drop(gone);
    }

    fn call(
        &self,
        py: Python<'_>,
        range: Range<u64>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> PyResult<Result<usize, SourceError>> {
        self.asked
            .fetch_add(range.end - range.start, Ordering::Relaxed);
        let answer = self.fetch.bind(py).call1((range.start, range.end))?;
        let answer = match answer.cast_into::<PyBytes>() {
            Ok(bytes) => bytes,
            // bytearray, memoryview, an array: anything that `bytes` accepts, except a number.
            Err(other) => {
                let view = py.import("builtins")?.getattr("memoryview")?;
                let view = view.call1((other.into_inner(),))?;
                view.call_method0("tobytes")?.cast_into::<PyBytes>()?
            }
        };
        let bytes = answer.as_bytes();
        let (name, got, at) = (&self.name, bytes.len() as u64, range.start);
        let wanted = range.end - range.start;
        if got > wanted {
            let what =
                format!("{name}: the function returned {got} bytes instead of {wanted} at {at}");
            let errno = libc::EIO;
            return Ok(Err(SourceError::Io { errno, what }));
        }
        if got < wanted {
            let (at, size) = (at + got, self.size);
            return Ok(Err(SourceError::Short { at, size }));
        }
        Ok(Ok(py.detach(|| copy(bytes, bufs))))
    }
}

/// Fills the buffers in order with these bytes.
fn copy(mut bytes: &[u8], bufs: &mut [IoSliceMut<'_>]) -> usize {
    let all = bytes.len();
    for buf in bufs {
        let (now, rest) = bytes.split_at(bytes.len().min(buf.len()));
        buf[..now.len()].copy_from_slice(now);
        bytes = rest;
    }
    all - bytes.len()
}

/// The errno of an exception, if it is an `OSError` with one.
fn errno(py: Python<'_>, error: &PyErr) -> i32 {
    let number = || error.value(py).getattr("errno").ok()?.extract::<i32>().ok();
    if error.is_instance_of::<PyOSError>(py) {
        number().filter(|&n| n > 0).unwrap_or(libc::EIO)
    } else {
        libc::EIO
    }
}

impl Source for Fetcher {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let room = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        let range = offset.min(self.size)..offset.saturating_add(room).min(self.size);
        if range.is_empty() {
            return Ok(0);
        }
        let ends = || SourceError::Io {
            errno: libc::EIO,
            what: format!("{}: Python ends", self.name),
        };
        let _call = Call::begin().ok_or_else(ends)?;
        let done = Python::try_attach(|py| {
            self.call(py, range.clone(), bufs).unwrap_or_else(|error| {
                let (errno, what) = (errno(py, &error), format!("{}: {error}", self.name));
                self.keep(range.clone(), error.into_value(py));
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
