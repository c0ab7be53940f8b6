//! Converts system calls and page cache events to records. For this, it tracks the file and the position of each descriptor, and the bytes
//! that each call read.
//!
//! ```text
//!   enter ──► pending ──► pages seen meanwhile ──► exit ──► record, in the order of starts
//!                         name the file            returned bytes move the position
//! ```
//! The kernel names a file by device and inode, and only in page cache lookups (`filemap:*`) and direct I/O (`iomap:*`).
//! Descriptors are tracked from `open` on, so the file of an open file description is known only when the description is first read.
//! Therefore all events are processed **twice**: the second pass uses the files that the first pass found, so it also knows the file of a
//! hint before the first read. Page cache events also verify the tracked positions. Positions are never guessed: if only the pages of a
//! read are known, and not its exact offset, the record covers whole pages, and the read is counted in `by_page`.

pub mod call;
mod data;
pub(crate) mod fds;
mod maps;
mod metadata;
mod touch;

pub use data::O_DIRECT;

use crate::error::Fault;
use crate::order::HeldRecords;
use crate::{FileInfo, Flags, Item, LeftOut, Op, Record};
use call::{CLONE_FILES, CLONE_VM, Call, Event, FileKey, What};
use fds::{Description, Tables};
use maps::Spaces;
use std::collections::{HashMap, HashSet, VecDeque};
use touch::Touches;

/// The default page size of the traced machine; on arm64 it can also be 16 or 64 KiB.
pub const DEFAULT_PAGE_BYTES: u64 = 4096;
/// Pseudo descriptions without a descriptor: one per file for mappings, and one for the kernel's own reads.
const MAPPING: u32 = 1 << 31;
const BY_KERNEL: u32 = 1 << 30;

/// The files of open file descriptions, by the description's number.
pub type LearnedFiles = HashMap<u32, FileKey>;
/// A function that returns the name and size of a file.
pub type Names = Box<dyn Fn(FileKey) -> FileInfo + Send>;

/// A descriptor that was open before the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenBefore {
    /// Number of the descriptor.
    pub descriptor: i32,
    /// Its file, if it is a regular file.
    pub place: Option<FileKey>,
    /// File position: the offset of the next read.
    pub position: Option<u64>,
    /// O_DIRECT: bypasses the page cache.
    pub direct: bool,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// System calls that read.
    pub reads: u64,
    /// Bytes that these calls returned.
    pub read_bytes: u64,
    /// Accesses to mapped pages.
    pub faults: u64,
    /// Hints.
    pub hints: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Reads whose offset is known only to the page: their record covers whole pages.
    pub by_page: u64,
    /// Tracked positions that page cache events contradicted.
    pub contradicted: u64,
    /// Number of times that events were lost.
    pub gaps: u64,
}

/// A call that has not returned.
struct Pending {
    call: Call,
    args: [u64; 6],
    start_ns: u64,
    /// It started while existing descriptors were still being listed.
    early: bool,
    ticket: Option<u64>,
    seen: Option<CacheAccess>,
}

/// The page cache events during a call.
#[derive(Clone, Copy)]
pub(super) struct CacheAccess {
    place: FileKey,
    /// First byte of the first page, and the byte after the last page.
    start: u64,
    end: u64,
    /// Direct I/O: the bytes are exact.
    direct: bool,
}

/// How calls used a file.
#[derive(Clone, Copy, Default)]
struct FileUse {
    is_read: bool,
    writes: u64,
    hints: u64,
}

/// Converts the events of a trace, in order of their times.
pub struct Follow {
    /// Page size of the traced machine; events count in these pages.
    page_bytes: u64,
    pub(super) tables: Tables,
    spaces: Spaces,
    pending: HashMap<u32, Pending>,
    touches: Touches,
    metadata: metadata::Waits,
    files: HashMap<FileKey, u32>,
    places: Vec<FileKey>,
    /// How each file is used.
    uses: Vec<FileUse>,
    /// In the second pass: the files whose writes and hints become records.
    read: Option<HashSet<FileKey>>,
    /// Files with page cache lookups: all their reads appear there.
    paged: HashSet<u32>,
    pub(super) held: HeldRecords<Option<Record>>,
    known: LearnedFiles,
    learned: LearnedFiles,
    names: Names,
    ignored: Option<u32>,
    base_ns: Option<u64>,
    settled_ns: u64,
    /// Existing descriptors are still being listed.
    moving: bool,
    pub(super) counts: Counts,
    pub(super) left_out: LeftOut,
    /// Items that the caller has not taken yet.
    out: VecDeque<Item>,
}

