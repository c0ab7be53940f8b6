//! A disk array behind an I/O scheduler that gives each reader a time slice, as CFQ did. The number and length of these time slices
//! determine how long a reader waits.
//!
//! ```text
//!   reader 0   ████████░                          ████████        █ its commands, one after the other
//!   reader 1           ████████░                                  ░ idle until its next command, at most `idle_ns`
//!   reader 2                    ████████░
//!              ├ slice ┤├────── it waits ───────┤
//! ```
//! Each command takes the same time as in the model [`super::array`]. Each file with a queued command counts as one reader. The
//! time of a slice starts when the reader's first command ends, so a reader is served for the slice and one more command. Example:
//! four readers share 300 ms, so each slice is 75 ms. Between two of its slices, a reader waits for three slices of other readers and for
//! three commands: 225 ms and the time of three commands. Without time slices the reader would wait only for three commands.
//!
//! Slices change the order of commands but not their number or duration, so rates are nearly the same as without slices. Not modelled:
//! writes, priorities, several concurrent commands of one reader, and the end of a slice when its reader has no more commands. Source:
//! Linux, Documentation/block/cfq-iosched.txt (slice_sync 100 ms, slice_idle 8 ms, target_latency 300 ms with low_latency, which is on by
//! default); the smallest slice is twice slice_idle.

use super::array::ArrayModel;
pub use super::array::Slices;
use super::{Arrival, Command, Device};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Turn {
    file: u32,
    /// End of the slice; `None` until its first command has ended.
    until_ns: Option<u64>,
    /// When the device stops waiting for the next command.
    idle_until_ns: Option<u64>,
}

#[derive(Debug)]
pub struct SlicedArray {
    model: ArrayModel,
    slices: Slices,
    /// The commands of each reader, in the order of their turns. A reader is a file.
    queues: VecDeque<(u32, VecDeque<Command>)>,
    turn: Option<Turn>,
    /// The end time of the command in the array, and the command.
    running: Option<(u64, Command)>,
}

impl SlicedArray {
    pub fn new(model: ArrayModel, slices: Slices) -> SlicedArray {
        SlicedArray {
            model,
            slices,
            queues: VecDeque::new(),
            turn: None,
            running: None,
        }
    }

    /// Number of readers with a queued or running command, including the current one.
    fn readers(&self) -> u64 {
        let turn = self.turn.map(|turn| turn.file);
        let waiting = self
            .queues
            .iter()
            .filter(|(file, queue)| !queue.is_empty() && Some(*file) != turn)
            .count();
        waiting as u64 + u64::from(turn.is_some())
    }

    /// Passes the next command to the array, if the array is free and the current reader has one.
    fn dispatch(&mut self, now_ns: u64) {
        while self.running.is_none() {
            let Some(turn) = self.turn.or_else(|| self.next_turn()) else {
                return;
            };
            self.turn = Some(turn);
            let over = turn.until_ns.is_some_and(|until| now_ns >= until);
            let queue = self
                .queues
                .iter_mut()
                .find(|(file, _)| *file == turn.file)
                .map(|(_, queue)| queue);
            match queue.and_then(|queue| if over { None } else { queue.pop_front() }) {
                Some(command) => {
                    let ns = self.model.command_ns(self.readers() as usize, command.len);
                    self.running = Some((now_ns.saturating_add(ns), command));
                }
                None if !over && now_ns < self.idle_until(now_ns) => return,
                None => self.end_turn(turn.file),
            }
        }
    }

    /// The next reader with a command.
    fn next_turn(&self) -> Option<Turn> {
        let file = self.queues.iter().find(|(_, queue)| !queue.is_empty())?.0;
        Some(Turn {
            file,
            until_ns: None,
            idle_until_ns: None,
        })
    }

    /// Ends the turn of this reader; all others come before its next turn.
    fn end_turn(&mut self, file: u32) {
        self.turn = None;
        if let Some(at) = self.queues.iter().position(|(other, _)| *other == file)
            && let Some(queue) = self.queues.remove(at)
        {
            self.queues.push_back(queue);
        }
    }

