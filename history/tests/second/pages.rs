//! What the second implementation keeps of a file: its pages, each with its mark, and what was decided and read.
//!
//! ```text
//!   fetch(index, nr, la)      index          index+nr-la        index+nr
//!                               ├──────────────────■───────────────┤   cut at the last page of the file;
//!                                                mark                  a page that is there is left as it is
//! ```
//!
//! Never: policy state. Pages belong to the file, windows to the open description.

use foreread_core::machine::Question;
use std::collections::BTreeMap;

/// Bytes of a page.
pub const P: i64 = 4096;

/// Pages of one forced read: 2 MiB.
const PIECE: i64 = 512;

/// First page, one past the last page, mark.
pub type Window = (i64, i64, Option<i64>);

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub question: Question,
    pub page: i64,
    pub windows: Vec<Window>,
}

/// The pages of one file.
pub struct Pages {
    pub size: i64,
    /// Cached pages, and whether each bears the mark.
    pub cached: BTreeMap<i64, bool>,
    pub decided: Vec<Decided>,
    /// Whether a window whose pages are all here is an answer. Generation 1 asks what it got and drops such a window.
    pub notes_idle: bool,
    asked: (Question, i64),
    /// Runs of pages to be read, not sent out yet.
    going: Vec<(i64, i64)>,
    /// Source reads that were sent out, in order.
    pub source: Vec<(i64, i64)>,
}

impl Pages {
    pub fn new(size: i64, notes_idle: bool) -> Pages {
        Pages {
            size,
            cached: BTreeMap::new(),
            decided: Vec::new(),
            notes_idle,
            asked: (Question::Read, 0),
            going: Vec::new(),
            source: Vec::new(),
        }
    }

    /// The last page; -1 of an empty file.
    pub fn eof(&self) -> i64 {
        (self.size - 1).div_euclid(P)
    }

    pub fn has(&self, page: i64) -> bool {
        self.cached.contains_key(&page)
    }

    pub fn marked(&self, page: i64) -> bool {
        self.cached.get(&page) == Some(&true)
    }

    /// What is fetched from now on answers this question.
    pub fn asked(&mut self, question: Question, page: i64) {
        self.asked = (question, page);
    }

    /// Brings pages in; returns how many were not there.
    pub fn fetch(&mut self, index: i64, nr: i64, la: i64) -> i64 {
        let end = (index + nr).min(self.eof() + 1);
        if end <= index {
            return 0;
        }
        let mark = index + nr - la;
        let mut got = 0;
        for page in index..end {
            if self.has(page) {
                continue;
            }
            self.cached.insert(page, page == mark);
            got += 1;
            match self.going.last_mut() {
                Some(run) if run.1 == page && page > index => run.1 += 1,
                _ => self.going.push((page, page + 1)),
            }
        }
        if got > 0 || self.notes_idle || self.asked.0 == Question::Advice {
            self.note((index, end, Some(mark).filter(|m| (index..end).contains(m))));
        }
        got
    }

    /// The reader fetches a page by itself and waits.
    pub fn read_one(&mut self, page: i64) {
        self.cached.insert(page, false);
        self.going.push((page, page + 1));
    }

    /// Reads a range whatever the state, in pieces, without a mark.
    pub fn force(&mut self, index: i64, nr: i64) {
        let last = (index + nr).min(self.eof() + 1);
        for piece in (index..last).step_by(PIECE as usize) {
            self.fetch(piece, PIECE.min(last - piece), 0);
        }
    }

    /// What a reader wants soon: from byte to byte, or to the end when the length is 0.
    pub fn will_need(&mut self, start: i64, len: i64) {
        let last = if len == 0 {
            self.eof()
        } else {
            (start + len - 1) / P
        };
        self.asked(Question::Advice, start / P);
        self.force(start / P, last - start / P + 1);
    }

    /// The first absent page of `[from, from + count)`.
    pub fn hole(&self, from: i64, count: i64) -> Option<i64> {
        (from..from + count).find(|&p| !self.has(p))
    }

    /// Cached pages in a row that end before `page`, at most `most`.
    pub fn history(&self, page: i64, most: i64) -> i64 {
        (1..=most).take_while(|back| self.has(page - back)).count() as i64
    }

    /// Pages of the bytes from `start` on go away.
    pub fn forget(&mut self, start: i64, len: i64) {
        if len > 0 {
            self.cached
                .retain(|&page, _| page < start / P || page > (start + len - 1) / P);
        }
    }

    /// True when `page` is part of what has not been sent out.
    pub fn on_its_way(&self, page: i64) -> bool {
        self.going
            .iter()
            .any(|&(first, end)| (first..end).contains(&page))
    }

    /// Sends out what was gathered: first the demanded pages, then the rest, each from low to high.
    pub fn send(&mut self, waited: impl Fn((i64, i64)) -> bool) {
        self.going.sort_by_key(|&run| (!waited(run), run));
        self.source.append(&mut self.going);
    }

    fn note(&mut self, window: Window) {
        let (question, page) = self.asked;
        match self.decided.last_mut() {
            Some(last) if last.question == question && last.page == page => {
                last.windows.push(window)
            }
            _ => self.decided.push(Decided {
                question,
                page,
                windows: vec![window],
            }),
        }
    }
}
