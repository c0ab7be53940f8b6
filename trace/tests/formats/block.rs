//! Block traces and vscsi: golden files of both byte orders, what is refused, and the real blkparse beside us.

use super::traces::{Read, fixture, golden, read, read_bytes, read_files, refusal, shown};
use foreread_trace::input::Input;
use foreread_trace::{Flags, Item, Op, Record, catalog};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const TEXT: &[u8] = include_bytes!("../traces/blk/text.blkparse");

fn cpus(order: &str) -> Vec<PathBuf> {
    [0, 1, 5]
        .map(|cpu| fixture(&format!("blk/{order}.blktrace.{cpu}")))
        .to_vec()
}

/// The same events as text, little-endian and big-endian become the same items.
#[test]
fn golden_block_traces() {
    for (action, suffix) in [
        ("", "queue"),
        (":action=Q", "queue"),
        (":action=D", "issue"),
    ] {
        let text = read_files(
            &format!("blkparse{action}"),
            &[fixture("blk/text.blkparse")],
        );
        golden(&format!("blk/{suffix}.txt"), &text);
        for order in ["le", "be"] {
            let binary = read_files(&format!("blktrace{action}"), &cpus(order)).clean();
            assert_eq!(binary.items, text.items, "{order} {suffix}");
            assert_eq!(binary.left_out, text.left_out, "{order} {suffix}");
            assert_eq!(binary.header.format, "blktrace");
        }
    }
    // The order in which the files are named does not matter; one of them alone is a trace as well.
    let mut files = cpus("le");
    files.reverse();
    assert_eq!(
        read_files("blktrace", &files).clean().items,
        read_files("blktrace", &cpus("be")).items
    );
    assert_eq!(
        read_files("blktrace", &cpus("le")[2..])
            .clean()
            .records()
            .len(),
        1
    );
}

#[test]
fn formats_are_seen_by_their_first_bytes() {
    let seen = |name: &str| {
        let mut head = Vec::new();
        std::fs::File::open(fixture(name))
            .expect("there")
            .read_to_end(&mut head)
            .expect("readable");
        catalog::detect(&head, Path::new(name))
            .map_or_else(|e| e.to_string(), |f| f.name.to_string())
    };
    for (name, format) in [
        ("blk/le.blktrace.0", "blktrace"),
        ("blk/be.blktrace.5", "blktrace"),
        ("blk/text.blkparse", "blkparse"),
        ("vscsi/v1.vscsi", "vscsi"),
        ("vscsi/v2.vscsi", "vscsi"),
        ("fio/v2.log", "fio"),
    ] {
        assert_eq!(seen(name), format, "{name}");
    }
    assert!(
        seen("README.md").starts_with("no known format of traces: README.md; "),
        "{}",
        seen("README.md")
    );
}

/// Published traces explain themselves in comments, and part their sections by empty lines.
#[test]
fn comments_of_blkparse_are_passed_over() {
    let text = String::from_utf8_lossy(TEXT).into_owned();
    let commented = text
        .lines()
        .map(|line| format!("# a comment\n\n{line}\n"))
        .collect::<String>();
    let of = |text: String| read_bytes("blkparse", text).clean();
    assert_eq!(of(commented.clone()).items, of(text).items);
    assert_eq!(
        catalog::detect(commented.as_bytes(), Path::new("t")).map(|f| f.name),
        Ok("blkparse")
    );
}

const LINE: &str = "  8,16   5        1     0.000001850 18615  Q   R 1444645666 + 256 [java]\n";

