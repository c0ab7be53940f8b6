//! Sources: the interface to the storage (file, object, NBD export, RBD image) that a reader reads from.
//!
//! Several threads call a [`Source`] at the same time. Each call blocks, and returns bytes of **one version** or an error. A
//! source does not cache and does not read ahead. A source must not panic; if it does, the engine treats the panic as EIO.
//!
//! ```text
//!   version 1 ──read_at──► bytes           (larger than before: the same version, see `size`)
//!       │ another program writes
//!       ▼
//!     read_at, check ──► Changed, Changed, ... ──accept──► version 2 ──read_at──► bytes
//! ```
//!
//! Features that only some sources have are optional: [`Source::streaming`], [`Source::writing`], [`Source::holes`] and
//! [`Source::queue`] return `None` by default.
//!
//! When a source has changed, every read returns an error until the engine calls [`Source::accept`], so no reply can mix two
//! versions. Before that call, the engine drops all cached data of the old version.

#[cfg(feature = "tokio")]
mod async_source;
mod defaults;
mod descriptor;
#[cfg(feature = "disk-cache")]
pub mod disk_cache;
mod error;
mod file;
mod mem;
mod name;
#[cfg(feature = "nbd")]
mod nbd;
#[cfg(feature = "object")]
pub mod object;
mod queue;
#[cfg(feature = "rbd")]
mod rbd;
#[cfg(feature = "object")]
mod sinks;
pub mod tree;

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tokio")]
pub use async_source::{AsyncSource, FromAsync, from_async};
pub use defaults::{Defaults, LINUX_READAHEAD_BYTES, default_readahead_bytes};
pub use error::{Cause, SourceError, SourceOpenError, SourcePanic};
pub(crate) use error::{EINVAL, EIO, errno_text, of_panic, report_failure, within};
pub use file::FileSource;
pub use foreread_os::secrets::shown_message as redacted_message;
pub use mem::Mem;
pub use name::SourceName;
#[cfg(feature = "nbd")]
pub use nbd::Nbd;
#[cfg(feature = "object")]
pub use object::Object;
pub use queue::{CompletedTransfer, Io, Queue, Transfer};
pub(crate) use queue::{PieceCopier, piece_of, serial_of, tag};
#[cfg(feature = "rbd")]
pub use rbd::{
    RBD_CONNECT_SECONDS, RBD_LOOK_EVERY, RBD_SILENCE_SECONDS, Rbd, RbdRead, RbdSettings,
};

