//! FUSE passthrough (FUSE_PASSTHROUGH, Linux 6.9): the kernel reads local files that hold complete objects.
//!
//! ```text
//!   open ──► is the inode open? ── yes ──► passed or not, like its other handles
//!              └─ no ──► a whole file? ── yes, and the kernel accepts it ──► passed
//!                                      └─ no ──► read through foreread
//! ```
//! For one inode, the kernel refuses to mix passthrough handles with other handles, and to use two backing files. So while an inode has
//! open handles, either all of them use passthrough or none does.

use crate::source::WholeFile;
use crate::sync::lock;
use fuser::BackingId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The inodes with open handles, by inode number.
#[derive(Default)]
pub struct PassedFiles {
    numbers: Mutex<HashMap<u64, OpenNumber>>,
    /// The kernel has refused passthrough: it does not support it, or this process lacks the permission.
    is_refused: AtomicBool,
}

#[derive(Default)]
struct OpenNumber {
    handles: u64,
    passed: Option<Arc<PassedFile>>,
}

/// A backing file that the kernel has accepted. The backing file stays open, and cannot be evicted from the disk cache, until the last
/// handle of its inode is closed.
pub struct PassedFile {
    pub id: BackingId,
    _file: WholeFile,
}

impl PassedFiles {
    /// Counts one more open handle of an inode. Returns the file that the kernel reads for this handle, or `None` if foreread serves the
    /// reads. `file` and `take` are used only for the first handle: `take` registers `file` with the kernel.
    pub fn open(
        &self,
        number: u64,
        file: Option<WholeFile>,
        take: impl FnOnce(&WholeFile) -> std::io::Result<BackingId>,
    ) -> Option<Arc<PassedFile>> {
        let mut numbers = lock(&self.numbers);
        let open = numbers.entry(number).or_default();
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
                            "FUSE passthrough is not available for files of the disk cache: {error}"
                        );
                    }
                }
            }
        }
        open.passed.clone()
    }

    /// Subtracts one from the open handles of an inode, because a handle was closed or could not be opened.
    pub fn release(&self, number: u64) {
        let mut numbers = lock(&self.numbers);
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

    /// Whether passthrough may be tried: the kernel has not refused a file so far.
    pub fn may_pass(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// Disables passthrough from now on.
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}
