//! Writes the conclusion from the tables of a comparison as sentences.

use super::{
    Choice, Conclusion, OpenPair, Tables, apart, as_good, beside_today, best, change, serves,
};
use crate::report::SpanCut;
use crate::report::row::{Relation, Report, Row, WORTH_SAYING, more_runs};
use foreread_core::policy::DEFAULT;
use foreread_report::number;

/// Reading more than this many times the bytes asked for is worth a warning: a tenth more traffic, which on a
/// metered or shared source is paid for.
const OVERFETCH_WARNING: f64 = 1.1;
/// From this ratio on, "1.5 times as long" reads better than "50 % longer".
const TIMES_FROM: f64 = 1.5;
/// Warnings in one sentence; more is not read.
const WARNINGS: usize = 3;

impl<'a> Tables<'a> {
    pub(super) fn in_words(&self, concluded: &Conclusion<'a>) -> String {
        let source = self.source();
        let workloads = || list(self.reports.iter().map(|r| r.workload.clone()).collect());
        let mut said = match concluded {
            Conclusion::Open(open) => self.undecided(open.as_ref()),
            Conclusion::NoRow => format!(
                "No advice for {source}: no policy that can serve reads, except none, was measured on every workload. Add policies with --policy, or --policy all."
            ),
            Conclusion::Off(_) if self.has_change() => {
                format!(
                    "Leave readahead off (none) for {} on {source}: no policy gained more than it lost.",
                    workloads()
                )
            }
            Conclusion::Off(_) => format!(
                "Leave readahead off (none) for {} on {source}: no policy is significantly faster.",
                workloads()
            ),
            Conclusion::Kernel(choice) => format!(
                "Nothing to change on {source}: the kernel's own readahead is as fast as {} or faster for {}.",
                choice.policy,
                workloads()
            ),
            Conclusion::Each(choice, best) => self.each(choice, best),
            Conclusion::Take(choice, is_default) => self.take(choice, *is_default),
        };
        let advised = concluded.policy();
        let compared = self.reports.iter().filter_map(|report| {
            let base = advised.or(report.none().map(|row| row.policy.as_str()))?;
            let rows = report
                .rows
                .iter()
                .filter(|row| row.kind.is_choice() && !serves(row));
            let ratios = rows.filter_map(|row| Some((row, apart(report, base, &row.policy)?)));
            let (row, ratio) = ratios.min_by(|a, b| a.1.total_cmp(&b.1))?;
            let ratio = Some(ratio)
                .filter(|ratio| *ratio < 1.0)
                .map(number::times)?;
            Some(format!(
                "{} for {} ({ratio} of the time of {base})",
                row.policy, report.workload
            ))
        });
        let compared: Vec<String> = compared.collect();
        if !compared.is_empty() {
            said.push_str(&format!(
                " Faster, but only for comparisons, because it cannot serve reads: {}.",
                list(compared)
            ));
        }
        if let Some(policy) = advised {
            said.push_str(&format!(" {}", self.warning(policy)));
        }
        let shortened = self.reports.iter().filter_map(|report| {
            let SpanCut {
                span_bytes,
                usual_bytes,
            } = report.shortened?;
            let [span, usual] = [span_bytes, usual_bytes].map(number::size_b);
            Some(format!(
                "{} spans the first {span} here, not {usual}",
                report.workload
            ))
        });
        let shortened: Vec<String> = shortened.collect();
        if !shortened.is_empty() {
            said.push_str(&format!(
                " To keep the run short, {}; --size changes this.",
                shortened.join("; ")
            ));
        }
        if let Some(walk) = self.reports.iter().find(|report| report.is_walk) {
            said.push_str(&format!(" {}.", in_walk(walk)));
        }
        said
    }

    fn undecided(&self, open: Option<&OpenPair<'_>>) -> String {
        let source = self.source();
        let Some(open) = open else {
            return format!(
                "With one run of each policy, a gain on {source} cannot be told from noise: measure again with --runs {} or more.",
                more_runs(1)
            );
        };
        let OpenPair {
            workload,
            policy,
            base,
            ratio,
            runs,
        } = open;
        let more = more_runs(*runs);
        let runs = number::plural((*runs).into(), "run");
        let ratio = number::times(*ratio);
        format!(
            "Not decided on {source}: {runs} do not tell {policy} and {base} apart for {workload} ({policy} took {ratio} of the time of {base}); \
             measure again with --runs {more}."
        )
    }

