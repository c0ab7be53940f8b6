//! Two sentences of advice: which policy to use on a source and what it gains, and what to beware of; a third one where a workload was
//! shortened. What it gains is said beside the kernel's own readahead, where that was measured: it is what a reader has today.
//!
//! A gain or a loss is named only where the corrected test of its table calls it one, and two policies are called equal only where
//! the interval of their ratio is within 5 %; others are "not told apart". Where no test finds a better policy for any workload, the first sentence names it. Else it names the best **for each workload**, and the one to take if a
//! single setting has to serve all: that is chosen by the geometric mean of its times over the workloads, each as a ratio
//! to no readahead. Where the default policy is within 5 % of the best for each, nothing has to be set, and the sentence says so. A policy not significantly different from no readahead counts as no gain. Never: advice from a single run, and never one
//! for all workloads that is not in every table.

mod decision;
mod default;
mod equal;
mod today;

use super::SpanCut;
use super::row::{Relation, Report, Row, more_runs};
use super::verdict::WORTH_SAYING;
use decision::Conclusion;
pub use decision::{Decision, decide};
use foreread_report::number;
use today::{beside_today, faster, in_vain};

/// Reading more than this many times the bytes asked for is worth a warning: a tenth more traffic, which on a
/// metered or shared source is paid for.
const OVERFETCH_WARNING: f64 = 1.1;

/// From this ratio on, "1.5 times as long" reads better than "50 % longer".
const TIMES_FROM: f64 = 1.5;

/// A mean below this part of the time of none, in which no test finds a gain, has had too few runs to say "off".
const UNSETTLED: f64 = 0.9;

/// Warnings in one sentence; more is not read.
const WARNINGS: usize = 2;

/// The advice for one source, from its tables. Empty without tables.
#[must_use]
pub fn advise(reports: &[Report]) -> String {
    let mut said = in_two_sentences(reports);
    let shortened = reports
        .iter()
        .filter_map(|report| Some((report, report.shortened?)));
    let shortened: Vec<String> = shortened
        .map(
            |(
                report,
                SpanCut {
                    span_bytes,
                    usual_bytes,
                },
            )| {
                let [span, usual] = [span_bytes, usual_bytes].map(number::size_b);
                format!("{} spans {span} here and not {usual}", report.workload)
            },
        )
        .collect();
    if !shortened.is_empty() {
        said.push_str(&format!(
            " The source is slow: {}; --size sets it.",
            list(shortened)
        ));
    }
    if let Some(walk) = reports.iter().find(|report| report.is_walk) {
        said.push_str(&format!(" {}.", in_walk(&walk.workload)));
    }
    said
}

/// What no row shows of a walk through folders; a sentence without its end.
#[must_use]
pub fn in_walk(workload: &str) -> String {
    format!(
        "{workload} is a walk through folders, of which no policy knows the next file; 'foreread run' does"
    )
}

fn in_two_sentences(reports: &[Report]) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    let source = first.source.clone();
    let place = SourceTables { reports, source };
    let conclusion = place.conclusion();
    let said = place.in_words(&conclusion);
    match conclusion.choice() {
        Some(choice) => format!("{said} {}", place.warning(choice)),
        None => said,
    }
}

/// The reports in groups of one source each, in the order of their first table.
#[must_use]
pub fn by_source(reports: &[Report]) -> Vec<&[Report]> {
    reports.chunk_by(|a, b| a.source == b.source).collect()
}

/// A workload that a policy does not make faster, and its time as a ratio to none: 1 where no test calls a difference.
struct NoGain {
    workload: String,
    ratio: f64,
}

struct SourceTables<'a> {
    reports: &'a [Report],
    source: String,
}

/// A policy that could be advised.
struct Choice<'a> {
    policy: &'a str,
    /// Mean over the workloads of ln(time / time of none), with 0 where no test calls a difference.
    score: f64,
    /// Mean overfetch, to decide between equals.
    overfetch: f64,
}

/// A row of a table, and the part of the time of none that it took.
struct LowestRow<'a> {
    report: &'a Report,
    row: &'a Row,
    ratio: f64,
}

