//! External changes: listings, invalidation, new versions, hints, memory pressure.
//!
//! After a change is reported, the state machine never serves an old byte. Cached pages of the changed range are dropped immediately, and
//! pages of the range that are in flight are discarded when they arrive. Reads that waited for discarded pages fetch these pages again, or
//! fail if the whole version has been replaced.

use super::{AskedFor, Asker, MAX_IDS, Machine, Question};
use crate::cache::GROUP_PAGES;
use crate::event::{Advice, Error};
use crate::policy::{Answer, Ask, Policy, Why};
use crate::units::{ByteRange, FileId, OpenId, PageRange};
use alloc::vec::Vec;

/// Limits a hint to this many times the size of the cache. Present pages fill at most one cache, and readahead may use
/// half of one, so more would be refused. Without this limit, answering a hint on a file of exabytes would not end.
const HINTED_CACHES: u64 = 4;

impl Machine {
    /// These bytes changed: their pages are dropped, present or in flight.
    pub(super) fn invalidate(&mut self, file: FileId, range: ByteRange) {
        self.drop_pages(file, self.config.page.cover(range));
    }

    /// A new version: reads in progress fail, and all old pages are dropped.
    pub(super) fn changed(&mut self, file: FileId, size: u64) {
        self.fail_reads_and_drop(file, u64::MAX / 2);
        if let Some(entry) = self.files.get_mut(file) {
            entry.size = size;
        }
    }

    /// Fails the reads in progress of a file, and drops its first pages.
    fn fail_reads_and_drop(&mut self, file: FileId, end: u64) {
        let reads: Vec<u32> = self.reads_of(file).collect();
        reads
            .into_iter()
            .for_each(|slot| self.fail_read(slot, Error::Changed));
        self.drop_pages(file, PageRange::between(0, end));
        self.cache.ghosts().forget(file.0);
    }

    /// The file grew: if its last page was partial, it must be read again.
    pub(super) fn grown(&mut self, file: FileId, size: u64) {
        let old = self.size_of(file);
        let page = self.config.page;
        if size <= old {
            return;
        }
        if !old.is_multiple_of(page.bytes()) {
            self.drop_pages(file, page.cover(ByteRange::between(old - 1, old)));
        }
        if let Some(entry) = self.files.get_mut(file) {
            entry.size = size;
        }
    }

    /// The file will not be opened again.
    pub(super) fn forget(&mut self, file: FileId) {
        if self.files.get(file).is_none_or(|f| f.opens > 0) {
            return;
        }
        // Bounded by the size of the file, because closing a small file must not scan the whole cache.
        let pages = self.config.page.pages_for(self.size_of(file));
        self.fail_reads_and_drop(file, pages);
        self.files.remove(file);
        if let Some(stream) = self.source_stream {
            self.streams[stream].policy.on_file_closed(file);
        }
    }

    /// A listing contains the file. From now on a policy may read it, although it has no open description.
    pub(super) fn list(&mut self, file: FileId, size: u64, after: Option<FileId>, planned: bool) {
        if file.0 < MAX_IDS {
            self.files.list(file, size, after, planned);
        }
    }

    /// The size of the cache changes.
    pub(super) fn pressure(&mut self, pages: u64) {
        self.config.capacity_pages = pages;
        self.config = self.config.bounded();
        let over = self
            .cache
            .pages()
            .saturating_sub(self.config.capacity_pages);
        if over > 0 {
            self.evict(over);
        }
    }

    /// Handles a hint. The policy may read ahead. Pages that are no longer wanted leave, unless a read waits for them.
    /// An empty range reaches to the end of the file, like a length of 0 for `posix_fadvise`; this is decided here,
    /// once for all policies.
    pub(super) fn advise(&mut self, open: OpenId, advice: Advice, range: ByteRange) {
        let Some((file, stream)) = self.open_of(open).map(|o| (o.file, o.stream)) else {
            return;
        };
        let end = if range.is_empty() {
            self.size_of(file)
        } else {
            range.end()
        };
        let mut range = ByteRange::between(range.start(), end);
        if advice == Advice::WillNeed {
            range = self.heard(range);
        }
        let asker = Asker { file, open, stream };
        self.take_hint(asker, range, |policy, ask, answer| {
            policy.on_advice(ask, advice, answer)
        });
        if advice == Advice::DontNeed {
            self.drop_unneeded(file, range);
        }
    }

