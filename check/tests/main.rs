//! The tests of what proves foreread, as one binary: linking is the slow part of a test build.

mod bench_policies;
mod bhattacharya_2003;
mod boot_ide;
mod command;
mod command_bench_policies;
mod command_conform;
mod command_conform_live;
mod command_replay_log;
mod command_reproduce;
mod command_reproduce_real;
#[cfg(feature = "object")]
mod command_store;
mod common;
mod conform;
#[cfg(feature = "rbd")]
mod conform_rbd;
mod crume_2014;
mod device_2003;
mod device_fits;
mod page;
mod papers;
mod recorded_programs;
mod reproduce;
mod wu_2010a_mmap;
mod wu_2010a_thrash;
mod wu_2010b_small_device;
mod wu_2013;
