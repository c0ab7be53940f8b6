//! A report as blocks: its table, the legend, the limits and the notes, for the terminal and for the page.
//!
//! Never: asks whether there is a terminal or what it can do. The caller says so ([`Style`]).

use super::row::{Relation, Report, Row, Time};
use super::series::throughput;
use super::{CacheRun, RowDiskCache};
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

/// The report as text: a title, the table, the legend, the limits, the notes, with details the tests. Ends with a newline.
#[must_use]
pub fn render(report: &Report, style: Style) -> String {
    render_in(report, style, width::columns())
}

fn render_in(report: &Report, style: Style, width: usize) -> String {
    block::text(blocks(report, style.details), width, style.bold)
}

pub(crate) fn blocks(report: &Report, details: bool) -> Vec<Block> {
    let table = Block::Table(rows(report));
    let mut blocks = vec![Block::Screen(title(report)), Block::Gap, table, Block::Gap];
    blocks.extend(legend(report).map(Block::Screen));
    blocks.extend(limits(report).into_iter().map(Block::Text));
    blocks.push(Block::NoRoom);
    blocks.extend(report.notes.iter().cloned().map(Block::Note));
    blocks.extend(statistics(report.tests(), "", report.alpha).filter(|_| details));
    blocks
}

fn title(report: &Report) -> String {
    let about = if report.source_about.is_empty() {
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
        report.workload,
        report.place(),
        report.seed
    )
}

pub(super) type RowColumn<'a> = Column<'a, Row>;

/// Where there are prices they take the place of the throughput, which is the size over the time.
pub(super) fn columns(report: &Report) -> Vec<RowColumn<'_>> {
    let (money, waits) = (report.price.is_some(), by_latency(report));
    let (judged, unit) = if waits {
        ("wait\nms ±95%", 1e3)
    } else {
        ("time\ns ±95%", 1.0)
    };
    let span = |time: &Time, unit: f64| {
        let half = (time.runs.len() > 1).then(|| (time.ci95[1] - time.ci95[0]) / 2.0);
        number::span_s(time.mean * unit, half.map(|half| half * unit))
    };
    let rate = move |row: &Row| {
        let point = throughput(row).filter(|_| report.runs > 1)?;
        Some(point.interval.map(finite).join(" to "))
    };
    let refaults = report.rows.iter().any(|row| row.refault_bytes > Some(0));
    let mut columns = vec![
        RowColumn::new("\n  policy", |row| row.policy.clone()).left(),
        RowColumn::new(judged, move |row| or_dash(row.judged(), |t| span(t, unit))),
        RowColumn::new("time s ±95%", move |row| {
            or_dash(row.time_s.as_ref(), |t| span(t, 1.0))
        })
        .on(false, waits),
        RowColumn::new("vs\nnone", |row| or_dash(row.ratio_to_none, number::times)).rank(11),
        RowColumn::new("\nMB/s", |row| or_dash(row.throughput_mb_s, three))
            .on(!money, true)
            .rank(10),
        RowColumn::new("MB/s 95 %", move |row| or_dash(rate(row), |text| text)).on(false, true),
        RowColumn::new("RA\nops", |row| or_dash(row.ra_ops, count)).rank(1),
        RowColumn::new("RA\nMB", |row| mb(row.ra_bytes)).rank(3),
        RowColumn::new("read\nops", |row| or_dash(row.source_reads, count)).rank(2),
        RowColumn::new("read\nMB", |row| mb(row.source_bytes)).rank(6),
        RowColumn::new("re-\nread MB", |row| mb(row.refault_bytes))
            .page("refaulted MB")
            .on(refaults, refaults)
            .rank(6),
        RowColumn::new("hit\n%", |row| share(row.hits, row.demand_reads)).rank(9),
        RowColumn::new("late\n%", |row| share(row.late_hits, row.demand_reads)).rank(4),
        RowColumn::new("miss\n%", |row| share(row.misses, row.demand_reads)).on(false, true),
        RowColumn::new("un-\nused", |row| share(row.unused_bytes, row.ra_bytes))
            .page("unused %")
            .rank(7),
        RowColumn::new("read\nampl.", |row| or_dash(row.overfetch, three))
            .page("read amplification")
            .rank(5),
        RowColumn::new("p50", |row| or_dash(row.p50_us, latency_us)).on(false, true),
        RowColumn::new("\np99", |row| or_dash(row.p99_us, latency_us)).rank(8),
    ];
    if money {
        let usd = RowColumn::new("USD\na run", |row| or_dash(row.usd, number::money));
        columns.insert(5, usd.rank(10));
    }
    if let Some(cache) = &report.disk_cache {
        with_disk_cache(&mut columns, cache.run);
    }
    columns
}

