//! Generations 2 and 3 and the thrash-safe series, written a second time from the publications.
//!
//! ```text
//!     start          start+size-async       start+size
//!       ├──────────────────■─────────────────────┤
//!                        mark: the read that reaches it starts the next window
//! ```
//!
//! Decided where the texts are silent:
//! - A read that returns nothing (no bytes, or past the end) leaves the previous position alone.
//! - `req` counts the pages asked for, those past the end of the file too.
//! - Faults before 2.6.31 are those of 2.6.31, and those of the thrash-safe series too. A fault is no read: it leaves the
//!   previous position alone. The "near" test and the window without a mark are the early ones, gone by 3.12.
//! - Without a maximum (off, or the early hint RANDOM) nothing is read around a fault, and the window stays what it was.
//! - The series of 2010 takes the hint RANDOM as the kernels after it do, as a flag; `thrashed` is never cleared; `max` wins
//!   over `min`, except where a window is halved.
//! - WILLNEED of length 0 reaches to the end of the file; it works without a maximum too.
//!
//! Never: memory limits, congestion, write-back. Nothing here may look at the policies it is compared with.

use super::pages::{P, Pages};
use foreread_core::event::Advice;
use foreread_core::machine::Question;

/// When cached neighbours start a window, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    Off,
    Conservative,
    SlowRamp,
    Original,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    K2623,
    K2631,
    K312(Context),
    /// With its smallest window.
    Thrashsafe(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    None,
    Random,
}

/// One open description.
pub struct File {
    kernel: Kernel,
    start: i64,
    size: i64,
    a: i64,
    prev_pos: i64,
    mmap_miss: i64,
    max: i64,
    dev: i64,
    hint: Hint,
    thrashed: bool,
}

/// Faults that missed in a row before read-around stops.
const MANY_MISSES: i64 = 100;

fn rp2(n: i64) -> i64 {
    let mut power = 1;
    while power < n {
        power *= 2;
    }
    power
}

fn init(req: i64, max: i64) -> i64 {
    let n = rp2(req);
    if n <= max / 32 {
        4 * n
    } else if n <= max / 4 {
        2 * n
    } else {
        max
    }
}

fn next(cur: i64, max: i64) -> i64 {
    let grown = if cur < max / 16 { 4 * cur } else { 2 * cur };
    grown.min(max)
}

impl File {
    pub fn new(kernel: Kernel, max: i64) -> File {
        let (start, size, a, prev_pos, mmap_miss) = (0, 0, 0, -1, 0);
        File {
            kernel,
            start,
            size,
            a,
            prev_pos,
            mmap_miss,
            max,
            dev: max,
            hint: Hint::None,
            thrashed: false,
        }
    }

    // ---- callers ----

    pub fn read(&mut self, pos: i64, count: i64, pages: &mut Pages) {
        if count == 0 || pos >= pages.size {
            return;
        }
        let end = (pos + count).min(pages.size);
        let last = (pos + count + P - 1) / P;
        let stop = (end - 1) / P;
        for i in pos / P..=stop {
            if !pages.has(i) {
                pages.asked(Question::Miss, i);
                self.sync(i, last - i, pages);
                if !pages.has(i) {
                    pages.read_one(i);
                }
            }
            if pages.marked(i) {
                pages.asked(Question::Mark, i);
                self.reach_mark(i, last - i, pages);
            }
        }
        self.prev_pos = stop * P + end % P;
    }

    fn sync(&mut self, i: i64, req: i64, pages: &mut Pages) {
        if self.max == 0 {
            return;
        }
        if self.hint == Hint::Random {
            return pages.force(i, req);
        }
        self.demand(false, i, req, pages);
    }

    fn reach_mark(&mut self, i: i64, req: i64, pages: &mut Pages) {
        if self.max == 0 {
            return;
        }
        pages.cached.insert(i, false);
        self.demand(true, i, req, pages);
    }

    pub fn fault(&mut self, p: i64, advice: Advice, pages: &mut Pages) {
        if p > pages.eof() {
            return;
        }
        if pages.has(p) {
            pages.asked(Question::FaultHit, p);
            if advice != Advice::Random {
                self.mmap_miss = (self.mmap_miss - 1).max(0);
                if pages.marked(p) {
                    self.reach_mark(p, self.max, pages);
                }
            }
            return;
        }
        pages.asked(Question::Fault, p);
        let late = matches!(self.kernel, Kernel::K312(_));
        if advice == Advice::Sequential || (advice == Advice::Normal && !late && self.near(p)) {
            self.sync(p, self.max, pages);
        } else if advice == Advice::Normal {
            self.mmap_miss += 1;
            if self.mmap_miss <= MANY_MISSES && self.max > 0 {
                self.start = (p - self.max / 2).max(0);
                self.size = self.max;
                self.a = if late { self.max / 4 } else { 0 };
                pages.fetch(self.start, self.size, self.a);
            }
        }
        if !pages.has(p) {
            pages.read_one(p);
        }
    }

