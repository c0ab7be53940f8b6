//! A reader: the handle for reading bytes.
//!
//! A reader waits for another reader's fetch only if both need the same bytes.
//!
//! ```text
//!   Reader ── open description 0 ──┬─ file 0, a source ──┐
//!   Reader ── open description 1 ──┘                     ├─► one engine: one cache, one set of limits,
//!   Reader ── open description 2 ──── file 1, a source ──┘   one policy state for each description
//! ```

mod flush;
mod listed;
mod task;
mod write;

#[cfg(feature = "fuse")]
use crate::driver::LentBytes;
use crate::driver::{
    OpenFile, ReadBuf, ReadSpan, SizedVersion, VersionCursor, event_error, guarded,
};
use crate::engine::Engine;
use crate::error::{Fault, OpenError, Place, ReadError};
use crate::options::{Options, Storage};
use crate::source::{self, Cause, Defaults, Extent, Source, SourceError, SourceName};
use flush::Flushes;
use foreread_core::event::{Advice, Error};
use foreread_core::machine::{LookedUp, MAX_IDS};
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, MAX_OFFSET};
pub use listed::{FilePosition, ListedFile, Listing};
use std::ffi::OsString;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use task::ReadAt;
#[cfg(feature = "nbd")]
pub(crate) use task::{OwnedRead, QueueWatch};

/// The argument of [`Reader::open`]: a source's name, or a source.
pub enum Origin {
    /// A path, `file:PATH`, or a name listed by [`source::kinds`].
    Name(SourceName),
    /// Any source.
    Source(Arc<dyn Source>),
}

impl From<&str> for Origin {
    fn from(name: &str) -> Origin {
        Origin::Name(name.into())
    }
}

impl From<String> for Origin {
    fn from(name: String) -> Origin {
        Origin::Name(name.as_str().into())
    }
}

/// A path may contain any bytes. A path that starts with a scheme such as `nbd:` is taken as the name of that kind of source;
/// [`Reader::open_file`] treats every path as a file.
impl From<&Path> for Origin {
    fn from(path: &Path) -> Origin {
        Origin::Name(path.into())
    }
}

impl From<PathBuf> for Origin {
    fn from(path: PathBuf) -> Origin {
        Origin::Name(path.into())
    }
}

impl From<SourceName> for Origin {
    fn from(name: SourceName) -> Origin {
        Origin::Name(name)
    }
}

impl From<Arc<dyn Source>> for Origin {
    fn from(source: Arc<dyn Source>) -> Origin {
        Origin::Source(source)
    }
}

impl<S: Source + 'static> From<Arc<S>> for Origin {
    fn from(source: Arc<S>) -> Origin {
        Origin::Source(source)
    }
}

/// Reads a source through a cache with readahead. Any number of threads can read through one `Reader` at the same time.
///
/// **Drop.** Dropping a reader discards fetches that have not started. When the last reader and the last clone of the engine are dropped,
/// the engine's threads end, and the drop waits for running fetches. A source that does not answer therefore delays the drop. To avoid
/// this delay in a task, drop the reader on a thread for blocking calls (`spawn_blocking` in tokio). Another way is to give the source a
/// time limit, or to make it a [`StreamingSource`](source::StreamingSource), which the engine asks to stop early. Fetches of an async
/// client (`source::from_async`) are cancelled, and the drop does not wait for them.
///
/// ```
/// use foreread::{Options, Reader};
/// use std::io::Write;
///
/// let mut file = tempfile::NamedTempFile::new()?;
/// file.write_all(&[7; 10_000])?;
///
/// let name = format!("file:{}", file.path().display());
/// let reader = Reader::open(name, Options::default().policy("linux-6.18:max=256K"))?;
/// let mut buf = [0; 4096];
/// assert_eq!(reader.read_at(&mut buf, 8192)?, 10_000 - 8192);
/// assert_eq!(buf[0], 7);
/// assert_eq!(reader.read_at(&mut buf, 10_000)?, 0, "the end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader {
    engine: Engine,
    source: Arc<dyn Source>,
    at: OpenFile,
    seen: VersionCursor,
    /// Shared by all readers of the source.
    flushes: Arc<Flushes>,
}

impl Engine {
    /// Opens a source, given by its name or as a value, as another file of this engine. Two readers share the pages of a source if the
    /// second is created with [`Reader::try_clone`]; if a source is opened twice, its pages are cached twice.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, or too many sources are open.
    pub fn open(&self, origin: impl Into<Origin>) -> Result<Reader, OpenError> {
        let source = self.source(origin.into())?;
        let (at, version) = opened(self.driver().add(Arc::clone(&source), self.options().io))?;
        let seen = VersionCursor::new(version);
        Reader::beside(self, &source, &Arc::default(), at, seen)
    }

