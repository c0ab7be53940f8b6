//! A report as a table for the terminal, at most as wide as [`width::columns`].
//!
//! Where there is no room for all columns those that matter least are left out, and a line names them.
//! Never: asks whether there is a terminal or what it can do. The caller says so ([`Style`]).

use super::row::{Report, Row, Time};
use foreread_report::number::{self, TIE, or_dash};
use foreread_report::table::TextTable;
use foreread_report::width;
use foreread_sim::stats::ratio;

/// Width that a policy with its parameters always has before it is broken into lines: what is left of 100 columns when
/// all others are full. It gets more where they are not.
const POLICY_WIDTH: usize = 16;
/// Columns in the order in which they are left out where there is no room.
const LEFT_OUT_FIRST: [usize; 11] = [4, 6, 5, 9, 11, 7, 10, 12, 8, 3, 2];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Print the best row in bold.
    pub bold: bool,
    /// Print how the marks were found: tests, correction, pairs.
    pub details: bool,
}

const HEADER: [&str; 13] = [
    "\n  policy",
    "time\ns ±95%",
    "vs\nnone",
    "\nMB/s",
    "RA\nops",
    "RA\nMB",
    "read\nops",
    "read\nMB",
    "hit\n%",
    "late\n%",
    "un-\nused",
    "read\nampl.",
    "\np99",
];

/// Which column gives way to money where there are prices: throughput, which is the size over the time. JSON has both.
const MONEY_AT: usize = 3;

/// The report as text: a title, the table, the legend, the limits, the notes, with details the tests. Ends with a newline.
#[must_use]
pub fn render(report: &Report, style: Style) -> String {
    render_in(report, style, width::columns())
}

fn render_in(report: &Report, style: Style, width: usize) -> String {
    let mut lines = number::wrap(&title(report), width);
    lines.push(String::new());
    let (grid, left_out) = grid(report, style, width);
    lines.extend(grid);
    lines.push(String::new());
    lines.extend(
        legend(report)
            .iter()
            .flat_map(|line| number::wrap(line, width)),
    );
    lines.extend(
        limits(report)
            .iter()
            .flat_map(|line| number::wrap(line, width)),
    );
    if !left_out.is_empty() {
        let text = format!(
            "No room for: {}. A wider terminal or --json shows them.",
            left_out.join(", ")
        );
        lines.extend(number::wrap(&text, width));
    }
    for note in &report.notes {
        lines.extend(number::wrap(&format!("Note: {note}."), width));
    }
    let statistics = statistics(report).filter(|_| style.details);
    lines.extend(statistics.iter().flat_map(|line| number::wrap(line, width)));
    lines.join("\n") + "\n"
}

fn title(report: &Report) -> String {
    let about = if report.source_about.is_empty() {
        String::new()
    } else {
        format!(" ({})", report.source_about)
    };
    let runs = if report.runs == 1 {
        "1 run".to_string()
    } else {
        format!("{} runs", report.runs)
    };
    let (cache, page) = (
        number::size(report.cache_bytes),
        number::size(report.page_bytes),
    );
    format!(
        "{} on {}{about}: {runs}, cache {cache}, page {page}, seed{TIE}{}",
        report.workload, report.source, report.seed
    )
}

/// The table, with as much room for the policies as the other columns leave; and the columns that found none.
fn grid(report: &Report, style: Style, width: usize) -> (Vec<String>, Vec<String>) {
    let mut columns: Vec<usize> = (0..HEADER.len()).collect();
    let widest = |columns: &[usize]| {
        let narrow = grid_of(report, Style::default(), POLICY_WIDTH, columns);
        narrow.iter().map(|l| l.chars().count()).max().unwrap_or(0)
    };
    let mut left_out = Vec::new();
    for out in LEFT_OUT_FIRST {
        if widest(&columns) <= width {
            break;
        }
        columns.retain(|column| *column != out);
        left_out.push(
            header(report)[out]
                .trim()
                .replace("un-\n", "un")
                .replace('\n', " "),
        );
    }
    // The column of the policies may be narrower than it is allowed to be, so the room is tried, not reckoned.
    let fits = |policy: &usize| {
        let lines = grid_of(report, Style::default(), *policy, &columns);
        lines.iter().all(|line| line.chars().count() <= width)
    };
    let room = width.saturating_sub(widest(&columns));
    let policy = (POLICY_WIDTH..=POLICY_WIDTH + room)
        .rev()
        .find(fits)
        .unwrap_or(POLICY_WIDTH);
    (grid_of(report, style, policy, &columns), left_out)
}

