//! fio's log against fio itself: what we write it replays whole, what it writes we read whole.

use super::traces::{read_files, write};
use foreread_trace::{FileInfo, Header, Item, Lacks, Op, Record};
use std::path::Path;
use std::process::Command;

const KIB: u64 = 1024;

/// Runs fio in `folder` and gives its JSON; nothing where there is no fio.
fn fio(folder: &Path, arguments: &[&str]) -> Option<serde_json::Value> {
    let mut command = Command::new("fio");
    command
        .current_dir(folder)
        .args(["--output-format=json", "--name=x", "--ioengine=psync"])
        .args(arguments);
    let Ok(output) = command.output() else {
        println!("skipped: needs fio");
        return None;
    };
    assert!(
        output.status.success(),
        "fio: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Warnings may stand before the object.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = &text[text.find('{').expect("an object")..];
    Some(serde_json::from_str(json).expect("JSON"))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("data"), vec![7; 1 << 20]).expect("a file");
    folder
}

#[test]
fn fio_replays_what_we_write() {
    let file = Item::File(FileInfo {
        name: "data".to_string(),
        size: None,
    });
    // The first gap is the one that a log from 0 on would lose: 0, 0.4, 0.8 s.
    let reads = (0..3).map(|i| Record {
        start_ns: Some(i * 400_000_000),
        ..Record::read(0, i * 64 * KIB, 4 * KIB + i)
    });
    let items: Vec<Item> = [file].into_iter().chain(reads.map(Item::Record)).collect();
    let header = Header {
        lacks: Lacks {
            ends: true,
            ..Lacks::default()
        },
        ..Header::default()
    };
    let untimed = Header {
        lacks: Lacks {
            starts: true,
            ..header.lacks
        },
        ..header.clone()
    };
    for (format, header, least_ms) in [
        ("fio", &header, 800),
        ("fio:version=2", &header, 800),
        ("fio", &untimed, 0),
    ] {
        let folder = folder();
        let (bytes, _) = write(format, header, &items).expect("written");
        std::fs::write(folder.path().join("log"), bytes).expect("writable");
        let began = std::time::Instant::now();
        let Some(result) = fio(folder.path(), &["--read_iolog=log", "--readonly"]) else {
            return;
        };
        let read = &result["jobs"][0]["read"];
        assert_eq!(read["total_ios"], 3, "{format}");
        assert_eq!(read["io_bytes"], 3 * 4 * KIB + 3, "{format}");
        // Version 2 counts from the start of fio, version 3 from that of the job.
        let whole = u64::try_from(began.elapsed().as_millis()).expect("short");
        let took = if format == "fio" {
            result["jobs"][0]["job_runtime"].as_u64().expect("ms")
        } else {
            whole
        };
        assert!(
            took >= least_ms,
            "{format}: replayed in {took} ms, the gaps are {least_ms} ms together"
        );
    }
}

#[test]
fn what_fio_writes_is_read() {
    let folder = folder();
    let run = [
        "--filename=data",
        "--rw=randrw",
        "--bs=4k-64k",
        "--size=1M",
        "--randseed=7",
        "--write_iolog=log",
    ];
    let Some(result) = fio(folder.path(), &run) else {
        return;
    };
    let read = read_files("fio", &[folder.path().join("log")]).clean();
    assert_eq!(
        read.files(),
        [&FileInfo {
            name: "data".to_string(),
            size: None
        }]
    );
    for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
        let ours = read
            .records()
            .into_iter()
            .filter(|r| r.op == op)
            .map(|r| r.len)
            .fold((0, 0), |a, l| (a.0 + 1, a.1 + l));
        let fios = &result["jobs"][0][name];
        assert!(ours.0 > 3);
        assert_eq!(
            (fios["total_ios"].as_u64(), fios["io_bytes"].as_u64()),
            (Some(ours.0), Some(ours.1)),
            "{name}"
        );
    }
    assert!(
        read.records()
            .iter()
            .all(|r| r.start_ns.is_some() && r.offset + r.len <= 1 << 20)
    );
}
