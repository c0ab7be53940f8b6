//! Memory of our own, apart from the program's malloc.
//!
//! A program may call `read` in a signal handler that has interrupted malloc, or from inside its own allocator. If we asked malloc then, it
//! would wait for itself. So all that the library keeps comes from here: blocks of powers of two out of pages that the kernel gives, each size with
//! a list of those that are free.
//!
//! ```text
//!   16 ► ▢ ► ▢     32 ► ▢     ...     64K ►          larger: pages for each block alone
//! ```
//! Blocks are asked for only while the library's one lock is held ([`crate::state`]), and at its start. A second lock here holds that anyway.
//! Memory that was given back is used again, and does not return to the kernel.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Smallest and largest block of the lists, as powers of two.
const MIN_SHIFT: u32 = 4;
const MAX_SHIFT: u32 = 16;
const SIZES: usize = (MAX_SHIFT - MIN_SHIFT + 1) as usize;
/// What is asked of the kernel at once.
const CHUNK_BYTES: usize = 256 << 10;

/// See the head of this file.
pub struct Memory {
    is_locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

struct Lists {
    free: [*mut u8; SIZES],
    chunk: *mut u8,
    left: usize,
}

// SAFETY: `lists` is touched only between the two writes of `is_locked`.
unsafe impl Sync for Memory {}

impl Memory {
    /// None taken yet.
    pub const fn new() -> Memory {
        let lists = Lists { free: [null_mut(); SIZES], chunk: null_mut(), left: 0 };
        Memory { is_locked: AtomicBool::new(false), lists: UnsafeCell::new(lists) }
    }

    fn with<T>(&self, take: impl FnOnce(&mut Lists) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the flag was free, so no other thread is here.
        let got = take(unsafe { &mut *self.lists.get() });
        self.is_locked.store(false, Ordering::Release);
        got
    }
}

/// The list of a size, and its blocks' bytes; nothing where it is too large.
fn size_class(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(layout.align()).max(1 << MIN_SHIFT).next_power_of_two();
    let list = bytes.trailing_zeros().checked_sub(MIN_SHIFT)? as usize;
    (list < SIZES).then_some((list, bytes))
}

fn pages(bytes: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the place, so no memory of the program is replaced. The call itself, not the function: that is ours.
    let got = unsafe { libc::syscall(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0) };
    if got == -1 { null_mut() } else { std::ptr::with_exposed_provenance_mut(got as usize) }
}

impl Lists {
    fn take(&mut self, list: usize, bytes: usize) -> *mut u8 {
        let first = self.free[list];
        if !first.is_null() {
            // SAFETY: a free block holds the address of the next one, which `give` has written.
            self.free[list] = unsafe { first.cast::<*mut u8>().read() };
            return first;
        }
        if self.left < bytes {
            // What is left of the chunk before is given up: less than the largest block.
            let chunk = pages(CHUNK_BYTES);
            if chunk.is_null() {
                return chunk;
            }
            (self.chunk, self.left) = (chunk, CHUNK_BYTES);
        }
        // From the end: a chunk begins at a page, and every block is at a multiple of its size then.
        self.left = (self.left - bytes) / bytes * bytes;
        self.chunk.wrapping_add(self.left)
    }

    fn give(&mut self, list: usize, block: *mut u8) {
        // SAFETY: the block is ours and free, at least 16 bytes long and aligned to that.
        unsafe { block.cast::<*mut u8>().write(self.free[list]) };
        self.free[list] = block;
    }
}

// SAFETY: blocks do not overlap, are as large and as aligned as asked for (a block is at a multiple of its size, within pages where it is
// larger than one), and nothing here unwinds.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match size_class(layout) {
            Some((list, bytes)) => self.with(|lists| lists.take(list, bytes)),
            None if layout.align() > 4096 => null_mut(),
            None => pages(layout.size()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match size_class(layout) {
            Some((list, _)) => self.with(|lists| lists.give(list, block)),
            // SAFETY: these pages came from `pages` with this length.
            None => _ = unsafe { libc::syscall(libc::SYS_munmap, block, layout.size()) },
        }
    }
}
