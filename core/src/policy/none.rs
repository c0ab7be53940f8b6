//! No readahead: a miss fetches only the requested bytes. All other policies are compared with this policy.

use super::{Info, Policy, Scope};
use alloc::boxed::Box;

/// Plans nothing, so the machine reads each missing run by itself.
struct Nothing;

impl Policy for Nothing {}

/// No readahead: a miss fetches only the requested bytes.
pub static INFO: Info = Info {
    name: "none",
    summary: "reads only the requested bytes",
    origin: "the baseline of every table",
    scope: Scope::Open,
    page_bytes: None,
    params: &[],
    build: |_| Box::new(Nothing),
};
