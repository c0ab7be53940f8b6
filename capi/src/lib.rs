//! foreread for C. The header `include/foreread.h` documents the functions; this file implements them.
//!
//! No panic crosses into C, no pointer of a caller is kept after the call, and every failure sets errno and stores a one-line error
//! message. If a caller breaks the rules of the header, for example with a closed reader or a buffer that is too small, the behaviour is
//! undefined. No function can detect this.
//!
//! ```text
//!   C ──► null and range checks ──► foreread::Reader ──► value, or errno + foreread_error()
//! ```

use foreread::{Advice, MIN_MEMORY_BYTES, OpenError, Options, ReadError, Reader};
use libc::{c_char, c_int, iovec, size_t, ssize_t};
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum number of buffers in one call: `IOV_MAX` of Linux.
const MAX_IOV: c_int = 1024;

/// The type `foreread` of the header, opaque to C code: a reader of an open source.
pub struct Handle(Reader);

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Why a call failed: errno and the message line.
struct Failure(c_int, String);

/// The errno is the storage's own number, or the number of the kind (`foreread::ErrorKind::errno`).
macro_rules! failure_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure(error.errno(), error.to_string())
            }
        }
    )*};
}

failure_from!(OpenError, ReadError);

/// Runs a call. A panic becomes EIO.
fn guarded<T>(failed: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    let panicked = |_| {
        Err(Failure(
            libc::EIO,
            "a panic in foreread; please report it".to_string(),
        ))
    };
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked) {
        Ok(value) => value,
        Err(Failure(errno, line)) => {
            let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
            // A thread that is ending has no place to keep the message.
            let _ = ERROR.try_with(|error| *error.borrow_mut() = line);
            // SAFETY: the address of this thread's errno is valid while the thread lives.
            unsafe { *libc::__errno_location() = errno };
            failed
        }
    }
}

fn invalid(line: &str) -> Failure {
    Failure(libc::EINVAL, line.to_string())
}

/// The text behind a pointer; `None` for NULL.
///
/// # Safety
/// `text` is NULL or ends with a zero byte.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not NULL, and the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map(Some)
        .map_err(|_| invalid(&format!("{what}: not UTF-8; write it in UTF-8")))
}

/// The reader behind a pointer.
///
/// # Safety
/// `reader` is NULL, or a reader from this library that is not closed.
unsafe fn reader<'a>(reader: *const Handle) -> Result<&'a Reader, Failure> {
    // SAFETY: the caller guarantees it. The reference is shared, because any number of threads may use the reader.
    let reader = unsafe { reader.as_ref() };
    reader
        .map(|handle| &handle.0)
        .ok_or_else(|| Failure(libc::EBADF, "no reader: NULL was given".to_string()))
}

