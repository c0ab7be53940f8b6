//! strace's text: golden files, what is refused, and the real strace on programs of which we know what they read.

use super::traces::{Read, fixture, golden, read_bytes, read_files, refusal};
use foreread_trace::{Flags, Op, catalog};
use std::path::Path;
use std::process::Command;

#[test]
fn golden_traces() {
    for name in ["full", "plain", "terminal"] {
        let path = fixture(&format!("strace/{name}.strace"));
        let text = std::fs::read(&path).expect("there");
        assert_eq!(
            catalog::detect(&text, &path).map(|f| f.name),
            Ok("strace"),
            "{name}"
        );
        golden(
            &format!("strace/{name}.txt"),
            &read_files("strace", &[path]),
        );
    }
}

const OPEN: &str = "1 1700000000.000000 openat(AT_FDCWD, \"a\", O_RDONLY) = 3</a> <0.000010>\n";
const READ: &str = "1 1700000000.000001 read(3</a>, \"\"..., 4096) = 4096 <0.000010>\n";

/// Cut anywhere after its call's name, a line is refused by its number.
#[test]
fn a_line_that_is_cut_is_named() {
    let line = READ.trim_end();
    let whole = line.find("= 4096").expect("there") + 3;
    for end in 24..whole {
        let error = refusal("strace", format!("{OPEN}{}\n", &line[..end]));
        assert!(
            error.starts_with("a line of strace that is not whole: t, line 2; record with"),
            "{end}: {error}"
        );
    }
    let starts = |error: String, what: &str| assert!(error.starts_with(what), "{error}");
    let second = |line: &str| refusal("strace", format!("{OPEN}{line}\n"));
    let other =
        "another kind of time before the call than in the first line, or no time: t, line 2; ";
    starts(second("hello"), other);
    starts(second("1 10:11:12.5 read(3) = 0"), other);
    starts(
        second("1 1600000000.0 read(3, \"\", 1) = 0"),
        "time goes backwards: t, line 2; ",
    );
    starts(
        second("1 1700000001.0 read(3, \"\", x) = 0"),
        "a call without its length or its offset: t, line 2; ",
    );
    starts(
        second("1 1700000001.0 read(x, \"\", 1) = 0"),
        "a call on something that is no descriptor: t, line 2; ",
    );
    let far = "1 1700000001.0 pread64(3</a>, \"\", 1, 9223372036854775808) = 0";
    starts(
        second(far),
        "a record that ends beyond 2^63 bytes: t, record 1; ",
    );
    let other =
        "1 1700000001.0 read(3</a>, <unfinished ...>\n1 1700000001.1 <... lseek resumed>) = 0";
    starts(
        second(other),
        "another call is resumed than was begun: t, line 3; ",
    );
    starts(
        second(&format!(
            "1 1700000001.0 read(3</a>, \"{}",
            "x".repeat(10 << 20)
        )),
        "a line of over 64 KiB: t, line 2; ",
    );
    starts(
        refusal("strace", ""),
        "no call of strace at its beginning: t, line 1; ",
    );
    starts(
        refusal("strace", "10:71:12 read(3) = 0\n"),
        "no call of strace at its beginning: t, line 1; ",
    );
    let long = "x".repeat(4097);
    let named =
        OPEN.replace("</a>", &format!("</{long}>")) + &READ.replace("</a>", &format!("</{long}>"));
    starts(
        refusal("strace", named),
        "a file name of over 4096 bytes: t, record 1; ",
    );
}

/// What may be many has a limit, and the limit is said.
#[test]
fn threads_and_unfinished_calls_have_limits() {
    let begun = |pid: u32| format!("{pid} 1700000000.0 read(3</a>, <unfinished ...>\n");
    let error = refusal("strace", (1..=4097).map(begun).collect::<String>());
    assert!(
        error.starts_with("over 4096 threads at one time: t, line 4097; "),
        "{error}"
    );
    let long = "x".repeat(60_000);
    let begun =
        |pid: u32| format!("{pid} 1700000000.0 openat(AT_FDCWD, \"{long}\", <unfinished ...>\n");
    let error = refusal("strace", (1..=300).map(begun).collect::<String>());
    assert!(
        error.starts_with("unfinished calls of over 16 MiB together: t, line 280; "),
        "{error}"
    );
    // A call that never returns holds up a bounded number of others.
    let lines = (0..70_000)
        .map(|i| format!("1 1700000001.{i:06} pread64(3</a>, \"\", 1, {i}) = 1 <0.000001>\n"));
    let text = format!(
        "{OPEN}2 1700000000.5 read(3</a>, <unfinished ...>\n{}",
        lines.collect::<String>()
    );
    let read = read_bytes("strace", text).clean();
    assert_eq!(
        (read.records().len(), read.left_out),
        (70_000, vec![("calls that did not return", 1)])
    );
}

