//! Which bytes are on the disk, and which make way for others.
//!
//! A piece is what a fetch brought, cut where a multiple of 1 MiB is. Pieces may overlap; a longer one that covers others replaces them.
//! They are in two queues, as in 2Q without its list of names that are gone:
//!
//! ```text
//!   written ──► used once ──used again──► used again ──► (used: to the end of the queue)
//!                  └─ makes way first        └─ makes way when the first have a tenth of the limit or less
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

pub const MAX_PIECE_BYTES: u64 = 1 << 20;
/// What a file has before its bytes, and what it is rounded up to.
const HEADER_BYTES: u64 = 4096;
/// What is on the disk between two ranges that are not, and is shorter, is fetched with them.
const SPLIT_BYTES: u64 = 256 << 10;
/// A use that comes sooner after the write belongs to the read that fetched it.
const SAME_READ_NS: u64 = 1_000_000_000;
/// Use is noted this often.
const NOTE_EVERY_NS: u64 = 60 * 1_000_000_000;
/// Pieces that may begin before an offset and reach over it.
const MAX_OVERLAPS: usize = 4;
/// When there is no room, this part of the limit is freed.
const FREED_PART: u64 = 16;
/// The part of the limit that pieces used once keep.
const ONCE_PART: u64 = 10;

/// Bytes that the file of a piece takes.
pub const fn file_bytes(len: u64) -> u64 {
    (HEADER_BYTES + len).next_multiple_of(HEADER_BYTES)
}

/// The next part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In the piece that begins at `offset`, up to `end`.
    Disk { offset: u64, end: u64 },
    /// Not on the disk up to `end`.
    Store { end: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    len: u64,
    used_again: bool,
    /// It was written in this run, and not used since.
    is_fresh: bool,
    /// When it was written, or its use noted, in this run.
    noted_ns: Option<u64>,
    /// Its place in its queue.
    turn: u64,
}

/// Pieces by their turns: the first makes way first.
#[derive(Debug, Default)]
struct UseQueue {
    turns: BTreeMap<u64, (u32, u64)>,
    bytes: u64,
}

#[derive(Debug)]
pub struct Pieces {
    limit: u64,
    /// By file and offset.
    pieces: BTreeMap<(u32, u64), Piece>,
    once: UseQueue,
    again: UseQueue,
    turns: u64,
}

impl Pieces {
    pub fn new(limit: u64) -> Pieces {
        Pieces {
            limit,
            pieces: BTreeMap::new(),
            once: UseQueue::default(),
            again: UseQueue::default(),
            turns: 0,
        }
    }

    /// With their headers.
    pub fn held_bytes(&self) -> u64 {
        self.once.bytes + self.again.bytes
    }

    /// Another process reads now: each use is one of another read than the one that wrote the piece.
    pub fn begin_run(&mut self) {
        for piece in self.pieces.values_mut() {
            (piece.is_fresh, piece.noted_ns) = (false, None);
        }
    }

    /// What comes first of a range that may be empty.
    pub fn next(&self, file: u32, range: &Range<u64>) -> Part {
        if let Some((offset, end)) = self.at(file, range.start).filter(|_| !range.is_empty()) {
            let end = end.min(range.end);
            return Part::Disk { offset, end };
        }
        let mut at = range.start;
        while at < range.end {
            let next = self.pieces.range((file, at)..(file, range.end)).next();
            let Some((&(_, next), _)) = next else {
                break;
            };
            let end = self.run_end(file, next).min(range.end);
            if end - next >= SPLIT_BYTES || end == range.end {
                return Part::Store { end: next };
            }
            at = end;
        }
        Part::Store { end: range.end }
    }

    /// Where the piece with the byte at an offset begins, and where it ends; of several the one that reaches farthest.
    fn at(&self, file: u32, offset: u64) -> Option<(u64, u64)> {
        let least = offset.saturating_sub(MAX_PIECE_BYTES);
        let before = self.pieces.range((file, least)..=(file, offset)).rev();
        let ends = before.map(|(&(_, start), piece)| (start, start + piece.len));
        ends.take(MAX_OVERLAPS)
            .filter(|(_, end)| *end > offset)
            .max_by_key(|(_, end)| *end)
    }

