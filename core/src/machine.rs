//! The state machine: it takes events and returns actions. Policy and cache interact only in this module.
//!
//! Call order: pass one event to [`Machine::handle`], then call [`Machine::poll`] until it returns `None`. No other call changes the
//! decisions of the state machine. The state machine never waits, never loses a read, and never fails a read because a readahead fetch
//! failed. Every read ends with a last [`Action::Serve`] or one [`Action::Fail`], provided that the driver answers every submitted fetch
//! and releases every lease.
//!
//! ```text
//!   Read ──► [starved] ──► look-up ──► waiting ──► leased ──► (next piece) ──► gone
//!              no room       │ asks      ▲  pages     Serve ... Release
//!                            ▼ policy    │ land
//!                           answer ──► fetch: queued ──► submitted ──► answered
//!                                              (demand first)   └─ doomed: bytes discarded
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `machine.rs` | state, limits, getters, the door |
//! | `reads.rs` | the life of a demand read |
//! | `faults.rs` | page faults, and touches without a fault |
//! | `hits.rs` | reads of cached pages |
//! | `answers.rs` | asking a policy, admission of its windows, eviction |
//! | `fetches.rs` | the life of a fetch |
//! | `meter.rs` | latency and rate of the source, for policies that need them |
//! | `changes.rs` | listings, invalidation, new versions, hints, pressure |
//! | `watching.rs` | notes for a report that explains a run |

mod answers;
mod changes;
mod faults;
mod fetches;
mod hits;
mod meter;
mod reads;
mod slab;
mod watching;

use crate::cache::Cache;
use crate::event::{Action, Error, Event};
use crate::files::FileTable;
use crate::policy::{Answer, DemandMode, Policy, PolicySpec, Scope, Wants, Window};
use crate::stats::Stats;
use crate::storage::MAX_FETCH_BYTES;
use crate::units::{
    ByteRange, FetchId, FileId, GroupSlot, Nanos, OpenId, PageRange, PageSize, ReadId,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use answers::UnassignedPages;
use fetches::Fetch;
use reads::Read;
use slab::Slab;

pub use crate::cache::{GROUP_PAGES, groups_of, mask_of, one_group};
pub use fetches::FetchView;
pub use hits::SettledGroup;
pub use meter::{FetchTiming, Meter};
pub use watching::{LookedUp, Note, Verdict};

/// The caller must number files and open file descriptions below this value; an event with a higher number is refused.
pub const MAX_IDS: u32 = 1 << 20;

/// Demand reads that may wait at the same time; an additional read fails with [`Error::Limit`].
pub const MAX_READS: usize = 1 << 16;

/// The size limits of a state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of a cache page.
    pub page: PageSize,
    /// Pages that may be present or in flight together; at least 4.
    pub capacity_pages: u64,
    /// Largest fetch, in bytes: longer runs are split, and adjacent runs are merged up to this size.
    pub max_fetch_bytes: u64,
    /// Fetches that may be in flight, demand and readahead together.
    pub max_in_flight: u32,
    /// How many of these may be fetches that no read waits for. It is below `max_in_flight`, so that readahead never
    /// takes the last slot.
    pub max_ahead_in_flight: u32,
    /// How many may be readahead while they have at most [`crate::storage::SHORT_AHEAD_BYTES`] together; at least
    /// `max_ahead_in_flight`.
    pub max_short_ahead_in_flight: u32,
    /// Largest readahead part, in bytes, that may be added to a demand fetch; a longer part becomes a separate fetch.
    pub max_piggyback_bytes: u64,
    /// Never merge two windows, or a window and a missing run, into one fetch.
    pub keep_windows_apart: bool,
    /// Submit requests in the order in which they were made, also demand after readahead, and let readahead fill the
    /// whole cache, as in a kernel. Engines do not set this.
    pub in_order: bool,
}

