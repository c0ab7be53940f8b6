//! Formats a report as blocks of text and tables for the terminal and the HTML page: the table of policies, the legend, the limits and the
//! notes.
//!
//! The caller passes the capabilities of the terminal ([`Style`]); this module does not query them.

use super::row::{NOTE_OF_PAGES, NOTE_OF_UNUSED, Relation, Report, Row, Time};
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, TIE, count, latency_us, mb, or_dash, share, three};
use foreread_report::width;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Print the best row in bold.
    pub bold: bool,
    /// Print how the marks were found: tests, correction, pairs.
    pub details: bool,
}

/// Formats the report as text: a title, the table, the limits, the notes, the legend and, if details are requested, the
/// statistical tests. The text ends with a newline.
pub fn render(report: &Report, style: Style) -> String {
    render_in(report, style, width::columns())
}

fn render_in(report: &Report, style: Style, width: usize) -> String {
    block::text(blocks(report, style.details), width, style.bold)
}

pub(crate) fn blocks(report: &Report, details: bool) -> Vec<Block> {
    let mut blocks = measured(report, details, &[], false);
    blocks.push(Block::Gap);
    blocks.extend(below(&[report], details));
    blocks
}

/// The blocks of one table, without those that are printed once for all tables. `said`: notes that are shown
/// elsewhere; `is_source_known`: a table above describes the source.
pub(super) fn measured(
    report: &Report,
    details: bool,
    said: &[String],
    is_source_known: bool,
) -> Vec<Block> {
    let table = Block::Table(shown(report, details));
    let mut blocks = vec![Block::Text(title(report, is_source_known)), table];
    if details {
        blocks.extend(limits(report).into_iter().map(Block::Text));
    }
    let is_shown = |note: &&String| {
        let is_detail = [NOTE_OF_PAGES, NOTE_OF_UNUSED]
            .iter()
            .any(|start| note.starts_with(start));
        !said.contains(note) && (details || !is_detail)
    };
    let notes = report.notes.iter().filter(is_shown);
    blocks.extend(notes.cloned().map(Block::Note));
    blocks
}

/// What is printed once below all tables: marks, words and columns, with details the tests.
pub(super) fn below(reports: &[&Report], details: bool) -> Vec<Block> {
    let mut blocks = vec![Block::Text(legend(reports, details)), Block::NoRoom];
    let tests = reports.iter().map(|report| report.tests()).max();
    let alpha = reports.first().map_or(0.0, |report| report.alpha);
    let among = if reports.len() > 1 { " of a table" } else { "" };
    blocks.extend(statistics(tests.unwrap_or(0), among, alpha).filter(|_| details));
    blocks
}

fn title(report: &Report, is_source_known: bool) -> String {
    let about = if is_source_known || report.source_about.is_empty() {
        String::new()
    } else {
        format!(" ({})", report.source_about)
    };
    let runs = number::plural(report.runs.into(), "run");
    let (cache, page) = (
        number::size(report.cache_bytes),
        number::size(report.page_bytes),
    );
    format!(
        "{} on {}{about}: {runs}, cache {cache}, page {page}, seed{TIE}{}",
        report.workload, report.source, report.seed
    )
}

pub(super) type RowColumn<'a> = Column<'a, Row>;

/// The columns. With `details` the terminal also has the columns of readahead and of the cache, which the page always
/// has.
pub(super) fn columns(report: &Report, details: bool) -> Vec<RowColumn<'_>> {
    let waits = by_latency(report);
    let (judged, unit) = if waits {
        ("wait, ms\n±95 %", 1e3)
    } else {
        ("time, s\n±95 %", 1.0)
    };
    let span = |time: &Time, unit: f64| {
        let half = (time.runs.len() > 1).then(|| (time.ci95[1] - time.ci95[0]) / 2.0);
        number::span_s(time.mean * unit, half.map(|half| half * unit))
    };
    let refaults = report.rows.iter().any(|row| row.refault_bytes > Some(0));
    let (none, kernel) = (report.none(), report.kernel());
    vec![
        RowColumn::new("\n  policy", |row| row.policy.clone()).left(),
        RowColumn::new(judged, move |row| or_dash(row.judged(), |t| span(t, unit))),
        RowColumn::new("time s ±95%", move |row| {
            or_dash(row.time_s.as_ref(), |t| span(t, 1.0))
        })
        .on(false, waits),
        RowColumn::new("speed\nnone=1", move |row| speed(report, none, row)).rank(11),
        RowColumn::new("speed\nkernel=1", move |row| speed(report, kernel, row))
            .on(kernel.is_some(), kernel.is_some())
            .rank(12),
        RowColumn::new("\nMB/s", |row| or_dash(row.throughput_mb_s, three)).rank(9),
        RowColumn::new("\nrequests", |row| or_dash(row.source_reads, count)).rank(5),
        RowColumn::new("MB\nread", |row| mb(row.source_bytes)).rank(6),
        RowColumn::new("MB read\nagain", |row| mb(row.refault_bytes))
            .on(details && refaults, refaults)
            .rank(6),
        RowColumn::new("read\nampl.", |row| or_dash(row.overfetch, three)).rank(8),
        RowColumn::new("ahead\nreads", |row| or_dash(row.ra_ops, count))
            .on(details, true)
            .rank(1),
        RowColumn::new("ahead\nMB", |row| mb(row.ra_bytes))
            .on(details, true)
            .rank(1),
        RowColumn::new("unused\n%", |row| share(row.unused_bytes, row.ra_bytes))
            .on(details, true)
            .rank(4),
        RowColumn::new("hit\n%", |row| share(row.hits, row.demand_reads))
            .on(details, true)
            .rank(3),
        RowColumn::new("late\n%", |row| share(row.late_hits, row.demand_reads))
            .on(details, true)
            .rank(2),
        RowColumn::new("miss\n%", |row| share(row.misses, row.demand_reads)).on(false, true),
        RowColumn::new("p99\nlatency", |row| or_dash(row.p99_us, latency_us)).rank(7),
    ]
}