impl<'a> SourceTables<'a> {
    /// The best policy that is in every table; the leaner one of two that are as fast.
    fn choose(&self) -> Option<Choice<'a>> {
        let candidates = self.reports[0].rows.iter().filter(|r| r.kind.is_choice());
        let mut choices: Vec<Choice> = candidates.filter_map(|r| self.choice(&r.policy)).collect();
        let least = choices.iter().map(|c| c.score).min_by(f64::total_cmp)?;
        choices.retain(|c| c.score < least + WORTH_SAYING);
        choices
            .into_iter()
            .min_by(|a, b| a.overfetch.total_cmp(&b.overfetch))
    }

    /// The best policy for each workload that gains something; nothing where no readahead is as good.
    fn best_of_each(&self) -> Vec<Option<&'a Row>> {
        self.reports.iter().map(best).collect()
    }

    /// Whether no workload has a better policy than this one.
    fn serves_all(&self, choice: &Choice<'_>, best: &[Option<&Row>]) -> bool {
        self.reports.iter().zip(best).all(|(report, best)| {
            let Some(row) = report.row(choice.policy) else {
                return false;
            };
            match best {
                Some(best) => best.policy == row.policy || !is_told_apart(report, best, row),
                None => change(row) == 1.0,
            }
        })
    }

    /// The best policy for each workload, and the one for all of them.
    fn each(&self, choice: &Choice<'_>, best: &[Option<&'a Row>]) -> String {
        let (mut gains, mut off) = (Vec::new(), Vec::new());
        for (report, best) in self.reports.iter().zip(best) {
            match best {
                Some(row) if beside_today(report, row) >= 1.0 => {
                    gains.push(format!(
                        "the kernel's own readahead for {}",
                        report.workload
                    ));
                }
                Some(row) => gains.push(format!(
                    "{} for {}, {}",
                    row.policy,
                    report.workload,
                    faster(beside_today(report, row), report, row)
                )),
                None => off.push(report.workload.clone()),
            }
        }
        let off = if off.is_empty() {
            String::new()
        } else {
            format!("; no readahead (none) for {}", list(off))
        };
        let gains = gains.join("; ");
        let all = if choice.score > -WORTH_SAYING {
            "no single setting gains more than it loses".to_string()
        } else {
            let each = self.reports.iter().filter_map(|report| {
                let ratio = change(report.row(choice.policy)?);
                (ratio != 1.0).then(|| format!("{} {}", report.workload, number::times(ratio)))
            });
            format!(
                "as one setting for all, {} ({} of the time of none)",
                choice.policy,
                list(each.collect())
            )
        };
        format!("On {} use {gains}{off}; {all}.", self.source)
    }

    fn choice(&self, policy: &'a str) -> Option<Choice<'a>> {
        let rows: Option<Vec<&Row>> = self.reports.iter().map(|r| r.row(policy)).collect();
        let rows = rows?;
        let n = rows.len() as f64;
        let score = rows.iter().map(|r| change(r).ln()).sum::<f64>() / n;
        let overfetch = rows.iter().filter_map(|r| r.overfetch).sum::<f64>() / n;
        rows.iter()
            .all(|r| r.ratio_to_none.is_some())
            .then_some(Choice {
                policy,
                score,
                overfetch,
            })
    }

    /// The row that took the least of the time of none, by whatever test.
    fn lowest(&self, of: impl Fn(&Report, &Row) -> bool) -> Option<LowestRow<'a>> {
        let rows = self
            .reports
            .iter()
            .flat_map(|r| r.rows.iter().map(move |row| (r, row)));
        let ratios = rows
            .filter(|(report, row)| of(report, row))
            .filter_map(|(report, row)| {
                Some(LowestRow {
                    report,
                    row,
                    ratio: row.ratio_to_none?,
                })
            });
        ratios.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    fn untested(&self) -> String {
        let seen = self
            .lowest(|_, row| row.kind.is_choice())
            .filter(|lowest| lowest.ratio < 1.0)
            .map_or_else(String::new, |lowest| {
                format!(
                    " ({} on {} was lowest, at {} of the time of none)",
                    lowest.row.policy,
                    lowest.report.workload,
                    number::times(lowest.ratio)
                )
            });
        format!(
            "One run of each cannot separate a gain from noise on {}{seen}. Measure again with --runs 5 or more before \
             acting on it.",
            self.source
        )
    }

    /// The first sentence.
    fn in_words(&self, conclusion: &Conclusion<'a>) -> String {
        let workloads = || list(self.reports.iter().map(|r| r.workload.clone()).collect());
        match conclusion {
            Conclusion::Untested => self.untested(),
            Conclusion::NoRow => format!(
                "No advice for {}: no policy was measured beside none on \
                 every workload. {}",
                self.source, "Add policies with --policy, or --policy all."
            ),
            Conclusion::Default(_) => self.nothing_to_set(),
            Conclusion::Each(each) => self.each(&each.choice, &each.best),
            Conclusion::OnlyLosses(_) => format!(
                "Leave readahead off (none) for {} on {}: nothing gained more than it lost.",
                workloads(),
                self.source
            ),
            Conclusion::Unsettled(open) => format!(
                "No policy is significantly faster than none for {} on {}, but {} took {} of its time on {}: \
                 measure again with --runs {} before leaving readahead off.",
                workloads(),
                self.source,
                open.lowest.row.policy,
                number::times(open.lowest.ratio),
                open.lowest.report.workload,
                more_runs(open.lowest.report.runs)
            ),
            Conclusion::Off(_) => format!(
                "Leave readahead off (none) for {} on {}: {}.",
                workloads(),
                self.source,
                self.nothing_beside_none()
            ),
            Conclusion::Kernel(choice) => self.kernel_is_enough(choice),
            Conclusion::NoFaster(choice) => self.no_faster_than_kernel(choice.policy),
            Conclusion::Gain(choice) => self.gain(choice),
        }
    }

    /// What a policy gains, a workload each in words, and the workloads that it does not make faster.
    fn gains(&self, policy: &str) -> (Vec<String>, Vec<NoGain>) {
        let (mut gains, mut others) = (Vec::new(), Vec::new());
        for report in self.reports {
            let Some(row) = report.row(policy) else {
                continue;
            };
            match beside_today(report, row) {
                ratio if ratio < 1.0 => gains.push(format!(
                    "{} {}",
                    report.workload,
                    faster(ratio, report, row)
                )),
                ratio => others.push(NoGain {
                    workload: report.workload.clone(),
                    ratio,
                }),
            }
        }
        (gains, others)
    }

    fn gain(&self, choice: &Choice<'_>) -> String {
        let (gains, others) = self.gains(choice.policy);
        let level: Vec<String> = others
            .into_iter()
            .filter(|o| o.ratio == 1.0)
            .map(|o| o.workload)
            .collect();
        let level = if level.is_empty() {
            String::new()
        } else {
            format!(", and makes no difference for {}", list(level))
        };
        format!(
            "Use {}{} on {}: it makes {}{level}.",
            choice.policy,
            self.others_beside(choice),
            self.source,
            list(gains)
        )
    }

    /// The second sentence: where the choice, the other policies or foreread itself disappoint.
    fn warning(&self, choice: &Choice<'_>) -> String {
        let mut found = Vec::new();
        for report in self.reports {
            let kernel = report.kernel();
            if let Some(ratio) = kernel
                .and_then(|k| apart(report, choice.policy, &k.policy))
                .filter(|r| *r < 1.0)
            {
                found.push(format!(
                    "the kernel's own page cache reads {} {}, so nothing here beats it there",
                    report.workload,
                    if ratio.recip() >= TIMES_FROM {
                        format!(
                            "{} times as fast as {}",
                            number::three(ratio.recip()),
                            choice.policy
                        )
                    } else {
                        format!(
                            "in {:.0} % less time than {}",
                            (1.0 - ratio) * 100.0,
                            choice.policy
                        )
                    }
                ));
            }
        }
        found.extend(self.slower(|policy| policy == choice.policy));
        found.extend(self.over_reads(|policy| policy == choice.policy));
        found.extend(self.slower(|policy| policy != choice.policy));
        found.extend(self.over_reads(|policy| policy != choice.policy));
        let rows = || self.reports.iter().flat_map(|report| &report.rows);
        let is_open = |row: &Row| {
            row.kind.is_choice() && row.overfetch.is_some_and(|o| o > OVERFETCH_WARNING)
        };
        if found.is_empty() && rows().any(is_open) {
            return "No policy took significantly longer than none; what was read beyond the bytes asked for was ahead of the end of a \
                    short run."
                .to_string();
        }
        if found.is_empty() {
            return format!(
                "No policy took significantly longer than none or read more than {OVERFETCH_WARNING} times the bytes \
                 asked for."
            );
        }
        found.truncate(WARNINGS);
        format!("Beware: {}.", found.join("; "))
    }

    /// The worst slow-down of the policies that `of` picks, in words.
    fn slower(&self, of: impl Fn(&str) -> bool) -> Option<String> {
        let (workload, row) = self.worst(of, |row| Some(change(row)))?;
        let ratio = change(row);
        (ratio > 1.0).then(|| {
            let how = if ratio >= TIMES_FROM {
                format!("takes {} times as long as none", number::three(ratio))
            } else {
                format!("takes {:.0} % longer than none", (ratio - 1.0) * 100.0)
            };
            format!("{} {how} on {workload}", row.policy)
        })
    }

    /// The worst overfetch of the policies that `of` picks, in words.
    fn over_reads(&self, of: impl Fn(&str) -> bool) -> Option<String> {
        let (workload, row) = self.worst(of, in_vain)?;
        let overfetch = in_vain(row).filter(|o| *o > OVERFETCH_WARNING)?;
        Some(format!(
            "{} reads {} times the bytes that {workload} asks for",
            row.policy,
            // As in the table, with what was not used yet at the end.
            number::three(row.overfetch.unwrap_or(overfetch))
        ))
    }

    fn worst(
        &self,
        of: impl Fn(&str) -> bool,
        measure: impl Fn(&Row) -> Option<f64>,
    ) -> Option<(&'a str, &'a Row)> {
        let rows = self
            .reports
            .iter()
            .flat_map(|r| r.rows.iter().map(move |row| (r.workload.as_str(), row)));
        let ours = rows.filter(|(_, row)| row.kind.is_choice() && of(&row.policy));
        let measured = ours.filter_map(|(workload, row)| measure(row).map(|m| (m, workload, row)));
        measured
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, workload, row)| (workload, row))
    }
}

