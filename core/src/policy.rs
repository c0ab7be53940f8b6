//! The interface of policies: questions and answers.
//!
//! Each policy is one file in this folder. A policy gives all positions and lengths in bytes. An instance of a policy holds the state of
//! **one** open file description, one file (as in librbd, with one detector for each image), or one source ([`Scope`]). A policy sees the
//! cache only through [`Probe`]. A policy has no side effects: it fills an [`Answer`], and the state machine decides which parts of the
//! answer are fetched.
//!
//! ```text
//!   a demand read      on_read     before the look-up             (RBD, 2003)
//!     each page        on_page     page_serial policies only      (2003)
//!     absent           on_miss     the kernel's sync readahead
//!     marked           on_mark     the kernel's async readahead, in page order; one read may reach several marks
//!     all looked up    on_read_end the kernel's previous position
//!   a page fault       on_fault / on_fault_hit
//!   a hint             on_advice
//!   its outcome        on_outcome
//! ```
//!
//! All policies of this crate can serve reads. Another crate may define a policy: the policy implements [`Policy`] and has an [`Info`],
//! and [`PolicyDraft::parse_among`] parses its name. Everything that a policy of another crate may need is public here: [`Ask`],
//! [`Probe`], [`Answer`], the arithmetic of Linux in [`ondemand`], and the rules' names in [`why`]. The crate `foreread-history` defines
//! policies in this way.
//!
//! To add a policy to this crate, write its file, and add its name to both lists in this file. Also add a row for the policy to
//! `docs/policies.md`, and a table of its expected decisions to `core/tests/golden`. Code that several policies share is in files that
//! are not policies (`capacity`, `detector`, `folios`, `folios_index`, `linux_6_18_large`, `linux_6_18_reader`, `linux_6_18_todo`,
//! `ondemand`, `pattern`, `tuning`, `why`). No policy uses another policy.

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

/// The parts of `linux-6.18` that `conform linux` compares with a kernel: the placement of folios. This module is not part of the stable
/// interface: it follows the kernel, and may change in any version.
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

/// A readahead algorithm, with the state of one open file description, file or source ([`Scope`]).
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

    /// The page at `ask.at` is neither present nor in flight. Pages that the answer does not cover are fetched by the
    /// machine.
    fn on_miss(&mut self, _ask: &Ask<'_>, _answer: &mut Answer) {}

    /// The page at `ask.at` has the mark. The mark is cleared unless the answer sets [`Answer::keep_mark`].
    fn on_mark(&mut self, _ask: &Ask<'_>, _answer: &mut Answer) {}

    /// All pages of the read have been looked up; `end` is one past the last byte that it will return.
    fn on_read_end(&mut self, _end: u64) {}

    /// A fault on the page at `ask.at`, which is neither present nor in flight.
    fn on_fault(&mut self, _ask: &Ask<'_>, _map: &Mapping, _answer: &mut Answer) {}

    /// A fault on the page at `ask.at`, which is present or in flight; `marked`: it has the mark.
    fn on_fault_hit(
        &mut self,
        _ask: &Ask<'_>,
        _map: &Mapping,
        _marked: bool,
        _answer: &mut Answer,
    ) {
    }

    /// A fault has ended, and this many present pages were mapped around it, including the touched page
    /// ([`Wants::around`]).
    fn on_mapped(&mut self, _pages: u64) {}

    /// Bit `n`: page `first + n` is in a run of pages that has a mark, but the mark is on another page of the run. Such
    /// pages are not mapped around a fault.
    fn marked_runs(&self, _first: u64) -> u16 {
        0
    }

    /// A hint about `ask.request`.
    fn on_advice(&mut self, _ask: &Ask<'_>, _advice: Advice, _answer: &mut Answer) {}

    /// The first open description of a file was opened; `before` is the previous file in the order of a listing
    /// ([`Scope::Source`]).
    fn on_file_opened(&mut self, _file: FileId, _before: Option<FileId>) {}

    /// The last open description of this file was closed, or a listed file was forgotten ([`Scope::Source`]).
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

/// How the state machine fetches the missing pages of a demand read: all at once, or one page after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandMode {
    /// One fetch for each missing run, all submitted at once.
    Whole,
    /// Reads one page and waits for it before the next page, as 2.6.0 did in 2003, including its bug.
    PageSerial,
}

/// Declares which optional methods of a policy the state machine must call, and what it must measure for the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Ask [`Policy::on_read`].
    pub read: bool,
    /// Call [`Policy::on_read_end`].
    pub read_end: bool,
    /// Call [`Policy::on_outcome`].
    pub outcome: bool,
    /// All readers of the file share one state, whatever [`Info::scope`] says. [`Policy::on_turn`] gives the reader of
    /// the next calls.
    pub shared: bool,
    /// Measure the source, for [`Ask::source`].
    pub meter: bool,
    /// A fault maps the present pages around it, as kernels do since 3.15. [`Policy::on_mapped`] reports their number.
    pub around: bool,
}

impl Wants {
    /// Only [`Policy::on_read`].
    pub const READ: Wants = Wants {
        read: true,
        read_end: false,
        outcome: false,
        shared: false,
        meter: false,
        around: false,
    };
}

/// A question to a policy: the read, and the information that is available for the answer.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The current time.
    pub now: Nanos,
    /// The file.
    pub file: FileId,
    /// The open description that reads.
    pub open: OpenId,
    /// The measured source; all zero unless [`Wants::meter`].
    pub source: SourceView,
    /// The requested bytes, **not** clipped to the end of the file.
    pub request: ByteRange,
    /// Start of the page that raised the question; the start of the request for `on_read` and `on_advice`.
    pub at: u64,
    /// The reader stated that this read does not predict the next.
    pub random: bool,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// The cache, which the policy can only query.
    pub probe: Probe<'a>,
}

/// The properties of the source, and the state machine's limits, that a policy may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceView {
    /// Time from a fetch to its first bytes on an idle source in nanoseconds; 0: not known.
    pub latency_ns: u64,
    /// The time to the first bytes that one fetch in 21 exceeds, whether it was queued or not; 0: not known.
    pub tail_ns: u64,
    /// The maximum rate of the latest rounds in bytes per second; 0: not known.
    pub rate: u64,
    /// The maximum rate of one fetch alone; 0: not known, or fetches arrive as a whole.
    pub single_rate: u64,
    /// Fetches that ended while four or more were in flight.
    pub busy: u32,
    /// Demand reads in progress, including the one that raised the question.
    pub reads: u32,
    /// Bytes of readahead that reads have used.
    pub used_bytes: u64,
    /// Bytes of readahead that left the cache unused.
    pub unused_bytes: u64,
    /// Bytes of readahead that no read has used yet: present, in flight, or waiting for a slot.
    pub unread_bytes: u64,
    /// Size of the cache in bytes.
    pub room: u64,
    /// Largest fetch in bytes.
    pub max_fetch: u64,
    /// Fetches that may be in flight without a read waiting for them.
    pub ahead_slots: u32,
}

