//! Tests `foreread record`: programs whose reads are known, a process that runs, another recorder, mappings, lost events, a user
//! without rights. The test of `observe/src/record` makes every call.
//!
//! Needs root, tracefs and python3; otherwise the tests are skipped. A test that needs more names it.

use crate::common::{
    BINARY, Got, Program, Step, folder, foreread, forget, has, instances, interruptible, items,
    needs, polls, python, ranges, record, runs, says, scratch, signal, slow_disk, steps, text,
    wait_until,
};
use foreread_trace::{Flags, Item, Op};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

const PAGE: u64 = 4096;

/// Where tracefs is mounted, if it is.
fn tracefs() -> Option<&'static Path> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(Path::new);
    let mut found = places.into_iter();
    let found = found.find(|place| place.join("instances").is_dir());
    if found.is_none() {
        println!("skipped: needs tracefs mounted at /sys/kernel/tracing");
    }
    found
}

/// Reads as commanded: `r N` by its first thread at the position, `t OFFSET` by a second thread, `c N` by a child
/// that shares a descriptor with it.
const READER: &str = r#"
import os, queue, sys, threading
os.chdir(sys.argv[1])
own, ours = os.open('data', os.O_RDONLY), os.open('data', os.O_RDONLY)
os.lseek(own, 100000, 0), os.lseek(ours, 300000, 0)
ask, asked = os.pipe()[::-1]
tell, told = os.pipe()[::-1]
if os.fork() == 0:
    os.close(ask), os.close(own)
    while n := os.read(asked, 9):
        os.read(ours, int(n))
        os.write(tell, b'x')
    os._exit(0)
jobs, done = queue.Queue(), queue.Queue()
threading.Thread(target=lambda: [done.put(os.pread(own, 777, at)) for at in iter(jobs.get, None)]).start()
print('ready', flush=True)
for line in iter(sys.stdin.readline, ''):
    what, n = line.split()
    if what == 'r':
        os.read(own, int(n))
    elif what == 't':
        jobs.put(int(n)), done.get()
    else:
        os.write(ask, n.encode()), os.read(told, 1)
    print('done', flush=True)
os.close(ask)
jobs.put(None)
"#;

fn reader(folder: &Path) -> Program {
    let words = python(READER);
    let mut command = Command::new(words[0]);
    let mut reader = Program::start(command.args(&words[1..]).arg(folder));
    reader.hears("ready");
    reader
}

fn does(reader: &mut Program, what: &str) {
    reader.tell(what);
    reader.hears("done");
}

/// `record --pid` that has begun to record; nothing where this machine cannot.
fn begin(trace: &Path, pid: u32) -> Option<Child> {
    let mut command = interruptible();
    let record = "record --by trace -q --force -o";
    command.args(record.split(' ')).arg(trace);
    command.args(["--pid", &pid.to_string()]);
    let mut recorder = command.spawn().expect("it runs");
    let mut ended = None;
    // When it knows what is open its first thread polls the process.
    wait_until("it records", || {
        ended = recorder.try_wait().expect("ours");
        ended.is_some() || polls(recorder.id())
    });
    if ended.and_then(|status| status.code()) == Some(3) {
        println!("skipped: needs root and tracefs");
        return None;
    }
    assert_eq!(ended, None);
    Some(recorder)
}

/// That the recorder ended well and has left nothing.
fn is_over(status: ExitStatus, recorder: u32) {
    assert_eq!(status.code(), Some(0));
    assert_eq!(instances(recorder), [] as [PathBuf; 0]);
}

#[test]
fn a_process_that_runs_is_recorded_until_it_ends_or_we_have_enough() {
    let (dir, data) = scratch();
    let (first, second) = (dir.path().join("1.frt"), dir.path().join("2.frt"));
    needs!(has(&["python3", "--version"]));
    needs!(has(&["env", "--default-signal=INT", "true"]));
    let mut reader = reader(dir.path());
    let pid = reader.pid();
    does(&mut reader, "r 4321");
    // Until Ctrl-C: the process goes on.
    needs!(let mut recorder = begin(&first, pid));
    for what in ["r 1000", "t 500000", "r 50", "c 100"] {
        does(&mut reader, what);
    }
    signal(recorder.id(), "-INT");
    is_over(recorder.wait().expect("ends"), recorder.id());
    does(&mut reader, "r 60");
    // Until it ends.
    let mut recorder = begin(&second, pid).expect("as before");
    does(&mut reader, "r 70");
    assert_eq!(recorder.try_wait().expect("ours"), None);
    // It ends, and waits to be waited for.
    reader.close();
    is_over(recorder.wait().expect("ends"), recorder.id());
    assert_eq!(reader.ended(), 0);

    let of = |trace| {
        let steps = steps(trace, None).remove(text(&data));
        steps.expect("the file has its name")
    };
    let read = |offset, bytes| (Op::Read, offset, bytes);
    let all: Vec<Step> = of(&first);
    let own = [read(104_321, 1000), read(500_000, 777), read(105_321, 50)];
    assert_eq!(all[..3], own);
    // A sharer may have moved the position: it is known by the page only.
    let (op, offset, len) = all[3];
    let is_right = all.len() == 4 && op == Op::Read && offset <= 300_000 && offset % PAGE == 0;
    assert!(
        is_right && offset + len >= 300_100 && len <= 3 * PAGE,
        "{all:?}"
    );
    assert_eq!(of(&second), [read(105_431, 70)]);
}

