//! Decides whether one of our figures agrees with the published figure. Defines the kinds of figures, the target of a figure (how closely
//! it must agree), and the score of all figures of a kind.
//!
//! ```text
//!   blind      a rule or a model that does not use the paper's figures
//!   left-out   a model fitted to other rows of the same table; this row was left out of the fit
//!   formula    our model is the published formula or rule: only our mistakes could differ
//!   order      which of two is larger, or that neither is; the ratio is also shown
//! ```
//! Only figures of these four kinds can pass or fail. The scores of different kinds are never added up, because
//! agreement with a published formula does not show that a model predicts well.
//!
//! A figure to which a model or a workload was fitted never counts as a check, because that would be circular.

use super::Row;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A check. Neither the model nor the workload was fitted to any figure of the paper, or chosen by one.
    Blind,
    /// A check. The model was fitted to other rows of the same table, or its form was chosen with knowledge of the
    /// table.
    LeftOut,
    /// A check. The model is the published formula, or figures of the paper follow from each other.
    Formula,
    /// A check of which of two figures is larger, or whether they agree where the paper states no difference.
    Order,
    /// A model or a workload was fitted to it.
    Fit,
    Input,
    /// There is no target, or the figure is not explained; the reason says which.
    Shown,
}

impl FigureKind {
    /// All kinds of figures; the kinds that are hardest to predict come first.
    pub const ALL: [FigureKind; 7] = [
        FigureKind::Blind,
        FigureKind::LeftOut,
        FigureKind::Formula,
        FigureKind::Order,
        FigureKind::Fit,
        FigureKind::Input,
        FigureKind::Shown,
    ];

    /// Returns the name of the kind in JSON, and its description in the score.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            FigureKind::Blind => ["blind", "predicted blind"],
            FigureKind::LeftOut => ["left-out", "predicted by a fit to other rows"],
            FigureKind::Formula => ["formula", "the model is the published formula"],
            FigureKind::Order => ["order", "which of two is larger"],
            FigureKind::Fit => ["fit", "fitted to the figure"],
            FigureKind::Input => ["input", "put in as published"],
            FigureKind::Shown => ["shown", "shown, no verdict"],
        }
    }

    /// Returns whether rows of this kind are checks, that is, can pass or fail.
    pub fn is_check(self) -> bool {
        !matches!(
            self,
            FigureKind::Fit | FigureKind::Input | FigureKind::Shown
        )
    }
}

/// The condition under which a row holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// Always holds: there is no target.
    None,
    /// The ratio is off by at most this fraction: `0.06` is 6 % in either direction.
    Within(f64),
    /// Our figure has the printed digits.
    Digits,
    /// A ratio that expresses an effect is off by at most this fraction of the effect. `Within` is too weak near 1:
    /// with 15 %, "no effect" would pass for an effect of 5 %. Effects are compared as logarithms, so that twice and
    /// half are effects of the same size.
    Effect(f64),
    /// Our ratio is on the published side of 1, or above 1 if no ratio was published.
    Side,
    Below(f64),
    /// Our ratio differs from 1 by at most this fraction.
    Same(f64),
    /// The two figures of the ratio differ by at most this much: their published margins, which overlap.
    Overlap(f64),
}

impl Target {
    /// Parses the column `holds`: nothing, `0.06`, `digits`, `effect 0.5`, `side`, `below 1.01`, `same 0.05` or
    /// `overlap 0.66`.
    pub(super) fn parse(text: &str) -> Option<Target> {
        let (word, number) = text.split_once(' ').unwrap_or((text, ""));
        let number = number.parse().ok();
        match word {
            "" => Some(Target::None),
            "digits" => Some(Target::Digits),
            "side" => Some(Target::Side),
            "effect" => number.map(Target::Effect),
            "below" => number.map(Target::Below),
            "same" => number.map(Target::Same),
            "overlap" => number.map(Target::Overlap),
            part => part.parse().ok().map(Target::Within),
        }
    }

