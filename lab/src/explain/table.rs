//! The explanation for people: a head line, a table of files, the streams of the worst of them with their reasons, what
//! other policies would have done, and one sentence. At most 100 columns wide.
//!
//! Never: a number that is not in [`ExplainReport`]. What does not fit is summed, and its number given.

use super::share::Share;
use super::{ExplainReport, File, Other, RecordedReadahead, Stream};
use crate::advice::NextStep;
use crate::replay::Mode;
use crate::report::RowKind;
use foreread_report::block::{self, Block, Column, Table};
use foreread_report::number::{self, TIE, count, cut, or_dash, plural, printable, three, wrap};
use foreread_report::width;
use foreread_sim::stats::ALPHA;

/// Files whose streams are shown, and streams of each.
const WORST_FILES: usize = 3;
const WORST_STREAMS: usize = 4;
/// Widest name of a file in the table; the ends of names differ most.
const NAME_WIDTH: usize = 28;

/// Which part is shown. The sums are always of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Only files whose names contain this; `*` matches any letters.
    pub file: Option<String>,
    /// Rows of the table of files, and files whose streams are shown where that is fewer than usual.
    pub rows: usize,
    /// Show intervals, and how differences were tested.
    pub details: bool,
}

impl View {
    /// Whether a file is to be shown.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.file
            .as_ref()
            .is_none_or(|pattern| contains(name, pattern))
    }
}

