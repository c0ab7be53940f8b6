//! The crate that **helps** unmodified programs, through the kernel's page cache and its settings.
//!
//! ```text
//!   run        a command: its reads are seen while it runs, and what follows is read ahead
//!   planning   a plan of what a program reads, from recordings or from headers
//!   warm       a plan, brought into the page cache
//!   doctor     all disks: what is wrong with their readahead, and how to set it
//!   pool       the threads of run and warm that wait for storages
//!   watch      a disk: its readahead is set by what its readers do
//! ```
//! The system calls are in `foreread-pagecache`. Errors never reach the program.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic where a thread is refused"
    )
)]

#[cfg(feature = "lab")]
pub mod doctor;
#[cfg(feature = "lab")]
pub mod planning;
mod pool;
#[cfg(feature = "lab")]
pub mod run;
pub mod warm;
#[cfg(feature = "lab")]
pub mod watch;
