//! Ceph images as a source: `rbd:POOL/[NAMESPACE/]IMAGE[@SNAP][?conf=PATH&id=NAME]`.
//!
//! This source uses the installed librbd, which is loaded when the first image is opened. librbd's own cache and readahead are
//! switched off, so that only one layer caches and reads ahead. An image is opened read-only. An image that is opened read-only
//! has no Ceph watch and gets no notifications, so every few seconds a thread checks whether the image has changed. The source
//! never writes, never locks an image, and never waits for a cluster without a time limit.
//!
//! ```text
//!   read_at ──► a piece of at most 4 MiB ──────────────► librbd ──► bytes
//!   check, and a thread every 5 s ──► reopen: same id, same snapshot, size?
//!        as large: go on │ larger: use the new one │ smaller, different, missing: Changed, until accepted
//! ```

mod address;
mod client;

use super::{
    Defaults, EIO, ENOENT, PieceCopier, Source, SourceError, SourceName, SourceOpenError,
    errno_text,
};
use address::Address;
use client::{Api, Image, LibraryError, Pool, RbdError, Step, Ticket};
use std::io::IoSliceMut;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

/// Timeout in seconds for opening an image if the cluster does not answer.
pub const RBD_CONNECT_SECONDS: u64 = 10;
/// Seconds after which a read without a reply fails.
pub const RBD_SILENCE_SECONDS: u64 = 30;
/// Interval of checks for changes of an image.
pub const RBD_LOOK_EVERY: Duration = Duration::from_secs(5);
/// Maximum bytes of one request: librbd splits requests at object boundaries anyway, and objects have 4 MiB by default.
const MAX_REQUEST: u64 = 4 << 20;
/// How long a read waits for librbd: librbd's own timeout for the cluster, and half as much again.
const SILENCE_TIMEOUT: Duration =
    Duration::from_secs(RBD_SILENCE_SECONDS + RBD_SILENCE_SECONDS / 2);
const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();

/// The settings of one librbd client.
#[derive(Clone, Debug)]
pub struct RbdSettings {
    /// Ceph options, applied in this order; they override Ceph's configuration.
    pub options: Vec<(String, String)>,
    /// How often the image is checked. `None`: only when a check is requested.
    pub look_every: Option<Duration>,
    /// How long a read waits for librbd, whose own timeout (`rados_osd_op_timeout`) should be shorter.
    pub patience: Duration,
}

impl RbdSettings {
    /// Uses librbd as it is configured, including its cache and readahead, with a time limit for every wait.
    #[must_use]
    pub fn as_configured() -> RbdSettings {
        let settings = RbdSettings {
            options: Vec::new(),
            look_every: None,
            patience: SILENCE_TIMEOUT,
        };
        settings
            .with("client_mount_timeout", RBD_CONNECT_SECONDS)
            .with("rados_mon_op_timeout", RBD_CONNECT_SECONDS)
            .with("rados_osd_op_timeout", RBD_SILENCE_SECONDS)
            .with("log_to_stderr", false)
            .with("err_to_stderr", false)
    }

    /// Adds a Ceph option. If an option is set several times, the last value is used.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> RbdSettings {
        self.options.push((key.to_string(), value.to_string()));
        self
    }

    fn option(&self, key: &str) -> &str {
        self.options
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map_or("", |(_, value)| value)
    }
}

/// The settings of a source: without librbd's cache and readahead, and checked every [`RBD_LOOK_EVERY`].
impl Default for RbdSettings {
    fn default() -> RbdSettings {
        let plain = RbdSettings::as_configured()
            .with("rbd_cache", false)
            .with("rbd_readahead_max_bytes", 0);
        RbdSettings {
            look_every: Some(RBD_LOOK_EVERY),
            ..plain
        }
    }
}

/// Ceph images as a source: `rbd:POOL/[NAMESPACE/]IMAGE[@SNAP][?conf=PATH&id=NAME]`.
pub struct Rbd {
    inner: Arc<Inner>,
    /// Dropping it ends the thread that checks the image.
    _alive: Option<Sender<()>>,
}

/// The part shared with the thread that checks the image.
struct Inner {
    name: SourceName,
    address: Address,
    pool: Arc<Pool>,
    patience: Duration,
    version: String,
    now: RwLock<ServingImage>,
}

struct ServingImage {
    image: Arc<Image>,
    /// The version has changed, and the change is not accepted yet.
    changed: Option<String>,
}

impl Rbd {
    /// Opens an image for an engine with its own cache and readahead.
    ///
    /// # Errors
    /// Returns an error if the name is invalid, if librbd is missing or too old, if the cluster does not reply, or if it has no
    /// such image.
    pub fn open(name: impl Into<SourceName>) -> Result<Rbd, SourceOpenError> {
        Rbd::open_with(name, &RbdSettings::default())
    }

