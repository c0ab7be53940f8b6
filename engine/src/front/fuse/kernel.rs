//! The interface to the crate `fuser`: it decodes requests and encodes replies.
//!
//! This module makes no decisions. A request is decoded, and [`View`] executes it on a thread that may block ([`RequestPool`]), for as
//! long as the caller waits and the mount is not stopped. Then this module encodes the result. If a reply is dropped without being sent,
//! because of a panic, `fuser` answers with EIO.
//!
//! ```text
//!   /dev/fuse ──► fuser, 16 threads ──► Kernel ──► RequestPool ──► View ──► reply
//! ```
//!
//! **The kernel's own readahead** stays on, but small: it reads up to [`FuseSettings::kernel_readahead_bytes`] ahead into its page cache,
//! so that its requests are larger than a page. So the requests of a sequential reader reach the engine in the size that
//! `kernel_readahead_bytes` allows; the engine's own readahead hides the latency of the storage. If `kernel_readahead_bytes` is 0, the
//! kernel sends a separate request for each page.

use super::passed::PassedFiles;
use super::view::{KernelErrno, LookedUpName, View, is_root};
use super::{FuseSettings, no_threads, refused};
use crate::front::FrontError;
use crate::source::tree::{Kind, Meta, while_needed};
use crate::sync::lock;
use crate::system;
use foreread_os::host::{Host, KernelVersion, last_at};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
    Session, SessionACL, SessionUnmounter,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Maximum number of background requests as the kernel counts them; nearly all buffered reads are. With the kernel's default of 12
/// for all files together, one slow file would keep the others waiting.
const MAX_BACKGROUND: u16 = 4096;
/// Number of threads that must be available before a mount, in addition to the dispatchers: the caller's threads for signals,
/// reports and listening, and fusermount3.
const SPARE: usize = 8;
/// The inode number in a directory entry that was not looked up; other file systems use the same value.
const UNKNOWN: INodeNo = INodeNo(0xffff_ffff);

/// A mounted file system, as the crate `fuser` sees it.
pub struct KernelMount {
    session: Session<Kernel>,
    place: Arc<MountPlace>,
}

pub struct Unmounter {
    session: SessionUnmounter,
    place: Arc<MountPlace>,
}

/// The mount point. At its end the crate unmounts by the folder's name, and so would unmount whatever is mounted there by then: the
/// mount of another program, or a new mount of foreread. So if another program has unmounted this mount, its thread does not return
/// to the crate.
struct MountPlace {
    dir: PathBuf,
    /// The mount's ID; 0 before it is mounted. The kernel reuses the ID of a removed mount for the next mount.
    id: AtomicU64,
    /// The connection to the kernel, used to see whether it has ended. `None` after the end of the session: while the connection is
    /// open, the kernel waits for a server.
    connection: Mutex<Option<OwnedFd>>,
    /// Whether the crate has released its mount and will not unmount again.
    given_up: AtomicBool,
    /// The threads of a running mount.
    waits: Mutex<Option<Sender<std::io::Result<()>>>>,
}

impl MountPlace {
    /// Whether the file system mounted there is this mount. Assumed true if that cannot be determined, without /proc.
    fn is_ours(&self) -> bool {
        let id = self.id.load(Ordering::Acquire);
        let mounts = Host::here().mounts();
        let last = last_at(&mounts, &self.dir);
        id == 0 || last.is_some_and(|mount| mount.id == id)
    }

    /// Keeps the crate from unmounting a mount that is not ours: the thread never returns, and [`KernelMount::run`] does.
    fn ended(&self) {
        let connection = lock(&self.connection).take();
        let is_over = connection.is_some_and(|connection| is_over(&connection));
        if self.given_up.load(Ordering::Acquire) || (!is_over && self.is_ours()) {
            return;
        }
        let waits = lock(&self.waits).take();
        if waits.is_some_and(|waits| waits.send(Ok(())).is_ok()) {
            loop {
                std::thread::park();
            }
        }
    }
}

/// Whether the kernel has ended the connection, because its mount was removed or aborted.
fn is_over(connection: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(connection, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default()))
        .is_ok_and(|_| polled[0].revents().contains(PollFlags::ERR))
}

struct Kernel {
    view: Arc<View>,
    stopped: Arc<AtomicBool>,
    pool: Arc<RequestPool>,
    settings: FuseSettings,
    owner: (u32, u32),
    place: Arc<MountPlace>,
    passed: Arc<PassedFiles>,
}

/// The mount option that makes `fuse.foreread` the type in mount tables. fusermount3 has an option for it; root's mount(2) passes it
/// to the kernel, which accepts it since 5.5. Before 5.5 the type is `fuse`.
fn subtype() -> MountOption {
    match Host::here().kernel_version() >= Some(KernelVersion(5, 5)) {
        true => MountOption::CUSTOM("subtype=foreread".to_string()),
        false => MountOption::Subtype("foreread".to_string()),
    }
}

