//! A cache on disk in front of a store: what is on the disk comes from the disk's model, the rest from the store's, and is written behind
//! the reader. The rules are those of the engine's cache on disk, so that a simulation predicts what it gains.
//!
//! ```text
//!   command ──► cut into parts, one after the other (pieces.rs)
//!                 on the disk ──────► disk's model ──────────────────────────────► arrivals
//!                 not on it ────────► store's model ─┬───────────────────────────► arrivals
//!                                                    └► piece of up to 1 MiB ──► queue (128 MiB) ──► room? ──► disk's model
//!                                                         └─ no room in the queue: left out, counted
//! ```
//! Example: a command of 8 MiB whose first 2 MiB are there reads two pieces, then asks the store for 6 MiB and writes six pieces. A
//! second run asks the store for nothing.
//!
//! A disk that has shown to be slower than the store is passed over (speed.rs). A write takes what a read of the same bytes takes. Not
//! here: other processes, space that stays free on the file system, and the processor's time for checksums and copies.

mod pieces;
mod speed;

use super::presets::Preset;
use super::{Arrival, Command, Device};
use pieces::{MAX_PIECE_BYTES, Part, Pieces, file_bytes};
use speed::{Speeds, Tier};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of pieces that wait or are being filled, at most.
const MAX_QUEUED_BYTES: u64 = 128 << 20;
/// What a buffer of a piece takes beside its bytes, which are rounded up to that.
const BUFFER_BYTES: u64 = 4096;
/// The command of the one write that is under way. Reads have the name of the command that they are a part of.
const WRITE_ID: u64 = u64::MAX;
/// Set apart from the store's random numbers.
const DISK_SEED: u64 = 0x6469_736b;

/// What a cache on disk did in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheCounts {
    /// Requests to the store, and their bytes.
    pub store_reads: u64,
    pub store_bytes: u64,
    /// Bytes that came from the disk.
    pub disk_bytes: u64,
    pub written_bytes: u64,
    /// Not written: the disk did not keep up, or there was no room.
    pub dropped_bytes: u64,
    pub evicted_bytes: u64,
    /// Bytes of all pieces at the end, with their headers.
    pub held_bytes: u64,
}

/// A cache on disk that outlives the runs through it. A clone is the same cache.
#[derive(Clone, Debug)]
pub struct DiskCache(Arc<Mutex<CacheState>>);

#[derive(Debug)]
struct CacheState {
    pieces: Pieces,
    counts: DiskCacheCounts,
}

impl DiskCache {
    /// An empty one that keeps up to that many bytes.
    #[must_use]
    pub fn new(size_bytes: u64) -> DiskCache {
        DiskCache(Arc::new(Mutex::new(CacheState {
            pieces: Pieces::new(size_bytes),
            counts: DiskCacheCounts::default(),
        })))
    }

    /// A store behind this cache, for a run whose clock begins at 0: a new process, that finds what those before it have left.
    #[must_use]
    pub fn over(&self, store: Box<dyn Device>, disk: &Preset, seed: u64) -> Box<dyn Device> {
        let mut state = self.lock();
        state.pieces.begin_run();
        state.counts = DiskCacheCounts::default();
        Box::new(TieredDevice {
            cache: self.clone(),
            store,
            disk: disk.build(seed ^ DISK_SEED),
            disk_bytes: disk.capacity_bytes.max(MAX_PIECE_BYTES) / MAX_PIECE_BYTES
                * MAX_PIECE_BYTES,
            requests: HashMap::new(),
            speeds: Speeds::default(),
            writes: VecDeque::new(),
            writing: None,
            queued_bytes: 0,
            at_hand: Vec::new(),
            arrivals: Vec::new(),
        })
    }