/// Cut anywhere after its device, a line is refused by its number; cut within, it is no line of the trace.
#[test]
fn a_line_that_is_cut_is_named() {
    let line = LINE.trim_end();
    for end in 7..line.len() {
        let error = refusal("blkparse:action=Q", format!("{LINE}{}\n", &line[..end]));
        assert!(error.contains(": t, line 2; "), "{end}: {error}");
    }
    assert_eq!(
        read_bytes("blkparse", format!("{LINE}  8"))
            .clean()
            .records()
            .len(),
        1
    );
    let with = |from: &str, to: &str| {
        refusal(
            "blkparse:action=Q",
            format!("{LINE}{}", LINE.replace(from, to)),
        )
    };
    let starts = |error: String, what: &str| assert!(error.starts_with(what), "{error}");
    starts(
        with("1444645666", "18014398509481984"),
        "a record that ends beyond 2^63 bytes: t, record 2; ",
    );
    starts(
        with("1444645666", "36028797018963968"),
        "a sector beyond 2^63 bytes: t, line 2; ",
    );
    starts(
        with("+ 256", "+ 36028797018963968"),
        "more sectors than 2^63 bytes: t, line 2; ",
    );
    starts(
        with("0.000001850", "0.0000018500"),
        "a time that is not seconds with nine decimals: t, line 2; ",
    );
    starts(
        refusal("blkparse", format!("{LINE}{}", "8,16 ".repeat(2 << 20))),
        "a line of over 64 KiB: t, line 2; ",
    );
    let none =
        "neither queued (Q) nor issued (D) requests at the beginning: t; say blkparse:action=Q or ";
    starts(refusal("blkparse", LINE.replace(" Q ", " G ")), none);
    starts(refusal("blkparse", "CPU0 (sda):\n"), none);
}

/// A little backwards is sorted, as the tracer's buffers come; far backwards is refused.
#[test]
fn time_may_go_back_by_so_many_entries() {
    let line = |ns: u64| {
        format!(
            "8,0 0 1 {}.{:09} 1 Q R 8 + 8 [a]\n",
            ns / 1_000_000_000,
            ns % 1_000_000_000
        )
    };
    let back: String = (0..4097).map(|i| line(5000 - i)).collect();
    let sorted = read_bytes("blkparse", back.clone()).clean();
    assert!(sorted.records().is_sorted_by_key(|r| r.start_ns) && sorted.records().len() == 4097);
    let error = refusal("blkparse", back + &line(6000) + &line(7));
    assert!(
        error.starts_with("time goes backwards by over 4096 entries: t, line 4099; sort the trace"),
        "{error}"
    );
}

/// A request that never completes holds up no more than it may, and is read without an end.
#[test]
fn a_completion_that_never_comes_is_waited_for_within_limits() {
    let event = |i: u64, action: char, end: &str| {
        format!("8,0 0 1 0.{i:09} 1 {action} R {} + 8 [{end}]\n", i / 2 * 8)
    };
    let mut text = event(0, 'Q', "a");
    (1..100_000).for_each(|i| text += &(event(2 * i, 'Q', "a") + &event(2 * i, 'C', "0")));
    text += "8,0 0 1 0.900000000 0 C R 0 + 8 [0]\n";
    let read = read_bytes("blkparse", text).clean();
    let records = read.records();
    assert_eq!((records.len(), records[0].end_ns), (100_000, None));
    assert!(records[1..].iter().all(|r| r.end_ns == r.start_ns));
}

fn record(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = std::fs::read(fixture("blk/le.blktrace.5")).expect("there");
    change(&mut bytes);
    bytes
}

#[test]
fn binary_records_that_are_wrong_are_named() {
    let starts = |error: String, what: &str| assert!(error.starts_with(what), "{error}");
    // The first record is a remap with 16 bytes of payload: the second begins at 64.
    starts(
        refusal("blktrace", record(|b| b[64] = 8)),
        "a blktrace of version 8, known is 7: t, record 2 at byte 64; ",
    );
    starts(
        refusal("blktrace", record(|b| b[65] = 0)),
        "no magic number where a record should begin: t, record 2 at",
    );
    starts(
        refusal("blktrace", record(|b| b[64..68].reverse())),
        "no magic number where a record should begin: t, ",
    );
    for (end, what) in [
        (100, "(36 of 48 bytes): t, record 2 at byte 64;"),
        (50, "(2 of 16 bytes): t, record 1 at byte 48;"),
    ] {
        let error = refusal("blktrace:action=Q", record(|b| b.truncate(end)));
        assert!(
            error.starts_with("the trace ends in the middle of a record ") && error.contains(what),
            "{error}"
        );
    }
    let far = |sector: u64| move |b: &mut Vec<u8>| b[80..88].copy_from_slice(&sector.to_le_bytes());
    starts(
        refusal("blktrace", record(far(1 << 55))),
        "a sector beyond 2^63 bytes: t, record 2 at byte 64; ",
    );
    starts(
        refusal("blktrace", record(far(1 << 54))),
        "a record that ends beyond 2^63 bytes: t, record 1; ",
    );
    starts(
        refusal("blktrace:action=C", record(|_| ())),
        "'action=C' is not known: t; one of action=Q, D",
    );
    // Notes of the tracer only: nothing to choose an action by.
    let names = std::fs::read(fixture("blk/le.blktrace.0")).expect("there")[..64].to_vec();
    starts(
        refusal("blktrace", names),
        "neither queued (Q) nor issued (D) requests",
    );
    let many =
        (0..8193).map(|_| Input::of(Path::new("t"), Box::new(std::io::empty())).expect("memory"));
    starts(
        read("blktrace", many.collect()).error.expect("refused"),
        "over 8192 files: t; ",
    );
}