pub(super) const FAILED: &str = "calls that failed";
const NO_FILE: &str =
    "calls on descriptors without a page cache file (pipes, sockets, terminals, /proc, tmpfs)";
const UNKNOWN: &str = "reads from an unknown position";
const UNREAD: &str = "writes to pipes, devices, or files that are never read";
const UNFINISHED: &str = "calls that did not return";
const UNMAPPED: &str = "hints about anonymous memory, or about mappings made before the recording";
const NO_HINT: &str = "hints of files that are never read, and hints that do not affect readahead";

/// The results of the first pass over the events.
pub struct LearnedRun {
    /// The known files by name.
    pub files: LearnedFiles,
    /// The files that are read.
    pub read: Vec<FileKey>,
    /// Counters, without the writes and hints for other files.
    pub counts: Counts,
}

impl Follow {
    /// Creates the state for events of a machine with this page size. `known` is the result of the first pass (empty in the first pass
    /// itself); `names` is a function that returns the names of files.
    #[must_use]
    pub fn new(page_bytes: u64, known: LearnedFiles, names: Names, left_out: LeftOut) -> Follow {
        Follow {
            page_bytes,
            tables: Tables::default(),
            spaces: Spaces::new(page_bytes),
            pending: HashMap::new(),
            touches: Touches::new(page_bytes),
            metadata: metadata::Waits::new(page_bytes),
            files: HashMap::new(),
            places: Vec::new(),
            uses: Vec::new(),
            read: None,
            paged: HashSet::new(),
            held: HeldRecords::default(),
            known,
            learned: LearnedFiles::new(),
            names,
            ignored: None,
            base_ns: None,
            settled_ns: 0,
            moving: false,
            counts: Counts::default(),
            left_out,
            out: VecDeque::new(),
        }
    }

    /// Adds a thread with descriptors that were open before the first event. If `ignored` is true, the thread's events are
    /// skipped, because this is foreread's own thread, which starts the command.
    pub fn inherit(&mut self, thread: u32, all: &[OpenBefore], ignored: bool) -> Result<(), Fault> {
        self.tables.begin(thread)?;
        self.spaces.begin(thread);
        if ignored {
            self.ignored = Some(thread);
        }
        for one in all {
            let what = Description {
                name: None,
                position: one.position,
                direct: one.direct,
            };
            let open = self.tables.open(thread, one.descriptor, what, false)?;
            if let Some(place) = one.place {
                self.known.entry(open).or_insert(place);
            }
        }
        Ok(())
    }

    /// Adds a thread that has shared the descriptors of `leader` since before the first event.
    pub fn share(&mut self, leader: u32, thread: u32) -> Result<(), Fault> {
        self.tables.fork(leader, thread, true)?;
        self.spaces.fork(leader, thread, true)
    }

    /// Sets the time at which foreread had listed all descriptors that were open before the first event.
    pub fn settled(&mut self, at_ns: u64) {
        self.settled_ns = at_ns;
    }

    /// From now on, ignores writes and hints for files that are not in `read`. An example of a file that is ignored is the standard output
    /// of a command: it was open before the first event and is never read.
    pub fn only_of(&mut self, read: &[FileKey]) {
        self.read = Some(read.iter().copied().collect());
    }

    /// The first byte of a page.
    fn byte(&self, page: u64) -> u64 {
        page.saturating_mul(self.page_bytes)
    }

    fn may_be_recorded(&self, place: FileKey) -> bool {
        self.read.as_ref().is_none_or(|read| read.contains(&place))
    }

