//! The steps of a demand read: look-up, wait, lease, release. A large read is processed in pieces.
//!
//! Only the method `ensure` decides whether a read waits or is served. No read waits forever for a page, because `ensure` fetches every
//! absent page, whatever the reason for its absence.

use super::{AskedFor, Asker, LookedUp, MAX_READS, Machine, Note, Question, Verdict};
use crate::event::{Action, Error, Mapping};
use crate::policy::{Answer, Ask, DemandMode, Policy};
use crate::units::{ByteRange, FileId, LeaseId, Nanos, OpenId, PageRange, ReadId};

/// The state of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There was no room for its next piece.
    Starved,
    /// It waits for `pending` fetches.
    Waiting,
    /// Its piece has been served and not yet released.
    Leased,
    /// Like `Leased`, but the rest of the read will fail.
    Spoiled(Error),
}

/// One demand read.
pub struct Read {
    pub id: ReadId,
    open: OpenId,
    pub file: FileId,
    pub stream: u32,
    /// The range that the reader requested.
    request: ByteRange,
    /// The range clipped to the file.
    pub range: ByteRange,
    /// Pages that are pinned: looked up, waited for or leased.
    pub piece: PageRange,
    /// Number of fetches that this read waits for.
    pub pending: u32,
    stage: Stage,
    verdict: Verdict,
    late_bytes: u64,
    missed_bytes: u64,
    stall_ns: u64,
    random: bool,
    /// The mapping, if the read is a page fault.
    pub fault: Option<Mapping>,
    began: Nanos,
}

impl Machine {
    /// Starts a demand read.
    pub(super) fn begin_read(
        &mut self,
        id: ReadId,
        open: OpenId,
        request: ByteRange,
        random: bool,
    ) {
        let Some((file, stream)) = self.open_of(open).map(|o| (o.file, o.stream)) else {
            return self.refuse(id, open, Error::Limit);
        };
        let range = request.intersect(ByteRange::between(0, self.size_of(file)));
        let read = Read::new(id, open, file, stream, request, range, random, self.now);
        let policy = &self.streams[stream];
        if policy.asks_when_present() {
            let ask = policy.wants.read;
            return self.admit(read, ask);
        }
        if let Err(read) = self.quick_hit(read) {
            self.admit(read, false);
        }
    }

    pub(super) fn admit(&mut self, read: Read, ask: bool) {
        if self.reads.len() >= MAX_READS {
            return self.refuse(read.id, read.open, Error::Limit);
        }
        let slot = self.reads.insert(read);
        if ask {
            let at = self.reads[slot].request.start();
            self.ask_for(slot, at, Question::Read, |policy, ask, answer| {
                policy.on_read(ask, answer)
            });
        }
        self.advance(slot);
    }

    /// Largest piece of a read that is pinned at once: a quarter of the cache, so that pinned pages, pages in flight
    /// and a piece that waits for room always fit together.
    pub(super) fn piece_pages(&self) -> u64 {
        let most = self.config.max_fetch_bytes / self.config.page.bytes();
        (self.config.capacity_pages / 4).min(most.max(1) * 4)
    }

    /// Whether a piece fits beside the pages that are pinned or in flight; in an idle machine it always does.
    pub(super) fn has_room(&self, pages: u64) -> bool {
        let held = self.reserved + self.cache.pages_in_flight();
        held == 0 || held + pages <= self.config.capacity_pages
    }

    /// Looks up the next piece of a read, or serves an empty read.
    pub(super) fn advance(&mut self, slot: u32) {
        let read = &self.reads[slot];
        let first = read
            .piece
            .end
            .max(self.config.page.page_of(read.range.start()));
        let serial = self
            .streams
            .get(read.stream)
            .is_some_and(|s| s.mode == DemandMode::PageSerial)
            && read.fault.is_none();
        let end = self.config.page.cover(read.range).end.max(first);
        let mut piece = PageRange::between(first, end.min(first + self.piece_pages()));
        if !self.has_room(piece.len()) {
            self.reads[slot].stage = Stage::Starved;
            self.starved.push_back(slot);
            // Windows that the policy planned for this read are submitted now, without the read.
            self.commit(Some(slot));
            return;
        }
        if serial {
            piece = self.serial_piece(slot, piece);
        } else {
            self.hold(slot, piece);
            if self.reads[slot].fault.is_some() {
                self.look_up_fault(slot)
            } else {
                self.look_up(slot)
            }
        }
        if piece.end >= end && self.reads[slot].fault.is_none() {
            self.end_look_up(slot);
        }
        self.ensure(slot);
    }

