//! The code that the three `linux-2.6.0*` policies share: the readahead of 2003 with its current window and its ahead window.
//! This file is not a policy.
//!
//! This code processes one page at a time and does not know the size of a request. Each page that is read sequentially makes the next
//! window two pages larger, and each page that is not makes it two pages smaller, until readahead is off. Readahead is turned on again
//! when enough consecutive pages have been read.
//!
//! ```text
//!   start            start+size = astart        astart+asize
//!     ├──────────────────────┤├──────────────────────┤
//!       current: being read   ahead: requested when reading of the current one began
//! ```
//!
//! The three policies differ in when the windows see a page: [`WindowVariant`]. Hints work the same in all three policies
//! (docs/spec/linux-readahead.md 1.4): WILLNEED reads its range, all other hints are ignored, and no hint changes `max`.
//!
//! Source: docs/spec/linux-readahead.md 1.1 to 1.4. This code does not stop readahead if the device is congested, and does not
//! limit forced reads by free memory.

use super::marks::force;
use foreread_core::event::Advice;
use foreread_core::policy::{
    Answer, Ask, DemandMode, Param, Policy, Wants, Why,
    ondemand::{PAGE, SIZES, clip, fetch, hinted},
};
use std::ops::Range;

/// A request counts at most this many pages beyond the end of the file.
const BEYOND_END: u64 = 4096;

/// Maximum number of pages of a request: one `read` of Linux returns no more than 2 GiB less a page (`read(2)`). Each
/// page costs time, so a request needs a limit.
const MAX_PAGES: u64 = (1 << 19) - 1;

/// The parameter `min` of these policies: the smallest window.
pub const MIN: Param = Param::bytes(
    "min",
    "16K",
    (PAGE, SIZES.1),
    "evictions shrink the next window no further",
);

/// State of one open file description, in pages.
#[derive(Clone, Debug)]
pub struct TwoWindows {
    max: u64,
    min: u64,
    start: u64,
    /// Size of the current window; while readahead is off, the number of pages in the current run.
    size: u64,
    /// Start of the ahead window; 0 if there is none.
    astart: u64,
    asize: u64,
    /// Size of the next window; zero: never used; `None`: off.
    next: Option<u64>,
    /// The last page that was seen.
    prev: u64,
}

impl TwoWindows {
    /// Creates the state of an open file description that has read nothing yet; `max` and `min` are in bytes.
    pub fn new(max: u64, min: u64) -> TwoWindows {
        let (max, min) = (max / PAGE, min / PAGE);
        TwoWindows {
            max,
            min,
            start: 0,
            size: 0,
            astart: 0,
            asize: 0,
            next: Some(0),
            prev: 0,
        }
    }

    /// Returns true if the window has shrunk to zero, that is, if readahead is off.
    pub fn is_off(&self) -> bool {
        self.next.is_none()
    }

    /// Why no window is read, if readahead is off.
    fn off(&self) -> Option<Why> {
        if self.max == 0 {
            Some(Why::Off)
        } else {
            self.is_off().then_some(Why::Shrunk)
        }
    }

    /// Must be called when page `p` is about to be looked up in the cache (docs/spec/linux-readahead.md 1.1). Returns the rule by which
    /// page `p` starts a window, or `None` if page `p` starts no window. If readahead is off, the rule for an absent page is determined
    /// when the page is found to be absent.
    pub fn look(&mut self, p: u64, ask: &Ask<'_>, answer: &mut Answer) -> Option<Why> {
        let orig = self.next?;
        if (p == self.prev && orig != 0) || self.max == 0 {
            return None;
        }
        if orig == 0 && p == 0 {
            self.next = Some(self.max / 2);
            return Some(self.begin(p, orig, Why::FileStart, ask, answer));
        }
        self.prev = p;
        let end = self.start + self.size;
        let goes_on = (self.start..=end).contains(&p);
        let next = if goes_on {
            orig + 2
        } else {
            orig.saturating_sub(2)
        }
        .min(self.max);
        if next == 0 {
            self.turn_off();
            return None;
        }
        self.next = Some(next);
        if (self.start..end).contains(&p) {
            if self.astart != 0 {
                return None;
            }
            (self.astart, self.asize) = (end, next);
            let got = start_reading(end, next, ask, answer);
            self.adapt(got, orig);
            Some(if got { Why::NextWindow } else { Why::AllCached })
        } else if p == self.astart {
            (self.start, self.size, self.prev) = (self.astart, self.asize, self.astart);
            (self.astart, self.asize) = (0, 0);
            None
        } else {
            let why = if goes_on {
                Why::WindowEnd
            } else {
                Why::Elsewhere
            };
            Some(self.begin(p, orig, why, ask, answer))
        }
    }

    /// A new current window at `p`, with the rule `why`.
    fn begin(&mut self, p: u64, orig: u64, why: Why, ask: &Ask<'_>, answer: &mut Answer) -> Why {
        (self.start, self.size) = (p, self.next.unwrap_or(0));
        (self.astart, self.asize) = (0, 0);
        let got = start_reading(p, self.size, ask, answer);
        self.adapt(got, orig);
        if got { why } else { Why::AllCached }
    }

