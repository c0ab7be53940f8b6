//! Every importer against small traces of our own: what it makes of them, item by item, and what it refuses.
//!
//! ```text
//!   traces/FORMAT/NAME             the trace; NAME.hex: as hexadecimal digits, "# ..." being comments
//!   traces/FORMAT/NAME.items       first line: the format that is named, or "detected"; then header, items, end
//!   traces/FORMAT/NAME+KEY.items   the same trace with other keys
//! ```
//!
//! `FOREREAD_BLESS=1` writes the items from the first line: look at every line before it is committed.

use super::traces::{Read, fixtures, input, named, read, trace};
use foreread_trace::catalog::ALL;
use foreread_trace::{Header, Item, Record};
use std::fmt::Write;

fn header(header: &Header) -> String {
    let l = header.lacks;
    let lacks = [
        (l.starts, "starts"),
        (l.ends, "ends"),
        (l.opens, "opens"),
        (l.threads, "threads"),
        (l.ops, "ops"),
    ];
    let lacks = lacks
        .into_iter()
        .filter_map(|(lacks, name)| lacks.then_some(name));
    let lacks: Vec<&str> = lacks.collect();
    let lacks = match lacks.as_slice() {
        [] => "nothing".to_string(),
        lacks => lacks.join(" "),
    };
    let mut text = format!(
        "header: {}; time {}; offset {}; lacks {lacks}; level {:?}\n",
        header.format, header.time_unit, header.offset_unit, header.level
    );
    for note in &header.notes {
        writeln!(text, "note: {note}").expect("memory");
    }
    text
}

fn record(number: usize, r: &Record) -> String {
    let mut text = format!(
        "{number} {:?} file {} open {} thread {} at {} len {}",
        r.op, r.file, r.open, r.thread, r.offset, r.len
    );
    let flags = (r.flags.0 != 0).then_some(u64::from(r.flags.0));
    for (name, value) in [
        ("returned", r.returned),
        ("start", r.start_ns),
        ("end", r.end_ns),
        ("flags", flags),
    ] {
        if let Some(value) = value {
            write!(text, " {name} {value}").expect("memory");
        }
    }
    for after in &r.after {
        let what = if after.end { "end" } else { "start" };
        let (record, delay) = (after.record, after.delay_ns);
        write!(text, " after {what} of {record} + {delay}").expect("memory");
    }
    text + "\n"
}

fn shown(read: &Read) -> String {
    let mut text = read.header.as_ref().map_or_else(String::new, header);
    let (mut files, mut records) = (0, 0);
    for item in &read.items {
        match item {
            Item::File(file) => {
                let size = file.size.map(|size| format!(" of {size} bytes"));
                let size = size.unwrap_or_default();
                writeln!(text, "file {files}: {:?}{size}", file.name).expect("memory");
                files += 1;
            }
            Item::Record(r) => {
                text += &record(records, r);
                records += 1;
            }
        }
    }
    if let Some(error) = &read.error {
        writeln!(text, "error: {error}").expect("memory");
    }
    for (reason, n) in &read.left_out {
        writeln!(text, "left out: {n} {reason}").expect("memory");
    }
    text
}

#[test]
fn every_trace_gives_its_items() {
    let bless = std::env::var_os("FOREREAD_BLESS").is_some();
    for path in ALL.iter().flat_map(|format| fixtures(format.name, true)) {
        let want = std::fs::read_to_string(&path).expect("text");
        let items = path.file_stem().and_then(|n| n.to_str()).expect("a name");
        let name = items.split('+').next().expect("a name");
        let bytes = trace(&path.with_file_name(name));
        let got = shown(&read(named(&want), vec![input(name, bytes)]));
        let first = want.lines().next().expect("the format");
        let got = format!("{first}\n{got}");
        if bless {
            std::fs::write(&path, got).expect("writable");
        } else if got != want {
            panic!("{}\n--- is\n{got}--- should be\n{want}", path.display());
        }
    }
}
