//! `linux-6.18`: file readahead of the current kernel, page by page, with exact cache probes.
//!
//! A miss (`sync`) starts a window, a marked page (`async`) starts the next one. State is one window for each
//! open description; streams it has lost are found again from the pages they left in the cache (context).
//!
//! ```text
//!   start                                 start+size
//!     ├───────────────────┬───────────────────┤├──── next window ───►
//!                         ▲◄──── async ──────►│
//!                       mark: its first demand touch plans the next window
//! ```
//!
//! Source: spec linux-readahead section 4 (checked against a running 6.18 kernel, 625,590 decisions), here as on
//! a file system without large folios: every window ends on a multiple of four pages, marks are exact. Not here:
//! folio placement and the kernel's cursor lag on large folios (4.9); fault-around, which belongs to the mapping.

use super::{
    Ask, Info, Outcome, Param, Plan, Policy, Scope, Unit, Wants,
    ondemand::{self, MAX, MMAP_LOTSAMISS, PAGE, SIZES, clip, hinted, hole_after, init, next, wanted},
};
use crate::event::{Advice, Mapping};
use alloc::boxed::Box;

/// Where the miss counter stops (4.10).
const MMAP_MISS_TOP: u64 = 1000;

/// The file-system folio order that async windows are aligned to without large folios: 0, plus 2 for each window (4.5).
const ALIGN_ORDER: u32 = 2;

/// State of one open description, in pages.
#[derive(Clone, Debug)]
struct Linux {
    /// The device's maximum, to which hints go back.
    device_max: u64,
    /// The maximum now.
    max: u64,
    /// What the hardware likes to get in one command.
    io: u64,
    start: u64,
    size: u64,
    async_size: u64,
    /// Byte where the last read ended; nothing read yet is none.
    prev_pos: Option<u64>,
    mmap_miss: u64,
    random: bool,
}

impl Linux {
    /// 4.3: a request larger than the window may have a window of its own size, up to what the hardware likes.
    fn max_for(&self, req: u64) -> u64 {
        if req > self.max && self.io > self.max { req.min(self.io) } else { self.max }
    }

    /// 4.4: the page at `i` is absent and `req` pages from it are wanted.
    fn sync(&mut self, ask: &Ask<'_>, i: u64, req: u64, plan: &mut Plan) {
        if self.max == 0 {
            return self.force(ask, i, 1, plan);
        }
        if self.random {
            return self.force(ask, i, req, plan);
        }
        let max = self.max_for(req);
        let near = self.prev_pos.is_some_and(|p| i.checked_sub(p / PAGE).is_some_and(|gap| gap <= 1));
        if i == 0 || req > max || near {
            let size = init(req, max);
            let async_size = if size > req { size - req } else { size / 2 };
            return self.window(ask, (i, size, async_size), plan);
        }
        let (history, from_start) = history(ask, i, max);
        if history <= req {
            return fetch(ask, i, req, 0, plan);
        }
        let history = if from_start { 2 * history } else { history };
        self.window(ask, (i, (history + req).min(max), 1), plan);
    }

    /// 4.5: the page at `x` bears the mark, and `req` pages from it are wanted.
    fn follow(&mut self, ask: &Ask<'_>, x: u64, req: u64, plan: &mut Plan) {
        if self.max == 0 {
            plan.keep_mark = true;
            return;
        }
        let max = self.max_for(req);
        let (start, size) = if x == (self.start + self.size).wrapping_sub(self.async_size) {
            (self.start + self.size, self.size.max(next(self.size, max)))
        } else {
            let Some(hole) = hole_after(ask, x, max) else { return };
            (hole, next(hole - x + req, max))
        };
        // The end of the window goes down to a multiple of the alignment, unless nothing would be left.
        let align = 1 << ALIGN_ORDER.min(max.trailing_zeros());
        let end = (start + size) / align * align;
        let size = if end > start { end - start } else { size };
        self.window(ask, (start, size, size), plan);
    }

    /// 4.6 without large folios: remember the window and read it.
    fn window(&mut self, ask: &Ask<'_>, (start, size, async_size): (u64, u64, u64), plan: &mut Plan) {
        (self.start, self.size, self.async_size) = (start, size, async_size);
        fetch(ask, start, size, async_size, plan);
    }

