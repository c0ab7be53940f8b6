//! The eviction order of a kernel's page cache: two lists, with a second chance for used pages.
//!
//! This file only chooses the pages to evict; the state machine (`machine.rs`) drops them.
//!
//! ```text
//!            in ──► newest  inactive  oldest ──► out, unless used since it came here
//!                     ▲  ▲                 │
//!   active grew too   │  └── used once ────┤
//!   large, or what    │                    └── used twice, or code ──► newest  active  oldest
//!   came back is used └───────────────────────────────────────────────────────────────┘
//! ```
//! An evicted page that is read again soon goes straight to the active list. "Soon" means that, since its eviction, fewer pages have been
//! evicted than the active list contains. A read call immediately counts as a use of the page. A touch through a memory mapping counts as
//! a use only when reclaim examines the page, or when the page is unmapped.
//!
//! Source: the kernel's documentation of its lists (admin-guide/mm/concepts, mm/workingset), checked against the number
//! of bytes that a kernel 6.18 read in a control group (decision 0302).

use super::GROUP_PAGES;
use super::links::{Link, List, NONE};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Pages in one GiB. From this size on the active list may be the longer one.
const GIB_PAGES: u64 = 1 << 18;

/// The state of a group's pages, one bit per page.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// On one of the lists.
    listed: u64,
    active: u64,
    /// Used once by a read call, or found used by reclaim.
    referenced: u64,
    /// Touched through a mapping since reclaim last examined the page.
    accessed: u64,
    /// Touched through a mapping of code since then.
    code: u64,
}

/// The eviction order of all pages, as in the kernel's page cache.
pub struct PageLists {
    links: Vec<Link>,
    marks: Vec<Marks>,
    inactive: List,
    active: List,
    gone: GonePages,
    /// Since the last reclaim, a page that returned was put on the active list.
    came_back: bool,
}

/// Pages that left. Each has the age of the lists at that time: the number of pages that had left or become active.
struct GonePages {
    age: u64,
    pages: BTreeMap<(u32, u64), Box<[u64; GROUP_PAGES as usize]>>,
    order: VecDeque<(u32, u64)>,
    most: usize,
}

impl GonePages {
    fn remember(&mut self, (file, number): (u32, u64), bit: u32) {
        self.age += 1;
        let (age, order) = (self.age, &mut self.order);
        let ages = self.pages.entry((file, number)).or_insert_with(|| {
            order.push_back((file, number));
            Box::new([0; GROUP_PAGES as usize])
        });
        ages[bit as usize] = age;
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.pages.remove(&oldest);
        }
    }

    /// The number of pages that left or became active since this page left.
    fn take(&mut self, key: (u32, u64), bit: u32) -> Option<u64> {
        let age = core::mem::take(&mut self.pages.get_mut(&key)?[bit as usize]);
        (age > 0).then(|| self.age - age)
    }
}

impl PageLists {
    /// Creates the lists for a cache of `capacity_pages`.
    pub fn new(capacity_pages: u64) -> PageLists {
        PageLists {
            links: Vec::new(),
            marks: Vec::new(),
            inactive: List::EMPTY,
            active: List::EMPTY,
            gone: GonePages {
                age: 0,
                pages: BTreeMap::new(),
                order: VecDeque::new(),
                most: (capacity_pages / 8).max(64) as usize,
            },
            came_back: false,
        }
    }

    /// Adds pages of a group that enter the cache, in ascending order.
    pub fn insert(&mut self, slot: u32, key: (u32, u64), pages: u64) {
        if self.marks.len() <= slot as usize {
            self.marks.resize(slot as usize + 1, Marks::default());
            let nodes = (slot as usize + 1) * GROUP_PAGES as usize;
            self.links.resize(nodes, Link::NONE);
        }
        for bit in bits(pages) {
            let mark = &mut self.marks[slot as usize];
            for set in [
                &mut mark.active,
                &mut mark.referenced,
                &mut mark.accessed,
                &mut mark.code,
            ] {
                *set &= !(1 << bit);
            }
            mark.listed |= 1 << bit;
            let back = self.gone.take(key, bit);
            let is_active = back.is_some_and(|away| away <= self.active.len);
            if is_active {
                self.gone.age += 1;
                self.came_back = true;
            }
            self.push(slot * GROUP_PAGES as u32 + bit, is_active);
        }
    }

