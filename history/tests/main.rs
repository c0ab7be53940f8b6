//! The tests of foreread-history as one binary, because linking is the slow part of a test build.
//!
//! The tests that apply to every policy are those of `foreread-core`, with this crate's list in `golden`.

#[path = "../../core/tests/common.rs"]
mod common;
mod golden;
#[path = "../../core/tests/golden_tables.rs"]
mod golden_tables;
#[path = "../../core/tests/hits.rs"]
mod hits;
#[path = "../../core/tests/patterns.rs"]
mod patterns;
mod published;
mod specs;
#[path = "../../core/tests/worlds.rs"]
mod worlds;
