//! Tables, lists and rbd-replay: what is written is read again as it was, what is too large or too late is refused, and
//! the sums of public traces.
//!
//! The public traces are not in the tree: `FOREREAD_TRACES` names the folder that holds `lirs`, `disksim` and `hpc-ml`.

use super::traces::{Read, read_bytes, refusal, write};
use foreread_core::event::Advice;
use foreread_trace::input::MAX_LINE_BYTES;
use foreread_trace::order::MAX_RECORDS_DISORDER;
use foreread_trace::{After, FileInfo, Flags, Header, Item, Lacks, Op, Record, open};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

fn file(name: &str, size: Option<u64>) -> Item {
    Item::File(FileInfo {
        name: name.to_string(),
        size,
    })
}

/// Something of everything.
fn full() -> Vec<Item> {
    let with = |change: fn(&mut Record)| {
        let mut record = Record::read(0, 4096, 512);
        change(&mut record);
        Item::Record(record)
    };
    vec![
        file("a, \"quoted\"\nname", Some(1 << 40)),
        with(|r| (r.start_ns, r.end_ns, r.open, r.thread) = (Some(7), Some(9), 3, u32::MAX)),
        file("vm@snap", None),
        with(|r| (r.file, r.op, r.returned, r.start_ns) = (1, Op::Write, Some(0), Some(7))),
        with(|r| {
            (r.flags, r.op, r.start_ns) = (Flags::AHEAD.with(Flags::EXECUTABLE), Op::Fault, Some(8))
        }),
        with(|r| (r.offset, r.len, r.op) = (i64::MAX as u64, 0, Op::Hint(Advice::WillNeed))),
        with(|r| r.len = 1 << 40),
        with(|r| {
            let after = |record, end, delay_ns| After {
                record,
                end,
                delay_ns,
            };
            r.after = vec![after(0, true, 0), after(1, false, u64::MAX)];
        }),
    ]
}

fn again(
    format: &str,
    reading: &str,
    header: &Header,
    items: &[Item],
) -> (Read, Vec<(&'static str, u64)>) {
    let (bytes, left_out) = write(format, header, items).expect("written");
    (read_bytes(reading, bytes).clean(), left_out)
}

#[test]
fn csv_comes_back_as_it_was() {
    let (read, left_out) = again("csv", "csv", &Header::default(), &full());
    assert_eq!((read.items, left_out), (full(), vec![]));
    assert_eq!(read.header.lacks, Lacks::default());
    // What the trace lacks has no column, and is lacking again.
    let lacks = Lacks {
        starts: true,
        ends: true,
        opens: true,
        threads: true,
        lens: false,
        ops: true,
    };
    let items = vec![file("a", None), Item::Record(Record::read(0, 1, 2))];
    let (read, _) = again(
        "csv",
        "csv",
        &Header {
            lacks,
            ..Header::default()
        },
        &items,
    );
    assert_eq!((read.items, read.header.lacks), (items, lacks));
}

/// The numbers of a generator that a test can repeat.
fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// A DXT text of several ranks and files, as darshan-dxt-parser lays it out, with both modules and OST columns.
fn dxt(seed: u64) -> String {
    let mut draw = draws(seed);
    let mut text =
        "# darshan log version: 3.41\n# nprocs: 4\n\n# DXT_POSIX module data\n".to_string();
    for part in 0..60 {
        let (file, rank) = (draw(9), draw(4));
        let name = ["/scratch/a b", "/scratch/c:d", "/data/x"][file as usize % 3];
        writeln!(
            text,
            "\n# DXT, file_id: {}, file_name: {name}/{file}",
            1000 + file
        )
        .expect("memory");
        writeln!(
            text,
            "# DXT, rank: {rank}, hostname: node{rank}\n# DXT, mnt_pt: /, fs_type: lustre"
        )
        .expect("memory");
        for segment in 0..draw(80) {
            let module = if part % 7 == 3 { "X_MPIIO" } else { "X_POSIX" };
            let (op, offset, len) = (
                ["read", "read", "write"][draw(3) as usize],
                draw(1 << 40),
                draw(1 << 22),
            );
            let (start, took) = (draw(1_000_000), draw(900));
            let time = |t: u64| format!("{}.{:04}", t / 10_000, t % 10_000);
            let ost = if draw(2) == 0 {
                String::new()
            } else {
                format!("  [{:3}] [ 12]", draw(40))
            };
            let (start, end) = (time(start), time(start + took));
            writeln!(text, " {module} {rank:7} {op:>6} {segment:8} {offset:15} {len:12} {start:>11} {end:>11}{ost}")
                .expect("memory");
        }
    }
    text
}

/// What awk makes of the same text: a parser that shares no line with ours. Our times begin at the first request.
const BY_AWK: &str = r#"
/^# DXT, file_id:/ { name = $0; sub(/^.*file_name: /, "", name); next }
$1 == module { n[$3]++; bytes[$3] += $6; files[name]++; ranks[$2]++; if ($8 > last) last = $8
    if (first == "" || $7 < first) first = $7 }
END {
    for (f in files) nf++
    for (r in ranks) nr++
    printf "%d reads %.0f bytes, %d writes %.0f bytes, %d files, %d ranks, last %.4f\n",
        n["read"], bytes["read"], n["write"], bytes["write"], nf, nr, last - first
}"#;

/// Our import of a DXT text beside awk's counts of it.
#[test]
fn darshans_counts_are_those_of_awk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.dxt");
    for (seed, module, name) in [
        (1, "posix", "X_POSIX"),
        (2, "posix", "X_POSIX"),
        (2, "mpiio", "X_MPIIO"),
    ] {
        let text = dxt(seed);
        std::fs::write(&path, &text).expect("written");
        let counted = Command::new("awk")
            .args(["-v", &format!("module={name}"), BY_AWK])
            .arg(&path)
            .output();
        let counted = counted.expect("awk is part of every system");
        assert!(
            counted.status.success(),
            "{}",
            String::from_utf8_lossy(&counted.stderr)
        );
        let read = read_bytes(&format!("darshan:module={module}"), text.into_bytes()).clean();
        let (mut reads, mut writes, mut last) = ((0, 0), (0, 0), 0);
        let (mut files, mut ranks) = (BTreeSet::new(), BTreeSet::new());
        for item in &read.items {
            let Item::Record(record) = item else { continue };
            let sum = if record.op == Op::Write {
                &mut writes
            } else {
                &mut reads
            };
            *sum = (sum.0 + 1, sum.1 + record.len);
            files.insert(record.file);
            ranks.insert(record.thread);
            last = last.max(record.end_ns.expect("DXT has ends"));
        }
        let ours = format!(
            "{} reads {} bytes, {} writes {} bytes, {} files, {} ranks, last {:.4}\n",
            reads.0,
            reads.1,
            writes.0,
            writes.1,
            files.len(),
            ranks.len(),
            last as f64 / 1e9
        );
        assert_eq!(
            ours,
            String::from_utf8_lossy(&counted.stdout),
            "seed {seed}, {module}"
        );
        assert!(reads.0 > 50 && writes.0 > 20, "{ours}");
    }
}

