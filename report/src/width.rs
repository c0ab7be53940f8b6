//! The width of printed text: 100 columns, unless the command sets it to the width of its terminal.
//!
//! The width is the same in the whole process, because all output goes to the same terminal. This module does not query
//! the terminal.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Default number of columns, used if the output is a file or a pipe.
pub const DEFAULT: usize = 100;
/// Minimum number of columns: a row of figures does not fit into fewer columns.
pub const MIN: usize = 40;
/// Maximum number of columns: longer lines are hard to read.
pub const MAX: usize = 200;

static COLUMNS: AtomicUsize = AtomicUsize::new(DEFAULT);

/// Sets the width of text, limited to [`MIN`] and [`MAX`].
pub fn set(columns: usize) {
    COLUMNS.store(columns.clamp(MIN, MAX), Ordering::Relaxed);
}

/// Returns the width of a line of output, in columns.
pub fn columns() -> usize {
    COLUMNS.load(Ordering::Relaxed)
}
