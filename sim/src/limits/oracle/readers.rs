//! The readers in the oracle's simulation: which requests they issue, and what each reader copies and when.
//!
//! The job scheduler decides when a reader issues which request, as in the simulator. A hint takes no time and has no effect in
//! this simulation. If a reader touches a page that is already mapped, the page counts as used, and the reader does not wait. If a reader
//! touches a page that is not mapped yet, the reader waits until the whole page has arrived.
//!
//! ```text
//!   Step::Issue ──► meet what is there ──► wait ⇄ copy a part ──► end ──► served: the scheduler's next step
//!        └── hint, touch of a mapped page: skip
//! ```
//!
//! This file starts no fetch: it lists what readers request, and `fetches.rs` fetches the extents of that list first.

use super::{ExtentPlace, Oracle, ReadOutcome, RequestSlot};
use crate::limits::future::Extent;
use crate::scheduler::{Issue, Step};
use crate::simulator::copy_ns;
use crate::stats::record_latency;
use crate::workload::{Job, Request, RequestKind};

impl<'a> Oracle<'a> {
    /// Executes all steps of the scheduler that are due now.
    pub(super) fn run_steps(&mut self, now: u64) {
        while let Some(step) = self.scheduler.poll(now) {
            match step {
                // Opening a file takes no time and changes nothing.
                Step::Open { .. } => {}
                Step::Close { job } => {
                    let Job { file, open, .. } = self.setup.workload.jobs[job as usize];
                    drop(self.mapped.close(file, open));
                }
                Step::Issue(issue) => self.issue(now, issue),
                Step::Wake { slot } => self.copied(now, slot),
            }
        }
    }

