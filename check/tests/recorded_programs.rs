//! Tests of the recordings of programs in `check/recordings`: every row of the index has its trace, with the counts
//! that the row gives, and no name in a trace reveals where it was recorded.
//!
//! Example: the row `search,ripgrep,a,...,2721,157,...` needs `ripgrep-a.frt` with 2,721 reads and 157 faults, and
//! names such as `input-a/t/x.c` or `usr/bin/rg`, but no path that starts with a slash. `check/record-programs` makes
//! the recordings.

use foreread_trace::{Flags, Item, Op};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// First parts of neutral names: what `check/record-programs` makes, folders of packages, and the rest.
const ROOTS: [&str; 10] = [
    "input-a", "input-b", "output", "home", "venv", "scratch", "usr", "etc", "var", "other",
];
/// The block device of a file system, whose own data was read.
const DEVICE: &str = "device";
const MAX_BYTES: u64 = 15 << 20;

/// The fields of a row by the names of their columns.
type Row = BTreeMap<String, String>;

/// What a row says of its trace, in the order of [`COLUMNS`].
type Counts = [u64; 5];
const COLUMNS: [&str; 5] = ["reads", "faults", "bytes_read", "files", "records"];

/// The two halves: those that validate, and those on which constants may be chosen.
const VALIDATION: &str = "recordings";
const DEVELOPMENT: &str = "recordings/development";

fn folder(half: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(half)
}

fn index(half: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(folder(half).join("index.csv")).expect("the index");
    let mut lines = text
        .lines()
        .map(|line| line.split(',').map(str::to_string).collect::<Vec<_>>());
    let columns = lines.next().expect("the names of the columns");
    lines
        .map(|fields| {
            assert_eq!(fields.len(), columns.len(), "{fields:?}");
            columns.iter().cloned().zip(fields).collect()
        })
        .collect()
}

fn expected(row: &Row) -> Counts {
    COLUMNS.map(|column| row[column].parse().expect("a number"))
}

/// The counts of a trace, and the names of its files.
fn counted(half: &str, name: &str) -> (Counts, Vec<String>) {
    let trace = foreread_trace::open(&folder(half).join(name), None)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut counts, mut read, mut names) = ([0; 5], BTreeSet::new(), Vec::new());
    for item in trace.items {
        match item.unwrap_or_else(|error| panic!("{name}: {error}")) {
            Item::File(file) => names.push(file.name),
            Item::Record(record) => {
                counts[4] += 1;
                if record.flags.has(Flags::AHEAD) {
                    continue;
                }
                match record.op {
                    Op::Read => {
                        counts[0] += 1;
                        counts[2] += record.returned.unwrap_or(record.len);
                    }
                    Op::Fault => counts[1] += 1,
                    Op::Write | Op::Hint(_) => continue,
                }
                read.insert(record.file);
            }
        }
    }
    counts[3] = read.len() as u64;
    (counts, names)
}

fn is_neutral(name: &str) -> bool {
    name == DEVICE
        || name
            .split_once('/')
            .is_some_and(|(root, rest)| ROOTS.contains(&root) && !rest.is_empty())
}

#[test]
fn every_row_has_its_trace_with_neutral_names() {
    for half in [VALIDATION, DEVELOPMENT] {
        for row in index(half) {
            let name = &row["trace"];
            let (counts, names) = counted(half, name);
            assert_eq!(counts, expected(&row), "{name}: {COLUMNS:?}");
            for file in names {
                assert!(is_neutral(&file), "{name} names {file}");
            }
        }
    }
}

#[test]
fn every_recording_is_in_the_index_and_they_stay_small() {
    let mut bytes = 0;
    for half in [VALIDATION, DEVELOPMENT] {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(folder(half)).expect("the recordings") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".frt") {
                bytes += entry.metadata().expect("its size").len();
                found.insert(name);
            }
        }
        let listed: BTreeSet<String> = index(half).iter().map(|row| row["trace"].clone()).collect();
        assert_eq!(found, listed);
    }
    assert!(bytes < MAX_BYTES, "{bytes} bytes of recordings");
}

#[test]
fn no_program_is_in_both_halves() {
    let programs = |half| -> BTreeSet<String> {
        let rows = index(half).into_iter();
        rows.map(|row| row["program"].clone()).collect()
    };
    let (validation, development) = (programs(VALIDATION), programs(DEVELOPMENT));
    assert!(validation.is_disjoint(&development));
    assert!(validation.len() >= 60, "{} programs", validation.len());
}

#[test]
fn names_of_a_machine_are_found() {
    for name in ["/usr/bin/rg", "tmp/x", "home", "C:/x", ""] {
        assert!(!is_neutral(name), "{name}");
    }
    for name in [DEVICE, "usr/bin/rg", "other/7.so", "input-b/t/x.c"] {
        assert!(is_neutral(name), "{name}");
    }
}
