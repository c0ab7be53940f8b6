//! The effect of each system call: it opens, closes, shares or seeks a descriptor, or becomes a record.
//!
//! A record has both the requested length and the returned length. Reads of pipes, sockets and terminals, failed reads,
//! and reads from an unknown position are skipped and counted. Files of /proc and /sys get no records, because they are
//! not stored anywhere.

use super::super::super::check::MAX_END;
use super::super::super::{FileInfo, Flags, Item, Op, Record};
use super::super::scan;
use super::text;
use super::{Strace, Whole};
use crate::error::Fault;
use crate::follow::call::MAX_CALL_BYTES;
use crate::follow::fds::Description;
use foreread_core::event::Advice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `open`, `creat`: the first argument is the path.
    Open,
    /// `openat`, `openat2`: the second argument is the path.
    OpenAt,
    Close,
    CloseRange,
    Dup,
    Fcntl,
    Clone,
    Unshare,
    Exec,
    Seek,
    LongSeek,
    Mmap,
    /// Calls that submit reads to a ring or a queue.
    Ring,
    /// `read`, `write`: at the file position.
    Plain(Op),
    /// `pread64`, `pwrite64`.
    At(Op),
    Vector(Op),
    /// `preadv`, `preadv2` and the corresponding write calls.
    VectorAt(Op),
    Sendfile,
    /// `copy_file_range`, `splice`.
    Copy,
    Advise,
    Readahead,
}

impl Call {
    pub fn of(name: &[u8]) -> Option<Call> {
        Some(match name {
            b"read" => Call::Plain(Op::Read),
            b"pread64" | b"pread" => Call::At(Op::Read),
            b"openat" | b"openat2" => Call::OpenAt,
            b"open" | b"creat" => Call::Open,
            b"close" => Call::Close,
            b"lseek" => Call::Seek,
            b"mmap" | b"mmap2" => Call::Mmap,
            b"write" => Call::Plain(Op::Write),
            b"pwrite64" | b"pwrite" => Call::At(Op::Write),
            b"readv" => Call::Vector(Op::Read),
            b"writev" => Call::Vector(Op::Write),
            b"preadv" | b"preadv2" => Call::VectorAt(Op::Read),
            b"pwritev" | b"pwritev2" => Call::VectorAt(Op::Write),
            b"dup" | b"dup2" | b"dup3" => Call::Dup,
            b"fcntl" | b"fcntl64" => Call::Fcntl,
            b"clone" | b"clone3" | b"fork" | b"vfork" => Call::Clone,
            b"execve" | b"execveat" => Call::Exec,
            b"_llseek" => Call::LongSeek,
            b"sendfile" | b"sendfile64" => Call::Sendfile,
            b"copy_file_range" | b"splice" => Call::Copy,
            b"fadvise64" | b"fadvise64_64" | b"posix_fadvise" => Call::Advise,
            b"readahead" => Call::Readahead,
            b"close_range" => Call::CloseRange,
            b"unshare" => Call::Unshare,
            b"io_uring_enter" | b"io_submit" => Call::Ring,
            _ => return None,
        })
    }

    /// Returns whether the call reads, writes or gives a hint, and so can become a record.
    pub fn is_data(self) -> bool {
        use Call::{Advise, At, Copy, Plain, Readahead, Sendfile, Vector, VectorAt};
        matches!(
            self,
            Plain(_) | At(_) | Vector(_) | VectorAt(_) | Sendfile | Copy | Advise | Readahead
        )
    }
}

