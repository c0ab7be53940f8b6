//! Fork support for programs with engines, such as Python's `multiprocessing`.
//!
//! A forked child has the memory of its parent and only the thread that forked. What another thread had locked stays locked
//! there, and threads that a reader waits for do not exist. So an engine and its readers are of no use in a child: it must
//! neither read with them nor drop them (`std::mem::forget`), and creates new ones. For those to work, the state shared by all engines of a
//! process must be consistent: spare buffers, the log, the threads of connections.
//!
//! ```text
//!   Fork::prepare ── locks shared state ──► fork ───┬─ parent: drop(Fork)          unlocks
//!                                                   └─ child:  Fork::in_child      unlocks; connections get new threads
//! ```

use crate::{arena, log};

/// For a process that forks while it has engines: locks the state shared by all engines, so that it is consistent in the child.
///
/// Create one before the fork. The parent drops it and continues. The child calls [`Fork::in_child`]; it neither reads with the
/// readers of the parent nor drops them (`std::mem::forget`), because their threads do not exist in the child, and opens sources again. A
/// program that forks only to run another program at once (`exec`, [`std::process::Command`]) needs none of this.
///
/// ```
/// let fork = foreread::Fork::prepare();
/// // fork(); in the child: fork.in_child(). Here is the parent:
/// drop(fork);
/// ```
#[must_use = "what is shared is locked until it is dropped"]
pub struct Fork {
    _arenas: arena::ArenaLocks,
    _log: std::sync::MutexGuard<'static, log::Recent>,
    #[cfg(feature = "object")]
    network: crate::source::object::Network,
    #[cfg(feature = "disk-cache")]
    _disk_caches: std::sync::MutexGuard<'static, crate::source::disk_cache::OpenCaches>,
}

impl Fork {
    /// Waits for other threads to release the shared state (microseconds), and locks it.
    pub fn prepare() -> Fork {
        Fork {
            _arenas: arena::hold(),
            _log: log::hold(),
            #[cfg(feature = "object")]
            network: crate::source::object::hold_network(),
            #[cfg(feature = "disk-cache")]
            _disk_caches: crate::source::disk_cache::hold(),
        }
    }

    /// In the child, by the thread that forked: the threads that drove connections stayed in the parent.
    #[cfg_attr(not(feature = "object"), allow(unused_mut))]
    pub fn in_child(mut self) {
        // Not dropped: that would wait for threads that are not there.
        #[cfg(feature = "object")]
        std::mem::forget(std::mem::take(&mut *self.network));
    }
}
