//! Traces: recorded reads of programs.
//!
//! A trace file of any format is converted to a stream of [`Item`]s, which are records, and descriptions of files when they first appear.
//! An importer converts one format to items, and an exporter converts items to one format. Importers and exporters hold only a few items at
//! a time, so a trace may be larger than memory.
//!
//! ```text
//!   input (unpacked)        ──► catalog::detect ─► importer ──items──► check ──► exporter, info, replay
//!                               by content          one file a format   limits, order
//! ```
//!
//! Units are never guessed: the user must give a missing unit, or the unit stays unknown. File contents are not stored, and no record is
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

/// The operation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A call, or a request to a device, read bytes.
    Read,
    /// Bytes were written. Kept so that conversion does not lose them; a replay skips them.
    Write,
    /// A page of a mapping was accessed.
    Fault,
    /// A program announced how it would read the file.
    Hint(Advice),
}

/// Flags of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// The record is readahead, not a read for which a program waits (`A` in the RWBS field of a block trace).
    pub const AHEAD: Flags = Flags(1);
    /// The operation bypasses the page cache (`O_DIRECT`).
    pub const DIRECT: Flags = Flags(2);
    /// The page fault was in a mapping that contains code.
    pub const EXECUTABLE: Flags = Flags(4);
    /// A file system read its metadata (inodes, folders) from its block device. The file of such a record is the block device.
    /// This flag is always set together with `AHEAD`, because no program requested these bytes: so tools that do not know this flag skip
    /// such records.
    pub const METADATA: Flags = Flags(8);

    /// Returns whether all flags in `other` are set.
    #[must_use]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags together with those of `other`.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A dependency of a record: an earlier record for which it waits. Only some formats have dependencies (such as rbd-replay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// The number of the earlier record, counted from 0 over all records of the trace.
    pub record: u64,
    /// True if the record waits for the end of the earlier record, false if for its start.
    pub end: bool,
    /// Delay after that time, in nanoseconds.
    pub delay_ns: u64,
}

impl After {
    /// A record waits for the end of `record` if `end`, otherwise for its start, and for `delay_ns` more.
    #[must_use]
    pub fn new(record: u64, end: bool, delay_ns: u64) -> After {
        After {
            record,
            end,
            delay_ns,
        }
    }
}

/// One operation of a program, such as a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The operation.
    pub op: Op,
    /// The file: the number of its [`Item::File`], counted from 0.
    pub file: u32,
    /// The open description: an arbitrary number, equal for the same description. The number of the file if a format
    /// does not identify descriptions ([`Lacks::opens`]).
    pub open: u32,
    /// The thread: an arbitrary number. 0 if a format does not identify threads ([`Lacks::threads`]).
    pub thread: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes requested.
    pub len: u64,
    /// Bytes returned, if known; may differ from the requested length.
    pub returned: Option<u64>,
    /// Start time, in nanoseconds since the start of the trace.
    pub start_ns: Option<u64>,
    /// End time. Present only together with a start time, and not before it.
    pub end_ns: Option<u64>,
    /// Flags.
    pub flags: Flags,
    /// Records that this one waits for. Empty in nearly all traces.
    pub after: Vec<After>,
}

impl Record {
    /// Creates a record for a read of `len` bytes at `offset` of `file`; all other fields are unknown.
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

    /// The same record of another operation.
    #[must_use]
    pub fn op(self, op: Op) -> Record {
        Record { op, ..self }
    }

    /// The same record with these flags.
    #[must_use]
    pub fn flags(self, flags: Flags) -> Record {
        Record { flags, ..self }
    }

    /// The same record with this start time.
    #[must_use]
    pub fn at(self, start_ns: u64) -> Record {
        Record {
            start_ns: Some(start_ns),
            ..self
        }
    }

    /// The same record with these times.
    #[must_use]
    pub fn between(self, start_ns: u64, end_ns: u64) -> Record {
        Record {
            end_ns: Some(end_ns),
            ..self.at(start_ns)
        }
    }
}

/// A file, image, volume or device that records refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// Name in the trace. Untrusted: it may contain anything but a zero byte.
    pub name: String,
    /// Size in bytes, if the trace gives it.
    pub size: Option<u64>,
}

