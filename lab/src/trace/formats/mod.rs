//! One file for each format of traces, and what several of them share. Never: known by name outside `trace::format`.

pub mod blkparse;
pub mod blktrace;
mod block;
pub mod fio;
mod scan;
mod step;
pub mod strace;
pub mod vscsi;
