//! `foreread._native.Handle`: one open file. `foreread/_file.py` makes an `io.RawIOBase` of it.
//!
//! ```text
//!   call ──► lend: the reader, or ValueError (closed), or a new one (this is a forked child)
//!        ──► wait::read without the interpreter ──► bytes, or the exception of the fetch, or OSError
//! ```
//! A reader that is lent lives until its call returns: `close` in another thread ends no read in flight, and the last one
//! closes the source.

use crate::buffer::{Filling, new_bytes};
use crate::error::{guarded, invalid, of_open, of_read};
use crate::fetcher::Fetcher;
use crate::process::{self, Settings};
use crate::{ranges, report, wait};
use foreread::source::{self, Source, SourceName};
use foreread::{OpenError, ReadError, Reader};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes asked for behind the known end, where a source may have grown.
const BEYOND_BYTES: usize = 64 << 10;

/// Where the bytes come from; kept, to open it again in a forked child.
enum Origin {
    Name(SourceName),
    Function { fetch: Py<PyAny>, size: u64, kind: String, requests: u32 },
}

/// An open source, and what made it where that is a function.
#[derive(Clone)]
struct Opened {
    reader: Arc<Reader>,
    fetcher: Option<Arc<Fetcher>>,
    generation: u64,
}

/// See the head of this file.
#[pyclass(frozen, module = "foreread._native")]
pub struct Handle {
    origin: Origin,
    /// Without its secrets.
    shown: String,
    settings: Settings,
    opened: Mutex<Option<Opened>>,
}

/// A reader for one call.
pub struct Lent {
    // Taken when it is dropped.
    opened: Option<Opened>,
}

impl Lent {
    pub fn reader(&self) -> &Reader {
        // There until the drop.
        &self.opened.as_ref().expect("lent").reader
    }

    /// An error as Python's: what the function raised, if it did.
    fn error(&self, py: Python<'_>, error: &ReadError, shown: &str) -> PyErr {
        let place = match error {
            ReadError::Io { place, .. } => Some(place.offset..place.offset.saturating_add(place.len as u64)),
            _ => None,
        };
        let fetcher = self.opened.as_ref().and_then(|opened| opened.fetcher.as_ref());
        let raised = place.zip(fetcher).and_then(|(bytes, fetcher)| fetcher.failure(py, &bytes));
        raised.unwrap_or_else(|| of_read(error, shown))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            close(opened);
        }
    }
}

/// Drops a reader; the last one may wait for a fetch, so without the interpreter.
fn close(opened: Opened) {
    let Opened { reader, generation, .. } = opened;
    if generation != process::generation() {
        // Of the process that forked this one.
        return std::mem::forget(reader);
    }
    let Some(last) = Arc::into_inner(reader) else { return };
    let mut last = Some(last);
    // Nothing to release where the interpreter ends: then it is dropped below.
    Python::try_attach(|py| py.detach(|| drop(last.take())));
    drop(last);
}

impl Handle {
    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(py: Python<'_>, origin: Origin, shown: String, settings: Settings) -> PyResult<Handle> {
        let opened = open(py, &origin, &shown, &settings)?;
        Ok(Handle { origin, shown, settings, opened: Mutex::new(Some(opened)) })
    }

    fn lend(&self, py: Python<'_>) -> PyResult<Lent> {
        let generation = process::generation();
        match &*self.opened() {
            None => return Err(invalid("I/O operation on closed file")),
            Some(opened) if opened.generation == generation => return Ok(Lent { opened: Some(opened.clone()) }),
            Some(_) => {}
        }
        // Not locked meanwhile: it waits.
        let new = open(py, &self.origin, &self.shown, &self.settings)?;
        let mut opened = self.opened();
        let old = match &*opened {
            None => return Err(invalid("I/O operation on closed file")),
            // Another thread was first.
            Some(there) if there.generation == generation => Some(new),
            Some(_) => opened.replace(new),
        };
        let lent = Lent { opened: opened.clone() };
        drop(opened);
        if let Some(old) = old {
            close(old);
        }
        Ok(lent)
    }