/// Storage to read from: a file, an object, an image, or bytes that a program provides.
///
/// Four methods are required: they return the size of the source, its bytes at an offset, its name, and its kind of storage. The engine
/// calls these methods from several threads at once, and each call may block, so a source needs no threads. A source needs no cache
/// either, because the engine caches its bytes. A source that a program implements is read ahead like any other, if it is opened with
/// [`Reader::open`](crate::Reader::open) or [`Engine::open`](crate::Engine::open).
///
/// Implement `AsyncSource` for an async client; `from_async` (feature `tokio`) turns it into a source.
///
/// **Defaults.** The other methods have default bodies for bytes that never change: [`Source::check`] and [`Source::accept`] return
/// the size, and methods such as [`Source::answered_in`] return `None` (not known). If the bytes of a source change, every read and
/// `check` must return [`SourceError::Changed`] until `accept` is called; `accept` switches to the version that is current at that
/// time.
///
/// **Drop.** A dropped reader discards fetches that have not started. When the last reader and the last clone of the engine are dropped,
/// the drop waits for running fetches, so a call that hangs delays the drop. If calls may take long, the source should set a time limit
/// on them, or should be a [`StreamingSource`], whose reads can be cancelled ([`Sink::is_cancelled`]). For an `AsyncSource`, the drop
/// cancels its tasks instead of waiting.
///
/// ```
/// use foreread::source::{Defaults, Source, SourceError};
/// use foreread::{Options, Reader};
/// use std::io::IoSliceMut;
/// use std::sync::Arc;
///
/// // A megabyte in which each byte is the lowest byte of its offset.
/// struct Counting;
///
/// impl Source for Counting {
///     fn size(&self) -> u64 {
///         1 << 20
///     }
///
///     fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
///         let bytes = bufs.iter_mut().flat_map(|buf| buf.iter_mut());
///         // A real source would call its client here: one request for all buffers.
///         Ok((offset..self.size()).zip(bytes).map(|(at, byte)| *byte = at as u8).count())
///     }
///
///     fn describe(&self) -> String {
///         "counting".to_string()
///     }
///
///     fn defaults(&self) -> Defaults {
///         // Remote storage: a request takes long, and many requests may be in flight.
///         Defaults::OBJECT
///     }
/// }
///
/// let reader = Reader::open(Arc::new(Counting) as Arc<dyn Source>, Options::default())?;
/// let mut buf = [0; 3];
/// assert_eq!(reader.read_at(&mut buf, 260)?, 3);
/// assert_eq!(buf, [4, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source: Send + Sync {
    /// Size of the current version in bytes. It may grow from call to call if the source is sure that it was only appended to. A
    /// source that shrinks has changed; so has a source that grew and whose earlier bytes differ.
    fn size(&self) -> u64;

    /// Fills the buffers in their order with the bytes from `offset`, completely unless the end comes first. Blocks, and continues
    /// after EINTR. Returns the number of bytes read. Short reads are allowed: the engine requests the rest again, and two results
    /// of 0 in a row before the end fail the read. Returning more than the buffers hold is an error of the source.
    ///
    /// Called on a worker thread, or on the thread of the caller that needs the bytes. That thread may be inside the poll of a task,
    /// so this must not enter a runtime (`block_on`): it would panic or never end.
    ///
    /// Any offset and any buffers are allowed; those that fit [`Source::alignment`] are fast. The source may advance the slices as
    /// it fills them; only the memory that they refer to counts.
    ///
    /// # Errors
    /// See [`SourceError`]. The content of the buffers is then unspecified.
    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;

    /// A description for messages: `file:/data/x, direct`.
    fn describe(&self) -> String;

    /// The defaults for its kind of storage. Every source must give them: remote storage that is read with the defaults of a local
    /// disk is many times slower than it could be.
    fn defaults(&self) -> Defaults;

    /// The time to the first byte when the source was opened, if opening it was a request like a read. The policy `auto` starts with
    /// this value; otherwise it measures its first reads.
    fn answered_in(&self) -> Option<Duration> {
        None
    }

    /// An exact identifier of its bytes, which no other version and no other source shares: the key of the disk cache. `None` if
    /// only weaker identification, such as a date, is available. Sends no request.
    fn exact_version(&self) -> Option<ExactVersion> {
        None
    }

    /// Modification time of the current version, in nanoseconds since 1970 (UTC), if known. A mount of one source shows it.
    fn modified_ns(&self) -> Option<i128> {
        None
    }

    /// The alignment of offsets, lengths and addresses for reads without a copy.
    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }

    /// Asks the storage whether the version is still the same, and how large it is now. Called when a read reaches the end as known
    /// so far, and must be cheap enough for that.
    ///
    /// # Errors
    /// [`SourceError::Changed`], or `Io` if the storage cannot be asked.
    fn check(&self) -> Result<u64, SourceError> {
        Ok(self.size())
    }

    /// Switches to the storage's current version and returns its size. Called once after each change, after everything of the old
    /// version has been dropped.
    fn accept(&self) -> u64 {
        self.size()
    }

    /// Declares that the source is only appended to, never overwritten. A source that would verify this by comparing bytes then
    /// stops doing so.
    fn allow_appends(&self) {}

    /// Streaming reads, if supported. Called once when the source is opened, and for each fetch.
    fn streaming(&self) -> Option<&dyn StreamingSource> {
        None
    }

    /// The interface for writing, if the source can be written.
    fn writing(&self) -> Option<&dyn WritableSource> {
        None
    }

    /// The interface for its holes, if the source knows them without reading.
    fn holes(&self) -> Option<&dyn Holes> {
        None
    }

    /// A local file with exactly these bytes, which stays unchanged while this is held, for FUSE passthrough. This call may start
    /// the search for the file and return before the search ends. `None` if there is no such file, or not yet.
    fn whole_file(&self) -> Option<WholeFile> {
        None
    }

    /// An asynchronous queue for this source, used by one caller: no other thread reaps its transfers. It reads the same version as
    /// [`Source::read_at`]. `None` if not supported; then threads read the source.
    fn queue(&self) -> Option<Arc<dyn Queue>> {
        None
    }
}

