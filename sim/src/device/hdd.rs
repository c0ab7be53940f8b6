//! A hard disk with one head. The model includes seeks, rotation, transfer, and the drive's buffer.
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
//! - **Order.** Like native command queuing (NCQ), the disk chooses, among the first `queue_depth` commands in the queue, the command
//!   whose first byte is under the head soonest, including the seek. With a queue depth of 1, commands are served in the order of their
//!   arrival. A command that has waited for `patience_ns` is served next, even if other commands are closer.
//! - **Random numbers.** The platter turns with the virtual clock: how long a command waits for its data depends on its position
//!   and on the time at which it is served. The only random number is the platter's angle at time 0, which depends on the seed. No
//!   random number depends on the order of calls. However, if two policies submit the same command at different times, the two commands
//!   take different times, as on a real disk.
//! - **Files.** File 0 starts at the outer edge, so one file can be the whole disk. Every file except file 0 is contiguous and begins at a
//!   random position that depends on the seed and the file. The positions of files are uniformly distributed, as on a disk that has been
//!   used for a long time.
//! - **Buffer.** See [`buffer`]. The bytes of a command are reported only when the whole command is complete.
//!
//! Writes, defects, spare areas and power saving are not modelled.

mod buffer;
mod platter;

use super::{Arrival, Command, Device};
use crate::rng;
use buffer::Buffer;
pub use buffer::BufferModel;
use platter::Platter;
pub use platter::{Seek, TrackRates};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Files are aligned to blocks of this size.
const BLOCK_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddModel {
    /// Bytes from the outer to the inner edge. Not 0. A separate key of the model file.
    #[serde(skip)]
    pub capacity_bytes: u64,
    /// Revolutions per minute. Not 0.
    pub rpm: u32,
    /// Overhead of a command before the seek, in nanoseconds: host, bus and controller.
    pub command_ns: u64,
    pub seek: Seek,
    /// Bytes per second under the head, not 0.
    pub bytes_per_s: TrackRates,
    pub buffer: BufferModel,
    /// Number of commands from which the next is chosen. Not 0.
    pub queue_depth: u32,
    /// Maximum wait before a command goes first, in nanoseconds.
    pub patience_ns: u64,
}

impl HddModel {
    /// Returns the minimum time in which a device of this kind reads `bytes` bytes: one command without a seek or a wait, with all
    /// bytes at the outer edge.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        self.command_ns
            .saturating_add(super::span_ns(bytes, self.bytes_per_s.outer))
    }
}

#[derive(Debug)]
pub struct Hdd {
    model: HddModel,
    platter: Platter,
    buffer: Buffer,
    seed: u64,
    /// Commands in order of arrival.
    queue: VecDeque<Pending>,
    active: Option<Active>,
    head: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    command: Command,
    /// Position of its first byte on the platter.
    at: u64,
    angle: u64,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    command: Command,
    end_ns: u64,
}

impl Hdd {
    /// Creates an idle disk; `seed` determines the platter's angle and the positions of files.
    pub fn new(model: HddModel, seed: u64) -> Hdd {
        let phase = rng::keyed(seed, u32::MAX, 0, 0).bits();
        let platter = Platter::new(
            model.capacity_bytes,
            model.rpm,
            model.bytes_per_s,
            model.seek,
            phase,
        );
        let buffer = Buffer::new(model.buffer);
        Hdd {
            model,
            platter,
            buffer,
            seed,
            queue: VecDeque::new(),
            active: None,
            head: 0,
        }
    }

    /// The position of a byte of a file. Positions beyond the inner edge wrap to the outer edge.
    fn place(&self, file: u32, start: u64) -> u64 {
        let blocks = self.model.capacity_bytes / BLOCK_BYTES;
        let base = if file == 0 {
            0
        } else {
            rng::keyed(self.seed, file, 0, 0).below(blocks) * BLOCK_BYTES
        };
        (base % self.model.capacity_bytes + start % self.model.capacity_bytes)
            % self.model.capacity_bytes
    }

    /// Nanoseconds until byte `at`, at `angle`, is under the head, for a command that begins when the platter is at
    /// `now`.
    fn access_ns(&self, now: u64, at: u64, angle: u64) -> u64 {
        let there_ns = self.model.command_ns + self.platter.seek_ns(self.head, at);
        there_ns + self.platter.wait_ns(now, there_ns, angle)
    }

