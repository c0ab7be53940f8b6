//! Folders of a mount: handles and listings.
//!
//! A folder is listed when its handle is read from the start, and read on from that listing, so that a program gets each name once. Names
//! of all listings together have a limit. Never: gives part of a folder as if it were all of it.
//!
//! ```text
//!   open_folder ──► handle ──list from 0──► names, kept ──list from 128──► the rest ──► release_folder
//! ```

use super::{Refusal, View};
use crate::front::fuse::handles::{Counted, Names};
use crate::source::tree::{Entry, Kind, Meta};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A name of a folder with its number, for the kernel to know without a look-up.
pub struct Known<'a> {
    /// The place behind it.
    pub place: u64,
    pub name: &'a OsStr,
    pub number: u64,
    pub meta: &'a Meta,
    /// How long it may be believed.
    pub ttl: Duration,
}

impl View {
    pub fn open_folder(&self, number: u64) -> Result<u64, Refusal> {
        self.path_of(number)?;
        let opened = self.hand_out(|handles, fh| drop(handles.folders.insert(fh, (number, None))));
        opened.map_err(|errno| self.refuse(errno))
    }

    /// Calls `each` with the names from place `from` on, with the place after each, until it says that there is no more
    /// room. From place 0 the folder is listed anew.
    pub fn list(&self, fh: u64, from: u64, mut each: impl FnMut(u64, Kind, &OsStr) -> bool) -> Result<(), Refusal> {
        let known = self.handles().folders.get(&fh).cloned();
        let (number, names) = known.ok_or(Errno::BADF.raw_os_error())?;
        let names = match names {
            Some(names) if from > 0 => names,
            _ => self.list_anew(fh, number)?,
        };
        for (place, entry) in names.0.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if !each(place as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        Ok(())
    }

    /// The same with what is known of each name, which is counted as told to the kernel unless `each` says that there is no
    /// room for it. `.` and `..` have the number of the folder: the kernel knows theirs.
    pub fn list_known(&self, fh: u64, from: u64, mut each: impl FnMut(Known<'_>) -> bool) -> Result<(), Refusal> {
        let known = self.handles().folders.get(&fh).cloned();
        let (number, names) = known.ok_or(Errno::BADF.raw_os_error())?;
        let names = match names {
            Some(names) if from > 0 => names,
            _ => self.list_anew(fh, number)?,
        };
        let folder = self.path_of(number)?;
        let (entries, seen) = (&names.0, names.1);
        let mut given = false;
        let mut before = self.file_before(&folder, &names.0, from);
        for (place, entry) in entries.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            let (place, name) = (place as u64 + 1, entry.name.as_os_str());
            let dots = name == "." || name == "..";
            let path = folder.join(name);
            let meta = match &entry.meta {
                Some(meta) => meta.clone(),
                None if dots => {
                    self.nodes().get(number).map(|node| node.meta.clone()).ok_or(Errno::STALE.raw_os_error())?
                }
                None => match self.tree.look(&path) {
                    Ok(meta) => meta,
                    // It is gone since.
                    Err(error) if error.errno() == Errno::NOENT.raw_os_error() => continue,
                    // The kernel keeps the names that it has; asked again it gets the error.
                    Err(_) if given => break,
                    Err(error) => return Err(self.refuse_source(&error)),
                },
            };
            let entered = if dots { Some(number) } else { self.nodes().enter(path, meta.clone(), seen) };
            let number = entered.ok_or_else(|| self.refuse(Errno::NFILE.raw_os_error()))?;
            if !each(Known { place, name, number, meta: &meta, ttl: self.left(seen) }) {
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

    fn list_anew(&self, fh: u64, number: u64) -> Result<Names, Refusal> {
        let path = self.path_of(number)?;
        let mut names = vec![Entry::new(".", Kind::Folder), Entry::new("..", Kind::Folder)];
        // Counted before they are kept: a hundred listings at once are within the limit together, not each.
        let mut counted = Counted::new(&self.handles);
        let mut whole = counted.room_for(names.len());
        let asked = Instant::now();
        let listed = self.tree.list(&path, &mut |entry| {
            whole = whole && counted.room_for(names.len() + 1);
            if whole {
                names.push(entry);
            }
            whole
        });
        listed.map_err(|e| self.refuse_source(&e))?;
        if !whole {
            // Part of a folder that looks like all of it would be a lie.
            return Err(self.refuse(Errno::OVERFLOW.raw_os_error()));
        }
        let count = names.len();
        let names: Names = Arc::new((names, asked));
        let mut handles = self.handles();
        if let Some((_, place)) = handles.folders.get_mut(&fh) {
            let before = place.replace(Arc::clone(&names)).map_or(0, |old| old.0.len());
            handles.names = handles.names + count - before;
        }
        drop(handles);
        Ok(names)
    }

    pub fn release_folder(&self, fh: u64) {
        let mut handles = self.handles();
        if let Some((_, Some(names))) = handles.folders.remove(&fh) {
            handles.names -= names.0.len();
        }
    }
}
