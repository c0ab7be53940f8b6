//! A device that serves one command at a time: a disk, a USB stick, a SATA drive without a queue.
//!
//! The time of a command of `S` bytes depends only on `S` (as in the fits that it was made for, where a window is
//! one command of a closed loop):
//!
//! ```text
//!   T(S) = c * ceil(S / M) + seg(S)
//!
//!   c    overhead of each transfer: command, seek, rotation, whatever does not depend on S
//!   M    the longest transfer; a longer command is several of them, and its bytes arrive as they end
//!   seg  time of the bytes themselves, piecewise linear over the whole command
//!
//!        seg │               ___---   a flatter slope further on: a longer request
//!            │        __.--''         keeps more channels busy
//!            │    _.-'
//!            │ _-'
//!            └────┬─────┬──────── S
//!               slopes[1].from ...
//! ```
//!
//! Distance does not matter. A seek costs the same from any head position, and a command that follows the last one without
//! a gap costs as much as any other.

use super::{Arrival, Command, Device};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Picoseconds in a nanosecond, times bytes in a KiB: the divisor of `bytes * ps_per_kib` to nanoseconds.
pub(super) const PS_KIB: u128 = 1000 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    /// `c`, in nanoseconds.
    pub command_ns: u64,
    /// `M`, in bytes, not 0; none where no limit is known.
    pub max_transfer_bytes: Option<u64>,
    /// `seg`, in rising order of `from_bytes`; the first begins at 0.
    pub slopes: &'static [Slope],
}

/// What a byte costs from one length of the command to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slope {
    /// The slope holds for bytes of the command from here on.
    pub from_bytes: u64,
    /// Picoseconds for each KiB: fine enough for 102,400 KiB/s to be exact.
    pub ps_per_kib: u64,
}

impl Slope {
    pub const fn new(from_bytes: u64, ps_per_kib: u64) -> Slope {
        Slope {
            from_bytes,
            ps_per_kib,
        }
    }
}

impl DiskModel {
    /// Nanoseconds from the start of a command until its first `bytes` are there, if they end a transfer.
    pub fn time_ns(&self, bytes: u64) -> u64 {
        let transfers = self.transfers(bytes);
        transfers
            .saturating_mul(self.command_ns)
            .saturating_add(self.seg_ns(bytes))
    }

    fn transfers(&self, bytes: u64) -> u64 {
        self.max_transfer_bytes
            .map_or(1, |most| bytes.div_ceil(most).max(1))
    }

    /// No device of this kind brings in `bytes` bytes faster. Where a slope never rises, one command for all of them is
    /// the cheapest cut; where one does, all bytes cost as much as the cheapest.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        if self
            .slopes
            .is_sorted_by(|a, b| a.ps_per_kib >= b.ps_per_kib)
        {
            return self.time_ns(bytes);
        }
        let cheapest = self.slopes.iter().map(|s| s.ps_per_kib).min().unwrap_or(0);
        let ns = u128::from(bytes) * u128::from(cheapest) / PS_KIB;
        let transfers = self.transfers(bytes);
        transfers
            .saturating_mul(self.command_ns)
            .saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn seg_ns(&self, bytes: u64) -> u64 {
        let ends = self
            .slopes
            .iter()
            .skip(1)
            .map(|s| s.from_bytes)
            .chain([u64::MAX]);
        let cost = |(slope, end): (&Slope, u64)| {
            u128::from(bytes.min(end).saturating_sub(slope.from_bytes))
                * u128::from(slope.ps_per_kib)
        };
        let total: u128 = self.slopes.iter().zip(ends).map(cost).sum();
        u64::try_from(total.div_ceil(PS_KIB)).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    queue: VecDeque<TimedCommand>,
    /// The end of the last queued command.
    free_ns: u64,
}

/// A command whose time is fixed, because nothing overtakes: it begins when the one before it ends.
#[derive(Debug)]
struct TimedCommand {
    command: Command,
    start_ns: u64,
    arrived_bytes: u64,
}

impl Disk {
    pub fn new(model: DiskModel) -> Disk {
        Disk {
            model,
            queue: VecDeque::new(),
            free_ns: 0,
        }
    }