    /// Opens an image with these settings.
    ///
    /// # Errors
    /// Returns an error in the cases of [`Rbd::open`], and if Ceph does not know an option.
    pub fn open_with(
        name: impl Into<SourceName>,
        settings: &RbdSettings,
    ) -> Result<Rbd, SourceOpenError> {
        let name = name.into();
        let address = address::parse(&name)?;
        let api = Api::load().map_err(|missing| not_here(&name, missing))?;
        let refused = |refused| {
            cannot_open(
                &name,
                &address,
                &refused,
                settings.option("client_mount_timeout"),
            )
        };
        let pool = Arc::new(Pool::open(api, &address, &settings.options).map_err(refused)?);
        let image = Arc::new(Image::open(&pool, &address).map_err(refused)?);
        let now = RwLock::new(ServingImage {
            image,
            changed: None,
        });
        let (version, patience) = (api.version(), settings.patience);
        let inner = Arc::new(Inner {
            name,
            address,
            pool,
            patience,
            version,
            now,
        });
        let alive = settings.look_every.map(|every| inner.look_every(every));
        Ok(Rbd {
            inner,
            _alive: alive,
        })
    }

    /// Passes one read to librbd exactly as requested, even if the read is empty or extends past the end of the image. Use this function
    /// to test the behaviour of librbd.
    ///
    /// # Errors
    /// Returns an error if librbd refuses the read.
    pub fn begin(&self, offset: u64, len: usize) -> Result<RbdRead, SourceError> {
        let image = self.inner.image()?;
        let ticket =
            client::begin(&image, offset, len).map_err(|errno| self.inner.failed(errno))?;
        Ok(RbdRead {
            ticket,
            _image: image,
            inner: Arc::clone(&self.inner),
        })
    }
}

/// A read in flight. If this value is dropped, the read continues, and its bytes are discarded.
pub struct RbdRead {
    ticket: Ticket,
    _image: Arc<Image>,
    inner: Arc<Inner>,
}

impl RbdRead {
    /// Waits until the read has ended, discards its bytes, and returns their number.
    ///
    /// # Errors
    /// Returns an error if the read has failed, or if librbd has not replied in time.
    pub fn wait(self) -> Result<usize, SourceError> {
        let read = self.ticket.wait(self.inner.patience, |_| ());
        read.map_err(|errno| self.inner.failed(errno))
    }
}

impl Inner {
    fn now(&self) -> RwLockWriteGuard<'_, ServingImage> {
        self.now.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image of the version that was accepted last.
    fn image(&self) -> Result<Arc<Image>, SourceError> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        match &now.changed {
            Some(what) => Err(SourceError::Changed { what: what.clone() }),
            None => Ok(Arc::clone(&now.image)),
        }
    }

    fn size(&self) -> u64 {
        self.now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .image
            .identity
            .size
    }

    fn failed(&self, errno: i32) -> SourceError {
        let what = match errno {
            ETIMEDOUT => format!("{}: no answer from the cluster", self.name),
            _ => self.name.to_string(),
        };
        SourceError::io(errno, what)
    }

    /// Checks whether the image is still the same version. Returns its size.
    fn look(&self) -> Result<u64, SourceError> {
        let known = self.image()?;
        let fresh = match Image::open(&self.pool, &self.address) {
            Ok(fresh) => Arc::new(fresh),
            Err(RbdError { errno: ENOENT, .. }) => {
                return Err(self.change(
                    &known,
                    "the image or the snapshot no longer exists".to_string(),
                ));
            }
            Err(refused) => return Err(self.failed(refused.errno)),
        };
        let (was, is) = (&known.identity, &fresh.identity);
        if (&was.id, was.snap) != (&is.id, is.snap) {
            return Err(self.change(
                &known,
                "the image was replaced by another image with this name".to_string(),
            ));
        }
        if is.size < was.size {
            return Err(self.change(
                &known,
                format!("it has {} bytes, but had {}", is.size, was.size),
            ));
        }
        if is.size > was.size {
            let size = is.size;
            let mut now = self.now();
            // Another thread may have been faster. No image is closed under the lock.
            let old = (now.changed.is_none() && size > now.image.identity.size)
                .then(|| std::mem::replace(&mut now.image, Arc::clone(&fresh)));
            drop(now);
            drop(old);
            return Ok(size);
        }
        Ok(was.size)
    }

    /// From now on every read reports the change, unless `known` has been replaced meanwhile.
    fn change(&self, known: &Arc<Image>, what: String) -> SourceError {
        let what = format!("{}: {what}", self.name);
        let mut now = self.now();
        if Arc::ptr_eq(&now.image, known) {
            now.changed.get_or_insert_with(|| what.clone());
        }
        SourceError::Changed { what }
    }

    /// Checks the image periodically, until the returned value is dropped.
    fn look_every(self: &Arc<Inner>, every: Duration) -> Sender<()> {
        let (alive, ended) = channel::<()>();
        let inner = Arc::downgrade(self);
        // If the thread cannot start, the image is checked only when a read reaches its end.
        let _ = std::thread::Builder::new()
            .name("foreread-rbd".to_string())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
                    let Some(inner) = inner.upgrade() else { return };
                    // The reads report a cluster that does not reply.
                    let _ = inner.look();
                }
            });
        alive
    }

    /// One request: reads `len` bytes from `offset` on into `bufs`, from byte `skip` of the buffers on.
    fn request(
        &self,
        image: &Image,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        offset: u64,
        len: usize,
    ) -> Result<(), SourceError> {
        let ticket = client::begin(image, offset, len).map_err(|errno| self.failed(errno))?;
        let read = ticket.wait(self.patience, |bytes| {
            PieceCopier::new([bytes]).fill(bufs, skip);
        });
        match read.map_err(|errno| self.failed(errno))? {
            got if got == len => Ok(()),
            got => Err(SourceError::Short {
                at: offset + got as u64,
                size: image.identity.size,
            }),
        }
    }
}