/// The policy that a workload gains most by: of those as good as the best, the one that reads the fewest bytes.
fn best(report: &Report) -> Option<&Row> {
    let gain = |row: &&Row| row.kind.is_choice() && change(row) < 1.0;
    let best = report
        .rows
        .iter()
        .filter(gain)
        .min_by(|a, b| change(a).total_cmp(&change(b)))?;
    let fit = report
        .rows
        .iter()
        .filter(gain)
        .filter(|row| as_good(report, best, row));
    fit.min_by(|a, b| {
        a.overfetch
            .unwrap_or(1.0)
            .total_cmp(&b.overfetch.unwrap_or(1.0))
    })
}

/// Whether a row is equal to the best one.
fn as_good(report: &Report, best: &Row, row: &Row) -> bool {
    row.policy == best.policy
        || report.relation(&best.policy, &row.policy) == Some(Relation::Equivalent)
}

/// Whether the runs show that two rows are not equal, or no test was possible.
fn is_told_apart(report: &Report, one: &Row, other: &Row) -> bool {
    !matches!(
        report.relation(&one.policy, &other.policy),
        Some(Relation::Equivalent | Relation::NotToldApart)
    )
}

/// Time as a ratio to none, or 1 where no test calls a difference or it is not worth saying.
fn change(row: &Row) -> f64 {
    let called = row
        .ratio_to_none
        .filter(|r| row.differs_from_none == Some(true) && (r - 1.0).abs() >= WORTH_SAYING);
    called.unwrap_or(1.0)
}

