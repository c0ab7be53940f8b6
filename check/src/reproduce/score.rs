//! The score of a reproduction: one line for each kind of row, with the median and the worst error.
//!
//! ```text
//!   kind       rows    ok  missed   median    worst
//!   blind        11     5       6   21.0 %   61.0 %
//!   order        52    50       2    4.1 %   46.0 %     the errors of the ratios behind the orders
//! ```
//!
//! Kinds are never added up: a formula that is met says nothing of a prediction. An order without a published size has
//! no error; [`Score::sized`] says how many rows have one.

use super::{FigureKind, Row};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub kind: FigureKind,
    pub rows: usize,
    /// How many of them are within their bounds. Input and shown rows mostly have none.
    pub ok: usize,
    /// Checks that were missed, and fits that are off.
    pub missed: usize,
    /// How many have an error.
    pub sized: usize,
    /// The middle of the errors without their signs; the lower of the middle two. Null where no row has one.
    pub median_error: Option<f64>,
    /// The largest of them. Null where no row has one.
    pub worst_error: Option<f64>,
    /// The row of the worst error. Null where no row has one.
    pub worst: Option<String>,
    /// Of an order: how many rows have a published effect, a ratio that is not 1.
    #[serde(default)]
    pub effects: usize,
    /// How many of these show half of it or more, and no more than one and a half times it.
    #[serde(default)]
    pub effects_within_half: usize,
}

impl Score {
    /// What an order's verdict does not say: how much of the published effects is there. None for other kinds.
    #[must_use]
    pub(crate) fn effects_shown(&self) -> Option<String> {
        let Score {
            effects,
            effects_within_half,
            ..
        } = self;
        (*effects > 0).then(|| {
            format!(
                "{effects_within_half} of {effects} published effects within half of their size"
            )
        })
    }
}

/// One for each kind of which there are rows, in the order of [`FigureKind::ALL`].
#[must_use]
pub fn of<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Vec<Score> {
    let one = |kind: FigureKind| {
        let all: Vec<&Row> = rows.clone().filter(|row| row.kind == kind).collect();
        let mut errors: Vec<(f64, &Row)> = all
            .iter()
            .filter_map(|row| Some((row.error?.abs(), *row)))
            .collect();
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ok = all.iter().filter(|row| row.ok).count();
        // "of times, overlap": the post calls no difference, so there is no effect.
        let is_effect = |row: &&&Row| {
            kind == FigureKind::Order
                && row.column.starts_with(super::ORDER)
                && !row.column.contains(',')
        };
        let effects: Vec<f64> = all
            .iter()
            .filter(is_effect)
            .filter_map(|row| row.effect_error())
            .collect();
        Score {
            kind,
            rows: all.len(),
            ok,
            missed: all.len() - ok,
            sized: errors.len(),
            median_error: errors.get(errors.len().saturating_sub(1) / 2).map(|e| e.0),
            worst_error: errors.last().map(|e| e.0),
            worst: errors.last().map(|e| e.1.id.clone()),
            effects: effects.len(),
            effects_within_half: effects.iter().filter(|off| **off <= 0.5).count(),
        }
    };
    FigureKind::ALL
        .into_iter()
        .map(one)
        .filter(|score| score.rows > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_errors() {
        let row = |ours: f64| Row::new("a", "b", Some(10.0), Some(ours));
        let rows = [
            row(11.0).within(FigureKind::Blind, 0.2),
            row(14.0).within(FigureKind::Blind, 0.2),
            row(9.5).within(FigureKind::Blind, 0.2),
            Row::new("a", "of c", None, Some(1.5)).ordered(),
            Row::new("a", "of d", Some(2.0), Some(1.1)).ordered(),
        ];
        let [blind, order] = &of(rows.iter())[..] else {
            panic!("two kinds")
        };
        assert_eq!(
            (blind.kind, blind.rows, blind.ok, blind.missed, blind.sized),
            (FigureKind::Blind, 3, 2, 1, 3)
        );
        assert!((blind.median_error.expect("errors") - 0.1).abs() < 1e-9);
        assert!((blind.worst_error.expect("errors") - 0.4).abs() < 1e-9);
        // The order without a size counts as a row and has no error; the other's is that of its ratio.
        assert_eq!((order.rows, order.ok, order.sized), (2, 2, 1));
        assert!((order.worst_error.expect("an error") - 0.45).abs() < 1e-9);
        // 1.1 is on the right side of 1 and 14 % of the effect: an order that is met, and no effect.
        assert_eq!(
            (order.effects, order.effects_within_half, blind.effects),
            (1, 0, 0)
        );
        assert_eq!(
            order.effects_shown().as_deref(),
            Some("0 of 1 published effects within half of their size")
        );
    }
}
