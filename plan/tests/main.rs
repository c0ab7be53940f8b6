//! All tests of the crate.

mod layout;
mod runs;
mod text;
