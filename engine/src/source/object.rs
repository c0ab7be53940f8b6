//! Objects as a source: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `hf://USER/REPO/PATH`, `http://HOST/PATH`, `https://HOST/PATH`.
//!
//! Every request is for a byte range and, with `If-Match`, for the version that the reader has accepted. (A server that refuses
//! `If-Match` gets requests without it.) Every reply is validated before its bytes are used. The source never writes, never
//! prints a password or a token, never retries permanent errors, and never waits without a time limit.
//!
//! ```text
//!   open ──► first bytes of the object: its version, and whether the server knows ranges
//!   read_at, stream ──► fetch (deadlines, retries) ──► object_store ──► check of replies ──► the server
//!                 │ another version
//!                 ▼
//!              Changed, until accept has requested the current version
//! ```
//!
//! The thread of the reader only waits for bytes and copies them. An async runtime with two threads, started once per process,
//! drives all connections and reads the bodies (`body.rs`).

mod authorities;
mod body;
mod client;
mod credentials;
mod fetch;
mod first;
#[cfg(feature = "disk-cache")]
mod keys;
mod list;
mod network;
mod page;
mod refusal;
mod reply;
mod settings;
mod store;
mod version;

use super::{
    Defaults, EINVAL, ExactVersion, Sink, Source, SourceError, SourceName, SourceOpenError,
    StreamingSource, tree,
};
use crate::source::sinks::Slices;
use crate::sync::lock;
pub use authorities::built_in as built_in_authorities;
use fetch::{Asker, SinkRange, Tally};
pub(crate) use first::FIRST_BYTES;
use first::{FirstBytes, Room};
#[cfg(feature = "disk-cache")]
pub(crate) use keys::{KeyRefusal, Keys};
pub use list::{MAX_NAMES, Prefix};
#[cfg(feature = "disk-cache")]
pub(crate) use network::begin;
pub(crate) use network::{Network, hold as hold_network};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use refusal::{Refusal, Unfit};
pub use settings::{NOTATION, ObjectSettings, VARIABLE, VARIABLES, configure, configure_by};
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::Store;
pub use store::names_a_prefix;
use version::{Validator, Version};

const EISDIR: i32 = rustix::io::Errno::ISDIR.raw_os_error();

/// Objects as a source: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `http://HOST/PATH`, `https://HOST/PATH`.
pub struct Object {
    store: Store,
    path: Path,
    name: SourceName,
    settings: ObjectSettings,
    version: Mutex<Arc<Version>>,
    tally: Tally,
    first: FirstBytes,
    /// Response time of the request that opened it.
    answered_in: Option<Duration>,
}

/// Request counters of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectRequests {
    /// All requests.
    pub requests: u64,
    /// Retries after a failure, included in `requests`.
    pub retries: u64,
    /// Bytes received in bodies.
    pub bytes: u64,
}

impl Object {
    /// Opens an object with the settings of the environment ([`VARIABLE`], [`VARIABLES`]).
    ///
    /// # Errors
    /// Returns the errors of [`Object::open_with`].
    pub fn open(name: impl Into<SourceName>) -> Result<Object, SourceOpenError> {
        let name = name.into();
        let settings = settings(&name)?;
        Object::open_with(name, settings)
    }

    /// Opens an object.
    ///
    /// # Errors
    /// Returns an error if the name is invalid, if the object does not exist or is not readable, or if its server does not support
    /// ranges.
    pub fn open_with(
        name: impl Into<SourceName>,
        settings: ObjectSettings,
    ) -> Result<Object, SourceOpenError> {
        Object::open_unless(name.into(), settings, &|_| None)
    }

