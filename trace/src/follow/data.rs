//! System calls that read, write or give hints.
//!
//! Pipes, sockets, terminals, and files that appear in no page cache event get no records.

use super::call::{Call, MAX_CALL_BYTES};
use super::fds::Description;
use super::{
    CacheAccess, Counts, Follow, MAPPING, NO_FILE, NO_HINT, Pending, UNKNOWN, UNMAPPED, UNREAD,
};
use crate::check::MAX_END;
use crate::error::Fault;
use crate::{Flags, Op, Record};
use foreread_core::event::Advice;

struct RequestedCall {
    op: Op,
    descriptor: i32,
    /// The origin of the offset.
    from: From,
    /// Number of bytes; `None` if the number is in the program's memory.
    len: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The file position, which the call advances.
    Position,
    /// An argument of the call.
    At(u64),
    /// The offset is in the program's memory: only page cache events show it, to the page.
    Memory,
}

fn asked(call: Call, args: [u64; 6]) -> RequestedCall {
    let [a, b, c, d, e, _] = args;
    let of = |op, from, len| RequestedCall {
        op,
        descriptor: a as i32,
        from,
        len,
    };
    let at = |offset, minus_one| {
        if minus_one && offset == u64::MAX {
            From::Position
        } else {
            From::At(offset)
        }
    };
    let pointed = |pointer| {
        if pointer == 0 {
            From::Position
        } else {
            From::Memory
        }
    };
    match call {
        Call::ReadAt => of(Op::Read, From::At(d), Some(c)),
        Call::ReadVector => of(Op::Read, From::Position, None),
        Call::ReadVectorAt => of(Op::Read, at(d, false), None),
        Call::ReadVectorAt2 => of(Op::Read, at(d, true), None),
        Call::Write => of(Op::Write, From::Position, Some(c)),
        Call::WriteAt => of(Op::Write, From::At(d), Some(c)),
        Call::WriteVector => of(Op::Write, From::Position, None),
        Call::WriteVectorAt => of(Op::Write, at(d, false), None),
        Call::WriteVectorAt2 => of(Op::Write, at(d, true), None),
        Call::Sendfile => RequestedCall {
            descriptor: b as i32,
            ..of(Op::Read, pointed(c), Some(d))
        },
        Call::Copy => of(Op::Read, pointed(b), Some(e)),
        Call::Readahead => of(Op::Hint(Advice::WillNeed), From::At(b), Some(c)),
        Call::Advise => of(
            Op::Hint(advice(d).unwrap_or(Advice::Normal)),
            From::At(b),
            Some(c),
        ),
        _ => of(Op::Read, From::Position, Some(c)),
    }
}

/// `POSIX_FADV_*`. The fifth, NOREUSE, does not concern readahead.
fn advice(number: u64) -> Option<Advice> {
    [
        Advice::Normal,
        Advice::Random,
        Advice::Sequential,
        Advice::WillNeed,
        Advice::DontNeed,
    ]
    .get(usize::try_from(number).ok()?)
    .copied()
}

impl Follow {
    pub(super) fn data(
        &mut self,
        thread: u32,
        pending: &Pending,
        came: u64,
        at_ns: u64,
    ) -> Result<Option<Record>, Fault> {
        if pending.call == Call::AdviseMapped {
            return Ok(self.advised(thread, pending, at_ns));
        }
        let asked = asked(pending.call, pending.args);
        self.moved_out(thread, pending, came);
        if pending.call == Call::Advise && advice(pending.args[3]).is_none() {
            return Ok(self.pass(NO_HINT));
        }
        let (open, before) = self.description(thread, asked.descriptor)?;
        let file = self.bind(thread, &asked, open, before, pending.seen, came);
        let position = self
            .tables
            .get(thread, asked.descriptor)
            .and_then(|(_, d)| d.position);
        if asked.from == From::Position {
            let next = position
                .filter(|_| !pending.early)
                .and_then(|at| at.checked_add(came));
            self.put_position(thread, asked.descriptor, next);
        }
        let position = position.filter(|_| !pending.early);
        let hint = matches!(asked.op, Op::Hint(_));
        let Some(file) = file else {
            return Ok(self.pass(match asked.op {
                Op::Write => UNREAD,
                _ if hint => NO_HINT,
                _ => NO_FILE,
            }));
        };
        let offset = match asked.from {
            From::Position => position,
            From::At(offset) => Some(offset),
            From::Memory => None,
        };
        let (offset, len, returned) = match (offset, pending.seen) {
            (Some(offset), _) => (
                offset,
                asked.len.unwrap_or(came).min(MAX_CALL_BYTES),
                Some(came),
            ),
            (None, Some(seen)) if asked.op == Op::Read => {
                let (start, len) = by_page(&mut self.counts, self.page_bytes, seen, came);
                (start, len, seen.direct.then_some(came))
            }
            _ => return Ok(self.pass(UNKNOWN)),
        };
        let len = if hint { asked.len.unwrap_or(0) } else { len };
        let direct = before.direct || pending.seen.is_some_and(|seen| seen.direct);
        self.count(file, asked.op, came);
        Ok(Some(Record {
            op: asked.op,
            thread,
            open,
            returned: returned.filter(|_| !hint),
            start_ns: Some(pending.start_ns),
            end_ns: Some(at_ns),
            flags: if direct {
                Flags::DIRECT
            } else {
                Flags::default()
            },
            // A hint for the rest of a file has length 0, or a length beyond any file.
            ..Record::read(
                file,
                offset.min(MAX_END),
                len.min(MAX_END - offset.min(MAX_END)),
            )
        }))
    }

