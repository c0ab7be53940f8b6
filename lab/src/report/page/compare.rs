//! The page of `compare`: the advice, the times of all tables on one screen, then for each table its times, bytes, latencies and maps.
//!
//! Never: a map of a run that was not simulated; a file's reads are not watched one by one, and the page says so.

use super::{map, times};
use crate::report::MappedRun;
use crate::report::row::{Report, Row, to_json};
use crate::report::table::{self, RowColumn};
use crate::report::{advise, by_source};
use foreread_report::block::{self, Block, Table};
use foreread_report::chart::looks;
use foreread_report::number::{self, latency_us, mb, or_dash};
use foreread_report::page::bars::{Bar, BarKind, Bars, Fill};
use foreread_report::page::curves::{Axis, Curve, CurvePoint, Curves, decades};
use foreread_report::page::{Figure, Grid, Maps, Page, Section, WHAT_TO_DO, about, fact};
use foreread_sim::simulator::outcomes::Cell;

/// Spans of time in the table under the maps.
const SPANS: usize = 8;

/// What the signs of the figures over all tables are.
const MARKS: &str = "Triangle: fastest, tied for it, or not told apart from it. Hatched or hollow: perfect foresight, a limit and no choice. A \
     logarithmic axis has discs and no bars.";

/// The page of these reports, each with the maps of its first runs ([`crate::report::Table::maps`]), and what to paste next.
#[must_use]
pub fn compare(reports: &[Report], maps: &[&[MappedRun]], next: Option<[String; 3]>) -> String {
    let maps = maps.iter().copied().chain(std::iter::repeat(&[][..]));
    let alone = reports.len() == 1;
    let sections = reports
        .iter()
        .zip(maps)
        .map(|(report, maps)| section(report, maps, alone));
    let title = match reports {
        [one] => title(one),
        several => title_of_several(several),
    };
    let page = Page {
        title,
        lead: (
            WHAT_TO_DO,
            by_source(reports).into_iter().map(advise).collect(),
        ),
        facts: reports.first().map_or_else(Vec::new, |r| facts(r, alone)),
        figures: match alone {
            true => Vec::new(),
            false => reports.iter().map(times::compact).collect(),
        },
        below: if alone {
            String::new()
        } else {
            MARKS.to_string()
        },
        sections: sections.collect(),
        next: next.into_iter().collect(),
    };
    page.to_html(&to_json(reports))
}

fn title_of_several(reports: &[Report]) -> String {
    const MAX_NAMED: usize = 4;
    let names: Vec<&str> = reports
        .iter()
        .map(|report| report.workload.as_str())
        .collect();
    let place = reports.first().map(Report::place);
    let is_one_place = reports.iter().all(|report| Some(report.place()) == place);
    match (&names[..], place) {
        ([first @ .., last], Some(place)) if is_one_place && names.len() <= MAX_NAMED => {
            format!("{} and {last} on {place}", first.join(", "))
        }
        _ => format!("{} comparisons of readahead", reports.len()),
    }
}

fn title(report: &Report) -> String {
    format!("{} on {}", report.workload, report.place())
}

fn facts(report: &Report, all: bool) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("foreread", report.foreread.clone()),
        fact("seed", report.seed.to_string()),
    ];
    if all {
        facts.extend(measured(report));
    }
    facts.push(fact(
        "tests",
        format!("paired t, Holm, alpha {}", report.alpha),
    ));
    facts
}

fn measured(report: &Report) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("runs of each", report.runs.to_string()),
        fact("cache", number::size(report.cache_bytes)),
        fact("page", number::size(report.page_bytes)),
    ];
    if !report.source_about.is_empty() {
        facts.push(fact("source", report.source_about.clone()));
    }
    facts.extend(
        report
            .price
            .as_ref()
            .map(|price| fact("prices", price.to_string())),
    );
    facts
}

/// A report. `alone`: the head of the page says what it was measured on.
fn section(report: &Report, runs: &[MappedRun], alone: bool) -> Section {
    let mut blocks = Vec::new();
    let mut name = "What was measured".to_string();
    if !alone {
        let facts: Vec<String> = measured(report)
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        blocks.push(Block::Note(format!("Measured: {}", facts.join("; "))));
        name = title(report);
    }
    blocks.push(Block::Page(verdict(report)));
    blocks.extend(table::limits(report).into_iter().map(Block::Note));
    blocks.extend(report.notes.iter().cloned().map(Block::Note));
    blocks.extend(figures(report, None).map(Block::Figure));
    blocks.extend([table::rows(report), rest(report)].map(Block::Table));
    if runs.is_empty() {
        let none = match report.disk_cache {
            None => "There is no map of the reads: only a simulated run is seen read by read.",
            Some(_) => "There is no map of the reads: none is made with a cache on disk.",
        };
        blocks.push(Block::Page(none.to_string()));
        return block::section(name, blocks);
    }
    blocks.push(Block::Maps(maps(report, runs)));
    let mut section = block::section(name, blocks);
    section.grids.push(spans(runs));
    section
}

