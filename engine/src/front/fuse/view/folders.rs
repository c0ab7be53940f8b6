//! Folders of a mount: handles and listings.
//!
//! When a program reads the handle of a folder from the start, it gets the folder's trusted listing, if there is one (`names.rs`), or one
//! that was requested ahead (`ahead.rs`); otherwise the folder is listed. Later reads of the handle continue in the same listing, so that
//! the program gets each name once. A memory limit applies to the total of all listings. A partial listing is never returned as if it
//! were complete.
//!
//! ```text
//!   open_folder ──► handle ──list from 0──► names, kept ──list from 128──► the rest ──► release_folder
//! ```

use super::{KernelErrno, View};
use crate::front::fuse::handles::FolderListing;
use crate::source::tree::{Kind, Meta, max_name_bytes, name_bytes, too_many};
use crate::sync::lock;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The entries before the names of each folder.
const DOTS: [&str; 2] = [".", ".."];

/// A name in a folder with its inode number, so that the kernel needs no lookup.
pub struct KnownName<'a> {
    /// The position after it.
    pub place: u64,
    pub name: &'a OsStr,
    pub number: u64,
    pub meta: &'a Meta,
    /// How long the kernel may trust it.
    pub ttl: Duration,
}

impl View {
    pub fn open_folder(&self, number: u64) -> Result<u64, KernelErrno> {
        self.path_of(number)?;
        let opened = self.hand_out(|handles, fh| drop(handles.folders.insert(fh, (number, None))));
        opened.map_err(|errno| self.refuse(errno))
    }

    /// The folder of a handle and its names; those of a new or a trusted listing if they are read from the start.
    fn listing(&self, fh: u64, from: u64) -> Result<(u64, Arc<FolderListing>), KernelErrno> {
        let known = lock(&self.handles).folders.get(&fh).cloned();
        let (number, names) = known.ok_or(Errno::BADF.raw_os_error())?;
        let names = match names {
            Some(names) if from > 0 => names,
            _ => self.list_begun(fh, number)?,
        };
        Ok((number, names))
    }

    /// Calls `each` with each name from position `from` on and with the position after the name, until `each` returns that its buffer is
    /// full. If `from` is 0, the folder is listed, unless a listing is trusted.
    pub fn list(
        &self,
        fh: u64,
        from: u64,
        mut each: impl FnMut(u64, Kind, &OsStr) -> bool,
    ) -> Result<(), KernelErrno> {
        let (_, names) = self.listing(fh, from)?;
        for place in usize::try_from(from).unwrap_or(usize::MAX).. {
            let (name, kind) = match DOTS.get(place) {
                Some(name) => (OsStr::new(name), Kind::Folder),
                None => {
                    let known = names.names.name(place - DOTS.len());
                    let Some(known) = known.zip(names.names.kind(place - DOTS.len())) else {
                        break;
                    };
                    known
                }
            };
            if !each(place as u64 + 1, kind, name) {
                break;
            }
        }
        Ok(())
    }

    /// Like [`View::list`], but with the inode number and attributes of each name. Each name counts as looked up by the kernel, unless
    /// `each` returns that its buffer is full. Both `.` and `..` are returned with the inode number of the folder, because the kernel
    /// already knows their real numbers.
    pub fn list_known(
        &self,
        fh: u64,
        from: u64,
        mut each: impl FnMut(KnownName<'_>) -> bool,
    ) -> Result<(), KernelErrno> {
        let (number, listing) = self.listing(fh, from)?;
        let (names, seen) = (&listing.names, listing.seen);
        let mut given = false;
        for place in usize::try_from(from).unwrap_or(usize::MAX).. {
            let dots = place < DOTS.len();
            let index = place.saturating_sub(DOTS.len());
            let Some(name) = DOTS
                .get(place)
                .map(OsStr::new)
                .or_else(|| names.name(index))
            else {
                break;
            };
            let path = listing.folder.join(name);
            let listed = if dots { None } else { names.meta(index) };
            let is_listed = listed.is_some();
            let meta = match listed {
                Some(meta) => meta,
                None if dots => lock(&self.nodes)
                    .known(number)
                    .map(|node| node.meta.clone())
                    .ok_or(Errno::STALE.raw_os_error())?,
                None => match self.tree.look(&path) {
                    Ok(meta) => meta,
                    // It was removed since.
                    Err(error) if error.errno() == Errno::NOENT.raw_os_error() => continue,
                    // The kernel keeps the names that it got; the next request gets the error.
                    Err(_) if given => break,
                    Err(error) => return Err(self.refuse_source(&error)),
                },
            };
            let number = match u32::try_from(index) {
                _ if dots => number,
                Ok(index) if is_listed => self.enter_by(path, |nodes, path| {
                    nodes.enter_listed(&listing, index, path, &meta)
                })?,
                _ => self.enter(path, &meta)?,
            };
            if !each(KnownName {
                place: place as u64 + 1,
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
        }
        Ok(())
    }

    /// Clears the cached answers about names. Returns whether they used a large part of the memory for names.
    fn makes_room(&self) -> bool {
        let before = name_bytes();
        lock(&self.said).forget_all();
        self.ahead.forget();
        before.saturating_sub(name_bytes()) > max_name_bytes() / 4
    }

    /// The listing of a folder for a program that begins to read it.
    fn list_begun(&self, fh: u64, number: u64) -> Result<Arc<FolderListing>, KernelErrno> {
        let folder = self.path_of(number)?;
        let is_current = |listing: &Arc<FolderListing>| self.tree.shows(&folder, &listing.names);
        let listing = if self.lists_versions {
            self.walk_on(&folder);
            let known = lock(&self.said).listing(&folder).filter(is_current);
            match known {
                Some(listing) => listing,
                None => {
                    let ahead = self.ahead.take(&folder).filter(is_current);
                    let listing = ahead.map_or_else(|| self.list_anew(&folder), Ok)?;
                    lock(&self.said).list(&listing);
                    listing
                }
            }
        } else {
            self.list_anew(&folder)?
        };
        let old = match lock(&self.handles).folders.get_mut(&fh) {
            Some((_, place)) => place.replace(Arc::clone(&listing)),
            None => None,
        };
        drop(old);
        Ok(listing)
    }

    fn list_anew(&self, folder: &Arc<Path>) -> Result<Arc<FolderListing>, KernelErrno> {
        let asked = Instant::now();
        // Counted before they are stored, so that a hundred concurrent listings are within the limit together, instead of each.
        let too_many = [Errno::OVERFLOW, Errno::TOOBIG].map(Errno::raw_os_error);
        let names = match self.tree.names(folder) {
            Err(error) if too_many.contains(&error.errno()) && self.makes_room() => {
                self.tree.names(folder)
            }
            names => names,
        };
        let names = names.map_err(|e| self.refuse_source(&e))?;
        Ok(FolderListing::ended(Arc::clone(folder), names, asked))
    }

    /// Logs that the names of a folder exceed the limit, and returns the error.
    pub(super) fn too_many(&self, errno: Errno, path: &Path) -> KernelErrno {
        self.refuse_source(&too_many(&*self.tree, path, errno))
    }

    pub fn release_folder(&self, fh: u64) {
        let gone = lock(&self.handles).folders.remove(&fh);
        drop(gone);
    }
}