    /// Reads ranges that the caller announced, as if a policy had planned them. The policy's state does not change.
    pub(super) fn prefetch(&mut self, open: OpenId, range: ByteRange) {
        let Some((file, stream)) = self.open_of(open).map(|o| (o.file, o.stream)) else {
            return;
        };
        let range = self.heard(range);
        let asker = Asker { file, open, stream };
        self.take_hint(asker, range, |_, _, answer| {
            answer.why = Some(Why::Asked);
            answer.read(range.start(), range.len(), None);
        });
    }

    /// Plans and submits `answer` for a hint about `range`.
    fn take_hint(
        &mut self,
        asker: Asker,
        range: ByteRange,
        answer: impl FnOnce(&mut dyn Policy, &Ask<'_>, &mut Answer),
    ) {
        let Asker { file, open, stream } = asker;
        let question = AskedFor {
            request: range,
            at: range.start(),
            random: false,
        };
        self.ask(Asker { file, open, stream }, question, answer);
        self.note(open, None, Question::Advice, range.start());
        let (pages, bytes) = (PageRange::default(), ByteRange::default());
        self.apply(file, open, stream, pages, bytes, None);
        self.commit(None);
    }

    /// The part of an announced range that is worth planning; see [`HINTED_CACHES`].
    fn heard(&self, range: ByteRange) -> ByteRange {
        let cache = self
            .config
            .capacity_pages
            .saturating_mul(self.config.page.bytes());
        let most = cache.saturating_mul(HINTED_CACHES);
        ByteRange::between(
            range.start(),
            range.end().min(range.start().saturating_add(most)),
        )
    }

    /// Drops the whole pages inside the range, and the last page of the file if the range reaches the end.
    fn drop_unneeded(&mut self, file: FileId, range: ByteRange) {
        let size = self.size_of(file);
        let page = self.config.page;
        let mut pages = page.inside(range);
        if range.end() >= size {
            pages.end = page.pages_for(size).max(pages.first);
        }
        for (number, mask) in self.groups_in(file, pages) {
            let free =
                self.cache.group(file, number).present() & mask & !self.held_pages(file, number);
            if free != 0 {
                self.drop_present(file, number, free);
            }
        }
    }

    /// Drops present pages of the range, and dooms fetches that overlap it.
    fn drop_pages(&mut self, file: FileId, pages: PageRange) {
        for (number, mask) in self.groups_in(file, pages) {
            let present = self.cache.group(file, number).present() & mask;
            if present != 0 {
                self.drop_present(file, number, present);
            }
        }
        let reached: Vec<u32> = (self.fetches.slots())
            .filter(|&slot| {
                let fetch = &self.fetches[slot];
                fetch.file == file && !fetch.doomed && !fetch.pages.intersect(pages).is_empty()
            })
            .collect();
        reached.into_iter().for_each(|slot| self.doom(slot));
    }

    /// The groups in use that the range touches, with their pages. This is cheap even if the range is unbounded.
    fn groups_in(&self, file: FileId, pages: PageRange) -> Vec<(u64, u64)> {
        let mask = |number| crate::cache::mask_of(number, pages.first, pages.end);
        let numbers = pages.first / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES);
        if numbers.end - numbers.start.min(numbers.end) < 1024 {
            return numbers.map(|n| (n, mask(n))).collect();
        }
        let of_file = self
            .cache
            .groups()
            .filter(|g| g.file == file.0 && numbers.contains(&g.number));
        of_file.map(|g| (g.number, mask(g.number))).collect()
    }
}