    /// The source of an origin as this engine reads it: with the disk cache, if there is one.
    fn source(&self, origin: Origin) -> Result<Arc<dyn Source>, OpenError> {
        let source = match origin {
            Origin::Source(source) => source,
            Origin::Name(name) => open_named(&name, self.options())?,
        };
        #[cfg(feature = "disk-cache")]
        let source = match self.disk_cache() {
            Some(cache) => cache.over(source),
            None => source,
        };
        if self.options().appending {
            source.allow_appends();
        }
        match source.size() {
            0..=MAX_OFFSET => Ok(source),
            size => Err(OpenError::TooLarge { size }),
        }
    }
}

/// Opens a named source, with the disk cache of these options.
fn open_named(name: &SourceName, options: &Options) -> Result<Arc<dyn Source>, OpenError> {
    #[cfg(feature = "disk-cache")]
    if let Some(cache) = &options.disk_cache
        && source::is_remote(name)
    {
        return Ok(cache.open_source(name)?);
    }
    Ok(source::open_by(name, options.io)?)
}

/// What the driver has opened, unless there are too many.
fn opened<T>(opened: Result<Option<T>, Fault>) -> Result<T, OpenError> {
    let opened = opened.map_err(|_| OpenError::Stopped)?;
    opened.ok_or(OpenError::Limit { limit: MAX_IDS })
}

impl Reader {
    /// Opens a source, given by its name or as a value, with a new cache, that is, with a new [`crate::Engine`] that has only this file.
    /// Each reader opened this way has its own cache; [`Engine::open`] lets many readers share one cache.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, or a setting is invalid.
    pub fn open(origin: impl Into<Origin>, options: Options) -> Result<Reader, OpenError> {
        let (source, readahead_bytes) = match origin.into() {
            Origin::Source(source) => (source, None),
            Origin::Name(name) => {
                let _span = tracing::debug_span!("open", source = %name).entered();
                (
                    open_named(&name, &options)?,
                    source::default_readahead_bytes(name.path()),
                )
            }
        };
        let storage = Storage {
            readahead_bytes,
            size: Some(source.size()),
            defaults: source.defaults(),
        };
        Engine::build(&options, storage)?.open(source)
    }

    /// Opens a file or a block device by its path, even if the path looks like the name of another kind of source.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::open`].
    pub fn open_file(path: impl AsRef<Path>, options: Options) -> Result<Reader, OpenError> {
        let mut name = OsString::from("file:");
        name.push(path.as_ref());
        Reader::open(SourceName::from(name), options)
    }

