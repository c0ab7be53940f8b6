//! The `read_ahead_kb` of a disk while `watch` has it: locked, guarded, and put back at the end.
//!
//! The lock (flock on the file of the setting) keeps two watchers from one disk. Dropped, it puts the old value back, unless something
//! else has changed it meanwhile.

use super::guard::Guard;
use super::not_writable;
use foreread_os::failure::Failure;
use foreread_os::host::devices::{read_setting, write_setting};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Setting {
    path: PathBuf,
    old: u64,
    /// The value that we have set.
    ours: Option<u64>,
    lock: File,
    guard: Option<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// Nothing was changed, or it was changed back.
    Old(u64),
    /// Something else has set this one.
    Foreign(u64),
    /// The old value could not be written, or the disk is gone.
    Failed,
}

impl Setting {
    /// Takes it; `changes` where it will be written.
    ///
    /// # Errors
    /// It cannot be written, or another process has it.
    pub fn take(path: &Path, changes: bool) -> Result<Setting, Failure> {
        let opened = OpenOptions::new().read(true).write(changes).open(path);
        let lock = opened.map_err(|error| not_writable(path, error))?;
        if changes && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Failure::input(
                "another 'foreread watch' has it",
                path.display(),
                "end that one first",
            ));
        }
        let old = read_setting(path).map_err(|error| not_writable(path, error))?;
        Ok(Setting {
            path: path.to_path_buf(),
            old,
            ours: None,
            lock,
            guard: None,
        })
    }

    pub fn old(&self) -> u64 {
        self.old
    }

    pub fn now(&self) -> std::io::Result<u64> {
        read_setting(&self.path)
    }

    /// Sets a value; gives the one that the kernel made of it. Without a guard nothing is set.
    pub fn set(&mut self, value: u64) -> std::io::Result<u64> {
        let announced = self
            .guard
            .as_mut()
            .is_some_and(|guard| guard.announce(value).is_ok());
        if !announced {
            let mut guard = Guard::start(&self.path, self.old, &self.lock)?;
            // A guard that was killed knew what is set.
            self.ours.map_or(Ok(()), |ours| guard.announce(ours))?;
            guard.announce(value)?;
            self.guard = Some(guard);
        }
        write_setting(&self.path, value)?;
        let now = self.now()?;
        if now != value
            && let Some(guard) = &mut self.guard
        {
            guard.announce(now)?;
        }
        self.ours = Some(now);
        Ok(now)
    }

    /// Puts the old value back.
    pub fn end(mut self) -> AtEnd {
        self.put_back()
    }

    fn put_back(&mut self) -> AtEnd {
        let end = match (self.ours.take(), self.now()) {
            (_, Err(_)) => AtEnd::Failed,
            (None, Ok(now)) if now == self.old => AtEnd::Old(now),
            (Some(ours), Ok(now)) if now == ours => match write_setting(&self.path, self.old) {
                Ok(()) => AtEnd::Old(self.old),
                Err(_) => AtEnd::Failed,
            },
            (_, Ok(now)) => AtEnd::Foreign(now),
        };
        if let Some(guard) = self.guard.take() {
            guard.done();
        }
        end
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.put_back();
    }
}
