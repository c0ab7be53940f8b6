//! What every crate needs from the operating system, in one way: files of users, output files, threads, facts of the host; and the
//! shape of an error.
//!
//! ```text
//!   ends     says what the end of a process waits for
//!   failure  an error: its kind, what failed, where, why, what to do
//!   host     what /proc and /sys say of devices, mounts and memory
//!   open     looks at a path without opening it, then opens what it has seen; reads small files within a limit
//!   output   makes a file: it appears when it is whole, follows no link, replaces nothing unasked
//!   poll     waits for descriptors
//!   unmount  takes a mount away by fusermount3 or umount
//!   secrets  what must not be shown of the name of a source
//!   threads  begins a thread, or says why not; waits for one with a limit
//! ```
//! Example: `.zarray` of a folder of another user may be a FIFO, a link to `/dev/zero`, or 4 GiB. [`open::read_small`] returns an error
//! that says so, at once.
//!
//! Files of `/proc` and `/sys` are the kernel's and are read as they are.

pub mod ends;
pub mod failure;
pub mod host;
pub mod open;
pub mod output;
pub mod poll;
pub mod secrets;
pub mod threads;
pub mod unmount;
