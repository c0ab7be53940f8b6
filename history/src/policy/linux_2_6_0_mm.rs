//! `linux-2.6.0-mm`: the experimental `-mm` kernel tree of August 2003, which passes a whole request to readahead before it reads
//! the pages.
//!
//! This kernel works like `linux-2.6.0`, but readahead first sees all pages of the request; only then are they read, page by page.
//!
//! ```text
//!   look(first) look(first+1) .. look(last-1)   then   page, wait, page, wait, ..
//!   ├── windows that these start ──┤                   while it is off: each page alone
//! ```
//!
//! Source: docs/spec/linux-readahead.md 1.1 to 1.3, and [Bhattacharya 2003], whose patch fixes this version. A known fault of the original:
//! once the window has shrunk to zero, a request is read one page at a time, although the kernel knows the whole request.

use super::two_windows::{MIN, Reader, WindowVariant};
use foreread_core::policy::{
    Info, Scope,
    ondemand::{MAX, PAGE},
};

/// The windows see all pages of a request before any is read.
struct WholeRequest;

impl WindowVariant for WholeRequest {
    const ANNOUNCES: bool = true;
}

pub static INFO: Info = Info {
    name: "linux-2.6.0-mm",
    summary: "as linux-2.6.0, with the whole request announced first and still read page by page",
    origin: "Linux 2.6.0-test2-mm4, August 2003, as Suparna Bhattacharya found it",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[MAX, MIN],
    build: |v| Box::new(Reader::new(v[0], v[1], WholeRequest)),
};