/// How many times as fast as another row: a figure, "same" within 5 %, or "unclear" if the runs do not show which is faster.
fn speed(report: &Report, other: Option<&Row>, row: &Row) -> String {
    let means = other.and_then(|other| Some((other, other.judged()?.mean, row.judged()?.mean)));
    let Some((other, before, now)) = means.filter(|(_, before, now)| *before > 0.0 && *now > 0.0)
    else {
        return number::UNDEFINED.to_string();
    };
    if other.policy == row.policy {
        return "1".to_string();
    }
    match report.relation(&other.policy, &row.policy) {
        Some(Relation::Equivalent) => "same".to_string(),
        Some(Relation::NotToldApart) => "unclear".to_string(),
        Some(Relation::Different) | None => three(before / now),
    }
}

pub(crate) fn rows(report: &Report) -> Table {
    // Bars of times would hide the differences between fast policies beside a slow one.
    let speed = |mean: f64| if mean > 0.0 { mean.recip() } else { 0.0 };
    let bar = |row: &Row| row.judged().map_or(0.0, |time| speed(time.mean));
    let mut table = shown(report, true);
    table.caption.push_str("; bars: speed, longer is faster");
    table.bars = report.rows.iter().map(bar).collect();
    table
}

fn shown(report: &Report, details: bool) -> Table {
    let caption = "Means of the runs. MB = 10^6 bytes; ahead: read before it was requested";
    let mut table = Table::new(caption, columns(report, details), &report.rows);
    table.marks = report.rows.iter().map(|row| mark(report, row)).collect();
    table.strong = table.marks.iter().position(|mark| *mark == '*');
    table
}

/// `*` for the fastest, `=` for rows that are tied for it, `?` for rows that may be it, blank for the rest.
pub(super) fn mark(report: &Report, row: &Row) -> char {
    match (report.best.contains(&row.policy), report.best.len()) {
        _ if report.rows.len() < 2 => ' ',
        (true, 1) => '*',
        (true, _) if is_tie(report) => '=',
        (true, _) => '?',
        (false, _) => ' ',
    }
}

/// The marks and words that occur in these tables, and the columns that all tables have.
fn legend(reports: &[&Report], details: bool) -> String {
    let has = |mark: char| {
        let marks = |report: &&Report| {
            report
                .rows
                .iter()
                .any(|row| self::mark(report, row) == mark)
        };
        reports.iter().any(marks)
    };
    let says = |word: &str| {
        let row = |report: &Report, row: &Row| {
            [report.none(), report.kernel()]
                .into_iter()
                .any(|other| speed(report, other, row) == word)
        };
        reports
            .iter()
            .any(|report| report.rows.iter().any(|r| row(report, r)))
    };
    let untested = reports.iter().any(|report| report.best.is_empty());
    let runs = reports.iter().map(|report| report.runs).min().unwrap_or(0);
    let marks = [
        has('*').then(|| "* fastest".to_string()),
        has('=').then(|| "= tied for fastest (within 5 %)".to_string()),
        has('?').then(|| may_be(runs)),
        untested.then(|| "Nothing is marked: no test was possible".to_string()),
        says("same").then(|| "same: within 5 %".to_string()),
        says("unclear").then(|| "unclear: not told apart".to_string()),
    ];
    let mut marks: Vec<String> = marks.into_iter().flatten().collect();
    let waits = reports.iter().any(|report| by_latency(report));
    let what = match waits {
        true => "wait, p99: time of a read from when it was due. wait",
        false => "time",
    };
    let has_kernel = reports.iter().any(|report| report.kernel().is_some());
    let has_limit = reports.iter().any(|report| report.limit().is_some());
    let kernel = match has_kernel {
        true => " or kernel (its own readahead)",
        false => "",
    };
    marks.extend([
        format!("{what}: mean ± half its 95 % interval"),
        format!("speed: times as fast as none (no readahead){kernel}"),
        "read ampl.: read amplification, bytes read from the source for each distinct byte asked for"
            .to_string(),
        "MB: 10^6 bytes".to_string(),
    ]);
    // With details, a separate line explains it.
    let limit = "oracle: perfect foresight, a limit, not a choice";
    marks.extend((has_limit && !details).then(|| limit.to_string()));
    let ahead = "ahead: read before it was requested; unused: % of it. hit, late: % of reads";
    marks.extend(details.then(|| ahead.to_string()));
    format!("{}.", marks.join(". "))
}