    /// Removes pages of a group that have left the cache.
    pub fn remove(&mut self, slot: u32, pages: u64) {
        let Some(listed) = self.marks.get(slot as usize).map(|mark| mark.listed) else {
            return;
        };
        for bit in bits(pages & listed) {
            self.unlink(slot * GROUP_PAGES as u32 + bit);
            self.marks[slot as usize].listed &= !(1 << bit);
        }
    }

    /// Records that a read call reads pages of a group.
    pub fn read(&mut self, slot: u32, pages: u64) {
        let Some(mark) = self.marks.get_mut(slot as usize) else {
            return;
        };
        let pages = pages & mark.listed;
        let again = pages & mark.referenced & !mark.active;
        mark.referenced |= pages;
        for bit in bits(again) {
            self.activate(slot * GROUP_PAGES as u32 + bit);
        }
    }

    /// Records that pages of a group are touched through a mapping, or are mapped by fault-around, which has the same effect.
    pub fn access(&mut self, slot: u32, pages: u64, code: bool) {
        if let Some(mark) = self.marks.get_mut(slot as usize) {
            mark.accessed |= pages & mark.listed;
            if code {
                mark.code |= pages & mark.listed;
            }
        }
    }

    /// Records that pages of a group were unmapped: each page that was touched through the mapping counts as used once more.
    pub fn unmapped(&mut self, slot: u32, pages: u64) {
        let Some(mark) = self.marks.get_mut(slot as usize) else {
            return;
        };
        let used = pages & mark.accessed;
        mark.accessed &= !used;
        mark.code &= !used;
        self.read(slot, used);
    }

    /// Chooses about `wanted` pages to evict. A page is chosen only if `may_leave` returns true for it. For each chosen page, `each` is
    /// called with the slot of its group and the page's bit in the group.
    pub fn reclaim(
        &mut self,
        wanted: u64,
        name: impl Fn(u32) -> (u32, u64),
        may_leave: impl Fn(u32, u32) -> bool,
        mut each: impl FnMut(u32, u32),
    ) {
        let came_back = core::mem::take(&mut self.came_back);
        // Each page is examined at most three times: found used, found used again, evicted.
        let mut looks = 3 * (self.inactive.len + self.active.len) + 3;
        let (mut left, mut owed) = (wanted, 0);
        while left > 0 && looks > 0 {
            looks -= 1;
            if came_back || self.is_inactive_low() {
                owed += self.active.len;
                while owed >= self.inactive.len.max(1) && self.active.len > 0 && looks > 0 {
                    owed -= self.inactive.len.max(1);
                    looks -= 1;
                    self.deactivate_oldest();
                }
            }
            let node = self.inactive.oldest;
            if node == NONE {
                owed += self.active.len + 1;
                continue;
            }
            let (slot, bit) = (node / GROUP_PAGES as u32, node % GROUP_PAGES as u32);
            let mark = &mut self.marks[slot as usize];
            let own = 1 << bit;
            let (was_used, was_seen, code) = (
                mark.accessed & own != 0,
                mark.referenced & own != 0,
                mark.code & own != 0,
            );
            mark.accessed &= !own;
            mark.code &= !own;
            if was_used && (was_seen || code) {
                self.activate(node);
                // Found used: if the page returns to this list and is used again, it becomes active at once.
                self.marks[slot as usize].referenced |= own;
            } else if was_used || !may_leave(slot, bit) {
                if was_used {
                    mark.referenced |= own;
                }
                self.unlink(node);
                self.push(node, false);
            } else {
                self.unlink(node);
                self.marks[slot as usize].listed &= !own;
                self.gone.remember(name(slot), bit);
                each(slot, bit);
                left -= 1;
            }
        }
    }

    /// The inactive list should be the longer one; with many GiB it may be shorter.
    fn is_inactive_low(&self) -> bool {
        let gib = (self.inactive.len + self.active.len) / GIB_PAGES;
        let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
        self.inactive.len * ratio < self.active.len
    }

    /// Code that was used stays on the active list for another round.
    fn deactivate_oldest(&mut self) {
        let node = self.active.oldest;
        let (slot, own) = (node / GROUP_PAGES as u32, 1 << (node % GROUP_PAGES as u32));
        let mark = &mut self.marks[slot as usize];
        let stays = mark.accessed & mark.code & own != 0;
        mark.accessed &= !own;
        mark.code &= !own;
        self.unlink(node);
        self.push(node, stays);
    }