    fn take(&self, choice: &Choice<'_>, is_default: bool) -> String {
        let (source, (gains, others)) = (self.source(), self.gains(choice.policy));
        let has_kernel = self.reports.iter().any(|report| report.kernel().is_some());
        let untold = match has_kernel {
            true => "is not told apart from the kernel's readahead for",
            false => "is not told apart from no readahead for",
        };
        let of = |wanted: Relation| {
            let others = others.iter().filter(|(report, _)| {
                let today = report.kernel().or(report.none());
                today.and_then(|row| report.relation(&row.policy, choice.policy)) == Some(wanted)
            });
            list(others.map(|(report, _)| report.workload.clone()).collect())
        };
        let gain = [
            ("makes", list(gains.clone())),
            ("makes no difference for", of(Relation::Equivalent)),
            (untold, of(Relation::NotToldApart)),
            ("is slower for", of(Relation::Different)),
        ];
        let gain = gain
            .into_iter()
            .filter(|(_, workloads)| !workloads.is_empty());
        let gain: Vec<String> = gain
            .map(|(does, what)| format!("it {does} {what}"))
            .collect();
        let gain = gain.join("; ");
        let what = match has_kernel && !gains.is_empty() {
            _ if !is_default => return format!("Use {} on {source}: {gain}.", choice.policy),
            true => format!("Read {source} through foreread, and set nothing"),
            false => format!("Nothing to set on {source}"),
        };
        let slower = self.reports.iter().find_map(|report| {
            let (best, row) = (best(report)?, report.row(DEFAULT)?);
            let ratio = row.judged()?.mean / best.judged()?.mean;
            let said = || format!("{} {}", report.workload, number::times(ratio));
            (!as_good(report, best, row)).then(said)
        });
        let far = slower.map_or_else(
            || " measured".to_string(),
            |ratio| format!(", as far as a short part can tell ({ratio} of its time there)"),
        );
        format!(
            "{what}: {DEFAULT}, foreread's default, is within 5 % of the best policy{far}; {gain}."
        )
    }