/// Another foreread begins in a new PID namespace, where this one has no process id, and removes what dead ones
/// have left: what this one reads afterwards is recorded all the same. The other one cannot know the kernel's numbers of its
/// threads, so it refuses instead of recording nothing.
#[test]
fn a_recorder_in_another_pid_namespace_switches_nothing_off() {
    let (dir, data) = scratch();
    let (outer, inner) = (dir.path().join("1.frt"), dir.path().join("2.frt"));
    needs!(has(&["unshare", "--pid", "--fork", "--mount-proc", "true"]));
    let (us, of) = (BINARY, text(&data));
    let script = format!(
        "unshare --pid --fork --mount-proc '{us}' record --by trace -q -o '{}' -- true; [ $? = 3 ] || exit 9; \
         dd if='{of}' of=/dev/null bs=65536 status=none",
        text(&inner)
    );
    needs!(let got = record(&outer, &["-q", "--exit-code"], &["sh", "-c", &script]));
    says(got.assert_code(0), &["cannot record in a PID namespace"]);
    assert!(!inner.exists());
    let steps = steps(&outer, None).remove(of).unwrap_or_default();
    let read: u64 = steps.iter().map(|(_, _, bytes)| bytes).sum();
    assert!(read >= 1 << 20, "{read} bytes");
}

/// Another program switches the recording off: it is reported, with what is missing, and with --exit-code it is a failure.
#[test]
fn a_recording_that_was_switched_off_is_reported() {
    let (dir, data) = scratch();
    let trace = dir.path().join("t.frt");
    needs!(has(&["unshare", "-m", "true"]));
    let script = format!(
        "unshare -m sh -c 'mount -t tracefs t \"$0\" && for f in \"$0\"/instances/foreread-'$PPID'-*/tracing_on; do \
         echo 0 > $f; done' '{}' && cat '{}' > /dev/null",
        text(dir.path()),
        text(&data)
    );
    needs!(let got = record(&trace, &[], &["sh", "-c", &script]));
    let note = "note: another program switched the recording off before";
    says(got.assert_code(0), &[note]);
    let is_off = !steps(&trace, None).contains_key(text(&data));
    assert!(is_off, "nothing was switched off");
    let options = ["--exit-code", "--json", "-"];
    let got = record(&trace, &options, &["sh", "-c", &script]).expect("as before");
    let words = ["tracing_on is 0", "no other program uses tracefs"];
    says(got.assert_code(1), &words);
    let json = got.json();
    let off = json["switched_off"].as_str();
    assert!(
        off.is_some_and(|text| text.contains("are missing")),
        "{json}"
    );
}

/// A container has tracefs read-only, and may mount none: the program is sampled, as where there is none.
#[test]
fn without_a_writable_tracefs_it_samples() {
    let without = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    let (dir, data) = scratch();
    needs!(tracefs().is_some() && has(&["unshare", "-m", "true"]));
    needs!(has(&[&["setpriv"], &without[..], &["true"]].concat()));
    let (us, of, out) = (BINARY, text(&data), dir.path().join("1.frt"));
    let script = format!(
        "for at in /sys/kernel/tracing /sys/kernel/debug/tracing; do \
         ! [ -d $at/instances ] || {{ mount --bind $at $at && mount -o remount,bind,ro $at; }} || exit 9; done; \
         exec setpriv {} '{us}' record --json - -o '{}' -- dd if='{of}' of=/dev/null bs=65536 status=none",
        without.join(" "),
        text(&out)
    );
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output();
    let got = Got::from(&done.expect("unshare starts"));
    got.assert_code(0);
    let summary = got.json();
    assert_eq!(summary["by"], "sample", "{summary}");
}

/// How many bytes of `data` a trace has as read or touched, each of them once.
fn seen_bytes(trace: &Path) -> u64 {
    let all = ranges(steps(trace, None)).into_iter();
    let of_file = all.filter(|(name, _)| name.ends_with("/data"));
    let ranges = of_file.flat_map(|(_, ranges)| ranges);
    ranges.map(|(start, end)| end - start).sum()
}

