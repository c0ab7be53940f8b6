//! Eviction: the size limit, the reserve of free space, and the choice of the cached versions to evict.
//!
//! Cached versions of objects are in two queues, as in 2Q (Johnson and Shasha, VLDB 1994), but without 2Q's list of evicted names.
//! The first queue has versions that were used only by the read that fetched them; the second queue has versions that were used
//! again. While the first queue has more than a tenth of all bytes, its oldest version is evicted; otherwise the least recently
//! used version of the second queue is evicted. So a scan of a large object evicts data of other scans, but not data that is
//! reused.
//!
//! There is no list of all versions. A version's file name is a hash, so the files in each of the 256 folders are a random sample
//! of all versions. An eviction scans folders until it has found a thousand versions, and evicts some of these. In a cache of up
//! to a thousand versions, the oldest version of all is evicted. In a cache of a million versions, each folder has about 4,000,
//! and the oldest version of one folder is evicted.
//!
//! ```text
//!   no room ──► scan the next folders, up to 1,000 versions ──► still none? ──► remove the oldest
//!                └─ sets their numbers in the account                       └─ of a large one: a part of 8 MiB
//! ```
//! A writing process also scans one folder each time that it has written another 256th of the size limit. This keeps the account file (the
//! number of bytes per folder) correct.

use super::account::{Account, FOLDERS};
use super::folder::CacheFolder;
use super::hash::VersionHash;
use super::latest;
use super::names;
use super::object::{self, FoundObject, ObjectFiles, ObjectHeader};
use super::settings::DiskCacheSettings;
use super::shared::{Counts, RecentFiles};
use super::whole::WholeFile;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Number of versions that an eviction scans before it chooses.
const SAMPLE: usize = 1000;
/// An eviction frees the size limit divided by this.
const FREED_PART: u64 = 16;
/// Versions that were used once keep at least the total bytes divided by this.
const ONCE_PART: u64 = 10;
/// A version larger than the size limit divided by this is evicted in parts.
const LARGE_PART: u64 = 16;
pub const PART_BYTES: u64 = 8 << 20;
/// Maximum number of evictions for one write.
const EVICTIONS: u32 = 4;
/// The pause between two evictions for the same write.
const HELD_FOR: Duration = Duration::from_millis(1);
/// If the account is further above the limit than this, it is taken to be wrong. Several writers may exceed the limit by less.
const SUSPECT_BYTES: u64 = 64 << 20;
/// After this many written bytes, they are added to the account, and the limit is checked.
const STEP_BYTES: u64 = 512 << 10;

/// The number of bytes that this process has written but not yet added to the account file.
pub struct Evictor {
    changes: [i64; FOLDERS],
    pending: u64,
    /// Bytes written since the last folder was scanned.
    written: u64,
    next: usize,
}

impl Default for Evictor {
    fn default() -> Evictor {
        Evictor {
            changes: [0; FOLDERS],
            pending: 0,
            written: 0,
            // The start is random, so that short-lived processes do not all scan the same folders.
            next: RandomState::new().hash_one(0) as usize % FOLDERS,
        }
    }
}

/// The cache from which versions are evicted: its folder, limits, account file and open files.
pub struct Place<'a> {
    pub folder: &'a CacheFolder,
    pub account: &'a Account,
    pub settings: &'a DiskCacheSettings,
    pub counts: &'a Counts,
    pub open: &'a RecentFiles<ObjectFiles>,
    pub whole: &'a RecentFiles<WholeFile>,
}

/// Why there is no space for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The disk is full of other data.
    DiskFull,
    /// The limit is smaller than the write, or no version could be removed.
    Limit,
}

fn name_of(folder: usize) -> String {
    format!("{folder:02x}")
}

/// Versions in the order in which they are evicted.
#[derive(Default)]
struct Sample {
    once: VecDeque<FoundObject>,
    again: VecDeque<FoundObject>,
    once_bytes: u64,
    bytes: u64,
}

impl Sample {
    fn of(mut found: Vec<FoundObject>) -> Sample {
        found.sort_unstable_by_key(|object| (object.used_ns, object.hash));
        let bytes = found.iter().map(|object| object.bytes).sum();
        let (again, once): (VecDeque<_>, VecDeque<_>) =
            found.into_iter().partition(|object| object.used_again);
        Sample {
            once_bytes: once.iter().map(|object| object.bytes).sum(),
            once,
            again,
            bytes,
        }
    }

