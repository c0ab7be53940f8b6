//! The oracle: the best schedule found by a search that knows all future reads, and uses the same cache, the same device and the same
//! readers as the policies.
//!
//! An *extent* is a group of pages that are always read together. A schedule fetches the absent extent that is needed soonest,
//! together with neighbours that it would fetch soon anyway. A schedule evicts the extent that is needed last (Belady 1966). Readahead
//! never evicts an extent that is needed sooner than the new extent (Cao, Felten, Karlin and Li 1995 call this *aggressive*). A [`Rule`]
//! sets the order, length and number of fetches, and whether gaps between extents are read too. The best rule depends on the device and the
//! reads. The search therefore first simulates a few rules, and a run without readahead. Then the search changes the fastest rule, one
//! parameter at a time, until it has done [`MAX_COST`] times the work of one run, or has reached the lower bound.
//!
//! ```text
//!   reader:  ask ──► wait for bytes ──► copy what is there ──► ... ──► think ──► ask the next
//!                       ▲ arrivals          │ a use is done
//!   extent:  absent ──fetch──► flying ──► present ──never wanted again, or farthest and room is short──► absent
//! ```
//!
//! The oracle's time is achievable; normally it is between the lower bound (`bound.rs`), which may not be achievable, and the times
//! of the policies. The oracle's schedule is not always the optimum, and its time is not a lower bound. Finding the optimum is hard even
//! for one disk, and a policy may find a better schedule by chance; `lab/tests/limits.rs` searches for such results, and counts them. If
//! each request has a random latency, the requests of a policy get other latencies than those of the oracle. For example, on a store where
//! a few requests take 500 ms, with some seeds a policy needs only half of the oracle's time.
//!
//! The oracle does not use the results of policies, and is not a candidate when `compare` recommends a policy.

mod fetches;
mod readers;
mod rules;

use super::bound::Bound;
use super::future::{Extent, Future, NEVER, Order};
use crate::device::Device;
use crate::device::presets::Preset;
use crate::scheduler::JobScheduler;
use crate::simulator::{self, copy_ns};
use crate::simulator::{MappedPages, RunResult};
use crate::stats::latency_histogram;
use crate::workload::{Request, RequestKind, Workload};
use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use hdrhistogram::Histogram;
use rules::{CHANGES, Range, Rule, starts};
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub workload: &'a Workload,
    pub config: Config,
    pub preset: &'a Preset,
    pub seed: u64,
    /// The lower bound of any run: if a run reaches it, no other rule is needed.
    pub bound: Bound,
}

/// Maximum number of events for each extent without progress of any reader, plus this number once; after that a run
/// counts as endless. Chosen because an extent of 256 KiB arrives in 512 sectors at most, and is then copied.
const MAX_STEPS_PER_EXTENT: u64 = 1024;

/// If a run is nearer than this fraction to the bound, no further rule is tried.
const NEAR: f64 = 1e-4;

/// The search may take this many times the work of the run without readahead, which is the longest run.
const MAX_COST: u64 = 10;
/// Events that a search may take even if the run is short: a few milliseconds.
const MIN_EVENTS: u64 = 60_000;

/// Returns the fastest run that the search finds. Each schedule is tried on a new device. Returns `None` for a workload with more
/// touches than [`super::MAX_TOUCHES`]. Also returns `None` if a job issues its requests at fixed times, because then the run time does not
/// show how good the readahead is.
pub fn run(setup: &Setup<'_>) -> Option<RunResult> {
    if timed(setup.workload) {
        return None;
    }
    Search::new(setup)?.run()
}

/// The search. It knows the reads in two orders: as they would come if only bytes took time, and one job after the
/// other.
struct Search<'a> {
    setup: &'a Setup<'a>,
    merged: Future,
    in_turns: Option<Future>,
    best: RunResult,
    /// Work that is left, in events.
    left: u64,
    seen: Vec<Rule>,
}

/// Number of events of a run: each read begins and ends, and so does each fetch.
fn cost(run: &RunResult) -> u64 {
    2 * (run.stats.demand_reads + run.stats.source_reads)
}

