//! Writes to a file, using the page cache and a separate descriptor.
//!
//! Direct writes must be aligned to sectors: a partial sector would have to be read, modified and written back, and two writers could
//! overwrite each other's bytes. Before the kernel reads a range directly, it writes back the dirty pages of that range. So reads through
//! the descriptor for direct I/O return the data that was written through the separate descriptor. This module never extends the file,
//! and never writes to another file that was later given the same name.
//!
//! ```text
//!   write: same version? ── under_way + 1 ── pwrite ── under_way - 1 ── 0? the file's time is now ours: no change of version
//!             └─ no: Changed, nothing is written
//! ```
//!
//! If another program writes to the file while foreread writes to it, this is detected only if the size changes.

use super::Core;
use super::version::{Identity, Pick};
use crate::source::SourceError;
use crate::source::descriptor::{self, write_all};
use crate::sync::lock;
#[cfg(feature = "uring")]
use crate::system::{self, SystemRequest};
#[cfg(feature = "uring")]
use foreread_os::threads::spawn_scoped;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
#[cfg(feature = "uring")]
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
#[cfg(feature = "uring")]
use std::thread::ScopedJoinHandle;

#[derive(Default)]
pub struct Writes {
    file: OnceLock<OwnedFd>,
    opening: Mutex<()>,
    /// Set once the file is locked. Contains the descriptor that claims a device; a regular file is locked by the descriptor
    /// that writes it.
    claim: OnceLock<Option<OwnedFd>>,
    /// Changed and read under the lock of the file's identity.
    under_way: AtomicU32,
}

impl Writes {
    pub fn is_open(&self) -> bool {
        self.file.get().is_some()
    }

    /// Returns true if a write is in progress. The caller must hold the lock of the file's identity.
    pub fn under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Writes {
    /// Unlocks the file. Closing it is not enough: a forked child that has not called exec yet holds a copy of the descriptor,
    /// and the lock stays as long as any copy is open.
    fn drop(&mut self) {
        if let (Some(None), Some(file)) = (self.claim.get(), self.file.get()) {
            let _ = descriptor::lock(file, nix::libc::F_UNLCK, 0, 0);
        }
    }
}

/// Runs a call that may block. The kernel completes a transfer of a ring in the thread that submitted it, and not while a call blocks
/// that thread. So if this thread has transfers in flight, another thread runs the call.
pub fn aside<T: Send>(call: impl Fn() -> T + Sync) -> T {
    #[cfg(feature = "uring")]
    if super::uring::has_submitted() && system::allowed(SystemRequest::Thread).is_ok() {
        let ran = std::thread::scope(|scope| {
            spawn_scoped(scope, "foreread-write", &call).map(ScopedJoinHandle::join)
        });
        if let Ok(done) = ran {
            return done.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
    call()
}

impl Core {
    pub(super) fn open_to_write(&self) -> Result<(), SourceError> {
        let _turn = lock(&self.writes.opening);
        if self.writes.file.get().is_some() {
            return Ok(());
        }
        let error = |errno| self.io("opening for writing", errno);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(error)?;
        let (read, written) = (rustix::fs::fstat(&self.file), rustix::fs::fstat(&file));
        let (read, written) = (read.map_err(error)?, written.map_err(error)?);
        if (read.st_dev, read.st_ino) != (written.st_dev, written.st_ino) {
            return Err(SourceError::Changed {
                what: format!("{} is another file now", self.path.display()),
            });
        }
        let _ = self.writes.file.set(file);
        Ok(())
    }

    /// Locks out other writers that check: a file by a lock of its open description, which QEMU uses as well; a device by
    /// `O_EXCL`, which mounts and other exclusive openers respect.
    pub(super) fn lock_writes(&self) -> Result<(), SourceError> {
        let _turn = lock(&self.writes.opening);
        if self.writes.claim.get().is_some() {
            return Ok(());
        }
        let file = self
            .writes
            .file
            .get()
            .ok_or_else(|| self.io("locking", Errno::BADF))?;
        if self.device {
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
            // Use the descriptor: the name may refer to another device by now.
            let path = foreread_os::open::descriptor_path(file);
            let claim = rustix::fs::open(path, flags, Mode::empty())
                .map_err(|errno| self.io("locking", errno))?;
            let _ = self.writes.claim.set(Some(claim));
            return Ok(());
        }
        let locked = descriptor::lock(file, nix::libc::F_WRLCK, 0, 0);
        locked.map_err(|errno| self.io("locking", Errno::from_raw_os_error(errno as i32)))?;
        let _ = self.writes.claim.set(None);
        Ok(())
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        let file = self
            .writes
            .file
            .get()
            .ok_or_else(|| self.io("writing", Errno::ROFS))?;
        self.begin_write(bytes.len() as u64, offset)?;
        let written = write_all(file, bytes, offset);
        let mut known = lock(&self.known);
        if self.writes.under_way.fetch_sub(1, Ordering::Relaxed) == 1
            && let Ok(Identity { mtime_ns, .. }) = self.identity_now()
        {
            known.identity.mtime_ns = mtime_ns;
        }
        drop(known);
        written.map_err(|errno| self.io("writing", errno))
    }

    /// Counts a write as in flight. Changes that another program has made until now are detected here; later, the new time
    /// would be attributed to our own write.
    fn begin_write(&self, len: u64, offset: u64) -> Result<(), SourceError> {
        loop {
            {
                let known = lock(&self.known);
                if offset
                    .checked_add(len)
                    .is_none_or(|end| end > known.identity.size)
                {
                    return Err(self.io("writing beyond the end", Errno::NOSPC));
                }
                let now = self
                    .identity_now()
                    .map_err(|errno| self.io("reading the size and modification time", errno))?;
                if now == known.identity
                    || self.writes.under_way() && now.size == known.identity.size
                {
                    self.writes.under_way.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            }
            self.same_version(Pick::default())?;
        }
    }

    pub(super) fn sync(&self) -> Result<(), SourceError> {
        let file = self
            .writes
            .file
            .get()
            .ok_or_else(|| self.io("flushing", Errno::ROFS))?;
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file))
            .map_err(|errno| self.io("flushing", errno))
    }
}