/// Returns whether a new thread shares the descriptors of its parent.
pub fn shares(arguments: &[u8]) -> bool {
    const FLAG: &[u8] = b"CLONE_FILES";
    arguments.windows(FLAG.len()).any(|part| part == FLAG)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NameKind {
    File,
    Pseudo,
    Stream,
}

fn kind(name: &[u8], decoration: bool) -> NameKind {
    let device = name.strip_prefix(b"/dev/").unwrap_or_default();
    const STREAMS: [&[u8]; 9] = [
        b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"pts/", b"console", b"ptmx",
    ];
    match name {
        // `-yy` shows `<char ` for any character device.
        _ if name.windows(6).any(|part| part == b"<char ") => NameKind::Stream,
        _ if STREAMS.iter().any(|stream| device.starts_with(stream)) => NameKind::Stream,
        _ if name.starts_with(b"/proc/") || name.starts_with(b"/sys/") => NameKind::Pseudo,
        _ if !decoration => NameKind::File,
        [b'/', ..] if !name.starts_with(b"/memfd:") => NameKind::File,
        // pipe:[1], socket:[1], TCP:[...], anon_inode:[eventfd], and shared memory without a file.
        _ => NameKind::Stream,
    }
}

const STREAMS: &str = "calls on pipes, sockets, terminals and the like";
const PSEUDO: &str = "calls on files of /proc and /sys";
const UNKNOWN: &str =
    "reads and writes from an unknown position (opened before the trace, or not in it)";
const FAILED: &str = "calls that failed";
const NO_HINT: &str = "hints that do not affect readahead";

/// A byte range: its offset, the requested length, and whether the position moves.
struct Extent {
    offset: Option<u64>,
    len: u64,
    moves: bool,
}

impl Strace {
    pub(super) fn done(&mut self, call: &Whole<'_>) -> Result<(), Fault> {
        let failed = call.outcome.value.is_none_or(|value| value < 0);
        let record = if call.call.is_data() {
            if failed {
                self.left_out.count(FAILED);
                None
            } else {
                self.data(call)?
            }
        } else {
            if !failed {
                self.state(call)?;
            }
            None
        };
        match (record, call.ticket) {
            (Some(record), Some(ticket)) => self.held.done(ticket, |place| *place = Some(record)),
            (Some(record), None) => {
                let ticket = self.held.open(Some(record));
                self.held.done(ticket, |_| ());
            }
            (None, Some(ticket)) => drop(self.held.cancel(ticket)),
            (None, None) => {}
        }
        Ok(())
    }

    /// Handles calls that open, close, share or seek descriptors.
    fn state(&mut self, call: &Whole<'_>) -> Result<(), Fault> {
        let (thread, arguments, value) = (
            call.thread,
            &call.arguments,
            call.outcome.value.unwrap_or(0),
        );
        let descriptor = |number| text::descriptor(arguments.get(number)).map(|(fd, _)| fd);
        let returned = i32::try_from(value).unwrap_or(-1);
        match call.call {
            Call::Open => self.opened(call, 0)?,
            Call::OpenAt => self.opened(call, 1)?,
            Call::Close => descriptor(0)
                .into_iter()
                .for_each(|fd| self.tables.close(thread, fd)),
            Call::CloseRange => {
                let limit = |number| {
                    i32::try_from(arguments.number(number).unwrap_or(u64::MAX)).unwrap_or(i32::MAX)
                };
                if !arguments.mention(b"CLOSE_RANGE_CLOEXEC") {
                    self.tables.close_range(thread, limit(0)..=limit(1));
                }
            }
            Call::Dup => self.duplicated(call, returned, arguments.mention(b"O_CLOEXEC"))?,
            Call::Fcntl => self.fcntl(call, returned)?,
            Call::Clone => {
                let child = u32::try_from(value).unwrap_or(0);
                let share = (0..text::MAX_ARGUMENTS).any(|number| shares(arguments.get(number)));
                // If the child was seen before this call returned, it already has its parent. Without -f it is never seen.
                if thread != 0 && !self.tables.knows(child) {
                    self.tables.fork(thread, child, share)?;
                }
            }
            Call::Unshare if arguments.mention(b"CLONE_FILES") => self.tables.unshare(thread)?,
            Call::Exec => self.tables.exec(thread)?,
            Call::Seek => self.seek(call, u64::try_from(value).ok())?,
            Call::LongSeek => self.seek(call, text::bracketed(arguments.get(2)))?,
            Call::Mmap if descriptor(4).is_some() => {
                self.left_out
                    .count("mappings of files, whose page faults strace does not see");
            }
            Call::Ring => self
                .left_out
                .count("calls of io_uring and aio, whose reads strace does not see"),
            _ => {}
        }
        Ok(())
    }

    fn opened(&mut self, call: &Whole<'_>, path: usize) -> Result<(), Fault> {
        let Some((fd, shown)) = call.outcome.descriptor() else {
            return Ok(());
        };
        let quoted = call
            .arguments
            .get(path)
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""));
        let name = self.name_of(shown.or(quoted), shown.is_some())?;
        let flags =
            |word| (path + 1..=path + 2).any(|number| has(call.arguments.get(number), word));
        let what = Description {
            name,
            position: Some(0),
            direct: flags(b"O_DIRECT"),
        };
        self.tables
            .open(call.thread, fd, what, flags(b"O_CLOEXEC"))?;
        Ok(())
    }

    /// The number of a name as strace shows it: after a descriptor (`-y`), or as an argument of a call.
    fn name_of(&mut self, shown: Option<&[u8]>, decoration: bool) -> Result<Option<u32>, Fault> {
        let Some(shown) = shown else { return Ok(None) };
        let shown = shown.strip_suffix(b" (deleted)").unwrap_or(shown);
        if !shown.contains(&b'\\') {
            return self.number_of(shown, decoration).map(Some);
        }
        let mut name = Vec::with_capacity(shown.len());
        text::unescape(shown, &mut name);
        self.number_of(&name, decoration).map(Some)
    }

    fn number_of(&mut self, name: &[u8], decoration: bool) -> Result<u32, Fault> {
        if let Some(number) = self.names.get(name) {
            return Ok(number);
        }
        let number = self.names.add(name).ok_or((
            "more than 64 MiB of file names in total",
            "cut the trace into parts",
        ))?;
        self.files.push(match kind(name, decoration) {
            NameKind::File => Name::Waiting(String::from_utf8_lossy(name).into()),
            NameKind::Pseudo => Name::Not(PSEUDO),
            NameKind::Stream => Name::Not(STREAMS),
        });
        Ok(number)
    }

    /// The open description of a descriptor argument. If it was opened before the trace, it is created here, without a position.
    fn described(&mut self, thread: u32, argument: &[u8]) -> Result<Option<(i32, u32)>, Fault> {
        let Some((fd, shown)) = text::descriptor(argument) else {
            return Ok(None);
        };
        let name = self.name_of(shown, true)?;
        if let Some((open, description)) = self.tables.get(thread, fd)
            && (name.is_none() || description.name.is_none() || description.name == name)
        {
            // perf shows the name of a descriptor only after its first use.
            description.name = description.name.or(name);
            return Ok(Some((fd, open)));
        }
        let unknown = Description {
            name,
            position: None,
            direct: false,
        };
        Ok(Some((fd, self.tables.open(thread, fd, unknown, false)?)))
    }

    fn duplicated(&mut self, call: &Whole<'_>, to: i32, cloexec: bool) -> Result<(), Fault> {
        match self.described(call.thread, call.arguments.get(0))? {
            Some((from, _)) => self.tables.dup(call.thread, from, to, cloexec),
            None => Ok(()),
        }
    }

    fn fcntl(&mut self, call: &Whole<'_>, returned: i32) -> Result<(), Fault> {
        let (command, value) = (call.arguments.get(1), call.arguments.get(2));
        match command {
            b"F_DUPFD" => self.duplicated(call, returned, false)?,
            b"F_DUPFD_CLOEXEC" => self.duplicated(call, returned, true)?,
            b"F_SETFD" | b"F_SETFL" => {
                let Some((fd, _)) = self.described(call.thread, call.arguments.get(0))? else {
                    return Ok(());
                };
                if command == b"F_SETFD" {
                    self.tables
                        .set_close_on_exec(call.thread, fd, has(value, b"FD_CLOEXEC"));
                } else if let Some((_, description)) = self.tables.get(call.thread, fd) {
                    description.direct = has(value, b"O_DIRECT");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn seek(&mut self, call: &Whole<'_>, to: Option<u64>) -> Result<(), Fault> {
        if let Some((fd, _)) = self.described(call.thread, call.arguments.get(0))?
            && let Some((_, description)) = self.tables.get(call.thread, fd)
        {
            description.position = to;
        }
        Ok(())
    }

    /// Handles calls that read, write or give hints.
    fn data(&mut self, call: &Whole<'_>) -> Result<Option<Record>, Fault> {
        let came = u64::try_from(call.outcome.value.unwrap_or(0)).unwrap_or(0);
        let arguments = &call.arguments;
        let (op, argument) = match call.call {
            Call::Plain(op) | Call::At(op) | Call::Vector(op) | Call::VectorAt(op) => (op, 0),
            Call::Sendfile => (Op::Read, 1),
            Call::Advise => match advice(arguments.get(3)) {
                Some(advice) => (Op::Hint(advice), 0),
                None => return Ok(self.pass(NO_HINT)),
            },
            Call::Readahead => (Op::Hint(Advice::WillNeed), 0),
            _ => (Op::Read, 0),
        };
        let (into, into_at) = if call.call == Call::Sendfile {
            (Some(0), b"NULL".as_slice())
        } else {
            (None, &b""[..])
        };
        let (into, into_at) = if call.call == Call::Copy {
            (Some(2), arguments.get(3))
        } else {
            (into, into_at)
        };
        if let Some(into) = into
            && into_at == b"NULL"
        {
            self.moved(call.thread, arguments.get(into), came)?;
        }
        let Some((fd, open)) = self.described(call.thread, arguments.get(argument))? else {
            return Err(("a call whose argument is not a descriptor", super::DAMAGED));
        };
        let Some(extent) = extent(call, came) else {
            let hint = matches!(op, Op::Hint(_));
            let fault = ("a call without its length or its offset", super::DAMAGED);
            return if hint {
                Ok(self.pass(NO_HINT))
            } else {
                Err(fault)
            };
        };
        let Some((_, description)) = self.tables.get(call.thread, fd) else {
            return Ok(None);
        };
        let (direct, name) = (description.direct, description.name);
        let offset = extent.offset.or(description.position);
        if extent.moves {
            description.position = description.position.and_then(|at| at.checked_add(came));
        }
        let name = match name {
            Some(name) => name,
            // Without -y, and opened before the trace: only the number is known.
            None => self.number_of(format!("fd {fd} of {}", call.thread).as_bytes(), false)?,
        };
        match (&self.files[name as usize], offset) {
            (Name::Not(why), _) => return Ok(self.pass(why)),
            (_, None) => return Ok(self.pass(UNKNOWN)),
            _ => {}
        }
        let (file, offset) = (self.file(name), offset.unwrap_or(0));
        Ok(Some(Record {
            op,
            open,
            thread: call.thread,
            returned: if matches!(op, Op::Hint(_)) {
                None
            } else {
                Some(came)
            },
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            flags: if direct {
                Flags::DIRECT
            } else {
                Flags::default()
            },
            ..Record::read(file, offset, extent.len)
        }))
    }

    fn pass(&self, what: &'static str) -> Option<Record> {
        self.left_out.count(what);
        None
    }

    /// A copy also moves the position of its destination.
    fn moved(&mut self, thread: u32, argument: &[u8], came: u64) -> Result<(), Fault> {
        if let Some((fd, _)) = self.described(thread, argument)?
            && let Some((_, description)) = self.tables.get(thread, fd)
        {
            description.position = description.position.and_then(|at| at.checked_add(came));
        }
        Ok(())
    }

    /// The number of a file, whose item is emitted with its first record.
    fn file(&mut self, name: u32) -> u32 {
        let slot = &mut self.files[name as usize];
        if let Name::Waiting(text) = slot {
            self.out
                .push_back(Item::File(FileInfo::new(std::mem::take(text), None)));
            *slot = Name::File(self.next_file);
            self.next_file += 1;
        }
        match slot {
            Name::File(number) => *number,
            _ => 0,
        }
    }
}

pub(super) enum Name {
    /// Not a file; the reason for skipping its calls.
    Not(&'static str),
    /// A file without records so far.
    Waiting(Box<str>),
    File(u32),
}

fn has(text: &[u8], flag: &[u8]) -> bool {
    text.split(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))
        .any(|word| word == flag)
}

fn advice(text: &[u8]) -> Option<Advice> {
    Some(match text {
        b"POSIX_FADV_NORMAL" => Advice::Normal,
        b"POSIX_FADV_SEQUENTIAL" => Advice::Sequential,
        b"POSIX_FADV_RANDOM" => Advice::Random,
        b"POSIX_FADV_WILLNEED" => Advice::WillNeed,
        b"POSIX_FADV_DONTNEED" => Advice::DontNeed,
        _ => return None,
    })
}

fn extent(call: &Whole<'_>, came: u64) -> Option<Extent> {
    let arguments = &call.arguments;
    // A call without an offset continues at the file position.
    let placed = |offset: Option<u64>, len: u64| {
        Some(Extent {
            offset,
            len: len.min(MAX_CALL_BYTES),
            moves: offset.is_none(),
        })
    };
    let given = |number: usize| match arguments.get(number) {
        b"NULL" | b"-1" => Some(None),
        text => scan::number(text)
            .or_else(|| text::bracketed(text))
            .map(Some),
    };
    let vector = || text::vector_bytes(arguments.get(1)).unwrap_or(came);
    match call.call {
        Call::Plain(_) => placed(None, arguments.number(2)?),
        Call::At(_) => placed(Some(arguments.number(3)?), arguments.number(2)?),
        Call::Vector(_) => placed(None, vector()),
        Call::VectorAt(_) => placed(given(3)?, vector()),
        Call::Sendfile => placed(given(2)?, arguments.number(3)?),
        Call::Copy => placed(given(1)?, arguments.number(4)?),
        _ => {
            let (offset, len) = (arguments.number(1)?, arguments.number(2)?);
            Some(Extent {
                offset: Some(offset),
                len: len.min(MAX_END.saturating_sub(offset)),
                moves: false,
            })
        }
    }
}
