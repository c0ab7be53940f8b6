//! Readahead for any object store: an `ObjectStore` (crate `object_store`) that wraps another `ObjectStore`.
//!
//! Reads of objects go through one engine, with its cache, policy and limits; all other operations go directly to the wrapped store. The
//! first use of an object sends a `head`; the object stays open for later reads. Every later request is for the version that the `head`
//! returned, so all bytes of one answer are of one version.
//!
//! ```text
//!   get, get_range, get_ranges ──► open, and just checked? ────yes──► Reader ──► engine ──► Object ──► the store, If-Match
//!                                        │ no: head                     │ the store has another version
//!                                        └──────────────────────────────┘ opened anew
//!   head, list ──► the store; an object with another version is invalidated
//!   put, copy, rename, delete ──► the store; then the object is invalidated
//!   conditions, versions ──► the store
//! ```
//! Example: a program reads a column of 4 MiB in ranges of 64 KiB. The first read sends `head` and `get_range`; from the third read
//! on, the bytes are cached before they are read.

use crate::engine::Engine;
use crate::error::{OpenError, Place, ReadError};
use crate::error_kind::ErrorKind;
use crate::options::Options;
use crate::reader::Reader;
use crate::source::Defaults;
use crate::source::object::ForeignStore;
use crate::sync::lock;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
    coalesce_ranges,
};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of objects kept open between reads. The least recently used one is closed first.
const MAX_OPEN: usize = 64;
/// Default time for which a version is trusted: the same as for a mount's attributes.
const CHECK_AFTER: Duration = Duration::from_secs(1);
/// Length of one read of the engine in bytes; a longer answer is a stream of such reads.
const PIECE_BYTES: u64 = 4 << 20;
/// How often one read opens an object that is replaced repeatedly.
const MAX_OPENED: u32 = 4;

/// An object store with readahead and a cache, for programs that read through [`ObjectStore`].
///
/// All bytes of an answer are of one version. A version is trusted for a second; if another program replaces the object within that time,
/// reads may still return the old version. [`Ahead::check_after`] changes how long a version is trusted. The answers of the wrapper never
/// contradict each other. As soon as a `head`, a listing or a write through the wrapper has shown a newer version, the wrapper no longer
/// returns the older version.
///
/// The wrapper uses [`Options::cache_bytes`] of memory, plus the replies that the program has not dropped yet. The wrapper needs the
/// engine's worker threads ([`Options::threads`]); without them, a read blocks the thread of its task. Programs that read sequentially or
/// repeatedly become faster. Programs that read ranges of tens of megabytes become slower, because one large request would deliver such a
/// range faster than the wrapper's smaller requests.
///
/// ```
/// use foreread::Options;
/// use foreread::front::Ahead;
/// use object_store::memory::InMemory;
/// use object_store::path::Path;
/// use object_store::ObjectStoreExt;
///
/// # pollster::block_on(async {
/// let store = Ahead::new(InMemory::new(), Options::default().cache_bytes(16 << 20))?;
/// let path = Path::from("data/numbers");
/// store.put(&path, vec![7; 1 << 20].into()).await?;
///
/// let bytes = store.get_range(&path, 4096..8192).await?;
/// assert_eq!(bytes, vec![7; 4096]);
/// assert_eq!(store.get(&path).await?.bytes().await?.len(), 1 << 20);
/// assert!(store.engine().stats().demand_reads > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).expect("it reads");
/// ```
pub struct Ahead<S> {
    inner: Arc<S>,
    store: ForeignStore,
    engine: Engine,
    objects: Arc<OpenObjects>,
    check_after: Duration,
}

#[derive(Default)]
struct OpenObjects(Mutex<OpenList>);

#[derive(Default)]
struct OpenList {
    /// Open objects, at most [`MAX_OPEN`]; the most recently read is the last.
    objects: Vec<Arc<OpenObject>>,
    /// The `head` requests in flight.
    heads: Vec<Head>,
    next_head: u64,
}

/// An object that is being opened.
struct Head {
    number: u64,
    location: Path,
    /// Whether it was written since the `head` was sent; then the result of the `head` is not kept.
    is_outdated: bool,
    /// The newest state that another answer has reported since.
    seen: Option<ObjectMeta>,
}

