//! The oracle: readahead that knows all that will be read, in the same cache, on the same device, for the same readers.
//!
//! It fetches what is wanted soonest and absent, with its neighbours that it would fetch soon anyway; what is wanted
//! last leaves (Belady 1966), and nothing is fetched ahead into room that something wanted sooner needs. It never
//! fetches a byte that nobody reads. How long its fetches are best is a matter of the device and the workload, so
//! every run is tried under a few [`RULES`] and the fastest counts.
//!
//! ```text
//!   reader:  ask ──► wait for bytes ──► copy what is there ──► ... ──► think ──► ask the next
//!                       ▲ arrivals          │ a use is done
//!   extent:  absent ──fetch──► flying ──► present ──never wanted again, or farthest and room is short──► absent
//! ```
//!
//! It is a limit for those who fetch what is read and nothing else. Where a command costs more than the bytes of a
//! gap (a disk), reading the gap too can be faster; the computed bound (`bound.rs`) holds even then.
//!
//! A page is fetched as soon as it may be (*aggressive*, in the words of Cao, Felten, Karlin and Li 1995), which in a
//! cache of a few reads costs some fetches more than the fewest there can be. What stays: in a cache of a few reads, or at the start of a run that waits for its
//! readers, a policy may be ahead by a hair; and on a disk that turns, whose own buffer reads on while nobody asks,
//! by more than that, for no rule plans with the turns. Where round trips are drawn, a short run of one lucky command
//! may beat one that draws many.
//!
//! Never: looks at what a policy does, or takes part in a verdict.

mod fetches;

use super::bound::Bound;
use super::future::{Extent, Future, NEVER};
use crate::device::Device;
use crate::device::presets::Preset;
use crate::report::RunResult;
use crate::sim::copy_ns;
use crate::stats::{latency_histogram, record_latency};
use crate::workload::{Job, Request, Workload};
use foreread_core::machine::Config;
use foreread_core::stats::Stats;
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// What one run of the oracle needs.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Who reads what.
    pub workload: &'a Workload,
    /// Cache and limits, those of every policy.
    pub config: Config,
    /// The device.
    pub preset: &'a Preset,
    /// Its luck.
    pub seed: u64,
    /// What no run can be below: a run this fast needs no other rule.
    pub bound: Bound,
}

/// How long fetches are and how many there are at once.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// The first fetch is at most this long, each further one twice as long as the longest before it.
    first_bytes: u64,
    /// Absent neighbours before the extent that is wanted are fetched with it, not only those behind it.
    backward: bool,
    /// All lanes of the device together fetch at most this part of the cache.
    cache_part: u64,
    /// Fetches at once, as far as the device takes them.
    flights: u32,
}

/// What is tried: the fewest commands; the earliest first byte, with one command or a few on the link before the one
/// that is waited for; the least that lies between a byte and who waits for it.
const RULES: [Rule; 6] = [
    Rule { first_bytes: u64::MAX, backward: true, cache_part: 1, flights: u32::MAX },
    Rule { first_bytes: 1, backward: false, cache_part: 1, flights: u32::MAX },
    Rule { first_bytes: 64 << 10, backward: false, cache_part: 1, flights: 4 },
    Rule { first_bytes: u64::MAX, backward: false, cache_part: 16, flights: u32::MAX },
    Rule { first_bytes: 1, backward: false, cache_part: 16, flights: 4 },
    Rule { first_bytes: 1, backward: false, cache_part: 2048, flights: 4 },
];

/// Nearer than this part to the bound a run is fast enough, and no further rule is tried.
const NEAR: f64 = 1e-4;

/// The fastest run under any of the rules, each on a device of its own. Nothing for a workload with
/// more touches than [`super::MAX_TOUCHES`].
#[must_use]
pub fn run(setup: &Setup<'_>) -> Option<RunResult> {
    let page = setup.config.page.bytes();
    let most = (setup.config.max_fetch_bytes / page).min(setup.config.capacity_pages / 4);
    let cost = |r: &Request| copy_ns(r.len, setup.preset.host_ns_per_kib) + r.len;
    let future = Future::of(setup.workload, page, most, cost)?;
    let mut best: Option<RunResult> = None;
    for rule in RULES {
        let run = Oracle::new(*setup, rule, future.clone()).run();
        if best.as_ref().is_none_or(|b| run.time_s < b.time_s) {
            best = Some(run);
        }
        if best.as_ref().is_some_and(|b| b.time_s < setup.bound.ns() as f64 / 1e9 * (1.0 + NEAR)) {
            break;
        }
    }
    best
}

