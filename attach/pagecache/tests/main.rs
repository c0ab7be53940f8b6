//! All tests of the crate.

mod advisor;
mod files;
