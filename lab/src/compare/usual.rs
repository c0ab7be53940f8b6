//! The policies that a comparison uses if the user names none.
//!
//! For a model, and for a source over a network, the list also contains the kernel's policy with larger windows.

use super::ComparePlan;
use super::targets::Description;
use foreread_core::policy::{DEFAULT, PolicyDraft, PolicySpec};

/// The policies compared by default: foreread's default policy, and what users have without foreread (no readahead, the kernel's readahead
/// or librbd's). `--policy all` adds the historical policies. On a device model, the table also has a row for the oracle (perfect
/// foresight), which shows what is possible at best.
pub const USUAL_POLICIES: [&str; 4] = ["none", DEFAULT, "linux-6.18", "rbd-plain"];
/// The kernel's policy with windows that are larger than its default window. These policies are added to [`USUAL_POLICIES`] on a device
/// model and on a source over a network: a store with 20 ms latency and 100 MB/s on each of many connections needs megabytes in flight.
/// The policies in this list are not tried on the scratch file, because its 30 seconds are not enough for them.
pub const WIDE_POLICIES: [&str; 2] = ["linux-6.18:max=4M", "linux-6.18:max=64M"];

/// The larger windows to try if the user named no policy.
pub(super) fn wide(plan: &ComparePlan, place: &Description) -> Vec<PolicyDraft> {
    let wanted = plan.policies.is_empty() && place.is_wide;
    let own = plan.site.policy.as_ref().map(ToString::to_string);
    WIDE_POLICIES
        .iter()
        .filter(|name| wanted && own.as_deref() != Some(**name))
        .filter_map(|name| PolicyDraft::parse(name).ok())
        .collect()
}

/// The policies of a plan, with `none` first if it is missing. A plan that names none gets the usual ones and the
/// policy that is set for this machine.
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