impl KernelMount {
    pub fn new(
        view: Arc<View>,
        stopped: Arc<AtomicBool>,
        what: &str,
        dir: &Path,
        settings: &FuseSettings,
    ) -> Result<KernelMount, FrontError> {
        let owner = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let place = Arc::new(MountPlace {
            dir: dir.to_path_buf(),
            id: AtomicU64::new(0),
            connection: Mutex::default(),
            given_up: AtomicBool::new(false),
            waits: Mutex::new(None),
        });
        let kernel = Kernel {
            place: Arc::clone(&place),
            view,
            stopped,
            pool: Arc::default(),
            settings: settings.clone(),
            owner,
            passed: Arc::default(),
        };
        // A comma would start another option.
        let name = what.replace(|c: char| c.is_control() || c == ',' || c == '\\', "_");
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(name),
            subtype(),
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            // Other users are also subject to a file's owner and permissions.
            MountOption::DefaultPermissions,
        ];
        config.acl = if settings.allow_other {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        config.n_threads = Some(DISPATCHERS);
        config.clone_fd = true;
        // After mounting, a refused thread would leave a mount that must be removed, and removing it needs a process as well. So
        // check first.
        foreread_os::threads::rehearse("foreread-fuse", DISPATCHERS + SPARE)
            .map_err(|error| no_threads(dir, error))?;
        let session = Session::new(kernel, dir, &config).map_err(|error| refused(dir, error))?;
        let mounts = Host::here().mounts();
        let own = last_at(&mounts, &place.dir);
        place
            .id
            .store(own.map_or(0, |mount| mount.id), Ordering::Release);
        let connection = session.as_fd().try_clone_to_owned();
        *lock(&place.connection) = connection.ok();
        Ok(KernelMount { session, place })
    }

    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter {
            session: self.session.unmount_callable(),
            place: Arc::clone(&self.place),
        }
    }

    /// Serves requests until the file system is unmounted and no file is open.
    pub fn run(self) -> std::io::Result<()> {
        let KernelMount { session, place } = self;
        let (to, ended) = channel();
        *lock(&place.waits) = Some(to.clone());
        foreread_os::threads::spawn("foreread-fuse", move || {
            let ran = session.run();
            // If another program has unmounted it, the result was reported already.
            let _ = to.send(ran);
        })?;
        match ended.recv().unwrap_or(Ok(())) {
            // The kernel returns this error to a thread that has just taken a request when the mount is removed; other threads get
            // ENODEV, which the crate handles. There is no other reason for this error, because FUSE_ABORT_ERROR is not requested.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => Ok(()),
            ended => ended,
        }
    }
}

impl Unmounter {
    pub fn unmount(&mut self) -> std::io::Result<()> {
        let is_over = lock(&self.place.connection).as_ref().is_some_and(is_over);
        if is_over || !self.place.is_ours() {
            let why = "it is already unmounted, or another file system is mounted over it";
            return Err(std::io::Error::other(why));
        }
        self.place.given_up.store(true, Ordering::Release);
        self.session.unmount()
    }
}

/// A request that was cancelled because of a signal to its thread fails with EINTR; the program may retry it after its signal
/// handler.
fn errno(refusal: KernelErrno) -> Errno {
    let cancelled = rustix::io::Errno::CANCELED.raw_os_error();
    if refusal == cancelled {
        Errno::EINTR
    } else {
        Errno::from_i32(refusal)
    }
}

impl Kernel {
    fn run(&self, work: impl FnOnce(&View) + Send + 'static) {
        let view = Arc::clone(&self.view);
        self.pool.run(move || work(&view));
    }

    /// Like [`Kernel::run`], for requests that query names from the storage: they end early if the answer is no longer needed.
    fn ask(&self, request: &Request, work: impl FnOnce(&View) + Send + 'static) {
        let (stopped, thread) = (Arc::clone(&self.stopped), request.pid());
        self.run(move |view| {
            let need = move || !stopped.load(Ordering::Acquire) && !is_ending(thread);
            while_needed(Arc::new(need), || work(view));
        });
    }
}

fn attributes(number: u64, meta: &Meta, owner: (u32, u32)) -> FileAttr {
    let since = Duration::from_nanos(u64::try_from(meta.mtime_ns).unwrap_or(0));
    let time = SystemTime::UNIX_EPOCH + since;
    let (uid, gid) = meta.owner.unwrap_or(owner);
    let kind = file_type(meta.kind);
    FileAttr {
        ino: INodeNo(number),
        size: meta.size,
        blocks: meta.size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        // The mount is read-only, and set-user-id bits are ignored.
        perm: meta.permissions & 0o777 & !0o222,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid,
        gid,
        rdev: 0,
        blksize: 128 << 10,
        flags: 0,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Folder => FileType::Directory,
        Kind::Link => FileType::Symlink,
    }
}