    /// Reports to the policy that every page of the read has been looked up.
    fn end_look_up(&mut self, slot: u32) {
        let read = &self.reads[slot];
        let end = read.range.end();
        let empty = read.range.is_empty();
        if let Some(stream) = self.streams.get_mut(read.stream)
            && stream.wants.read_end
            && !empty
        {
            stream.turn_to(read.open);
            stream.policy.on_read_end(end);
        }
    }

    /// Pins a piece and counts its pages.
    fn hold(&mut self, slot: u32, piece: PageRange) {
        let read = &mut self.reads[slot];
        read.piece = piece;
        read.stage = Stage::Waiting;
        self.reserved += piece.len();
        self.cache.pin(read.file, piece);
    }

    /// Looks up a piece, page by page if the policy must be asked.
    fn look_up(&mut self, slot: u32) {
        let Read { file, piece, .. } = self.reads[slot];
        self.count_waited_for(slot, piece);
        let mut at = piece.first;
        while at < piece.end {
            at += self.look_up_at(slot, file, PageRange::between(at, piece.end));
        }
        self.commit(Some(slot));
    }

    /// Counts the bytes of these pages that are in flight or absent, before a policy is asked about them.
    fn count_waited_for(&mut self, slot: u32, pages: PageRange) {
        let Read { file, range, .. } = self.reads[slot];
        let page = self.config.page;
        let bytes = |first, end| {
            page.bytes_of(PageRange::between(first, end))
                .intersect(range)
                .len()
        };
        let (mut late_bytes, mut missed_bytes) = (0, 0);
        let mut rest = pages;
        loop {
            rest.first += self.cache.present_run(file, rest);
            let late = rest.first;
            rest.first += self.cache.flight_run(file, rest);
            let absent = rest.first;
            rest.first += self.cache.absent_run(file, rest);
            late_bytes += bytes(late, absent);
            missed_bytes += bytes(absent, rest.first);
            if rest.first >= rest.end {
                break;
            }
        }
        let read = &mut self.reads[slot];
        read.late_bytes += late_bytes;
        read.missed_bytes += missed_bytes;
    }

    /// Serves or fetches the pages at the start of `rest`. Returns the number of these pages, at least one.
    fn look_up_at(&mut self, slot: u32, file: FileId, rest: PageRange) -> u64 {
        let mut run = self.cache.look(file, rest);
        if run.pages == 0 {
            self.met(slot, Verdict::Miss);
            let at = self.config.page.start_of(rest.first);
            self.ask_for(slot, at, Question::Miss, |policy, ask, answer| {
                policy.on_miss(ask, answer)
            });
            run = self.cache.look(file, rest);
            if run.pages == 0 {
                let absent = self.cache.absent_run(file, rest);
                self.demand(file, PageRange::between(rest.first, rest.first + absent));
                return absent;
            }
        }
        let pages = PageRange::between(rest.first, rest.first + run.pages);
        self.touch(slot, file, pages);
        if run.marked {
            self.meet_mark(
                slot,
                file,
                pages.end - 1,
                Question::Mark,
                |policy, ask, answer| policy.on_mark(ask, answer),
            );
        }
        run.pages
    }

    /// The look-up for a page-serial policy: up to and including the first page that the read must wait for.
    fn serial_piece(&mut self, slot: u32, most: PageRange) -> PageRange {
        let file = self.reads[slot].file;
        self.hold(slot, most);
        let mut at = most.first;
        while at < most.end {
            let one = PageRange::one(at);
            self.count_waited_for(slot, one);
            let offset = self.config.page.start_of(at);
            self.ask_for(slot, offset, Question::Page, |policy, ask, answer| {
                policy.on_page(ask, answer)
            });
            self.look_up_at(slot, file, one);
            at += 1;
            if self.cache.present_run(file, one) == 0 {
                break;
            }
        }
        self.commit(Some(slot));
        // The piece ends at the last page that was looked up; the rest follows later.
        let piece = PageRange::between(most.first, at);
        self.cache.pin(file, piece);
        self.cache.unpin(file, most);
        self.reserved -= most.len() - piece.len();
        self.reads[slot].piece = piece;
        piece
    }