/// Where an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Absent,
    Flying,
    Present,
}

/// What is known of an extent beside its future.
#[derive(Clone, Copy, Debug)]
struct State {
    place: Place,
    /// A reader has asked for it while it was absent.
    asked: bool,
    /// Nobody had asked for it when it was fetched, and nobody has since.
    ahead: bool,
    /// Readers that copy from it.
    pins: u32,
    /// Bytes from its start that may be read.
    arrived: u64,
}

/// One of the `depth` requests that a job keeps going.
#[derive(Clone, Copy, Debug)]
struct Slot {
    job: u32,
    request: Option<usize>,
    /// The touch it is at.
    touch: u32,
    /// First byte it has not copied.
    at: u64,
    /// One past the last it will copy of what is being copied.
    copied_to: u64,
    issued_at: u64,
    /// Since when it waits; nothing while it copies or thinks.
    waiting_since: Option<u64>,
    waited_ns: u64,
    met: Met,
}

/// The worst that a request has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    Hit,
    Late,
    Miss,
}

/// A fetch on its way: extents `first..end`, the ones before `next` whole.
struct Fetch {
    end: u32,
    next: u32,
    start: u64,
}

struct Oracle<'a> {
    setup: Setup<'a>,
    rule: Rule,
    device: Box<dyn Device>,
    /// Commands that it works on at once.
    lanes: u32,
    future: Future,
    states: Vec<State>,
    slots: Vec<Slot>,
    /// The next request of each job.
    issued: Vec<usize>,
    /// Readers' steps: time, order, slot.
    steps: BinaryHeap<Reverse<(u64, u64, u32)>>,
    order: u64,
    /// Absent extents that will be wanted, by their next use.
    absent: BTreeSet<(u32, u32)>,
    /// Extents that a reader waits for and that are absent.
    asked: VecDeque<u32>,
    /// Present extents that nobody copies from, by their next use.
    idle: BTreeSet<(u32, u32)>,
    /// Slots that wait, and for which extent.
    waiting: Vec<(u32, u32)>,
    fetches: Vec<Fetch>,
    flying: u32,
    /// Pages present or flying.
    held_pages: u64,
    /// Pages that are being copied.
    pinned_pages: u64,
    /// Bytes that are absent and will be wanted.
    absent_bytes: u64,
    /// Longest fetch of a ramp by now.
    ramp_bytes: u64,
    stats: Stats,
    latency: Histogram<u64>,
    ended_at: u64,
}