/// Whether all rows that may be the fastest are equal.
fn is_tie(report: &Report) -> bool {
    let fastest = report.fastest();
    let is_equal = |policy: &String| {
        fastest.is_none_or(|one| {
            one.policy == *policy
                || report.relation(&one.policy, policy) == Some(Relation::Equivalent)
        })
    };
    report.best.iter().all(is_equal)
}

fn may_be(runs: u32) -> String {
    let runs = number::plural(runs.into(), "run");
    format!("? may be the fastest: not told apart by {runs} (see --runs)")
}

/// The mark and its meaning for several rows that may each be the fastest.
pub(super) fn tied(report: &Report) -> String {
    if is_tie(report) {
        "= tied for fastest (within 5 %)".to_string()
    } else {
        may_be(report.runs)
    }
}

/// How the marks were found, so that users can check them.
pub(super) fn statistics(tests: usize, among: &str, alpha: f64) -> Option<Block> {
    let pairs = number::plural(tests as u64, "pair");
    (tests > 0).then(|| {
        Block::Text(format!(
            "Statistics: paired t tests of the runs, Holm's correction over {pairs}{among}, alpha {alpha}."
        ))
    })
}

/// Whether the rows are compared by latency: then the table shows it instead of the time.
pub(super) fn by_latency(report: &Report) -> bool {
    report.rows.iter().any(|row| row.latency_s.is_some())
}

