//! Converts the events of page faults to records: the touched page, how long the thread waited for this page, and the pages that the kernel
//! mapped at the same time.
//!
//! ```text
//!   address ──► mapped      a hit: the address says which of the mapped pages was touched
//!           ──► fault ──► mapped (the same page: the fault was retried)         a wait between the two
//!                     └── anything else                                         the page was cached
//! ```
//! On a fault, the kernel maps more than the touched page: all cached pages in the 64 KiB around it (`fault_around_bytes`), or a whole
//! large folio. Later accesses to the mapped pages cause no fault, so a record reaches from the touched page to the end of the pages mapped
//! with it. Example: with a readahead of 128 KiB, a scan faults once in each folio of 32 pages, and each record has 128 KiB. Pages before
//! the touched page are not recorded. For a replay, `replay/scans.rs` determines which part of the recorded range was read. If the kernel
//! fills a mapping without a fault (MAP_POPULATE, MADV_POPULATE_READ, mlock), there is no fault address, and each event is recorded with
//! all its pages. If a mapping is filled by a fault, the fault address shows which page was touched.

use super::Counts;
use super::call::FileKey;
use crate::Record;
use crate::check::MAX_END;
use crate::order::HeldRecords;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of bytes mapped around a fault: the kernel's default of `fault_around_bytes`.
const AROUND_BYTES: u64 = 64 << 10;

/// Maximum number of large folios remembered. At the limit all are forgotten; then a fault covers only the pages around
/// it until its folio is read in again.
const MAX_FOLIOS: usize = 1 << 18;

pub struct Touches {
    page_bytes: u64,
    threads: HashMap<u32, Touch>,
    folios: Folios,
    /// Whether this machine reports fault addresses.
    sees_addresses: bool,
}

#[derive(Default)]
struct Touch {
    address: Option<u64>,
    /// The address belongs to a fault that is already recorded or still open.
    is_used: bool,
    /// A mapping that the kernel fills by itself: the file, and the first page not yet filled.
    filled: Option<(FileKey, u64)>,
    open: Option<Open>,
    /// The page was not cached, so the thread may wait for it.
    went: bool,
}

/// A fault that is not complete.
#[derive(Clone, Copy)]
struct Open {
    place: FileKey,
    page: u64,
    /// The page after the last one that was mapped with it.
    end: u64,
    ticket: u64,
}

/// Folios of several pages: the number of pages, by first page.
#[derive(Default)]
struct Folios {
    files: HashMap<FileKey, BTreeMap<u64, u64>>,
    count: usize,
}

impl Folios {
    fn add(&mut self, place: FileKey, first: u64, pages: u64) {
        if self.count >= MAX_FOLIOS {
            *self = Folios::default();
        }
        self.count += usize::from(
            self.files
                .entry(place)
                .or_default()
                .insert(first, pages)
                .is_none(),
        );
    }

    /// The page after the end of the folio that contains `page`.
    fn end(&self, place: FileKey, page: u64) -> Option<u64> {
        let (first, pages) = self.files.get(&place)?.range(..=page).next_back()?;
        first.checked_add(*pages).filter(|end| *end > page)
    }
}

type Slots = HeldRecords<Option<Record>>;

impl Touches {
    /// Creates the tracker for a machine with this page size.
    pub fn new(page_bytes: u64) -> Touches {
        Touches {
            page_bytes,
            threads: HashMap::new(),
            folios: Folios::default(),
            sees_addresses: false,
        }
    }

    pub fn address(&mut self, thread: u32, address: u64) {
        self.sees_addresses = true;
        self.threads.insert(
            thread,
            Touch {
                address: Some(address),
                ..Touch::default()
            },
        );
    }

    pub fn address_of(&self, thread: u32) -> Option<u64> {
        self.threads.get(&thread)?.address
    }

    /// Returns the first page from `first` on that the kernel has not yet filled, if it is filling a mapping for this
    /// thread (MAP_POPULATE, mlock).
    pub fn filled_from(&self, thread: u32, place: FileKey, first: u64) -> Option<u64> {
        let touch = self.threads.get(&thread);
        let has_address = touch.is_some_and(|touch| touch.address.is_some() && !touch.is_used);
        let filled = touch.and_then(|touch| touch.filled);
        let until = filled
            .filter(|(of, _)| *of == place)
            .map(|(_, until)| until);
        (self.sees_addresses && !has_address).then(|| first.max(until.unwrap_or(0)))
    }

