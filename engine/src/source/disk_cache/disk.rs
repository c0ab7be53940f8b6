//! The local tier of the cache: a folder on this machine, with its files, its claims (locks between processes) and its size limits.

use super::account::Account;
use super::claims::{Claim, Claims};
use super::evict::{Evictor, NoRoom, Place};
use super::folder::CacheFolder;
use super::hash::BLOCK_BYTES;
use super::latest;
use super::names::ListingsRoom;
use super::object::{self, Fault, LARGE_BYTES, MAX_BLOCKS, ObjectFiles, SMALL_BYTES};
use super::settings::DiskCacheSettings;
use super::shared::{CachedVersion, Counts, RecentFiles, TierState, errno_text};
use super::tier::{Note, Part, Tier};
use super::whole::{self, WholeFile};
use crate::source::sinks::FillPlace;
use crate::source::{ExactVersion, SourceOpenError};
use crate::sync::lock;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Number of whole files (see `whole.rs`) that stay open for the next open.
const MAX_WHOLE: usize = 16;
/// Number of complete versions that wait to be noted. More of them are verified when they are opened.
const MAX_UNSYNCED: usize = 64;
/// If a cached gap between two absent ranges is shorter than this, it is fetched with them. A second request would cost a round trip, in
/// which the server can send more than the gap.
const SPLIT_BYTES: u64 = 256 << 10;

pub struct DiskTier {
    pub settings: DiskCacheSettings,
    opened: RwLock<Arc<OpenFolder>>,
    state: TierState,
    /// Files that the kernel has read.
    whole: RecentFiles<WholeFile>,
    /// Complete versions of which parts were written through the page cache. They are noted when nothing else is to be written.
    unsynced: Mutex<Vec<Arc<ObjectFiles>>>,
    evictor: Mutex<Evictor>,
    listings: Mutex<ListingsRoom>,
}

/// The cache's folder, with two files in it that this process has open: the account file (bytes per subfolder), and the lock file for
/// claims on ranges.
pub struct OpenFolder {
    pub folder: CacheFolder,
    /// `None` if the folder is read-only; the cache is then only read.
    writable: Option<(Account, Claims)>,
}

impl OpenFolder {
    fn open(settings: &DiskCacheSettings) -> Result<(OpenFolder, Option<Errno>), SourceOpenError> {
        let folder = CacheFolder::open(settings)?;
        let files = Account::open(&folder)
            .and_then(|account| Claims::open(&folder).map(|claims| (account, claims)));
        let refused = files.as_ref().err().copied();
        let writable = files.ok();
        Ok((OpenFolder { folder, writable }, refused))
    }
}

impl DiskTier {
    pub fn open(settings: DiskCacheSettings) -> Result<DiskTier, SourceOpenError> {
        let (opened, refused) = OpenFolder::open(&settings)?;
        let name = format!("disk cache {}", settings.dir.display());
        if let Some(errno) = refused {
            let why = errno_text(errno);
            tracing::warn!("{name}: it is read-only ({why}); cached data is still read");
        }
        Ok(DiskTier {
            settings,
            opened: RwLock::new(Arc::new(opened)),
            state: TierState::new(name),
            whole: RecentFiles::new(MAX_WHOLE),
            unsynced: Mutex::default(),
            evictor: Mutex::default(),
            listings: Mutex::default(),
        })
    }

