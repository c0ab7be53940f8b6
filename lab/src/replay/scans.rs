//! Estimates how many of the pages that the kernel maps at a page fault are then accessed by the program.
//!
//! On a fault, the kernel maps up to 64 KiB, or a large folio, around the page, and later accesses to those pages cause
//! no fault. The record of a fault contains the mapped pages; the next fault of the same mapping shows which of these
//! pages were accessed:
//!
//! ```text
//!   fault at page 0, 16 pages were mapped ─┬─ next fault at 16 (to 20)  the scan goes on: pages 0 to 15 were read
//!                                          ├─ next fault at 9           the kernel had mapped less: pages 0 to 8
//!                                          └─ anywhere else             unknown: page 0
//! ```
//! No fault follows the last fault of a scan. The pages that this fault mapped are assumed to be accessed, because the
//! scan has reached them. For a program that accesses pages at random, the estimate is one page for each fault, instead of 64 KiB. Two
//! cases are not detected: a scan from the end of a file to its start, and a scan by several threads whose parts are smaller than the range
//! that a fault maps.

use super::{KeptRecord, What};
use foreread_sim::workload::Workload;
use std::collections::{BTreeMap, HashMap};

/// A scan may skip this many bytes: a program that reads one page in every few is still scanning.
const NEAR_BYTES: u64 = 4 * Workload::PAGE_BYTES;
/// Maximum number of pages by which all page faults of a trace together are extended, in addition to the one page of
/// each fault. With this maximum, the additional pages are at most 16 GiB of mappings, and the requests for these pages need about 170 MB
/// of memory.
pub const MAX_PAGES: u64 = 1 << 22;

/// Sets the length of each page fault to the range that the program then accessed. Returns the number of faults that
/// were cut to a single page, because all faults together would have more than `most` additional pages.
pub fn read_through(records: &mut [KeptRecord], most: u64) -> u64 {
    let page = Workload::PAGE_BYTES;
    // For each mapping, the latest faults that no other fault has continued, by their first byte.
    let mut tails: HashMap<u32, BTreeMap<u64, usize>> = HashMap::new();
    let mut read: Vec<(usize, u64)> = Vec::new();
    let mut reached: Vec<usize> = Vec::new();
    for (number, record) in records
        .iter()
        .enumerate()
        .filter(|(_, r)| r.what == What::Touch)
    {
        let open = tails.entry(record.open).or_default();
        let before = open
            .range(..record.offset)
            .next_back()
            .map(|(start, before)| (*start, *before));
        let end = |before: usize| records[before].offset + records[before].len;
        if let Some((start, before)) =
            before.filter(|(_, before)| record.offset <= end(*before) + NEAR_BYTES)
        {
            read.push((before, end(before).min(record.offset) - start));
            open.remove(&start);
            reached.push(number);
        }
        open.insert(record.offset, number);
    }
    let mut lens: HashMap<usize, u64> = reached
        .into_iter()
        .map(|number| (number, records[number].len))
        .collect();
    lens.extend(read);
    let (mut pages, mut left) = (0, 0);
    for (number, record) in records
        .iter_mut()
        .enumerate()
        .filter(|(_, r)| r.what == What::Touch)
    {
        let len = lens
            .get(&number)
            .copied()
            .unwrap_or(0)
            .min(record.len)
            .max(page.min(record.len));
        pages += len.div_ceil(page) - 1;
        let fits = pages <= most;
        left += u64::from(!fits && len > page);
        record.len = if fits { len } else { page.min(record.len) };
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First page and mapped pages of each fault of one mapping; gives how many pages were read of each.
    fn read(faults: &[(u64, u64)], most: u64) -> (Vec<u64>, u64) {
        let touch = |&(first, pages): &(u64, u64)| KeptRecord {
            what: What::Touch,
            offset: first * 4096,
            len: pages * 4096,
            ..KeptRecord::default()
        };
        let mut records: Vec<KeptRecord> = faults.iter().map(touch).collect();
        let left = read_through(&mut records, most);
        (records.iter().map(|r| r.len / 4096).collect(), left)
    }

    fn pages(faults: &[(u64, u64)]) -> Vec<u64> {
        read(faults, MAX_PAGES).0
    }

    #[test]
    fn a_scan_reads_what_was_mapped_and_touches_at_random_their_page() {
        for (faults, read, what) in [
            (
                &[(0, 16), (16, 32), (48, 16)][..],
                &[16, 32, 16][..],
                "in order, to the end",
            ),
            (
                &[(5, 11), (19, 13)],
                &[11, 13],
                "from the middle, a few pages left out",
            ),
            (
                &[(0, 32), (16, 16), (32, 16)],
                &[16; 3],
                "less was mapped than thought",
            ),
            (
                &[(0, 16), (1000, 16), (16, 16), (1016, 16)],
                &[16; 4],
                "two scans take turns",
            ),
            (&[(5, 11), (900, 12), (433, 15)], &[1; 3], "at random"),
            (
                &[(0, 16), (32, 16), (64, 16)],
                &[1; 3],
                "a page in each 128 KiB",
            ),
            (&[(48, 16), (32, 16), (16, 16)], &[1; 3], "backward"),
            (&[(7, 9), (7, 9)], &[1; 2], "the same page twice"),
        ] {
            assert_eq!(pages(faults), read, "{what}");
        }
    }

    #[test]
    fn pages_have_a_limit() {
        assert_eq!(
            read(&[(0, 16), (16, 16), (32, 16)], 30),
            (vec![16, 16, 1], 1)
        );
    }
}
