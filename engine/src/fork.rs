//! Fork support for programs with engines, such as Python's `multiprocessing`.
//!
//! A forked child has a copy of its parent's memory, but only one thread: the thread that called fork. A lock that another thread held
//! during the fork stays locked in the child, and the threads for which a reader waits do not exist in the child. So the child cannot use
//! engines and readers of the parent: it must neither read with them nor drop them (use `std::mem::forget`), and must create new engines
//! and readers. For new engines to work in the child, the state shared by all engines of a process must be consistent: spare buffers, the
//! log, and the threads of connections.
//!
//! ```text
//!   Fork::prepare ── locks shared state ──► fork ───┬─ parent: drop(Fork)          unlocks
//!                                                   └─ child:  Fork::in_child      unlocks; connections get new threads
//! ```

use crate::{arena, log};

/// Lets a process fork while it has engines: it locks the state shared by all engines, so that this state is consistent in the child.
///
/// Create a `Fork` before the fork. The parent drops the `Fork` and continues. The child calls [`Fork::in_child`]. The child neither
/// reads with the parent's readers nor drops them (`std::mem::forget`), because the threads of these readers do not exist in the child;
/// it opens sources again. A program that forks only to run another program immediately (`exec`, [`std::process::Command`]) does not need
/// a `Fork`.
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

    /// Must be called in the child, on the thread that forked. The threads that serve network connections exist only in the parent, so
    /// the child starts its own.
    #[cfg_attr(not(feature = "object"), allow(unused_mut))]
    pub fn in_child(mut self) {
        // This is not dropped, because the drop would wait for threads that do not exist.
        #[cfg(feature = "object")]
        std::mem::forget(std::mem::take(&mut *self.network));
    }
}
