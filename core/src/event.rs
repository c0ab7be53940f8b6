//! The input and output of the machine: events and actions.
//!
//! Events and actions are plain values: the driver writes them to its log, the lab makes them up, and a
//! log fed to a fresh machine must give the same actions again. Never: a byte of data, a handle, a clock.

use crate::units::{ByteRange, FetchId, FileId, GroupSlot, LeaseId, Nanos, OpenId, ReadId};

/// Something that happened outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Event {
    /// A reader opened a file of `size` bytes. The first open makes the file known.
    Open {
        open: OpenId,
        file: FileId,
        size: u64,
    },
    /// The reader was closed. Its file's pages stay until they are evicted or forgotten; readahead in flight is cancelled with the last reader.
    Close { open: OpenId },
    /// This file will not be opened again: drop all its pages. A listed one is not known any more.
    Forget { file: FileId },
    /// The source has this file of `size` bytes, which need not be open. In its listing the file comes after
    /// `after`, if that is known. `planned`: the caller has announced that it will read the file in this order. A file that is
    /// known keeps its size.
    List {
        file: FileId,
        size: u64,
        after: Option<FileId>,
        planned: bool,
    },
    /// A demand read of these bytes. `random`: the caller states that this read does not predict the next one.
    Read {
        read: ReadId,
        open: OpenId,
        range: ByteRange,
        random: bool,
    },
    /// A reader has taken these bytes without asking: all of them lay in pages that [`crate::machine::Machine::settled`] gave.
    /// It may be reported late, and has no answer.
    Hit {
        read: ReadId,
        open: OpenId,
        range: ByteRange,
    },
    /// A mapped page was touched and is not mapped yet.
    Fault {
        read: ReadId,
        open: OpenId,
        at: u64,
        map: Mapping,
    },
    /// A mapped page was touched: no fault, so no question. It counts as a use of the page, and makes it the last to leave.
    /// `code`: the mapping is one of code.
    Accessed { open: OpenId, at: u64, code: bool },
    /// A mapping is gone in which these pages were mapped: bit `n` of `pages` is page `64 * number + n` of the file.
    Unmapped {
        file: FileId,
        number: u64,
        pages: u64,
    },
    /// A hint. An empty range reaches to the end of the file.
    Advise {
        open: OpenId,
        advice: Advice,
        range: ByteRange,
    },
    /// The caller will read these bytes: readahead that needs no policy, within the limits of any other. An empty range
    /// is nothing.
    Prefetch { open: OpenId, range: ByteRange },
    /// These bytes changed or must be forgotten, within the same version.
    Invalidate { file: FileId, range: ByteRange },
    /// The source is a new version of `size` bytes: reads in progress fail, every page goes.
    Changed { file: FileId, size: u64 },
    /// The source grew by appending; its earlier bytes are unchanged.
    Grown { file: FileId, size: u64 },
    /// The first `bytes` of the fetch have arrived (counted from its start, not from the last event).
    Progress { fetch: FetchId, bytes: u64 },
    /// A request that is no fetch, such as the one that opened a file, was answered after so long: the latency until a fetch has shown it.
    Answered { ns: u64 },
    /// The bytes of this fetch were read earlier and are only copied: its times are not those of the source.
    AtHand { fetch: FetchId },
    /// The fetch ended after `bytes`. If it is short, the rest counts as failed.
    Done { fetch: FetchId, bytes: u64 },
    /// The fetch failed; what [`Event::Progress`] reported before stays.
    Failed { fetch: FetchId, error: Error },
    /// The caller no longer waits for this read.
    Abandon { read: ReadId },
    /// The bytes of a served piece have been copied out.
    Release { lease: LeaseId },
    /// The cache may hold this many pages from now on.
    Pressure { pages: u64 },
    /// A time asked for with [`Action::WakeAt`] has come.
    Timer,
}

/// Something to do outside, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Action {
    /// Read these bytes from the source and answer with `Done` or `Failed`. The range is clipped to the file.
    Submit {
        fetch: FetchId,
        file: FileId,
        range: ByteRange,
        class: Class,
    },
    /// The result of this fetch is probably not needed any more. It must still be answered: by `Failed` if it was cancelled, or
    /// by its result.
    Cancel { fetch: FetchId },
    /// Hand these bytes to the reader; they stay put until `Event::Release`. More follows unless `last`.
    Serve {
        read: ReadId,
        lease: LeaseId,
        file: FileId,
        range: ByteRange,
        last: bool,
    },
    /// Tell the reader that it failed. Nothing more follows for this read.
    Fail { read: ReadId, error: Error },
    /// Forget the bytes of these pages: bit `n` of `pages` is page `64 * number + n` of the file.
    Drop {
        slot: GroupSlot,
        file: FileId,
        number: u64,
        pages: u64,
    },
    /// Send `Event::Timer` at this time.
    WakeAt { at: Nanos },
}

/// Whether a demand read waits for a fetch. Demand is submitted first and never waits for readahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// At least one page of it is waited for.
    Demand,
    /// No demand read needs it yet.
    Ahead,
}

/// How a fetch or a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Error {
    /// The source answered with this error number.
    Io(i32),
    /// The source ended before the bytes did, though the file should be longer.
    Short,
    /// The source is not the version that was opened.
    Changed,
    /// A limit of the machine is reached; its documentation gives the number.
    Limit,
}

/// A hint of a reader, in the meaning of `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No special treatment.
    Normal,
    /// Reads come in order.
    Sequential,
    /// Reads come in no order.
    Random,
    /// These bytes will be needed soon.
    WillNeed,
    /// These bytes are not needed any more.
    DontNeed,
}

/// The mapping that a fault happened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The bytes of the file that are mapped.
    pub range: ByteRange,
    /// Mapped for execution.
    pub executable: bool,
    /// The mapping's advice: normal, sequential or random.
    pub advice: Advice,
}
