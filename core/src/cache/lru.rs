//! The eviction order of groups of 64 pages: the least recently touched group first. To try another eviction order, replace this file.
//!
//! The list contains groups, not single pages. The cache evicts from the end of the list that contains the least recently touched groups.
//!
//! ```text
//!   hot end                                   cold end
//!   newest ◄──► touched ◄──► ... ◄──► ... ◄──► victim
//! ```

use super::links::{Link, List, NONE};
use alloc::vec::Vec;

/// The eviction order of all groups in use.
pub struct Evictor {
    links: Vec<Link>,
    list: List,
}

impl Evictor {
    pub fn new() -> Evictor {
        Evictor {
            links: Vec::new(),
            list: List::EMPTY,
        }
    }

    /// Adds a group as the most recently touched group.
    pub fn insert(&mut self, slot: u32) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, Link::NONE);
        }
        self.list.push(&mut self.links, slot);
    }

    /// Moves the group to the end of the order, because a page of it was read or the policy wants to keep it.
    pub fn touch(&mut self, slot: u32) {
        if self.list.newest != slot {
            self.remove(slot);
            self.insert(slot);
        }
    }

    /// Removes the group from the order.
    pub fn remove(&mut self, slot: u32) {
        self.list.remove(&mut self.links, slot);
    }

    /// The groups in eviction order: the group to evict next comes first.
    pub fn victims(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.list.oldest;
        core::iter::from_fn(move || {
            let slot = at;
            (slot != NONE).then(|| {
                at = self.links[slot as usize].newer;
                slot
            })
        })
    }

    /// Bytes of memory that the order uses.
    pub fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let mut lru = Evictor::new();
        (0..4).for_each(|slot| lru.insert(slot));
        lru.touch(1);
        lru.touch(1);
        lru.remove(2);
        assert_eq!(lru.victims().collect::<Vec<_>>(), [0, 3, 1]);
        lru.touch(0);
        assert_eq!(lru.victims().collect::<Vec<_>>(), [3, 1, 0]);
        lru.remove(0);
        lru.remove(3);
        lru.remove(1);
        assert_eq!(lru.victims().count(), 0);
    }
}
