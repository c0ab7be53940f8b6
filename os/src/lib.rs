//! Shared access to the operating system for all crates: users' files, output files, threads, facts about the host, and the
//! error type.
//!
//! ```text
//!   ends     reports what a process waits for at its end
//!   failure  an error: its kind, what failed, where, why, what to do
//!   host     devices, mounts and memory from /proc and /sys
//!   open     checks a path without opening it, then opens the checked file; reads small files within a limit
//!   output   creates files atomically, follows no link, replaces files only on request
//!   poll     waits for descriptors
//!   unmount  unmounts by fusermount3 or umount
//!   secrets  removes secrets from names of sources
//!   threads  starts threads without panics; waits for them with a limit
//! ```
//! Example: a file of settings in a folder of another user may be a FIFO, a link to `/dev/zero`, or 4 GiB long. In each of these cases,
//! [`open::read_small`] returns an error at once instead of waiting.
//!
//! Files of `/proc` and `/sys` need no check and are read directly.

pub mod ends;
pub mod failure;
pub mod host;
pub mod open;
pub mod output;
pub mod poll;
pub mod secrets;
pub mod threads;
pub mod unmount;
