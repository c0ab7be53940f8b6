//! A disk array behind one link. Interference between disks is modelled as a single overhead, which depends on the number of readers.
//!
//! ```text
//!   T(S) = o(readers) + S / B        one command after the other, B shared by all
//! ```
//!
//! An array reads ahead and sorts requests, so a command has an overhead of a fraction of a millisecond, while a single disk needs
//! about eight milliseconds. The seek cost that remains although the array sorts requests grows with the number of streams; this cost is
//! the overhead `o`.
//!
//! A stream is a sequence of commands on one file, each of which begins where the previous one ended. The number of readers is the
//! number of streams that issued at least one of the last [`RECENT`] commands. Each random read begins a new stream, so a single reader
//! that reads at random slows the array down as much as many readers, as on a real array.

use super::disk::transfer_ns;
use super::{Arrival, Command, Device};
use crate::time_queue::TimeQueue;
use serde::{Deserialize, Serialize};

/// Number of recent commands whose streams count as readers. Chosen: four for each of the 16 readers of the published
/// tables.
const RECENT: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayModel {
    /// `o` by number of readers, in nanoseconds. The first row begins at 1; rows are in rising order of readers.
    #[serde(deserialize_with = "super::custom::leaked")]
    pub overhead: &'static [Overhead],
    /// Picoseconds for each KiB: `1 / B`.
    pub ps_per_kib: u64,
}

/// The time that a command takes, as a function of its length and of the number of readers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    pub from_readers: u32,
    pub ns: u64,
}

impl Overhead {
    pub const fn new(from_readers: u32, ns: u64) -> Overhead {
        Overhead { from_readers, ns }
    }
}

impl ArrayModel {
    fn overhead_ns(&self, readers: usize) -> u64 {
        let mut rows = self.overhead.iter().rev();
        let row = rows.find(|row| row.from_readers as usize <= readers);
        row.map_or(0, |row| row.ns)
    }

    fn command_ns(&self, readers: usize, bytes: u64) -> u64 {
        self.overhead_ns(readers)
            .saturating_add(transfer_ns(bytes, self.ps_per_kib))
    }

    /// Returns a lower bound for the time to read `bytes` bytes: one command with the smallest overhead.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        let least = self.overhead.iter().map(|row| row.ns).min().unwrap_or(0);
        least.saturating_add(transfer_ns(bytes, self.ps_per_kib))
    }
}

#[derive(Debug)]
pub struct Array {
    model: ArrayModel,
    /// At most [`RECENT`] streams; each issued one of the last commands.
    streams: Vec<Stream>,
    commands: u64,
    /// Numbers and bytes of commands by their end times, which are fixed because no command overtakes another.
    queue: TimeQueue<(u64, u64)>,
    free_ns: u64,
}

#[derive(Debug)]
struct Stream {
    file: u32,
    /// Where its next command would begin.
    next: u64,
    last: u64,
}

impl Array {
    pub fn new(model: ArrayModel) -> Array {
        Array {
            model,
            streams: Vec::new(),
            commands: 0,
            queue: TimeQueue::new(),
            free_ns: 0,
        }
    }

    /// Assigns `command` to its stream and returns the number of readers.
    fn readers(&mut self, command: &Command) -> usize {
        self.commands += 1;
        let now = self.commands;
        self.streams.retain(|s| now - s.last < RECENT);
        let next = command.start.saturating_add(command.len);
        match self
            .streams
            .iter_mut()
            .find(|s| s.file == command.file && s.next == command.start)
        {
            Some(stream) => (stream.next, stream.last) = (next, now),
            None => self.streams.push(Stream {
                file: command.file,
                next,
                last: now,
            }),
        }
        self.streams.len()
    }
}

impl Device for Array {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let readers = self.readers(&command);
        let span_ns = self.model.command_ns(readers, command.len);
        self.free_ns = self.free_ns.max(now_ns).saturating_add(span_ns);
        self.queue.push(self.free_ns, (command.id, command.len));
    }

    fn next_time(&self) -> Option<u64> {
        self.queue.next_time()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some((_, (id, bytes))) = self.queue.pop(now_ns) {
            out.push(Arrival::whole(id, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::run_dry;

    /// 100 us for one reader, 300 us from three on; 1 us for each KiB.
    const MODEL: ArrayModel = ArrayModel {
        overhead: &[Overhead::new(1, 100_000), Overhead::new(3, 300_000)],
        ps_per_kib: 1_000_000,
    };

    /// The duration of each of `commands` (file, first KiB): 1 KiB each, all submitted at the same time.
    fn spans(commands: &[(u32, u64)]) -> Vec<u64> {
        let mut array = Array::new(MODEL);
        for (id, &(file, kib)) in commands.iter().enumerate() {
            array.submit(0, Command::new(id as u64, file, kib << 10, 1 << 10));
        }
        let ends: Vec<u64> = run_dry(&mut array).into_iter().map(|(at, _)| at).collect();
        let starts = [0].into_iter().chain(ends.iter().copied());
        ends.iter().zip(starts).map(|(end, at)| end - at).collect()
    }

    #[test]
    fn overhead_follows_the_number_of_streams() {
        assert_eq!(spans(&[(0, 0), (0, 1), (0, 2)]), [101_000; 3]);
        assert_eq!(spans(&[(0, 0), (1, 0), (0, 1), (1, 1)]), [101_000; 4]);
        let with_gaps = spans(&[(0, 0), (0, 9), (0, 20)]);
        assert_eq!(with_gaps, [101_000, 101_000, 301_000]);
    }

    #[test]
    fn a_stream_that_ended_is_forgotten() {
        let mut commands = vec![(1, 0), (2, 0)];
        commands.extend((0..66).map(|kib| (0, kib)));
        let spans = spans(&commands);
        // Commands 1 and 2 belong to the other readers; the 65th command after the second is the first that sees
        // neither.
        let alone = spans.iter().skip(2).position(|ns| *ns == 101_000);
        assert_eq!(alone, Some(62), "the first stream leaves with command 65");
        assert!(spans[2..64].iter().all(|ns| *ns == 301_000));
    }
}