impl<'a> Search<'a> {
    /// Begins with the run without readahead; with many readers and a small cache it can be the best.
    fn new(setup: &'a Setup<'a>) -> Option<Search<'a>> {
        let page = setup.config.page.bytes();
        let most = (setup.config.max_fetch_bytes / page).min(setup.config.capacity_pages / 4);
        let cost_of = |r: &Request| {
            let bytes = if r.kind == RequestKind::Touch {
                page
            } else {
                r.len
            };
            copy_ns(bytes, setup.preset.host_ns_per_kib) + bytes
        };
        let merged = Future::of(setup.workload, page, most, Order::Merged, cost_of)?;
        let several = setup.workload.jobs.len() > 1;
        let in_turns = several
            .then(|| Future::of(setup.workload, page, most, Order::Jobs, cost_of))
            .flatten();
        let (policy, host_ns_per_kib) = (PolicySpec::none(), setup.preset.host_ns_per_kib);
        let idle = simulator::Setup::new(setup.workload, &policy, setup.config, host_ns_per_kib);
        let best = simulator::run(&idle, setup.preset.build(setup.seed));
        let left = (MAX_COST * cost(&best)).max(MIN_EVENTS);
        Some(Search {
            setup,
            merged,
            in_turns,
            best,
            left,
            seen: Vec::new(),
        })
    }

    fn run(mut self) -> Option<RunResult> {
        let mut rule = None;
        for start in starts(self.setup.preset, self.setup.workload.jobs.len()) {
            if self.is_faster(start) {
                rule = Some(start);
            }
        }
        // The run without readahead is the best, so the changes start from the rule that is nearest to it.
        let mut rule = rule.unwrap_or(Rule {
            ahead: false,
            ..rules::LONG
        });
        let range = Range::of(self.setup.preset, &self.setup.config);
        let (mut change, mut failed) = (0, 0);
        while failed < CHANGES.len() && !self.is_over() {
            let next = rule.with(|next| CHANGES[change](next, &range));
            if range.has(&next) && self.is_faster(next) {
                (rule, failed) = (next, 0);
            } else {
                (change, failed) = ((change + 1) % CHANGES.len(), failed + 1);
            }
        }
        Some(self.best)
    }

    /// No time can be gained any more, or the work is used up.
    fn is_over(&self) -> bool {
        self.left == 0 || self.best.time_s < self.setup.bound.ns() as f64 / 1e9 * (1.0 + NEAR)
    }

    /// Tries a rule that was not tried before, and keeps its run if it is the fastest so far.
    fn is_faster(&mut self, rule: Rule) -> bool {
        if self.seen.contains(&rule) || self.is_over() {
            return false;
        }
        self.seen.push(rule);
        let future = match &self.in_turns {
            Some(in_turns) if rule.turns => in_turns,
            _ => &self.merged,
        };
        let run = Oracle::new(*self.setup, rule, future.clone()).run();
        self.left = self.left.saturating_sub(cost(&run));
        let faster = run.time_s < self.best.time_s;
        if faster {
            self.best = run;
        }
        faster
    }
}

/// Whether any request comes at a fixed time.
fn timed(workload: &Workload) -> bool {
    workload.jobs.iter().any(|job| job.timed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtentPlace {
    Absent,
    Flying,
    Present,
}

#[derive(Clone, Copy, Debug)]
struct ExtentState {
    place: ExtentPlace,
    /// A reader has requested it while it was absent.
    asked: bool,
    /// No reader demanded it, neither when it was fetched nor later.
    ahead: bool,
    /// Readers that copy from it.
    pins: u32,
    /// Bytes from its start that may be read.
    arrived: u64,
    /// The fetch that brings it in.
    fetch: u32,
}

/// The request of a slot of the scheduler.
#[derive(Clone, Copy, Debug, Default)]
struct RequestSlot {
    job: u32,
    request: usize,
    /// The touch that it is processing.
    touch: u32,
    /// The first byte that it has not copied.
    at: u64,
    /// One past the last byte of the current copy.
    copied_to: u64,
    issued_at: u64,
    /// The time since which it waits; `None` while it copies or thinks.
    waiting_since: Option<u64>,
    waited_ns: u64,
    met: ReadOutcome,
}

/// The worst state that a request has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ReadOutcome {
    #[default]
    Hit,
    Late,
    Miss,
}

/// A fetch in flight: the extents of `first..end` that belong to it, of which those before `next` have arrived
/// completely, and the pages between them that no reader needs.
struct Fetch {
    end: u32,
    next: u32,
    start: u64,
    gap_pages: u64,
}

struct Oracle<'a> {
    setup: Setup<'a>,
    rule: Rule,
    device: Box<dyn Device>,
    /// Number of commands that the device processes concurrently.
    lanes: u32,
    future: Future,
    states: Vec<ExtentState>,
    scheduler: JobScheduler<'a>,
    slots: Vec<RequestSlot>,
    mapped: MappedPages,
    /// Absent extents that will be needed, by their next use.
    absent: BTreeSet<(u32, u32)>,
    /// The same extents by position, and the extent after the latest fetch.
    absent_places: BTreeSet<u32>,
    head: u32,
    /// Extents that a reader waits for and that are absent.
    asked: VecDeque<u32>,
    /// Present extents that no read copies from, by their next use.
    idle: BTreeSet<(u32, u32)>,
    /// Slots that wait, each with its extent.
    waiting: Vec<(u32, u32)>,
    fetches: Vec<Fetch>,
    flying: u32,
    /// Pages that are present or in flight.
    held_pages: u64,
    /// Pages that are being copied.
    pinned_pages: u64,
    /// Pages of gaps that are in flight.
    gap_pages: u64,
    /// Bytes that are absent and will be needed.
    absent_bytes: u64,
    /// The current maximum length of a fetch during the ramp.
    ramp_bytes: u64,
    stats: Stats,
    latency: Histogram<u64>,
    ended_at: u64,
    /// Events since a reader last made progress, and their maximum: all extents may be fetched while every reader
    /// thinks.
    idle_events: u64,
    max_idle_events: u64,
}

