//! Converts a policy's answer to fetches: decides which windows fit into the cache, merges adjacent ranges, and evicts pages.
//!
//! Readahead never takes cache space that a demand read needs: a window is shortened to the remaining space. Demand pages always fit into
//! the cache. A piece of a read starts only if the cache has space for it in addition to the pages in flight and the pages that readers
//! are copying (`reads.rs`).
//!
//! ```text
//!   answer: windows ──► absent runs ──► in flight ("unassigned") ──commit──► fetches
//!                        │ inside the read: demand          merged and split by the rules of Config
//!                        └ outside it: ahead, cut to the room
//! ```

use super::fetches::Fetch;
use super::reads::Read;
use super::slab::Slab;
use super::{AskedFor, Asker, Machine, Note, Verdict};
use crate::cache::{GroupPages, RemovedGroup, TouchCounts, groups_of, mask_of};
use crate::event::{Action, Class};
use crate::policy::{Answer, Ask, Outcome, Policy, Probe, SourceView, Tuning, Urgency, Window};
use crate::units::{ByteRange, FileId, OpenId, PageRange};
use alloc::vec::Vec;

/// Minimum number of pages that a kernel reclaims in one step.
const RECLAIMED_PAGES: u64 = 32;

/// Pages that the current event has set to "in flight" and that are not part of a fetch yet.
#[derive(Clone, Copy)]
pub struct UnassignedPages {
    file: FileId,
    pages: PageRange,
    /// The open description whose policy reads them ahead; `None` for demand.
    planner: Option<OpenId>,
    /// The window of the event that they belong to; each missing run counts as a window.
    window: u32,
    /// Fetches are submitted in this order: 0 for the file that is read, then windows of other files in the order in
    /// which they were planned.
    turn: u32,
    /// How soon the pages are needed, if the policy has set an urgency.
    urgency: Option<Urgency>,
}

/// The first free window number for this event. The numbers only have to differ.
fn next_window(unassigned: &[UnassignedPages]) -> u32 {
    unassigned.last().map_or(0, |f| f.window + 1)
}

