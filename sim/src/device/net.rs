//! A device that serves several commands concurrently over a shared link: a network volume, an object store, an NVMe
//! drive.
//!
//! A command waits for a connection, then for the first byte. After the first byte, the bytes of the command arrive in chunks, at the rate
//! of the connection or, if the shared link is busy, more slowly. The time of a single command of `S` bytes is the round-trip time plus the
//! time of the transfer:
//!
//! ```text
//!   T(S) = RTT + S / min(connection, link)
//!
//!             connections                        link (FIFO by readiness)
//!   waiting   ┌─────────── RTT ──────┐ ┌─chunk─┐
//!   FIFO  ──► │ connection 1         ├─┤       ├──►┌──┬──┬──┬──┬──┐
//!             ├──────────────────────┤ └───────┘   │1 │2 │1 │2 │2 │──► arrivals
//!         ──► │ connection 2         ├──chunk─────►└──┴──┴──┴──┴──┘
//!             └──────────────────────┘
//! ```
//!
//! A transfer has at most one chunk in the link's queue: its next chunk becomes ready when the previous chunk has arrived. Transfers
//! therefore alternate, and a short read that follows a long read waits for only one chunk of the long read, not for all its chunks.
//!
//! Some protocols send each reply as one message, for example the protocol between a Ceph OSD and its client. For such a protocol,
//! the whole reply is one chunk: it arrives only when it is complete, and later replies wait for it.
//!
//! Connection setup, packet loss, request rate limits and writes are not modelled.

use super::{Arrival, Command, Device, KeyedDraws, span_ns};
use crate::rng;
use crate::time_queue::TimeQueue;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Size of a chunk in bytes: the unit in which transfers alternate on the link, and in which progress is reported. The size is
/// chosen, not measured: it is an order of magnitude smaller than readahead windows, and large enough for a fast simulation.
pub const CHUNK_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetModel {
    /// Time from the start of a command to its first byte, in nanoseconds: the median.
    pub rtt_ns: u64,
    /// The 0.99 quantile of this time, for a lognormal distribution; `None`: every round trip takes `rtt_ns`.
    pub rtt_p99_ns: Option<u64>,
    /// Bytes per second of one connection. Not 0.
    pub connection_bytes_per_s: u64,
    /// Bytes per second of all connections together. Not 0.
    pub link_bytes_per_s: u64,
    /// Number of concurrent commands; others wait. Not 0.
    #[serde(rename = "server_connections")]
    pub connections: u32,
    /// A reply is one message that arrives as a whole, after the previous reply; otherwise transfers alternate, in
    /// chunks of [`CHUNK_BYTES`].
    #[serde(default)]
    pub whole_answers: bool,
}

impl NetModel {
    /// Returns the minimum time in which a device of this kind reads `bytes` bytes. The minimum is the shortest possible round trip, plus
    /// the time of the bytes over the link or over all connections together, whichever is slower.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        let shortest = match self.rtt_p99_ns {
            Some(p99_ns) => rng::least_lognormal(self.rtt_ns as f64, p99_ns as f64).floor() as u64,
            None => self.rtt_ns,
        };
        let connections = self
            .connection_bytes_per_s
            .saturating_mul(u64::from(self.connections));
        shortest.saturating_add(span_ns(bytes, connections.min(self.link_bytes_per_s)))
    }
}

#[derive(Debug)]
pub struct Net {
    model: NetModel,
    /// The transfer of each connection; as many as have ever been busy at the same time.
    transfers: Vec<Transfer>,
    /// Connections of `transfers` that are idle.
    idle: Vec<usize>,
    waiting: VecDeque<Waiting>,
    /// One entry for each busy connection: the time at which its first byte or its chunk arrives. The order of entries
    /// with the same time makes the link FIFO.
    events: TimeQueue<usize>,
    link_free_ns: u64,
    /// The random numbers of the round trips, if there is a tail.
    draws: KeyedDraws,
}

#[derive(Debug)]
struct Transfer {
    command: Command,
    arrived_bytes: u64,
    /// The current chunk; 0 before the first byte.
    chunk_bytes: u64,
}

#[derive(Debug)]
struct Waiting {
    command: Command,
    since_ns: u64,
    rtt_ns: u64,
}

impl Net {
    /// Creates an idle device whose random round-trip times depend on `seed`.
    pub fn new(model: NetModel, seed: u64) -> Net {
        Net {
            model,
            transfers: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            events: TimeQueue::new(),
            link_free_ns: 0,
            draws: KeyedDraws::new(seed),
        }
    }

