//! Texts that are compared with a file of `snapshots/`. `FOREREAD_BLESS=1` writes the files.

use super::Got;
use std::fmt::Write;
use std::path::Path;

/// What one command printed, below its command line.
pub fn entry(words: &str, got: &Got) -> String {
    let Got { code, out, err } = got;
    let mut text = format!("$ foreread {words}\n{out}{err}");
    if *code != Some(0) {
        writeln!(text, "exit code {code:?}").expect("memory");
    }
    text + "\n"
}

/// Compares a text with the file of this name.
#[track_caller]
pub fn same(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("FOREREAD_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(&path, text).expect("written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = expected
        .lines()
        .zip(text.lines())
        .position(|(one, other)| one != other)
        .unwrap_or(expected.lines().count().min(text.lines().count()));
    let line = |of: &str| of.lines().nth(differs).unwrap_or("(its end)").to_string();
    assert!(
        expected == text,
        "snapshots/{name}.txt differs in line {}; FOREREAD_BLESS=1 writes it\n  file: {}\n  now:  {}",
        differs + 1,
        line(&expected),
        line(text)
    );
}
