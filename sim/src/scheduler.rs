//! The job scheduler decides which job issues which request, and when. The simulator, the oracle and the reader of `foreread-lab` for real
//! storage carry out its decisions. The scheduler does no I/O and reads no clock.
//!
//! A job has `depth` slots, and a slot has at most one outstanding request. After its request is served, a slot waits for the rest of its
//! batch, then for the think time before the job's next request, and then issues that request. In a timed job (a job that issues requests
//! at recorded times), one slot waits for the time of the next request. When this slot issues the request, another slot starts to wait for
//! the time of the following request.
//!
//! ```text
//!   slot:   waits for a time ──expire──► ready ──poll──► Step::Issue ──► in service ──served──► ready, or its batch
//!              ▲                           │                                  │
//!              └────── think time ─────────┘                         skip ────┘ (a hint: nothing to wait for)
//! ```
//!
//! Example: one job of depth 2 has the requests a, b and c, and request c has a think time of 10 ns. `poll(0)` returns `Open`; `expire(0)`
//! and `poll(0)` return request a for slot 0, and when called again, request b for slot 1. `served(5, 0)` and `poll(5)` return nothing:
//! slot 0 waits until time 15 (think time). After `served(9, 1)`, slot 1 waits until time 19. `expire(15)` and `poll(15)` return request c
//! for slot 0; at time 19 there is no request left for slot 1. `served(20, 0)` and `poll(20)` return `Close`.
//!
//! Call order: after `new`, and after every `expire`, `served` and `skip`, call `poll` until it returns `None`.

use crate::time_queue::TimeQueue;
use crate::workload::Job;
use crate::workload::model::Waits;
use std::collections::VecDeque;

/// A request that a slot issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The slot: a number from 0, unique among all jobs.
    pub slot: u32,
    /// The job: an index into the jobs passed to the scheduler.
    pub job: u32,
    /// The request: an index into [`Job::requests`].
    pub request: usize,
    /// When it should have been issued: at the recorded time (timed job), or when its slot became ready.
    pub due_ns: u64,
}

/// The next step that the caller must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A job begins, so its file is open from now on. An earlier job may have opened it already.
    Open { job: u32 },
    /// The last job of an open description has ended.
    Close { job: u32 },
    /// Issue this request. Then call [`JobScheduler::served`] when its bytes have arrived, or [`JobScheduler::skip`] at
    /// once.
    Issue(Issue),
    /// The time that the caller set with [`JobScheduler::wake_at`] has come.
    Wake { slot: u32 },
}

/// One of the `depth` requests that a job keeps outstanding.
#[derive(Clone, Copy, Debug)]
struct Slot {
    job: u32,
    /// Its request is issued and not yet served.
    in_service: bool,
    /// It has waited for the think time of its next request.
    rested: bool,
    /// The time at which it became ready.
    due_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    next: usize,
    /// The first slot, the number of slots, and the number of slots that have not ended. A timed job begins with one
    /// slot and gets more as it needs them.
    first_slot: u32,
    slots: u32,
    busy: u32,
    /// Idle slots: those of a timed job, and those that wait for the rest of their batch.
    spare: Vec<u32>,
    /// In a timed job, a slot is waiting for the time of the next request.
    has_clock: bool,
}

/// Decides which job issues which request, and when.
pub struct JobScheduler<'a> {
    jobs: &'a [Job],
    progress: Vec<Progress>,
    slots: Vec<Slot>,
    waits: Waits,
    /// For each open description, the number of jobs that have not ended.
    opens: Vec<u32>,
    /// Slots that wait for a time.
    due: TimeQueue<u32>,
    /// Slots whose time has come.
    ready: VecDeque<u32>,
    /// Steps that were decided and not yet polled.
    steps: VecDeque<Step>,
    /// The timed job whose request was polled last; another slot must now wait for its next request.
    clock_of: Option<u32>,
}

