//! The open source of a file handle and its readers; each call on the handle borrows a reader.
//!
//! ```text
//!   Slot: closed ─ or ─ OpenSource ──► lend ──► LentReader: lives until its call returns
//!                          └─ from before a fork: opened again
//! ```
//! A borrowed reader lives until its call returns: if another thread calls `close`, reads in flight continue, and the
//! source is closed when the last of them returns. The lock of the slot that contains the open source is held only briefly. The thread
//! that holds it is attached to the interpreter, and does not call the engine. During a fork no other thread is attached (see
//! process.rs), so this lock is then free.

use crate::error::{invalid, of_open, of_read};
use crate::fetcher::Fetcher;
use crate::process::{self, Settings};
use crate::wait;
use foreread::source::disk_cache::DiskCache;
use foreread::source::object::ObjectSettings;
use foreread::source::{self, Object, Source, SourceName, SourceOpenError};
use foreread::{Advice, OpenError, ReadError, Reader, Stats};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes requested beyond the known end, in case the source has grown.
const BEYOND_BYTES: u64 = 64 << 10;

/// Settings of an object store as names and values. The names are `stores` (in the notation of
/// `foreread::source::object`), `profile`, `region`, `endpoint`, `no_sign_request`, and variables of the store such as
/// `AWS_ACCESS_KEY_ID`.
pub type Account = Vec<(String, String)>;

/// The storage from which the bytes of a file come. A forked child opens the source again with this value.
pub enum Origin {
    /// A name, with the account's settings if they do not come from the environment.
    Name(SourceName, Account),
    Function {
        fetch: Py<PyAny>,
        size: u64,
        kind: String,
        requests: u32,
        largest: u64,
        asked: Arc<AtomicU64>,
    },
}

/// A source with its settings, and the open readers while it is open.
pub struct Slot {
    pub origin: Origin,
    /// The name without its secrets.
    pub shown: String,
    settings: Settings,
    opened: Mutex<Option<OpenSource>>,
}

/// An open source, and its function if it has one.
#[derive(Clone)]
struct OpenSource {
    readers: Arc<Readers>,
    fetcher: Option<Arc<Fetcher>>,
    generation: u64,
}

struct Readers {
    reader: Reader,
    /// For lists of ranges, created by the first one. Its policy reads nothing ahead, because all reads are known.
    planned: OnceLock<Reader>,
    /// The last known size of the source. Asking for the size takes the engine's lock, which reads within the known size avoid.
    size: AtomicU64,
}

impl Readers {
    fn planned(&self) -> Result<&Reader, OpenError> {
        if let Some(planned) = self.planned.get() {
            return Ok(planned);
        }
        let planned = self.reader.try_clone()?;
        // An error means that the engine has stopped, which the read will report.
        let _ = planned.advise(Advice::Random, 0..0);
        Ok(self.planned.get_or_init(|| planned))
    }
}

/// The readers of an open source, borrowed for one call.
pub struct LentReader {
    // `None` only during drop.
    opened: Option<OpenSource>,
}

impl LentReader {
    fn readers(&self) -> &Readers {
        // Present until drop.
        &self.opened.as_ref().expect("lent").readers
    }

    pub fn reader(&self) -> &Reader {
        &self.readers().reader
    }

    /// Returns the reader for lists of ranges, whose policy reads nothing ahead.
    pub fn planned(&self, py: Python<'_>, shown: &str) -> PyResult<&Reader> {
        py.detach(|| self.readers().planned())
            .map_err(|error| of_open(&error, shown))
    }

    pub fn stats(&self, py: Python<'_>) -> Vec<Stats> {
        py.detach(|| {
            let planned = self.readers().planned.get();
            let readers = std::iter::once(self.reader()).chain(planned);
            readers.map(Reader::own_stats).collect()
        })
    }

    /// Returns the last known size of the source, in bytes.
    pub fn size(&self, py: Python<'_>) -> u64 {
        let size = py.detach(|| self.reader().size());
        self.readers().size.store(size, Ordering::Relaxed);
        size
    }