impl<'a> Oracle<'a> {
    fn new(setup: Setup<'a>, rule: Rule, future: Future) -> Oracle<'a> {
        let state = ExtentState {
            place: ExtentPlace::Absent,
            asked: false,
            ahead: false,
            pins: 0,
            arrived: 0,
            fetch: 0,
        };
        let mut oracle = Oracle {
            states: vec![state; future.extents.len()],
            absent: (0..future.extents.len() as u32)
                .map(|e| (future.next_use(e), e))
                .collect(),
            absent_places: (0..future.extents.len() as u32).collect(),
            head: 0,
            absent_bytes: future.extents.iter().map(Extent::len).sum(),
            scheduler: JobScheduler::new(&setup.workload.jobs),
            slots: Vec::new(),
            mapped: MappedPages::default(),
            max_idle_events: MAX_STEPS_PER_EXTENT * (1 + future.extents.len() as u64),
            setup,
            rule,
            device: setup.preset.build(setup.seed),
            lanes: fetches::lanes(setup.preset),
            future,
            asked: VecDeque::new(),
            idle: BTreeSet::new(),
            waiting: Vec::new(),
            fetches: Vec::new(),
            flying: 0,
            held_pages: 0,
            pinned_pages: 0,
            gap_pages: 0,
            ramp_bytes: rule.first_bytes,
            stats: Stats::default(),
            latency: latency_histogram(),
            ended_at: 0,
            idle_events: 0,
        };
        oracle.run_steps(0);
        oracle
    }

    /// # Panics
    /// Panics if a read never ends or nothing progresses: then the oracle or the device model is broken, and the
    /// figures would be wrong.
    fn run(mut self) -> RunResult {
        let mut arrivals = Vec::new();
        let mut now = 0;
        self.pump(now);
        while let Some(at) = self.next_time() {
            now = now.max(at);
            self.idle_events += 1;
            assert!(
                self.idle_events <= self.max_idle_events,
                "the oracle makes no progress: {} events without progress of any reader",
                self.max_idle_events
            );
            if self.device.next_time().is_some_and(|t| t <= now) {
                self.device.advance(now, &mut arrivals);
                arrivals
                    .drain(..)
                    .for_each(|arrival| self.arrive(now, arrival));
            }
            while self.scheduler.expire(now) {
                self.run_steps(now);
            }
            self.pump(now);
        }
        assert!(self.waiting.is_empty(), "a read of the oracle never ended");
        assert!(
            self.scheduler.is_finished(),
            "a job of the oracle never ended"
        );
        let page_bytes = self.setup.config.page.bytes();
        let distinct_bytes = self.setup.workload.distinct_bytes(page_bytes);
        let time_s = self.ended_at as f64 / 1e9;
        RunResult::new(time_s, self.stats, self.latency, distinct_bytes)
    }

    fn next_time(&self) -> Option<u64> {
        [self.scheduler.next_time(), self.device.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    fn pin(&mut self, extent: u32) {
        let state = &mut self.states[extent as usize];
        state.pins += 1;
        if state.pins == 1 {
            self.pinned_pages += self.future.pages(extent);
            self.idle.remove(&(self.future.next_use(extent), extent));
        }
    }

    /// A reader releases an extent; `used` is the touch that ends with this.
    fn unpin(&mut self, extent: u32, used: Option<u32>) {
        if let Some(touch) = used {
            // A pinned extent is not idle, so no list holds it under its old next use.
            self.future.finish(touch);
        }
        let state = &mut self.states[extent as usize];
        state.pins -= 1;
        if state.pins == 0 {
            self.pinned_pages -= self.future.pages(extent);
            self.settle(extent);
        }
    }

    /// A present extent that no read copies from stays for its next use, or leaves if it has none.
    fn settle(&mut self, extent: u32) {
        let ExtentState { place, pins, .. } = self.states[extent as usize];
        if place != ExtentPlace::Present || pins > 0 {
            return;
        }
        match self.future.next_use(extent) {
            NEVER => self.leave(extent),
            next => _ = self.idle.insert((next, extent)),
        }
    }

    fn leave(&mut self, extent: u32) {
        let pages = self.future.pages(extent);
        let Extent { file, start, .. } = self.future.extent(extent);
        let bytes = self.future.extent(extent).len();
        // A touch is of one page, so a mapped page is a separate extent.
        let page = self.setup.config.page.page_of(start);
        self.mapped.unmap(file, page / 64, 1 << (page % 64));
        let next = self.future.next_use(extent);
        let state = &mut self.states[extent as usize];
        (state.place, state.arrived) = (ExtentPlace::Absent, 0);
        if std::mem::take(&mut state.ahead) {
            self.stats.unused_bytes += bytes;
        }
        self.held_pages -= pages;
        self.idle.remove(&(next, extent));
        if next != NEVER {
            self.stats.evicted_pages += pages;
            self.absent_bytes += bytes;
            self.absent.insert((next, extent));
            self.absent_places.insert(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rules::LONG;
    use super::*;
    use crate::device::presets;
    use crate::device::{Arrival, Command};
    use foreread_core::units::PageSize;

    /// A device that always has a next event, but no arrivals.
    struct Mute(u64);

    impl Device for Mute {
        fn submit(&mut self, _: u64, _: Command) {}

        fn next_time(&self) -> Option<u64> {
            Some(self.0 + 1)
        }

        fn advance(&mut self, now_ns: u64, _: &mut Vec<Arrival>) {
            self.0 = now_ns;
        }
    }

    fn with_oracle<T>(model: &str, pages: u64, run: impl FnOnce(Oracle<'_>) -> T) -> T {
        let requests = (0..pages).map(|page| Request::read(page * 4096, 4096));
        let workload = Workload::single("test", 1 << 20, 1, requests.collect());
        let preset = presets::find(model).expect("a preset");
        let config = Config::new(PageSize::new(4096).expect("a page"), 4096).bounded();
        let setup = Setup {
            workload: &workload,
            config,
            preset,
            seed: 1,
            bound: Bound::default(),
        };
        let future = Future::of(&workload, 4096, 1, Order::Merged, |r| r.len).expect("small");
        run(Oracle::new(setup, LONG, future))
    }

    #[test]
    #[should_panic(expected = "no progress: 4096 events without progress of any reader")]
    fn a_run_without_progress_ends_in_a_word() {
        with_oracle("hdd-theory", 3, |mut oracle| {
            oracle.device = Box::new(Mute(0));
            oracle.run()
        });
    }

    /// More events than are allowed without progress, but a reader makes progress between them.
    #[test]
    fn a_long_run_is_not_a_stall() {
        let run = with_oracle("hdd-theory", 200, |mut oracle| {
            oracle.max_idle_events = 8;
            oracle.run()
        });
        assert_eq!(run.stats.demand_reads, 200);
    }

    /// With one fetch at a time, a requested extent is still in the list after it has arrived and left; it is not
    /// fetched again without a reader.
    #[test]
    fn requested_bytes_are_fetched_once() {
        for ahead in [false, true] {
            let run = with_oracle("hdd-theory", 2, |mut oracle| {
                oracle.rule = Rule {
                    flights: 1,
                    first_bytes: 1,
                    ahead,
                    ..LONG
                };
                oracle.run()
            });
            assert_eq!((run.stats.source_bytes, run.stats.demand_reads), (8192, 2));
        }
    }

    /// One fetch takes exactly as many pages as the cache holds, whatever the number of lanes.
    #[test]
    fn one_flight_fills_the_cache() {
        for model in ["hdd-theory", "rbd"] {
            let run = with_oracle(model, 4, |mut oracle| {
                oracle.rule = Rule { flights: 1, ..LONG };
                assert_eq!(oracle.setup.config.capacity_pages, 4);
                oracle.run()
            });
            assert_eq!(run.stats.source_reads, 1, "{model}");
        }
    }
}
