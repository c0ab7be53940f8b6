//! End-to-end tests of `foreread record`: programs whose reads are known, comparison with strace, lost events, signals,
//! refused input.
//!
//! Needs root and tracefs; otherwise the tests are skipped. A test that needs more names it.

use crate::common::{BINARY, Got, has, needs, python, ranges, record, says, scratch, steps, text};
use foreread_trace::Op;
use std::collections::BTreeMap;
use std::process::Command;

const CALLS: &str = r#"
import os, mmap, ctypes, sys
fd = os.open('data', os.O_RDONLY)
os.posix_fadvise(fd, 4096, 8192, os.POSIX_FADV_SEQUENTIAL)
os.read(fd, 1000)
os.read(fd, 500)
os.lseek(fd, 300000, 0)
os.readv(fd, [bytearray(100), bytearray(28)])
os.pread(fd, 4096, 77777)
os.preadv(fd, [bytearray(10), bytearray(20)], 500000)
ctypes.CDLL(None).readahead(fd, ctypes.c_long(65536), ctypes.c_size_t(16384))
copy = os.dup(fd)
os.read(copy, 72)
out = os.open('out', os.O_RDWR | os.O_CREAT)
os.lseek(fd, 20480, 0)
os.copy_file_range(fd, out, 3000)
os.sendfile(out, fd, None, 2000)
os.sendfile(out, fd, 400000, 5000)
if os.fork() == 0:
    os.read(fd, 11)
    os._exit(0)
os.wait()
os.read(fd, 13)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
m[90 * 4096]
"#;

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

/// The ranges of a file that was open for too short a time to be found under its name: by its inode.
fn nameless<'a>(
    ours: &'a BTreeMap<String, Vec<(u64, u64)>>,
    name: &str,
) -> Option<&'a Vec<(u64, u64)>> {
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(name).ok()?);
    let start = format!("inode {inode} of ");
    let mut all = ours.iter().filter(|(name, _)| name.starts_with(&start));
    all.next().map(|(_, ranges)| ranges)
}

/// strace and the recorder over the same command: what the first saw, the second has.
#[test]
fn every_range_that_strace_saw_is_in_the_trace() {
    let (dir, _) = scratch();
    needs!(has(&["strace", "-V"]) && has(&["python3", "--version"]));
    let (trace, seen) = (dir.path().join("t.frt"), dir.path().join("t.strace"));
    let script = format!(
        "cd {} && rm -f out out.tar && cat data >/dev/null && dd if=data of=/dev/null bs=10000 skip=7 count=9 2>/dev/null && \
         tar cf out.tar data && grep -rc 7 . >/dev/null; python3 -S -c \"$0\"; tail -c 5000 data | md5sum >/dev/null",
        text(dir.path())
    );
    let command = ["sh", "-c", &script, CALLS];
    // Once before: python writes what it has compiled, and reads that the next time.
    let mut before = Command::new(command[0]);
    let before = before.env("LC_ALL", "C").args(&command[1..]).status();
    assert!(before.expect("it runs").success());
    needs!(let got = record(&trace, &["-q"], &command));
    got.assert_code(0);
    let ours = ranges(steps(&trace, None));
    std::fs::remove_file(&trace).expect("there");
    let calls = "trace=openat,open,close,read,pread64,readv,preadv,preadv2,lseek,dup,dup2,dup3,fcntl,clone,clone3,fork,\
        vfork,execve,sendfile,copy_file_range";
    let mut strace = Command::new("strace");
    strace
        .env("LC_ALL", "C")
        .args("-f -ttt -T -y -s 0 -e".split(' '));
    let done = strace
        .args([calls, "-o", text(&seen)])
        .args(command)
        .status();
    assert!(done.expect("strace runs").success());
    let (mut files, mut bytes) = (0, 0);
    for (name, theirs) in ranges(steps(&seen, Some("strace"))) {
        // The trace of each is not there for the other.
        if name.ends_with("t.frt") || name.ends_with("t.strace") {
            continue;
        }
        for (start, end) in theirs {
            let own = ours.get(&name).or_else(|| nameless(&ours, &name));
            let all = own.map_or(&[][..], Vec::as_slice);
            let covered = all.iter().any(|(from, to)| *from <= start && end <= *to);
            assert!(covered, "{name}: {start}..{end} is not in {all:?}");
            bytes += end - start;
        }
        files += 1;
    }
    assert!(files > 5 && bytes > 1 << 19, "{files} files, {bytes} bytes");
    println!("covered: {bytes} bytes of {files} files");
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
