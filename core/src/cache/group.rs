//! A group: the state of up to 64 adjacent pages, one bit for each.
//!
//! The life of a page is one enum, [`Life`]; the bitmaps are its packed form, and the four methods that
//! change them are the four arrows. There is no arrow back: a page that was dropped starts again as absent.
//!
//! ```text
//!            depart            land             touch
//!   absent ─────────► in flight ─────► unused ─────────► used
//!      ▲                  │   └──────────────(landed)──►   │
//!      └──────────────────┴──────── leave (gone) ──────────┘
//! ```

use crate::units::{OpenId, PageRange};

/// Pages in a group: one bit of a `u64` each.
pub const GROUP_PAGES: u64 = 64;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// Absent and not in flight.
    Absent,
    /// Submitted or about to be; `asked` when a read has demanded it already.
    InFlight {
        /// Demanded at least once.
        asked: bool,
    },
    /// Here, never demanded.
    Unused,
    /// Present, demanded at least once.
    Used,
}

/// 64 pages of one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// The group holds pages `64 * number ..` of its file.
    pub number: u64,
    /// Here.
    present: u64,
    flight: u64,
    /// Demanded in this life.
    used: u64,
    /// Brought in by readahead in this life.
    ahead: u64,
    /// Bears the mark.
    mark: u64,
    /// Which file.
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

    /// Present or in flight.
    pub fn cached(&self) -> u64 {
        self.present | self.flight
    }

    /// Here.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// In flight.
    pub fn flight(&self) -> u64 {
        self.flight
    }

    /// Demanded.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Read ahead and not demanded yet.
    pub fn untouched(&self) -> u64 {
        self.ahead & !self.used
    }

    /// Brought in by readahead.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Here, demanded before and without a mark: demanded once more, these change nothing.
    pub fn settled(&self) -> u64 {
        self.present & self.used & !self.mark
    }

    /// Bearing the mark.
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

    /// Absent pages go in flight; demand pages are used from the start.
    pub fn depart(&mut self, mask: u64, ahead: bool) {
        assert_eq!(self.cached() & mask, 0, "only an absent page may depart");
        self.flight |= mask;
        if ahead {
            self.ahead |= mask;
        } else {
            self.used |= mask;
        }
    }

    /// Pages in flight have arrived.
    pub fn land(&mut self, mask: u64) {
        assert_eq!(self.flight & mask, mask, "only a page in flight may land");
        self.flight &= !mask;
        self.present |= mask;
    }

    /// Pages are demanded. Returns those read ahead that no read had demanded before.
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

    /// Pages are gone, with all that was known of them.
    pub fn leave(&mut self, mask: u64) {
        self.present &= !mask;
        self.flight &= !mask;
        self.used &= !mask;
        self.ahead &= !mask;
        self.mark &= !mask;
    }

    /// Sets the mark of cached pages.
    pub fn set_mark(&mut self, mask: u64) {
        self.mark |= mask & self.cached();
    }

    /// Takes the mark away.
    pub fn clear_mark(&mut self, mask: u64) {
        self.mark &= !mask;
    }

    /// Nothing here, in flight or waited for: the group may be given up.
    pub fn is_idle(&self) -> bool {
        self.cached() == 0 && self.pins == 0
    }
}

/// The bits of pages `first..end` that lie in group `number`.
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

/// The number of the group that holds all of `pages`; nothing for no page.
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

    /// A life only goes forward, whatever the order of the arrows.
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