impl Ask<'_> {
    /// The requested range, clipped to the end of the file. Returns `None` if nothing may be read ahead: `max` is 0, the read has the hint
    /// "random", or the range is empty. The answer then contains the reason.
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

/// The cache as a policy sees it. Most methods of a probe treat pages in flight as cached.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) files: &'a FileTable,
    pub(crate) file: FileId,
}

impl<'a> Probe<'a> {
    /// The file that follows `file` in a listing; `None` if unknown.
    #[must_use]
    pub fn next_file(&self, file: FileId) -> Option<NextFile> {
        self.files.next(file)
    }

    /// A probe of the same cache for another file.
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

    /// True if the page that holds `offset` is present, so that reading it does not wait.
    #[must_use]
    pub fn is_present(&self, offset: u64) -> bool {
        let page = self.cache.page_size().page_of(offset);
        self.cache.present_run(self.file, PageRange::one(page)) == 1
    }

    /// Bytes of the pages of `range` that are not cached.
    #[must_use]
    pub fn missing(&self, range: ByteRange) -> u64 {
        let size = self.cache.page_size();
        self.cache.absent(self.file, size.cover(range)) * size.bytes()
    }

    /// Start of the first uncached page in `[from, from + limit)`.
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

    /// The number of bytes in the consecutive cached pages just before the page that contains `before`; checks at most `limit` bytes.
    #[must_use]
    pub fn history(&self, before: u64, limit: u64) -> u64 {
        let size = self.cache.page_size();
        let pages = self
            .cache
            .history(self.file, size.page_of(before), size.page_of(limit));
        pages * size.bytes()
    }
}

/// An answer. The state machine owns one `Answer` and clears it between questions.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Ranges to have in the cache, most important first.
    pub windows: Vec<Window>,
    /// Ranges whose pages shall be evicted last.
    pub refresh: Vec<ByteRange>,
    /// Ranges whose pages shall leave first, including pages in flight; reads that wait for them fetch again.
    pub drop: Vec<ByteRange>,
    /// How soon the windows that are added next are needed.
    pub urgency: Option<Urgency>,
    /// Maximum length of a fetch for this answer; 0: the machine's maximum.
    pub max_fetch: u64,
    /// Call [`Policy::on_timer`] at this time.
    pub wake_at: Option<Nanos>,
    /// Keep the mark that raised this question.
    pub keep_mark: bool,
    /// The rule that was applied, for reports; it has no effect.
    pub why: Option<Why>,
}

