//! The published policies, and policies with which `auto` is compared.
//!
//! `marks` and `two_windows` are shared code, not policies. The published policies use no internals of the state machine: they
//! implement the same trait as the policies of `foreread-core`.

mod marks;
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

use foreread_core::policy::{ALL, Info, PolicyDraft, PolicySpec, SpecError};

/// The published policies, oldest first.
pub static PUBLISHED: &[&Info] = &[
    &linux_2_6_0::INFO,
    &linux_2_6_0_mm::INFO,
    &linux_2_6_0_mm_fix::INFO,
    &linux_2_6_23::INFO,
    &linux_2_6_31::INFO,
    &linux_thrashsafe::INFO,
    &linux_3_12::INFO,
];

/// Policies with which `auto` is compared. No command lists these policies, but [`parse`] accepts their names.
pub static OPPONENTS: &[&Info] = &[&amp::INFO, &read_stream::INFO, &peer_mountpoint_s3::INFO];

/// Returns every listed policy, in the order of `foreread list policies`: published policies come before the current kernel.
pub fn policies() -> Vec<&'static Info> {
    crate::insert(ALL, PUBLISHED, |info| info.name == "linux-6.18")
}

/// Parses `NAME:key=value,...`, which names a policy in [`policies`] or in [`OPPONENTS`]. If the name is unknown, the error message lists
/// only the policies in [`policies`].
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

/// Like [`parse`], but for a caller that does not know the storage: it also returns an error if a parameter value depends on the storage.
pub fn parse_spec(text: &str) -> Result<PolicySpec, SpecError> {
    parse(text)?.ready(None)
}
