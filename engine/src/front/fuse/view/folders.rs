//! Folders of a mount: handles and listings.
//!
//! A folder is listed when its handle is read from the start, and read on from that listing, so that a program gets each name once. The bytes
//! of all listings together have a limit. Never: gives part of a folder as if it were all of it.
//!
//! ```text
//!   open_folder ──► handle ──list from 0──► names, kept ──list from 128──► the rest ──► release_folder
//! ```

use super::{KernelErrno, View};
use crate::front::fuse::handles::FolderListing;
use crate::source::SourceError;
use crate::source::tree::{Entry, Kind, Meta, too_many_bytes};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A name of a folder with its number, for the kernel to know without a look-up.
pub struct KnownName<'a> {
    /// The place behind it.
    pub place: u64,
    pub name: &'a OsStr,
    pub number: u64,
    pub meta: &'a Meta,
    /// How long it may be believed.
    pub ttl: Duration,
}

impl View {
    pub fn open_folder(&self, number: u64) -> Result<u64, KernelErrno> {
        self.path_of(number)?;
        let opened = self.hand_out(|handles, fh| drop(handles.folders.insert(fh, (number, None))));
        opened.map_err(|errno| self.refuse(errno))
    }

    /// Calls `each` with the names from place `from` on, with the place after each, until it says that there is no more
    /// room. From place 0 the folder is listed anew.
    pub fn list(
        &self,
        fh: u64,
        from: u64,
        mut each: impl FnMut(u64, Kind, &OsStr) -> bool,
    ) -> Result<(), KernelErrno> {
        let known = self.handles().folders.get(&fh).cloned();
        let (number, names) = known.ok_or(Errno::BADF.raw_os_error())?;
        let names = match names {
            Some(names) if from > 0 => names,
            _ => self.list_anew(fh, number)?,
        };
        for (place, entry) in names
            .entries
            .iter()
            .enumerate()
            .skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            if !each(place as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        Ok(())
    }

    /// The same with what is known of each name, which is counted as told to the kernel unless `each` says that there is no
    /// room for it. `.` and `..` have the number of the folder: the kernel knows theirs.
    pub fn list_known(
        &self,
        fh: u64,
        from: u64,
        mut each: impl FnMut(KnownName<'_>) -> bool,
    ) -> Result<(), KernelErrno> {
        let known = self.handles().folders.get(&fh).cloned();
        let (number, names) = known.ok_or(Errno::BADF.raw_os_error())?;
        let names = match names {
            Some(names) if from > 0 => names,
            _ => self.list_anew(fh, number)?,
        };
        let folder = self.path_of(number)?;
        let (entries, seen) = (&names.entries, names.seen);
        let mut given = false;
        let mut before = self.file_before(&folder, entries, from);
        for (place, entry) in entries
            .iter()
            .enumerate()
            .skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            let (place, name) = (place as u64 + 1, entry.name.as_os_str());
            let dots = name == "." || name == "..";
            let path = folder.join(name);
            let meta = match &entry.meta {
                Some(meta) => meta.clone(),
                None if dots => self
                    .nodes()
                    .get(number)
                    .map(|node| node.meta.clone())
                    .ok_or(Errno::STALE.raw_os_error())?,
                None => match self.tree.look(&path) {
                    Ok(meta) => meta,
                    // It is gone since.
                    Err(error) if error.errno() == Errno::NOENT.raw_os_error() => continue,
                    // The kernel keeps the names that it has; asked again it gets the error.
                    Err(_) if given => break,
                    Err(error) => return Err(self.refuse_source(&error)),
                },
            };
            let number = if dots {
                number
            } else {
                self.enter(path, meta.clone(), seen)?
            };
            if !each(KnownName {
                place,
                name,
                number,
                meta: &meta,
                ttl: self.left(seen),
            }) {
                if !dots {
                    self.forget(number, 1);
                }
                break;
            }
            given = true;
            if meta.kind == Kind::File {
                self.follow(before.replace(number), number);
            }
        }
        Ok(())
    }

    fn list_anew(&self, fh: u64, number: u64) -> Result<Arc<FolderListing>, KernelErrno> {
        let path = self.path_of(number)?;
        let mut names = FolderListing::new(Instant::now());
        // Counted before they are kept: a hundred listings at once are within the limit together, not each.
        let mut whole = [".", ".."]
            .into_iter()
            .all(|name| names.push(Entry::new(name, Kind::Folder)));
        let listed = self.tree.list(&path, &mut |entry| {
            whole = whole && names.push(entry);
            whole
        });
        listed.map_err(|e| self.refuse_source(&e))?;
        if !whole {
            // Part of a folder that looks like all of it would be a lie.
            return Err(self.too_many(Errno::OVERFLOW, &path));
        }
        let names = Arc::new(names);
        let old = match self.handles().folders.get_mut(&fh) {
            Some((_, place)) => place.replace(Arc::clone(&names)),
            None => None,
        };
        drop(old);
        Ok(names)
    }

    /// Names that do not fit, which is logged.
    pub(super) fn too_many(&self, errno: Errno, path: &Path) -> KernelErrno {
        let what = format!(
            "{}: {}: {}",
            self.tree.describe(),
            path.display(),
            too_many_bytes()
        );
        self.refuse_source(&SourceError::Io {
            errno: errno.raw_os_error(),
            what,
        })
    }

    pub fn release_folder(&self, fh: u64) {
        let gone = self.handles().folders.remove(&fh);
        drop(gone);
    }
}
