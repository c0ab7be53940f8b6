//! The pieces of one version, as this process knows them: what the folder had when it was looked at last, and what was written since.
//!
//! A piece that is named here may be gone: that is found when it is opened, and it is forgotten. One that another process has written is found
//! when the folder is looked at again.
//!
//! ```text
//!   fetch of 0..8M     [0..1M]  [1M..2M]     [2.1M..2.2M]                 [7M..8M]
//!   is cut into        disk ─────────────►   store (what is short is fetched again) ──►  disk
//! ```

use super::files::CacheFiles;
use super::folder::PieceFile;
use super::piece::{Extent, MAX_PIECE_BYTES, VersionHash};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is on the disk between two ranges that do not, and is shorter, is fetched with them: a second request would cost a round trip,
/// in which a server sends more.
const SPLIT_BYTES: u64 = 256 << 10;
/// How often a folder is looked at for pieces of other processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look may take this part of the time at most, and one for pieces that others have just written that part.
const LOOK_PART: u32 = 20;
const DUE_PART: u32 = 4;
/// Use is noted this often.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// A use that comes sooner after the write belongs to the read that fetched it.
const SAME_READ: Duration = Duration::from_secs(1);
/// Pieces of one version that are known; others are fetched again.
const MAX_PIECES: usize = 4 << 20;
/// Pieces that may lie before an offset and reach over it.
const MAX_OVERLAPS: usize = 4;

#[derive(Default)]
pub struct Index(Mutex<KnownPieces>);

#[derive(Default)]
struct KnownPieces {
    pieces: BTreeMap<u64, KnownPiece>,
    /// Those that were no pieces or could not be read: not believed again until they are written anew.
    refused: HashSet<Extent>,
    looked: Option<Look>,
    /// The folder of the version is there.
    is_made: bool,
}

struct Look {
    began: Instant,
    took: Duration,
    /// Before it.
    stamp: i128,
}

#[derive(Clone, Copy)]
struct KnownPiece {
    len: u32,
    used_again: bool,
    /// When it was written, by this process, or its use noted.
    noted: Option<Instant>,
    /// It was written by this process, and not used since.
    is_fresh: bool,
}

/// The next part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In a piece, up to there.
    Disk(PieceFile, u64),
    /// Not on the disk up to there.
    Store(u64),
}

impl Index {
    /// Looks at the folder, unless it has not changed since, or that was done a moment ago; `is_due` does so in any case where it has
    /// changed.
    pub fn look(&self, files: &CacheFiles, version: VersionHash, is_due: bool) {
        let mut state = self.hold();
        let began = Instant::now();
        if let Some(look) = &mut state.looked {
            let pause = if is_due {
                look.took * DUE_PART
            } else {
                LOOK_EVERY.max(look.took * LOOK_PART)
            };
            if began.duration_since(look.began) < pause {
                return;
            }
            if files.stamp(version) == look.stamp {
                look.began = began;
                return;
            }
        }
        let mut pieces = BTreeMap::new();
        let stamp = files.stamp(version);
        let found = files.folder.pieces(version, &mut |piece| {
            if pieces.len() < MAX_PIECES && !state.refused.contains(&piece.extent) {
                add(&mut pieces, piece.extent, piece.used_again);
            }
        });
        state.is_made = found.is_ok();
        // What was written by this process keeps what is known of it.
        for (offset, known) in &mut pieces {
            if let Some(before) = state
                .pieces
                .get(offset)
                .filter(|before| before.len == known.len)
            {
                *known = KnownPiece {
                    used_again: known.used_again,
                    ..*before
                };
            }
        }
        state.pieces = pieces;
        state.looked = Some(Look {
            began,
            took: began.elapsed(),
            stamp,
        });
    }

    /// What comes first of a range.
    pub fn next(&self, range: &Range<u64>) -> Part {
        let state = self.hold();
        if let Some(piece) = state.at(range.start) {
            return Part::Disk(piece, piece.extent.end().min(range.end));
        }
        let mut at = range.start;
        loop {
            let next = state
                .pieces
                .range(at..range.end)
                .next()
                .map(|(offset, _)| *offset);
            let Some(next) = next else {
                return Part::Store(range.end);
            };
            let end = state.run_end(next).min(range.end);
            if end - next >= SPLIT_BYTES || end == range.end {
                return Part::Store(next);
            }
            at = end;
        }
    }

    /// Has another process written pieces of a version since it was looked at?
    pub fn has_changed(&self, files: &CacheFiles, version: VersionHash) -> bool {
        let looked = self.hold().looked.as_ref().map(|look| look.stamp);
        looked != Some(files.stamp(version))
    }

    /// Is the folder of the version there, as far as is known?
    pub fn is_made(&self) -> bool {
        self.hold().is_made
    }

    pub fn set_made(&self, is_made: bool) {
        self.hold().is_made = is_made;
    }

    /// A piece was written by this process, as the `writes`th of its version. Returns those that it covers, which are of no more use.
    pub fn written(&self, extent: Extent, writes: Option<u64>) -> Vec<PieceFile> {
        let mut state = self.hold();
        if let (Some(look), Some(writes)) = (&mut state.looked, writes)
            && look.stamp + 1 == i128::from(writes)
        {
            look.stamp += 1;
        }
        state.refused.remove(&extent);
        let covered: Vec<PieceFile> = state
            .pieces
            .range(extent.offset..extent.end())
            .filter(|(offset, known)| **offset + u64::from(known.len) <= extent.end())
            .map(|(offset, known)| known.file(*offset))
            .filter(|piece| piece.extent != extent)
            .collect();
        for piece in &covered {
            state.pieces.remove(&piece.extent.offset);
        }
        if state.pieces.len() < MAX_PIECES {
            add(&mut state.pieces, extent, false);
            if let Some(known) = state.pieces.get_mut(&extent.offset) {
                (known.noted, known.is_fresh) = (Some(Instant::now()), true);
            }
        }
        covered
    }

