//! The simulator: the machine of the engine under a virtual clock and a device model.
//!
//! Discrete events: a reader issues its next request, a device answers. The machine is the one that serves live
//! reads; only the clock and the bytes are missing. Never: looks at the real time, or draws at random (the
//! devices and workloads do that, each from its own keys).
//!
//! ```text
//!   workload ──requests──► slot of a job ──Read──► machine ──Submit──► device
//!      ▲                     │  ▲                    │  ▲               │
//!      └── think, copy ──────┘  └──────Serve─────────┘  └──Done─────────┘
//! ```

use crate::device::{Arrival, Command, Device};
use crate::report::RunResult;
use crate::stats::record_latency;
use crate::workload::{Job, Workload};
use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId, Nanos, OpenId, ReadId};
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What one simulated run needs.
pub struct Setup<'a> {
    /// Who reads what.
    pub workload: &'a Workload,
    /// Which readahead.
    pub policy: &'a PolicySpec,
    /// Cache and limits.
    pub config: Config,
    /// What a reader spends on each KiB it gets: the call and the copy. Nanoseconds.
    pub host_ns_per_kib: u64,
}

/// One of the `depth` requests that a job keeps going.
#[derive(Clone, Copy)]
struct Slot {
    job: u32,
    issued_at: u64,
    lease: Option<LeaseId>,
    last: bool,
}

/// A reader's next step, by time and then by the order in which it was set.
type Step = Reverse<(u64, u64, u32)>;

struct Sim<'a> {
    setup: &'a Setup<'a>,
    device: Box<dyn Device>,
    machine: Machine,
    slots: Vec<Slot>,
    /// The next request of each job.
    next: Vec<usize>,
    steps: BinaryHeap<Step>,
    wakes: BinaryHeap<Reverse<u64>>,
    order: u64,
    latency: Histogram<u64>,
    arrivals: Vec<Arrival>,
}

/// Runs the workload to its end.
///
/// # Panics
/// When a read never ends: the machine or the device model is broken, and a figure would be a lie.
#[must_use]
pub fn run(setup: &Setup<'_>, device: Box<dyn Device>) -> RunResult {
    let mut sim = Sim::new(setup, device);
    let mut now = 0;
    while let Some(at) = sim.next_time() {
        now = now.max(at);
        sim.advance(now);
    }
    assert_eq!(sim.machine.reads_in_progress(), 0, "a simulated read never ended");
    RunResult {
        time_s: now as f64 / 1e9,
        stats: sim.machine.stats(),
        latency: sim.latency,
        distinct_bytes: setup.workload.distinct_bytes(setup.config.page.bytes()),
        kernel: false,
    }
}

impl<'a> Sim<'a> {
    fn new(setup: &'a Setup<'a>, device: Box<dyn Device>) -> Sim<'a> {
        let mut machine = Machine::new(setup.config, setup.policy.clone());
        let mut slots = Vec::new();
        for (number, job) in setup.workload.jobs.iter().enumerate() {
            let size = setup.workload.files[job.file as usize];
            machine.handle(Nanos(0), Event::Open { open: OpenId(job.open), file: FileId(job.file), size });
            let slot = Slot { job: number as u32, issued_at: 0, lease: None, last: true };
            slots.extend((0..job.depth.max(1)).map(|_| slot));
        }
        let latency = crate::stats::latency_histogram();
        let mut sim = Sim {
            next: vec![0; setup.workload.jobs.len()],
            setup,
            device,
            machine,
            slots,
            steps: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            order: 0,
            latency,
            arrivals: Vec::new(),
        };
        for slot in 0..sim.slots.len() as u32 {
            let think = sim.job(slot).requests.first().map_or(0, |r| r.think_ns);
            sim.step_at(think, slot);
        }
        sim
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

    /// A reader has copied what it was served, or begins.
    fn step(&mut self, now: u64, slot: u32) {
        let Slot { job, lease, last, .. } = self.slots[slot as usize];
        if let Some(lease) = lease {
            self.slots[slot as usize].lease = None;
            self.tell(now, Event::Release { lease });
            if !last {
                return;
            }
        }
        let at = self.next[job as usize];
        let Some(request) = self.job(slot).requests.get(at) else { return };
        self.next[job as usize] += 1;
        let due = now + if lease.is_some() { request.think_ns } else { 0 };
        if due > now {
            // The request is taken; it is issued when the thinking is over.
            self.next[job as usize] -= 1;
            self.slots[slot as usize].lease = None;
            return self.step_at(due, slot);
        }
        self.slots[slot as usize].issued_at = now;
        let range = ByteRange::between(request.offset, request.offset.saturating_add(request.len));
        let open = OpenId(self.job(slot).open);
        self.tell(now, Event::Read { read: ReadId(u64::from(slot)), open, range, random: false });
    }

    fn tell(&mut self, now: u64, event: Event) {
        self.machine.handle(Nanos(now), event);
        while let Some(action) = self.machine.poll() {
            self.act(now, action);
        }
    }

    fn act(&mut self, now: u64, action: Action) {
        match action {
            Action::Serve { read, lease, range, last, .. } => {
                let copied = now + range.len() * self.setup.host_ns_per_kib / 1024;
                let slot = &mut self.slots[read.0 as usize];
                (slot.lease, slot.last) = (Some(lease), last);
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
            // Bytes are nobody's here, and a model answers what was cancelled all the same.
            Action::Drop { .. } | Action::Cancel { .. } => {}
        }
    }
}