impl Answer {
    /// Clears the answer, but keeps its allocated memory for reuse.
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

    /// Whether the answer asks for nothing to be read; it may still change a page's readahead mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
            && self.refresh.is_empty()
            && self.drop.is_empty()
            && self.wake_at.is_none()
    }

    /// Adds a window of `len` bytes from `start`, clipped to the largest possible offset.
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

/// A range to read ahead, and the page in it whose first touch triggers the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Another file of the same source, which must be known. `None`: the file that the question is about.
    pub file: Option<FileId>,
    /// The bytes; the part beyond the end of the file is cut off.
    pub range: ByteRange,
    /// A byte of the page that gets the mark, if this window brings that page in.
    pub mark: Option<u64>,
    /// How soon the window is needed. `None`: windows are submitted in the order in which they were planned.
    pub urgency: Option<Urgency>,
}

/// How soon a window is needed. If two streams wait to submit a fetch, the stream whose reader will reach its window much sooner submits
/// first. Windows of one stream keep their order. A window that has no urgency is never overtaken: windows planned after it are submitted
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// The stream within its file.
    pub stream: u32,
    /// Bytes that its reader reads before it reaches the window.
    pub away: u64,
}

impl Urgency {
    /// The urgency of the bytes at `at` in a window that begins at `start`.
    pub(crate) fn later(self, at: u64, start: u64) -> Urgency {
        Urgency {
            away: self.away.saturating_add(at.saturating_sub(start)),
            ..self
        }
    }
}

/// What became of readahead that a policy planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Outcome {
    /// A fetch that contains readahead was submitted.
    Started { range: ByteRange },
    /// It arrived completely, `took_ns` after it was submitted.
    Arrived { range: ByteRange, took_ns: u64 },
    /// Bytes of readahead, in the 64 pages around `at`, were demanded after they had arrived.
    Used { file: FileId, at: u64, bytes: u64 },
    /// Bytes of readahead, in the 64 pages around `at`, were demanded while they were in flight.
    Late { file: FileId, at: u64, bytes: u64 },
    /// Bytes of readahead were evicted or dropped without being demanded.
    Unused { bytes: u64 },
    /// A fetch that contains readahead failed. `demand`: a read was waiting for part of it.
    Failed {
        range: ByteRange,
        error: Error,
        demand: bool,
    },
}

/// Which reads share one instance of a policy: those of an open file description, a file or a source.
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
    /// Bytes, optionally limited by the capacity of the storage: see [`capacity::Cap`].
    Capped,
    /// A plain number.
    Count,
    /// A decimal number such as 1.25, kept in thousandths.
    Ratio,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The key in `NAME:key=value`.
    pub key: &'static str,
    /// How its value is written.
    pub unit: Unit,
    /// The default value, in the same notation.
    pub default: &'static str,
    /// Smallest and largest value allowed (bytes or count; for words the numbers of the first and the last).
    pub range: (u64, u64),
    /// One line for `foreread list policies`.
    pub help: &'static str,
}

impl Param {
    /// A plain number.
    #[must_use]
    pub const fn count(
        key: &'static str,
        default: &'static str,
        range: (u64, u64),
        help: &'static str,
    ) -> Param {
        Param {
            key,
            unit: Unit::Count,
            default,
            range,
            help,
        }
    }

    /// A number of bytes.
    #[must_use]
    pub const fn bytes(
        key: &'static str,
        default: &'static str,
        range: (u64, u64),
        help: &'static str,
    ) -> Param {
        Param {
            unit: Unit::Bytes,
            ..Param::count(key, default, range, help)
        }
    }

    /// One of these words.
    #[must_use]
    pub const fn word(
        key: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        help: &'static str,
    ) -> Param {
        Param {
            unit: Unit::Word(words),
            ..Param::count(key, default, (0, words.len() as u64 - 1), help)
        }
    }
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
    /// The cache page size that the policy requires, if it requires one.
    pub page_bytes: Option<u64>,
    /// Its parameters.
    pub params: &'static [Param],
    /// Creates the state for one owner. The values are those of `params`, in order, already checked.
    pub build: fn(&[u64]) -> Box<dyn Policy>,
}

impl Info {
    /// Whether the default of `max` is the readahead setting of the device. This is true for the policies of Linux, except for
    /// `linux-thrashsafe`, which was published with another default.
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
