//! Tests of `import`, `export` and `trace`: what they write, that they do not overwrite files, and that no incomplete
//! file is left.

use crate::common::foreread;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/traces/foreread/v1.frt")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("readable").flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().display().to_string())
        .collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_trace_is_converted_and_nothing_is_overwritten_by_chance() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let (trace, out) = (example(), folder.path().join("out.frt"));
    let (trace, out) = (text(&trace), text(&out));
    let got = foreread(["trace", "import", trace, "-o", out]);
    assert!(
        got.is_done()
            .contains("out.frt: 5 records, 292 bytes, from example\nnote: made by hand\n"),
        "{}",
        got.out
    );
    let (was, is) = (
        std::fs::read(trace).expect("there"),
        std::fs::read(out).expect("there"),
    );
    assert!(was == is, "a trace of our own comes back as it was");
    let again = foreread(["trace", "import", trace, "-o", out]);
    assert!(
        again.is_refused().contains("it exists already: "),
        "{}",
        again.err
    );
    foreread(["trace", "import", trace, "-o", out, "--force"]).is_done();
    let copy = folder.path().join("copy");
    std::fs::copy(trace, &copy).expect("room");
    assert!(
        foreread(["trace", "import", text(&copy)])
            .is_refused()
            .contains("already a foreread trace: ")
    );
    let to = foreread(["trace", "export", trace, "-o", "-", "--format", "foreread"]);
    assert!(to.is_done().contains("FRT\r\n"), "{}", to.out);
    assert_eq!(names(folder.path()), ["copy", "out.frt"]);
}

#[test]
fn invalid_traces_are_one_line_and_leave_no_file() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let whole = std::fs::read(example()).expect("there");
    let (cut, out) = (
        folder.path().join("cut\u{1b}.frt"),
        folder.path().join("out.frt"),
    );
    std::fs::write(&cut, &whole[..whole.len() - 40]).expect("room");
    let got = foreread(["trace", "import", text(&cut), "-o", text(&out)]);
    assert!(
        got.is_refused()
            .contains("cut\\u{1b}.frt, record 6; the file is damaged"),
        "{}",
        got.err
    );
    assert_eq!(names(folder.path()), ["cut\u{1b}.frt"]);
    let info = foreread(["trace", "info", "Cargo.toml"]);
    assert!(
        info.is_refused()
            .contains("not a known trace format: Cargo.toml; name its format with --format")
    );
    assert!(
        foreread(["trace", "info", "/"])
            .is_refused()
            .contains("a directory is not a trace")
    );
    assert!(
        foreread(["trace", "info", text(&cut), "--format", "nope"])
            .is_refused()
            .contains("unknown format 'nope'")
    );
    let both = foreread(["trace", "info", text(&example()), text(&example())]);
    assert!(
        both.is_refused()
            .contains("a trace in the format foreread consists of one file"),
        "{}",
        both.err
    );
}

/// Killed while it writes, it leaves nothing: the file has no name yet.
#[test]
fn a_kill_leaves_no_half_file() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: needs mkfifo");
        return;
    }
    let out = folder.path().join("out.frt");
    let mut child = Command::new(env!("CARGO_BIN_EXE_foreread"))
        .args(["trace", "import", text(&pipe), "-o", text(&out)])
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    // The head of a trace comes, and then nothing more: it waits in the middle.
    let whole = std::fs::read(example()).expect("there");
    let mut writer = std::fs::OpenOptions::new()
        .write(true)
        .open(&pipe)
        .expect("a pipe");
    std::io::Write::write_all(&mut writer, &whole[..200]).expect("read");
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    assert_eq!(names(folder.path()), ["pipe"]);
}
