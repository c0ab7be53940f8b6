//! The workload `boot-ide` against the published table: Adam Crume's detectors, written here a second time from
//! their description, and a reader of depth 1 on the model of that volume.
//!
//! The detectors and the clock are this file's own: what the policies and the simulator make of the same reads is
//! then a check of them, not of this. Never: a cache that forgets.

use foreread_check::reproduce::published::crume_2014::{PublishedRow, WORKLOADS};
use foreread_history::parse_workload as parse;
use foreread_sim::device::{Arrival, Command, Device, presets};
use foreread_sim::workload::Request;

const GIB: u64 = 1 << 30;
const SECTOR: u64 = 512;
const OBJECT_BYTES: u64 = 4 << 20;
const MAX_WINDOW_BYTES: u64 = 4 << 20;
const TRIGGER: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    Plain,
    Aligned,
    Eager,
}

/// One detector for the whole image.
#[derive(Default)]
struct Detector {
    /// Reads that followed the one before, and their bytes.
    run: u64,
    run_bytes: u64,
    last_end: u64,
    /// End of what has been read ahead; end of a read from which the next request goes out; size of the last request.
    ahead: u64,
    fire_at: u64,
    window: u64,
}

impl Detector {
    /// What to read ahead at this read: start and length.
    fn update(&mut self, kind: Kind, read: &Request, size: u64) -> Option<(u64, u64)> {
        if read.offset == self.last_end {
            self.run += 1;
            self.run_bytes += read.len;
        } else {
            *self = Detector::default();
        }
        self.last_end = read.offset + read.len;
        if kind == Kind::None
            || self.ahead >= size
            || self.run < TRIGGER
            || self.last_end < self.fire_at
        {
            return None;
        }
        let first = self.window == 0;
        self.window = if first {
            self.run_bytes
        } else {
            2 * self.window
        }
        .min(MAX_WINDOW_BYTES);
        let start = if first {
            self.last_end
        } else {
            self.ahead.max(self.last_end)
        };
        let len = match kind {
            Kind::Eager => OBJECT_BYTES - start % OBJECT_BYTES,
            Kind::Aligned => aligned(start, self.window),
            Kind::Plain | Kind::None => self.window,
        };
        let len = len.min(size - start);
        self.fire_at = start + len / 2;
        self.ahead = start + len;
        Some((start, len))
    }
}

/// The length that ends the request at an object's end, if one is less than half a length away.
fn aligned(start: u64, len: u64) -> u64 {
    let end = start + len;
    let below = end - end % OBJECT_BYTES;
    let above = below + OBJECT_BYTES;
    let (back, on) = (end - below, above - end);
    if back < len / 2 && back < on {
        below - start
    } else if on < len / 2 {
        above - start
    } else {
        len
    }
}

#[derive(Debug, Default)]
struct Outcome {
    requests: u64,
    ahead_mb: f64,
    seconds: f64,
}

/// A sector is absent, in flight, or here.
const ABSENT: u8 = 0;
const COMING: u8 = 1;
const HERE: u8 = 2;

/// The volume with a cache of unlimited size before it.
struct Volume {
    device: Box<dyn Device>,
    sectors: Vec<u8>,
    /// First sector of each command, and how many sectors of it are here.
    commands: Vec<(u64, u64)>,
    now_ns: u64,
    arrivals: Vec<Arrival>,
}

impl Volume {
    fn new(size: u64) -> Volume {
        let device = presets::find("rbd").expect("a preset").build(0);
        let sectors = vec![ABSENT; (size / SECTOR) as usize];
        Volume {
            device,
            sectors,
            commands: Vec::new(),
            now_ns: 0,
            arrivals: Vec::new(),
        }
    }

    /// Asks for what is absent of these bytes, one command for each gap.
    fn fetch(&mut self, start: u64, len: u64) {
        let end = (start + len) / SECTOR;
        let mut at = start / SECTOR;
        while at < end {
            let state = self.sectors[at as usize];
            let run = self.sectors[at as usize..end as usize]
                .iter()
                .take_while(|s| **s == state)
                .count() as u64;
            if state == ABSENT {
                self.sectors[at as usize..(at + run) as usize].fill(COMING);
                let id = self.commands.len() as u64;
                self.commands.push((at, 0));
                self.device.submit(
                    self.now_ns,
                    Command {
                        id,
                        file: 0,
                        start: at * SECTOR,
                        len: run * SECTOR,
                    },
                );
            }
            at += run;
        }
    }

