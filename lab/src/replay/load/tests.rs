//! What is taken of a trace, what is refused, and what is counted.

use super::*;
use foreread_core::event::Advice;
use foreread_testing::says;
use foreread_trace::{FileInfo, Lacks, LeftOut};

fn named(name: &str, bytes: u64) -> Item {
    Item::File(FileInfo::new(name, Some(bytes)))
}

/// The trace of a program, or why it is refused.
fn of_program(items: Vec<Item>, part: &Part) -> Result<LoadedTrace, String> {
    let loaded = load("t", import(items, Level::Program), part);
    loaded.map_err(|error| error.to_string())
}

fn import(items: Vec<Item>, level: Level) -> Import {
    let header = Header {
        level,
        ..Header::default()
    };
    Import {
        header,
        items: Box::new(items.into_iter().map(Ok)),
        left_out: LeftOut::default(),
    }
}

fn file(size: Option<u64>) -> Item {
    Item::File(FileInfo::new("f", size))
}

fn loaded(items: Vec<Item>) -> LoadedTrace {
    of_program(items, &Part::default()).expect("readable")
}

fn first(limit: u64) -> Part {
    Part {
        limit: Some(limit),
        ..Part::default()
    }
}

#[test]
fn records_without_demand_are_left_out_and_counted() {
    let read = |offset, len| Record::read(0, offset, len);
    let ahead = read(0, 4096).flags(Flags::AHEAD);
    let write = read(0, 500_000).op(Op::Write);
    let records = [
        read(0, 10),
        ahead,
        write,
        read(90_000, 20_000),
        read(100_000, 1),
        read(5, 0),
    ];
    let items = || records.iter().cloned().map(Item::Record);
    let all = loaded([file(Some(100_000))].into_iter().chain(items()).collect());
    let counts = Counts {
        writes: 1,
        ahead: 1,
        empty: 2,
        clipped: 1,
        ..Counts::default()
    };
    assert_eq!((all.counts, all.files.as_slice()), (counts, &[100_000][..]));
    let ranges = all.records.iter().map(|r| (r.offset, r.len));
    assert_eq!(Vec::from_iter(ranges), [(0, 10), (90_000, 10_000)]);
    // Without a recorded size the file ends where the last record does, a write among them.
    let all = loaded([file(None)].into_iter().chain(items()).collect());
    let counts = (all.counts.unsized_files, all.counts.clipped);
    assert_eq!((all.files[0], counts), (500_000, (1, 0)));
    // The returned length shows the end.
    let short = Record {
        returned: Some(40),
        ..read(100, 4096)
    };
    let all = loaded(vec![file(None), Item::Record(short)]);
    assert_eq!((all.files[0], all.records[0].len), (140, 40));
}

/// What a file system reads of its block device is neither demand nor readahead of the program's files, and is missed by no count.
#[test]
fn the_file_systems_own_data_is_passed_over() {
    let timed = |file, at_ns, flags| {
        let read = Record::read(file, 4096 * at_ns, 4096);
        Item::Record(read.flags(flags).between(at_ns, at_ns + 5))
    };
    let metadata = Flags::AHEAD.with(Flags::METADATA);
    let (none, ahead) = (Flags::default(), Flags::AHEAD);
    let items = || {
        let records = [
            timed(0, 1, metadata),
            timed(1, 10, none),
            timed(0, 20, metadata),
            timed(1, 21, ahead),
        ];
        let files = ["/dev/loop7", "a"].map(|name| named(name, 1 << 20));
        Vec::from_iter(files.into_iter().chain(records))
    };
    let all = loaded(items());
    assert_eq!(all.names, ["a"]);
    assert_eq!((all.records.len(), all.first_ns), (1, 10));
    let counts = Counts {
        ahead: 1,
        ..Counts::default()
    };
    assert_eq!(all.counts, counts);
    // Where one file is asked for, reads of the others are counted, and these are none.
    let part = Part {
        only: Some("a".to_string()),
        ..Part::default()
    };
    let one = of_program(items(), &part).expect("a read");
    assert_eq!(one.counts.elsewhere, 0);
    // A program that reads the device itself does so through the same file.
    let own = loaded(items().into_iter().chain([timed(0, 30, none)]).collect());
    assert_eq!((own.names.len(), own.records.len()), (2, 2));
}

#[test]
fn hints_are_clipped_to_the_file() {
    let hint = |offset, len| {
        let op = Op::Hint(Advice::WillNeed);
        Item::Record(Record::read(0, offset, len).op(op))
    };
    let read = Item::Record(Record::read(0, 0, 1000));
    let hints = [hint(100, 0), hint(900, 500), hint(5000, 0)];
    let all = loaded([file(None), read].into_iter().chain(hints).collect());
    let hints = all.records[1..].iter().map(|r| (r.offset, r.len));
    assert_eq!(Vec::from_iter(hints), [(100, 900), (900, 100), (1000, 0)]);
    assert_eq!(all.files[0], 1000);
}

