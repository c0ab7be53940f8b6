//! The oracle's fetches: which extent is next, with which neighbours, into whose room; and what their arrival wakes.
//!
//! Never: takes room that something wanted sooner needs, unless a reader waits for it.

use super::{ExtentPlace, Fetch, Oracle};
use crate::device::presets::{Model, Preset};
use crate::device::{Arrival, Command};
use crate::limits::future::NEVER;
use std::ops::Range;

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
        let Fetch {
            end,
            start,
            mut next,
            gap_pages,
        } = self.fetches[id as usize];
        let reached = start + bytes;
        while next < end {
            let extent = self.future.extents[next as usize];
            let state = &mut self.states[next as usize];
            if state.place != ExtentPlace::Flying || u64::from(state.fetch) != id {
                next += 1;
                continue;
            }
            let whole = extent.end <= reached;
            // A page is there when all of it is.
            state.arrived = if whole {
                extent.len()
            } else {
                reached.saturating_sub(extent.start) / page * page
            };
            if whole {
                state.place = ExtentPlace::Present;
                self.settle(next);
            }
            self.wake(now, next);
            if !whole {
                break;
            }
            next += 1;
        }
        self.fetches[id as usize].next = next;
        if done {
            self.flying -= 1;
            self.held_pages -= gap_pages;
            self.gap_pages -= gap_pages;
        }
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
        // over that in its own order, and the longer it is the shorter its ways.
        let lanes = if self.rule.sweep {
            u32::MAX
        } else {
            self.lanes.saturating_add(1)
        };
        let limit = self
            .setup
            .config
            .max_in_flight
            .min(lanes)
            .min(self.rule.flights);
        while self.flying < limit {
            let Some(extent) = self.most_urgent() else {
                return;
            };
            let (run, gap_pages) = self.with_neighbours(extent);
            let trail = self.trail(run.start, run.end);
            self.submit(now, run.start, run.end, gap_pages, trail);
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
        // What was fetched meanwhile is in the list still; even if it has left since, no reader waits for it any more.
        while self
            .asked
            .front()
            .is_some_and(|e| !self.states[*e as usize].asked)
        {
            self.asked.pop_front();
        }
        // Waiting reads come first, unless readers take turns: then only when the device has nothing to do.
        if self.rule.turns
            && let Some(soonest) = self.soonest()
        {
            return Some(soonest);
        }
        if !(self.rule.turns && self.flying > 0)
            && let Some(&asked) = self.asked.front()
            && self.make_room(asked)
        {
            return Some(asked);
        }
        self.soonest()
    }

    /// What is wanted soonest of all that is absent, if it may be fetched now. It always finds room when nothing flies:
    /// no reader waits without end.
    fn soonest(&mut self) -> Option<u32> {
        let soonest = self.absent.first()?.1;
        let due = self.states[soonest as usize].asked || self.rule.ahead && self.is_due(soonest);
        (due && self.make_room(soonest)).then_some(soonest)
    }

    /// The next that is due behind the latest fetch, or else from the start on, as far as a look goes.
    fn next_in_place(&self) -> Option<u32> {
        let behind = self.absent_places.range(self.head..).take(LOOK);
        behind
            .chain(self.absent_places.range(..self.head).take(LOOK))
            .copied()
            .find(|&extent| self.is_due(extent))
    }

    /// Everything that is wanted up to this extent fits into the cache together, so it takes no room that something
    /// wanted sooner needs.
    fn is_due(&self, extent: u32) -> bool {
        let until = self.future.pages_until(self.future.next_use(extent));
        until + self.pinned_pages + self.gap_pages <= self.setup.config.capacity_pages
    }

    /// Lets what is wanted later leave until there is room for this extent, and takes it.
    fn make_room(&mut self, extent: u32) -> bool {
        let next = self.future.next_use(extent);
        if !self.take_pages(self.future.pages(extent), next) {
            return false;
        }
        self.absent.remove(&(next, extent));
        self.absent_places.remove(&extent);
        self.absent_bytes -= self.future.extents[extent as usize].len();
        let state = &mut self.states[extent as usize];
        (state.place, state.fetch) = (ExtentPlace::Flying, self.fetches.len() as u32);
        true
    }

    /// Takes pages for what is wanted at `next`: what is wanted later leaves for it.
    fn take_pages(&mut self, pages: u64, next: u32) -> bool {
        while self.held_pages + pages > self.setup.config.capacity_pages {
            let Some(&(use_, last)) = self.idle.last() else {
                return false;
            };
            if use_ < next {
                return false;
            }
            self.leave(last);
        }
        self.held_pages += pages;
        true
    }

    /// The run of absent extents around one that are due too, as long as a fetch may be, and the pages in its gaps.
    fn with_neighbours(&mut self, extent: u32) -> (Range<u32>, u64) {
        let (mut first, mut end, mut gap_pages) = (extent, extent + 1, 0);
        let most = self.longest(extent);
        let mut next = end;
        while (next as usize) < self.states.len() && self.is_near(end - 1, next) {
            if self.future.extents[next as usize].end - self.future.extents[first as usize].start
                > most
            {
                break;
            }
            match self.join(first, next, next, most) {
                Some(pages) => (end, gap_pages) = (next + 1, gap_pages + pages),
                None if self.rule.gap_bytes == 0 => break,
                None => {}
            }
            next += 1;
        }
        let mut before = first;
        while self.rule.backward && before > 0 && self.is_near(before - 1, first) {
            before -= 1;
            if self.future.extents[end as usize - 1].end
                - self.future.extents[before as usize].start
                > most
            {
                break;
            }
            match self.join(before, end - 1, before, most) {
                Some(pages) => (first, gap_pages) = (before, gap_pages + pages),
                None if self.rule.gap_bytes == 0 => break,
                None => {}
            }
        }
        let bytes =
            self.future.extents[end as usize - 1].end - self.future.extents[first as usize].start;
        self.ramp_bytes = self.ramp_bytes.max(bytes).saturating_mul(2);
        (first..end, gap_pages)
    }

    /// Bytes of the gap behind a fetch that a head reads too, so that the next fetch begins where it is; none where there
    /// is no head, no such gap, or no room.
    fn trail(&mut self, first: u32, end: u32) -> u64 {
        let turns = matches!(self.setup.preset.model, Model::Hdd(_));
        if !turns
            || self.rule.gap_bytes == 0
            || end as usize >= self.states.len()
            || !self.is_near(end - 1, end)
        {
            return 0;
        }
        let next = self.future.next_use(end);
        let gap =
            self.future.extents[end as usize].start - self.future.extents[end as usize - 1].end;
        let pages = gap.div_ceil(self.setup.config.page.bytes());
        let absent = self.states[end as usize].place == ExtentPlace::Absent && next != NEVER;
        let bytes =
            self.future.extents[end as usize].start - self.future.extents[first as usize].start;
        if !absent || bytes > self.setup.config.max_fetch_bytes || !self.take_pages(pages, next) {
            return 0;
        }
        self.gap_pages += pages;
        gap
    }

    /// Whether `b` begins where `a` ends, or a gap that is read through behind that.
    fn is_near(&self, a: u32, b: u32) -> bool {
        let (a, b) = (
            &self.future.extents[a as usize],
            &self.future.extents[b as usize],
        );
        a.file == b.file && b.start - a.end <= self.rule.gap_bytes
    }

    /// Takes `extent` into a fetch that then is of `first..=last`, if it is absent and due and there is room for it and
    /// for the gap before or behind it; returns the pages of that gap.
    fn join(&mut self, first: u32, last: u32, extent: u32, most: u64) -> Option<u64> {
        let (head, tail) = (
            &self.future.extents[first as usize],
            &self.future.extents[last as usize],
        );
        let fits = tail.end - head.start <= most;
        let edge = if extent == first {
            self.member_behind(extent, last)
        } else {
            self.member_before(extent, first)
        };
        let page = self.setup.config.page.bytes();
        let gap_pages = edge.div_ceil(page);
        let absent = self.states[extent as usize].place == ExtentPlace::Absent;
        let due = self.rule.ahead || self.states[extent as usize].asked;
        let next = self.future.next_use(extent);
        if !(fits && absent && due && next != NEVER && self.is_due(extent)) {
            return None;
        }
        if !self.take_pages(gap_pages, next) {
            return None;
        }
        if !self.make_room(extent) {
            self.held_pages -= gap_pages;
            return None;
        }
        self.gap_pages += gap_pages;
        Some(gap_pages)
    }

    /// Bytes between an extent and the nearest one before it that flies with the fetch to be.
    fn member_before(&self, extent: u32, first: u32) -> u64 {
        let id = self.fetches.len() as u32;
        let is_member = |e: &u32| {
            self.states[*e as usize].place == ExtentPlace::Flying
                && self.states[*e as usize].fetch == id
        };
        let before = (first..extent).rev().find(is_member);
        before.map_or(0, |b| {
            self.future.extents[extent as usize].start - self.future.extents[b as usize].end
        })
    }

    /// The same behind it.
    fn member_behind(&self, extent: u32, last: u32) -> u64 {
        let id = self.fetches.len() as u32;
        let is_member = |e: &u32| {
            self.states[*e as usize].place == ExtentPlace::Flying
                && self.states[*e as usize].fetch == id
        };
        let behind = (extent + 1..=last).find(is_member);
        behind.map_or(0, |b| {
            self.future.extents[b as usize].start - self.future.extents[extent as usize].end
        })
    }

    /// The longest fetch now, of which `extent` is one part: what is left is shared between the lanes that are used, so
    /// that none is idle at the end. One lane has nothing to share, and may read gaps besides.
    fn longest(&self, extent: u32) -> u64 {
        let most = self.setup.config.max_fetch_bytes;
        let lanes = u64::from(self.lanes.min(self.rule.flights).max(1));
        let left = self.absent_bytes + self.future.extents[extent as usize].len();
        let share = if self.rule.even && lanes > 1 {
            left.div_ceil(lanes)
        } else {
            u64::MAX
        };
        let room = self.setup.config.capacity_pages * self.setup.config.page.bytes()
            / self.rule.cache_part;
        most.min(self.rule.most_bytes)
            .min(share)
            .min(self.ramp_bytes)
            .min(room / lanes)
    }

    fn submit(&mut self, now: u64, first: u32, end: u32, gap_pages: u64, trail: u64) {
        let (head, tail) = (
            self.future.extents[first as usize],
            self.future.extents[end as usize - 1],
        );
        let bytes = tail.end + trail - head.start;
        let gap_pages = gap_pages + trail.div_ceil(self.setup.config.page.bytes());
        self.head = end;
        let id = self.fetches.len() as u32;
        let (mut ahead, mut wanted) = (0, 0);
        for extent in first..end {
            let state = &mut self.states[extent as usize];
            if state.place != ExtentPlace::Flying || state.fetch != id {
                continue;
            }
            let len = self.future.extents[extent as usize].len();
            state.ahead = !std::mem::take(&mut state.asked);
            ahead += if state.ahead { len } else { 0 };
            wanted += len;
        }
        // The gaps are readahead that no reader uses.
        ahead += bytes - wanted;
        self.stats.unused_bytes += bytes - wanted;
        self.stats.source_reads += 1;
        self.stats.source_bytes += bytes;
        self.stats.ra_ops += u64::from(ahead > 0);
        self.stats.ra_bytes += ahead;
        self.stats.ra_planned_ops += u64::from(ahead > 0);
        self.stats.ra_planned_bytes += ahead;
        self.flying += 1;
        self.device.submit(
            now,
            Command::new(u64::from(id), head.file, head.start, bytes),
        );
        self.fetches.push(Fetch {
            end,
            next: first,
            start: head.start,
            gap_pages,
        });
    }
}
