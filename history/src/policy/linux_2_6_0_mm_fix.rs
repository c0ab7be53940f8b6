//! `linux-2.6.0-mm-fix`: the kernel of `linux-2.6.0-mm` with the patch of [Bhattacharya 2003]. Even when readahead is off, all pages of a
//! request are read together.
//!
//! This kernel works like `linux-2.6.0-mm`, but if the window is zero after readahead has seen all pages of the request, all these pages
//! count as missed and are read together. The read of such a request does not change the windows.
//!
//! ```text
//!   look(first) .. look(last-1)    off?   missed(first) .. missed(last-1)    ├── first .. last: one read ──┤
//! ```
//!
//! Source: [Bhattacharya 2003] (Bhattacharya, August 2003), docs/spec/linux-readahead.md 1.3. `request_size=on` selects an alternative that
//! the author of the patch mentions but never implemented. In our interpretation of this alternative, a large request turns readahead on
//! again at once. With this option, absent pages of a large request are not taken for evicted pages. A single page that is missed while
//! readahead is off does not count towards the consecutive pages that turn it on again.

use super::two_windows::{MIN, Reader, TwoWindows, WindowVariant, start_reading};
use foreread_core::policy::{
    Answer, Ask, Info, Param, Scope, Why,
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
        Param::word(
            "request_size",
            &["off", "on"],
            "off",
            "on: the request as a whole turns readahead on again",
        ),
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
