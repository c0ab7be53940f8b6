//! The HTML page of `run`: what it gained, the time with it and without, what became of the readahead, and what else there is.
//!
//! ```text
//!   with 'foreread run'      ▇▇▇▇░░░░               measured: waits for the storage, and the rest
//!   without it, estimated    ▇▇▇▇▇▇▇▇▇▇▇▇▇▇░░░░     the waits that were spared are added
//! ```
//! Never: a gain that [`RunReport`] does not call one.

use super::{RunReport, WatchBy};
use foreread_report::chart::looks;
use foreread_report::number::{amount, count, latency_us, size, span_s, three};
use foreread_report::page::bars::{Bar, BarKind, Bars, Fill};
use foreread_report::page::{Figure, Grid, Page, Section, about, fact};

/// The page. `command`: as a shell takes it, or the process. `next`: what to paste, where, and why. `json`: what `--json` writes.
#[must_use]
pub fn page(report: &RunReport, command: &str, next: Option<[String; 3]>, json: &str) -> String {
    let seen = match report.by {
        WatchBy::Sample => "by samples",
        WatchBy::Trace => "by the kernel's tracepoints",
    };
    let page = Page {
        title: format!("Readahead for {command}"),
        lead: ("What it gained", vec![verdict(report)]),
        facts: vec![
            fact("foreread", env!("CARGO_PKG_VERSION")),
            fact("took", format!("{} s", span_s(report.seconds, None))),
            fact("reads were seen", seen),
        ],
        sections: vec![measured(report)],
        next: next.into_iter().collect(),
        ..Page::default()
    };
    page.to_html(json)
}

fn verdict(report: &RunReport) -> String {
    let took = span_s(report.seconds, None);
    if let Some(refused) = &report.refused {
        return format!("Nothing was read ahead: {refused}.");
    }
    if let Some(reason) = report.nothing() {
        return format!("Nothing to gain: {reason}. It took {took} s.");
    }
    let alone = report.seconds + report.spared_seconds;
    format!(
        "{} times as fast: it took {took} s, and without 'foreread run' about {} s.",
        three(alone / report.seconds.max(1e-9)),
        span_s(alone, None)
    )
}

fn measured(report: &RunReport) -> Section {
    let mut notes = Vec::new();
    if report.gains() {
        notes.push(
            "The time without it is an estimate, by the latency of the storage and what the kernel alone would have read for each wait; \
             run the command without it, from a cold cache, to measure it"
                .to_string(),
        );
    }
    if report.by == WatchBy::Sample {
        notes.push("By samples what never blocks is not seen".to_string());
    }
    if report.lost_events > 0 {
        notes.push(format!(
            "Events were lost in {} places",
            count(report.lost_events)
        ));
    }
    if report.unknown_files > 0 {
        notes.push(format!(
            "{} files were closed before they could be found",
            count(report.unknown_files)
        ));
    }
    Section {
        title: "What was measured".to_string(),
        figures: [time(report)].into_iter().chain(ahead(report)).collect(),
        grids: vec![figures(report)],
        notes,
        ..Section::default()
    }
}

fn time(report: &RunReport) -> Figure {
    // Waits of several threads are one; none is longer than the run.
    let waited = report.waiting_seconds.min(report.seconds);
    let rest = report.seconds - waited;
    let gains = report.gains();
    let mut bars = vec![Bar {
        name: "with 'foreread run'".to_string(),
        figure: format!("{} s", span_s(report.seconds, None)),
        parts: vec![waited, rest],
        best: if gains { "fastest" } else { "" },
        ..Bar::default()
    }];
    if gains {
        let alone = report.seconds + report.spared_seconds;
        bars.push(Bar {
            name: "without it, estimated".to_string(),
            figure: format!("about {} s", span_s(alone, None)),
            parts: vec![waited + report.spared_seconds, rest],
            ..Bar::default()
        });
    }
    let kind = |colour, fill, name| BarKind {
        colour: Some(colour),
        fill,
        name,
    };
    let bars = Bars {
        title: "The time of the command".to_string(),
        about: about("A bar with it and a bar without it, in two parts"),
        head: "Time, s (less is better)".to_string(),
        kinds: vec![
            kind(looks::MISS, Fill::Solid, "waited for the storage"),
            kind(looks::OTHERS, Fill::Pale, "all else"),
        ],
        bars,
        compact: false,
    };
    Figure::new(bars.draw(), "")
}

