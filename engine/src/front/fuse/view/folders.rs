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
use crate::source::tree::{Kind, Meta, too_many_bytes};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Before the names of each folder.
const DOTS: [&str; 2] = [".", ".."];

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
        let (names, seen) = (&names.names, names.seen);
        let mut given = false;
        let mut before = self.file_before(&folder, names, from.saturating_sub(DOTS.len() as u64));
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
            let path = folder.join(name);
            let listed = if dots { None } else { names.meta(index) };
            let meta = match listed {
                Some(meta) => meta,
                None if dots => self
                    .nodes()
                    .known(number)
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
                let entered =
                    self.nodes()
                        .enter_listed(&folder, (names, index), path, meta.clone(), seen);
                entered.map_err(|path| self.too_many(Errno::NFILE, &path))?
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
            if meta.kind == Kind::File {
                self.follow(before.replace(number), number);
            }
        }
        Ok(())
    }

    fn list_anew(&self, fh: u64, number: u64) -> Result<Arc<FolderListing>, KernelErrno> {
        let path = self.path_of(number)?;
        let seen = Instant::now();
        // Counted before they are kept: a hundred listings at once are within the limit together, not each.
        let names = self.tree.names(&path).map_err(|e| self.refuse_source(&e))?;
        if self.lists_versions && !self.nodes().list_names(&path, &names, seen) {
            return Err(self.too_many(Errno::OVERFLOW, &path));
        }
        let names = Arc::new(FolderListing { names, seen });
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
        self.nodes().drop_unused();
    }
}
