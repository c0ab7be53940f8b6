//! The interface of policies: questions and answers.
//!
//! A policy is one file in this folder. It thinks in bytes, keeps the state of **one** stream owner (an open
//! description, or a whole file where the original has one detector for each image), and sees the cache only
//! through [`Probe`]. It has no side effects: it fills an [`Answer`], and the machine decides what of the answer
//! is fetched.
//!
//! ```text
//!   a demand read      on_read     before the look-up             (RBD, 2003)
//!     each page        on_page     page_serial policies only      (2003)
//!     absent           on_miss     the kernel's sync readahead
//!     marked           on_mark     the kernel's async readahead, in order, maybe several in one read
//!     all looked at    on_read_end the kernel's previous position
//!   a page fault       on_fault / on_fault_hit
//!   a hint             on_advice
//!   the fate of it     on_outcome
//! ```
//!
//! These are the policies that serve reads. A policy may be outside this crate: it implements [`Policy`], has an [`Info`], and
//! is read from its name by [`PolicyDraft::parse_among`]. What such a policy may need is public here: [`Ask`], [`Probe`],
//! [`Answer`], the arithmetic of Linux in [`ondemand`], the rules' names in [`why`]. The crate `foreread-history` is an example.
//!
//! Adding a policy to this crate: write the file, name it in both lists of this one, add its row to
//! `docs/policies.md` and its golden table to `core/tests/golden`. Code that several policies share is in a file that
//! is none itself (`capacity`, `detector`, `folios`, `folios_index`, `linux_6_18_large`,
//! `linux_6_18_reader`, `linux_6_18_todo`, `ondemand`, `pattern`, `tuning`, `why`); no policy knows another.

pub mod capacity;
mod detector;
mod folios;
mod folios_index;
mod linux_6_18_large;
mod linux_6_18_reader;
mod linux_6_18_todo;
pub mod ondemand;
pub mod pattern;
pub mod spec;
pub mod tuning;
pub mod why;

// Plain `mod` lines, not a macro, so that tools that do not compile (cargo-mutants) find the files.
pub mod auto;
pub mod linux_6_18;
pub mod none;
pub mod rbd_aligned;
pub mod rbd_eager;
pub mod rbd_plain;

use crate::cache::Cache;
use crate::event::{Advice, Error, Mapping};
use crate::files::{FileTable, NextFile};
use crate::units::{ByteRange, FileId, Nanos, OpenId, PageRange};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What `conform linux` compares with a kernel: where the policy `linux-6.18` places folios. No part of the interface: it
/// follows the kernel and changes with any version.
#[doc(hidden)]
pub mod kernel {
    pub use super::folios::{
        Folio, FolioWindow, Placement, Raw, ReadaheadCall, Shape, Sight, counted,
    };
    pub use super::folios_index::Folios;
    pub use super::linux_6_18_reader::{KernelReader, Touch};
    pub use super::linux_6_18_todo::Todo;
}

pub use pattern::Pattern;
pub use spec::{PolicyDraft, PolicySpec, SpecError};
pub use tuning::{Limit, Tuning};
pub use why::Why;

/// One algorithm with the state of one stream owner.
pub trait Policy: Send {
    /// How demand reads proceed: see [`DemandMode`].
    fn demand_mode(&self) -> DemandMode {
        DemandMode::Whole
    }

