//! The simulator: the engine's state machine on a virtual clock and a device model.
//!
//! It is a discrete event simulation: readers issue requests, and the device answers. The state machine is the one that serves live
//! reads, without real time and bytes. Random numbers are drawn only by
//! devices and workloads, each from its own keys.
//!
//! ```text
//!   workload ──requests──► slot of a job ──Read, Fault, Advise──► machine ──Submit──► device
//!      ▲                     │  ▲                                   │  ▲               │
//!      └── think, copy ──────┘  └───────────────Serve───────────────┘  └──Done─────────┘
//! ```
//!
//! Opening a file, a hint, and a touch of a mapped page (`mapped.rs`) take no time. A fault
//! costs the host as much as a read of a page.

pub mod mapped;
mod refaults;
mod result;

pub use result::RunResult;

use crate::device::{Arrival, Command, Device};
use crate::scheduler::{Issue, JobScheduler, Step};
use crate::stats::record_latency;
use crate::workload::{Job, RequestKind, Workload};
use foreread_core::event::{Action, Event, FirstRead};
use foreread_core::machine::{Config, Machine, Note};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId, Nanos, OpenId, ReadId};
use hdrhistogram::Histogram;
use mapped::MappedPages;
use refaults::Refaults;
pub use refaults::bits;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

pub struct Setup<'a> {
    pub workload: &'a Workload,
    pub policy: &'a PolicySpec,
    pub config: Config,
    /// What a reader spends on each KiB it gets: the call and the copy. Nanoseconds.
    pub host_ns_per_kib: u64,
}

impl Setup<'_> {
    /// Mappings are a kernel's: where its policy maps around faults, its queue is simulated too.
    fn machine_config(&self) -> Config {
        if self.workload.touches() && self.policy.build().wants().around {
            return self.config.as_kernel();
        }
        self.config
    }
}

/// What a reader spends on `bytes` that it gets. Rounded up, so that a read in parts never takes less than in one.
pub fn copy_ns(bytes: u64, host_ns_per_kib: u64) -> u64 {
    (bytes * host_ns_per_kib).div_ceil(1024)
}

/// The request of a slot of the scheduler.
#[derive(Clone, Copy, Default)]
struct Slot {
    job: u32,
    issued_at: u64,
    /// What it copies from, and whether that is the last part of the request.
    lease: Option<LeaseId>,
    last: bool,
    touch: bool,
}

struct Sim<'a> {
    setup: &'a Setup<'a>,
    device: Box<dyn Device>,
    machine: Machine,
    scheduler: JobScheduler<'a>,
    slots: Vec<Slot>,
    mapped: MappedPages,
    refaults: Refaults,
    wakes: BinaryHeap<Reverse<u64>>,
    latency: Histogram<u64>,
    arrivals: Vec<Arrival>,
    /// The end of the last read. Readahead may still be in flight.
    ended: u64,
    watch: Option<&'a mut dyn Watch>,
}

/// Runs the workload to its end.
///
/// # Panics
/// When a read never ends: the machine or the device model is broken, and a figure would be a lie.
pub fn run(setup: &Setup<'_>, device: Box<dyn Device>) -> RunResult {
    Sim::new(setup, device, &Memory::default()).run().result()
}

/// An observer of each event before the machine handles it, and of the machine's notes about it.
pub trait Watch {
    /// The time of the next event, in virtual nanoseconds.
    fn time(&mut self, _now_ns: u64) {}
    /// What happens next.
    fn event(&mut self, event: &Event);
    /// The machine's notes about it, oldest first.
    fn notes(&mut self, notes: Vec<Note>);
}

/// The same as [`run`], with an observer that does not affect the run.
///
/// # Panics
/// Panics as [`run`] does.
pub fn run_watched<'a>(
    setup: &'a Setup<'a>,
    device: Box<dyn Device>,
    watch: &'a mut dyn Watch,
) -> RunResult {
    run_session(setup, device, &Memory::default(), watch).0
}

/// Names of files, and the reads of earlier sessions with such files; both empty by default.
#[derive(Default)]
pub struct Memory<'a> {
    /// The name of each file of the workload.
    pub names: &'a [u64],
    /// In their order; nothing before the first session.
    pub steps: &'a [FirstRead],
}

/// The same as [`run_watched`] with a memory; also what the next session may be given. Files whose names were learned are known from the
/// start, as by a listing.
///
/// # Panics
/// Panics as [`run`] does.
pub fn run_session<'a>(
    setup: &'a Setup<'a>,
    device: Box<dyn Device>,
    memory: &Memory<'_>,
    watch: &'a mut dyn Watch,
) -> (RunResult, Vec<FirstRead>) {
    let mut sim = Sim::new(setup, device, memory);
    sim.machine.observe();
    sim.watch = Some(watch);
    let sim = sim.run();
    let learned = sim.machine.learned();
    (sim.result(), learned)
}

