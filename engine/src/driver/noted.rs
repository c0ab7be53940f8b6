//! Hits that took no lock, until they are reported to the machine.
//!
//! Reported before anything else that a thread does behind the lock, so that a policy, the counters and the order of eviction are
//! those of all reads that ended before. Hits of one thread stay in their order.
//!
//! ```text
//!   note ──► one of 16 lists, by thread ──► take: every list that is filled, behind the driver's lock
//!              └─ its bit in `filled` is set by the first hit in it
//! ```
//!
//! Example: thread 3 has noted 10 hits and thread 4 has noted 64. Thread 4 takes the driver's lock, and all 74 are reported.

use crate::sync::Mutex;
use foreread_core::units::{ByteRange, OpenId};
use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lists of hits. More threads than these share some.
const LISTS: usize = 16;
/// A list of this many is reported: the lock then costs each hit less than the copy of a page does.
const MANY: usize = 64;

/// A read that was served.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    pub open: OpenId,
    pub range: ByteRange,
}

/// On cache lines that nothing else is on.
#[repr(align(128))]
#[derive(Default)]
struct List(Mutex<Vec<Hit>>);

/// Hits that have not been reported to the machine.
#[derive(Default)]
pub struct Noted {
    /// Bit `n`: list `n` is not empty.
    filled: AtomicU32,
    lists: [List; LISTS],
}

impl Noted {
    /// Notes a hit. True when there are many now.
    pub fn note(&self, hit: Hit) -> bool {
        let list = own_list();
        let mut hits = self.lists[list]
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        hits.push(hit);
        if hits.len() == 1 {
            self.filled.fetch_or(1 << list, Ordering::Release);
        }
        hits.len() >= MANY
    }

    /// Whether there is a hit.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.filled.load(Ordering::Acquire) != 0
    }

    /// Gives every hit to `report`, those of one thread in their order.
    #[cold]
    pub fn take(&self, scratch: &mut Vec<Hit>, mut report: impl FnMut(Hit)) {
        let filled = self.filled.swap(0, Ordering::AcqRel);
        for list in (0..LISTS).filter(|list| filled >> list & 1 != 0) {
            std::mem::swap(
                &mut *self.lists[list]
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
                scratch,
            );
            scratch.drain(..).for_each(&mut report);
        }
    }
}

/// The list of this thread.
fn own_list() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static OWN: Cell<Option<u32>> = const { Cell::new(None) };
    }
    let own = OWN.get().unwrap_or_else(|| {
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(Some(own));
        own
    });
    own as usize % LISTS
}
