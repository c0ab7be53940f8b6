//! The policies that `tune` compares, and for each policy what the user has to do to use it: turn readahead off, change a setting of the
//! kernel, or use foreread.
//!
//! Example: `linux-6.18:max=2M` is the kernel's readahead with `read_ahead_kb` at 2048, so the user can set it in `/sys`. The policy
//! `linux-6.18:max=2M,folios=on` has the same maximum, but large folios cannot be set in the kernel, so foreread has to run this policy.

use foreread_core::policy::{DEFAULT, PolicyDraft};

/// Kernel maxima that are tried besides today's and the plateau of a probe: from below the default up to the widest windows
/// in use.
const MAXIMA: [u64; 5] = [32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20];

/// Policies of foreread that are tried, each with the window by which it is ranked.
const OURS: [(&str, u64); 4] = [
    // It sets its own windows: preferred among equally good policies.
    (DEFAULT, 1),
    ("rbd-plain", 512 << 10), // librbd's usual maximum
    ("rbd-plain:trigger=2,max=2M", 2 << 20),
    ("linux-6.18:max=2M,folios=on", 2 << 20),
];

/// What the user has to do to get a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Turn readahead off.
    NoReadahead,
    /// Set this maximum in the kernel.
    Kernel { max_bytes: u64 },
    /// Run this policy by foreread; with its largest window.
    Ours { window_bytes: u64 },
}

impl Choice {
    /// The window by which equally good candidates are ranked: the smallest is taken.
    pub(super) fn window_bytes(self) -> u64 {
        match self {
            Choice::NoReadahead => 0,
            Choice::Kernel { max_bytes } => max_bytes,
            Choice::Ours { window_bytes } => window_bytes,
        }
    }
}

/// A policy to compare.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) policy: PolicyDraft,
    pub(super) choice: Choice,
}

impl Candidate {
    fn new(policy: &str, choice: Choice) -> Candidate {
        let policy = PolicyDraft::parse(policy)
            .unwrap_or_else(|error| unreachable!("{policy} is a policy: {error}"));
        Candidate { policy, choice }
    }

    fn kernel(max_bytes: u64) -> Candidate {
        Candidate::new(&kernel(max_bytes), Choice::Kernel { max_bytes })
    }
}

/// The kernel's policy with this maximum.
pub(super) fn kernel(max_bytes: u64) -> String {
    format!(
        "linux-6.18:max={}",
        foreread_report::number::exact_size(max_bytes)
    )
}

/// The candidates: no readahead, today's setting, the kernel with other maxima and with those in `also`, and
/// foreread's policies.
pub(super) fn all(today: u64, also: &[u64]) -> Vec<Candidate> {
    let mut maxima: Vec<u64> = MAXIMA
        .into_iter()
        .chain(also.iter().copied())
        .chain([today])
        .filter(|max| *max > 0)
        .collect();
    maxima.sort_unstable();
    maxima.dedup();
    let none = Candidate::new("none", Choice::NoReadahead);
    let ours = OURS.map(|(name, window_bytes)| Candidate::new(name, Choice::Ours { window_bytes }));
    let off = (today == 0).then(|| Candidate::kernel(0));
    [none]
        .into_iter()
        .chain(maxima.into_iter().map(Candidate::kernel))
        .chain(ours)
        .chain(off)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_a_policy_and_occurs_once() {
        for (today, also) in [
            (128 << 10, &[][..]),
            (4 << 20, &[1 << 20, 0]),
            (0, &[128 << 10]),
        ] {
            let all = all(today, also);
            let names: Vec<String> = all
                .iter()
                .map(|candidate| candidate.policy.to_string())
                .collect();
            let mut distinct = names.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), names.len());
            assert!(
                names.contains(&kernel(today)) && names[0] == "none",
                "{names:?}"
            );
            assert!(
                OURS.iter()
                    .all(|(name, _)| names.contains(&(*name).to_string())),
                "{names:?}"
            );
            let kernels = all
                .iter()
                .filter(|candidate| matches!(candidate.choice, Choice::Kernel { .. }))
                .count();
            assert_eq!(
                kernels,
                all.len() - 1 - OURS.len(),
                "large folios are no setting of the kernel"
            );
        }
    }
}
