//! The simulator: the machine of the engine under a virtual clock and a device model.
//!
//! Discrete events: a reader issues its next request, a device answers. The machine is the one that serves live
//! reads; only the clock and the bytes are missing. Never: looks at the real time, or draws at random (the
//! devices and workloads do that, each from its own keys).
//!
//! ```text
//!   workload ──requests──► slot of a job ──Read, Fault, Advise──► machine ──Submit──► device
//!      ▲                     │  ▲                                   │  ▲               │
//!      └── think, copy ──────┘  └───────────────Serve───────────────┘  └──Done─────────┘
//! ```
//!
//! Opening a file and a hint take no time, and no more does a touch of a page that is mapped (`mapped.rs`). A fault
//! costs the host what a read of a page does.

pub mod mapped;
pub mod outcomes;
mod result;

pub use result::RunResult;

use crate::device::{Arrival, Command, Device};
use crate::stats::record_latency;
use crate::workload::waits::Waits;
use crate::workload::{Job, Kind, Request, Workload};
use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine, Note};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId, Nanos, OpenId, ReadId};
use hdrhistogram::Histogram;
use mapped::Mapped;
use outcomes::{OutcomeMap, Outcomes};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What one simulated run needs.
pub struct Setup<'a> {
    /// Which readers read what.
    pub workload: &'a Workload,
    /// Which readahead.
    pub policy: &'a PolicySpec,
    /// Cache and limits.
    pub config: Config,
    /// What a reader spends on each KiB it gets: the call and the copy. Nanoseconds.
    pub host_ns_per_kib: u64,
}

/// What a reader spends on `bytes` that it gets. Rounded up, so that a read in parts never takes less than in one.
#[must_use]
pub fn copy_ns(bytes: u64, host_ns_per_kib: u64) -> u64 {
    (bytes * host_ns_per_kib).div_ceil(1024)
}

/// One of the `depth` requests that a job keeps going.
#[derive(Clone, Copy)]
struct Slot {
    job: u32,
    issued_at: u64,
    lease: Option<LeaseId>,
    last: bool,
    /// What it issued is a touch.
    touch: bool,
    /// It has waited as long as its next request wants.
    rested: bool,
}

/// How far a job is.
#[derive(Clone, Default)]
struct Progress {
    /// Its next request.
    next: usize,
    /// Its first slot, how many it has, and how many of them are not at their end. A timed job gets more as it needs
    /// them.
    first_slot: u32,
    slots: u32,
    busy: u32,
    /// Slots that have nothing to do: a timed job's, or those that wait for the rest of their batch; and whether a timed one waits
    /// for the time of the next request.
    spare: Vec<u32>,
    has_clock: bool,
}

/// A reader's next step, by time and then by the order in which it was set.
type Step = Reverse<(u64, u64, u32)>;

struct Sim<'a> {
    setup: &'a Setup<'a>,
    device: Box<dyn Device>,
    machine: Machine,
    slots: Vec<Slot>,
    jobs: Vec<Progress>,
    waits: Waits,
    /// The jobs through each open description that have not ended.
    opens: Vec<u32>,
    mapped: Mapped,
    steps: BinaryHeap<Step>,
    wakes: BinaryHeap<Reverse<u64>>,
    order: u64,
    latency: Histogram<u64>,
    arrivals: Vec<Arrival>,
    /// When the last reader had what it wanted. Readahead may still be on its way.
    ended: u64,
    /// The observer, if there is one.
    outcomes: Option<Box<Outcomes>>,
    watch: Option<&'a mut dyn Watch>,
}

/// Runs the workload to its end.
///
/// # Panics
/// When a read never ends: the machine or the device model is broken, and a figure would be a lie.
#[must_use]
pub fn run(setup: &Setup<'_>, device: Box<dyn Device>) -> RunResult {
    Sim::new(setup, device).finish().0
}

/// The same, and where and when its reads hit, were late or missed.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_mapped(setup: &Setup<'_>, device: Box<dyn Device>) -> (RunResult, OutcomeMap) {
    let mut sim = Sim::new(setup, device);
    sim.outcomes = Some(Box::new(Outcomes::new(setup.workload, setup.config.page)));
    let (result, outcomes) = sim.finish();
    let map = outcomes.map(|o| o.finish(result.time_s));
    (result, map.expect("it was set above"))
}