    fn draw_rtt(&mut self, command: &Command) -> u64 {
        let Some(p99_ns) = self.model.rtt_p99_ns else {
            return self.model.rtt_ns;
        };
        let mut rng = self.draws.next(command);
        rng.lognormal(self.model.rtt_ns as f64, p99_ns as f64)
            .round() as u64
    }

    /// Starts waiting commands while connections are free.
    fn start_waiting(&mut self, now_ns: u64) {
        while self.transfers.len() - self.idle.len() < self.model.connections as usize {
            let Some(next) = self.waiting.pop_front() else {
                return;
            };
            let transfer = Transfer {
                command: next.command,
                arrived_bytes: 0,
                chunk_bytes: 0,
            };
            let connection = self.idle.pop().unwrap_or(self.transfers.len());
            match self.transfers.get_mut(connection) {
                Some(slot) => *slot = transfer,
                None => self.transfers.push(transfer),
            }
            self.events.push(
                next.since_ns.max(now_ns).saturating_add(next.rtt_ns),
                connection,
            );
        }
    }

    /// The connection has received its first byte or the end of a chunk: records it and puts the next chunk on the
    /// link.
    fn step(&mut self, now_ns: u64, connection: usize, out: &mut Vec<Arrival>) {
        let model = self.model;
        let transfer = &mut self.transfers[connection];
        let len = transfer.command.len;
        transfer.arrived_bytes += transfer.chunk_bytes;
        let arrived = transfer.arrived_bytes;
        let done = arrived == len;
        if transfer.chunk_bytes > 0 || done {
            out.push(Arrival {
                id: transfer.command.id,
                bytes: arrived,
                done,
            });
        }
        if done {
            self.idle.push(connection);
            self.start_waiting(now_ns);
            return;
        }
        let rest = len - arrived;
        transfer.chunk_bytes = match model.whole_answers {
            true => rest,
            false => rest.min(CHUNK_BYTES),
        };
        // Differences of rounded sums, so that rounding errors of chunks do not add up.
        let end = arrived + transfer.chunk_bytes;
        let span = |bytes_per_s| span_ns(end, bytes_per_s) - span_ns(arrived, bytes_per_s);
        let paced_ns = now_ns.saturating_add(span(model.connection_bytes_per_s));
        self.link_free_ns = self
            .link_free_ns
            .max(now_ns)
            .saturating_add(span(model.link_bytes_per_s));
        self.events
            .push(self.link_free_ns.max(paced_ns), connection);
    }
}