impl FileInfo {
    /// A file of this name, and of this size if the trace gives it.
    pub fn new(name: impl Into<String>, size: Option<u64>) -> FileInfo {
        let name = name.into();
        FileInfo { name, size }
    }
}

/// An element of a trace: a file or a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next file; the first file has number 0. It precedes all records that refer to it.
    File(FileInfo),
    /// The next record.
    Record(Record),
}

/// A stream of items. The stream ends after the first error.
pub type Items = Box<dyn Iterator<Item = Result<Item, TraceError>> + Send>;

/// The kinds of information that a trace lacks about its records. In JSON, these kinds are a list of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct Lacks {
    /// Start times: without them a trace can only be replayed as fast as possible.
    pub starts: bool,
    /// End times: without them think times cannot be computed.
    pub ends: bool,
    /// The open description of a record.
    pub opens: bool,
    /// The thread of a record.
    pub threads: bool,
    /// Whether a record is a read or a write.
    pub ops: bool,
}

type NamedLack = (&'static str, fn(&mut Lacks) -> &mut bool);

impl Lacks {
    /// Returns the value for a trace that has only offsets and lengths.
    pub const ALL: Lacks = Lacks {
        starts: true,
        ends: true,
        opens: true,
        threads: true,
        ops: true,
    };
    /// Requests to a device: the open description and the thread are unknown.
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
            let unknown = || format!("unknown name '{name}' in the list of what the trace lacks");
            let (_, field) = named.ok_or_else(unknown)?;
            *field(&mut lacks) = true;
        }
        Ok(lacks)
    }
}

/// The level of the system at which the trace was taken: above or below a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Unknown.
    #[default]
    Unknown,
    /// Calls of a program: every read is included.
    Program,
    /// Requests to a device or volume, below a cache: cache hits are missing, and the readahead of the layers above is
    /// included. Good for device models, but biased for evaluating readahead.
    BelowCache,
}

/// Properties of a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the format that the trace was first imported from.
    #[serde(rename = "origin")]
    pub format: String,
    /// Unit of times in that format ("us", "100 ns since 1601", "none").
    pub time_unit: String,
    /// Unit of offsets in that format ("bytes", "512 B sectors").
    pub offset_unit: String,
    /// The level of the system at which the trace was taken: above or below a cache.
    pub level: Level,
    /// Information that the trace lacks.
    pub lacks: Lacks,
    /// Notes for the user, one sentence each ("the 3 trims were left out").
    pub notes: Vec<String>,
    /// If the reads were sampled: how long the program was observed. Waits and pauses are then known in part only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_ns: Option<u64>,
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
            sampled_ns: None,
        }
    }
}

/// An opened trace.
pub struct Import {
    /// Properties of the whole trace.
    pub header: Header,
    /// Files and records.
    pub items: Items,
    /// Numbers of entries left out, by reason. Complete once the items have ended.
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

/// The number of skipped entries of a trace for each reason (for example "trims"). The importer and the report share this counter.
#[derive(Clone, Debug, Default)]
pub struct LeftOut(Arc<Mutex<Reasons>>);

#[derive(Debug, Default)]
struct Reasons {
    now: BTreeMap<&'static str, u64>,
    earlier: BTreeMap<String, u64>,
}

impl LeftOut {
    /// Counts one more entry that is skipped for `reason`, a plural ("trims", "records without a reply").
    pub fn count(&self, reason: &'static str) {
        self.count_many(reason, 1);
    }

    /// Counts `n` more entries that are skipped for `reason`.
    pub fn count_many(&self, reason: &'static str, n: u64) {
        let mut reasons = self.reasons();
        let sum = reasons.now.entry(reason).or_default();
        *sum = sum.saturating_add(n);
    }

    /// Returns the number of skipped entries for each reason, in this import so far.
    #[must_use]
    pub fn so_far(&self) -> Vec<(&'static str, u64)> {
        self.reasons()
            .now
            .iter()
            .map(|(reason, n)| (*reason, *n))
            .collect()
    }

    /// Adds `n` entries that were skipped for `reason` when this file was converted from another file. foreread's own
    /// format stores these counts.
    pub fn earlier(&self, reason: String, n: u64) {
        let mut reasons = self.reasons();
        let sum = reasons.earlier.entry(reason).or_default();
        *sum = sum.saturating_add(n);
    }

    /// Returns the number of skipped entries for each reason, in this import and in earlier imports of the same trace.
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
