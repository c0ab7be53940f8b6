//! `foreread._native.Handle`: one open file. `foreread/_file.py` wraps it in an `io.RawIOBase`.
//!
//! ```text
//!   call ──► lend: the reader, or ValueError (closed), or a new one (this is a forked child)
//!        ──► wait::read without the interpreter ──► bytes, or the exception of the fetch, or OSError
//! ```
//! A thread detaches from the interpreter before it calls the engine. In Python without a GIL, a fork or a garbage collection must first
//! stop all attached threads. An attached thread that waited for a lock of the engine would therefore block the fork or the garbage
//! collection.

use crate::buffer::{WritableBuffer, new_bytes};
use crate::error::{guarded, invalid};
use crate::opened::{self, Account, LentReader, Origin, Slot};
use crate::position::Position;
use crate::process::{self, Settings};
use crate::{ranges, report, wait};
use foreread::Reader;
use foreread::source::SourceName;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[pyclass(frozen, module = "foreread._native")]
pub struct Handle {
    slot: Slot,
    position: Position,
}

impl Handle {
    pub(crate) fn shown(&self) -> &str {
        &self.slot.shown
    }

    fn open(
        py: Python<'_>,
        origin: Origin,
        shown: String,
        settings: EngineChoice,
    ) -> PyResult<Handle> {
        Ok(Handle {
            slot: Slot::open(py, origin, shown, or_default(settings))?,
            position: Position::default(),
        })
    }

    pub(crate) fn lend(&self, py: Python<'_>) -> PyResult<LentReader> {
        self.slot.lend(py)
    }

    fn fill(
        &self,
        py: Python<'_>,
        lent: &LentReader,
        buf: &mut [u8],
        offset: u64,
    ) -> PyResult<usize> {
        self.fill_by(py, lent, lent.reader(), buf, offset)
    }

    fn fill_by(
        &self,
        py: Python<'_>,
        lent: &LentReader,
        reader: &Reader,
        buf: &mut [u8],
        offset: u64,
    ) -> PyResult<usize> {
        wait::read(py, reader, buf, offset)?.map_err(|error| lent.error(py, &error, self.shown()))
    }

    /// Reads up to `length` bytes at the position and advances it. `read` receives an offset and a length.
    fn next<T>(
        &self,
        py: Python<'_>,
        lent: &LentReader,
        length: u64,
        mut read: impl FnMut(u64, usize) -> PyResult<(usize, T)>,
    ) -> PyResult<T> {
        loop {
            let start = self.position.get();
            let there = lent.there(py, start, length);
            let room = opened::room(there, length);
            if there == 0 {
                // Ends at the end of the file, including appended data: if a read claimed bytes beyond the end, other readers would
                // skip data.
                let (got, value) = read(start, room)?;
                let end = start.saturating_add(got as u64);
                if self.position.move_from(start, end) {
                    return Ok(value);
                }
            } else if let Some(claim) = self.position.claim(start, room as u64) {
                let (got, value) = read(start, room)?;
                claim.got(got);
                return Ok(value);
            }
        }
    }
}

pub(crate) fn bytes(number: i64, what: &str) -> PyResult<u64> {
    u64::try_from(number)
        .map_err(|_| invalid(format!("{what} {number} is negative; it counts bytes")))
}

fn pairs(ranges: Vec<(i64, i64)>) -> PyResult<Vec<(u64, u64)>> {
    ranges
        .into_iter()
        .map(|(offset, length)| Ok((bytes(offset, "offset")?, bytes(length, "length")?)))
        .collect()
}

#[pymethods]
impl Handle {
    /// Opens a source by its name.
    #[staticmethod]
    fn by_name(
        py: Python<'_>,
        name: std::ffi::OsString,
        settings: EngineChoice,
        account: Account,
    ) -> PyResult<Handle> {
        guarded(|| {
            let name = SourceName::from(name);
            if name.is_empty() {
                let what = "the name is empty; write a path, or a source such as s3://bucket/key";
                return Err(invalid(what));
            }
            let shown = name.to_string();
            Handle::open(py, Origin::Name(name, account), shown, settings)
        })
    }

    /// A source of `size` bytes that `fetch(start, end)` reads; `calls` is the number of concurrent calls, and the maximum bytes per
    /// call.
    #[staticmethod]
    fn by_function(
        py: Python<'_>,
        fetch: Py<PyAny>,
        size: i64,
        name: String,
        kind: String,
        calls: (u32, u64),
        settings: EngineChoice,
    ) -> PyResult<Handle> {
        guarded(|| {
            let size = bytes(size, "size")?;
            let (requests, largest) = calls;
            let origin = Origin::Function {
                fetch,
                size,
                kind: format!("python {kind} {requests}"),
                requests,
                largest,
                asked: Arc::default(),
            };
            Handle::open(py, origin, name, settings)
        })
    }

