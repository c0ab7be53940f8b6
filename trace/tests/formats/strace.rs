//! strace's text: what is refused, and the real strace on programs of which we know what they read.

use super::traces::{Read, each_refused, read_bytes, refused};
use foreread_core::event::Advice;
use foreread_trace::Op;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const OPEN: &str = "1 1700000000.000000 openat(AT_FDCWD, \"a\", O_RDONLY) = 3</a> <0.000010>\n";
const READ: &str = "1 1700000000.000001 read(3</a>, \"\"..., 4096) = 4096 <0.000010>\n";

const WRONG: &str = r#"hello | the line has no time, or its time has another format than that of the first line: t, line 2;
1 10:11:12.5 read(3) = 0 | the line has no time, or its time has another format than that of the first line: t, line 2;
1 1600000000.0 read(3, "", 1) = 0 | time goes backwards: t, line 2;
1 1700000001.0 read(3, "", x) = 0 | a call without its length or its offset: t, line 2;
1 1700000001.0 read(x, "", 1) = 0 | a call whose argument is not a descriptor: t, line 2;
1 1700000001.0 pread64(3</a>, "", 1, 9223372036854775808) = 0 | a record that ends beyond 2^63 bytes: t, record 1;
1 1700000001.0 read(3</a>, <unfinished ...>\n1 1700000001.1 <... lseek resumed>) = 0 | the resumed call is not the one that was started: t, line 3;"#;

/// Cut anywhere after its call's name, a line is refused by its number.
#[test]
fn a_line_that_is_wrong_is_named() {
    let line = READ.trim_end();
    let whole = line.find("= 4096").expect("there") + 3;
    for end in 24..whole {
        let cut = "an incomplete line of strace: t, line 2; record with";
        refused("strace", format!("{OPEN}{}\n", &line[..end]), cut);
    }
    each_refused("strace", WRONG, |line| {
        format!("{OPEN}{}\n", line.replace("\\n", "\n"))
    });
    let none = "no strace call at the start of the file: t, line 1; ";
    refused("strace", "", none);
    refused("strace", "10:71:12 read(3) = 0\n", none);
}

/// What may be many has a limit, and the limit is said.
#[test]
fn threads_and_unfinished_calls_have_limits() {
    let begun = |pid: u32| format!("{pid} 1700000000.0 read(3</a>, <unfinished ...>\n");
    let many = "more than 4096 threads at one time: t, line 4097; ";
    refused("strace", (1..=4097).map(begun).collect::<String>(), many);
    let long = "x".repeat(60_000);
    let begun =
        |pid: u32| format!("{pid} 1700000000.0 openat(AT_FDCWD, \"{long}\", <unfinished ...>\n");
    let many = "more than 16 MiB of unfinished calls in total: t, line 280; ";
    refused("strace", (1..=300).map(begun).collect::<String>(), many);
    // A call that never returns holds up a bounded number of others.
    let lines = (0..70_000)
        .map(|i| format!("1 1700000001.{i:06} pread64(3</a>, \"\", 1, {i}) = 1 <0.000001>\n"));
    let lines = lines.collect::<String>();
    let text = format!("{OPEN}2 1700000000.5 read(3</a>, <unfinished ...>\n{lines}");
    let read = read_bytes("strace", text).clean();
    let left_out = vec![("calls that did not return", 1)];
    assert_eq!((read.records().len(), read.left_out), (70_000, left_out));
}

/// Runs a tracer in `folder`, which may be missing or forbidden: nothing then.
fn traced(folder: &Path, tracer: &str, format: &str, words: &[&str]) -> Option<Read> {
    let mut command = Command::new(tracer);
    match command.current_dir(folder).args(words).output() {
        Ok(output) if output.status.success() => {
            let trace = std::fs::read(folder.join("trace")).expect("a trace");
            Some(read_bytes(format, trace).clean())
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            let why = why.lines().next().unwrap_or_default();
            println!("skipped: needs {tracer} that may trace ({why})");
            None
        }
        Err(_) => {
            println!("skipped: needs {tracer}");
            None
        }
    }
}

fn straced(folder: &Path, options: &str, program: &[&str]) -> Option<Read> {
    let options = format!("-f -T -y -o trace {options}");
    let words = options.split_whitespace().chain(program.iter().copied());
    traced(folder, "strace", "strace", &Vec::from_iter(words))
}

/// What was done to the file `name`: offset, length, how many bytes came.
fn of(read: &Read, op: Op, name: &str) -> Vec<(u64, u64, u64)> {
    let names = read.files();
    let of_file =
        |r: &&foreread_trace::Record| r.op == op && names[r.file as usize].name.ends_with(name);
    let records = read.records().into_iter().filter(of_file);
    let read = records.map(|r| (r.offset, r.len, r.returned.unwrap_or(0)));
    read.collect()
}

/// strace with times, and without.
#[test]
fn strace_is_read_with_and_without_times() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("in put"), vec![1; 12_000]).expect("writable");
    let dd = ["dd", "if=in put", "of=out", "bs=4096", "skip=1"];
    for options in ["-ttt", "-s 0"] {
        let Some(read) = straced(folder.path(), options, &dd) else {
            return;
        };
        // The last read finds the end of the file.
        let expected = [(4096, 4096, 4096), (8192, 4096, 3808), (12_000, 4096, 0)];
        assert_eq!(of(&read, Op::Read, "/in put"), expected, "{options}");
        let expected = [(0, 4096, 4096), (4096, 3808, 3808)];
        assert_eq!(of(&read, Op::Write, "/out"), expected, "{options}");
        let timed = options == "-ttt";
        let limit = timed.then_some(600_000_000_000);
        for record in read.records() {
            let at = record.start_ns;
            assert!(at.is_some() == timed && at <= limit, "{options}: {at:?}");
        }
    }
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
    let Some(read) = straced(folder.path(), "-ttt", &["python3", "program"]) else {
        return;
    };
    // The last four: the child, the thread, the parent after both; dd opens it anew, from 0 on.
    let offsets = [0, 100, 4096, 8192, 4106, 5, 4136, 4200, 65536, 65539, 0];
    let lens = [100, 100, 10, 30, 30, 100, 64, 7, 3, 5, 11];
    let all = of(&read, Op::Read, "/data").into_iter();
    let (starts, asked): (Vec<u64>, Vec<u64>) = all.map(|(offset, len, _)| (offset, len)).unzip();
    assert_eq!((starts, asked), (offsets.to_vec(), lens.to_vec()));
    let random = |r: &&foreread_trace::Record| r.op == Op::Hint(Advice::Random);
    assert!(read.records().iter().any(random));
    let files = read.files();
    let data = files.iter().position(|file| file.name.ends_with("/data"));
    let records = read.records();
    let of_data = || records.iter().filter(|r| Some(r.file as usize) == data);
    let threads: BTreeSet<u32> = of_data().map(|r| r.thread).collect();
    let opens: BTreeSet<u32> = of_data().map(|r| r.open).collect();
    assert_eq!((threads.len(), opens.len()), (3, 2));
    let pipes = |(what, _): &(&str, u64)| what.starts_with("calls on pipes");
    assert!(read.left_out.iter().any(pipes), "{:?}", read.left_out);
}