    pub fn opened(&self) -> Arc<OpenFolder> {
        Arc::clone(&self.opened.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the folder again after it was removed, and creates it.
    fn open_again(&self) -> bool {
        let Ok((opened, _)) = OpenFolder::open(&self.settings) else {
            return false;
        };
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened);
        true
    }

    /// Total bytes on disk, including those written by other processes; `None` if not known.
    pub fn bytes(&self) -> Option<u64> {
        let opened = self.opened();
        opened.writable.as_ref().map(|(account, _)| account.bytes())
    }

    /// Removes versions until the cache is within its limit; used by `foreread cache trim`. Returns `None` if the folder is read-only.
    pub fn trim(&self, goes_on: &mut dyn FnMut(u64) -> bool) -> Option<u64> {
        let opened = self.opened();
        let place = self.place(&opened)?;
        Some(lock(&self.evictor).trim(&place, goes_on))
    }

    fn place<'a>(&'a self, opened: &'a OpenFolder) -> Option<Place<'a>> {
        let (account, _) = opened.writable.as_ref()?;
        Some(Place {
            folder: &opened.folder,
            account,
            settings: &self.settings,
            counts: &self.state.counts,
            open: &self.state.open,
            whole: &self.whole,
        })
    }

    // ---- files ----

    fn files(&self, version: &CachedVersion) -> Result<Arc<ObjectFiles>, Fault> {
        let (open, hash) = (&self.state.open, version.hash);
        match open.get(hash) {
            Some(files) if files.is_current() => return Ok(files),
            Some(_) => open.close(hash),
            None => {}
        }
        let files = ObjectFiles::open(&self.opened().folder, hash, version.size)?;
        // The writer may have put its own meanwhile, which know whether it has written all of them.
        let by_writer = open.get(hash);
        Ok(by_writer.unwrap_or_else(|| open.put(hash, files)))
    }

    /// Like [`DiskTier::files`], but for writing: missing files are created. Also returns the disk space that the created files use.
    fn files_to_write(
        &self,
        opened: &OpenFolder,
        version: &CachedVersion,
    ) -> Result<(Arc<ObjectFiles>, u64), Errno> {
        let known = self.state.open.get(version.hash);
        if let Some(files) = known.filter(|files| files.is_written()) {
            return Ok((files, 0));
        }
        let (folder, about) = (&opened.folder, version.about());
        let (files, made) = ObjectFiles::make(folder, version.hash, version.size, &about)?;
        Ok((self.state.open.put(version.hash, files), made))
    }

    /// Removes an invalid block, or an invalid version.
    fn remove_wrong(
        &self,
        version: &CachedVersion,
        files: Option<&ObjectFiles>,
        block: Option<u64>,
    ) {
        Counts::add(&self.state.counts.wrong, 1);
        if let (Some(files), Some(block)) = (files, block)
            && files.forget(block, 1).is_ok()
        {
            return;
        }
        // A write repairs the version, too, and must not lose its files to this removal.
        let Ok(_no_write) = self.evictor.try_lock() else {
            return;
        };
        let opened = self.opened();
        let files = ObjectFiles::open(&opened.folder, version.hash, version.size);
        if matches!(files, Err(Fault::Wrong(_))) {
            let _ = object::remove(&opened.folder, version.hash);
        }
    }

    /// Returns the version of this object that was read last. Returns `None` if the first bytes of that version are not on the
    /// disk.
    pub fn latest(&self, source: &str, shown: &str, first_bytes: u64) -> Option<String> {
        if !self.state.reads.is_on() {
            return None;
        }
        let text = latest::read(&self.opened().folder, source)?;
        let size: u64 = text.rsplit_once(' ')?.1.parse().ok()?;
        let exact = ExactVersion {
            source: source.to_string(),
            version: text.clone(),
            shown: shown.to_string(),
        };
        let version = self.state.version(exact, size);
        let end = first_bytes.min(size);
        let is_here = matches!(self.next(&version, &(0..end)), Part::Here(to, _) if to == end);
        (is_here && !self.passes_over(&version, end)).then_some(text)
    }

    /// Returns the most bytes that the cache may have, as far as the free space of the disk is concerned.
    pub fn most_bytes(&self) -> u64 {
        let opened = self.opened();
        let (Some((account, _)), Ok((free, total))) =
            (&opened.writable, opened.folder.free_bytes())
        else {
            return u64::MAX;
        };
        let free = free.saturating_sub(self.settings.free.of(total));
        account.bytes().saturating_add(free)
    }

    pub fn missing(&self, exact: ExactVersion, size: u64) -> Vec<Range<u64>> {
        let version = self.state.version(exact, size);
        let (mut at, mut missing) = (0, Vec::new());
        while at < size {
            at = match self.next(&version, &(at..size)) {
                Part::Here(end, _) => end,
                Part::Store(end) => {
                    missing.push(at..end);
                    end
                }
            };
        }
        missing
    }

    /// Writes blocks after room was made for them.
    fn put(
        &self,
        evictor: &mut Evictor,
        version: &Arc<CachedVersion>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let mut put = || {
            let opened = self.opened();
            if version.size <= LARGE_BYTES && bytes.len() as u64 == version.size {
                let (folder, about) = (&opened.folder, version.about());
                match ObjectFiles::create(folder, version.hash, bytes, &about) {
                    Err(Errno::EXIST) => {}
                    created => {
                        let (files, made) = created?;
                        self.state.open.put(version.hash, files);
                        evictor.wrote(version.hash, made);
                        return Ok(());
                    }
                }
            }
            let (files, made) = self.files_to_write(&opened, version)?;
            evictor.wrote(version.hash, made);
            evictor.wrote(version.hash, files.write(offset, bytes)?);
            let mut unsynced = lock(&self.unsynced);
            match (files.is_own(), files.is_unsynced()) {
                (true, false) => whole::note(&files),
                (true, true) if unsynced.len() < MAX_UNSYNCED => unsynced.push(files),
                _ => {}
            }
            Ok(())
        };
        match put() {
            // The cache's folder was removed.
            Err(Errno::NOENT | Errno::STALE) if self.open_again() => {
                self.state.open.close(version.hash);
                put()
            }
            done => done,
        }
    }
}

impl Tier for DiskTier {
    fn state(&self) -> &TierState {
        &self.state
    }

