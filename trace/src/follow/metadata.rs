//! Records of metadata reads: file systems read inodes, folders and block maps from their block devices.
//!
//! ```text
//!   add 7 ──► add 8 ──► add 40 ──► exit        one thread, page by page; it waits for the last of those that follow one another
//!   read 7..9 of the device      read 40..41   each ends with the next event of the thread
//! ```
//! If a system call looks up a name or reads a timestamp, these metadata reads are its only page cache events. Cached metadata causes no
//! event.
//!
//! Source: `sb_bread` and `sb_breadahead` of Linux read through the page cache of the block device.

use super::call::FileKey;
use crate::Record;
use crate::order::HeldRecords;
use std::collections::HashMap;
use std::ops::Range;

/// Pages that a thread has started to read.
struct Wait {
    place: FileKey,
    pages: Range<u64>,
    ticket: u64,
}

pub(super) struct Waits {
    page_bytes: u64,
    threads: HashMap<u32, Wait>,
}

type Slots = HeldRecords<Option<Record>>;

impl Waits {
    /// Creates the tracker for a machine with this page size.
    pub(super) fn new(page_bytes: u64) -> Waits {
        let threads = HashMap::new();
        Waits {
            page_bytes,
            threads,
        }
    }

    /// Whether these pages follow those that the thread has started to read, and so belong to the same read.
    pub(super) fn goes_on(&mut self, thread: u32, place: FileKey, pages: &Range<u64>) -> bool {
        let before = self
            .threads
            .get_mut(&thread)
            .filter(|before| before.place == place && before.pages.end == pages.start);
        before.map(|before| before.pages.end = pages.end).is_some()
    }

    /// The thread starts to read.
    pub(super) fn begin(&mut self, thread: u32, place: FileKey, pages: Range<u64>, ticket: u64) {
        self.threads.insert(
            thread,
            Wait {
                place,
                pages,
                ticket,
            },
        );
    }

    /// The thread continues: its read is complete.
    pub(super) fn came(&mut self, thread: u32, at_ns: u64, held: &mut Slots) {
        if !self.threads.is_empty()
            && let Some(wait) = self.threads.remove(&thread)
        {
            finish(&wait, self.page_bytes, Some(at_ns), held);
        }
    }

    /// Ends all reads, for example after lost events.
    pub(super) fn came_all(&mut self, held: &mut Slots) {
        let page_bytes = self.page_bytes;
        self.threads
            .drain()
            .for_each(|(_, wait)| finish(&wait, page_bytes, None, held));
    }
}

fn finish(wait: &Wait, page_bytes: u64, end_ns: Option<u64>, held: &mut Slots) {
    let len = (wait.pages.end - wait.pages.start).saturating_mul(page_bytes);
    held.done(wait.ticket, |record| {
        if let Some(record) = record {
            (record.len, record.end_ns) = (len, end_ns);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::call::{Event, What};
    use crate::follow::{DEFAULT_PAGE_BYTES as PAGE_BYTES, Follow, LearnedFiles};
    use crate::{FileInfo, Flags, Item, LeftOut, Op};
    use std::collections::VecDeque;

    /// Tests the example in the header of this file, next to another thread and another device.
    #[test]
    fn consecutive_pages_are_one_read_until_the_next_event() {
        let place = |ino| FileKey { dev: 3, ino };
        let names = Box::new(|_| FileInfo::default());
        let known = LearnedFiles::new();
        let mut follow = Follow::new(PAGE_BYTES, known, names, LeftOut::default());
        let mut out = VecDeque::new();
        let mut see = |at_ns, thread, what| {
            let event = Event {
                at_ns,
                thread,
                what,
            };
            follow.event(&event, &mut out).expect("few")
        };
        see(0, 1, What::Metadata(place(7), 7, 1));
        see(10, 1, What::Metadata(place(7), 8, 1));
        see(15, 2, What::Metadata(place(7), 9, 4));
        see(20, 1, What::Metadata(place(7), 40, 1));
        see(60, 1, What::Metadata(place(8), 41, 1));
        see(90, 1, What::Gone);
        follow.end(&mut out);
        let mut got = Vec::new();
        for item in &out {
            if let Item::Record(r) = item {
                assert_eq!(
                    (r.op, r.flags),
                    (Op::Read, Flags::AHEAD.with(Flags::METADATA))
                );
                let pages = [r.offset, r.len].map(|bytes| bytes / PAGE_BYTES);
                got.push((r.thread, r.file, pages, r.start_ns, r.end_ns));
            }
        }
        let want = [
            (1, 0, [7, 2], Some(0), Some(20)),
            (2, 0, [9, 4], Some(15), None),
            (1, 0, [40, 1], Some(20), Some(60)),
            (1, 1, [41, 1], Some(60), Some(90)),
        ];
        assert_eq!(got, want);
        assert_eq!(follow.counts().reads, 0, "no program has read");
    }
}
