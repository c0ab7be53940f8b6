//! A series: the reports of one comparison at several values of one parameter, for people, programs and a picture.
//!
//! Schema `foreread.vary/1`: `reports` holds a report of schema `foreread.compare/1` for each value, in the order of
//! the values; the promise of that schema holds here too. Rows stand in the same order in every report.
//! Never: a figure that is not in one of the reports.

mod verdict;

use super::row::{Report, Row};
use super::table;
use foreread_report::block::{self, Block};
use foreread_report::chart::{self, Chart, Panel, Point};
use foreread_report::json;
use foreread_report::number::{self, or_dash};
use foreread_report::width;
use foreread_sim::stats::ALPHA;
use serde::{Deserialize, Serialize};

/// Name and version of the layout below.
pub const SCHEMA: &str = "foreread.vary/1";

/// One workload on one source under several policies, at several values of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub schema: String,
    /// The workload, as it was asked for, without the parameter that varies.
    pub workload: String,
    /// The policies in the order of the rows, as they were asked for, without the parameter that varies.
    pub policies: Vec<String>,
    pub vary: VariedParameter,
    /// The report of each value.
    pub reports: Vec<Report>,
}

/// A parameter and the values it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariedParameter {
    /// The parameter in the notation of `--vary`.
    pub key: String,
    /// What it is, for people.
    pub about: String,
    /// True for sizes: the values are bytes.
    pub bytes: bool,
    /// The values, in the order they were asked for.
    pub values: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A count, or a size in bytes.
    Number(u64),
    /// One of a few words.
    Word(String),
}

impl VariedParameter {
    /// A value as people write it: `16K`, `4`, `on`.
    #[must_use]
    pub fn label(&self, value: &Value) -> String {
        match value {
            Value::Number(bytes) if self.bytes => number::exact_size(*bytes),
            Value::Number(count) => count.to_string(),
            Value::Word(word) => word.clone(),
        }
    }

    /// The values, if all are numbers.
    pub(super) fn numbers(&self) -> Option<Vec<f64>> {
        let number = |value: &Value| match value {
            Value::Number(number) => Some(*number as f64),
            Value::Word(_) => None,
        };
        self.values.iter().map(number).collect()
    }

    pub(super) fn labels(&self) -> Vec<String> {
        self.values.iter().map(|v| self.label(v)).collect()
    }
}

