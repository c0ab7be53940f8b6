//! What the tests of `foreread record` share: a scratch file, a recording, and what is in its trace.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use super::{Got, foreread};
use foreread_trace::{Item, Op, open};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A read as a test wants it: what, offset, bytes that came (of a hint and a touch: its length).
pub type Step = (Op, u64, u64);

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A scratch folder on a disk, with a file of 1 MiB in it.
pub fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let data = dir.path().join("data");
    std::fs::write(&data, vec![7; 1 << 20]).expect("room");
    (dir, data)
}

pub fn has(program: &[&str]) -> bool {
    let runs = Command::new(program[0])
        .args(&program[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let runs = runs.is_ok_and(|status| status.success());
    if !runs {
        println!("skipped: needs {}", program.join(" "));
    }
    runs
}

/// Records a command; nothing where this machine cannot.
pub fn record(trace: &Path, options: &[&str], command: &[&str]) -> Option<Got> {
    let args = ["record", "--by", "trace", "--force", "-o", text(trace)]
        .into_iter()
        .chain(options.iter().copied());
    let got = foreread(args.chain(["--"]).chain(command.iter().copied()));
    if got.code == Some(3) {
        println!("skipped: needs root and tracefs ({})", got.err.trim_end());
        return None;
    }
    Some(got)
}

/// What is in a trace, by the name of the file.
pub fn steps(trace: &Path, format: Option<&str>) -> BTreeMap<String, Vec<Step>> {
    let (mut names, mut all) = (Vec::new(), BTreeMap::<String, Vec<Step>>::new());
    for item in open::open(&[trace.to_path_buf()], format)
        .expect("a trace")
        .items
    {
        match item.expect("whole") {
            Item::File(file) => names.push(file.name),
            Item::Record(r) => {
                let bytes = r.returned.unwrap_or(r.len);
                all.entry(names[r.file as usize].clone())
                    .or_default()
                    .push((r.op, r.offset, bytes));
            }
        }
    }
    all
}

pub fn python(script: &str) -> Vec<&str> {
    vec!["python3", "-S", "-c", script]
}

/// Which bytes of each file were read, as sorted ranges without gaps or overlaps.
pub fn ranges(steps: BTreeMap<String, Vec<Step>>) -> BTreeMap<String, Vec<(u64, u64)>> {
    let of = |all: Vec<Step>| {
        let reads = all
            .into_iter()
            .filter(|(op, _, len)| *op == Op::Read && *len > 0);
        let mut reads: Vec<(u64, u64)> = reads
            .map(|(_, offset, len)| (offset, offset + len))
            .collect();
        reads.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in reads {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        joined
    };
    steps
        .into_iter()
        .map(|(name, all)| (name, of(all)))
        .collect()
}
