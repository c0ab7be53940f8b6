//! The oracle's fetches: which extent is fetched next, which neighbours are fetched with it, what is evicted for it, and which readers wait
//! for it.
//!
//! A fetch never evicts an extent that is needed sooner, unless a reader waits for the fetch.

use super::{ExtentPlace, Fetch, Oracle};
use crate::device::presets::{Model, Preset};
use crate::device::{Arrival, Command};
use crate::limits::future::NEVER;
use std::ops::Range;

/// Maximum number of absent extents examined, by position, to find one that is due. Chosen small, so that choosing a
/// fetch is cheap if the cache is small and few extents are due.
const LOOK: usize = 256;

/// The number of commands that a device processes concurrently. More commands would wait in the device, and could not
/// be changed any more.
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
            if !self.is_member(next, id as u32) {
                next += 1;
                continue;
            }
            let extent = self.future.extent(next);
            let state = &mut self.states[next as usize];
            let whole = extent.end <= reached;
            // A page is present when all of it has arrived.
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

    /// Readers that wait for an extent check it again.
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

    /// Starts fetches while there are extents to fetch, free slots and room.
    pub(super) fn pump(&mut self, now: u64) {
        // A device that processes one command after the other needs one in process and one waiting. A drive with a
        // queue reorders it, and the longer the queue, the shorter the seeks.
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

    /// Returns the extent that a reader waits for, or else the one needed soonest, if there is room, and takes the
    /// room.
    fn most_urgent(&mut self) -> Option<u32> {
        if self.rule.sweep
            && let Some(extent) = self.next_in_place()
            && self.make_room(extent)
        {
            return Some(extent);
        }
        // An extent that was fetched meanwhile is still in the list; even if it has left since, no reader waits for it
        // any more.
        while self
            .asked
            .front()
            .is_some_and(|e| !self.states[*e as usize].asked)
        {
            self.asked.pop_front();
        }
        // Waiting reads come first. If readers take turns, they come first only if the device is idle.
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

    /// The absent extent needed soonest, if it may be fetched now. If nothing is in flight it always finds room, so no
    /// reader waits forever.
    fn soonest(&mut self) -> Option<u32> {
        let soonest = self.absent.first()?.1;
        let due = self.states[soonest as usize].asked || self.rule.ahead && self.is_due(soonest);
        (due && self.make_room(soonest)).then_some(soonest)
    }

    /// The next due extent after the latest fetch, or else from the beginning, within [`LOOK`] extents.
    fn next_in_place(&self) -> Option<u32> {
        let behind = self.absent_places.range(self.head..).take(LOOK);
        behind
            .chain(self.absent_places.range(..self.head).take(LOOK))
            .copied()
            .find(|&extent| self.is_due(extent))
    }

    /// Whether everything needed up to this extent fits into the cache together, so that the extent takes no room from
    /// something needed sooner.
    fn is_due(&self, extent: u32) -> bool {
        let until = self.future.pages_until(self.future.next_use(extent));
        until + self.pinned_pages + self.gap_pages <= self.setup.config.capacity_pages
    }

    /// Evicts extents needed later until there is room for this one, and takes the room.
    fn make_room(&mut self, extent: u32) -> bool {
        let next = self.future.next_use(extent);
        if !self.take_pages(self.future.pages(extent), next) {
            return false;
        }
        self.absent.remove(&(next, extent));
        self.absent_places.remove(&extent);
        self.absent_bytes -= self.future.extent(extent).len();
        let state = &mut self.states[extent as usize];
        (state.place, state.fetch) = (ExtentPlace::Flying, self.fetches.len() as u32);
        true
    }

    /// Takes pages for an extent that is needed at `next`, by evicting extents needed later.
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

    /// The run of absent, due extents around this one, up to the maximum length of a fetch, and the pages in its gaps.
    fn with_neighbours(&mut self, extent: u32) -> (Range<u32>, u64) {
        let (mut first, mut end, mut gap_pages) = (extent, extent + 1, 0);
        let most = self.longest(extent);
        let mut next = end;
        while (next as usize) < self.states.len() && self.is_near(end - 1, next) {
            if self.future.extent(next).end - self.future.extent(first).start > most {
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
            if self.future.extent(end - 1).end - self.future.extent(before).start > most {
                break;
            }
            match self.join(before, end - 1, before, most) {
                Some(pages) => (first, gap_pages) = (before, gap_pages + pages),
                None if self.rule.gap_bytes == 0 => break,
                None => {}
            }
        }
        let bytes = self.future.extent(end - 1).end - self.future.extent(first).start;
        self.ramp_bytes = self.ramp_bytes.max(bytes).saturating_mul(2);
        (first..end, gap_pages)
    }

    /// Bytes of the gap after a fetch that a head reads, too, so that the next fetch begins where the head is; 0 if
    /// there is no head, no such gap, or no room.
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
        let gap = self.future.extent(end).start - self.future.extent(end - 1).end;
        let pages = gap.div_ceil(self.setup.config.page.bytes());
        let absent = self.states[end as usize].place == ExtentPlace::Absent && next != NEVER;
        let bytes = self.future.extent(end).start - self.future.extent(first).start;
        if !absent || bytes > self.setup.config.max_fetch_bytes || !self.take_pages(pages, next) {
            return 0;
        }
        self.gap_pages += pages;
        gap
    }

    /// Whether `b` begins where `a` ends, or after a gap that is read through.
    fn is_near(&self, a: u32, b: u32) -> bool {
        let (a, b) = (self.future.extent(a), self.future.extent(b));
        a.file == b.file && b.start - a.end <= self.rule.gap_bytes
    }

    /// Adds `extent` to a fetch, which then covers `first..=last`, if the extent is absent and due, and if there is
    /// room for it and for the gap next to it. Returns the pages of that gap.
    fn join(&mut self, first: u32, last: u32, extent: u32, most: u64) -> Option<u64> {
        let (head, tail) = (self.future.extent(first), self.future.extent(last));
        let fits = tail.end - head.start <= most;
        let page = self.setup.config.page.bytes();
        let gap_pages = self.gap_beside(extent, first, last).div_ceil(page);
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

    /// Bytes between an extent and the nearest other one in `first..=last` that belongs to the planned fetch; `extent` is the first or the
    /// last of these.
    fn gap_beside(&self, extent: u32, first: u32, last: u32) -> u64 {
        let id = self.fetches.len() as u32;
        if extent == first {
            let behind = (extent + 1..=last).find(|e| self.is_member(*e, id));
            behind.map_or(0, |b| {
                self.future.extent(b).start - self.future.extent(extent).end
            })
        } else {
            let before = (first..extent).rev().find(|e| self.is_member(*e, id));
            before.map_or(0, |b| {
                self.future.extent(extent).start - self.future.extent(b).end
            })
        }
    }

    /// Whether an extent is in flight by this fetch.
    fn is_member(&self, extent: u32, fetch: u32) -> bool {
        let state = &self.states[extent as usize];
        state.place == ExtentPlace::Flying && state.fetch == fetch
    }

    /// The current maximum length of a fetch that includes `extent`. The remaining bytes are divided among the lanes in
    /// use, so that no lane is idle at the end. With one lane there is nothing to divide, and gaps may be read in
    /// addition.
    fn longest(&self, extent: u32) -> u64 {
        let most = self.setup.config.max_fetch_bytes;
        let lanes = u64::from(self.lanes.min(self.rule.flights).max(1));
        let left = self.absent_bytes + self.future.extent(extent).len();
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
        let (head, tail) = (self.future.extent(first), self.future.extent(end - 1));
        let bytes = tail.end + trail - head.start;
        let gap_pages = gap_pages + trail.div_ceil(self.setup.config.page.bytes());
        self.head = end;
        let id = self.fetches.len() as u32;
        let (mut ahead, mut wanted) = (0, 0);
        for extent in first..end {
            if !self.is_member(extent, id) {
                continue;
            }
            let state = &mut self.states[extent as usize];
            let len = self.future.extent(extent).len();
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
