//! What a series comes to, in one sentence before its table: the policy that is fastest, or may be, at every value, or
//! which one is at which.
//!
//! Example: `auto is fastest, tied for it, or not told apart from it at all 3 values of streams.`, or `By cache: linux-6.18 at 64M;
//! rbd-plain at 1M (fastest, tied for it, or not told apart from it).`

use super::{Report, Series};

/// What else a marked row may be.
const MAY_BE: &str = ", tied for it, or not told apart from it";

impl Series {
    /// The sentence. Readahead that is as good as none is none: `none` is named before a policy that only ties with it.
    pub(in crate::report) fn verdict(&self) -> String {
        if self.tests() == 0 {
            return format!(
                "No verdict by {}: one run of each cannot separate a gain from noise.",
                self.vary.key
            );
        }
        // By column: with a parameter of the policy varied, its name in a report carries the value, `linux-6.18:max=32K`.
        let best = |column: usize| -> Vec<String> {
            let named = |report: &Report| {
                report
                    .rows
                    .get(column)
                    .is_some_and(|row| report.best.contains(&row.policy))
            };
            let at = self.reports.iter().zip(self.vary.labels());
            at.filter(|(report, _)| named(report))
                .map(|(_, label)| label)
                .collect()
        };
        let all = self.reports.len();
        let ranked: Vec<(&String, Vec<String>)> = self
            .policies
            .iter()
            .enumerate()
            .map(|(column, policy)| (policy, best(column)))
            .collect();
        if let Some((policy, _)) = ranked.iter().find(|(_, at)| at.len() == all) {
            let values = if all == 1 {
                "the value".to_string()
            } else {
                format!("all {all} values")
            };
            return format!(
                "{policy} is fastest{MAY_BE} at {values} of {}.",
                self.vary.key
            );
        }
        let parts = ranked
            .iter()
            .filter(|(_, at)| !at.is_empty())
            .map(|(policy, at)| format!("{policy} at {}", at.join(", ")));
        let parts = parts.collect::<Vec<_>>().join("; ");
        format!("By {}: {parts} (fastest{MAY_BE}).", self.vary.key)
    }
}