    /// The default settings for the source's kind of storage.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.source.defaults()
    }

    /// Opens a second reader of the same source on the same cache, with its own readahead state. A clone of a reader that is pinned
    /// ([`Reader::pin_version`]) is pinned to the same version.
    ///
    /// # Errors
    /// Returns an error if too many readers are open.
    pub fn try_clone(&self) -> Result<Reader, OpenError> {
        let (at, version) = opened(self.engine.driver().open(self.at.file))?;
        let seen = self.seen.again(version);
        Reader::beside(&self.engine, &self.source, &self.flushes, at, seen)
    }

    /// A reader of a source that the driver has opened, with the initial hint of the engine.
    fn beside(
        engine: &Engine,
        source: &Arc<dyn Source>,
        flushes: &Arc<Flushes>,
        at: OpenFile,
        seen: VersionCursor,
    ) -> Result<Reader, OpenError> {
        let reader = Reader {
            engine: engine.clone(),
            source: Arc::clone(source),
            at,
            seen,
            flushes: Arc::clone(flushes),
        };
        let can_be_first = [Advice::Normal, Advice::Sequential, Advice::Random];
        let hint = engine.options().hint;
        if let Some(hint) = hint.filter(|hint| can_be_first.contains(hint)) {
            let hinted = engine.driver().advise(at.open, hint, ByteRange::default());
            hinted.map_err(|_| OpenError::Stopped)?;
        }
        Ok(reader)
    }

    /// Asks the source whether it has changed. After that, a clone reads the current version, unless the source cannot answer.
    #[cfg(feature = "nbd")]
    pub(crate) fn check(&self) {
        // If the engine has stopped, reads say so.
        let _ = self.engine.driver().check(self.at.file);
    }

    /// Pins the reader to one version and size. After a change, a reader that is not pinned gets one error and then reads the new
    /// version; a pinned reader gets an error from every further read. Use a pinned reader to serve clients to which a change cannot be
    /// reported. Growth of the source is also a change, unless the caller has declared that sources are only appended to
    /// ([`Options::appending`]).
    #[must_use]
    pub fn pin_version(mut self) -> Reader {
        let size = self.size();
        self.seen
            .pin((!self.engine.options().appending).then_some(size));
        self
    }

    /// Declares that this source is only appended to, as [`Options::appending`] does for all sources of an engine. Readers that are already
    /// pinned ([`Reader::pin_version`]) stay pinned to their size.
    pub fn allow_appends(&self) {
        self.source.allow_appends();
    }

    /// Reads bytes from `offset` into `buf`, as many as fit. Returns the number of bytes read: fewer than the length of `buf` only at the
    /// end of the source, and 0 beyond the end. The call blocks until the bytes are read. Any offset and length are allowed.
    ///
    /// # Errors
    /// See [`ReadError`]. After an error, the content of `buf` is unspecified.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        self.read(&mut ReadBuf::One(buf), offset, None)
    }

    /// Like [`Reader::read_at`], but fills several buffers in their order, as one read.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_at`].
    pub fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<usize, ReadError> {
        self.read(&mut ReadBuf::Many(bufs), offset, None)
    }

    /// Like [`Reader::read_at`], but calls `waits` before the first wait, if there is one.
    #[cfg(feature = "nbd")]
    pub(crate) fn read_at_telling(
        &self,
        buf: &mut [u8],
        offset: u64,
        waits: &mut dyn FnMut(),
    ) -> Result<usize, ReadError> {
        self.read(&mut ReadBuf::One(buf), offset, Some(waits))
    }

    /// Like [`Reader::read_at`], but leaves the bytes in the cache and lends them.
    #[cfg(feature = "fuse")]
    pub(crate) fn read_lent(&self, lent: &mut LentBytes, offset: u64) -> Result<usize, ReadError> {
        self.read(&mut ReadBuf::Lent(lent), offset, None)
    }

    fn read(
        &self,
        room: &mut ReadBuf<'_, '_>,
        offset: u64,
        waits: Option<&mut dyn FnMut()>,
    ) -> Result<usize, ReadError> {
        if ReadSpan::is_wanted()
            && let Some(span) = ReadSpan::begin(self.at, offset, room.len())
        {
            return self.read_in(span, room, offset, waits);
        }
        let read = self
            .engine
            .driver()
            .read(self.at, &self.seen, room, offset, waits, None);
        read.map_err(|fault| self.explain(fault, room.len(), offset))
    }

    /// Does a read within a tracing span.
    #[cold]
    fn read_in(
        &self,
        span: ReadSpan,
        room: &mut ReadBuf<'_, '_>,
        offset: u64,
        waits: Option<&mut dyn FnMut()>,
    ) -> Result<usize, ReadError> {
        let mut looked_up = LookedUp::default();
        let read = {
            let _entered = span.enter();
            let (driver, looked_up) = (self.engine.driver(), Some(&mut looked_up));
            driver.read(self.at, &self.seen, room, offset, waits, looked_up)
        };
        span.end(&read, looked_up, SourceLabel(&*self.source));
        read.map_err(|fault| self.explain(fault, room.len(), offset))
    }

    #[cold]
    fn explain(&self, fault: Fault, len: usize, offset: u64) -> ReadError {
        ReadError::new(
            fault,
            Place {
                offset,
                len,
                source: self.source.describe(),
            },
        )
    }

    /// Gives a hint about a range: the range is needed soon, is no longer needed, or will be read in a certain pattern. An empty range
    /// extends to the end of the source, as a length of 0 does in `posix_fadvise`.
    ///
    /// # Errors
    /// Returns an error if the engine has stopped.
    pub fn advise(&self, advice: Advice, bytes: Range<u64>) -> Result<(), ReadError> {
        let range = ByteRange::between(bytes.start, bytes.end.max(bytes.start));
        self.engine
            .driver()
            .advise(self.at.open, advice, range)
            .map_err(|fault| self.explain(fault, 0, bytes.start))
    }

    /// Announces that the caller will read these bytes. The bytes are fetched whatever the policy decides, as far as the cache has room.
    /// After a hint ([`Reader::advise`]), in contrast, the policy decides whether to fetch.
    ///
    /// # Errors
    /// Returns an error if the engine has stopped.
    pub fn prefetch(&self, bytes: Range<u64>) -> Result<(), ReadError> {
        let range = ByteRange::between(bytes.start, bytes.end.max(bytes.start));
        self.engine
            .driver()
            .prefetch(self.at.open, range)
            .map_err(|fault| self.explain(fault, 0, bytes.start))
    }

    /// Size of the source in bytes, as far as this cache knows. For a pinned reader, this is the size to which the reader is pinned.
    #[must_use]
    pub fn size(&self) -> u64 {
        if let Some(size) = self.seen.size() {
            return size;
        }
        self.engine
            .driver()
            .known(self.at.file)
            .map_or_else(|_| self.source.size(), |known| known.size)
    }

    /// The counters of all readers that share this reader's cache, since the cache was created.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The counters of this reader alone. Counters that belong to no single reader, such as `source_*` and `evicted_pages`, are 0.
    ///
    /// ```
    /// use foreread::{Options, Reader, source::Mem};
    /// use std::sync::Arc;
    ///
    /// let one = Reader::open(Arc::new(Mem::new(vec![7; 9000])), Options::default())?;
    /// let two = one.try_clone()?;
    /// one.read_at(&mut [0; 10], 0)?;
    /// assert_eq!((one.own_stats().demand_reads, two.own_stats().demand_reads, two.stats().demand_reads), (1, 0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn own_stats(&self) -> Stats {
        self.engine
            .driver()
            .own_stats(self.at.open)
            .unwrap_or_default()
    }

    /// The policy with all its parameter values.
    #[must_use]
    pub fn policy(&self) -> &PolicySpec {
        self.engine.policy()
    }

    /// The engine of this reader, with its cache and limits. Other sources may use the same engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// See [`Source::whole_file`]. Returns `None` if the source no longer has this reader's version, or if the file was read ahead:
    /// the policy must see that its readahead is used.
    #[cfg(feature = "fuse")]
    pub(crate) fn whole_file(&self) -> Option<source::WholeFile> {
        let is_ahead = self.engine.driver().is_start_unused(self.at.file);
        (!is_ahead).then(|| self.source.whole_file()).flatten()
    }

    /// A description of the source for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        self.source.describe()
    }
}

