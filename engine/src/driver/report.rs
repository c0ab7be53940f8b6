//! What the driver gives to reports: its gauges, its streams, and how long sources took.
//!
//! Example: `streams(8)` finds the eight open descriptions that have read most often behind the lock, and asks their
//! sources for their names without it, since a source may take its time to say what it is.

use super::lock::Remote;
use super::reaping;
use super::shared::{Outside, Shared};
use super::state::State;
use crate::error::Fault;
use crate::latency::Latencies;
use crate::source::Source;
use foreread_core::policy::Tuning;
use foreread_core::stats::Stats;
use foreread_core::units::{FileId, OpenId};
use std::sync::Arc;

/// What runs and waits at this moment. Reads and fetches are zero when there is no read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Reads that have not returned.
    pub reads: u64,
    /// Fetches that have not begun.
    pub queued_fetches: u64,
    /// Fetches being read.
    pub running_fetches: u64,
    /// Fetches the machine has not got an answer for.
    pub open_fetches: u64,
    /// Worker threads that have been started.
    pub threads: u64,
    /// Threads of any kind that have been started and not been joined: those that run, and few that have ended.
    pub unjoined_threads: u64,
    /// Bytes in buffers: cached, being read, or lent out.
    pub held_bytes: u64,
    /// Bytes in buffers kept to be used again.
    pub spare_bytes: u64,
    /// Pages present or in flight.
    pub pages: u64,
    /// Files that are open.
    pub files: u64,
    /// Open descriptions of them.
    pub opens: u64,
    /// Times a sleeper found by itself that there was something to do. Counted since the beginning; each is a call that
    /// was forgotten, or a machine that stood still for a second.
    pub missed_calls: u64,
    /// What a policy that sets itself has come to; none for a policy with fixed settings, and before the first file is open.
    pub tuning: Option<Tuning>,
}

/// One open description, for reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamView {
    /// Its number; used again when it is closed.
    pub number: u32,
    /// What it reads.
    pub source: String,
    /// Its part of the counters.
    pub stats: Stats,
}

pub fn gauges(shared: &Arc<Shared>) -> Result<Gauges, Fault> {
    // What has ended is not in flight, though no thread has reaped it yet.
    let state = reaping::look_in_everywhere(Outside::enter(shared).lock()?)?;
    let gauges = count(shared, &state);
    state.unlock();
    Ok(gauges)
}

fn count(shared: &Shared, state: &State) -> Gauges {
    let (machine, meter) = (state.machine(), shared.pool.meter());
    Gauges {
        reads: (state.reads.len() as u64).max(machine.reads_in_progress() as u64),
        queued_fetches: state.jobs.len() as u64,
        running_fetches: u64::from(state.jobs.running()) + state.queues.submitted() as u64,
        open_fetches: machine.fetches_in_progress() as u64,
        threads: u64::from(state.workers.started()),
        unjoined_threads: shared.threads.count() as u64,
        pages: machine.cache().pages(),
        files: state.files.len() as u64,
        opens: state.files.opens() as u64,
        missed_calls: state.reads.missed_calls(),
        tuning: machine.tuning(),
        held_bytes: meter.held_bytes(),
        spare_bytes: meter.spare_bytes(),
    }
}

/// Times of the source: demand and readahead.
pub fn latencies(shared: &Arc<Shared>) -> [Latencies; 2] {
    let state = Outside::enter(shared).lock();
    let of = |ahead| {
        state
            .as_ref()
            .map(|state| state.clocked[usize::from(ahead)].now())
            .unwrap_or_default()
    };
    [of(false), of(true)]
}

/// The open descriptions that have read most often, at most `max` of them.
pub fn streams(shared: &Arc<Shared>, max: usize) -> Result<Vec<StreamView>, Fault> {
    let state = Outside::enter(shared).lock()?;
    let machine = state.machine();
    let mut opens: Vec<_> = machine.opens().collect();
    let reads = |open| {
        machine
            .open_stats(open)
            .map_or(0, |stats| stats.demand_reads)
    };
    opens.sort_by_key(|&(open, _)| (std::cmp::Reverse(reads(open)), open));
    opens.truncate(max);
    let view = |(open, file): (OpenId, FileId)| {
        let source = state.files.source(file)?;
        Some((open.0, source, *machine.open_stats(open)?))
    };
    let found = opens.into_iter().filter_map(view).collect::<Vec<_>>();
    let outside = state.release();
    let named = |(number, source, stats): (u32, Remote<dyn Source>, Stats)| {
        let source = source.once(&outside, |source| source.describe());
        StreamView {
            number,
            source,
            stats,
        }
    };
    Ok(found.into_iter().map(named).collect())
}
