//! The states of a fetch: queued, submitted, answered. One fetch serves all reads that wait for its pages.
//!
//! A readahead fetch is never submitted before a waiting demand fetch, and never fails a read. If a fetch fails, only the read for which
//! it was made (its `owner`) can fail; all other reads that wait for its pages fetch them again.
//!
//! ```text
//!   queued ──submit──► in flight ──progress──► ... ──done / failed──► gone
//!      │ joined by a read: demand from now on            ▲
//!      └──────────── doomed (pages gone) ────────────────┘  bytes discarded on arrival
//! ```

use super::meter::FetchTiming;
use super::{Machine, Note};
use crate::cache::{RemovedGroup, groups_of};
use crate::event::{Action, Class, Error};
use crate::policy::{Outcome, Urgency};
use crate::storage::SHORT_AHEAD_BYTES;
use crate::units::{ByteRange, FetchId, FileId, Nanos, OpenId, PageRange};
use alloc::vec::Vec;

/// Readahead of another stream overtakes waiting readahead if the latter is more than this many times as far from its
/// reader. With a factor of 1, streams that are about equally far ahead alternate, and readers of a SATA SSD had twice
/// the 99th percentile.
const MUCH_LATER: u64 = 2;

/// A submitted fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchView {
    /// The file.
    pub file: FileId,
    /// The submitted range.
    pub range: ByteRange,
    /// The number of bytes from its start whose pages have landed; these must not be copied to the cache again.
    pub arrived: u64,
    /// The bytes will be discarded.
    pub doomed: bool,
    /// A read waits for some of the pages.
    pub awaited: bool,
}

/// A fetch: one request for consecutive pages. The pages are in flight until the fetch ends.
pub struct Fetch {
    pub file: FileId,
    pub pages: PageRange,
    class: Class,
    /// Position in the queue; without an urgency the fetch goes to the end.
    pub urgency: Option<Urgency>,
    /// The read that this fetch was made for, if all its pages were demanded by that read.
    pub owner: Option<u32>,
    /// The open description whose policy planned the readahead part, if there is one.
    planner: Option<OpenId>,
    /// Reads that wait for pages of the fetch.
    pub waiters: Vec<u32>,
    /// Pages below this one have arrived.
    pub landed: u64,
    pub submitted: bool,
    submitted_at: Nanos,
    pub doomed: bool,
    /// Its file has no reader left, so the driver decides whether to read it to its end.
    is_unneeded: bool,
    /// Distinguishes this use of the slot from earlier uses.
    serial: u32,
    /// Timing data for the meter.
    sent: FetchTiming,
}

impl Fetch {
    pub fn new(
        file: FileId,
        pages: PageRange,
        class: Class,
        owner: Option<u32>,
        planner: Option<OpenId>,
    ) -> Fetch {
        Fetch {
            file,
            pages,
            class,
            urgency: None,
            owner,
            planner,
            waiters: Vec::new(),
            landed: pages.first,
            submitted: false,
            submitted_at: Nanos(0),
            doomed: false,
            is_unneeded: false,
            serial: 0,
            sent: FetchTiming::default(),
        }
    }

    fn rest(&self) -> PageRange {
        PageRange::between(self.landed, self.pages.end)
    }
}

impl Machine {
    /// The slot of a fetch that is submitted and unanswered.
    pub(super) fn fetch_of(&self, id: FetchId) -> Option<u32> {
        let slot = (id.0 & u64::from(u32::MAX)) as u32;
        let fetch = self.fetches.get(slot)?;
        (fetch.submitted && u64::from(fetch.serial) == id.0 >> 32).then_some(slot)
    }

    pub(super) fn enqueue(&mut self, fetch: Fetch) {
        let (key, class) = ((fetch.file.0, fetch.pages.first), fetch.class);
        let slot = self.fetches.insert(fetch);
        self.owners.insert(key, slot);
        match class {
            Class::Demand => self.demand_queue.push_back(slot),
            Class::Ahead => {
                self.ahead_queued_bytes += self.page_bytes_of(slot);
                self.ahead_queue.insert(self.place_of(slot), slot);
            }
        }
    }