#[test]
fn files_of_one_name_become_one_and_it_is_said() {
    let items = vec![
        file("a", None),
        file("a", None),
        Item::Record(Record::read(1, 1, 2)),
    ];
    let (_, left_out) = again("csv", "csv", &Header::default(), &items);
    assert_eq!(
        left_out,
        [("files that became one with another of their name", 1)]
    );
}

#[test]
fn spc_keeps_places_and_times() {
    let mut items = vec![file("ASU 0", None)];
    let record = |offset, len, start| {
        Item::Record(Record {
            start_ns: Some(start),
            ..Record::read(0, offset, len)
        })
    };
    items.extend([record(512, 7, 0), record(0, 5 << 30, 1_000_000_001)]);
    let (read, left_out) = again("spc", "spc", &Header::default(), &items);
    assert_eq!(
        (read.items, left_out),
        (items.clone(), vec![("names of files", 1)])
    );
    items.push(record(513, 511, 1_000_000_001));
    let (read, left_out) = again("spc", "spc", &Header::default(), &items);
    assert_eq!(
        (read.records()[2].offset, read.records()[2].len),
        (512, 512)
    );
    assert_eq!(
        left_out[1],
        (
            "reads and writes that now begin at the start of their block",
            1
        )
    );
    items.push(Item::Record(Record::read(0, 0, 1)));
    let error = write("spc", &Header::default(), &items).expect_err("no time");
    assert_eq!(
        error,
        "spc needs times, and this has none: out, record 4; write it as csv or in the own format"
    );
}