    fn shut(&self) {
        // Not locked while it closes.
        let opened = self.opened().take();
        if let Some(opened) = opened {
            close(opened);
        }
    }

    fn read(&self, py: Python<'_>, lent: &Lent, buf: &mut [u8], offset: u64) -> PyResult<usize> {
        wait::read(py, lent.reader(), buf, offset)?.map_err(|error| lent.error(py, &error, &self.shown))
    }
}

/// Opens a source on the engine of its kind.
fn open(py: Python<'_>, origin: &Origin, shown: &str, settings: &Settings) -> PyResult<Opened> {
    let generation = process::generation();
    let fetcher = match origin {
        Origin::Name(_) => None,
        Origin::Function { fetch, size, requests, .. } => {
            Some(Arc::new(Fetcher::new(fetch.clone_ref(py), *size, shown.to_string(), *requests)))
        }
    };
    let (source, kind): (Arc<dyn Source>, &str) = match (origin, &fetcher) {
        (Origin::Function { kind, .. }, Some(fetcher)) => (Arc::clone(fetcher) as Arc<dyn Source>, kind),
        (Origin::Name(name), _) if source::is_remote(name) => {
            let asked = name.clone();
            let opened = wait::call(py, move || source::open(asked))?;
            named(opened.map_err(OpenError::from), shown)?
        }
        (Origin::Name(name), _) => named(py.detach(|| source::open(name)).map_err(OpenError::from), shown)?,
        (Origin::Function { .. }, None) => return Err(invalid("no function to fetch with")),
    };
    let failed = |error: OpenError| of_open(&error, shown);
    let (engine, idle) = process::engine(kind, source.defaults(), settings).map_err(failed)?;
    let reader = py.detach(|| {
        drop(idle);
        engine.open(source)
    });
    Ok(Opened { reader: Arc::new(reader.map_err(failed)?), fetcher, generation })
}

fn named(opened: Result<Arc<dyn Source>, OpenError>, shown: &str) -> PyResult<(Arc<dyn Source>, &'static str)> {
    let source = opened.map_err(|error| of_open(&error, shown))?;
    let kind = source.defaults().kind;
    Ok((source, kind))
}

/// A number that counts bytes.
fn bytes(number: i64, what: &str) -> PyResult<u64> {
    u64::try_from(number).map_err(|_| invalid(format!("{what} {number} is negative; it counts bytes")))
}

fn pairs(ranges: Vec<(i64, i64)>) -> PyResult<Vec<(u64, u64)>> {
    ranges.into_iter().map(|(offset, length)| Ok((bytes(offset, "offset")?, bytes(length, "length")?))).collect()
}

#[pymethods]
impl Handle {
    /// Opens a source by its name.
    #[staticmethod]
    fn by_name(py: Python<'_>, name: std::ffi::OsString, settings: Given) -> PyResult<Handle> {
        guarded(|| {
            let name = SourceName::from(name);
            if name.is_empty() {
                return Err(invalid("no name; write a path, or a source such as s3://bucket/key"));
            }
            let shown = name.to_string();
            Handle::open(py, Origin::Name(name), shown, or_default(settings))
        })
    }

    /// A source of `size` bytes that `fetch(start, end)` reads.
    #[staticmethod]
    fn by_function(
        py: Python<'_>,
        fetch: Py<PyAny>,
        size: i64,
        name: String,
        kind: String,
        requests: u32,
        settings: Given,
    ) -> PyResult<Handle> {
        guarded(|| {
            let size = bytes(size, "size")?;
            let kind = format!("python {kind} {requests}");
            Handle::open(py, Origin::Function { fetch, size, kind, requests }, name, or_default(settings))
        })
    }