fn boxed(reader: Reader) -> *mut Handle {
    Box::into_raw(Box::new(Handle(reader)))
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `source` and `policy` must each be NULL or point to a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_open(
    source: *const c_char,
    policy: *const c_char,
    cache_bytes: u64,
) -> *mut Handle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: the caller guarantees it.
        let (source, policy) = unsafe { (text(source, "source")?, text(policy, "policy")?) };
        let source = source.filter(|name| !name.is_empty()).ok_or_else(|| {
            invalid("no source: the name is NULL or empty; name a path or another source")
        })?;
        if (1..MIN_MEMORY_BYTES).contains(&cache_bytes) {
            let line = "cache_bytes: a cache has at least 1 MiB; 0 takes the default";
            return Err(invalid(line));
        }
        let mut options = Options::default();
        if let Some(policy) = policy {
            options = options.policy(policy);
        }
        if cache_bytes > 0 {
            options = options.cache_bytes(cache_bytes);
        }
        #[cfg(feature = "object")]
        if let Some(cache) = disk_cache()? {
            options = options.disk_cache(&cache);
        }
        Reader::open(source, options)
            .map(boxed)
            .map_err(Failure::from)
    })
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` must be NULL, or a reader from this library that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_dup(from: *const Handle) -> *mut Handle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: the caller guarantees it.
        let from = unsafe { reader(from) }?;
        from.try_clone().map(boxed).map_err(Failure::from)
    })
}

/// Reads into memory of the C program.
///
/// # Safety
/// `buf` has room for `len` bytes if `len` is not 0.
unsafe fn read(from: &Reader, buf: *mut u8, len: usize, offset: u64) -> Result<usize, Failure> {
    if len == 0 {
        return Ok(0);
    }
    if buf.is_null() {
        return Err(Failure(
            libc::EFAULT,
            "no buffer: NULL was given".to_string(),
        ));
    }
    // SAFETY: `buf` is not NULL, has `len` bytes as the header requires, and no other thread uses it during the call. C code may not
    // have initialised the bytes, but every value is a valid byte, and they are only written here.
    let buf = unsafe { std::slice::from_raw_parts_mut(buf, len) };
    from.read_at(buf, offset).map_err(Failure::from)
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` must be NULL, or a reader from this library that is not closed; `buf` must have room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_pread(
    from: *mut Handle,
    buf: *mut u8,
    len: size_t,
    offset: u64,
) -> ssize_t {
    guarded(-1, || {
        if ssize_t::try_from(len).is_err() {
            return Err(invalid("the length is above SSIZE_MAX; read in parts"));
        }
        // SAFETY: the caller guarantees it.
        unsafe { read(reader(from)?, buf, len, offset) }.map(|got| got as ssize_t)
    })
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` must be NULL, or a reader from this library that is not closed. `iov` must point to `iovcnt` entries, and each entry to a buffer
/// of at least the entry's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_preadv(
    from: *mut Handle,
    iov: *const iovec,
    iovcnt: c_int,
    offset: u64,
) -> ssize_t {
    guarded(-1, || {
        // SAFETY: the caller guarantees it.
        let from = unsafe { reader(from) }?;
        if !(0..=MAX_IOV).contains(&iovcnt) || (iov.is_null() && iovcnt > 0) {
            return Err(invalid("the number of buffers must be 0 to 1024"));
        }
        // SAFETY: `iov` is not NULL if there are any entries, and the caller guarantees that there are `iovcnt`.
        let parts = if iovcnt == 0 {
            &[][..]
        } else {
            unsafe { std::slice::from_raw_parts(iov, iovcnt as usize) }
        };
        let total = parts
            .iter()
            .try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
        let total = total.filter(|total| ssize_t::try_from(*total).is_ok());
        total.ok_or_else(|| invalid("the sum of the lengths is above SSIZE_MAX; read in parts"))?;
        let mut slices = Vec::with_capacity(parts.len());
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            if part.iov_base.is_null() {
                return Err(Failure(
                    libc::EFAULT,
                    "no buffer: NULL was given".to_string(),
                ));
            }
            // SAFETY: see `read`. Overlapping buffers break the header's rules.
            let slice =
                unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len) };
            slices.push(std::io::IoSliceMut::new(slice));
        }
        let got = from.read_vectored_at(&mut slices, offset);
        got.map(|got| got as ssize_t).map_err(Failure::from)
    })
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` is NULL, or a reader from this library that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_allow_appends(from: *mut Handle) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller guarantees it.
        unsafe { reader(from) }?.allow_appends();
        Ok(0)
    })
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` is NULL, or a reader from this library that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_size(from: *const Handle) -> i64 {
    // SAFETY: the caller guarantees it.
    guarded(-1, || {
        unsafe { reader(from) }.map(|r| i64::try_from(r.size()).unwrap_or(i64::MAX))
    })
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` is NULL, or a reader from this library that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_advise(
    from: *mut Handle,
    offset: u64,
    len: u64,
    advice: c_int,
) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller guarantees it.
        let from = unsafe { reader(from) }?;
        let range = offset..offset.saturating_add(len);
        let done = match advice {
            0 => from.advise(Advice::Normal, range),
            1 => from.advise(Advice::Sequential, range),
            2 => from.advise(Advice::Random, range),
            3 => from.advise(Advice::WillNeed, range),
            4 => from.advise(Advice::DontNeed, range),
            5 => from.prefetch(if len == 0 {
                offset..from.size().max(offset)
            } else {
                range
            }),
            _ => return Err(invalid("no such advice; see enum foreread_advice")),
        };
        done.map(|()| 0).map_err(Failure::from)
    })
}