    /// A hint for addresses applies to every file mapped there; returns the first one.
    fn advised(&mut self, thread: u32, pending: &Pending, at_ns: u64) -> Option<Record> {
        let [address, len, number, ..] = pending.args;
        let Some(advice) = advice(number) else {
            return self.pass(NO_HINT);
        };
        let pieces = self.spaces.pieces(thread, address, len);
        if pieces.is_empty() {
            return self.pass(UNMAPPED);
        }
        let mut first = None;
        for piece in pieces {
            let Some(&place) = self
                .known
                .get(&piece.open)
                .or_else(|| self.learned.get(&piece.open))
            else {
                self.left_out.count(NO_HINT);
                continue;
            };
            if !self.may_be_recorded(place) {
                self.left_out.count(NO_HINT);
                continue;
            }
            let file = self.file(place);
            self.count(file, Op::Hint(advice), 0);
            let record = Record {
                op: Op::Hint(advice),
                thread,
                open: MAPPING | file,
                start_ns: Some(at_ns),
                end_ns: Some(at_ns),
                ..Record::read(
                    file,
                    piece.offset.min(MAX_END),
                    piece.len.min(MAX_END - piece.offset.min(MAX_END)),
                )
            };
            match first {
                None => first = Some(record.at(pending.start_ns)),
                Some(_) => self.put(record),
            }
        }
        first
    }

    fn pass(&mut self, why: &'static str) -> Option<Record> {
        self.left_out.count(why);
        None
    }

    fn count(&mut self, file: u32, op: Op, came: u64) {
        let used = &mut self.uses[file as usize];
        match op {
            Op::Read => {
                used.is_read = true;
                self.counts.reads += 1;
                self.counts.read_bytes += came;
            }
            Op::Write => {
                used.writes += 1;
                self.counts.writes += 1;
            }
            _ => {
                used.hints += 1;
                self.counts.hints += 1;
            }
        }
    }

    /// The open description of a descriptor. If its open is not in the trace, it is created here, without a position.
    pub(super) fn description(
        &mut self,
        thread: u32,
        descriptor: i32,
    ) -> Result<(u32, Description), Fault> {
        if let Some((open, description)) = self.tables.get(thread, descriptor) {
            return Ok((open, *description));
        }
        let unknown = Description {
            name: None,
            position: None,
            direct: false,
        };
        Ok((
            self.tables.open(thread, descriptor, unknown, false)?,
            unknown,
        ))
    }

    fn put_position(&mut self, thread: u32, descriptor: i32, to: Option<u64>) {
        if let Some((_, description)) = self.tables.get(thread, descriptor) {
            description.position = to;
        }
    }

    /// The file of a call, from page cache events or from the first pass. If they contradict the description, it is corrected.
    fn bind(
        &mut self,
        thread: u32,
        asked: &RequestedCall,
        open: u32,
        before: Description,
        seen: Option<CacheAccess>,
        came: u64,
    ) -> Option<u32> {
        let learned = self.known.get(&open).copied();
        let learned = learned.filter(|place| asked.op == Op::Read || self.may_be_recorded(*place));
        let file = before
            .name
            .or_else(|| learned.map(|place| self.file(place)));
        let Some(seen) = seen.filter(|_| asked.op == Op::Read) else {
            // A read of a page cache file causes a lookup for every byte: a call that returned bytes without one read
            // another file.
            let other = asked.op == Op::Read && came > 0 && !before.direct;
            let other = other && file.is_some_and(|file| self.paged.contains(&file));
            if other {
                self.counts.contradicted += 1;
                self.put_position(thread, asked.descriptor, None);
            }
            return file.filter(|_| !other);
        };
        let number = self.file(seen.place);
        self.paged.insert(number);
        self.learned.entry(open).or_insert(seen.place);
        // The lookups of a read's first pages are not reported if it had to wait for a later page.
        let unit = if seen.direct { 1 } else { self.page_bytes };
        let page = |byte: u64| byte / unit;
        let elsewhere = match (asked.from, before.position) {
            (From::Position, Some(at)) => {
                !(page(at)..=page(at.saturating_add(came))).contains(&page(seen.start))
            }
            _ => false,
        };
        let other = file.is_some_and(|file| file != number);
        if let Some((_, description)) = self.tables.get(thread, asked.descriptor) {
            description.name = Some(number);
            if elsewhere || other {
                description.position = None;
            }
        }
        self.counts.contradicted += u64::from(elsewhere || other);
        Some(number)
    }

