//! The page index: the state of each cached page of each file (in flight or present, read or not, with or without a readahead mark), and
//! the eviction order.
//!
//! Pages are kept in groups of 64; in a group, each property of the pages is a bitmap of 64 bits. So for a window of 4 MiB, 16 groups are
//! looked up instead of 1024 pages. The index holds no file data, no times and no policies.
//!
//! ```text
//!   (file, page / 64) ──index──► slot ──► group: 64 x { present, flight, used, ahead, mark }
//!                                  └────► evictor: hot ◄──► cold
//! ```

mod ghost;
mod group;
mod index;
mod links;
mod lru;
mod two_lists;

use crate::units::{FileId, GroupSlot, OpenId, PageRange, PageSize};
use alloc::vec::Vec;
use core::cell::Cell;
use ghost::Ghosts;
use index::Index;
use lru::Evictor;
use two_lists::PageLists;

pub use group::{GROUP_PAGES, Group, Life, groups_of, mask_of, one_group};

/// The result of a look-up for a demand read: the number of cached pages at the start of the range, and whether the last of them has the
/// readahead mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Consecutive cached pages; the run ends after the first marked page.
    pub pages: u64,
    /// The last page of the run has the mark.
    pub marked: bool,
}

/// The pages of one group that a demand read touched for the first time, as bitmaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchCounts {
    /// Read-ahead pages demanded for the first time.
    pub first: u64,
    /// Of these, pages still in flight.
    pub late: u64,
    /// The open description whose policy last read ahead here.
    pub planner: Option<OpenId>,
}

/// A set of pages of one group.
#[derive(Clone, Copy)]
pub struct GroupPages {
    /// The file.
    pub file: FileId,
    /// The number of the group in the file.
    pub number: u64,
    /// The pages, one bit each.
    pub pages: u64,
}

/// A group from which pages were removed.
#[derive(Clone, Copy)]
pub struct RemovedGroup {
    /// Where the bytes of the group are.
    pub slot: GroupSlot,
    /// The group before the removal.
    pub before: Group,
}

/// The page index: the state of each page of each file that is cached or in flight.
pub struct Cache {
    page: PageSize,
    groups: Vec<Group>,
    free: Vec<u32>,
    index: Index,
    evictor: Evictor,
    /// The eviction order of single pages, if a kernel's page cache is simulated.
    lists: Option<PageLists>,
    ghosts: Ghosts,
    /// The number of pages that are present or in flight.
    pages: u64,
    /// Of these, pages in flight.
    flight: u64,
    /// The last group found: most look-ups ask for it again.
    last: Cell<u32>,
}

impl Cache {
    /// Creates an empty index for pages of this size.
    pub fn new(page: PageSize) -> Cache {
        Cache {
            page,
            groups: Vec::new(),
            free: Vec::new(),
            index: Index::new(),
            evictor: Evictor::new(),
            lists: None,
            ghosts: Ghosts::new(),
            pages: 0,
            flight: 0,
            last: Cell::new(u32::MAX),
        }
    }

    /// Switches to the eviction order of the kernel's page cache, for a cache of `capacity_pages`.
    pub fn with_lists(self, capacity_pages: u64) -> Cache {
        Cache {
            lists: Some(PageLists::new(capacity_pages)),
            ..self
        }
    }

    // ---- getters ----

    /// The size of a page of this cache.
    pub fn page_size(&self) -> PageSize {
        self.page
    }

    /// The number of pages that are present or in flight.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The number of pages in flight.
    pub fn pages_in_flight(&self) -> u64 {
        self.flight
    }

