//! The lab's tests, as one binary: linking is the slow part of a test build.

mod bench_policies;
mod bhattacharya_2003;
mod boot_ide;
mod chart;
mod chromium;
mod compare;
mod conform;
mod conform_heard;
#[cfg(feature = "rbd")]
mod conform_rbd;
mod crume_2014;
mod device_2003;
mod device_fits;
mod explain;
mod limits;
mod page;
mod papers;
mod probe;
mod replay;
mod replay_live;
mod reproduce;
mod reproduce_real;
mod tune;
mod vary;
mod vm_traces;
mod wu_2010a_mmap;
mod wu_2010a_thrash;
mod wu_2010b_small_device;
mod wu_2013;