impl Machine {
    /// Asks a policy a question; the answer is then in `self.answer`.
    pub(super) fn ask(
        &mut self,
        Asker { file, open, stream }: Asker,
        AskedFor {
            request,
            at,
            random,
        }: AskedFor,
        question: impl FnOnce(&mut dyn Policy, &Ask<'_>, &mut Answer),
    ) {
        self.answer.clear();
        let file_size = self.size_of(file);
        let source = self.source_view();
        let Some(stream) = self.streams.get_mut(stream) else {
            return;
        };
        let probe = Probe {
            cache: &self.cache,
            files: &self.files,
            file,
        };
        let ask = Ask {
            now: self.now,
            file,
            open,
            source,
            request,
            at,
            random,
            file_size,
            probe,
        };
        stream.turn_to(open);
        question(&mut *stream.policy, &ask, &mut self.answer);
    }

    /// The measured source; all zero if it is not measured.
    fn source_view(&self) -> SourceView {
        let Some(meter) = self.meter.as_ref() else {
            return SourceView::default();
        };
        SourceView {
            latency_ns: meter.latency_ns(),
            tail_ns: meter.tail_ns(),
            rate: meter.rate(),
            single_rate: meter.single_rate(),
            busy: meter.busy(),
            reads: u32::try_from(self.reads.len()).unwrap_or(u32::MAX),
            used_bytes: self.stats.used_bytes,
            unused_bytes: self.stats.unused_bytes,
            unread_bytes: self.stats.unread_bytes()
                + self.ahead_queued_bytes
                + self.unassigned_ahead_bytes,
            room: self.config.capacity_pages * self.config.page.bytes(),
            max_fetch: self.config.max_fetch_bytes,
            ahead_slots: self.config.max_ahead_in_flight,
        }
    }

    /// The settings that a policy of [`crate::policy::Scope::Source`] has chosen for itself. Returns `None` for policies with another
    /// scope, and before the first file is opened.
    #[must_use]
    pub fn tuning(&self) -> Option<Tuning> {
        let stream = self.streams.get(self.source_stream?)?;
        stream.policy.tuning(&self.source_view())
    }

    /// Applies the answer for a read of `piece` (empty for hints). `request` is the reader's whole request.
    pub(super) fn apply(
        &mut self,
        file: FileId,
        open: OpenId,
        stream: u32,
        piece: PageRange,
        request: ByteRange,
        read: Option<u32>,
    ) {
        if !self.answer.drop.is_empty() {
            // A read that waited for these pages fetches them in this event, and must not be credited to the planner.
            self.commit(read);
            let dropped = core::mem::take(&mut self.answer.drop);
            dropped
                .into_iter()
                .for_each(|range| self.invalidate(file, self.clip_range(file, range)));
        }
        if self.answer.max_fetch > 0 {
            self.unit_pages = (self.answer.max_fetch / self.config.page.bytes()).max(1);
        }
        let windows = core::mem::take(&mut self.answer.windows);
        for (window, turn) in windows.iter().zip(1..) {
            let beyond = window.range.len() - window.range.intersect(request).len();
            self.count(Some(open), |stats| {
                stats.ra_planned_bytes += beyond;
                stats.ra_planned_ops += u64::from(beyond > 0);
            });
            let before = self.stats.ra_refused_bytes;
            match window.file.filter(|other| *other != file) {
                None => self.apply_window(file, open, piece, request, window, (read, 0)),
                // This read demands no bytes of another file.
                Some(other) => self.apply_window(
                    other,
                    open,
                    PageRange::default(),
                    ByteRange::default(),
                    window,
                    (None, turn),
                ),
            }
            let refused = self.stats.ra_refused_bytes - before;
            self.tell_watcher(|| Note::Window {
                open,
                bytes: beyond,
                refused,
            });
        }
        self.answer.windows = windows;
        for i in 0..self.answer.refresh.len() {
            let pages = self
                .config
                .page
                .cover(self.clip_range(file, self.answer.refresh[i]));
            self.cache.refresh(file, pages);
        }
        if let Some(at) = self.answer.wake_at {
            self.timers.insert((at, stream), ());
            self.actions.push_back(Action::WakeAt { at });
        }
    }

    fn apply_window(
        &mut self,
        file: FileId,
        open: OpenId,
        piece: PageRange,
        request: ByteRange,
        window: &Window,
        (read, turn): (Option<u32>, u32),
    ) {
        let pages = self.config.page.cover(self.clip_range(file, window.range));
        let number = next_window(&self.unassigned);
        let mark = window
            .mark
            .map(|m| self.config.page.page_of(m))
            .filter(|m| (pages.first..pages.end).contains(m));
        let mark_absent = mark.is_some_and(|m| !self.cache.is_cached(file, m));
        let mut at = pages.first;
        while at < pages.end {
            let rest = PageRange::between(at, pages.end);
            let absent = self.cache.absent_run(file, rest);
            if absent == 0 {
                at = self.cache.next_hole(file, rest).unwrap_or(pages.end);
                continue;
            }
            let run = PageRange::between(at, at + absent);
            let inside = run.intersect(piece);
            let (before, after) = split_around(run, inside);
            if !inside.is_empty() {
                self.send(UnassignedPages {
                    file,
                    pages: inside,
                    planner: None,
                    window: number,
                    turn,
                    urgency: None,
                });
                if let Some(slot) = read {
                    self.met(slot, Verdict::Miss);
                }
            }
            for pages in [before, after] {
                let at = self.config.page.start_of(pages.first);
                let urgency = window
                    .urgency
                    .map(|urgency| urgency.later(at, window.range.start()));
                let refused = self.send_ahead(UnassignedPages {
                    file,
                    pages,
                    planner: Some(open),
                    window: number,
                    turn,
                    urgency,
                });
                // Only planned bytes count, as in `ra_planned_bytes`: the bytes that the read itself requests come by
                // demand.
                let refused = self.clip(file, refused).intersect(window.range);
                let bytes = refused.len() - refused.intersect(request).len();
                if bytes > 0 {
                    self.count(Some(open), |stats| stats.ra_refused_bytes += bytes);
                }
            }
            at = run.end;
        }
        if let (true, Some(mark)) = (mark_absent, mark) {
            self.cache.set_mark(file, mark);
        }
    }

    /// Fetches pages that a read misses and no policy has planned.
    pub(super) fn demand(&mut self, file: FileId, pages: PageRange) {
        let window = next_window(&self.unassigned);
        self.send(UnassignedPages {
            file,
            pages,
            planner: None,
            window,
            turn: 0,
            urgency: None,
        });
    }

    /// Readahead pages go in flight as far as there is room. At most half the cache may be in flight. Room for what
    /// reads hold or may still fetch stays free, so that a page that is neither held nor in flight can always be
    /// evicted for a demand page. Returns the rest, which is refused.
    fn send_ahead(&mut self, mut unassigned: UnassignedPages) -> PageRange {
        if unassigned.pages.is_empty() {
            return unassigned.pages;
        }
        let capacity = self.config.capacity_pages;
        let in_flight = self.cache.pages_in_flight();
        let most = if self.config.in_order {
            capacity
        } else {
            capacity / 2
        };
        let may_fly = most.saturating_sub(in_flight);
        let wanted = unassigned
            .pages
            .len()
            .min(may_fly)
            .min(capacity.saturating_sub(self.reserved + in_flight));
        let free = capacity.saturating_sub(self.cache.pages());
        let freed = if wanted > free {
            self.evict(wanted - free)
        } else {
            0
        };
        let granted = wanted.min(free + freed);
        let refused = PageRange::between(unassigned.pages.first + granted, unassigned.pages.end);
        unassigned.pages.end = refused.first;
        if granted > 0 {
            self.cache
                .depart(unassigned.file, unassigned.pages, unassigned.planner);
            self.tell_watcher(|| Note::Planned {
                file: unassigned.file,
                pages: unassigned.pages,
            });
            self.unassigned_ahead_bytes += unassigned.pages.len() * self.config.page.bytes();
            self.unassigned.push(unassigned);
        }
        refused
    }

    /// Demand pages go in flight.
    fn send(&mut self, unassigned: UnassignedPages) {
        let wanted = unassigned.pages.len();
        let free = self
            .config
            .capacity_pages
            .saturating_sub(self.cache.pages());
        if wanted > free {
            self.evict(wanted - free);
        }
        self.note_thrash(unassigned.file, unassigned.pages);
        self.cache.depart(unassigned.file, unassigned.pages, None);
        self.unassigned.push(unassigned);
    }

    fn note_thrash(&mut self, file: FileId, pages: PageRange) {
        for (number, mask) in groups_of(pages) {
            let met = self.cache.ghosts().take(file.0, number, mask);
            self.stats.thrash_bytes += self.bytes_in(file, number, met);
            if met != 0 {
                self.tell_watcher(|| Note::Thrashed {
                    file,
                    number,
                    pages: met,
                });
            }
        }
    }

    /// Creates fetches for all pages that went in flight in this event. Neighbouring pages share a fetch if the rules
    /// allow it. `read`: the read whose demand this is, if there is one.
    pub(super) fn commit(&mut self, read: Option<u32>) {
        if self.unassigned.is_empty() {
            return;
        }
        let mut unassigned = core::mem::take(&mut self.unassigned);
        self.unassigned_ahead_bytes = 0;
        unassigned.sort_by_key(|f| (f.turn, f.file, f.pages.first));
        let most = (self.config.max_fetch_bytes / self.config.page.bytes()).max(1);
        let mut group: Vec<UnassignedPages> = Vec::new();
        let unit = most.min(core::mem::replace(&mut self.unit_pages, u64::MAX));
        let page = self.config.page.bytes();
        let longest = |ahead| if ahead { unit } else { most };
        for one in unassigned
            .iter()
            .flat_map(|f| split_to(*f, longest(f.planner.is_some()), page))
        {
            if !group.is_empty() && !self.may_join(&group, &one, longest(one.planner.is_some())) {
                self.make_fetch(&group, read);
                group.clear();
            }
            group.push(one);
        }
        self.make_fetch(&group, read);
        unassigned.clear();
        self.unassigned = unassigned;
    }

    fn may_join(&self, group: &[UnassignedPages], one: &UnassignedPages, most: u64) -> bool {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return true;
        };
        if last.file != one.file || last.pages.end != one.pages.first {
            return false;
        }
        let pages = one.pages.end - first.pages.first;
        let apart = self.config.keep_windows_apart && last.window != one.window;
        let ahead: u64 = group
            .iter()
            .chain([one])
            .filter(|f| f.planner.is_some())
            .map(|f| f.pages.len())
            .sum();
        let mixed = ahead > 0 && ahead < pages;
        let too_heavy = mixed && ahead * self.config.page.bytes() > self.config.max_piggyback_bytes;
        pages <= most && !apart && !too_heavy
    }

