//! [Crume 2014]: Adam Crume, ceph-devel, 2014, RBD readahead strategies.
//!
//! Never: a figure of another publication.

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct PublishedRow {
    /// Mean seconds.
    pub time_s: f64,
    /// "the margin of error with 99.7% confidence".
    pub margin_s: f64,
    /// "RA ops".
    pub ra_ops: f64,
    /// "RA MB".
    pub ra_mb: f64,
}

/// A workload and its four lines, in the order of [`STRATEGIES`].
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name, as ours.
    pub name: &'static str,
    /// "read ops".
    pub reads: u64,
    /// "read MB".
    pub mb: u64,
    /// none, plain, aligned, eager.
    pub lines: [PublishedRow; 4],
}

/// The strategies, and the policies that they are here.
pub const STRATEGIES: [(&str, &str); 4] = [
    ("none", "none"),
    ("plain", "rbd-plain"),
    ("aligned", "rbd-aligned"),
    ("eager", "rbd-eager"),
];

/// How many standard errors a margin holds: 99.7 % is the rule of three sigma (inference; n is not stated).
pub const SIGMAS: f64 = 3.0;

const fn line(time_s: f64, margin_s: f64, ra_ops: f64, ra_mb: f64) -> PublishedRow {
    PublishedRow {
        time_s,
        margin_s,
        ra_ops,
        ra_mb,
    }
}

/// The whole table.
pub const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "boot-ide",
        reads: 57_516,
        mb: 407,
        lines: [
            line(46.22, 0.41, 0.0, 0.0),
            line(11.42, 0.25, 281.0, 203.0),
            line(11.46, 0.13, 276.0, 201.0),
            line(12.48, 0.61, 111.0, 303.0),
        ],
    },
    Workload {
        name: "boot-virtio",
        reads: 11_851,
        mb: 393,
        lines: [
            line(9.05, 0.25, 0.0, 0.0),
            line(8.05, 0.38, 451.0, 221.0),
            line(7.86, 0.27, 452.0, 213.0),
            line(9.17, 0.34, 249.0, 600.0),
        ],
    },
    Workload {
        name: "grep-ide",
        reads: 130_104,
        mb: 3044,
        lines: [
            line(138.55, 1.67, 0.0, 0.0),
            line(136.07, 1.57, 397.0, 867.0),
            line(137.30, 1.77, 379.0, 844.0),
            line(138.77, 1.52, 346.0, 993.0),
        ],
    },
    Workload {
        name: "grep-virtio",
        reads: 130_061,
        mb: 2820,
        lines: [
            line(120.73, 1.33, 0.0, 0.0),
            line(121.29, 1.28, 1186.0, 1485.0),
            line(123.32, 1.29, 1139.0, 1409.0),
            line(127.75, 1.32, 842.0, 2218.0),
        ],
    },
];

/// "10 sequential requests trigger readahead".
pub const TRIGGER: u64 = 10;
/// "the maximum readahead size is 4 MB", "the object size is the default 4 MB".
pub const MAX_BYTES: u64 = 4 << 20;
/// "it issues 50,000 sequential, single-sector reads", of boot-ide.
pub(crate) const SINGLE_SECTORS: u64 = 50_000;

/// Two strategies on one workload.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Of which workload, by its place in [`WORKLOADS`].
    pub workload: usize,
    /// The strategy with the smaller mean, by its place in [`STRATEGIES`].
    pub faster: usize,
    /// The other one.
    pub slower: usize,
    /// Whether the post calls them different: their margins leave a gap. So it calls "no statistically significant" what
    /// overlaps: the greps without readahead and with `plain` or `aligned`, and `aligned` beside `plain`.
    pub called: bool,
}

/// All 24 pairs, workload by workload.
#[must_use]
pub fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (workload, of) in WORKLOADS.iter().enumerate() {
        for i in 0..STRATEGIES.len() {
            for j in i + 1..STRATEGIES.len() {
                let (faster, slower) = if of.lines[i].time_s < of.lines[j].time_s {
                    (i, j)
                } else {
                    (j, i)
                };
                let [fast, slow] = [faster, slower].map(|at| of.lines[at]);
                let called = slow.time_s - fast.time_s > slow.margin_s + fast.margin_s;
                pairs.push(Pair {
                    workload,
                    faster,
                    slower,
                    called,
                });
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the post says of its table in words.
    #[test]
    fn margins_that_overlap_are_what_the_post_does_not_call() {
        let pairs = pairs();
        let called = |workload: &str, one: &str, other: &str| {
            let names = |at: usize| STRATEGIES[at].0;
            let of = |p: &&Pair| {
                WORKLOADS[p.workload].name == workload
                    && [[one, other], [other, one]].contains(&[names(p.faster), names(p.slower)])
            };
            pairs.iter().find(of).expect("a pair").called
        };
        assert_eq!(
            (pairs.len(), pairs.iter().filter(|p| p.called).count()),
            (24, 12)
        );
        assert!(
            called("boot-ide", "none", "plain") && called("boot-virtio", "none", "plain"),
            "boots gain"
        );
        for workload in ["grep-ide", "grep-virtio"] {
            assert!(
                !called(workload, "none", "plain") && !called(workload, "none", "aligned"),
                "greps do not"
            );
        }
        assert!(
            WORKLOADS
                .iter()
                .all(|w| !called(w.name, "aligned", "plain")),
            "aligned is as plain"
        );
    }
}
