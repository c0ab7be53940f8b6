//! Compares the texts of each command with `snapshots/`, one file per command: its help, and the output of
//! the runs that its file names, whose text is the same each time. Also compares the schema and the keys of its JSON.
//!
//! `FOREREAD_BLESS=1 cargo test -p foreread-cli --all-features snapshots` writes the files; check the difference.

use crate::common::{FOREREAD, entry, foreread, foreread_in, lines_of, listed, same};
use foreread_testing::rows;
use std::ffi::OsStr;

const COMMANDS: &str = "mount serve run warm plan replay doctor compare tune probe record explain watch trace list cache sweep umount health \
    completions man";

/// Runs with `--json -`, what the schema is called, and keys that have to be there.
const JSON: &str = "\
compare random:count=16 --on model:rbd --runs 1 --policy none,auto | compare | workload source rows notes
list policies | policies | policies
list models | models | models
list workloads | workloads | workloads
trace info ../trace/tests/traces/foreread/v1.frt | trace-info | span_ns
trace info tests/snapshots/metadata.plan | plan-info | bytes metadata_bytes
trace formats | formats | formats
doctor --no-measure | doctor | devices
explain sequential --on model:nvme | explain | policy files total
tune ../trace/tests/traces/csv/dftracer.csv --on model:nvme | tune | foreread trace storage today today_bytes report own_s hint_files verdict
probe model:hdd-theory --time 1 | probe | verdict
warm Cargo.toml | warm | fetched_bytes";

/// The long help of a command and of those below it.
fn help(words: &str) -> String {
    let asked = format!("{words} --help");
    let got = foreread(asked.split_whitespace());
    let mut text = entry(&asked, &got);
    for below in listed(got.is_done()) {
        text += &help(&format!("{words} {below}"));
    }
    text
}

#[test]
fn every_command_matches_its_snapshot() {
    let top = foreread(["--help"]);
    same("foreread", &entry("--help", &top));
    // `check` is another program.
    let mut known = FOREREAD.commands();
    known.retain(|name| name != "check");
    assert_eq!(Vec::from_iter(COMMANDS.split(' ')), known);
    for command in known {
        let mut text = help(&command);
        let lines = lines_of(&command).into_iter();
        for words in lines.filter(|words| !words.ends_with(" --help")) {
            let got = foreread(words.split(' '));
            got.is_done();
            text += &entry(&words, &got);
        }
        same(&command, &text);
    }
}

#[test]
fn json_has_a_schema_and_its_keys() {
    for [words, schema, keys] in rows(JSON) {
        let got = foreread(words.split(' ').chain(["--json", "-"]));
        got.assert_code(0);
        let json = got.json();
        assert_eq!(json["schema"], format!("foreread.{schema}/1"), "{words}");
        for key in keys.split(' ') {
            assert!(!json[key].is_null(), "{words}: no {key} in {json:#}");
        }
    }
}

#[test]
fn text_is_as_wide_as_the_terminal() {
    for (columns, most) in [("20", 40), ("60", 60), ("500", 200), ("wide", 100)] {
        let words = "compare sequential --on model:nvme --size 4M --runs 2";
        let columns = [("COLUMNS", OsStr::new(columns))];
        let got = foreread_in(&columns, words.split(' '));
        // A line to paste is not broken.
        let lines = got.out.lines();
        let lines = lines.filter(|line| !line.starts_with("    foreread "));
        let widest = lines.map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= most && widest > most / 2, "{widest}: {}", got.out);
    }
}
