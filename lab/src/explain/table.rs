//! The explanation for people: a head line, a table of files, the streams of the worst of them with their reasons, what
//! other policies would have done, and one sentence. At most 100 columns wide.
//!
//! Never: a number that is not in [`Explained`]. What does not fit is summed, and its number given.

use super::share::Share;
use super::{Explained, File, Stream};
use crate::replay::Mode;
use crate::report::RowKind;
use foreread_report::number::{self, TIE, count, cut, or_dash, percent, printable, three, wrap};
use foreread_report::table::TextTable;
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
pub fn render(explained: &Explained, view: &View) -> String {
    let mut lines = wrap(&title(explained), width::columns());
    lines.push(String::new());
    lines.extend(wrap(&format!("{}.", explained.verdict), width::columns()));
    if let Some(auto) = &explained.auto {
        lines.extend(wrap(
            &format!("{} at its farthest: {}.", explained.policy, auto.words),
            width::columns(),
        ));
    }
    let shown: Vec<&File> = explained
        .files
        .iter()
        .filter(|f| view.shows(&f.name))
        .collect();
    lines.push(String::new());
    lines.extend(files(explained, &shown, view));
    lines.push(String::new());
    let told = shown
        .iter()
        .filter(|f| f.share.demand_reads > 0)
        .take(WORST_FILES.min(view.rows));
    told.for_each(|file| lines.extend(streams(file)));
    lines.extend(recorded(explained));
    if !explained.others.is_empty() {
        lines.extend(others(explained, view.details));
        lines.push(String::new());
    }
    for note in &explained.notes {
        lines.extend(wrap(&format!("Note: {note}."), width::columns()));
    }
    lines.join("\n") + "\n"
}

