//! `linux-2.6.0`: the readahead of the test kernels of mid-2003, with a current window and a second window ahead of it.
//!
//! The policy decides about each page of a read just before the page is looked up in the cache. If a page is absent, the reader waits until
//! it has arrived, and only then the next page is looked up. The window grows by two pages for each page that is read sequentially, and
//! shrinks by two pages for each page that is not. If the window has shrunk to zero, readahead is off until 32 consecutive pages have been
//! read one by one.
//!
//! ```text
//!     look(p), page p          look(p+1), page p+1
//!   ──────┬──────────────────────────┬─────────────►  one page, wait, the next
//!         ├── current ──────────────┤├── ahead ─────────────┤
//! ```
//!
//! Source: docs/spec/linux-readahead.md 1.1 to 1.5. A page fault reads only the page at which it occurs. A known fault of the original:
//! large random reads shrink the window to zero. From then on, the reader fetches one page at a time and waits for each ([Bhattacharya
//! 2003]).

use super::two_windows::{MIN, Reader, WindowVariant};
use foreread_core::policy::{
    Info, Scope,
    ondemand::{MAX, PAGE},
};

/// The windows see each page when it is read.
struct EachPage;

impl WindowVariant for EachPage {
    const ANNOUNCES: bool = false;
}

pub static INFO: Info = Info {
    name: "linux-2.6.0",
    summary: "a current and an ahead window, page by page",
    origin: "Linux 2.6.0-test, mid-2003",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[MAX, MIN],
    build: |v| Box::new(Reader::new(v[0], v[1], EachPage)),
};