impl Source for Rbd {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let image = self.inner.image()?;
        let left = image.identity.size.saturating_sub(offset);
        let wanted = left.min(bufs.iter().map(|b| b.len() as u64).sum());
        let mut done = 0;
        while done < wanted {
            let len = (wanted - done).min(MAX_REQUEST);
            self.inner
                .request(&image, bufs, done as usize, offset + done, len as usize)?;
            done += len;
        }
        // A change that became known during the read counts, too.
        self.inner.image().map(|_| wanted as usize)
    }

    fn defaults(&self) -> Defaults {
        Defaults::RBD
    }

    fn describe(&self) -> String {
        format!("{}, librbd {}", self.inner.name, self.inner.version)
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.inner.look()
    }

    fn accept(&self) -> u64 {
        // If it cannot be opened, every read continues to report the change.
        if let Ok(fresh) = Image::open(&self.inner.pool, &self.inner.address) {
            let fresh = ServingImage {
                image: Arc::new(fresh),
                changed: None,
            };
            let old = std::mem::replace(&mut *self.inner.now(), fresh);
            drop(old);
        }
        self.inner.size()
    }
}

fn not_here(name: &SourceName, missing: LibraryError) -> SourceOpenError {
    let (why, remedy) = match missing {
        LibraryError::Library(file, said) => {
            let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
            (
                format!("{file} cannot be loaded ({said})"),
                "install librbd1 (Debian: apt-get install librbd1)",
            )
        }
        LibraryError::Function(file, function) => (
            format!(
                "the library {file} lacks the function {function}: its version is too old or too new"
            ),
            "install librbd1 of Ceph 16 or later (Debian: apt-get install librbd1)",
        ),
    };
    let errno = rustix::io::Errno::NOTSUP.raw_os_error();
    SourceOpenError::new(name, why, remedy, errno)
}

fn cannot_open(
    name: &SourceName,
    address: &Address,
    refused: &RbdError,
    seconds: &str,
) -> SourceOpenError {
    let RbdError { errno, step } = *refused;
    let from_env = || {
        std::env::var("CEPH_CONF")
            .ok()
            .filter(|path| !path.is_empty())
    };
    let conf = address
        .conf
        .clone()
        .or_else(from_env)
        .unwrap_or_else(|| "/etc/ceph/ceph.conf".to_string());
    let pool = &address.pool;
    let system = errno_text(errno);
    let (why, remedy) = match (step, errno) {
        (Step::ReadConf, _) => (
            format!("the configuration {conf} cannot be read ({system})"),
            "set the path of the configuration with ?conf=PATH or CEPH_CONF".to_string(),
        ),
        (Step::Connect, ETIMEDOUT) => (
            format!("no answer from the cluster of {conf} within {seconds} s"),
            "check that its monitors run and can be reached (ceph -s)".to_string(),
        ),
        (Step::Connect, _) => (
            format!("the cluster of {conf} cannot be reached ({system})"),
            "check the monitors, the user and the keyring that the Ceph configuration names"
                .to_string(),
        ),
        (Step::Pool, ENOENT) => (
            "there is no pool with this name".to_string(),
            "list the pools with 'ceph osd pool ls'".to_string(),
        ),
        (Step::Image, ENOENT) => (
            "there is no image or snapshot with this name".to_string(),
            format!("list the images with 'rbd ls {pool}', and the snapshots with 'rbd snap ls'"),
        ),
        (Step::Create | Step::Option, _) => (
            format!("librados refuses its configuration ({system})"),
            "check the user (id=) and the options in the Ceph configuration".to_string(),
        ),
        (_, ETIMEDOUT) => (
            "the cluster does not answer".to_string(),
            "check that it is healthy (ceph -s)".to_string(),
        ),
        _ => (
            system,
            "check the name of the image and the user's capabilities (ceph auth get)".to_string(),
        ),
    };
    let errno = if errno == 0 { EIO } else { errno };
    SourceOpenError::new(name, why, remedy, errno)
}