/// An open file with all bytes of a source; see [`Source::whole_file`].
pub type WholeFile = Arc<dyn AsFd + Send + Sync>;

/// A source whose reads return their bytes piece by piece, as the pieces of an HTTP body arrive.
pub trait StreamingSource: Send + Sync {
    /// Reads `len` bytes from `offset`, buffer by buffer: it fills the buffer of [`Sink::room`] and reports it, until there is no
    /// more room or the end is reached. A read of the first bytes can complete before the last bytes have arrived. Returns the
    /// number of bytes filled.
    ///
    /// # Errors
    /// See [`Source::read_at`]. Buffers that were filled before the error are kept, so they must belong to the accepted version.
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError>;
}

/// Identifies a version of a source: the value is the same in all processes, and after a restart of a process. The display name is
/// ignored when two of these values are compared.
#[derive(Clone, Debug)]
pub struct ExactVersion {
    /// Its location without secrets: server, bucket and key.
    pub source: String,
    /// The version: its ETag or generation, and its size.
    pub version: String,
    /// The name to display.
    pub shown: String,
}

impl PartialEq for ExactVersion {
    fn eq(&self, other: &ExactVersion) -> bool {
        (&self.source, &self.version) == (&other.source, &other.version)
    }
}

impl Eq for ExactVersion {}

/// A source that knows its holes: the ranges that were never written.
pub trait Holes: Send + Sync {
    /// The extent at `offset`, which must be below the size. Blocks.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn extent_at(&self, offset: u64) -> Result<Extent, SourceError>;
}

/// A range of a source that lies either completely inside a hole or completely outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, at least 1.
    pub len: u64,
    /// Whether this is a hole: it uses no space in the storage, and reads as zeroes.
    pub is_hole: bool,
}

/// A source that supports writes.
pub trait WritableSource: Send + Sync {
    /// Prepares it for writes. Called before the first write.
    ///
    /// # Errors
    /// The source cannot be written, or not by this user.
    fn allow_writes(&self) -> Result<(), SourceError>;

