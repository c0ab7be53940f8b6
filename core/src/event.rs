//! The input and output of the state machine: events and actions.
//!
//! Events and actions are plain values. The engine's driver writes events and actions to its event log; the simulator generates events.
//! If a new state machine gets the events of a log, it must return exactly the actions that the log contains. Events and actions contain
//! no file data, no handle and no clock.

use crate::units::{ByteRange, FetchId, FileId, GroupSlot, LeaseId, Nanos, OpenId, ReadId};

/// An input of the state machine: something that happened outside, such as a read or the end of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Event {
    /// A reader opened a file of `size` bytes. The first open makes the file known.
    Open {
        open: OpenId,
        file: FileId,
        size: u64,
    },
    /// The reader was closed. Its file's pages stay until they are evicted or forgotten. If this was the last reader of
    /// the file, readahead in flight is cancelled.
    Close { open: OpenId },
    /// The file will not be opened again: drop all its pages. If the file is listed, it becomes unknown.
    Forget { file: FileId },
    /// The source has this file of `size` bytes; the file need not be open. In the listing it comes after `after`, if
    /// that is known. `planned`: the caller has announced that it will read the files in this order. A file that is
    /// already known keeps its size.
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
    /// A reader has taken these bytes without asking the machine, because all of them are in pages that
    /// [`crate::machine::Machine::settled`] returned. The event may be reported late, and has no answer.
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
    /// A mapped page was touched. There was no fault, so the policy is not asked. The touch counts as a use of the
    /// page, and makes it the last to be evicted. `code`: it is a mapping of code.
    Accessed { open: OpenId, at: u64, code: bool },
    /// A mapping was removed. These pages were mapped in it: bit `n` of `pages` is page `64 * number + n` of the file.
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
    /// The caller will read these bytes. This readahead needs no policy, and has the same limits as any other. An empty
    /// range does nothing.
    Prefetch { open: OpenId, range: ByteRange },
    /// These bytes changed or must be forgotten. The version of the file is still the same.
    Invalidate { file: FileId, range: ByteRange },
    /// The source is a new version of `size` bytes: reads in progress fail, and all pages are dropped.
    Changed { file: FileId, size: u64 },
    /// The source grew by appending; its earlier bytes are unchanged.
    Grown { file: FileId, size: u64 },
    /// The first `bytes` of the fetch have arrived (counted from its start, not from the last event).
    Progress { fetch: FetchId, bytes: u64 },
    /// A request that is not a fetch, such as the request that opened a file, was answered after this time. It serves
    /// as the latency until the first fetch shows the latency.
    Answered { ns: u64 },
    /// The bytes of this fetch were read earlier and are only copied, so its times say nothing about the source.
    AtHand { fetch: FetchId },
    /// The fetch ended after `bytes`. If it is short, the rest counts as failed.
    Done { fetch: FetchId, bytes: u64 },
    /// The fetch failed. Bytes reported before by [`Event::Progress`] stay.
    Failed { fetch: FetchId, error: Error },
    /// The caller no longer waits for this read.
    Abandon { read: ReadId },
    /// The bytes of a served piece have been copied.
    Release { lease: LeaseId },
    /// From now on the cache may hold at most this many pages.
    Pressure { pages: u64 },
    /// The time of an [`Action::WakeAt`] has come.
    Timer,
}

impl Event {
    /// Creates the event that `open` opened a file of `size` bytes.
    #[must_use]
    pub fn open(open: OpenId, file: FileId, size: u64) -> Event {
        Event::Open { open, file, size }
    }

    /// Creates the event of a demand read that may predict the next one.
    #[must_use]
    pub fn read(read: ReadId, open: OpenId, range: ByteRange) -> Event {
        Event::Read {
            read,
            open,
            range,
            random: false,
        }
    }
}

/// An output of the state machine: something that the caller must do, such as submit a fetch. The caller must execute actions in the
/// order in which they are returned.
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
    /// The result of this fetch is probably no longer needed. The fetch must still be answered: with `Failed` if it was
    /// cancelled, otherwise with its result.
    Cancel { fetch: FetchId },
    /// Pass these bytes to the reader. They stay in place until `Event::Release`. More pieces follow unless `last` is
    /// set.
    Serve {
        read: ReadId,
        lease: LeaseId,
        file: FileId,
        range: ByteRange,
        last: bool,
    },
    /// Tell the reader that it failed. Nothing more follows for this read.
    Fail { read: ReadId, error: Error },
    /// Discard the bytes of these pages: bit `n` of `pages` is page `64 * number + n` of the file.
    Drop {
        slot: GroupSlot,
        file: FileId,
        number: u64,
        pages: u64,
    },
    /// Send `Event::Timer` at this time.
    WakeAt { at: Nanos },
}

/// The class of a fetch: whether a demand read waits for the fetch, or it is only readahead. Demand fetches are submitted first, and
/// never wait for readahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A read waits for at least one page of the fetch.
    Demand,
    /// No demand read needs the fetch yet.
    Ahead,
}

/// How a fetch or a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Error {
    /// The source answered with this error number.
    Io(i32),
    /// The source ended before the requested bytes, although the file should be longer.
    Short,
    /// The source is no longer the version that was opened.
    Changed,
    /// A limit of the machine was reached; the documentation of the limit gives the number.
    Limit,
}

/// A hint of a reader, with the meaning that `posix_fadvise` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No special treatment.
    Normal,
    /// Reads will be sequential.
    Sequential,
    /// Reads will be random.
    Random,
    /// These bytes will be needed soon.
    WillNeed,
    /// These bytes are not needed any more.
    DontNeed,
}

/// The memory mapping in which a page fault happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The bytes of the file that are mapped.
    pub range: ByteRange,
    /// The mapping is executable.
    pub executable: bool,
    /// The mapping's advice: normal, sequential or random.
    pub advice: Advice,
}