fn title(e: &Explained) -> String {
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

fn grid(header: &[&str], left: &[usize], rows: Vec<Vec<String>>) -> Vec<String> {
    TextTable::new(left).head(header).rows(rows).lines()
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
    let exact = number::size_b(bytes);
    if exact.len() <= 7 {
        exact.replace(' ', &TIE.to_string())
    } else {
        amount(bytes)
    }
}

/// The last letters of a name: what comes before is often the same for all.
fn tail(name: &str) -> String {
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

fn files(explained: &Explained, shown: &[&File], view: &View) -> Vec<String> {
    let header = [
        "\nfile",
        "\nreads",
        "\nMB",
        "\nstreams",
        "\npattern",
        "hit\n%",
        "late\n%",
        "RA\nMB",
        "un-\nused",
        "stall\ns",
    ];
    let row = |name: String, streams: u64, pattern: String, share: &Share| {
        let part = |n: u64| {
            or_dash(
                foreread_sim::stats::ratio(n as f64, share.demand_reads as f64),
                percent,
            )
        };
        vec![
            name,
            count(share.demand_reads),
            mb(share.demand_bytes),
            count(streams),
            pattern,
            part(share.hits),
            part(share.late_hits),
            mb(share.ra_bytes),
            mb(share.in_vain_bytes()),
            seconds(share.stall_ns),
        ]
    };
    let in_all = |files: &[&File]| {
        let mut sum = Share::default();
        files.iter().for_each(|f| sum.add(&f.share));
        (files.iter().map(|f| f.stream_count()).sum(), sum)
    };
    let of_file = |f: &&File| {
        row(
            tail(&f.name),
            f.stream_count(),
            f.pattern.words.clone(),
            &f.share,
        )
    };
    let mut rows: Vec<Vec<String>> = shown.iter().take(view.rows).map(of_file).collect();
    let rest: Vec<&File> = shown.iter().skip(view.rows).copied().collect();
    let hidden: Vec<&File> = explained
        .files
        .iter()
        .filter(|f| !view.shows(&f.name))
        .collect();
    for (files, what) in [(&rest, "more"), (&hidden, "not asked for")] {
        if !files.is_empty() {
            let (streams, sum) = in_all(files);
            rows.push(row(
                format!("{} {what}", files.len()),
                streams,
                String::new(),
                &sum,
            ));
        }
    }
    if rows.len() > 1 {
        let (streams, sum) = in_all(&explained.files.iter().collect::<Vec<_>>());
        rows.push(row("all".to_string(), streams, String::new(), &sum));
    }
    let mut lines = grid(&header, &[0, 4], rows);
    lines.push(LEGEND.to_string());
    lines.extend(wrap(&explained.total.decisions.words(), width::columns()));
    lines
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
    let plural = |n: u64, one: &str| {
        if n == 1 {
            format!("1 {one}")
        } else {
            format!("{} {one}s", count(n))
        }
    };
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
        "{}{step}{open} from {}: {} {}, {}, {met}{ahead}, {stall}: {}: {}",
        s.shape,
        place(s.from),
        count(share.demand_reads),
        if share.demand_reads == 1 {
            "read"
        } else {
            "reads"
        },
        amount(share.demand_bytes),
        if s.because.on { "on" } else { "off" },
        s.because.words
    )
}

fn recorded(explained: &Explained) -> Vec<String> {
    let Some(recorded) = &explained.recorded else {
        return Vec::new();
    };
    let part = or_dash(
        foreread_sim::stats::ratio(recorded.wanted_bytes as f64, recorded.ra_bytes as f64),
        percent,
    );
    let most = recorded.files.first().map_or_else(String::new, |f| {
        format!(", most of it ({}) in {}", amount(f.ra_bytes), tail(&f.name))
    });
    let text = format!(
        "The recorded system itself read ahead {}, {}{most}; {part} % of these bytes are among the reads of the \
         trace.",
        if recorded.ra_ops == 1 {
            "once".to_string()
        } else {
            format!("{} times", count(recorded.ra_ops))
        },
        amount(recorded.ra_bytes)
    );
    let mut lines = wrap(&text, width::columns());
    lines.push(String::new());
    lines
}

/// The column of [`others`] with the interval of the ratio.
const INTERVAL: usize = 3;

fn others(explained: &Explained, details: bool) -> Vec<String> {
    let by = if explained.mode.as_deref().and_then(Mode::of_json) == Some(Mode::Open) {
        "wait\ns"
    } else {
        "time\ns"
    };
    let mut header = vec![
        "\n  policy",
        by,
        "to\nthis",
        "\n95 %",
        "stall\ns",
        "read\nMB",
        "RA\nMB",
        "un-\nused",
    ];
    let rows = explained.others.iter().map(|o| {
        let mark = if o.explained { "* " } else { "  " };
        let interval = o.ratio_ci95.filter(|_| !o.explained);
        let mut cells = vec![
            format!("{mark}{}", o.policy),
            or_dash(o.time_s, |s| number::span_s(s, None)),
            or_dash(o.ratio, number::times),
            interval.map_or_else(String::new, |[low, high]| {
                format!("{}-{}", three(low), three(high))
            }),
            or_dash(o.stall_s, |s| number::span_s(s, None)),
            or_dash(o.source_bytes, mb),
            or_dash(o.ra_bytes, mb),
            or_dash(o.in_vain_bytes, mb),
        ];
        if !details {
            cells.remove(INTERVAL);
        }
        cells
    });
    let mut lines = vec![format!(
        "The same reads under other policies ({} runs of each, * is this one):",
        explained.other_runs
    )];
    let rows: Vec<Vec<String>> = rows.collect();
    if !details {
        header.remove(INTERVAL);
    }
    lines.extend(grid(&header, &[0], rows));
    if details && explained.others.iter().any(|o| o.differs.is_some()) {
        let text = format!(
            "Statistics: paired t tests of the runs, Holm's correction over all pairs of rows, alpha {ALPHA}. 95 %: \
             interval of the ratio, by bootstrap over the pairs of runs."
        );
        lines.extend(wrap(&text, width::columns()));
    }
    if explained.others.iter().any(|o| o.kind == RowKind::Kernel) {
        lines.push(
            "kernel: through the page cache, at the device's read_ahead_kb; it has no counters."
                .to_string(),
        );
    }
    lines
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
