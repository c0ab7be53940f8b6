//! The trace formats, and code shared by several of them.
//!
//! A new format needs a file in the folder `formats/`, and two lines in this file: `mod` and a row in [`ALL`]. A published table that
//! `preset` can describe by its columns needs only a row in `published` and a row in [`ALL`]. No other code refers to a format by name.

mod biosnoop;
mod blkparse;
mod blktrace;
mod block;
mod csv;
mod fio;
mod ftrace;
mod published;
mod rbd_replay;
mod scan;
pub mod step;
mod strace;

use crate::format::Format;

/// All formats. The order of the formats matters only for lists of formats that the user sees.
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
    &published::MSR,
    &rbd_replay::FORMAT,
    &published::SPC,
    &published::SYSTOR,
    &published::TENCENT,
];
