//! The decisions of the current kernel at a miss, at a readahead mark, at a page fault and at a hint, with the state of one open file
//! description.
//!
//! A decision returns an answer, [`Todo`]. The caller applies the answer, and passes back the folio order that it used
//! ([`KernelReader::placed`]). So this code is shared by the policy with folios, the policy without folios, and the check against
//! recordings of a kernel. This module places no folios and sees no data.
//!
//! ```text
//!   start                                 start+size
//!     ├───────────────────┬───────────────────┤├──── next window ───►
//!                         ▲◄──── async ──────►│
//!                       mark: its first demand touch plans the next window
//! ```
//!
//! Source: docs/spec/linux-readahead.md 4.2 to 4.10. All positions and lengths are in pages of 4 KiB, except `prev_pos`, which is in
//! bytes.

use super::{
    Ask, Why,
    folios::{Folio, FolioWindow, ReadaheadCall, Sight, counted},
    linux_6_18_todo::Todo,
    ondemand::{self, MMAP_LOTSAMISS, PAGE, init, next},
};
use crate::event::{Advice, Mapping};
use crate::units::PageRange;

/// Maximum of the miss counter (4.10).
const MMAP_MISS_TOP: u64 = 1000;

/// An async window aligns its end to the order of the previous window plus this (4.5).
const ORDER_STEP: u32 = 2;

/// Pages and order of a huge page, which a mapping with huge-page advice reads as a unit (4.10 a).
const HUGE: (u64, u32) = (512, 9);

/// The kernel's readahead state of one open file description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReader {
    /// The device's maximum, which hints restore.
    device_max: u64,
    /// The current maximum.
    pub max: u64,
    /// The hardware's preferred maximum for one command.
    pub io: u64,
    /// The latest window.
    pub window: FolioWindow,
    /// Byte where the last read ended; `None` if nothing was read yet.
    pub prev_pos: Option<u64>,
    /// Faults that missed, minus faults that hit.
    pub mmap_miss: u64,
    random: bool,
    /// The rule behind the latest answer, until the caller takes it.
    pub why: Option<Why>,
}

/// A page fault, with the data that the policy needs to decide about it.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The page of the file.
    pub page: u64,
    /// The page after the last page of the mapping, in the file.
    pub map_end: u64,
    /// The advice of the mapping: normal, sequential or random.
    pub advice: Advice,
    /// The mapping asks for huge pages.
    pub huge: bool,
    /// Mapped for execution.
    pub executable: bool,
}

impl KernelReader {
    /// Creates the state of a new open file description, in pages: `max` is the readahead limit of the device, and `io` the maximum that
    /// the hardware prefers for one command.
    #[must_use]
    pub fn new(max: u64, io: u64) -> KernelReader {
        let window = FolioWindow::default();
        KernelReader {
            device_max: max,
            max,
            io,
            window,
            prev_pos: None,
            mmap_miss: 0,
            random: false,
            why: None,
        }
    }

    /// 4.3: if a request is larger than the window, the window may be as large as the request, up to the hardware's
    /// largest request.
    fn max_for(&self, req: u64) -> u64 {
        if req > self.max && self.io > self.max {
            req.min(self.io)
        } else {
            self.max
        }
    }

    /// Decides about a miss: page `i` is absent, and `req` pages from page `i` on are requested (docs/spec/linux-readahead.md 4.4).
    pub fn sync(&mut self, sight: &impl Sight, i: u64, req: u64) -> Todo {
        sight.called(ReadaheadCall {
            hit: false,
            index: i,
            req,
        });
        if self.max == 0 || self.random {
            self.why = Some(if self.max == 0 {
                Why::Off
            } else {
                Why::HintRandom
            });
            return self.force(i, if self.max == 0 { 1 } else { req });
        }
        let max = self.max_for(req);
        let near = self
            .prev_pos
            .is_some_and(|p| i.checked_sub(p / PAGE).is_some_and(|gap| gap <= 1));
        if i == 0 || req > max || near {
            let size = init(req, max);
            let async_size = if size > req { size - req } else { size / 2 };
            let follows = if near { Why::Sequential } else { Why::Large };
            self.why = Some(if i == 0 { Why::FileStart } else { follows });
            return self.place(FolioWindow {
                start: i,
                size,
                async_size,
                order: 0,
            });
        }
        let (history, from_start) = sight.history(i, max);
        self.why = Some(if history <= req {
            Why::NoHistory
        } else {
            Why::Context
        });
        if history <= req {
            return Todo::Fetch { i, nr: req };
        }
        let history = if from_start { 2 * history } else { history };
        self.place(FolioWindow {
            start: i,
            size: (history + req).min(max),
            async_size: 1,
            order: 0,
        })
    }