/// The name of a source, computed on demand.
struct SourceLabel<'a>(&'a dyn Source);

impl std::fmt::Display for SourceLabel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.describe())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.engine.driver().close(self.at.open);
    }
}

impl Reader {
    /// Whether the source knows its holes, so that [`Reader::extents`] is useful.
    #[must_use]
    pub fn knows_holes(&self) -> bool {
        self.source.holes().is_some()
    }

    /// Lists data and holes from `offset` up to `end`, in ascending order and without gaps, as at most `most` extents. The last extent
    /// may end beyond `end`. For a source that does not know its holes, the result is one extent of data.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_at`]: the call asks the source, which may fail or may have changed.
    pub fn extents(&self, offset: u64, end: u64, most: usize) -> Result<Vec<Extent>, ReadError> {
        let failed = |fault| self.explain(fault, 0, offset);
        let SizedVersion { size, version } =
            self.engine.driver().known(self.at.file).map_err(failed)?;
        if !self.seen.knows(version) {
            // This error informs the caller, unless the reader is pinned.
            self.seen.told(version);
            return Err(failed(Fault::Read(Error::Changed)));
        }
        let (mut at, mut all) = (offset, Vec::new());
        while at < end.min(size) && all.len() < most {
            let extent = match self.source.holes() {
                Some(holes) => match guarded(|| holes.extent_at(at)) {
                    Ok(extent) => extent,
                    Err(error) => {
                        if let SourceError::Changed { .. } = error {
                            self.source_changed(version).map_err(failed)?;
                        }
                        let fault = Fault::Source(event_error(&error), Cause::new(error));
                        return Err(failed(fault));
                    }
                },
                None => Extent {
                    len: size - at,
                    is_hole: false,
                },
            };
            all.push(extent);
            at = at.saturating_add(extent.len.max(1));
        }
        Ok(all)
    }

    /// Reports that the source no longer has this version. The caller is informed by an error, unless the reader is pinned.
    fn source_changed(&self, version: u64) -> Result<(), Fault> {
        let driver = self.engine.driver();
        driver.changed(self.at.file, version)?;
        self.seen.told(driver.known(self.at.file)?.version);
        Ok(())
    }
}