    /// Removes a mark, asks the policy about it, and restores it if the policy wants that.
    pub(super) fn meet_mark(
        &mut self,
        slot: u32,
        file: FileId,
        page: u64,
        what: Question,
        question: impl FnOnce(&mut dyn Policy, &Ask<'_>, &mut Answer),
    ) {
        let was_marked = self.cache.look(file, PageRange::one(page)).marked;
        self.cache.clear_mark(file, page);
        let at = self.config.page.start_of(page);
        if self.ask_for(slot, at, what, question) && was_marked {
            self.cache.set_mark(file, page);
        }
    }

    /// Marks cached pages of a read as demanded, and counts use and lateness.
    fn touch(&mut self, slot: u32, file: FileId, pages: PageRange) {
        if self.cache.present_run(file, pages) < pages.len() {
            self.met(slot, Verdict::Late);
        }
        for (number, mask) in crate::cache::groups_of(pages) {
            let touched = self.cache.touch(file, number, mask);
            self.credit(file, number, touched);
        }
    }

    pub(super) fn met(&mut self, slot: u32, verdict: Verdict) {
        let read = &mut self.reads[slot];
        read.verdict = read.verdict.max(verdict);
    }

    /// Serves the piece if all its pages are cached; otherwise fetches the absent ones and waits.
    pub(super) fn ensure(&mut self, slot: u32) {
        let Read { file, piece, .. } = self.reads[slot];
        if self.cache.present_run(file, piece) == piece.len() {
            return self.serve(slot);
        }
        let mut at = piece.first;
        while at < piece.end {
            let rest = PageRange::between(at, piece.end);
            let absent = self.cache.absent_run(file, rest);
            if absent > 0 {
                self.demand(file, PageRange::between(at, at + absent));
            }
            at += absent;
            at = self
                .cache
                .next_hole(file, PageRange::between(at, piece.end))
                .unwrap_or(piece.end);
        }
        self.commit(Some(slot));
        self.reads[slot].stage = Stage::Waiting;
        self.wait_for_fetches(slot);
    }

    /// All pages of the piece are cached.
    pub(super) fn serve(&mut self, slot: u32) {
        self.end_fault(slot);
        let page = self.config.page;
        let now = self.now;
        let read = &mut self.reads[slot];
        let range = page.bytes_of(read.piece).intersect(read.range);
        let last = range.end() >= read.range.end();
        read.stage = Stage::Leased;
        let (id, file, open, verdict) = (read.id, read.file, read.open, read.verdict);
        if last && !read.range.is_empty() {
            let bytes = read.range.len();
            let stall_ns = if verdict == Verdict::Hit {
                0
            } else {
                now.since(read.began)
            };
            read.stall_ns = stall_ns;
            self.count_served(id, open, bytes, (verdict, stall_ns));
        }
        self.actions.push_back(Action::Serve {
            read: id,
            lease: LeaseId(slot),
            file,
            range,
            last,
        });
    }

    /// Counts a read that has all of its bytes.
    pub(super) fn count_served(
        &mut self,
        read: ReadId,
        open: OpenId,
        bytes: u64,
        (verdict, stall_ns): (Verdict, u64),
    ) {
        self.count(Some(open), |stats| verdict.count(stats, bytes, stall_ns));
        self.tell_watcher(|| Note::Served {
            read,
            open,
            bytes,
            verdict,
            stall_ns,
        });
    }

    /// Returns how many bytes of a read have been hits, late or missed so far; `lease` is the lease on one of its pieces.
    #[must_use]
    pub fn looked_up(&self, lease: LeaseId) -> Option<LookedUp> {
        let read = self.reads.get(lease.0)?;
        Some(LookedUp {
            hit_bytes: read
                .range
                .len()
                .saturating_sub(read.late_bytes + read.missed_bytes),
            late_bytes: read.late_bytes,
            missed_bytes: read.missed_bytes,
            stall_ns: read.stall_ns,
        })
    }

    /// The bytes of a piece have been copied: continues with the next piece, or ends the read.
    pub(super) fn release(&mut self, lease: LeaseId) {
        let Some(read) = self.reads.get(lease.0) else {
            return;
        };
        if !matches!(read.stage, Stage::Leased | Stage::Spoiled(_)) {
            return;
        }
        let (stage, piece, file) = (read.stage, read.piece, read.file);
        let last = self.config.page.bytes_of(piece).end() >= read.range.end() || piece.is_empty();
        self.cache.unpin(file, piece);
        self.reserved -= piece.len();
        if last {
            self.reads.remove(lease.0);
        } else if let Stage::Spoiled(error) = stage {
            self.end_failed(lease.0, error);
        } else {
            let read = &mut self.reads[lease.0];
            read.piece = PageRange::between(piece.end, piece.end);
            self.advance(lease.0);
        }
    }

    /// Fails a read. A waiting read fails now; a read whose bytes are being copied fails after the copy.
    pub(super) fn fail_read(&mut self, slot: u32, error: Error) {
        let read = &mut self.reads[slot];
        match read.stage {
            Stage::Leased | Stage::Spoiled(_) => read.stage = Stage::Spoiled(error),
            Stage::Starved => {
                self.starved.retain(|&s| s != slot);
                self.end_failed(slot, error);
            }
            Stage::Waiting => {
                self.let_go(slot);
                self.end_failed(slot, error);
            }
        }
    }

    fn end_failed(&mut self, slot: u32, error: Error) {
        if let Some(read) = self.reads.remove(slot) {
            let stall_ns = self.now.since(read.began);
            self.count(Some(read.open), |stats| {
                stats.demand_reads += 1;
                stats.demand_bytes += read.range.len();
                stats.stall_ns += stall_ns;
            });
            self.refuse(read.id, read.open, error);
        }
    }

    /// The caller no longer waits for this read. If it holds a lease, it ends when the lease is released.
    pub(super) fn abandon(&mut self, id: ReadId) {
        let found = self.reads.slots().find(|&slot| self.reads[slot].id == id);
        let Some(slot) = found else { return };
        match self.reads[slot].stage {
            Stage::Leased | Stage::Spoiled(_) => return,
            Stage::Starved => self.starved.retain(|&s| s != slot),
            Stage::Waiting => self.let_go(slot),
        }
        self.reads.remove(slot);
    }

    /// Detaches a waiting read from its fetches and its pages.
    fn let_go(&mut self, slot: u32) {
        for fetch in self.fetches.iter_mut() {
            fetch.waiters.retain(|&w| w != slot);
            if fetch.owner == Some(slot) {
                fetch.owner = None;
            }
        }
        let Read { file, piece, .. } = self.reads[slot];
        self.cache.unpin(file, piece);
        self.reserved -= piece.len();
    }

    /// Retries reads that wait for room, in order of arrival, until one does not fit.
    pub(super) fn feed_starved(&mut self) {
        for _ in 0..self.starved.len() {
            let Some(slot) = self.starved.pop_front() else {
                return;
            };
            self.advance(slot);
            if self.starved.back() == Some(&slot) {
                // It does not fit, so it stays first in the queue.
                self.starved.pop_back();
                self.starved.push_front(slot);
                return;
            }
        }
    }

    /// Asks the read's policy at `at` and applies the answer. Returns true if the mark is to stay.
    pub(super) fn ask_for(
        &mut self,
        slot: u32,
        at: u64,
        what: Question,
        question: impl FnOnce(&mut dyn Policy, &Ask<'_>, &mut Answer),
    ) -> bool {
        let Read {
            id,
            open,
            file,
            stream,
            request,
            random,
            piece,
            ..
        } = self.reads[slot];
        self.ask(
            Asker { file, open, stream },
            AskedFor {
                request,
                at,
                random,
            },
            question,
        );
        self.note(open, Some(id), what, at);
        let keep = self.answer.keep_mark;
        if !self.answer.is_empty() {
            self.apply(file, open, stream, piece, request, Some(slot));
        }
        keep
    }

    /// Reads in progress on a file.
    pub(super) fn reads_of(&self, file: FileId) -> impl Iterator<Item = u32> + '_ {
        self.reads
            .slots()
            .filter(move |&slot| self.reads[slot].file == file)
    }
}

impl Read {
    #[allow(clippy::too_many_arguments, reason = "the fields of one event")]
    pub(super) fn new(
        id: ReadId,
        open: OpenId,
        file: FileId,
        stream: u32,
        request: ByteRange,
        range: ByteRange,
        random: bool,
        began: Nanos,
    ) -> Read {
        Read {
            id,
            open,
            file,
            stream,
            request,
            range,
            piece: PageRange::default(),
            pending: 0,
            stage: Stage::Starved,
            verdict: Verdict::Hit,
            late_bytes: 0,
            missed_bytes: 0,
            stall_ns: 0,
            random,
            fault: None,
            began,
        }
    }

    /// The open description of the read.
    pub fn open_id(&self) -> OpenId {
        self.open
    }

    /// Whether a piece of this read is being fetched or copied. As long as this is true, the pages of the piece must not be evicted for
    /// another read.
    pub fn is_active(&self) -> bool {
        self.stage != Stage::Starved
    }
}