    /// Decides about a read that reaches the readahead mark: `folio` has the mark, and `req` pages from its page `x` are requested
    /// (docs/spec/linux-readahead.md 4.5).
    pub fn follow(&mut self, sight: &impl Sight, folio: Folio, x: u64, req: u64) -> Todo {
        if self.max == 0 {
            self.why = Some(Why::Off);
            return Todo::Keep;
        }
        sight.called(ReadaheadCall {
            hit: true,
            index: x,
            req,
        });
        let max = self.max_for(req);
        let FolioWindow {
            start,
            size,
            async_size,
            order,
        } = self.window;
        let expected = (start + size).wrapping_sub(async_size) >> folio.order << folio.order;
        let (start, size) = if x == expected {
            self.why = Some(Why::NextWindow);
            (start + size, size.max(next(size, max)))
        } else {
            let hole = sight.hole(x + 1, max);
            self.why = Some(if hole.is_some() {
                Why::FoundMark
            } else {
                Why::AllCached
            });
            let Some(hole) = hole else {
                return Todo::Nothing;
            };
            (hole, next(hole - x + req, max))
        };
        let order = order + ORDER_STEP;
        // The end of the window is rounded down to a multiple of the alignment, unless nothing would be left.
        let align = order.min(max.trailing_zeros());
        let end = (start + size) >> align << align;
        let size = if end > start { end - start } else { size };
        self.place(FolioWindow {
            start,
            size,
            async_size: size,
            order,
        })
    }

    /// Decides about a fault on an absent page (docs/spec/linux-readahead.md 4.10, row 3).
    pub fn fault(&mut self, sight: &impl Sight, touch: &Touch) -> Todo {
        let p = touch.page;
        if touch.huge {
            let (pages, order) = HUGE;
            let window = FolioWindow {
                size: 2 * pages,
                async_size: pages,
                order,
                ..self.window
            };
            (self.window, self.why) = (window, Some(Why::Around));
            return Todo::Place {
                at: p / pages * pages,
                window,
            };
        }
        // Advice RANDOM does not stop readahead in an executable mapping (docs/spec/linux-readahead.md 4.10, row b).
        if (touch.advice == Advice::Random && !touch.executable) || self.max == 0 {
            self.why = Some(if self.max == 0 {
                Why::Off
            } else {
                Why::HintRandom
            });
            return Todo::Nothing;
        }
        if touch.advice == Advice::Sequential {
            return self.sync(sight, p, self.max);
        }
        self.mmap_miss = (self.mmap_miss + 1).min(MMAP_MISS_TOP);
        let around = if touch.executable {
            Why::Code
        } else {
            Why::Around
        };
        self.why = Some(if self.mmap_miss > MMAP_LOTSAMISS {
            Why::ManyMisses
        } else {
            around
        });
        if self.mmap_miss > MMAP_LOTSAMISS {
            return Todo::Nothing;
        }
        if touch.executable {
            let size = (p + self.max).min(touch.map_end).saturating_sub(p);
            return self.place(FolioWindow {
                start: p,
                size,
                async_size: 0,
                order: 0,
            });
        }
        let start = p.saturating_sub(self.max / 2);
        self.place(FolioWindow {
            start,
            size: self.max,
            async_size: self.max / 4,
            order: 0,
        })
    }