/// An observer that gets every event before the machine does, and all that the machine notes about it.
pub trait Watch {
    /// The time of the next event, in virtual nanoseconds.
    fn time(&mut self, _now_ns: u64) {}
    /// What happens next.
    fn event(&mut self, event: &Event);
    /// What the machine noted on it, oldest first.
    fn notes(&mut self, notes: Vec<Note>);
}

/// The same as [`run`], with an observer, which changes nothing.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_watched<'a>(setup: &'a Setup<'a>, device: Box<dyn Device>, watch: &'a mut dyn Watch) -> RunResult {
    let mut sim = Sim::new(setup, device);
    sim.machine.observe();
    sim.watch = Some(watch);
    sim.finish().0
}

impl Sim<'_> {
    /// Runs until nothing is due.
    fn finish(self) -> (RunResult, Option<Box<Outcomes>>) {
        let (mut sim, mut now) = (self, 0);
        while let Some(at) = sim.next_time() {
            now = now.max(at);
            sim.advance(now);
        }
        assert_eq!(sim.machine.reads_in_progress(), 0, "a simulated read never ended");
        assert!(sim.jobs.iter().all(|j| j.busy == 0), "a simulated job never ended");
        let Setup { workload, config, .. } = sim.setup;
        let result = RunResult {
            time_s: sim.ended as f64 / 1e9,
            stats: sim.machine.stats(),
            latency: sim.latency,
            distinct_bytes: workload.distinct_bytes(config.page.bytes()),
            kernel: false,
            late_p99_ns: None,
        };
        (result, sim.outcomes)
    }
}

