//! The trace formats, and code shared by several of them.
//!
//! A new format needs a file in the folder `formats/`, and two lines in this file: `mod` and a row in [`ALL`]. No other code refers to a
//! format by name. A published table in CSV needs no format: the keys of `csv` describe it.

mod biosnoop;
mod blkparse;
mod block;
mod csv;
mod fio;
mod rbd_replay;
mod scan;
pub mod step;
mod strace;

use crate::format::Format;

/// All formats. The order of the formats matters only for lists of formats that the user sees.
pub static ALL: &[&Format] = &[
    &crate::own::FORMAT, // one row a line
    &blkparse::FORMAT,
    &fio::FORMAT,
    &strace::FORMAT,
    &biosnoop::FORMAT,
    &csv::FORMAT,
    &rbd_replay::FORMAT,
];