impl Sim<'_> {
    /// Runs until nothing is due.
    fn run(self) -> Self {
        let (mut sim, mut now) = (self, 0);
        while let Some(at) = sim.next_time() {
            now = now.max(at);
            sim.advance(now);
        }
        assert_eq!(
            sim.machine.reads_in_progress(),
            0,
            "a simulated read never ended"
        );
        assert!(sim.scheduler.is_finished(), "a simulated job never ended");
        sim
    }

    fn result(self) -> RunResult {
        let Setup {
            workload, config, ..
        } = self.setup;
        RunResult {
            time_s: self.ended as f64 / 1e9,
            stats: self.machine.stats(),
            latency: self.latency,
            distinct_bytes: workload.distinct_bytes(config.page.bytes()),
            kernel: false,
            late_p99_ns: None,
            refault_bytes: Some(self.refaults.bytes()),
        }
    }
}

impl<'a> Sim<'a> {
    fn new(setup: &'a Setup<'a>, device: Box<dyn Device>, memory: &Memory<'_>) -> Sim<'a> {
        let mut sim = Sim {
            device,
            machine: Machine::new(setup.machine_config(), setup.policy.clone()),
            scheduler: JobScheduler::new(&setup.workload.jobs),
            slots: Vec::new(),
            mapped: MappedPages::default(),
            refaults: Refaults::new(setup.config.page),
            wakes: BinaryHeap::new(),
            latency: crate::stats::latency_histogram(),
            arrivals: Vec::new(),
            ended: 0,
            watch: None,
            setup,
        };
        sim.list();
        sim.remember(memory);
        sim.run_steps(0);
        sim
    }

    /// The listing of the files, where the workload has one.
    fn list(&mut self) {
        let workload = self.setup.workload;
        for (file, size) in (0..).zip(&workload.files).filter(|_| workload.listed) {
            let after = u32::checked_sub(file, 1).map(FileId);
            self.tell(
                0,
                Event::List {
                    file: FileId(file),
                    size: *size,
                    after,
                    planned: false,
                },
            );
        }
    }

    fn remember(&mut self, memory: &Memory<'_>) {
        let known: BTreeSet<u64> = memory.steps.iter().map(|step| step.name).collect();
        let files = (0..).zip(memory.names).zip(&self.setup.workload.files);
        for ((file, name), size) in files {
            let file = FileId(file);
            if known.contains(name) {
                let list = Event::List {
                    file,
                    size: *size,
                    after: None,
                    planned: false,
                };
                self.tell(0, list);
            }
            self.tell(0, Event::Named { file, name: *name });
        }
        for step in memory.steps {
            self.tell(0, Event::Learned { step: *step });
        }
    }

    fn next_time(&self) -> Option<u64> {
        let wake = self.wakes.peek().map(|w| w.0);
        [self.scheduler.next_time(), wake, self.device.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Everything that is due: what the device has to say first, then the readers.
    fn advance(&mut self, now: u64) {
        if self.device.next_time().is_some_and(|t| t <= now) {
            let mut arrivals = std::mem::take(&mut self.arrivals);
            self.device.advance(now, &mut arrivals);
            for arrival in arrivals.drain(..) {
                let Arrival { id, bytes, done } = arrival;
                let fetch = FetchId(id);
                self.tell(
                    now,
                    if done {
                        Event::Done { fetch, bytes }
                    } else {
                        Event::Progress { fetch, bytes }
                    },
                );
            }
            self.arrivals = arrivals;
        }
        while self.wakes.peek().is_some_and(|w| w.0 <= now) {
            self.wakes.pop();
            self.tell(now, Event::Timer);
        }
        if self.scheduler.expire(now) {
            self.run_steps(now);
        }
    }

    /// Everything that the scheduler wants done now.
    fn run_steps(&mut self, now: u64) {
        while let Some(step) = self.scheduler.poll(now) {
            match step {
                Step::Issue(issue) => {
                    if !self.issue(now, issue) {
                        self.scheduler.skip(now, issue.slot);
                    }
                }
                Step::Wake { slot } => self.copied(now, slot),
                Step::Open { job } => {
                    let Job { open, file, .. } = self.setup.workload.jobs[job as usize];
                    let size = self.setup.workload.files[file as usize];
                    self.tell(
                        now,
                        Event::Open {
                            open: OpenId(open),
                            file: FileId(file),
                            size,
                        },
                    );
                }
                Step::Close { job } => {
                    let Job { open, file, .. } = self.setup.workload.jobs[job as usize];
                    for (number, pages) in self.mapped.close(file, open) {
                        self.tell(
                            now,
                            Event::Unmapped {
                                file: FileId(file),
                                number,
                                pages,
                            },
                        );
                    }
                    self.tell(now, Event::Close { open: OpenId(open) });
                }
            }
        }
    }

    /// A reader has copied what it was served.
    fn copied(&mut self, now: u64, slot: u32) {
        let Slot { lease, last, .. } = self.slots[slot as usize];
        if let Some(lease) = lease {
            self.slots[slot as usize].lease = None;
            self.tell(now, Event::Release { lease });
        }
        if last {
            self.ended = now;
            self.scheduler.served(now, slot);
        }
    }

    /// Does what is asked for; false when there is nothing to wait for.
    fn issue(
        &mut self,
        now: u64,
        Issue {
            slot,
            job: number,
            request,
            ..
        }: Issue,
    ) -> bool {
        let job = &self.setup.workload.jobs[number as usize];
        let request = &job.requests[request];
        let range = ByteRange::between(request.offset, request.offset.saturating_add(request.len));
        let (read, open) = (ReadId(u64::from(slot)), OpenId(job.open));
        // The latency of a timed request counts from its recorded time.
        let issued_at = if job.timed { request.think_ns } else { now };
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, Slot::default());
        }
        self.slots[slot as usize] = Slot {
            job: number,
            issued_at,
            lease: None,
            last: false,
            touch: false,
        };
        match request.kind {
            RequestKind::Read => self.tell(
                now,
                Event::Read {
                    read,
                    open,
                    range,
                    random: false,
                },
            ),
            RequestKind::Touch => return self.touch(now, slot, request.offset),
            RequestKind::Hint(advice) => {
                self.tell(
                    now,
                    Event::Advise {
                        open,
                        advice,
                        range,
                    },
                );
                return false;
            }
        }
        true
    }

    /// A byte of the job's mapping is touched; false when its page is mapped.
    fn touch(&mut self, now: u64, slot: u32, at: u64) -> bool {
        let job = &self.setup.workload.jobs[self.slots[slot as usize].job as usize];
        if self
            .mapped
            .has(job.file, job.open, self.setup.config.page.page_of(at))
        {
            let (open, code) = (OpenId(job.open), job.executable);
            self.tell(now, Event::Accessed { open, at, code });
            return false;
        }
        self.slots[slot as usize].touch = true;
        let map = job.mapping(self.setup.workload.files[job.file as usize]);
        self.tell(
            now,
            Event::Fault {
                read: ReadId(u64::from(slot)),
                open: OpenId(job.open),
                at,
                map,
            },
        );
        true
    }

    fn tell(&mut self, now: u64, event: Event) {
        if let Some(watch) = &mut self.watch {
            watch.time(now);
            watch.event(&event);
        }
        let hinted = matches!(event, Event::Advise { .. });
        self.machine.handle(Nanos(now), event);
        if let Some(watch) = &mut self.watch {
            watch.notes(self.machine.take_notes());
        }
        while let Some(action) = self.machine.poll() {
            self.refaults.see(&action, hinted);
            self.act(now, action);
        }
    }

    fn act(&mut self, now: u64, action: Action) {
        match action {
            Action::Serve {
                read,
                lease,
                file,
                range,
                last,
            } => {
                let copied = now + copy_ns(range.len(), self.setup.host_ns_per_kib);
                let slot = &mut self.slots[read.0 as usize];
                (slot.lease, slot.last) = (Some(lease), last);
                if std::mem::take(&mut slot.touch) {
                    let job = &self.setup.workload.jobs[slot.job as usize];
                    let map = job.mapping(self.setup.workload.files[job.file as usize]);
                    let open = OpenId(job.open);
                    let (number, pages) = self.machine.around(open, range.start(), &map);
                    self.mapped.map(file.0, open.0, number, pages);
                }
                if last {
                    record_latency(&mut self.latency, copied - slot.issued_at);
                }
                self.scheduler.wake_at(copied, read.0 as u32);
            }
            Action::Submit {
                fetch, file, range, ..
            } => {
                let command = Command::new(fetch.0, file.0, range.start(), range.len());
                self.device.submit(now, command);
            }
            Action::WakeAt { at } => self.wakes.push(Reverse(at.0)),
            Action::Fail { read, error } => unreachable!(
                "read {} failed in a world without faults: {error:?}",
                read.0
            ),
            Action::Drop {
                file,
                number,
                pages,
                ..
            } => self.mapped.unmap(file.0, number, pages),
            // A model completes cancelled commands too.
            Action::Cancel { .. } => {}
        }
    }
}
