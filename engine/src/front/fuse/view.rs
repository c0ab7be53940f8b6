//! The content of a mount, independent of the kernel: inode numbers, attributes, handles and data.
//!
//! Each inode number refers to one version of a file. Every open handle is a separate open description, and reads only the version to which
//! its inode number refers. A read is answered in full or with an error. The kernel would take a short answer for the end of the file, and
//! cache this wrong end for all readers. The view never waits for the kernel, because it needs no invalidation: a changed file gets a new
//! inode number. The view never opens a path that it has not checked.
//!
//! Answers of the storage are trusted for [`FuseSettings::attr_ttl`] after the request. This time covers the cache of this view and the
//! cache of the kernel together: the kernel may trust an answer only until the same time ends. If listings contain versions
//! ([`Tree::lists_versions`]), trusting them saves a request for each name of a listing and for each opened file (`names.rs`). If listings
//! contain no versions, as for local folders, each open queries the file again, which is cheap.
//!
//! ```text
//!   list ──► (name, version, number) ──lookup, open──► requested less than attr_ttl ago? ── yes ──► no request
//!                                                               └─ no: one request for this name and the following ones
//!   lookup ──► number ──open──► same version still? ──► handle (a pinned reader) ──read──► all bytes that were requested
//!                                     └─ no: ESTALE, and the kernel looks the name up again
//! ```

mod ahead;
mod folders;
mod names;
mod need;
mod order;
#[cfg(test)]
mod tests;

use super::FuseSettings;
use super::handles::{Handle, Handles, KernelCut, ReadPlace};
use super::nodes::{Nodes, ROOT};
use crate::driver::LentBytes;
use crate::error::OpenError;
use crate::front::observe::{Observer, PassedRequest, RequestKind};
use crate::health::reads_ahead;
use crate::source::tree::{Kind, Meta, Tree};
use crate::source::{SourceError, WholeFile, report_failure};
use crate::sync::lock;
use crate::{Engine, ListedFile, ReadError, Reader};
use ahead::FoldersAhead;
use names::SaidNames;
use need::CacheNeed;
pub use order::{FileOrder, MAX_PLANNED, Planner};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of open files and folders.
pub const MAX_HANDLES: usize = 1 << 16;
/// Maximum number of closed files whose pages are kept; each has an open file descriptor.
pub const MAX_IDLE: usize = 128;
/// Number of reply buffers that are kept for reuse.
const SPARE_BUFFERS: usize = 8;

/// A file or folder that the lookup of a name has found.
pub struct LookedUpName {
    pub number: u64,
    pub meta: Meta,
    /// How long it may be trusted.
    pub ttl: Duration,
}

/// An error number (errno) for the kernel.
pub type KernelErrno = i32;

/// Counters since the mount was created. If the description of a counter says "now", the counter is a current value instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountCounts {
    /// Files open now.
    pub handles: u64,
    /// Number of opens of files.
    pub opened: u64,
    /// The opens of files that the kernel reads by itself: their reads and bytes are not counted.
    pub passed: u64,
    /// Inode numbers that the kernel knows now, or that are held for files that are read ahead.
    pub nodes: u64,
    /// Reads answered with data.
    pub reads: u64,
    /// Requests answered with an error, except look-ups of names that do not exist.
    pub failed: u64,
    /// Bytes of data sent.
    pub bytes: u64,
}

