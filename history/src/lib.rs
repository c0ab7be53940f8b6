//! Policies and workloads for comparisons only, which serve no real reads: the readahead policies of Linux from 2003 to 2013, policies
//! of other programs, and the workloads of publications.
//!
//! These policies and workloads use only the public interfaces of `foreread-core` and `foreread-sim`. A program that compares these
//! policies and workloads must parse their names with the functions of this crate, not with those of `foreread-core` and `foreread-sim`:
//!
//! ```text
//!   PolicyDraft::parse ──► core's policies ────────────────────────────────────► engine: serve, mount, C, Python
//!   parse ───────────────► core's policies, the published, the opponents ──────► lab: compare, sweep, explain, reproduce
//! ```
//! Example: `serve --policy linux-3.12` is refused, but `compare --policy linux-3.12` runs it.
//!
//! To add a policy or a workload, write its file, and add it to one list in `policy.rs` or `workload.rs`.

mod policy;
mod workload;

pub use policy::{OPPONENTS, PUBLISHED, parse, parse_spec, policies};
pub use workload::{parse_workload, workloads};

/// The list with `others` inserted before the entry `at`, or appended if there is no such entry.
fn insert<T: Copy>(list: &[T], others: &[T], at: impl Fn(&T) -> bool) -> Vec<T> {
    let (before, after) = list.split_at(list.iter().position(at).unwrap_or(list.len()));
    [before, others, after].concat()
}