impl Series {
    /// The series as JSON; ends with a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::pretty(self)
    }

    /// The series as text, at most [`width::columns`] wide: a verdict, a title, a row of times and a row of bytes for each value, a legend,
    /// the notes; with `details` how the marks were found. Ends with a newline.
    #[must_use]
    pub fn render(&self, details: bool) -> String {
        let source = |_: &Report, row: &Row| {
            vec![
                number::mb(row.source_bytes),
                or_dash(row.overfetch, number::three),
            ]
        };
        let mut blocks = vec![
            Block::Screen(self.verdict()),
            Block::Gap,
            Block::Screen(format!("{}: {}", self.title(), self.how())),
            Block::Gap,
            Block::Lines(self.block(&["s", "ratio", "MB/s"], times)),
            Block::Lines(self.block(&["read MB", "read/asked"], source)),
            Block::Screen(self.legend().to_string()),
            Block::Lines(LEGEND.map(ToString::to_string).into()),
        ];
        blocks.extend(self.notes().into_iter().map(Block::Note));
        let alpha = self.reports.first().map_or(ALPHA, |report| report.alpha);
        let statistics = table::statistics(self.tests(), " in a row", alpha);
        blocks.extend(statistics.filter(|_| details));
        block::text(blocks, width::columns(), false)
    }

    /// The series as a picture.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let points = |of: &dyn Fn(&Row) -> Option<Point>| -> Vec<Vec<Option<Point>>> {
            (0..self.policies.len())
                .map(|i| {
                    self.reports
                        .iter()
                        .map(|r| r.rows.get(i).and_then(of))
                        .collect()
                })
                .collect()
        };
        let spread = self.reports.iter().any(|r| r.runs > 1);
        let bars = if spread { "; bars: 95% intervals" } else { "" };
        let unit = if self.vary.bytes {
            " (bytes, K = 1024)"
        } else {
            ""
        };
        chart::render(&Chart {
            title: self.title(),
            note: self.how() + bars,
            x_title: format!("{}: {}{unit}", self.vary.key, self.vary.about),
            // Words stand in the order they were asked for, at equal distances.
            x: self
                .vary
                .numbers()
                .unwrap_or_else(|| (0..self.vary.values.len()).map(|i| i as f64).collect()),
            x_labels: self.vary.labels(),
            lines: self.policies.clone(),
            panels: vec![
                Panel {
                    title: "Throughput, MB/s (more is better)".to_string(),
                    points: points(&throughput),
                },
                Panel {
                    title: "Read from the source, MB (less is better)".to_string(),
                    points: points(&source),
                },
            ],
        })
    }

    pub(super) fn title(&self) -> String {
        let source = self.reports.first().map_or("", |r| &r.source);
        format!("{} on {source} by {}", self.workload, self.vary.key)
    }

    /// How it was measured. What is not the same in every report is left out.
    pub(super) fn how(&self) -> String {
        let same = |show: &dyn Fn(&Report) -> String| {
            let first = self.reports.first().map(show)?;
            self.reports
                .iter()
                .all(|r| show(r) == first)
                .then_some(first)
                .filter(|text| !text.is_empty())
        };
        let runs = |r: &Report| format!("{} at each value", number::plural(r.runs.into(), "run"));
        let parts = [
            same(&|r| r.source_about.clone()),
            same(&runs),
            same(&|r| format!("cache {}", number::size(r.cache_bytes))),
            same(&|r| format!("page {}", number::size(r.page_bytes))),
            same(&|r| format!("seed {}", r.seed)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The most pairs that were tested in a row.
    fn tests(&self) -> usize {
        self.reports.iter().map(Report::tests).max().unwrap_or(0)
    }

    fn legend(&self) -> &'static str {
        match self.tests() {
            0 => "Nothing is marked: no test was possible.",
            _ => {
                "In each row: * fastest, = tied for it (within 5 %), ? may be it: not told apart by the runs."
            }
        }
    }

    /// What holds at every value, then what holds at some, with the value.
    pub(super) fn notes(&self) -> Vec<String> {
        let everywhere = |note: &&String| self.reports.iter().all(|r| r.notes.contains(note));
        let mut notes: Vec<String> = self
            .reports
            .iter()
            .take(1)
            .flat_map(|r| &r.notes)
            .filter(everywhere)
            .cloned()
            .collect();
        let mut some = Vec::new();
        for (label, report) in self.vary.labels().iter().zip(&self.reports) {
            let here = report.notes.iter().filter(|note| !everywhere(note));
            some.extend(here.map(|note| format!("{}={label}: {note}", self.vary.key)));
        }
        let more = some.len().saturating_sub(MAX_NOTES);
        notes.extend(some.into_iter().take(MAX_NOTES));
        if more > 0 {
            notes.push(format!("{more} more at single values are in the JSON"));
        }
        notes
    }

    /// Rows of values, a group of columns for each policy; in several blocks where one would be too wide. Each block
    /// ends with an empty line.
    fn block(&self, heads: &[&str], cells: impl Fn(&Report, &Row) -> Vec<String>) -> Vec<String> {
        let first = column(
            &self.vary.key,
            &[""],
            &self
                .vary
                .labels()
                .into_iter()
                .map(|l| vec![l])
                .collect::<Vec<_>>(),
        );
        let groups = self.policies.iter().enumerate().map(|(i, policy)| {
            let cells: Vec<Vec<String>> = self
                .reports
                .iter()
                .map(|r| r.rows.get(i).map_or_else(Vec::new, |row| cells(r, row)))
                .collect();
            column(policy, heads, &cells)
        });
        let mut blocks: Vec<Vec<Vec<String>>> = Vec::new();
        let width = |column: &[String]| column.first().map_or(0, |l| l.chars().count()) + 2;
        for group in groups {
            let used = blocks
                .last()
                .map(|block| block.iter().map(|c| width(c)).sum::<usize>());
            if used.is_none_or(|used| used + width(&group) > width::columns() + 2) {
                blocks.push(vec![first.clone()]);
            }
            blocks.last_mut().expect("there is one now").push(group);
        }
        blocks.iter().flat_map(|block| beside(block)).collect()
    }
}

/// Time, ratio to none and throughput, behind the mark of the fastest.
fn times(report: &Report, row: &Row) -> Vec<String> {
    let mark = match table::mark(report, row) {
        ' ' => String::new(),
        mark => format!("{mark} "),
    };
    vec![
        format!(
            "{mark}{}",
            or_dash(row.time_s.as_ref(), |t| number::span_s(t.mean, None))
        ),
        or_dash(row.ratio_to_none, number::times),
        or_dash(row.throughput_mb_s, number::three),
    ]
}

/// Throughput; its interval is that of the time, turned into rates. An interval of time that reaches down to zero has
/// no upper end as a rate.
pub(super) fn throughput(row: &Row) -> Option<Point> {
    let (value, time) = (row.throughput_mb_s?, row.time_s.as_ref()?);
    let rate = |time_s: f64| {
        if time_s > 0.0 {
            value * time.mean / time_s
        } else {
            f64::INFINITY
        }
    };
    Some(Point {
        value,
        interval: [rate(time.ci95[1]), rate(time.ci95[0])],
    })
}

/// Bytes from the source: a mean that is reported without an interval.
pub(super) fn source(row: &Row) -> Option<Point> {
    let value = row.source_bytes? as f64 / number::MB;
    Some(Point {
        value,
        interval: [value, value],
    })
}

/// Lines of equal width: the name over the heads over a row of cells for each value, all to the right.
fn column(name: &str, heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..heads.len())
        .map(|i| {
            rows.iter()
                .filter_map(|r| r.get(i))
                .map(|c| length(c))
                .max()
                .unwrap_or(0)
                .max(length(heads[i]))
        })
        .collect();
    let row = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"));
        padded.collect::<Vec<_>>().join(" ")
    };
    let mut lines = vec![number::cut(name, NAME), row(&mut heads.iter().copied())];
    lines.extend(
        rows.iter()
            .map(|cells| row(&mut cells.iter().map(String::as_str))),
    );
    let widest = lines.iter().map(|l| length(l)).max().unwrap_or(0);
    lines
        .into_iter()
        .map(|line| format!("{line:>widest$}"))
        .collect()
}