pub struct View {
    tree: Arc<dyn Tree>,
    /// How long the kernel may trust attributes that are sent to it now.
    pub ttl: Duration,
    /// Whether listings contain versions and single requests are expensive.
    pub lists_versions: bool,
    pub engine: Engine,
    nodes: Mutex<Nodes>,
    /// Locked after the nodes.
    said: Mutex<SaidNames>,
    ahead: FoldersAhead,
    handles: Mutex<Handles>,
    buffers: Mutex<Vec<Vec<u8>>>,
    cut: KernelCut,
    need: CacheNeed,
    observer: Option<Arc<dyn Observer>>,
    opened: AtomicU64,
    /// Handles whose files the kernel reads itself (FUSE passthrough).
    pub passed: AtomicU64,
    reads: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl View {
    /// Creates a view of a tree through an engine.
    pub fn new(
        tree: Arc<dyn Tree>,
        engine: Engine,
        settings: &FuseSettings,
    ) -> Result<View, SourceError> {
        let root = tree.look(&PathBuf::new())?;
        let count = || AtomicU64::new(0);
        let is_ahead = reads_ahead(engine.policy());
        let cut = KernelCut::new(match is_ahead && !settings.direct {
            true => settings.kernel_readahead_bytes.into(),
            false => 0,
        });
        let (lists_versions, observer) = (tree.lists_versions(), settings.observer.clone());
        let usual = if lists_versions {
            super::REMOTE_ATTR_TTL
        } else {
            super::LOCAL_ATTR_TTL
        };
        let ttl = settings.attr_ttl.unwrap_or(usual);
        let need = CacheNeed::new(&engine, !settings.direct);
        let listed_for = if is_ahead { ttl } else { Duration::ZERO };
        let ahead = FoldersAhead::new(Arc::clone(&tree), listed_for);
        Ok(View {
            tree,
            ttl,
            lists_versions,
            engine,
            nodes: Mutex::new(Nodes::new(root, MAX_IDLE)),
            said: Mutex::new(SaidNames::new(ttl)),
            ahead,
            handles: Mutex::default(),
            buffers: Mutex::default(),
            cut,
            need,
            observer,
            opened: count(),
            passed: count(),
            reads: count(),
            failed: count(),
            bytes: count(),
        })
    }

    // ---- names ----

    /// The remaining time for which an answer is trusted.
    fn left(&self, seen: Instant) -> Duration {
        self.ttl.saturating_sub(seen.elapsed())
    }

    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<LookedUpName, KernelErrno> {
        if name.as_bytes().contains(&b'/') || name == "." || name == ".." {
            return Err(Errno::INVAL.raw_os_error());
        }
        let path = self.path_of(parent)?.join(name);
        let (meta, seen) = self.look(&path)?;
        // With its place in a listing, the files after it can be read ahead.
        let place = match self.lists_versions && meta.kind == Kind::File {
            true => lock(&self.said).place_in_order(&path, &meta),
            false => None,
        };
        let number = match place {
            Some((listing, place)) => self.enter_by(path, |nodes, path| {
                nodes.enter_listed(&listing, place, path, &meta)
            })?,
            None => self.enter(path, &meta)?,
        };
        Ok(LookedUpName {
            number,
            meta,
            ttl: self.left(seen),
        })
    }

    /// The inode number of the file at a path, counted as known to the kernel.
    fn enter(&self, path: PathBuf, meta: &Meta) -> Result<u64, KernelErrno> {
        self.enter_by(path, |nodes, path| nodes.enter(path, meta.clone()))
    }

    /// Like [`View::enter`], by `enter`. Frees what is kept about names if there is no room.
    fn enter_by(
        &self,
        path: PathBuf,
        enter: impl Fn(&mut Nodes, PathBuf) -> Result<u64, PathBuf>,
    ) -> Result<u64, KernelErrno> {
        let enter = |path| self.change(|nodes| enter(nodes, path));
        let entered = enter(path).or_else(|path| {
            lock(&self.said).forget_all();
            self.change(|nodes| nodes.drop_listed(0));
            enter(path)
        });
        entered.map_err(|path| self.too_many(Errno::NFILE, &path))
    }

    pub fn forget(&self, number: u64, times: u64) {
        self.change(|nodes| nodes.forget(number, times));
    }

    /// The attributes of an inode number. The attributes of a file are those of the version to which the inode number belongs, even if
    /// another version is at its path now.
    pub fn attributes(&self, number: u64) -> Result<Meta, KernelErrno> {
        let (path, meta) = {
            let mut nodes = lock(&self.nodes);
            let node = nodes.known(number).ok_or(Errno::STALE.raw_os_error())?;
            (Arc::clone(&node.path), node.meta.clone())
        };
        if meta.kind != Kind::Folder || lock(&self.said).says(&path, &meta) == Some(true) {
            return Ok(meta);
        }
        let now = self.tree.look(&path).map_err(|e| self.refuse_source(&e))?;
        if now.kind == Kind::Folder {
            Ok(now)
        } else {
            Err(Errno::STALE.raw_os_error())
        }
    }

    /// The target of a symbolic link.
    pub fn link(&self, number: u64) -> Result<PathBuf, KernelErrno> {
        let path = self.path_of(number)?;
        self.tree.link(&path).map_err(|e| self.refuse_source(&e))
    }

    // ---- files ----

    /// Opens a handle on the version of a file to which the inode number belongs. Also returns whether the pages that the kernel has
    /// cached for the number are of this version.
    ///
    /// ```text
    ///   first open                            an equivalent of the listed version (`Tree::is_same`)   the kernel has no pages yet
    ///   again, the reader still exists        the same reader                                         its pages stay
    ///   again, the version is known exactly   exactly that version, or ESTALE and another number      its pages stay
    ///   again, any other                      an equivalent version                                   its pages are dropped
    /// ```
    pub fn open(&self, number: u64) -> Result<(u64, bool), KernelErrno> {
        let (path, known, kept, ahead, was_opened) = {
            let mut nodes = lock(&self.nodes);
            let node = nodes.known(number).ok_or(Errno::STALE.raw_os_error())?;
            (
                Arc::clone(&node.path),
                node.meta.clone(),
                node.base.clone(),
                node.listed.clone(),
                node.was_opened,
            )
        };
        if known.kind != Kind::File {
            return Err(Errno::ISDIR.raw_os_error());
        }
        let said = lock(&self.said).says(&path, &known);
        if said == Some(false) {
            return Err(self.outdated(number, &path));
        }
        let believed = said == Some(true);
        let listed = Some(&known).filter(|_| believed);
        let is_exact = was_opened && self.tree.names_exactly(&known);
        let is_kept = kept.is_some();
        let (base, meta) = match kept {
            Some(base) if believed => (base, known.clone()),
            Some(base) => (
                base,
                self.tree.look(&path).map_err(|e| self.refuse_source(&e))?,
            ),
            None => {
                let opened = self.open_source(&path, listed, ahead.filter(|_| believed), is_exact);
                match opened {
                    Err(errno) if errno == Errno::STALE.raw_os_error() => {
                        return Err(self.outdated(number, &path));
                    }
                    opened => opened?,
                }
            }
        };
        let is_same = if is_exact {
            known.version == meta.version
        } else {
            self.tree.is_same(&known, &meta)
        };
        if !is_same {
            return Err(self.outdated(number, &path));
        }
        let used = self.change(|nodes| nodes.opened(number, &base));
        let used = used.ok_or(Errno::STALE.raw_os_error())?;
        self.list_behind(number, &used);
        let handle = used.try_clone().map_err(|e| e.errno()).and_then(|reader| {
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.hand_out(|handles, fh| {
                let base = Arc::downgrade(&used);
                handles.files.insert(
                    fh,
                    Arc::new(Handle {
                        number,
                        reader,
                        base,
                        size: meta.size,
                        place: ReadPlace::default(),
                    }),
                );
            })
        });
        if let (Some(observer), Ok(fh)) = (&self.observer, &handle) {
            observer.opened(*fh, &path.to_string_lossy(), meta.size);
        }
        let stays = is_exact || is_kept || !was_opened;
        handle.map(|fh| (fh, stays)).map_err(|errno| {
            self.change(|nodes| nodes.released(number));
            self.refuse(errno)
        })
    }

    /// Handles a number whose version is no longer at its path: the kernel will look the path up again.
    fn outdated(&self, number: u64, path: &Path) -> KernelErrno {
        self.change(|nodes| nodes.outdated(number));
        self.doubt(path);
        Errno::STALE.raw_os_error()
    }

    /// Marks the cached answer about a path as doubtful.
    fn doubt(&self, path: &Path) {
        if self.lists_versions {
            lock(&self.said).doubt(path);
        }
    }

    /// Opens a file. A file that was just listed is opened in that version (with `is_exact`: in exactly that version) and with what
    /// was read ahead of it.
    fn open_source(
        &self,
        path: &Path,
        listed: Option<&Meta>,
        ahead: Option<Arc<ListedFile>>,
        is_exact: bool,
    ) -> Result<(Arc<Reader>, Meta), KernelErrno> {
        let ahead = listed
            .zip(ahead)
            .and_then(|(meta, file)| Some((file.open().ok()?, meta)));
        if let Some((reader, meta)) = ahead {
            return Ok((Arc::new(reader.pin_version()), meta.clone()));
        }
        let too_many = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
        let open = || match listed {
            None => self.tree.open(path),
            Some(meta) if is_exact => self.tree.open_again(path, meta),
            Some(meta) => self.tree.open_listed(path, meta),
        };
        let (source, meta) = match open() {
            // Closed files are kept only for their pages; they must not prevent an open.
            Err(error) if too_many.contains(&error.errno()) => {
                self.change(|nodes| nodes.drop_idle(0));
                open()
            }
            other => other,
        }
        .map_err(|error| match error {
            // As for any file with another version: it is looked up again.
            SourceError::Changed { .. } => Errno::STALE.raw_os_error(),
            error => self.refuse_source(&error),
        })?;
        let reader = self
            .engine
            .open(source)
            .map_err(|e: OpenError| self.refuse(e.errno()))?;
        Ok((Arc::new(reader.pin_version()), meta))
    }

    pub fn release(&self, fh: u64) {
        let handle = lock(&self.handles).files.remove(&fh);
        let Some(handle) = handle else { return };
        if let Some(observer) = &self.observer {
            observer.closed(fh);
        }
        self.change(|nodes| nodes.released(handle.number));
    }

    /// A local file that contains all bytes of the file of this handle, if there is one.
    pub fn whole_file(&self, fh: u64) -> Option<WholeFile> {
        let handle = lock(&self.handles).files.get(&fh).cloned()?;
        handle.reader.whole_file()
    }

    /// Whether the engine has a disk cache, which may contain complete files.
    pub fn has_disk_cache(&self) -> bool {
        #[cfg(feature = "disk-cache")]
        let has = self.engine.disk_cache().is_some();
        #[cfg(not(feature = "disk-cache"))]
        let has = false;
        has
    }

    /// Reads `len` bytes from `offset` on, or fewer only at the end of the file, and passes them to `send`.
    pub fn read(
        &self,
        fh: u64,
        offset: u64,
        len: u32,
        send: impl FnOnce(Result<&[u8], KernelErrno>),
    ) {
        let handle = lock(&self.handles).files.get(&fh).map(Arc::clone);
        let Some(handle) = handle else {
            return send(Err(Errno::BADF.raw_os_error()));
        };
        let observer = self.observer.as_ref();
        let taken = observer.map(|observer| (observer, Instant::now()));
        let wanted = handle.size.saturating_sub(offset).min(u64::from(len)) as usize;
        let mut lent = LentBytes::new(wanted);
        let behind = self.cut.behind(&handle.place, offset, wanted as u64);
        if behind > 0 {
            // One request for both parts. A read that finds its own bytes in the cache does not wait for the second part, and an
            // error in the second part fails no read.
            let end = handle.size.min(offset + wanted as u64 + behind);
            let _ = handle.reader.prefetch(offset..end);
        }
        let got = {
            let _read = self.need.begin(&self.engine);
            handle.reader.read_lent(&mut lent, offset)
        };
        if let Some((observer, start)) = taken {
            let done = got.as_ref().is_ok_and(|read| *read == wanted);
            let (len, returned, end) = (u64::from(len), wanted as u64, Instant::now());
            observer.passed(
                fh,
                &PassedRequest {
                    asked: RequestKind::Read,
                    offset,
                    len,
                    returned,
                    done,
                    start,
                    end,
                },
            );
        }
        match got {
            Ok(read) if read == wanted => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(read as u64, Ordering::Relaxed);
                self.send(&lent, wanted, send);
            }
            // A version has one size, so a shorter read means another version, not the end of the file.
            Ok(_) => self.failed_read(&handle, Errno::STALE.raw_os_error(), send),
            Err(error) => self.failed_read(&handle, read_errno(&error), send),
        }
    }