    /// The optional questions that this policy wants. The machine skips the others.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// A demand read of `ask.request` starts; no page has been looked up.
    fn on_read(&mut self, _ask: &Ask<'_>, _answer: &mut Answer) {}

    /// The page at `ask.at` is about to be looked up ([`DemandMode::PageSerial`] only).
    fn on_page(&mut self, _ask: &Ask<'_>, _answer: &mut Answer) {}

    /// The page at `ask.at` is neither present nor in flight. The machine fetches what the answer leaves out.
    fn on_miss(&mut self, _ask: &Ask<'_>, _answer: &mut Answer) {}

    /// The page at `ask.at` has the mark. It is cleared unless the answer sets [`Answer::keep_mark`].
    fn on_mark(&mut self, _ask: &Ask<'_>, _answer: &mut Answer) {}

    /// All pages of the read have been looked up; `end` is one past the last byte that it will return.
    fn on_read_end(&mut self, _end: u64) {}

    /// A fault on the page at `ask.at`, which is neither present nor in flight.
    fn on_fault(&mut self, _ask: &Ask<'_>, _map: &Mapping, _answer: &mut Answer) {}

    /// A fault on the page at `ask.at`, which is here or in flight; `marked`: it has the mark.
    fn on_fault_hit(
        &mut self,
        _ask: &Ask<'_>,
        _map: &Mapping,
        _marked: bool,
        _answer: &mut Answer,
    ) {
    }

    /// A fault has ended, and this many pages that are here were mapped around it, the touched one among them
    /// ([`Wants::around`]).
    fn on_mapped(&mut self, _pages: u64) {}

    /// Bit `n`: page `first + n` bears a mark that is not on it, but on the run of pages that it is kept with. Such pages are not mapped around
    /// a fault.
    fn marked_runs(&self, _first: u64) -> u16 {
        0
    }

    /// A hint about `ask.request`.
    fn on_advice(&mut self, _ask: &Ask<'_>, _advice: Advice, _answer: &mut Answer) {}

    /// A file has its first open description; `before` is the one before it in the order of a listing ([`Scope::Source`]).
    fn on_file_opened(&mut self, _file: FileId, _before: Option<FileId>) {}

    /// No open description of this file is left, or a listed one is forgotten ([`Scope::Source`]).
    fn on_file_closed(&mut self, _file: FileId) {}

    /// The outcome of something that this policy planned.
    fn on_outcome(&mut self, _outcome: &Outcome) {}

    /// The next calls are about this open description ([`Wants::shared`]).
    fn on_turn(&mut self, _open: OpenId) {}

    /// This open description was closed ([`Wants::shared`]).
    fn on_close(&mut self, _open: OpenId) {}

    /// Its current settings, for reports; `None` if they are fixed.
    fn tuning(&self, _source: &SourceView) -> Option<Tuning> {
        None
    }

    /// A time set by [`Answer::wake_at`] has come.
    fn on_timer(&mut self, _now: Nanos) {}
}

/// How a demand read proceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandMode {
    /// One fetch for each missing run, all at once.
    Whole,
    /// One page, wait, the next: as 2.6.0 did in 2003, including its bug.
    PageSerial,
}

/// The optional questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Ask [`Policy::on_read`].
    pub read: bool,
    /// Tell [`Policy::on_read_end`].
    pub read_end: bool,
    /// Tell [`Policy::on_outcome`].
    pub outcome: bool,
    /// One state for all readers of the file whatever [`Info::scope`] says, told by [`Policy::on_turn`] whose turn it is.
    pub shared: bool,
    /// Measure the source, for [`Ask::source`].
    pub meter: bool,
    /// A fault maps the pages around it that are here, as kernels do since 3.15; told by [`Policy::on_mapped`].
    pub around: bool,
}

/// A question: the read, and the information available for the answer.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// Now.
    pub now: Nanos,
    /// Which file.
    pub file: FileId,
    /// Which open description reads.
    pub open: OpenId,
    /// The measured source; all zero unless [`Wants::meter`].
    pub source: SourceView,
    /// The bytes asked for, **not** clipped to the end of the file.
    pub request: ByteRange,
    /// Start of the page that raised the question; the start of the request for `on_read` and `on_advice`.
    pub at: u64,
    /// The reader stated that this read does not predict the next.
    pub random: bool,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// The cache, through its three questions.
    pub probe: Probe<'a>,
}

/// What a policy may know of its source, and the machine's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceView {
    /// Time from a fetch to its first bytes on an idle source in nanoseconds; 0: not known.
    pub latency_ns: u64,
    /// What one fetch of 21 exceeds of that time, behind others or not; 0: not known.
    pub tail_ns: u64,
    /// The greatest rate of the last rounds in bytes a second; 0: not known.
    pub rate: u64,
    /// The greatest rate of one fetch alone; 0: not known, or fetches arrive whole.
    pub single_rate: u64,
    /// Fetches that ended while four or more were in flight.
    pub busy: u32,
    /// Demand reads that are in progress, the one that asks among them.
    pub reads: u32,
    /// Bytes that all demand reads asked for.
    pub demand_bytes: u64,
    /// Bytes of readahead that reads made use of, that left the cache without use, and that are present, in flight or waiting for a
    /// slot, and unread.
    pub used_bytes: u64,
    /// The second of these.
    pub unused_bytes: u64,
    /// The third.
    pub unread_bytes: u64,
    /// Size of the cache in bytes.
    pub room: u64,
    /// Largest fetch in bytes.
    pub max_fetch: u64,
    /// Fetches that may be in flight with no read waiting for them.
    pub ahead_slots: u32,
}

impl Ask<'_> {
    /// The bytes asked for, up to the end of the file. Nothing where a policy with windows of at most `max` bytes reads none
    /// ahead, whatever came before; then the answer has the reason.
    #[must_use]
    pub fn readable(&self, max: u64, answer: &mut Answer) -> Option<(u64, u64)> {
        let (start, end) = (self.request.start(), self.request.end().min(self.file_size));
        if self.random || max == 0 || start >= end {
            answer.why = Some(if max == 0 { Why::Off } else { Why::HintRandom });
            return None;
        }
        Some((start, end))
    }
}

/// A policy's view of the cache. Present and in flight count the same.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) files: &'a FileTable,
    pub(crate) file: FileId,
}

