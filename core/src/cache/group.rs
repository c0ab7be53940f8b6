//! A group: the state of up to 64 adjacent pages, as bitmaps with one bit for each page.
//!
//! The enum [`Life`] lists the states of one page; the bitmaps of a group store this state for each of its pages. Each arrow of the
//! drawing below is a method that changes the bitmaps. A dropped page is absent again.
//!
//! ```text
//!            depart            land             touch
//!   absent ─────────► in flight ─────► unused ─────────► used
//!      ▲                  │   └──────────────(landed)──►   │
//!      └──────────────────┴──────── leave (gone) ──────────┘
//! ```

use crate::units::{OpenId, PageRange};

/// Number of pages in a group: one for each bit of a `u64`.
pub const GROUP_PAGES: u64 = 64;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// Neither present nor in flight.
    Absent,
    /// Submitted, or about to be submitted; `asked`: a read has demanded the page already.
    InFlight {
        /// Demanded at least once.
        asked: bool,
    },
    /// Present, never demanded.
    Unused,
    /// Present, demanded at least once.
    Used,
}

/// The state of 64 adjacent pages of one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// The group holds pages `64 * number ..` of its file.
    pub number: u64,
    /// Present pages.
    present: u64,
    flight: u64,
    /// Pages that were demanded since they came in.
    used: u64,
    /// Pages that were fetched by readahead.
    ahead: u64,
    /// Marked pages.
    mark: u64,
    /// The file.
    pub file: u32,
    /// Reads that wait on pages of this group or hold a lease on them.
    pub pins: u32,
    /// The open description whose policy last read ahead here.
    pub planner: Option<OpenId>,
}

impl Group {
    /// An empty group.
    pub fn new(file: u32, number: u64) -> Group {
        Group {
            file,
            number,
            ..Group::default()
        }
    }

    /// Pages that are present or in flight.
    pub fn cached(&self) -> u64 {
        self.present | self.flight
    }

    /// Present pages.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The pages in flight, as a mask.
    pub fn flight(&self) -> u64 {
        self.flight
    }

    /// Demanded pages.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Pages that were read ahead and not demanded yet.
    pub fn untouched(&self) -> u64 {
        self.ahead & !self.used
    }

    /// Pages that were fetched by readahead.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Pages that are present, were read on demand and have no readahead mark: reading them again changes nothing.
    pub fn settled(&self) -> u64 {
        self.present & self.used & !self.mark
    }

    /// Marked pages.
    pub fn marked(&self) -> u64 {
        self.mark
    }

    /// The state of one page.
    pub fn life(&self, page: u64) -> Life {
        let bit = 1u64 << (page % GROUP_PAGES);
        match (
            self.present & bit != 0,
            self.flight & bit != 0,
            self.used & bit != 0,
        ) {
            (false, false, _) => Life::Absent,
            (false, true, asked) => Life::InFlight { asked },
            (true, _, false) => Life::Unused,
            (true, _, true) => Life::Used,
        }
    }

    /// Sets absent pages to "in flight"; pages that are fetched for a demand read are counted as used from the start.
    pub fn depart(&mut self, mask: u64, ahead: bool) {
        assert_eq!(self.cached() & mask, 0, "only an absent page may depart");
        self.flight |= mask;
        if ahead {
            self.ahead |= mask;
        } else {
            self.used |= mask;
        }
    }

    /// Records that pages in flight have arrived.
    pub fn land(&mut self, mask: u64) {
        assert_eq!(self.flight & mask, mask, "only a page in flight may land");
        self.flight &= !mask;
        self.present |= mask;
    }

    /// Records that a demand read touches these pages. Returns the pages that were read ahead and are now touched for the first time.
    pub fn touch(&mut self, mask: u64) -> u64 {
        assert_eq!(
            self.cached() & mask,
            mask,
            "only a cached page may be touched"
        );
        let first = self.untouched() & mask;
        self.used |= mask;
        first
    }

    /// Removes pages and their state.
    pub fn leave(&mut self, mask: u64) {
        self.present &= !mask;
        self.flight &= !mask;
        self.used &= !mask;
        self.ahead &= !mask;
        self.mark &= !mask;
    }

    /// Sets the readahead mark of cached pages.
    pub fn set_mark(&mut self, mask: u64) {
        self.mark |= mask & self.cached();
    }

    /// Clears the readahead mark of pages.
    pub fn clear_mark(&mut self, mask: u64) {
        self.mark &= !mask;
    }

    /// Whether the slot of the group can be freed: no page is present or in flight, and the group is not pinned (protected from eviction).
    pub fn is_idle(&self) -> bool {
        self.cached() == 0 && self.pins == 0
    }
}

/// The part of the pages `first..end` that is in group `number`, as a mask.
pub fn mask_of(number: u64, first: u64, end: u64) -> u64 {
    let base = number * GROUP_PAGES;
    let from = first.saturating_sub(base).min(GROUP_PAGES);
    let to = end.saturating_sub(base).min(GROUP_PAGES);
    if from >= to {
        return 0;
    }
    let count = to - from;
    (u64::MAX >> (GROUP_PAGES - count)) << from
}

/// The groups of `pages`, each by its number and with its part of them as a mask.
pub fn groups_of(pages: PageRange) -> impl Iterator<Item = (u64, u64)> {
    let PageRange { first, end } = pages;
    let last = if pages.is_empty() {
        0
    } else {
        end.div_ceil(GROUP_PAGES)
    };
    (first / GROUP_PAGES..last).map(move |number| (number, mask_of(number, first, end)))
}

/// The number of the group that contains all of `pages`; `None` if `pages` is empty or spans two groups.
#[must_use]
pub fn one_group(pages: PageRange) -> Option<u64> {
    let number = pages.first / GROUP_PAGES;
    (!pages.is_empty() && (pages.end - 1) / GROUP_PAGES == number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(mask_of(0, 0, 64), u64::MAX);
        assert_eq!(mask_of(0, 63, 65), 1 << 63);
        assert_eq!(mask_of(1, 63, 65), 1);
        assert_eq!(mask_of(2, 0, 128), 0);
        assert_eq!(mask_of(1, 70, 70), 0);
        assert_eq!(mask_of(1, 0, 1 << 60), u64::MAX);
    }

    /// The life of a page only moves forward, in whatever order the methods are called.
    #[test]
    fn lives_move_forward() {
        let mut group = Group::default();
        let mut lives = alloc::vec![group.life(3)];
        group.depart(0b1000, true);
        lives.push(group.life(3));
        group.touch(0b1000);
        lives.push(group.life(3));
        group.land(0b1000);
        lives.push(group.life(3));
        assert!(lives.windows(2).all(|w| w[0] < w[1]), "{lives:?}");
        group.leave(0b1000);
        assert_eq!(group.life(3), Life::Absent);
        assert!(group.is_idle());
    }
}
