//! An administrator's settings for all sources: the largest and smallest readahead, optionally by capacity of the source.
//!
//! If the `max` or `min` of a policy is not set, these settings provide it. Of the following values, the first that is set applies:
//!
//! ```text
//!   the policy's text ──► first row of `by_capacity` that is large enough ──► `max`, `min` ──► device ──► kind of storage
//! ```
//!
//! Example: rows `up_to 2 GiB: max 128K` and `up_to 32 GiB: max 512K`, and `max 1M`. A USB stick of 1 GiB gets 128 KiB, a disk of 1 TiB
//! gets 1 MiB, and `linux-6.18:max=64K` keeps its 64 KiB on both. The value `capacity` means that the size is computed from the capacity
//! of the source, by the formula of [Wu 2010b] ([`foreread_core::policy::capacity::Cap`]).
//!
//! A policy without the keys `max` and `min`, or given as a value instead of a text, is not changed.

use foreread_core::policy::{Param, PolicyDraft, SpecError, Unit};
use foreread_core::units::parse_size;

/// One layer of readahead settings, for example those of one configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readahead {
    /// The largest readahead.
    pub max: Option<Largest>,
    /// The smallest readahead, in bytes.
    pub min: Option<u64>,
    /// Settings by capacity. The first row whose `up_to` is at least the capacity of the source applies. No row applies to a source
    /// of unknown capacity.
    pub by_capacity: Vec<ByCapacity>,
}

/// Readahead settings for sources of up to a given size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByCapacity {
    /// The largest capacity that this row applies to.
    pub up_to: u64,
    /// The largest readahead.
    pub max: Option<Largest>,
    /// The smallest readahead, in bytes.
    pub min: Option<u64>,
}

/// A maximum readahead: a size (`512K`), a size that depends on the source's capacity (`capacity`), or the smaller of both
/// (`512K+capacity`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    text: String,
    /// The size, without `capacity`.
    bytes: Option<u64>,
}

impl Largest {
    /// Parses a maximum readahead.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid `max` of a `linux-*` policy.
    pub fn parse(text: &str) -> Result<Largest, SpecError> {
        PolicyDraft::parse(&format!("linux-6.18:max={text}"))?;
        let size = text.split_once('+').map_or(text, |(size, _)| size);
        Ok(Largest {
            text: text.to_string(),
            bytes: parse_size(size).ok(),
        })
    }

    /// The value for this parameter: a policy that does not know `capacity` gets only the size.
    fn for_param(&self, param: &Param) -> Option<String> {
        match param.unit {
            Unit::Capped => Some(self.text.clone()),
            _ => self.bytes.map(|bytes| bytes.to_string()),
        }
    }
}

impl Readahead {
    /// Applies layers of settings to the policy; earlier layers take precedence.
    ///
    /// # Errors
    /// Returns an error if a value is invalid for the policy.
    pub fn apply(
        layers: &[Readahead],
        draft: PolicyDraft,
        capacity: Option<u64>,
    ) -> Result<PolicyDraft, SpecError> {
        layers
            .iter()
            .try_fold(draft, |draft, layer| layer.settings(draft, capacity))
    }

