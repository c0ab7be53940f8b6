//! Which policies are as fast as the one that is advised, and which the runs do not tell apart from it.
//!
//! ```text
//!   ratio of the times, 95 %     0.95  1.00  1.05
//!   equal                         |    [-|-]   |              as fast, within 5 %
//!   not told apart             [--|------|-----|-----------]  no test finds a difference, and they may be far apart
//!   different                     |      |     |  [----]      what the advice is of
//! ```
//! Example: `auto` takes 0.143, 0.859 and 0.285 s and another policy 0.105 s. No test finds a difference in three such runs, and
//! `auto` is not as fast: the advice names both, and how many runs to try.

use super::{Choice, LowestRow, SourceTables, list};
use crate::report::row::{Relation, more_runs};
use crate::report::verdict::WORTH_SAYING;
use crate::report::{Row, RowKind};
use foreread_report::number;
use foreread_sim::stats::EQUIVALENCE_MARGIN;

impl SourceTables<'_> {
    /// What holds of two policies in all tables together.
    fn relation(&self, one: &str, other: &str) -> Option<Relation> {
        let each = self.reports.iter().map(|r| r.relation(one, other));
        let each: Vec<Relation> = each.collect::<Option<_>>()?;
        Some(if each.contains(&Relation::Different) {
            Relation::Different
        } else if each.contains(&Relation::NotToldApart) {
            Relation::NotToldApart
        } else {
            Relation::Equivalent
        })
    }

    /// The policies that are in this relation to the choice, other programs' rows among them, but not the kernel's.
    fn related(&self, choice: &Choice<'_>, relation: Relation) -> Vec<String> {
        let is_named = |row: &&Row| !matches!(row.kind, RowKind::NoReadahead | RowKind::Kernel);
        let others = self.reports[0].rows.iter().filter(is_named);
        others
            .map(|row| &row.policy)
            .filter(|p| self.relation(choice.policy, p) == Some(relation))
            .cloned()
            .collect()
    }

    /// The policies that may be as good as the choice, in brackets.
    pub(super) fn others_beside(&self, choice: &Choice<'_>) -> String {
        let mut said = Vec::new();
        let equal = self.related(choice, Relation::Equivalent);
        if !equal.is_empty() {
            said.push(format!("as fast, within {}: {}", margin(), list(equal)));
        }
        let open = self.related(choice, Relation::NotToldApart);
        if !open.is_empty() {
            let (runs, more) = self.runs();
            said.push(format!(
                "not told apart by {runs}, try --runs {more}: {}",
                list(open)
            ));
        }
        if said.is_empty() {
            return String::new();
        }
        format!(" ({})", said.join("; "))
    }

    /// Why there is nothing to choose where no test finds a difference from none.
    pub(super) fn nothing_beside_none(&self) -> String {
        let open = self.lowest(|report, row| {
            let none = report.none();
            none.is_some_and(|none| {
                report.relation(&none.policy, &row.policy) == Some(Relation::NotToldApart)
            })
        });
        let Some(LowestRow { row, ratio, .. }) = open else {
            return format!("every policy takes its time, within {}", margin());
        };
        let (runs, more) = self.runs();
        format!(
            "{runs} do not tell every policy apart from it ({} took {} of its time), more may, with --runs {more}",
            row.policy,
            number::times(ratio)
        )
    }

    /// How many runs there are, in words, and how many may show more.
    fn runs(&self) -> (String, u32) {
        let runs = self.reports.iter().map(|r| r.runs).min().unwrap_or(0);
        (number::plural(runs.into(), "run"), more_runs(runs))
    }

    /// The kernel's own readahead gains as much as the choice.
    pub(super) fn kernel_does_as_well(&self, choice: &Choice<'_>) -> bool {
        choice.score <= -WORTH_SAYING
            && self.reports[0].kernel().is_some_and(|row| {
                self.relation(choice.policy, &row.policy) == Some(Relation::Equivalent)
            })
    }

    /// The row of a policy that the runs do not tell apart from the kernel's own readahead, with its time beside that one's.
    pub(super) fn undecided_beside_kernel(&self, policy: &str) -> Option<LowestRow<'_>> {
        let open = self.reports.iter().filter_map(|report| {
            let (row, kernel) = (report.row(policy)?, report.kernel()?);
            let relation = report.relation(&kernel.policy, policy)?;
            let ratio = row.judged()?.mean / kernel.judged()?.mean;
            (relation == Relation::NotToldApart).then_some(LowestRow { report, row, ratio })
        });
        open.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// Beside the kernel's own readahead the policy gains nothing, or the runs do not show whether it does.
    pub(super) fn no_faster_than_kernel(&self, policy: &str) -> String {
        if let Some(LowestRow { report, ratio, .. }) = self.undecided_beside_kernel(policy) {
            let (runs, more) = self.runs();
            return format!(
                "Not decided on {}: {runs} do not tell {policy} and the kernel's own readahead apart for {} ({policy} took {} of its \
                 time); measure again with --runs {more}.",
                self.source,
                report.workload,
                number::times(ratio)
            );
        }
        let workloads = list(self.reports.iter().map(|r| r.workload.clone()).collect());
        format!(
            "Nothing to change on {}: the kernel's own readahead is as fast as {policy} or faster for {workloads}.",
            self.source
        )
    }

    /// The kernel's own readahead needs no change. A policy that reads fewer bytes is named.
    pub(super) fn kernel_is_enough(&self, choice: &Choice<'_>) -> String {
        let mut equal = self.related(choice, Relation::Equivalent);
        equal.insert(0, choice.policy.to_string());
        let are = if equal.len() == 1 { "is" } else { "are" };
        format!(
            "Nothing to change on {}: the kernel's own readahead is as fast as any policy measured, within {}; {} {are} as fast, \
             and {} reads {} times the bytes asked for.",
            self.source,
            margin(),
            list(equal),
            choice.policy,
            number::three(choice.overfetch)
        )
    }
}

