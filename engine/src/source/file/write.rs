//! Writing to a file: through the page cache, by a descriptor of its own.
//!
//! Direct writes would have to be aligned, and the rest of a sector read and written back, where two writers can lose each
//! other's bytes. The kernel writes out what it holds of a range before it reads the range directly, so the descriptor that
//! reads sees what this one wrote. Never: makes the file longer, or writes to another file that bears its name by now.
//!
//! ```text
//!   write: under_way + 1 ── pwrite ── under_way - 1 ── 0? the file's time is now ours: no change of version
//! ```
//!
//! What another program writes while a write of ours is under way is not noticed.

use super::{Core, Identity};
use crate::source::SourceError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What a file needs to be written.
#[derive(Default)]
pub struct Writes {
    file: OnceLock<OwnedFd>,
    opening: Mutex<()>,
    /// Changed and looked at behind the lock of the file's identity.
    under_way: AtomicU32,
}

impl Writes {
    /// To be asked behind the lock of the identity.
    pub fn under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }
}

impl Core {
    /// Opens the descriptor that writes, once.
    pub(super) fn open_to_write(&self) -> Result<(), SourceError> {
        let _turn = self.writes.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.writes.file.get().is_some() {
            return Ok(());
        }
        let error = |errno| self.io("opening for writing", errno);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(error)?;
        let (read, written) = (rustix::fs::fstat(&self.file), rustix::fs::fstat(&file));
        let (read, written) = (read.map_err(error)?, written.map_err(error)?);
        if (read.st_dev, read.st_ino) != (written.st_dev, written.st_ino) {
            return Err(SourceError::Changed { what: format!("{} is another file now", self.path.display()) });
        }
        let _ = self.writes.file.set(file);
        Ok(())
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        let file = self.writes.file.get().ok_or_else(|| self.io("writing", Errno::ROFS))?;
        {
            let known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
            if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > known.size) {
                return Err(self.io("writing beyond the end", Errno::NOSPC));
            }
            self.writes.under_way.fetch_add(1, Ordering::Relaxed);
        }
        let written = write_all(file, bytes, offset);
        let mut known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        if self.writes.under_way.fetch_sub(1, Ordering::Relaxed) == 1
            && let Ok(Identity { mtime_ns, .. }) = self.identity_now()
        {
            known.mtime_ns = mtime_ns;
        }
        drop(known);
        written.map_err(|errno| self.io("writing", errno))
    }

    pub(super) fn sync(&self) -> Result<(), SourceError> {
        let file = self.writes.file.get().ok_or_else(|| self.io("flushing", Errno::ROFS))?;
        loop {
            match rustix::fs::fdatasync(file) {
                Err(Errno::INTR) => {}
                done => return done.map_err(|errno| self.io("flushing", errno)),
            }
        }
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
