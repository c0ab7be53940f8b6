//! The simulator: the engine's state machine on a virtual clock and a device model.
//!
//! The simulation is driven by discrete events: readers issue requests, and the device answers. The state machine is the same code that
//! serves live reads; here it runs without real time and data. Only devices and workloads use random numbers, each computed from separate
//! keys ([`crate::rng`]).
//!
//! ```text
//!   workload ──requests──► slot of a job ──Read, Fault, Advise──► machine ──Submit──► device
//!      ▲                     │  ▲                                   │  ▲               │
//!      └── think, copy ──────┘  └───────────────Serve───────────────┘  └──Done─────────┘
//! ```
//!
//! Opening a file, a hint, and a touch of a mapped page take no time. A page fault takes the host as much time as a read of one page.

use crate::device::{Arrival, Command, Device};
use crate::scheduler::{Issue, JobScheduler, Step};
use crate::stats::record_latency;
use crate::workload::{Job, RequestKind, Workload};
use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine, Note};
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, FetchId, FileId, LeaseId, Nanos, OpenId, PageSize, ReadId};
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

pub struct Setup<'a> {
    pub workload: &'a Workload,
    pub policy: &'a PolicySpec,
    pub config: Config,
    /// Time that a reader spends on each KiB that it receives, for the call and the copy. Nanoseconds.
    pub host_ns_per_kib: u64,
}

impl<'a> Setup<'a> {
    pub fn new(
        workload: &'a Workload,
        policy: &'a PolicySpec,
        config: Config,
        host_ns_per_kib: u64,
    ) -> Setup<'a> {
        Setup {
            workload,
            policy,
            config,
            host_ns_per_kib,
        }
    }

    /// Mappings belong to a kernel: if the policy maps pages around faults, the kernel's request queue is simulated,
    /// too.
    fn machine_config(&self) -> Config {
        if self.workload.touches() && self.policy.build().wants().around {
            return self.config.as_kernel();
        }
        self.config
    }
}

/// Returns the time in nanoseconds that a reader needs to copy `bytes` bytes that it receives. The time is rounded up, so that a
/// read in several parts never takes less time than a read in one piece.
pub fn copy_ns(bytes: u64, host_ns_per_kib: u64) -> u64 {
    (bytes * host_ns_per_kib).div_ceil(1024)
}

/// The request of a slot of the scheduler.
#[derive(Clone, Copy, Default)]
struct Slot {
    job: u32,
    issued_at: u64,
    /// The piece that it copies, and whether that is the last part of the request.
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
    /// The end time of the last read. Readahead may still be in flight.
    ended: u64,
    watch: Option<&'a mut dyn Watch>,
}

/// Runs the workload to its end.
///
/// # Panics
/// Panics if a read never ends, because then the state machine or the device model has a bug, and the results would be wrong.
pub fn run(setup: &Setup<'_>, device: Box<dyn Device>) -> RunResult {
    Sim::new(setup, device).run().result()
}

/// Observes each event before the state machine handles it, and the notes that the state machine makes about the event.
pub trait Watch {
    /// The time of the next event, in virtual nanoseconds.
    fn time(&mut self, _now_ns: u64) {}
    fn event(&mut self, event: &Event);
    /// The machine's notes about the event, oldest first.
    fn notes(&mut self, notes: Vec<Note>);
}

/// Like [`run`], but with an observer, which does not affect the run.
///
/// # Panics
/// Panics in the same cases as [`run`].
pub fn run_watched<'a>(
    setup: &'a Setup<'a>,
    device: Box<dyn Device>,
    watch: &'a mut dyn Watch,
) -> RunResult {
    let mut sim = Sim::new(setup, device);
    sim.machine.observe();
    sim.watch = Some(watch);
    sim.run().result()
}

impl Sim<'_> {
    /// Runs until no event is due.
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
        let distinct_bytes = workload.distinct_bytes(config.page.bytes());
        let (time_s, stats) = (self.ended as f64 / 1e9, self.machine.stats());
        RunResult {
            refault_bytes: Some(self.refaults.bytes()),
            ..RunResult::new(time_s, stats, self.latency, distinct_bytes)
        }
    }
}