    fn next(&self, version: &Arc<CachedVersion>, range: &Range<u64>) -> Part {
        let first = range.start / BLOCK_BYTES;
        let count = range.end.div_ceil(BLOCK_BYTES) - first;
        let sums = match self
            .files(version)
            .and_then(|files| files.sums(first, count))
        {
            Ok(sums) => sums,
            Err(fault) => {
                match fault {
                    Fault::NoFile | Fault::Absent => {}
                    Fault::Io(errno) => self.state.read_failed(errno),
                    Fault::Wrong(_) => self.remove_wrong(version, None, None),
                }
                return Part::Store(range.end);
            }
        };
        if sums.is_empty() {
            return Part::Store(range.end);
        }
        let end_of = |blocks: usize| {
            let is_limited = count > MAX_BLOCKS && blocks == sums.len();
            let end = (first + blocks as u64) * BLOCK_BYTES;
            if is_limited { end } else { end.min(range.end) }
        };
        let (mut at, mut end) = (0, 0);
        for run in sums.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            match run {
                [0, ..] => end = at + run.len(),
                _ if at == 0 => return Part::Here(end_of(run.len()), run.to_vec()),
                _ if run.len() as u64 * BLOCK_BYTES >= SPLIT_BYTES => break,
                _ => {}
            }
            at += run.len();
        }
        Part::Store(end_of(end))
    }

    fn read(
        &self,
        version: &Arc<CachedVersion>,
        sums: &[u64],
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), Fault> {
        let files = self.files(version)?;
        let from = place.at;
        let done = files.read(sums, place, end);
        Counts::add(&self.state.counts.hit_bytes, place.at - from);
        match done {
            Err(Fault::Wrong(block)) => {
                // Whether the block is unchanged: not evicted and not rewritten meanwhile.
                let is_same = |block: u64| {
                    let was = sums.get((block - from / BLOCK_BYTES) as usize);
                    files.sums(block, 1).is_ok_and(|now| now.first() == was)
                };
                if !files.is_linked() {
                    self.state.open.close(version.hash);
                } else if block.is_none_or(is_same) {
                    self.remove_wrong(version, Some(&files), block);
                }
            }
            Err(fault) => {
                self.state.open.close(version.hash);
                if let Fault::Io(errno) = fault {
                    self.state.read_failed(errno);
                }
            }
            Ok(()) => {}
        }
        done
    }

    fn is_use_due(&self, version: &CachedVersion) -> bool {
        let files = self.state.open.get(version.hash);
        files.is_some_and(|files| files.is_due())
    }

    fn passes_over(&self, version: &CachedVersion, bytes: u64) -> bool {
        // If several processes read the version at the same time, each would fetch these bytes again.
        !self.settings.reads_slow_disk
            && !version.is_shared.load(Ordering::Relaxed)
            && self.state.speeds.passes_over_disk(bytes)
    }

    fn claim(&self, version: &Arc<CachedVersion>, bytes: &Range<u64>) -> Claim {
        let opened = self.opened();
        let claims = opened.writable.as_ref().map(|(_, claims)| claims);
        claims.map_or(Claim::Unknown, |claims| claims.take(version.hash, bytes))
    }

    fn give_back(&self, version: &CachedVersion, bytes: &Range<u64>) {
        if let Some((_, claims)) = &self.opened().writable {
            claims.give_back(version.hash, bytes);
        }
    }

    fn is_writing(&self) -> bool {
        self.state.writes.is_on() && self.opened().writable.is_some()
    }

    fn write(&self, version: &Arc<CachedVersion>, offset: u64, bytes: &[u8]) -> bool {
        let opened = self.opened();
        let Some(place) = self.place(&opened) else {
            return false;
        };
        let mut evictor = lock(&self.evictor);
        let len = (bytes.len() as u64).next_multiple_of(BLOCK_BYTES);
        if let Err(why) = evictor.make_room(&place, len) {
            let is_disk_full = why == NoRoom::DiskFull;
            let why = match why {
                NoRoom::DiskFull => "the disk has no space beyond the reserve",
                NoRoom::Limit => "the cache has reached its size limit",
            };
            self.state.no_room(why, is_disk_full);
            return false;
        }
        let mut done = self.put(&mut evictor, version, offset, bytes);
        let is_full = |errno| matches!(errno, Errno::NOSPC | Errno::DQUOT);
        if done.is_err_and(is_full) && evictor.refused(&place, len) {
            done = self.put(&mut evictor, version, offset, bytes);
        }
        drop(evictor);
        if let Err(errno) = done {
            let why = errno_text(errno);
            match is_full(errno) {
                true => self.state.no_room(&why, true),
                false => self.state.write_failed(&why),
            }
            return false;
        }
        self.state.wrote(bytes.len() as u64);
        if offset == 0 && version.is_named.load(Ordering::Relaxed) {
            let _ = latest::write(&opened.folder, version);
        }
        true
    }