impl Config {
    /// The default limits for a cache of `bytes` bytes.
    #[must_use]
    pub fn new(page: PageSize, bytes: u64) -> Config {
        Config {
            page,
            capacity_pages: bytes / page.bytes(),
            max_fetch_bytes: MAX_FETCH_BYTES,
            max_in_flight: 64,
            max_ahead_in_flight: 16,
            max_short_ahead_in_flight: 16,
            max_piggyback_bytes: 128 << 10,
            keep_windows_apart: false,
            in_order: false,
        }
        .bounded()
    }

    /// Makes the state machine behave like the kernel's page cache and request queue, which submits all fetches of a window without
    /// waiting, in the order in which they were made.
    #[must_use]
    pub fn as_kernel(self) -> Config {
        Config {
            max_in_flight: 1 << 16,
            max_piggyback_bytes: u64::MAX,
            in_order: true,
            ..self
        }
        .bounded()
    }

    /// Changes values that are out of range to the nearest allowed value.
    #[must_use]
    pub fn bounded(mut self) -> Config {
        self.capacity_pages = self.capacity_pages.clamp(4, u64::from(u32::MAX));
        self.max_fetch_bytes = self.max_fetch_bytes.max(self.page.bytes());
        self.max_in_flight = self.max_in_flight.clamp(2, 1 << 16);
        self.max_ahead_in_flight = self.max_ahead_in_flight.clamp(1, self.max_in_flight - 1);
        let short = self.max_short_ahead_in_flight.max(self.max_ahead_in_flight);
        self.max_short_ahead_in_flight = short.min(self.max_in_flight - 1);
        self
    }
}

/// An answer of a policy, recorded so that a test can compare it or a report can explain it. Answers are recorded after a call of
/// [`Machine::watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The open description whose policy was asked.
    pub open: OpenId,
    /// The question.
    pub question: Question,
    /// The byte that raised the question.
    pub at: u64,
    /// The policy's answer, unchanged.
    pub windows: Vec<Window>,
}

/// The questions that a policy can answer with windows to read; see [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the method of the same name")]
pub enum Question {
    Read,
    Page,
    Miss,
    Mark,
    Fault,
    FaultHit,
    Advice,
}

struct Open {
    file: FileId,
    stream: u32,
    /// The counters of this open description.
    stats: Stats,
}

/// A policy's state and the questions that it wants.
struct Stream {
    policy: Box<dyn Policy>,
    wants: Wants,
    mode: DemandMode,
}

impl Stream {
    /// A policy that wants every read or every page is also asked about cached pages.
    fn asks_when_present(&self) -> bool {
        self.wants.read || self.wants.shared || self.mode == DemandMode::PageSerial
    }

    /// Selects the open description that reads now, for a policy that several descriptions share.
    fn turn_to(&mut self, open: OpenId) {
        if self.wants.shared {
            self.policy.on_turn(open);
        }
    }
}

/// The state machine: it takes events and returns actions. Policy and cache interact only in this module.
pub struct Machine {
    config: Config,
    spec: PolicySpec,
    now: Nanos,
    cache: Cache,
    files: FileTable,
    opens: Vec<Option<Open>>,
    streams: Slab<Stream>,
    reads: Slab<Read>,
    /// Reads that wait for room, in order of arrival.
    starved: VecDeque<u32>,
    /// Pages of the pieces that reads wait for or hold.
    reserved: u64,
    fetches: Slab<Fetch>,
    /// Fetches that own pages in flight, by (file, first page still in flight). Their pages do not overlap.
    owners: BTreeMap<(u32, u64), u32>,
    demand_queue: VecDeque<u32>,
    ahead_queue: VecDeque<u32>,
    ahead_queued_bytes: u64,
    in_flight: u32,
    ahead_in_flight: u32,
    /// Bytes of the readahead fetches in flight.
    ahead_in_flight_bytes: u64,
    /// Timers of policies: (time, stream).
    timers: BTreeMap<(Nanos, u32), ()>,
    /// Buffer for the answer to one question.
    answer: Answer,
    /// Buffer for one event: pages that went in flight and have no fetch yet.
    unassigned: Vec<UnassignedPages>,
    /// Bytes of readahead among these.
    unassigned_ahead_bytes: u64,
    actions: VecDeque<Action>,
    decisions: Option<Vec<Decision>>,
    notes: Option<Vec<Note>>,
    stats: Stats,
    /// The meter; it is fed only if the policy wants it.
    meter: Option<Meter>,
    /// The state of a policy of [`Scope::Source`], while a file is open.
    source_stream: Option<u32>,
    /// The longest fetch that the answer to this event allows, in pages.
    unit_pages: u64,
}