struct OpenObject {
    meta: ObjectMeta,
    attributes: Attributes,
    reader: Reader,
    checked: Mutex<Instant>,
}

/// Removes its [`Head`] when it is dropped.
struct HeadGuard<'a> {
    objects: &'a OpenObjects,
    number: u64,
}

impl Drop for HeadGuard<'_> {
    fn drop(&mut self) {
        let mut list = lock(&self.objects.0);
        list.heads.retain(|head| head.number != self.number);
    }
}

/// Invalidates an object when a write ends, fails or is cancelled.
struct WriteGuard<'a> {
    objects: &'a OpenObjects,
    location: &'a Path,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.objects.forget(self.location);
    }
}

/// Invalidates all objects if a stream of deletions is dropped early, because it is unknown which were deleted.
struct DeleteGuard {
    objects: Arc<OpenObjects>,
    is_ended: bool,
}

impl Drop for DeleteGuard {
    fn drop(&mut self) {
        if !self.is_ended {
            self.objects.forget_all();
        }
    }
}

impl OpenObjects {
    /// Invalidates an object, because it may have another version now.
    fn forget(&self, location: &Path) {
        let mut list = lock(&self.0);
        for head in list.of_head(location) {
            head.is_outdated = true;
        }
        let left = list.take(location);
        drop(list);
        // Closed without the lock.
        drop(left);
    }

    /// Invalidates all objects, because any of them may have another version now.
    fn forget_all(&self) {
        let mut list = lock(&self.0);
        for head in &mut list.heads {
            head.is_outdated = true;
        }
        let left = std::mem::take(&mut list.objects);
        drop(list);
        drop(left);
    }

    /// Records an object's state from a `head` or listing sent at `asked`. An open object of another version is invalidated.
    fn saw(&self, location: &Path, meta: &ObjectMeta, asked: Option<Instant>) {
        let mut list = lock(&self.0);
        for head in list.of_head(location) {
            head.seen = Some(meta.clone());
        }
        let Some(at) = list.position(location) else {
            return;
        };
        let object = Arc::clone(&list.objects[at]);
        if !object.is_of(meta) {
            list.objects.remove(at);
        } else if let Some(asked) = asked {
            object.was_checked(asked);
        }
        drop(list);
        drop(object);
    }

    /// Returns the open object if it was checked less than `check_after` ago.
    fn fresh(&self, location: &Path, check_after: Duration) -> Option<Arc<OpenObject>> {
        let mut list = lock(&self.0);
        let at = list.position(location)?;
        let is_fresh = list.objects[at].age() < check_after;
        is_fresh.then(|| list.used(at))
    }

    /// Returns the object if it is open in the version that a `head` sent at `asked` has found.
    fn checked(&self, meta: &ObjectMeta, asked: Instant) -> Option<Arc<OpenObject>> {
        let mut list = lock(&self.0);
        let at = list.position(&meta.location)?;
        if !list.objects[at].is_of(meta) {
            return None;
        }
        list.objects[at].was_checked(asked);
        Some(list.used(at))
    }

    fn begin_head(&self, location: &Path) -> HeadGuard<'_> {
        let mut list = lock(&self.0);
        let number = list.next_head;
        list.next_head += 1;
        list.heads.push(Head {
            number,
            location: location.clone(),
            is_outdated: false,
            seen: None,
        });
        HeadGuard {
            objects: self,
            number,
        }
    }

    /// Keeps an object opened after a `head`, unless it may be outdated.
    fn keep(&self, guard: &HeadGuard<'_>, object: &Arc<OpenObject>) {
        let mut list = lock(&self.0);
        let head = list.heads.iter().find(|head| head.number == guard.number);
        let is_outdated = head.is_none_or(|head| {
            head.is_outdated || head.seen.as_ref().is_some_and(|meta| !object.is_of(meta))
        });
        let left = if is_outdated {
            Vec::new()
        } else {
            list.keep(object)
        };
        drop(list);
        drop(left);
    }
}

