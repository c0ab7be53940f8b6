//! Counts refaults: bytes read again after eviction, as in the kernel's `workingset_refault_file`.
//!
//! ```text
//!   Drop ──► gone: a bit for each page ──Submit──► refaulted, and here again
//! ```
//!
//! Pages dropped by a hint do not count. The module only observes.

use foreread_core::event::Action;
use foreread_core::units::{ByteRange, PageSize};
use std::collections::HashMap;

pub struct Refaults {
    page: PageSize,
    gone: HashMap<(u32, u64), u64>,
    bytes: u64,
}

impl Refaults {
    pub fn new(page: PageSize) -> Refaults {
        Refaults {
            page,
            gone: HashMap::new(),
            bytes: 0,
        }
    }

    /// Bytes that were read again.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An action of the machine; `hinted`: it follows from a hint.
    pub fn see(&mut self, action: &Action, hinted: bool) {
        match *action {
            Action::Drop {
                file,
                number,
                pages,
                ..
            } if !hinted => *self.gone.entry((file.0, number)).or_insert(0) |= pages,
            Action::Submit { file, range, .. } if !self.gone.is_empty() => {
                self.read(file.0, range);
            }
            _ => {}
        }
    }

    fn read(&mut self, file: u32, range: ByteRange) {
        let pages = self.page.cover(range);
        for number in pages.first / 64..pages.end.div_ceil(64) {
            let Some(gone) = self.gone.get_mut(&(file, number)) else {
                continue;
            };
            let mask = foreread_core::machine::mask_of(number, pages.first, pages.end);
            let back = *gone & mask;
            *gone &= !mask;
            let starts = bits(back).map(|page| self.page.start_of(number * 64 + page as u64));
            // The last page of a file counts as far as the file goes.
            self.bytes += starts
                .map(|start| range.end().min(start + self.page.bytes()) - start)
                .sum::<u64>();
        }
    }
}

/// The bits that are set, from the lowest.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}