#[test]
fn golden_vscsi() {
    golden(
        "vscsi/v1.txt",
        &read_files("vscsi", &[fixture("vscsi/v1.vscsi")]),
    );
    golden(
        "vscsi/v2.txt",
        &read_files("vscsi", &[fixture("vscsi/v2.vscsi")]),
    );
    golden(
        "vscsi/v2-response.txt",
        &read_files("vscsi:response=us", &[fixture("vscsi/v2.vscsi")]),
    );
}

#[test]
fn vscsi_records_that_are_wrong_are_named() {
    let v1 = std::fs::read(fixture("vscsi/v1.vscsi")).expect("there");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        // Far enough from the head that its version is not looked at.
        let mut bytes: Vec<u8> = v1[..32].repeat(20);
        change(&mut bytes);
        refusal("vscsi", bytes)
    };
    let starts = |error: String, what: &str| assert!(error.starts_with(what), "{error}");
    starts(
        with(&|b| b[17 * 32 + 15] = 3),
        "a record of another version: t, record 18 at byte 544; ",
    );
    starts(
        with(&|b| b.truncate(600)),
        "the trace ends in the middle of a record (24 of 32 bytes): t, record 19 at",
    );
    starts(
        with(&|b| b[39 + 16] = 0x80),
        "a block beyond 2^63 bytes: t, record 2 at byte 32; ",
    );
    starts(
        with(&|b| b[38 + 16] = 0x40),
        "a record that ends beyond 2^63 bytes: t, record 2; ",
    );
    starts(with(&|b| b[63] = 0x80), "a time of over 500 years: ");
    starts(
        refusal("vscsi", vec![0; 320]),
        "no version of vscsi at its beginning: t; ",
    );
    assert_eq!(
        read_bytes("vscsi:version=1", &v1[..32])
            .clean()
            .records()
            .len(),
        1
    );
    // A record of an earlier time than 4096 others.
    let at = |us: u64| [&v1[..24], &us.to_le_bytes()].concat();
    let bytes: Vec<u8> = (0..4097).flat_map(|i| at(10 + i)).chain(at(9)).collect();
    starts(
        refusal("vscsi", bytes),
        "time goes backwards by over 4096 entries: t, record 4098 at byte 131104; ",
    );
}

fn shared(name: &str) -> Option<PathBuf> {
    let file = std::env::var_os("FOREREAD_TRACES")
        .map(|dir| Path::new(&dir).join(name))
        .filter(|path| path.exists());
    if file.is_none() {
        println!("skipped: needs FOREREAD_TRACES (a directory with {name})");
    }
    file
}

#[test]
fn the_cloudphysics_sample_has_its_known_figures() {
    let Some(path) = shared("cloudphysics/cloudPhysicsIO.vscsi.gz") else {
        return;
    };
    let read = read_files("vscsi", &[path]).clean();
    let reads = read.records().iter().filter(|r| r.op == Op::Read).count();
    assert_eq!((read.records().len(), reads), (113_872, 46_974));
}