    /// Takes an advisory lock against other writers. The lock is held until the source is dropped. Called after
    /// [`WritableSource::allow_writes`].
    ///
    /// # Errors
    /// Another program has locked it.
    fn lock_writes(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Writes all of `bytes` from `offset` on, within the size. Blocks. The write belongs to the current version, and every read
    /// that starts after it has returned sees the bytes.
    ///
    /// # Errors
    /// See [`SourceError`]. The content of the range is then unspecified.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError>;

    /// Returns after all earlier writes are safe from a loss of power.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn flush(&self) -> Result<(), SourceError>;
}

/// Returns the interface for writing to a source.
///
/// # Errors
/// Returns an error if the source does not support writes.
pub fn writing_of(source: &(impl Source + ?Sized)) -> Result<&dyn WritableSource, SourceError> {
    source.writing().ok_or_else(|| no_writes(source.describe()))
}

/// Reads `wanted` bytes from `offset` on, at most what the buffers hold. After a short read the source is asked for the rest; if it
/// makes no progress twice in a row, the read ends there.
pub(crate) fn read_on(
    source: &dyn Source,
    mut bufs: &mut [IoSliceMut<'_>],
    offset: u64,
    wanted: u64,
) -> Result<usize, SourceError> {
    // Each call gets new slices, because a source may advance its slices as it fills them.
    let read = |bufs: &mut [IoSliceMut<'_>], at: u64| {
        let mut own: Vec<IoSliceMut<'_>> =
            bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
        let room = own.iter().map(|buf| buf.len()).sum();
        within(source.read_at(&mut own, at)?, room, "read_at")
    };
    let mut done = read(bufs, offset)?;
    let (mut last, mut idle) = (done, u32::from(done == 0));
    while (done as u64) < wanted && idle < 2 {
        IoSliceMut::advance_slices(&mut bufs, last);
        last = read(bufs, offset + done as u64)?;
        done += last;
        idle = if last == 0 { idle + 1 } else { 0 };
    }
    Ok(done)
}

fn no_writes(what: String) -> SourceError {
    SourceError::io(
        rustix::io::Errno::ROFS.raw_os_error(),
        format!("{what} cannot be written"),
    )
}

/// The buffers of a streaming read.
pub trait Sink {
    /// The buffer to fill next, or `None` if all are full.
    fn room(&mut self) -> Option<&mut [u8]>;

    /// Declares that the bytes were fetched earlier, so their latency says nothing about the storage. Called before the first bytes,
    /// or not at all.
    fn at_hand(&mut self) {}

    /// Whether a read waits for these bytes now, as far as is known; otherwise they are readahead.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Whether the bytes are no longer needed; the read may then end early with an error. May be called often.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Reports that the buffer of [`Sink::room`] has `bytes` bytes filled: all of it, unless the end was reached.
    fn filled(&mut self, bytes: usize);
}

/// A shared source is also a source, so its first owner may keep a reference to it.
macro_rules! forwarded {
    ($($name:ident($($arg:ident: $of:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self, $($arg: $of),*) $(-> $result)? {
            (**self).$name($($arg),*)
        }
    )*};
}

impl<S: Source + ?Sized> Source for Arc<S> {
    forwarded! {
        size() -> u64;
        read_at(bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;
        streaming() -> Option<&dyn StreamingSource>;
        describe() -> String;
        answered_in() -> Option<Duration>;
        whole_file() -> Option<WholeFile>;
        exact_version() -> Option<ExactVersion>;
        modified_ns() -> Option<i128>;
        alignment() -> Alignment;
        check() -> Result<u64, SourceError>;
        accept() -> u64;
        allow_appends();
        writing() -> Option<&dyn WritableSource>;
        holes() -> Option<&dyn Holes>;
        defaults() -> Defaults;
        queue() -> Option<Arc<dyn Queue>>;
    }
}

/// The alignment that direct I/O requires. Each value is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of offsets and lengths.
    pub offset: u32,
    /// Alignment of buffer addresses.
    pub memory: u32,
}

impl Alignment {
    /// No alignment is required.
    pub const NONE: Alignment = Alignment {
        offset: 1,
        memory: 1,
    };
}

/// The part of a name after its scheme.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameForm {
    /// A path, or a pool and image.
    Path,
    /// A host, optionally with a user before it.
    Host,
    /// A host, a path and a query.
    Url,
    /// A bucket and a key; the key is any text.
    Bucket,
    /// A repository and a path within it.
    Repository,
}

/// A kind of source: scheme, notation, and the function that opens it.
struct Kind {
    /// The text before the first colon.
    schemes: &'static [&'static str],
    form: NameForm,
    written: &'static str,
    open: fn(&SourceName) -> Result<Arc<dyn Source>, SourceOpenError>,
}

/// All kinds; for a kind that is not built in, the error names the needed feature.
const KINDS: &[Kind] = &[
    Kind {
        schemes: &["file"],
        form: NameForm::Path,
        written: "file:PATH",
        open: open_file,
    },
    Kind {
        schemes: &["nbd", "nbd+unix"],
        form: NameForm::Host,
        written: "nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH",
        #[cfg(feature = "nbd")]
        open: |name| Nbd::open(name).map(|nbd| Arc::new(nbd) as Arc<dyn Source>),
        #[cfg(not(feature = "nbd"))]
        open: |name| Err(not_built(name, "nbd")),
    },
    Kind {
        schemes: &["nbds", "nbds+unix"],
        form: NameForm::Host,
        written: "nbds://HOST[:PORT]/EXPORT, nbds+unix:///EXPORT?socket=PATH",
        #[cfg(feature = "nbd")]
        open: |name| Nbd::open(name).map(|nbd| Arc::new(nbd) as Arc<dyn Source>),
        #[cfg(not(feature = "nbd"))]
        open: |name| Err(not_built(name, "tls")),
    },
    Kind {
        schemes: &["s3"],
        form: NameForm::Bucket,
        written: "s3://BUCKET/KEY",
        open: open_object,
    },
    Kind {
        schemes: &["gs", "gcs"],
        form: NameForm::Bucket,
        written: "gs://BUCKET/KEY",
        open: open_object,
    },
    Kind {
        schemes: &["az", "azure", "abfs", "abfss"],
        form: NameForm::Bucket,
        written: "az://CONTAINER/KEY",
        open: open_object,
    },
    Kind {
        schemes: &["hf"],
        form: NameForm::Repository,
        written: "hf://USER/REPO/PATH",
        open: open_object,
    },
    Kind {
        schemes: &["http", "https"],
        form: NameForm::Url,
        written: "http[s]://HOST/PATH",
        open: open_object,
    },
    Kind {
        schemes: &["rbd"],
        form: NameForm::Path,
        written: "rbd:POOL/[NAMESPACE/]IMAGE[@SNAP][?conf=PATH&id=NAME]",
        #[cfg(feature = "rbd")]
        open: |name| Rbd::open(name).map(|rbd| Arc::new(rbd) as Arc<dyn Source>),
        #[cfg(not(feature = "rbd"))]
        open: |name| Err(not_built(name, "rbd")),
    },
];

/// The name formats of the sources that [`open`] supports.
#[must_use]
pub fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.written).collect()
}

