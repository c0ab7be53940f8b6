//! The schedules that the oracle tries: a rule sets the order, the length and the number of fetches in flight, and whether fetches include
//! gaps.
//!
//! ```text
//!   start points (of the kind of device) ──► the fastest ──► one parameter changed ──► faster? keep it ──► ...
//!                                                                └── no: the next change
//! ```
//!
//! The search uses only the reads, the device and its random numbers, not the results of policies.

use crate::device::presets::{Model, Preset};

/// One schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Maximum length of the first fetch; each further one may be twice as long as the longest before it.
    pub(super) first_bytes: u64,
    /// Maximum length of any fetch.
    pub(super) most_bytes: u64,
    /// The remaining bytes are divided among the lanes of the device, so that all lanes end together.
    pub(super) even: bool,
    /// Gaps up to this length are read, too, and dropped on arrival, if the fetch continues after them.
    pub(super) gap_bytes: u64,
    /// Absent neighbours before the needed extent are fetched with it, not only those after it.
    pub(super) backward: bool,
    /// All lanes of the device together fetch at most this fraction of the cache.
    pub(super) cache_part: u64,
    /// Maximum number of concurrent fetches, within the limit of the device.
    pub(super) flights: u32,
    /// Fetches extents that no reader has requested yet.
    pub(super) ahead: bool,
    /// Processes due extents by position, like an elevator, whichever reader waits.
    pub(super) sweep: bool,
    /// One reader after the other: what the first job reads comes before what the second job waits for.
    pub(super) turns: bool,
}

pub(super) const LONG: Rule = Rule {
    first_bytes: u64::MAX,
    most_bytes: u64::MAX,
    even: true,
    gap_bytes: 0,
    backward: true,
    cache_part: 1,
    flights: u32::MAX,
    ahead: true,
    sweep: false,
    turns: false,
};

impl Rule {
    pub(super) fn with(mut self, change: impl FnOnce(&mut Rule)) -> Rule {
        change(&mut self);
        self
    }
}

/// Starting points of the search, by what is most often best on a kind of device.
pub(super) fn starts(preset: &Preset, jobs: usize) -> Vec<Rule> {
    let forward = LONG.with(|r| r.backward = false);
    let short = forward.with(|r| r.first_bytes = 1);
    let gaps = LONG.with(|r| r.gap_bytes = gap_worth(preset));
    let turns = Rule {
        turns: true,
        cache_part: 4,
        gap_bytes: gap_worth(preset),
        ..forward
    };
    let pieces = forward.with(|r| r.most_bytes = 64 << 10);
    let uneven = forward.with(|r| r.even = false);
    let in_turn = forward.with(|r| (r.turns, r.most_bytes) = (true, 256 << 10));
    // As few fetches as possible, so few draws of a round trip.
    let few = Rule {
        flights: 1,
        even: false,
        gap_bytes: u64::MAX,
        ..LONG
    };
    let mut starts = match preset.model {
        Model::Hdd(_) => vec![
            gaps,
            turns,
            gaps.with(|r| (r.cache_part, r.even) = (8, false)),
            forward.with(|r| r.sweep = true),
            in_turn,
            gaps.with(|r| (r.sweep, r.cache_part) = (true, 4)),
        ],
        Model::Disk(_) | Model::Array(_) => vec![in_turn, gaps, turns, LONG, short, pieces],
        Model::Net(model) if model.rtt_p99_ns.is_some() => {
            vec![
                LONG,
                few,
                uneven,
                short,
                turns,
                gaps.with(|r| r.flights = 4),
            ]
        }
        Model::Ssd(_) | Model::Net(_) | Model::Lanes(_) => {
            vec![
                LONG,
                short,
                pieces,
                turns,
                uneven,
                LONG.with(|r| r.flights = 4),
            ]
        }
    };
    starts.retain(|rule| jobs > 1 || !rule.turns || *rule == turns);
    starts.push(forward.with(|r| r.ahead = false));
    starts
}

/// The length of a gap that takes as long as another command.
fn gap_worth(preset: &Preset) -> u64 {
    let bytes = |ns: u64, ps_per_kib: u64| {
        (u128::from(ns) * 1_024_000 / u128::from(ps_per_kib.max(1))) as u64
    };
    match preset.model {
        Model::Disk(model) => bytes(
            model.command_ns,
            model.slopes.last().map_or(1, |s| s.ps_per_kib),
        ),
        Model::Array(model) => bytes(
            model.overhead.last().map_or(0, |row| row.ns),
            model.ps_per_kib,
        ),
        // A quarter of a revolution.
        Model::Hdd(model) => model.bytes_per_s.outer / u64::from(model.rpm.max(1)) * 15,
        Model::Net(model) => {
            (u128::from(model.rtt_ns) * u128::from(model.link_bytes_per_s) / 1_000_000_000) as u64
                / u64::from(model.connections.max(1))
        }
        Model::Ssd(model) => model.page_bytes,
        Model::Lanes(model) => bytes(0, model.link_ps_per_kib),
    }
}

/// The changes that the search tries, one at a time, in turn.
pub(super) const CHANGES: [fn(&mut Rule, &Range); 16] = [
    |r, a| r.most_bytes = r.most_bytes.min(a.max_fetch_bytes) / 2,
    |r, _| r.turns = !r.turns,
    |r, a| {
        r.gap_bytes = match r.gap_bytes {
            0 => a.gap_bytes,
            gap => gap.saturating_mul(4),
        }
    },
    |r, a| r.flights = r.flights.min(a.flights) / 2,
    |r, _| r.even = !r.even,
    |r, _| {
        r.first_bytes = if r.first_bytes == u64::MAX {
            1
        } else {
            u64::MAX
        }
    },
    |r, a| r.most_bytes = r.most_bytes.min(a.max_fetch_bytes) / 8,
    |r, _| r.cache_part *= 8,
    |r, _| r.sweep = !r.sweep,
    |r, _| r.backward = !r.backward,
    |r, _| r.gap_bytes /= 4,
    |r, a| r.most_bytes = r.most_bytes.saturating_mul(2).min(a.max_fetch_bytes),
    |r, a| r.flights = r.flights.saturating_mul(2).min(a.flights),
    |r, _| r.cache_part = (r.cache_part / 4).max(1),
    |r, _| r.first_bytes = 64 << 10,
    |r, _| r.cache_part *= 64,
];

pub(super) struct Range {
    max_fetch_bytes: u64,
    flights: u32,
    gap_bytes: u64,
    page_bytes: u64,
}

impl Range {
    pub(super) fn of(preset: &Preset, config: &foreread_core::machine::Config) -> Range {
        Range {
            max_fetch_bytes: config.max_fetch_bytes,
            flights: config.max_in_flight.min(preset.connections),
            gap_bytes: gap_worth(preset).max(config.page.bytes()),
            page_bytes: config.page.bytes(),
        }
    }

    /// Whether a rule is valid: no fetch is shorter than a page, and no gap is longer than a fetch.
    pub(super) fn has(&self, rule: &Rule) -> bool {
        rule.most_bytes >= self.page_bytes
            && rule.flights > 0
            && (rule.gap_bytes <= self.max_fetch_bytes || rule.gap_bytes == u64::MAX)
            && rule.cache_part <= 1 << 16
    }
}