impl<'a> Oracle<'a> {
    fn new(setup: Setup<'a>, rule: Rule, future: Future) -> Oracle<'a> {
        let state = State { place: Place::Absent, asked: false, ahead: false, pins: 0, arrived: 0 };
        let slot = |job: usize| Slot {
            job: job as u32,
            request: None,
            touch: 0,
            at: 0,
            copied_to: 0,
            issued_at: 0,
            waiting_since: None,
            waited_ns: 0,
            met: Met::Hit,
        };
        let jobs = &setup.workload.jobs;
        let slots = jobs.iter().enumerate().flat_map(|(n, job)| (0..job.depth.max(1)).map(move |_| n));
        let mut oracle = Oracle {
            states: vec![state; future.extents.len()],
            absent: (0..future.extents.len() as u32).map(|e| (future.next_use(e), e)).collect(),
            absent_bytes: future.extents.iter().map(Extent::len).sum(),
            slots: slots.map(slot).collect(),
            issued: vec![0; jobs.len()],
            setup,
            rule,
            device: setup.preset.build(setup.seed),
            lanes: fetches::lanes(setup.preset),
            future,
            steps: BinaryHeap::new(),
            order: 0,
            asked: VecDeque::new(),
            idle: BTreeSet::new(),
            waiting: Vec::new(),
            fetches: Vec::new(),
            flying: 0,
            held_pages: 0,
            pinned_pages: 0,
            ramp_bytes: rule.first_bytes,
            stats: Stats::default(),
            latency: latency_histogram(),
            ended_at: 0,
        };
        for slot in 0..oracle.slots.len() as u32 {
            let think = oracle.job(slot).requests.first().map_or(0, |r| r.think_ns);
            oracle.step_at(think, slot);
        }
        oracle
    }

    /// # Panics
    /// When a read never ends: the oracle or the device model is broken, and a figure would be a lie.
    fn run(mut self) -> RunResult {
        let mut arrivals = Vec::new();
        let mut now = 0;
        self.pump(now);
        while let Some(at) = self.next_time() {
            now = now.max(at);
            if self.device.next_time().is_some_and(|t| t <= now) {
                self.device.advance(now, &mut arrivals);
                arrivals.drain(..).for_each(|arrival| self.arrive(now, arrival));
            }
            while self.steps.peek().is_some_and(|s| s.0.0 <= now)
                && let Some(Reverse((_, _, slot))) = self.steps.pop()
            {
                self.step(now, slot);
            }
            self.pump(now);
        }
        assert!(self.waiting.is_empty(), "a read of the oracle never ended");
        RunResult {
            time_s: self.ended_at as f64 / 1e9,
            stats: self.stats,
            latency: self.latency,
            distinct_bytes: self.setup.workload.distinct_bytes(self.setup.config.page.bytes()),
            kernel: false,
        }
    }

    fn next_time(&self) -> Option<u64> {
        [self.steps.peek().map(|s| s.0.0), self.device.next_time()].into_iter().flatten().min()
    }

    fn job(&self, slot: u32) -> &'a Job {
        &self.setup.workload.jobs[self.slots[slot as usize].job as usize]
    }

    /// The bytes of a slot's request that are in its file.
    fn range(&self, slot: u32) -> Option<(u64, u64)> {
        let job = self.job(slot);
        let request = job.requests.get(self.slots[slot as usize].request?)?;
        let size = self.setup.workload.files[job.file as usize];
        Some((request.offset.min(size), request.offset.saturating_add(request.len).min(size)))
    }

    fn step_at(&mut self, at: u64, slot: u32) {
        self.order += 1;
        self.steps.push(Reverse((at, self.order, slot)));
    }

    // ---- readers ----

    /// A reader begins, has thought, or has copied a part.
    fn step(&mut self, now: u64, slot: u32) {
        let s = &mut self.slots[slot as usize];
        if s.request.is_none() {
            return self.ask(now, slot, false);
        }
        s.at = s.copied_to;
        self.copied(now, slot);
    }

    /// The next request of the job, when its thinking is over.
    fn ask(&mut self, now: u64, slot: u32, after_another: bool) {
        let job = self.slots[slot as usize].job;
        let number = self.issued[job as usize];
        let Some(request) = self.job(slot).requests.get(number) else { return };
        if after_another && request.think_ns > 0 {
            return self.step_at(now + request.think_ns, slot);
        }
        self.issued[job as usize] += 1;
        let touch = self.future.first_touch(job, number);
        let s = &mut self.slots[slot as usize];
        (s.request, s.touch, s.issued_at, s.waited_ns, s.met) = (Some(number), touch, now, 0, Met::Hit);
        let Some((start, end)) = self.range(slot).filter(|(start, end)| start < end) else {
            return self.end(now, slot, 0);
        };
        self.slots[slot as usize].at = start;
        self.meet(touch, end, slot);
        self.go_on(now, slot);
    }

    /// What the request meets at its issue: counted, and fetched first where it is absent.
    fn meet(&mut self, first: u32, end: u64, slot: u32) {
        let mut touch = first;
        loop {
            let extent = self.future.extent_of(touch);
            let bytes = self.future.extents[extent as usize].len();
            let state = &mut self.states[extent as usize];
            let met = match state.place {
                Place::Present => Met::Hit,
                Place::Flying => Met::Late,
                Place::Absent => Met::Miss,
            };
            if std::mem::take(&mut state.ahead) {
                self.stats.used_bytes += bytes;
                self.stats.late_bytes += if met == Met::Late { bytes } else { 0 };
            }
            if met == Met::Miss {
                state.asked = true;
                self.asked.push_back(extent);
            }
            let s = &mut self.slots[slot as usize];
            s.met = s.met.max(met);
            if self.future.extents[extent as usize].end >= end {
                return;
            }
            touch += 1;
        }
    }