    fn make_fetch(&mut self, group: &[UnassignedPages], read: Option<u32>) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return;
        };
        let pages = PageRange::between(first.pages.first, last.pages.end);
        let demanded = group.iter().any(|f| f.planner.is_none());
        // With `in_order` there is only one queue.
        let class = if demanded || self.config.in_order {
            Class::Demand
        } else {
            Class::Ahead
        };
        let planner = group.iter().find_map(|f| f.planner);
        let owner = if planner.is_none() { read } else { None };
        let mut fetch = Fetch::new(first.file, pages, class, owner, planner);
        fetch.urgency = group.iter().find_map(|f| f.urgency);
        self.enqueue(fetch);
    }

    /// Makes room for `wanted` pages; returns how many left. Pinned pages of active reads and pages in flight stay.
    pub(super) fn evict(&mut self, wanted: u64) -> u64 {
        // A large cache evicts whole groups at once; a small cache only as much as is needed.
        let batch = (self.config.capacity_pages / 64).clamp(1, 64);
        let (reads, page_lists) = (&self.reads, &mut self.cache);
        let reclaimed = page_lists.reclaim(wanted.max(RECLAIMED_PAGES), |file, number| {
            held_by(reads, file, number)
        });
        if let Some(victims) = reclaimed {
            return self.drop_victims(victims);
        }
        let mut victims = Vec::new();
        let mut found = 0;
        for pinned in [false, true] {
            for group in self.cache.victims() {
                if found >= wanted {
                    break;
                }
                if (group.pins > 0) != pinned {
                    continue;
                }
                let file = FileId(group.file);
                let mut mask = group.present();
                if pinned {
                    mask &= !self.held_pages(file, group.number);
                }
                let mask = pick(mask, group.used(), (wanted - found).max(batch));
                found += u64::from(mask.count_ones());
                if mask != 0 {
                    victims.push(GroupPages {
                        file,
                        number: group.number,
                        pages: mask,
                    });
                }
            }
        }
        self.drop_victims(victims)
    }

    fn drop_victims(&mut self, victims: Vec<GroupPages>) -> u64 {
        let mut found = 0;
        for victim in victims {
            found += u64::from(victim.pages.count_ones());
            self.drop_present(victim.file, victim.number, victim.pages);
        }
        self.stats.evicted_pages += found;
        found
    }

    /// Pages of a group that reads in progress wait for or hold.
    pub(super) fn held_pages(&self, file: FileId, number: u64) -> u64 {
        held_by(&self.reads, file, number)
    }

    /// Present pages leave. Unused pages are counted and remembered, and the bytes are discarded.
    pub(super) fn drop_present(&mut self, file: FileId, number: u64, mask: u64) {
        let Some(RemovedGroup { slot, before }) = self.cache.leave(file, number, mask) else {
            return;
        };
        let unused = before.untouched() & mask;
        self.tell_watcher(|| Note::Left {
            file,
            number,
            pages: mask,
            unused,
        });
        if unused != 0 {
            let bytes = self.bytes_in(file, number, unused);
            self.count(before.planner, |stats| stats.unused_bytes += bytes);
            self.cache.ghosts().remember(file.0, number, unused);
            self.tell(before.planner, Outcome::Unused { bytes });
        }
        self.actions.push_back(Action::Drop {
            slot,
            file,
            number,
            pages: mask,
        });
    }

    /// Counts readahead pages that a demand read touches.
    pub(super) fn credit(&mut self, file: FileId, number: u64, touched: TouchCounts) {
        if touched.first == 0 {
            return;
        }
        let bytes = self.bytes_in(file, number, touched.first);
        let late = self.bytes_in(file, number, touched.late);
        self.tell_watcher(|| Note::Touched {
            file,
            number,
            first: touched.first,
            late: touched.late,
        });
        self.count(touched.planner, |stats| {
            stats.used_bytes += bytes;
            stats.late_bytes += late;
        });
        if late > 0 {
            let at = self.first_of(number, touched.late);
            self.tell(
                touched.planner,
                Outcome::Late {
                    file,
                    at,
                    bytes: late,
                },
            );
        }
        if bytes > late {
            let at = self.first_of(number, touched.first & !touched.late);
            self.tell(
                touched.planner,
                Outcome::Used {
                    file,
                    at,
                    bytes: bytes - late,
                },
            );
        }
    }

    /// The byte offset of the first page of `mask` in a group.
    fn first_of(&self, number: u64, mask: u64) -> u64 {
        self.config
            .page
            .start_of(number * crate::cache::GROUP_PAGES + u64::from(mask.trailing_zeros()))
    }

    /// Reports the outcome of an answer to its policy, if the policy wants outcomes and is still open.
    pub(super) fn tell(&mut self, open: Option<OpenId>, outcome: Outcome) {
        let Some(open) = open else { return };
        let of_open = self
            .opens
            .get(open.0 as usize)
            .and_then(Option::as_ref)
            .map(|o| o.stream);
        let Some(stream) = of_open.or(self.source_stream) else {
            return;
        };
        if let Some(stream) = self.streams.get_mut(stream)
            && stream.wants.outcome
        {
            stream.turn_to(open);
            stream.policy.on_outcome(&outcome);
        }
    }

    /// Bytes of whole pages, clipped to the file.
    pub(super) fn clip(&self, file: FileId, pages: PageRange) -> ByteRange {
        self.clip_range(file, self.config.page.bytes_of(pages))
    }

    pub(super) fn clip_range(&self, file: FileId, range: ByteRange) -> ByteRange {
        let size = self.size_of(file);
        ByteRange::between(range.start().min(size), range.end().min(size))
    }
}