    /// Returns what the second pass needs: the file of each open description, the files that are read, and the counts without
    /// writes and hints for files that are never read.
    #[must_use]
    pub fn learned(mut self) -> LearnedRun {
        let mut read = Vec::new();
        for (place, used) in self.places.iter().zip(&self.uses) {
            if used.is_read {
                read.push(*place);
            } else {
                self.counts.writes -= used.writes;
                self.counts.hints -= used.hints;
            }
        }
        LearnedRun {
            files: self.learned,
            read,
            counts: self.counts,
        }
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of files that have records.
    #[must_use]
    pub fn files(&self) -> usize {
        self.places.len()
    }

    /// Processes the next event.
    pub fn event(&mut self, event: &Event, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        let handled = self.handle(event);
        out.append(&mut self.out);
        handled
    }

    fn handle(&mut self, event: &Event) -> Result<(), Fault> {
        if matches!(event.what, What::Lost) {
            self.lost();
            self.leave(false);
            return Ok(());
        }
        let base_ns = *self.base_ns.get_or_insert(event.at_ns);
        self.moving = event.at_ns < self.settled_ns;
        let at_ns = event.at_ns.saturating_sub(base_ns);
        let thread = event.thread;
        if self.ignored == Some(thread) && !matches!(event.what, What::Born(..)) {
            return Ok(());
        }
        if !self.tables.knows(thread) {
            self.tables.begin(thread)?;
        }
        // Both events may come between the parts of a call or a fault.
        if let What::Metadata(place, first, pages) = event.what {
            self.metadata(thread, place, first, pages, at_ns);
            return Ok(());
        }
        self.metadata.came(thread, at_ns, &mut self.held);
        if let What::Folio(place, first, pages) = event.what {
            self.touches.folio(place, first, pages);
            return Ok(());
        }
        if let What::Mapped(place, first, last) = event.what {
            self.mapped(thread, place, first, last, at_ns);
        } else if let What::Fault(place, page) = event.what {
            self.fault(thread, place, page, at_ns);
        } else {
            self.touches
                .finish(thread, &mut self.held, &mut self.counts);
            self.other(thread, event.what, at_ns)?;
        }
        self.leave(false);
        Ok(())
    }

    fn other(&mut self, thread: u32, what: What, at_ns: u64) -> Result<(), Fault> {
        match what {
            What::Enter(call, args) => {
                self.touches.gone(thread);
                self.enter(thread, call, args, at_ns)?;
            }
            What::Exit(call, value) => self.exit(thread, call, value, at_ns)?,
            What::Pages(place, first, last) => {
                let (start, end) = (self.byte(first), self.byte(last.saturating_add(1)));
                self.saw(
                    thread,
                    CacheAccess {
                        place,
                        start,
                        end,
                        direct: false,
                    },
                    at_ns,
                );
            }
            What::Direct(place, offset, len, _) => {
                let seen = CacheAccess {
                    place,
                    start: offset,
                    end: offset.saturating_add(len),
                    direct: true,
                };
                self.saw(thread, seen, at_ns);
            }
            What::Address(address) => self.touches.address(thread, address),
            What::Born(child, flags) => {
                self.tables.fork(thread, child, flags & CLONE_FILES != 0)?;
                self.spaces.fork(thread, child, flags & CLONE_VM != 0)?;
            }
            What::Gone => {
                self.abandon(thread);
                self.touches.gone(thread);
                self.tables.exit(thread);
                self.spaces.exit(thread);
            }
            What::Exec(before) => {
                if before != thread {
                    // Another thread than the first runs it, and takes its number.
                    self.tables.fork(before, thread, true)?;
                    self.tables.exit(before);
                    self.spaces.exit(before);
                }
                self.tables.exec(thread)?;
                self.spaces.begin(thread);
            }
            What::Ahead(place, first, pages) => self.ahead(thread, place, first, pages, at_ns),
            What::Mapped(..)
            | What::Fault(..)
            | What::Folio(..)
            | What::Metadata(..)
            | What::Lost => {}
        }
        Ok(())
    }

    /// The kernel reads ahead.
    fn ahead(&mut self, thread: u32, place: FileKey, first: u64, pages: u64, at_ns: u64) {
        let file = self.read_file(place);
        let (open, start_ns, flags) = (BY_KERNEL | file, Some(at_ns), Flags::AHEAD);
        let read = Record::read(file, self.byte(first), self.byte(pages));
        self.put(Record {
            thread,
            open,
            start_ns,
            flags,
            ..read
        });
    }

    /// A file system reads its own metadata.
    fn metadata(&mut self, thread: u32, place: FileKey, first: u64, pages: u64, at_ns: u64) {
        let pages = first..first.saturating_add(pages);
        if self.metadata.goes_on(thread, place, &pages) {
            return;
        }
        self.metadata.came(thread, at_ns, &mut self.held);
        let file = self.read_file(place);
        let (open, start_ns, flags) = (
            BY_KERNEL | file,
            Some(at_ns),
            Flags::AHEAD.with(Flags::METADATA),
        );
        let bytes = self.byte(pages.end - pages.start);
        let read = Record::read(file, self.byte(pages.start), bytes);
        let ticket = self.held.open(Some(Record {
            thread,
            open,
            start_ns,
            flags,
            ..read
        }));
        self.metadata.begin(thread, place, pages, ticket);
    }

    /// Emits the remaining records; must be called after the last event.
    pub fn end(&mut self, out: &mut VecDeque<Item>) {
        self.touches.finish_all(&mut self.held, &mut self.counts);
        self.metadata.came_all(&mut self.held);
        self.leave(true);
        out.append(&mut self.out);
    }

    fn leave(&mut self, all: bool) {
        while let Some((record, _)) = self.held.next(all) {
            match record {
                Some(record) => self.out.push_back(Item::Record(record)),
                None => self.left_out.count(UNFINISHED),
            }
        }
    }

    /// After lost events all descriptors are unknown: they may have been closed, opened or moved by seek.
    fn lost(&mut self) {
        self.counts.gaps += 1;
        let threads: Vec<u32> = self.pending.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.abandon(thread));
        self.touches.finish_all(&mut self.held, &mut self.counts);
        self.metadata.came_all(&mut self.held);
        self.tables.forget();
        self.spaces.forget();
    }

