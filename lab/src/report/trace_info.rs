//! Describes a trace ([`Info`]) as text: a line for each fact, and a sentence for each kind of information that the
//! trace lacks.
//!
//! Control characters in names from the trace are never printed.

use foreread_report::block::{self, Block, Table};
use foreread_report::number::{
    amount, count, latency_us, percent, plural, printable, size, three, wrap,
};
use foreread_report::width;
use foreread_trace::info::{Count, Info};

/// Largest width of a line.
const WIDTH: usize = 90;
/// Width of the first column.
const NAMES: usize = 10;

/// Formats the description of the trace as lines of text.
pub fn render(info: &Info) -> String {
    let (format, times, offsets) = (&info.format, &info.time_unit, &info.offset_unit);
    let mut facts = vec![
        (
            "format",
            format!("{format}; times: {times}; offsets: {offsets}"),
        ),
        ("records", counts(info)),
    ];
    let known =
        |n: Option<u64>, what| n.map_or(String::new(), |n| format!(", {}", plural(n, what)));
    let (opens, threads) = (known(info.opens, "open"), known(info.threads, "thread"));
    facts.push(("files", count(info.files) + &opens + &threads));
    reads(info, &mut facts);
    if let Some(ns) = info.span_ns {
        let reads = info.by_op.get("read").map_or(0, |c| c.records) as f64;
        let rate = || format!(", {} reads/s", three(reads / (ns as f64 / 1e9)));
        facts.push(("time", time(ns) + &when(ns > 0, rate)));
    }
    let reach = format!("{} over all files", amount(info.span_bytes));
    facts.push(("reach", reach));
    if let Some(s) = &info.read_latency_ns {
        let [p50, p95, p99, max] = [s.p50, s.p95, s.p99, s.max].map(time);
        facts.push((
            "latency",
            format!("p50 {p50}, p95 {p95}, p99 {p99}, max {max}"),
        ));
    }
    if let Some(s) = &info.think_ns {
        let [p50, p95, max] = [s.p50, s.p95, s.max].map(time);
        let reads = count(info.overlapping);
        let overlapping = || format!("; {reads} reads begin before the previous one has ended");
        let overlapping = when(info.overlapping > 0, overlapping);
        facts.push((
            "think time",
            format!("p50 {p50}, p95 {p95}, max {max}{overlapping}"),
        ));
    }
    let left_out = info.left_out.iter();
    facts.extend(left_out.map(|(reason, n)| ("left out", format!("{} {reason}", count(*n)))));
    facts.extend(info.notes.iter().map(|note| ("note", note.clone())));
    facts.extend(info.lacks.iter().map(|lack| ("lacks", lack.clone())));
    let (room, mut before) = (width::columns().min(WIDTH) - NAMES - 1, "");
    let row = |(name, fact): &(&'static str, String)| {
        let shown = if before == *name { "" } else { name };
        before = name;
        [
            format!("{shown:NAMES$}"),
            wrap(&printable(fact), room).join("\n"),
        ]
    };
    let table = Table::of_cells(facts.iter().map(row)).left();
    block::text([Block::Table(table)], WIDTH, false)
}

/// The text if `said`, otherwise an empty string.
fn when(said: bool, text: impl FnOnce() -> String) -> String {
    if said { text() } else { String::new() }
}

fn counts(info: &Info) -> String {
    let total: u64 = info.by_op.values().map(|c| c.records).sum();
    let one = |(op, c): (&&str, &Count)| format!("{} ({})", plural(c.records, op), amount(c.bytes));
    let each: Vec<String> = info.by_op.iter().map(one).collect();
    let mut text = format!("{}: {}", count(total), each.join(", "));
    if info.by_op.is_empty() {
        text = "none".to_string();
    }
    if info.ahead.records > 0 {
        let ahead = count(info.ahead.records);
        text += &format!("; {ahead} of the reads are readahead of the recorded system");
    }
    if info.metadata.records > 0 {
        let (records, bytes) = (count(info.metadata.records), amount(info.metadata.bytes));
        text +=
            &format!("; {records} of the reads ({bytes}) are reads of the file system's metadata");
    }
    let waiting = || format!("; waiting for others: {}", count(info.dependent));
    text + &when(info.dependent > 0, waiting)
}

fn reads(info: &Info, facts: &mut Vec<(&str, String)>) {
    let Some(sizes) = &info.read_bytes else {
        return;
    };
    let [p50, p95, max] = [sizes.p50, sizes.p95, sizes.max].map(size);
    facts.push(("read size", format!("p50 {p50}, p95 {p95}, max {max}")));
    if let Some(share) = info.sequential_share.map(percent) {
        let text =
            format!("{share} % of reads begin where an earlier read of the same open file ended");
        facts.push(("sequential", text));
    }
    let streams = info.streams.bytes.as_ref().map(|s| {
        let [each, most] = [s.p50, s.max].map(amount);
        let [number, longest] = [s.number, info.streams.longest_reads].map(count);
        format!(
            "{number} with two or more reads; {each} each at the median, {most} and {longest} reads at most"
        )
    });
    let streams = streams.unwrap_or("none with two or more reads".to_string());
    let forgotten = || format!("; {} were lost sight of", count(info.streams.forgotten));
    facts.push((
        "streams",
        streams + &when(info.streams.forgotten > 0, forgotten),
    ));
}

fn time(ns: u64) -> String {
    if ns < 1000 {
        format!("{ns}ns")
    } else {
        latency_us(ns as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_testing::says;
    use foreread_trace::{
        FileInfo, Flags, Header, Import, Item, Items, Lacks, LeftOut, Level, Record, info,
    };

    fn of(header: Header, records: Vec<Record>) -> Info {
        let file = Item::File(FileInfo::new("a", None));
        let items: Items = Box::new(
            [file]
                .into_iter()
                .chain(records.into_iter().map(Item::Record))
                .map(Ok),
        );
        info::of(Import {
            header,
            items,
            left_out: LeftOut::default(),
        })
        .expect("whole")
    }

    #[test]
    fn times_are_written_with_their_units() {
        let ms = 1_000_000;
        let read = |offset, start: u64, end: u64| {
            Record::read(0, offset, 4096).between(start * ms, end * ms)
        };
        // Think times of 2 and 16 ms; the last read begins before the one before it has ended.
        let text = render(&of(
            Header::default(),
            vec![
                read(0, 0, 1),
                read(4096, 3, 4),
                read(8192, 20, 30),
                read(0, 25, 26),
            ],
        ));
        says(
            &text,
            &["think time p50 2.00ms, p95 16.0ms, max 16.0ms; 1 reads begin before"],
        );
    }

    #[test]
    fn lines_are_narrow_and_without_control_characters() {
        let notes = vec!["a\u{1b}[31m".to_string()];
        let text = render(&of(
            Header {
                lacks: Lacks::ALL,
                level: Level::BelowCache,
                notes,
                ..Header::default()
            },
            vec![Record::read(0, 0, 512)],
        ));
        assert!(
            text.lines().all(|line| line.chars().count() <= 90),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
        says(&text, &["no times: compare replays the trace"]);
    }

    #[test]
    fn the_file_systems_own_data_is_named() {
        let own = Record::read(0, 0, 8192).flags(Flags::AHEAD.with(Flags::METADATA));
        let text = render(&of(Header::default(), vec![own, Record::read(0, 0, 512)]));
        says(&text, &["2 reads (8.70 kB); 1 of the reads (8.19 kB)"]);
    }

    #[test]
    fn a_trace_without_records_has_none() {
        let text = render(&of(Header::default(), Vec::new()));
        assert!(text.contains("records    none"), "{text}");
    }
}
