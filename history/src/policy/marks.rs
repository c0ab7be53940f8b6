//! The code that the policies `linux-2.6.23` to `linux-3.12` share: on-demand readahead with a mark. Each version adds its own
//! rule. This file is not a policy.
//!
//! Each version implements [`Rule::demand`]: its arguments are a page that is absent or has the mark, and the number of pages requested
//! from there on; it returns what to read. This module holds the code that calls [`Rule::demand`], and handles hints and page faults.
//!
//! ```text
//!   start                                 start+size
//!     ├───────────────────┬───────────────────┤├──── next window ───►
//!                         ▲◄──── async ──────►│
//!                       mark: its first demand touch plans the next window
//! ```
//!
//! Source: docs/spec/linux-readahead.md 2 (introduction), 2.1 and 2.5. This code does not limit readahead if memory is short or the device
//! is congested, because a policy has no information about this.

use foreread_core::event::{Advice, Mapping};
use foreread_core::policy::{
    Answer, Ask, Policy, Wants, Why,
    ondemand::{FORCE_PIECE, MMAP_LOTSAMISS, PAGE, clip, fetch, hinted, init, next, wanted},
};

pub trait Rule: Send {
    /// How the hint RANDOM and page faults behave.
    const QUIRKS: Quirks;

    /// A page is absent or has the mark: plans what to read.
    fn demand(&mut self, state: &mut State, touch: Touch, ask: &Ask<'_>, answer: &mut Answer);
}

/// The behaviour that changed between Linux versions (docs/spec/linux-readahead.md 2.5).
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// The hint RANDOM turns readahead off, so every miss reads single pages (before 2.6.34). In later versions it sets
    /// a flag, and every miss reads exactly the request.
    pub random_is_off: bool,
    /// A fault near the last read counts as sequential, and the pages read around a fault get no mark. In later
    /// versions only the mapping's own hint counts, and the last quarter of the pages read around a fault is
    /// asynchronous.
    pub early_faults: bool,
}

/// The page and the request about which a rule decides.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The page is present and had the mark; otherwise it is absent.
    pub hit: bool,
    pub off: u64,
    /// Number of pages requested from it.
    pub req: u64,
}

/// State of one open file description, in pages.
#[derive(Clone, Debug)]
pub struct State {
    /// The device's maximum, which hints restore.
    device_max: u64,
    /// The current maximum.
    pub max: u64,
    /// The latest window and its asynchronous part.
    pub start: u64,
    pub size: u64,
    pub async_size: u64,
    /// Byte where the last read ended; `None` if nothing was read yet.
    prev_end: Option<u64>,
    mmap_miss: u64,
    random: bool,
}

impl State {
    /// Creates the state of an open file description that has read nothing yet.
    pub fn new(max: u64) -> State {
        State {
            device_max: max,
            max,
            start: 0,
            size: 0,
            async_size: 0,
            prev_end: None,
            mmap_miss: 0,
            random: false,
        }
    }

    /// Returns true if page `off` is the page in which the last read ended, or the page after that. Before the first read, this is true for
    /// page 0 (docs/spec/linux-readahead.md 2, introduction).
    pub fn near(&self, off: u64) -> bool {
        match self.prev_end {
            None => off == 0,
            Some(end) => off
                .checked_sub(end.saturating_sub(1) / PAGE)
                .is_some_and(|gap| gap <= 1),
        }
    }

    /// Returns true for the two pages at which a reader of the latest window is expected next: the page with the mark, and the page
    /// after the window.
    pub fn expects(&self, off: u64) -> bool {
        let end = self.start + self.size;
        off == end.wrapping_sub(self.async_size) || off == end
    }

    /// Returns true if page `off` is in the latest window, or in the range of the same length before this window. A reader whose pages were
    /// evicted before use reads in one of these two ranges.
    pub fn follows_window(&self, off: u64) -> bool {
        let end = self.start + self.size;
        self.start
            .checked_sub(self.size)
            .is_some_and(|from| (from..end).contains(&off))
    }

