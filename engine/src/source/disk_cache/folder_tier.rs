//! A folder as the place of pieces: what its files, claims, limits and open pieces give together.

use super::claims::Claim;
use super::files::CacheFiles;
use super::folder::{PieceFile, PutOutcome};
use super::index::Part;
use super::latest;
use super::names::{ListingsRoom, NewListing};
use super::piece::{Extent, MAX_PIECE_BYTES, PieceBuffer, PieceFault};
use super::reader::PieceReader;
use super::room::Evictor;
use super::shared::{CacheState, CachedVersion, TierState};
use super::sinks::FillPlace;
use super::tier::Tier;
use crate::source::ExactVersion;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

pub struct FolderTier {
    pub shared: CacheState,
    reader: PieceReader,
    evictor: Mutex<Evictor>,
    listings: Mutex<ListingsRoom>,
}

impl FolderTier {
    pub fn new(shared: CacheState) -> FolderTier {
        FolderTier {
            shared,
            reader: PieceReader::default(),
            evictor: Mutex::default(),
            listings: Mutex::default(),
        }
    }

    /// The version of an object that was read last, if its first bytes are here and are to be read from here.
    pub fn latest(&self, source: &str, shown: &str, first_bytes: u64) -> Option<String> {
        if !self.shared.tier.reads.is_on() {
            return None;
        }
        let text = latest::read(&self.shared.opened().folder, source)?;
        let size: u64 = text.rsplit_once(' ')?.1.parse().ok()?;
        let exact = ExactVersion {
            source: source.to_string(),
            version: text.clone(),
            shown: shown.to_string(),
        };
        let version = self.shared.tier.version(exact, size);
        self.look(&version);
        if self.passes_over(size.min(MAX_PIECE_BYTES)) {
            return None;
        }
        let (mut at, end) = (0, first_bytes.min(size));
        while at < end {
            match version.index.next(&(at..end)) {
                Part::Disk(_, next) => at = next,
                _ => return None,
            }
        }
        Some(text)
    }

    /// Writes a piece, for which there is room.
    fn put(
        &self,
        opened: Arc<CacheFiles>,
        evictor: &mut Evictor,
        version: &CachedVersion,
        buffer: &mut PieceBuffer,
    ) -> Result<(), Errno> {
        let extent = buffer.extent();
        let piece = buffer.seal(version.hash, &version.about());
        let put = |opened: &CacheFiles| {
            if !version.index.is_made() {
                opened.folder.make_version(version.hash)?;
                version.index.set_made(true);
            }
            opened.folder.put_piece(version.hash, extent, &piece)
        };
        let mut opened = opened;
        let mut done = put(&opened);
        if matches!(done, Err(Errno::NOENT | Errno::STALE)) {
            // The version's folder was removed, or that of the cache.
            version.index.set_made(false);
            done = put(&opened);
            if matches!(done, Err(Errno::NOENT | Errno::STALE)) && self.shared.open_again() {
                opened = self.shared.opened();
                done = put(&opened);
            }
        }
        if let PutOutcome::WasThere = done? {
            version.index.found(extent);
            return Ok(());
        }
        let files = opened.writable.as_ref();
        let writes = files.and_then(|files| files.account.wrote(version.hash, extent.file_bytes()));
        evictor.wrote(extent.file_bytes());
        if extent.offset == 0 && version.is_named.load(Ordering::Relaxed) {
            let _ = latest::write(&opened.folder, version);
        }
        self.shared.tier.wrote(extent);
        for covered in version.index.written(extent, writes) {
            remove(&opened, version, covered);
        }
        Ok(())
    }
}

fn remove(opened: &CacheFiles, version: &CachedVersion, piece: PieceFile) {
    if opened.folder.remove_piece(version.hash, piece).is_ok() {
        opened.removed(piece.extent.file_bytes());
    }
}

impl Tier for FolderTier {
    fn state(&self) -> &TierState {
        &self.shared.tier
    }

    fn look(&self, version: &Arc<CachedVersion>) {
        let opened = self.shared.opened();
        version.index.look(&opened, version.hash, false);
    }

    /// For the piece that a fetch in order makes, or else for all.
    fn look_again(&self, version: &Arc<CachedVersion>, offset: u64) {
        let opened = self.shared.opened();
        if !version.index.has_changed(&opened, version.hash) {
            return;
        }
        let first = offset / MAX_PIECE_BYTES * MAX_PIECE_BYTES;
        let len = version.size.saturating_sub(first).min(MAX_PIECE_BYTES) as u32;
        let extent = Extent { offset: first, len };
        let piece = PieceFile {
            extent,
            used_again: false,
        };
        if opened.folder.open_piece(version.hash, piece).is_ok() {
            version.index.found(extent);
        } else {
            version.index.look(&opened, version.hash, true);
        }
    }

    fn read(
        &self,
        version: &CachedVersion,
        piece: PieceFile,
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), PieceFault> {
        self.reader.read(&self.shared, version, piece, place, end)
    }

    fn close(&self, version: &CachedVersion, piece: PieceFile) {
        self.reader.close(version.hash, piece);
    }

    fn claim(&self, version: &Arc<CachedVersion>, bytes: &Range<u64>) -> Claim {
        self.shared.opened().claim(version.hash, bytes)
    }

    fn give_back(&self, version: &CachedVersion, bytes: &Range<u64>) {
        self.shared.opened().give_back(version.hash, bytes);
    }

    fn stamp(&self, version: &CachedVersion) -> i128 {
        self.shared.opened().stamp(version.hash)
    }

    fn passes_over(&self, bytes: u64) -> bool {
        self.shared.passes_over_disk(bytes)
    }

    fn is_writing(&self) -> bool {
        self.shared.tier.writes.is_on() && self.shared.opened().writable.is_some()
    }

    fn write(&self, version: &CachedVersion, buffer: &mut PieceBuffer) -> bool {
        let opened = self.shared.opened();
        let mut evictor = self.evictor.lock().unwrap_or_else(|poisoned| {
            // What a panic has left half changed is found out anew.
            self.evictor.clear_poison();
            let mut evictor = poisoned.into_inner();
            *evictor = Evictor::default();
            evictor
        });
        if !evictor.make_room(&self.shared, &opened, buffer.extent().file_bytes()) {
            return false;
        }
        let done = self.put(opened, &mut evictor, version, buffer);
        done.map_err(|errno| self.shared.write_failed(errno))
            .is_ok()
    }

    fn is_tended(&self) -> bool {
        true
    }

    fn note(&self, version: &CachedVersion, piece: PieceFile) {
        // One that is gone was evicted.
        let _ = self.shared.opened().folder.note_use(version.hash, piece);
    }

    fn note_latest(&self, version: &CachedVersion) {
        let opened = self.shared.opened();
        // Else it is noted with its first piece.
        let is_held = opened.folder.changed_at(version.hash).is_ok();
        if is_held && self.is_writing() && latest::write(&opened.folder, version).is_err() {
            // Then it is opened by its first bytes next time, as without a cache.
            tracing::debug!("the version that was read last is not noted in the disk cache");
        }
    }

    fn keep_names(&self, listing: &NewListing) {
        let opened = self.shared.opened();
        if self.shared.tier.writes.is_on() && opened.writable.is_some() {
            let mut room = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
            if room
                .write(&opened.folder, &self.shared.settings, listing)
                .is_err()
            {
                // Then the next mount lists the folder, as without a cache.
                tracing::debug!("the names of a folder are not kept in the disk cache");
            }
        }
    }

    fn remove(&self, version: &CachedVersion, piece: PieceFile) {
        remove(&self.shared.opened(), version, piece);
    }
}
