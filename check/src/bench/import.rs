//! `foreread check bench import`: import and export rates of each format in records per second, compared with a plain scan of the same bytes.
//!
//! ```text
//!   a generated trace ──► exported to each writable format ──► imported again
//!                                                         └─► peer: the same file, its lines only counted
//! ```
//! One thread, everything in the page cache. Never: a test.

use foreread_sim::rng::Rng;
use foreread_trace::catalog::ALL;
use foreread_trace::format::{Format, Output, Pairs};
use foreread_trace::open::open;
use foreread_trace::{
    FileInfo, Flags, Header, Item, Items, Lacks, LeftOut, Op, Record, TraceError, own,
};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Records of the trace whose formats are compared.
const RECORDS: u64 = 1_000_000;
/// Records of the long one: its peak of memory has to be that of the short one.
const LONG: u64 = 10 * RECORDS;
/// Rounds of which the median is taken.
const ROUNDS: usize = 3;

/// A name and a number.
pub type Figure = (String, Option<f64>);

pub fn import() -> Result<Vec<Figure>, TraceError> {
    let io = |error: std::io::Error| TraceError::not_written(Path::new("a scratch file"), &error);
    let folder = tempfile::tempdir().map_err(io)?;
    let mut figures = memory(folder.path())?;
    let (mut own_in, mut worst) = (0.0, f64::INFINITY);
    for format in ALL.iter().filter(|format| format.export.is_some()) {
        let path = folder.path().join(format.name);
        let done = round_trip(format, &path)?;
        let _ = std::fs::remove_file(&path); // The folder goes anyway.
        if format.name == own::FORMAT.name {
            own_in = done.read;
        }
        worst = worst.min(done.read);
        let name = |what: &str| format!("{}_{what}", format.name.replace('-', "_"));
        figures.push((name("out_records_per_s"), Some(done.written)));
        figures.push((name("in_records_per_s"), Some(done.read)));
        figures.push((name("bytes_per_record"), Some(done.bytes_per_record)));
        figures.push((name("in_to_counting_lines"), done.to_lines));
    }
    figures.push((
        "slowest_in_records_per_s".to_string(),
        worst.is_finite().then_some(worst),
    ));
    figures.push(("own_in_million_per_s".to_string(), Some(own_in / 1e6)));
    Ok(figures)
}

struct ImportFigures {
    written: f64,
    read: f64,
    bytes_per_record: f64,
    /// Of two rates of the same file, the median of their ratios; not for binary formats.
    to_lines: Option<f64>,
}

/// Writes the trace, then reads it, in turns with its peer.
fn round_trip(format: &'static Format, path: &PathBuf) -> Result<ImportFigures, TraceError> {
    let items: Vec<Item> = made(RECORDS).collect::<Result<_, _>>()?;
    let records = RECORDS as f64;
    let (mut written, mut read, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let copy = items.clone();
        let began = Instant::now();
        let Some(export) = format.export else {
            continue;
        };
        export(
            &header(),
            Pairs::default(),
            Box::new(copy.into_iter().map(Ok)),
            output(path)?,
        )?;
        written.push(records / began.elapsed().as_secs_f64());
    }
    drop(items);
    let io = |error: std::io::Error| TraceError::not_written(path, &error);
    let bytes = std::fs::metadata(path).map_err(io)?.len() as f64;
    let mut is_text = true;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut got = 0_u64;
        for item in open(std::slice::from_ref(path), Some(format.name))?.items {
            got += u64::from(matches!(item?, Item::Record(_)));
        }
        let ours = got as f64 / began.elapsed().as_secs_f64();
        let began = Instant::now();
        let lines = BufReader::new(File::open(path).map_err(io)?)
            .lines()
            .map_while(Result::ok)
            .count() as u64;
        let theirs = lines as f64 / began.elapsed().as_secs_f64();
        // What has no lines, or bytes that are no text, is counted short.
        is_text &= lines >= got;
        read.push(ours);
        ratios.push(ours / theirs);
    }
    let to_lines = is_text.then(|| median(ratios));
    Ok(ImportFigures {
        written: median(written),
        read: median(read),
        bytes_per_record: bytes / records,
        to_lines,
    })
}

/// Peak memory after a short and a long trace, each written and read as they come.
fn memory(folder: &Path) -> Result<Vec<Figure>, TraceError> {
    let path = folder.join("long");
    let mut figures = Vec::new();
    for (name, records) in [
        ("peak_mb_1m_records", RECORDS),
        ("peak_mb_10m_records", LONG),
    ] {
        own::write(
            &header(),
            made(records),
            &LeftOut::default(),
            output(&path)?,
        )?;
        let began = Instant::now();
        for item in open(std::slice::from_ref(&path), None)?.items {
            item?;
        }
        let rate = records as f64 / began.elapsed().as_secs_f64();
        figures.push((name.to_string(), peak_bytes().map(|bytes| bytes / 1e6)));
        figures.push((
            format!(
                "{}_in_records_per_s",
                if records == LONG { "long" } else { "short" }
            ),
            Some(rate),
        ));
    }
    let _ = std::fs::remove_file(&path); // The folder goes anyway.
    Ok(figures)
}

/// The most memory that this process had; nothing where the system does not tell.
fn peak_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .trim_end_matches(" kB")
        .parse::<f64>()
        .ok()
        .map(|kib| kib * 1024.0)
}

fn output(path: &Path) -> Result<Output, TraceError> {
    let file = File::create(path).map_err(|error| TraceError::not_written(path, &error))?;
    Ok(Output {
        path: path.to_path_buf(),
        to: Box::new(BufWriter::with_capacity(1 << 18, file)),
    })
}

fn header() -> Header {
    let lacks = Lacks {
        opens: true,
        ..Lacks::default()
    };
    let (time_unit, offset_unit) = ("ns".to_string(), "bytes".to_string());
    Header {
        format: "made".to_string(),
        time_unit,
        offset_unit,
        lacks,
        ..Header::default()
    }
}

/// Eight readers in order, each with pauses and now and then a jump, among random reads and some writes.
fn made(records: u64) -> Items {
    let mut rng = Rng::new(1);
    let mut at = [0_u64; 8];
    let mut now = 1000;
    let record = move |_| {
        now += 1000 + rng.below(50_000) / 1000 * 1000;
        let reader = rng.below(8) as usize;
        let len = 4096 << rng.below(4);
        let jump = rng.below(10) < 3;
        if jump {
            at[reader] = rng.below(1 << 28) * 512;
        }
        let offset = at[reader];
        at[reader] += len;
        let op = if rng.below(10) == 0 {
            Op::Write
        } else {
            Op::Read
        };
        let flags = Flags::default();
        let end_ns = Some(now + 50_000 + rng.below(100_000) / 1000 * 1000);
        let thread = reader as u32;
        Ok(Item::Record(Record {
            op,
            thread,
            start_ns: Some(now),
            end_ns,
            flags,
            ..Record::read(0, offset, len)
        }))
    };
    let file = Item::File(FileInfo {
        name: "8,16".to_string(),
        size: Some(1 << 40),
    });
    Box::new(std::iter::once(Ok(file)).chain((0..records).map(record)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
