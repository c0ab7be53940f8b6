//! Buffers that are separate memory mappings, so that their memory returns to the system when they are dropped.
//!
//! The readahead windows of many streams have many lengths, and their buffers are allocated by one thread and freed by another. When these
//! buffers came from the allocator, it kept freed blocks of all lengths in its per-thread heaps, so 256 clients used 3 times the memory of
//! their buffers. Unmapping a buffer returns all of its memory to the system. A mapping costs two system calls, so a spare buffer of the
//! same length is reused first, and short buffers come from the allocator. The process never has more of these mappings than a quarter of
//! what the system allows.
//!
//! ```text
//!   length ──► under 16 KiB, or not a multiple of the machine's page: the allocator
//!          ──► 16 KiB to 128 KiB: a mapping, fully touched at once; if there are too many, or it is refused: the allocator
//!          ──► more than half a group: a piece of a slab (`arena.rs`)
//! ```
//!
//! Example: a window of 36 KiB is 9 pages of 4 KiB, and is mapped. If the process already keeps 8 MiB of spare buffers when this buffer
//! is dropped, it is unmapped, and the process uses 36 KiB less.

use crate::arena::PAGE_BYTES;
use crate::system;
use foreread_os::host::memory::page_bytes;
use memmap2::MmapMut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Buffer lengths that are mapped.
const LENGTHS: std::ops::RangeInclusive<usize> = 4 * PAGE_BYTES..=32 * PAGE_BYTES;
/// Maximum number of these mappings in the process. Linux allows 65,530 mappings of all kinds (vm.max_map_count), and the process
/// needs others.
const MOST: usize = 16_384;

static COUNT: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub struct MappedBuffer(pub MmapMut);

impl MappedBuffer {
    /// Creates a memory mapping of this length, filled with zeroes. Returns `None` if buffers of this length are not mapped, or if there
    /// are too many mappings.
    pub fn take(len: usize) -> Option<MappedBuffer> {
        if cfg!(miri) || !LENGTHS.contains(&len) || !len.is_multiple_of(page_bytes() as usize) {
            return None;
        }
        if COUNT.fetch_add(1, Ordering::Relaxed) < MOST
            && let Ok(map) = system::map_touched(len)
        {
            return Some(MappedBuffer(map));
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for MappedBuffer {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no mappings")]
    fn lengths_of_whole_pages_are_mapped_and_given_back() {
        assert!(
            // The third length is not a multiple of the page size of any machine.
            [0, 12 << 10, (16 << 10) + 512, 132 << 10, 256 << 10]
                .into_iter()
                .all(|len| MappedBuffer::take(len).is_none())
        );
        let page = page_bytes() as usize;
        // With larger machine pages, the mapping would use more memory than the buffer has.
        assert_eq!(
            MappedBuffer::take(36 << 10).is_some(),
            (36 << 10) % page == 0
        );
        let mut map = MappedBuffer::take(64 << 10).expect("memory");
        assert_eq!((map.0.len(), map.0.as_ptr() as usize % page), (64 << 10, 0));
        map.0.fill(7);
        if std::env::var_os("FOREREAD_EMULATED").is_some() {
            // This test counts pages of the real kernel.
            return println!("skipped: needs a kernel of this machine (FOREREAD_EMULATED is set)");
        }
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
            text.split(' ')
                .nth(1)
                .and_then(|pages| pages.parse::<usize>().ok())
                .expect("a number")
                * page
        };
        let many: Vec<MappedBuffer> = (0..2000)
            .filter_map(|_| MappedBuffer::take(128 << 10))
            .collect();
        let most = resident();
        assert_eq!(many.len(), 2000);
        drop(many);
        // Other tests allocate memory meanwhile, but none of them 100 MiB.
        assert!(
            resident() + (100 << 20) < most,
            "{} and {most} bytes",
            resident()
        );
    }
}
