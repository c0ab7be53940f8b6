//! A mount: a read-only tree of files, read through one engine.
//!
//! Every open handle has its own readahead state; all files share one cache. The mount does not write and does not follow symbolic links.
//! An inode number always refers to one version of a file. Other users have access only if the settings allow it.
//!
//! | file | holds |
//! |---|---|
//! | `view/names.rs` | cached answers of the store about names |
//! | `nodes.rs` | inode numbers known to the kernel |
//! | `view.rs` | the content of a mount, without the kernel |
//! | `handles.rs` | open files and folders |
//! | `passed.rs` | files with FUSE passthrough |
//! | `control.rs` | the caller's order of files, over a socket |
//! | `kernel.rs` | the interface to the crate `fuser`: which thread waits, and whether the caller is still there |
//!
//! ```text
//!   new ──► mounted ──run──► serving ──FuseStop──► unmounted ──► run returns
//!                                        └─ busy: detached, serves open files until they are closed
//! ```

mod control;
mod handles;
mod kernel;
mod nodes;
mod passed;
mod view;

use crate::Engine;
use crate::front::observe::Observer;
use crate::front::{FrontError, FrontErrorKind};
use crate::source::errno_text;
use crate::source::tree::Tree;
use crate::sync::lock;
use foreread_os::unmount;
use kernel::{KernelMount, Unmounter};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use view::View;

pub use control::{Control, send};
pub use kernel::MAX_EXTRA;
pub use view::{FileOrder, MAX_HANDLES, MAX_IDLE, MAX_PLANNED, MountCounts, Planner};

/// How long a listing of an object store is trusted. NFS trusts attributes of files for at least 3 s (acregmin, nfs(5)) and of folders
/// for 30 s. 5 s is long enough for a program that lists files, queries their attributes and then opens them.
pub const REMOTE_ATTR_TTL: Duration = Duration::from_secs(5);
/// How long the kernel trusts attributes of a local folder or a single source, which are cheap to query.
pub const LOCAL_ATTR_TTL: Duration = Duration::from_secs(1);

/// Settings of a mount.
#[derive(Clone, Debug)]
pub struct FuseSettings {
    /// Other users may access the mount, subject to file permissions. Default: only the owner of the process.
    pub allow_other: bool,
    /// The kernel's own readahead for the mount. Default 128 KiB, which is also the maximum in most kernels.
    pub kernel_readahead_bytes: u32,
    /// Bypasses the kernel's page cache: each read of a program becomes a request. Default no.
    pub direct: bool,
    /// How long the kernel and the mount trust attributes, and so how late a changed file may be noticed. Default
    /// [`REMOTE_ATTR_TTL`] if listings have versions (as for an S3 prefix), otherwise [`LOCAL_ATTR_TTL`].
    pub attr_ttl: Option<Duration>,
    /// The observer of each read. Default none.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for FuseSettings {
    fn default() -> FuseSettings {
        FuseSettings {
            allow_other: false,
            kernel_readahead_bytes: 128 << 10,
            direct: false,
            attr_ttl: None,
            observer: None,
        }
    }
}

fn unfit(what: &str, dir: &Path, remedy: &str) -> FrontError {
    FrontError::new(FrontErrorKind::Directory, what, dir.display(), remedy)
}

fn no_threads(dir: &Path, error: std::io::Error) -> FrontError {
    let what = "cannot mount: the system refuses to create a thread";
    let why = error.to_string();
    FrontError::new(FrontErrorKind::System, what, dir.display(), why).caused_by(error)
}

fn refused(dir: &Path, error: std::io::Error) -> FrontError {
    let what = format!("cannot mount ({error})");
    let remedy = "load the module 'fuse', install fuse3, and check that this user may mount here";
    FrontError::new(FrontErrorKind::System, what, dir.display(), remedy).caused_by(error)
}

/// How a mount was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// Nothing was open, and everything is unmounted.
    Clean,
    /// The mount point was removed; processes can continue to read open files.
    Detached,
}

/// Unmounts a mount; may be called from any thread.
pub struct FuseStop {
    unmounter: Mutex<Unmounter>,
    dir: PathBuf,
    /// Checked by operations that wait for the storage.
    stopped: Arc<AtomicBool>,
}

impl FuseStop {
    /// Unmounts. If a process has an open file or its working directory in the mount, the mount is only detached from the directory tree
    /// (lazy unmount). Listings, lookups and opens that wait for object storage fail with `ECANCELED`; open files remain readable.
    ///
    /// # Errors
    /// Returns an error if the mount could be neither unmounted nor detached.
    pub fn stop(&self) -> std::io::Result<UnmountOutcome> {
        let done = lock(&self.unmounter).unmount();
        let done = match done {
            Ok(()) => Ok(UnmountOutcome::Clean),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                detach(&self.dir).map(|()| UnmountOutcome::Detached)
            }
            Err(error) => Err(error),
        };
        self.stopped.store(done.is_ok(), Ordering::Release);
        done
    }
}

