//! Tests that memory is limited, whatever a trace contains. This is a binary of its own because it measures the whole process.

use foreread_trace::catalog::ALL;
use foreread_trace::format::{Output, Pairs};
use foreread_trace::fuzz::{Outcome, one};
use foreread_trace::{FileInfo, Header, Item, Items, Record, info, open, own};
use std::io::{BufWriter, Write};

/// Records of the long trace: as items in memory they would be 160 MB.
const RECORDS: u64 = 1_500_000;
/// What reading, writing and the figures of a trace may take beyond what the process had.
const CAP_KIB: u64 = 48 << 10;

/// The most memory that this process had so far.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn long() -> Items {
    let file = Item::File(FileInfo::new("a", None));
    let record = |i: u64| {
        // A fifth in order, the others all over a terabyte, each size and time another.
        let offset = if i.is_multiple_of(5) {
            i * 4096
        } else {
            i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
        };
        Item::Record(
            Record::read(0, offset, 512 + i % 65_521).between(i * 7001, i * 7001 + i % 99_991),
        )
    };
    Box::new([file].into_iter().chain((0..RECORDS).map(record)).map(Ok))
}

/// 64 MiB of one byte in a few KiB.
fn bombs(byte: u8) -> [Vec<u8>; 2] {
    let plain = vec![byte; 1 << 20];
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut zst = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    for _ in 0..64 {
        gz.write_all(&plain).expect("memory");
        zst.write_all(&plain).expect("memory");
    }
    [gz.finish().expect("memory"), zst.finish().expect("memory")]
}

#[test]
fn memory_has_a_cap() {
    let Some(_) = peak_kib() else {
        println!("skipped: needs /proc/self/status");
        return;
    };
    let folder = tempfile::tempdir().expect("a scratch directory");
    let path = folder.path().join("long.frt");
    let bombs = [bombs(0), bombs(b'1')].concat();
    let before = peak_kib().expect("as above");
    let to = Box::new(BufWriter::new(std::fs::File::create(&path).expect("room")));
    let output = Output::new(&path, to);
    let done = own::export(&Header::default(), long(), output).expect("room");
    assert_eq!(done.records, RECORDS);
    let trace = open::open(&path, None).expect("a trace");
    let read = trace.items.map(Result::unwrap).count();
    assert_eq!(read as u64, RECORDS + 1);
    let figures = info::of(open::open(&path, None).expect("a trace")).expect("whole");
    assert_eq!(figures.by_op["read"].records, RECORDS);
    for format in ALL {
        for bomb in &bombs {
            let outcome = one(format, Pairs::default(), bomb).expect("what it owes");
            assert!(!matches!(outcome, Outcome::Many), "{}", format.name);
        }
    }
    let took = peak_kib().expect("as above") - before;
    assert!(took < CAP_KIB, "{took} KiB");
    println!(
        "memory: {took} KiB for {RECORDS} records and {} bombs a format",
        bombs.len()
    );
}