impl Filesystem for Kernel {
    fn destroy(&mut self) {
        self.place.ended();
    }

    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel's own limit applies if it is lower.
        let wanted = self.settings.kernel_readahead_bytes.max(1);
        if let Err(most) = config.set_max_readahead(wanted) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        // Lookups in one folder need not wait for each other. It does not matter if the kernel lacks this.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // This is not left to the kernel's heuristic (FUSE_READDIRPLUS_AUTO): a program that lists a whole folder before it opens
        // the first file would otherwise get attributes only for the names in the first reply.
        if self.view.lists_versions {
            let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS);
        }
        // One level: an overlay over this mount stays possible, but files of a cache on an overlay are not passed through. A reader
        // that is observed must send its requests here.
        let may_pass = self.view.has_disk_cache()
            && self.settings.observer.is_none()
            && !self.settings.direct
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        if !may_pass {
            self.passed.refuse();
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let owner = self.owner;
        let name = name.to_os_string();
        self.ask(request, move |view| match view.lookup(parent.0, &name) {
            Ok(LookedUpName { number, meta, ttl }) => {
                reply.entry(&ttl, &attributes(number, &meta, owner), Generation(0))
            }
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.view.forget(number.0, times);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let (ttl, owner) = (self.view.ttl, self.owner);
        self.ask(request, move |view| match view.attributes(number.0) {
            Ok(meta) => reply.attr(&ttl, &attributes(number.0, &meta, owner)),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.run(move |view| match view.link(number.0) {
            Ok(text) => reply.data(text.as_os_str().as_bytes()),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let is_direct = self.settings.direct;
        let passed = Arc::clone(&self.passed);
        self.ask(request, move |view| match view.open(number.0) {
            Ok((fh, stays)) => {
                let file = passed.may_pass().then(|| view.whole_file(fh)).flatten();
                if let Some(file) = passed.open(number.0, file, |file| reply.open_backing(file)) {
                    view.passed.fetch_add(1, Ordering::Relaxed);
                    let how = FopenFlags::FOPEN_NOFLUSH;
                    return reply.opened_passthrough(FileHandle(fh), how, &file.id);
                }
                // Without this flag, the kernel drops its cached pages of the file.
                let how = match stays {
                    _ if is_direct => FopenFlags::FOPEN_DIRECT_IO,
                    true => FopenFlags::FOPEN_KEEP_CACHE,
                    false => FopenFlags::empty(),
                };
                reply.opened(FileHandle(fh), how | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(move |view| {
            view.read(fh.0, offset, len, |bytes| match bytes {
                Ok(bytes) => reply.data(bytes),
                Err(refusal) => reply.error(errno(refusal)),
            });
        });
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.view.release(fh.0);
        self.passed.release(number.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.view.open_folder(number.0) {
            Ok(fh) => reply.opened(FileHandle(fh), FopenFlags::empty()),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        number: INodeNo,
        fh: FileHandle,
        from: u64,
        mut reply: ReplyDirectory,
    ) {
        self.ask(request, move |view| {
            let listed = view.list(fh.0, from, |place, kind, name| {
                let number = if name == "." || is_root(number.0) && name == ".." {
                    number
                } else {
                    UNKNOWN
                };
                !reply.add(number, place, file_type(kind), name)
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        from: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let owner = self.owner;
        self.ask(request, move |view| {
            let listed = view.list_known(fh.0, from, |known| {
                let attributes = attributes(known.number, known.meta, owner);
                !reply.add(
                    INodeNo(known.number),
                    known.place,
                    known.name,
                    &known.ttl,
                    &attributes,
                    Generation(0),
                )
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.view.release_folder(fh.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }
}

// Detects that a signal is about to end the thread whose request the mount is serving.
//
// The kernel would send `FUSE_INTERRUPT`, but the crate `fuser` answers that with "not implemented". After the answer "not implemented",
// the kernel sends no further interrupts, and a killed thread waits until its request is answered. Therefore, operations that take long
// check the pending signals of the calling thread (proc_pid_status(5)). The process ID of a caller in another PID namespace is unknown,
// so its request always completes.
//
// ```text
//   SigPnd 0000000000000100 ──► bit 8, SIGKILL: the answer is not needed
//   ShdPnd 0000000000000002 ──► bit 1, SIGINT, unless it is blocked or ignored
// ```

/// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM as bits, starting at signal 1.
const ENDS: u64 = 1 | 1 << 1 | 1 << 2 | KILL | 1 << 14;
const KILL: u64 = 1 << 8;

/// Whether the thread with this ID has a pending signal that will end the thread, or for which it has a signal handler.
fn is_ending(thread: u32) -> bool {
    // If the signals cannot be read, the answer is no.
    thread > 0
        && std::fs::read_to_string(format!("/proc/{thread}/status"))
            .is_ok_and(|status| ends(&status))
}

fn ends(status: &str) -> bool {
    let mask = |name: &str| {
        let text = status
            .lines()
            .find_map(|line| line.strip_prefix(name))?
            .strip_prefix(':')?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    let [own, shared, blocked, ignored] =
        ["SigPnd", "ShdPnd", "SigBlk", "SigIgn"].map(|name| mask(name).unwrap_or(0));
    let pending = own | shared;
    pending & (KILL | ENDS & !blocked & !ignored) != 0
}

// Chooses the thread for a request: the thread that took it from the kernel, or a new thread if most threads that take requests are
// busy.
//
// A request may wait for slow storage. Only a few threads take requests; if all of them waited, no request would be taken. So if only a
// few of these threads are free, they pass requests to new threads instead of executing them. Requests are not queued.
//
// ```text
//   request ──► busy < INLINE? ── yes ──► on this thread
//                    └─ no ──► a new thread, at most MAX_EXTRA of them; otherwise this thread
// ```

/// Number of threads that receive requests from the kernel.
const DISPATCHERS: usize = 16;
/// How many of these may wait for storage at the same time.
const INLINE: usize = 12;
/// Maximum number of additional threads that execute requests. If all of these threads are busy, too, new requests wait in the kernel.
pub const MAX_EXTRA: usize = 1024;
/// Stack size of such a thread, which holds no buffers.
const STACK_BYTES: usize = 256 << 10;

#[derive(Default)]
struct RequestPool {
    inline: AtomicUsize,
    extra: AtomicUsize,
}

/// Decrements the counter however the work ends.
struct Count<'a>(&'a AtomicUsize);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestPool {
    /// Runs the work of a request, on the calling thread or on another thread. If the work panics, only the work ends: its reply is
    /// dropped, and the kernel gets an error.
    fn run(self: &Arc<RequestPool>, work: impl FnOnce() + Send + 'static) {
        let before = self.inline.fetch_add(1, Ordering::Relaxed);
        let count = Count(&self.inline);
        if before < INLINE || self.extra.load(Ordering::Relaxed) >= MAX_EXTRA {
            return guarded(work);
        }
        drop(count);
        self.extra.fetch_add(1, Ordering::Relaxed);
        let own = Arc::clone(self);
        let hand_over = move || {
            let _count = Count(&own.extra);
            guarded(work);
        };
        if system::spawn("foreread-fuse", Some(STACK_BYTES), hand_over).is_err() {
            // The work was dropped with the thread that could not be started; its reply is an error.
            self.extra.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn guarded(work: impl FnOnce()) {
    // The panic has already been reported.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_ends_is_seen_and_one_that_is_kept_away_is_not() {
        let status = |own: u64, shared: u64, blocked: u64, ignored: u64| {
            format!(
                "Name:\tls\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        for (text, is_ended) in [
            (status(0, 0, 0, 0), false),
            (status(KILL, 0, 0, 0), true),
            (status(KILL, 0, u64::MAX, 0), true),
            (status(0, 1 << 1, 0, 0), true),
            (status(0, 1 << 14, 1 << 14, 0), false),
            (status(0, 1, 0, 1), false),
            (status(1 << 13, 1 << 16, 0, 0), false),
            (String::new(), false),
        ] {
            assert_eq!(ends(&text), is_ended, "{text}");
        }
        assert!(!is_ending(std::process::id()) && !is_ending(0) && !is_ending(u32::MAX));
    }

    use std::sync::mpsc::channel;

    /// With more waiting requests than threads, the last threads still take requests.
    #[test]
    fn the_last_takers_never_wait() {
        let pool = Arc::<RequestPool>::default();
        let (begun, begins) = channel();
        let barrier = Arc::new(std::sync::Barrier::new(DISPATCHERS * 3 + 1));
        for _ in 0..3 {
            for _ in 0..DISPATCHERS {
                let (pool, barrier, begun) =
                    (Arc::clone(&pool), Arc::clone(&barrier), begun.clone());
                std::thread::spawn(move || {
                    pool.run(move || {
                        begun.send(()).expect("counted");
                        barrier.wait();
                    });
                });
            }
        }
        (0..DISPATCHERS * 3).for_each(|_| begins.recv().expect("all of them begin"));
        assert!(pool.inline.load(Ordering::Relaxed) <= INLINE);
        barrier.wait();
        pool.run(|| std::panic::panic_any("a bug"));
    }
}
