//! `linux-thrashsafe`: context readahead that adapts when its pages are evicted before use (a patch series of 2010, never merged).
//!
//! If a read misses inside the stream's own window, its pages were evicted before use. The stream then continues with half the window, and
//! protects the remaining pages from the next eviction. From then on, the number of pages before the read that are still cached limits the
//! size of the stream's windows.
//!
//! ```text
//!    history tt     off    A                      one reader, more history: a larger window
//!   ├──────────────┤├──────┤├──────────────┬───┤
//!                   cached  ◄── tt-(A-off) ────►  at least min, at most max
//!                                          ▲◄─►│ async: 1 + tt/8
//!                                        mark
//! ```
//!
//! Source: docs/spec/linux-readahead.md 2.7, and the sections 2.3 and 2.5 to which it refers; the parameter `min` is from [Wu
//! 2010a]. A random read is recorded as a window, so the next sequential read matches the end of that window, and no separate
//! test for sequential misses is needed. The series was measured on 2.6.33-rc5 ([Wu 2010a]), so 2.6.34 is the first version that
//! could have contained it. Therefore the hint RANDOM works as in 2.6.34, where it sets a flag of the open file.

use super::marks::{Quirks, Rule, State, Stream, Touch, hole_after};
use foreread_core::policy::{
    Answer, Ask, Info, Param, Scope, Why,
    ondemand::{MAX, PAGE, SIZES, history},
};
use foreread_core::units::ByteRange;

/// For each of this many pages of history one more page is asynchronous, and at most this many windows of history are
/// checked.
const RATIO: u64 = 8;

/// The rule and its state.
struct ThrashSafe {
    /// Smallest window, in pages, of a stream that depends on its history.
    min: u64,
    /// Pages of this stream were evicted before use.
    thrashed: bool,
}

impl ThrashSafe {
    /// A miss without cached pages before it: a thrashed stream, or a random read that is remembered as a window.
    fn alone(&mut self, s: &mut State, off: u64, req: u64, answer: &mut Answer) {
        let end = s.start + s.size;
        let in_window = s.follows_window(off);
        let size = if in_window {
            let left = (2 * s.max).min(end - off);
            answer
                .refresh
                .push(ByteRange::between(off * PAGE, (off + left) * PAGE));
            self.thrashed = true;
            self.min.max(s.size / 2)
        } else {
            req.min(s.max)
        };
        s.set(off, size);
        s.async_size = 0;
    }

    /// Sets the window from `at` that `found` pages of history before `off` justify; returns false if enough is cached.
    fn by_history(&self, s: &mut State, off: u64, at: u64, found: u64) -> bool {
        let found = if found >= off { 2 * found } else { found };
        if found <= at - off {
            return false;
        }
        s.set(at, (found - (at - off)).max(self.min).min(s.max));
        s.async_size = s.size.min(1 + found / RATIO);
        true
    }
}

impl Rule for ThrashSafe {
    const QUIRKS: Quirks = Quirks {
        random_is_off: false,
        early_faults: true,
    };

    /// The steps of 2.7.
    fn demand(&mut self, s: &mut State, touch: Touch, ask: &Ask<'_>, answer: &mut Answer) {
        let Touch { hit, off, req } = touch;
        answer.why = Some(s.why(touch));
        if off == 0 {
            s.initial(off, req);
        } else if !self.thrashed && s.expects(off) {
            s.push();
        } else if !self.thrashed && req > s.max && !hit {
            s.set(off, s.max);
        } else {
            let at = if hit {
                hole_after(ask, off, s.max)
            } else {
                Some(off)
            };
            answer.why = Some(if at.is_some() {
                Why::Context
            } else {
                Why::AllCached
            });
            let Some(at) = at else { return };
            let found = history(ask, off, RATIO * s.max);
            if found == 0 && !hit {
                answer.why = Some(if s.follows_window(off) {
                    Why::Thrashed
                } else {
                    Why::NoHistory
                });
                self.alone(s, off, req, answer);
            } else if !self.by_history(s, off, at, found) {
                answer.why = Some(Why::AllCached);
                return;
            }
        }
        s.merge(off);
        s.submit(ask, answer);
    }
}

pub static INFO: Info = Info {
    name: "linux-thrashsafe",
    summary: "context readahead that shrinks to what the cache can hold when its pages are evicted",
    origin: "Wu Fengguang, 512 KiB readahead with thrashing safe context readahead, 2010, not merged",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[
        // [Wu 2010a]: the series raised the default from 128 to 512 KiB.
        Param {
            default: "512K",
            ..MAX
        },
        Param::bytes(
            "min",
            "32K",
            (PAGE, SIZES.1),
            "smallest window of a stream that has thrashed",
        ),
    ],
    build: |v| {
        Box::new(Stream::new(
            v[0],
            ThrashSafe {
                min: v[1] / PAGE,
                thrashed: false,
            },
        ))
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The second example of 2.7: the rest of the window is refreshed, and the window is halved.
    #[test]
    fn a_thrashed_window_is_refreshed_and_halved() {
        let pages = |from: u64, pages: u64| ByteRange::between(from * PAGE, (from + pages) * PAGE);
        // A window of 64 from 1000: the missed page, the refreshed range, and the resulting window.
        let rows = [
            ((1000, 64, 1011), Some((1011, 53)), 32),
            ((1000, 64, 936), Some((936, 128)), 32),
            ((1000, 64, 935), None, 5),
            ((1000, 64, 1064), None, 5),
            ((1000, 8, 1000), Some((1000, 8)), 8),
            ((63, 64, 64), None, 5),
            ((500, 400, 501), Some((501, 256)), 200),
        ];
        for ((start, size, off), refreshed, then) in rows {
            let (mut state, mut answer) = (State::new(128), Answer::default());
            let mut rule = ThrashSafe {
                min: 8,
                thrashed: false,
            };
            state.set(start, size);
            rule.alone(&mut state, off, 5, &mut answer);
            let expected: Vec<ByteRange> = refreshed
                .map(|(from, n)| pages(from, n))
                .into_iter()
                .collect();
            assert_eq!(answer.refresh, expected, "page {off} of {start}+{size}");
            assert_eq!(
                (state.start, state.size, state.async_size),
                (off, then, 0),
                "page {off} of {start}+{size}"
            );
            assert_eq!(rule.thrashed, refreshed.is_some());
        }
    }
}