    /// Opens an object whose bytes may be cached. `held` is the cached version, in the form of [`ExactVersion::version`]. If
    /// that version is current, the first bytes are not requested.
    pub(crate) fn open_unless(
        name: SourceName,
        settings: ObjectSettings,
        held: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Object, SourceOpenError> {
        let place = store::parse(&name)?;
        if place.is_prefix() {
            return Err(SourceOpenError::new(
                name,
                "it is a prefix, not an object",
                "use the name of an object, or mount the prefix (foreread mount)",
                EISDIR,
            ));
        }
        let unfit = |unfit: Unfit| unfit.open_error(&name);
        let path = store::path_of(place.key()).map_err(unfit)?;
        let open = |settings: ObjectSettings| {
            let store = store::connect(&*place, &settings).map_err(unfit)?;
            let account = store.account.clone();
            let done = Object::at(store, path.clone(), name.clone(), settings, held);
            Ok::<_, SourceOpenError>(done.map_err(|refused| (refused, account)))
        };
        let done = store::open_at(&*place, settings, open, |done| {
            let refused = done.as_ref().err();
            refused.map(|(refusal, _)| refusal.clone())
        })?;
        done.map_err(|(refusal, account)| refusal.open_error(&name, &account))
    }

    fn at(
        store: Store,
        path: Path,
        name: SourceName,
        settings: ObjectSettings,
        held: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Object, Refusal> {
        let held = held(&source_text(&store, &path));
        let held = held.and_then(|held| Validator::parse(&held));
        let tally = Tally::default();
        let asker = Asker {
            store: &store,
            path: &path,
            settings: &settings,
            tally: &tally,
        };
        let room = Room::take();
        let first_bytes = if room.is_some() { FIRST_BYTES } else { 1 };
        let front = wait(asker.front(first_bytes, held))?;
        let (first, answered_in) = (FirstBytes::new(front.bytes, room), Some(front.answered_in));
        // The next check, by a mount that opens the object for its first reader, need not send a request.
        tally.confirmed.store(true, Ordering::Relaxed);
        Ok(Object {
            tally,
            first,
            answered_in,
            ..Object::known(store, path, name, settings, Version::replied(front.said))
        })
    }

    /// Creates a source for an object in a store (of the library object_store) that the program has created, with any kind of store
    /// and credentials. This function blocks, because it requests the size and version; in an async task, call `head` and then
    /// [`Object::of_store`].
    ///
    /// # Errors
    /// Returns an error if the object does not exist or is not readable.
    ///
    /// ```
    /// use foreread::source::Object;
    /// use foreread::{Options, Reader};
    /// use object_store::memory::InMemory;
    /// use object_store::path::Path;
    /// use object_store::{ObjectStore, ObjectStoreExt};
    /// use std::sync::Arc;
    ///
    /// let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    /// let path = Path::from("data/numbers");
    /// pollster::block_on(store.put(&path, vec![7; 1 << 20].into()))?;
    ///
    /// let object = Object::in_store(store, &path)?;
    /// let reader = Reader::open(Arc::new(object), Options::default())?;
    /// let mut buf = [0; 4096];
    /// assert_eq!(reader.read_at(&mut buf, 65_536)?, 4096);
    /// assert_eq!(buf, [7; 4096]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_store(objects: Arc<dyn ObjectStore>, path: &Path) -> Result<Object, SourceOpenError> {
        let (store, settings) = (Store::foreign(objects), foreign_settings());
        let (name, tally) = (foreign_name(&store, path), Tally::default());
        let asker = Asker {
            store: &store,
            path,
            settings: &settings,
            tally: &tally,
        };
        let said = wait(asker.version());
        let said = said.map_err(|refusal| refusal.open_error(&name, &store.account))?;
        let version = Version::replied(said);
        Ok(Object::known(store, path.clone(), name, settings, version))
    }

    /// Like [`Object::in_store`], for an object whose version is already known from a `head` request. This function sends no
    /// request. Each read requires this version by its ETag or its date, and fails if the store has another version.
    ///
    /// ```
    /// use foreread::source::Object;
    /// use foreread::{Options, Reader};
    /// use object_store::memory::InMemory;
    /// use object_store::path::Path;
    /// use object_store::{ObjectStore, ObjectStoreExt};
    /// use std::sync::Arc;
    ///
    /// # pollster::block_on(async {
    /// let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    /// let path = Path::from("data/numbers");
    /// store.put(&path, vec![7; 1 << 20].into()).await?;
    ///
    /// let object = Object::of_store(store.clone(), store.head(&path).await?);
    /// let reader = Reader::open(Arc::new(object), Options::default())?;
    /// let mut buf = [0; 4096];
    /// assert_eq!(reader.read_at_async(&mut buf, 65_536).await?, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).expect("it reads");
    /// ```
    #[must_use]
    pub fn of_store(objects: Arc<dyn ObjectStore>, meta: ObjectMeta) -> Object {
        let store = Store::foreign(objects);
        let (name, path) = (foreign_name(&store, &meta.location), meta.location.clone());
        let version = Version::replied(Validator::of(&meta));
        Object::known(store, path, name, foreign_settings(), version)
    }

    /// Opens the listed version. No request is sent before the first read, which specifies that version.
    fn known(
        store: Store,
        path: Path,
        name: SourceName,
        settings: ObjectSettings,
        version: Version,
    ) -> Object {
        let (version, tally) = (Mutex::new(Arc::new(version)), Tally::default());
        Object {
            store,
            path,
            name,
            settings,
            version,
            tally,
            first: FirstBytes::default(),
            answered_in: None,
        }
    }

    /// For a thread that must not block, if the sink cannot move to another thread: receives all bytes first, then passes them
    /// to the sink.
    fn stream_whole(
        &self,
        len: u64,
        offset: u64,
        sink: &mut dyn Sink,
    ) -> Result<usize, SourceError> {
        let range = within(&self.accepted(), offset, len);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.read_at(&mut [IoSliceMut::new(&mut bytes)], offset)?;
        let mut place = SinkRange::new(sink, offset..offset.saturating_add(read as u64));
        let put = place.put(&bytes[..read]);
        put.map_err(|refusal| refusal.read_error(&self.name))?;
        Ok(read)
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            store: &self.store,
            path: &self.path,
            settings: &self.settings,
            tally: &self.tally,
        }
    }

