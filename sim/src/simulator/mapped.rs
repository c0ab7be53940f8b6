//! The page tables of the simulated processes: which pages of which mapping are mapped.
//!
//! A page is mapped when a fault on it has been served, that page alone: kernels before 3.15 had no fault-around, and
//! later ones map neighbours that are here as well, which spares the process faults and the cache look-ups. It is
//! unmapped when the cache drops it. Never: asks for anything. A touch of a mapped page is no event, so the cache does
//! not learn of it and such a page grows old; a kernel would look at the processor's accessed bit.
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

    /// A fault on this page was served.
    pub fn map(&mut self, file: u32, open: u32, page: u64) {
        let table = self.tables.entry((file, open)).or_default();
        let word = (page / 64) as usize;
        if table.len() <= word {
            table.resize(word + 1, 0);
        }
        table[word] |= 1 << (page % 64);
    }

    /// These pages of the file, of the 64 from `64 * number` on, left the cache.
    pub fn unmap(&mut self, file: u32, number: u64, pages: u64) {
        for (_, table) in self.tables.range_mut((file, 0)..=(file, u32::MAX)) {
            if let Some(word) = table.get_mut(number as usize) {
                *word &= !pages;
            }
        }
    }

    /// The mapping is gone.
    pub fn close(&mut self, file: u32, open: u32) {
        self.tables.remove(&(file, open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_its_own_pages() {
        let mut mapped = MappedPages::default();
        assert!(!mapped.has(1, 1, 0));
        mapped.map(1, 1, 70);
        mapped.map(1, 2, 70);
        mapped.map(2, 3, 70);
        mapped.map(1, 1, 71);
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
        mapped.close(1, 1);
        assert!(!mapped.has(1, 1, 71));
    }
}