    fn whole(
        &self,
        version: &CachedVersion,
        verify: Option<&dyn Fn() -> bool>,
    ) -> Option<Arc<WholeFile>> {
        if version.size <= SMALL_BYTES || !self.state.reads.is_on() {
            return None;
        }
        let known = self.whole.get(version.hash);
        if let Some(file) = known.filter(|file| file.files.is_linked()) {
            return Some(file);
        }
        let opened = self.opened();
        match WholeFile::open(&opened.folder, version.hash, version.size, verify) {
            Ok(file) => {
                Counts::add(&self.state.counts.verified, u64::from(file.is_verified));
                Some(self.whole.put(version.hash, file))
            }
            Err(Fault::Wrong(block)) => {
                let files = ObjectFiles::open(&opened.folder, version.hash, version.size);
                self.remove_wrong(version, files.as_ref().ok(), block);
                None
            }
            Err(_) => None,
        }
    }

    /// Without a note, later opens and mounts work as without a cache.
    fn take_note(&self, note: &Note) {
        let opened = self.opened();
        let folder = &opened.folder;
        let done = match note {
            Note::Use(version) => {
                // If the file is gone, the version was evicted. A version that the kernel reads was not opened here.
                let _ = self.files(version).map(|files| files.note_use());
                Ok(())
            }
            _ if !self.is_writing() => Ok(()),
            Note::Latest(version) => {
                // If the version is not on disk yet, it is noted when its first bytes are written.
                if object::is_there(folder, version.hash) {
                    latest::write(folder, version)
                } else {
                    Ok(())
                }
            }
            Note::Names(listing) => lock(&self.listings).write(folder, &self.settings, listing),
        };
        if let Err(errno) = done {
            tracing::debug!(
                "cannot write a listing or a latest version to the disk cache: {errno}"
            );
        }
    }

    fn settle(&self) {
        if let Some((account, _)) = &self.opened().writable {
            lock(&self.evictor).settle(account);
        }
        let unsynced = std::mem::take(&mut *lock(&self.unsynced));
        unsynced.iter().for_each(|files| whole::note(files));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::disk_cache::settings::FreeSpace;
    use crate::source::disk_cache::speed::Speeds;

    fn tier(dir: &tempfile::TempDir) -> DiskTier {
        let settings = DiskCacheSettings {
            // A full disk of the machine that runs the test must not matter.
            free: FreeSpace::Bytes(0),
            ..DiskCacheSettings::new(dir.path().join("c"))
        };
        DiskTier::open(settings).expect("opened")
    }

    fn version(tier: &DiskTier, size: u64) -> Arc<CachedVersion> {
        let exact = ExactVersion {
            source: "s".to_string(),
            version: "1".to_string(),
            shown: "s".to_string(),
        };
        tier.state.version(exact, size)
    }

    #[test]
    fn a_version_of_the_page_cache_is_noted_when_all_is_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let tier = tier(&dir);
        let version = version(&tier, 3 << 20);
        let mut bytes = vec![7; (3 << 20) + 1];
        // Direct I/O takes no buffer at an odd address.
        let odd = 1 - bytes.as_ptr().addr() % 2;
        bytes.truncate(odd + (3 << 20));
        for (megabyte, bytes) in (0..).zip(bytes[odd..].chunks(1 << 20)) {
            assert!(tier.write(&version, megabyte << 20, bytes));
        }
        let files = tier.state.open.get(version.hash).expect("open");
        if !files.is_own() {
            return println!("skipped: needs a temporary folder on a disk");
        }
        assert!(files.is_unsynced());
        assert!(tier.whole(&version, None).is_none());
        tier.settle();
        assert!(tier.whole(&version, None).is_some());
    }

    /// One object under two names, such as two ways to write a URL.
    #[test]
    fn two_names_of_one_version_are_one_version() {
        let dir = tempfile::tempdir().expect("a folder");
        let tier = tier(&dir);
        let one = version(&tier, 5);
        let other = ExactVersion {
            shown: "another name".to_string(),
            ..one.exact.clone()
        };
        assert_eq!(one.exact, other);
        assert!(Arc::ptr_eq(&one, &tier.state.version(other, 5)));
    }

    #[test]
    fn a_slow_disk_is_passed_over_unless_other_processes_read_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut tier = tier(&dir);
        tier.state.speeds = Speeds::of_slow_disk();
        let version = version(&tier, 1 << 30);
        assert!(tier.passes_over(&version, 1 << 20));
        version.is_shared.store(true, Ordering::Relaxed);
        assert!(!tier.passes_over(&version, 1 << 20));
    }
}
