//! FUSE passthrough (FUSE_PASSTHROUGH, Linux 6.9): the kernel reads local files that hold complete objects.
//!
//! ```text
//!   open ──► is the number open? ── yes ──► as its other handles are
//!              └─ no ──► a whole file? ── yes, and the kernel takes it ──► passed
//!                                      └─ no ──► read through foreread
//! ```
//! The kernel refuses a handle that is passed beside one of the same number that is not, and two files for one number. So a number is
//! passed from its first handle to its last one, or not at all.

use crate::source::WholeFile;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Open files by inode number. `I` is the kernel's identifier of a backing file.
pub struct PassedFiles<I> {
    numbers: Mutex<HashMap<u64, OpenNumber<I>>>,
    /// The kernel has refused: it does not know how, or this process may not.
    is_refused: AtomicBool,
}

struct OpenNumber<I> {
    handles: u64,
    passed: Option<Arc<PassedFile<I>>>,
}

/// A file that the kernel has taken. It is closed, and may be evicted, once no handle of its number is open.
pub struct PassedFile<I> {
    pub id: I,
    _file: WholeFile,
}

impl<I> Default for PassedFiles<I> {
    fn default() -> PassedFiles<I> {
        PassedFiles {
            numbers: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }
}

impl<I> PassedFiles<I> {
    /// Counts one more handle of a number. Returns the file that the kernel is to read for it; `file` and `take` are asked where it is the first
    /// handle.
    pub fn open(
        &self,
        number: u64,
        file: Option<WholeFile>,
        take: impl FnOnce(&WholeFile) -> std::io::Result<I>,
    ) -> Option<Arc<PassedFile<I>>> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let open = numbers.entry(number).or_insert(OpenNumber {
            handles: 0,
            passed: None,
        });
        open.handles += 1;
        if open.handles == 1
            && let Some(file) = file
        {
            match take(&file) {
                Ok(id) => open.passed = Some(Arc::new(PassedFile { id, _file: file })),
                Err(error) => {
                    let was_refused = self.is_refused.swap(true, Ordering::Relaxed);
                    if !was_refused {
                        tracing::info!(
                            "FUSE passthrough is not available for files of the cache: {error}"
                        );
                    }
                }
            }
        }
        open.passed.clone()
    }

    /// A handle of a number was closed, or could not be opened.
    pub fn release(&self, number: u64) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = numbers.get_mut(&number) else {
            return;
        };
        open.handles -= 1;
        if open.handles == 0 {
            let gone = numbers.remove(&number);
            drop(numbers);
            drop(gone);
        }
    }

    /// May a file be passed?
    pub fn may_pass(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// Disables passthrough from now on.
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}