    fn job(&self, slot: u32) -> &'a Job {
        &self.setup.workload.jobs[self.slots[slot as usize].job as usize]
    }

    /// The bytes that a slot's request needs, clipped to the file; for a touch, its whole page.
    fn range(&self, slot: u32) -> (u64, u64) {
        let job = self.job(slot);
        let Request {
            offset, len, kind, ..
        } = job.requests[self.slots[slot as usize].request];
        let page = self.setup.config.page.bytes();
        let (start, end) = match kind {
            RequestKind::Touch => (offset / page * page, (offset / page + 1) * page),
            RequestKind::Read | RequestKind::Hint(_) => (offset, offset.saturating_add(len)),
        };
        let size = self.setup.workload.files[job.file as usize];
        (start.min(size), end.min(size))
    }

    /// Whether a request is a touch of a mapped page: no read waits, but it counts as a use.
    fn is_mapped(&mut self, slot: u32, request: &Request, touch: u32) -> bool {
        let Job { file, open, .. } = *self.job(slot);
        let page = self.setup.config.page.page_of(request.offset);
        if request.kind != RequestKind::Touch || !self.mapped.has(file, open, page) {
            return false;
        }
        let extent = self.future.extent_of(touch);
        self.pin(extent);
        self.unpin(extent, Some(touch));
        true
    }

    /// A reader issues a request, unless it is a hint or a touch of a mapped page.
    fn issue(
        &mut self,
        now: u64,
        Issue {
            slot,
            job,
            request: number,
            ..
        }: Issue,
    ) {
        self.idle_events = 0;
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, RequestSlot::default());
        }
        self.slots[slot as usize].job = job;
        let touch = self.future.first_touch(job, number);
        let request = &self.job(slot).requests[number];
        if !request.demands() || self.is_mapped(slot, request, touch) {
            return self.scheduler.skip(now, slot);
        }
        let s = &mut self.slots[slot as usize];
        (s.request, s.touch, s.issued_at, s.waited_ns, s.met) =
            (number, touch, now, 0, ReadOutcome::Hit);
        let (start, end) = self.range(slot);
        if start >= end {
            return self.end(now, slot, 0);
        }
        self.slots[slot as usize].at = start;
        self.meet(touch, end, slot);
        self.go_on(now, slot);
    }

    /// Counts the state of the request's pages when it is issued, and puts absent ones first in the queue of fetches.
    fn meet(&mut self, first: u32, end: u64, slot: u32) {
        let mut touch = first;
        loop {
            let extent = self.future.extent_of(touch);
            let bytes = self.future.extent(extent).len();
            let state = &mut self.states[extent as usize];
            let met = match state.place {
                ExtentPlace::Present => ReadOutcome::Hit,
                ExtentPlace::Flying => ReadOutcome::Late,
                ExtentPlace::Absent => ReadOutcome::Miss,
            };
            if std::mem::take(&mut state.ahead) {
                self.stats.used_bytes += bytes;
                self.stats.late_bytes += if met == ReadOutcome::Late { bytes } else { 0 };
            }
            if met == ReadOutcome::Miss {
                state.asked = true;
                self.asked.push_back(extent);
            }
            let s = &mut self.slots[slot as usize];
            s.met = s.met.max(met);
            if self.future.extent(extent).end >= end {
                return;
            }
            touch += 1;
        }
    }

    /// Copies the available part of the reader's current extent, or waits for it.
    pub(super) fn go_on(&mut self, now: u64, slot: u32) {
        let RequestSlot { touch, at, .. } = self.slots[slot as usize];
        let (start, end) = self.range(slot);
        let extent = self.future.extent_of(touch);
        let Extent {
            start: from,
            end: to,
            ..
        } = self.future.extent(extent);
        let there = (from + self.states[extent as usize].arrived)
            .min(end)
            .min(to);
        let s = &mut self.slots[slot as usize];
        if there <= at {
            s.waiting_since = Some(now);
            self.waiting.push((extent, slot));
            if self.states[extent as usize].place == ExtentPlace::Absent
                && !self.states[extent as usize].asked
            {
                self.states[extent as usize].asked = true;
                self.asked.push_back(extent);
            }
            return;
        }
        s.copied_to = there;
        let host = self.setup.preset.host_ns_per_kib;
        // Differences of rounded sums: a request that is copied in parts takes no longer than in one piece.
        let copy = copy_ns(there - start, host) - copy_ns(at - start, host);
        self.pin(extent);
        self.map(slot, at);
        self.scheduler.wake_at(now + copy, slot);
    }

    /// A touch is served: its page is mapped.
    fn map(&mut self, slot: u32, at: u64) {
        let Job {
            file,
            open,
            ref requests,
            ..
        } = *self.job(slot);
        if requests[self.slots[slot as usize].request].kind == RequestKind::Touch {
            let page = self.setup.config.page.page_of(at);
            self.mapped.map(file, open, page / 64, 1 << (page % 64));
        }
    }

    /// A part has been copied: continues with the rest, the next extent, or the end.
    fn copied(&mut self, now: u64, slot: u32) {
        let RequestSlot {
            touch,
            copied_to: at,
            ..
        } = self.slots[slot as usize];
        self.slots[slot as usize].at = at;
        let (start, end) = self.range(slot);
        let extent = self.future.extent_of(touch);
        let used = at >= end || at >= self.future.extent(extent).end;
        self.unpin(extent, used.then_some(touch));
        if at >= end {
            return self.end(now, slot, end - start);
        }
        self.idle_events = 0;
        self.slots[slot as usize].touch += u32::from(used);
        self.go_on(now, slot);
    }

    fn end(&mut self, now: u64, slot: u32, bytes: u64) {
        let s = &mut self.slots[slot as usize];
        record_latency(&mut self.latency, now - s.issued_at);
        self.ended_at = self.ended_at.max(now);
        if bytes > 0 {
            self.stats.demand_reads += 1;
            self.stats.demand_bytes += bytes;
            self.stats.stall_ns += s.waited_ns;
            match s.met {
                ReadOutcome::Hit => self.stats.hits += 1,
                ReadOutcome::Late => self.stats.late_hits += 1,
                ReadOutcome::Miss => self.stats.misses += 1,
            }
        }
        self.scheduler.served(now, slot);
    }
}