    /// The best policy for each workload, and the one for all of them.
    fn each(&self, choice: &Choice<'_>, best: &[Option<&'a Row>]) -> String {
        let (mut gains, mut off) = (Vec::new(), Vec::new());
        for (report, best) in self.reports.iter().zip(best) {
            let workload = &report.workload;
            match best.map(|row| (row, beside_today(report, row))) {
                Some((_, ratio)) if ratio >= 1.0 => {
                    gains.push(format!("the kernel's own readahead for {workload}"))
                }
                Some((row, ratio)) => {
                    gains.push(format!(
                        "{} for {workload}, {}",
                        row.policy,
                        faster(ratio, report, row)
                    ));
                }
                None => off.push(workload.clone()),
            }
        }
        if !off.is_empty() {
            gains.push(format!("no readahead (none) for {}", list(off)));
        }
        let all = if choice.score > -WORTH_SAYING {
            "no single setting gains more than it loses".to_string()
        } else {
            let each = self.reports.iter().filter_map(|report| {
                let ratio = change(report.row(choice.policy)?);
                (ratio != 1.0).then(|| format!("{} {}", report.workload, number::times(ratio)))
            });
            let each = list(each.collect());
            format!(
                "as one setting for all workloads, use {} ({each} of the time of none)",
                choice.policy
            )
        };
        format!("On {} use {}; {all}.", self.source(), gains.join("; "))
    }

    /// Where the policy, the other policies or foreread itself disappoint: the largest factors.
    fn warning(&self, policy: &str) -> String {
        let kernel = self.reports.iter().filter_map(|report| {
            let ratio = apart(report, policy, &report.kernel()?.policy)
                .filter(|ratio| *ratio < 1.0)?;
            let times = ratio.recip();
            let how = match times >= TIMES_FROM {
                true => format!("{} times as fast as", number::three(times)),
                false => format!("in {:.0} % less time than", (1.0 - ratio) * 100.0),
            };
            let said = format!(
                "the kernel's own page cache reads {} {how} {policy}, so no policy beats the kernel on this workload",
                report.workload
            );
            Some((times, said))
        });
        let mut found: Vec<(f64, String)> = kernel.collect();
        for is_advised in [true, false] {
            let of = |row: &Row| (row.policy == policy) == is_advised;
            found.extend(self.slower(of));
            found.extend(self.over_reads(of));
        }
        if found.is_empty() {
            return format!(
                "No policy took significantly longer than without readahead or read more than {OVERFETCH_WARNING} times the requested bytes."
            );
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let found = found.into_iter().take(WARNINGS).map(|(_, said)| said);
        format!("Beware: {}.", found.collect::<Vec<_>>().join("; "))
    }

    /// The worst slow-down of the policies that `of` picks, in words.
    fn slower(&self, of: impl Fn(&Row) -> bool) -> Option<(f64, String)> {
        let (report, row, ratio) = self.worst(of, |row| Some(change(row)))?;
        let how = match ratio {
            ratio if ratio >= TIMES_FROM => {
                format!(
                    "takes {} times as long as without readahead",
                    number::three(ratio)
                )
            }
            _ => format!(
                "takes {:.0} % longer than without readahead",
                (ratio - 1.0) * 100.0
            ),
        };
        (ratio > 1.0).then(|| {
            (
                ratio,
                format!("{} {how} on {}", row.policy, report.workload),
            )
        })
    }

    /// The worst overfetch of the policies that `of` picks, in words.
    fn over_reads(&self, of: impl Fn(&Row) -> bool) -> Option<(f64, String)> {
        let (report, row, overfetch) = self.worst(of, |row| row.overfetch)?;
        let is_open = in_vain(row).is_some_and(|ratio| ratio <= OVERFETCH_WARNING);
        let never_read = row
            .unused_bytes
            .zip(row.unresolved_bytes)
            .map(|(a, b)| a + b);
        let unused = match (is_open, report.shortened) {
            (true, Some(_)) => {
                ", and the run was too short to show whether it uses them".to_string()
            }
            (true, None) => format!(
                " ({} % of what it read ahead was never read)",
                number::share(never_read, row.ra_bytes)
            ),
            (false, _) => String::new(),
        };
        let said = format!(
            "{} reads {} times the bytes that {} asks for{unused}",
            row.policy,
            number::three(overfetch),
            report.workload
        );
        (overfetch > OVERFETCH_WARNING).then_some((overfetch, said))
    }

    fn worst(
        &self,
        of: impl Fn(&Row) -> bool,
        measure: impl Fn(&Row) -> Option<f64>,
    ) -> Option<(&'a Report, &'a Row, f64)> {
        let rows = self
            .reports
            .iter()
            .flat_map(|report| report.rows.iter().map(move |row| (*report, row)));
        let ours = rows.filter(|(_, row)| row.kind.is_choice() && of(row));
        let measured = ours.filter_map(|(report, row)| Some((report, row, measure(row)?)));
        measured.max_by(|a, b| a.2.total_cmp(&b.2))
    }
}

/// What no row shows of a walk through folders; a sentence without its end.
pub(super) fn in_walk(report: &Report) -> String {
    format!(
        "{} reads folders file by file, and no policy knows the next file; 'foreread run' does",
        report.workload
    )
}

/// Bytes read from the source / bytes asked for, without those that were not used yet when the run ended: a longer one uses them.
fn in_vain(row: &Row) -> Option<f64> {
    let (read, open) = (
        row.source_bytes? as f64,
        row.unresolved_bytes.unwrap_or(0) as f64,
    );
    Some(row.overfetch? * (read - open).max(0.0) / read.max(1.0))
}

/// "4.05 times as fast (11.42 s instead of 46.20 s)".
pub(super) fn faster(ratio: f64, report: &Report, row: &Row) -> String {
    let (by, today) = match report.kernel() {
        Some(kernel) => (" as the kernel's readahead", Some(kernel)),
        None => ("", report.none()),
    };
    let how = format!("{} times as fast{by}", number::three(ratio.recip()));
    let mean = |row: Option<&Row>| row.and_then(Row::judged).map(|time| time.mean);
    let Some((now, before)) = mean(Some(row)).zip(mean(today)) else {
        return how;
    };
    if row.latency_s.is_some() {
        let [now, before] = [now, before].map(|s| number::latency_us(s * 1e6));
        return format!("wait {now} instead of {before} a read");
    }
    let [now, before] = [now, before].map(|s| number::span_s(s, None));
    format!("{how} ({now} s instead of {before} s)")
}

/// "a", "a and b", "a, b and c".
fn list(mut words: Vec<String>) -> String {
    match (words.pop(), words.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last,
        (Some(last), false) => format!("{} and {last}", words.join(", ")),
    }
}
