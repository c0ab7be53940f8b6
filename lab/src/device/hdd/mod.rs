//! A disk with one head: the arm moves, the platter turns, bytes come by, and the drive keeps what it has read.
//!
//! ```text
//!   T = command + seek(distance) + wait for the turn + bytes under the head        from the platter
//!   T = hit + bytes / interface                                                    from the buffer
//!
//!   queue (any order in)      pick the one         head
//!   ┌──┬──┬──┬──┬──┐          under the head  ┌───────────────┐   done     ┌────────────────────┐
//!   │  │  │  │  │  │ ───────► soonest ──────► │ one at a time │ ─────────► │ idle: reads on into│
//!   └──┴──┴──┴──┴──┘          (or the oldest, └───────────────┘            │ its buffer         │
//!                              if it waited                                └────────────────────┘
//!                              too long)
//! ```
//!
//! - **Order.** Of the first `queue_depth` commands the one is taken whose first byte is under the head soonest, the
//!   arm's move included; this is what a drive's own queue does, and host elevators strive for. Depth 1 is first
//!   come, first served. A command that has waited for `patience_ns` goes first whatever it costs.
//! - **Luck.** The platter turns with the clock: what a command waits follows from its place and from when it is
//!   served. The only draw is where the platter stands at time 0, keyed by the seed. No draw depends on the order
//!   of calls, but two policies that ask at different times do meet different waits, as they would on a real disk.
//! - **Files.** File 0 begins at the outer edge, so one file as large as the disk is the disk. Any other lies in one
//!   piece from a place keyed by seed and file; places are uniform, as on a disk that has been in use for long.
//! - **Buffer.** See [`buffer`]. Bytes are told when the whole command is there.
//!
//! Never: writes, defects, a spare area, or power saving.

mod buffer;
mod platter;

use super::{Arrival, Command, Device};
use crate::draw;
use buffer::Buffer;
pub use buffer::BufferModel;
use platter::Platter;
pub use platter::Seek;
use std::collections::VecDeque;

/// Files lie on blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// The figures of a disk that turns.
#[derive(Clone, Copy, Debug)]
pub struct HddModel {
    /// Bytes from the outer to the inner edge. Not 0.
    pub capacity_bytes: u64,
    /// Turns in a minute. Not 0.
    pub rpm: u32,
    /// What a command costs before the arm moves, in nanoseconds: host, bus and controller.
    pub command_ns: u64,
    /// The arm.
    pub seek: Seek,
    /// Bytes per second under the head at the outer and at the inner edge; not 0, outer not below inner.
    pub bytes_per_s: (u64, u64),
    /// The drive's buffer.
    pub buffer: BufferModel,
    /// Commands among which the next is chosen. Not 0.
    pub queue_depth: u32,
    /// A command that has waited longer goes first, in nanoseconds.
    pub patience_ns: u64,
}

impl HddModel {
    /// No device of this kind brings in `bytes` bytes faster: one command without a move or a wait, all bytes at the
    /// outer edge.
    #[must_use]
    pub fn least_ns(&self, bytes: u64) -> u64 {
        self.command_ns.saturating_add(super::span_ns(bytes, self.bytes_per_s.0))
    }
}

/// A disk at work.
#[derive(Debug)]
pub struct Hdd {
    model: HddModel,
    platter: Platter,
    buffer: Buffer,
    seed: u64,
    /// In the order they came.
    queue: VecDeque<Pending>,
    active: Option<Active>,
    /// Where the arm is.
    head: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    command: Command,
    /// Its first byte on the platter.
    at: u64,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    command: Command,
    end_ns: u64,
}

impl Hdd {
    /// An idle disk; `seed` decides where its platter stands and where its files lie.
    #[must_use]
    pub fn new(model: HddModel, seed: u64) -> Hdd {
        let luck = draw::keyed(seed, u32::MAX, 0, 0).bits();
        let platter = Platter::new(model.capacity_bytes, model.rpm, model.bytes_per_s, model.seek, luck);
        let buffer = Buffer::new(model.buffer);
        Hdd { model, platter, buffer, seed, queue: VecDeque::new(), active: None, head: 0 }
    }

    /// Where a byte of a file lies. What would lie beyond the inner edge begins again at the outer one.
    fn place(&self, file: u32, start: u64) -> u64 {
        let blocks = self.model.capacity_bytes / BLOCK_BYTES;
        let base = if file == 0 { 0 } else { draw::keyed(self.seed, file, 0, 0).below(blocks) * BLOCK_BYTES };
        (base % self.model.capacity_bytes + start % self.model.capacity_bytes) % self.model.capacity_bytes
    }

    /// Nanoseconds until byte `at` is under the head, for a command that is begun now.
    fn access_ns(&self, now_ns: u64, at: u64) -> u64 {
        let there_ns = self.model.command_ns + self.platter.seek_ns(self.head, at);
        there_ns + self.platter.wait_ns(now_ns + there_ns, at)
    }

    /// Which command of the queue is next.
    fn pick(&self, now_ns: u64) -> usize {
        let choice = self.model.queue_depth as usize;
        let late = self.queue.front().is_some_and(|p| now_ns.saturating_sub(p.since_ns) > self.model.patience_ns);
        if choice == 1 || late {
            return 0;
        }
        let cost = |p: &Pending| {
            let buffered = self.buffer.holds_first(p.command.file, p.at, now_ns, &self.platter);
            if buffered { 0 } else { self.access_ns(now_ns, p.at) }
        };
        let costs = self.queue.iter().take(choice).map(cost).enumerate();
        costs.min_by_key(|(_, ns)| *ns).map_or(0, |(n, _)| n)
    }

    /// Begins the next command, if there is one and none is under way.
    fn start(&mut self, now_ns: u64) {
        if self.active.is_some() || self.queue.is_empty() {
            return;
        }
        let Some(Pending { command, at, .. }) = self.queue.remove(self.pick(now_ns)) else { return };
        let end_ns = self.serve(now_ns, &command, at);
        self.active = Some(Active { command, end_ns });
    }

    /// Moves arm and buffer to where they are when the command is done, and tells when that is.
    fn serve(&mut self, now_ns: u64, command: &Command, at: u64) -> u64 {
        let end = at.saturating_add(command.len);
        let file = command.file;
        let from = self.buffer.held_until(file, at, now_ns, &self.platter).min(end);
        let hit_ns = now_ns + self.model.buffer.hit_ns(command.len);
        if from == end {
            self.head = self.buffer.consume(file, at, end, hit_ns, &self.platter).unwrap_or(self.head);
            return hit_ns;
        }
        if let Some(read_ns) = self.buffer.streams_to(file, at, end, now_ns, &self.platter) {
            let end_ns = read_ns.max(hit_ns);
            self.head = self.buffer.consume(file, at, end, end_ns, &self.platter).unwrap_or(end);
            return end_ns;
        }
        self.head = self.buffer.stop(now_ns, &self.platter).unwrap_or(self.head);
        let under_ns = now_ns + self.access_ns(now_ns, from);
        let end_ns = under_ns + self.platter.transfer_ns(from, end);
        self.head = end;
        self.buffer.fill(file, from, end, end_ns);
        end_ns
    }
}

impl Device for Hdd {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let at = self.place(command.file, command.start);
        self.queue.push_back(Pending { command, at, since_ns: now_ns });
        self.start(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        self.active.map(|a| a.end_ns)
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some(Active { command, end_ns }) = self.active.filter(|a| a.end_ns <= now_ns) {
            self.active = None;
            out.push(Arrival { id: command.id, bytes: command.len, done: true });
            self.start(end_ns);
        }
    }
}