impl OpenList {
    fn position(&self, location: &Path) -> Option<usize> {
        let is_it = |object: &Arc<OpenObject>| object.meta.location == *location;
        self.objects.iter().position(is_it)
    }

    fn take(&mut self, location: &Path) -> Option<Arc<OpenObject>> {
        self.position(location).map(|at| self.objects.remove(at))
    }

    /// The `head` requests in flight for an object.
    fn of_head(&mut self, location: &Path) -> impl Iterator<Item = &mut Head> {
        let heads = self.heads.iter_mut();
        heads.filter(move |head| head.location == *location)
    }

    /// Returns the object at this index, and marks it as most recently used.
    fn used(&mut self, at: usize) -> Arc<OpenObject> {
        let object = self.objects.remove(at);
        self.objects.push(Arc::clone(&object));
        object
    }

    /// Keeps an object; returns the objects that are removed to make room.
    fn keep(&mut self, object: &Arc<OpenObject>) -> Vec<Arc<OpenObject>> {
        let mut left: Vec<_> = self.take(&object.meta.location).into_iter().collect();
        self.objects.push(Arc::clone(object));
        let excess = self.objects.len().saturating_sub(MAX_OPEN);
        left.extend(self.objects.drain(..excess));
        left
    }
}

impl OpenObject {
    fn age(&self) -> Duration {
        lock(&self.checked).elapsed()
    }

    /// Records that the store had this version at this time or later.
    fn was_checked(&self, asked: Instant) {
        let mut checked = lock(&self.checked);
        *checked = asked.max(*checked);
    }

    /// Whether it has the version from a `head` or a listing. Equal strong ETags are sufficient, because dates may be more precise
    /// in listings.
    fn is_of(&self, meta: &ObjectMeta) -> bool {
        let own = &self.meta;
        let etag = own.e_tag.as_ref();
        let is_exact = etag.is_some_and(|etag| !etag.starts_with("W/"));
        let is_of_date = is_exact || own.last_modified == meta.last_modified;
        own.size == meta.size && own.e_tag == meta.e_tag && is_of_date
    }
}

impl<S: ObjectStore> Ahead<S> {
    /// Wraps a store with readahead.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid.
    pub fn new(inner: S, options: Options) -> std::result::Result<Ahead<S>, OpenError> {
        let inner = Arc::new(inner);
        Ok(Ahead {
            store: ForeignStore::new(inner.clone()),
            inner,
            engine: Engine::for_kind(options, Defaults::OBJECT)?,
            objects: Arc::default(),
            check_after: CHECK_AFTER,
        })
    }

    /// Sets how long a version is trusted; after that, a read first sends a `head`. With zero, every read first sends a `head`: each read
    /// costs another round trip, but no read returns an old version after the object was replaced.
    #[must_use]
    pub fn check_after(self, check_after: Duration) -> Ahead<S> {
        Ahead {
            check_after,
            ..self
        }
    }

    /// The engine, with its counters and limits.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The wrapped store.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the object, checked less than `check_after` ago. Returns `None` if the engine cannot open more objects; the store is
    /// then read directly.
    async fn open(&self, location: &Path) -> Result<Option<Arc<OpenObject>>> {
        if let Some(object) = self.objects.fresh(location, self.check_after) {
            return Ok(Some(object));
        }
        let (guard, asked) = (self.objects.begin_head(location), Instant::now());
        let options = GetOptions::new().with_head(true);
        let head = self.inner.get_opts(location, options).await;
        let mut head = head.inspect_err(|error| self.forget_absent(location, error))?;
        // A store that adds a prefix to names may return the longer name.
        head.meta.location = location.clone();
        if let Some(object) = self.objects.checked(&head.meta, asked) {
            return Ok(Some(object));
        }
        let source = Arc::new(self.store.object(head.meta.clone()));
        let reader = match self.engine.open(source) {
            Ok(reader) => reader.pin_version(),
            Err(error) => {
                tracing::debug!("{location} is read without readahead: {error}");
                return Ok(None);
            }
        };
        // Another task may have opened it meanwhile. Later reads share its pages, so use it.
        if let Some(object) = self.objects.checked(&head.meta, asked) {
            return Ok(Some(object));
        }
        let object = Arc::new(OpenObject {
            meta: head.meta,
            attributes: head.attributes,
            reader,
            checked: Mutex::new(asked),
        });
        self.objects.keep(&guard, &object);
        Ok(Some(object))
    }