    /// What it has done since the last run began.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        let state = self.lock();
        DiskCacheCounts {
            held_bytes: state.pieces.held_bytes(),
            ..state.counts
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TieredDevice {
    cache: DiskCache,
    store: Box<dyn Device>,
    disk: Box<dyn Device>,
    /// The disk has that many bytes: places in a file are taken modulo this.
    disk_bytes: u64,
    requests: HashMap<u64, Request>,
    speeds: Speeds,
    writes: VecDeque<PieceWrite>,
    writing: Option<PieceWrite>,
    queued_bytes: u64,
    /// Commands that began on the disk, and whose owner does not know it yet.
    at_hand: Vec<u64>,
    arrivals: Vec<Arrival>,
}

/// A command that is not answered in full.
struct Request {
    command: Command,
    /// Where the part under way begins and ends.
    part_start: u64,
    part_end: u64,
    part_tier: Tier,
    /// What comes is not on the disk yet.
    is_kept: bool,
    /// How far the bytes of the store have gone to the disk.
    taken: u64,
    filling: Option<PieceWrite>,
}

/// A piece that is filled, waits or is written.
#[derive(Clone, Copy, Debug)]
struct PieceWrite {
    file: u32,
    offset: u64,
    len: u64,
    /// What it may become.
    most: u64,
    /// Bytes of memory that are reserved for it.
    queued: u64,
}

impl PieceWrite {
    /// An empty one for bytes from `offset` to `end`, at most up to the end of its megabyte.
    fn new(file: u32, offset: u64, end: u64) -> PieceWrite {
        let most = (end - offset).min(MAX_PIECE_BYTES - offset % MAX_PIECE_BYTES);
        PieceWrite {
            file,
            offset,
            len: 0,
            most,
            queued: 2 * BUFFER_BYTES + most.next_multiple_of(BUFFER_BYTES),
        }
    }
}

impl TieredDevice {
    /// Begins the part of a command that comes first of what is left.
    fn next_part(&mut self, now_ns: u64, id: u64) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Command {
            file, start, len, ..
        } = request.command;
        let at = request.part_end;
        let range = at..start.saturating_add(len);
        let mut state = self.cache.lock();
        let part = state.pieces.next(file, &range);
        let (Part::Disk { end, .. } | Part::Store { end }) = part;
        let is_there = matches!(part, Part::Disk { .. });
        let passes_over = is_there && self.speeds.passes_over_disk(end - at);
        // All of it at once: more is likely to be there.
        let end = if passes_over { range.end } else { end };
        let part_len = end - at;
        (request.part_start, request.part_end, request.taken) = (at, end, at);
        request.is_kept = !is_there;
        if let Part::Disk { offset, .. } = part
            && !passes_over
        {
            state.counts.disk_bytes += part_len;
            state.pieces.used(file, offset, now_ns);
            if at == start {
                self.at_hand.push(id);
            }
            drop(state);
            request.part_tier = Tier::Disk;
            let read = Command::new(id, file, at % self.disk_bytes, part_len);
            self.disk.submit(now_ns, read);
        } else {
            state.counts.store_reads += 1;
            state.counts.store_bytes += part_len;
            drop(state);
            request.part_tier = Tier::Store;
            let fetch = Command::new(id, file, at, part_len);
            self.store.submit(now_ns, fetch);
        }
        self.speeds.begin(request.part_tier, now_ns, part_len);
    }

    /// Bytes of a part have arrived.
    fn arrived(&mut self, now_ns: u64, arrival: Arrival, out: &mut Vec<Arrival>) {
        let Arrival { id, bytes, done } = arrival;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Command { start, len, .. } = request.command;
        let bytes = request.part_start + bytes - start;
        if done {
            let part_len = request.part_end - request.part_start;
            self.speeds.end(request.part_tier, now_ns, part_len);
        }
        let is_last = done && request.part_end == start.saturating_add(len);
        out.push(Arrival {
            id,
            bytes,
            done: is_last,
        });
        if is_last {
            self.requests.remove(&id);
        } else if done {
            self.next_part(now_ns, id);
        }
    }

    fn store_arrived(&mut self, now_ns: u64, arrival: Arrival, out: &mut Vec<Arrival>) {
        if let Some(mut request) = self.requests.remove(&arrival.id) {
            if request.is_kept {
                self.take(&mut request, arrival.bytes);
            }
            let ended = request.filling.take_if(|_| arrival.done);
            self.writes.extend(ended);
            self.requests.insert(arrival.id, request);
            self.write_next(now_ns);
        }
        self.arrived(now_ns, arrival, out);
    }

    /// Bytes of a store's part up to the `bytes`th go into pieces.
    fn take(&mut self, request: &mut Request, bytes: u64) {
        let until = request.part_start + bytes;
        while request.taken < until {
            let at = request.taken;
            let file = request.command.file;
            if request.filling.is_none() {
                let piece = PieceWrite::new(file, at, request.part_end);
                if self.queued_bytes + piece.queued > MAX_QUEUED_BYTES {
                    // What has no room is left out up to where the next piece begins.
                    let left = MAX_PIECE_BYTES - at % MAX_PIECE_BYTES;
                    let left_out = left.min(until - at);
                    self.cache.lock().counts.dropped_bytes += left_out;
                    request.taken += left_out;
                    continue;
                }
                self.queued_bytes += piece.queued;
                request.filling = Some(piece);
            }
            if let Some(piece) = &mut request.filling {
                let taken = (piece.most - piece.len).min(until - at);
                piece.len += taken;
                request.taken += taken;
                let full = piece.len == piece.most;
                self.writes.extend(request.filling.take_if(|_| full));
            }
        }
    }

    /// Begins the next write, if none is under way.
    fn write_next(&mut self, now_ns: u64) {
        while self.writing.is_none() {
            let Some(write) = self.writes.pop_front() else {
                return;
            };
            let mut state = self.cache.lock();
            let (has_room, evicted) = state.pieces.make_room(file_bytes(write.len));
            state.counts.evicted_bytes += evicted;
            if !has_room {
                state.counts.dropped_bytes += write.len;
                self.queued_bytes -= write.queued;
                continue;
            }
            drop(state);
            let place = write.offset % self.disk_bytes;
            let command = Command::new(WRITE_ID, write.file, place, write.len);
            self.disk.submit(now_ns, command);
            self.writing = Some(write);
        }
    }

    fn disk_arrived(&mut self, now_ns: u64, arrival: Arrival, out: &mut Vec<Arrival>) {
        if arrival.id != WRITE_ID {
            self.arrived(now_ns, arrival, out);
            return;
        }
        let Some(write) = self.writing.take_if(|_| arrival.done) else {
            return;
        };
        self.queued_bytes -= write.queued;
        let mut state = self.cache.lock();
        state.counts.written_bytes += write.len;
        state
            .pieces
            .written(write.file, write.offset, write.len, now_ns);
        drop(state);
        self.write_next(now_ns);
    }
}

impl Device for TieredDevice {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let request = Request {
            command,
            part_start: command.start,
            part_end: command.start,
            part_tier: Tier::Store,
            is_kept: false,
            taken: command.start,
            filling: None,
        };
        self.requests.insert(command.id, request);
        self.next_part(now_ns, command.id);
    }

    fn next_time(&self) -> Option<u64> {
        [self.store.next_time(), self.disk.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        while let Some(at) = self.next_time().filter(|at| *at <= now_ns) {
            self.store.advance(at, &mut arrivals);
            for arrival in arrivals.drain(..) {
                self.store_arrived(at, arrival, out);
            }
            self.disk.advance(at, &mut arrivals);
            for arrival in arrivals.drain(..) {
                self.disk_arrived(at, arrival, out);
            }
        }
        self.arrivals = arrivals;
    }

    fn take_at_hand(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.at_hand);
    }
}
