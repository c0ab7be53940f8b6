//! Readers that keep their own pace: each thread of the trace, or each open description where it does not tell threads.
//!
//! ```text
//!   one read at a time         job ──after──► job ──after──► job         a job for each run through the same open
//!   several at once, asap      one job of the depth that was usual       description
//!   several at once, closed    a chain for each, the next read on the one that had been idle for the shortest time
//! ```
//!
//! Never: more reads outstanding than were recorded.

use super::load::{KeptRecord, LoadedTrace, What};
use super::{Mode, scaled};
use foreread_sim::workload::Job;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// Jobs, and how much of the trace overlapped.
#[derive(Debug, Default)]
pub struct ReplayJobs {
    pub jobs: Vec<Job>,
    /// Readers with several reads outstanding, and the most that one of them keeps going.
    pub overlap: Option<(u64, u64)>,
}

impl ReplayJobs {
    /// Jobs whose overlap is not of their making.
    pub fn plain(jobs: Vec<Job>) -> ReplayJobs {
        ReplayJobs {
            jobs,
            overlap: None,
        }
    }
}

/// The jobs of mode asap or closed.
pub fn jobs(loaded: &LoadedTrace, mode: Mode, factor: f64) -> ReplayJobs {
    let pauses = Pauses {
        mode,
        factor,
        first_ns: loaded.first_ns,
    };
    let mut made = ReplayJobs::default();
    for lane in lanes(loaded) {
        let depths = depths(&lane);
        let usual = depths.get(depths.len() / 2).copied().unwrap_or(1);
        let most = depths.last().copied().unwrap_or(1);
        let one = lane
            .iter()
            .all(|r| (r.open, r.executable) == (lane[0].open, lane[0].executable));
        let pausing = mode == Mode::Closed || factor > 0.0;
        let going = if !pausing && (one || usual == 1) {
            let depth = if one { usual } else { 1 };
            chain(loaded, &lane, &pauses, depth, &mut made.jobs);
            depth
        } else {
            let parts = parts(&lane);
            parts
                .iter()
                .for_each(|part| chain(loaded, part, &pauses, 1, &mut made.jobs));
            most
        };
        if going > 1 {
            let (readers, deepest) = made.overlap.unwrap_or((0, 0));
            made.overlap = Some((readers + 1, deepest.max(going)));
        }
    }
    made
}

/// The records of each reader, in their order.
fn lanes(loaded: &LoadedTrace) -> Vec<Vec<&KeptRecord>> {
    let mut numbers = HashMap::new();
    let mut lanes: Vec<Vec<&KeptRecord>> = Vec::new();
    for record in loaded.records.iter().filter(|r| r.what != What::Nothing) {
        let key = if loaded.header.lacks.threads {
            record.open
        } else {
            record.thread
        };
        let fresh = lanes.len();
        let number = *numbers.entry(key).or_insert(fresh);
        if number == fresh {
            lanes.push(Vec::new());
        }
        lanes[number].push(record);
    }
    lanes
}

/// How many of a reader's reads were outstanding when each one was issued, itself among them, sorted. Empty where the
/// trace does not say.
fn depths(lane: &[&KeptRecord]) -> Vec<u64> {
    let mut ends = BinaryHeap::new();
    let mut depths = Vec::new();
    for record in lane.iter().filter(|r| !matches!(r.what, What::Hint(_))) {
        let (Some(start), Some(end)) = (record.start_ns, record.end_ns) else {
            return Vec::new();
        };
        while ends.peek().is_some_and(|Reverse(end)| *end <= start) {
            ends.pop();
        }
        ends.push(Reverse(end));
        depths.push(ends.len() as u64);
    }
    depths.sort_unstable();
    depths
}

/// The records of a reader as chains without overlap: each goes on the chain whose latest read had ended last before it.
fn parts<'a>(lane: &[&'a KeptRecord]) -> Vec<Vec<&'a KeptRecord>> {
    let mut parts: Vec<Vec<&KeptRecord>> = Vec::new();
    // Chains by the end of their latest read.
    let mut idle: BTreeSet<(u64, usize)> = BTreeSet::new();
    for &record in lane {
        let start = record.start_ns.unwrap_or(0);
        let found = idle.range(..=(start, usize::MAX)).next_back().copied();
        let part = match found {
            Some(key) => {
                idle.remove(&key);
                key.1
            }
            None => {
                parts.push(Vec::new());
                parts.len() - 1
            }
        };
        parts[part].push(record);
        idle.insert((end_ns(record), part));
    }
    parts
}

/// When a record was over. A hint takes no time.
fn end_ns(record: &KeptRecord) -> u64 {
    record.end_ns.or(record.start_ns).unwrap_or(0)
}

/// What a reader does between two reads.
struct Pauses {
    mode: Mode,
    factor: f64,
    first_ns: u64,
}

impl Pauses {
    /// Before a record that follows `before`, or is the first of its chain: then since the trace began.
    fn before(&self, record: &KeptRecord, before: Option<&KeptRecord>) -> u64 {
        let Some(start) = record.start_ns.filter(|_| self.factor > 0.0) else {
            return 0;
        };
        let since = match (before, self.mode) {
            (None, _) => self.first_ns,
            (Some(before), Mode::Closed) => end_ns(before),
            // How much of it was the device is unknown: as if nothing.
            (Some(before), _) => before.start_ns.unwrap_or(start),
        };
        scaled(start.saturating_sub(since), self.factor)
    }
}

/// Records one after the other: a job for each run of them through the same open description.
fn chain(
    loaded: &LoadedTrace,
    records: &[&KeptRecord],
    pauses: &Pauses,
    depth: u64,
    jobs: &mut Vec<Job>,
) {
    let mut last: Option<(&KeptRecord, u32)> = None;
    for &record in records {
        let mut requests = record.requests();
        let Some(mut request) = requests.next() else {
            continue;
        };
        request.think_ns = pauses.before(record, last.map(|(before, _)| before));
        let same = |before: &KeptRecord| {
            (before.open, before.executable) == (record.open, record.executable)
        };
        let number = match last {
            Some((before, job)) if same(before) => job,
            _ => {
                let after = last.map(|(_, job)| job);
                jobs.push(Job {
                    depth: depth as u32,
                    after,
                    ..record.job(loaded, Vec::new())
                });
                jobs.len() as u32 - 1
            }
        };
        jobs[number as usize]
            .requests
            .extend([request].into_iter().chain(requests));
        last = Some((record, number));
    }
}
