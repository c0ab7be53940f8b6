//! What the tables of one source come to. It is concluded in one place; [`super::advise`] says it in words, and [`decide`] says what is done
//! next: take a policy, measure more, or change nothing.

use super::{Choice, LowestRow, SourceTables, UNSETTLED, change};
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

/// What is concluded, each with the policy that the second sentence is of.
pub(super) enum Conclusion<'a> {
    /// One run of each.
    Untested,
    /// No policy is beside none in every table.
    NoRow,
    /// The default is within 5 % of the best.
    Default(Choice<'a>),
    /// Workloads have different best policies.
    Each(EachBest<'a>),
    /// Tests call differences, and none is a gain.
    OnlyLosses(Choice<'a>),
    /// A policy took far less time than none, and no test calls it so.
    Unsettled(OpenRow<'a>),
    /// Nothing gains over no readahead.
    Off(Choice<'a>),
    /// The kernel's own readahead gains as much.
    Kernel(Choice<'a>),
    /// The policy is not faster than the kernel's own readahead, or that is open.
    NoFaster(Choice<'a>),
    /// The policy gains.
    Gain(Choice<'a>),
}

/// The one policy for all workloads, and the best of each.
pub(super) struct EachBest<'a> {
    pub(super) choice: Choice<'a>,
    pub(super) best: Vec<Option<&'a Row>>,
}

/// The row that more runs may call a gain.
pub(super) struct OpenRow<'a> {
    pub(super) choice: Choice<'a>,
    pub(super) lowest: LowestRow<'a>,
}

impl<'a> Conclusion<'a> {
    /// The policy that warnings begin with; nothing where none was chosen.
    pub(super) fn choice(&self) -> Option<&Choice<'a>> {
        match self {
            Conclusion::Untested | Conclusion::NoRow => None,
            Conclusion::Each(each) => Some(&each.choice),
            Conclusion::Unsettled(open) => Some(&open.choice),
            Conclusion::Default(choice)
            | Conclusion::OnlyLosses(choice)
            | Conclusion::Off(choice)
            | Conclusion::Kernel(choice)
            | Conclusion::NoFaster(choice)
            | Conclusion::Gain(choice) => Some(choice),
        }
    }
}

impl<'a> SourceTables<'a> {
    pub(super) fn conclusion(&self) -> Conclusion<'a> {
        let mut pairs = self.reports.iter().flat_map(|r| &r.comparisons).peekable();
        if pairs.peek().is_some() && pairs.all(|c| c.p_value.is_none()) {
            return Conclusion::Untested;
        }
        let Some(choice) = self.choose() else {
            return Conclusion::NoRow;
        };
        let best = self.best_of_each();
        let default = self.default_is_enough(&best);
        if let Some(default) = default.filter(|default| !self.kernel_does_as_well(default)) {
            return match self.default_is_no_faster() {
                true => Conclusion::NoFaster(default),
                false => Conclusion::Default(default),
            };
        }
        if self.reports.len() > 1 && !self.serves_all(&choice, &best) {
            return Conclusion::Each(EachBest { choice, best });
        }
        if choice.score > -WORTH_SAYING {
            return self.nothing_gains(choice);
        }
        if self.kernel_does_as_well(&choice) {
            return Conclusion::Kernel(choice);
        }
        match self.gains(choice.policy).0.is_empty() {
            true => Conclusion::NoFaster(choice),
            false => Conclusion::Gain(choice),
        }
    }

    /// No policy gains over none.
    fn nothing_gains(&self, choice: Choice<'a>) -> Conclusion<'a> {
        let mut rows = self.reports.iter().flat_map(|r| &r.rows);
        if rows.any(|row| row.kind.is_choice() && change(row) != 1.0) {
            return Conclusion::OnlyLosses(choice);
        }
        let lowest = self.lowest(|_, row| row.kind.is_choice());
        match lowest.filter(|lowest| lowest.ratio < UNSETTLED) {
            Some(lowest) => Conclusion::Unsettled(OpenRow { choice, lowest }),
            None => Conclusion::Off(choice),
        }
    }

    fn decision(&self, conclusion: &Conclusion<'a>) -> Decision<'a> {
        let runs = self.reports.iter().map(|report| report.runs).min();
        let more = Decision::MoreRuns(more_runs(runs.unwrap_or(0)));
        let gaining = |policy: &'a str| match self.gains(policy).0.is_empty() {
            true => Decision::Nothing,
            false => Decision::Take(policy),
        };
        match conclusion {
            Conclusion::Untested | Conclusion::Unsettled(_) => more,
            Conclusion::NoRow
            | Conclusion::OnlyLosses(_)
            | Conclusion::Off(_)
            | Conclusion::Kernel(_) => Decision::Nothing,
            Conclusion::Each(each)
                if each.choice.score > -WORTH_SAYING || self.kernel_does_as_well(&each.choice) =>
            {
                Decision::Nothing
            }
            Conclusion::Each(EachBest { choice, .. })
            | Conclusion::Default(choice)
            | Conclusion::Gain(choice) => gaining(choice.policy),
            Conclusion::NoFaster(choice) => {
                match self.undecided_beside_kernel(choice.policy).is_some() {
                    true => more,
                    false => Decision::Nothing,
                }
            }
        }
    }
}

/// The same that [`super::advise`] says in words.
#[must_use]
pub fn decide(reports: &[Report]) -> Decision<'_> {
    let Some(first) = reports.first() else {
        return Decision::Nothing;
    };
    let source = first.source.clone();
    let place = SourceTables { reports, source };
    place.decision(&place.conclusion())
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