    /// Whether our figure agrees with the printed one. `apart` is the difference between the two figures of a ratio.
    pub(super) fn is_met(self, printed: &str, ours: Option<f64>, apart: Option<f64>) -> bool {
        let published: Option<f64> = printed.parse().ok();
        let Some(ours) = ours else {
            return self == Target::None;
        };
        match self {
            Target::None => true,
            Target::Within(part) => published.is_some_and(|p| (ours - p).abs() <= part * p.abs()),
            Target::Digits => {
                let decimals = printed.split_once('.').map_or(0, |(_, rest)| rest.len());
                format!("{ours:.decimals$}") == printed
            }
            Target::Effect(part) => {
                effect_error(published, Some(ours)).is_some_and(|off| off <= part)
            }
            Target::Side => match published {
                Some(published) if published < 1.0 => ours < 1.0,
                _ => ours > 1.0,
            },
            Target::Below(most) => ours < most,
            Target::Same(part) => (ours - 1.0).abs() <= part,
            Target::Overlap(margins) => apart.is_some_and(|apart| apart.abs() <= margins),
        }
    }
}

/// The error of our figure as a fraction of the published effect: 0 is the same ratio, 1 is no effect at all. `None`
/// without a published effect.
fn effect_error(published: Option<f64>, ours: Option<f64>) -> Option<f64> {
    let (published, ours) = (published?.ln(), ours?.ln());
    Some((ours - published).abs() / published.abs()).filter(|off| off.is_finite())
}

/// The score of the rows of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    pub kind: FigureKind,
    pub rows: usize,
    /// Number of rows that hold.
    pub ok: usize,
    /// Missed checks, and fits that are off.
    pub missed: usize,
    /// The median of the errors `ours / published - 1` without their signs; the lower of the middle two. Null if no row
    /// has an error.
    pub median_error: Option<f64>,
    pub worst_error: Option<f64>,
    /// The row with the largest error.
    pub worst: Option<String>,
    /// For an order: the number of rows with a published effect, that is, a ratio other than 1.
    pub effects: usize,
    /// How many of these show between half of the effect and one and a half times it.
    pub effects_within_half: usize,
}

/// One score for each kind that has rows, in the order of [`FigureKind::ALL`].
pub(super) fn score<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Vec<Score> {
    let one = |kind| {
        let all: Vec<&Row> = rows.clone().filter(|row| row.kind == kind).collect();
        let mut errors: Vec<(f64, &Row)> = all
            .iter()
            .filter_map(|row| Some(((row.ratio? - 1.0).abs(), *row)))
            .collect();
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ok = all.iter().filter(|row| row.ok).count();
        // "of times, overlap": the paper states no difference, so there is no effect.
        let has_effect = |row: &&&Row| kind == FigureKind::Order && !row.column.contains(',');
        let effects: Vec<f64> = all
            .iter()
            .filter(has_effect)
            .filter_map(|row| effect_error(row.published, row.ours))
            .collect();
        Score {
            kind,
            rows: all.len(),
            ok,
            missed: all.len() - ok,
            median_error: errors.get(errors.len().saturating_sub(1) / 2).map(|e| e.0),
            worst_error: errors.last().map(|e| e.0),
            worst: errors.last().map(|e| e.1.id.clone()),
            effects: effects.len(),
            effects_within_half: effects.iter().filter(|off| **off <= 0.5).count(),
        }
    };
    let scores = FigureKind::ALL.into_iter().map(one);
    scores.filter(|score| score.rows > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn holds(target: &str, printed: &str, ours: f64) -> bool {
        let target = Target::parse(target).expect("a target");
        target.is_met(printed, Some(ours), Some(ours - 1.0))
    }

    #[test]
    fn each_target_has_an_edge() {
        for (target, printed, met, missed) in [
            ("0.06", "100", 94.0, 93.9),
            ("0", "128", 128.0, 128.1),
            ("digits", "29.6", 29.622, 29.66),
            ("digits", "407", 407.4, 407.6),
            ("side", "1.3", 1.01, 0.99),
            ("side", "0.7", 0.99, 1.01),
            ("side", "", 1.01, 1.0),
            ("below 1.01", "", 1.009, 1.01),
            ("same 0.05", "", 0.96, 0.94),
            ("overlap 0.25", "", 1.25, 1.26),
            // A tolerance of 15 % of the ratio would accept no effect at all for an effect of 5 %.
            ("effect 0.5", "0.946", 0.97, 0.997),
            ("effect 0.5", "2.0", 1.5, 1.3),
        ] {
            assert!(holds(target, printed, met), "{target} of {printed}: {met}");
            let is_met = holds(target, printed, missed);
            assert!(!is_met, "{target} of {printed}: {missed}");
        }
        assert!(!holds("effect 0.5", "1.0", 1.0), "no effect was published");
        assert_eq!(["effect", "nearly"].map(Target::parse), [None, None]);
        assert!(!Target::Side.is_met("1.3", None, None));
    }
}