    /// A copy also moves the position of the destination.
    fn moved_out(&mut self, thread: u32, pending: &Pending, came: u64) {
        let to = match pending.call {
            Call::Sendfile => pending.args[0],
            Call::Copy if pending.args[3] == 0 => pending.args[2],
            _ => return,
        };
        if let Some((_, description)) = self.tables.get(thread, to as i32) {
            description.position = description.position.and_then(|at| at.checked_add(came));
        }
    }
}

/// Pages of a read that returned `came` bytes, if only pages are known. The lookups of the first pages are not reported
/// if the read had to wait for a later page, so pages are also counted back from the end.
fn by_page(counts: &mut Counts, page_bytes: u64, seen: CacheAccess, came: u64) -> (u64, u64) {
    if seen.direct {
        return (seen.start, seen.end - seen.start);
    }
    counts.by_page += 1;
    let most = (came + page_bytes - 1).next_multiple_of(page_bytes);
    let start = seen.start.min(seen.end.saturating_sub(most));
    (start, (seen.end - start).min(most + page_bytes))
}

// System calls that open, close, share or seek descriptors.
//
// Failed calls do not move the position.

/// `O_CLOEXEC` and `O_DIRECT` for x86-64 and arm64, from the kernel headers of each.
const O_CLOEXEC: u64 = 0o2_000_000;
/// The flag of open(2) that bypasses the page cache.
pub const O_DIRECT: u64 = if cfg!(target_arch = "aarch64") {
    0o200_000
} else {
    0o40_000
};
/// Commands of fcntl(2).
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_SETFL: u64 = 4;
const F_DUPFD_CLOEXEC: u64 = 1030;
/// The command of ioctl(2) that sets close-on-exec; the only other one that is recorded, FIONCLEX, clears it.
const FIOCLEX: u64 = 0x5451;
/// Flags of mmap(2) and mremap(2).
const MAP_ANONYMOUS: u64 = 0x20;
const MREMAP_DONTUNMAP: u64 = 4;
/// Flags of close_range(2).
const CLOSE_RANGE_CLOEXEC: u64 = 4;

impl Follow {
    /// Handles calls that take effect when they start.
    pub(super) fn begun(&mut self, thread: u32, call: Call, args: [u64; 6]) -> bool {
        let fd = args[0] as i32;
        match call {
            Call::Close => self.tables.close(thread, fd),
            Call::Ioctl => self
                .tables
                .set_close_on_exec(thread, fd, args[1] == FIOCLEX),
            Call::Unmap => self.spaces.unmap(thread, args[0], args[1]),
            _ => return false,
        }
        true
    }

    pub(super) fn state(
        &mut self,
        thread: u32,
        pending: &Pending,
        value: i64,
    ) -> Result<(), Fault> {
        let (args, fd) = (pending.args, pending.args[0] as i32);
        let returned = i32::try_from(value).unwrap_or(-1);
        match pending.call {
            Call::Open => self.opened(thread, returned, args[1])?,
            Call::OpenAt => self.opened(thread, returned, args[2])?,
            Call::OpenAt2 => self.opened(thread, returned, 0)?,
            Call::CloseRange if args[2] & CLOSE_RANGE_CLOEXEC == 0 => {
                let limit = |number: u64| i32::try_from(number as u32).unwrap_or(i32::MAX);
                self.tables
                    .close_range(thread, limit(args[0])..=limit(args[1]));
            }
            Call::Dup => self.tables.dup(thread, fd, returned, false)?,
            Call::Dup3 => self
                .tables
                .dup(thread, fd, returned, args[2] & O_CLOEXEC != 0)?,
            Call::Fcntl => match args[1] {
                F_DUPFD => self.tables.dup(thread, fd, returned, false)?,
                F_DUPFD_CLOEXEC => self.tables.dup(thread, fd, returned, true)?,
                F_SETFD => self.tables.set_close_on_exec(thread, fd, args[2] & 1 != 0),
                F_SETFL => {
                    if let Some((_, description)) = self.tables.get(thread, fd) {
                        description.direct = args[2] & O_DIRECT != 0;
                    }
                }
                _ => {}
            },
            Call::Unshare if args[0] & super::call::CLONE_FILES != 0 => {
                self.tables.unshare(thread)?
            }
            Call::Seek => {
                if let Some((_, description)) = self.tables.get(thread, fd) {
                    description.position = u64::try_from(value).ok();
                }
            }
            Call::Map if args[3] & MAP_ANONYMOUS != 0 => {
                self.spaces.unmap(thread, value as u64, args[1])
            }
            Call::Map => {
                let (open, _) = self.description(thread, args[4] as i32)?;
                self.spaces
                    .map(thread, value as u64, args[1], open, args[5])?;
            }
            Call::Remap => {
                // With length 0, mremap creates a second mapping.
                let keep = args[3] & MREMAP_DONTUNMAP != 0 || args[1] == 0;
                self.spaces
                    .remap(thread, (args[0], args[1]), (value as u64, args[2]), keep)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn opened(&mut self, thread: u32, fd: i32, flags: u64) -> Result<(), Fault> {
        let what = Description {
            name: None,
            position: Some(0),
            direct: flags & O_DIRECT != 0,
        };
        self.tables.open(thread, fd, what, flags & O_CLOEXEC != 0)?;
        Ok(())
    }
}
