//! All tests of the crate.

mod advisor;
mod device;
mod files;
mod memory;
mod process;
