//! A series (`--vary`): the reports of one comparison for several values of one parameter, formatted as blocks of text
//! and tables for the terminal and the HTML page.
//!
//! Schema `foreread.vary/1`: `reports` holds one report of schema `foreread.compare/1` for each value, in the order of
//! the values. All reports have the policies in the same order of rows. Every figure that is shown comes from these
//! reports.

use super::row::{Report, Row};
use super::table;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::json;
use foreread_report::number::{self, or_dash};
use foreread_report::width;
use foreread_sim::stats::ALPHA;
use serde::{Deserialize, Serialize};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "foreread.vary/1";

/// The reports on one workload on one source under several policies, for several values of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub schema: String,
    /// The workload, as the user gave it, without the varied parameter.
    pub workload: String,
    /// The policies in the order of the rows, as the user gave them, without the varied parameter.
    pub policies: Vec<String>,
    pub vary: VariedParameter,
    /// The report of each value.
    pub reports: Vec<Report>,
}

/// The parameter that varies, and its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariedParameter {
    /// The parameter in the notation of `--vary`.
    pub key: String,
    /// A description of the parameter, for people.
    pub about: String,
    /// True for sizes: the values are numbers of bytes.
    pub bytes: bool,
    /// The values, in the order in which they were given.
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
    /// Formats the series of reports as JSON, with a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::pretty(self)
    }

    /// Formats the series of reports as text, at most [`width::columns`] wide and with a newline at the end. If `details` is true, the text
    /// also explains the statistics on which the marks in the tables are based.
    #[must_use]
    pub fn render(&self, details: bool) -> String {
        let title = format!("{}: {}", self.title(), self.how());
        let mut blocks = vec![Block::Screen(self.verdict()), Block::Gap];
        blocks.extend([Block::Screen(title), Block::Gap]);
        blocks.extend(self.tables());
        blocks.push(Block::NoRoom);
        blocks.extend(self.notes().into_iter().map(Block::Note));
        let alpha = self.reports.first().map_or(ALPHA, |report| report.alpha);
        let statistics = table::statistics(self.tests(), " in a row", alpha);
        blocks.extend(statistics.filter(|_| details));
        block::text(blocks, width::columns(), false)
    }

    /// Tables with a row for each value and a column for each policy: the times, with the fastest of each row marked,
    /// and the bytes.
    pub(super) fn tables(&self) -> Vec<Block> {
        let time = |report: &Report, row: &Row| {
            let time = or_dash(row.time_s.as_ref(), |t| number::span_s(t.mean, None));
            format!("{} {time}", table::mark(report, row))
                .trim()
                .to_string()
        };
        let bytes = |_: &Report, row: &Row| number::mb(row.source_bytes);
        let marks = match self.tests() {
            0 => "The fastest policy of each row is not marked, because no test was possible.",
            _ => {
                "In each row: * fastest, = within 5 % of the fastest, ? may be the fastest (the runs do not decide)."
            }
        };
        let captions = [
            "Mean time of a run, seconds",
            "Read from the source, MB (10^6 bytes)",
        ];
        vec![
            Block::Screen(format!("{}:", captions[0])),
            Block::Table(self.table(captions[0], &time)),
            Block::Text(marks.to_string()),
            Block::Gap,
            Block::Screen(format!("{}:", captions[1])),
            Block::Table(self.table(captions[1], &bytes)),
        ]
    }

    fn table(&self, caption: &str, cell: &dyn Fn(&Report, &Row) -> String) -> Table {
        type ValueColumn<'a> = Column<'a, usize>;
        let labels = self.vary.labels();
        let mut columns = vec![ValueColumn::new(&self.vary.key, |n| labels[*n].clone())];
        for (i, policy) in self.policies.iter().enumerate() {
            let at = move |n: &usize| {
                let report = self.reports.get(*n)?;
                Some(cell(report, report.rows.get(i)?))
            };
            let column = ValueColumn::new(policy, move |n| or_dash(at(n), |text| text));
            // If the table is too wide, the first policies keep their columns.
            let rank = u8::try_from(self.policies.len() - i).unwrap_or(u8::MAX);
            columns.push(column.rank(rank));
        }
        let values: Vec<usize> = (0..self.reports.len()).collect();
        Table::new(caption, columns, &values).wide()
    }

    pub(super) fn title(&self) -> String {
        let source = self.reports.first().map_or("", |r| &r.source);
        format!("{} on {source} by {}", self.workload, self.vary.key)
    }

    /// How it was measured, as far as all reports agree.
    pub(super) fn how(&self) -> String {
        let same = |show: &dyn Fn(&Report) -> String| {
            let mut shown = self.reports.iter().map(show);
            let first = shown.next().filter(|text| !text.is_empty())?;
            shown.all(|text| text == first).then_some(first)
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

    /// Which policy is, or may be, the fastest at every value, or which one at which values. If `none` and another policy are tied,
    /// `none` is named.
    pub(super) fn verdict(&self) -> String {
        const MAY_BE: &str = ", tied, or not told apart from the fastest";
        let key = &self.vary.key;
        if self.tests() == 0 {
            return format!(
                "No verdict for {key}: with one run of each policy, a gain cannot be told from noise."
            );
        }
        // Compare by column: if a parameter of the policies varies, the name of a row contains the value.
        let best = |column: usize| -> Vec<String> {
            let is_best = |report: &Report| {
                let row = report.rows.get(column);
                row.is_some_and(|row| report.best.contains(&row.policy))
            };
            let at = self.reports.iter().zip(self.vary.labels());
            at.filter(|(report, _)| is_best(report))
                .map(|(_, label)| label)
                .collect()
        };
        let ranked: Vec<(&String, Vec<String>)> = self
            .policies
            .iter()
            .enumerate()
            .map(|(column, policy)| (policy, best(column)))
            .collect();
        let all = self.reports.len();
        if let Some((policy, _)) = ranked.iter().find(|(_, at)| at.len() == all) {
            let values = match all {
                1 => "the value".to_string(),
                _ => format!("all {all} values"),
            };
            return format!("{policy} is fastest{MAY_BE} at {values} of {key}.");
        }
        let parts = ranked.iter().filter(|(_, at)| !at.is_empty());
        let parts: Vec<String> = parts
            .map(|(policy, at)| format!("{policy} at {}", at.join(", ")))
            .collect();
        format!("By {key}: {} (fastest{MAY_BE}).", parts.join("; "))
    }

    /// The largest number of pairs tested in a row.
    fn tests(&self) -> usize {
        self.reports.iter().map(Report::tests).max().unwrap_or(0)
    }

    /// Notes that hold at every value, then notes that hold at some, with their values.
    pub(super) fn notes(&self) -> Vec<String> {
        let everywhere = |note: &&String| self.reports.iter().all(|r| r.notes.contains(note));
        let first = self.reports.first().into_iter().flat_map(|r| &r.notes);
        let mut notes: Vec<String> = first.filter(everywhere).cloned().collect();
        let mut some = Vec::new();
        for (label, report) in self.vary.labels().iter().zip(&self.reports) {
            let here = report.notes.iter().filter(|note| !everywhere(note));
            some.extend(here.map(|note| format!("{}={label}: {note}", self.vary.key)));
        }
        let more = some.len().saturating_sub(MAX_NOTES);
        notes.extend(some.into_iter().take(MAX_NOTES));
        if more > 0 {
            notes.push(format!(
                "{more} more notes that apply only to some values are in the JSON"
            ));
        }
        notes
    }
}

/// Most notes about single values that are shown.
const MAX_NOTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::{Table as Measured, samples};
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

    fn of(tables: &[Measured], values: &[u64]) -> Series {
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
            "rbd-plain is fastest, tied, or not told apart from the fastest at all 2 values of policy.max."
        );
    }

    #[test]
    fn the_whole_text() {
        let want = "\
rbd-plain is fastest, tied, or not told apart from the fastest at all 2 values of cache.

boot-ide on model:rbd by cache: 0.690 ms a read, 62.5 MB/s; 5 runs at each value; page 4K; seed 1

Mean time of a run, seconds:
cache   none  linux-6.18  rbd-plain
  64M  46.20       13.00    * 11.42
   1M  46.20     = 13.00    = 13.02
In each row: * fastest, = within 5 % of the fastest, ? may be the fastest (the runs do not decide).

Read from the source, MB (10^6 bytes):
cache  none  linux-6.18  rbd-plain
  64M  4.10        5.50       4.20
   1M  4.10        5.50       8.20
Note: cache=1M: The cache was small.
Statistics: paired t tests of the runs, Holm's correction over 3 pairs in a row, alpha 0.05.
";
        let got = series().render(true);
        assert_eq!(got, want, "\n{got}");
        let plain = series().render(false);
        assert!(want.starts_with(&plain) && !plain.contains("Statistics"));
    }

    #[test]
    fn policies_without_room_are_named_and_no_line_is_too_wide() {
        let mut table = samples::boot();
        for i in 0..9 {
            let mut more = table.policies[0].clone();
            more.policy = format!("linux-6.18:max={i}K,{}", "x".repeat(i));
            table.policies.push(more);
        }
        table.notes = (0..7).map(|i| format!("note {i}")).collect();
        let mut other = table.clone();
        other.notes = vec!["note 3".to_string()];
        let text = of(&[table, other], &[1, u64::MAX]).render(true);
        let wide = text.lines().find(|l| l.chars().count() > width::DEFAULT);
        assert_eq!(wide, None, "{text}");
        assert!(text.contains("No room for: linux-6.18:max=8K,"), "{text}");
        // What holds everywhere first, then four of the six that do not, then their number.
        for part in [
            "Note: note 3.\nNote: cache=1: note 0.",
            "Note: cache=1: note 4.",
            "2 more notes that apply only to some values are in the JSON.",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_json_has_its_shape_and_reads_back() {
        let json = series().to_json();
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["schema"], "foreread.vary/1");
        assert_eq!(
            value["vary"]["values"],
            serde_json::json!([64 << 20, 1 << 20])
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
        let point = report.rows[2].throughput().expect("measured");
        let time = report.rows[2].time_s.as_ref().expect("measured");
        let rate = |s: f64| 4.096 / s;
        assert!((point.value - rate(time.mean)).abs() < 1e-9, "{point:?}");
        assert!(
            (point.interval[0] - rate(time.ci95[1])).abs() < 1e-9,
            "{point:?}"
        );
        // So few and so different runs that the time may be anything.
        let wild = samples::runs("none", &[1.0, 9.0], 0, 0, 0);
        let wild = Report::of(&samples::table("w", "s", vec![wild]));
        let point = wild.rows[0].throughput().expect("measured");
        assert_eq!(point.interval[1], f64::INFINITY);
    }

    /// A row of the kernel has no bytes of ours, a single run no interval: both are left out, and nothing is marked.
    #[test]
    fn what_was_not_measured_is_not_shown() {
        let mut table = samples::table("w", "s", vec![samples::runs("kernel", &[2.0], 0, 0, 0)]);
        table.policies[0].runs[0].kernel = true;
        let text = of(&[table.clone(), table], &[1, 2]).render(false);
        for part in [
            "    1   2.000\n",
            "    1       -\n",
            "\nThe fastest policy of each row is not marked, because no test was possible.\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
