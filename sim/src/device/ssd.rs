//! A flash drive: its pages are distributed over many dies, dies share channels, and channels share the link to the host.
//!
//! ```text
//!   command ──► pages, striped: page p is on channel p % C, there on die (p / C) % D
//!
//!      dies (FIFO each)        channels (FIFO each)        link (FIFO)
//!      ┌──────────────┐
//!      │ die 0   read │──┐     ┌─────────────────┐
//!      ├──────────────┤  ├────►│ channel 0       │──┐
//!      │ die 1   read │──┘     └─────────────────┘  │     ┌───────────┐
//!      ├──────────────┤        ┌─────────────────┐  ├────►│ host link │──► done, when its last page is over
//!      │ ...          │──┬────►│ channel 1       │──┘     └───────────┘
//!      └──────────────┘  ┴     └─────────────────┘
//! ```
//!
//! A long command keeps several dies busy, and so do several commands in flight. The model therefore needs no table of rates by length or
//! queue depth: these rates result from the queues of dies, channels and link. A flash page is read as a whole, but only the requested
//! bytes are transferred.
//!
//! Reads do not change the state of the drive: the model has no translation table, garbage collection, cache, writes or wear. Other
//! activity of the drive is modelled as a tail of the latencies. A die may take longer, and some reads wait for a program or erase
//! operation of their die. The random numbers for these delays depend only on the seed and the command ([`crate::rng`]).

use super::{Arrival, Command, Device, KeyedDraws};
use crate::rng::Rng;
use crate::time_queue::TimeQueue;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdModel {
    /// `C`. Not 0.
    pub channels: u32,
    /// `D`. Not 0.
    pub dies_per_channel: u32,
    /// Bytes of a flash page. Not 0.
    #[serde(rename = "flash_page_bytes")]
    pub page_bytes: u64,
    /// Firmware and host time of each command, in nanoseconds. Commands do not wait for each other in this phase.
    pub command_ns: u64,
    /// Time of a die to read a page, in nanoseconds: the median.
    pub read_ns: u64,
    /// Bytes per second of a channel. Not 0.
    pub channel_bytes_per_s: u64,
    /// Bytes per second to the host. Not 0.
    pub link_bytes_per_s: u64,
    /// Number of concurrent commands; others wait. Not 0.
    pub queue_depth: u32,
    /// The distribution of slow reads.
    pub tail: Option<Tail>,
}

/// Slow reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// The 0.99 quantile of a die's read time, for a lognormal distribution; not below `read_ns`.
    pub read_p99_ns: u64,
    /// Reads per million that collide with a program or an erase operation, each with the same probability.
    pub collisions_per_million: u64,
    /// Duration of a program operation, in nanoseconds: a read that collides with one waits for a uniformly random part
    /// of it.
    pub program_ns: u64,
    pub erase_ns: u64,
}

impl SsdModel {
    /// Returns the minimum time in which a device of this kind reads `bytes` bytes: one command, and its bytes over the channels or
    /// the link, whichever is slower.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        let channels = self
            .channel_bytes_per_s
            .saturating_mul(u64::from(self.channels));
        self.command_ns
            .saturating_add(super::span_ns(bytes, channels.min(self.link_bytes_per_s)))
    }
}

#[derive(Debug)]
pub struct Ssd {
    model: SsdModel,
    /// When each die, each channel and the link finish their queued work.
    die_free_ns: Vec<u64>,
    channel_free_ns: Vec<u64>,
    link_free_ns: u64,
    /// Running commands; slots are reused.
    running: Vec<Running>,
    idle: Vec<usize>,
    waiting: VecDeque<(u64, Command)>,
    /// Pages, by the time at which they reach their next level.
    events: TimeQueue<Page>,
    /// The random numbers of the commands, if there is a tail.
    draws: KeyedDraws,
}

#[derive(Debug)]
struct Running {
    command: Command,
    pages_left: u64,
}

/// The part of a command within one flash page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Page {
    running: usize,
    channel: u32,
    bytes: u64,
    level: Level,
}

/// The level that a page has just left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Die,
    Channel,
    Link,
}

impl Ssd {
    /// Creates an idle drive; `seed` determines which reads are slow, if the drive has slow reads.
    pub fn new(model: SsdModel, seed: u64) -> Ssd {
        let dies = model.channels as usize * model.dies_per_channel as usize;
        Ssd {
            model,
            die_free_ns: vec![0; dies],
            channel_free_ns: vec![0; model.channels as usize],
            link_free_ns: 0,
            running: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            events: TimeQueue::new(),
            draws: KeyedDraws::new(seed),
        }
    }

