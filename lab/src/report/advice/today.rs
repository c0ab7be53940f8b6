//! What a gain is said beside: the kernel's own readahead, where that was measured, as it is what a reader has today; else no readahead.
//!
//! Example: in order over a disk of 60 ms the kernel takes 3.88 s, no readahead 8 s, `auto` 0.248 s: "15.6 times as fast as the kernel's
//! readahead (0.248 s instead of 3.88 s)".

use super::{apart, change};
use crate::report::RowKind;
use crate::report::row::{Report, Row};
use foreread_report::number;

/// Bytes read from the source / bytes asked for, without those that were not used yet when the run ended: a longer one uses them.
pub(super) fn in_vain(row: &Row) -> Option<f64> {
    let (read, open) = (
        row.source_bytes? as f64,
        row.unresolved_bytes.unwrap_or(0) as f64,
    );
    Some(row.overfetch? * (read - open).max(0.0) / read.max(1.0))
}

/// What a reader has today: the kernel's own readahead, where that was measured, else none.
fn today(report: &Report) -> Option<&Row> {
    report.kernel().or_else(|| report.none())
}

/// Time beside today's, or 1 where no test calls a difference.
pub(super) fn beside_today(report: &Report, row: &Row) -> f64 {
    match today(report) {
        Some(today) if today.kind == RowKind::Kernel => {
            apart(report, &today.policy, &row.policy).unwrap_or(1.0)
        }
        _ => change(row),
    }
}

/// "4.05 times as fast (11.42 s instead of 46.20 s)".
pub(super) fn faster(ratio: f64, report: &Report, row: &Row) -> String {
    let today = today(report);
    let by = match today {
        Some(today) if today.kind == RowKind::Kernel => " as the kernel's readahead",
        _ => "",
    };
    let how = format!("{} times as fast{by}", number::three(ratio.recip()));
    let mean = |row: Option<&Row>| row.and_then(Row::judged).map(|t| t.mean);
    if row.latency_s.is_some() {
        let ms = |s: f64| number::latency_us(s * 1e6);
        return match (mean(Some(row)), mean(today)) {
            (Some(now), Some(before)) => {
                format!("wait {} instead of {} a read", ms(now), ms(before))
            }
            _ => how,
        };
    }
    let mean = |row: Option<&Row>| mean(row).map(|s| number::span_s(s, None));
    match (mean(Some(row)), mean(today)) {
        (Some(now), Some(before)) => format!("{how} ({now} s instead of {before} s)"),
        _ => how,
    }
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use super::*;
    use crate::report::samples::{runs, table};
    use crate::report::{SpanCut, Table};

    fn measured(kernel: &[f64; 3]) -> Table {
        let rows = vec![
            runs("none", &[8.0, 8.1, 7.9], 0, 0, 4_096_000),
            runs(
                "auto",
                &[0.248, 0.250, 0.246],
                4_096_000,
                4_096_000,
                4_096_000,
            ),
            runs("kernel", kernel, 0, 0, 4_096_000),
        ];
        table("sequential", "file:disk", rows)
    }

    #[test]
    fn a_gain_is_beside_the_kernel_where_that_was_measured() {
        let said = |kernel| advise(&[Report::of(&measured(kernel))]);
        let text = said(&[3.88, 3.90, 3.86]);
        assert!(
            text.starts_with("Read file:disk through foreread, and set nothing: "),
            "{text}"
        );
        let gain = "auto, the default, is within 5 % of the best policy measured; it makes sequential 15.6 times as fast as the kernel's \
            readahead (0.248 s instead of 3.880 s).";
        assert!(text.contains(gain), "{text}");
        let text = said(&[0.249, 0.250, 0.247]);
        assert!(
            text.starts_with("Nothing to change on file:disk: the kernel's own"),
            "{text}"
        );
        let text = said(&[0.149, 0.150, 0.147]);
        let start = "Nothing to change on file:disk: the kernel's own readahead is as fast as auto or faster for sequential. Beware: \
            the kernel's own page cache reads sequential 1.67 times as fast as auto";
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn what_a_short_run_has_not_used_yet_is_no_waste_and_a_cut_is_said() {
        let mut cut = measured(&[3.88, 3.90, 3.86]);
        for run in &mut cut.policies[1].runs {
            run.stats.source_bytes = 9 * 4_096_000;
            run.stats.unresolved_bytes = 8 * 4_096_000;
        }
        cut.shortened = Some(SpanCut {
            span_bytes: 16 << 20,
            usual_bytes: 1 << 30,
        });
        let text = advise(&[Report::of(&cut)]);
        assert!(!text.contains("Beware"), "{text}");
        let end = " The source is slow: sequential spans 16M here and not 1G; --size sets it.";
        assert!(text.ends_with(end), "{text}");
    }
}