    pub fn advise(&mut self, advice: Advice, start: i64, len: i64, pages: &mut Pages) {
        match advice {
            Advice::Normal => (self.max, self.hint) = (self.dev, Hint::None),
            Advice::Sequential => (self.max, self.hint) = (2 * self.dev, Hint::None),
            Advice::Random if matches!(self.kernel, Kernel::K312(_) | Kernel::Thrashsafe(_)) => {
                self.hint = Hint::Random;
            }
            Advice::Random => self.max = 0,
            Advice::WillNeed => pages.will_need(start, len),
            Advice::DontNeed => {}
        }
    }

    // ---- what is decided ----

    fn near(&self, off: i64) -> bool {
        let distance = off - self.prev_pos.div_euclid(P);
        distance == 0 || distance == 1
    }

    fn continues(&self, off: i64) -> bool {
        off == self.start + self.size - self.a || off == self.start + self.size
    }

    fn demand(&mut self, hit: bool, off: i64, req: i64, pages: &mut Pages) {
        let stateful = match self.kernel {
            Kernel::K2623 => self.decide_2623(hit, off, req, pages),
            Kernel::K2631 => self.decide_2631(hit, off, req, Context::Original, pages),
            Kernel::K312(context) => self.decide_2631(hit, off, req, context, pages),
            Kernel::Thrashsafe(min) => self.decide_thrashsafe(hit, off, req, min, pages),
        };
        if !stateful {
            return;
        }
        if self.kernel != Kernel::K2623 && off == self.start && self.size == self.a {
            self.a = next(self.size, self.max);
            self.size += self.a;
        }
        pages.fetch(self.start, self.size, self.a);
    }

    /// True when there is a new window to be read.
    fn decide_2623(&mut self, hit: bool, off: i64, req: i64, pages: &mut Pages) -> bool {
        if off != 0 && self.continues(off) {
            self.push();
        } else if !(hit || self.near(off) || req > self.max) {
            pages.fetch(off, req, 0);
            return false;
        } else if hit {
            let Some(h) = pages.hole(off, self.max + 1) else {
                return false;
            };
            self.start = h;
            self.size = next(h - off, self.max);
            self.a = self.size;
        } else {
            self.initial(off, req);
        }
        true
    }

    fn decide_2631(
        &mut self,
        hit: bool,
        off: i64,
        req: i64,
        context: Context,
        pages: &mut Pages,
    ) -> bool {
        if off == 0 {
            self.initial(off, req);
        } else if self.continues(off) {
            self.push();
        } else if hit {
            let Some(h) = pages.hole(off + 1, self.max) else {
                return false;
            };
            self.start = h;
            self.size = next(h - off + req, self.max);
            self.a = self.size;
        } else if req > self.max || self.near(off) {
            self.initial(off, req);
        } else if let Some((size, a)) = self.context(off, req, context, pages) {
            (self.start, self.size, self.a) = (off, size, a);
        } else {
            pages.fetch(off, req, 0);
            return false;
        }
        true
    }

    /// Size and asynchronous part of a window earned by cached neighbours.
    fn context(&self, off: i64, req: i64, context: Context, pages: &Pages) -> Option<(i64, i64)> {
        let hist = pages.history(off, self.max);
        let matches = match context {
            Context::Off => false,
            Context::Conservative => hist > req,
            Context::SlowRamp | Context::Original => hist > 0,
        };
        if !matches {
            return None;
        }
        let earned = if hist >= off { 2 * hist } else { hist } + req;
        if context == Context::Original {
            let size = init(earned, self.max);
            Some((size, size))
        } else {
            Some((earned.min(self.max), 1))
        }
    }

    fn decide_thrashsafe(
        &mut self,
        hit: bool,
        off: i64,
        req: i64,
        min: i64,
        pages: &mut Pages,
    ) -> bool {
        if off == 0 {
            self.initial(off, req);
            return true;
        }
        if !self.thrashed && self.continues(off) {
            self.push();
            return true;
        }
        if !self.thrashed && req > self.max && !hit {
            (self.start, self.size, self.a) = (off, self.max, self.max);
            return true;
        }
        let ahead = if hit {
            pages.hole(off + 1, self.max)
        } else {
            Some(off)
        };
        let Some(ahead) = ahead else { return false };
        let mut tt = pages.history(off, 8 * self.max);
        if tt == 0 && !hit {
            let begin = self.start - self.size;
            if begin >= 0 && begin <= off && off < self.start + self.size {
                self.size = (self.size / 2).max(min);
                self.thrashed = true;
            } else {
                self.size = req.min(self.max);
            }
            self.a = 0;
            self.start = ahead;
            return true;
        }
        if tt >= off {
            tt *= 2;
        }
        if tt <= ahead - off {
            return false;
        }
        self.start = ahead;
        self.size = (tt - (ahead - off)).max(min).min(self.max);
        self.a = self.size.min(1 + tt / 8);
        true
    }

    fn initial(&mut self, off: i64, req: i64) {
        self.start = off;
        self.size = init(req, self.max);
        self.a = if self.size > req {
            self.size - req
        } else {
            self.size
        };
    }

    fn push(&mut self) {
        self.start += self.size;
        self.size = next(self.size, self.max);
        self.a = self.size;
    }
}