    /// A piece of another process was found.
    pub fn found(&self, extent: Extent) {
        let mut state = self.hold();
        if !state.refused.contains(&extent) && state.pieces.len() < MAX_PIECES {
            add(&mut state.pieces, extent, false);
        }
    }

    /// A piece is gone; `refused` says that it is there and no good.
    pub fn forget(&self, piece: PieceFile, refused: bool) {
        let mut state = self.hold();
        let Extent { offset, len } = piece.extent;
        if state
            .pieces
            .get(&offset)
            .is_some_and(|known| known.len == len)
        {
            state.pieces.remove(&offset);
        }
        if refused && state.refused.len() < MAX_PIECES {
            state.refused.insert(piece.extent);
        }
    }

    /// A piece was used. Is that to be noted?
    pub fn used(&self, piece: PieceFile) -> bool {
        let mut state = self.hold();
        let Some(known) = state.pieces.get_mut(&piece.extent.offset) else {
            return false;
        };
        let now = Instant::now();
        let since = known.noted.map(|noted| now.duration_since(noted));
        let is_same_read = known.is_fresh && since.is_some_and(|since| since < SAME_READ);
        let is_noted = known.used_again && since.is_some_and(|since| since < NOTE_EVERY);
        if is_same_read || is_noted {
            return false;
        }
        *known = KnownPiece {
            used_again: true,
            noted: Some(now),
            is_fresh: false,
            ..*known
        };
        true
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, KnownPieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownPiece {
    fn file(self, offset: u64) -> PieceFile {
        PieceFile {
            extent: Extent {
                offset,
                len: self.len,
            },
            used_again: self.used_again,
        }
    }
}

impl KnownPieces {
    /// The piece with the byte at an offset that reaches farthest.
    fn at(&self, offset: u64) -> Option<PieceFile> {
        let least = offset.saturating_sub(MAX_PIECE_BYTES);
        let before = self.pieces.range(least..=offset).rev().take(MAX_OVERLAPS);
        before
            .map(|(start, known)| known.file(*start))
            .filter(|piece| piece.extent.end() > offset)
            .max_by_key(|piece| piece.extent.end())
    }

    /// Where the pieces end that follow each other from an offset on.
    fn run_end(&self, offset: u64) -> u64 {
        let mut end = offset;
        while let Some(piece) = self.at(end) {
            end = piece.extent.end();
        }
        end
    }
}

/// Adds a piece, unless a longer one begins there.
fn add(pieces: &mut BTreeMap<u64, KnownPiece>, extent: Extent, used_again: bool) {
    let known = KnownPiece {
        len: extent.len,
        used_again,
        noted: None,
        is_fresh: false,
    };
    let own = pieces.entry(extent.offset).or_insert(known);
    if own.len < extent.len {
        *own = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn parts(index: &Index, range: Range<u64>) -> Vec<(bool, u64)> {
        let (mut at, mut parts) = (range.start, Vec::new());
        while at < range.end {
            let (is_disk, end) = match index.next(&(at..range.end)) {
                Part::Disk(_, end) => (true, end),
                Part::Store(end) => (false, end),
            };
            assert!(end > at);
            parts.push((is_disk, end));
            at = end;
        }
        parts
    }

    #[test]
    fn a_range_is_cut_where_a_second_request_is_worth_it() {
        let index = Index::default();
        for (offset, len) in [
            (0, MIB),
            (MIB, 512 * KIB),
            (3 * MIB, 64 * KIB),
            (4 * MIB, 256 * KIB),
        ] {
            assert!(
                index
                    .written(
                        Extent {
                            offset,
                            len: len as u32
                        },
                        None
                    )
                    .is_empty()
            );
        }
        assert_eq!(
            parts(&index, 0..5 * MIB),
            [
                (true, MIB),
                (true, MIB + 512 * KIB),
                (false, 4 * MIB),
                (true, 4 * MIB + 256 * KIB),
                (false, 5 * MIB)
            ],
            "the short one is fetched again"
        );
        let end = 3 * MIB + 40 * KIB;
        assert_eq!(
            parts(&index, 2 * MIB..end),
            [(false, 3 * MIB), (true, end)],
            "at the end"
        );
        assert_eq!(parts(&index, 100..200), [(true, 200)]);
    }

    #[test]
    fn a_longer_piece_takes_over_shorter_ones() {
        let index = Index::default();
        let short = Extent {
            offset: 64 * KIB,
            len: 4096,
        };
        index.written(short, None);
        let long = Extent {
            offset: 0,
            len: MIB as u32,
        };
        let covered = index.written(long, None);
        assert_eq!(
            covered.iter().map(|piece| piece.extent).collect::<Vec<_>>(),
            [short]
        );
        assert!(index.written(long, None).is_empty(), "the same again");
        let Part::Disk(piece, _) = index.next(&(0..4096)) else {
            panic!("it is there");
        };
        index.forget(piece, false);
        assert_eq!(index.next(&(0..4096)), Part::Store(4096));
    }
}