/// A trace with dependencies keeps them; one with times waits for its first record; one with neither goes one by one.
#[test]
fn rbd_replay_says_what_waits_for_what() {
    let after = |record, end, delay_ns| After {
        record,
        end,
        delay_ns,
    };
    let of = |reading: &str, items: &[Item]| {
        let (read, left_out) = again("rbd-replay", reading, &Header::default(), items);
        let after: Vec<Vec<After>> = read.records().iter().map(|r| r.after.clone()).collect();
        (read, after, left_out)
    };
    let mut second = Record {
        thread: 1,
        op: Op::Write,
        ..Record::read(1, 1 << 40, 8 << 30)
    };
    second.after = vec![after(0, false, 500)];
    let mut third = Record {
        open: 1,
        ..Record::read(1, 0, 0)
    };
    third.after = vec![after(0, true, 3), after(1, true, u64::MAX)];
    let records = [Record::read(0, 512, 512), second, third];
    let mut items = vec![file("vm", None), file("vm@base", None)];
    items.extend(records.iter().cloned().map(Item::Record));
    let (read, afters, _) = of("rbd-replay:aio-deps=submit", &items);
    assert_eq!(
        afters,
        [
            vec![],
            vec![after(0, false, 500)],
            vec![after(0, true, 3), after(1, true, u64::MAX)]
        ]
    );
    assert_eq!(
        read.files(),
        [
            &FileInfo {
                name: "vm".into(),
                size: None
            },
            &FileInfo {
                name: "vm@base".into(),
                size: None
            }
        ]
    );
    for (got, was) in read.records().into_iter().zip(&records) {
        assert_eq!(
            (got.op, got.file, got.offset, got.len),
            (was.op, was.file, was.offset, was.len)
        );
    }
    // Reading and writing it again changes nothing.
    let (once, _) = write("rbd-replay", &read.header, &read.items).expect("written");
    let again = read_bytes("rbd-replay:aio-deps=submit", once.clone()).clean();
    assert_eq!(
        (
            &again.items,
            write("rbd-replay", &again.header, &again.items)
                .expect("written")
                .0
        ),
        (&read.items, once)
    );

    let timed = |start| {
        Item::Record(Record {
            start_ns: Some(start),
            ..Record::read(0, 0, 1)
        })
    };
    let (_, afters, _) = of(
        "rbd-replay:aio-deps=submit",
        &[file("a", None), timed(100), timed(350), timed(900)],
    );
    let one_by_one = |record| after(record, false, 0);
    assert_eq!(
        afters,
        [
            vec![],
            vec![after(0, false, 250)],
            vec![after(0, false, 800), one_by_one(1)]
        ]
    );

    let untimed = Item::Record(Record::read(0, 0, 1));
    let (_, afters, _) = of(
        "rbd-replay",
        &[file("a", None), untimed.clone(), untimed.clone()],
    );
    assert_eq!(afters, [vec![], vec![after(0, true, 0)]]);

    let hint = Item::Record(Record {
        op: Op::Hint(Advice::Random),
        ..Record::read(0, 0, 0)
    });
    let mut waits = Record::read(0, 0, 1);
    waits.after = vec![after(0, true, 0), after(1, true, 0)];
    let (read, afters, left_out) = of(
        "rbd-replay",
        &[file("a", None), hint, untimed, Item::Record(waits)],
    );
    assert_eq!(
        (read.records().len(), &afters[1]),
        (2, &vec![after(0, true, 0)])
    );
    assert_eq!(left_out, [("dependencies on hints", 1), ("hints", 1)]);
}

#[test]
fn an_overlong_line_is_named() {
    let formats = [
        "msr",
        "alibaba",
        "tencent",
        "systor",
        "spc",
        "arc",
        "lirs",
        "csv",
        "disksim:dialect=mqsim",
    ];
    for format in formats {
        let error = refusal(format, vec![b'1'; MAX_LINE_BYTES + 1]);
        assert!(
            error.starts_with("a line of over 64 KiB: t, line 1; "),
            "{format}: {error}"
        );
    }
    let quoted = format!(
        "offset,length,file\n0,1,\"{}\n{}\"\n",
        "x".repeat(40 << 10),
        "y".repeat(40 << 10)
    );
    assert!(refusal("csv", quoted).starts_with("a row of over 64 KiB: t, line 3; "));
}

/// A second is too late by more than the window allows, a whole window is not.
#[test]
fn time_goes_backwards_by_the_window_and_no_more() {
    for (ahead, refused) in [
        (MAX_RECORDS_DISORDER, false),
        (MAX_RECORDS_DISORDER + 1, true),
    ] {
        let mut text = String::new();
        for i in 0..ahead {
            writeln!(text, "0,8,512,r,{}.5", i + 1).expect("memory");
        }
        text += "0,0,512,r,0.25\n";
        let read = read_bytes("spc", text);
        let want = "time goes backwards by more than 65536 records: t, record 65538; sort the trace by time";
        assert_eq!(read.error.as_deref(), refused.then_some(want));
        if !refused {
            assert_eq!(read.records()[0].offset, 0);
            assert_eq!(read.records()[1].start_ns, Some(1_250_000_000));
        }
    }
}

