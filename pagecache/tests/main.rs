//! All tests of the crate.

mod device;
mod files;
mod memory;
mod process;