    fn accepted(&self) -> Arc<Version> {
        Arc::clone(&lock(&self.version))
    }

    /// Returns where the credentials for this object come from, such as `profile dev (SSO)`, or `None` if there are no credentials.
    #[must_use]
    pub fn credentials(&self) -> Option<String> {
        let link = self.store.account.link.as_ref();
        link.map(|link| link.name.to_string())
    }

    /// Returns the request counters of this object so far.
    #[must_use]
    pub fn asked(&self) -> ObjectRequests {
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        ObjectRequests {
            requests: count(&self.tally.requests),
            retries: count(&self.tally.retries),
            bytes: count(&self.tally.bytes),
        }
    }
}

impl Source for Object {
    fn size(&self) -> u64 {
        self.accepted().size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let version = self.accepted();
        let room = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        let range = within(&version, offset, room);
        let len = (range.end - range.start) as usize;
        if len > 0 {
            let mut slices = Slices::new(bufs);
            let place = SinkRange::new(&mut slices, range);
            let done = wait(self.asker().stream(&version, place, len as u64));
            done.map_err(|refusal| refusal.read_error(&self.name))?;
        }
        Ok(len)
    }

    fn answered_in(&self) -> Option<Duration> {
        self.answered_in
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        Some(self)
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        // Two stores of the program may have the same name and different bytes.
        if self.store.is_foreign {
            return None;
        }
        let version = self.accepted();
        let lists_otherwise = self.store.server.conditions.lists_otherwise();
        let said = version.now();
        let is_known = said.is_exact() && !(version.is_listed() && lists_otherwise);
        is_known.then(|| ExactVersion {
            source: source_text(&self.store, &self.path),
            version: said.text(),
            shown: self.name.to_string(),
        })
    }

    fn modified_ns(&self) -> Option<i128> {
        self.accepted().now().modified_ns()
    }

    fn describe(&self) -> String {
        format!("{}, by {}", self.name, self.accepted().now().told_by())
    }