/// What the engine asked for is no news where a part of it came from the disk.
fn with_disk_cache(columns: &mut Vec<RowColumn<'_>>, run: CacheRun) {
    let of = |row: &Row, field: fn(&RowDiskCache) -> u64| row.disk_cache.as_ref().map(field);
    columns.retain(|column| !["read ops", "read MB", "read ampl."].contains(&&*column.name()));
    let at = columns.len() - 2;
    let own = [
        RowColumn::new("store\nops", move |row| {
            or_dash(of(row, |cache| cache.store_reads), count)
        })
        .rank(8),
        RowColumn::new("store\nMB", move |row| {
            mb(of(row, |cache| cache.store_bytes))
        })
        .rank(12),
        RowColumn::new("disk\nMB", move |row| mb(of(row, |cache| cache.disk_bytes))).rank(12),
        RowColumn::new("written MB", move |row| {
            mb(of(row, |cache| cache.written_bytes))
        })
        .on(false, true),
        RowColumn::new("not kept MB", move |row| {
            mb(of(row, |cache| cache.dropped_bytes))
        })
        .on(false, true),
    ];
    columns.splice(at..at, own);
    let to_first = |row: &Row| row.disk_cache.as_ref()?.ratio_to_first;
    let gain = RowColumn::new("vs\n1st", move |row| or_dash(to_first(row), number::times))
        .page("vs first run")
        .rank(12);
    if run == CacheRun::Second {
        columns.insert(4, gain);
    }
}

fn finite(rate: f64) -> String {
    or_dash(Some(rate).filter(|rate| rate.is_finite()), three)
}

pub(super) fn rows(report: &Report) -> Table {
    let caption = "Means of the runs. MB = 10^6 bytes; RA: readahead";
    let mut table = Table::new(caption, columns(report), &report.rows);
    table.marks = report.rows.iter().map(|row| mark(report, row)).collect();
    table.strong = Vec::from_iter(table.marks.iter().position(|mark| *mark == '*'));
    table
}

/// `*` for the fastest, `=` for those that share the first place, blank for the rest.
pub(super) fn mark(report: &Report, row: &Row) -> char {
    match (report.best.contains(&row.policy), report.best.len()) {
        _ if report.rows.len() < 2 => ' ',
        (true, 1) => '*',
        (true, _) => '=',
        (false, _) => ' ',
    }
}

fn legend(report: &Report) -> [String; 3] {
    let marks = match report.best.len() {
        0 => "Nothing is marked: no test was possible".to_string(),
        1 => "* fastest".to_string(),
        _ => format!("= {}", tied(report)),
    };
    let what = if by_latency(report) {
        "wait, p99: of a read since it was due. wait"
    } else {
        "time"
    };
    [
        format!("{marks}. MB = 10^6 bytes."),
        format!(
            "{what}: mean ± half its 95 % interval. hit, late: % of reads. unused: % of readahead (RA) bytes."
        ),
        match &report.disk_cache {
            None => "read ampl.: read amplification, bytes read from the source / distinct bytes asked for.",
            Some(_) => "store: asked of the store. disk: read from the cache on disk.",
        }
        .to_string(),
    ]
}

/// What several rows have in common that may each be the fastest.
pub(super) fn tied(report: &Report) -> String {
    let fastest = report.fastest();
    let is_equal = |policy: &String| {
        fastest.is_none_or(|one| {
            one.policy == *policy
                || report.relation(&one.policy, policy) == Some(Relation::Equivalent)
        })
    };
    if report.best.iter().all(is_equal) {
        "tied for fastest (within 5 %)".to_string()
    } else {
        format!(
            "may be the fastest: not told apart by {} (see --runs)",
            number::plural(report.runs.into(), "run")
        )
    }
}

/// How the marks were found, for the readers that check it.
pub(super) fn statistics(tests: usize, among: &str, alpha: f64) -> Option<Block> {
    let pairs = number::plural(tests as u64, "pair");
    (tests > 0).then(|| {
        Block::Screen(format!(
            "Statistics: paired t tests of the runs, Holm's correction over {pairs}{among}, alpha {alpha}."
        ))
    })
}

/// Whether the rows are compared by latency: then the table shows it instead of the time.
fn by_latency(report: &Report) -> bool {
    report.rows.iter().any(|row| row.latency_s.is_some())
}

/// What no row can beat, how much of what can be gained each row gains, and what the money is.
pub(super) fn limits(report: &Report) -> Vec<String> {
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
                && text.contains("\n= tied for fastest (within 5 %). MB"),
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
