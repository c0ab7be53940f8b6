//! What is compared with and serves no reads: the policies that Linux had from 2003 to 2013, policies of
//! other programs, and the workloads of the publications.
//!
//! They use what any policy or workload outside `foreread-core` and `foreread-sim` can use. A program that compares
//! registers them by reading names with the functions of this crate instead of those:
//!
//! ```text
//!   PolicyDraft::parse ──► core's policies ────────────────────────────────────► engine: serve, mount, C, Python
//!   parse ───────────────► core's policies, the published, the opponents ──────► lab: compare, sweep, explain, reproduce
//! ```
//! Example: `serve --policy linux-3.12` is refused, `compare --policy linux-3.12` runs it.
//!
//! Adding a policy or a workload: write its file, name it in one list of `policy.rs` or `workload.rs`.

mod policy;
mod workload;

pub use policy::{OPPONENTS, PUBLISHED, parse, parse_spec, policies};
pub use workload::{parse_workload, workloads};

/// A list with others in it, before the entry `at`; at its end where there is none.
fn insert<T: Copy>(list: &[T], others: &[T], at: impl Fn(&T) -> bool) -> Vec<T> {
    let (before, after) = list.split_at(list.iter().position(at).unwrap_or(list.len()));
    [before, others, after].concat()
}