/// Which rows may claim to be the fastest.
fn verdict(report: &Report) -> String {
    match &report.best[..] {
        [] => "No test was possible, so none is called the fastest.".to_string(),
        [one] => format!("The fastest is {one}."),
        several => {
            // The sign is that of the terminal.
            let tied = table::tied(report);
            let tied = tied.trim_start_matches(['=', '?', ' ']);
            let first = tied.chars().take(1).flat_map(char::to_uppercase);
            let tied: String = first.chain(tied.chars().skip(1)).collect();
            format!("{tied}: {}.", several.join(", "))
        }
    }
}

/// Times, bytes and latencies. `today`: the policy that is in use, which is said.
pub(crate) fn figures(report: &Report, today: Option<&str>) -> impl Iterator<Item = Figure> {
    let times = [times::large(report, today)];
    times
        .into_iter()
        .chain(bytes(report))
        .chain(latency(report))
}

/// Bytes of the source by what became of them. None where no row has counters.
fn bytes(report: &Report) -> Option<Figure> {
    let parts = |row: &Row| {
        let (all, ahead) = (row.source_bytes?, row.ra_bytes?);
        let (used, unused) = (row.used_bytes?, row.unused_bytes?);
        let rest = ahead.saturating_sub(used.saturating_add(unused));
        Some(
            [all.saturating_sub(ahead), used, unused, rest]
                .map(|b| b as f64 / number::MB)
                .to_vec(),
        )
    };
    let bar = |row: &Row| {
        let figure = or_dash(row.source_bytes, |b| {
            format!("{} MB", number::three(b as f64 / number::MB))
        });
        Some(Bar {
            name: row.policy.clone(),
            figure,
            colour: looks::of_policy(&row.policy),
            parts: parts(row)?,
            limit: row.limit,
            ..Bar::default()
        })
    };
    let bars: Vec<Bar> = report.rows.iter().filter_map(bar).collect();
    let kind = |fill, name| BarKind {
        colour: None,
        fill,
        name,
    };
    let head = match report.disk_cache {
        None => "Read from the source, MB (less is better)",
        Some(_) => "Read from the store and the disk, MB (less is better)",
    };
    let drawn = Bars {
        title: format!("Bytes read from the source by policy: {}", title(report)),
        about: about("A bar for each policy, in four parts"),
        head: head.to_string(),
        kinds: vec![
            kind(Fill::Pale, "demand"),
            kind(Fill::Solid, "readahead, used"),
            kind(Fill::Hatched, "readahead, evicted unused"),
            kind(
                Fill::Outline,
                "readahead, neither used nor evicted at the end",
            ),
        ],
        bars,
        compact: false,
    };
    (!drawn.bars.is_empty()).then(|| Figure::new(drawn.draw(), ""))
}

/// How many of the reads took longer than so long. Both axes are of factors: the few slow ones count most.
fn latency(report: &Report) -> Option<Figure> {
    // A hit that costs the host nothing has no place on an axis of factors: it is drawn at its left end.
    const MIN_US: f64 = 0.1;
    const MIN_PERCENT: f64 = 0.01;
    let line = |row: &Row| {
        let mut points = Vec::new();
        let mut longer = 100.0;
        for [percent, us] in &row.latency_us {
            // Down at the latency, not on the way to it: nothing is known in between.
            let next = (100.0 - percent).max(MIN_PERCENT);
            let marked = [50.0, 99.0, 99.9].contains(percent);
            let at = |y, marked| CurvePoint {
                x: us.max(MIN_US),
                y,
                interval: [y, y],
                marked,
            };
            points.extend([at(longer, false), at(next, marked)]);
            longer = next;
        }
        Curve {
            name: row.policy.clone(),
            points,
            colour: looks::of_policy(&row.policy),
            ..Curve::default()
        }
    };
    let lines: Vec<Curve> = report
        .rows
        .iter()
        .map(line)
        .filter(|l| !l.points.is_empty())
        .collect();
    let all = || lines.iter().flat_map(|l| &l.points).map(|p| p.x);
    let (least, most) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let name = |us: f64| {
        if us <= MIN_US {
            "≤0.1us".to_string()
        } else {
            decade_us(us)
        }
    };
    let curves = Curves {
        title: format!("Latency of the reads by policy: {}", title(report)),
        about: about("A curve for each policy: the part of its reads that took longer"),
        x_title: "latency".to_string(),
        y_title: "Reads that took longer, % (lower is better)".to_string(),
        x_show: number::latency_us,
        x_ticks: decades(least, most)
            .into_iter()
            .map(|us| (us, name(us)))
            .collect(),
        log: true,
        y: Axis::Log {
            least: MIN_PERCENT,
            most: 100.0,
        },
        lines,
    };
    Some(Figure::new(
        curves.draw(),
        "Markers: median, 99 and 99.9 %. Both axes are of factors: a line further down is a tenth of the reads.",
    ))
}