    /// Takes the next version to evict out of its queue. A version that is evicted in parts is put back by the caller.
    fn next(&mut self) -> Option<FoundObject> {
        let is_of_once = self.once_bytes > self.bytes / ONCE_PART;
        let next = is_of_once.then(|| self.once.pop_front()).flatten();
        let next = next.or_else(|| self.again.pop_front());
        next.or_else(|| self.once.pop_front())
    }

    fn freed(&mut self, object: &FoundObject, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if !object.used_again {
            self.once_bytes = self.once_bytes.saturating_sub(bytes);
        }
    }
}

impl Evictor {
    /// Records that this process has written bytes of a version.
    pub fn wrote(&mut self, hash: VersionHash, bytes: u64) {
        self.change(hash, bytes.cast_signed());
        self.pending += bytes;
        self.written += bytes;
    }

    fn change(&mut self, hash: VersionHash, bytes: i64) {
        let own = &mut self.changes[hash.folder_number()];
        *own = own.saturating_add(bytes);
    }

    /// Adds the counted bytes to the account file, which all processes share.
    pub fn settle(&mut self, account: &Account) {
        if self.changes.iter().any(|change| *change != 0) {
            account.add(&self.changes);
        }
        self.changes = [0; FOLDERS];
        self.pending = 0;
    }

    /// Evicts versions, if needed, so that `bytes` more can be written. The size limit is checked only from time to time, so each
    /// writing process may exceed the limit by [`STEP_BYTES`].
    ///
    /// # Errors
    /// Returns an error if not enough space can be freed.
    pub fn make_room(&mut self, place: &Place<'_>, bytes: u64) -> Result<(), NoRoom> {
        if self.pending + bytes < STEP_BYTES.min(place.settings.size_bytes / 16) && self.pending > 0
        {
            return Ok(());
        }
        self.settle(place.account);
        // Small writes that follow are not checked.
        self.pending = 1;
        if self.written >= place.settings.size_bytes / FOLDERS as u64 {
            self.written = 0;
            self.look(place);
        }
        let limit = place.settings.size_bytes;
        if bytes > limit {
            return Err(NoRoom::Limit);
        }
        let mut lacking = Evictor::lacking(place, bytes)?;
        if lacking.0 > SUSPECT_BYTES.max(limit / 8) {
            // Writers never exceed the limit by that much, so the account must be wrong: scan all folders.
            (0..FOLDERS).for_each(|_| drop(self.look(place)));
            lacking = Evictor::lacking(place, bytes)?;
        }
        // Several attempts: a scan may find more bytes than the account had, and a reader may keep removed files open for a moment.
        for time in 0..EVICTIONS {
            if time > 0 {
                std::thread::sleep(HELD_FOR);
                lacking = Evictor::lacking(place, bytes)?;
            }
            let (over, short) = lacking;
            if over.max(short) == 0 {
                return Ok(());
            }
            let held = place.account.bytes();
            let wanted = over.max(short).max((limit / FREED_PART).min(held / 2));
            self.evict(place, wanted, &mut |place| {
                Evictor::lacking(place, bytes).is_ok_and(|(over, short)| over.max(short) == 0)
            });
        }
        match Evictor::lacking(place, bytes)? {
            (0, 0) => Ok(()),
            (_, 0) => Err(NoRoom::Limit),
            _ => Err(NoRoom::DiskFull),
        }
    }

    /// Returns how far writing `bytes` more would exceed the limit, and how far it would eat into the free-space reserve.
    fn lacking(place: &Place<'_>, bytes: u64) -> Result<(u64, u64), NoRoom> {
        let (free, total) = place.folder.free_bytes().map_err(|_| NoRoom::DiskFull)?;
        let reserve = place.settings.free.of(total);
        let held = place.account.bytes().saturating_add(bytes);
        let over = held.saturating_sub(place.settings.size_bytes);
        Ok((over, reserve.saturating_add(bytes).saturating_sub(free)))
    }

    /// Evicts some versions because the disk was full although the limit was not reached. Returns true if there may be free space
    /// now.
    pub fn refused(&mut self, place: &Place<'_>, bytes: u64) -> bool {
        self.settle(place.account);
        let wanted = bytes.max(place.account.bytes() / 64);
        self.evict(place, wanted, &mut |_| false) >= bytes.min(wanted)
    }

    /// Removes versions until the cache is within its limit, or until `goes_on` returns false. `goes_on` is called with the
    /// number of bytes that are still in the cache. Returns the number of bytes that are left at the end.
    pub fn trim(&mut self, place: &Place<'_>, goes_on: &mut dyn FnMut(u64) -> bool) -> u64 {
        for _ in 0..FOLDERS {
            self.look(place);
        }
        loop {
            let held = place.account.bytes();
            let over = held.saturating_sub(place.settings.size_bytes);
            if over == 0 || !goes_on(held) || self.evict(place, over, &mut |_| false) == 0 {
                return place.account.bytes();
            }
        }
    }