    fn page_bytes_of(&self, slot: u32) -> u64 {
        self.fetches[slot].pages.len() * self.config.page.bytes()
    }

    /// Removes the fetch from the readahead queue, if it is in it.
    fn take_from_ahead_queue(&mut self, slot: u32) {
        if let Some(at) = self.ahead_queue.iter().position(|&f| f == slot) {
            self.ahead_queue.remove(at);
            self.ahead_queued_bytes -= self.page_bytes_of(slot);
        }
    }

    /// The position at which readahead enters the queue: before readahead whose reader is much farther away.
    fn place_of(&self, slot: u32) -> usize {
        let of = |slot: u32| (self.fetches[slot].file, self.fetches[slot].urgency);
        let (file, Some(urgency)) = of(slot) else {
            return self.ahead_queue.len();
        };
        let stays_before = |&before: &u32| match of(before) {
            (_, None) => true,
            (other, Some(before)) => {
                other == file && before.stream == urgency.stream
                    || before.away <= urgency.away.saturating_mul(MUCH_LATER)
            }
        };
        self.ahead_queue
            .iter()
            .rposition(stays_before)
            .map_or(0, |at| at + 1)
    }

    /// Submits queued fetches while slots are free: demand first. Readahead never takes the last slot.
    pub(super) fn submit_queued(&mut self) {
        while self.in_flight < self.config.max_in_flight {
            let Some(slot) = self.demand_queue.pop_front() else {
                break;
            };
            self.submit(slot);
        }
        while let Some(&slot) = self.ahead_queue.front() {
            let bytes = self.page_bytes_of(slot);
            if self.in_flight + 1 >= self.config.max_in_flight || !self.has_slot_ahead(bytes) {
                break;
            }
            self.take_from_ahead_queue(slot);
            self.ahead_in_flight += 1;
            self.ahead_in_flight_bytes += bytes;
            self.submit(slot);
        }
    }

    /// Whether readahead of this length may be submitted. More fetches may be in flight if all of them are short.
    fn has_slot_ahead(&self, bytes: u64) -> bool {
        self.ahead_in_flight < self.config.max_ahead_in_flight
            || self.ahead_in_flight < self.config.max_short_ahead_in_flight
                && self.ahead_in_flight_bytes + bytes <= SHORT_AHEAD_BYTES
    }

    fn submit(&mut self, slot: u32) {
        let bytes = self.ahead_bytes(&self.fetches[slot]);
        let now = self.now;
        let serial = (self.stats.source_reads as u32).wrapping_add(1);
        let fetch = &mut self.fetches[slot];
        (fetch.submitted, fetch.submitted_at, fetch.serial) = (true, now, serial);
        if let Some(meter) = &mut self.meter {
            fetch.sent = meter.sent(self.in_flight, fetch.pages.len() * self.config.page.bytes());
        }
        let (file, class, pages, planner) = (fetch.file, fetch.class, fetch.pages, fetch.planner);
        let range = self.clip(file, pages);
        self.in_flight += 1;
        self.stats.source_reads += 1;
        self.stats.source_bytes += range.len();
        self.tell_watcher(|| Note::Submitted { file, range });
        if bytes > 0 {
            self.count(planner, |stats| {
                stats.ra_ops += 1;
                stats.ra_bytes += bytes;
            });
            self.tell(planner, Outcome::Started { range });
        }
        let is_unneeded = self.fetches[slot].is_unneeded;
        let fetch = FetchId(u64::from(serial) << 32 | u64::from(slot));
        self.actions.push_back(Action::Submit {
            fetch,
            file,
            range,
            class,
        });
        if is_unneeded {
            self.actions.push_back(Action::Cancel { fetch });
        }
    }

