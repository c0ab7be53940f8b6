//! The lab's tests, as one binary: linking is the slow part of a test build.

mod boot_ide;
mod chart;
mod chromium;
mod compare;
mod conform;
mod conform_heard;
#[cfg(feature = "rbd")]
mod conform_rbd;
mod device_2003;
mod device_fits;
mod explain;
mod limits;
mod page;
mod probe;
mod replay;
mod replay_live;
mod reproduce;
mod reproduce_real;
mod seed_002;
mod seed_004;
mod seeds;
mod seeds_aio;
mod seeds_mmap;
mod seeds_small_device;
mod seeds_thrash;
mod tune;
mod vary;
mod vm_traces;