    /// The index of the next command in the queue.
    fn pick(&self, now_ns: u64) -> usize {
        let choice = self.model.queue_depth as usize;
        let late = self
            .queue
            .front()
            .is_some_and(|p| now_ns.saturating_sub(p.since_ns) > self.model.patience_ns);
        if choice == 1 || self.queue.len() == 1 || late {
            return 0;
        }
        let now = self.platter.angle_at(now_ns);
        let cost = |p: &Pending| {
            let buffered = self
                .buffer
                .holds_first(p.command.file, p.at, now_ns, &self.platter);
            if buffered {
                0
            } else {
                self.access_ns(now, p.at, p.angle)
            }
        };
        let costs = self.queue.iter().take(choice).map(cost).enumerate();
        costs.min_by_key(|(_, ns)| *ns).map_or(0, |(n, _)| n)
    }

    /// Starts the next command, if there is one and none is running.
    fn start(&mut self, now_ns: u64) {
        if self.active.is_some() || self.queue.is_empty() {
            return;
        }
        self.head = self.buffer.head(now_ns, &self.platter).unwrap_or(self.head);
        let Some(Pending { command, at, .. }) = self.queue.remove(self.pick(now_ns)) else {
            return;
        };
        let end_ns = self.serve(now_ns, &command, at);
        self.active = Some(Active { command, end_ns });
    }

    /// Moves arm and buffer to their state at the end of the command, and returns that time.
    fn serve(&mut self, now_ns: u64, command: &Command, at: u64) -> u64 {
        let (file, end) = (command.file, at.saturating_add(command.len));
        if command.len > 0
            && let Some(ready_ns) = self.buffer.take(file, at, end, now_ns, &self.platter)
        {
            return ready_ns.max(now_ns + self.model.buffer.hit_ns(command.len));
        }
        let from = self
            .buffer
            .held_until(file, at, now_ns, &self.platter)
            .min(end);
        self.buffer.stop(now_ns, &self.platter);
        let under_ns = now_ns
            + self.access_ns(
                self.platter.angle_at(now_ns),
                from,
                self.platter.angle(from),
            );
        let end_ns = under_ns + self.platter.transfer_ns(from, end);
        self.head = end;
        self.buffer.fill(file, from, end, end_ns);
        end_ns
    }
}