#[test]
fn what_could_be_several_formats_is_in_no_list_of_sure_ones() {
    let detected = |text: &str| {
        let path = PathBuf::from("t");
        foreread_trace::catalog::detect(text.as_bytes(), &path)
            .map(|f| f.name)
            .map_err(|e| e.to_string())
    };
    for unsure in [
        "1,2,3,0,5\n",
        "1,R,3,4,5\n",
        "1,2,3,r,4\n",
        "1 2 3 4 1\n",
        "17\n",
        "1 8 0 1\n",
        "timestamp,offset,len\n",
    ] {
        let error = detected(unsure).expect_err("a guess");
        assert!(error.starts_with("it could be "), "{unsure}: {error}");
    }
    let sure = [
        ("128166372003061629,hm,0,Read,7014912,4096,26\n", "msr"),
        ("0,R,126703661056,4096,1577808000000046\n", "alibaba"),
        ("Timestamp,Response,IOType,LUN,Offset,Size\n", "systor"),
        ("0,303567,3584,w,0.000000\n", "spc"),
        ("0 64 0 1\n64 64 0 2\n128 64 0 3\n", "arc"),
        ("17\n*\n", "lirs"),
        ("R Hit 1 2 3.0 4.0\n", "disksim"),
        ("ts_us,file,offset,length\n", "csv"),
    ];
    for (text, name) in sure {
        assert_eq!(detected(text).as_deref(), Ok(name), "{text}");
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    records: u64,
    files: u64,
    bytes: u64,
    offsets: u64,
    last_start_ns: u64,
    took_ns: u64,
}

fn sums(path: PathBuf, format: Option<&str>) -> Sums {
    let import = open(&[path], format).unwrap_or_else(|error| panic!("{error}"));
    let mut sums = Sums::default();
    for item in import.items {
        match item.unwrap_or_else(|error| panic!("{error}")) {
            Item::File(_) => sums.files += 1,
            Item::Record(r) => {
                sums.records += 1;
                sums.bytes += r.len;
                sums.offsets = sums.offsets.wrapping_add(r.offset);
                sums.last_start_ns = r.start_ns.unwrap_or(0);
                sums.took_ns += r
                    .end_ns
                    .zip(r.start_ns)
                    .map_or(0, |(end, start)| end - start);
            }
        }
    }
    sums
}

/// The sums were taken from the files by other programs (awk), in the units of the files.
#[test]
fn public_traces_have_their_sums() {
    let Some(dir) = std::env::var_os("FOREREAD_TRACES").map(PathBuf::from) else {
        println!("skipped: needs FOREREAD_TRACES (a folder with lirs, disksim and hpc-ml)");
        return;
    };
    let of = |name: &str, format| sums(dir.join(name), format);
    for (name, records, offsets) in [
        ("2_pools", 100_000, 1_037_946_593_280),
        ("cs", 6_781, 19_274_174_464),
        ("gli", 6_015, 21_107_200_000),
        ("loop", 505_500, 1_045_616_640_000),
        ("multi1", 15_858, 43_301_425_152),
        ("sprite", 133_996, 927_677_448_192),
        ("zigzag", 52_001, 212_992_000_000),
    ] {
        let want = Sums {
            records,
            files: 1,
            bytes: records * 4096,
            offsets,
            ..Sums::default()
        };
        assert_eq!(
            of(&format!("lirs/{name}.trace.gz"), Some("lirs")),
            want,
            "{name}"
        );
    }
    // Bytes, offsets, start of the last request, what requests took: nanoseconds, of microseconds with decimals.
    for (name, records, bytes, offsets, last_start_ns, took_ns) in [
        (
            "atlas10k",
            10_000,
            32_282_624,
            46_089_474_992_128,
            461_841_675_000,
            38_930_600_000,
        ),
        (
            "barracuda",
            10_000,
            32_423_936,
            10_516_131_528_704,
            434_306_792_000,
            66_274_014_000,
        ),
        (
            "cheetah9LP",
            10_000,
            32_356_352,
            45_546_723_074_048,
            454_880_275_000,
            42_728_946_000,
        ),
        (
            "hp_c2247a",
            9_999,
            84_466_688,
            5_260_300_824_064,
            141_889_200_920,
            152_966_946_940,
        ),
        (
            "ibm18es",
            10_000,
            31_909_888,
            45_437_730_443_264,
            443_552_210_000,
            52_605_174_000_u64,
        ),
    ] {
        let want = Sums {
            records,
            files: 1,
            bytes,
            offsets,
            last_start_ns,
            took_ns,
        };
        assert_eq!(
            of(&format!("disksim/{name}.trace.gz"), None),
            want,
            "{name}"
        );
    }
    for (name, records, files, bytes, offsets, last_start_ns, took_ns) in [
        (
            "dlio_hdf5_preads",
            7_200,
            160,
            117_265_568_800,
            3_878_400,
            52_985_941_000,
            126_564_016_000,
        ),
        (
            "unet3d_npz_reads",
            5_734,
            99,
            21_455_286_649,
            494_638_690_248,
            91_615_767_000,
            116_177_042_000,
        ),
    ] {
        let want = Sums {
            records,
            files,
            bytes,
            offsets,
            last_start_ns,
            took_ns,
        };
        assert_eq!(of(&format!("hpc-ml/{name}.csv.gz"), None), want, "{name}");
    }
}