    /// 4.7: exactly this, in large pieces, without state or mark.
    fn force(&self, ask: &Ask<'_>, i: u64, nr: u64, plan: &mut Plan) {
        ondemand::force(ask, i, nr.min(self.io.max(self.max)), plan);
    }
}

/// 4.6, REST: `nr` pages from `k`, clipped to the file; the mark stands `lookahead` pages before the end.
fn fetch(ask: &Ask<'_>, k: u64, nr: u64, lookahead: u64, plan: &mut Plan) {
    // Clipping shortens the window but not the lookahead, so the mark moves to the front, and away if beyond it.
    let nr = clip(ask, k, nr);
    let mark = (1..=nr).contains(&lookahead).then(|| k + nr - lookahead);
    ondemand::fetch(ask, k, nr, mark, plan);
}

/// Cached pages just before page `i`, and whether they reach back to the start of the file (2.4, 4.4).
fn history(ask: &Ask<'_>, i: u64, max: u64) -> (u64, bool) {
    let found = ondemand::history(ask, i, max);
    // The kernel's count is one short when all it looked at is cached, and it has not seen the start then.
    if found == max { (max - 1, false) } else { (found, found == i) }
}

impl Policy for Linux {
    fn wants(&self) -> Wants {
        Wants { read_end: true, outcome: true, ..Wants::default() }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        let (i, req) = wanted(ask);
        self.sync(ask, i, req, plan);
    }

    fn on_mark(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        let (i, req) = wanted(ask);
        self.follow(ask, i, req, plan);
    }

    fn on_read_end(&mut self, end: u64) {
        self.prev_pos = Some(end);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, map: &Mapping, plan: &mut Plan) {
        let p = ask.at / PAGE;
        if map.advice == Advice::Random || self.max == 0 {
            return;
        }
        if map.advice == Advice::Sequential {
            return self.sync(ask, p, self.max, plan);
        }
        self.mmap_miss = (self.mmap_miss + 1).min(MMAP_MISS_TOP);
        if self.mmap_miss > MMAP_LOTSAMISS {
            return;
        }
        if map.executable {
            let end = (p + self.max).min(map.range.end().div_ceil(PAGE));
            return self.window(ask, (p, end.saturating_sub(p), 0), plan);
        }
        self.window(ask, (p.saturating_sub(self.max / 2), self.max, self.max / 4), plan);
    }

    fn on_fault_hit(&mut self, ask: &Ask<'_>, map: &Mapping, marked: bool, plan: &mut Plan) {
        if map.advice == Advice::Random || self.max == 0 {
            plan.keep_mark = true;
            return;
        }
        self.mmap_miss = self.mmap_miss.saturating_sub(1);
        if marked {
            self.follow(ask, ask.at / PAGE, self.max, plan);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, plan: &mut Plan) {
        match advice {
            Advice::Normal => (self.max, self.random) = (self.device_max, false),
            Advice::Sequential => (self.max, self.random) = (2 * self.device_max, false),
            Advice::Random => self.random = true,
            Advice::WillNeed => {
                if let Some((first, pages)) = hinted(ask) {
                    self.force(ask, first, pages, plan);
                }
            }
            Advice::DontNeed => {}
        }
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        // 4.8: an error that a reader had to see makes the window smaller for good.
        if let Outcome::Failed { demand: true, .. } = outcome {
            self.max /= 4;
        }
    }
}

/// See the head of this file.
pub static INFO: Info = Info {
    name: "linux-6.18",
    summary: "the current kernel's on-demand and context readahead, page by page",
    origin: "Linux 6.18 mm/readahead, as specified from its tracepoints",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[
        MAX,
        Param {
            key: "io",
            unit: Unit::Bytes,
            default: "1280K",
            range: SIZES,
            help: "max_sectors_kb: a larger request may have it whole",
        },
    ],
    build: |v| {
        Box::new(Linux {
            device_max: v[0] / PAGE,
            max: v[0] / PAGE,
            io: v[1] / PAGE,
            start: 0,
            size: 0,
            async_size: 0,
            prev_pos: None,
            mmap_miss: 0,
            random: false,
        })
    },
};