    /// The bytes at an offset, fewer at the end.
    fn read_at<'py>(&self, py: Python<'py>, offset: i64, length: i64) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (offset, length) = (bytes(offset, "offset")?, bytes(length, "length")?);
            let lent = self.lend(py)?;
            let there = lent.reader().size().saturating_sub(offset);
            let room = if there == 0 { length.min(BEYOND_BYTES as u64) } else { length.min(there) };
            new_bytes(py, usize::try_from(room).unwrap_or(usize::MAX), |buf| self.read(py, &lent, buf, offset))
        })
    }

    /// Fills a buffer from an offset on. Returns how many bytes there were.
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        guarded(|| {
            let offset = bytes(offset, "offset")?;
            let mut filling = Filling::of(buffer)?;
            let lent = self.lend(py)?;
            self.read(py, &lent, filling.bytes(), offset)
        })
    }

    /// The bytes of each range, fetched at once.
    fn read_ranges<'py>(&self, py: Python<'py>, ranges: Vec<(i64, i64)>) -> PyResult<Bound<'py, PyList>> {
        guarded(|| {
            let (ranges, lent) = (pairs(ranges)?, self.lend(py)?);
            let mut list = Vec::with_capacity(ranges.len());
            let mut ahead = ranges::Ahead::new(lent.reader(), &ranges);
            for &(offset, length) in &ranges {
                py.detach(|| ahead.next()).map_err(|error| lent.error(py, &error, &self.shown))?;
                let room = length.min(lent.reader().size().saturating_sub(offset));
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                list.push(new_bytes(py, room, |buf| self.read(py, &lent, buf, offset))?);
            }
            PyList::new(py, list)
        })
    }

    /// Says that these ranges will be read.
    fn prefetch(&self, py: Python<'_>, ranges: Vec<(i64, i64)>) -> PyResult<()> {
        guarded(|| {
            let (ranges, lent) = (pairs(ranges)?, self.lend(py)?);
            let all = || {
                let reader = lent.reader();
                ranges.iter().try_for_each(|&(offset, length)| match length {
                    0 => Ok(()),
                    _ => reader.prefetch(offset..offset.saturating_add(length)),
                })
            };
            py.detach(all).map_err(|error| lent.error(py, &error, &self.shown))
        })
    }

    /// Bytes of the source, as far as is known.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        guarded(|| Ok(self.lend(py)?.reader().size()))
    }

    /// The counters of this file.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| report::counters(py, &self.lend(py)?.reader().own_stats(), report::Of::File))
    }

    /// What readahead does for this file, and why.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        guarded(|| {
            let lent = self.lend(py)?;
            Ok(py.detach(|| report::explain(lent.reader())))
        })
    }

    /// The name, without secrets.
    #[getter]
    fn name(&self) -> &str {
        &self.shown
    }

    /// True once it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.opened().is_none()
    }

    /// A file of fsspec has a cache, which has a handle, which has a method of the file.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Origin::Function { fetch, .. } = &self.origin {
            visit.call(fetch)?;
        }
        // Not waited for: a collection may run anywhere.
        let Ok(opened) = self.opened.try_lock() else { return Ok(()) };
        let fetcher = opened.as_ref().and_then(|opened| opened.fetcher.as_ref());
        fetcher.map_or(Ok(()), |fetcher| visit.call(fetcher.function()))
    }

    /// Closes it. Reads that other threads are in go on.
    fn close(&self) -> PyResult<()> {
        guarded(|| {
            self.shut();
            Ok(())
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shut();
    }
}

/// Policy and bytes of the cache, as far as the caller says.
type Given = (Option<String>, Option<u64>);

/// What the caller set, else the process's.
fn or_default((policy, cache): Given) -> Settings {
    let default = process::defaults();
    Settings { policy: policy.unwrap_or(default.policy), cache_bytes: cache.unwrap_or(default.cache_bytes) }
}
