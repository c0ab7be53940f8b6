//! Storage models: predict the cost of reads on a disk, a volume or an object store.
//!
//! A device uses its owner's virtual clock. A device accepts commands and returns the time of its next event; when this time is reached, it
//! returns the bytes that have arrived. The bytes of a command arrive from its start to its end, in one or more parts, so a reader may
//! continue before a long command is complete.
//!
//! Devices use no real time and no real data, and never fail. The random numbers of a device do not depend on the order of calls
//! ([`crate::rng`]).
//!
//! ```text
//!   owner                      device
//!     │  submit(now, command)    │      time never goes back: a submit is never earlier than the
//!     ├─────────────────────────►│      submit or advance before it
//!     │  next_time() -> t        │
//!     │◄─────────────────────────┤
//!     │  advance(t)              │      arrivals up to and including t, in time order;
//!     ├─────────────────────────►│      maybe none, if t was only an internal step of the model
//!     │  Arrival, Arrival, ...   │
//!     │◄─────────────────────────┤
//! ```
//!
//! Each kind of device has a file in this folder. [`presets`] lists the named devices with their parameters.

pub mod array;
pub mod custom;
pub mod disk;
pub mod hdd;
pub mod lanes;
pub mod net;
pub mod presets;
pub mod ssd;
pub mod throttle;

use crate::rng::{self, Rng};
use std::collections::HashMap;

/// A read of `len` bytes from byte `start` of `file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The owner's number for the command, returned in each [`Arrival`]. It is unique among running commands.
    pub id: u64,
    /// The file of the workload, so that each file has its own random numbers.
    pub file: u32,
    pub start: u64,
    pub len: u64,
}

impl Command {
    pub const fn new(id: u64, file: u32, start: u64, len: u64) -> Command {
        Command {
            id,
            file,
            start,
            len,
        }
    }
}

/// The bytes of a command that have arrived so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub id: u64,
    /// Total arrived bytes, counted from the start of the command, not from the last arrival.
    pub bytes: u64,
    /// Whether the command is complete.
    pub done: bool,
}

impl Arrival {
    /// The arrival of a command that arrives in one piece.
    fn whole(id: u64, bytes: u64) -> Arrival {
        Arrival {
            id,
            bytes,
            done: true,
        }
    }
}

/// A simulated device. All times are in nanoseconds on the virtual clock of the device's owner.
pub trait Device: Send {
    /// Submits a command at `now_ns`. The device accepts any number of commands; those that it cannot start yet wait
    /// in its queue.
    fn submit(&mut self, now_ns: u64, command: Command);

    /// The time of its next event; `None` if it has no commands. A submit may make the next event earlier.
    fn next_time(&self) -> Option<u64>;

    /// Adds all arrivals up to and including `now_ns` to `out`.
    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>);
}

/// The random numbers of commands: they depend on the seed, on where a command begins, and on how many commands began there before.
#[derive(Debug)]
struct KeyedDraws {
    seed: u64,
    begun: HashMap<(u32, u64), u64>,
}

impl KeyedDraws {
    fn new(seed: u64) -> KeyedDraws {
        let begun = HashMap::new();
        KeyedDraws { seed, begun }
    }

    fn next(&mut self, command: &Command) -> Rng {
        let Command { file, start, .. } = *command;
        let nth = self.begun.entry((file, start)).or_default();
        *nth += 1;
        rng::keyed(self.seed, file, start, *nth - 1)
    }
}

/// Nanoseconds that `bytes` take at a rate above 0, rounded up.
fn span_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the time in nanoseconds that an idle device takes for one read from byte 0.
pub fn alone_ns(device: &mut dyn Device, bytes: u64) -> u64 {
    device.submit(0, Command::new(0, 0, 0, bytes));
    let (mut last, mut out) = (0, Vec::new());
    while let Some(at) = device.next_time() {
        last = at;
        device.advance(at, &mut out);
    }
    last
}

/// Runs `device` until it is idle, and returns each arrival with its time; for tests.
#[cfg(test)]
pub(crate) fn run_dry(device: &mut dyn Device) -> Vec<(u64, Arrival)> {
    let (mut log, mut out) = (Vec::new(), Vec::new());
    while let Some(at) = device.next_time() {
        device.advance(at, &mut out);
        log.extend(out.drain(..).map(|arrival| (at, arrival)));
    }
    log
}

/// Submits `commands` (file, start, len) at `at`, and returns the time at which each is done, in their order.
#[cfg(test)]
pub(crate) fn ends_of(device: &mut dyn Device, at: u64, commands: &[(u32, u64, u64)]) -> Vec<u64> {
    for (id, &(file, start, len)) in (0..).zip(commands) {
        device.submit(at, Command::new(id, file, start, len));
    }
    let mut ends = vec![0; commands.len()];
    for (at, arrival) in run_dry(device) {
        assert!(arrival.done, "it answers in whole");
        ends[arrival.id as usize] = at;
    }
    ends
}
