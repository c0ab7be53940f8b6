//! Tests of plans as text: a written plan is read back unchanged, and a damaged one is refused.

use foreread_plan::text::{looks_like_one, read, write};
use foreread_plan::{Plan, PlanFile, PlanRange};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn sample() -> Plan {
    let file = |path: &[u8], size, mtime_ns| PlanFile {
        path: OsStr::from_bytes(path).into(),
        size,
        mtime_ns,
    };
    Plan {
        made_from: vec!["boot 1.frt".into(), "line\nbreak 50%".into()],
        runs: 2,
        files: vec![
            file(b"/usr/lib/a.so", 1 << 20, Some(-5)),
            file(b"odd \n\xff%41 name", 8192, None),
        ],
        ranges: vec![
            PlanRange {
                at_ns: Some(1_000_000),
                stall_ns: 800_000,
                runs: 2,
                ..PlanRange::of(0, &(0..65536))
            },
            PlanRange {
                at_ns: Some(2),
                after: Some(0),
                gap_ns: Some(0),
                ..PlanRange::of(1, &(1..8192))
            },
            PlanRange::of(1, &(0..1)),
        ],
    }
}

fn text(plan: &Plan) -> String {
    let mut bytes = Vec::new();
    write(plan, &mut bytes).expect("written");
    String::from_utf8(bytes).expect("text")
}

fn error(text: &str) -> String {
    read(&mut text.as_bytes(), Path::new("p.plan"))
        .expect_err("refused")
        .to_string()
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let (plan, written) = (sample(), text(&sample()));
    let begin = "foreread-plan 1\nfrom: boot 1.frt\nfrom: line%0Abreak 50%25\nruns: 2\nfiles: 2\n";
    assert!(written.starts_with(begin), "{written}");
    let middle = "\nf 8192 - odd %0A%FF%2541 name\nr 0 0 65536 1000000 - - 2 800000\n";
    assert!(written.contains(middle), "{written}");
    let back = |text: &str| read(&mut text.as_bytes(), Path::new("p")).expect("read");
    assert_eq!(back(&written), plan);
    assert_eq!(plan.bytes(), 65536 + 8191 + 1);
    // Keys of later builds are passed over.
    let more = written.replace("runs: 2\n", "runs: 2\nfrom-a-later-build: yes\n");
    assert_eq!(back(&more), plan);
    assert!(looks_like_one(written.as_bytes()) && looks_like_one(b"foreread-plan 7"));
    assert!(!looks_like_one(b"foreread-planning"));
}

#[test]
fn every_cut_is_an_error() {
    let whole = text(&sample());
    for len in 0..whole.len() {
        let cut = error(&whole[..len]);
        assert!(cut.contains("p.plan") && cut.contains("; "), "{len}: {cut}");
    }
    assert!(error(&whole[..whole.len() - 4]).contains("truncated: p.plan, line 12"));
}

#[test]
fn damaged_plans_are_refused_with_their_line() {
    let whole = text(&sample());
    let long = "a".repeat(40_970);
    let no_file = "does not describe a file of a plan";
    let table = [
        " 1 |  2 | this plan has version 2, and this build reads version 1",
        " 1 |  18446744073709551617 | has version 18446744073709551617,",
        "foreread-plan 1 | #!/bin/sh | this is not a plan",
        "files: 2 | files: 99999999999 | or too many",
        "files: 2 | files: 3 | this line does not describe a file of a plan",
        "ranges: 3 | ranges: 2 | more lines than its header announces",
        "ranges: 3 | ranges: 4 | this line does not describe a range of a plan",
        "ranges: 3 | ranges: -1 | or too many",
        "r 0 0 6 | r 2 0 6 | refers to a file that is not in the plan",
        "r 0 0 65536 | r 0 0 1048577 | outside its file",
        "0 65536 | 18446744073709551615 2 | outside its file",
        "r 0 0 65536 | r 0 0 0 | the range is empty",
        "0 65536 | 0 99999999999999999999999 | does not describe a range of a plan",
        "8191 2 0 0 | 8191 2 1 0 | depends on a later one",
        "f 1048576 | f 9223372036854775808 | does not describe a file of a plan",
        "/usr/lib/a.so | %00 | does not describe a file of a plan",
        "runs: 2 | runs 2 | a line without a key",
    ];
    let rows = table.map(|row| {
        let cells = Vec::from_iter(row.split(" | "));
        (cells[0], cells[1], cells[2])
    });
    let long = [
        ("/usr/lib/a.so", &long[..4097], no_file),
        ("/usr/lib/a.so", &long[..], "a line is too long"),
    ];
    for (from, to, expected) in rows.into_iter().chain(long) {
        assert!(whole.contains(from), "{from}");
        let got = error(&whole.replacen(from, to, 1));
        assert!(got.contains(expected), "{from} -> {to}: {got}");
    }
    let endless = format!("foreread-plan 1\n{}", "x: y\n".repeat(2000));
    assert!(error(&endless).contains("the end of the header is missing"));
}

#[test]
fn files_that_are_left_out_take_their_ranges_along() {
    let mut plan = sample();
    plan.retain_files(|file| file.mtime_ns.is_none());
    assert_eq!((plan.files.len(), plan.ranges.len()), (1, 2));
    let first = &plan.ranges[0];
    assert_eq!(
        (first.file, first.after, first.gap_ns),
        (0, None, None),
        "what it came after is gone"
    );
    read(&mut text(&plan).as_bytes(), Path::new("p")).expect("the rest is a plan");
}

/// The number of files says nothing of their bytes: 70,000 paths of nearly 4096 bytes.
#[test]
fn a_plan_with_more_than_the_account_is_refused() {
    use std::io::{BufReader, Read};
    let head = "foreread-plan 1\nruns: 0\nfiles: 100000\nranges: 0\n";
    let line = format!("f 1 - /{}\n", "x".repeat(4000));
    // The same line again and again, without a copy of all of it.
    struct Again(Vec<u8>, usize);
    impl Read for Again {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let rest = &self.0[self.1..];
            let len = to.len().min(rest.len());
            to[..len].copy_from_slice(&rest[..len]);
            self.1 = (self.1 + len) % self.0.len();
            Ok(len)
        }
    }
    let mut from = BufReader::new(head.as_bytes().chain(Again(line.into_bytes(), 0)));
    let error = read(&mut from, Path::new("hostile.plan")).expect_err("refused");
    let what = "more than 256 MiB of names, paths and ranges: hostile.plan, line 6";
    assert!(error.to_string().starts_with(what), "{error}");
}