/// The parts of `run` before and after `inside`. If `inside` is empty, the first part is all of `run`.
fn split_around(run: PageRange, inside: PageRange) -> (PageRange, PageRange) {
    if inside.is_empty() {
        return (run, PageRange::between(run.end, run.end));
    }
    (
        PageRange::between(run.first, inside.first),
        PageRange::between(inside.end, run.end),
    )
}

/// Pages of a group that reads in progress wait for or hold.
fn held_by(reads: &Slab<Read>, file: FileId, number: u64) -> u64 {
    let reads = reads.iter().filter(|r| r.file == file && r.is_active());
    reads.fold(0, |mask, r| {
        mask | mask_of(number, r.piece.first, r.piece.end)
    })
}

/// The same pages, split into parts of at most `most` pages.
fn split_to(
    unassigned: UnassignedPages,
    most: u64,
    page: u64,
) -> impl Iterator<Item = UnassignedPages> {
    let mut at = unassigned.pages.first;
    core::iter::from_fn(move || {
        (at < unassigned.pages.end).then(|| {
            let pages = PageRange::between(at, unassigned.pages.end.min(at + most));
            let urgency = unassigned
                .urgency
                .map(|urgency| urgency.later(pages.first * page, unassigned.pages.first * page));
            at = pages.end;
            UnassignedPages {
                pages,
                urgency,
                ..unassigned
            }
        })
    })
}

/// At most `count` pages of `mask`: used pages first, then from the front.
fn pick(mask: u64, used: u64, count: u64) -> u64 {
    if u64::from(mask.count_ones()) <= count {
        return mask;
    }
    let mut picked = 0;
    let mut left = count;
    for mut part in [mask & used, mask & !used] {
        while part != 0 && left > 0 {
            let bit = part & part.wrapping_neg();
            picked |= bit;
            part &= !bit;
            left -= 1;
        }
    }
    picked
}