    /// Returns how many bytes of the range from `offset` exist, by the last known size of the source.
    pub fn there(&self, py: Python<'_>, offset: u64, length: u64) -> u64 {
        let size = self.readers().size.load(Ordering::Relaxed);
        if offset.checked_add(length).is_some_and(|end| end <= size) {
            return length;
        }
        length.min(self.size(py).saturating_sub(offset))
    }

    /// Returns how many bytes of a read at `offset` should be requested from the engine.
    pub fn room(&self, py: Python<'_>, offset: u64, length: u64) -> usize {
        room(self.there(py, offset, length), length)
    }

    /// Creates the Python exception for a failed read: the exception that the source's Python function raised or, if there is none, an
    /// `OSError`.
    pub fn error(&self, py: Python<'_>, error: &ReadError, shown: &str) -> PyErr {
        let opened = self.opened.as_ref();
        let fetcher = opened.and_then(|opened| opened.fetcher.as_ref());
        let raised = match (error, fetcher) {
            (ReadError::Io { place, .. }, Some(fetcher)) => {
                let end = place.offset.saturating_add(place.len as u64);
                fetcher.failure(py, &(place.offset..end))
            }
            _ => None,
        };
        raised.unwrap_or_else(|| of_read(error, shown))
    }
}

impl Drop for LentReader {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            close(opened);
        }
    }
}

/// Drops a reader with the interpreter released, because the last one may wait for a fetch.
fn close(opened: OpenSource) {
    if opened.generation != process::generation() {
        // These readers are from before the fork.
        return std::mem::forget(opened.readers);
    }
    if let Some(last) = Arc::into_inner(opened.readers) {
        wait::drop_released(last);
    }
}

impl Slot {
    pub fn open(
        py: Python<'_>,
        origin: Origin,
        shown: String,
        settings: Settings,
    ) -> PyResult<Slot> {
        let opened = open(py, &origin, &shown, &settings)?;
        Ok(Slot {
            origin,
            shown,
            settings,
            opened: Mutex::new(Some(opened)),
        })
    }

    fn opened(&self) -> MutexGuard<'_, Option<OpenSource>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_closed(&self) -> bool {
        self.opened().is_none()
    }

    /// Borrows the readers for one call. Returns an error if the file is closed, or if the source could not be opened again in a forked
    /// child.
    pub fn lend(&self, py: Python<'_>) -> PyResult<LentReader> {
        let generation = process::generation();
        match &*self.opened() {
            None => return Err(invalid(CLOSED)),
            Some(opened) if opened.generation == generation => {
                return Ok(LentReader {
                    opened: Some(opened.clone()),
                });
            }
            Some(_) => {}
        }
        // Without the lock, because opening may wait.
        let new = open(py, &self.origin, &self.shown, &self.settings)?;
        let (lent, old) = {
            let mut opened = self.opened();
            match &*opened {
                // Closed by another thread.
                None => (None, Some(new)),
                // Another thread opened it first.
                Some(there) if there.generation == generation => (Some(there.clone()), Some(new)),
                Some(_) => (Some(new.clone()), opened.replace(new)),
            }
        };
        old.into_iter().for_each(close);
        match lent {
            None => Err(invalid(CLOSED)),
            opened => Ok(LentReader { opened }),
        }
    }

    /// Closes the file. Reads that other threads have started continue.
    pub fn close(&self) {
        // Closes without the lock.
        let opened = self.opened().take();
        opened.into_iter().for_each(close);
    }

    /// Tells Python's garbage collector to which Python objects this file refers. If the slot of the open source is locked, nothing is
    /// reported, because a collection may run at any time and must not wait for the lock. Nothing is reported while the engine may still
    /// call the source's function, because the collector could clear the function, and calling a cleared function crashes the process.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(opened) = self.opened.try_lock() else {
            return Ok(());
        };
        let calls = |opened: &OpenSource| {
            opened.fetcher.is_some() && !opened.readers.reader.engine().is_quiet()
        };
        if opened.as_ref().is_some_and(calls) {
            return Ok(());
        }
        if let Origin::Function { fetch, .. } = &self.origin {
            visit.call(fetch)?;
        }
        let fetcher = opened.as_ref().and_then(|opened| opened.fetcher.as_ref());
        fetcher.map_or(Ok(()), |fetcher| fetcher.traverse(visit))
    }
}

