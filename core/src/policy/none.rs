//! No readahead: every miss fetches what was asked for and nothing else. The row all others are compared with.

use super::{Info, Policy, Scope};
use alloc::boxed::Box;

/// Plans nothing, so the machine reads each missing run by itself.
struct Nothing;

impl Policy for Nothing {}

/// No readahead: every miss fetches what was asked for and nothing else.
pub static INFO: Info = Info {
    name: "none",
    summary: "reads what is asked for and nothing else",
    origin: "the baseline of every table",
    scope: Scope::Open,
    page_bytes: None,
    params: &[],
    build: |_| Box::new(Nothing),
};
