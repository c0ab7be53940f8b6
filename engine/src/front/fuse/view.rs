//! The content of a mount, independent of the kernel: inode numbers, attributes, handles and data.
//!
//! Every open handle is a separate open description, fixed to the version of its number. A read is answered
//! in full, or with an error: the kernel takes a short answer for the end of the file and keeps that for every reader. Never:
//! waits for the kernel (there is no invalidation that could: a changed file gets a new number), or opens by a path that was
//! not looked at.
//!
//! Answers of the storage are trusted for [`FuseSettings::attr_ttl`] from the time of the request, here and in the kernel together: the
//! kernel gets the remaining time. If listings contain versions ([`Tree::lists_versions`]), this saves a request for each
//! name of a listing and for each opened file (`names.rs`); if not, requests are cheap, and each open sends one.
//!
//! ```text
//!   list ──► (name, version, number) ──lookup, open──► asked less than attr_ttl ago? ── yes ──► no request
//!                                                           └─ no: one request for this name and the following ones
//!   lookup ──► number ──open──► same version still? ──► handle (a pinned reader) ──read──► bytes, all that were asked for
//!                                     └─ no: ESTALE, and the kernel looks the name up again
//! ```

mod folders;
mod names;
mod need;
mod order;
mod plan;
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
use crate::{Engine, ListedFile, ReadError, Reader};
use names::SaidNames;
use need::CacheNeed;
pub use plan::{FileOrder, MAX_PLANNED, Planner};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Open files and folders at once.
pub const MAX_HANDLES: usize = 1 << 16;
/// Closed files whose pages are kept; each has a descriptor open.
pub const MAX_IDLE: usize = 128;
/// Reply buffers that are kept to be used again.
const SPARE_BUFFERS: usize = 8;

/// A name in a folder.
pub struct LookedUpName {
    pub number: u64,
    pub meta: Meta,
    /// How long it may be trusted.
    pub ttl: Duration,
}

/// An error number for the kernel.
pub type KernelErrno = i32;

/// Counted since the mount was made, but for what is open now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountCounts {
    /// Files open now.
    pub handles: u64,
    /// Files that ever were opened.
    pub opened: u64,
    /// Of these, files that the kernel reads by itself: their reads and bytes are not counted.
    pub passed: u64,
    /// Numbers that the kernel knows.
    pub nodes: u64,
    /// Reads answered with data.
    pub reads: u64,
    /// Requests answered with an error, other than for names that are not there.
    pub failed: u64,
    /// Bytes of data sent.
    pub bytes: u64,
}

