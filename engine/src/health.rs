//! Explains why readahead is not running, because readahead that silently does nothing is a common fault.
//!
//! The module uses only counters, so it works wherever the counters come from. If there were too few reads, no explanation is given.

use foreread_core::stats::Stats;

/// Minimum number of reads for a diagnosis.
pub const MIN_READS: u64 = 100;
/// The fraction of reads, or of bytes, that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;

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
    let is_cached = nearly_all(stats.hits, stats.demand_reads) && stats.ra_ops == 0;
    if stats.demand_reads < MIN_READS || is_cached {
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
    if nearly_all(stats.ra_refused_bytes, stats.ra_planned_bytes) {
        return Some(
            "readahead requests are refused, because too little memory or too few requests are available; allow a larger cache"
                .to_string(),
        );
    }
    if nearly_all(stats.ra_failed_bytes, stats.ra_bytes) {
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
    let off = |why| ReadaheadState { on: false, why };
    if policy == "none" {
        return off("the policy is none");
    }
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
            "readahead is refused, because too little memory or too few requests were available",
        );
    }
    if stats.ra_ops == 0 {
        return off("the bytes to read ahead were already cached");
    }
    if nearly_all(stats.ra_failed_bytes, stats.ra_bytes) {
        return off("readahead requests fail in the source");
    }
    let why = if nearly_all(stats.unused_bytes, stats.ra_bytes) {
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
        let rows = [
            (Stats::default(), "", "nothing was read yet"),
            (few, "", "too few reads to tell"),
            (cached, "", "its reads are cached"),
            (
                reads,
                "linux-6.18 found no sequential reads among 1000",
                "no sequential reads",
            ),
            (
                planned,
                "everything that linux-6.18 wanted to read ahead was",
                "the bytes to read",
            ),
            (
                refused,
                "readahead requests are refused",
                "readahead is refused",
            ),
            (
                failed,
                "nearly all readahead requests fail",
                "readahead requests fail",
            ),
            (unused, "", "running, but unused"),
            (evicted, "data read ahead is evicted", "running"),
            (
                thrash(6_000, 2_001),
                "data read ahead is evicted",
                "running",
            ),
            (thrash(6_000, 1_999), "", "running"),
            (thrash(4_000, 2_001), "", "running"),
            (ran, "", "running"),
            (listed, "", "running"),
            (of_listing, "", "running"),
        ];
        for (stats, why, state) in rows {
            let told = why_no_readahead("linux-6.18", &stats).unwrap_or_default();
            assert!(
                told.starts_with(why) && told.is_empty() == why.is_empty(),
                "{told}"
            );
            let told = readahead_state("linux-6.18", &stats);
            assert!(told.why.starts_with(state), "{told:?}");
            assert_eq!(told.on, state.starts_with("running"), "{told:?}");
            assert!(!readahead_state("none", &stats).on);
        }
    }
}