    /// Where the pieces end that follow each other from an offset on.
    fn run_end(&self, file: u32, offset: u64) -> u64 {
        let mut end = offset;
        while let Some((_, next)) = self.at(file, end) {
            end = next;
        }
        end
    }

    /// A piece was read.
    pub fn used(&mut self, file: u32, offset: u64, now_ns: u64) {
        let Some(mut piece) = self.pieces.get(&(file, offset)).copied() else {
            return;
        };
        let since = piece.noted_ns.map(|noted| now_ns.saturating_sub(noted));
        let is_same_read = piece.is_fresh && since.is_some_and(|since| since < SAME_READ_NS);
        let is_noted = piece.used_again && since.is_some_and(|since| since < NOTE_EVERY_NS);
        if is_same_read || is_noted {
            return;
        }
        self.remove(file, offset);
        (piece.used_again, piece.is_fresh) = (true, false);
        piece.noted_ns = Some(now_ns);
        self.insert(file, offset, piece);
    }

    /// A piece was written. Those that it covers go; where a longer one begins, that stays.
    pub fn written(&mut self, file: u32, offset: u64, len: u64, now_ns: u64) {
        let longer = self.pieces.get(&(file, offset));
        if longer.is_some_and(|piece| piece.len >= len) {
            return;
        }
        let end = offset + len;
        let inside = self.pieces.range((file, offset)..(file, end));
        let covered: Vec<u64> = inside
            .filter(|((_, start), piece)| start + piece.len <= end)
            .map(|(&(_, start), _)| start)
            .collect();
        for start in covered {
            self.remove(file, start);
        }
        let piece = Piece {
            len,
            used_again: false,
            is_fresh: true,
            noted_ns: Some(now_ns),
            turn: 0,
        };
        self.insert(file, offset, piece);
    }

    /// Is there room for a file of that many bytes? Makes it where there is none, and says how many bytes made way.
    pub fn make_room(&mut self, bytes: u64) -> (bool, u64) {
        let held = self.held_bytes();
        let needed = held.saturating_add(bytes).saturating_sub(self.limit);
        if needed == 0 || bytes > self.limit {
            return (needed == 0, 0);
        }
        let wanted = needed.max((self.limit / FREED_PART).min(held / 2));
        let mut freed = 0;
        while freed < wanted {
            let from_once = self.once.bytes > self.limit / ONCE_PART;
            let (first, second) = if from_once {
                (&self.once, &self.again)
            } else {
                (&self.again, &self.once)
            };
            let oldest = first.turns.iter().chain(&second.turns).next();
            let Some((_, &(file, offset))) = oldest else {
                break;
            };
            freed += self.remove(file, offset);
        }
        (freed >= needed, freed)
    }

    fn queue(&mut self, piece: &Piece) -> &mut UseQueue {
        if piece.used_again {
            &mut self.again
        } else {
            &mut self.once
        }
    }

    /// As the last of its queue.
    fn insert(&mut self, file: u32, offset: u64, piece: Piece) {
        self.turns += 1;
        let turn = self.turns;
        let piece = Piece { turn, ..piece };
        let queue = self.queue(&piece);
        queue.turns.insert(turn, (file, offset));
        queue.bytes += file_bytes(piece.len);
        self.pieces.insert((file, offset), piece);
    }

    /// Returns the bytes of its file.
    fn remove(&mut self, file: u32, offset: u64) -> u64 {
        let Some(piece) = self.pieces.remove(&(file, offset)) else {
            return 0;
        };
        let bytes = file_bytes(piece.len);
        let queue = self.queue(&piece);
        queue.turns.remove(&piece.turn);
        queue.bytes -= bytes;
        bytes
    }
}