    /// Scans the next folder and sets its number in the account.
    fn look(&mut self, place: &Place<'_>) -> Vec<FoundObject> {
        let folder = self.next % FOLDERS;
        self.next = folder + 1;
        if folder == 0 {
            latest::clean(place.folder);
            names::trim_to(place.folder, u64::MAX);
        }
        let Ok((found, mut bytes)) = object::found(place.folder, &name_of(folder)) else {
            return Vec::new();
        };
        // Folders use disk space, too. A folder that is no longer empty is not removed.
        if found.is_empty() && place.folder.remove_folder(&name_of(folder)).is_ok() {
            bytes = 0;
        }
        place.account.set(folder, bytes);
        self.changes[folder] = 0;
        found
    }

    /// Removes versions of `wanted` bytes, or fewer if there are no more. Does nothing if the first scan shows that there `is_enough` room.
    /// Returns the bytes removed.
    fn evict(
        &mut self,
        place: &Place<'_>,
        wanted: u64,
        is_enough: &mut dyn FnMut(&Place<'_>) -> bool,
    ) -> u64 {
        let (mut freed, mut looked) = (0, 0);
        while freed < wanted && looked < FOLDERS {
            let mut found = Vec::new();
            while found.len() < SAMPLE && looked < FOLDERS {
                found.extend(self.look(place));
                looked += 1;
            }
            // The scan has corrected the account, and there is room after all.
            if freed == 0 && is_enough(place) {
                return 0;
            }
            let mut sample = Sample::of(found);
            // Evict at most half of a partial sample, so that its oldest versions are compared with the next sample.
            let most = if looked < FOLDERS {
                sample.bytes / 2
            } else {
                sample.bytes
            };
            let until = freed + most.min(wanted - freed);
            while freed < until {
                let Some(mut object) = sample.next() else {
                    break;
                };
                let (bytes, is_gone) = Evictor::take(place, &object);
                sample.freed(&object, bytes);
                freed += bytes;
                self.change(object.hash, -bytes.cast_signed());
                if !is_gone {
                    object.bytes = object.bytes.saturating_sub(bytes);
                    let queue = if object.used_again {
                        &mut sample.again
                    } else {
                        &mut sample.once
                    };
                    queue.push_front(object);
                }
            }
            self.settle(place.account);
        }
        if freed > 0 {
            place.open.retain(ObjectFiles::is_linked);
            place.whole.retain(|file| file.files.is_linked());
        }
        freed
    }

    /// Removes a version, or a part of a large version. Returns the bytes, and whether the version is done with: removed, or not removable.
    fn take(place: &Place<'_>, object: &FoundObject) -> (u64, bool) {
        let is_large =
            object.bytes > place.settings.size_bytes / LARGE_PART && object.bytes > PART_BYTES;
        let part = is_large
            .then(|| give_part(place.folder, object.hash))
            .flatten();
        if let Some(bytes) = part {
            Counts::add(&place.counts.evicted, 1);
            Counts::add(&place.counts.evicted_bytes, bytes);
            return (bytes, false);
        }
        match object::remove(place.folder, object.hash) {
            Ok(()) => {
                Counts::add(&place.counts.evicted, 1);
                Counts::add(&place.counts.evicted_bytes, object.bytes);
                (object.bytes, true)
            }
            Err(_) => (0, true),
        }
    }
}

fn give_part(folder: &CacheFolder, hash: VersionHash) -> Option<u64> {
    let size = ObjectHeader::open(folder, hash).ok()?.size;
    ObjectFiles::open(folder, hash, size)
        .ok()?
        .give_part(PART_BYTES)
}

/// Updates the number of bytes of a version's folder in the account file, after a user's command has removed files of the version.
pub fn recount(folder: &CacheFolder, hash: VersionHash) -> Result<(), Errno> {
    let number = hash.folder_number();
    let (_, bytes) = object::found(folder, &name_of(number))?;
    Account::open(folder)?.set(number, bytes);
    Ok(())
}

/// Returns all versions, folder by folder, and the number of folders that cannot be read.
pub fn all(folder: &CacheFolder) -> (Vec<FoundObject>, u64) {
    let (mut all, mut unreadable) = (Vec::new(), 0);
    for number in 0..FOLDERS {
        match object::found(folder, &name_of(number)) {
            Ok((found, _)) => all.extend(found),
            Err(Errno::NOENT) => {}
            Err(_) => unreadable += 1,
        }
    }
    (all, unreadable)
}