    /// Starts waiting commands while the queue has room.
    fn start_waiting(&mut self, now_ns: u64) {
        while self.running.len() - self.idle.len() < self.model.queue_depth as usize {
            let Some((since_ns, command)) = self.waiting.pop_front() else {
                return;
            };
            self.begin(since_ns.max(now_ns), command);
        }
    }

    fn begin(&mut self, now_ns: u64, command: Command) {
        let page_bytes = self.model.page_bytes;
        let (start, end) = (command.start, command.start.saturating_add(command.len));
        let pages = start / page_bytes..end.div_ceil(page_bytes).max(start / page_bytes + 1);
        let running = Running {
            command,
            pages_left: pages.end - pages.start,
        };
        let slot = self.idle.pop().unwrap_or(self.running.len());
        match self.running.get_mut(slot) {
            Some(place) => *place = running,
            None => self.running.push(running),
        }
        let mut draws = self.model.tail.map(|_| self.draws.next(&command));
        let ready_ns = now_ns.saturating_add(self.model.command_ns);
        for page in pages {
            let bytes = ((page + 1) * page_bytes)
                .min(end)
                .saturating_sub(start.max(page * page_bytes));
            let read_ns = self.read_ns(&mut draws);
            // Each file begins on another die; otherwise all small files would be on the first one.
            let p = page.wrapping_add(u64::from(command.file));
            let channel = (p % u64::from(self.model.channels)) as u32;
            let die = (p % self.die_free_ns.len() as u64) as usize;
            let free_ns = &mut self.die_free_ns[die];
            *free_ns = (*free_ns).max(ready_ns).saturating_add(read_ns);
            let at_ns = *free_ns;
            self.events.push(
                at_ns,
                Page {
                    running: slot,
                    channel,
                    bytes,
                    level: Level::Die,
                },
            );
        }
    }

    fn read_ns(&self, draws: &mut Option<Rng>) -> u64 {
        let median_ns = self.model.read_ns;
        let (Some(tail), Some(rng)) = (self.model.tail, draws) else {
            return median_ns;
        };
        let body_ns = rng
            .lognormal(median_ns as f64, tail.read_p99_ns as f64)
            .round() as u64;
        if rng.below(1_000_000) >= tail.collisions_per_million {
            return body_ns;
        }
        body_ns
            + if rng.below(2) == 0 {
                rng.below(tail.program_ns)
            } else {
                rng.below(tail.erase_ns)
            }
    }

    /// A page leaves a level at `now_ns` and enters the next one, or is done.
    fn step(&mut self, now_ns: u64, page: Page, out: &mut Vec<Arrival>) {
        let (free_ns, rate, level) = match page.level {
            Level::Die => {
                let channel = &mut self.channel_free_ns[page.channel as usize];
                (channel, self.model.channel_bytes_per_s, Level::Channel)
            }
            Level::Channel => (
                &mut self.link_free_ns,
                self.model.link_bytes_per_s,
                Level::Link,
            ),
            Level::Link => return self.finish(now_ns, page.running, out),
        };
        *free_ns = (*free_ns)
            .max(now_ns)
            .saturating_add(super::span_ns(page.bytes, rate));
        let at_ns = *free_ns;
        self.events.push(at_ns, Page { level, ..page });
    }

    fn finish(&mut self, now_ns: u64, slot: usize, out: &mut Vec<Arrival>) {
        let running = &mut self.running[slot];
        running.pages_left -= 1;
        if running.pages_left > 0 {
            return;
        }
        let Command { id, len, .. } = running.command;
        out.push(Arrival::whole(id, len));
        self.idle.push(slot);
        self.start_waiting(now_ns);
    }
}

impl Device for Ssd {
    fn submit(&mut self, now_ns: u64, command: Command) {
        self.waiting.push_back((now_ns, command));
        self.start_waiting(now_ns);
    }

    fn next_time(&self) -> Option<u64> {
        self.events.next_time()
    }

