//! Prefaults memory: a thread touches new buffers while readers wait for the device.
//!
//! The first touch of a page of memory is a page fault. On a virtual machine, the page fault of a first touch can take a tenth of the time
//! of a fast read. While a cache fills, each new page causes one page fault; this thread takes the faults while the transfers run. Reads
//! never depend on this thread, and it is not started for a reader that uses few buffers. If the thread cannot be started, each buffer is
//! touched first by the thread that needs it.
//!
//! ```text
//!   take ──► spare list of this size short? ──ring──► prefaulter: allocate, touch, put into the spare list
//! ```

use super::Pool;
use crate::sync::lock;
use crate::system;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, Weak};

/// Number of buffers that their takers had to prepare before a thread is started.
const WORTH_IT: u32 = 64;
/// Bytes of each buffer size that are kept ready. Measured: 256 KiB hides the faults of 4 KiB reads at depth 1.
const READY_BYTES: usize = 256 << 10;

/// How many buffers of this size to prepare in advance: at least two, so that one is available while the other is prepared.
pub fn ready(len: usize) -> usize {
    (READY_BYTES / len.max(1)).max(2)
}

/// Counts how often no prepared buffer was available, and starts the prefaulting thread if that happens often.
#[derive(Debug, Default)]
pub struct BufferPrefaulter {
    state: Mutex<PrefaultState>,
}

#[derive(Debug, Default)]
struct PrefaultState {
    missed: u32,
    thread: Option<SyncSender<usize>>,
    refused: bool,
}

impl BufferPrefaulter {
    /// Reports that few prepared buffers of `pages` pages are left or, if `missed` is true, that none was left.
    pub fn ring(&self, pool: &Arc<Pool>, pages: usize, missed: bool) {
        let mut state = lock(&self.state);
        state.missed = state.missed.saturating_add(u32::from(missed));
        if state.missed < WORTH_IT || state.refused {
            return;
        }
        if state.thread.is_none() {
            state.thread = spawn(Arc::downgrade(pool));
            state.refused = state.thread.is_none();
        }
        // A full channel means that the thread is already running; it prepares all missing buffers of a size.
        if let Some(Err(TrySendError::Disconnected(_))) =
            state.thread.as_ref().map(|t| t.try_send(pages))
        {
            state.refused = true;
        }
    }
}

/// Starts the thread. It ends when the pool is dropped.
fn spawn(pool: Weak<Pool>) -> Option<SyncSender<usize>> {
    let (ring, rung): (SyncSender<usize>, Receiver<usize>) = sync_channel(1);
    let work = move || {
        for pages in rung {
            let Some(pool) = pool.upgrade() else { return };
            while pool.make_ready(pages) {}
        }
    };
    system::spawn("foreread-prefault", None, work)
        .is_ok()
        .then_some(ring)
}
