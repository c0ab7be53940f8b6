//! Maps (file, group number) to the slot of the group: an open-addressed hash table of slot numbers.
//!
//! An entry of the table has only four bytes, because the keys are stored in the groups. The table is deterministic: the same calls give
//! the same table on every machine. The table is never iterated, because the order of its entries has no meaning.
//!
//! ```text
//!   table:  [ - | 7 | - | 2 | 9 | - ]     9 has the hash of 2, so it is in the next entry
//!   groups:   slot 7 = (file 0, 12)  ...
//! ```

use super::group::Group;
use alloc::vec;
use alloc::vec::Vec;

/// An empty entry.
const EMPTY: u32 = u32::MAX;

/// The hash table from (file, group number) to slot. At most half of the entries are in use, so that a look-up probes few entries.
pub struct Index {
    table: Vec<u32>,
    used: usize,
}

impl Index {
    pub fn new() -> Index {
        Index {
            table: vec![EMPTY; 16],
            used: 0,
        }
    }

    /// Slot of the group, if it is known.
    pub fn find(&self, groups: &[Group], file: u32, number: u64) -> Option<u32> {
        let mut at = self.home(file, number);
        loop {
            let slot = self.table[at];
            if slot == EMPTY {
                return None;
            }
            let group = &groups[slot as usize];
            if group.number == number && group.file == file {
                return Some(slot);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    /// Adds a group that is not in the table yet.
    pub fn insert(&mut self, groups: &[Group], slot: u32) {
        if (self.used + 1) * 2 > self.table.len() {
            self.grow(groups);
        }
        self.place(groups, slot);
        self.used += 1;
    }

    /// Removes a group that is in the table, and moves later entries so that no gap remains.
    pub fn remove(&mut self, groups: &[Group], slot: u32) {
        let wrap = self.table.len() - 1;
        let group = &groups[slot as usize];
        let mut gap = self.home(group.file, group.number);
        while self.table[gap] != slot {
            gap = (gap + 1) & wrap;
        }
        self.used -= 1;
        let mut at = gap;
        loop {
            at = (at + 1) & wrap;
            let next = self.table[at];
            if next == EMPTY {
                break;
            }
            let other = &groups[next as usize];
            let home = self.home(other.file, other.number);
            // Move it into the gap unless its home is between the gap and its slot.
            if (at.wrapping_sub(home) & wrap) >= (at.wrapping_sub(gap) & wrap) {
                self.table[gap] = next;
                gap = at;
            }
        }
        self.table[gap] = EMPTY;
    }

    fn home(&self, file: u32, number: u64) -> usize {
        // Fibonacci hashing: it spreads neighbours, and the upper bits of the product are the best ones. Files are
        // spread by another odd number (of the same golden ratio, 32 bits); otherwise the first groups of many files
        // would collide.
        let key = number ^ u64::from(file).wrapping_mul(0x9E37_79B1).rotate_left(20);
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & (self.table.len() - 1)
    }

    fn place(&mut self, groups: &[Group], slot: u32) {
        let group = &groups[slot as usize];
        let mut at = self.home(group.file, group.number);
        while self.table[at] != EMPTY {
            at = (at + 1) & (self.table.len() - 1);
        }
        self.table[at] = slot;
    }

    fn grow(&mut self, groups: &[Group]) {
        let old = core::mem::take(&mut self.table);
        self.table = vec![EMPTY; old.len() * 2];
        for slot in old.into_iter().filter(|&s| s != EMPTY) {
            self.place(groups, slot);
        }
    }

    /// Bytes of memory that the table uses.
    pub fn bytes(&self) -> usize {
        self.table.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of files with one group each, as in a mount: look-ups stay short.
    #[test]
    fn the_first_groups_of_many_files_spread() {
        let mut index = Index::new();
        let groups: Vec<Group> = (0..10_000).map(|file| Group::new(file, 0)).collect();
        (0..groups.len()).for_each(|slot| index.insert(&groups, slot as u32));
        let wrap = index.table.len() - 1;
        let steps = |at: usize| {
            let slot = index.table[at];
            if slot == EMPTY {
                0
            } else {
                at.wrapping_sub(index.home(groups[slot as usize].file, 0)) & wrap
            }
        };
        let longest = (0..=wrap).map(steps).max().unwrap_or(0);
        assert!(longest < 64, "a look-up takes up to {longest} steps");
    }

    #[test]
    fn behaves_like_a_map() {
        let mut groups: Vec<Group> = Vec::new();
        let mut index = Index::new();
        let mut known: alloc::collections::BTreeMap<(u32, u64), u32> = Default::default();
        let mut x: u64 = 1;
        for _ in 0..20_000 {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (file, number) = ((x >> 60) as u32 & 3, (x >> 40) & 0xff);
            match known.get(&(file, number)).copied() {
                Some(slot) => {
                    assert_eq!(index.find(&groups, file, number), Some(slot));
                    index.remove(&groups, slot);
                    known.remove(&(file, number));
                }
                None => {
                    assert_eq!(index.find(&groups, file, number), None);
                    let slot = groups.len() as u32;
                    groups.push(Group::new(file, number));
                    index.insert(&groups, slot);
                    known.insert((file, number), slot);
                }
            }
        }
        for (&(file, number), &slot) in &known {
            assert_eq!(index.find(&groups, file, number), Some(slot));
        }
        assert_eq!(index.used, known.len());
    }
}