    /// Bytes of memory that the index itself uses.
    pub fn state_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
            + self.free.capacity() * size_of::<u32>()
            + self.index.bytes()
            + self.evictor.bytes()
    }

    /// The slot (index in the table of groups) of group `number`, if the group is known.
    pub fn slot(&self, file: FileId, number: u64) -> Option<GroupSlot> {
        self.find(file, number).map(GroupSlot)
    }

    /// Group `number` of the file, or an empty group if it is unknown.
    pub fn group(&self, file: FileId, number: u64) -> Group {
        self.find(file, number)
            .map_or_else(Group::default, |slot| self.groups[slot as usize])
    }

    /// If all of `pages` are settled (present, read before, without a readahead mark) and in one group, returns that group and its
    /// settled pages.
    pub fn settled(&self, file: FileId, pages: PageRange) -> Option<(GroupSlot, u64)> {
        let number = one_group(pages)?;
        let slot = self.find(file, number)?;
        let settled = self.groups[slot as usize].settled();
        (mask_of(number, pages.first, pages.end) & !settled == 0)
            .then_some((GroupSlot(slot), settled))
    }

    /// The state of a page.
    pub fn life(&self, file: FileId, page: u64) -> Life {
        self.group(file, page / GROUP_PAGES).life(page)
    }

    /// True when the page is present or in flight.
    pub fn is_cached(&self, file: FileId, page: u64) -> bool {
        self.group(file, page / GROUP_PAGES).cached() >> (page % GROUP_PAGES) & 1 != 0
    }

    /// First page of the range that is not cached.
    pub fn next_hole(&self, file: FileId, pages: PageRange) -> Option<u64> {
        let run = self.run_of(file, pages, Group::cached);
        (run < pages.len()).then(|| pages.first + run)
    }

    /// Number of consecutive cached pages just before `page`, at most `limit`.
    pub fn history(&self, file: FileId, page: u64, limit: u64) -> u64 {
        let mut at = page;
        while at > 0 && page - at < limit {
            let number = (at - 1) / GROUP_PAGES;
            let bits = (at - 1) % GROUP_PAGES + 1;
            // The pages below `at` in its group, shifted to the top of the word.
            let word = self.group(file, number).cached() << (GROUP_PAGES - bits);
            let ones = u64::from(word.leading_ones()).min(bits);
            at -= ones;
            if ones < bits {
                break;
            }
        }
        (page - at).min(limit)
    }

    /// Number of absent pages in the range.
    pub fn absent(&self, file: FileId, pages: PageRange) -> u64 {
        let absent = |(number, mask)| mask & !self.group(file, number).cached();
        let counts = groups_of(pages).map(|group| u64::from(absent(group).count_ones()));
        counts.sum()
    }

    /// Number of consecutive absent pages at the start of the range.
    pub fn absent_run(&self, file: FileId, pages: PageRange) -> u64 {
        self.run_of(file, pages, |g| !g.cached())
    }

    /// Number of consecutive present pages at the start of the range.
    pub fn present_run(&self, file: FileId, pages: PageRange) -> u64 {
        self.run_of(file, pages, Group::present)
    }

    /// Number of consecutive pages in flight at the start of the range.
    pub fn flight_run(&self, file: FileId, pages: PageRange) -> u64 {
        self.run_of(file, pages, Group::flight)
    }

    /// Cached pages at the start of the range, up to the first absent page, or up to and including the first page with the readahead
    /// mark.
    pub fn look(&self, file: FileId, pages: PageRange) -> Run {
        let mut at = pages.first;
        while at < pages.end {
            let number = at / GROUP_PAGES;
            let shift = at % GROUP_PAGES;
            let group = self.group(file, number);
            let room = (GROUP_PAGES - shift).min(pages.end - at);
            let run = u64::from((group.cached() >> shift).trailing_ones()).min(room);
            let to_mark = u64::from((group.marked() >> shift).trailing_zeros());
            if to_mark < run {
                return Run {
                    pages: at + to_mark + 1 - pages.first,
                    marked: true,
                };
            }
            at += run;
            if run < room {
                break;
            }
        }
        Run {
            pages: at - pages.first,
            marked: false,
        }
    }

    /// The groups in eviction order, the least recently touched first.
    pub fn victims(&self) -> impl Iterator<Item = &Group> + '_ {
        self.evictor
            .victims()
            .map(|slot| &self.groups[slot as usize])
    }

    /// Every group in use, by ascending slot.
    pub fn groups(&self) -> impl Iterator<Item = &Group> + '_ {
        self.groups.iter().filter(|g| !g.is_idle())
    }

    // ---- changes ----

    /// Sets absent pages to "in flight". Before the call, all pages of the range must be absent. `planner` is the open file description
    /// whose policy reads these pages ahead; `None` for a demand read.
    pub fn depart(&mut self, file: FileId, pages: PageRange, planner: Option<OpenId>) {
        self.each_group(file, pages, |cache, slot, mask| {
            let group = &mut cache.groups[slot as usize];
            group.depart(mask, planner.is_some());
            group.planner = planner.or(group.planner);
            let key = (group.file, group.number);
            if let Some(lists) = &mut cache.lists {
                lists.insert(slot, key, mask);
            }
        });
        self.pages += pages.len();
        self.flight += pages.len();
    }

    /// Records that pages have arrived. Before the call, all pages of the range must be in flight.
    pub fn land(&mut self, file: FileId, pages: PageRange) {
        self.each_group(file, pages, |cache, slot, mask| {
            cache.groups[slot as usize].land(mask)
        });
        self.flight -= pages.len();
    }

    /// Records that a demand read touches the pages of `mask` in group `number`. Before the call, all pages of `mask` must be present or
    /// in flight.
    pub fn touch(&mut self, file: FileId, number: u64, mask: u64) -> TouchCounts {
        let Some(slot) = self.find(file, number) else {
            return TouchCounts::default();
        };
        self.evictor.touch(slot);
        if let Some(lists) = &mut self.lists {
            lists.read(slot, mask);
        }
        self.use_pages(slot, mask)
    }

    /// Like [`Cache::touch`], but for a touch through a memory mapping; `code` is true if the mapping is executable.
    pub fn access(&mut self, file: FileId, number: u64, mask: u64, code: bool) -> TouchCounts {
        let Some(slot) = self.find(file, number) else {
            return TouchCounts::default();
        };
        self.evictor.touch(slot);
        self.note_access(slot, mask, code);
        self.use_pages(slot, mask)
    }

    /// Records that fault-around mapped these pages, which are near a touched page.
    pub fn map(&mut self, file: FileId, number: u64, mask: u64, code: bool) {
        if let Some(slot) = self.find(file, number) {
            self.note_access(slot, mask, code);
        }
    }

    /// Records that pages were unmapped.
    pub fn unmap(&mut self, file: FileId, number: u64, mask: u64) {
        if let (Some(slot), Some(lists)) = (self.find(file, number), &mut self.lists) {
            lists.unmapped(slot, mask);
        }
    }

    fn note_access(&mut self, slot: u32, mask: u64, code: bool) {
        if let Some(lists) = &mut self.lists {
            lists.access(slot, mask, code);
        }
    }

    fn use_pages(&mut self, slot: u32, mask: u64) -> TouchCounts {
        let group = &mut self.groups[slot as usize];
        let first = group.touch(mask);
        TouchCounts {
            first,
            late: first & group.flight(),
            planner: group.planner,
        }
    }

    /// The fast path of a hit. If all pages of the range are in one group, present and without a readahead mark, touches them and pins
    /// their group (protects it from eviction).
    pub fn hit(&mut self, file: FileId, pages: PageRange) -> Option<TouchCounts> {
        let number = pages.first / GROUP_PAGES;
        let mask = mask_of(number, pages.first, pages.end);
        let slot = self.find(file, number)?;
        let group = &mut self.groups[slot as usize];
        if group.present() & mask != mask || group.marked() & mask != 0 {
            return None;
        }
        let first = group.touch(mask);
        group.pins += 1;
        let planner = group.planner;
        self.evictor.touch(slot);
        if let Some(lists) = &mut self.lists {
            lists.read(slot, mask);
        }
        Some(TouchCounts {
            first,
            late: 0,
            planner,
        })
    }

    /// Moves the groups of the range to the end of the eviction order, so that they are evicted last.
    pub fn refresh(&mut self, file: FileId, pages: PageRange) {
        for (number, _) in groups_of(pages) {
            if let Some(slot) = self.find(file, number) {
                self.evictor.touch(slot);
            }
        }
    }

    /// Sets the readahead mark of a cached page.
    pub fn set_mark(&mut self, file: FileId, page: u64) {
        if let Some(slot) = self.find(file, page / GROUP_PAGES) {
            self.groups[slot as usize].set_mark(1 << (page % GROUP_PAGES));
        }
    }

    /// Clears the readahead mark of a page.
    pub fn clear_mark(&mut self, file: FileId, page: u64) {
        if let Some(slot) = self.find(file, page / GROUP_PAGES) {
            self.groups[slot as usize].clear_mark(1 << (page % GROUP_PAGES));
        }
    }

    /// Removes pages of one group. Returns `None` if the group is unknown.
    pub fn leave(&mut self, file: FileId, number: u64, mask: u64) -> Option<RemovedGroup> {
        let slot = self.find(file, number)?;
        let group = &mut self.groups[slot as usize];
        let before = *group;
        group.leave(mask);
        if let Some(lists) = &mut self.lists {
            lists.remove(slot, mask);
        }
        self.pages -= u64::from((before.cached() & mask).count_ones());
        self.flight -= u64::from((before.flight() & mask).count_ones());
        self.give_up_if_idle(slot);
        Some(RemovedGroup {
            slot: GroupSlot(slot),
            before,
        })
    }

    /// Chooses about `wanted` present pages that the kernel would evict, except the pages in the mask that `held` returns for their group.
    /// Returns `None` if the cache does not use the eviction order of the kernel's page cache.
    pub fn reclaim(
        &mut self,
        wanted: u64,
        held: impl Fn(FileId, u64) -> u64,
    ) -> Option<Vec<GroupPages>> {
        let (groups, lists) = (&self.groups, self.lists.as_mut()?);
        let name = |slot: u32| (groups[slot as usize].file, groups[slot as usize].number);
        let may_leave = |slot: u32, bit: u32| {
            let group = &groups[slot as usize];
            let is_held = group.pins > 0 && held(FileId(group.file), group.number) >> bit & 1 != 0;
            group.present() >> bit & 1 != 0 && !is_held
        };
        let mut victims: Vec<(u32, u64)> = Vec::new();
        lists.reclaim(wanted, name, may_leave, |slot, bit| {
            match victims.last_mut() {
                Some((last, mask)) if *last == slot => *mask |= 1 << bit,
                _ => victims.push((slot, 1 << bit)),
            }
        });
        let named = victims.into_iter().map(|(slot, mask)| {
            let (file, number) = name(slot);
            GroupPages {
                file: FileId(file),
                number,
                pages: mask,
            }
        });
        Some(named.collect())
    }

    /// Keeps the range's groups in the cache until [`Cache::unpin`] is called; their pages may still be evicted, unless a read holds them.
    pub fn pin(&mut self, file: FileId, pages: PageRange) {
        self.each_group(file, pages, |cache, slot, _| {
            cache.groups[slot as usize].pins += 1
        });
    }

    /// Undoes one [`Cache::pin`] of the same range.
    pub fn unpin(&mut self, file: FileId, pages: PageRange) {
        for (number, _) in groups_of(pages) {
            if let Some(slot) = self.find(file, number) {
                let group = &mut self.groups[slot as usize];
                // A page unpinned too early could be evicted while its bytes are copied.
                group.pins = group.pins.checked_sub(1).expect("no more unpins than pins");
                self.give_up_if_idle(slot);
            }
        }
    }

    /// The record of pages that were read ahead and evicted unused.
    pub fn ghosts(&mut self) -> &mut Ghosts {
        &mut self.ghosts
    }

    // ---- inside ----

    fn find(&self, file: FileId, number: u64) -> Option<u32> {
        let last = self.last.get();
        if let Some(group) = self.groups.get(last as usize)
            && group.number == number
            && group.file == file.0
        {
            return Some(last);
        }
        let slot = self.index.find(&self.groups, file.0, number)?;
        self.last.set(slot);
        Some(slot)
    }

    fn find_or_make(&mut self, file: FileId, number: u64) -> u32 {
        if let Some(slot) = self.find(file, number) {
            return slot;
        }
        let group = Group::new(file.0, number);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.groups[slot as usize] = group;
                slot
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        };
        self.index.insert(&self.groups, slot);
        self.evictor.insert(slot);
        slot
    }

    fn give_up_if_idle(&mut self, slot: u32) {
        if self.groups[slot as usize].is_idle() {
            self.index.remove(&self.groups, slot);
            self.evictor.remove(slot);
            // Reset, so that neither `find` nor `groups` finds the slot under its old file and number.
            self.groups[slot as usize] = Group::new(u32::MAX, u64::MAX);
            self.free.push(slot);
        }
    }

    fn each_group(
        &mut self,
        file: FileId,
        pages: PageRange,
        mut each: impl FnMut(&mut Cache, u32, u64),
    ) {
        for (number, mask) in groups_of(pages) {
            let slot = self.find_or_make(file, number);
            each(self, slot, mask);
        }
    }

    /// Consecutive pages from the start of the range whose bit is set in `word` of their group.
    fn run_of(&self, file: FileId, pages: PageRange, word: impl Fn(&Group) -> u64) -> u64 {
        let mut at = pages.first;
        while at < pages.end {
            let shift = at % GROUP_PAGES;
            let room = (GROUP_PAGES - shift).min(pages.end - at);
            let bits = word(&self.group(file, at / GROUP_PAGES)) >> shift;
            let run = u64::from(bits.trailing_ones()).min(room);
            at += run;
            if run < room {
                break;
            }
        }
        at.min(pages.end) - pages.first
    }
}
