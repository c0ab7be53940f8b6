//! A device that works on several commands at once behind something that all of them pass one by one: a drive or a
//! volume of today, as a probe sees it from outside.
//!
//! ```text
//!   T(S) = command + seg(S)            one command alone (the formula of disk.rs)
//!   G(S) = gate + S * gate slope       what it holds the gate for: the bus, the host's queue, the link
//!
//!              gate (FIFO)                 lanes
//!   waiting   ┌──┬──┬──┬──┐      ┌──────── T(S) ────────┐
//!   FIFO  ──► │1 │2 │3 │4 │ ───► │ lane 1               │──► done: when T is over since the gate let it in,
//!   (a lane   └──┴──┴──┴──┘      ├──────────────────────┤    and G since the gate was free
//!   is free)   G  G  G  G        │ lane 2               │
//!                                └──────────────────────┘
//! ```
//!
//! So at most one command leaves for each `G`, and `lanes` for each `T`: throughput by depth rises, bends, and ends
//! at the gate. Bytes are reported when the whole command has ended, as by the system call.
//!
//! Never: distance, random numbers, or a difference between reads in order and at random.

use super::disk::{DiskModel, PS_KIB};
use super::{Arrival, Command, Device};
use crate::time_queue::TimeQueue;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub struct LanesModel {
    /// `T`: what one command alone takes.
    pub alone: DiskModel,
    /// Commands worked on at once; the rest wait. Not 0.
    pub lanes: u32,
    /// The part of `G` that does not depend on the length, in nanoseconds.
    pub gate_ns: u64,
    /// The part that does: picoseconds for each KiB.
    pub gate_ps_per_kib: u64,
}

impl LanesModel {
    /// Nanoseconds that a command of `bytes` holds the gate.
    pub fn gate_ns(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * u128::from(self.gate_ps_per_kib)).div_ceil(PS_KIB);
        self.gate_ns
            .saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// No device of this kind brings in `bytes` bytes faster: all of them through the gate in one command, the shortest
    /// command there is, and no lane faster than its cheapest slope.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        let cheapest = self
            .alone
            .slopes
            .iter()
            .map(|s| s.ps_per_kib)
            .min()
            .unwrap_or(0);
        let each =
            u128::from(bytes) * u128::from(cheapest) / PS_KIB / u128::from(self.lanes.max(1));
        let lanes = self
            .alone
            .command_ns
            .saturating_add(u64::try_from(each).unwrap_or(u64::MAX));
        // Rounded up once for all: several commands round up more often.
        self.gate_ns(bytes).max(lanes)
    }
}

#[derive(Debug)]
pub struct Lanes {
    model: LanesModel,
    waiting: VecDeque<Command>,
    /// The commands in lanes by their ends: number and bytes.
    busy: TimeQueue<(u64, u64)>,
    gate_free_ns: u64,
}

impl Lanes {
    pub fn new(model: LanesModel) -> Lanes {
        Lanes {
            model,
            waiting: VecDeque::new(),
            busy: TimeQueue::new(),
            gate_free_ns: 0,
        }
    }

    /// Begins waiting commands while there are lanes for them.
    fn start_waiting(&mut self, now_ns: u64) {
        while self.busy.len() < self.model.lanes as usize {
            let Some(Command { id, len, .. }) = self.waiting.pop_front() else {
                return;
            };
            let begin_ns = self.gate_free_ns.max(now_ns);
            self.gate_free_ns = begin_ns.saturating_add(self.model.gate_ns(len));
            let end_ns = begin_ns
                .saturating_add(self.model.alone.time_ns(len))
                .max(self.gate_free_ns);
            self.busy.push(end_ns, (id, len));
        }
    }
}

impl Device for Lanes {
    fn submit(&mut self, now_ns: u64, command: Command) {
        self.waiting.push_back(command);
        self.start_waiting(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        self.busy.next_time()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some((at, (id, bytes))) = self.busy.pop(now_ns) {
            out.push(Arrival::whole(id, bytes));
            self.start_waiting(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::disk::Slope;
    use crate::device::ends_of;

    const US: u64 = 1000;

    /// 50 us and 1 us for each KiB alone; the gate takes 10 us and half a us for each KiB; 3 at once.
    const MODEL: LanesModel = LanesModel {
        alone: DiskModel {
            command_ns: 50 * US,
            max_transfer_bytes: None,
            slopes: &[Slope::new(0, 1_000_000)],
        },
        lanes: 3,
        gate_ns: 10 * US,
        gate_ps_per_kib: 500_000,
    };

    /// When each of `kib`, all given at `at`, is done.
    fn ends(model: LanesModel, at: u64, kib: &[u64]) -> Vec<u64> {
        let commands: Vec<_> = kib.iter().map(|kib| (0, 0, kib << 10)).collect();
        ends_of(&mut Lanes::new(model), at, &commands)
    }

    #[test]
    fn one_alone_takes_its_time() {
        assert_eq!(ends(MODEL, 7, &[4]), [7 + 54 * US]);
        assert_eq!(ends(MODEL, 7, &[0]), [7 + 50 * US]);
        let narrow = LanesModel {
            gate_ps_per_kib: 20_000_000,
            ..MODEL
        };
        assert_eq!(
            ends(narrow, 0, &[10]),
            [210 * US],
            "the gate is slower than the command"
        );
    }

    #[test]
    fn the_gate_lets_them_in_one_by_one_and_lanes_are_few() {
        // In at 0, 12 and 24 us; the fourth when the first is done, at 54.
        assert_eq!(
            ends(MODEL, 0, &[4, 4, 4, 4]),
            [54 * US, 66 * US, 78 * US, 108 * US]
        );
        let wide = LanesModel { lanes: 64, ..MODEL };
        let many = ends(wide, 0, &[4; 64]);
        assert!(
            many.windows(2).all(|pair| pair[1] - pair[0] == 12 * US),
            "{many:?}"
        );
    }

    #[test]
    fn a_short_one_overtakes_a_long_one_in_another_lane() {
        assert_eq!(ends(MODEL, 0, &[100, 4]), [150 * US, (60 + 54) * US]);
    }

    #[test]
    fn nothing_is_faster_than_the_least() {
        for model in [
            MODEL,
            LanesModel { lanes: 1, ..MODEL },
            LanesModel {
                gate_ps_per_kib: 0,
                gate_ns: 0,
                ..MODEL
            },
        ] {
            for pieces in [1_u64, 2, 7, 64] {
                let end = ends(model, 0, &vec![448 / pieces; pieces as usize])
                    .into_iter()
                    .max()
                    .expect("some");
                assert!(
                    end >= model.least_ns((448 / pieces * pieces) << 10),
                    "{pieces}"
                );
            }
        }
    }
}
