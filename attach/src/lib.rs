//! The crate that **helps** unmodified programs, through the kernel's page cache and its settings.
//!
//! ```text
//!   run        observes the reads of a command while it runs, and reads ahead for it
//!   planning   makes a plan of what a program reads, from recordings or from headers
//!   warm       reads a plan into the page cache
//!   doctor     finds what is wrong with the readahead of all disks, and how to set it
//!   pool       the threads of run and warm that wait for storage
//!   watch      reports at an interval what disks read, with the verdict of doctor
//! ```
//! The system calls are in `foreread-pagecache`. Errors of foreread never reach the program.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may panic if a thread cannot be started"
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