impl Device for Net {
    fn submit(&mut self, now_ns: u64, command: Command) {
        let rtt_ns = self.draw_rtt(&command);
        self.waiting.push_back(Waiting {
            command,
            since_ns: now_ns,
            rtt_ns,
        });
        self.start_waiting(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        self.events.next_time()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some((at, connection)) = self.events.pop(now_ns) {
            self.step(at, connection, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::run_dry;

    const MS: u64 = 1_000_000;

    /// 1 ms, 10 ns per byte on a connection, 5 ns per byte on the link.
    const MODEL: NetModel = NetModel {
        rtt_ns: MS,
        rtt_p99_ns: None,
        connection_bytes_per_s: 100_000_000,
        link_bytes_per_s: 200_000_000,
        connections: 4,
        whole_answers: false,
    };

    fn command(id: u64, len: u64) -> Command {
        Command::new(id, 0, id << 20, len)
    }

    /// The end time of each command, with its id.
    fn ends(device: &mut Net) -> Vec<(u64, u64)> {
        let done = run_dry(device).into_iter().filter(|(_, a)| a.done);
        let mut ends: Vec<(u64, u64)> = done.map(|(at, a)| (a.id, at)).collect();
        ends.sort_unstable();
        ends
    }

    #[test]
    fn one_command_takes_rtt_and_its_bytes() {
        for (connection, link) in [
            (62_500_000, 62_500_000),
            (100_000_000, 1_250_000_000),
            (7_000_000_000, 3_000_000_001),
        ] {
            let mut model = MODEL;
            (model.connection_bytes_per_s, model.link_bytes_per_s) = (connection, link);
            for len in [0, 1, 512, 65_536, 65_537, 407_000_064, 5 << 30] {
                let mut net = Net::new(model, 0);
                net.submit(77, command(1, len));
                let expected = 77 + MS + span_ns(len, connection.min(link));
                assert_eq!(ends(&mut net), [(1, expected)], "{len} at {connection}");
            }
        }
        // A part of a nanosecond is a whole one.
        let spans = [0, 1, 3, 4].map(|bytes| span_ns(bytes, 3_000_000_000));
        assert_eq!((spans, span_ns(u64::MAX, 1)), ([0, 1, 1, 2], u64::MAX));
    }

    #[test]
    fn progress_is_reported_chunk_by_chunk() {
        let mut net = Net::new(MODEL, 0);
        net.submit(0, command(1, CHUNK_BYTES + 100));
        let arrival = |bytes, done| Arrival { id: 1, bytes, done };
        let first = MS + 10 * CHUNK_BYTES;
        let expected = [
            (first, arrival(CHUNK_BYTES, false)),
            (first + 1000, arrival(CHUNK_BYTES + 100, true)),
        ];
        assert_eq!(run_dry(&mut net), expected);
    }

    /// Two transfers fill the link. Four must share it, and all end within one round of chunks.
    #[test]
    fn transfers_share_the_link_fairly() {
        let len = 10 * CHUNK_BYTES;
        let round_ns = 4 * 5 * CHUNK_BYTES;
        let ends = |count| {
            let mut net = Net::new(MODEL, 0);
            (1..=count).for_each(|id| net.submit(0, command(id, len)));
            ends(&mut net).into_iter().map(|(_, at)| at)
        };
        let least = MS + 10 * len;
        assert!(ends(2).all(|at| (least..=least + round_ns).contains(&at)));
        let four = Vec::from_iter(ends(4));
        assert_eq!(four[3], MS + 4 * 5 * len, "the link is never idle");
        assert!(four[0] + round_ns > four[3], "{four:?}");
    }

    /// A short read that is submitted while a long one is running waits for at most one of its chunks. With one message
    /// per reply it waits for all of the long one, and no byte of that comes early.
    #[test]
    fn a_short_read_overtakes_a_long_one() {
        let long = 64 * CHUNK_BYTES;
        let run = |whole_answers| {
            let mut model = MODEL;
            (model.link_bytes_per_s, model.whole_answers) = (100_000_000, whole_answers);
            let mut net = Net::new(model, 0);
            net.submit(0, command(1, long));
            net.submit(5 * MS, command(2, 512));
            net
        };
        let end = MS + 10 * long;
        let [(_, first), (_, short)] = ends(&mut run(false))[..] else {
            panic!("two ends")
        };
        assert!(short <= 6 * MS + 5120 + 10 * CHUNK_BYTES, "{short}");
        assert_eq!(first, end + 5120);
        let whole = |id, bytes| Arrival {
            id,
            bytes,
            done: true,
        };
        let expected = [(end, whole(1, long)), (end + 5120, whole(2, 512))];
        assert_eq!(run_dry(&mut run(true)), expected);
    }

    #[test]
    fn commands_wait_for_a_connection_in_order() {
        let connected = |connections| {
            let mut net = Net::new(
                NetModel {
                    connections,
                    ..MODEL
                },
                0,
            );
            (1..=3).for_each(|id| net.submit(0, command(id, 100)));
            net
        };
        let mut net = connected(1);
        assert_eq!(ends(&mut net), [1, 2, 3].map(|n| (n, n * (MS + 1000))));
        // A command that is submitted when the connection has long been idle begins at once.
        net.submit(9 * MS, command(4, 100));
        assert_eq!(ends(&mut net), [(4, 10 * MS + 1000)]);
        // This also holds if the owner has not advanced the device before.
        net.submit(20 * MS, command(5, 100));
        net.submit(30 * MS, command(6, 100));
        assert_eq!(ends(&mut net), [(5, 21 * MS + 1000), (6, 31 * MS + 1000)]);
        assert_eq!(ends(&mut connected(2))[2], (3, 2 * MS + 2000));
    }

    /// The round trip depends on the bytes and on how often they were fetched, not on earlier requests for other bytes.
    #[test]
    fn luck_is_keyed() {
        let model = NetModel {
            rtt_p99_ns: Some(5 * MS),
            ..MODEL
        };
        let rtt_of = |before: &[u64], id: u64| {
            let mut net = Net::new(model, 42);
            before.iter().for_each(|&id| net.submit(0, command(id, 0)));
            ends(&mut net);
            let now = 1000 * MS;
            net.submit(now, command(id, 0));
            ends(&mut net)[0].1 - now
        };
        assert_eq!(rtt_of(&[], 1), rtt_of(&[2, 3, 4], 1));
        assert_ne!(rtt_of(&[], 1), rtt_of(&[], 2));
        assert_ne!(rtt_of(&[], 1), rtt_of(&[1], 1));
        assert_eq!(rtt_of(&[1], 1), rtt_of(&[5, 1, 6], 1));
    }
}