    pub fn folio(&mut self, place: FileKey, first: u64, pages: u64) {
        self.folios.add(place, first, pages);
    }

    /// Records that a thread has started or ended a system call; this matters because pages that a system call touches
    /// have no fault address.
    pub fn gone(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// Returns the page of `first..=last` that was touched, if the fault address shows which one. (For a fault, the kernel maps an aligned
    /// window of pages, which does not extend beyond the ends of the mapping.)
    pub fn page(&self, thread: u32, first: u64, last: u64) -> Option<u64> {
        let around = (AROUND_BYTES / self.page_bytes).max(1);
        let within = (self.threads.get(&thread)?.address? / self.page_bytes) % around;
        let from_start = first.checked_add(within).filter(|page| *page <= last);
        if last.checked_sub(first)? + 1 == around {
            return from_start;
        }
        let from_end = last
            .checked_sub(around - 1 - within)
            .filter(|page| *page >= first);
        match (from_start, from_end) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => a.or(b),
        }
    }

    /// Records that a page fault found its page in the page cache, and that the kernel also mapped the following pages
    /// up to `last`.
    pub fn found(&mut self, thread: u32, place: FileKey, page: u64, last: u64, ticket: u64) {
        let end = last.saturating_add(1);
        let filled = end.max(self.folios.end(place, page).unwrap_or(0));
        let touch = self.threads.entry(thread).or_default();
        (touch.is_used, touch.filled) = (true, Some((place, filled)));
        touch.open = Some(Open {
            place,
            page,
            end,
            ticket,
        });
    }

    /// Records that a page fault must read its page from the file.
    pub fn begin(&mut self, thread: u32, place: FileKey, page: u64, ticket: u64) {
        let touch = self.threads.entry(thread).or_default();
        (touch.is_used, touch.filled) = (true, Some((place, page.saturating_add(1))));
        (touch.open, touch.went) = (
            Some(Open {
                place,
                page,
                end: page.saturating_add(1),
                ticket,
            }),
            true,
        );
    }

    /// Records that a thread's page fault, which has not ended, reads this page from the file, perhaps for the second
    /// time. Returns false if the thread has no unfinished fault.
    pub fn went(&mut self, thread: u32, place: FileKey, page: u64) -> bool {
        let Some(touch) = self.threads.get_mut(&thread) else {
            return false;
        };
        let same = touch
            .open
            .is_some_and(|open| open.place == place && open.page == page);
        touch.went |= same;
        same
    }