pub struct View {
    tree: Arc<dyn Tree>,
    ttl: Duration,
    /// Listings tell versions, and asking is dear.
    lists_versions: bool,
    engine: Engine,
    nodes: Mutex<Nodes>,
    /// Taken after that of the nodes.
    said: Mutex<SaidNames>,
    handles: Mutex<Handles>,
    buffers: Mutex<Vec<Vec<u8>>>,
    cut: KernelCut,
    need: CacheNeed,
    observer: Option<Arc<dyn Observer>>,
    opened: AtomicU64,
    passed: AtomicU64,
    reads: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl View {
    /// A view of a tree through an engine.
    pub fn new(
        tree: Arc<dyn Tree>,
        engine: Engine,
        settings: &FuseSettings,
    ) -> Result<View, SourceError> {
        let root = tree.look(&PathBuf::new())?;
        let count = || AtomicU64::new(0);
        let cut = KernelCut::new(match reads_ahead(engine.policy()) && !settings.direct {
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
        Ok(View {
            tree,
            ttl,
            lists_versions,
            engine,
            nodes: Mutex::new(Nodes::new(root, MAX_IDLE)),
            said: Mutex::new(SaidNames::new(ttl)),
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

    /// How long the kernel may trust attributes sent now.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether names are to be listed with what is known of them.
    pub fn lists_versions(&self) -> bool {
        self.lists_versions
    }

    /// What is left of the time in which an answer is believed.
    fn left(&self, seen: Instant) -> Duration {
        self.ttl.saturating_sub(seen.elapsed())
    }

    /// What a name in a folder is.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<LookedUpName, KernelErrno> {
        if name.as_bytes().contains(&b'/') || name == "." || name == ".." {
            return Err(Errno::INVAL.raw_os_error());
        }
        let path = self.path_of(parent)?.join(name);
        let (meta, seen) = self.look(&path)?;
        Ok(LookedUpName {
            number: self.enter(path, &meta)?,
            meta,
            ttl: self.left(seen),
        })
    }

    /// The number of what is at a path, which the kernel gets.
    fn enter(&self, path: PathBuf, meta: &Meta) -> Result<u64, KernelErrno> {
        let enter = |path| self.nodes().enter(path, meta.clone());
        let entered = enter(path).or_else(|path| {
            self.said().forget_all();
            enter(path)
        });
        entered.map_err(|path| self.too_many(Errno::NFILE, &path))
    }

    pub fn forget(&self, number: u64, times: u64) {
        // Bound, so that it is dropped when the lock is not held.
        let gone = self.nodes().forget(number, times);
        drop(gone);
    }

    /// What is known of a number. A file's attributes are those of its version, whatever is at its path now.
    pub fn attributes(&self, number: u64) -> Result<Meta, KernelErrno> {
        let (path, meta) = {
            let mut nodes = self.nodes();
            let node = nodes.known(number).ok_or(Errno::STALE.raw_os_error())?;
            (Arc::clone(&node.path), node.meta.clone())
        };
        if meta.kind != Kind::Folder || self.said().says(&path, &meta) == Some(true) {
            return Ok(meta);
        }
        let now = self.tree.look(&path).map_err(|e| self.refuse_source(&e))?;
        if now.kind == Kind::Folder {
            Ok(now)
        } else {
            Err(Errno::STALE.raw_os_error())
        }
    }

    /// The text of a link.
    pub fn link(&self, number: u64) -> Result<PathBuf, KernelErrno> {
        let path = self.path_of(number)?;
        self.tree.link(&path).map_err(|e| self.refuse_source(&e))
    }

    // ---- files ----

    /// A handle on a file, in the version of its number, and whether what the kernel has of it is of that version.
    ///
    /// ```text
    ///   first open                            what means the same as the listing (`Tree::is_same`)    the kernel has nothing yet
    ///   again, the reader is there            the same reader                                          its pages stay
    ///   again, the version is named exactly   that very version, or ESTALE and another number          its pages stay
    ///   again, any other                      what means the same                                      its pages go
    /// ```
    pub fn open(&self, number: u64) -> Result<(u64, bool), KernelErrno> {
        let (path, known, kept, ahead, was_opened) = {
            let mut nodes = self.nodes();
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
        let said = self.said().says(&path, &known);
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
        let (used, unlisted) = self
            .nodes()
            .opened(number, &base)
            .ok_or(Errno::STALE.raw_os_error())?;
        drop(unlisted);
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
            let gone = self.nodes().released(number);
            drop(gone);
            self.refuse(errno)
        })
    }

    /// A number is not the version that is at its path: the kernel looks that up again.
    fn outdated(&self, number: u64, path: &Path) -> KernelErrno {
        let gone = self.nodes().outdated(number);
        drop(gone);
        self.doubt(path);
        Errno::STALE.raw_os_error()
    }

    /// What was said of a path may be wrong.
    fn doubt(&self, path: &Path) {
        if self.lists_versions {
            self.said().doubt(path);
        }
    }

    /// Opens a file; one that was just listed, in that version (`is_exact`: in that very one), and with what was read ahead of it.
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
            // Closed files are kept for their pages, not at the price of open ones.
            Err(error) if too_many.contains(&error.errno()) => {
                let idle = self.nodes().drop_idle();
                drop(idle);
                open()
            }
            other => other,
        }
        .map_err(|error| match error {
            // As for what is found to be another version: it is looked up again.
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
        let handle = self.handles().files.remove(&fh);
        let Some(handle) = handle else { return };
        if let Some(observer) = &self.observer {
            observer.closed(fh);
        }
        let gone = self.nodes().released(handle.number);
        drop((gone, handle));
    }

    /// The file of this machine that has all bytes of a handle's file, if there is one.
    pub fn whole_file(&self, fh: u64) -> Option<WholeFile> {
        let handle = self.handles().files.get(&fh).cloned()?;
        handle.reader.whole_file()
    }

    /// May there be such files?
    pub fn has_disk_cache(&self) -> bool {
        #[cfg(feature = "disk-cache")]
        let has = self.engine.disk_cache().is_some();
        #[cfg(not(feature = "disk-cache"))]
        let has = false;
        has
    }

    /// The kernel reads one more handle by itself.
    pub fn count_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `send` with all bytes that a file has from `offset` on, up to `len`; no fewer.
    pub fn read(
        &self,
        fh: u64,
        offset: u64,
        len: u32,
        send: impl FnOnce(Result<&[u8], KernelErrno>),
    ) {
        let handle = self.handles().files.get(&fh).map(Arc::clone);
        let Some(handle) = handle else {
            return send(Err(Errno::BADF.raw_os_error()));
        };
        let taken = self
            .observer
            .as_ref()
            .map(|observer| (observer, Instant::now()));
        let wanted = handle.size.saturating_sub(offset).min(u64::from(len)) as usize;
        let mut lent = LentBytes::new(wanted);
        let behind = self.cut.behind(&handle.place, offset, wanted as u64);
        if behind > 0 {
            // One request for both. A read that finds its own bytes in the cache does not wait for it, and an error of it fails no read.
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
            // A version has one size: less of it is another version, and not the end.
            Ok(_) => self.failed_read(&handle, Errno::STALE.raw_os_error(), send),
            Err(error) => self.failed_read(&handle, read_errno(&error), send),
        }
    }

    /// Sends bytes from where they are, or, where they are in several places, from a copy.
    fn send(&self, lent: &LentBytes, len: usize, send: impl FnOnce(Result<&[u8], KernelErrno>)) {
        if let Some(bytes) = lent.in_row() {
            return send(Ok(bytes));
        }
        let mut buf = self.buffers().pop().unwrap_or_default();
        if buf.len() < len {
            buf.resize(len, 0);
        }
        lent.copy_to(&mut buf[..len]);
        send(Ok(&buf[..len]));
        let mut buffers = self.buffers();
        if buffers.len() < SPARE_BUFFERS {
            buffers.push(buf);
        }
    }

    /// Whatever it was: the next open asks the storage before it believes the version. A reader that is of another version by now stays so,
    /// and is not kept for that open, though the version may be there.
    fn failed_read(
        &self,
        handle: &Handle,
        errno: i32,
        send: impl FnOnce(Result<&[u8], KernelErrno>),
    ) {
        if errno == Errno::STALE.raw_os_error() {
            let gone = self.nodes().failed(handle.number, &handle.base);
            drop(gone);
        }
        if let Ok(path) = self.path_of(handle.number) {
            self.doubt(&path);
        }
        send(Err(self.refuse(errno)));
    }

    // ---- for reports ----

    pub fn counts(&self) -> MountCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MountCounts {
            handles: self.handles().files.len() as u64,
            opened: get(&self.opened),
            passed: get(&self.passed),
            nodes: self.nodes().len() as u64,
            reads: get(&self.reads),
            failed: get(&self.failed),
            bytes: get(&self.bytes),
        }
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    // ---- inside ----

    fn path_of(&self, number: u64) -> Result<Arc<Path>, KernelErrno> {
        self.nodes()
            .known(number)
            .map(|node| Arc::clone(&node.path))
            .ok_or(Errno::STALE.raw_os_error())
    }

    fn hand_out(&self, insert: impl FnOnce(&mut Handles, u64)) -> Result<u64, KernelErrno> {
        let mut handles = self.handles();
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

    /// Counts an error and makes it one that the kernel takes as such.
    fn refuse(&self, errno: i32) -> KernelErrno {
        if errno != Errno::NOENT.raw_os_error() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer(errno)
    }

    /// The same for what the storage refused, which is logged: the reader sees a number alone.
    fn refuse_source(&self, error: &SourceError) -> KernelErrno {
        let errno = error.errno();
        if errno != Errno::NOENT.raw_os_error() {
            report_failure(error);
        }
        self.refuse(errno)
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A failed read, as a number.
fn read_errno(error: &ReadError) -> i32 {
    match error {
        // The file may be longer than the source says now: that is a change, too.
        ReadError::Short { .. } => Errno::STALE.raw_os_error(),
        other => other.errno(),
    }
}

/// The one place where error numbers are made fit for the kernel. To it some mean more than that a request failed: after
/// `ENOSYS` it never asks again, and those for interrupted calls have it begin anew.
fn answer(errno: i32) -> KernelErrno {
    let special = [Errno::NOSYS, Errno::INTR, Errno::AGAIN].map(Errno::raw_os_error);
    // The kernel's own numbers, which no program may see, begin at 512.
    if (1..512).contains(&errno) && !special.contains(&errno) {
        errno
    } else {
        Errno::IO.raw_os_error()
    }
}

/// Is this the number of the root?
pub fn is_root(number: u64) -> bool {
    number == ROOT
}