/// Runs a program under strace in `folder`; nothing where a part is missing.
fn traced(folder: &Path, options: &[&str], program: &[&str]) -> Option<Read> {
    for needed in [&["strace", "-V"][..], &[program[0], "--version"]] {
        if !Command::new(needed[0])
            .args(&needed[1..])
            .output()
            .is_ok_and(|output| output.status.success())
        {
            println!("skipped: needs {}", needed[0]);
            return None;
        }
    }
    let mut command = Command::new("strace");
    command
        .current_dir(folder)
        .args(["-f", "-T", "-y", "-o", "trace"])
        .args(options)
        .args(program);
    let output = command.output().expect("strace was there");
    if !output.status.success() {
        // Some containers forbid ptrace.
        println!(
            "skipped: needs strace that may trace ({})",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        return None;
    }
    Some(read_files("strace", &[folder.join("trace")]).clean())
}

/// The reads of the file `name`: offset, length, how many bytes came.
fn reads(read: &Read, name: &str) -> Vec<(u64, u64, u64)> {
    let file = read
        .files()
        .iter()
        .position(|file| file.name.ends_with(name))
        .expect("it was read");
    let of_file = read
        .records()
        .into_iter()
        .filter(|r| r.file as usize == file && r.op == Op::Read);
    of_file
        .map(|r| (r.offset, r.len, r.returned.expect("known")))
        .collect()
}

#[test]
fn every_byte_that_cat_and_dd_read_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let size = 300_001;
    std::fs::write(folder.path().join("in put"), vec![1; size]).expect("writable");
    let Some(read) = traced(folder.path(), &["-ttt"], &["cat", "in put"]) else {
        return;
    };
    let mut at = 0;
    for (offset, len, came) in reads(&read, "/in put") {
        assert!(offset == at && came <= len);
        at += came;
    }
    assert_eq!(at, size as u64);
    assert!(
        read.records()
            .iter()
            .all(|r| r.start_ns.is_some() && r.end_ns.is_some())
    );
    let program = [
        "dd",
        "if=in put",
        "of=out",
        "bs=4096",
        "skip=3",
        "count=5",
        "iflag=fullblock",
    ];
    let Some(read) = traced(folder.path(), &["-ttt", "-s", "0"], &program) else {
        return;
    };
    let expected: Vec<_> = (3..8).map(|block| (block * 4096, 4096, 4096)).collect();
    assert_eq!(reads(&read, "/in put"), expected);
    let writes = read
        .records()
        .into_iter()
        .filter(|r| r.op == Op::Write && read.files()[r.file as usize].name.ends_with("/out"));
    assert_eq!(
        writes.map(|r| r.offset).collect::<Vec<_>>(),
        [0, 4096, 8192, 12288, 16384]
    );
}

/// strace as people run it: each kind of time, and more in front of the call.
#[test]
fn every_kind_of_time_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("input"), vec![1; 20_000]).expect("writable");
    let program = ["dd", "if=input", "of=/dev/null", "bs=4096"];
    let expected = [
        (0, 4096, 4096),
        (4096, 4096, 4096),
        (8192, 4096, 4096),
        (12288, 4096, 4096),
        (16384, 4096, 3616),
    ];
    for options in [
        "-ttt",
        "-tt",
        "-t",
        "-r",
        "-tt -r",
        "-ttt -Y",
        "-tt -i",
        "-ttt -n -i",
        "-Y",
        "",
    ] {
        let words: Vec<&str> = options.split_whitespace().collect();
        let Some(read) = traced(folder.path(), &words, &program) else {
            return;
        };
        let mut read_at = reads(&read, "/input");
        // The last read finds the end of the file.
        assert_eq!(read_at.pop(), Some((20_000, 4096, 0)), "{options}");
        assert_eq!(read_at, expected, "{options}");
        let timed = options.contains("-t") || options.contains("-r");
        assert!(
            read.records().iter().all(|r| r.start_ns.is_some() == timed),
            "{options}"
        );
        let long = read
            .records()
            .iter()
            .filter_map(|r| r.start_ns)
            .max()
            .unwrap_or(0);
        assert!(
            long < 600_000_000_000,
            "{options}: the last call is {long} ns after the first"
        );
    }
}