/// Bytes read ahead that were there in time, that came late, and all others.
fn fates(report: &RunReport) -> [u64; 3] {
    let in_time = report.in_time_bytes.min(report.ahead_bytes);
    let late = report.late_bytes.min(report.ahead_bytes - in_time);
    [in_time, late, report.ahead_bytes - in_time - late]
}

/// What became of the readahead. None where there was none.
fn ahead(report: &RunReport) -> Option<Figure> {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let kind = |colour, fill, name| BarKind {
        colour: Some(colour),
        fill,
        name,
    };
    let bars = Bars {
        title: "What became of the readahead".to_string(),
        about: about("A bar in three parts"),
        head: "Read ahead, MB".to_string(),
        kinds: vec![
            kind(looks::HIT, Fill::Solid, "there when it was read"),
            kind(looks::LATE, Fill::Hatched, "late: the command still waited"),
            kind(looks::UNUSED, Fill::Outline, "not read, or not seen to be"),
        ],
        bars: vec![Bar {
            name: "read ahead".to_string(),
            figure: amount(report.ahead_bytes),
            parts: fates(report).map(mb).to_vec(),
            ..Bar::default()
        }],
        compact: false,
    };
    (report.ahead_bytes > 0).then(|| Figure::new(bars.draw(), ""))
}

fn figures(report: &RunReport) -> Grid {
    let [in_time, late, others] = fates(report);
    let seconds = |s: f64| format!("{} s", span_s(s, None));
    let rows = [
        ("took", seconds(report.seconds)),
        (
            "at least one thread waited for the storage",
            seconds(report.waiting_seconds),
        ),
        (
            "all threads together waited",
            seconds(report.waited_seconds),
        ),
        ("spared, estimated", seconds(report.spared_seconds)),
        ("reads that waited", count(report.waits)),
        (
            "a read waits, in the median",
            latency_us(report.latency_seconds * 1e6),
        ),
        ("files watched", count(report.files)),
        ("read ahead", amount(report.ahead_bytes)),
        ("in requests", count(report.ahead_jobs)),
        ("of it there when it was read", amount(in_time)),
        ("of it late", amount(late)),
        ("of it not read, or not seen to be", amount(others)),
        ("the kernel reads ahead", size(report.kernel_bytes)),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_string(), value]);
    Grid::new("Measured", ["", "value"]).with(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gained() -> RunReport {
        RunReport {
            seconds: 2.0,
            spared_seconds: 6.0,
            waiting_seconds: 1.5,
            waited_seconds: 3.0,
            ahead_bytes: 64_000_000,
            used_bytes: 60_000_000,
            in_time_bytes: 50_000_000,
            late_bytes: 10_000_000,
            unused_bytes: 4_000_000,
            is_watched: true,
            files: 9,
            waits: 12,
            ..RunReport::default()
        }
    }

    fn of(report: &RunReport) -> String {
        page(
            report,
            "grep -r <x>",
            None,
            "{\"schema\": \"foreread.run/1\"}",
        )
    }

    #[test]
    fn the_gain_is_said_drawn_and_called_an_estimate() {
        let html = of(&gained());
        assert!(
            html.contains("4.00 times as fast: it took 2.000 s"),
            "{html}"
        );
        assert!(html.contains("grep -r &lt;x&gt;") && html.contains("without it, estimated"));
        assert!(html.contains("is an estimate") && html.contains(", fastest<"));
        assert!(html.contains("Read ahead, MB"));
    }

    #[test]
    fn no_gain_is_no_second_bar() {
        let html = of(&RunReport {
            used_bytes: 0,
            ahead_bytes: 0,
            ..gained()
        });
        assert!(
            html.contains("Nothing to gain: ") && !html.contains("estimated</text>"),
            "{html}"
        );
        assert!(!html.contains("Read ahead, MB") && !html.contains("fastest"));
        let refused = Some("no tracefs".to_string());
        let html = of(&RunReport {
            refused,
            ..gained()
        });
        assert!(html.contains("Nothing was read ahead: no tracefs.") && !html.contains("fastest"));
    }
}