/// What the columns are.
const LEGEND: [&str; 2] = [
    "s: mean time of a run. ratio: time to that of none. read: from the source. MB = 10^6 bytes.",
    "read/asked: bytes read from the source for each byte asked for.",
];

/// Most notes on single values; more is not read.
const MAX_NOTES: usize = 4;

/// Most letters of a name over its column. The picture and the JSON have all of it.
const NAME: usize = 30;

/// Columns, two blanks apart, and an empty line.
fn beside(columns: &[Vec<String>]) -> Vec<String> {
    let rows = columns.first().map_or(0, Vec::len);
    let line = |i: usize| {
        columns
            .iter()
            .map(|c| c[i].as_str())
            .collect::<Vec<_>>()
            .join("  ")
            .trim_end()
            .to_string()
    };
    (0..rows).map(line).chain([String::new()]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Table, samples};
    use super::*;

    /// `boot` with a cache of 64M and one of 1M, where the last policy loses what it has.
    fn series() -> Series {
        let mut small = samples::boot();
        small.cache_bytes = 1 << 20;
        small.notes = vec!["The cache was small".to_string()];
        small.policies[2] = samples::runs(
            "rbd-plain",
            &[12.9, 13.1, 13.1, 12.8, 13.2],
            3_932_160,
            38_010,
            8_200_000,
        );
        of(&[samples::boot(), small], &[64 << 20, 1 << 20])
    }

    fn of(tables: &[Table], values: &[u64]) -> Series {
        let reports: Vec<Report> = tables.iter().map(Report::of).collect();
        Series {
            schema: SCHEMA.to_string(),
            workload: reports[0].workload.clone(),
            policies: reports[0].rows.iter().map(|r| r.policy.clone()).collect(),
            vary: VariedParameter {
                key: "cache".to_string(),
                about: "size of the cache".to_string(),
                bytes: true,
                values: values.iter().map(|v| Value::Number(*v)).collect(),
            },
            reports,
        }
    }

    #[test]
    fn the_verdict_with_a_parameter_of_the_policies_varied() {
        let mut series = series();
        series.vary.key = "policy.max".to_string();
        for (report, max) in series.reports.iter_mut().zip(["64M", "1M"]) {
            let named = |name: &mut String| *name = format!("{name}:max={max}");
            report
                .rows
                .iter_mut()
                .for_each(|row| named(&mut row.policy));
            report.best.iter_mut().for_each(named);
        }
        assert_eq!(
            series.verdict(),
            "rbd-plain is fastest, tied for it, or not told apart from it at all 2 values of policy.max."
        );
    }

    #[test]
    fn the_whole_text() {
        let want = "\
rbd-plain is fastest, tied for it, or not told apart from it at all 2 values of cache.

boot-ide on model:rbd by cache: 0.690 ms a read, 62.5 MB/s; 5 runs at each value; page 4K; seed 1

cache              none          linux-6.18           rbd-plain
           s ratio MB/s        s ratio MB/s        s ratio MB/s
  64M  46.20 x1.00 0.09    13.00 x0.28 0.32  * 11.42 x0.25 0.36
   1M  46.20 x1.00 0.09  = 13.00 x0.28 0.32  = 13.02 x0.28 0.31

cache                none          linux-6.18           rbd-plain
       read MB read/asked  read MB read/asked  read MB read/asked
  64M     4.10       1.00     5.50       1.34     4.20       1.03
   1M     4.10       1.00     5.50       1.34     8.20       2.00

In each row: * fastest, = tied for it (within 5 %), ? may be it: not told apart by the runs.
s: mean time of a run. ratio: time to that of none. read: from the source. MB = 10^6 bytes.
read/asked: bytes read from the source for each byte asked for.
Note: cache=1M: The cache was small.
Statistics: paired t tests of the runs, Holm's correction over 3 pairs in a row, alpha 0.05.
";
        let got = series().render(true);
        assert_eq!(got, want, "\n{got}");
        let plain = series().render(false);
        assert!(
            want.starts_with(&plain) && !plain.contains("Statistics"),
            "{plain}"
        );
    }

    #[test]
    fn many_policies_take_several_blocks_and_no_line_is_too_wide() {
        let mut table = samples::boot();
        for i in 0..9 {
            let mut more = samples::runs(
                "",
                &[12_345.6, 12_345.7, 12_345.8],
                3_932_160,
                3_801_088,
                123_456_000_000,
            );
            more.policy = format!("linux-6.18:max={i}K,{}", "x".repeat(i * 9));
            table.policies.push(more);
        }
        table.notes = (0..7).map(|i| format!("note {i}")).collect();
        let mut other = table.clone();
        other.notes = vec!["note 3".to_string()];
        let text = of(&[table, other], &[1, u64::MAX]).render(true);
        for line in text.lines() {
            assert!(
                line.chars().count() <= width::DEFAULT,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        // In the verdict, and above its columns in two blocks.
        assert_eq!(text.matches("rbd-plain").count(), 3, "{text}");
        assert!(
            text.lines()
                .filter(|l| l.starts_with("               cache"))
                .count()
                >= 6,
            "{text}"
        );
        // What holds everywhere first, then four of the six that do not, then their number.
        assert!(
            text.contains("Note: note 3.\nNote: cache=1: note 0.")
                && text.contains("Note: cache=1: note 4."),
            "{text}"
        );
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(
            last[0].starts_with("Statistics: paired t tests") && !text.contains("note 5"),
            "{text}"
        );
        assert!(
            last[1].ends_with("more at single values are in the JSON."),
            "{text}"
        );
    }

    #[test]
    fn the_json_has_its_shape_and_reads_back() {
        let json = series().to_json();
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (value["schema"].as_str(), value["vary"]["key"].as_str()),
            (Some("foreread.vary/1"), Some("cache"))
        );
        assert_eq!(
            value["vary"]["values"],
            serde_json::json!([64 << 20, 1 << 20])
        );
        assert_eq!(
            value["policies"],
            serde_json::json!(["none", "linux-6.18", "rbd-plain"])
        );
        assert_eq!(value["reports"][1]["schema"], "foreread.compare/1");
        let back: Series = serde_json::from_str(&json).expect("what was written can be read");
        assert_eq!((back.vary, back.reports.len()), (series().vary, 2));
        let word = serde_json::to_string(&Value::Word("on".to_string())).expect("JSON");
        assert_eq!(word, "\"on\"");
    }

    #[test]
    fn the_interval_of_a_rate_is_that_of_the_time() {
        let report = Report::of(&samples::boot());
        let point = throughput(&report.rows[2]).expect("measured");
        let time = report.rows[2].time_s.as_ref().expect("measured");
        let rate = |s: f64| 4.096 / s;
        assert!((point.value - rate(time.mean)).abs() < 1e-9, "{point:?}");
        assert!(
            (point.interval[0] - rate(time.ci95[1])).abs() < 1e-9
                && point.interval[1] > point.value,
            "{point:?}"
        );
        // So few and so different runs that the time may be anything.
        let wild = Report::of(&samples::table(
            "w",
            "s",
            vec![samples::runs("none", &[1.0, 9.0], 0, 0, 0)],
        ));
        assert_eq!(
            throughput(&wild.rows[0]).expect("measured").interval[1],
            f64::INFINITY
        );
    }

    /// A row of the kernel has no bytes of ours, a single run no interval: both are left out, and nothing is marked.
    #[test]
    fn what_was_not_measured_is_not_shown() {
        let mut table = samples::table("w", "s", vec![samples::runs("kernel", &[2.0], 0, 0, 0)]);
        table.policies[0].runs[0].kernel = true;
        let series = of(&[table.clone(), table], &[1, 2]);
        let text = series.render(false);
        assert!(
            text.contains("   1  2.000     - 2.05\n")
                && text.contains("   1        -          -\n"),
            "{text}"
        );
        assert!(
            text.contains("\nNothing is marked: no test was possible.\n"),
            "{text}"
        );
        let svg = series.to_svg();
        // One marker in the legend, two in the first panel, none in the second; no bar, and no word of bars.
        assert_eq!(svg.matches("class=\"point\"").count(), 3, "{svg}");
        assert!(
            !svg.contains("class=\"bar\"") && !svg.contains("intervals"),
            "{svg}"
        );
    }
}
