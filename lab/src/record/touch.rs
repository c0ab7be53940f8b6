//! Page faults: which page was touched, and how long the thread waited for it.
//!
//! ```text
//!   address ──► mapped      a hit: the page is one of those that were mapped, by the address
//!           ──► fault ──► mapped (the same page: the fault was taken again)     a wait between the two
//!                     └── anything else                                         the page was there
//! ```
//! A fault that finds its page maps up to 16 around it at once (`fault_around_bytes` is 64 KiB), so later touches of
//! those are not seen by anybody. Never: a page that the address does not name.

use super::event::Place;
use super::follow::Counts;
use crate::trace::Record;
use crate::trace::order::Held;
use std::collections::HashMap;

/// Pages that are mapped around a fault at most: the kernel's `fault_around_bytes`, unless somebody has set it.
const AROUND_PAGES: u64 = 16;

/// The faults of all threads.
#[derive(Default)]
pub struct Touches(HashMap<u32, Touch>);

#[derive(Default)]
struct Touch {
    address: Option<u64>,
    open: Option<(Place, u64, u64)>,
    /// The page was not there: it may be waited for.
    went: bool,
}

type Slots = Held<Option<Record>>;

impl Touches {
    /// A fault begins.
    pub fn address(&mut self, thread: u32, address: u64) {
        self.0.insert(thread, Touch { address: Some(address), ..Touch::default() });
    }

    /// The address of a thread's latest fault.
    pub fn address_of(&self, thread: u32) -> Option<u64> {
        self.0.get(&thread)?.address
    }

    /// A thread is gone, or makes a call: what it touches there by itself has no address.
    pub fn gone(&mut self, thread: u32) {
        self.0.remove(&thread);
    }

    /// The page of `first..=last` that was touched, if the address says which. The kernel maps an aligned window, cut at
    /// the ends of the mapping.
    pub fn page(&self, thread: u32, first: u64, last: u64) -> Option<u64> {
        let within = (self.0.get(&thread)?.address? / super::follow::PAGE_BYTES) % AROUND_PAGES;
        let from_start = first.checked_add(within).filter(|page| *page <= last);
        if last.checked_sub(first)? + 1 == AROUND_PAGES {
            return from_start;
        }
        let from_end = last.checked_sub(AROUND_PAGES - 1 - within).filter(|page| *page >= first);
        match (from_start, from_end) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => a.or(b),
        }
    }

    /// A fault that found its page.
    pub fn found(&mut self, thread: u32, place: Place, page: u64, ticket: u64) {
        self.0.entry(thread).or_default().open = Some((place, page, ticket));
    }

    /// A fault that went to the file.
    pub fn begin(&mut self, thread: u32, place: Place, page: u64, ticket: u64) {
        let touch = self.0.entry(thread).or_default();
        (touch.open, touch.went) = (Some((place, page, ticket)), true);
    }

    /// Whether the open fault of a thread now goes to the file for its page, or does so again.
    pub fn went(&mut self, thread: u32, place: Place, page: u64) -> bool {
        let Some(touch) = self.0.get_mut(&thread) else { return false };
        let same = touch.open.is_some_and(|(p, n, _)| p == place && n == page);
        touch.went |= same;
        same
    }

    /// Whether pages that were mapped are those that the thread waited for: then its fault is done.
    #[expect(clippy::too_many_arguments, reason = "an event's parts and where they go")]
    pub fn again(
        &mut self,
        thread: u32,
        place: Place,
        first: u64,
        last: u64,
        at_ns: u64,
        held: &mut Slots,
        counts: &mut Counts,
    ) -> bool {
        let Some(touch) = self.0.get_mut(&thread) else { return false };
        let Some((waited, page, ticket)) = touch.open else { return false };
        if !touch.went || waited != place || !(first..=last).contains(&page) {
            return false;
        }
        touch.open = None;
        counts.faults += 1;
        held.done(ticket, |record| {
            if let Some(record) = record {
                record.end_ns = Some(at_ns);
            }
        });
        true
    }

    /// Something else follows: the fault of a thread is done, and waited for nothing.
    pub fn finish(&mut self, thread: u32, held: &mut Slots, counts: &mut Counts) {
        if let Some((_, _, ticket)) = self.0.get_mut(&thread).and_then(|touch| touch.open.take()) {
            counts.faults += 1;
            held.done(ticket, |_| ());
        }
    }

    /// The same for all threads.
    pub fn finish_all(&mut self, held: &mut Slots, counts: &mut Counts) {
        let threads: Vec<u32> = self.0.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.finish(thread, held, counts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_says_which_page() {
        let page = |address: u64, first, last| {
            let mut touches = Touches::default();
            touches.address(1, address);
            touches.page(1, first, last)
        };
        assert_eq!(page(0x7f00_0000_3123, 100, 115), Some(103));
        // Cut at the end of the mapping, and at its start.
        assert_eq!(page(0x7f00_0000_3123, 100, 104), Some(103));
        assert_eq!(page(0x7f00_0000_f123, 100, 104), Some(104));
        assert_eq!(page(0x7f00_0000_c123, 100, 104), Some(101));
        // Either would do, so neither does.
        assert_eq!(page(0x7f00_0000_8123, 100, 111), None);
        assert_eq!(Touches::default().page(1, 100, 115), None);
    }
}
