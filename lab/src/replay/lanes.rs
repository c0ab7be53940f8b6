//! Builds the readers of a replay in the modes asap and closed: one for each thread of the trace, or for each open file description if the
//! trace has no threads. Each reader starts its reads in their recorded order.
//!
//! ```text
//!   one read at a time         job ──after──► job ──after──► job         a job for each series with the same open
//!   several at once, asap      one job with the usual depth              description
//!   several at once, closed    a chain for each; the next read goes to the chain that was idle for the shortest time
//! ```
//!
//! In mode closed, a reader waits for a read of another reader before it starts. This is the read that, in the trace, was the last to end
//! before the reader's first read began. For example, a shell starts a program after the previous program has ended: if the reads of the
//! first program get faster, the second program starts earlier.
//!
//! A replay never has more reads in flight than the trace.

use super::load::LoadedTrace;
use super::{KeptRecord, What};
use super::{Mode, scaled};
use foreread_sim::workload::{Job, Link};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ptr::from_ref;

/// Builds the jobs of a replay in mode asap or closed. Also returns the number of readers with several reads outstanding, and the most that
/// one of them has.
pub fn jobs(loaded: &LoadedTrace, mode: Mode, factor: f64) -> (Vec<Job>, Option<(u64, u64)>) {
    let pauses = Pauses {
        mode,
        factor,
        first_ns: loaded.first_ns,
    };
    let (mut jobs, mut overlap) = (Vec::new(), None::<(u64, u64)>);
    let lanes = lanes(loaded);
    let mut begins = match mode == Mode::Closed && factor > 0.0 {
        true => Begins::of(loaded, &lanes),
        false => Begins::default(),
    };
    for lane in lanes {
        let depths = depths(&lane);
        let usual = depths.get(depths.len() / 2).copied().unwrap_or(1);
        let most = depths.last().copied().unwrap_or(1);
        let one = lane
            .iter()
            .all(|r| (r.open, r.executable) == (lane[0].open, lane[0].executable));
        let pausing = mode == Mode::Closed || factor > 0.0;
        let going = if !pausing && (one || usual == 1) {
            let depth = if one { usual } else { 1 };
            chain(loaded, &lane, &pauses, depth, &mut begins, &mut jobs);
            depth
        } else {
            let parts = parts(&lane);
            parts
                .iter()
                .for_each(|part| chain(loaded, part, &pauses, 1, &mut begins, &mut jobs));
            most
        };
        if going > 1 {
            let (readers, deepest) = overlap.unwrap_or((0, 0));
            overlap = Some((readers + 1, deepest.max(going)));
        }
    }
    (jobs, overlap)
}

/// The records of each reader, in order.
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

/// How many of a reader's reads were outstanding when each one was issued, including it, sorted. Empty if the trace
/// does not say.
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

/// Splits the records of a reader into chains without overlap: each record goes to the chain whose latest read ended
/// last before it.
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

/// When a record ended. A hint takes no time.
fn end_ns(record: &KeptRecord) -> u64 {
    record.end_ns.or(record.start_ns).unwrap_or(0)
}

/// The pauses of a reader between its reads.
struct Pauses {
    mode: Mode,
    factor: f64,
    first_ns: u64,
}

impl Pauses {
    /// The pause before a record that follows `before`; for the first record of a chain, the time since the trace
    /// began.
    fn before(&self, record: &KeptRecord, before: Option<&KeptRecord>) -> u64 {
        let Some(start) = record.start_ns.filter(|_| self.factor > 0.0) else {
            return 0;
        };
        let since = match (before, self.mode) {
            (None, _) => self.first_ns,
            (Some(before), Mode::Closed) => end_ns(before),
            // How much of the gap the device took is unknown: assume none.
            (Some(before), _) => before.start_ns.unwrap_or(start),
        };
        scaled(start.saturating_sub(since), self.factor)
    }
}

/// The reads after which readers begin, each reader by its first record.
#[derive(Default)]
struct Begins<'a> {
    after: HashMap<*const KeptRecord, &'a KeptRecord>,
    /// The jobs that end with such a read, if they exist yet.
    ends: HashMap<*const KeptRecord, Option<u32>>,
}

impl<'a> Begins<'a> {
    fn of(loaded: &LoadedTrace, lanes: &[Vec<&'a KeptRecord>]) -> Begins<'a> {
        let mut ended: Vec<&KeptRecord> = lanes.iter().flatten().copied().collect();
        ended.sort_by_key(|record| end_ns(record));
        let mut begins = Begins::default();
        let firsts = lanes.iter().flat_map(|lane| parts(lane));
        for first in firsts.filter_map(|part| part.first().copied()) {
            let Some(start) = first.start_ns.filter(|start| *start > loaded.first_ns) else {
                continue;
            };
            let before = ended.partition_point(|record| end_ns(record) <= start);
            // Skip a record that took no time and does not start earlier.
            let before = ended[..before].iter().rev();
            let earlier = |record: &&&KeptRecord| record.start_ns.is_some_and(|at| at < start);
            if let Some(before) = before.copied().find(|record| earlier(&record)) {
                begins.after.insert(from_ref(first), before);
                begins.ends.insert(from_ref(before), None);
            }
        }
        begins
    }

    /// What the first record of a chain waits for.
    fn link(&self, first: &KeptRecord, factor: f64) -> Option<Link> {
        let before = self.after.get(&from_ref(first))?;
        let job = (*self.ends.get(&from_ref(*before))?)?;
        let delay_ns = first.start_ns?.saturating_sub(end_ns(before));
        Some(Link {
            job,
            end: true,
            delay_ns: scaled(delay_ns, factor),
        })
    }

    /// Notes that a record is in this job. Returns whether the job has to end with it.
    fn is_end(&mut self, record: &KeptRecord, job: u32) -> bool {
        let end = self.ends.get_mut(&from_ref(record));
        end.map(|end| *end = Some(job)).is_some()
    }
}

/// A chain of records: a job for each series of records with the same open description.
fn chain(
    loaded: &LoadedTrace,
    records: &[&KeptRecord],
    pauses: &Pauses,
    depth: u64,
    begins: &mut Begins<'_>,
    jobs: &mut Vec<Job>,
) {
    let mut last: Option<(&KeptRecord, u32)> = None;
    let mut is_over = false;
    for &record in records {
        let mut requests = record.requests();
        let Some(mut request) = requests.next() else {
            continue;
        };
        let link = match last {
            None => begins.link(record, pauses.factor),
            Some(_) => None,
        };
        request.think_ns = match link {
            Some(_) => 0,
            None => pauses.before(record, last.map(|(before, _)| before)),
        };
        let same = |before: &KeptRecord| {
            !is_over && (before.open, before.executable) == (record.open, record.executable)
        };
        let number = match last {
            Some((before, job)) if same(before) => job,
            _ => {
                let after = last.map(|(_, job)| job);
                jobs.push(Job {
                    depth: depth as u32,
                    after,
                    links: link.into_iter().collect(),
                    ..record.job(loaded, Vec::new())
                });
                jobs.len() as u32 - 1
            }
        };
        jobs[number as usize]
            .requests
            .extend([request].into_iter().chain(requests));
        last = Some((record, number));
        is_over = begins.is_end(record, number);
    }
}
