//! How much may be cached for a program: the memory that is free, minus a reserve for the program itself.
//!
//! ```text
//!   group of 512 MiB, 20 MiB used ──► 492 MiB free, 64 MiB reserve ──► 428 MiB
//!   all of it fetched ──► wait until the program reads the first range that was not ──► 214 MiB more
//! ```
//! If the program itself reads the first range of the plan that was not fetched, it has used the ranges before it, and the kernel may now
//! evict them. Only half of the size of the ranges that the program has used is added to the budget, because the program may read in
//! another order than the plan.

use foreread_os::host::Host;
use foreread_os::host::memory::Room;

/// The reserve for the program's own memory is the limit divided by this. Chosen.
const RESERVE: u64 = 8;

/// The number of bytes of a plan that may still be fetched into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    whole: u64,
    left: u64,
}

impl Budget {
    /// Creates a budget of the bytes that this process's control groups and the machine's memory have room for now, but of at most `max`
    /// bytes.
    pub fn now(max: Option<u64>) -> Budget {
        // If the kernel reports no limit, only the caller's limit applies.
        let room = Host::here().memory_room();
        let room = room.map_or(u64::MAX, |room| Budget::of(&room));
        Budget::bytes(room.min(max.unwrap_or(u64::MAX)))
    }

    pub fn bytes(whole: u64) -> Budget {
        Budget { whole, left: whole }
    }

    fn of(room: &Room) -> u64 {
        (room.free_bytes.saturating_add(room.inactive_bytes))
            .saturating_sub(room.limit_bytes / RESERVE)
    }

    /// Subtracts `bytes` from the budget, or returns false if the budget is smaller.
    pub fn take(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Returns `bytes` to the budget, because they were not fetched after all.
    pub fn give_back(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes).min(self.whole);
    }

    /// Adds half of the fetched bytes to the budget again, because the program has read them.
    pub fn renew(&mut self) {
        self.left = self.left.max(self.whole / 2);
    }

    pub fn whole(&self) -> u64 {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_left_and_half_comes_back() {
        let mib = |n: u64| n << 20;
        let room = Room {
            free_bytes: mib(480),
            limit_bytes: mib(512),
            inactive_bytes: mib(12),
            group: None,
        };
        let mut budget = Budget::bytes(Budget::of(&room));
        assert_eq!(budget.whole(), mib(428));
        assert!(budget.take(mib(428)) && !budget.take(1));
        budget.renew();
        assert!(budget.take(mib(214)) && !budget.take(1));
        budget.give_back(mib(1));
        assert!(budget.take(mib(1)) && !budget.take(1));
        let free_bytes = mib(1);
        assert_eq!(Budget::of(&Room { free_bytes, ..room }), 0);
    }
}
