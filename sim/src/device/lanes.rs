//! A device that serves several commands concurrently over one link: a modern drive or volume, with only those properties that a probe can
//! measure.
//!
//! ```text
//!   T(S) = latency + S / rate          one command alone
//!   G(S) = S / link                    how long it occupies the link
//!
//!              link (FIFO)                 lanes
//!   waiting   ┌──┬──┬──┬──┐      ┌──────── T(S) ────────┐
//!   FIFO  ──► │1 │2 │3 │4 │ ───► │ lane 1               │──► done: T after the link let it in, and
//!   (a lane   └──┴──┴──┴──┘      ├──────────────────────┤    G after the link was free
//!   is free)   G  G  G  G        │ lane 2               │
//!                                └──────────────────────┘
//! ```
//!
//! A command occupies the link for the time `G`, so at most one completes in each `G`. A command alone takes the time `T`, so at most
//! `lanes` complete in each `T`. Throughput therefore rises with the queue depth, at first fast and then more slowly, until the link
//! limits it. Example: a command takes 50 us plus 1 us for each KiB, there are 3 lanes, and the link needs 0.5 us for each KiB. Four reads
//! of 4 KiB end after 54, 56, 58 and 108 us. The bytes of a command are reported only when the whole command is complete, as by a system
//! call. The distance between reads has no effect, so sequential and random reads cost the same. The model uses no random numbers.

use super::disk::{PS_KIB, transfer_ns};
use super::{Arrival, Command, Device};
use crate::time_queue::TimeQueue;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanesModel {
    /// Latency of a single command, without its bytes.
    pub latency_ns: u64,
    /// Time for each KiB, in picoseconds.
    pub ps_per_kib: u64,
    /// Concurrent commands; others wait. Not 0.
    pub lanes: u32,
    /// Time that each KiB occupies the link, in picoseconds.
    pub link_ps_per_kib: u64,
}

impl LanesModel {
    fn alone_ns(&self, bytes: u64) -> u64 {
        self.latency_ns
            .saturating_add(transfer_ns(bytes, self.ps_per_kib))
    }

    fn link_ns(&self, bytes: u64) -> u64 {
        transfer_ns(bytes, self.link_ps_per_kib)
    }

    /// Returns the minimum time in which a device of this kind reads `bytes` bytes: all bytes pass over the link, and are divided evenly
    /// among the lanes.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        let each = u128::from(bytes) * u128::from(self.ps_per_kib) / PS_KIB;
        let each = u64::try_from(each / u128::from(self.lanes.max(1))).unwrap_or(u64::MAX);
        // Rounded up once for all bytes: several commands would round up more often.
        self.link_ns(bytes)
            .max(self.latency_ns.saturating_add(each))
    }
}

#[derive(Debug)]
pub struct Lanes {
    model: LanesModel,
    waiting: VecDeque<Command>,
    /// The running commands by end time: number and bytes.
    busy: TimeQueue<(u64, u64)>,
    link_free_ns: u64,
}

impl Lanes {
    pub fn new(model: LanesModel) -> Lanes {
        Lanes {
            model,
            waiting: VecDeque::new(),
            busy: TimeQueue::new(),
            link_free_ns: 0,
        }
    }

    /// Starts waiting commands while lanes are free.
    fn start_waiting(&mut self, now_ns: u64) {
        while self.busy.len() < self.model.lanes as usize {
            let Some(Command { id, len, .. }) = self.waiting.pop_front() else {
                return;
            };
            let begin_ns = self.link_free_ns.max(now_ns);
            self.link_free_ns = begin_ns.saturating_add(self.model.link_ns(len));
            let end_ns = begin_ns
                .saturating_add(self.model.alone_ns(len))
                .max(self.link_free_ns);
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
    use crate::device::ends_of;

    const US: u64 = 1000;

    /// A single command takes 50 us and 1 us for each KiB; the link takes 0.5 us for each KiB; 3 lanes.
    const MODEL: LanesModel = LanesModel {
        latency_ns: 50 * US,
        ps_per_kib: 1_000_000,
        lanes: 3,
        link_ps_per_kib: 500_000,
    };

    /// The end times of commands of `kib` KiB, all submitted at `at`.
    fn ends(model: LanesModel, at: u64, kib: &[u64]) -> Vec<u64> {
        let commands: Vec<_> = kib.iter().map(|kib| (0, 0, kib << 10)).collect();
        ends_of(&mut Lanes::new(model), at, &commands)
    }

    #[test]
    fn a_single_command_takes_its_time() {
        assert_eq!(ends(MODEL, 7, &[4]), [7 + 54 * US]);
        assert_eq!(ends(MODEL, 7, &[0]), [7 + 50 * US]);
        let mut narrow = MODEL;
        narrow.link_ps_per_kib = 20_000_000;
        // The link is slower than the command.
        assert_eq!(ends(narrow, 0, &[10]), [200 * US]);
        // A short one overtakes a long one in another lane.
        assert_eq!(ends(MODEL, 0, &[100, 4]), [150 * US, (50 + 54) * US]);
    }

    #[test]
    fn the_link_lets_them_in_one_by_one_and_lanes_are_few() {
        // Three commands enter at 0, 2 and 4 us; the fourth when the first has ended, at 54 us.
        let all = ends(MODEL, 0, &[4, 4, 4, 4]);
        assert_eq!(all, [54 * US, 56 * US, 58 * US, 108 * US]);
        let wide = LanesModel { lanes: 64, ..MODEL };
        let many = ends(wide, 0, &[4; 64]);
        let mut pairs = many.windows(2);
        assert!(pairs.all(|pair| pair[1] - pair[0] == 2 * US), "{many:?}");
    }

    #[test]
    fn nothing_is_faster_than_the_least() {
        for (lanes, link_ps_per_kib) in [(3, 500_000), (1, 500_000), (3, 0)] {
            let mut model = MODEL;
            (model.lanes, model.link_ps_per_kib) = (lanes, link_ps_per_kib);
            for pieces in [1_u64, 2, 7, 64] {
                let ends = ends(model, 0, &vec![448 / pieces; pieces as usize]);
                let least = model.least_ns((448 / pieces * pieces) << 10);
                assert!(ends.into_iter().max() >= Some(least), "{pieces}");
            }
        }
    }
}
