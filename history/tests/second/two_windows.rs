//! Generation 1, written a second time from the publications: the two windows of mid-2003, and the fix of August 2003.
//!
//! ```text
//!     start          start+size = astart        astart+asize
//!       ├─── current ────┼──────── ahead ─────────┤          next: pages of the window after it; -1 is off
//! ```
//!
//! Decided where the texts are silent:
//! - The published steps compare a page with `astart` without asking whether there is such a window, so page 0 walks
//!   into the one that is not there: kept, as it was.
//! - A read of no bytes is not announced; one that begins past the end of the file is, and finds nothing to read.
//! - A page fault reads its page and nothing more; of the hints only WILLNEED is known.
//!
//! Never: `request_size=on`, which the publication names and does not describe.

use super::pages::{P, Pages};
use foreread_core::event::Advice;
use foreread_core::machine::Question;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Looks at each page when the reader comes to it.
    Plain,
    /// Announces the whole request first.
    Mm,
    /// As that, and reads all of it when readahead is off.
    Fix,
}

/// One open description.
pub struct File {
    tree: Tree,
    start: i64,
    size: i64,
    astart: i64,
    asize: i64,
    next: i64,
    prev: i64,
    max: i64,
    min: i64,
}

const OFF: i64 = -1;

impl File {
    pub fn new(tree: Tree, max: i64, min: i64) -> File {
        File {
            tree,
            start: 0,
            size: 0,
            astart: 0,
            asize: 0,
            next: 0,
            prev: 0,
            max,
            min,
        }
    }

    fn look(&mut self, p: i64, pages: &mut Pages) {
        if (p == self.prev && self.next != 0) || self.next == OFF || self.max == 0 {
            return;
        }
        let orig = self.next;
        if self.next == 0 && p == 0 {
            self.next = self.max / 2;
            return self.new_window(p, orig, pages);
        }
        self.prev = p;
        let hit = self.start <= p && p <= self.start + self.size;
        self.next = (self.next + if hit { 2 } else { -2 }).min(self.max);
        if self.next <= 0 {
            self.next = OFF;
            self.size = 0;
        } else if self.start <= p && p < self.start + self.size {
            if self.astart == 0 {
                self.astart = self.start + self.size;
                self.asize = self.next;
                let got = pages.fetch(self.astart, self.asize, 0);
                self.adapt(got, orig);
            }
        } else if p == self.astart {
            (self.start, self.size) = (self.astart, self.asize);
            self.prev = self.start;
            (self.astart, self.asize) = (0, 0);
        } else {
            self.new_window(p, orig, pages);
        }
    }

    fn new_window(&mut self, p: i64, orig: i64, pages: &mut Pages) {
        (self.start, self.size) = (p, self.next);
        (self.astart, self.asize) = (0, 0);
        let got = pages.fetch(self.start, self.size, 0);
        self.adapt(got, orig);
    }

    fn adapt(&mut self, got: i64, orig: i64) {
        if got > 0 {
            return;
        }
        if orig > 1 {
            self.next = orig - 1;
            if self.asize != 0 {
                self.asize = self.next;
            }
        } else {
            self.next = OFF;
            self.size = 0;
        }
    }

    fn missed(&mut self, p: i64) {
        if self.next != OFF {
            self.next = (self.next - 3).max(self.min);
            return;
        }
        if p == self.prev + 1 {
            self.size += 1;
            if self.size >= self.max {
                self.start = p - self.max;
                (self.next, self.size) = (self.max, self.max);
                (self.astart, self.asize) = (0, 0);
            }
        } else {
            self.size = 0;
        }
        self.prev = p;
    }

    fn announce(&mut self, pos: i64, count: i64, pages: &mut Pages) {
        let first = pos / P;
        let last = ((pos + count) / P).max(first + 1);
        // The last fetch below is an answer even if the announcement brought all of it in.
        let absent = pages
            .hole(first, last - first)
            .is_some_and(|hole| hole <= pages.eof());
        pages.asked(Question::Read, first);
        for p in first..last {
            self.look(p, pages);
        }
        if self.tree == Tree::Fix && self.next == OFF {
            for p in first..last {
                self.missed(p);
            }
            pages.notes_idle = absent;
            pages.fetch(first, last - first, 0);
            pages.notes_idle = false;
        }
    }

    pub fn read(&mut self, pos: i64, count: i64, pages: &mut Pages) {
        if count == 0 {
            return;
        }
        if self.tree != Tree::Plain {
            self.announce(pos, count, pages);
        }
        if pos >= pages.size {
            return pages.send(|_| false);
        }
        // Where the reader went on after it last waited: what it looks at from here on is asked for.
        let (first, mut from) = (pos / P, pos / P);
        let stop = ((pos + count).min(pages.size) - 1) / P;
        for p in first..=stop {
            pages.asked(Question::Page, p);
            if self.tree == Tree::Plain {
                self.look(p, pages);
            }
            if !pages.has(p) {
                self.missed(p);
                pages.read_one(p);
            }
            if pages.on_its_way(p) {
                let plain = self.tree == Tree::Plain;
                pages.send(|(a, b)| (a..b).contains(&p) || (plain && a <= stop && b > from));
                from = p + 1;
            }
        }
        let plain = self.tree == Tree::Plain;
        pages.send(|(a, b)| plain && a <= stop && b > from);
    }

    pub fn advise(&mut self, advice: Advice, start: i64, len: i64, pages: &mut Pages) {
        if advice == Advice::WillNeed {
            pages.will_need(start, len);
        }
    }

    pub fn fault(&mut self, p: i64, pages: &mut Pages) {
        if p <= pages.eof() && !pages.has(p) {
            pages.read_one(p);
        }
        pages.send(|_| true);
    }
}
