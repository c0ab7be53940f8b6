//! Whether nothing has to be set: the default policy `auto` is equal to the best that was measured, within 5 %.
//!
//! Example: on `model:object-near` the fastest policy reads `sequential` in 0.33 s and `auto` in 0.34 s, and for `random` no
//! policy gains. `auto` is within 5 % in both tables: the advice is to set nothing.

use super::{Choice, SourceTables, as_good, list};
use crate::report::Row;
use foreread_core::policy::DEFAULT;
use foreread_sim::stats::EQUIVALENCE_MARGIN;

impl<'a> SourceTables<'a> {
    /// The default policy, where it is within 5 % of the best one in every table.
    pub(super) fn default_is_enough(&self, best: &[Option<&Row>]) -> Option<Choice<'a>> {
        let enough = self.reports.iter().zip(best).all(|(report, best)| {
            let Some(row) = report.row(DEFAULT) else {
                return false;
            };
            match best {
                Some(best) => as_good(report, best, row),
                None => report.none().is_some_and(|none| as_good(report, none, row)),
            }
        });
        if enough { self.choice(DEFAULT) } else { None }
    }

    /// The default gains nothing beside the kernel's own readahead, and loses, or the runs do not show whether it gains.
    pub(super) fn default_is_no_faster(&self) -> bool {
        let (gains, others) = self.gains(DEFAULT);
        let has_kernel = self.reports.iter().all(|report| report.kernel().is_some());
        let loses = || others.iter().any(|other| other.ratio > 1.0);
        let is_open = || self.undecided_beside_kernel(DEFAULT).is_some();
        has_kernel && gains.is_empty() && (loses() || is_open())
    }

    /// The advice that follows from it.
    pub(super) fn nothing_to_set(&self) -> String {
        let (gains, others) = self.gains(DEFAULT);
        let has_kernel = self.reports.iter().all(|report| report.kernel().is_some());
        let has_gain = !gains.is_empty();
        let level = others
            .into_iter()
            .filter(|other| other.ratio <= 1.0 || !has_kernel);
        let level: Vec<String> = level.map(|other| other.workload).collect();
        let percent = EQUIVALENCE_MARGIN * 100.0;
        let gain = match (has_gain, level.is_empty()) {
            (false, _) => format!("it makes no difference for {}", list(level)),
            (true, true) => format!("it makes {}", list(gains)),
            (true, false) => format!(
                "it makes {}, and no difference for {}",
                list(gains),
                list(level)
            ),
        };
        let what = if has_kernel && has_gain {
            format!("Read {} through foreread, and set nothing", self.source)
        } else {
            format!("Nothing to set on {}", self.source)
        };
        format!(
            "{what}: {DEFAULT}, the default, is within {percent:.0} % of the best policy measured; {gain}."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use crate::report::Report;
    use crate::report::samples::{boot, runs, table};

    fn with_auto(times: &[f64]) -> crate::report::Table {
        let mut table = boot();
        table
            .policies
            .push(runs("auto", times, 3_932_160, 3_801_088, 4_096_000));
        table
    }

    fn advice(tables: &[crate::report::Table]) -> String {
        advise(&tables.iter().map(Report::of).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_has_to_be_set_where_the_default_is_within_5_percent() {
        let text = advice(&[with_auto(&[11.6, 11.8, 11.7, 11.6, 11.9])]);
        assert_eq!(
            text,
            "Nothing to set on model:rbd: auto, the default, is within 5 % of the best policy measured; it makes boot-ide \
             3.94 times as fast (11.72 s instead of 46.20 s). Beware: linux-6.18 reads 1.34 times the bytes that boot-ide asks for."
        );
        let text = advice(&[with_auto(&[12.6, 12.8, 12.7, 12.6, 12.9])]);
        assert!(text.starts_with("Use rbd-plain on model:rbd"), "{text}");
    }

    #[test]
    fn a_workload_without_a_gain_must_not_lose_either() {
        let random = |auto: f64| {
            let rows = [
                ("none", 1.0),
                ("linux-6.18", 1.0),
                ("rbd-plain", 1.2),
                ("auto", auto),
            ];
            let run = |(name, mean): (&str, f64)| {
                runs(name, &[mean, mean * 1.1, mean * 0.9], 0, 0, 4_096_000)
            };
            table("random", "model:rbd", rows.map(run).to_vec())
        };
        let good = with_auto(&[11.3, 11.5, 11.4, 11.3, 11.6]);
        let text = advice(&[good.clone(), random(1.001)]);
        assert!(
            text.contains("instead of 46.20 s), and no difference for random. "),
            "{text}"
        );
        let text = advice(&[good, random(1.2)]);
        assert!(text.starts_with("On model:rbd use "), "{text}");
        assert!(advice(&[random(1.0)]).starts_with("Nothing to set on model:rbd: auto, the default, is within 5 % of the best policy measured; it makes no difference for random."));
    }
}