    /// Lets time pass until all of these bytes are here.
    fn wait(&mut self, start: u64, len: u64) {
        let wanted = (start / SECTOR) as usize..((start + len) / SECTOR) as usize;
        while self.sectors[wanted.clone()].iter().any(|s| *s != HERE) {
            self.now_ns = self.device.next_time().expect("a command is under way");
            self.device.advance(self.now_ns, &mut self.arrivals);
            for arrival in self.arrivals.drain(..) {
                let (first, here) = &mut self.commands[arrival.id as usize];
                let until = arrival.bytes / SECTOR;
                self.sectors[(*first + *here) as usize..(*first + until) as usize].fill(HERE);
                *here = until;
            }
        }
    }
}

fn run(kind: Kind, size: u64, seed: u64) -> Outcome {
    let workload = parse("boot-ide")
        .expect("valid")
        .build(size, seed)
        .expect("fits");
    let (mut detector, mut volume, mut outcome) =
        (Detector::default(), Volume::new(size), Outcome::default());
    for read in &workload.jobs[0].requests {
        let ahead = detector.update(kind, read, size);
        volume.fetch(read.offset, read.len);
        if let Some((start, len)) = ahead {
            outcome.requests += 1;
            outcome.ahead_mb += len as f64 / 1e6;
            volume.fetch(start, len);
        }
        volume.wait(read.offset, read.len);
    }
    outcome.seconds = volume.now_ns as f64 / 1e9;
    outcome
}

/// The mean over these seeds.
fn mean(kind: Kind, size: u64, seeds: std::ops::RangeInclusive<u64>) -> (f64, f64, f64) {
    let outcomes: Vec<Outcome> = seeds.map(|seed| run(kind, size, seed)).collect();
    let mean =
        |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
    let (requests, mb, seconds) = (
        mean(|o| o.requests as f64),
        mean(|o| o.ahead_mb),
        mean(|o| o.seconds),
    );
    println!(
        "{kind:?} on {} GiB: {requests:.1} requests, {mb:.1} MB, {seconds:.2} s",
        size / GIB
    );
    (requests, mb, seconds)
}

/// `value` is within `part` of `expected`.
#[track_caller]
fn assert_near(value: f64, expected: f64, part: f64) {
    assert!(
        (value / expected - 1.0).abs() <= part,
        "{value:.2} is more than {part} of it away from {expected}"
    );
}

/// A published line of the workload: none, plain, aligned, eager.
fn published(line: usize) -> PublishedRow {
    WORKLOADS
        .iter()
        .find(|w| w.name == "boot-ide")
        .expect("a workload")
        .lines[line]
}

#[test]
fn without_readahead_every_read_pays_its_round_trip() {
    let outcome = run(Kind::None, GIB, 1);
    // 57,516 round trips of 0.690 ms and 794,922 sectors at 16 ns a byte.
    assert_eq!(
        outcome.seconds,
        (57_516_u64 * 690_000 + 794_922_u64 * 512 * 16) as f64 / 1e9
    );
    assert_near(outcome.seconds, published(0).time_s, 0.001);
}

#[test]
fn plain_makes_the_published_requests() {
    let (requests, mb, seconds) = mean(Kind::Plain, GIB, 1..=5);
    let plain = published(1);
    assert_eq!(requests, plain.ra_ops);
    assert_near(mb, plain.ra_mb, 0.02);
    assert_near(seconds, plain.time_s, 0.08);
    let (requests, mb, seconds) = mean(Kind::Plain, 16 * GIB, 1..=1);
    assert_eq!(requests, plain.ra_ops);
    assert_near(mb, plain.ra_mb, 0.02);
    assert!(published(0).time_s / seconds > 3.5, "{seconds:.2} s");
}

#[test]
fn aligned_and_eager_come_near_their_rows() {
    let (requests, mb, seconds) = mean(Kind::Aligned, GIB, 1..=5);
    let aligned = published(2);
    assert_near(requests, aligned.ra_ops, 0.04);
    assert_near(mb, aligned.ra_mb, 0.05);
    assert_near(seconds, aligned.time_s, 0.08);
    let (requests, mb, seconds) = mean(Kind::Eager, GIB, 1..=5);
    let eager = published(3);
    assert_near(requests, eager.ra_ops, 0.12);
    assert_near(mb, eager.ra_mb, 0.05);
    assert_near(seconds, eager.time_s, 0.07);
}
