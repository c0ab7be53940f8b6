//! How wide text for people is: 100 columns, unless the command says how wide its terminal is.
//!
//! One number for the process: every table, note and advice ends up on the same terminal. Never: asks a terminal itself.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Columns where the command says nothing: what a file or a pipe gets.
pub const DEFAULT: usize = 100;
/// Narrower text has no room for a row of figures.
pub const MIN: usize = 40;
/// Longer lines are hard to read.
pub const MAX: usize = 200;

static COLUMNS: AtomicUsize = AtomicUsize::new(DEFAULT);

/// Sets how wide text is, within [`MIN`] and [`MAX`].
pub fn set(columns: usize) {
    COLUMNS.store(columns.clamp(MIN, MAX), Ordering::Relaxed);
}

/// Columns of a line at most.
#[must_use]
pub fn columns() -> usize {
    COLUMNS.load(Ordering::Relaxed)
}
