//! Reads of cached pages: the fast path through the state machine, and reads that the driver serves without it.
//!
//! A page is settled if it is present in the cache, was read before and has no readahead mark. A read of settled pages needs no decision
//! of the policy and changes no page. A read of settled pages only updates the eviction order, the counters and, if the policy needs it,
//! the position at which the last read ended. So a driver may serve the read without the state machine, and report it afterwards
//! ([`crate::event::Event::Hit`]). The driver may report several reads at a time, but must keep the order of each thread's reads. A
//! report of a hit never causes a fetch.
//!
//! ```text
//!   Read ──► all pages present, none marked, one group ──► quick_hit: Serve at once
//!   settled(..) ──► the driver serves without asking ──► Hit: counted, refreshed
//! ```
//!
//! Example: a thread reads page 7 of a group for the first time, with the event `Read`. Now the page is settled, and the driver reports the
//! next 1,000 reads of page 7 with the event `Hit`, 64 at a time.

use super::reads::Read;
use super::{MAX_READS, Machine, Verdict};
use crate::cache::{GROUP_PAGES, one_group};
use crate::units::{ByteRange, FileId, GroupSlot, OpenId, PageRange, ReadId};

/// A group with pages that may be read without an event to the state machine, until one page of the group is replaced or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledGroup {
    /// The file.
    pub file: FileId,
    /// The number of the group in the file.
    pub number: u64,
    /// The slot of the group's bytes.
    pub slot: GroupSlot,
    /// Bit `n` is page `64 * number + n` of the file. If a page leaves and returns, this view does not include it.
    pub pages: u64,
}

impl Machine {
    // ---- getters ----

    /// The group of `pages`, if all of them are in one group and a read of them needs no decision: present, read before, and without a readahead mark (settled). Returns `None` if the pages are not settled or not in one
    /// group, or if the policy must also be asked about reads of present pages.
    #[must_use]
    pub fn settled(&self, open: OpenId, pages: PageRange) -> Option<SettledGroup> {
        let (file, stream) = self.open_of(open).map(|o| (o.file, o.stream))?;
        if self.streams[stream].asks_when_present() {
            return None;
        }
        let (slot, settled) = self.cache.settled(file, pages)?;
        Some(SettledGroup {
            file,
            number: pages.first / GROUP_PAGES,
            slot,
            pages: settled,
        })
    }

    // ---- events in ----

    /// A reader has read settled pages. Pages that were dropped or replaced since then stay unchanged.
    pub(super) fn hit(&mut self, read: ReadId, open: OpenId, range: ByteRange) {
        let Some((file, stream)) = self.open_of(open).map(|o| (o.file, o.stream)) else {
            return;
        };
        let pages = self.config.page.cover(range);
        if one_group(pages).is_none() {
            // These bytes do not exist. A log may contain anything.
            return;
        }
        self.cache.refresh(file, pages);
        self.end_hit(stream, range.end());
        self.count_served(read, open, range.len(), (Verdict::Hit, 0));
    }

    /// The fast path for a read whose pages are all present, unmarked and in one group. Gives any other read back to
    /// the caller.
    #[allow(
        clippy::result_large_err,
        reason = "a read that is no quick hit goes on; a box for it would cost more than the copy"
    )]
    pub(super) fn quick_hit(&mut self, mut read: Read) -> Result<(), Read> {
        let Read {
            file,
            stream,
            range,
            ..
        } = read;
        let piece = self.config.page.cover(range);
        let fits = piece.len() <= self.piece_pages()
            && self.has_room(piece.len())
            && self.reads.len() < MAX_READS;
        if one_group(piece).is_none() || !fits {
            return Err(read);
        }
        let Some(touched) = self.cache.hit(file, piece) else {
            return Err(read);
        };
        self.credit(file, piece.first / GROUP_PAGES, touched);
        self.end_hit(stream, range.end());
        read.piece = piece;
        self.reserved += piece.len();
        let slot = self.reads.insert(read);
        self.serve(slot);
        Ok(())
    }

    fn end_hit(&mut self, stream: u32, end: u64) {
        if self.streams[stream].wants.read_end {
            self.streams[stream].policy.on_read_end(end);
        }
    }
}