    /// If a window was already completely cached, the next one is smaller.
    fn adapt(&mut self, got: bool, orig: u64) {
        if got {
            return;
        }
        if orig <= 1 {
            return self.turn_off();
        }
        self.next = Some(orig - 1);
        if self.asize != 0 {
            self.asize = orig - 1;
        }
    }

    fn turn_off(&mut self) {
        (self.next, self.size) = (None, 0);
    }

    /// Must be called when page `p` was found to be absent from the cache (docs/spec/linux-readahead.md 1.2). While readahead is off,
    /// this function counts the consecutive pages before page `p`: if there are enough, readahead is turned on again.
    pub fn missed(&mut self, p: u64) {
        if let Some(next) = self.next {
            self.next = Some(next.saturating_sub(3).max(self.min));
            return;
        }
        self.size = if p == self.prev + 1 { self.size + 1 } else { 0 };
        self.prev = p;
        self.rearm(p);
    }

    /// Counts all pages of a request at once while readahead is off: the count of consecutive pages continues, or restarts with all
    /// pages of the request except the first.
    pub fn missed_request(&mut self, pages: &Range<u64>) {
        let count = pages.end - pages.start;
        self.size = if pages.start == self.prev + 1 {
            self.size + count
        } else {
            count - 1
        };
        self.prev = pages.end - 1;
        self.rearm(pages.end);
    }

    /// A run as long as the maximum turns readahead on again, at full size, with a window up to `end`.
    fn rearm(&mut self, end: u64) {
        if self.size >= self.max {
            (self.start, self.size, self.next) =
                (end.saturating_sub(self.max), self.max, Some(self.max));
            (self.astart, self.asize) = (0, 0);
        }
    }
}

/// Pages that the windows see before a request is read (1.3): rounded down at the end, but at least one; none for an
/// empty request.
fn announced(ask: &Ask<'_>) -> Range<u64> {
    let first = ask.request.start() / PAGE;
    if ask.request.is_empty() {
        return first..first;
    }
    let last = (ask.request.end() / PAGE)
        .min(ask.file_size / PAGE + BEYOND_END)
        .min(first + MAX_PAGES);
    first..last.max(first + 1)
}

/// Reads `nr` pages from page `start` on; reads nothing and returns false if all of them are cached.
pub fn start_reading(start: u64, nr: u64, ask: &Ask<'_>, answer: &mut Answer) -> bool {
    let left = ask
        .probe
        .next_hole(start * PAGE, clip(ask, start, nr) * PAGE)
        .is_some();
    if left {
        fetch(ask, start, nr, None, answer);
    }
    left
}

/// The differences between the Linux versions that share this code.
pub trait WindowVariant: Send {
    /// The windows see all pages of a request before it is read; otherwise each page when it is read.
    const ANNOUNCES: bool;

    /// The pages of a request have been announced.
    fn announced(
        &self,
        _windows: &mut TwoWindows,
        _pages: Range<u64>,
        _ask: &Ask<'_>,
        _answer: &mut Answer,
    ) {
    }

    /// Whether a page that is still absent when it is read counts for the windows.
    fn counts_misses(&self, _windows: &TwoWindows) -> bool {
        true
    }
}

/// A Linux version, with the state of one open file description.
pub struct Reader<T> {
    windows: TwoWindows,
    telling: T,
}

impl<T: WindowVariant> Reader<T> {
    /// Creates the state of a new reader; `max` and `min` are in bytes.
    pub fn new(max: u64, min: u64, telling: T) -> Reader<T> {
        Reader {
            windows: TwoWindows::new(max, min),
            telling,
        }
    }
}

impl<T: WindowVariant> Policy for Reader<T> {
    fn demand_mode(&self) -> DemandMode {
        DemandMode::PageSerial
    }

    fn wants(&self) -> Wants {
        Wants {
            read: T::ANNOUNCES,
            ..Wants::default()
        }
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let pages = announced(ask);
        for p in pages.clone() {
            // The first window of the request gives the rule of the answer.
            let why = self.windows.look(p, ask, answer);
            if !answer.why.is_some_and(Why::is_on) {
                answer.why = why.or(answer.why);
            }
        }
        self.telling
            .announced(&mut self.windows, pages, ask, answer);
    }

    fn on_page(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        if !T::ANNOUNCES {
            answer.why = self.windows.look(ask.at / PAGE, ask, answer);
        }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        answer.why = self.windows.off();
        if self.telling.counts_misses(&self.windows) {
            self.windows.missed(ask.at / PAGE);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, answer: &mut Answer) {
        if let (Advice::WillNeed, Some(pages)) = (advice, hinted(ask)) {
            answer.why = Some(Why::Asked);
            force(ask, pages.first, pages.len(), answer);
        }
    }
}