/// Returns how many of `length` bytes to request: the `there` bytes that are known to exist or, if there are none, at most
/// `BEYOND_BYTES`, because the source may have grown.
pub fn room(there: u64, length: u64) -> usize {
    let bytes = match there {
        0 => length.min(BEYOND_BYTES),
        _ => there,
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

const CLOSED: &str = "I/O operation on closed file";

/// Opens a source on the engine of its kind.
fn open(py: Python<'_>, origin: &Origin, shown: &str, settings: &Settings) -> PyResult<OpenSource> {
    let generation = process::generation();
    let mut fetcher = None;
    let (source, kind): (Arc<dyn Source>, &str) = match origin {
        Origin::Function {
            fetch,
            size,
            kind,
            requests,
            largest,
            asked,
        } => {
            let (fetch, asked) = (fetch.clone_ref(py), Arc::clone(asked));
            let name = shown.to_string();
            let own = Fetcher::new(fetch, *size, name, *requests, *largest, asked);
            let own = fetcher.insert(Arc::new(own));
            (Arc::clone(own) as Arc<dyn Source>, kind)
        }
        Origin::Name(name, account) if source::is_remote(name) => {
            let asked = name.clone();
            let cache = settings.disk_cache.clone();
            let objects = object_settings(account)?;
            let opened = wait::call(py, move || {
                let opened: Arc<dyn Source> = match (DiskCache::named(&cache)?, objects) {
                    (Some(cache), None) => cache.open_source(&asked)?,
                    (Some(cache), Some(objects)) => Arc::new(cache.open_object(asked, objects)?),
                    (None, None) => source::open(asked)?,
                    (None, Some(objects)) => Arc::new(Object::open_with(asked, objects)?),
                };
                Ok::<_, SourceOpenError>(opened)
            })?;
            named(opened.map_err(OpenError::from), shown)?
        }
        Origin::Name(name, _) => named(
            py.detach(|| source::open(name)).map_err(OpenError::from),
            shown,
        )?,
    };
    let failed = |error: OpenError| of_open(&error, shown);
    let engine = process::engine(py, kind, source.defaults(), settings).map_err(failed)?;
    let readers = py.detach(|| {
        let reader = engine.open(source)?;
        let size = AtomicU64::new(reader.size());
        Ok(Readers {
            reader,
            planned: OnceLock::new(),
            size,
        })
    });
    Ok(OpenSource {
        readers: Arc::new(readers.map_err(failed)?),
        fetcher,
        generation,
    })
}

/// The environment's settings combined with those of an account; `None` if the account has none.
fn object_settings(account: &Account) -> PyResult<Option<ObjectSettings>> {
    if account.is_empty() {
        return Ok(None);
    }
    let mut settings = ObjectSettings::from_environment().map_err(invalid)?;
    for (key, value) in account {
        let value = value.clone();
        match key.as_str() {
            "stores" => settings = settings.with(&value).map_err(invalid)?,
            "no_sign_request" => {
                settings.no_sign_request = true;
                settings.profile = None;
            }
            "profile" => {
                settings.profile = Some(value);
                settings.no_sign_request = false;
            }
            "region" => settings.region = Some(value),
            "endpoint" => settings.endpoint_url = Some(value),
            variable => {
                // An account's setting overrides the program's setting for all files.
                settings.profile = None;
                settings.no_sign_request = false;
                settings.key_is_argument = true;
                settings.variables.retain(|(name, _)| name != variable);
                settings.variables.push((variable.to_string(), value));
            }
        }
    }
    Ok(Some(settings))
}

fn named(
    opened: Result<Arc<dyn Source>, OpenError>,
    shown: &str,
) -> PyResult<(Arc<dyn Source>, &'static str)> {
    let source = opened.map_err(|error| of_open(&error, shown))?;
    let kind = source.defaults().kind;
    Ok((source, kind))
}