impl Device for Hdd {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let at = self.place(command.file, command.start);
        let angle = self.platter.angle(at);
        self.queue.push_back(Pending {
            command,
            at,
            angle,
            since_ns: now_ns,
        });
        self.start(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        self.active.map(|a| a.end_ns)
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some(Active { command, end_ns }) = self.active.filter(|a| a.end_ns <= now_ns) {
            self.active = None;
            out.push(Arrival::whole(command.id, command.len));
            self.start(end_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::run_dry;

    const MS: u64 = 1_000_000;
    const KIB: u64 = 1024;
    const TURN: u64 = 10 * MS;

    /// 10 ms per revolution, 100 MB/s everywhere (1 MB per track), 0.1 ms per command, seeks of 1 ms or more, no
    /// buffer, and a queue depth of 1.
    const PLAIN: HddModel = HddModel {
        capacity_bytes: 1_000_000_000,
        rpm: 6_000,
        command_ns: 100_000,
        seek: Seek {
            settle_ns: MS,
            root_ns: 10 * MS,
            linear_from: 1.0,
            full_ns: 0,
        },
        bytes_per_s: TrackRates {
            outer: 100_000_000,
            inner: 100_000_000,
        },
        buffer: BufferModel {
            segments: 0,
            segment_bytes: 0,
            hit_ns: 0,
            interface_bytes_per_s: 1,
        },
        queue_depth: 1,
        patience_ns: u64::MAX,
    };
    /// Like [`PLAIN`], with a buffer of two segments of 256 KiB, and hits of 0.05 ms at 1 GB/s.
    const BUFFERED: HddModel = HddModel {
        buffer: BufferModel {
            segments: 2,
            segment_bytes: 256 * KIB,
            hit_ns: 50_000,
            interface_bytes_per_s: 1_000_000_000,
        },
        ..PLAIN
    };

    /// The end times of `commands` (time, file, start, len), in their order.
    fn ends(model: HddModel, commands: &[(u64, u32, u64, u64)]) -> Vec<u64> {
        let mut disk = Hdd::new(model, 7);
        let mut ends = vec![0; commands.len()];
        let mut out = Vec::new();
        for (id, &(at, file, start, len)) in commands.iter().enumerate() {
            while let Some(next) = disk.next_time().filter(|next| *next <= at) {
                disk.advance(next, &mut out);
                out.drain(..).for_each(|a| ends[a.id as usize] = next);
            }
            disk.submit(at, Command::new(id as u64, file, start, len));
        }
        run_dry(&mut disk)
            .into_iter()
            .for_each(|(at, a)| ends[a.id as usize] = at);
        ends
    }

    /// Overhead, seek and wait: a command ends when its last byte is under the head. So the same position ends whole
    /// revolutions later, and the wait is always less than one revolution.
    #[test]
    fn a_command_is_overhead_move_wait_and_bytes() {
        let commands = [
            (0, 0, 160_000_000, 0),
            (50 * MS, 0, 160_000_000, 100_000),
            (150 * MS, 0, 0, 100_000),
        ];
        let ends = ends(PLAIN, &commands);
        // A move back is a move.
        for (end, least) in ends.iter().zip([5 * MS, 51 * MS, 156 * MS]) {
            let least = 100_000 + least;
            assert!((least..least + TURN).contains(end), "{ends:?}");
        }
        // The same place comes by once a turn. 160 MB are 160 tracks, so both positions have the same angle.
        assert_eq!((ends[1] - MS - ends[0]) % TURN, 0);
        assert_eq!((ends[2] - ends[1]) % TURN, 0);
    }

    /// The spans between the ends of `count` commands of `len` bytes, each sent this long after the end of the last one.
    fn spans(model: HddModel, count: u64, len: u64, pause: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut disk = Hdd::new(model, 7);
        let (mut at, mut ends, mut out) = (0, Vec::new(), Vec::new());
        for n in 0..count {
            disk.submit(at, Command::new(n, 0, n * len, len));
            at = disk.next_time().expect("under way");
            disk.advance(at, &mut out);
            ends.push(at);
            at += pause(n);
        }
        ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// 10,000 bytes are 0.1 ms: they have just passed when the next command starts. With a buffer the head reads on.
    #[test]
    fn reading_on_loses_a_turn_without_a_buffer_only() {
        assert_eq!(spans(PLAIN, 4, 10_000, |_| 0), [TURN + 100_000; 3]);
        assert_eq!(spans(BUFFERED, 4, 10_000, |_| 0), [100_000; 3]);
    }

    /// Windows of the length of a segment, each requested when the last one has arrived, keep the head reading. With a
    /// delay the head has stopped, and the rest of a revolution is lost once.
    #[test]
    fn windows_of_a_whole_segment_stream() {
        let window = 256 * KIB;
        let pause = |n| if n == 4 { 300 * MS } else { 1000 };
        let spans = spans(BUFFERED, 8, window, pause);
        let bytes = 10 * window;
        for n in [0, 1, 2, 3, 6] {
            assert!(spans[n].abs_diff(bytes) < 100, "{spans:?}");
        }
        assert_eq!(spans[4], 300 * MS + 50_000 + window, "a hit");
        assert!((bytes..bytes + TURN).contains(&spans[5]), "{spans:?}");
    }

    #[test]
    fn an_idle_disk_reads_on_until_its_segment_is_full() {
        let hit = |bytes: u64| 50_000 + bytes;
        let (len, late) = (10_000, 900 * MS);
        let next = |start: u64, len: u64| {
            ends(BUFFERED, &[(0, 0, 0, 10_000), (late, 0, start, len)])[1] - late
        };
        // What was read on, what was asked for, and the last of the segment; the next one is not there.
        let last = len + 255 * KIB;
        let hits = [(len, 1000), (0, 1000), (last, KIB)].map(|(start, len)| next(start, len));
        assert_eq!(hits, [1000, 1000, KIB].map(hit));
        assert!(next(last + KIB, KIB) > 100_000 + 10 * KIB);
        // Bytes that are in the buffer and bytes that are not: the latter take platter time.
        assert!(next(last, 2 * KIB) > 100_000 + 10 * KIB);
        // Reading continues after a hit in a full segment, once the position comes by again.
        let again = [
            (0, 0, 0, len),
            (late, 0, len, 100 * KIB),
            (late + 100 * MS, 0, len + 300 * KIB, KIB),
        ];
        assert_eq!(ends(BUFFERED, &again)[2], late + 100 * MS + hit(KIB));
        // A hit cannot end before the head has read the bytes.
        let early = ends(BUFFERED, &[(0, 0, 0, len), (0, 0, len, 100_000)]);
        assert_eq!(early[1] - early[0], MS);
    }

    #[test]
    fn a_waiting_command_ends_reading_on() {
        let first = (0, 0, 0, 10_000);
        let together = [first, (0, 0, 500_000_000, 0), (100 * MS, 0, 10_000, 1000)];
        let took = ends(BUFFERED, &together)[2] - 100 * MS;
        assert!(took > 1000 * 10 + 100_000 + 8 * MS, "moved back: {took}");
        // An older segment is kept until two others have been used.
        let other = (100 * MS, 0, 500_000_000, 10);
        let past = [first, other, (200 * MS, 0, 0, 1000)];
        assert_eq!(ends(BUFFERED, &past)[2] - 200 * MS, 51_000);
        let another = (200 * MS, 0, 700_000_000, 10);
        let gone = [first, other, another, (300 * MS, 0, 0, 1000)];
        assert!(ends(BUFFERED, &gone)[3] - 300 * MS > MS);
    }

    /// Two files at the same position are still two files.
    #[test]
    fn a_hit_needs_the_same_file() {
        let place = Hdd::new(BUFFERED, 7).place(1, 0);
        let took = |file, start| {
            let second = (100 * MS, file, start, 1000);
            ends(BUFFERED, &[(0, 1, 0, 10_000), second])[1] - 100 * MS
        };
        assert_eq!(took(1, 0), 51_000);
        assert!(took(0, place) > 100_000 && took(0, 0) > 51_000);
    }

    /// A position 0.2 MB after the end of a long read is 2 ms away, without a seek: the arm is where the read ended.
    #[test]
    fn the_arm_ends_at_the_last_byte() {
        let commands = [(0, 0, 0, 100_000_000), (0, 0, 100_200_000, 100_000)];
        let ends = ends(PLAIN, &commands);
        assert!((ends[1] - ends[0]).abs_diff(2 * MS + MS) <= 2, "{ends:?}");
    }

    #[test]
    fn the_nearest_command_goes_first() {
        let starts = [0, 900_000_000, 400_900_000, 20_300_000];
        let commands = [0, 1, 2, 3].map(|n| (n as u64, 0, starts[n], 10));
        // Positions at 0.3 and 0.9 of a revolution, and one that cannot be reached within this revolution.
        for (queue_depth, patience_ns, expected) in [
            (1, u64::MAX, [0, 1, 2, 3]),
            (4, u64::MAX, [0, 3, 2, 1]),
            (2, u64::MAX, [0, 2, 1, 3]),
            (4, 0, [0, 1, 2, 3]),
        ] {
            let mut model = PLAIN;
            (model.queue_depth, model.patience_ns) = (queue_depth, patience_ns);
            let ends = ends(model, &commands);
            let mut order = [0, 1, 2, 3];
            order.sort_by_key(|n| ends[*n]);
            assert_eq!(order, expected, "{queue_depth} {patience_ns}");
        }
    }

    /// Near commands keep coming. The far command is served when its patience has expired, and not before.
    #[test]
    fn no_reader_starves() {
        let model = HddModel {
            queue_depth: 8,
            patience_ns: 200 * MS,
            ..PLAIN
        };
        let mut commands = vec![(0, 0, 0, 10), (0, 0, 900_000_000, 10)];
        commands.extend((0..200).map(|n| (n * 5 * MS, 0, 10_000_000 * (n % 3), 10)));
        let far = ends(model, &commands)[1];
        assert!((200 * MS..250 * MS).contains(&far), "{far}");
    }

    #[test]
    fn the_seed_places_files() {
        let place = |seed, file, start| Hdd::new(PLAIN, seed).place(file, start);
        let over = PLAIN.capacity_bytes + 5;
        assert_eq!((place(1, 0, 77), place(2, 0, over)), (77, 5));
        assert_eq!(place(1, 3, 500), place(1, 3, 0) + 500);
        assert_ne!(place(1, 3, 0), place(2, 3, 0));
        assert_ne!(place(1, 3, 0), place(1, 4, 0));
        assert_eq!(place(1, 3, 0) % BLOCK_BYTES, 0);
    }
}
