//! Traces: recorded reads of programs.
//!
//! Whatever the format of a file, it becomes a stream of [`Item`]s: files as they first appear, and records. An importer
//! turns one format into items, an exporter turns items into one format, and neither ever holds more than a few of
//! them: a trace may be larger than memory.
//!
//! ```text
//!   input (unpacked)        ──► catalog::detect ─► importer ──items──► check ──► exporter, info, replay
//!                               by content          one file a format   limits, order
//! ```
//!
//! Units are never guessed (a missing unit must be given, or stays unknown), data is not stored, and no record is
//! changed without a note in the [`Header`].

#![warn(missing_docs)]

pub mod catalog;
pub mod check;
pub mod error;
pub mod follow;
pub mod format;
pub mod formats;
pub mod fuzz;
pub mod info;
pub mod input;
pub mod open;
pub mod order;
pub mod own;
#[cfg(test)]
mod test_bytes;

pub use error::TraceError;
use foreread_core::event::Advice;
pub use open::open;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Bytes were asked for by a call, or by a request to a device.
    Read,
    /// Bytes were written. Kept so that a trace survives conversion; a replay passes over it.
    Write,
    /// A page of a mapping was touched.
    Fault,
    /// It was said how the file would be read.
    Hint(Advice),
}

/// Bits about a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// Readahead, not a demand: RWBS `A` of a block trace.
    pub const AHEAD: Flags = Flags(1);
    /// Past the page cache (`O_DIRECT`).
    pub const DIRECT: Flags = Flags(2);
    /// The mapping that was touched is one of code.
    pub const EXECUTABLE: Flags = Flags(4);
    /// A file system has read its own data (inodes, folders) from its block device, which is the file. Always with `AHEAD`: no program
    /// has asked for these bytes, and a reader that does not know this bit passes over them.
    pub const METADATA: Flags = Flags(8);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Something earlier that a record waits for: only traces that say so have it (rbd-replay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// The number of the earlier record, counted from 0 over all records of the trace.
    pub record: u64,
    /// It waits for the end of that one; otherwise for its start.
    pub end: bool,
    /// How long after that it starts, in nanoseconds.
    pub delay_ns: u64,
}

/// One thing that a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What.
    pub op: Op,
    /// To which file: the number of its [`Item::File`], counted from 0.
    pub file: u32,
    /// Through which open description: any number, the same for the same one. Where a format does not tell
    /// ([`Lacks::opens`]), the number of the file.
    pub open: u32,
    /// By which thread: any number. 0 where a format does not tell ([`Lacks::threads`]).
    pub thread: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Bytes that came, where it is known and may differ.
    pub returned: Option<u64>,
    /// When it began, in nanoseconds since the trace did.
    pub start_ns: Option<u64>,
    /// When it ended. Never without a start, never before it.
    pub end_ns: Option<u64>,
    /// Bits about it.
    pub flags: Flags,
    /// What it waits for. Empty in nearly all traces.
    pub after: Vec<After>,
}

impl Record {
    /// A read of `len` bytes from `offset` of `file`, of which nothing else is known.
    #[must_use]
    pub fn read(file: u32, offset: u64, len: u64) -> Record {
        Record {
            op: Op::Read,
            file,
            open: file,
            thread: 0,
            offset,
            len,
            returned: None,
            start_ns: None,
            end_ns: None,
            flags: Flags::default(),
            after: Vec::new(),
        }
    }
}

/// A file, image, volume or device that records go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// As the trace names it. Not to be trusted: it may hold anything but a zero byte.
    pub name: String,
    /// In bytes, where the trace says.
    pub size: Option<u64>,
}

/// One step of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next file: the first one is number 0. It comes before the first record that refers to it.
    File(FileInfo),
    /// The next record.
    Record(Record),
}

/// A stream of them. It ends after the first error.
pub type Items = Box<dyn Iterator<Item = Result<Item, TraceError>> + Send>;

/// What a format does not tell of its records. In JSON a list of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct Lacks {
    /// When a record began: it can only be replayed as fast as possible.
    pub starts: bool,
    /// When it ended: no think time can be computed.
    pub ends: bool,
    /// Which open description it went through.
    pub opens: bool,
    /// Which thread it was.
    pub threads: bool,
    /// Whether it was a read or a write.
    pub ops: bool,
}

