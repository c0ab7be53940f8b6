//! Page faults and touches of memory-mapped pages. A fault is processed like a read of one page, but the state machine asks the policy
//! other questions about it.
//!
//! If the policy models a kernel with fault-around ([`crate::policy::Wants::around`]), a fault maps the cached pages around it, in an
//! aligned block of 16 pages (64 KiB, the default on x86). Pages with a readahead mark are not mapped, so that a later fault hits the
//! mark. The driver tracks mapped pages: it calls [`Machine::around`] after it has served a fault.
//!
//! ```text
//!   Fault ──► page here or in flight: on_fault_hit ─┬─► served ──► on_mapped(pages around)
//!         └─► absent: on_fault ──► fetched ─────────┘
//!   Accessed ──► a use, no question
//! ```

use super::reads::Read;
use super::{Machine, Question, Verdict};
use crate::cache::{GROUP_PAGES, mask_of};
use crate::event::{Error, Mapping};
use crate::units::{ByteRange, FileId, OpenId, PageRange, ReadId};

/// Pages in the block that a fault maps.
const AROUND: u64 = 16;

impl Machine {
    // ---- getters ----

    /// The pages that a fault at byte `at` maps, as a group number and a mask: bit `n` is page `64 * number + n` of the file. The touched
    /// page is always included.
    #[must_use]
    pub fn around(&self, open: OpenId, at: u64, map: &Mapping) -> (u64, u64) {
        let page = self.config.page.page_of(at);
        let (number, own) = (page / GROUP_PAGES, 1 << (page % GROUP_PAGES));
        let Some((file, stream)) = self.open_of(open).map(|o| (o.file, o.stream)) else {
            return (number, own);
        };
        let Some(stream) = self.streams.get(stream).filter(|s| s.wants.around) else {
            return (number, own);
        };
        let inside = self.config.page.cover(self.clip_range(file, map.range));
        let first = page / AROUND * AROUND;
        let block = PageRange::between(first, first + AROUND).intersect(inside);
        let group = self.cache.group(file, number);
        let in_runs = u64::from(stream.policy.marked_runs(first)) << (first % GROUP_PAGES);
        let mask = mask_of(number, block.first, block.end) & !in_runs;
        (number, own | group.present() & !group.marked() & mask)
    }

    // ---- events in ----

    /// Starts a page fault: a read of one page, for which the policy has separate questions.
    pub(super) fn begin_fault(&mut self, id: ReadId, open: OpenId, at: u64, map: Mapping) {
        let Some((file, stream)) = self.open_of(open).map(|o| (o.file, o.stream)) else {
            return self.refuse(id, open, Error::Limit);
        };
        let page = self.config.page;
        let request = ByteRange::between(
            page.start_of(page.page_of(at)),
            page.start_of(page.page_of(at) + 1),
        );
        let range = request.intersect(ByteRange::between(0, self.size_of(file)));
        let mut read = Read::new(id, open, file, stream, request, range, false, self.now);
        read.fault = Some(map);
        self.admit(read, false);
    }

    /// A mapped page was touched, so it is cached.
    pub(super) fn accessed(&mut self, open: OpenId, at: u64, code: bool) {
        let Some(file) = self.open_of(open).map(|o| o.file) else {
            return;
        };
        let page = self.config.page.page_of(at);
        let one = PageRange::one(page);
        if self.cache.present_run(file, one) == 0 {
            // A log may contain anything.
            return;
        }
        let number = page / GROUP_PAGES;
        let touched = self
            .cache
            .access(file, number, mask_of(number, one.first, one.end), code);
        self.credit(file, number, touched);
    }

    // ---- inside ----

    pub(super) fn look_up_fault(&mut self, slot: u32) {
        let Read {
            file, piece, fault, ..
        } = self.reads[slot];
        let Some(map) = fault else { return };
        if piece.is_empty() {
            return;
        }
        let run = self.cache.look(file, piece);
        if run.pages == 0 {
            self.met(slot, Verdict::Miss);
            let at = self.config.page.start_of(piece.first);
            self.ask_for(slot, at, Question::Fault, |policy, ask, answer| {
                policy.on_fault(ask, &map, answer)
            });
            if self.cache.look(file, piece).pages == 0 {
                self.demand(file, piece);
            } else {
                self.touch_mapped(slot, file, piece.first, map.executable);
            }
        } else {
            self.touch_mapped(slot, file, piece.first, map.executable);
            let marked = run.marked;
            self.meet_mark(
                slot,
                file,
                piece.first,
                Question::FaultHit,
                |policy, ask, answer| policy.on_fault_hit(ask, &map, marked, answer),
            );
        }
        self.commit(Some(slot));
    }

    fn touch_mapped(&mut self, slot: u32, file: FileId, page: u64, code: bool) {
        let one = PageRange::one(page);
        if self.cache.present_run(file, one) == 0 {
            self.met(slot, Verdict::Late);
        }
        let (number, mask) = (page / GROUP_PAGES, 1 << (page % GROUP_PAGES));
        let touched = self.cache.access(file, number, mask, code);
        self.credit(file, number, touched);
    }

    fn maps_around(&self, slot: u32) -> bool {
        let stream = self.streams.get(self.reads[slot].stream);
        stream.is_some_and(|stream| stream.wants.around)
    }

    /// A fault has its page: tells the policy how many pages are mapped with it.
    pub(super) fn end_fault(&mut self, slot: u32) {
        let read = &self.reads[slot];
        let (Some(map), open, stream) = (read.fault, read.open_id(), read.stream) else {
            return;
        };
        if !self.maps_around(slot) || read.range.is_empty() {
            return;
        }
        let file = read.file;
        let (number, pages) = self.around(open, read.range.start(), &map);
        self.cache.map(file, number, pages, map.executable);
        let stream = &mut self.streams[stream];
        stream.turn_to(open);
        stream.policy.on_mapped(u64::from(pages.count_ones()));
    }
}
