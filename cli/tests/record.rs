//! End-to-end tests of `foreread record`: a program whose reads are known, lost events, a user without rights. The test of
//! `observe/src/record` makes every call.
//!
//! Needs root and tracefs; otherwise the tests are skipped. A test that needs more names it.

use crate::common::{BINARY, Got, has, needs, python, record, says, scratch, steps, text};
use foreread_trace::Op;
use std::process::Command;

#[test]
fn what_was_open_before_and_what_threads_read_is_known() {
    let (dir, data) = scratch();
    let trace = dir.path().join("t.frt");
    needs!(has(&["python3", "--version"]));
    let script = "import os, threading\nos.read(0, 100)\n\
        t = [threading.Thread(target=os.pread, args=(0, 50, 4096 * i)) for i in range(1, 9)]\n\
        [x.start() for x in t]\n[x.join() for x in t]\nos.read(0, 100)";
    let mut stdin = std::fs::File::open(&data).expect("there");
    std::io::Seek::seek(&mut stdin, std::io::SeekFrom::Start(12_345)).expect("a file");
    let mut command = Command::new(BINARY);
    command.args(["record", "--by", "trace", "-q", "-o", text(&trace), "--"]);
    let done = command.args(python(script)).stdin(stdin).output();
    let done = done.expect("runs");
    if done.status.code() == Some(3) {
        return println!("skipped: needs root and tracefs");
    }
    assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0));
    let all = steps(&trace, None).remove(text(&data));
    let mut all = all.expect("the file has its name");
    let last = all.pop();
    assert_eq!(all[0], (Op::Read, 12_345, 100));
    assert_eq!(last, Some((Op::Read, 12_445, 100)));
    let mut rest = all.split_off(1);
    rest.sort_by_key(|(_, offset, _)| *offset);
    let threads = (1..9).map(|i| (Op::Read, 4096 * i, 50));
    assert_eq!(rest, Vec::from_iter(threads));
}

#[test]
fn lost_events_are_counted_and_fail_if_asked() {
    let (dir, data) = scratch();
    let trace = dir.path().join("t.frt");
    let (input, json) = (format!("if={}", text(&data)), dir.path().join("j.json"));
    let command = ["dd", &input, "of=/dev/null", "bs=16", "status=none"];
    let options = ["--memory", "8K", "--exit-code", "--json", text(&json)];
    needs!(let got = record(&trace, &options, &command));
    let json = std::fs::read_to_string(&json).expect("written");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let [lost, gaps] = [&json["lost_events"], &json["counts"]["gaps"]];
    let is_counted = lost.as_u64() > Some(0) && gaps.as_u64() > Some(0);
    assert!(is_counted, "{json}");
    says(got.assert_code(1), &["events were lost", "--memory"]);
    // What is there is readable, and no range is beyond the file.
    let all = steps(&trace, None).remove(text(&data)).unwrap_or_default();
    let mut ends = all.iter().map(|(_, offset, len)| offset + len);
    assert!(ends.all(|end| end <= (1 << 20) + 8192));
    let got = record(&trace, &["--exit-code"], &["true"]);
    got.expect("as before").assert_code(0);
}
#[test]
fn without_root_one_line_names_another_way() {
    needs!(has(&["setpriv", "--version"]));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--", BINARY]);
    command.args("record --by trace -o /tmp/t.frt -- true".split(' '));
    let got = Got::from(&command.output().expect("runs"));
    // Where the binary cannot be reached by others there is nothing to see.
    if !matches!(got.code, Some(126 | 127)) {
        let error = got.assert_code(3);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("foreread: not root"), "{error}");
        says(error, &["strace -f"]);
    }
}
