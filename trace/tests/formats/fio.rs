//! fio's log: what is refused, that what is written is read again as it was, and fio itself beside us.

use super::traces::{each_refused, read_bytes, refused, write};
use foreread_core::event::Advice;
use foreread_trace::{After, FileInfo, Flags, Header, Item, Op, Record};
use std::path::Path;
use std::process::Command;

/// The last one is as fio 3.33 writes it with numjobs=2, or with one write_iolog for two jobs.
const ERRORS: &str = "\
2 my file read 0 4096 | a line with too many or too few fields: t, line 3; fio does not allow spaces
2 my file open | an offset or a length is not a number: t, line 3; fio does not allow spaces
2 a read 4096 | an offset or a length is not a number: t, line 3; fio does not allow spaces
2 a read -1 4096 | an offset or a length is not a number: t, line 3; fio does not allow spaces
2 a | a line with too many or too few fields: t, line 3; fio does not allow spaces
a read 0 4096 | no time in microseconds at the start of the line: t, line 3;
2 b read 0 4096 | a file that was not added before: t, line 3;
2 b open | a file that was not added before: t, line 3;
2 a erase 0 4096 | an action unknown to fio: t, line 3;
2 a read 0 4294967296 | a length of more than 32 bits: t, line 3;
2 a wait 5 0 | a wait in a log that has times: t, line 3;
fio version 3 iolog | a second log in the file: fio wrote the logs of several jobs to it: t, line 3; give each job its own write_iolog";

#[test]
fn errors_name_their_line() {
    let number = "an offset or a length is not a number: t, line 3; fio does not allow spaces";
    let name = "x".repeat(256);
    let long = format!("2 {name} add | a file name longer than 255 bytes: t, line 3; ");
    for table in [ERRORS, &long] {
        let log = |rest: &str| format!("fio version 3 iolog\n1 a add\n{rest}\n");
        each_refused("fio", table, log);
    }
    let first = "no first line 'fio version 3 iolog': t, line 1; ";
    refused("fio", "fio version 4 iolog\n", first);
    refused("fio", "", first);
    let v2 = |rest: &str| format!("fio version 2 iolog\na add\n{rest}");
    refused("fio", v2("my file open\n"), number);
    let wait = v2("a wait 18446744073709551615 0");
    refused("fio", wait, "a wait of more than 500 years: t, line 3; ");
    // A wait that was unknown when the header was made.
    let late = "a read 0 4096\n".repeat(6000) + "a wait 5 0\n";
    let wait = "the first wait comes too late in the log: t, line 6003; ";
    refused("fio", v2(&late), wait);
    let unknown = "unknown key 'speed' of the format fio: t; fio has no keys";
    refused("fio:speed=2", v2(""), unknown);
}

fn file(name: &str) -> Item {
    Item::File(FileInfo::new(name, None))
}

fn trace() -> (Header, Vec<Item>) {
    let read = |file, offset, len, us: u64| Record::read(file, offset, len).at(us * 1000);
    let write = read(1, 0, 512, 2_500_000).op(Op::Write);
    let records = [
        read(0, 0, 4096, 0),
        read(0, 4096, 4096, 1_000_000),
        read(1, 1 << 40, u64::from(u32::MAX), 2_000_000),
    ];
    let mut items = vec![file("a"), file("8,16")];
    items.extend(records.into_iter().map(Item::Record));
    let last = Item::Record(read(2, 9, 9, 3_000_000));
    items.extend([Item::Record(write), file("c"), last]);
    let mut header = Header::default();
    (header.lacks.ends, header.lacks.threads) = (true, true);
    (header, items)
}

/// All but the times: those of a log that would begin at 0 are 1 us later.
#[test]
fn written_values_are_read_again() {
    let (header, items) = trace();
    let (bytes, left_out) = write("fio", &header, &items).expect("written");
    assert_eq!(left_out, []);
    let text = String::from_utf8(bytes.clone()).expect("text");
    let begin =
        "fio version 3 iolog\n1 a add\n1 a open\n1 8,16 add\n1 8,16 open\n1 a read 0 4096\n";
    let end = "3000001 c read 9 9\n3000001 a close\n3000001 8,16 close\n3000001 c close\n";
    assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
    let again = read_bytes("fio", bytes).clean();
    let later = |us: u64, open: bool| {
        let change = |item: &Item| match item {
            Item::Record(r) => Item::Record(Record {
                start_ns: r.start_ns.map(|ns| ns + us * 1000),
                // Added is open number 0, opened is the next.
                open: if open { 2 * r.file + 1 } else { r.open },
                ..r.clone()
            }),
            other => other.clone(),
        };
        items.iter().map(change).collect::<Vec<_>>()
    };
    assert_eq!(again.items, later(1, true));
    // From 1 us on nothing moves.
    let (bytes, _) = write("fio", &header, &later(7, false)).expect("written");
    assert_eq!(read_bytes("fio", bytes).clean().items, later(7, true));
}

