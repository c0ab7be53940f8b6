//! The policies that these tests run: all policies that serve reads. The tests of `foreread-history` are the same files
//! with its own list.

use foreread_core::policy::{ALL, Info, PolicySpec, SpecError};

/// Policies whose small worlds are walked, with windows that are small too.
pub const SMALL_WORLDS: [&str; 4] = [
    "none",
    "auto",
    "linux-6.18:max=16K",
    "rbd-plain:trigger=1,max=16K",
];

pub fn policies() -> Vec<&'static Info> {
    ALL.to_vec()
}

pub fn parse(text: &str) -> Result<PolicySpec, SpecError> {
    PolicySpec::parse(text)
}
