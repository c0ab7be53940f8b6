//! What the driver gives to reports: its streams, and how long sources took.
//!
//! Never: asks a source anything behind the lock.

use super::Driver;
use super::lock::{Outside, Remote};
use crate::error::Fault;
use crate::latency::Latencies;
use crate::source::Source;
use foreread_core::stats::Stats;
use foreread_core::units::{FileId, OpenId};

/// One open description, for reports.
#[derive(Clone, Debug)]
pub struct StreamView {
    /// Its number; used again when it is closed.
    pub number: u32,
    /// What it reads.
    pub source: String,
    /// Its part of the counters.
    pub stats: Stats,
}

impl Driver {
    /// Times of the source: demand and readahead.
    pub fn latencies(&self) -> [Latencies; 2] {
        let state = Outside::enter(&self.shared).lock();
        let of = |ahead| state.as_ref().map(|state| state.clocked[usize::from(ahead)].now()).unwrap_or_default();
        [of(false), of(true)]
    }

    /// The open descriptions that have read most often, `most` of them.
    pub fn streams(&self, most: usize) -> Result<Vec<StreamView>, Fault> {
        let state = Outside::enter(&self.shared).lock()?;
        let machine = state.machine();
        let mut opens: Vec<_> = machine.opens().collect();
        let reads = |open| machine.open_stats(open).map_or(0, |stats| stats.demand_reads);
        opens.sort_by_key(|&(open, _)| (std::cmp::Reverse(reads(open)), open));
        opens.truncate(most);
        let view = |(open, file): (OpenId, FileId)| {
            let source = state.file(file)?.source.share();
            Some((open.0, source, *machine.open_stats(open)?))
        };
        let found = opens.into_iter().filter_map(view).collect::<Vec<_>>();
        let outside = state.release();
        // A source may take its time to say what it is.
        let named = |(number, source, stats): (u32, Remote<dyn Source>, Stats)| {
            let source = source.once(&outside, |source| source.describe());
            StreamView { number, source, stats }
        };
        Ok(found.into_iter().map(named).collect())
    }
}