/// A power of ten of microseconds.
fn decade_us(us: f64) -> String {
    match us {
        _ if us < 1e3 => format!("{us}us"),
        _ if us < 1e6 => format!("{}ms", us / 1e3),
        _ => format!("{}s", us / 1e6),
    }
}

fn maps(report: &Report, runs: &[MappedRun]) -> Maps {
    let text = "The first run of each policy, offset by read: every column has as many reads, and a cell shows what most \
                of its reads were.";
    Maps {
        title: "Which reads hit, and where".to_string(),
        text: text.to_string(),
        legend: map::legend(),
        figures: runs.iter().map(|run| mapped(report, run)).collect(),
    }
}

fn mapped(report: &Report, run: &MappedRun) -> Figure {
    let total = run.map.total();
    let what = format!(
        "Reads of the first run of {}: {}",
        run.policy,
        title(report)
    );
    let svg = map::draw(
        &what,
        &about("Offset by the number of the read, each cell as most of its reads were"),
        &run.map,
    );
    let caption = format!(
        "{} hits, {} late, {} misses; {} MB of readahead unused",
        number::count(total.hits),
        number::count(total.late),
        number::count(total.misses),
        number::three(total.unused_bytes as f64 / number::MB)
    );
    Figure {
        title: run.policy.clone(),
        svg,
        caption,
    }
}

/// The maps in eight spans of reads each.
fn spans(maps: &[MappedRun]) -> Grid {
    let heads = [
        "policy",
        "from read",
        "to read",
        "hits",
        "late",
        "misses",
        "unused bytes",
    ];
    let mut grid = Grid::new(
        "The maps in numbers: the first run of each policy, in spans of its reads",
        heads,
    );
    for run in maps {
        let spans = run.map.spans(SPANS);
        let each = run.map.columns.len().div_ceil(SPANS).max(1) as u64 * run.map.column_reads;
        grid.rows.extend(spans.iter().enumerate().map(|(i, cell)| {
            let Cell {
                hits,
                late,
                misses,
                unused_bytes,
            } = cell;
            let (from, to) = (each * i as u64, (each * (i + 1) as u64).min(run.map.reads));
            let counts = [hits, late, misses, unused_bytes].map(u64::to_string);
            [
                vec![run.policy.clone(), from.to_string(), to.to_string()],
                counts.to_vec(),
            ]
            .concat()
        }));
    }
    grid
}

/// Latencies, and the bytes by what became of them.
fn rest(report: &Report) -> Table {
    let demand = |row: &Row| {
        let all = row.source_bytes.zip(row.ra_bytes);
        all.map(|(all, ahead)| all.saturating_sub(ahead))
    };
    let columns = vec![
        RowColumn::new("policy", |row| row.policy.clone()),
        RowColumn::new("p50", |row| or_dash(row.p50_us, latency_us)),
        RowColumn::new("p95", |row| or_dash(row.p95_us, latency_us)),
        RowColumn::new("p99", |row| or_dash(row.p99_us, latency_us)),
        RowColumn::new("p99.9", |row| or_dash(row.p999_us, latency_us)),
        RowColumn::new("max", |row| or_dash(row.max_us, latency_us)),
        RowColumn::new("demand MB", move |row| mb(demand(row))),
        RowColumn::new("used MB", |row| mb(row.used_bytes)),
        RowColumn::new("unused MB", |row| mb(row.unused_bytes)),
        RowColumn::new("not used so far MB", |row| mb(row.unresolved_bytes)),
    ];
    let caption = "Latencies, and bytes by what became of them";
    Table::new(caption, columns, &report.rows)
}