impl<'a> Probe<'a> {
    /// The next file in a listing; `None` if unknown.
    #[must_use]
    pub fn next_file(&self, file: FileId) -> Option<NextFile> {
        self.files.next(file)
    }

    /// The same questions about another file.
    #[must_use]
    pub fn of(&self, file: FileId) -> Probe<'a> {
        Probe { file, ..*self }
    }

    /// Size of a cache page in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.cache.page_size().bytes()
    }

    /// True when the page that holds `offset` is present or in flight.
    #[must_use]
    pub fn is_cached(&self, offset: u64) -> bool {
        self.cache
            .is_cached(self.file, self.cache.page_size().page_of(offset))
    }

    /// True when the page that holds `offset` is present, so that a read of it does not wait.
    #[must_use]
    pub fn is_present(&self, offset: u64) -> bool {
        let page = self.cache.page_size().page_of(offset);
        self.cache.present_run(
            self.file,
            PageRange {
                first: page,
                end: page + 1,
            },
        ) == 1
    }

    /// Bytes of the pages of `range` that are not cached.
    #[must_use]
    pub fn missing(&self, range: ByteRange) -> u64 {
        let size = self.cache.page_size();
        self.cache.absent(self.file, size.cover(range)) * size.bytes()
    }

    /// Start of the first page that is not cached, looking at the pages of `[from, from + limit)` in order.
    #[must_use]
    pub fn next_hole(&self, from: u64, limit: u64) -> Option<u64> {
        let pages = self
            .cache
            .page_size()
            .cover(ByteRange::between(from, from.saturating_add(limit)));
        self.cache
            .next_hole(self.file, pages)
            .map(|p| self.cache.page_size().start_of(p))
    }

    /// Bytes of consecutive cached pages that end where the page of `before` begins, looking back at most `limit` bytes.
    #[must_use]
    pub fn history(&self, before: u64, limit: u64) -> u64 {
        let size = self.cache.page_size();
        let pages = self
            .cache
            .history(self.file, size.page_of(before), size.page_of(limit));
        pages * size.bytes()
    }
}

/// An answer. The machine owns one and clears it between questions.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Ranges to have in the cache, in the order of their importance.
    pub windows: Vec<Window>,
    /// Ranges whose pages are to be the last to be evicted.
    pub refresh: Vec<ByteRange>,
    /// Ranges whose pages are to leave first of all, also those in flight; reads that wait for them fetch anew.
    pub drop: Vec<ByteRange>,
    /// How soon the windows are needed that are added next.
    pub urgency: Option<Urgency>,
    /// No fetch for this answer is longer; 0: as long as the machine allows.
    pub max_fetch: u64,
    /// Ask [`Policy::on_timer`] at this time.
    pub wake_at: Option<Nanos>,
    /// Leave the mark that raised this question where it is.
    pub keep_mark: bool,
    /// The rule that was followed, for reports; it changes nothing.
    pub why: Option<Why>,
}

impl Answer {
    /// Empties the answer, keeping its memory.
    pub fn clear(&mut self) {
        self.windows.clear();
        self.refresh.clear();
        self.drop.clear();
        self.urgency = None;
        self.max_fetch = 0;
        self.wake_at = None;
        self.keep_mark = false;
        self.why = None;
    }

    /// Whether it sets only the fate of the mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
            && self.refresh.is_empty()
            && self.drop.is_empty()
            && self.wake_at.is_none()
    }

    /// Adds a window of `len` bytes from `start`, clipped to the largest offset there is.
    pub fn read(&mut self, start: u64, len: u64, mark: Option<u64>) {
        let range = ByteRange::between(start, start.saturating_add(len));
        self.windows.push(Window {
            file: None,
            range,
            mark,
            urgency: self.urgency,
        });
    }

    /// Adds a window from `start` to `end` in another file of the same source.
    pub fn read_file(&mut self, file: FileId, (start, end): (u64, u64), mark: Option<u64>) {
        let range = ByteRange::between(start, end);
        self.windows.push(Window {
            file: Some(file),
            range,
            mark,
            urgency: None,
        });
    }
}

