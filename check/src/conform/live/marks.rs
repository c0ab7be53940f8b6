//! Reads from the flags of a folio's first page frame whether the folio has the kernel's readahead mark (PG_readahead).
//!
//! The kernel keeps the readahead mark in the bit that also means "reclaim soon" (a page never has both meanings). The kernel shows this
//! bit to root as bit 9 of `/proc/kpageflags` (KPF_RECLAIM in the kernel's documentation). If the flags cannot be read, the result is an
//! error and never a guess.

use super::LiveError;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bit of the mark.
const RECLAIM: u64 = 1 << 9;

/// The page flags of this machine.
pub(super) struct Marks(File);

impl Marks {
    pub fn open() -> Result<Marks, LiveError> {
        let place = "/proc/kpageflags";
        match File::open(place) {
            Ok(file) => Ok(Marks(file)),
            Err(error) => {
                let what = format!("cannot read marks from {place}: {error}");
                Err(LiveError::Cannot(format!(
                    "{what}; run as root on a kernel with CONFIG_PROC_PAGE_MONITOR"
                )))
            }
        }
    }

    /// Returns whether the folio whose first page is in this page frame has the readahead mark.
    pub fn at(&self, frame: u64) -> Result<bool, LiveError> {
        let mut word = [0; 8];
        self.0
            .read_exact_at(&mut word, frame * 8)
            .map_err(|e| LiveError::io("/proc/kpageflags", e))?;
        Ok(u64::from_ne_bytes(word) & RECLAIM != 0)
    }
}