/// A mount: a read-only tree of files, read through one engine. When the `Mount` is dropped, the tree is unmounted.
pub struct Mount {
    mounted: KernelMount,
    view: Arc<View>,
    dir: PathBuf,
}

impl Mount {
    /// Mounts a tree at an empty folder. Requests of programs wait until [`Mount::run`] is called.
    ///
    /// # Errors
    /// Returns an error if the folder is not suitable, or the system refuses the mount.
    pub fn new(
        tree: Arc<dyn Tree>,
        engine: Engine,
        dir: &Path,
        settings: &FuseSettings,
    ) -> Result<(Mount, FuseStop), FrontError> {
        let dir = checked(dir)?;
        let what = tree.describe();
        let view = View::new(tree, engine, settings).map_err(|error| {
            let (said, remedy) = (error.to_string(), "check the source and its permissions");
            FrontError::new(FrontErrorKind::Source, said, &what, remedy).caused_by(error)
        })?;
        let view = Arc::new(view);
        let stopped = Arc::default();
        let (own_view, own_stopped) = (Arc::clone(&view), Arc::clone(&stopped));
        let mut mounted = KernelMount::new(own_view, own_stopped, &what, &dir, settings)?;
        let stop = FuseStop {
            unmounter: Mutex::new(mounted.unmounter()),
            dir: dir.clone(),
            stopped,
        };
        let mount = Mount { mounted, view, dir };
        Ok((mount, stop))
    }

    /// Serves requests until the tree is unmounted (by this process or another) and all its files are closed.
    ///
    /// # Errors
    /// Returns an error if the mount ended in another way than by being unmounted.
    pub fn run(self) -> std::io::Result<()> {
        let dir = self.dir.clone();
        let ran = self.mounted.run();
        if std::fs::metadata(&dir).is_err_and(|error| is_dead(&error)) {
            // The mount was in use at its end or was aborted, so a dead mount point remains. Remove it.
            let _ = detach(&dir);
        }
        ran
    }

    /// The counters since the tree was mounted.
    #[must_use]
    pub fn counts(&self) -> MountCounts {
        self.view.counts()
    }

    /// A function that returns the counters; it can be called while the mount runs.
    pub fn counter(&self) -> impl Fn() -> MountCounts + Send + Sync + 'static {
        let view = Arc::clone(&self.view);
        move || view.counts()
    }

    /// A planner, with which the caller announces which files it will open, and in which order.
    #[must_use]
    pub fn planner(&self) -> Planner {
        Planner::new(Arc::clone(&self.view), &self.dir)
    }

    /// The engine that reads the files.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.view.engine
    }
}

/// Detaches the mount with the system's own commands.
fn detach(dir: &Path) -> std::io::Result<()> {
    let why = "the mount is in use, and neither fusermount3 nor umount could unmount it";
    unmount::by_commands(dir, true).map_err(|_| std::io::Error::other(why))
}

/// The error code of a mount whose server is gone.
fn is_dead(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

const OWN_FOLDER: &str = "use an empty folder that you own";

/// Checks that the folder can be a mount point. Returns its full path, because the process may change its working directory later.
fn checked(dir: &Path) -> Result<PathBuf, FrontError> {
    let problem = |error: std::io::Error| match error.raw_os_error() {
        _ if is_dead(&error) => {
            let what = "the folder is still mounted, but the server of this mount has ended";
            unfit(what, dir, &unmount::remedy(dir)).caused_by(error)
        }
        errno => unfit(&errno_text(errno.unwrap_or(0)), dir, OWN_FOLDER).caused_by(error),
    };
    let meta = std::fs::metadata(dir).map_err(problem)?;
    if !meta.is_dir() {
        return Err(unfit("not a folder", dir, OWN_FOLDER));
    }
    if std::fs::read_dir(dir).map_err(problem)?.next().is_some() {
        let remedy = "use an empty folder, or unmount what is mounted there";
        return Err(unfit("the folder is not empty", dir, remedy));
    }
    if !Path::new("/dev/fuse").exists() {
        let missing = std::io::Error::from_raw_os_error(Errno::NOENT.raw_os_error());
        return Err(refused(Path::new("/dev/fuse"), missing));
    }
    std::fs::canonicalize(dir).map_err(problem)
}