/// The open description about which a policy is asked.
#[derive(Clone, Copy)]
struct Asker {
    file: FileId,
    open: OpenId,
    /// The slot of its policy in `streams`.
    stream: u32,
}

#[derive(Clone, Copy)]
struct AskedFor {
    request: ByteRange,
    /// The byte that the question is about.
    at: u64,
    /// The caller has stated that the read is random.
    random: bool,
}

impl Machine {
    /// Creates a state machine with an empty cache. Values of the configuration that are out of range are changed to the nearest allowed
    /// value.
    #[must_use]
    pub fn new(config: Config, policy: PolicySpec) -> Machine {
        let config = config.bounded();
        Machine {
            cache: if config.in_order {
                Cache::new(config.page).with_lists(config.capacity_pages)
            } else {
                Cache::new(config.page)
            },
            config,
            spec: policy,
            now: Nanos(0),
            files: FileTable::default(),
            opens: Vec::new(),
            streams: Slab::new(),
            reads: Slab::new(),
            starved: VecDeque::new(),
            reserved: 0,
            fetches: Slab::new(),
            owners: BTreeMap::new(),
            demand_queue: VecDeque::new(),
            ahead_queue: VecDeque::new(),
            ahead_queued_bytes: 0,
            in_flight: 0,
            ahead_in_flight: 0,
            ahead_in_flight_bytes: 0,
            timers: BTreeMap::new(),
            answer: Answer::default(),
            unassigned: Vec::new(),
            unassigned_ahead_bytes: 0,
            actions: VecDeque::new(),
            decisions: None,
            notes: None,
            stats: Stats::default(),
            meter: None,
            source_stream: None,
            unit_pages: u64::MAX,
        }
    }

    // ---- getters ----