    fn forget_absent(&self, location: &Path, error: &Error) {
        if let Error::NotFound { .. } = error {
            self.objects.forget(location);
        }
    }

    fn write_guard<'a>(&'a self, location: &'a Path) -> WriteGuard<'a> {
        WriteGuard {
            objects: &self.objects,
            location,
        }
    }

    /// Reads an object. If it was replaced meanwhile, it is opened again, and the read begins anew. Returns `None` if it must be read without
    /// readahead.
    async fn read<T, F>(
        &self,
        location: &Path,
        read: impl Fn(Arc<OpenObject>) -> F,
    ) -> Result<Option<T>>
    where
        F: Future<Output = Result<std::result::Result<T, ReadError>>>,
    {
        for _ in 0..MAX_OPENED {
            let Some(object) = self.open(location).await? else {
                return Ok(None);
            };
            let error = match read(object).await? {
                Ok(read) => return Ok(Some(read)),
                Err(error) => error,
            };
            if let ErrorKind::Changed | ErrorKind::NotFound = error.kind() {
                self.objects.forget(location);
            }
            match error.kind() {
                ErrorKind::Changed => {}
                // An error of the engine, not of the store.
                ErrorKind::Stopped | ErrorKind::TooManyReads => return Ok(None),
                _ => return Err(refused(location, error)),
            }
        }
        // The object is replaced repeatedly, or the store's replies to HEAD and GET differ.
        Ok(None)
    }
}

impl OpenObject {
    /// All bytes of a range that lies within the object.
    async fn bytes(&self, range: Range<u64>) -> std::result::Result<Bytes, ReadError> {
        let len = (range.end - range.start) as usize;
        let bytes = self.reader.read_bytes_at_async(range.start, len).await?;
        if bytes.len() == len {
            return Ok(bytes);
        }
        let place = Place {
            offset: range.start,
            len,
            source: self.reader.describe(),
        };
        Err(ReadError::Short { place, cause: None })
    }

    /// Resolves a range as the store would.
    fn range(&self, wanted: &GetRange) -> Result<Range<u64>> {
        wanted.as_range(self.meta.size).map_err(generic)
    }

    /// Resolves these ranges as the store would.
    fn ranges(&self, wanted: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let wanted = wanted.iter().cloned().map(GetRange::Bounded);
        wanted.map(|range| self.range(&range)).collect()
    }

    /// A reply whose first piece has already arrived.
    async fn answer(
        self: Arc<OpenObject>,
        range: Range<u64>,
    ) -> std::result::Result<GetResult, ReadError> {
        let first = range.start..range.end.min(range.start.saturating_add(PIECE_BYTES));
        let (meta, attributes) = (self.meta.clone(), self.attributes.clone());
        let (next, end) = (first.end, range.end);
        let head = stream::once(std::future::ready(Ok(self.bytes(first).await?)));
        let rest = stream::try_unfold(next, move |at| {
            let object = Arc::clone(&self);
            async move {
                if at == end {
                    return Ok(None);
                }
                let until = end.min(at + PIECE_BYTES);
                let bytes = object.bytes(at..until).await;
                let bytes = bytes.map_err(|error| refused(&object.meta.location, error))?;
                Ok(Some((bytes, until)))
            }
        });
        Ok(GetResult {
            payload: GetResultPayload::Stream(head.chain(rest).boxed()),
            meta,
            range,
            attributes,
            extensions: Extensions::default(),
        })
    }
}

/// Converts a read error to an error of an object store.
fn refused(location: &Path, error: ReadError) -> Error {
    let (path, kind) = (location.to_string(), error.kind());
    let source = Box::new(error);
    match kind {
        ErrorKind::NotFound => Error::NotFound { path, source },
        ErrorKind::PermissionDenied => Error::PermissionDenied { path, source },
        ErrorKind::Changed => Error::Precondition { path, source },
        _ => generic(*source),
    }
}

