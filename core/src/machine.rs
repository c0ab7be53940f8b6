//! The machine: events in, actions out. (Being written; the signatures below are final.)
use crate::event::{Action, Event};
use crate::policy::PolicySpec;
use crate::stats::Stats;
use crate::units::{ByteRange, FetchId, FileId, GroupSlot, Nanos, PageSize};

/// How large everything may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of a cache page.
    pub page: PageSize,
    /// Pages that may be present or in flight together.
    pub capacity_pages: u64,
    /// Largest fetch, in bytes: longer runs are split, adjacent ones merged up to it.
    pub max_fetch_bytes: u64,
    /// Fetches that may be in flight, demand and ahead together.
    pub max_in_flight: u32,
    /// Of these, fetches nobody waits for.
    pub max_ahead_in_flight: u32,
    /// Largest ahead part, in bytes, that may ride on a fetch somebody waits for; the rest goes by itself.
    pub max_ride_bytes: u64,
    /// Never merge two windows, or a window and a missing run, into one fetch.
    pub keep_windows_apart: bool,
}

impl Config {
    /// The defaults for a cache of `bytes` bytes.
    #[must_use]
    pub fn new(page: PageSize, bytes: u64) -> Config {
        Config {
            page,
            capacity_pages: (bytes / page.bytes()).max(16),
            max_fetch_bytes: 4 << 20,
            max_in_flight: 64,
            max_ahead_in_flight: 16,
            max_ride_bytes: 128 << 10,
            keep_windows_apart: false,
        }
    }
}

/// What the machine knows of a fetch it has submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchView {
    /// Which file.
    pub file: FileId,
    /// What was submitted.
    pub range: ByteRange,
    /// Its bytes will be discarded.
    pub doomed: bool,
}

/// See the head of this file.
pub struct Machine {}

impl Machine {
    /// A machine with an empty cache.
    #[must_use]
    pub fn new(_config: Config, _policy: PolicySpec) -> Machine { Machine {} }
    /// Takes in one event. `now` never goes back; an earlier time counts as the latest one seen.
    pub fn handle(&mut self, _now: Nanos, _event: Event) {}
    /// The next thing to do; call until there is none after every event.
    pub fn poll(&mut self) -> Option<Action> { None }
    /// The counters now.
    #[must_use]
    pub fn stats(&self) -> Stats { Stats::default() }
    /// A fetch that has been submitted and not yet answered.
    #[must_use]
    pub fn fetch(&self, _fetch: FetchId) -> Option<FetchView> { None }
    /// Where the group of the 64 pages from `64 * number` of this file stands in the index, if any of them is present, in flight or waited for.
    #[must_use]
    pub fn group_slot(&self, _file: FileId, _number: u64) -> Option<GroupSlot> { None }
}