impl<'a> JobScheduler<'a> {
    /// Creates a scheduler in which no job has begun; jobs that do not wait for another job begin at time 0.
    pub fn new(jobs: &'a [Job]) -> JobScheduler<'a> {
        let mut scheduler = JobScheduler {
            jobs,
            progress: vec![Progress::default(); jobs.len()],
            slots: Vec::new(),
            waits: Waits::of(jobs),
            opens: vec![0; jobs.iter().map(|j| j.open as usize + 1).max().unwrap_or(0)],
            due: TimeQueue::new(),
            ready: VecDeque::new(),
            steps: VecDeque::new(),
            clock_of: None,
        };
        for (number, job) in (0..).zip(jobs) {
            scheduler.progress[number as usize].first_slot = scheduler.slots.len() as u32;
            (0..if job.timed { 1 } else { job.depth.max(1) })
                .for_each(|_| _ = scheduler.add_slot(number));
            scheduler.opens[job.open as usize] += 1;
        }
        let free = scheduler
            .waits
            .free()
            .into_iter()
            .map(|job| (job, 0))
            .collect();
        scheduler.begin_all(0, free);
        scheduler
    }

    /// Returns the earliest time for which a slot waits.
    pub fn next_time(&self) -> Option<u64> {
        self.due.next_time()
    }

    pub fn is_finished(&self) -> bool {
        self.progress.iter().all(|p| p.busy == 0)
    }

    /// Makes the slot with the earliest time ready, if this time has been reached; otherwise returns false. Each call handles only
    /// one slot, so that the caller can check its device between two calls.
    #[inline]
    pub fn expire(&mut self, now: u64) -> bool {
        let Some((at, slot)) = self.due.pop(now) else {
            return false;
        };
        self.slots[slot as usize].due_ns = at;
        self.ready.push_back(slot);
        true
    }

    /// Returns the caller's next step at the time `now`, or `None` if the caller must wait until a later time. This function computes only
    /// the two most frequent results, a wake-up and `None`, so that the compiler can inline it into the caller's loop. Another function
    /// computes all other results.
    #[inline]
    pub fn poll(&mut self, now: u64) -> Option<Step> {
        if self.steps.is_empty() && self.clock_of.is_none() {
            let slot = *self.ready.front()?;
            if self.slots[slot as usize].in_service {
                self.ready.pop_front();
                return Some(Step::Wake { slot });
            }
        }
        self.decide(now)
    }

    /// The next step, if a job continues, begins or ends.
    fn decide(&mut self, now: u64) -> Option<Step> {
        if let Some(job) = self.clock_of.take() {
            self.pass_clock(now, job);
        }
        let issue = loop {
            match self.steps.pop_front() {
                Some(Step::Issue(issue)) => break issue,
                Some(step) => return Some(step),
                None => {}
            }
            let slot = self.ready.pop_front()?;
            if self.slots[slot as usize].in_service {
                return Some(Step::Wake { slot });
            }
            match self.go_on(now, slot) {
                Some(issue) if self.steps.is_empty() => break issue,
                // It goes after the jobs that begin at the same time.
                issue => self.steps.extend(issue.map(Step::Issue)),
            }
        };
        self.clock_of = Some(issue.job).filter(|job| self.jobs[*job as usize].timed);
        Some(Step::Issue(issue))
    }

    /// Must be called when the request of a slot has been served.
    #[inline]
    pub fn served(&mut self, now: u64, slot: u32) {
        let Slot { job: number, .. } = self.slots[slot as usize];
        (
            self.slots[slot as usize].in_service,
            self.slots[slot as usize].due_ns,
        ) = (false, now);
        let (job, progress) = (
            &self.jobs[number as usize],
            &mut self.progress[number as usize],
        );
        if job.timed && progress.has_clock {
            // Another slot is waiting for the time of the next request.
            progress.spare.push(slot);
            self.end(now, slot);
        } else if job.timed || job.batch <= 1 {
            self.ready.push_front(slot);
        } else {
            progress.spare.push(slot);
            if progress.spare.len() >= job.together(progress.next) {
                let together = std::mem::take(&mut progress.spare);
                together
                    .iter()
                    .for_each(|&slot| self.slots[slot as usize].due_ns = now);
                together
                    .into_iter()
                    .rev()
                    .for_each(|slot| self.ready.push_front(slot));
            }
        }
    }

    /// Must be called if the request that [`poll`](Self::poll) last returned for this slot needs no wait. The slot takes the job's next
    /// request at once, regardless of the batch.
    pub fn skip(&mut self, now: u64, slot: u32) {
        (
            self.slots[slot as usize].in_service,
            self.slots[slot as usize].due_ns,
        ) = (false, now);
        self.clock_of = None;
        self.ready.push_front(slot);
    }

    /// Schedules a [`Step::Wake`] at this time for a slot whose request was issued and is not served yet.
    #[inline]
    pub fn wake_at(&mut self, at: u64, slot: u32) {
        self.due.push(at, slot);
    }

    fn add_slot(&mut self, job: u32) -> u32 {
        self.progress[job as usize].slots += 1;
        self.slots.push(Slot {
            job,
            in_service: false,
            rested: false,
            due_ns: 0,
        });
        self.slots.len() as u32 - 1
    }

    /// Starts these jobs, each at its time.
    fn begin_all(&mut self, now: u64, ready: Vec<(u32, u64)>) {
        for (job, at) in ready {
            self.steps.push_back(Step::Open { job });
            let progress = &mut self.progress[job as usize];
            (progress.busy, progress.has_clock) = (progress.slots, self.jobs[job as usize].timed);
            let slots = progress.first_slot..progress.first_slot + progress.slots;
            slots.for_each(|slot| self.wake_at(at.max(now), slot));
        }
    }

    /// A slot takes the next request of its job, waits for that request's think time, or ends.
    #[inline]
    fn go_on(&mut self, now: u64, slot: u32) -> Option<Issue> {
        let Slot {
            job: number,
            due_ns,
            ..
        } = self.slots[slot as usize];
        let Job {
            ref requests,
            timed,
            ..
        } = self.jobs[number as usize];
        let next = self.progress[number as usize].next;
        let Some(request) = requests.get(next) else {
            self.progress[number as usize].has_clock = timed;
            self.end(now, slot);
            return None;
        };
        let rested = std::mem::take(&mut self.slots[slot as usize].rested);
        let from = if timed { 0 } else { due_ns };
        let waits = if timed {
            request.think_ns > now
        } else {
            request.think_ns > 0
        };
        if waits && !rested {
            // The request is not taken yet; the first slot that has waited issues it.
            self.slots[slot as usize].rested = true;
            self.progress[number as usize].has_clock = timed;
            self.wake_at(from.saturating_add(request.think_ns), slot);
            return None;
        }
        self.progress[number as usize].next += 1;
        if next == 0 {
            let ready = self.waits.started(number, now);
            self.begin_all(now, ready);
        }
        self.slots[slot as usize].in_service = true;
        let due_ns = if timed { request.think_ns } else { due_ns };
        Some(Issue {
            slot,
            job: number,
            request: next,
            due_ns,
        })
    }

    /// After a request of a timed job is issued, another slot waits for the next request, if the depth allows one more.
    /// Otherwise the first slot that is served takes over the wait.
    fn pass_clock(&mut self, now: u64, number: u32) {
        let progress = &mut self.progress[number as usize];
        progress.has_clock =
            !progress.spare.is_empty() || progress.slots < self.jobs[number as usize].depth.max(1);
        if progress.has_clock {
            progress.busy += 1;
            let spare = progress.spare.pop();
            let slot = spare.unwrap_or_else(|| self.add_slot(number));
            self.wake_at(now, slot);
        }
    }

    /// A slot has no more requests. When no slot of the job has any, the jobs that wait for its end begin.
    fn end(&mut self, now: u64, slot: u32) {
        let number = self.slots[slot as usize].job;
        let progress = &mut self.progress[number as usize];
        progress.busy -= 1;
        if progress.busy > 0 {
            return;
        }
        let job = &self.jobs[number as usize];
        let users = &mut self.opens[job.open as usize];
        *users -= 1;
        if *users == 0 {
            self.steps.push_back(Step::Close { job: number });
        }
        if job.requests.is_empty() {
            let ready = self.waits.started(number, now);
            self.begin_all(now, ready);
        }
        let ready = self.waits.ended(number, now);
        self.begin_all(now, ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Link, Request};
    use foreread_core::event::Advice;

    /// Runs the jobs with a service time for each request, and logs each step as "time: step".
    fn log(jobs: &[Job], service_ns: impl Fn(&Issue) -> Option<u64>) -> Vec<String> {
        let (mut scheduler, mut now, mut log) = (JobScheduler::new(jobs), 0, Vec::new());
        loop {
            while let Some(step) = scheduler.poll(now) {
                log.push(match step {
                    Step::Open { job } => format!("{now}: open {job}"),
                    Step::Close { job } => format!("{now}: close {job}"),
                    Step::Wake { slot } => {
                        scheduler.served(now, slot);
                        format!("{now}: served {slot}")
                    }
                    Step::Issue(issue) => {
                        match service_ns(&issue) {
                            Some(ns) => scheduler.wake_at(now + ns, issue.slot),
                            None => scheduler.skip(now, issue.slot),
                        }
                        let (slot, job, due) = (issue.slot, issue.job, issue.due_ns);
                        format!("{now}: {slot} issues {job}.{} due {due}", issue.request)
                    }
                });
            }
            let Some(at) = scheduler.next_time() else {
                break;
            };
            now = now.max(at);
            assert!(scheduler.expire(now) && (at == 0 || !scheduler.expire(at - 1)));
        }
        assert!(scheduler.is_finished());
        log
    }

    fn reads(thinks: &[u64]) -> Vec<Request> {
        let read = |&think_ns| Request::read(0, 1).think(think_ns);
        thinks.iter().map(read).collect()
    }

    /// The example in the header of this file.
    #[test]
    fn a_slot_thinks_after_it_was_served() {
        let jobs = [Job::new(0, 0, reads(&[0, 0, 10])).depth(2)];
        let steps = log(&jobs, |issue| Some([5, 9, 5][issue.request]));
        let expected = [
            "0: open 0",
            "0: 0 issues 0.0 due 0",
            "0: 1 issues 0.1 due 0",
            "5: served 0",
            "9: served 1",
            "15: 0 issues 0.2 due 15",
            "20: served 0",
            "20: close 0",
        ];
        assert_eq!(steps, expected);
    }

    /// Three requests may be outstanding, and they are issued two at a time; the last one is issued alone.
    #[test]
    fn a_batch_goes_out_together() {
        let jobs = [Job {
            depth: 3,
            batch: 2,
            ..Job::new(0, 0, reads(&[0; 6]))
        }];
        let mut issues = log(&jobs, |issue| Some(10 + issue.request as u64));
        issues.retain(|step| step.contains("issues"));
        let expected = [
            "0: 0 issues 0.0 due 0",
            "0: 1 issues 0.1 due 0",
            "0: 2 issues 0.2 due 0",
            "11: 0 issues 0.3 due 11",
            "11: 1 issues 0.4 due 11",
            "12: 2 issues 0.5 due 12",
        ];
        assert_eq!(issues, expected);
    }

    /// Requests of a timed job are issued at their times while fewer than `depth` are outstanding, otherwise late.
    #[test]
    fn a_timed_job_keeps_its_times_as_far_as_its_depth_goes() {
        let jobs = [Job {
            depth: 2,
            timed: true,
            ..Job::new(0, 0, reads(&[10, 20, 30, 90]))
        }];
        let steps = log(&jobs, |_| Some(50));
        let expected = [
            "0: open 0",
            "10: 0 issues 0.0 due 10",
            "20: 1 issues 0.1 due 20",
            "60: served 0",
            "60: 0 issues 0.2 due 30",
            "70: served 1",
            "90: 1 issues 0.3 due 90",
            "110: served 0",
            "140: served 1",
            "140: close 0",
        ];
        assert_eq!(steps, expected);
    }

    /// A hint takes no time. The second job begins when the hint's job issues its first request, and the third when the
    /// other job has ended. An open description that they share is closed once.
    #[test]
    fn jobs_begin_when_what_they_wait_for_has_happened() {
        let hint = Request::hint(Advice::Random, 0, 1);
        let mut first = reads(&[7]);
        first.insert(0, hint);
        let link = Link {
            job: 0,
            end: false,
            delay_ns: 3,
        };
        let jobs = [
            Job::new(0, 0, first),
            Job {
                links: vec![link],
                ..Job::new(0, 1, Vec::new())
            },
            Job::new(0, 0, reads(&[0])).after(1),
        ];
        let steps = log(&jobs, |issue| {
            (issue.job > 0 || issue.request > 0).then_some(100)
        });
        let expected = [
            "0: open 0",
            "0: open 1",
            "0: 0 issues 0.0 due 0",
            "3: close 1",
            "3: open 2",
            "3: 2 issues 2.0 due 3",
            "7: 0 issues 0.1 due 7",
            "103: served 2",
            "107: served 0",
            "107: close 0",
        ];
        assert_eq!(steps, expected);
    }
}
