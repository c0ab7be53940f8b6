//! The HTML page of `run`: how long the command waited, how the readahead was used, and what else can be done.

use super::{RunReport, WatchBy};
use foreread_report::figure::{Bar, Bars, Figure};
use foreread_report::number::{amount, count, latency_us, size, span_s};
use foreread_report::page::{Grid, Page, Section, fact};

/// The page. `command` is quoted for a shell, or names the process. `next` contains the line to paste, the place where to use it, and the
/// reason. `json` is the JSON that `--json` writes.
#[must_use]
pub fn page(report: &RunReport, command: &str, next: Option<[String; 3]>, json: &str) -> String {
    let seen = match report.by {
        WatchBy::Sample => "by samples",
        WatchBy::Trace => "by the kernel's tracepoints",
    };
    let page = Page {
        title: format!("Readahead for {command}"),
        lead: ("What it did", vec![verdict(report)]),
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
    if let Some(finding) = report.finding() {
        let (first, rest) = finding.split_at(1);
        return format!("{}{rest}. It took {took} s.", first.to_uppercase());
    }
    format!(
        "It took {took} s and waited for the storage for at least {} s of this time. Of the {} that were read ahead, {} were cached before the command read them.",
        span_s(report.waiting_seconds, None),
        amount(report.ahead_bytes),
        amount(report.in_time_bytes)
    )
}

fn measured(report: &RunReport) -> Section {
    let mut notes = Vec::new();
    notes.push(match report.by {
        WatchBy::Sample => "Samples do not show reads that never block".to_string(),
        WatchBy::Trace => {
            "Waits for readahead in flight, and waits while nothing was watched, are not counted"
                .to_string()
        }
    });
    if report.lost_events > 0 {
        notes.push(format!(
            "Events were lost {} times",
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
    let waited = report.waiting_seconds;
    let rest = report.seconds - waited;
    let bar = Bar {
        name: "the command".to_string(),
        value: format!("{} s", span_s(report.seconds, None)),
        parts: vec![waited, rest],
        ..Bar::default()
    };
    let parts = vec!["waited for the storage", "everything else"];
    let bars = vec![bar];
    Figure::bars("Time, s (less is better)", Bars { parts, bars })
}

/// Bytes read ahead that arrived in time, that arrived late, and the rest.
fn fates(report: &RunReport) -> [u64; 3] {
    [report.in_time_bytes, report.late_bytes, report.unused_bytes]
}

/// How the readahead was used. Returns `None` if there was no readahead.
fn ahead(report: &RunReport) -> Option<Figure> {
    let bar = Bar {
        name: "read ahead".to_string(),
        value: amount(report.ahead_bytes),
        parts: fates(report).map(|bytes| bytes as f64 / 1e6).to_vec(),
        ..Bar::default()
    };
    let parts = vec![
        "cached before it was read",
        "late: the command still waited",
        "not read, or not observed to be read",
    ];
    let bars = vec![bar];
    (report.ahead_bytes > 0).then(|| Figure::bars("Read ahead, MB", Bars { parts, bars }))
}

fn figures(report: &RunReport) -> Grid {
    let [in_time, late, others] = fates(report);
    let seconds = |s: f64| format!("{} s", span_s(s, None));
    let rows = [
        ("took", seconds(report.seconds)),
        (
            "at least one thread waited for the storage, at least",
            seconds(report.waiting_seconds),
        ),
        (
            "all threads together waited, at least",
            seconds(report.waited_seconds),
        ),
        ("reads that waited", count(report.waits)),
        (
            "shortest wait of a read",
            latency_us(report.latency_seconds * 1e6),
        ),
        ("files watched", count(report.files)),
        ("read ahead", amount(report.ahead_bytes)),
        ("in requests", count(report.ahead_jobs)),
        ("read ahead, and cached before it was read", amount(in_time)),
        ("read ahead, but late", amount(late)),
        (
            "read ahead, but not read, or not observed to be read",
            amount(others),
        ),
        ("the kernel reads ahead", size(report.kernel_bytes)),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_string(), value]);
    Grid::new("Measured", ["", "value"]).with(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_bytes_are_said_and_drawn() {
        let read = RunReport {
            seconds: 2.0,
            waiting_seconds: 1.5,
            ahead_bytes: 64_000_000,
            used_bytes: 60_000_000,
            in_time_bytes: 50_000_000,
            late_bytes: 10_000_000,
            unused_bytes: 4_000_000,
            is_watched: true,
            files: 9,
            waits: 12,
            ..RunReport::default()
        };
        let json = "{\"schema\": \"foreread.run/1\"}";
        let html = |report: &RunReport| page(report, "grep -r <x>", None, json);
        let text = html(&read);
        assert!(text.contains("It took 2.000 s and waited"), "{text}");
        assert!(text.contains("grep -r &lt;x&gt;") && text.contains("Read ahead, MB"));
        let nothing = RunReport {
            in_time_bytes: 0,
            ahead_bytes: 0,
            ..read.clone()
        };
        let text = html(&nothing);
        assert!(text.contains("Nothing to gain: ") && !text.contains("Read ahead, MB"));
        let refused = Some("no tracefs".to_string());
        let text = html(&RunReport { refused, ..read });
        assert!(text.contains("Nothing was read ahead: no tracefs."));
    }
}
