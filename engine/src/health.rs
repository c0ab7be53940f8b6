//! Explains why readahead is not running, because readahead that silently does nothing is a common fault.
//!
//! The module uses only counters, so it works wherever the counters come from. If there were too few reads, no explanation is given.

use foreread_core::stats::Stats;

/// Minimum number of reads for a diagnosis.
pub const MIN_READS: u64 = 100;
/// The fraction of reads, or of bytes, that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;

/// Whether a policy ever reads ahead. False for `none`, and for a policy that may fetch only demanded bytes (`auto:max-overfetch=1`,
/// in thousandths).
#[cfg(feature = "fuse")]
pub(crate) fn reads_ahead(policy: &foreread_core::policy::PolicySpec) -> bool {
    let mut params = policy.info.params.iter().zip(&policy.values);
    policy.info.name != "none"
        && !params.any(|(param, value)| param.key == "max-overfetch" && *value == 1000)
}

/// Explains why `policy` does not read ahead, from the counters since the cache was created. Returns `None` if readahead runs or is not
/// needed.
///
/// ```
/// use foreread::{Stats, why_no_readahead};
///
/// let cold = Stats::of(|stats| (stats.demand_reads, stats.misses) = (1000, 1000));
/// assert_eq!(why_no_readahead("none", &cold).as_deref(), Some("the policy is 'none'"));
/// ```
#[must_use]
pub fn why_no_readahead(policy: &str, stats: &Stats) -> Option<String> {
    let part = |of: u64, whole: u64| {
        if whole == 0 {
            0.0
        } else {
            of as f64 / whole as f64
        }
    };
    if stats.demand_reads < MIN_READS
        || part(stats.hits, stats.demand_reads) > NEARLY_ALL && stats.ra_ops == 0
    {
        return None;
    }
    if policy == "none" {
        return Some("the policy is 'none'".to_string());
    }
    // Files of a listing, an announced order and a plan are read ahead without a window of the policy.
    if stats.ra_planned_ops == 0 && stats.ra_ops == 0 {
        let reads = stats.demand_reads;
        return Some(format!(
            "{policy} found no sequential reads among {reads}, or has a hint that reads are random"
        ));
    }
    if stats.ra_ops == 0 && stats.ra_refused_bytes == 0 {
        return Some(format!(
            "everything that {policy} wanted to read ahead was already cached, or is beyond the end of the file"
        ));
    }
    if part(stats.ra_refused_bytes, stats.ra_planned_bytes) > NEARLY_ALL {
        return Some(
            "readahead requests are refused, because too little memory or too few requests are available; allow a larger cache"
                .to_string(),
        );
    }
    if part(stats.ra_failed_bytes, stats.ra_bytes) > NEARLY_ALL {
        return Some(
            "nearly all readahead requests fail in the source; check the source".to_string(),
        );
    }
    if thrashes(stats) {
        let remedy =
            "allow a larger cache, or use smaller readahead windows, such as linux-6.18:max=64K";
        return Some(format!(
            "data read ahead is evicted before it is used; {remedy}"
        ));
    }
    None
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

/// Whether readahead runs for one stream of reads, and the reason for this state. The reasons are fixed texts without numbers, so that
/// streams can be grouped by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadaheadState {
    /// Whether it has read ahead for this stream.
    pub on: bool,
    /// The reason.
    pub why: &'static str,
}

