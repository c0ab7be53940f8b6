//! The rules that the oracle is tried under: how long a fetch is, how many there are at once, and in which order.
//!
//! Each stands for a device and a workload on which another one lost to some policy; what a rule is best for is said
//! beside it. Never: a rule that fetches what nobody reads, however cheap.

/// How long fetches are and how many there are at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The first fetch is at most this long, each further one twice as long as the longest before it.
    pub(super) first_bytes: u64,
    /// Absent neighbours before the extent that is wanted are fetched with it, not only those behind it.
    pub(super) backward: bool,
    /// All lanes of the device together fetch at most this part of the cache.
    pub(super) cache_part: u64,
    /// Fetches at once, as far as the device takes them.
    pub(super) flights: u32,
    /// Fetches what nobody has asked for yet.
    pub(super) ahead: bool,
    /// Goes over what is due in the order of its place, as an arm does, whoever waits.
    pub(super) sweep: bool,
}

pub(super) const LONG: Rule =
    Rule { first_bytes: u64::MAX, backward: true, cache_part: 1, flights: u32::MAX, ahead: true, sweep: false };

/// What is tried: the fewest commands; the earliest first byte, with one command or a few on the link before the one
/// that is waited for; the least that lies between a byte and who waits for it; and no readahead at all, for where each
/// command in advance is one in the way.
pub(super) const RULES: [Rule; 7] = [
    LONG,
    Rule { first_bytes: 1, backward: false, ..LONG },
    Rule { first_bytes: 64 << 10, backward: false, flights: 4, ..LONG },
    Rule { backward: false, cache_part: 16, ..LONG },
    Rule { first_bytes: 1, backward: false, cache_part: 16, flights: 4, ..LONG },
    Rule { first_bytes: 1, backward: false, cache_part: 2048, flights: 4, ..LONG },
    Rule { backward: false, ahead: false, ..LONG },
];

/// What is tried besides on a device that does one command after the other and may have an arm to move: the shortest
/// way over all that is due.
pub(super) const ARM_RULES: [Rule; 2] =
    [Rule { backward: false, sweep: true, ..LONG }, Rule { backward: false, sweep: true, cache_part: 64, ..LONG }];

/// And on one that does many at once: few of them, so that few draw a long round trip or meet at the same die.
pub(super) const LANE_RULES: [Rule; 3] = [
    Rule { flights: 1, ..LONG },
    Rule { flights: 4, ..LONG },
    Rule { backward: false, flights: 4, cache_part: 512, ..LONG },
];