/// The counters of a reader, with the fields in the same order as in `foreread.h`.
#[repr(C)]
pub struct CStats([u64; 11]);

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` must be NULL, or a reader from this library that is not closed; `stats` must have room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_get_stats(
    from: *const Handle,
    stats: *mut CStats,
    size: size_t,
) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller guarantees it.
        let s = unsafe { reader(from) }?.stats();
        if stats.is_null() {
            return Err(Failure(
                libc::EFAULT,
                "no memory for the counters: NULL was given".to_string(),
            ));
        }
        let now = CStats([
            s.demand_reads,
            s.demand_bytes,
            s.hits,
            s.late_hits,
            s.misses,
            s.failed_reads,
            s.stall_ns,
            s.ra_bytes,
            s.unused_bytes,
            s.source_reads,
            s.source_bytes,
        ]);
        let len = size.min(size_of::<CStats>());
        // SAFETY: both have `len` bytes, as the header requires, and they do not overlap, because one is on this stack.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const now).cast::<u8>(), stats.cast::<u8>(), len)
        };
        Ok(0)
    })
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `from` must be NULL, or a reader from this library that is not closed and that no other thread is using.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_close(from: *mut Handle) {
    guarded((), || {
        if !from.is_null() {
            // SAFETY: it was created by `boxed`, is closed only once, and no thread uses it any more, as the header requires.
            let handle = unsafe { Box::from_raw(from) };
            #[cfg(feature = "object")]
            let cache = handle.0.engine().disk_cache().cloned();
            drop(handle);
            // The program may end after this call.
            #[cfg(feature = "object")]
            if let Some(cache) = cache {
                cache.flush(std::time::Duration::from_secs(5));
            }
        }
        Ok(())
    });
}

/// `include/foreread.h` documents this function.
#[unsafe(no_mangle)]
pub extern "C" fn foreread_error() -> *const c_char {
    ERROR
        .try_with(|error| error.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `settings` is NULL or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_configure_stores(settings: *const c_char) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller guarantees it.
        let settings = unsafe { text(settings, "settings")? }.unwrap_or_default();
        configure_stores(settings).map(|()| 0)
    })
}

#[cfg(feature = "object")]
fn configure_stores(settings: &str) -> Result<(), Failure> {
    use foreread::source::object::{NOTATION, configure};
    configure(settings).map_err(|why| invalid(&format!("{why}; write {NOTATION}")))
}

#[cfg(not(feature = "object"))]
fn configure_stores(_settings: &str) -> Result<(), Failure> {
    let line = "this build has no stores of objects; build it with the feature object";
    Err(Failure(libc::ENOTSUP, line.to_string()))
}

/// The settings of [`foreread_configure_disk_cache`].
#[cfg(feature = "object")]
static DISK_CACHE: std::sync::Mutex<Option<String>> = std::sync::Mutex::new(None);

/// The disk cache that was configured, or that the environment sets.
#[cfg(feature = "object")]
fn disk_cache() -> Result<Option<foreread::source::disk_cache::DiskCache>, Failure> {
    use foreread::source::disk_cache::{DiskCache, VARIABLE};
    let set = DISK_CACHE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    let text = set.or_else(|| std::env::var(VARIABLE).ok());
    let cache = DiskCache::if_usable(&text.unwrap_or_default());
    cache.map_err(|error| OpenError::from(error).into())
}

/// `include/foreread.h` documents this function.
///
/// # Safety
/// `settings` is NULL or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foreread_configure_disk_cache(settings: *const c_char) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller guarantees it.
        let settings = unsafe { text(settings, "settings")? };
        configure_disk_cache(settings).map(|()| 0)
    })
}

#[cfg(feature = "object")]
fn configure_disk_cache(settings: Option<&str>) -> Result<(), Failure> {
    use foreread::source::disk_cache::DiskCache;
    DiskCache::named(settings.unwrap_or_default()).map_err(OpenError::from)?;
    let mut set = DISK_CACHE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    *set = settings.map(str::to_string);
    Ok(())
}

#[cfg(not(feature = "object"))]
fn configure_disk_cache(_settings: Option<&str>) -> Result<(), Failure> {
    let line = "this build has no stores of objects; build it with the feature object";
    Err(Failure(libc::ENOTSUP, line.to_string()))
}

/// `include/foreread.h` documents this function.
#[unsafe(no_mangle)]
pub extern "C" fn foreread_version() -> *const c_char {
    const { concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast() }
}
