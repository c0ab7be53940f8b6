//! Which policies are compared with, and how a name becomes a policy.
//!
//! `TWELVE` are the settings that a user of foreread could choose between before `auto`: what the baseline is of. `EIGHT` are
//! those of them that are best in some cell of the fractional design, and the two peers with a prefetcher that adapts. `all`
//! adds every published policy at its default and at each of four maxima, and every imitation.
//!
//! A policy whose value depends on the capacity of the device gets the capacity of the model.

use crate::peer;
use foreread_core::policy::{self, Info, PolicyDraft, PolicySpec, SpecError};

/// Settings of the baseline.
pub const TWELVE: [&str; 12] = [
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
];

/// Opponents of the fractional design.
pub const EIGHT: [&str; 8] = [
    "none",
    "linux-6.18",
    "linux-6.18:max=512K",
    "linux-6.18:max=4M",
    "linux-6.18:max=64M",
    "rbd-plain",
    "peer-mountpoint-s3",
    "peer-fsspec-adaptive",
];

/// Maxima that every published policy with a `max` is also run at.
const MAXIMA: [&str; 4] = ["128K", "512K", "4M", "64M"];

/// Every published policy at its default and at [`MAXIMA`], and every imitation.
#[must_use]
pub fn all() -> Vec<String> {
    let mut names = Vec::new();
    for info in policy::ALL.iter().filter(|info| info.name != super::verdict::JUDGED) {
        names.push(info.name.to_string());
        if info.params.iter().any(|p| p.key == "max") {
            names.extend(MAXIMA.map(|max| format!("{}:max={max}", info.name)));
        }
    }
    names.extend(peer::ALL.iter().map(|info: &&Info| info.name.to_string()));
    names
}

/// The policy of this name on a device of `capacity` bytes.
///
/// # Errors
/// Those of [`PolicyDraft::parse_among`].
pub fn build(name: &str, capacity: u64) -> Result<PolicySpec, SpecError> {
    let lists: [&[&Info]; 3] = [policy::ALL, peer::ALL, &[&policy::auto::AUTO]];
    PolicyDraft::parse_among(name, &lists)?.ready(Some(capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opponent_can_be_built() {
        let names = all();
        let listed = TWELVE.iter().chain(&EIGHT).map(|n| (*n).to_string()).chain(names.clone());
        for name in listed {
            assert!(build(&name, 1 << 40).is_ok(), "{name}");
        }
        assert!(names.len() > 30 && names.iter().any(|n| n == "linux-6.18:max=64M"), "{names:?}");
    }
}