fn header(report: &Report) -> [&'static str; 13] {
    let mut header = HEADER;
    if by_latency(report) {
        header[1] = "wait\nms ±95%";
    }
    if report.price.is_some() {
        header[MONEY_AT] = "USD\na run";
    }
    header
}

fn grid_of(report: &Report, style: Style, policy_width: usize, columns: &[usize]) -> Vec<String> {
    let header = header(report);
    let mut grid = TextTable::new([0]).head(columns.iter().map(|&column| header[column]));
    // How many lines each row takes, to find the best one's again.
    let mut heights = Vec::new();
    for row in &report.rows {
        let cells = cells(report, row, policy_width);
        heights.push(cells[0].lines().count());
        grid.add(columns.iter().map(|&column| &cells[column]));
    }
    let mut lines = grid.lines();
    if let (true, Some(best)) = (style.bold, sole_best(report)) {
        let before = 2 + heights[..best].iter().sum::<usize>();
        for line in lines.iter_mut().skip(before).take(heights[best]) {
            *line = format!("\x1b[1m{line}\x1b[0m");
        }
    }
    lines
}

/// The row that a corrected test calls the fastest, if one is.
fn sole_best(report: &Report) -> Option<usize> {
    match &report.best[..] {
        [one] if report.rows.len() > 1 => report.rows.iter().position(|r| r.policy == *one),
        _ => None,
    }
}

fn cells(report: &Report, row: &Row, policy_width: usize) -> Vec<String> {
    let mb = |bytes: Option<u64>| or_dash(bytes, |b| number::three(b as f64 / number::MB));
    let count = |n: Option<u64>| or_dash(n, number::count);
    let part = |a: Option<u64>, b: Option<u64>| {
        or_dash(
            a.zip(b).and_then(|(a, b)| ratio(a as f64, b as f64)),
            number::percent,
        )
    };
    let time = |t: &Time| {
        let half = (t.runs.len() > 1).then(|| (t.ci95[1] - t.ci95[0]) / 2.0);
        let unit = if by_latency(report) { 1e3 } else { 1.0 };
        number::span_s(t.mean * unit, half.map(|half| half * unit))
    };
    vec![
        policy_lines(mark(report, row), &row.policy, policy_width),
        or_dash(row.judged(), time),
        or_dash(row.ratio_to_none, number::times),
        match report.price {
            Some(_) => or_dash(row.usd, number::money),
            None => or_dash(row.throughput_mb_s, number::three),
        },
        count(row.ra_ops),
        mb(row.ra_bytes),
        count(row.source_reads),
        mb(row.source_bytes),
        part(row.hits, row.demand_reads),
        part(row.late_hits, row.demand_reads),
        part(row.unused_bytes, row.ra_bytes),
        or_dash(row.overfetch, number::three),
        or_dash(row.p99_us, number::latency_us),
    ]
}

/// `*` for the fastest, `=` for those that share the first place, blank for the rest.
fn mark(report: &Report, row: &Row) -> char {
    match (report.best.contains(&row.policy), report.best.len()) {
        _ if report.rows.len() < 2 => ' ',
        (true, 1) => '*',
        (true, _) => '=',
        (false, _) => ' ',
    }
}

/// The name after its mark, broken behind `:` and `,` where it is too long.
fn policy_lines(mark: char, policy: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for part in policy.split_inclusive([':', ',']) {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.is_empty() && line.chars().count() + part.chars().count() > width {
            lines.push(String::new());
        }
        let mut line = lines.last_mut().expect("there is one from the start");
        for letter in part.chars() {
            if line.chars().count() == width {
                lines.push(String::new());
                line = lines.last_mut().expect("just pushed");
            }
            line.push(letter);
        }
    }
    format!("{mark} {}", lines.join("\n  "))
}

fn legend(report: &Report) -> Vec<String> {
    let marks = match report.best.len() {
        0 => "Nothing is marked: no test was possible".to_string(),
        1 => "* fastest".to_string(),
        _ => "= tied for fastest (differences within noise)".to_string(),
    };
    let what = if by_latency(report) {
        "wait, p99: of a read since it was due. wait"
    } else {
        "time"
    };
    vec![
        format!("{marks}. MB = 10^6 bytes."),
        format!(
            "{what}: mean ± half its 95 % interval. hit, late: % of reads. unused: % of readahead (RA) bytes."
        ),
        "read ampl.: read amplification, bytes read from the source / distinct bytes asked for."
            .to_string(),
    ]
}

