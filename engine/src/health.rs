//! Explains why readahead is not running, because readahead that silently does nothing is a common fault.
//!
//! The module uses only counters, so it works wherever the counters come from. If there were too few reads, no explanation is given.

use foreread_core::stats::Stats;

/// Minimum number of reads for a diagnosis.
pub const MIN_READS: u64 = 100;
/// The fraction of reads, or of bytes, that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;
const EVICTED: &str = "data read ahead is evicted before it is used; allow a larger cache, or use smaller readahead windows, such as \
                       linux-6.18:max=64K";

fn nearly_all(of: u64, whole: u64) -> bool {
    whole > 0 && of as f64 / whole as f64 > NEARLY_ALL
}

/// Whether a policy ever reads ahead. False for `none`, and for a policy that may fetch only demanded bytes (`auto:max-overfetch=1`,
/// in thousandths).
#[cfg(feature = "fuse")]
pub(crate) fn reads_ahead(policy: &foreread_core::policy::PolicySpec) -> bool {
    let mut params = policy.info.params.iter().zip(&policy.values);
    policy.info.name != "none"
        && !params.any(|(param, value)| param.key == "max-overfetch" && *value == 1000)
}

/// Explains why `policy` does not read ahead, or to no use, from the counters since the cache was created. Returns `None` if readahead runs
/// or is not needed.
///
/// ```
/// use foreread::{Stats, why_no_readahead};
///
/// let cold = Stats::of(|stats| (stats.demand_reads, stats.misses) = (1000, 1000));
/// assert_eq!(why_no_readahead("none", &cold), Some("the policy is none"));
/// ```
#[must_use]
pub fn why_no_readahead(policy: &str, stats: &Stats) -> Option<&'static str> {
    let is_cached = nearly_all(stats.hits, stats.demand_reads) && stats.ra_ops == 0;
    let state = readahead_state(policy, stats);
    let is_told = stats.demand_reads >= MIN_READS && !is_cached;
    (is_told && (!state.on || state.why == EVICTED)).then_some(state.why)
}

/// Whether the cache is too small for the readahead: most of what is read ahead is evicted and then requested again; or most of it
/// is never used, and most reads that miss request bytes that had been there.
fn thrashes(stats: &Stats) -> bool {
    // A miss is as long as the average read. A window that starts where a page was lost reads the rest of the lost pages ahead
    // again, so only few of the evicted bytes count as thrash: 2 % when 256 streams shared a cache made for 256 (bench/nbd-clients).
    let missed = stats.misses as f64 * stats.demand_bytes as f64 / stats.demand_reads.max(1) as f64;
    let (thrash, ahead) = (stats.thrash_bytes as f64, stats.ra_bytes as f64);
    thrash > 0.5 * ahead || stats.unused_bytes as f64 > 0.5 * ahead && thrash > 0.5 * missed
}

/// Whether readahead runs, and the reason for this state. The reasons are fixed texts without numbers, so that streams can be grouped by
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadaheadState {
    /// Whether it has read ahead.
    pub on: bool,
    /// The reason.
    pub why: &'static str,
}

/// Whether readahead runs, and why, as derived from the counters of one open file description, or of a whole engine.
#[must_use]
pub fn readahead_state(policy: &str, stats: &Stats) -> ReadaheadState {
    let off = |why| ReadaheadState { on: false, why };
    if policy == "none" {
        return off("the policy is none");
    }
    // Files of a listing, an announced order and a plan are read ahead without a window of the policy.
    if stats.ra_planned_ops == 0 && stats.ra_ops == 0 {
        return match stats.demand_reads {
            0 => off("nothing was read yet"),
            reads if nearly_all(stats.hits, reads) => off("its reads are cached"),
            reads if reads < MIN_READS => off("too few reads to tell"),
            _ => off("no sequential reads were seen, or a hint says that reads are random"),
        };
    }
    if nearly_all(stats.ra_refused_bytes, stats.ra_planned_bytes) {
        return off(
            "readahead is refused, because too little memory or too few requests are available; allow a larger cache",
        );
    }
    if stats.ra_ops == 0 {
        return off(
            "the bytes to read ahead were already cached, or are beyond the end of the file",
        );
    }
    if nearly_all(stats.ra_failed_bytes, stats.ra_bytes) {
        return off("nearly all readahead requests fail in the source; check the source");
    }
    let why = if thrashes(stats) {
        EVICTED
    } else if nearly_all(stats.unused_bytes, stats.ra_bytes) {
        "running, but unused"
    } else {
        "running"
    };
    ReadaheadState { on: true, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn but(mut stats: Stats, change: impl FnOnce(&mut Stats)) -> Stats {
        change(&mut stats);
        stats
    }

    #[test]
    fn each_cause_is_distinguished_for_an_engine_and_for_a_stream() {
        let few = Stats::of(|s| s.demand_reads = MIN_READS - 1);
        let reads = Stats::of(|s| (s.demand_reads, s.misses) = (1000, 1000));
        let cached = Stats::of(|s| (s.demand_reads, s.hits) = (1000, 1000));
        let planned = but(reads, |s| {
            (s.ra_planned_ops, s.ra_planned_bytes) = (10, 1000)
        });
        let refused = but(planned, |s| s.ra_refused_bytes = 990);
        let ran = but(planned, |s| (s.ra_ops, s.ra_bytes) = (10, 1000));
        let failed = but(ran, |s| s.ra_failed_bytes = 1000);
        let unused = but(ran, |s| s.unused_bytes = 1000);
        let evicted = but(ran, |s| s.thrash_bytes = 600);
        let listed = but(reads, |s| (s.ra_ops, s.ra_bytes) = (10, 1000));
        let of_listing = but(listed, |s| (s.hits, s.misses) = (990, 10));
        // 6,000 of 10,000 bytes were evicted unused, and half of the 4,000 bytes missed were among them, or nearly.
        let guessed = but(ran, |s| (s.ra_bytes, s.demand_bytes) = (10_000, 4_000));
        let thrash = |unused, thrash| {
            but(guessed, |s| {
                (s.unused_bytes, s.thrash_bytes) = (unused, thrash)
            })
        };
        // The counters, whether the state is also reported for a whole engine, and its text.
        let rows = [
            (Stats::default(), false, "nothing was read yet"),
            (few, false, "too few reads to tell"),
            (cached, false, "its reads are cached"),
            (reads, true, "no sequential reads"),
            (planned, true, "the bytes to read ahead were"),
            (refused, true, "readahead is refused"),
            (failed, true, "nearly all readahead requests fail"),
            (unused, false, "running, but unused"),
            (evicted, true, EVICTED),
            (thrash(6_000, 2_001), true, EVICTED),
            (thrash(6_000, 1_999), false, "running"),
            (thrash(4_000, 2_001), false, "running"),
            (ran, false, "running"),
            (listed, false, "running"),
            (of_listing, false, "running"),
        ];
        for (stats, is_told, why) in rows {
            let state = readahead_state("linux-6.18", &stats);
            assert!(state.why.starts_with(why), "{state:?}");
            let is_on = why.starts_with("running") || why == EVICTED;
            assert_eq!(state.on, is_on, "{state:?}");
            let told = why_no_readahead("linux-6.18", &stats);
            assert_eq!(told, is_told.then_some(state.why));
            assert!(!readahead_state("none", &stats).on);
        }
    }
}