    /// The bytes at an offset, fewer at the end.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: i64,
        length: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (offset, length) = (bytes(offset, "offset")?, bytes(length, "length")?);
            let lent = self.lend(py)?;
            let room = lent.room(py, offset, length);
            let read = new_bytes(py, room, |buf| self.fill(py, &lent, buf, offset))?;
            Ok(read.1)
        })
    }

    /// Fills a buffer from an offset. Returns the number of bytes read.
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        guarded(|| {
            let offset = bytes(offset, "offset")?;
            let mut filling = WritableBuffer::of(buffer)?;
            let lent = self.lend(py)?;
            self.fill(py, &lent, filling.bytes(), offset)
        })
    }

    /// The bytes at the position, fewer at the end; advances the position.
    fn read<'py>(&self, py: Python<'py>, length: i64) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (length, lent) = (bytes(length, "length")?, self.lend(py)?);
            self.next(py, &lent, length, |at, room| {
                new_bytes(py, room, |buf| self.fill(py, &lent, buf, at))
            })
        })
    }

    /// Fills a buffer at the position, and advances it. Returns the number of bytes read.
    fn read_next_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        guarded(|| {
            let mut filling = WritableBuffer::of(buffer)?;
            let lent = self.lend(py)?;
            let length = filling.bytes().len() as u64;
            self.next(py, &lent, length, |at, room| {
                let got = self.fill(py, &lent, &mut filling.bytes()[..room], at)?;
                Ok((got, got))
            })
        })
    }

    /// The position of `read` and `read_next_into`.
    #[getter]
    fn position(&self) -> u64 {
        self.position.get()
    }

    /// Sets the position, unless another thread has changed it since it was `before`.
    fn move_position(&self, before: u64, to: u64) -> bool {
        self.position.move_from(before, to)
    }

    /// The bytes of each range, fetched concurrently.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(i64, i64)>,
    ) -> PyResult<Bound<'py, PyList>> {
        guarded(|| {
            let (ranges, lent) = (pairs(ranges)?, self.lend(py)?);
            let mut list = Vec::with_capacity(ranges.len());
            let planned = lent.planned(py, self.shown())?;
            let mut ahead = ranges::Ahead::new(planned, &ranges);
            for &(offset, length) in &ranges {
                py.detach(|| ahead.next())
                    .map_err(|error| lent.error(py, &error, self.shown()))?;
                let room = usize::try_from(lent.there(py, offset, length)).unwrap_or(usize::MAX);
                let fill = |buf: &mut [u8]| self.fill_by(py, &lent, planned, buf, offset);
                list.push(new_bytes(py, room, fill)?.1);
            }
            PyList::new(py, list)
        })
    }

    /// Fills a buffer with the bytes of all ranges, one after the other. Returns the number of bytes of each.
    fn read_ranges_into(
        &self,
        py: Python<'_>,
        ranges: Vec<(i64, i64)>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<usize>> {
        guarded(|| {
            let (ranges, mut filling) = (pairs(ranges)?, WritableBuffer::of(buffer)?);
            let lent = self.lend(py)?;
            let planned = lent.planned(py, self.shown())?;
            let there = ranges::clipped(&ranges, lent.size(py));
            let lengths = there.iter().map(|range| range.1);
            let needed = lengths.fold(0_u64, u64::saturating_add);
            let mut rest = filling.bytes();
            if needed > rest.len() as u64 {
                return Err(invalid(format!(
                    "the buffer is too small; give it {needed} bytes for these ranges"
                )));
            }
            let (pieces, mut got) = (ranges::pieces(&there), vec![0; ranges.len()]);
            let plain: Vec<(u64, u64)> = pieces.iter().map(|&(_, piece)| piece).collect();
            let mut ahead = ranges::Ahead::new(planned, &plain);
            for (of, (offset, length)) in pieces {
                py.detach(|| ahead.next())
                    .map_err(|error| lent.error(py, &error, self.shown()))?;
                // As many ranges as fit into the buffer.
                let (now, later) = rest.split_at_mut(length as usize);
                got[of] += self.fill_by(py, &lent, planned, now, offset)?;
                rest = later;
            }
            Ok(got)
        })
    }

    /// Announces that these ranges will be read.
    fn prefetch(&self, py: Python<'_>, ranges: Vec<(i64, i64)>) -> PyResult<()> {
        guarded(|| {
            let (ranges, lent) = (pairs(ranges)?, self.lend(py)?);
            let reader = lent.reader();
            let mut some = ranges.iter().filter(|(_, length)| *length > 0);
            py.detach(|| {
                some.try_for_each(|(at, length)| reader.prefetch(*at..at.saturating_add(*length)))
            })
            .map_err(|error| lent.error(py, &error, self.shown()))
        })
    }

    /// The size of the source, as far as known.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        guarded(|| Ok(self.lend(py)?.size(py)))
    }

    /// Bytes requested from the function of `by_function`; 0 for a named source.
    #[getter]
    fn asked_bytes(&self) -> u64 {
        match &self.slot.origin {
            Origin::Name(..) => 0,
            Origin::Function { asked, .. } => asked.load(Ordering::Relaxed),
        }
    }

    /// The counters of this file.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| report::counters(py, &self.lend(py)?.stats(py), report::Of::File))
    }

    /// Explains what readahead does for this file.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        guarded(|| {
            let lent = self.lend(py)?;
            Ok(py.detach(|| report::explain(lent.reader(), self.shown())))
        })
    }

    /// The name, without secrets.
    #[getter]
    fn name(&self) -> &str {
        self.shown()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.slot.is_closed()
    }

    /// Traverses a possible reference cycle: an fsspec file has a cache, which has a handle, which has a method of the file.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.slot.traverse(&visit)
    }

    /// Closes the file. Reads in other threads continue.
    fn close(&self) -> PyResult<()> {
        guarded(|| {
            self.slot.close();
            Ok(())
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.slot.close();
    }
}

/// Policy and cache size, if the caller gives them.
type EngineChoice = (Option<String>, Option<u64>);

fn or_default((policy, cache): EngineChoice) -> Settings {
    let default = process::defaults();
    Settings {
        policy: policy.unwrap_or(default.policy),
        cache_bytes: cache.unwrap_or(default.cache_bytes),
        disk_cache: default.disk_cache,
    }
}
