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
use foreread::{Advice, OpenError, ReadError, Reader, Stats};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
    readers: Arc<Readers>,
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

/// What a handle reads by.
struct Readers {
    reader: Reader,
    /// For lists of ranges, made by the first one: its policy reads nothing ahead, since all that will be read is known.
    planned: OnceLock<Reader>,
}

impl Readers {
    fn planned(&self) -> Result<&Reader, OpenError> {
        if let Some(planned) = self.planned.get() {
            return Ok(planned);
        }
        let planned = self.reader.try_clone()?;
        // The error is that the engine has stopped, which the read says.
        let _ = planned.advise(Advice::Random, 0..0);
        Ok(self.planned.get_or_init(|| planned))
    }
}

/// A reader for one call.
pub struct Lent {
    // Taken when it is dropped.
    opened: Option<Opened>,
}

impl Lent {
    pub fn reader(&self) -> &Reader {
        // There until the drop.
        &self.opened.as_ref().expect("lent").readers.reader
    }

    /// The reader for lists of ranges.
    fn planned(&self, shown: &str) -> PyResult<&Reader> {
        let opened = self.opened.as_ref().expect("lent");
        opened.readers.planned().map_err(|error| of_open(&error, shown))
    }

    fn stats(&self) -> Vec<Stats> {
        let planned = self.opened.as_ref().and_then(|opened| opened.readers.planned.get());
        [Some(self.reader()), planned].into_iter().flatten().map(Reader::own_stats).collect()
    }

    /// How many bytes there may be at an offset, of those that are asked for.
    pub(crate) fn room(&self, offset: u64, length: u64) -> usize {
        let there = self.reader().size().saturating_sub(offset);
        let room = if there == 0 { length.min(BEYOND_BYTES as u64) } else { length.min(there) };
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// An error as Python's: what the function raised, if it did.
    pub(crate) fn error(&self, py: Python<'_>, error: &ReadError, shown: &str) -> PyErr {
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
    let Opened { readers, generation, .. } = opened;
    if generation != process::generation() {
        // Of the process that forked this one.
        return std::mem::forget(readers);
    }
    let Some(last) = Arc::into_inner(readers) else { return };
    let mut last = Some(last);
    // Nothing to release where the interpreter ends: then it is dropped below.
    Python::try_attach(|py| py.detach(|| drop(last.take())));
    drop(last);
}

impl Handle {
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(py: Python<'_>, origin: Origin, shown: String, settings: Settings) -> PyResult<Handle> {
        let opened = open(py, &origin, &shown, &settings)?;
        Ok(Handle { origin, shown, settings, opened: Mutex::new(Some(opened)) })
    }

    pub(crate) fn lend(&self, py: Python<'_>) -> PyResult<Lent> {
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
        self.read_by(py, lent, lent.reader(), buf, offset)
    }

    fn read_by(&self, py: Python<'_>, lent: &Lent, reader: &Reader, buf: &mut [u8], offset: u64) -> PyResult<usize> {
        wait::read(py, reader, buf, offset)?.map_err(|error| lent.error(py, &error, &self.shown))
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
    let readers = Readers { reader: reader.map_err(failed)?, planned: OnceLock::new() };
    Ok(Opened { readers: Arc::new(readers), fetcher, generation })
}

fn named(opened: Result<Arc<dyn Source>, OpenError>, shown: &str) -> PyResult<(Arc<dyn Source>, &'static str)> {
    let source = opened.map_err(|error| of_open(&error, shown))?;
    let kind = source.defaults().kind;
    Ok((source, kind))
}

/// A number that counts bytes.
pub(crate) fn bytes(number: i64, what: &str) -> PyResult<u64> {
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
            new_bytes(py, lent.room(offset, length), |buf| self.read(py, &lent, buf, offset))
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
            let planned = lent.planned(&self.shown)?;
            let mut ahead = ranges::Ahead::new(planned, &ranges);
            for &(offset, length) in &ranges {
                py.detach(|| ahead.next()).map_err(|error| lent.error(py, &error, &self.shown))?;
                let room = length.min(planned.size().saturating_sub(offset));
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                list.push(new_bytes(py, room, |buf| self.read_by(py, &lent, planned, buf, offset))?);
            }
            PyList::new(py, list)
        })
    }

    /// Fills a buffer with the bytes of each range, one behind the other. Returns how many there were of each.
    fn read_ranges_into(
        &self,
        py: Python<'_>,
        ranges: Vec<(i64, i64)>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<usize>> {
        guarded(|| {
            let (ranges, mut filling) = (pairs(ranges)?, Filling::of(buffer)?);
            let lent = self.lend(py)?;
            let planned = lent.planned(&self.shown)?;
            let there = ranges::clipped(&ranges, planned.size());
            let needed = there.iter().fold(0_u64, |sum, range| sum.saturating_add(range.1));
            let mut rest = filling.bytes();
            if needed > rest.len() as u64 {
                return Err(invalid(format!("the buffer is too small; give it {needed} bytes for these ranges")));
            }
            let (pieces, mut got) = (ranges::pieces(&there), vec![0; ranges.len()]);
            let plain: Vec<(u64, u64)> = pieces.iter().map(|&(_, piece)| piece).collect();
            let mut ahead = ranges::Ahead::new(planned, &plain);
            for (of, (offset, length)) in pieces {
                py.detach(|| ahead.next()).map_err(|error| lent.error(py, &error, &self.shown))?;
                // No more than the buffer has room for.
                let (now, later) = rest.split_at_mut(length as usize);
                got[of] += self.read_by(py, &lent, planned, now, offset)?;
                rest = later;
            }
            Ok(got)
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
        guarded(|| report::counters(py, &self.lend(py)?.stats(), report::Of::File))
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
