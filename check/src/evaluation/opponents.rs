//! Which policies are compared with, and how a name becomes a policy.
//!
//! `BASELINE` are the settings that a user of foreread could choose between before `auto`, and the imitation that wins most often: what
//! the baseline is of. `EIGHT` are
//! four of them and four that adapt, see there. `all` is every published policy at its default and at each of four maxima, the
//! three of [`OPPONENTS`].
//!
//! A policy whose value depends on the capacity of the device gets the capacity of the model.

use foreread_core::policy::{PolicySpec, SpecError};
use foreread_history::{OPPONENTS, parse, policies};

/// Opponents of the baseline: settings, and an imitation.
pub(crate) const BASELINE: [&str; 13] = [
    "none",
    "linux-2.6.0",
    "linux-2.6.23",
    "linux-3.12",
    "linux-6.18",
    "linux-6.18:max=512K",
    "linux-6.18:max=4M",
    "linux-6.18:max=64M",
    "rbd-plain",
    "rbd-aligned",
    "rbd-eager",
    "rbd-plain:max=512K",
    "peer-mountpoint-s3",
];

/// Opponents of the fractional design. `none` and three maxima of `linux-6.18` are fastest in 54 of its 111 cells, the imitation of
/// mountpoint-s3 in 37 (`candidates_by_cells_won`, seed 1, of 13 candidates). AMP and the read stream win few cells and are here as
/// policies that adapt; `zfetch`, which wins none, shows what its rule for growth costs. Left out: `linux-6.18:max=512K` (8 cells,
/// between two that are here), `rbd-plain` (3).
pub(crate) const EIGHT: [&str; 8] = [
    "none",
    "linux-6.18",
    "linux-6.18:max=4M",
    "linux-6.18:max=64M",
    "amp",
    "zfetch",
    "read-stream",
    "peer-mountpoint-s3",
];

/// Opponents of the validation: the settings that people use, those that adapt, and the imitation that wins most often.
pub const VALIDATION: [&str; 12] = [
    "none",
    "linux-2.6.23",
    "linux-3.12",
    "linux-6.18",
    "linux-6.18:max=512K",
    "linux-6.18:max=4M",
    "linux-6.18:max=64M",
    "rbd-plain",
    "amp",
    "zfetch",
    "read-stream",
    "peer-mountpoint-s3",
];

/// Maxima that every published policy with a `max` is also run at.
const MAXIMA: [&str; 4] = ["128K", "512K", "4M", "64M"];

/// Every published policy at its default and at [`MAXIMA`], and the opponents.
#[must_use]
pub fn all() -> Vec<String> {
    let mut names = Vec::new();
    for info in policies()
        .iter()
        .filter(|info| info.name != super::verdict::JUDGED)
    {
        names.push(info.name.to_string());
        if info.params.iter().any(|p| p.key == "max") {
            names.extend(MAXIMA.map(|max| format!("{}:max={max}", info.name)));
        }
    }
    names.extend(OPPONENTS.iter().map(|info| info.name.to_string()));
    names
}

/// What a policy has learned before a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// The other recording of the same program.
    Again,
    /// A recording of another program.
    Other,
}

/// A policy without what says that it is judged in a second session: `auto@again`, `auto@other`.
pub(crate) fn session(policy: &str) -> (&str, Option<Earlier>) {
    match policy.split_once('@') {
        Some((policy, "again")) => (policy, Some(Earlier::Again)),
        Some((policy, "other")) => (policy, Some(Earlier::Other)),
        _ => (policy, None),
    }
}

/// The policy of this name on a device of `capacity` bytes.
///
/// # Errors
/// Those of [`parse`].
pub fn build(name: &str, capacity: u64) -> Result<PolicySpec, SpecError> {
    parse(name)?.ready(Some(capacity))
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Figures, Key, measure};
    use super::*;

    #[test]
    fn every_opponent_can_be_built() {
        let names = all();
        let listed = BASELINE
            .iter()
            .chain(&EIGHT)
            .chain(&VALIDATION)
            .map(|n| (*n).to_string())
            .chain(names.clone());
        for name in listed {
            assert!(build(&name, 1 << 40).is_ok(), "{name}");
        }
        assert!(
            names.len() > 30 && names.iter().any(|n| n == "linux-6.18:max=64M"),
            "{names:?}"
        );
        assert!(
            EIGHT.iter().all(|name| names.iter().any(|n| n == name)),
            "the full design has them all"
        );
    }

    /// In how many cells of the fractional design each candidate is the fastest, and in how many by more than 5 %: of all, and of
    /// those with an overfetch of at most 1.25. Why [`EIGHT`] are these.
    /// `cargo test --release -p foreread-lab --lib -- --ignored candidates --nocapture`
    #[test]
    #[ignore = "minutes"]
    fn candidates_by_cells_won() {
        let mut candidates: Vec<&str> = EIGHT.to_vec();
        let rest = [
            "linux-6.18:max=512K",
            "rbd-plain",
            "rbd-eager",
            "linux-2.6.0",
        ];
        candidates.extend(rest);
        let mut won = vec![[0; 4]; candidates.len()];
        for cell in super::super::Design::Fractional.cells() {
            let run = |policy: &&str| {
                let key = Key {
                    cell: cell.clone(),
                    policy: (*policy).to_string(),
                    seed: 1,
                };
                measure(&key).expect("valid").expect("a run")
            };
            let runs: Vec<Figures> = candidates.iter().map(run).collect();
            for (column, most) in [(0, f64::MAX), (2, 1.25)] {
                let mut order: Vec<usize> = (0..runs.len()).collect();
                order.retain(|n| runs[*n].overfetch.unwrap_or(1.0) <= most);
                order.sort_by(|a, b| runs[*a].time_s.total_cmp(&runs[*b].time_s));
                let Some(&best) = order.first() else { continue };
                won[best][column] += 1;
                let clear = order
                    .get(1)
                    .is_none_or(|second| runs[*second].time_s > runs[best].time_s * 1.05);
                won[best][column + 1] += i32::from(clear);
            }
        }
        for (name, [all, clear, lean, lean_clear]) in candidates.iter().zip(won) {
            println!(
                "{name}: {all} cells, {clear} of them by 5 %; within an overfetch of 1.25 {lean}, {lean_clear}"
            );
        }
    }
}
