//! The kinds of rows in a comparison, such as a policy, the kernel or the oracle. The kind is set when the row is
//! created, and is stored in the report, so that it is never derived from the row's name.
//!
//! | kind | example | compared with the others | counters of foreread |
//! |---|---|---|---|
//! | `no_readahead` | `none` | every other row is | yes |
//! | `policy` | `linux-6.18:max=1M` | yes | yes |
//! | `imitation` | `mountpoint-s3` | yes, never advised | yes |
//! | `kernel` | `kernel` | yes, never advised | no |
//! | `librbd` | `librbd` | yes, never advised | only planned readahead |
//! | `oracle` | `oracle` | no: a limit | yes |

use foreread_core::policy::PolicySpec;
use serde::{Deserialize, Serialize};

/// The kind of a row of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// The policy `none`, with which every other row is compared.
    NoReadahead,
    /// A policy of foreread that reads ahead.
    #[default]
    Policy,
    /// The kernel's page cache served the reads.
    Kernel,
    /// librbd itself served the reads.
    Librbd,
    /// The best schedule found with perfect foresight: a limit, not a choice.
    Oracle,
}

impl RowKind {
    /// Returns the kind of the table row that shows this policy.
    #[must_use]
    pub fn of(policy: &PolicySpec) -> RowKind {
        if policy.info.name == foreread_core::policy::none::INFO.name {
            RowKind::NoReadahead
        } else {
            RowKind::Policy
        }
    }

    /// Returns whether the row only shows a limit, like the oracle's row, and is left out of tests and advice.
    #[must_use]
    pub fn is_limit(self) -> bool {
        self == RowKind::Oracle
    }

    /// Returns whether another program (the kernel or librbd) served the reads, so that foreread's counters do not exist.
    #[must_use]
    pub fn is_external(self) -> bool {
        matches!(self, RowKind::Kernel | RowKind::Librbd)
    }

    /// Returns whether the row is a policy that reads ahead and can be recommended.
    #[must_use]
    pub fn is_choice(self) -> bool {
        self == RowKind::Policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_knows_its_kind_by_its_info() {
        let kind = |text: &str| {
            RowKind::of(
                &foreread_history::parse(text)
                    .expect(text)
                    .ready(None)
                    .expect(text),
            )
        };
        assert_eq!(kind("none"), RowKind::NoReadahead);
        assert_eq!(
            (kind("linux-6.18:max=1M"), kind("rbd-plain")),
            (RowKind::Policy, RowKind::Policy)
        );
        let json = serde_json::to_string(&[RowKind::NoReadahead, RowKind::Librbd]).expect("JSON");
        assert_eq!(json, r#"["no_readahead","librbd"]"#);
    }
}