impl<'a> Sim<'a> {
    fn new(setup: &'a Setup<'a>, device: Box<dyn Device>) -> Sim<'a> {
        let jobs = &setup.workload.jobs;
        let mut sim = Sim {
            device,
            machine: Machine::new(setup.config, setup.policy.clone()),
            slots: Vec::new(),
            jobs: vec![Progress::default(); jobs.len()],
            waits: Waits::of(jobs),
            opens: vec![0; jobs.iter().map(|j| j.open as usize + 1).max().unwrap_or(0)],
            mapped: Mapped::default(),
            steps: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            order: 0,
            latency: crate::stats::latency_histogram(),
            arrivals: Vec::new(),
            ended: 0,
            outcomes: None,
            watch: None,
            setup,
        };
        for (number, job) in jobs.iter().enumerate() {
            sim.jobs[number].first_slot = sim.slots.len() as u32;
            (0..if job.timed { 1 } else { job.depth.max(1) }).for_each(|_| _ = sim.add_slot(number as u32));
            sim.opens[job.open as usize] += 1;
        }
        for number in sim.waits.free() {
            sim.begin(0, number, 0);
        }
        sim
    }

    /// A job begins: its file is opened (nothing happens if an earlier job has done that), its slots go to work from `at`
    /// on.
    fn begin(&mut self, now: u64, number: u32, at: u64) {
        let job = &self.setup.workload.jobs[number as usize];
        let size = self.setup.workload.files[job.file as usize];
        self.tell(now, Event::Open { open: OpenId(job.open), file: FileId(job.file), size });
        let progress = &mut self.jobs[number as usize];
        (progress.busy, progress.has_clock) = (progress.slots, job.timed);
        let slots = progress.first_slot..progress.first_slot + progress.slots;
        slots.for_each(|slot| self.step_at(at.max(now), slot));
    }

    fn add_slot(&mut self, job: u32) -> u32 {
        self.jobs[job as usize].slots += 1;
        self.slots.push(Slot { job, issued_at: 0, lease: None, last: true, touch: false, rested: false });
        self.slots.len() as u32 - 1
    }

    /// Jobs that had waited may begin.
    fn begin_all(&mut self, now: u64, ready: Vec<(u32, u64)>) {
        ready.into_iter().for_each(|(number, at)| self.begin(now, number, at));
    }

    /// A slot has nothing more to do. When none of the job has, the next ones begin.
    fn end(&mut self, now: u64, slot: u32) {
        let number = self.slots[slot as usize].job as usize;
        self.jobs[number].busy -= 1;
        if self.jobs[number].busy > 0 {
            return;
        }
        let job = &self.setup.workload.jobs[number];
        let users = &mut self.opens[job.open as usize];
        *users -= 1;
        if *users == 0 {
            self.mapped.close(job.file, job.open);
            self.tell(now, Event::Close { open: OpenId(job.open) });
        }
        if job.requests.is_empty() {
            let ready = self.waits.started(number as u32, now);
            self.begin_all(now, ready);
        }
        let ready = self.waits.ended(number as u32, now);
        self.begin_all(now, ready);
    }

    fn job(&self, slot: u32) -> &'a Job {
        &self.setup.workload.jobs[self.slots[slot as usize].job as usize]
    }

    fn step_at(&mut self, at: u64, slot: u32) {
        self.order += 1;
        self.steps.push(Reverse((at, self.order, slot)));
    }

    fn next_time(&self) -> Option<u64> {
        let step = self.steps.peek().map(|s| s.0.0);
        let wake = self.wakes.peek().map(|w| w.0);
        [step, wake, self.device.next_time()].into_iter().flatten().min()
    }

    /// Everything that is due: what the device has to say first, then the readers.
    fn advance(&mut self, now: u64) {
        if self.device.next_time().is_some_and(|t| t <= now) {
            let mut arrivals = std::mem::take(&mut self.arrivals);
            self.device.advance(now, &mut arrivals);
            for arrival in arrivals.drain(..) {
                let Arrival { id, bytes, done } = arrival;
                let fetch = FetchId(id);
                self.tell(now, if done { Event::Done { fetch, bytes } } else { Event::Progress { fetch, bytes } });
            }
            self.arrivals = arrivals;
        }
        while self.wakes.peek().is_some_and(|w| w.0 <= now) {
            self.wakes.pop();
            self.tell(now, Event::Timer);
        }
        if self.steps.peek().is_some_and(|s| s.0.0 <= now)
            && let Some(Reverse((_, _, slot))) = self.steps.pop()
        {
            self.step(now, slot);
        }
    }

    /// A reader has copied what it was served, has rested, or begins.
    fn step(&mut self, now: u64, slot: u32) {
        let Slot { job, lease, last, .. } = self.slots[slot as usize];
        if let Some(lease) = lease {
            self.slots[slot as usize].lease = None;
            self.tell(now, Event::Release { lease });
            if !last {
                return;
            }
            self.ended = now;
        }
        if self.job(slot).timed && self.jobs[job as usize].has_clock && lease.is_some() {
            // Another slot waits for the time of the next request.
            self.jobs[job as usize].spare.push(slot);
            return self.end(now, slot);
        }
        if lease.is_some() && self.job(slot).batch > 1 {
            return self.gather(now, slot);
        }
        self.go_on(now, slot);
    }

    /// A slot of a job that issues in batches is served: all that wait go on when they are enough.
    fn gather(&mut self, now: u64, slot: u32) {
        let (job, progress) = (self.job(slot), &mut self.jobs[self.slots[slot as usize].job as usize]);
        progress.spare.push(slot);
        if progress.spare.len() >= job.together(progress.next) {
            let together = std::mem::take(&mut progress.spare);
            together.into_iter().for_each(|slot| self.go_on(now, slot));
        }
    }

    /// The next request that there is something to wait for, or the end.
    fn go_on(&mut self, now: u64, slot: u32) {
        let Job { ref requests, timed, .. } = *self.job(slot);
        let number = self.slots[slot as usize].job;
        loop {
            let next = self.jobs[number as usize].next;
            let Some(request) = requests.get(next) else {
                self.jobs[number as usize].has_clock = timed;
                return self.end(now, slot);
            };
            let rested = std::mem::take(&mut self.slots[slot as usize].rested);
            let pause = if timed { request.think_ns.saturating_sub(now) } else { request.think_ns };
            if pause > 0 && !rested {
                // Not taken yet: the first free reader issues it when the think time is over.
                self.slots[slot as usize].rested = true;
                self.jobs[number as usize].has_clock = timed;
                return self.step_at(now.saturating_add(pause), slot);
            }
            self.jobs[number as usize].next += 1;
            if next == 0 {
                let ready = self.waits.started(number, now);
                self.begin_all(now, ready);
            }
            if self.issue(now, slot, request) {
                return self.pass_on(now, number);
            }
        }
    }

    /// The slot that waited for the next request of a timed job is taken: another one waits from now on, if there may be
    /// one more. Otherwise the first that has been served does.
    fn pass_on(&mut self, now: u64, number: u32) {
        let Job { timed, depth, .. } = self.setup.workload.jobs[number as usize];
        if !timed {
            return;
        }
        let progress = &mut self.jobs[number as usize];
        progress.has_clock = !progress.spare.is_empty() || progress.slots < depth.max(1);
        if progress.has_clock {
            progress.busy += 1;
            let slot = match progress.spare.pop() {
                Some(slot) => slot,
                None => self.add_slot(number),
            };
            self.step_at(now, slot);
        }
    }

    /// Does what is asked for; false when there is nothing to wait for.
    fn issue(&mut self, now: u64, slot: u32, request: &Request) -> bool {
        let job = self.job(slot);
        let range = ByteRange::between(request.offset, request.offset.saturating_add(request.len));
        let (read, open) = (ReadId(u64::from(slot)), OpenId(job.open));
        // What a timed request waits before it is issued, it waits.
        self.slots[slot as usize].issued_at = if job.timed { request.think_ns } else { now };
        match request.kind {
            Kind::Read => self.tell(now, Event::Read { read, open, range, random: false }),
            Kind::Touch => return self.touch(now, slot, request.offset),
            Kind::Hint(advice) => {
                self.tell(now, Event::Advise { open, advice, range });
                return false;
            }
        }
        true
    }

    /// A byte of the job's mapping is touched; false when its page is mapped.
    fn touch(&mut self, now: u64, slot: u32, at: u64) -> bool {
        let job = self.job(slot);
        if self.mapped.has(job.file, job.open, self.setup.config.page.page_of(at)) {
            return false;
        }
        self.slots[slot as usize].touch = true;
        let map = job.mapping(self.setup.workload.files[job.file as usize]);
        self.tell(now, Event::Fault { read: ReadId(u64::from(slot)), open: OpenId(job.open), at, map });
        true
    }

    fn tell(&mut self, now: u64, event: Event) {
        if let Some(watch) = &mut self.watch {
            watch.time(now);
            watch.event(&event);
        }
        self.machine.handle(Nanos(now), event);
        if let Some(watch) = &mut self.watch {
            watch.notes(self.machine.take_notes());
        }
        while let Some(action) = self.machine.poll() {
            if let Some(outcomes) = &mut self.outcomes {
                let issued_at = |read: ReadId| self.slots[read.0 as usize].issued_at;
                outcomes.see(now, &action, issued_at, &self.machine);
            }
            self.act(now, action);
        }
    }

    fn act(&mut self, now: u64, action: Action) {
        match action {
            Action::Serve { read, lease, file, range, last } => {
                let copied = now + copy_ns(range.len(), self.setup.host_ns_per_kib);
                let slot = &mut self.slots[read.0 as usize];
                (slot.lease, slot.last) = (Some(lease), last);
                if std::mem::take(&mut slot.touch) {
                    let open = self.setup.workload.jobs[slot.job as usize].open;
                    self.mapped.map(file.0, open, self.setup.config.page.page_of(range.start()));
                }
                if last {
                    record_latency(&mut self.latency, copied - slot.issued_at);
                }
                self.step_at(copied, read.0 as u32);
            }
            Action::Submit { fetch, file, range, .. } => {
                let command = Command { id: fetch.0, file: file.0, start: range.start(), len: range.len() };
                self.device.submit(now, command);
            }
            Action::WakeAt { at } => self.wakes.push(Reverse(at.0)),
            Action::Fail { read, error } => unreachable!("read {} failed in a world without faults: {error:?}", read.0),
            Action::Drop { file, number, pages, .. } => self.mapped.unmap(file.0, number, pages),
            // A model answers what was cancelled all the same.
            Action::Cancel { .. } => {}
        }
    }
}