fn generic(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic {
        store: "Ahead",
        source: Box::new(error),
    }
}

/// Whether the request has no condition, so that any version is accepted.
fn is_plain(options: &GetOptions) -> bool {
    let GetOptions {
        if_match,
        if_none_match,
        if_modified_since,
        if_unmodified_since,
        range: _,
        version,
        head,
        extensions,
    } = options;
    let has_condition = if_match.is_some()
        || if_none_match.is_some()
        || if_modified_since.is_some()
        || if_unmodified_since.is_some();
    !(has_condition || version.is_some() || *head) && extensions.is_empty()
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Ahead<S> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let _guard = self.write_guard(location);
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(AheadUpload {
            upload,
            objects: Arc::clone(&self.objects),
            location: location.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        // A conditional get and a head also report the current version.
        let is_latest = options.version.is_none();
        if !is_plain(&options) || self.engine.is_stopped() {
            let asked = Instant::now();
            let done = self.inner.get_opts(location, options).await;
            match &done {
                Ok(answer) if is_latest => self.objects.saw(location, &answer.meta, Some(asked)),
                Ok(_) => {}
                Err(error) => self.forget_absent(location, error),
            }
            return done;
        }
        let wanted = &options.range;
        let read = |object: Arc<OpenObject>| async move {
            let whole = 0..object.meta.size;
            let range = wanted
                .as_ref()
                .map_or(Ok(whole), |wanted| object.range(wanted))?;
            Ok(object.answer(range).await)
        };
        match self.read(location, read).await? {
            Some(answer) => Ok(answer),
            None => self.inner.get_opts(location, options).await,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let read = |object: Arc<OpenObject>| async move {
            let inside = object.ranges(ranges)?;
            // Like the store does: gaps up to this length are read together with their neighbours.
            let part = |range| {
                let object = Arc::clone(&object);
                async move { object.bytes(range).await }
            };
            Ok(coalesce_ranges(&inside, part, OBJECT_STORE_COALESCE_DEFAULT).await)
        };
        if !self.engine.is_stopped()
            && let Some(bytes) = self.read(location, read).await?
        {
            return Ok(bytes);
        }
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let guard = DeleteGuard {
            objects: Arc::clone(&self.objects),
            is_ended: false,
        };
        let deleted = self.inner.delete_stream(locations);
        stream::unfold((deleted, guard), |(mut deleted, mut guard)| async move {
            let next = deleted.next().await;
            match &next {
                Some(Ok(location)) => guard.objects.forget(location),
                // An error does not name its object.
                Some(Err(_)) => guard.objects.forget_all(),
                None => guard.is_ended = true,
            }
            next.map(|done| (done, (deleted, guard)))
        })
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        seen(&self.objects, self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        seen(&self.objects, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let done = self.inner.list_with_delimiter(prefix).await?;
        for meta in &done.objects {
            self.objects.saw(&meta.location, meta, None);
        }
        Ok(done)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _guard = self.write_guard(to);
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _guards = (self.write_guard(from), self.write_guard(to));
        self.inner.rename_opts(from, to, options).await
    }
}

/// A listing. Each of its entries is compared with the open objects.
fn seen(
    objects: &Arc<OpenObjects>,
    listed: BoxStream<'static, Result<ObjectMeta>>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let objects = Arc::clone(objects);
    listed
        .inspect_ok(move |meta| objects.saw(&meta.location, meta, None))
        .boxed()
}

impl<S: fmt::Display> fmt::Display for Ahead<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ahead({})", self.inner)
    }
}

impl<S: fmt::Debug> fmt::Debug for Ahead<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead")
            .field("inner", &self.inner)
            .field("check_after", &self.check_after)
            .finish_non_exhaustive()
    }
}

/// An upload. When it ends, the object has another version.
#[derive(Debug)]
struct AheadUpload {
    upload: Box<dyn MultipartUpload>,
    objects: Arc<OpenObjects>,
    location: Path,
}

impl fmt::Debug for OpenObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", lock(&self.0).objects.len())
    }
}

#[async_trait]
impl MultipartUpload for AheadUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let _guard = WriteGuard {
            objects: &self.objects,
            location: &self.location,
        };
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}