    /// Makes a read wait for every fetch that brings in pages of its piece. A queued fetch becomes demand.
    pub(super) fn wait_for_fetches(&mut self, slot: u32) {
        let (file, piece) = (self.reads[slot].file, self.reads[slot].piece);
        // Ranges do not overlap, so at most one begins before the piece and reaches into it.
        let before = self
            .owners
            .range(..(file.0, piece.first))
            .next_back()
            .map(|(&k, &f)| (k, f));
        let inside = self
            .owners
            .range((file.0, piece.first)..(file.0, piece.end))
            .map(|(&k, &f)| (k, f));
        let joined: Vec<u32> = before
            .filter(|&((f, _), fetch)| f == file.0 && self.fetches[fetch].pages.end > piece.first)
            .into_iter()
            .chain(inside)
            .filter(|&(_, fetch)| !self.fetches[fetch].rest().intersect(piece).is_empty())
            .map(|(_, fetch)| fetch)
            .collect();
        for fetch_slot in joined {
            let fetch = &mut self.fetches[fetch_slot];
            fetch.waiters.push(slot);
            if fetch.class == Class::Ahead && !fetch.submitted {
                (fetch.class, fetch.is_unneeded) = (Class::Demand, false);
                self.take_from_ahead_queue(fetch_slot);
                self.demand_queue.push_back(fetch_slot);
            }
            self.reads[slot].pending += 1;
        }
        assert!(
            self.reads[slot].pending > 0,
            "a read that waits waits for something"
        );
    }

    /// The first `bytes` of a fetch have arrived.
    pub(super) fn progress(&mut self, id: FetchId, bytes: u64) {
        if let Some(slot) = self.fetch_of(id) {
            self.land_to(slot, bytes);
        }
    }

    /// A request other than a fetch was answered.
    pub(super) fn answered(&mut self, ns: u64) {
        if let Some(meter) = &mut self.meter {
            meter.answered(ns);
        }
    }

    /// Excludes the fetch from the meter.
    pub(super) fn at_hand(&mut self, id: FetchId) {
        let Some(slot) = self.fetch_of(id) else {
            return;
        };
        if let Some(meter) = &mut self.meter {
            meter.leave_out(&mut self.fetches[slot].sent);
        }
    }

    /// Pages land up to `bytes`. Reads that need no more pages of the fetch continue.
    fn land_to(&mut self, slot: u32, bytes: u64) {
        let fetch = &self.fetches[slot];
        if fetch.doomed {
            return;
        }
        let (file, pages) = (fetch.file, fetch.pages);
        let range = self.clip(file, pages);
        // The last page of a file is complete when the file ends in it.
        let reached = range.start() + bytes.min(range.len());
        let landed = if reached == range.end() {
            pages.end
        } else {
            self.config.page.page_of(reached)
        };
        let fetch = &mut self.fetches[slot];
        let fresh = PageRange::between(fetch.landed, landed.max(fetch.landed));
        if fresh.is_empty() {
            return;
        }
        self.measure_arrival(slot, fresh);
        // Landed pages may be evicted and fetched again by another fetch, so the fetch owns only the rest.
        self.owners.remove(&(file.0, fresh.first));
        self.fetches[slot].landed = fresh.end;
        if fresh.end < pages.end {
            self.owners.insert((file.0, fresh.end), slot);
        }
        self.cache.land(file, fresh);
        let waiters = core::mem::take(&mut self.fetches[slot].waiters);
        let (waiting, served): (Vec<u32>, Vec<u32>) = waiters
            .into_iter()
            .partition(|&w| self.reads[w].piece.end.min(pages.end) > fresh.end);
        self.fetches[slot].waiters = waiting;
        served.into_iter().for_each(|w| self.waited_enough(w));
    }

