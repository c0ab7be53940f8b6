//! The policies that these tests run: all policies of this crate.

use foreread_core::policy::Info;
use foreread_history::{OPPONENTS, PUBLISHED};

pub use foreread_history::parse_spec as parse;

/// Policies whose small worlds are walked, with windows that are small too.
pub const SMALL_WORLDS: [&str; 2] = ["linux-2.6.0:max=16K", "linux-2.6.31:max=16K"];

pub fn policies() -> Vec<&'static Info> {
    [PUBLISHED, OPPONENTS].concat()
}