    /// Sends a request, unless a reply has confirmed this version since the last check: a reader that reached the end has that
    /// reply already.
    fn check(&self) -> Result<u64, SourceError> {
        let accepted = self.accepted();
        if self.tally.confirmed.swap(false, Ordering::Relaxed) {
            return Ok(accepted.size());
        }
        let ask = || {
            wait(self.asker().version())
                .and_then(|there| accepted.check(&there).map(|()| there.size()))
        };
        // A single reply may be wrong.
        let same = ask().or_else(|refusal| {
            if refusal.is_change() {
                ask()
            } else {
                Err(refusal)
            }
        });
        same.map_err(|refusal| refusal.read_error(&self.name))
    }

    /// Sends one request, since all readers wait. If no server replies, the old version stays, and the next read reports the
    /// change again.
    fn accept(&self) -> u64 {
        self.first.forget();
        self.tally.confirmed.store(false, Ordering::Relaxed);
        let settings = ObjectSettings {
            retries: 0,
            total: self.settings.first_byte,
            ..self.settings.clone()
        };
        if let Ok(there) = wait(
            Asker {
                settings: &settings,
                ..self.asker()
            }
            .version(),
        ) {
            let accepted = Arc::new(Version::replied(there));
            *lock(&self.version) = accepted;
        }
        self.size()
    }

    fn defaults(&self) -> Defaults {
        self.settings.defaults()
    }
}

impl StreamingSource for Object {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        if !network::may_wait() {
            return self.stream_whole(len, offset, sink);
        }
        let version = self.accepted();
        let range = within(&version, offset, len);
        let len = (range.end - range.start) as usize;
        let mut place = SinkRange::new(sink, range.clone());
        let front = self.first.front(&range, |bytes| place.put_at_hand(bytes));
        front
            .unwrap_or(Ok(()))
            .map_err(|refusal| refusal.read_error(&self.name))?;
        if !place.left().is_empty() {
            let done = network::wait_here(self.asker().stream(&version, place, len as u64));
            done.flatten()
                .map_err(|refusal| refusal.read_error(&self.name))?;
        }
        Ok(len)
    }
}

/// Time limit of a request to a program's own store: longer than the retries of common clients.
const FOREIGN_PATIENCE: Duration = Duration::from_secs(600);

/// The settings for a program's own store: the program has chosen the store's limits and retries.
fn foreign_settings() -> ObjectSettings {
    ObjectSettings {
        first_byte: FOREIGN_PATIENCE,
        stall: FOREIGN_PATIENCE,
        total: FOREIGN_PATIENCE,
        ..ObjectSettings::default()
    }
}

/// For messages: `data/numbers of InMemory`.
fn foreign_name(store: &Store, path: &Path) -> SourceName {
    format!("{path} of {}", store.place).into()
}

/// The canonical name of an object, however the user wrote it.
fn source_text(store: &Store, path: &Path) -> String {
    format!("{}/{path}", store.place)
}

/// The settings from the environment, for opening `name`.
pub(crate) fn settings(name: &SourceName) -> Result<ObjectSettings, SourceOpenError> {
    ObjectSettings::from_environment().map_err(|why| {
        SourceOpenError::new(
            name,
            format!("{VARIABLE}: {why}"),
            format!("write {NOTATION}"),
            EINVAL,
        )
    })
}

/// Waits for a result while it is needed. If the runtime cannot start, the result is an error.
fn wait<T: Send>(work: impl Future<Output = Result<T, Refusal>> + Send) -> Result<T, Refusal> {
    let Some(need) = tree::needed() else {
        return network::wait(work).flatten();
    };
    let needed = async move {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(tree::LOOKS_EVERY, &mut work).await {
                Ok(done) => return done,
                Err(_) if need() => {}
                Err(_) => return Err(Refusal::Cancelled),
            }
        }
    };
    network::wait(needed).flatten()
}

/// The part of the `len` bytes from `offset` that exists; empty past the end.
fn within(version: &Version, offset: u64, len: u64) -> Range<u64> {
    let end = offset.saturating_add(len).min(version.size());
    offset.min(end)..end
}