    /// The number of a file; its item is emitted with its first record.
    pub(super) fn file(&mut self, place: FileKey) -> u32 {
        if let Some(number) = self.files.get(&place) {
            return *number;
        }
        let number = self.places.len() as u32;
        self.files.insert(place, number);
        self.places.push(place);
        self.uses.push(FileUse::default());
        self.out.push_back(Item::File((self.names)(place)));
        number
    }

    fn read_file(&mut self, place: FileKey) -> u32 {
        let file = self.file(place);
        self.uses[file as usize].is_read = true;
        file
    }

    /// Adds a complete record.
    pub(super) fn put(&mut self, record: Record) {
        let ticket = self.held.open(Some(record));
        self.held.done(ticket, |_| ());
    }

    fn abandon(&mut self, thread: u32) {
        if let Some(before) = self.pending.remove(&thread)
            && let Some(ticket) = before.ticket
            && self.held.cancel(ticket).is_some()
        {
            self.left_out.count(UNFINISHED);
        }
    }

    fn enter(&mut self, thread: u32, call: Call, args: [u64; 6], at_ns: u64) -> Result<(), Fault> {
        self.abandon(thread);
        if self.begun(thread, call, args) {
            return Ok(());
        }
        let ticket = call.is_data().then(|| self.held.open(None));
        self.pending.insert(
            thread,
            Pending {
                call,
                args,
                start_ns: at_ns,
                early: self.moving,
                ticket,
                seen: None,
            },
        );
        Ok(())
    }

    /// A page cache lookup or a direct read.
    fn saw(&mut self, thread: u32, seen: CacheAccess, at_ns: u64) {
        if let Some(pending) = self.pending.get_mut(&thread)
            && pending.call.is_data()
        {
            match &mut pending.seen {
                Some(before) if before.place == seen.place => {
                    before.start = before.start.min(seen.start);
                    before.end = before.end.max(seen.end);
                }
                other => *other = Some(seen),
            }
            return;
        }
        // Without a system call: a read by io_uring, or by the kernel when it executes a program.
        let file = self.read_file(seen.place);
        self.counts.reads += 1;
        self.counts.by_page += u64::from(!seen.direct);
        let flags = if seen.direct {
            Flags::DIRECT
        } else {
            Flags::default()
        };
        let (start_ns, end_ns, open) = (Some(at_ns), Some(at_ns), BY_KERNEL | file);
        let bytes = seen.end - seen.start;
        self.put(Record {
            thread,
            open,
            start_ns,
            end_ns,
            flags,
            ..Record::read(file, seen.start, bytes)
        });
    }

    fn exit(&mut self, thread: u32, call: Call, value: i64, at_ns: u64) -> Result<(), Fault> {
        let Some(pending) = self
            .pending
            .remove(&thread)
            .filter(|pending| pending.call == call)
        else {
            return Ok(());
        };
        let record = match (call.is_data(), value < 0) {
            (true, true) => {
                self.left_out.count(FAILED);
                None
            }
            (true, false) => self.data(thread, &pending, value as u64, at_ns)?,
            (false, true) => None,
            (false, false) => {
                self.state(thread, &pending, value)?;
                None
            }
        };
        let Some(ticket) = pending.ticket else {
            return Ok(());
        };
        match record {
            Some(record) => self.held.done(ticket, |place| *place = Some(record)),
            None => drop(self.held.cancel(ticket)),
        }
        Ok(())
    }

    /// An access to a page that was in the page cache: the fault only mapped it.
    fn mapped(&mut self, thread: u32, place: FileKey, first: u64, last: u64, at_ns: u64) {
        if self.touches.again(
            thread,
            place,
            first,
            last,
            at_ns,
            &mut self.held,
            &mut self.counts,
        ) {
            return;
        }
        self.touches
            .finish(thread, &mut self.held, &mut self.counts);
        let filled = self.touches.filled_from(thread, place, first);
        if filled.is_some_and(|page| page > last) {
            return;
        }
        let told = filled.or_else(|| {
            self.mapped_page(thread, place, |page| (first..=last).contains(&page))
                .or_else(|| self.touches.page(thread, first, last))
        });
        let Some(page) = told else {
            self.left_out
                .count("touches of pages that were mapped already (offset not certain)");
            return;
        };
        let record = self.touch(thread, place, page, at_ns);
        self.touches
            .found(thread, place, page, last, self.held.open(Some(record)));
    }