#[test]
fn a_trace_without_times_is_a_version_2() {
    let (header, mut items) = trace();
    let mut untimed = header.clone();
    untimed.lacks.starts = true;
    for item in &mut items {
        if let Item::Record(r) = item {
            r.start_ns = None;
        }
    }
    let (bytes, _) = write("fio", &untimed, &items).expect("written");
    assert!(bytes.starts_with(b"fio version 2 iolog\n") && !bytes.windows(4).any(|w| w == b"wait"));
    let read = read_bytes("fio", bytes).clean();
    assert!(read.records().iter().all(|r| r.start_ns.is_none()));
    let error = write("fio", &header, &items).expect_err("refused");
    let what = "a record without a time: out, record 1; ";
    assert!(error.starts_with(what), "{error}");
}

#[test]
fn records_beyond_fio_are_refused_or_counted() {
    let (header, mut items) = trace();
    for name in ["", "a b", "a\tb", "a\u{a0}b", &"x".repeat(256)] {
        let error = write("fio", &header, &[file(name)]).expect_err("refused");
        let what = "a file name that fio cannot read";
        assert!(error.starts_with(what), "{error}");
    }
    let large = Item::Record(Record::read(0, 0, 1 << 32).at(0));
    let error = write("fio", &header, &[items[0].clone(), large]).expect_err("refused");
    let what = "a request of 4 GiB or more: out, record 1; ";
    assert!(error.starts_with(what), "{error}");
    let last = Record::read(0, 0, 10).at(4_000_000_000);
    items.push(items[0].clone());
    let after = vec![After::new(0, true, 0)];
    let mut more: [Record; 5] = std::array::from_fn(|_| last.clone());
    more[0].op = Op::Hint(Advice::Random);
    more[1].op = Op::Fault;
    more[2].len = 0;
    more[3] = Record {
        returned: Some(9),
        end_ns: Some(4_000_000_001),
        flags: Flags::DIRECT,
        after,
        file: 3,
        ..last
    };
    (more[4].start_ns, more[4].returned) = (Some(4_000_000_001), Some(10));
    items.extend(more.map(Item::Record));
    let (bytes, left_out) = write("fio", &header, &items).expect("written");
    let expected = [
        "dependencies",
        "empty requests",
        "files with the same name as another file",
        "flags",
        "hints",
        "lengths that were returned",
        "page faults",
        "parts of a microsecond",
        "times of completion",
    ];
    assert_eq!(left_out, expected.map(|what| (what, 1)));
    assert_eq!(read_bytes("fio", bytes).clean().records().len(), 7);
}

/// Runs fio in `folder` and gives what it says of its job; nothing where there is no fio.
fn fio(folder: &Path, arguments: &[&str]) -> Option<serde_json::Value> {
    std::fs::write(folder.join("data"), vec![7; 1 << 20]).expect("a file");
    let mut command = Command::new("fio");
    command
        .current_dir(folder)
        .args(["--output-format=json", "--name=x", "--ioengine=psync"])
        .args(arguments);
    let Ok(output) = command.output() else {
        println!("skipped: needs fio");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fio: {said}");
    // Warnings may stand before the object.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map(|at| &text[at..]).expect("an object");
    let mut json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    Some(json["jobs"][0].take())
}

#[test]
fn fio_replays_written_logs() {
    // The first gap is the one that a log from 0 on would lose: 0, 0.4, 0.8 s.
    let reads = (0..3).map(|i| Record::read(0, i << 16, 4096 + i).at(i * 400_000_000));
    let reads = reads.map(Item::Record);
    let items: Vec<Item> = [file("data")].into_iter().chain(reads).collect();
    let (header, _) = trace();
    for (untimed, least_ms) in [(false, 800), (true, 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut header = header.clone();
        header.lacks.starts = untimed;
        let (bytes, _) = write("fio", &header, &items).expect("written");
        std::fs::write(folder.path().join("log"), bytes).expect("writable");
        let Some(job) = fio(folder.path(), &["--read_iolog=log", "--readonly"]) else {
            return;
        };
        let (count, bytes) = (&job["read"]["total_ios"], &job["read"]["io_bytes"]);
        assert_eq!((count, bytes), (&3.into(), &(3 * 4096 + 3).into()));
        let took = job["job_runtime"].as_u64().expect("ms");
        assert!(took >= least_ms, "{took} ms, the gaps are {least_ms} ms");
    }
}

#[test]
fn logs_of_fio_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = "--filename=data --rw=randrw --bs=4k-64k --size=1M --randseed=7 --write_iolog=log";
    let run: Vec<&str> = run.split(' ').collect();
    let Some(job) = fio(folder.path(), &run) else {
        return;
    };
    let log = std::fs::read(folder.path().join("log")).expect("a log");
    let read = read_bytes("fio", log).clean();
    assert_eq!(read.items[0], file("data"));
    for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
        let records = read.records().into_iter().filter(|r| r.op == op);
        let ours = records.fold((0, 0), |sum, r| (sum.0 + 1, sum.1 + r.len));
        let (count, bytes) = (&job[name]["total_ios"], &job[name]["io_bytes"]);
        let theirs = (count.as_u64(), bytes.as_u64());
        assert_eq!(theirs, (Some(ours.0), Some(ours.1)), "{name}");
        assert!(ours.0 > 3);
    }
    assert!(read.records().iter().all(|r| r.start_ns.is_some()));
}
