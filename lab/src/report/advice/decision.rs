//! What the advice comes to, for what is done next: take a policy, measure more, or change nothing.

use super::{DEFAULT, SourceTables, UNSETTLED};
use crate::report::row::{Report, Row, more_runs};
use crate::report::verdict::WORTH_SAYING;

/// What follows from the tables of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// This policy gains.
    Take(&'a str),
    /// The runs do not show whether anything gains; this many of them may.
    MoreRuns(u32),
    /// What is there today is as good.
    Nothing,
}

/// The same that [`super::advise`] says in words.
#[must_use]
pub fn decide(reports: &[Report]) -> Decision<'_> {
    let Some(first) = reports.first() else {
        return Decision::Nothing;
    };
    let source = &first.place();
    let place = SourceTables { reports, source };
    let runs = reports.iter().map(|report| report.runs).min();
    let more = Decision::MoreRuns(more_runs(runs.unwrap_or(0)));
    let mut pairs = reports.iter().flat_map(|r| &r.comparisons).peekable();
    if pairs.peek().is_some() && pairs.all(|c| c.p_value.is_none()) {
        return more;
    }
    let Some(choice) = place.choose() else {
        return Decision::Nothing;
    };
    if place.kernel_does_as_well(&choice) {
        return Decision::Nothing;
    }
    let best = place.best_of_each();
    let policy = match place.default_is_enough(&best) {
        Some(_) => reports[0].row(DEFAULT).map(|row| row.policy.as_str()),
        None => reports[0].row(choice.policy).map(|row| row.policy.as_str()),
    };
    let Some(policy) = policy.filter(|policy| !place.gains(policy).0.is_empty()) else {
        let unsettled = |row: &&Row| row.kind.is_choice() && row.ratio_to_none < Some(UNSETTLED);
        let mut rows = reports.iter().flat_map(|report| &report.rows);
        let is_open = place.undecided_beside_kernel(choice.policy).is_some()
            || choice.score > -WORTH_SAYING && rows.any(|row| unsettled(&row));
        return if is_open { more } else { Decision::Nothing };
    };
    Decision::Take(policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::{boot, runs, table};

    #[test]
    fn it_is_what_the_advice_says() {
        let of = |rows: &[(&str, [f64; 3])]| {
            let rows = rows
                .iter()
                .map(|(name, times)| runs(name, times, 0, 0, 4_096_000));
            vec![Report::of(&table("w", "file:x", rows.collect()))]
        };
        let (none, slow) = (("none", [8.0, 8.1, 7.9]), ("kernel", [3.88, 3.90, 3.86]));
        let auto = ("auto", [0.248, 0.250, 0.246]);
        assert_eq!(decide(&of(&[none, auto, slow])), Decision::Take("auto"));
        let same = ("kernel", [0.249, 0.250, 0.247]);
        assert_eq!(decide(&of(&[none, auto, same])), Decision::Nothing);
        let wide = ("kernel", [0.2, 1.6, 0.4]);
        assert_eq!(decide(&of(&[none, auto, wide])), Decision::MoreRuns(6));
        assert_eq!(decide(&[Report::of(&boot())]), Decision::Take("rbd-plain"));
        let mut once = boot();
        once.policies.iter_mut().for_each(|p| p.runs.truncate(1));
        once.runs = 1;
        assert_eq!(decide(&[Report::of(&once)]), Decision::MoreRuns(5));
        assert_eq!(decide(&[]), Decision::Nothing);
    }
}
