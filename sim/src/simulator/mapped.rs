//! The page tables of the simulated processes.
//!
//! A served fault maps its page. With policies of Linux 3.15 and later, cached pages around it are
//! mapped too ([`foreread_core::machine::Machine::around`]). Eviction unmaps a page. This module issues no requests. A
//! touch of a mapped page makes no fault, but counts as a use for the cache, like the accessed bit in a kernel.
//!
//! ```text
//!   (file, open) ──► a bit for each page of the file, 64 in a word: the groups of the cache
//! ```

use std::collections::BTreeMap;

#[derive(Default)]
pub struct MappedPages {
    tables: BTreeMap<(u32, u32), Vec<u64>>,
}

impl MappedPages {
    /// Whether a touch of this page is none of the machine's business.
    pub fn has(&self, file: u32, open: u32, page: u64) -> bool {
        let word = self
            .tables
            .get(&(file, open))
            .and_then(|t| t.get((page / 64) as usize));
        word.is_some_and(|w| w >> (page % 64) & 1 != 0)
    }

    /// A fault was served that maps these pages, of the 64 from `64 * number` on.
    pub fn map(&mut self, file: u32, open: u32, number: u64, pages: u64) {
        let table = self.tables.entry((file, open)).or_default();
        let word = number as usize;
        if table.len() <= word {
            table.resize(word + 1, 0);
        }
        table[word] |= pages;
    }

    /// These pages of the file, of the 64 from `64 * number` on, left the cache.
    pub fn unmap(&mut self, file: u32, number: u64, pages: u64) {
        for (_, table) in self.tables.range_mut((file, 0)..=(file, u32::MAX)) {
            if let Some(word) = table.get_mut(number as usize) {
                *word &= !pages;
            }
        }
    }

    /// The mapping is gone. Returns what was mapped: pages of the 64 from `64 * number` on.
    pub fn close(&mut self, file: u32, open: u32) -> impl Iterator<Item = (u64, u64)> + use<> {
        let table = self.tables.remove(&(file, open)).unwrap_or_default();
        (0..).zip(table).filter(|(_, pages)| *pages != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_its_own_pages() {
        let mut mapped = MappedPages::default();
        assert!(!mapped.has(1, 1, 0));
        mapped.map(1, 1, 1, 1 << 6);
        mapped.map(1, 2, 1, 1 << 6);
        mapped.map(2, 3, 1, 1 << 6);
        mapped.map(1, 1, 1, 1 << 7);
        assert!(
            mapped.has(1, 1, 70)
                && mapped.has(1, 2, 70)
                && !mapped.has(1, 2, 71)
                && !mapped.has(1, 1, 6)
        );
        mapped.unmap(1, 1, 1 << 6);
        mapped.unmap(1, 9, u64::MAX);
        assert!(
            !mapped.has(1, 1, 70) && !mapped.has(1, 2, 70),
            "gone from all mappings of the file"
        );
        assert!(mapped.has(1, 1, 71) && mapped.has(2, 3, 70));
        assert_eq!(mapped.close(1, 1).collect::<Vec<_>>(), [(1, 1 << 7)]);
        assert!(!mapped.has(1, 1, 71));
    }
}