type NamedLack = (&'static str, fn(&mut Lacks) -> &mut bool);

impl Lacks {
    /// Nothing but offsets and lengths is known.
    pub const ALL: Lacks = Lacks {
        starts: true,
        ends: true,
        opens: true,
        threads: true,
        ops: true,
    };
    /// A request to a device is known without its open description and its thread.
    pub(crate) const REQUEST: Lacks = Lacks {
        starts: false,
        ends: false,
        opens: true,
        threads: true,
        ops: false,
    };

    const NAMED: [NamedLack; 5] = [
        ("starts", |lacks| &mut lacks.starts),
        ("ends", |lacks| &mut lacks.ends),
        ("opens", |lacks| &mut lacks.opens),
        ("threads", |lacks| &mut lacks.threads),
        ("ops", |lacks| &mut lacks.ops),
    ];
}

impl From<Lacks> for Vec<String> {
    fn from(mut lacks: Lacks) -> Vec<String> {
        let named = Lacks::NAMED.into_iter();
        let lacking = named.filter(|(_, field)| *field(&mut lacks));
        lacking.map(|(name, _)| name.to_string()).collect()
    }
}

impl TryFrom<Vec<String>> for Lacks {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Lacks, String> {
        let mut lacks = Lacks::default();
        for name in &names {
            let named = Lacks::NAMED.into_iter().find(|(known, _)| known == name);
            let unknown = || format!("'{name}' is nothing that a trace lacks");
            let (_, field) = named.ok_or_else(unknown)?;
            *field(&mut lacks) = true;
        }
        Ok(lacks)
    }
}

/// Where a trace was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The format does not tell.
    #[default]
    Unknown,
    /// Calls of a program: every read is there.
    Program,
    /// Requests to a device or volume, below a cache: hits are missing, and the readahead of the layers above
    /// is already in it. Good for device models, biased for judging readahead.
    BelowCache,
}

/// What holds for the whole of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the format that it was first read from.
    #[serde(rename = "origin")]
    pub format: String,
    /// The unit of its times there ("us", "100 ns since 1601", "none").
    pub time_unit: String,
    /// The unit of its offsets there ("bytes", "512 B sectors").
    pub offset_unit: String,
    /// Where it was taken.
    pub level: Level,
    /// What it lacks.
    pub lacks: Lacks,
    /// What a reader must know, a sentence each ("the 3 trims were left out").
    pub notes: Vec<String>,
}

impl Header {
    pub(crate) fn of(
        format: &str,
        [time_unit, offset_unit]: [&str; 2],
        lacks: Lacks,
        level: Level,
        notes: &[&str],
    ) -> Header {
        Header {
            format: format.to_string(),
            time_unit: time_unit.to_string(),
            offset_unit: offset_unit.to_string(),
            lacks,
            level,
            notes: notes.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A trace that is being read.
pub struct Import {
    /// What holds for all of it.
    pub header: Header,
    /// Its files and records.
    pub items: Items,
    /// What was left out, by reason. Whole when the items have ended.
    pub left_out: LeftOut,
}

impl Import {
    pub(crate) fn new(header: Header, items: Items, left_out: LeftOut) -> Import {
        Import {
            header,
            items,
            left_out,
        }
    }
}

/// How many entries of a trace were passed over, by reason ("trims"). Shared by an importer and the report.
#[derive(Clone, Debug, Default)]
pub struct LeftOut(Arc<Mutex<Reasons>>);

#[derive(Debug, Default)]
struct Reasons {
    now: BTreeMap<&'static str, u64>,
    earlier: BTreeMap<String, u64>,
}

impl LeftOut {
    /// One more entry is passed over for `reason`, a plural ("trims", "records without a reply").
    pub fn count(&self, reason: &'static str) {
        self.count_many(reason, 1);
    }

    /// `n` more.
    pub fn count_many(&self, reason: &'static str, n: u64) {
        let mut reasons = self.reasons();
        let sum = reasons.now.entry(reason).or_default();
        *sum = sum.saturating_add(n);
    }

    /// How many for each reason, so far.
    #[must_use]
    pub fn so_far(&self) -> Vec<(&'static str, u64)> {
        self.reasons()
            .now
            .iter()
            .map(|(reason, n)| (*reason, *n))
            .collect()
    }

    /// `n` entries were passed over for `reason` when this file was made of another one: our own format keeps that.
    pub fn earlier(&self, reason: String, n: u64) {
        let mut reasons = self.reasons();
        let sum = reasons.earlier.entry(reason).or_default();
        *sum = sum.saturating_add(n);
    }

    /// How many for each reason, by this reading and by earlier ones.
    #[must_use]
    pub fn in_all(&self) -> BTreeMap<String, u64> {
        let reasons = self.reasons();
        let mut all = reasons.earlier.clone();
        for (reason, n) in &reasons.now {
            let sum = all.entry((*reason).to_string()).or_default();
            *sum = sum.saturating_add(*n);
        }
        all
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