/// blkparse's own text of a binary trace and our reading of the binary agree, and both with its summary.
fn beside_blkparse(folder: &Path, name: &str, files: &[PathBuf]) -> Option<Read> {
    let mut command = Command::new("blkparse");
    let Ok(output) = command.current_dir(folder).args(["-i", name]).output() else {
        println!("skipped: needs blkparse");
        return None;
    };
    for action in [":action=Q", ":action=D"] {
        let binary = read_files(&format!("blktrace{action}"), files).clean();
        let text = read_bytes(&format!("blkparse{action}"), output.stdout.clone()).clean();
        assert_eq!(
            shown(&text).replace("blkparse", "blktrace"),
            shown(&binary),
            "{action}"
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let key = if action.ends_with('Q') {
            "Reads Queued:"
        } else {
            "Read Dispatches:"
        };
        let figures = said
            .lines()
            .rev()
            .find_map(|line| line.split_once(key))
            .expect("a summary")
            .1;
        let requests: usize = figures
            .split(',')
            .next()
            .and_then(|n| n.trim().parse().ok())
            .expect("a number");
        assert_eq!(
            binary.records().iter().filter(|r| r.op == Op::Read).count(),
            requests,
            "{action}"
        );
    }
    Some(read_files("blktrace", files))
}

#[test]
fn the_real_blkparse_says_the_same() {
    let Some(path) = shared("blktrace/sample.blktrace.0.gz") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut plain = Vec::new();
    let packed = std::fs::File::open(path).expect("there");
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut plain)
        .expect("gzip");
    // Its records are of CPU 1, and blkparse wants the files of all CPUs up to that.
    let files = ["sample.blktrace.0", "sample.blktrace.1"].map(|name| folder.path().join(name));
    std::fs::write(&files[0], []).expect("writable");
    std::fs::write(&files[1], plain).expect("writable");
    let Some(read) = beside_blkparse(folder.path(), "sample", &files) else {
        return;
    };
    let records = read.records();
    assert_eq!(records.len(), 963);
    assert!(
        records
            .iter()
            .all(|r| r.len == 4096 && r.flags == Flags::AHEAD && r.end_ns.is_some())
    );
}

/// The same with several CPUs, whose files only together are in order.
#[test]
fn the_real_blkparse_merges_as_we_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = Vec::new();
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut cpus = vec![Vec::new(); 3];
    for i in 0..400_u64 {
        let (sector, write) = (draw(1 << 40) * 8, draw(4) == 0);
        for (at, action) in [(0, 1_u32), (draw(900), 7), (1000 + draw(5000), 8)] {
            let category = if write { 2 } else { 1 } | if action == 1 { 1 << 4 } else { 0 };
            cpus[draw(3) as usize].push((100_000 * (i + 1) + at, action | category << 16, sector));
        }
    }
    for (cpu, mut events) in cpus.into_iter().enumerate() {
        events.sort_unstable();
        let mut bytes = Vec::new();
        for (number, (at, action, sector)) in events.iter().enumerate() {
            let words = [0x6561_7407, number as u32 + 1]
                .map(u32::to_le_bytes)
                .concat();
            let times = [*at, *sector].map(u64::to_le_bytes).concat();
            let rest = [4096, *action, 77, 8 << 20, cpu as u32, 0]
                .map(u32::to_le_bytes)
                .concat();
            bytes.extend([words, times, rest].concat());
        }
        files.push(folder.path().join(format!("x.blktrace.{cpu}")));
        std::fs::write(&files[cpu], bytes).expect("writable");
    }
    let Some(read) = beside_blkparse(folder.path(), "x", &files) else {
        return;
    };
    let (items, records) = (read.items.len(), read.records().len());
    assert_eq!((items, records), (401, 400));
    assert!(matches!(&read.items[0], Item::File(file) if file.name == "8,0"));
    assert!(read.records().iter().all(|r: &&Record| r.end_ns.is_some()));
}

#[test]
fn the_fixture_says_what_it_is_about() {
    let text = String::from_utf8_lossy(TEXT);
    for what in [
        "RAM",
        "FWFS",
        "[my reader [x]]",
        "<- (253,0)",
        "[-5]",
        "CPU0 (sda):",
        "(12 00",
    ] {
        assert!(text.contains(what), "the fixture lost {what}");
    }
}