    /// When the wait for the current reader ends; the wait begins now if it has not begun.
    fn idle_until(&mut self, now_ns: u64) -> u64 {
        let idle_ns = self.slices.idle_ns;
        self.turn.as_mut().map_or(now_ns, |turn| {
            *turn
                .idle_until_ns
                .get_or_insert(now_ns.saturating_add(idle_ns))
        })
    }
}

impl Device for SlicedArray {
    fn submit(&mut self, now_ns: u64, command: Command) {
        match self
            .queues
            .iter_mut()
            .find(|(file, _)| *file == command.file)
        {
            Some((_, queue)) => queue.push_back(command),
            None => self
                .queues
                .push_back((command.file, VecDeque::from([command]))),
        }
        self.dispatch(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        let idle = || {
            self.turn
                .and_then(|turn| turn.idle_until_ns)
                .filter(|_| self.readers() > 1)
        };
        self.running.map(|(end_ns, _)| end_ns).or_else(idle)
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some(at) = self.next_time().filter(|at| *at <= now_ns) {
            if let Some((_, command)) = self.running.take() {
                out.push(Arrival::whole(command.id, command.len));
                let slice_ns = self.slices.of(self.readers());
                if let Some(turn) = self.turn.as_mut() {
                    turn.until_ns.get_or_insert(at.saturating_add(slice_ns));
                    turn.idle_until_ns = None;
                }
            }
            self.dispatch(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::array::Overhead;

    const MS: u64 = 1_000_000;
    use crate::device::run_dry;

    /// 1 ms for each command.
    const MODEL: ArrayModel = ArrayModel {
        overhead: &[Overhead::new(1, MS)],
        ps_per_kib: 0,
        slices: None,
    };

    #[test]
    fn slices_are_shared_by_more_than_three() {
        let ms = [1, 2, 3, 4, 8, 16, 100].map(|readers| Slices::CFQ.of(readers) / MS);
        assert_eq!(ms, [100, 100, 100, 75, 37, 18, 16]);
    }

    /// Two readers with 200 commands each: 101 of the first, then 101 of the second, then the rest.
    #[test]
    fn a_reader_keeps_the_array_for_its_slice() {
        let mut sliced = SlicedArray::new(MODEL, Slices::CFQ);
        for id in 0..400 {
            sliced.submit(0, Command::new(id, (id % 2) as u32, 0, 4096));
        }
        let order: Vec<u64> = run_dry(&mut sliced)
            .into_iter()
            .map(|(_, arrival)| arrival.id % 2)
            .collect();
        let turns: Vec<(u64, usize)> = order
            .chunk_by(|a, b| a == b)
            .map(|turn| (turn[0], turn.len()))
            .collect();
        assert_eq!(turns, [(0, 101), (1, 101), (0, 99), (1, 99)]);
    }

    /// A reader that submits its next command at once keeps its turn; without a command it loses the turn after 8 ms.
    #[test]
    fn the_array_idles_for_the_reader_whose_turn_it_is() {
        let mut sliced = SlicedArray::new(MODEL, Slices::CFQ);
        let command = |id, file| Command::new(id, file, 0, 4096);
        let mut out = Vec::new();
        sliced.submit(0, command(0, 0));
        sliced.submit(0, command(1, 1));
        sliced.advance(MS, &mut out);
        sliced.submit(MS, command(2, 0));
        sliced.advance(2 * MS, &mut out);
        assert_eq!(
            out.iter().map(|arrival| arrival.id).collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!(
            sliced.next_time(),
            Some(10 * MS),
            "8 ms for the next command of reader 0"
        );
        sliced.advance(10 * MS, &mut out);
        assert_eq!((out.len(), sliced.next_time()), (2, Some(11 * MS)));
        sliced.advance(11 * MS, &mut out);
        assert_eq!(
            (out[2].id, sliced.next_time()),
            (1, None),
            "nothing is left to wait for"
        );
        // Only one reader is left: no other waits, so the slice does not matter.
        sliced.submit(500 * MS, command(3, 1));
        sliced.advance(501 * MS, &mut out);
        assert_eq!(out.len(), 4);
    }
}
