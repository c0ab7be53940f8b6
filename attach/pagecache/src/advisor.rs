//! Runs foreread's decision core, which decides what is read ahead, for a program that reads through the kernel's page cache.
//!
//! The decision core works as for a foreread mount, with three differences. The program itself does the reads, which foreread only
//! observes. The cache is the kernel's page cache. Readahead returns no bytes to foreread.
//!
//! ```text
//!   the program reads 0..128K ──► Advisor::read ──► core ──► Job 0..128K    demand: the program fetches it; when does it arrive?
//!                                                        └─► Job 128K..1M  ahead: readahead(2); when does it arrive?
//!   Advisor::done(fetch, AtHand | Arrived | Failed) ◄── the caller carries out the jobs
//! ```
//! Example: a program reads a file of 1 GiB sequentially. For its first read, the decision core returns a demand job: the caller
//! waits until the first byte is in the cache, 1.3 ms later. Now the decision core knows the latency of the device, and for the
//! second read it returns a readahead job of 4 MiB.
//!
//! If the bytes were already in the kernel's cache, the job ends at once ([`Outcome::AtHand`]), so its duration says nothing about the
//! speed of the storage.
//!
//! The advisor does no I/O, never waits, and uses no clock.

use foreread_core::event::{Action, Class, Error, Event};
use foreread_core::machine::{Config, MAX_IDS, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use foreread_core::units::{ByteRange, FetchId, FileId, Nanos, OpenId, PageSize, ReadId};
use std::collections::VecDeque;
use std::ops::Range;

/// Most readahead fetches in flight, unless the caller sets a limit. Chosen: four requests for each of eight streams.
const MAX_AHEAD: u32 = 32;
/// Largest readahead request: if it is larger, it is noticed late that its first part has arrived.
const MAX_FETCH_BYTES: u64 = 4 << 20;

/// A task that the decision core gives to the caller: to wait for the bytes of a program's read, or to read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub fetch: FetchId,
    pub file: FileId,
    /// The bytes to wait for or to read ahead.
    pub range: Range<u64>,
    /// Whether the program itself is reading them: then the caller only reports when they have arrived.
    pub is_demand: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes were in the cache before it began.
    AtHand,
    /// They came from the storage and are now in the cache.
    Arrived,
    /// They cannot be read ahead.
    Failed,
}

pub struct Advisor {
    machine: Machine,
    jobs: VecDeque<Job>,
    reads: u64,
}

impl Advisor {
    /// Creates an advisor for one storage device. The readahead of the advisor may fill at most `room_bytes` of the page cache.
    pub fn new(policy: PolicySpec, room_bytes: u64) -> Advisor {
        // The kernel reads whole pages of the machine. A policy that is defined on smaller pages has several in each.
        let page = policy.info.page_bytes.unwrap_or_else(crate::page_bytes);
        let page = PageSize::new(page).expect("a power of two");
        let config = Config {
            max_fetch_bytes: MAX_FETCH_BYTES,
            max_in_flight: 2 * MAX_AHEAD + 64,
            max_ahead_in_flight: MAX_AHEAD,
            // The demand part is the program's own request.
            max_piggyback_bytes: 0,
            ..Config::new(page, room_bytes)
        };
        Advisor {
            machine: Machine::new(config, policy),
            jobs: VecDeque::new(),
            reads: 0,
        }
    }

    /// Returns whether `file` is a number that the decision core accepts.
    pub fn takes(file: FileId) -> bool {
        file.0 < MAX_IDS
    }

    /// Records that the program has opened a file. The decision core gets one open file description for each file, with the same
    /// number as the file.
    pub fn open(&mut self, now: Nanos, file: FileId, size: u64) {
        let open = OpenId(file.0);
        self.handle(now, Event::open(open, file, size));
    }

    pub fn close(&mut self, now: Nanos, file: FileId) {
        let open = OpenId(file.0);
        self.handle(now, Event::Close { open });
    }

    /// Records that a folder listing contains this file, directly after the file `after`.
    pub fn list(&mut self, now: Nanos, file: FileId, size: u64, after: Option<FileId>) {
        self.handle(
            now,
            Event::List {
                file,
                size,
                after,
                planned: false,
            },
        );
    }

    pub fn grew(&mut self, now: Nanos, file: FileId, size: u64) {
        self.handle(now, Event::Grown { file, size });
    }

    /// Records that the program reads these bytes, or accesses them through a mapping.
    pub fn read(&mut self, now: Nanos, file: FileId, range: Range<u64>) {
        self.reads += 1;
        let range = ByteRange::between(range.start, range.end);
        self.handle(now, Event::read(ReadId(self.reads), OpenId(file.0), range));
    }

    pub fn done(&mut self, now: Nanos, job: &Job, outcome: Outcome) {
        let (fetch, bytes) = (job.fetch, job.range.end - job.range.start);
        if outcome == Outcome::Failed && !job.is_demand {
            let error = Error::Io(0);
            return self.handle(now, Event::Failed { fetch, error });
        }
        // If a demand job fails, the program's own read goes on: treat the bytes as arrived.
        if outcome != Outcome::Arrived {
            self.handle(now, Event::AtHand { fetch });
        }
        self.handle(now, Event::Done { fetch, bytes });
    }

    pub fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Returns the decision core's counters; the number of reads from the source includes the program's own reads.
    pub fn stats(&self) -> Stats {
        self.machine.stats()
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        self.machine.handle(now, event);
        // A completed read is answered at once, which may start the next one.
        while let Some(action) = self.machine.poll() {
            match action {
                Action::Submit {
                    fetch,
                    file,
                    range,
                    class,
                } => {
                    self.jobs.push_back(Job {
                        fetch,
                        file,
                        range: range.start()..range.end(),
                        is_demand: class == Class::Demand,
                    });
                }
                Action::Serve { lease, .. } => self.machine.handle(now, Event::Release { lease }),
                // The kernel evicts in its own order, and a request that is no longer wanted has already been submitted. No
                // policy that can be named here uses timers.
                Action::Drop { .. }
                | Action::Cancel { .. }
                | Action::Fail { .. }
                | Action::WakeAt { .. } => {}
            }
        }
    }
}