    /// Sends the bytes directly from the cache, or, if they are not contiguous, from a copy.
    fn send(&self, lent: &LentBytes, len: usize, send: impl FnOnce(Result<&[u8], KernelErrno>)) {
        if let Some(bytes) = lent.in_row() {
            return send(Ok(bytes));
        }
        let mut buf = lock(&self.buffers).pop().unwrap_or_default();
        if buf.len() < len {
            buf.resize(len, 0);
        }
        lent.copy_to(&mut buf[..len]);
        send(Ok(&buf[..len]));
        let mut buffers = lock(&self.buffers);
        if buffers.len() < SPARE_BUFFERS {
            buffers.push(buf);
        }
    }

    /// Whatever the error was: the next open asks the storage before it trusts the version. A reader that has moved to another
    /// version is not kept for that open, even if the version is still there.
    fn failed_read(
        &self,
        handle: &Handle,
        errno: i32,
        send: impl FnOnce(Result<&[u8], KernelErrno>),
    ) {
        if errno == Errno::STALE.raw_os_error() {
            self.change(|nodes| nodes.failed(handle.number, &handle.base));
        }
        if let Ok(path) = self.path_of(handle.number) {
            self.doubt(&path);
        }
        // Also ENOENT: the file was there when it was opened.
        self.failed.fetch_add(1, Ordering::Relaxed);
        send(Err(answer(errno)));
    }