    fn settings(
        &self,
        draft: PolicyDraft,
        capacity: Option<u64>,
    ) -> Result<PolicyDraft, SpecError> {
        let row = capacity.and_then(|bytes| self.by_capacity.iter().find(|row| bytes <= row.up_to));
        let max = row.and_then(|row| row.max.as_ref()).or(self.max.as_ref());
        let min = row.and_then(|row| row.min).or(self.min);
        let param = |key: &str| draft.info.params.iter().find(|param| param.key == key);
        let max = max
            .zip(param("max"))
            .and_then(|(max, param)| max.for_param(param));
        let draft = max.map_or(Ok(draft.clone()), |text| draft.with_setting("max", &text))?;
        min.map_or(Ok(draft.clone()), |bytes| {
            draft.with_setting("min", &bytes.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(text: &str) -> Option<Largest> {
        Some(Largest::parse(text).expect(text))
    }

    /// The text of the policy and its values by name, for a source of this capacity.
    fn applied(layers: &[Readahead], policy: &str, capacity: Option<u64>) -> (String, Vec<u64>) {
        let draft = foreread_history::parse(policy).expect(policy);
        let draft = Readahead::apply(layers, draft, capacity).expect("it fits");
        let text = draft.to_string();
        (text, draft.ready(capacity).expect("a capacity").values)
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_policy_takes_missing_values_from_settings() {
        let row = |up_to, max: &str| ByCapacity {
            up_to,
            max: largest(max),
            min: None,
        };
        let by_capacity = vec![row(2048 * MIB, "128K"), row(32 << 30, "512K")];
        let site = [Readahead {
            max: largest("1M"),
            min: Some(64 << 10),
            by_capacity,
        }];
        let max = |policy: &str, capacity| applied(&site, policy, capacity).1[0];
        assert_eq!(max("linux-6.18", Some(1024 * MIB)), 128 << 10);
        assert_eq!(
            max("linux-6.18", Some(2048 * MIB)),
            128 << 10,
            "up to and with"
        );
        assert_eq!(max("linux-6.18", Some(2048 * MIB + 1)), 512 << 10);
        assert_eq!(
            (max("linux-6.18", Some(1 << 40)), max("linux-6.18", None)),
            (MIB, MIB)
        );
        assert_eq!(max("linux-6.18:max=64K", Some(1 << 40)), 64 << 10);
        assert_eq!(
            applied(&site, "linux-thrashsafe", None),
            (
                "linux-thrashsafe:max=1M,min=65536".to_string(),
                vec![MIB, 64 << 10]
            )
        );
        assert_eq!(
            applied(&site, "rbd-plain:trigger=3", None).0,
            "rbd-plain:trigger=3,max=1048576,min=65536"
        );
        assert_eq!(applied(&site, "none", None).0, "none");
    }

    #[test]
    fn the_first_layer_wins_and_capacity_is_a_size() {
        let upper = Readahead {
            max: largest("256K"),
            ..Readahead::default()
        };
        let rows = vec![ByCapacity {
            up_to: u64::MAX,
            max: largest("64K"),
            min: Some(8192),
        }];
        let lower = Readahead {
            max: None,
            min: None,
            by_capacity: rows,
        };
        let both = [upper, lower];
        assert_eq!(
            applied(&both, "linux-thrashsafe", Some(MIB)).1,
            [256 << 10, 8192]
        );
        let capped = [Readahead {
            max: largest("512K+capacity"),
            ..Readahead::default()
        }];
        let of = |policy: &str, capacity| applied(&capped, policy, Some(capacity)).1;
        // [Wu 2010b]: 16 KiB for 32 MiB, 128 KiB for 2 GiB.
        assert_eq!(
            (of("linux-6.18", 32 * MIB)[0], of("linux-6.18", 2 << 30)[0]),
            (16 << 10, 128 << 10)
        );
        assert_eq!(
            of("linux-6.18", 1 << 40)[0],
            512 << 10,
            "it only ever lowers"
        );
        assert_eq!(
            applied(&capped, "rbd-plain", Some(MIB)).0,
            "rbd-plain:max=524288",
            "librbd knows no capacity"
        );
        assert_eq!(
            applied(&capped, "linux-6.18:max=capacity", Some(MIB)).0,
            "linux-6.18:max=capacity"
        );
        for wrong in ["", "x", "128K+size", "2T"] {
            assert!(Largest::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Values given as values are not changed.
    #[test]
    fn values_stay() {
        let spec = foreread_core::policy::PolicySpec::parse("linux-6.18").expect("one");
        let site = [Readahead {
            max: largest("1M"),
            ..Readahead::default()
        }];
        let same = Readahead::apply(&site, spec.clone().into(), None)
            .expect("it fits")
            .ready(None)
            .expect("known");
        assert_eq!(same.values, spec.values);
    }
}