    /// Counts arrived bytes in the meter.
    fn measure_arrival(&mut self, slot: u32, fresh: PageRange) {
        let fetch = &mut self.fetches[slot];
        if let Some(meter) = &mut self.meter {
            meter.arrived(
                &mut fetch.sent,
                fresh.len() * self.config.page.bytes(),
                self.now.since(fetch.submitted_at),
            );
        }
    }

    fn waited_enough(&mut self, read: u32) {
        self.reads[read].pending -= 1;
        if self.reads[read].pending == 0 {
            self.ensure(read);
        }
    }

    /// The fetch ended after `bytes`.
    pub(super) fn done(&mut self, id: FetchId, bytes: u64) {
        let Some(slot) = self.fetch_of(id) else {
            return;
        };
        self.land_to(slot, bytes);
        if !self.fetches[slot].doomed && !self.fetches[slot].rest().is_empty() {
            return self.end_failed_fetch(slot, Error::Short);
        }
        let fetch = self.take_fetch(slot);
        let took_ns = self.now.since(fetch.submitted_at);
        if let Some(meter) = &mut self.meter {
            meter.ended(&fetch.sent, took_ns);
        }
        if fetch.planner.is_some() && !fetch.doomed {
            let range = self.clip(fetch.file, fetch.pages);
            self.tell(fetch.planner, Outcome::Arrived { range, took_ns });
        }
    }

    pub(super) fn failed(&mut self, id: FetchId, error: Error) {
        if let Some(slot) = self.fetch_of(id) {
            self.end_failed_fetch(slot, error);
        }
    }

    /// Bytes that have not arrived become absent again. The read that owns the fetch fails; other reads fetch again.
    fn end_failed_fetch(&mut self, slot: u32, error: Error) {
        let refused = if error == Error::Limit {
            self.ahead_bytes(&self.fetches[slot])
        } else {
            0
        };
        self.lose_rest(slot);
        let fetch = self.take_fetch(slot);
        if fetch.doomed {
            return;
        }
        // A refused fetch has not failed, because no request was sent. A cancelled fetch has not failed either.
        self.stats.failed_fetches += u64::from(error != Error::Limit && !fetch.is_unneeded);
        let planner = fetch.planner;
        self.count(planner, |stats| stats.ra_refused_bytes += refused);
        let range = self.clip(fetch.file, fetch.pages);
        let reader = fetch
            .owner
            .filter(|r| fetch.waiters.contains(r))
            .map(|r| self.reads[r].open_id());
        self.tell(
            reader.or(fetch.planner),
            Outcome::Failed {
                range,
                error,
                demand: reader.is_some(),
            },
        );
        for waiter in fetch.waiters {
            if fetch.owner == Some(waiter) {
                self.reads[waiter].pending -= 1;
                self.fail_read(waiter, error);
            } else {
                self.waited_enough(waiter);
            }
        }
    }

    /// Removes an answered fetch from every table.
    fn take_fetch(&mut self, slot: u32) -> Fetch {
        let Some(fetch) = self.fetches.remove(slot) else {
            unreachable!("only called with a slot in use")
        };
        if fetch.submitted {
            self.in_flight -= 1;
            if fetch.class == Class::Ahead {
                self.ahead_in_flight -= 1;
                self.ahead_in_flight_bytes -= fetch.pages.len() * self.config.page.bytes();
            }
        }
        fetch
    }

    /// The bytes in flight are not needed any more: drops their pages now; the result will be discarded.
    pub(super) fn doom(&mut self, slot: u32) {
        self.lose_rest(slot);
        let fetch = &mut self.fetches[slot];
        fetch.doomed = true;
        fetch.owner = None;
        let waiters = core::mem::take(&mut fetch.waiters);
        self.stats.doomed_fetches += 1;
        if self.fetches[slot].submitted {
            let id = FetchId(u64::from(self.fetches[slot].serial) << 32 | u64::from(slot));
            self.actions.push_back(Action::Cancel { fetch: id });
        } else {
            self.demand_queue.retain(|&f| f != slot);
            self.take_from_ahead_queue(slot);
            self.fetches.remove(slot);
        }
        waiters.into_iter().for_each(|w| self.waited_enough(w));
    }

