//! The policies of a plan that names none.
//!
//! On a model, and on a source over a network, larger windows of the kernel are tried too. Never: measures.

use super::ComparePlan;
use super::targets::Description;
use foreread_core::policy::{DEFAULT, PolicyDraft, PolicySpec};

/// The default, and what people choose between today: nothing, the kernel's, librbd's. `--policy all` has the history too. On a model
/// the oracle comes below them, as a limit.
pub const USUAL_POLICIES: [&str; 4] = ["none", DEFAULT, "linux-6.18", "rbd-plain"];
/// Larger windows of the kernel, tried beside [`USUAL_POLICIES`] on a model and on a source over a network: a store with a
/// round trip of 20 ms and 100 MB/s for each of many connections wants megabytes in flight. On the scratch file they
/// would take time that the 30 seconds do not have.
pub const WIDE_POLICIES: [&str; 2] = ["linux-6.18:max=4M", "linux-6.18:max=64M"];

/// The larger windows that are tried too, where no policy was named.
pub(super) fn wide(plan: &ComparePlan, place: &Description) -> Vec<PolicyDraft> {
    let wanted = plan.policies.is_empty() && place.is_wide;
    let own = plan.site.policy.as_ref().map(ToString::to_string);
    WIDE_POLICIES
        .iter()
        .filter(|name| wanted && own.as_deref() != Some(**name))
        .filter_map(|name| PolicyDraft::parse(name).ok())
        .collect()
}

/// The policies of a plan, `none` first where it is missing. A plan that names none has the one that is set for this
/// machine beside the usual ones.
pub(super) fn chosen(plan: &ComparePlan) -> Vec<PolicyDraft> {
    let usual = || {
        USUAL_POLICIES
            .iter()
            .filter_map(|name| PolicyDraft::parse(name).ok())
            .collect()
    };
    let mut named: Vec<PolicyDraft> = if plan.policies.is_empty() {
        usual()
    } else {
        plan.policies.clone()
    };
    if plan.policies.is_empty()
        && let Some(own) = plan
            .site
            .policy
            .as_ref()
            .filter(|own| named.iter().all(|p| p.to_string() != own.to_string()))
    {
        named.push(own.clone());
    }
    let has_none = plan.alone || named.iter().any(|p| p.info.name == "none");
    let none = (!has_none).then(|| PolicySpec::none().into());
    none.into_iter().chain(named).collect()
}
