//! `linux-2.6.0-mm-fix`: that tree with the patch of [Bhattacharya 2003], which reads at least the request in one
//! piece.
//!
//! Like `linux-2.6.0-mm`, but if the window has shrunk to zero after the announcement, all pages of the request count
//! as missed and are read together. The windows do not see that read.
//!
//! ```text
//!   look(first) .. look(last-1)    off?   missed(first) .. missed(last-1)    ├── first .. last: one read ──┤
//! ```
//!
//! Source: [Bhattacharya 2003] (Bhattacharya, August 2003), docs/spec/linux-readahead.md 1.3. `request_size=on` is the
//! alternative that the author mentions; it was never written, so this is our interpretation: the request as a whole
//! turns readahead on again. Then none of its pages is taken for an evicted one, and a page that is missed while
//! readahead is off does not count.

use super::two_windows::{MIN, Reader, TwoWindows, WindowVariant, start_reading};
use foreread_core::policy::{
    Answer, Ask, Info, Param, Scope, Unit, Why,
    ondemand::{MAX, PAGE},
};
use std::ops::Range;

/// Whether the request as a whole turns the windows on again.
struct PatchedRequest {
    request_size: bool,
}

impl WindowVariant for PatchedRequest {
    const ANNOUNCES: bool = true;

    fn announced(
        &self,
        windows: &mut TwoWindows,
        pages: Range<u64>,
        ask: &Ask<'_>,
        answer: &mut Answer,
    ) {
        if pages.is_empty() || !windows.is_off() {
            return;
        }
        answer.why = Some(Why::Shrunk);
        if self.request_size {
            windows.missed_request(&pages);
        } else {
            pages.clone().for_each(|p| windows.missed(p));
        }
        start_reading(pages.start, pages.end - pages.start, ask, answer);
    }

    fn counts_misses(&self, windows: &TwoWindows) -> bool {
        !(self.request_size && windows.is_off())
    }
}

pub static INFO: Info = Info {
    name: "linux-2.6.0-mm-fix",
    summary: "as linux-2.6.0-mm, but a request is read in one piece when the window has shrunk away",
    origin: "Suparna Bhattacharya, AIO read speedup, August 2003",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[
        MAX,
        MIN,
        Param {
            key: "request_size",
            unit: Unit::Word(&["off", "on"]),
            default: "off",
            range: (0, 1),
            help: "on: the request as a whole turns readahead on again",
        },
    ],
    build: |v| {
        Box::new(Reader::new(
            v[0],
            v[1],
            PatchedRequest {
                request_size: v[2] == 1,
            },
        ))
    },
};
