//! Reads pieces: keeps those open that were read last, and looks at what it reads.

use super::folder::PieceFile;
use super::piece::{OpenPiece, PieceFault, VersionHash};
use super::shared::{CacheState, CachedVersion, Counts};
use super::sinks::FillPlace;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Pieces that are kept open.
const MAX_OPEN: usize = 64;

#[derive(Default)]
pub struct PieceReader {
    open: Mutex<OpenPieces>,
}

#[derive(Default)]
struct OpenPieces {
    pieces: HashMap<(VersionHash, u64), KeptPiece>,
    /// Counts uses, so that the one that was used least recently is known.
    uses: u64,
}

struct KeptPiece {
    piece: Arc<OpenPiece>,
    used: u64,
}

impl PieceReader {
    /// Reads a piece from where `place` is up to `end`. What was read before an error is right and stays.
    pub fn read(
        &self,
        shared: &CacheState,
        version: &CachedVersion,
        file: PieceFile,
        place: &mut FillPlace<'_>,
        end: u64,
    ) -> Result<(), PieceFault> {
        let piece = self.opened(shared, version, file, place.at..end)?;
        while place.at < end {
            let at = place.at;
            let Some(room) = place.room(end - at) else {
                break;
            };
            let len = room.len();
            piece.read(at, room)?;
            place.advance(len);
            Counts::add(&shared.tier.counts.hit_bytes, len as u64);
        }
        Ok(())
    }

    fn opened(
        &self,
        shared: &CacheState,
        version: &CachedVersion,
        file: PieceFile,
        part: Range<u64>,
    ) -> Result<Arc<OpenPiece>, PieceFault> {
        let key = (version.hash, file.extent.offset);
        if let Some(piece) = self
            .kept(&key)
            .filter(|piece| piece.extent() == file.extent)
        {
            return Ok(piece);
        }
        let opened = shared.opened();
        let offset = file.extent.offset;
        let first = part.start - offset..part.end - offset;
        let own = opened.folder.open_piece(version.hash, file)?;
        let piece = Arc::new(OpenPiece::new(own, file.extent, version.hash, first)?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        if open.pieces.len() >= MAX_OPEN {
            let oldest = open.pieces.iter().min_by_key(|(_, kept)| kept.used);
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| open.pieces.remove(&key));
        }
        let used = open.uses;
        open.pieces.insert(
            key,
            KeptPiece {
                piece: Arc::clone(&piece),
                used,
            },
        );
        Ok(piece)
    }

    fn kept(&self, key: &(VersionHash, u64)) -> Option<Arc<OpenPiece>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        let uses = open.uses;
        let kept = open.pieces.get_mut(key)?;
        kept.used = uses;
        Some(Arc::clone(&kept.piece))
    }

    /// A piece is no more to be read.
    pub fn close(&self, version: VersionHash, file: PieceFile) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.pieces.remove(&(version, file.extent.offset));
    }
}