/// `5 %`.
fn margin() -> String {
    format!("{:.0} %", EQUIVALENCE_MARGIN * 100.0)
}

#[cfg(test)]
mod tests {
    use crate::report::samples::{runs, table};
    use crate::report::{Report, advise, row::Relation};

    const FAST_S: [f64; 3] = [0.104, 0.106, 0.105];

    fn report(auto: [f64; 3]) -> Report {
        let rows = [
            ("none", [1.0, 1.1, 0.9]),
            ("linux-6.18:max=4M", FAST_S),
            ("auto", auto),
        ];
        let rows = rows.map(|(name, times)| runs(name, &times, 0, 0, 4_096_000));
        Report::of(&table("w", "model:s", rows.to_vec()))
    }

    /// 0.429 s against 0.105 s: the spread hides the difference, and hides no equality.
    #[test]
    fn no_significant_difference_is_no_equality() {
        let wide = report([0.143, 0.859, 0.285]);
        let relation = wide.relation("auto", "linux-6.18:max=4M");
        assert_eq!(relation, Some(Relation::NotToldApart));
        let text = advise(&[wide]);
        assert!(
            text.starts_with(
                "Use linux-6.18:max=4M (not told apart by 3 runs, try --runs 6: auto) on model:s: it makes w 9.52 times as fast"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_narrow_interval_is_equality_or_a_difference() {
        let equal = advise(&[report([0.105, 0.106, 0.104])]);
        assert!(
            equal.starts_with(
                "Nothing to set on model:s: auto, the default, is within 5 % of the best"
            ),
            "{equal}"
        );
        let tenth = report(FAST_S.map(|s| s * 1.1));
        let relation = tenth.relation("linux-6.18:max=4M", "auto");
        assert_eq!(relation, Some(Relation::Different));
        let text = advise(&[tenth]);
        assert!(
            text.starts_with("Use linux-6.18:max=4M on model:s: it makes"),
            "{text}"
        );
    }

    /// Where the runs show no difference, no policy is called "no faster".
    #[test]
    fn what_is_not_told_apart_from_the_kernel_is_not_called_no_faster() {
        let of = |kernel: [f64; 3]| {
            let rows = [
                ("none", [1.0, 1.1, 0.9]),
                ("rbd-plain", [0.078, 0.079, 0.077]),
                ("kernel", kernel),
            ];
            let rows = rows.map(|(name, times)| runs(name, &times, 0, 0, 4_096_000));
            advise(&[Report::of(&table("w", "file:x", rows.to_vec()))])
        };
        let start = "Not decided on file:x: 3 runs do not tell rbd-plain and the kernel's own readahead apart for w (rbd-plain took x0.52 of \
            its time); measure again with --runs 6.";
        let text = of([0.1, 0.25, 0.1]);
        assert!(text.starts_with(start), "{text}");
        let text = of([0.058, 0.059, 0.057]);
        let start = "Nothing to change on file:x: the kernel's own readahead is as fast as rbd-plain or faster for w.";
        assert!(text.starts_with(start), "{text}");
    }

    /// Equal runs have no spread: the ratio decides, and no number of runs would tell more.
    #[test]
    fn a_deterministic_model_is_never_left_open() {
        let of = |auto: f64| {
            let rows = [("none", 1.0), ("linux-6.18:max=4M", 0.5), ("auto", auto)];
            let rows = rows.map(|(name, time)| runs(name, &[time; 3], 0, 0, 4_096_000));
            advise(&[Report::of(&table("w", "model:s", rows.to_vec()))])
        };
        assert!(of(0.52).starts_with("Nothing to set on model:s"));
        assert!(of(0.53).starts_with("Use linux-6.18:max=4M on model:s"));
    }
}
