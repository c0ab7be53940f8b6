//! The oracle's readers: jobs that follow each other, the requests they make, and what each copies and when.
//!
//! They are those of the simulator (`sim/mod.rs`), step by step: a hint takes no time and changes nothing here, a touch
//! of a page that is mapped is no event, any other demands its whole page, a job begins when the one before it ends.
//!
//! ```text
//!   begin ──► ask ──► rest ──► ask ──► issue ──► wait ⇄ copy a part ──► end ──► ask ...   nothing left: done
//!              ▲        hint, touch of a mapped page: the next at once                     └──► followers begin
//!              └──────────────────────────┘
//! ```
//!
//! Never: fetches; says what is asked for, and `fetches.rs` looks there first.

use super::{Met, Oracle, Place, Progress, Slot};
use crate::limits::future::Extent;
use crate::simulator::copy_ns;
use crate::stats::record_latency;
use crate::workload::{Job, Kind, Request};
use std::cmp::Reverse;

impl<'a> Oracle<'a> {
    /// Every job gets its slots; those that follow none begin.
    pub(super) fn enrol(&mut self) {
        let jobs = &self.setup.workload.jobs;
        for (number, job) in jobs.iter().enumerate() {
            let busy = job.depth.max(1);
            (self.jobs[number].first_slot, self.jobs[number].busy) = (self.slots.len() as u32, busy);
            self.slots.extend((0..busy).map(|_| Slot::new(number as u32)));
            self.opens[job.open as usize] += 1;
        }
        let free = self.waits.free().into_iter().map(|number| (number, 0)).collect();
        self.begin_all(free);
    }

    /// These jobs begin, each from a time on.
    fn begin_all(&mut self, ready: Vec<(u32, u64)>) {
        for (number, at) in ready {
            let Progress { first_slot, busy, .. } = self.jobs[number as usize];
            (first_slot..first_slot + busy).for_each(|slot| self.step_at(at, slot));
        }
    }

    /// A slot has nothing more to do. When none of the job has, its mapping may go and the next jobs begin.
    fn done(&mut self, now: u64, slot: u32) {
        let number = self.slots[slot as usize].job as usize;
        self.jobs[number].busy -= 1;
        if self.jobs[number].busy > 0 {
            return;
        }
        let Job { file, open, .. } = &self.setup.workload.jobs[number];
        let (file, open) = (*file, *open);
        self.opens[open as usize] -= 1;
        if self.opens[open as usize] == 0 {
            self.mapped.close(file, open);
        }
        if self.setup.workload.jobs[number].requests.is_empty() {
            let ready = self.waits.started(number as u32, now);
            self.begin_all(ready);
        }
        let ready = self.waits.ended(number as u32, now);
        self.begin_all(ready);
    }

    fn job(&self, slot: u32) -> &'a Job {
        &self.setup.workload.jobs[self.slots[slot as usize].job as usize]
    }

    /// The bytes that a slot's request wants, as far as its file goes: all of its page for a touch.
    fn range(&self, slot: u32) -> Option<(u64, u64)> {
        let job = self.job(slot);
        let Request { offset, len, kind, .. } = *job.requests.get(self.slots[slot as usize].request?)?;
        let page = self.setup.config.page.bytes();
        let (start, end) = match kind {
            Kind::Touch => (offset / page * page, (offset / page + 1) * page),
            Kind::Read | Kind::Hint(_) => (offset, offset.saturating_add(len)),
        };
        let size = self.setup.workload.files[job.file as usize];
        Some((start.min(size), end.min(size)))
    }

    fn step_at(&mut self, at: u64, slot: u32) {
        self.order += 1;
        self.steps.push(Reverse((at, self.order, slot)));
    }

    /// A reader begins, has rested, or has copied a part.
    pub(super) fn step(&mut self, now: u64, slot: u32) {
        let s = &mut self.slots[slot as usize];
        if s.request.is_none() {
            return self.ask(now, slot);
        }
        s.at = s.copied_to;
        self.copied(now, slot);
    }

    /// The next request of the job that there is something to wait for, when its thinking is over.
    fn ask(&mut self, now: u64, slot: u32) {
        let requests = &self.job(slot).requests;
        let number = self.slots[slot as usize].job as usize;
        loop {
            let next = self.jobs[number].next;
            let Some(request) = requests.get(next) else { return self.done(now, slot) };
            let rested = std::mem::take(&mut self.slots[slot as usize].rested);
            if request.think_ns > 0 && !rested {
                // Not taken yet: the first free reader issues it when the think time is over.
                self.slots[slot as usize].rested = true;
                return self.step_at(now.saturating_add(request.think_ns), slot);
            }
            self.jobs[number].next += 1;
            self.idle_events = 0;
            if next == 0 {
                let ready = self.waits.started(number as u32, now);
                self.begin_all(ready);
            }
            if request.demands() && !self.is_mapped(slot, request, self.future.first_touch(number as u32, next)) {
                return self.issue(now, slot, next);
            }
        }
    }

    /// Whether a request is a touch of a mapped page: no read waits, but it counts as a use.
    fn is_mapped(&mut self, slot: u32, request: &Request, touch: u32) -> bool {
        let Job { file, open, .. } = *self.job(slot);
        let page = self.setup.config.page.page_of(request.offset);
        if request.kind != Kind::Touch || !self.mapped.has(file, open, page) {
            return false;
        }
        let extent = self.future.extent_of(touch);
        self.pin(extent);
        self.unpin(extent, Some(touch));
        true
    }

    fn issue(&mut self, now: u64, slot: u32, number: usize) {
        let touch = self.future.first_touch(self.slots[slot as usize].job, number);
        let s = &mut self.slots[slot as usize];
        (s.request, s.touch, s.issued_at, s.waited_ns, s.met) = (Some(number), touch, now, 0, Met::Hit);
        let Some((start, end)) = self.range(slot).filter(|(start, end)| start < end) else {
            return self.end(now, slot, 0);
        };
        self.slots[slot as usize].at = start;
        self.meet(touch, end, slot);
        self.go_on(now, slot);
    }

    /// The state of its pages when the request is issued: counted, and fetched first where it is absent.
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
    pub(super) fn go_on(&mut self, now: u64, slot: u32) {
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
        self.map(slot, at);
        self.step_at(now + copy, slot);
    }

    /// A touch is served: its page is mapped.
    fn map(&mut self, slot: u32, at: u64) {
        let Job { file, open, ref requests, .. } = *self.job(slot);
        let request = self.slots[slot as usize].request.and_then(|number| requests.get(number));
        if request.is_some_and(|r| r.kind == Kind::Touch) {
            self.mapped.map(file, open, self.setup.config.page.page_of(at));
        }
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
        self.idle_events = 0;
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
        self.gather(now, slot);
    }

    /// A slot is served: it goes on, with all of its batch when they are enough.
    fn gather(&mut self, now: u64, slot: u32) {
        let (job, progress) = (self.job(slot), &mut self.jobs[self.slots[slot as usize].job as usize]);
        progress.spare.push(slot);
        if progress.spare.len() >= job.together(progress.next) {
            let together = std::mem::take(&mut progress.spare);
            together.into_iter().for_each(|slot| self.ask(now, slot));
        }
    }
}
