//! The opponents, that is, the policies with which a judged policy is compared; also creates a policy from its name.
//!
//! `BASELINE` contains the settings that users of foreread had before the policy `auto` existed. `BASELINE` also contains one policy that
//! imitates another program's readahead: the one that wins most often. `SEVEN` contains four settings of `BASELINE`, its imitation of
//! another program, and two adaptive policies.
//!
//! If a parameter of a policy depends on the capacity of the device, the capacity of the device model is used.

use foreread_core::policy::{PolicySpec, SpecError};
use foreread_history::parse;

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

/// Opponents in the cells of `fractional`. `none` and three maxima of `linux-6.18` are fastest in 54 of its 111 cells,
/// the imitation of mountpoint-s3 in 37 (seed 1, 13 candidates). AMP and the read stream win few cells and are included
/// as adaptive policies. Left out: `linux-6.18:max=512K` (8 cells; it is between two included settings), `rbd-plain` (3), and
/// the prefetcher of ZFS, which won none.
pub(crate) const SEVEN: [&str; 7] = [
    "none",
    "linux-6.18",
    "linux-6.18:max=4M",
    "linux-6.18:max=64M",
    "amp",
    "read-stream",
    "peer-mountpoint-s3",
];

/// Opponents in the cells of `validation`: the usual settings, the adaptive policies and, of the policies that imitate another program's
/// readahead, the one that wins most often.
pub const VALIDATION: [&str; 11] = [
    "none",
    "linux-2.6.23",
    "linux-3.12",
    "linux-6.18",
    "linux-6.18:max=512K",
    "linux-6.18:max=4M",
    "linux-6.18:max=64M",
    "rbd-plain",
    "amp",
    "read-stream",
    "peer-mountpoint-s3",
];

/// Creates the policy with this name for a device of `capacity` bytes.
pub fn build(name: &str, capacity: u64) -> Result<PolicySpec, SpecError> {
    parse(name)?.ready(Some(capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opponent_can_be_built() {
        for name in BASELINE.iter().chain(&SEVEN).chain(&VALIDATION) {
            assert!(build(name, 1 << 40).is_ok(), "{name}");
        }
    }
}