    /// Copies what is there of the extent the reader is at, or waits for it.
    fn go_on(&mut self, now: u64, slot: u32) {
        let Slot { touch, at, .. } = self.slots[slot as usize];
        let Some((start, end)) = self.range(slot) else { return };
        let extent = self.future.extent_of(touch);
        let Extent { start: from, end: to, .. } = self.future.extents[extent as usize];
        let there = (from + self.states[extent as usize].arrived).min(end).min(to);
        let s = &mut self.slots[slot as usize];
        if there <= at {
            s.waiting_since = Some(now);
            self.waiting.push((extent, slot));
            if self.states[extent as usize].place == Place::Absent && !self.states[extent as usize].asked {
                self.states[extent as usize].asked = true;
                self.asked.push_back(extent);
            }
            return;
        }
        s.copied_to = there;
        let host = self.setup.preset.host_ns_per_kib;
        // Differences of rounded sums: a request copied in parts takes no longer than in one.
        let copy = copy_ns(there - start, host) - copy_ns(at - start, host);
        self.pin(extent);
        self.step_at(now + copy, slot);
    }

    /// A part has been copied: on to the rest, the next extent, or the end.
    fn copied(&mut self, now: u64, slot: u32) {
        let Slot { touch, at, .. } = self.slots[slot as usize];
        let Some((start, end)) = self.range(slot) else { return };
        let extent = self.future.extent_of(touch);
        let used = at >= end || at >= self.future.extents[extent as usize].end;
        self.unpin(extent, used.then_some(touch));
        if at >= end {
            return self.end(now, slot, end - start);
        }
        self.slots[slot as usize].touch += u32::from(used);
        self.go_on(now, slot);
    }

    /// A request is over.
    fn end(&mut self, now: u64, slot: u32, bytes: u64) {
        let s = &mut self.slots[slot as usize];
        s.request = None;
        record_latency(&mut self.latency, now - s.issued_at);
        self.ended_at = self.ended_at.max(now);
        if bytes > 0 {
            self.stats.demand_reads += 1;
            self.stats.demand_bytes += bytes;
            self.stats.stall_ns += s.waited_ns;
            match s.met {
                Met::Hit => self.stats.hits += 1,
                Met::Late => self.stats.late_hits += 1,
                Met::Miss => self.stats.misses += 1,
            }
        }
        self.ask(now, slot, true);
    }

    // ---- cache ----

    fn pin(&mut self, extent: u32) {
        let state = &mut self.states[extent as usize];
        state.pins += 1;
        if state.pins == 1 {
            self.pinned_pages += self.future.pages(extent);
            self.idle.remove(&(self.future.next_use(extent), extent));
        }
    }

    /// A reader lets go of an extent; `used` is the touch that this ends.
    fn unpin(&mut self, extent: u32, used: Option<u32>) {
        if let Some(touch) = used {
            // Not idle while it is pinned, so no list holds it under its old next use.
            self.future.finish(touch);
        }
        let state = &mut self.states[extent as usize];
        state.pins -= 1;
        if state.pins == 0 {
            self.pinned_pages -= self.future.pages(extent);
            self.settle(extent);
        }
    }

    /// A present extent that nobody copies from stays for its next use, or leaves when there is none.
    fn settle(&mut self, extent: u32) {
        let State { place, pins, .. } = self.states[extent as usize];
        if place != Place::Present || pins > 0 {
            return;
        }
        match self.future.next_use(extent) {
            NEVER => self.leave(extent),
            next => _ = self.idle.insert((next, extent)),
        }
    }

    fn leave(&mut self, extent: u32) {
        let pages = self.future.pages(extent);
        let bytes = self.future.extents[extent as usize].len();
        let next = self.future.next_use(extent);
        let state = &mut self.states[extent as usize];
        (state.place, state.arrived) = (Place::Absent, 0);
        if std::mem::take(&mut state.ahead) {
            self.stats.unused_bytes += bytes;
        }
        self.held_pages -= pages;
        self.idle.remove(&(next, extent));
        if next != NEVER {
            self.stats.evicted_pages += pages;
            self.absent_bytes += bytes;
            self.absent.insert((next, extent));
        }
    }
}
