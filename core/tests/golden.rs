//! The policies that these tests run, all that serve reads, and their golden tables. The tests of `foreread-history` are the same files
//! with its own list.

use crate::golden_tables::golden;
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

golden! {
    linux_6_18: linux, "linux-6.18.txt", 60;
    hints: linux, "hints.txt", 1;
    linux_6_18_folios: linux, "linux-6.18-folios.txt", 85;
    rbd_plain: rbd, "rbd-plain.txt", 60;
    rbd_aligned: rbd, "rbd-aligned.txt", 110;
    rbd_eager: rbd, "rbd-eager.txt", 11;
    auto: linux, "auto.txt", 12;
}