/// Whether readahead runs for one open file description, and why, as derived from its counters.
#[must_use]
pub fn readahead_state(policy: &str, stats: &Stats) -> ReadaheadState {
    let most = |of: u64, whole: u64| whole > 0 && of as f64 / whole as f64 > NEARLY_ALL;
    let off = |why| ReadaheadState { on: false, why };
    if policy == "none" {
        return off("the policy is none");
    }
    if stats.ra_planned_ops == 0 && stats.ra_ops == 0 {
        return match stats.demand_reads {
            0 => off("nothing was read yet"),
            reads if most(stats.hits, reads) => off("its reads are cached"),
            reads if reads < MIN_READS => off("too few reads to tell"),
            _ => off("no sequential reads were seen, or a hint says that reads are random"),
        };
    }
    if most(stats.ra_refused_bytes, stats.ra_planned_bytes) {
        return off(
            "readahead is refused, because too little memory or too few requests were available",
        );
    }
    if stats.ra_ops == 0 {
        return off("the bytes to read ahead were already cached");
    }
    if most(stats.ra_failed_bytes, stats.ra_bytes) {
        return off("readahead requests fail in the source");
    }
    let why = if most(stats.unused_bytes, stats.ra_bytes) {
        "running, but unused"
    } else {
        "running"
    };
    ReadaheadState { on: true, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `stats` with some of its counters changed.
    fn but(mut stats: Stats, change: impl FnOnce(&mut Stats)) -> Stats {
        change(&mut stats);
        stats
    }

    #[test]
    fn each_cause_is_distinguished() {
        let reads = Stats::of(|s| {
            s.demand_reads = 1000;
            s.misses = 1000;
        });
        let why = |stats: Stats| why_no_readahead("linux-6.18", &stats).unwrap_or_default();
        assert!(why(reads).starts_with("linux-6.18 found no sequential reads among 1000"));
        let planned = but(reads, |s| {
            s.ra_planned_ops = 10;
            s.ra_planned_bytes = 1000;
        });
        assert!(why(planned).starts_with("everything that linux-6.18 wanted to read ahead was"));
        assert!(
            why(but(planned, |s| s.ra_refused_bytes = 990))
                .starts_with("readahead requests are refused")
        );
        let ran = but(planned, |s| {
            s.ra_ops = 10;
            s.ra_bytes = 1000;
        });
        assert!(
            why(but(ran, |s| s.ra_failed_bytes = 1000))
                .starts_with("nearly all readahead requests fail")
        );
        assert!(why(but(ran, |s| s.thrash_bytes = 600)).starts_with("data read ahead is evicted"));
        let ran = but(ran, |s| s.ra_bytes = 10_000);
        let evicted = but(ran, |s| {
            s.unused_bytes = 6_000;
            s.demand_bytes = 4_000;
        });
        assert!(
            why(but(evicted, |s| s.thrash_bytes = 2_001)).starts_with("data read ahead is evicted")
        );
        assert_eq!(
            why(but(evicted, |s| s.thrash_bytes = 1_999)),
            "",
            "guessed wrong, and had room"
        );
        assert_eq!(
            why(but(evicted, |s| {
                s.thrash_bytes = 2_001;
                s.used_bytes = 6_000;
                s.unused_bytes = 4_000;
            })),
            "",
            "mostly used"
        );
        assert_eq!(why(but(ran, |s| s.used_bytes = 1000)), "");
        assert_eq!(
            why(but(reads, |s| s.demand_reads = MIN_READS - 1)),
            "",
            "too few to tell"
        );
        assert_eq!(
            why(but(reads, |s| {
                s.hits = 1000;
                s.misses = 0;
            })),
            "",
            "not needed"
        );
        assert_eq!(
            why(but(reads, |s| {
                s.hits = 990;
                s.misses = 10;
                s.ra_ops = 10;
                s.ra_bytes = 1000;
            })),
            "",
            "read ahead in the order of a listing"
        );
    }

    #[test]
    fn each_state_of_a_stream_has_its_words() {
        let state = |stats: Stats| {
            let state = readahead_state("linux-6.18", &stats);
            (state.on, state.why)
        };
        let reads = Stats::of(|s| {
            s.demand_reads = 1000;
            s.misses = 1000;
        });
        let planned = but(reads, |s| {
            s.ra_planned_ops = 10;
            s.ra_planned_bytes = 1000;
        });
        let ran = but(planned, |s| {
            s.ra_ops = 10;
            s.ra_bytes = 1000;
        });
        let all = [
            state(Stats::default()),
            state(but(reads, |s| s.demand_reads = 9)),
            state(but(reads, |s| s.hits = 1000)),
            state(reads),
            state(but(planned, |s| s.ra_refused_bytes = 1000)),
            state(planned),
            state(but(ran, |s| s.ra_failed_bytes = 1000)),
            state(but(ran, |s| s.unused_bytes = 1000)),
            state(ran),
        ];
        let words: std::collections::BTreeSet<&str> = all.iter().map(|(_, why)| *why).collect();
        assert_eq!(words.len(), all.len(), "{all:?}");
        assert_eq!(all.iter().filter(|(on, _)| *on).count(), 2);
        assert!(!readahead_state("none", &ran).on);
        let listed = but(reads, |s| {
            s.ra_ops = 10;
            s.ra_bytes = 1000;
        });
        assert_eq!(state(listed), (true, "running"));
    }
}