    /// Sets a window that is completely asynchronous, that is, no read waits for any of its pages.
    pub fn set(&mut self, start: u64, size: u64) {
        (self.start, self.size, self.async_size) = (start, size, size);
    }

    /// Sets the window that follows the latest window.
    pub fn push(&mut self) {
        self.set(self.start + self.size, next(self.size, self.max));
    }

    /// Sets the first window of a stream.
    pub fn initial(&mut self, off: u64, req: u64) {
        self.set(off, init(req, self.max));
        if self.size > req {
            self.async_size = self.size - req;
        }
    }

    /// Merges two windows (docs/spec/linux-readahead.md 2.3): if page `off` would start the next window at once, the next window is added
    /// to the current one.
    pub fn merge(&mut self, off: u64) {
        if off == self.start && self.size == self.async_size {
            self.async_size = next(self.size, self.max);
            self.size += self.async_size;
        }
    }

    /// Applies the decision table of docs/spec/linux-readahead.md 2.3: the part that Linux 2.6.31 and all later versions have in common, up
    /// to the check whether cached pages show a stream. `context` either sets a window and returns true, or does not change the state.
    pub fn demand(
        &mut self,
        touch: Touch,
        ask: &Ask<'_>,
        answer: &mut Answer,
        context: impl FnOnce(&mut State) -> bool,
    ) {
        let Touch { hit, off, req } = touch;
        answer.why = Some(self.why(touch));
        if off == 0 {
            self.initial(off, req);
        } else if self.expects(off) {
            self.push();
        } else if hit {
            let Some(hole) = hole_after(ask, off, self.max) else {
                answer.why = Some(Why::AllCached);
                return;
            };
            self.set(hole, next(hole - off + req, self.max));
        } else if req > self.max || self.near(off) {
            self.initial(off, req);
        } else if !context(self) {
            return fetch(ask, off, req, None, answer);
        } else {
            answer.why = Some(Why::Context);
        }
        self.merge(off);
        self.submit(ask, answer);
    }

    /// Returns why nothing is read ahead: the hint RANDOM has set the maximum to zero, or has set a flag of the open file.
    pub fn off(&self) -> Why {
        if self.random || self.device_max > 0 {
            Why::HintRandom
        } else {
            Why::Off
        }
    }

    /// Returns the rule of the table in docs/spec/linux-readahead.md 2.3 for this miss or mark. To be called before the next window is set.
    pub fn why(&self, Touch { hit, off, req }: Touch) -> Why {
        match () {
            () if off == 0 => Why::FileStart,
            () if self.expects(off) && hit => Why::NextWindow,
            () if self.expects(off) => Why::WindowEnd,
            () if hit => Why::FoundMark,
            () if self.near(off) => Why::Sequential,
            () if req > self.max => Why::Large,
            () => Why::NoHistory,
        }
    }

    /// Reads the latest window. If the window extends beyond the end of the file, it is cut there, but its mark stays where it is.
    pub fn submit(&self, ask: &Ask<'_>, answer: &mut Answer) {
        // Without an asynchronous part, the mark is just outside the window, and is dropped.
        let mark = self.start + self.size - self.async_size;
        fetch(ask, self.start, self.size, Some(mark), answer);
    }
}

/// The rule of a Linux version, with the state of one open file description.
pub struct Stream<R> {
    state: State,
    rule: R,
}

impl<R: Rule> Stream<R> {
    /// Creates the state of a new stream; `max` is in bytes.
    pub fn new(max: u64, rule: R) -> Stream<R> {
        Stream {
            state: State::new(max / PAGE),
            rule,
        }
    }

    /// 2.1: the page at `off` is absent. If it is still absent afterwards, the reader reads only that page.
    fn sync(&mut self, off: u64, req: u64, ask: &Ask<'_>, answer: &mut Answer) {
        if self.state.max == 0 || self.state.random {
            answer.why = Some(self.state.off());
        }
        if self.state.max > 0 && self.state.random {
            force(ask, off, req, answer);
        } else if self.state.max > 0 {
            self.rule.demand(
                &mut self.state,
                Touch {
                    hit: false,
                    off,
                    req,
                },
                ask,
                answer,
            );
        }
        let at = off * PAGE;
        if answer
            .windows
            .iter()
            .all(|w| !(w.range.start()..w.range.end()).contains(&at))
        {
            fetch(ask, off, 1, None, answer);
        }
    }