    /// The end of the transfer that the head of the queue is at: when, and how many bytes are there then.
    fn next_part(&self) -> Option<(u64, u64)> {
        let head = self.queue.front()?;
        let end = self
            .model
            .max_transfer_bytes
            .map(|most| head.arrived_bytes.saturating_add(most));
        let bytes = end.map_or(head.command.len, |end| end.min(head.command.len));
        Some((
            head.start_ns.saturating_add(self.model.time_ns(bytes)),
            bytes,
        ))
    }
}

impl Device for Disk {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let start_ns = self.free_ns.max(now_ns);
        self.free_ns = start_ns.saturating_add(self.model.time_ns(command.len));
        self.queue.push_back(TimedCommand {
            command,
            start_ns,
            arrived_bytes: 0,
        });
    }

    fn next_time(&self) -> Option<u64> {
        self.next_part().map(|(at, _)| at)
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some((_, bytes)) = self.next_part().filter(|(at, _)| *at <= now_ns) {
            let Some(head) = self.queue.front_mut() else {
                return;
            };
            head.arrived_bytes = bytes;
            let done = bytes == head.command.len;
            out.push(Arrival {
                id: head.command.id,
                bytes,
                done,
            });
            if done {
                self.queue.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::run_dry;

    /// 100 us for each transfer of at most 8 KiB, 1 us for each KiB up to 4 KiB and half of that from there on.
    const MODEL: DiskModel = DiskModel {
        command_ns: 100_000,
        max_transfer_bytes: Some(8192),
        slopes: &[Slope::new(0, 1_000_000), Slope::new(4096, 500_000)],
    };

    fn command(id: u64, len: u64) -> Command {
        Command::new(id, 0, 0, len)
    }

    #[test]
    fn time_of_a_command() {
        for (bytes, ns) in [
            (0, 100_000),
            (1024, 101_000),
            (4096, 104_000),
            (8192, 106_000),
            (8193, 206_001),
            (20480, 312_000),
        ] {
            assert_eq!(MODEL.time_ns(bytes), ns, "{bytes}");
        }
        assert_eq!(
            DiskModel {
                max_transfer_bytes: Some(1),
                ..MODEL
            }
            .time_ns(u64::MAX),
            u64::MAX
        );
    }

    #[test]
    fn a_long_command_arrives_in_parts() {
        let mut disk = Disk::new(MODEL);
        disk.submit(1000, command(7, 20480));
        let arrival = |bytes, done| Arrival { id: 7, bytes, done };
        let expected = [
            (107_000, arrival(8192, false)),
            (211_000, arrival(16384, false)),
            (313_000, arrival(20480, true)),
        ];
        assert_eq!(run_dry(&mut disk), expected);
        assert_eq!(disk.next_time(), None);
    }

    #[test]
    fn commands_wait_for_each_other_in_order() {
        let mut disk = Disk::new(MODEL);
        disk.submit(0, command(1, 4096));
        disk.submit(50, command(2, 4096));
        disk.submit(60, command(3, 0));
        let at: Vec<(u64, u64)> = run_dry(&mut disk)
            .into_iter()
            .map(|(at, a)| (at, a.id))
            .collect();
        assert_eq!(at, [(104_000, 1), (208_000, 2), (308_000, 3)]);
        // Idle since 308 us: the next one begins when it comes, not when the disk fell idle.
        disk.submit(1_000_000, command(4, 4096));
        assert_eq!(disk.next_time(), Some(1_104_000));
    }

    #[test]
    fn advance_takes_all_up_to_and_at_now() {
        let mut disk = Disk::new(MODEL);
        (1..=3).for_each(|id| disk.submit(0, command(id, 4096)));
        let mut out = Vec::new();
        disk.advance(103_999, &mut out);
        assert_eq!(out, []);
        disk.advance(208_000, &mut out);
        assert_eq!(out.iter().map(|a| a.id).collect::<Vec<_>>(), [1, 2]);
    }
}