#[test]
fn files_without_reads_take_no_room() {
    let write = Record::read(0, 0, 1 << 40).op(Op::Write);
    let records = [write, Record::read(1, 0, 7)].map(Item::Record);
    let files = [file(None), file(Some(77))].into_iter();
    let all = loaded(files.chain(records).collect());
    assert_eq!((all.files, all.opens), (vec![77], vec![0, 0]));
}

#[test]
fn one_file_of_several_can_be_selected() {
    let reads = [0, 1, 1].map(|file| Item::Record(Record::read(file, 0, 7)));
    let of = |only: &str| {
        let part = Part {
            only: Some(only.to_string()),
            ..Part::default()
        };
        let files = ["/lib/libc.so", "/data/a"].map(|name| named(name, 4096));
        of_program(files.into_iter().chain(reads.clone()).collect(), &part)
    };
    let all = of("data").expect("two reads");
    let counts = (all.files.len(), all.records.len(), all.counts.elsewhere);
    assert_eq!(counts, (1, 2, 1));
    let error = of("Data").expect_err("none");
    says(&error, &["give --only a part of a file name"]);
}

/// One number of an open description for two files is two descriptions.
#[test]
fn an_open_description_is_of_one_file() {
    let read = |file| {
        Item::Record(Record {
            open: 3,
            ..Record::read(file, 0, 7)
        })
    };
    let all = loaded(vec![file(None), file(None), read(0), read(1), read(0)]);
    assert_eq!(all.opens, [0, 1]);
    let opens = all.records.iter().map(|r| r.open);
    assert_eq!(Vec::from_iter(opens), [0, 1, 0]);
}

#[test]
fn a_trace_has_a_limit_and_the_remedy_says_how_to_cut() {
    let items = |n: u64| {
        let reads = (0..n).map(|i| Item::Record(Record::read(0, i, 1)));
        [file(None)].into_iter().chain(reads).collect()
    };
    let of = |n, limit| load_at_most(10, "t", import(items(n), Level::Program), &limit);
    let all = of(10, Part::default()).expect("at the limit");
    assert_eq!(all.records.len(), 10);
    let error = of(11, Part::default()).expect_err("over it");
    let why = "more than 10 records: t; replay its first part with --records 1000000";
    assert_eq!(error.to_string(), why);
    let cut = of(11, first(7)).expect("cut");
    assert_eq!((cut.records.len(), cut.counts.cut), (7, true));
    assert!(!of(7, first(7)).expect("just as many").counts.cut);
}

#[test]
fn a_trace_without_reads_and_one_of_years_are_refused() {
    let error = |items| of_program(items, &Part::default()).expect_err("refused");
    let write = Item::Record(Record::read(0, 0, 5).op(Op::Write));
    let ahead = Item::Record(Record::read(0, 0, 5).flags(Flags::AHEAD));
    let items = vec![file(None), write, ahead];
    let why = "no read can be replayed (1 writes, 1 readahead reads, 0 empty reads): t; name a trace with demand reads";
    assert_eq!(error(items.clone()), why);
    let cut = of_program(items, &first(1)).expect_err("refused");
    says(
        &cut,
        &["; replay more of the trace with a larger --records"],
    );
    assert!(error(Vec::new()).starts_with("nothing was read: t; name a"));
    let mut sampled = import(Vec::new(), Level::Program);
    sampled.header.sampled_ns = Some(1);
    let cached = load_at_most(1, "t", sampled, &Part::default()).expect_err("refused");
    assert!(
        cached
            .to_string()
            .starts_with("no read waited: t; the files were in the page cache")
    );
    let at = |ns| Item::Record(Record::read(0, 0, 5).at(ns));
    let span = super::super::MAX_SPAN_NS;
    assert!(error(vec![file(None), at(5), at(span + 6)]).starts_with("more than 400 days"));
    let all = loaded(vec![file(None), at(5), at(span + 5)]);
    let times = (all.first_ns, all.has_starts, all.has_ends);
    assert_eq!(times, (5, true, false));
}

#[test]
fn the_page_is_a_sector_where_requests_are_of_sectors() {
    let page = |level, offset, len| {
        let items = vec![file(None), Item::Record(Record::read(0, offset, len))];
        let loaded = load("t", import(items, level), &Part::default());
        loaded.expect("readable").page_bytes()
    };
    assert_eq!(page(Level::BelowCache, 512, 1024), 512);
    assert_eq!(page(Level::Unknown, 512, 4096), 512);
    assert_eq!(page(Level::BelowCache, 4096, 8192), 4096);
    assert_eq!(page(Level::Unknown, 3, 512), 4096);
    assert_eq!(page(Level::Program, 512, 1024), 4096);
    assert!(!Lacks::default().threads);
}
