//! Gives the engine access to memory of Python objects, so that a read can fill it: through Python's buffer protocol,
//! which is in the limited API since Python 3.11.
//!
//! Python 3.10 exports `PyObject_GetBuffer` and `Py_buffer` with the same definitions (docs.python.org, "Buffer Protocol"), but not in its
//! limited API, so this file declares them. While a [`WritableBuffer`] exists, Python neither frees the memory nor changes its size: a
//! `bytearray` refuses to grow, and a `memoryview` refuses to be released.

#![allow(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{c_char, c_int, c_void};

/// `PyBUF_WRITABLE`: contiguous bytes, or an error.
const WRITABLE: c_int = 1;

/// `Py_buffer` of the C header.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// A writable buffer. The thread that drops this value must be attached to the interpreter, because the value contains a `Bound`.
pub struct WritableBuffer<'py> {
    // Boxed, because Python may keep a pointer into it.
    view: Box<View>,
    _py: Python<'py>,
}

impl<'py> WritableBuffer<'py> {
    /// Gets the writable buffer of a Python object.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<WritableBuffer<'py>> {
        // SAFETY: a struct of pointers and numbers, for all of which zero is a valid value.
        let mut view: Box<View> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: the object is alive, the view is large enough, and this thread is attached (`Bound`).
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, WRITABLE) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let filling = WritableBuffer {
            view,
            _py: object.py(),
        };
        if filling.view.len < 0 || filling.view.readonly != 0 {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        Ok(filling)
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let len = self.view.len as usize;
        if len == 0 {
            return &mut [];
        }
        // SAFETY: Python guarantees `len` bytes until the release. Another thread of the program may write them at the same time, as
        // with `io.FileIO.readinto`: that is a race of the program, over bytes for which every value is valid.
        unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast::<u8>(), len) }
    }
}

impl Drop for WritableBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: filled by `PyObject_GetBuffer`, released once, and this thread is attached (`_py`).
        unsafe { PyBuffer_Release(&raw mut *self.view) };
    }
}

/// The memory of a new `bytes` object, which may still be changed because no Python code has a reference to it.
pub struct Room {
    object: Py<PyAny>,
    bytes: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the object, which this struct owns alone; `Py` may go to any thread.
unsafe impl Send for Room {}

impl Room {
    /// Creates an object of this length with unspecified content.
    pub fn new(py: Python<'_>, len: usize) -> PyResult<Room> {
        let size =
            Py_ssize_t::try_from(len).map_err(|_| pyo3::exceptions::PyMemoryError::new_err(()))?;
        // SAFETY: a new object, owned here; without a given text its bytes may be anything. NULL is an error.
        let made = unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), size),
            )
        }?;
        // SAFETY: it is a `bytes` object, and it is alive.
        let bytes = unsafe { pyo3::ffi::PyBytes_AsString(made.as_ptr()) }.cast::<u8>();
        Ok(Room {
            object: made.unbind(),
            bytes,
            len,
        })
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: no other reference to the object exists, so it may still be written; it has `len` bytes and does not move.
        unsafe { std::slice::from_raw_parts_mut(self.bytes, self.len) }
    }

    /// Shortens the object to its first `got` bytes, and returns it.
    pub fn into_object(mut self, py: Python<'_>, got: usize) -> PyResult<Bound<'_, PyAny>> {
        if got >= self.len {
            return Ok(self.object.into_bound(py));
        }
        // A shorter read at the end of a file is copied: `_PyBytes_Resize` must run on the thread that created the object, and
        // without a GIL the asyncio loop may run on another thread.
        PyBytes::new_with(py, got, |new| {
            new.copy_from_slice(&self.bytes()[..got]);
            Ok(())
        })
        .map(Bound::into_any)
    }
}

/// Creates a `bytes` object of `len` bytes, lets `fill` write its content in place, and shortens it to the length that
/// `fill` returns. Returns the object and the length. Returns an error if `fill` fails, or if there is not enough memory.
pub fn new_bytes<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<(usize, Bound<'py, PyAny>)> {
    let mut room = Room::new(py, len)?;
    let got = fill(room.bytes())?;
    Ok((got, room.into_object(py, got)?))
}