/// How the marks were found, for the readers that check it.
fn statistics(report: &Report) -> Option<String> {
    let tests = report
        .comparisons
        .iter()
        .filter(|c| c.p_value.is_some())
        .count();
    let pairs = if tests == 1 {
        "1 pair".to_string()
    } else {
        format!("{tests} pairs")
    };
    (tests > 0).then(|| {
        format!(
            "Statistics: paired t tests of the runs, Holm's correction over {pairs}, alpha {}.",
            report.alpha
        )
    })
}

/// Whether the rows are compared by latency: then the table shows it instead of the time.
fn by_latency(report: &Report) -> bool {
    report.rows.iter().any(|row| row.latency_s.is_some())
}

/// What no row can beat, how much of what can be gained each row gains, and what the money is.
fn limits(report: &Report) -> Vec<String> {
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
        // A shade less than nothing is nothing.
        let score = |r: &Row| {
            r.score
                .map(|s| if (-0.005..0.0).contains(&s) { 0.0 } else { s })
        };
        let part = |r: &Row| Some(format!("{} {} %", r.policy, number::percent(score(r)?)));
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
    lines.extend(report.price.as_ref().map(|price| format!("USD: {price}.")));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Table, samples};
    use super::*;

    fn plain(table: &Table) -> String {
        render(&Report::of(table), Style::default())
    }

    #[test]
    fn the_whole_table() {
        let want = "\
boot-ide on model:rbd (0.690 ms a read, 62.5 MB/s): 5 runs, cache 64M, page 4K, seed 1

                    time    vs       RA   RA read read hit late  un-  read
  policy          s ±95%  none MB/s ops   MB  ops   MB   %    % used ampl.   p99
  none       46.20 ±0.20 x1.00 0.09   0    0   62 4.10   0    0    -  1.00 990us
  linux-6.18 13.00 ±0.20 x0.28 0.32  40 5.24   83 5.50  90    5   25  1.34 990us
* rbd-plain  11.42 ±0.16 x0.25 0.36  30 3.93   64 4.20  90    5    3  1.03 990us

* fastest. MB = 10^6 bytes.
time: mean ± half its 95 % interval. hit, late: % of reads. unused: % of readahead (RA) bytes.
read ampl.: read amplification, bytes read from the source / distinct bytes asked for.
";
        let got = plain(&samples::boot());
        assert_eq!(got, want, "\n{got}");
        let tests =
            "Statistics: paired t tests of the runs, Holm's correction over 3 pairs, alpha 0.05.\n";
        let detailed = render(
            &Report::of(&samples::boot()),
            Style {
                details: true,
                ..Style::default()
            },
        );
        assert_eq!(detailed, want.to_string() + tests, "\n{detailed}");
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
        assert!(
            text.contains("\n= linux-6.18 ")
                && text.contains("\n= rbd-plain ")
                && text.contains("\n= tied for fastest (differences within noise). MB"),
            "{text}"
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
        assert_eq!(bold.len(), 3, "{text}");
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
            assert!(
                text.contains("linux-6.18") && text.contains("13.00 ±0.20"),
                "{text}"
            );
        }
        let narrow = render_in(&report, Style::default(), width::MIN);
        assert!(
            narrow.contains("No room for: RA ops, read ops, RA MB,"),
            "{narrow}"
        );
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
        assert!(
            text.contains("x<.01") && text.contains("123456") && text.contains("30141"),
            "{text}"
        );
    }

    #[test]
    fn what_is_undefined_is_a_dash() {
        let mut table = samples::table("w", "s", vec![samples::runs("kernel", &[2.0], 0, 0, 0)]);
        table.policies[0].runs[0].kernel = true;
        let text = plain(&table);
        let row = text
            .lines()
            .find(|l| l.contains("kernel"))
            .expect("there is its row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "kernel", "2.000", "-", "2.05", "-", "-", "-", "-", "-", "-", "-", "-", "990us"
            ]
        );
        assert!(
            text.contains("\nNothing is marked: no test was possible. MB")
                && text.contains("Note: one run"),
            "{text}"
        );
    }
}