    /// The configuration, with every value inside its limits.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The current counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        let untouched =
            |g: &crate::cache::Group| self.bytes_in(FileId(g.file), g.number, g.untouched());
        let queued = |f: &&Fetch| !f.submitted && !f.doomed;
        stats.unresolved_bytes = self.cache.groups().map(untouched).sum();
        // Queued readahead has not been counted in `ra_bytes` yet.
        stats.unresolved_bytes -= self
            .fetches
            .iter()
            .filter(queued)
            .map(|f| self.untouched_bytes(f))
            .sum::<u64>();
        stats
    }

    /// The counters of one open file description: its successful reads, and the readahead that was planned for it. Values that cannot be
    /// attributed to one description (evicted pages, failed reads, unresolved bytes) are zero.
    #[must_use]
    pub fn open_stats(&self, open: OpenId) -> Option<&Stats> {
        self.open_of(open).map(|o| &o.stats)
    }

    /// Every open file description and its file.
    pub fn opens(&self) -> impl Iterator<Item = (OpenId, FileId)> + '_ {
        let numbered = (0..).map(OpenId).zip(&self.opens);
        numbered.filter_map(|(open, entry)| entry.as_ref().map(|entry| (open, entry.file)))
    }

    /// A fetch that has been submitted and not yet answered.
    #[must_use]
    pub fn fetch(&self, fetch: FetchId) -> Option<FetchView> {
        let f = self.fetch_of(fetch).map(|slot| &self.fetches[slot])?;
        let arrived = self
            .clip(f.file, PageRange::between(f.pages.first, f.landed))
            .len();
        let range = self.clip(f.file, f.pages);
        Some(FetchView {
            file: f.file,
            range,
            arrived,
            doomed: f.doomed,
            awaited: !f.waiters.is_empty(),
        })
    }

    /// The slot (index in the table of groups) of the group of 64 pages from page `64 * number` of this file. Returns `None` if none of
    /// these pages is present, in flight or waited for.
    #[must_use]
    pub fn group_slot(&self, file: FileId, number: u64) -> Option<GroupSlot> {
        self.cache.slot(file, number)
    }

    /// The page index of the state machine, for tests and reports.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Number of reads in progress: they wait for pages or for space in the cache, or their bytes are being copied.
    #[must_use]
    pub fn reads_in_progress(&self) -> usize {
        self.reads.len()
    }

    /// Number of queued or unanswered fetches, including those whose result will be discarded.
    #[must_use]
    pub fn fetches_in_progress(&self) -> usize {
        self.fetches.len()
    }

    // ---- watching ----

    /// Starts to record every answer of a policy; the answers are kept until [`Machine::take_decisions`] takes it.
    pub fn watch(&mut self) {
        self.decisions.get_or_insert_default();
    }

    /// The answers since the last call, oldest first; empty unless [`Machine::watch`] is on.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        self.decisions
            .as_mut()
            .map(core::mem::take)
            .unwrap_or_default()
    }

    // ---- events in ----

    /// Processes one event. `now` should not decrease; if it does, the latest time so far is used.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Read {
                read,
                open,
                range,
                random,
            } => self.begin_read(read, open, range, random),
            Event::Hit { read, open, range } => self.hit(read, open, range),
            Event::Release { lease } => self.release(lease),
            Event::Open { open, file, size } => self.open(open, file, size),
            Event::Close { open } => self.close(open),
            Event::Forget { file } => self.forget(file),
            Event::List {
                file,
                size,
                after,
                planned,
            } => self.list(file, size, after, planned),
            Event::Fault {
                read,
                open,
                at,
                map,
            } => self.begin_fault(read, open, at, map),
            Event::Accessed { open, at, code } => self.accessed(open, at, code),
            Event::Unmapped {
                file,
                number,
                pages,
            } => self.cache.unmap(file, number, pages),
            Event::Advise {
                open,
                advice,
                range,
            } => self.advise(open, advice, range),
            Event::Prefetch { open, range } => self.prefetch(open, range),
            Event::Invalidate { file, range } => self.invalidate(file, range),
            Event::Changed { file, size } => self.changed(file, size),
            Event::Grown { file, size } => self.grown(file, size),
            Event::Progress { fetch, bytes } => self.progress(fetch, bytes),
            Event::Answered { ns } => self.answered(ns),
            Event::AtHand { fetch } => self.at_hand(fetch),
            Event::Done { fetch, bytes } => self.done(fetch, bytes),
            Event::Failed { fetch, error } => self.failed(fetch, error),
            Event::Abandon { read } => self.abandon(read),
            Event::Pressure { pages } => self.pressure(pages),
            Event::Timer => self.timer(),
        }
        if !self.starved.is_empty() {
            self.feed_starved();
        }
        if !(self.demand_queue.is_empty() && self.ahead_queue.is_empty()) {
            self.submit_queued();
        }
    }

    // ---- polls ----

    /// The next action; after each event, call it until it returns `None`.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    // ---- opening and closing ----

    fn add_stream(&mut self) -> u32 {
        let policy = self.spec.build();
        self.streams.insert(Stream {
            wants: policy.wants(),
            mode: policy.demand_mode(),
            policy,
        })
    }

    /// The one policy state for all files, if the policy has this scope.
    fn source_policy(&mut self) -> Option<u32> {
        if self.spec.info.scope == Scope::Source && self.source_stream.is_none() {
            self.source_stream = Some(self.add_stream());
        }
        self.source_stream
    }

    fn open(&mut self, open: OpenId, file: FileId, size: u64) {
        if open.0 >= MAX_IDS || file.0 >= MAX_IDS || self.open_of(open).is_some() {
            return;
        }
        let entry = self.files.get_or_add(file, size);
        entry.opens += 1;
        let (is_first, shared) = (entry.opens == 1, entry.stream);
        let shared = shared.or_else(|| self.source_policy());
        let stream = shared.unwrap_or_else(|| self.add_stream());
        if self.spec.info.scope == Scope::Source && is_first {
            self.streams[stream]
                .policy
                .on_file_opened(file, self.files.before(file));
        }
        if self.streams[stream].wants.meter {
            self.meter.get_or_insert_default();
        }
        let shared = self.spec.info.scope == Scope::File || self.streams[stream].wants.shared;
        if shared && let Some(entry) = self.files.get_mut(file) {
            entry.stream = Some(stream);
        }
        let at = open.0 as usize;
        if self.opens.len() <= at {
            self.opens.resize_with(at + 1, || None);
        }
        self.opens[at] = Some(Open {
            file,
            stream,
            stats: Stats::default(),
        });
    }

    fn close(&mut self, open: OpenId) {
        let Some(Open {
            file,
            stream,
            stats,
        }) = self.opens.get_mut(open.0 as usize).and_then(Option::take)
        else {
            return;
        };
        // A description that has read nothing may have been opened only to read its file ahead.
        if stats.demand_reads > 0 {
            self.cancel_unneeded(file);
        }
        let Some(entry) = self.files.get_mut(file) else {
            return;
        };
        entry.opens -= 1;
        if self.source_stream.is_some() {
            if entry.opens == 0 {
                self.streams[stream].policy.on_file_closed(file);
            }
        } else if entry.stream.is_none() || entry.opens == 0 {
            entry.stream = None;
            self.streams.remove(stream);
            self.timers.retain(|&(_, s), ()| s != stream);
        } else if self.streams[stream].wants.shared {
            self.streams[stream].policy.on_close(open);
        }
    }

    fn timer(&mut self) {
        while let Some((&(at, stream), ())) = self.timers.first_key_value() {
            if at > self.now {
                break;
            }
            self.timers.remove(&(at, stream));
            if let Some(stream) = self.streams.get_mut(stream) {
                stream.policy.on_timer(self.now);
            }
        }
    }

    // ---- inside ----

    fn open_of(&self, open: OpenId) -> Option<&Open> {
        self.opens.get(open.0 as usize)?.as_ref()
    }

    /// Counts for the machine and for one open description, if it is still open.
    fn count(&mut self, open: Option<OpenId>, add: impl Fn(&mut Stats)) {
        add(&mut self.stats);
        if let Some(open) = open
            .and_then(|open| self.opens.get_mut(open.0 as usize))
            .and_then(Option::as_mut)
        {
            add(&mut open.stats);
        }
    }

    fn size_of(&self, file: FileId) -> u64 {
        self.files.get(file).map_or(0, |f| f.size)
    }

    /// Bytes of the pages of `mask` in group `number`, clipped to the end of the file.
    fn bytes_in(&self, file: FileId, number: u64, mask: u64) -> u64 {
        if mask == 0 {
            return 0;
        }
        let page = self.config.page;
        let size = self.size_of(file);
        let bytes = u64::from(mask.count_ones()) * page.bytes();
        let last = size.saturating_sub(1) >> page.bytes().trailing_zeros();
        let has_last = last / 64 == number && mask >> (last % 64) & 1 != 0;
        if has_last {
            bytes - (page.start_of(last + 1) - size)
        } else {
            bytes
        }
    }

    fn refuse(&mut self, read: ReadId, open: OpenId, error: Error) {
        self.count(Some(open), |stats| stats.failed_reads += 1);
        self.actions.push_back(Action::Fail { read, error });
    }
}