/// True where the parts of `pattern` between stars stand in `name` in their order.
fn contains(name: &str, pattern: &str) -> bool {
    let mut rest = name;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// The explanation as text; ends with a newline.
#[must_use]
pub fn render(explained: &ExplainReport, view: &View) -> String {
    let mut blocks = vec![
        Block::Text(title(explained)),
        Block::Gap,
        Block::Text(format!("{}.", explained.verdict)),
    ];
    blocks.extend(explained.auto.as_ref().map(|auto| {
        Block::Text(format!(
            "{} at its farthest: {}.",
            explained.policy, auto.words
        ))
    }));
    let shown: Vec<&File> = explained
        .files
        .iter()
        .filter(|f| view.shows(&f.name))
        .collect();
    blocks.extend([Block::Gap, Block::Table(files(explained, &shown, view))]);
    blocks.push(Block::Lines(vec![LEGEND.to_string()]));
    blocks.extend([Block::Text(explained.total.decisions.words()), Block::Gap]);
    let told = shown.iter().filter(|f| f.share.demand_reads > 0);
    let told = told.take(WORST_FILES.min(view.rows));
    blocks.extend(told.map(|file| Block::Lines(streams(file))));
    if let Some(recorded) = &explained.recorded {
        blocks.extend([Block::Text(in_words(recorded)), Block::Gap]);
    }
    if !explained.others.is_empty() {
        blocks.extend(others(explained, view.details));
        blocks.push(Block::Gap);
    }
    blocks.extend(explained.notes.iter().cloned().map(Block::Note));
    blocks.extend(explained.next.iter().flat_map(NextStep::blocks));
    block::text(blocks, width::columns(), false)
}

fn title(e: &ExplainReport) -> String {
    let about = if e.source_about.is_empty() {
        String::new()
    } else {
        format!(" ({})", e.source_about)
    };
    let mode = e
        .mode
        .as_deref()
        .and_then(Mode::of_json)
        .map_or_else(String::new, |mode| format!(", mode {}", mode.name()));
    format!(
        "{} on {}{about}: {}, cache {}, page {}{mode}, seed{TIE}{}, took {}{TIE}s",
        e.trace,
        e.source,
        e.policy,
        number::size_b(e.cache_bytes),
        number::size_b(e.page_bytes),
        e.seed,
        number::span_s(e.time_s, None)
    )
}

/// In a column: what is less than a hundredth is not nothing, and not a power of ten.
fn mb(bytes: u64) -> String {
    if bytes > 0 && bytes < 5000 {
        "<.01".to_string()
    } else {
        three(bytes as f64 / number::MB)
    }
}

/// In a sentence: few bytes are printed exactly.
pub(super) fn amount(bytes: u64) -> String {
    match bytes {
        0..100_000 => number::size_b(bytes).replace(' ', &TIE.to_string()),
        100_000..10_000_000_000 => format!("{}{TIE}MB", mb(bytes)),
        _ => format!("{}{TIE}GB", three(bytes as f64 / 1e9)),
    }
}

/// In a column of seconds.
fn seconds(ns: u64) -> String {
    if ns == 0 {
        "0".to_string()
    } else {
        number::span_s(ns as f64 / 1e9, None)
    }
}

/// An offset: exact where that is short, else to three digits. Never without its unit, but at the start.
fn place(bytes: u64) -> String {
    let exact = number::exact_size(bytes);
    let is_plain = bytes > 0 && exact.ends_with(|c: char| c.is_ascii_digit());
    let unit = if is_plain {
        format!("{TIE}B")
    } else {
        String::new()
    };
    if exact.len() + unit.len() <= 7 {
        exact + &unit
    } else {
        amount(bytes)
    }
}

/// The last letters of a name: what comes before is often the same for all.
pub(super) fn tail(name: &str) -> String {
    let name = printable(name);
    let letters = name.chars().count();
    if letters <= NAME_WIDTH {
        return name;
    }
    ['…']
        .into_iter()
        .chain(name.chars().skip(letters + 1 - NAME_WIDTH))
        .collect()
}

/// A file, or several together.
struct FileRow {
    name: String,
    streams: u64,
    pattern: String,
    share: Share,
}

impl FileRow {
    fn of_all(files: &[&File], name: String) -> FileRow {
        let mut share = Share::default();
        files.iter().for_each(|f| share.add(&f.share));
        FileRow {
            name,
            streams: files.iter().map(|f| f.stream_count()).sum(),
            pattern: String::new(),
            share,
        }
    }
}

type FileColumn<'a> = Column<'a, FileRow>;

pub(super) fn files(explained: &ExplainReport, shown: &[&File], view: &View) -> Table {
    let part = |of: fn(&Share) -> u64| {
        move |row: &FileRow| number::share(Some(of(&row.share)), Some(row.share.demand_reads))
    };
    let columns = vec![
        FileColumn::new("\nfile", |row| row.name.clone()).left(),
        FileColumn::new("\nreads", |row| count(row.share.demand_reads)),
        FileColumn::new("\nMB", |row| mb(row.share.demand_bytes)),
        FileColumn::new("\nstreams", |row| count(row.streams)),
        FileColumn::new("\npattern", |row| row.pattern.clone()).left(),
        FileColumn::new("hit\n%", part(|share| share.hits)),
        FileColumn::new("late\n%", part(|share| share.late_hits)),
        FileColumn::new("RA\nMB", |row| mb(row.share.ra_bytes)).page("ahead MB"),
        FileColumn::new("un-\nused", |row| mb(row.share.in_vain_bytes())).page("unused MB"),
        FileColumn::new("stall\ns", |row| seconds(row.share.stall_ns)),
    ];
    let of_file = |f: &&File| FileRow {
        pattern: f.pattern.words.clone(),
        ..FileRow::of_all(&[*f], tail(&f.name))
    };
    let mut rows: Vec<FileRow> = shown.iter().take(view.rows).map(of_file).collect();
    let all: Vec<&File> = explained.files.iter().collect();
    let hidden = all.iter().filter(|f| !view.shows(&f.name));
    let rest = shown.iter().skip(view.rows).copied().collect();
    for (files, what) in [
        (rest, "more"),
        (hidden.copied().collect::<Vec<_>>(), "not asked for"),
    ] {
        if !files.is_empty() {
            rows.push(FileRow::of_all(&files, format!("{} {what}", files.len())));
        }
    }
    if rows.len() > 1 {
        rows.push(FileRow::of_all(&all, "all".to_string()));
    }
    Table::new("", columns, &rows)
}

/// What the columns are.
const LEGEND: &str = "hit, late: % of reads. RA: read ahead; unused: MB of it never read. MB = 10^6 bytes, K = 1024 bytes.";

impl File {
    /// Streams that are any: reads without one are not.
    fn stream_count(&self) -> u64 {
        self.streams.iter().filter(|s| s.shape != "random").count() as u64
    }
}

fn streams(file: &File) -> Vec<String> {
    let mut facts = vec![
        place(file.size_bytes),
        plural(file.opens, "open description"),
    ];
    if file.hints > 0 {
        facts.push(plural(file.hints, "hint"));
    }
    if file.faults > 0 {
        facts.push(plural(file.faults, "mapped page"));
    }
    let mut lines = wrap(
        &format!(
            "{} ({}):",
            cut(&printable(&file.name), 200),
            facts.join(", ")
        ),
        width::columns(),
    );
    for stream in file.streams.iter().take(WORST_STREAMS) {
        let text = of_stream(stream, file.opens > 1);
        lines.extend(
            wrap(&text, width::columns() - 4)
                .iter()
                .map(|line| format!("  {line}")),
        );
    }
    if file.by_hints.ra_bytes > 0 {
        let (ahead, used) = (
            amount(file.by_hints.ra_bytes),
            amount(file.by_hints.used_bytes),
        );
        lines.push(format!("  by hints: {ahead} read ahead, {used} of it used").replace(TIE, " "));
    }
    if let Some(rest) = file
        .streams
        .get(WORST_STREAMS..)
        .filter(|rest| !rest.is_empty())
    {
        let reads = rest.iter().map(|s| s.share.demand_reads).sum();
        let on = rest.iter().filter(|s| s.because.on).count();
        lines.push(format!(
            "  {} more ({}): readahead was on for {on} of them",
            rest.len(),
            plural(reads, "read")
        ));
    }
    lines.push(String::new());
    lines
}

fn of_stream(s: &Stream, with_open: bool) -> String {
    let share = &s.share;
    let open = if with_open {
        format!(" through #{}", s.open)
    } else {
        String::new()
    };
    let step = s.step_bytes.map_or_else(String::new, |step| {
        let by = number::size_b(step.unsigned_abs());
        format!(" by {}{by}", if step < 0 { "-" } else { "" })
    });
    let met = [(share.misses, "miss"), (share.late_hits, "late")];
    let met: Vec<String> = met
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", count(*n)))
        .collect();
    let met = if met.is_empty() {
        "all hit".to_string()
    } else {
        met.join(", ")
    };
    let ahead = if share.ra_bytes == 0 {
        String::new()
    } else {
        let vain = share.in_vain_bytes();
        let fate = if vain == 0 {
            "none of it unused".to_string()
        } else {
            format!("{} of it unused", amount(vain))
        };
        format!(", {} ahead, {fate}", amount(share.ra_bytes))
    };
    let stall = if share.stall_ns == 0 {
        "no stall".to_string()
    } else {
        format!("stall {}{TIE}s", seconds(share.stall_ns))
    };
    format!(
        "{}{step}{open} from {}: {}, {}, {met}{ahead}, {stall}: {}: {}",
        s.shape,
        place(s.from),
        plural(share.demand_reads, "read"),
        amount(share.demand_bytes),
        if s.because.on { "on" } else { "off" },
        s.because.words
    )
}

pub(super) fn in_words(recorded: &RecordedReadahead) -> String {
    let part = number::share(Some(recorded.wanted_bytes), Some(recorded.ra_bytes));
    let most = recorded.files.first().map_or_else(String::new, |f| {
        format!(", most of it ({}) in {}", amount(f.ra_bytes), tail(&f.name))
    });
    format!(
        "The recorded system itself read ahead {}, {}{most}; {part} % of these bytes are among the reads of the \
         trace.",
        if recorded.ra_ops == 1 {
            "once".to_string()
        } else {
            format!("{} times", count(recorded.ra_ops))
        },
        amount(recorded.ra_bytes)
    )
}

type OtherColumn<'a> = Column<'a, Other>;

/// What the rows of other policies are judged by.
pub(super) fn judged_by(explained: &ExplainReport) -> &'static str {
    match explained.mode.as_deref().and_then(Mode::of_json) {
        Some(Mode::Open) => "Wait",
        _ => "Time",
    }
}

