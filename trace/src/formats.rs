//! One file for each format of traces, and what several of them share. Never: known by name outside `trace::catalog`.

pub mod alibaba;
pub mod arc;
pub mod biosnoop;
pub mod blkparse;
pub mod blktrace;
mod block;
pub mod csv;
pub mod darshan;
pub mod disksim;
pub mod fio;
pub mod ftrace;
pub mod lirs;
pub mod msr;
pub mod oracle_general;
pub mod parquet;
pub mod perf_trace;
pub mod rbd_replay;
mod scan;
pub mod spc;
pub mod step;
pub mod strace;
pub mod systor;
mod table;
pub mod tencent;
pub mod vscsi;
