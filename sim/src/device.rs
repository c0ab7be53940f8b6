//! Models of storage: what a read costs on a disk, a volume or an object store, without having one.
//!
//! A device is driven by events on a virtual clock that its owner keeps: it is given commands, says when it will
//! next have an arrival, and returns what has arrived by then. Bytes of a command arrive in order from its
//! start, in one or several parts, so that a reader may go on before the whole of a long command is there.
//!
//! Never: real time, real bytes, failure, or a draw that depends on the order of calls ([`crate::rng`]).
//!
//! ```text
//!   owner                      device
//!     │  submit(now, command)    │      time never goes back: a submit is never earlier than the
//!     ├─────────────────────────►│      submit or advance before it
//!     │  next_time() -> t        │
//!     │◄─────────────────────────┤
//!     │  advance(t)              │      arrivals up to and at t, in the order of their times;
//!     ├─────────────────────────►│      maybe none, where t was only a step inside the model
//!     │  Arrival, Arrival, ...   │
//!     │◄─────────────────────────┤
//! ```
//!
//! A kind of device is a file here; a device with figures is a row in [`presets`].

pub mod array;
pub mod custom;
pub mod disk;
pub mod fit;
pub mod hdd;
pub mod lanes;
pub mod net;
pub mod presets;
pub mod sliced;
pub mod ssd;
pub mod throttle;

/// A read of `len` bytes from byte `start` of `file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The owner's name for it, handed back in each [`Arrival`]. Not used again while the command runs.
    pub id: u64,
    /// Which file of the workload, so that each file has its own random numbers.
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

/// Bytes of a command that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub id: u64,
    /// How many bytes are there, counted from the start of the command, not from the last arrival.
    pub bytes: u64,
    /// All of them: nothing more follows for this command.
    pub done: bool,
}

impl Arrival {
    /// Of a command that arrives in one piece.
    fn whole(id: u64, bytes: u64) -> Arrival {
        Arrival {
            id,
            bytes,
            done: true,
        }
    }
}

/// Something that answers commands in virtual time. All times are nanoseconds of its owner's clock.
pub trait Device: Send {
    /// Gives it a command at `now_ns`. The device takes any number of them; those that it cannot work on yet wait
    /// inside it.
    fn submit(&mut self, now_ns: u64, command: Command);

    /// When it will next have something to say; nothing while it has no command. A submit may bring it forward.
    fn next_time(&self) -> Option<u64>;

    /// Adds to `out` all that arrives up to and at `now_ns`.
    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>);
}

/// Nanoseconds that `bytes` take at a rate that is not 0, rounded up.
fn span_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Nanoseconds that an idle device takes for one read from its start.
pub fn alone_ns(device: &mut dyn Device, bytes: u64) -> u64 {
    device.submit(0, Command::new(0, 0, 0, bytes));
    let (mut last, mut out) = (0, Vec::new());
    while let Some(at) = device.next_time() {
        last = at;
        device.advance(at, &mut out);
    }
    last
}

/// Lets `device` work until it has nothing left, and returns the time of each arrival: for tests.
#[cfg(test)]
pub(crate) fn run_dry(device: &mut dyn Device) -> Vec<(u64, Arrival)> {
    let (mut log, mut out) = (Vec::new(), Vec::new());
    while let Some(at) = device.next_time() {
        device.advance(at, &mut out);
        log.extend(out.drain(..).map(|arrival| (at, arrival)));
    }
    log
}

/// When each of `commands`, (file, start, len) and all given at `at`, is done, by their order.
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