/// What no row can beat, and which part of the possible gain each row gains.
pub(crate) fn limits(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(bound), Some(device), Some(readers)) = (
        report.bound_s,
        report.bound_device_s,
        report.bound_readers_s,
    ) {
        let s = |seconds| {
            if seconds > 0.0 {
                number::span_s(seconds, None)
            } else {
                "0".to_string()
            }
        };
        let path = report
            .bound_path_s
            .filter(|path| *path > device.max(readers));
        let path = path.map_or(String::new(), |path| {
            format!(", one after the other {} s", s(path))
        });
        lines.push(format!(
            "Lower bound: {} s (device {} s, readers {} s{path}).",
            s(bound),
            s(device),
            s(readers)
        ));
    }
    if report.rows.iter().any(|r| r.limit) {
        // A value slightly below zero is shown as zero.
        let score = |r: &Row| {
            r.score
                .map(|s| if (-0.005..0.0).contains(&s) { 0.0 } else { s })
        };
        let part = |r: &Row| {
            Some(match score(r)? {
                // A share of a loss has no meaning.
                score if score < 0.0 => format!("{} none (slower than none)", r.policy),
                score => format!("{} {} %", r.policy, number::percent(score)),
            })
        };
        let parts: Vec<String> = report
            .rows
            .iter()
            .filter(|r| r.kind.is_choice())
            .filter_map(part)
            .collect();
        let gained = if parts.is_empty() {
            String::new()
        } else {
            format!(" Share of its gain: {}.", parts.join(", "))
        };
        lines.push(format!(
            "oracle: the best schedule found with perfect foresight.{gained}"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Table, samples};
    use super::*;
    use foreread_testing::says;

    fn plain(table: &Table) -> String {
        render(&Report::of(table), Style::default())
    }

    #[test]
    fn the_whole_table() {
        let want = "\
boot-ide on model:rbd (0.690 ms a read, 62.5 MB/s): 5 runs, cache 64M, page 4K, seed 1
                 time, s  speed                 MB  read     p99
  policy           ±95 % none=1 MB/s requests read ampl. latency
  none       46.20 ±0.20      1 0.09       62 4.10  1.00   990us
  linux-6.18 13.00 ±0.20   3.55 0.32       83 5.50  1.34   990us
* rbd-plain  11.42 ±0.16   4.05 0.36       64 4.20  1.03   990us

* fastest. time: mean ± half its 95 % interval. speed: times as fast as none (no readahead). read
  ampl.: read amplification, bytes read from the source for each distinct byte asked for. MB: 10^6
  bytes.
";
        let got = plain(&samples::boot());
        assert_eq!(got, want, "\n{got}");
        let detailed = render(
            &Report::of(&samples::boot()),
            Style {
                details: true,
                ..Style::default()
            },
        );
        let tests =
            "Statistics: paired t tests of the runs, Holm's correction over 3 pairs, alpha 0.05.\n";
        assert!(detailed.ends_with(tests), "\n{detailed}");
        let heads = "ahead ahead unused hit late";
        assert!(detailed.contains(heads), "\n{detailed}");
    }

    #[test]
    fn a_tie_is_shown_as_one_and_nothing_is_bold() {
        let mut table = samples::boot();
        table.policies[1] = samples::runs(
            "linux-6.18",
            &[11.2, 11.6, 11.3, 11.5, 11.4],
            0,
            0,
            4_096_000,
        );
        let text = render(
            &Report::of(&table),
            Style {
                bold: true,
                ..Style::default()
            },
        );
        says(
            &text,
            &[
                "\n= linux-6.18 ",
                "\n= rbd-plain ",
                "\n= tied for fastest (within 5 %). ",
            ],
        );
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn the_best_row_alone_is_bold_with_all_its_lines() {
        let mut table = samples::boot();
        table.policies[1].policy = "linux-6.18:max=1M,second=8K".to_string();
        table.policies[2].policy =
            "rbd-plain:trigger=3,max=1M,min=128K,disable-after=50M,page=512,object=4M".to_string();
        let text = render(
            &Report::of(&table),
            Style {
                bold: true,
                ..Style::default()
            },
        );
        let bold: Vec<&str> = text.lines().filter(|l| l.contains('\x1b')).collect();
        assert_eq!(bold.len(), 2, "{text}");
        assert!(
            text.lines()
                .any(|l| l.starts_with("  linux-6.18:max=1M,second=8K ")),
            "there is room for it: {text}"
        );
        assert!(
            bold[0].starts_with("\x1b[1m* rbd-plain:") && bold[1].contains("disable-after=50M,"),
            "{text}"
        );
        assert!(bold.iter().all(|l| l.ends_with("\x1b[0m")), "{text}");
        assert!(!render(&Report::of(&table), Style::default()).contains('\x1b'));
    }

    #[test]
    fn it_is_as_wide_as_the_terminal_and_names_what_has_no_room() {
        let report = Report::of(&samples::boot());
        for width in [width::MIN, 60, 80, width::DEFAULT, width::MAX] {
            let text = render_in(&report, Style::default(), width);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{widest:?} of {width}:\n{text}");
            assert_eq!(text.contains("No room for: "), width < 80, "{text}");
            says(&text, &["linux-6.18", "13.00 ±0.20"]);
        }
        let narrow = render_in(&report, Style::default(), width::MIN);
        says(&narrow, &["No room for: requests, MB read, p99"]);
    }

    #[test]
    fn no_line_is_wider_than_promised_even_when_every_cell_is() {
        let mut table = samples::boot();
        table.source_about = "a long story about the storage ".repeat(5);
        table.notes = vec!["something that takes many words to say ".repeat(6)];
        table.policies[1].policy =
            "name:averyveryverylongkeywithoutend=12345678901234567890".to_string();
        for (i, run) in table.policies[1].runs.iter_mut().enumerate() {
            run.time_s = 0.0123 + 0.0001 * i as f64;
            run.latency.clear();
            run.latency.record(12_345_678).expect("fits");
            run.stats.demand_bytes = 123_456_000_000;
            run.stats.hits = 999;
            run.stats.ra_ops = 123_456;
            run.stats.source_reads = 654_321;
            run.stats.ra_bytes = 123_456_000_000;
            run.stats.unused_bytes = 1;
            run.stats.source_bytes = 123_456_000_000;
        }
        let text = plain(&table);
        for line in text.lines() {
            assert!(
                line.chars().count() <= width::DEFAULT,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        says(&text, &["3696", "654321", "30141"]);
    }

    #[test]
    fn what_is_undefined_is_a_dash() {
        let mut table = samples::table("w", "s", vec![samples::runs("kernel", &[2.0], 0, 0, 0)]);
        table.policies[0].runs[0].kernel = true;
        let text = plain(&table);
        let row = text
            .lines()
            .find(|l| l.contains("  kernel "))
            .expect("there is its row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            ["kernel", "2.000", "-", "1", "2.05", "-", "-", "-", "990us"]
        );
        says(
            &text,
            &[
                "\nNothing is marked: no test was possible. ",
                "Note: only one run",
            ],
        );
    }
}