    /// 2.1: the page at `off` has the mark.
    fn follow(&mut self, off: u64, req: u64, ask: &Ask<'_>, answer: &mut Answer) {
        if self.state.max == 0 {
            (answer.keep_mark, answer.why) = (true, Some(self.state.off()));
            return;
        }
        self.rule.demand(
            &mut self.state,
            Touch {
                hit: true,
                off,
                req,
            },
            ask,
            answer,
        );
    }

    /// 2.5: a window around a faulting page.
    fn read_around(&mut self, page: u64, ask: &Ask<'_>, answer: &mut Answer) {
        let max = self.state.max;
        answer.why = Some(if max > 0 {
            Why::Around
        } else {
            self.state.off()
        });
        if max > 0 {
            self.state.set(page.saturating_sub(max / 2), max);
            self.state.async_size = if R::QUIRKS.early_faults { 0 } else { max / 4 };
            self.state.submit(ask, answer);
        }
    }
}

impl<R: Rule> Policy for Stream<R> {
    fn wants(&self) -> Wants {
        Wants {
            read_end: true,
            ..Wants::default()
        }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let pages = wanted(ask);
        self.sync(pages.first, pages.len(), ask, answer);
    }

    fn on_mark(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let pages = wanted(ask);
        self.follow(pages.first, pages.len(), ask, answer);
    }

    fn on_read_end(&mut self, end: u64) {
        self.state.prev_end = Some(end);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, map: &Mapping, answer: &mut Answer) {
        let page = ask.at / PAGE;
        if map.advice == Advice::Random {
            answer.why = Some(Why::HintRandom);
            return;
        }
        if map.advice == Advice::Sequential || R::QUIRKS.early_faults && self.state.near(page) {
            return self.sync(page, self.state.max, ask, answer);
        }
        self.state.mmap_miss += 1;
        answer.why = Some(Why::ManyMisses);
        if self.state.mmap_miss <= MMAP_LOTSAMISS {
            self.read_around(page, ask, answer);
        }
    }

    fn on_fault_hit(&mut self, ask: &Ask<'_>, map: &Mapping, marked: bool, answer: &mut Answer) {
        if map.advice == Advice::Random {
            answer.keep_mark = true;
            return;
        }
        self.state.mmap_miss = self.state.mmap_miss.saturating_sub(1);
        if marked {
            self.follow(ask.at / PAGE, self.state.max, ask, answer);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, answer: &mut Answer) {
        let state = &mut self.state;
        match advice {
            Advice::Normal => (state.max, state.random) = (state.device_max, false),
            Advice::Sequential => (state.max, state.random) = (2 * state.device_max, false),
            Advice::Random if R::QUIRKS.random_is_off => state.max = 0,
            Advice::Random => state.random = true,
            Advice::WillNeed => {
                if let Some(pages) = hinted(ask) {
                    answer.why = Some(Why::Asked);
                    force(ask, pages.first, pages.len(), answer);
                }
            }
            Advice::DontNeed => {}
        }
    }
}

/// Reads exactly these pages, in large requests; no state of a stream is changed, and no mark is set.
pub fn force(ask: &Ask<'_>, i: u64, nr: u64, answer: &mut Answer) {
    let nr = clip(ask, i, nr);
    for at in (i..i + nr).step_by(FORCE_PIECE as usize) {
        fetch(ask, at, FORCE_PIECE.min(i + nr - at), None, answer);
    }
}

/// Returns the first absent page after page `x`, checking at most `max` pages.
pub fn hole_after(ask: &Ask<'_>, x: u64, max: u64) -> Option<u64> {
    ask.probe
        .next_hole((x + 1) * PAGE, max * PAGE)
        .map(|at| at / PAGE)
}