    /// Decides about a fault on a cached page; `marked` is the folio of the page, if it has the readahead mark
    /// (docs/spec/linux-readahead.md 4.10, row 2).
    pub fn fault_hit(&mut self, sight: &impl Sight, touch: &Touch, marked: Option<Folio>) -> Todo {
        if touch.advice == Advice::Random || self.max == 0 {
            return Todo::Keep;
        }
        self.mmap_miss = self.mmap_miss.saturating_sub(1);
        marked.map_or(Todo::Nothing, |folio| {
            self.follow(sight, folio, touch.page, self.max)
        })
    }

    /// Records that a fault has mapped this many cached pages (docs/spec/linux-readahead.md 4.10, row 1).
    pub fn mapped(&mut self, pages: u64) {
        self.mmap_miss = self.mmap_miss.saturating_sub(pages);
    }

    /// Applies a hint; `hinted` are the pages of a WILLNEED hint (docs/spec/linux-readahead.md 4.8).
    pub fn hint(&mut self, advice: Advice, hinted: Option<PageRange>) -> Todo {
        match advice {
            Advice::Normal => (self.max, self.random) = (self.device_max, false),
            Advice::Sequential => (self.max, self.random) = (2 * self.device_max, false),
            Advice::Random => self.random = true,
            Advice::WillNeed => {
                if let Some(pages) = hinted {
                    self.why = Some(Why::Asked);
                    return self.force(pages.first, pages.len());
                }
            }
            Advice::DontNeed => {}
        }
        Todo::Nothing
    }

    /// Makes windows smaller until the next hint, because a read has failed (docs/spec/linux-readahead.md 4.8).
    pub fn read_error(&mut self) {
        self.max /= 4;
    }

    /// Records the folio order that was used for the latest window, because the folio order of the next window is derived from it
    /// (docs/spec/linux-readahead.md 4.6).
    pub fn placed(&mut self, order: u32) {
        self.window.order = order;
    }

    /// Remembers the window and asks to place it.
    fn place(&mut self, window: FolioWindow) -> Todo {
        self.window = window;
        Todo::Place {
            at: window.start,
            window,
        }
    }

    /// 4.7: exactly these pages, without state or mark, up to a limit.
    fn force(&self, i: u64, nr: u64) -> Todo {
        Todo::Force {
            i,
            nr: nr.min(self.io.max(self.max)),
        }
    }
}

/// The cache as the policy sees it, in pages.
impl Sight for &Ask<'_> {
    fn is_cached(&self, page: u64) -> bool {
        self.probe.is_cached(page * PAGE)
    }

    fn hole(&self, from: u64, limit: u64) -> Option<u64> {
        self.probe
            .next_hole(from * PAGE, limit * PAGE)
            .map(|at| at / PAGE)
    }

    fn history(&self, i: u64, limit: u64) -> (u64, bool) {
        counted(ondemand::history(self, i, limit), i, limit)
    }
}

/// The page fault about which the state machine asks the policy.
pub fn touch_of(ask: &Ask<'_>, map: &Mapping) -> Touch {
    Touch {
        page: ask.at / PAGE,
        map_end: map.range.end().div_ceil(PAGE),
        advice: map.advice,
        huge: false,
        executable: map.executable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::folios_index::Folios;

    /// Section 4.10: after many misses, it takes 900 hits until a miss reads around the page again.
    #[test]
    fn the_miss_counter_stops_at_a_thousand() {
        let mut reader = KernelReader::new(32, 320);
        let advice = Advice::Normal;
        let touch = Touch {
            page: 7,
            map_end: 99,
            advice,
            huge: false,
            executable: false,
        };
        let nothing = &Folios::default();
        for _ in 0..2000 {
            reader.fault(&nothing, &touch);
        }
        (0..900).for_each(|_| assert_eq!(reader.fault_hit(&nothing, &touch, None), Todo::Nothing));
        assert_eq!(reader.fault(&nothing, &touch), Todo::Nothing);
        (0..2).for_each(|_| assert_eq!(reader.fault_hit(&nothing, &touch, None), Todo::Nothing));
        let window = FolioWindow {
            start: 0,
            size: 32,
            async_size: 8,
            order: 0,
        };
        assert_eq!(
            reader.fault(&nothing, &touch),
            Todo::Place { at: 0, window }
        );
    }
}