/// A range to be read and the page in it that shall start the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Another file of the same source, which must be known; none: the file that the question is about.
    pub file: Option<FileId>,
    /// The bytes; may reach beyond the end of the file, where it is clipped.
    pub range: ByteRange,
    /// A byte of the page that gets the mark, if this window is what brings that page in.
    pub mark: Option<u64>,
    /// How soon it is needed; none: it goes out in the order in which windows were planned.
    pub urgency: Option<Urgency>,
}

/// How soon a window is needed. Of two streams that wait for slots, the one whose reader reaches its window much sooner goes first; windows of
/// one stream keep their order, and none passes a window without an urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// Which stream of its file.
    pub stream: u32,
    /// Bytes that its reader reads before it reaches the window.
    pub away: u64,
}

impl Urgency {
    /// That of the bytes at `at` of a window that begins at `start`.
    pub(crate) fn later(self, at: u64, start: u64) -> Urgency {
        Urgency {
            away: self.away.saturating_add(at.saturating_sub(start)),
            ..self
        }
    }
}

/// The outcome of planned readahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Outcome {
    /// A fetch with an ahead part was submitted.
    Started { range: ByteRange },
    /// It arrived whole, `took_ns` after it was submitted.
    Arrived { range: ByteRange, took_ns: u64 },
    /// Bytes of it, in the 64 pages around `at`, were demanded after they had arrived.
    Used { file: FileId, at: u64, bytes: u64 },
    /// Bytes of it, in the 64 pages around `at`, were demanded while they were in flight.
    Late { file: FileId, at: u64, bytes: u64 },
    /// Bytes of it were evicted or dropped without ever being demanded.
    Unused { bytes: u64 },
    /// It failed. `demand`: a read was waiting for part of it.
    Failed {
        range: ByteRange,
        error: Error,
        demand: bool,
    },
}

/// Whose reads one policy state sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One open description (Linux).
    Open,
    /// All readers of the file together (librbd: one detector for each open image).
    File,
    /// All readers of all files of the source.
    Source,
}

/// The unit of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written with an optional K, M, G.
    Bytes,
    /// Bytes, or no more of them than the capacity of the storage allows: see [`capacity::Cap`].
    Capped,
    /// A plain number.
    Count,
    /// A decimal number such as 1.25, kept in thousandths.
    Ratio,
    /// One of the words.
    Word(&'static [&'static str]),
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The key in `NAME:key=value`.
    pub key: &'static str,
    /// How its value is written.
    pub unit: Unit,
    /// Used when the key is absent, in the notation of a value.
    pub default: &'static str,
    /// Smallest and largest value allowed (bytes or count; ignored for words).
    pub range: (u64, u64),
    /// One line for `foreread list policies`.
    pub help: &'static str,
}

/// The description of a policy.
pub struct Info {
    /// The name in `NAME:key=value,...`.
    pub name: &'static str,
    /// One line for `foreread list policies`.
    pub summary: &'static str,
    /// The publication it reproduces.
    pub origin: &'static str,
    /// Whose reads one state sees.
    pub scope: Scope,
    /// The cache page it needs, if it cannot do with any.
    pub page_bytes: Option<u64>,
    /// Its parameters.
    pub params: &'static [Param],
    /// Creates the state for one owner. The values are those of `params`, in order, already checked.
    pub build: fn(&[u64]) -> Box<dyn Policy>,
}

impl Info {
    /// Whether a `max` that is left open follows the setting of the device: the policies of Linux, but for one whose
    /// publication has another default.
    #[must_use]
    pub fn follows_device(&self) -> bool {
        self.params
            .iter()
            .any(|p| p.key == "max" && p.unit == Unit::Capped && p.default == ondemand::MAX.default)
    }
}

/// The default policy.
pub const DEFAULT: &str = "auto";

/// Every policy that serves reads, in the order of `foreread list policies`; the first one is the default.
pub static ALL: &[&Info] = &[
    &auto::INFO,
    &none::INFO,
    &linux_6_18::INFO,
    &rbd_plain::INFO,
    &rbd_aligned::INFO,
    &rbd_eager::INFO,
];