impl<'a> Sim<'a> {
    fn new(setup: &'a Setup<'a>, device: Box<dyn Device>) -> Sim<'a> {
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
        sim.run_steps(0);
        sim
    }

    /// Sends the listing of the files, if the workload has one.
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

    fn next_time(&self) -> Option<u64> {
        let wake = self.wakes.peek().map(|w| w.0);
        [self.scheduler.next_time(), wake, self.device.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles everything that is due: the device's arrivals first, then the readers.
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

    /// Executes all steps of the scheduler that are due now.
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
                    self.tell(now, Event::open(OpenId(open), FileId(file), size));
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

    /// A reader has copied the piece that it was served.
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

    /// Issues the request; returns false if there is nothing to wait for.
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
            RequestKind::Read => self.tell(now, Event::read(read, open, range)),
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

    /// Touches a byte of the job's mapping; returns false if its page is already mapped.
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

// The result of a run of a policy, whether simulated, by the oracle, or live.

#[derive(Clone, Debug)]
pub struct RunResult {
    /// Time from the first read to the end of the last, in seconds (virtual seconds on a model).
    pub time_s: f64,
    /// The machine's counters at the end. A `kernel` run sets only `demand_reads` and `demand_bytes`.
    pub stats: Stats,
    /// Latency of each demand read, in nanoseconds ([`crate::stats::latency_histogram`]).
    pub latency: Histogram<u64>,
    /// Distinct bytes demanded, rounded out to whole cache pages and clipped to the end of the file.
    pub distinct_bytes: u64,
    /// True if the kernel's page cache served the reads; then foreread's counters are null.
    pub kernel: bool,
    /// 99th percentile of the delay with which the reader issued reads, in nanoseconds; only for a live replay.
    pub late_p99_ns: Option<u64>,
    /// Bytes read again after eviction; only for a simulation.
    pub refault_bytes: Option<u64>,
}

impl RunResult {
    /// The result of a run that foreread's own cache served.
    pub fn new(
        time_s: f64,
        stats: Stats,
        latency: Histogram<u64>,
        distinct_bytes: u64,
    ) -> RunResult {
        RunResult {
            time_s,
            stats,
            latency,
            distinct_bytes,
            kernel: false,
            late_p99_ns: None,
            refault_bytes: None,
        }
    }
}

// The page tables of the simulated processes.
//
// A served fault maps its page. With policies of Linux 3.15 and later, cached pages around it are mapped too
// ([`foreread_core::machine::Machine::around`]). Eviction unmaps a page. This module issues no requests. A touch of a
// mapped page causes no fault, but counts as a use for the cache, like the accessed bit in a kernel.
//
// ```text
//   (file, open) ──► a bit for each page of the file, 64 in a word: the groups of the cache
// ```

#[derive(Default)]
pub struct MappedPages {
    tables: BTreeMap<(u32, u32), Vec<u64>>,
}

impl MappedPages {
    /// Returns true if the page is mapped; a touch of a mapped page does not involve the state machine.
    pub fn has(&self, file: u32, open: u32, page: u64) -> bool {
        let word = self
            .tables
            .get(&(file, open))
            .and_then(|t| t.get((page / 64) as usize));
        word.is_some_and(|w| w >> (page % 64) & 1 != 0)
    }

    /// Records that a page fault has mapped these pages (a bit set of the 64 pages from page `64 * number` on).
    pub fn map(&mut self, file: u32, open: u32, number: u64, pages: u64) {
        let table = self.tables.entry((file, open)).or_default();
        let word = number as usize;
        if table.len() <= word {
            table.resize(word + 1, 0);
        }
        table[word] |= pages;
    }

    /// Records that these pages have left the cache (a bit set of the 64 pages from page `64 * number` on).
    pub fn unmap(&mut self, file: u32, number: u64, pages: u64) {
        for (_, table) in self.tables.range_mut((file, 0)..=(file, u32::MAX)) {
            if let Some(word) = table.get_mut(number as usize) {
                *word &= !pages;
            }
        }
    }

    /// This function also unmaps these pages. Returns which of the 64 pages from page `64 * number` on were mapped.
    pub fn close(&mut self, file: u32, open: u32) -> impl Iterator<Item = (u64, u64)> + use<> {
        let table = self.tables.remove(&(file, open)).unwrap_or_default();
        (0..).zip(table).filter(|(_, pages)| *pages != 0)
    }
}

// Counts refaults: bytes that are read again after eviction, like the kernel's `workingset_refault_file`.
//
// ```text
//   Drop ──► gone: a bit for each page ──Submit──► refaulted, and here again
// ```
//
// Pages dropped by a hint do not count. The module only observes.

pub struct Refaults {
    page: PageSize,
    gone: HashMap<(u32, u64), u64>,
    bytes: u64,
}

impl Refaults {
    pub fn new(page: PageSize) -> Refaults {
        Refaults {
            page,
            gone: HashMap::new(),
            bytes: 0,
        }
    }

    /// Returns the number of bytes that were read again after they had been evicted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records an action of the state machine; `hinted` is true if a hint caused the action.
    pub fn see(&mut self, action: &Action, hinted: bool) {
        match *action {
            Action::Drop {
                file,
                number,
                pages,
                ..
            } if !hinted => *self.gone.entry((file.0, number)).or_insert(0) |= pages,
            Action::Submit { file, range, .. } if !self.gone.is_empty() => {
                self.read(file.0, range);
            }
            _ => {}
        }
    }

    fn read(&mut self, file: u32, range: ByteRange) {
        for (number, mask) in foreread_core::machine::groups_of(self.page.cover(range)) {
            let Some(gone) = self.gone.get_mut(&(file, number)) else {
                continue;
            };
            let back = *gone & mask;
            *gone &= !mask;
            let starts = bits(back).map(|page| self.page.start_of(number * 64 + page as u64));
            // The last page of a file counts only up to the end of the file.
            self.bytes += starts
                .map(|start| range.end().min(start + self.page.bytes()) - start)
                .sum::<u64>();
        }
    }
}

/// Returns the positions of the set bits; the lowest position comes first.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_its_own_pages() {
        let mut mapped = MappedPages::default();
        let has = |mapped: &MappedPages| {
            let all = [
                (1, 1, 70),
                (1, 1, 71),
                (1, 1, 6),
                (1, 2, 70),
                (1, 2, 71),
                (2, 3, 70),
            ];
            all.map(|(file, open, page)| mapped.has(file, open, page))
        };
        assert_eq!(has(&mapped), [false; 6]);
        for (file, open, bit) in [(1, 1, 6), (1, 2, 6), (2, 3, 6), (1, 1, 7)] {
            mapped.map(file, open, 1, 1 << bit);
        }
        assert_eq!(has(&mapped), [true, true, false, true, false, true]);
        // Gone from all mappings of the file.
        mapped.unmap(1, 1, 1 << 6);
        mapped.unmap(1, 9, u64::MAX);
        assert_eq!(has(&mapped), [false, true, false, false, false, true]);
        assert_eq!(mapped.close(1, 1).collect::<Vec<_>>(), [(1, 1 << 7)]);
        assert!(!mapped.has(1, 1, 71));
    }
}
