//! What holds for every command of `foreread-check`: help, outputs, errors.

use crate::common::foreread;
use crate::common::help::{fits, listed};
use crate::common::html::inside;
use crate::common::odd::survive_odd_arguments;
use crate::common::outputs::none_follows_a_link;
use std::path::Path;

#[test]
fn short_help_fits_24_lines_of_80_columns() {
    fits(&[]);
    assert_eq!(
        listed(foreread(["-h"]).is_done()),
        ["reproduce", "conform", "bench", "replay-log", "store"]
    );
}

#[test]
fn long_help_says_more_than_short_help() {
    for (command, words) in [
        ("reproduce", "The score by kind comes first"),
        ("conform", "After a difference the check goes on"),
        ("replay-log", "A fresh core fed with the same events"),
    ] {
        let (short, long) = (foreread([command, "-h"]), foreread([command, "--help"]));
        let joined = long.is_done().split_whitespace().collect::<Vec<_>>();
        assert!(joined.join(" ").contains(words), "{}", long.out);
        assert!(!short.is_done().contains(words), "{}", short.out);
        assert_eq!(long.out.lines().next(), short.out.lines().next());
    }
}

#[test]
fn no_output_follows_a_link_or_replaces_a_file_unasked() {
    let dir = tempfile::tempdir().expect("a folder");
    let options: [&[&str]; 5] = [
        &["bench", "sim", "--json", "OUT"],
        &["bench", "policies", "--json", "OUT"],
        &["bench", "policies", "--html", "OUT"],
        &["reproduce", "crume-2014", "--json", "OUT"],
        &["reproduce", "crume-2014", "--html", "OUT"],
    ];
    none_follows_a_link(&options, dir.path(), Path::new(""));
}

#[test]
fn reproduce_writes_a_page() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let page = dir.path().join("page.html");
    let text = page.to_string_lossy();
    let got = foreread(["reproduce", "003", "--runs", "1", "--html", &text]);
    assert!(got.code.is_some_and(|code| code <= 1), "{}", got.err);
    assert_eq!(inside(&page)["schema"], "foreread.reproduce/1");
    let nowhere = dir.path().join("no/where.html");
    let line = foreread(["reproduce", "000", "--html", &nowhere.to_string_lossy()]);
    let line = line.is_refused();
    assert!(
        line.contains("--html") && line.contains("does not exist"),
        "{line}"
    );
}

#[test]
fn manual_pages_and_completions_are_written() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    foreread(["man", &dir.path().to_string_lossy()]).is_done();
    for name in ["", "-reproduce", "-conform", "-bench", "-bench-policies"] {
        let page = dir.path().join(format!("foreread-check{name}.1"));
        let text = std::fs::read_to_string(&page)
            .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains(".SH NAME"), "{name}");
    }
    let script = foreread(["completions", "bash"]);
    assert!(script.is_done().contains("reproduce"), "{}", script.out);
}

#[test]
fn a_mistyped_word_gets_the_nearest_one() {
    let got = foreread(["bench", "hits"]);
    for part in ["'hits'", "'hit'", "'foreread check bench -h'"] {
        assert!(got.is_refused().contains(part), "{}", got.err);
    }
    let got = foreread(["bnech"]);
    assert!(got.is_refused().contains("nearest: bench"), "{}", got.err);
}

#[test]
fn odd_arguments_never_panic() {
    survive_odd_arguments(&[
        &[],
        &["bench"],
        &["replay-log"],
        &["reproduce", "--runs"],
        &["conform", "linux", "--check"],
    ]);
}

#[test]
fn a_password_in_a_name_is_not_repeated() {
    for name in [
        "http://user:canary9f3e@127.0.0.1:1/x?token=canary9f3e",
        "s3://KEY:canary9f3e@bucket/key",
        "nbd://user:canary9f3e@127.0.0.1:1/disk",
    ] {
        let got = foreread(["conform", "linux", "--check", name]);
        assert_ne!(got.code, Some(0), "{name}");
        assert!(!(got.out + &got.err).contains("canary9f3e"), "{name}");
    }
}