    fn activate(&mut self, node: u32) {
        self.unlink(node);
        let own = 1 << (node % GROUP_PAGES as u32);
        self.marks[(node / GROUP_PAGES as u32) as usize].referenced &= !own;
        self.gone.age += 1;
        self.push(node, true);
    }

    fn push(&mut self, node: u32, active: bool) {
        let own = 1 << (node % GROUP_PAGES as u32);
        let mark = &mut self.marks[(node / GROUP_PAGES as u32) as usize];
        let list = if active {
            mark.active |= own;
            &mut self.active
        } else {
            mark.active &= !own;
            &mut self.inactive
        };
        list.push(&mut self.links, node);
    }

    fn unlink(&mut self, node: u32) {
        let own = 1 << (node % GROUP_PAGES as u32);
        let mark = &self.marks[(node / GROUP_PAGES as u32) as usize];
        let list = if mark.active & own != 0 {
            &mut self.active
        } else {
            &mut self.inactive
        };
        list.remove(&mut self.links, node);
    }
}

/// The set bits, from the lowest.
fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reclaims pages, and returns the bits that left. All pages are in one group.
    fn out(lists: &mut PageLists, wanted: u64) -> Vec<u32> {
        let mut left = Vec::new();
        lists.reclaim(wanted, |_| (0, 0), |_, _| true, |_, bit| left.push(bit));
        left
    }

    fn lists(pages: u32) -> PageLists {
        let mut lists = PageLists::new(64);
        lists.insert(0, (0, 0), (1 << pages) - 1);
        lists
    }

    #[test]
    fn what_was_not_used_leaves_in_the_order_in_which_it_came() {
        let mut lists = lists(6);
        lists.remove(0, 1 << 1);
        assert_eq!(out(&mut lists, 2), [0, 2]);
        assert_eq!(out(&mut lists, 9), [3, 4, 5]);
        assert_eq!(out(&mut lists, 1), []);
    }

    #[test]
    fn a_touch_is_one_more_round_and_a_second_one_makes_active() {
        let mut lists = lists(4);
        lists.access(0, 0b0001, false);
        assert_eq!(out(&mut lists, 1), [1]);
        lists.access(0, 0b0001, false);
        assert_eq!(out(&mut lists, 2), [2, 3]);
        assert_eq!(
            (lists.active.len, lists.inactive.len),
            (0, 1),
            "seen used once"
        );
        lists.access(0, 0b0001, false);
        lists.insert(0, (0, 0), 0b110000);
        assert_eq!(out(&mut lists, 1), [4]);
        assert_eq!((lists.active.len, lists.inactive.len), (1, 1));
    }

    #[test]
    fn code_is_active_when_it_was_touched_once_and_two_reads_are_enough() {
        let mut lists = lists(5);
        lists.access(0, 0b00001, true);
        lists.read(0, 0b00010);
        lists.read(0, 0b00010);
        lists.read(0, 0b00100);
        assert_eq!(out(&mut lists, 2), [2, 3]);
        assert_eq!((lists.active.len, lists.inactive.len), (2, 1));
        // The active list is the longer one, so its oldest page moves to the inactive list, unless it is code that was
        // touched again.
        lists.access(0, 0b00001, true);
        assert_eq!(out(&mut lists, 1), [4]);
    }

    #[test]
    fn pages_that_return_soon_are_active() {
        let mut lists = lists(10);
        lists.read(0, 0b11_1000_0000);
        lists.read(0, 0b11_1000_0000);
        assert_eq!(out(&mut lists, 4), [0, 1, 2, 3]);
        // Three other pages left after page 0, and three are active.
        lists.insert(0, (0, 0), 0b1001);
        assert_eq!(lists.marks[0].active & 0b1111, 0b1001);
        let mut lists = self::lists(8);
        assert_eq!(out(&mut lists, 4), [0, 1, 2, 3]);
        lists.insert(0, (0, 0), 0b0001);
        assert_eq!(lists.active.len, 0, "nothing is active to measure it by");
    }

    #[test]
    fn touches_count_when_the_mapping_goes() {
        let mut lists = lists(3);
        for _ in 0..2 {
            lists.access(0, 0b001, false);
            lists.unmapped(0, 0b111);
        }
        assert_eq!((lists.active.len, lists.inactive.len), (1, 2));
    }
}
