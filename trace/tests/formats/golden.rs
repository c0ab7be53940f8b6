//! Every importer against small traces of our own: what it makes of them, item by item, and what it refuses.
//!
//! ```text
//!   traces/FORMAT/NAME         the trace; NAME.hex: as hexadecimal digits, "# ..." being comments
//!   traces/FORMAT/NAME.items   first line: the format that is named, or "detected"; then header, items, end
//! ```
//!
//! `FOREREAD_BLESS=1` writes the second from the first: look at every line of it before it is committed.

use foreread_trace::catalog::ALL;
use foreread_trace::input::Input;
use foreread_trace::{Header, Import, Item, Record, open};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The formats with a folder of items: one row a line, or events of which several make a record.
fn formats() -> Vec<&'static str> {
    let names = ALL.iter().map(|format| format.name);
    let found: Vec<&str> = names.filter(|name| !fixtures(name).is_empty()).collect();
    assert!(found.len() >= 15, "the test must reach formats: {found:?}");
    found
}

fn folder(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces")
        .join(format)
}

fn bytes(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("a fixture");
    if path.extension().is_none_or(|e| e != "hex") {
        return bytes;
    }
    let text = String::from_utf8(bytes).expect("text");
    let digits: String = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or(""))
        .collect();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("two digits")
    };
    digits.chunks(2).map(byte).collect()
}

fn header(header: &Header) -> String {
    let l = header.lacks;
    let lacks = [
        (l.starts, "starts"),
        (l.ends, "ends"),
        (l.opens, "opens"),
        (l.threads, "threads"),
        (l.lens, "lens"),
        (l.ops, "ops"),
    ];
    let lacks: Vec<&str> = lacks
        .into_iter()
        .filter(|(lacks, _)| *lacks)
        .map(|(_, name)| name)
        .collect();
    let mut text = format!("header: {}; time {}; ", header.format, header.time_unit);
    let lacks = if lacks.is_empty() {
        "nothing".to_string()
    } else {
        lacks.join(" ")
    };
    writeln!(
        text,
        "offset {}; lacks {lacks}; level {:?}",
        header.offset_unit, header.level
    )
    .expect("memory");
    for note in &header.notes {
        writeln!(text, "note: {note}").expect("memory");
    }
    text
}

fn record(number: usize, r: &Record) -> String {
    let mut text = format!(
        "{number} {:?} file {} open {} thread {}",
        r.op, r.file, r.open, r.thread
    );
    write!(text, " at {} len {}", r.offset, r.len).expect("memory");
    let known = [
        ("returned", r.returned),
        ("start", r.start_ns),
        ("end", r.end_ns),
    ];
    for (name, value) in known
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    {
        write!(text, " {name} {value}").expect("memory");
    }
    if r.flags.0 != 0 {
        write!(text, " flags {}", r.flags.0).expect("memory");
    }
    for after in &r.after {
        let what = if after.end { "end" } else { "start" };
        write!(
            text,
            " after {what} of {} + {}",
            after.record, after.delay_ns
        )
        .expect("memory");
    }
    text + "\n"
}

fn read(name: &str, bytes: Vec<u8>, format: Option<&str>) -> String {
    let input =
        Input::of(Path::new(name), Box::new(std::io::Cursor::new(bytes))).expect("readable");
    let Import {
        header: head,
        items,
        left_out,
    } = match open::read(vec![input], format) {
        Ok(import) => import,
        Err(error) => return format!("error: {error}\n"),
    };
    let (mut text, mut files, mut records) = (header(&head), 0, 0);
    for item in items {
        match item {
            Ok(Item::File(file)) => {
                let size = file
                    .size
                    .map_or(String::new(), |size| format!(" of {size} bytes"));
                writeln!(text, "file {files}: {:?}{size}", file.name).expect("memory");
                files += 1;
            }
            Ok(Item::Record(r)) => {
                text += &record(records, &r);
                records += 1;
            }
            Err(error) => writeln!(text, "error: {error}").expect("memory"),
        }
    }
    for (reason, n) in left_out.so_far() {
        writeln!(text, "left out: {n} {reason}").expect("memory");
    }
    text
}

/// The expected items of a format's folder, in order.
fn fixtures(format: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder(format)).into_iter().flatten();
    let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "items"));
    files.sort();
    files
}

#[test]
fn every_trace_gives_its_items() {
    let bless = std::env::var_os("FOREREAD_BLESS").is_some();
    let mut seen = 0;
    for format in formats() {
        for path in fixtures(format) {
            let want = std::fs::read_to_string(&path).expect("text");
            let first = want.lines().next().expect("the format");
            let named = first.strip_prefix("format: ").expect("the format");
            let trace = path.with_extension("");
            let name = trace.file_name().and_then(|n| n.to_str()).expect("a name");
            let got = read(name, bytes(&trace), (named != "detected").then_some(named));
            let got = format!("{first}\n{got}");
            if bless {
                std::fs::write(&path, &got).expect("writable");
            }
            assert!(
                bless || got == want,
                "{}\n--- is\n{got}--- should be\n{want}",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= formats().len(), "each format has a trace");
}

/// What is cut anywhere ends in at most one line of error, and nothing follows it.
#[test]
fn a_cut_is_an_end_or_one_line() {
    if std::env::var_os("FOREREAD_BLESS").is_some() {
        return println!("skipped: needs expectations that are not being written (FOREREAD_BLESS)");
    }
    for format in formats() {
        for path in fixtures(format) {
            let want = std::fs::read_to_string(&path).expect("text");
            let named = want
                .lines()
                .next()
                .and_then(|l| l.strip_prefix("format: "))
                .expect("the format");
            let whole = bytes(&path.with_extension(""));
            for len in 0..whole.len().min(600) {
                let text = read(
                    "t",
                    whole[..len].to_vec(),
                    (named != "detected").then_some(named),
                );
                let errors: Vec<&str> = text.lines().filter(|l| l.starts_with("error: ")).collect();
                assert!(
                    errors.len() <= 1,
                    "{}, cut at {len}:\n{text}",
                    path.display()
                );
                assert!(
                    errors.iter().all(|e| e.contains(": t") && e.contains("; ")),
                    "{errors:?}"
                );
            }
        }
    }
}

#[test]
fn a_name_is_a_format_once() {
    for (i, format) in ALL.iter().enumerate() {
        assert!(
            ALL[..i].iter().all(|other| other.name != format.name),
            "{} is there twice",
            format.name
        );
    }
}