    // ---- for reports ----

    pub fn counts(&self) -> MountCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MountCounts {
            handles: lock(&self.handles).files.len() as u64,
            opened: get(&self.opened),
            passed: get(&self.passed),
            nodes: lock(&self.nodes).len() as u64,
            reads: get(&self.reads),
            failed: get(&self.failed),
            bytes: get(&self.bytes),
        }
    }

    // ---- inside ----

    fn path_of(&self, number: u64) -> Result<Arc<Path>, KernelErrno> {
        lock(&self.nodes)
            .known(number)
            .map(|node| Arc::clone(&node.path))
            .ok_or(Errno::STALE.raw_os_error())
    }

    fn hand_out(&self, insert: impl FnOnce(&mut Handles, u64)) -> Result<u64, KernelErrno> {
        let mut handles = lock(&self.handles);
        if handles.files.len() + handles.folders.len() >= MAX_HANDLES {
            return Err(Errno::NFILE.raw_os_error());
        }
        handles.next += 1;
        let fh = handles.next;
        insert(&mut handles, fh);
        let files = handles.files.len();
        drop(handles);
        self.need.opened(&self.engine, files);
        Ok(fh)
    }

    /// Counts an error, and converts it to one that the kernel handles as such.
    fn refuse(&self, errno: i32) -> KernelErrno {
        if errno != Errno::NOENT.raw_os_error() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer(errno)
    }

    /// Like [`View::refuse`], for an error of the storage. It is logged, because the reader only sees a number.
    fn refuse_source(&self, error: &SourceError) -> KernelErrno {
        let errno = error.errno();
        if errno != Errno::NOENT.raw_os_error() {
            report_failure(error);
        }
        self.refuse(errno)
    }

    /// Changes the table of inode numbers. What it no longer uses is dropped after the lock is released.
    fn change<T>(&self, change: impl FnOnce(&mut Nodes) -> T) -> T {
        let mut nodes = lock(&self.nodes);
        let (done, unused) = (change(&mut nodes), nodes.take_unused());
        drop(nodes);
        drop(unused);
        done
    }
}

fn read_errno(error: &ReadError) -> i32 {
    match error {
        // The file may be longer than the source says now: that is also a change.
        ReadError::Short { .. } => Errno::STALE.raw_os_error(),
        other => other.errno(),
    }
}

/// The only place that adapts error numbers for the kernel. Some numbers have a special meaning for the kernel: after `ENOSYS` it
/// never asks again, and those for interrupted calls make it start again.
fn answer(errno: i32) -> KernelErrno {
    let special = [Errno::NOSYS, Errno::INTR, Errno::AGAIN].map(Errno::raw_os_error);
    // The kernel's internal numbers, which no program may see, start at 512.
    if (1..512).contains(&errno) && !special.contains(&errno) {
        errno
    } else {
        Errno::IO.raw_os_error()
    }
}

pub fn is_root(number: u64) -> bool {
    number == ROOT
}