/// A mapping that the kernel fills by itself: no exception says which page it is about.
#[test]
fn a_mapping_that_is_filled_is_in_the_trace() {
    needs!(has(&["python3", "-V"]));
    let (dir, data) = scratch();
    let trace = dir.path().join("t.frt");
    let script = r#"
import ctypes, os, sys
how, path = sys.argv[1:]
c, size, fd = ctypes.CDLL(None), os.path.getsize(path), os.open(path, os.O_RDONLY)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = c.mmap(None, size, 1, 0x8001 if how == 'populate' else 1, fd, 0)
if how == 'advise':
    assert c.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 22) == 0
if how == 'lock':
    assert c.mlock(ctypes.c_void_p(at), ctypes.c_size_t(size)) == 0
if how == 'touch':
    [ctypes.string_at(at + n, 1) for n in range(0, size, 4096)]
"#;
    for how in ["touch", "populate", "advise", "lock"] {
        let words = [&python(script)[..], &[how, text(&data)]].concat();
        forget(&data);
        // The second time it is cached.
        for time in 0..2 {
            needs!(let got = record(&trace, &[], &words));
            got.assert_code(0);
            assert_eq!(seen_bytes(&trace), 1 << 20, "{how} {time}");
        }
    }
}

/// The kernel hands some io_uring reads to its own threads, which belong to no program.
#[test]
fn reads_of_workers_of_io_uring_are_in_the_trace() {
    needs!(has(&["fio", "--version"]));
    let (dir, data) = scratch();
    let trace = dir.path().join("t.frt");
    let file = format!("--filename={}", text(&data));
    let fixed =
        "fio --name=x --rw=read --bs=64k --iodepth=8 --size=1m --invalidate=0 --ioengine=io_uring";
    for worker in ["--force_async=1", "--sqthread_poll=1"] {
        let words = Vec::from_iter(fixed.split(' ').chain([file.as_str(), worker]));
        forget(&data);
        needs!(let got = record(&trace, &[], &words));
        let said = got.assert_code(0);
        assert_eq!(seen_bytes(&trace), 1 << 20, "{words:?}: {said}");
    }
}

// ---- a program that only reads names and dates of files ----

/// Bytes of the device that the trace has as the file system's own.
fn metadata_bytes(trace: &Path, device: &str) -> u64 {
    let (mut names, mut bytes) = (Vec::new(), 0);
    for item in items(trace, None) {
        match item {
            Item::File(file) => names.push(file.name),
            Item::Record(r) if r.flags.has(Flags::METADATA) => {
                assert!(r.flags.has(Flags::AHEAD) && r.end_ns >= r.start_ns, "{r:?}");
                let is_ours = names[r.file as usize] == device;
                bytes += if is_ours { r.len } else { 0 };
            }
            Item::Record(_) => {}
        }
    }
    bytes
}

fn number(got: &Got, key: &str) -> u64 {
    let json = got.json();
    let number = json[key].as_u64();
    number.unwrap_or_else(|| panic!("{key}: {json}"))
}

#[test]
fn names_and_dates_are_brought_in() {
    needs!(let disk = slow_disk(false));
    let dir = folder();
    let [trace, plan] = ["a.frt", "a.plan"].map(|name| dir.path().join(name));
    let mount = disk.mount();
    let look = ["find", text(&mount), "-size", "+1"];
    disk.remount();
    needs!(let _ = record(&trace, &[], &look));
    let recorded = metadata_bytes(&trace, disk.node());
    // 300 inodes of 256 bytes, and their folder.
    assert!(recorded > 300 * 256, "{recorded} bytes");
    foreread(["plan", "-o", text(&plan), text(&trace)]).is_done();
    let planned = fs::read_to_string(&plan).expect("a plan");
    let line = format!("f {} - {}\n", 96 << 20, disk.node());
    says(&planned, &[&line]);

    disk.remount();
    let replay = ["replay", text(&plan), "--json", "-"];
    let fetched = number(&foreread(replay), "fetched_bytes");
    assert!(fetched >= 300 * 256, "{fetched} of {recorded} bytes");
    // What is there is not read again, by the file system either.
    assert_eq!(number(&foreread(replay), "fetched_bytes"), 0);
    needs!(let _ = record(&trace, &[], &look));
    assert_eq!(metadata_bytes(&trace, disk.node()), 0);

    // A device that has no file system any more is left alone.
    assert!(runs(&["umount", text(&mount)]).is_some());
    let got = foreread(["replay", text(&plan)]);
    let no_disk = "it is not a block device with a mounted file system";
    says(&got.err, &[no_disk]);
}

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
        says(error, &["foreread: not root", "strace -f"]);
    }
}