    /// A reader of the file was closed. If the file has no other reader that has read, nothing waits for its readahead,
    /// and the driver may cancel those fetches. Pages that have arrived stay, and pages that arrive in spite of this
    /// are kept.
    pub(super) fn cancel_unneeded(&mut self, file: FileId) {
        let is_ahead = |fetch: &Fetch| {
            fetch.file == file && fetch.class == Class::Ahead && fetch.waiters.is_empty()
        };
        let ahead = |slot: &u32| is_ahead(&self.fetches[*slot]) && !self.fetches[*slot].doomed;
        let unneeded: Vec<u32> = self.fetches.slots().filter(ahead).collect();
        // Checked last, because usually nothing is in flight.
        let mut others = self.opens.iter().flatten().filter(|open| open.file == file);
        if unneeded.is_empty()
            || others.any(|open| open.stats.demand_reads > 0)
            || self.reads_of(file).next().is_some()
        {
            return;
        }
        if let Some(stream) = self.source_stream {
            // The policy must not take the missing pages for evicted ones.
            self.streams[stream].policy.on_file_closed(file);
        }
        for slot in unneeded {
            let fetch = &mut self.fetches[slot];
            fetch.is_unneeded = true;
            if fetch.submitted {
                let fetch = FetchId(u64::from(fetch.serial) << 32 | u64::from(slot));
                self.actions.push_back(Action::Cancel { fetch });
            }
        }
    }

    /// Pages of a fetch that have not arrived become absent again, and their counts are undone.
    fn lose_rest(&mut self, slot: u32) {
        let fetch = &self.fetches[slot];
        if fetch.doomed {
            return;
        }
        let (file, rest, submitted) = (fetch.file, fetch.rest(), fetch.submitted);
        if rest.is_empty() {
            return;
        }
        self.owners.remove(&(file.0, rest.first));
        for (number, mask) in groups_of(rest) {
            let Some(RemovedGroup { before, .. }) = self.cache.leave(file, number, mask) else {
                continue;
            };
            let ahead = before.ahead() & mask;
            let used = self.bytes_in(file, number, ahead & before.used());
            let failed = if submitted {
                self.bytes_in(file, number, ahead)
            } else {
                0
            };
            let asked = ahead & before.used();
            self.tell_watcher(|| Note::Lost {
                file,
                number,
                pages: ahead,
                used: asked,
                submitted,
            });
            // A new description may have the number of a closed one; it has less to subtract.
            self.count(before.planner, |stats| {
                stats.used_bytes = stats.used_bytes.saturating_sub(used);
                stats.late_bytes = stats.late_bytes.saturating_sub(used);
                stats.ra_failed_bytes += failed;
            });
        }
        let fetch = &mut self.fetches[slot];
        fetch.landed = fetch.pages.end;
    }

    /// Bytes of the fetch's pages that readahead brings in.
    fn ahead_bytes(&self, fetch: &Fetch) -> u64 {
        self.sum_bytes(fetch, crate::cache::Group::ahead)
    }

    /// How many of these bytes no read has demanded.
    pub(super) fn untouched_bytes(&self, fetch: &Fetch) -> u64 {
        self.sum_bytes(fetch, crate::cache::Group::untouched)
    }

    fn sum_bytes(&self, fetch: &Fetch, which: fn(&crate::cache::Group) -> u64) -> u64 {
        let bytes = |(number, mask)| {
            let pages = which(&self.cache.group(fetch.file, number)) & mask;
            self.bytes_in(fetch.file, number, pages)
        };
        groups_of(fetch.pages).map(bytes).sum()
    }
}