/// Returns true if this text names a source other than a file: it has a known URL scheme before its first colon.
#[must_use]
pub fn is_remote(name: &SourceName) -> bool {
    remote(name).is_some()
}

/// Whether this names an object or a prefix.
#[cfg(feature = "disk-cache")]
pub(crate) fn is_object(name: &SourceName) -> bool {
    is_of_store(name) || form_of(name.scheme()) == Some(NameForm::Url)
}

/// Whether this names something in an object store, where keys may be any text. The URL of an object does not count.
fn is_of_store(name: &SourceName) -> bool {
    let form = form_of(name.scheme());
    matches!(form, Some(NameForm::Bucket | NameForm::Repository))
}

fn form_of(scheme: &str) -> Option<NameForm> {
    kind_of(scheme).map(|kind| kind.form)
}

fn kind_of(scheme: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.schemes.contains(&scheme))
}

/// Whether both schemes belong to the same kind of source.
#[cfg(feature = "object")]
fn is_same_kind(one: &str, other: &str) -> bool {
    kind_of(one).is_some_and(|kind| kind.schemes.contains(&other))
}

fn remote(name: &SourceName) -> Option<&'static Kind> {
    kind_of(name.scheme()).filter(|kind| !kind.schemes.contains(&"file"))
}

/// Opens a source by its name; [`kinds`] lists the name formats. A path without a scheme names a file.
///
/// # Errors
/// Returns an error if the source does not exist, is of an unsupported kind, or may not be read.
pub fn open(name: impl Into<SourceName>) -> Result<Arc<dyn Source>, SourceOpenError> {
    open_by(&name.into(), Io::default())
}

/// Like [`open`], with `io` for how a file is read.
pub(crate) fn open_by(name: &SourceName, io: Io) -> Result<Arc<dyn Source>, SourceOpenError> {
    remote(name).map_or_else(|| open_file_by(name, io), |kind| (kind.open)(name))
}

/// Opens a source as a tree: a folder, or a prefix of a store (`s3://BUCKET/PREFIX/`). Any other source is shown as a folder with
/// one file in it.
///
/// # Errors
/// Returns an error if the source does not exist, is of an unsupported kind, or may not be read.
pub fn open_tree(name: impl Into<SourceName>) -> Result<Arc<dyn tree::Tree>, SourceOpenError> {
    let name = name.into();
    #[cfg(feature = "object")]
    if object::names_a_prefix(&name) {
        return Ok(Arc::new(object::Prefix::open(name)?));
    }
    let path = name.path();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(Arc::new(tree::Folder::open(path)?)),
        Ok(meta) if meta.is_file() => Ok(Arc::new(tree::Folder::only(path)?)),
        _ => match tree::Single::open(&name) {
            #[cfg(feature = "object")]
            Err(error)
                if is_of_store(&name) && error.errno == rustix::io::Errno::ISDIR.raw_os_error() =>
            {
                let folder = name.unredacted_text().map(|name| format!("{name}/"));
                let folder = folder.ok_or(error)?;
                Ok(Arc::new(object::Prefix::open(folder.as_str())?))
            }
            opened => Ok(Arc::new(opened.map_err(|error| with_slash(&name, error))?)),
        },
    }
}