pub(super) fn others_table(explained: &ExplainReport, details: bool) -> Table {
    let by = format!("{}\ns", judged_by(explained).to_lowercase());
    let span = |s| number::span_s(s, None);
    let interval = |o: &Other| {
        let interval = o.ratio_ci95.filter(|_| !o.explained);
        interval.map_or_else(String::new, |[low, high]| {
            format!("{}-{}", three(low), three(high))
        })
    };
    let columns = vec![
        OtherColumn::new("\n  policy", |o| o.policy.clone()).left(),
        OtherColumn::new(by, move |o| or_dash(o.time_s, span)),
        OtherColumn::new("to\nthis", |o| or_dash(o.ratio, number::times)),
        OtherColumn::new("\n95 %", interval).on(details, true),
        OtherColumn::new("stall\ns", move |o| or_dash(o.stall_s, span)),
        OtherColumn::new("read\nMB", |o| or_dash(o.source_bytes, mb)),
        OtherColumn::new("RA\nMB", |o| or_dash(o.ra_bytes, mb)).page("ahead MB"),
        OtherColumn::new("un-\nused", |o| or_dash(o.in_vain_bytes, mb)).page("unused MB"),
    ];
    let mut table = Table::new("", columns, &explained.others);
    table.strong = (0..explained.others.len())
        .filter(|row| explained.others[*row].explained)
        .collect();
    table
}

