//! [Le Moal 2025]: Damien Le Moal, 2025, Linux commit 459779d04ae8, "block: Improve read ahead size for rotational devices" (in Linux 6.17).
//!
//! Eight jobs read files of XFS in order, on a SATA disk: MB/s with the readahead before (128 KiB) and after (twice `max_sectors`).
//!
//! Never: a figure of another publication.

/// A line of its table.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Bytes of a read.
    pub record: &'static str,
    /// MB/s with 128 KiB.
    pub before: f64,
    /// MB/s with twice `max_sectors`.
    pub after: f64,
}

/// Its two lines.
pub const LINES: [Line; 2] = [
    Line {
        record: "1M",
        before: 122.0,
        after: 167.0,
    },
    Line {
        record: "128K",
        before: 57.0,
        after: 165.0,
    },
];