    /// Ends a thread's page fault if the pages that the kernel has just mapped include the page for which the thread
    /// waited.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of an event, and the state that they change"
    )]
    pub fn again(
        &mut self,
        thread: u32,
        place: FileKey,
        first: u64,
        last: u64,
        at_ns: u64,
        held: &mut Slots,
        counts: &mut Counts,
    ) -> bool {
        let Some(touch) = self.threads.get_mut(&thread) else {
            return false;
        };
        let Some(open) = touch.open else { return false };
        if !touch.went || open.place != place || !(first..=last).contains(&open.page) {
            return false;
        }
        touch.open = None;
        touch.filled = Some((place, last.saturating_add(1)));
        self.done(
            Open {
                end: last.saturating_add(1),
                ..open
            },
            Some(at_ns),
            held,
            counts,
        );
        true
    }

    /// Completes a fault: its record ends with the last page that was mapped with its own page or shares its folio.
    fn done(&self, open: Open, at_ns: Option<u64>, held: &mut Slots, counts: &mut Counts) {
        counts.faults += 1;
        let end = self
            .folios
            .end(open.place, open.page)
            .unwrap_or(0)
            .max(open.end);
        held.done(open.ticket, |record| {
            if let Some(record) = record {
                record.end_ns = at_ns.or(record.end_ns);
                record.len = (end - open.page)
                    .saturating_mul(self.page_bytes)
                    .min(MAX_END - record.offset.min(MAX_END));
            }
        });
    }

    /// Ends the thread's page fault because the thread has another event; such a fault did not wait for the storage.
    pub fn finish(&mut self, thread: u32, held: &mut Slots, counts: &mut Counts) {
        if let Some(open) = self
            .threads
            .get_mut(&thread)
            .and_then(|touch| touch.open.take())
        {
            self.done(open, None, held, counts);
        }
    }

    /// Like [`Touches::finish`], but for all threads.
    pub fn finish_all(&mut self, held: &mut Slots, counts: &mut Counts) {
        let threads: Vec<u32> = self.threads.keys().copied().collect();
        threads
            .into_iter()
            .for_each(|thread| self.finish(thread, held, counts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::DEFAULT_PAGE_BYTES as PAGE_BYTES;

    #[test]
    fn a_fault_covers_all_pages_mapped_with_it() {
        let place = FileKey { dev: 1, ino: 2 };
        let mut counts = Counts::default();
        let (mut touches, mut held) = (Touches::new(PAGE_BYTES), Slots::default());
        let record = |page: u64| Some(Record::read(0, page * PAGE_BYTES, PAGE_BYTES));
        let mut len =
            |touches: &mut Touches,
             page,
             see: &dyn Fn(&mut Touches, u64, &mut Slots, &mut Counts)| {
                let ticket = held.open(record(page));
                see(touches, ticket, &mut held, &mut counts);
                touches.finish(1, &mut held, &mut counts);
                held.next(true)
                    .and_then(|(record, _)| record)
                    .map(|record| record.len / PAGE_BYTES)
            };
        // Found in the cache: the record reaches the end of the range that the kernel reports. Without a range: one page.
        let found = |t: &mut Touches, ticket, _: &mut Slots, _: &mut Counts| {
            t.found(1, place, 35, 47, ticket);
        };
        assert_eq!(len(&mut touches, 35, &found), Some(13));
        let begun = |t: &mut Touches, ticket, _: &mut Slots, _: &mut Counts| {
            t.begin(1, place, 64, ticket);
        };
        assert_eq!(len(&mut touches, 64, &begun), Some(1));
        // Read by the fault: to the end of its folio, or of the range that was mapped when the fault was retried.
        let brought = |t: &mut Touches, ticket, held: &mut Slots, counts: &mut Counts| {
            t.begin(1, place, 64, ticket);
            t.folio(place, 64, 32);
            assert!(t.again(1, place, 64, 79, 9, held, counts));
        };
        assert_eq!(len(&mut touches, 64, &brought), Some(32));
        let mut alone = |place, page| {
            len(&mut touches, page, &|t, ticket, _, _| {
                t.begin(1, place, page, ticket);
            })
        };
        // In it, behind it, and elsewhere.
        let elsewhere = FileKey { dev: 1, ino: 3 };
        let lens = [(place, 95), (place, 96), (elsewhere, 64)].map(|(at, page)| alone(at, page));
        assert_eq!(lens, [Some(1); 3]);
        // All are forgotten at the limit.
        (0..MAX_FOLIOS as u64).for_each(|n| touches.folio(elsewhere, 2 * n, 2));
        let left = (touches.folios.count, touches.folios.end(place, 64));
        assert_eq!(left, (1, None));
    }

    #[test]
    fn the_address_identifies_the_page() {
        assert_eq!(Touches::new(PAGE_BYTES).page(1, 100, 115), None);
        for (kib, address, last, expected) in [
            (4, 0x7f00_0000_3123, 115, Some(103)),
            // Cut at the end of the mapping, and at its start.
            (4, 0x7f00_0000_3123, 104, Some(103)),
            (4, 0x7f00_0000_f123, 104, Some(104)),
            (4, 0x7f00_0000_c123, 104, Some(101)),
            // Two pages match, so neither is chosen.
            (4, 0x7f00_0000_8123, 111, None),
            // A fault maps four pages of 16 KiB around it, or one page of 64 KiB.
            (16, 0x7f00_0000_c123, 103, Some(103)),
            (16, 0x7f00_0000_c123, 101, Some(101)),
            (64, 0x7f00_0000_c123, 100, Some(100)),
        ] {
            let mut touches = Touches::new(kib << 10);
            touches.address(1, address);
            let page = touches.page(1, 100, last);
            assert_eq!(page, expected, "{address:x} to {last}");
        }
    }
}