    /// The page of a thread's fault, if its address is in a known mapping and that page is `right`. This identifies the file.
    fn mapped_page(
        &mut self,
        thread: u32,
        place: FileKey,
        right: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let address = self.touches.address_of(thread)?;
        let piece = *self
            .spaces
            .pieces(thread, address - address % self.page_bytes, self.page_bytes)
            .first()?;
        let page = piece.offset / self.page_bytes;
        if !right(page) {
            return None;
        }
        self.learned.entry(piece.open).or_insert(place);
        Some(page)
    }

    /// A fault that read from the file.
    fn fault(&mut self, thread: u32, place: FileKey, page: u64, at_ns: u64) {
        if self.touches.went(thread, place, page) {
            return;
        }
        self.touches
            .finish(thread, &mut self.held, &mut self.counts);
        self.mapped_page(thread, place, |mapped| mapped == page);
        let record = self.touch(thread, place, page, at_ns);
        self.touches
            .begin(thread, place, page, self.held.open(Some(record)));
    }

    fn touch(&mut self, thread: u32, place: FileKey, page: u64, at_ns: u64) -> Record {
        let file = self.read_file(place);
        self.paged.insert(file);
        let (op, open, time) = (Op::Fault, MAPPING | file, Some(at_ns));
        let read = Record::read(file, self.byte(page), self.page_bytes);
        Record {
            op,
            thread,
            open,
            start_ns: time,
            end_ns: time,
            ..read
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptor 1 is a file, as for a command whose output is redirected; descriptor 3 is read and written.
    fn followed(
        known: LearnedFiles,
        read: Option<&[FileKey]>,
        left_out: LeftOut,
    ) -> (Follow, Vec<Item>) {
        let place = |ino| FileKey { dev: 3, ino };
        let names = Box::new(FileKey::nameless);
        let mut follow = Follow::new(DEFAULT_PAGE_BYTES, known, names, left_out);
        if let Some(read) = read {
            follow.only_of(read);
        }
        let before = [1, 3].map(|descriptor| OpenBefore {
            descriptor,
            place: Some(place(descriptor as u64)),
            position: Some(0),
            direct: false,
        });
        follow.inherit(7, &before, false).expect("few");
        let mut out = VecDeque::new();
        let mut call = |at_ns, call, args: [u64; 6], seen, value| {
            let whats = [
                Some(What::Enter(call, args)),
                seen,
                Some(What::Exit(call, value)),
            ];
            for what in whats.into_iter().flatten() {
                let event = Event {
                    at_ns,
                    thread: 7,
                    what,
                };
                follow.event(&event, &mut out).expect("few");
            }
        };
        let (write, advise) = (Call::Write, Call::Advise);
        call(10, write, [1, 0, 100, 0, 0, 0], None, 100);
        call(20, write, [3, 0, 50, 0, 0, 0], None, 50);
        let pages = Some(What::Pages(place(3), 0, 0));
        call(30, Call::ReadAt, [3, 0, 4096, 0, 0, 0], pages, 4096);
        call(40, advise, [1, 0, 0, 2, 0, 0], None, 0);
        call(50, advise, [3, 0, 0, 2, 0, 0], None, 0);
        follow.end(&mut out);
        (follow, out.into())
    }

    /// The first pass does not know what will be read; the second pass only emits files that have records.
    #[test]
    fn a_write_only_file_is_not_in_the_trace() {
        let (first, _) = followed(LearnedFiles::new(), None, LeftOut::default());
        let LearnedRun {
            files: known,
            read,
            counts,
        } = first.learned();
        assert_eq!(read, [FileKey { dev: 3, ino: 3 }]);
        assert_eq!((counts.reads, counts.writes, counts.hints), (1, 1, 1));
        let left_out = LeftOut::default();
        let (second, items) = followed(known, Some(&read), left_out.clone());
        let files = items.iter().filter(|item| matches!(item, Item::File(_)));
        assert_eq!((files.count(), items.len(), second.files()), (1, 4, 1));
        assert_eq!(left_out.so_far(), [(NO_HINT, 1), (UNREAD, 1)]);
    }
}
