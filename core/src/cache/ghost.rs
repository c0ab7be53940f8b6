//! Remembers pages that were read ahead and evicted unused, so that they count as thrash if a read needs them later.
//!
//! The records cover the latest [`GHOST_GROUPS`] groups of 64 pages. The records affect only counters, never a decision.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Maximum number of groups whose evicted pages are remembered: with pages of 4 KiB, 4096 groups cover 1 GiB.
pub const GHOST_GROUPS: usize = 4096;

/// Remembers pages that were read ahead and evicted unused, with one bit for each page.
pub struct Ghosts {
    pages: BTreeMap<(u32, u64), u64>,
    order: VecDeque<(u32, u64)>,
}

impl Ghosts {
    pub fn new() -> Ghosts {
        Ghosts {
            pages: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Records that these pages were evicted unused.
    pub fn remember(&mut self, file: u32, number: u64, mask: u64) {
        if mask == 0 {
            return;
        }
        let known = self.pages.entry((file, number)).or_insert(0);
        if *known == 0 {
            self.order.push_back((file, number));
        }
        *known |= mask;
        // An entry whose pages were all taken is still in `order`, so `order` is the longer of the two.
        while self.order.len() > GHOST_GROUPS {
            if let Some(oldest) = self.order.pop_front() {
                self.pages.remove(&oldest);
            }
        }
    }

    /// Returns the remembered pages of `mask`, and forgets them.
    pub fn take(&mut self, file: u32, number: u64, mask: u64) -> u64 {
        if self.pages.is_empty() {
            return 0;
        }
        let Some(known) = self.pages.get_mut(&(file, number)) else {
            return 0;
        };
        let met = *known & mask;
        *known &= !mask;
        if *known == 0 {
            self.pages.remove(&(file, number));
        }
        met
    }

    /// Forgets a file.
    pub fn forget(&mut self, file: u32) {
        let of_file: Vec<(u32, u64)> = self
            .pages
            .range((file, 0)..=(file, u64::MAX))
            .map(|(&key, _)| key)
            .collect();
        // Usually there is none, and files may be closed often.
        if !of_file.is_empty() {
            for key in &of_file {
                self.pages.remove(key);
            }
            self.order.retain(|&(f, _)| f != file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_up_to_its_limit() {
        let mut ghosts = Ghosts::new();
        for number in 0..GHOST_GROUPS as u64 + 1 {
            ghosts.remember(0, number, 0b11);
        }
        assert_eq!(ghosts.take(0, 0, u64::MAX), 0, "the oldest is forgotten");
        assert_eq!(ghosts.take(0, 1, 0b110), 0b10);
        assert_eq!(ghosts.take(0, 1, 0b110), 0);
        assert!(ghosts.order.len() <= GHOST_GROUPS);
        ghosts.forget(0);
        assert_eq!(ghosts.take(0, 2, 1), 0);
    }
}
