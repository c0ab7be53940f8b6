//! The trace formats, and code shared by several of them.
//!
//! A new format is one file here and two lines below, `mod` and its row in [`ALL`]. A published table with columns that
//! `preset` knows is a row of `published` and one in [`ALL`]. No format is known by name outside this list.

mod biosnoop;
mod blkparse;
mod blktrace;
mod block;
mod csv;
mod darshan;
mod fio;
mod ftrace;
mod perf_trace;
mod published;
mod rbd_replay;
mod scan;
pub mod step;
mod strace;

use crate::format::Format;

/// All formats. The order matters only for lists.
pub static ALL: &[&Format] = &[
    &crate::own::FORMAT, // one row a line
    &blkparse::FORMAT,
    &blktrace::FORMAT,
    &fio::FORMAT,
    &ftrace::FORMAT,
    &strace::FORMAT,
    &published::ALIBABA,
    &published::ARC,
    &biosnoop::FORMAT,
    &csv::FORMAT,
    &darshan::FORMAT,
    &published::MSR,
    &perf_trace::FORMAT,
    &rbd_replay::FORMAT,
    &published::SPC,
    &published::SYSTOR,
    &published::TENCENT,
];