/// Time of `to` as a ratio to that of `from`, 1 where no test calls a difference. Undefined without a test.
fn apart(report: &Report, from: &str, to: &str) -> Option<f64> {
    let compared = report.comparison(from, to)?;
    let ratio = if compared.a == from {
        compared.ratio?
    } else {
        compared.ratio?.recip()
    };
    let called = compared.differs? && (ratio - 1.0).abs() >= WORTH_SAYING;
    Some(if called { ratio } else { 1.0 })
}

/// "a", "a and b", "a, b and c".
fn list(mut words: Vec<String>) -> String {
    match (words.pop(), words.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last,
        (Some(last), false) => format!("{} and {last}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{boot, runs, table};
    use super::*;

    fn advice(tables: &[super::super::Table]) -> String {
        let reports: Vec<Report> = tables.iter().map(Report::of).collect();
        let text = advise(&reports);
        // A full stop that ends a sentence is followed by a space or nothing; those of numbers are not.
        assert_eq!(
            text.matches(". ").count() + usize::from(text.ends_with('.')),
            2,
            "not two sentences: {text}"
        );
        text
    }

    #[test]
    fn one_workload_with_a_clear_winner() {
        assert_eq!(
            advice(&[boot()]),
            "Use rbd-plain on model:rbd: it makes boot-ide 4.05 times as fast (11.42 s instead of 46.20 s). \
             Beware: linux-6.18 reads 1.34 times the bytes that boot-ide asks for."
        );
    }

    #[test]
    fn a_walk_names_what_knows_its_files() {
        let same = [1.0, 1.01, 0.99];
        let rows = ["none", "auto"].map(|name| runs(name, &same, 0, 0, 4_096_000));
        let mut report = Report::of(&table("grep.frt", "file:x", rows.to_vec()));
        let said = advise(&[report.clone()]);
        assert!(!said.contains("foreread run"), "{said}");
        report.is_walk = true;
        let said = advise(&[report]);
        let end = " grep.frt is a walk through folders, of which no policy knows the next file; 'foreread run' does.";
        assert!(said.ends_with(end), "{said}");
    }

    #[test]
    fn nothing_differs() {
        let beside_none = |times: &[f64; 3]| {
            let rows = vec![
                runs("none", &[1.00, 1.30, 0.80], 0, 0, 4_096_000),
                runs("linux-6.18", times, 0, 0, 4_096_000),
            ];
            advice(&[table("random", "model:rbd", rows)])
        };
        assert_eq!(
            beside_none(&[1.20, 1.00, 1.05]),
            "Leave readahead off (none) for random on model:rbd: 3 runs do not tell every policy apart from it (linux-6.18 took x1.05 \
             of its time), more may, with --runs 6. No policy took significantly longer than none or read more than 1.1 \
             times the bytes asked for."
        );
        assert!(
            beside_none(&[1.01, 1.29, 0.81])
                .contains("on model:rbd: every policy takes its time, within 5 %. No policy took")
        );
    }

    #[test]
    fn a_gain_that_no_test_finds_is_no_word_against_readahead() {
        let of = |times: &[f64]| {
            let rows = vec![
                runs("none", &[1.0, 3.0], 0, 0, 4_096_000),
                runs("linux-6.18", times, 0, 0, 4_096_000),
                runs("oracle", &[0.1, 0.1], 0, 0, 4_096_000),
            ];
            advice(&[table("readers", "model:rbd", rows)])
        };
        assert!(of(&[0.1, 0.9]).starts_with(
            "No policy is significantly faster than none for readers on model:rbd, but linux-6.18 took x0.25 of its time \
             on readers: measure again with --runs 5 before leaving readahead off. No policy took"
        ));
        assert!(
            of(&[1.0, 2.6]).starts_with("Leave readahead off (none)"),
            "a tenth is noise"
        );
        assert!(
            of(&[2.0, 3.0]).starts_with("Leave readahead off (none)"),
            "slower"
        );
    }

    #[test]
    fn a_policy_that_hurts_is_named() {
        let worse = table(
            "random",
            "model:rbd",
            vec![
                runs("none", &[1.0, 1.1, 0.9], 0, 0, 4_096_000),
                runs("linux-6.18", &[2.0, 2.1, 1.9], 8_192_000, 0, 12_288_000),
            ],
        );
        assert_eq!(
            advice(&[worse]),
            "Leave readahead off (none) for random on model:rbd: nothing gained more than it lost. Beware: linux-6.18 \
             takes 2.00 times as long as none on random; linux-6.18 reads 3.00 times the bytes that random asks for."
        );
    }

    #[test]
    fn no_more_warnings_than_are_read() {
        let mut table = boot();
        // Both read far too much, and one of them is slower than none: three warnings.
        table.policies[1] = runs(
            "linux-6.18",
            &[60.0, 61.0, 60.5, 60.2, 60.1],
            8_192_000,
            0,
            12_288_000,
        );
        table.policies[2] = runs(
            "rbd-plain",
            &[11.3, 11.5, 11.4, 11.3, 11.6],
            8_192_000,
            0,
            8_192_000,
        );
        let text = advice(&[table]);
        assert!(
            text.contains("rbd-plain reads 2.00 times the bytes"),
            "{text}"
        );
        assert!(
            text.contains("linux-6.18 takes 31 % longer than none on boot-ide."),
            "{text}"
        );
        assert!(!text.contains("linux-6.18 reads"), "{text}");
    }

    #[test]
    fn several_workloads_are_weighed_together() {
        let random = table(
            "random",
            "model:rbd",
            vec![
                runs("none", &[1.0, 1.1, 0.9], 0, 0, 4_096_000),
                runs("linux-6.18", &[1.0, 1.1, 0.9], 0, 0, 4_096_000),
                runs("rbd-plain", &[1.2, 1.31, 1.1], 0, 0, 4_096_000),
            ],
        );
        let text = advice(&[boot(), random]);
        // rbd-plain is the faster on boot-ide, but what it loses on random is more than that.
        assert_eq!(
            text,
            "On model:rbd use rbd-plain for boot-ide, 4.05 times as fast (11.42 s instead of 46.20 s); no readahead (none) \
             for random; as one setting for all, linux-6.18 (boot-ide x0.28 of the time of none). Beware: linux-6.18 reads 1.34 times the bytes that boot-ide asks for; rbd-plain \
             takes 20 % longer than none on random."
        );
    }

    /// A window that makes one workload 100 times as fast is named for it, whatever it does to the others.
    #[test]
    fn each_workload_has_its_best_policy() {
        let of = |workload: &str, kernel: f64, wide: f64| {
            let times = |mean: f64| [mean, mean * 1.01, mean * 0.99];
            let run = |name: &str, mean: f64| runs(name, &times(mean), 0, 0, 4_096_000);
            let rows = vec![
                run("none", 10.0),
                run("linux-6.18", kernel),
                run("linux-6.18:max=64M", wide),
            ];
            table(workload, "model:object-near", rows)
        };
        let text = advice(&[
            of("sequential", 6.0, 0.1),
            of("random", 10.0, 20.0),
            of("boot-ide", 3.0, 30.0),
        ]);
        for part in [
            "linux-6.18:max=64M for sequential, 100 times as fast (0.100 s instead of 10.00 s)",
            "linux-6.18 for boot-ide, 3.33 times as fast",
            "no readahead (none) for random",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        let one = advice(&[of("sequential", 6.0, 0.1), of("boot-ide", 3.0, 0.2)]);
        assert!(
            one.starts_with(
                "Use linux-6.18:max=64M on model:object-near: it makes sequential 100 times"
            ),
            "{one}"
        );
    }

    #[test]
    fn the_kernel_is_named_where_it_wins_and_where_it_does_as_well() {
        let with_kernel = |place: usize, times: &[f64]| {
            let mut table = boot();
            let mut kernel = runs("kernel", times, 0, 0, 0);
            kernel.runs.iter_mut().for_each(|r| r.kernel = true);
            table.policies.insert(place, kernel);
            table
        };
        let text = advice(&[with_kernel(3, &[10.3, 10.5, 10.4, 10.2, 10.6])]);
        assert_eq!(
            text,
            advice(&[with_kernel(0, &[10.3, 10.5, 10.4, 10.2, 10.6])])
        );
        let start = "Nothing to change on model:rbd: the kernel's own readahead is as fast as rbd-plain or faster for boot-ide.";
        assert!(text.starts_with(start), "{text}");
        assert!(
            text.contains(
                "Beware: the kernel's own page cache reads boot-ide in 9 % less time than rbd-plain"
            ),
            "{text}"
        );
        let text = advice(&[with_kernel(3, &[11.4, 11.4, 11.4, 11.4, 11.5])]);
        assert!(
            text.starts_with("Nothing to change on model:rbd: the kernel's own readahead is as fast as any policy"),
            "{text}"
        );
    }

    #[test]
    fn of_equals_the_leaner_is_advised() {
        let mut table = boot();
        table.policies[1] = runs(
            "linux-6.18",
            &[11.3, 11.5, 11.4, 11.3, 11.6],
            3_932_160,
            3_801_088,
            4_096_000,
        );
        assert!(
            advice(&[table])
                .starts_with("Use linux-6.18 (as fast, within 5 %: rbd-plain) on model:rbd")
        );
    }

    #[test]
    fn one_run_and_one_policy_are_no_ground_for_advice() {
        let once = table(
            "w",
            "s",
            vec![
                runs("none", &[2.0], 0, 0, 0),
                runs("rbd-plain", &[1.0], 0, 0, 0),
            ],
        );
        assert!(
            advice(&[once]).starts_with(
                "One run of each cannot separate a gain from noise on s (rbd-plain on w"
            )
        );
        assert!(advise(&[]).is_empty());
        let elsewhere = table("w2", "s", vec![runs("none", &[2.0, 2.1], 0, 0, 0)]);
        assert!(advice(&[boot(), elsewhere]).starts_with("No advice for model:rbd"));
    }

    #[test]
    fn sources_are_kept_apart() {
        let mut other = boot();
        other.source = "model:nvme".to_string();
        let reports: Vec<Report> = [boot(), boot(), other].iter().map(Report::of).collect();
        assert_eq!(
            by_source(&reports)
                .iter()
                .map(|r| r.len())
                .collect::<Vec<_>>(),
            [2, 1]
        );
    }
}