    fn advance(&mut self, now_ns: u64, out: &mut Vec<Arrival>) {
        while let Some((at, page)) = self.events.pop(now_ns) {
            self.step(at, page, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ends_of, run_dry};

    const US: u64 = 1000;

    /// 2 channels with 2 dies each, pages of 4000 bytes; 10 us per command, 50 us per page, 10 ns per byte on a
    /// channel, 2 ns on the link.
    const MODEL: SsdModel = SsdModel {
        channels: 2,
        dies_per_channel: 2,
        page_bytes: 4000,
        command_ns: 10 * US,
        read_ns: 50 * US,
        channel_bytes_per_s: 100_000_000,
        link_bytes_per_s: 500_000_000,
        queue_depth: 8,
        tail: None,
    };

    /// The end times of `commands` (start, len) of file 0, all submitted at 0.
    fn ends(model: SsdModel, commands: &[(u64, u64)]) -> Vec<u64> {
        let commands = commands.iter().map(|&(start, len)| (0, start, len));
        ends_of(&mut Ssd::new(model, 5), 0, &Vec::from_iter(commands))
    }

    #[test]
    fn a_page_goes_through_three_levels() {
        let alone = 10 * US + 50 * US + 40 * US + 8 * US;
        let cases = [
            (vec![(0, 4000)], vec![alone]),
            // Only what was asked for is moved.
            (vec![(1000, 500)], vec![10 * US + 50 * US + 5 * US + US]),
            (vec![(0, 0)], vec![60 * US]),
            // Two channels: the pages wait for each other only on the link.
            (vec![(0, 8000)], vec![alone + 8 * US]),
            // Two dies of one channel: the second waits for the channel.
            (vec![(0, 4000), (8000, 4000)], vec![alone, alone + 40 * US]),
            // One die: the second waits for the die.
            (
                vec![(0, 4000), (16_000, 4000)],
                vec![alone, alone + 50 * US],
            ),
            // A command that crosses a page boundary has two pages.
            (vec![(3900, 200)], vec![10 * US + 50 * US + US + 2 * 200]),
        ];
        for (commands, expected) in cases {
            assert_eq!(ends(MODEL, &commands), expected, "{commands:?}");
        }
    }

    /// The transfer that is ready first goes first, whatever the order of arrival.
    #[test]
    fn channels_serve_by_readiness() {
        let [_, second_die, short] = ends(MODEL, &[(0, 4000), (16_000, 4000), (8000, 400)])[..]
        else {
            panic!("three")
        };
        // It leaves the channel at 104 us, and then waits for the first page on the link, which is free at 108 us.
        assert_eq!(short, 108 * US + 800);
        assert_eq!(second_die, 10 * US + 100 * US + 40 * US + 8 * US);
    }

    #[test]
    fn a_longer_command_and_a_deeper_queue_are_faster() {
        let rate = |bytes: u64| bytes as f64 / ends(MODEL, &[(0, bytes)])[0] as f64;
        let rates = [4000, 8000, 16_000, 64_000, 1_000_000].map(rate);
        assert!(rates.is_sorted_by(|a, b| a < b), "{rates:?}");
        // Four dies read 4 pages in 50 us, two channels transfer 2 in 40 us: the channels are the bottleneck.
        assert!((0.19..0.2).contains(&rates[4]), "{rates:?}");
        let pages: Vec<_> = (0..8).map(|n| (n * 4000, 4000)).collect();
        let last = |queue_depth| {
            let model = SsdModel {
                queue_depth,
                ..MODEL
            };
            ends(model, &pages).into_iter().max()
        };
        assert_eq!(last(1), Some(8 * 108 * US));
        assert!(last(2) < last(1) && last(4) < last(2));
    }

    #[test]
    fn a_tail_is_keyed_and_rarely_collides() {
        let tail = Tail {
            read_p99_ns: 80 * US,
            collisions_per_million: 20_000,
            program_ns: 700 * US,
            erase_ns: 4000 * US,
        };
        let model = SsdModel {
            tail: Some(tail),
            ..MODEL
        };
        let time = |before: &[u64], start: u64| {
            let mut ssd = Ssd::new(model, 9);
            before
                .iter()
                .for_each(|&start| ssd.submit(0, Command::new(0, 0, start, 1)));
            run_dry(&mut ssd);
            ssd.submit(1 << 40, Command::new(1, 0, start, 1));
            run_dry(&mut ssd)[0].0 - (1 << 40)
        };
        assert_eq!(time(&[], 4000), time(&[8000, 0], 4000));
        assert_ne!(time(&[], 4000), time(&[4000], 4000));
        let mut times: Vec<u64> = (0..20_000).map(|n| time(&[], n * 4000)).collect();
        times.sort_unstable();
        let median = times[10_000];
        assert!(median.abs_diff(60_500) < 1000, "{median}");
        let slow = times.iter().filter(|t| **t > 200 * US).count();
        // One in fifty collides; 8 of 10 program operations and 97 of 100 erase operations last longer than 150 us.
        assert!((290..430).contains(&slow), "{slow}");
        let longest = times[19_999];
        assert!((3500 * US..4300 * US).contains(&longest), "{longest}");
    }
}
