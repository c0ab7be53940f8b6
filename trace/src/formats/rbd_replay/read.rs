//! Parses the bytes of an rbd-replay trace, one action after the other. Ceph before version 9 (2015) used another format, which foreread
//! refuses.
//!
//! ```text
//!   16 bytes of banner, then entries: u8 version, u8 oldest reader, u32 length | u8 type, action      little-endian
//!
//!   action      u32 id, u64 thread, u32 n, n times { u32 id, u64 nanoseconds }
//!   of an image   + u64 image context      an I/O + u64 offset, u64 length      an open + name, snapshot, u8 read only
//! ```
//!
//! The reader holds one entry at a time; it only parses the entries, and does not interpret them.

use crate::check::{MAX_AFTER, MAX_NAME_BYTES};
use crate::error::TraceError;
use crate::input::Input;

pub const BANNER: &[u8; 16] = b"rbd-replay-trace";
/// Maximum size of an entry in bytes. An entry with the maximum number of dependencies and two long names has only 33 kB.
pub const MAX_ENTRY_BYTES: u32 = 1 << 20;
/// Maximum number of dependencies of one action: twice the maximum of a record, because several dependencies of an action can become one
/// dependency of a record.
pub const MAX_DEPENDENCIES: usize = 2 * MAX_AFTER;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    Read,
    Write,
    Discard,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Start,
    Stop,
    /// An image is opened and gets a context id.
    Open {
        image: u64,
        /// Name of the image, and of its snapshot; the latter may be empty.
        names: [Vec<u8>; 2],
    },
    Close {
        image: u64,
    },
    Io {
        io: Io,
        /// The next action of the thread does not wait for its end.
        aio: bool,
        image: u64,
        offset: u64,
        len: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Id of the action; the id of its end is one more.
    pub id: u32,
    pub thread: u64,
    /// Dependencies: ids, and nanoseconds after them.
    pub after: Vec<(u32, u64)>,
    pub what: What,
}

/// Why bytes are not a valid action.
enum Bad {
    /// The action is longer: it has at least this many bytes.
    Short(usize),
    /// Unknown type.
    Type,
    Limit(&'static str),
}

struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Bad> {
        let end = self.at + n;
        let taken = self.bytes.get(self.at..end).ok_or(Bad::Short(end))?;
        self.at = end;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        Ok(self.take(N)?.try_into().expect("so many bytes"))
    }

    fn u32(&mut self) -> Result<u32, Bad> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Bad> {
        self.number().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<Vec<u8>, Bad> {
        let len = self.u32()? as usize;
        if len > MAX_NAME_BYTES {
            return Err(Bad::Limit("a name longer than 4096 bytes"));
        }
        self.take(len).map(<[u8]>::to_vec)
    }
}

/// Parses the action at the start of `bytes`, whose first byte is its type.
fn action(bytes: &[u8]) -> Result<Action, Bad> {
    let mut bytes = Bytes { bytes, at: 0 };
    let kind = bytes.take(1)?[0];
    if kind > 11 {
        return Err(Bad::Type);
    }
    let (id, thread) = (bytes.u32()?, bytes.u64()?);
    let n = bytes.u32()? as usize;
    if n > MAX_DEPENDENCIES {
        return Err(Bad::Limit("an action with more than 2048 dependencies"));
    }
    let after = (0..n)
        .map(|_| Ok((bytes.u32()?, bytes.u64()?)))
        .collect::<Result<Vec<_>, Bad>>()?;
    let what = match kind {
        0 => What::Start,
        1 => What::Stop,
        6 | 8 => {
            let image = bytes.u64()?;
            let names = [bytes.name()?, bytes.name()?];
            bytes.take(1)?;
            What::Open { image, names }
        }
        7 | 9 => What::Close {
            image: bytes.u64()?,
        },
        _ => {
            let io = match kind {
                2 | 4 => Io::Read,
                3 | 5 => Io::Write,
                _ => Io::Discard,
            };
            let aio = matches!(kind, 4 | 5 | 11);
            What::Io {
                io,
                aio,
                image: bytes.u64()?,
                offset: bytes.u64()?,
                len: bytes.u64()?,
            }
        }
    };
    Ok(Action {
        id,
        thread,
        after,
        what,
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Action(Action),
    /// An entry of unknown type, skipped by its length.
    Unknown,
}

pub struct Reader {
    input: Input,
    buf: Vec<u8>,
}

const DAMAGED: &str = "the file is damaged or is not an rbd-replay trace";

impl Reader {
    /// Checks the banner at the start of the file, and creates a reader for the entries after it.
    pub fn new(mut input: Input) -> Result<Reader, TraceError> {
        if !input.head()?.starts_with(BANNER) {
            let what = "no rbd-replay banner at the start of the file";
            let remedy = "prepare it with rbd-replay-prep of Ceph 9 or later";
            return Err(TraceError::whole(input.path(), what, remedy));
        }
        input.fill(&mut [0; BANNER.len()])?;
        let buf = Vec::new();
        Ok(Reader { input, buf })
    }

    pub fn error(&self, what: impl Into<String>, remedy: impl Into<String>) -> TraceError {
        self.input.record_error(self.buf.len() as u64, what, remedy)
    }

    /// Returns the next entry, or `None` after the last entry.
    pub fn entry(&mut self) -> Result<Option<Entry>, TraceError> {
        self.buf.resize(6, 0);
        if !self.input.record(&mut self.buf)? {
            return Ok(None);
        }
        let (oldest, len) = (
            self.buf[1],
            u32::from_le_bytes([self.buf[2], self.buf[3], self.buf[4], self.buf[5]]),
        );
        if oldest > 1 {
            let what = format!("an entry that only readers of version {oldest} or later can read");
            return Err(self.error(what, "convert it with the matching version of rbd-replay"));
        }
        if len > MAX_ENTRY_BYTES {
            let what = format!("an entry of {len} bytes (at most {MAX_ENTRY_BYTES})");
            return Err(self.error(what, DAMAGED));
        }
        self.buf.resize(6 + len as usize, 0);
        self.input.rest(&mut self.buf[6..])?;
        match action(&self.buf[6..]) {
            Ok(action) => Ok(Some(Entry::Action(action))),
            Err(Bad::Type) => Ok(Some(Entry::Unknown)),
            Err(Bad::Short(n)) => {
                let what = format!("an entry is shorter than its action (at least {n} bytes)");
                Err(self.error(what, DAMAGED))
            }
            Err(Bad::Limit(what)) => Err(self.error(what, DAMAGED)),
        }
    }
}
