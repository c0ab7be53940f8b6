//! The oracle's fetches: which extent is next, with which neighbours, into whose room; and what their arrival wakes.
//!
//! Never: takes room that something wanted sooner needs, unless a reader waits for it.

use super::{Fetch, Oracle, Place};
use crate::device::presets::{Model, Preset};
use crate::device::{Arrival, Command};
use crate::limits::future::NEVER;

/// Absent extents that are looked at for one that is due, in the order of their places. Chosen: so few that a fetch is
/// cheap to choose where the cache is small and little is due.
const LOOK: usize = 256;

/// How many commands a device works on at once: more would wait in it, and could not be changed any more.
pub(super) fn lanes(preset: &Preset) -> u32 {
    match preset.model {
        Model::Disk(_) | Model::Hdd(_) | Model::Array(_) => 1,
        Model::Ssd(_) | Model::Net(_) | Model::Lanes(_) => preset.connections,
    }
}

impl Oracle<'_> {
    pub(super) fn arrive(&mut self, now: u64, Arrival { id, bytes, done }: Arrival) {
        let page = self.setup.config.page.bytes();
        let Fetch { end, start, mut next } = self.fetches[id as usize];
        let reached = start + bytes;
        while next < end {
            let extent = self.future.extents[next as usize];
            let state = &mut self.states[next as usize];
            let whole = extent.end <= reached;
            // A page is there when all of it is.
            state.arrived = if whole { extent.len() } else { reached.saturating_sub(extent.start) / page * page };
            if whole {
                state.place = Place::Present;
                self.settle(next);
            }
            self.wake(now, next);
            if !whole {
                break;
            }
            next += 1;
        }
        self.fetches[id as usize].next = next;
        self.flying -= u32::from(done);
    }

    /// Readers that wait for an extent look at it again.
    fn wake(&mut self, now: u64, extent: u32) {
        let mut woken = Vec::new();
        self.waiting.retain(|&(of, slot)| {
            of != extent || {
                woken.push(slot);
                false
            }
        });
        for slot in woken {
            let s = &mut self.slots[slot as usize];
            s.waited_ns += now - s.waiting_since.take().unwrap_or(now);
            self.go_on(now, slot);
        }
    }

    /// Fetches while there is something to fetch, a place in flight and room.
    pub(super) fn pump(&mut self, now: u64) {
        // A device that does one command after the other needs one in work and one behind it. A drive with a queue goes
        // over that in an order of its own, and the longer it is the shorter its ways.
        let lanes = if self.rule.sweep { u32::MAX } else { self.lanes.saturating_add(1) };
        let limit = self.setup.config.max_in_flight.min(lanes).min(self.rule.flights);
        while self.flying < limit {
            let Some(extent) = self.most_urgent() else { return };
            let (first, end) = self.with_neighbours(extent);
            self.submit(now, first, end);
        }
    }

    /// What a reader waits for, or else what is wanted soonest, if there is room; its room is taken.
    fn most_urgent(&mut self) -> Option<u32> {
        if self.rule.sweep
            && let Some(extent) = self.next_in_place()
            && self.make_room(extent)
        {
            return Some(extent);
        }
        // What was fetched meanwhile is in the list still; even if it has left since, nobody waits for it any more.
        while self.asked.front().is_some_and(|e| !self.states[*e as usize].asked) {
            self.asked.pop_front();
        }
        if let Some(&asked) = self.asked.front()
            && self.make_room(asked)
        {
            return Some(asked);
        }
        // Of all that is absent the one wanted soonest always finds room when nothing flies: no reader waits for ever.
        let soonest = self.absent.first()?.1;
        let due = self.states[soonest as usize].asked || self.rule.ahead && self.is_due(soonest);
        (due && self.make_room(soonest)).then_some(soonest)
    }

    /// The next that is due behind the latest fetch, or else from the start on, as far as a look goes.
    fn next_in_place(&self) -> Option<u32> {
        let behind = self.absent_places.range(self.head..).take(LOOK);
        behind.chain(self.absent_places.range(..self.head).take(LOOK)).copied().find(|&extent| self.is_due(extent))
    }

    /// Everything that is wanted up to this extent fits into the cache together, so it takes no room that something
    /// wanted sooner needs.
    fn is_due(&self, extent: u32) -> bool {
        let until = self.future.pages_until(self.future.next_use(extent));
        until + self.pinned_pages <= self.setup.config.capacity_pages
    }

    /// Lets what is wanted later leave until there is room for this extent, and takes it.
    fn make_room(&mut self, extent: u32) -> bool {
        let pages = self.future.pages(extent);
        let next = self.future.next_use(extent);
        while self.held_pages + pages > self.setup.config.capacity_pages {
            let Some(&(use_, last)) = self.idle.last() else { return false };
            if use_ < next {
                return false;
            }
            self.leave(last);
        }
        self.held_pages += pages;
        self.absent.remove(&(next, extent));
        self.absent_places.remove(&extent);
        self.states[extent as usize].place = Place::Flying;
        true
    }

    /// The run of absent extents around one that are due too, as long as a fetch may be.
    fn with_neighbours(&mut self, extent: u32) -> (u32, u32) {
        let (mut first, mut end) = (extent, extent + 1);
        let mut bytes = self.future.extents[extent as usize].len();
        let most = self.longest();
        while (end as usize) < self.states.len() && self.future.follows(end - 1, end) && self.joins(end, bytes, most) {
            bytes += self.future.extents[end as usize].len();
            end += 1;
        }
        while self.rule.backward
            && first > 0
            && self.future.follows(first - 1, first)
            && self.joins(first - 1, bytes, most)
        {
            first -= 1;
            bytes += self.future.extents[first as usize].len();
        }
        self.ramp_bytes = self.ramp_bytes.max(bytes).saturating_mul(2);
        (first, end)
    }

    fn joins(&mut self, extent: u32, bytes: u64, most: u64) -> bool {
        let fits = bytes + self.future.extents[extent as usize].len() <= most;
        let absent = self.states[extent as usize].place == Place::Absent;
        let due = self.rule.ahead || self.states[extent as usize].asked;
        fits && absent && due && self.future.next_use(extent) != NEVER && self.is_due(extent) && self.make_room(extent)
    }

    /// The longest fetch now: what is left is shared between the lanes that are used, so that none is idle at the end.
    fn longest(&self) -> u64 {
        let most = self.setup.config.max_fetch_bytes;
        let lanes = u64::from(self.lanes.min(self.rule.flights).max(1));
        let share = self.absent_bytes.div_ceil(lanes);
        let room = self.setup.config.capacity_pages * self.setup.config.page.bytes() / self.rule.cache_part;
        most.min(share).min(self.ramp_bytes).min(room / lanes)
    }

    fn submit(&mut self, now: u64, first: u32, end: u32) {
        let (head, tail) = (self.future.extents[first as usize], self.future.extents[end as usize - 1]);
        let bytes = tail.end - head.start;
        self.absent_bytes -= bytes;
        self.head = end;
        let mut ahead = 0;
        for extent in first..end {
            let state = &mut self.states[extent as usize];
            state.ahead = !std::mem::take(&mut state.asked);
            ahead += if state.ahead { self.future.extents[extent as usize].len() } else { 0 };
        }
        self.stats.source_reads += 1;
        self.stats.source_bytes += bytes;
        self.stats.ra_ops += u64::from(ahead > 0);
        self.stats.ra_bytes += ahead;
        self.stats.ra_planned_ops += u64::from(ahead > 0);
        self.stats.ra_planned_bytes += ahead;
        self.flying += 1;
        self.device
            .submit(now, Command { id: self.fetches.len() as u64, file: head.file, start: head.start, len: bytes });
        self.fetches.push(Fetch { end, next: first, start: head.start });
    }
}