fn others(explained: &ExplainReport, details: bool) -> Vec<Block> {
    let mut table = others_table(explained, details);
    table.strong.clear();
    let mark = |o: &Other| if o.explained { '*' } else { ' ' };
    table.marks = explained.others.iter().map(mark).collect();
    let head = format!(
        "The same reads under other policies ({} runs of each, * is this one):",
        explained.other_runs
    );
    let mut blocks = vec![Block::Lines(vec![head]), Block::Table(table)];
    if details && explained.others.iter().any(|o| o.differs.is_some()) {
        blocks.push(Block::Text(format!(
            "Statistics: paired t tests of the runs, Holm's correction over all pairs of rows, alpha {ALPHA}. 95 %: \
             interval of the ratio, by bootstrap over the pairs of runs."
        )));
    }
    if explained.others.iter().any(|o| o.kind == RowKind::Kernel) {
        let kernel =
            "kernel: through the page cache, at the device's read_ahead_kb; it has no counters.";
        blocks.push(Block::Lines(vec![kernel.to_string()]));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_exact_and_a_name_moves_no_cursor() {
        let shown = [
            0,
            8,
            12_288,
            99_999,
            100_000,
            2_147_000_000,
            739_659_000_000,
        ];
        let shown = shown.map(|bytes| amount(bytes).replace(TIE, " "));
        assert_eq!(
            shown,
            ["0", "8 B", "12K", "99999 B", "0.10 MB", "2147 MB", "740 GB"]
        );
        assert_eq!(
            ([0, 8, 5000].map(mb), seconds(0)),
            (["0", "<.01", "0.01"].map(str::to_string), "0".to_string())
        );
        assert_eq!(tail("/srv/b\n\u{1b}[2J"), "/srv/b\u{fffd}\u{fffd}[2J");
    }

    #[test]
    fn every_place_has_its_unit() {
        let shown = [
            0,
            512,
            4096,
            99_999,
            629_384,
            1 << 20,
            1_048_577,
            10_000_000_001,
        ]
        .map(place);
        assert_eq!(
            shown.map(|text| text.replace(TIE, " ")),
            [
                "0", "512 B", "4K", "99999 B", "0.63 MB", "1M", "1.05 MB", "10.0 GB"
            ]
        );
    }

    #[test]
    fn names_are_picked_by_their_parts() {
        assert!(contains("/usr/lib/a.so", "lib") && contains("/usr/lib/a.so", "usr*.so"));
        assert!(!contains("/usr/lib/a.so", "so*lib") && contains("x", ""));
        let view = View {
            file: Some("*.so".to_string()),
            rows: 3,
            ..View::default()
        };
        assert!(view.shows("a.so.1") && !view.shows("a.py") && View::default().shows(""));
        assert_eq!(tail("short"), "short");
        assert_eq!(tail(&"x".repeat(40)).chars().count(), NAME_WIDTH);
    }
}
