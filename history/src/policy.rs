//! The published policies, and policies that `auto` is compared with.
//!
//! `marks`, `pages` and `two_windows` are shared by several and are no policies. Nothing here knows the inside of the machine: a policy
//! has the same questions and answers as one of `foreread-core`.

mod marks;
mod pages;
mod two_windows;

// Plain `mod` lines, not a macro, so that tools that do not compile (cargo-mutants) find the files.
mod amp;
mod linux_2_6_0;
mod linux_2_6_0_mm;
mod linux_2_6_0_mm_fix;
mod linux_2_6_23;
mod linux_2_6_31;
mod linux_3_12;
mod linux_thrashsafe;
mod peer_mountpoint_s3;
mod read_stream;
mod zfetch;

use foreread_core::policy::{ALL, Info, PolicyDraft, PolicySpec, SpecError};

/// The published policies, the oldest first.
pub static PUBLISHED: &[&Info] = &[
    &linux_2_6_0::INFO,
    &linux_2_6_0_mm::INFO,
    &linux_2_6_0_mm_fix::INFO,
    &linux_2_6_23::INFO,
    &linux_2_6_31::INFO,
    &linux_thrashsafe::INFO,
    &linux_3_12::INFO,
];

/// Policies that `auto` is compared with and no command lists: a text that names one is understood, see [`parse`].
pub static OPPONENTS: &[&Info] = &[
    &amp::INFO,
    &zfetch::INFO,
    &read_stream::INFO,
    &peer_mountpoint_s3::INFO,
];

/// Every policy that is listed, in the order of `foreread list policies`: the published come before the kernel of today.
pub fn policies() -> Vec<&'static Info> {
    crate::insert(ALL, PUBLISHED, |info| info.name == "linux-6.18")
}

/// Reads `NAME:key=value,...`: a policy of [`policies`], or of [`OPPONENTS`], which an error does not list.
pub fn parse(text: &str) -> Result<PolicyDraft, SpecError> {
    let listed = PolicyDraft::parse_among(text, &[&policies()]);
    if !matches!(listed, Err(SpecError::UnknownName { .. })) {
        return listed;
    }
    match PolicyDraft::parse_among(text, &[OPPONENTS]) {
        Err(SpecError::UnknownName { .. }) => listed,
        found => found,
    }
}

/// Reads `NAME:key=value,...` where the storage is not known.
/// Errors: as above, and a value that depends on the storage.
pub fn parse_spec(text: &str) -> Result<PolicySpec, SpecError> {
    parse(text)?.ready(None)
}