/// The real `perf trace`, which needs root or `perf_event_paranoid` of -1.
#[test]
fn every_byte_that_dd_reads_is_in_perf_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("input"), vec![1; 1 << 20]).expect("writable");
    let mut command = Command::new("perf");
    command
        .current_dir(folder.path())
        .args(["trace", "-o", "trace", "--"]);
    command.args([
        "dd",
        "if=input",
        "of=out",
        "bs=4096",
        "skip=3",
        "count=5",
        "iflag=fullblock",
    ]);
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return println!(
                "skipped: needs perf that may trace ({})",
                why.lines().next().unwrap_or_default()
            );
        }
        Err(_) => return println!("skipped: needs perf (Debian: linux-perf)"),
    }
    let read = read_files("perf-trace", &[folder.path().join("trace")]).clean();
    let expected: Vec<(u64, u64, Option<u64>)> = (3..8)
        .map(|block| (block * 4096, 4096, Some(4096)))
        .collect();
    let blocks = |op: Op| {
        let of_dd = read
            .records()
            .into_iter()
            .filter(move |r| r.op == op && r.len == 4096);
        of_dd
            .map(|r| (r.offset, r.len, r.returned))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        blocks(Op::Read)
            .iter()
            .filter(|read| expected.contains(read))
            .count(),
        5,
        "{:?}",
        blocks(Op::Read)
    );
    let written: Vec<u64> = blocks(Op::Write)
        .into_iter()
        .map(|(offset, ..)| offset)
        .collect();
    assert_eq!(written, [0, 4096, 8192, 12288, 16384]);
}

const PROGRAM: &str = "
import os, threading
f = os.open('data', os.O_RDONLY)
d = os.dup(f)
os.read(f, 100); os.read(d, 100)
os.lseek(d, 4096, 0); os.read(f, 10)
os.preadv(f, [bytearray(10), bytearray(20)], 8192)
os.readv(d, [bytearray(10), bytearray(20)])
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
o = os.open('out', os.O_RDWR | os.O_CREAT)
os.sendfile(o, f, 5, 100)
os.copy_file_range(f, o, 64)
os.set_inheritable(d, True)
r, w = os.pipe()
if os.fork() == 0:
    os.read(d, 7)
    os.lseek(f, 65536, 0)
    os.write(w, b'x')
    os._exit(0)
os.read(r, 1)
os.wait()
t = threading.Thread(target=lambda: (os.read(f, 3), os.close(f)))
t.start(); t.join()
os.read(d, 5)
os.execvp('dd', ['dd', 'if=/dev/fd/%d' % d, 'of=/dev/null', 'bs=11', 'count=1'])
";

#[test]
fn a_program_that_forks_and_dups_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("data"), vec![1; 1 << 20]).expect("writable");
    std::fs::write(folder.path().join("program"), PROGRAM).expect("writable");
    let Some(read) = traced(folder.path(), &["-ttt"], &["python3", "program"]) else {
        return;
    };
    let mut expected = vec![
        (0, 100),
        (100, 100),
        (4096, 10),
        (8192, 30),
        (4106, 30),
        (5, 100),
        (4136, 64),
    ];
    // The child, the thread, the parent after both; dd opens it anew, from 0 on.
    expected.extend([(4200, 7), (65536, 3), (65539, 5), (0, 11)]);
    let all: Vec<(u64, u64)> = reads(&read, "/data")
        .into_iter()
        .map(|(offset, len, _)| (offset, len))
        .collect();
    assert_eq!(all, expected);
    let hints: Vec<Op> = read
        .records()
        .iter()
        .map(|r| r.op)
        .filter(|op| matches!(op, Op::Hint(_)))
        .collect();
    assert!(hints.contains(&Op::Hint(foreread_core::event::Advice::Random)));
    let data = read
        .files()
        .iter()
        .position(|file| file.name.ends_with("/data"))
        .expect("it was read");
    let of_data = |r: &&&foreread_trace::Record| r.file as usize == data;
    let records = read.records();
    let threads: std::collections::BTreeSet<u32> =
        records.iter().filter(of_data).map(|r| r.thread).collect();
    let opens: std::collections::BTreeSet<u32> =
        records.iter().filter(of_data).map(|r| r.open).collect();
    assert_eq!((threads.len(), opens.len()), (3, 2));
    assert!(records.iter().all(|r| !r.flags.has(Flags::DIRECT)));
    assert!(
        read.left_out
            .iter()
            .any(|(what, _)| what.starts_with("calls on pipes")),
        "{:?}",
        read.left_out
    );
}