/// Codes of S3, Google and Azure for a bucket or container that does not exist.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// Adds a remedy to the error if a prefix was written like an object: other mount programs accept a prefix without the slash.
fn with_slash(name: &SourceName, error: SourceOpenError) -> SourceOpenError {
    let missing = [ENOENT, rustix::io::Errno::ACCESS.raw_os_error()].contains(&error.errno);
    let is_bucket_missing = NO_BUCKET.iter().any(|code| error.why.contains(code));
    if !is_of_store(name) || !missing || is_bucket_missing {
        return error;
    }
    let remedy = format!(
        "to mount all keys below this prefix, write {name}/ with a / at the end; to read a single object, {}",
        error.remedy
    );
    SourceOpenError { remedy, ..error }
}

#[cfg(feature = "object")]
fn open_object(name: &SourceName) -> Result<Arc<dyn Source>, SourceOpenError> {
    Object::open(name).map(|object| Arc::new(object) as Arc<dyn Source>)
}

#[cfg(not(feature = "object"))]
fn open_object(name: &SourceName) -> Result<Arc<dyn Source>, SourceOpenError> {
    Err(not_built(name, "object"))
}

fn open_file(name: &SourceName) -> Result<Arc<dyn Source>, SourceOpenError> {
    open_file_by(name, Io::default())
}

fn open_file_by(name: &SourceName, io: Io) -> Result<Arc<dyn Source>, SourceOpenError> {
    FileSource::open_by(name.path(), io)
        .map(|file| Arc::new(file) as Arc<dyn Source>)
        .map_err(|mut error| {
            if error.errno == ENOENT && !matches!(name.scheme(), "" | "file") {
                error = unknown_kind(name, error);
            }
            error.what = name.clone();
            error
        })
}

/// A name with a colon that is neither a file nor of a known kind: `s4://bucket/key`.
fn unknown_kind(name: &SourceName, error: SourceOpenError) -> SourceOpenError {
    let known = format!("the supported sources are {}", kinds().join(", "));
    if name.is_url() {
        let known = match name.scheme() {
            // Hadoop uses these schemes.
            "s3a" | "s3n" => format!("write s3://; {known}"),
            _ => known,
        };
        return SourceOpenError {
            why: format!("the scheme {}:// is unknown", name.scheme()),
            remedy: known,
            errno: rustix::io::Errno::NOTSUP.raw_os_error(),
            ..error
        };
    }
    SourceOpenError {
        remedy: format!("check the path; {known}"),
        ..error
    }
}

/// The name as text.
///
/// # Errors
/// The name is not UTF-8.
#[cfg(any(feature = "nbd", feature = "object", feature = "rbd"))]
fn text(name: &SourceName) -> Result<&str, SourceOpenError> {
    name.unredacted_text().ok_or_else(|| {
        SourceOpenError::new(
            name,
            "it is not UTF-8",
            "write other bytes as a percent sign and two hexadecimal digits (%FF)",
            rustix::io::Errno::INVAL.raw_os_error(),
        )
    })
}

/// The error for a kind of source that this build does not include.
#[allow(dead_code, reason = "a build with everything has no use for it")]
fn not_built(name: &SourceName, feature: &str) -> SourceOpenError {
    SourceOpenError::new(
        name,
        "foreread was built without support for this type of source",
        format!("build foreread with --features {feature}"),
        rustix::io::Errno::NOTSUP.raw_os_error(),
    )
}

const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();

impl fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other mount programs accept a prefix without its slash, so the message says how to write the prefix for each store.
    #[test]
    fn a_prefix_without_its_slash_is_named_with_it() {
        let remedy = |text: &str, errno| {
            let error = SourceOpenError::new(text, "404", "check it", errno);
            with_slash(&text.into(), error).remedy
        };
        for name in [
            "s3://bucket/dir",
            "gs://bucket/dir",
            "az://box/dir",
            "abfss://box@acc.dfs.core.windows.net/dir",
            "hf://u/r/dir",
        ] {
            let wanted =
                format!("write {name}/ with a / at the end; to read a single object, check it");
            assert!(remedy(name, ENOENT).contains(&wanted), "{name}");
            assert_eq!(remedy(name, EIO), "check it");
        }
        assert_eq!(remedy("https://host/dir", ENOENT), "check it");
        let no_bucket = SourceOpenError::new("s3://b/dir", "404 NoSuchBucket", "check b", ENOENT);
        assert_eq!(
            with_slash(&"s3://b/dir".into(), no_bucket).remedy,
            "check b"
        );
    }
}
