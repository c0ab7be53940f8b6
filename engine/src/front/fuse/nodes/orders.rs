//! In which order the files of a listing are opened: that of the listing, or that of their inode numbers.
//!
//! `cp -r` sorts the names of a folder by inode number, which is a hash, and opens the files in that order.
//!
//! ```text
//!   in the listing ──► three in a row with ascending numbers: sorted ──► the next is the next of these ──► by number
//!        ▲                                                                                                   │
//!        └───────────────────────── three in a row are opened in the order of the listing ◄──────────────────┘
//! ```
//! Example: a listing of a, b, c, d and e, with the numbers 50, 20, 40, 10 and 30. `cp -r` opens d, b and e, whose numbers ascend, so the
//! files are sorted: d, b, e, c, a. It opens c, which is next, so a is announced after it.

use super::number_of;
use crate::front::fuse::handles::FolderListing;
use crate::source::tree::Kind;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// How often a file must follow the one before, in an order, until that order counts.
const SURE: u32 = 2;
/// Listings with more names are not sorted by number.
const MAX_SORTED: usize = 1 << 16;
/// The most sorted listings that are kept, with 16 bytes for each file.
const MAX_ORDERS: usize = 4;

/// In which order files of a listing are opened, after one more was opened.
pub enum Followed {
    AsBefore,
    /// In another order than before.
    Otherwise,
    /// Perhaps by number: the files of the listing have to be sorted.
    Unsorted,
}

/// The file that was opened last, and the listings that were sorted by number, oldest first.
#[derive(Default)]
pub struct OpenOrders {
    last: LastOpened,
    sorted: VecDeque<NumberOrder>,
}

/// The file of a listing that was opened last, and in which order it and those before it were opened.
#[derive(Default)]
struct LastOpened {
    listing: Weak<FolderListing>,
    number: u64,
    place: u32,
    /// Files in a row with a higher number than the one before.
    ascending: u32,
    /// Files in a row that follow the one before in the listing.
    in_listing: u32,
}

/// The files of a listing, sorted by number.
struct NumberOrder {
    listing: Weak<FolderListing>,
    /// Number and position in the listing.
    files: Vec<(u64, u32)>,
    /// Whether files are opened in this order.
    is_followed: bool,
}

fn is(known: &Weak<FolderListing>, listing: &Arc<FolderListing>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(listing))
}

impl NumberOrder {
    /// The file after a number.
    fn after(&self, number: u64) -> Option<(u64, u32)> {
        let at = self
            .files
            .binary_search_by_key(&number, |file| file.0)
            .ok()?;
        self.files.get(at + 1).copied()
    }
}

/// Returns the files of a listing, sorted by number: number, and position in the listing.
pub fn by_number(listing: &FolderListing) -> Vec<(u64, u32)> {
    let file = |place| {
        let (path, meta) = listing.entry(place)?;
        (meta.kind == Kind::File).then(|| (number_of(&path, &meta), place))
    };
    let names = u32::try_from(listing.names.len()).unwrap_or(u32::MAX);
    let mut files: Vec<(u64, u32)> = (0..names).filter_map(file).collect();
    files.sort_unstable();
    files
}

impl OpenOrders {
    /// Records that the file at a position of a listing was opened.
    pub fn follow(&mut self, listing: &Arc<FolderListing>, place: u32, number: u64) -> Followed {
        let last = &mut self.last;
        let is_same = is(&last.listing, listing);
        if is_same && last.number == number {
            return Followed::AsBefore;
        }
        let count = |count: u32, goes_on: bool| if goes_on { count + 1 } else { 0 };
        let before = last.number;
        let follows = is_same && listing.file_after(last.place) == Some(place);
        *last = LastOpened {
            listing: Arc::downgrade(listing),
            number,
            place,
            ascending: count(last.ascending, is_same && number > before),
            in_listing: count(last.in_listing, follows),
        };
        let (by_number, in_listing) = (last.ascending >= SURE, last.in_listing >= SURE);
        let may_be_sorted = by_number && !in_listing;
        let mut sorted = self.sorted.iter_mut();
        let Some(order) = sorted.find(|order| is(&order.listing, listing)) else {
            return match may_be_sorted && listing.names.len() <= MAX_SORTED {
                true => Followed::Unsorted,
                false => Followed::AsBefore,
            };
        };
        let is_followed = match order.is_followed {
            true => !in_listing,
            false => may_be_sorted && order.after(before).is_some_and(|next| next.0 == number),
        };
        match std::mem::replace(&mut order.is_followed, is_followed) == is_followed {
            true => Followed::AsBefore,
            false => Followed::Otherwise,
        }
    }

    /// Takes the files of a listing, sorted by number ([`by_number`]).
    pub fn sorted(&mut self, listing: &Arc<FolderListing>, files: Vec<(u64, u32)>) {
        let is_other =
            |order: &NumberOrder| order.listing.strong_count() > 0 && !is(&order.listing, listing);
        self.sorted.retain(is_other);
        if self.sorted.len() == MAX_ORDERS {
            self.sorted.pop_front();
        }
        self.sorted.push_back(NumberOrder {
            listing: Arc::downgrade(listing),
            files,
            is_followed: false,
        });
    }

    /// The position of the file after one of a listing, in the order in which its files are opened.
    pub fn after(&self, listing: &Arc<FolderListing>, place: u32, number: u64) -> Option<u32> {
        let mut sorted = self.sorted.iter();
        match sorted.find(|order| order.is_followed && is(&order.listing, listing)) {
            Some(order) => order.after(number).map(|file| file.1),
            None => listing.file_after(place),
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }
}
