//! Tests of files read with io_uring: if it is forbidden, if it fails in the middle, at its limits, and dropped with
//! transfers in flight.
//!
//! If the kernel has to fail, the test runs itself again under strace, which makes the system call fail. Properties of
//! every source are tested in `conformance.rs`, and of every way to read a file in `files.rs` and `bytes.rs`.

use crate::common::{
    Rng, by, check_memory, file_of, in_threads, only, opened, quiet, read_and_check, this_test,
};
use foreread::source::{FileSource, Io, Source};
use foreread::{Advice, Options, Reader};
use foreread_testing::{needs, rows};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::NamedTempFile;

const SIZE: u64 = 24 << 20;
/// Set in the run under strace: which file is read.
const FILE: &str = "FOREREAD_TEST_FILE";

fn file() -> NamedTempFile {
    let file = file_of(SIZE as usize, 0);
    file.as_file().sync_all().expect("written");
    file
}

/// True when a file can be read by a ring here. Says why not.
fn have_ring(path: &Path) -> bool {
    let source = FileSource::open(path).expect("opens");
    let said = source.describe();
    let have = said.ends_with("direct, io_uring");
    if !have {
        println!("skipped: needs direct I/O and a kernel that allows io_uring: {said}");
    }
    have
}

/// Several readers in order and here and there, with readahead; every byte is checked. Returns what the source says of itself.
fn read_all(path: &Path, threads: u32) -> String {
    let name = format!("file:{}", path.display());
    let options = by("linux-6.18:max=2M", 8 << 20).threads(threads);
    let reader = Reader::open(name, options).expect("opens");
    in_threads(3, |thread| {
        let own = reader.try_clone().expect("opens");
        let (mut rng, mut buf) = (Rng(thread), vec![0; 128 << 10]);
        for i in 0..100 {
            let at = match thread {
                0 => rng.below(SIZE - (1 << 20)),
                _ => ((thread * 8) << 20) + (i << 16),
            };
            assert_eq!(read_and_check(&own, &mut buf, at, 0), buf.len());
        }
    });
    check_memory(&quiet(&reader), 4096);
    let stats = reader.stats();
    assert_eq!((stats.failed_reads, stats.failed_fetches), (0, 0));
    let (said, meter) = (reader.describe(), reader.engine().meter());
    drop(reader);
    assert_eq!(meter.held_bytes(), 0);
    said
}

/// Runs one test of this file again for each row, under strace with a system call tampered with: what is injected, and how the source
/// describes itself then.
fn each_again(test: &str, table: &str) {
    if inner().is_some() {
        return;
    }
    let file = file();
    needs!(have_ring(file.path()));
    for [inject, end] in rows(table) {
        needs!(let output = again_with(test, &format!("inject={inject}"), file.path()));
        let want = format!("file:{}, direct, {end}", file.path().display());
        assert_eq!(said(&output), want, "{inject}");
    }
}

/// Runs one test of this file again, under strace with a system call tampered with.
fn again_with(test: &str, inject: &str, path: &Path) -> Option<Output> {
    let itself = std::env::current_exe().expect("this test");
    let mut strace = Command::new("strace");
    let words = "-f -qq -o /dev/null -e trace=io_uring_setup,io_uring_enter -e";
    strace.args(words.split(' ')).arg(inject).arg(itself);
    strace.args(only(test)).env(FILE, path);
    // A sanitizer cannot look for leaks in a traced process.
    strace.env("ASAN_OPTIONS", "detect_leaks=0");
    match strace.output() {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("PTRACE") => {
            println!("skipped: needs the right to trace (ptrace)");
            None
        }
        Ok(output) => Some(output),
        Err(_) => {
            println!("skipped: needs strace (Debian: apt-get install strace)");
            None
        }
    }
}

/// The run under strace, if this is one.
fn inner() -> Option<String> {
    let path = std::env::var_os(FILE)?;
    let said = read_all(Path::new(&path), 2);
    println!("\nsource: {said}");
    Some(said)
}

fn said(output: &Output) -> String {
    crate::common::passed(output);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let said = lines.find_map(|line| line.strip_prefix("source: "));
    said.expect("it says what it reads").to_string()
}

#[test]
fn forbidden_or_missing_it_falls_back_and_says_so() {
    each_again(
        this_test!(),
        "io_uring_setup:error=EPERM | threads (io_uring is forbidden: EPERM)
         io_uring_setup:error=ENOSYS | threads (io_uring is not supported by this kernel: ENOSYS)
         io_uring_setup:error=ENOMEM | threads (io_uring got too little locked memory: ENOMEM, raise ulimit -l)
         io_uring_enter:error=EPERM | threads (io_uring accepted no read)",
    );
}

/// It worked when it was tried and is refused later: what the kernel has not taken is read by threads, and no caller notices. Two are refused
/// for the moment: these are tried again.
#[test]
fn refused_in_the_middle() {
    each_again(
        this_test!(),
        "io_uring_enter:error=EPERM:when=3+ | io_uring
         io_uring_enter:error=EPERM:when=8+ | io_uring
         io_uring_enter:error=EBADF:when=20+ | io_uring
         io_uring_enter:error=EAGAIN:when=3+3 | io_uring
         io_uring_enter:error=EINTR:when=3+2 | io_uring",
    );
}

#[test]
fn as_asked() {
    let file = file();
    let name = format!("file:{}", file.path().display());
    let reader = Reader::open(name.as_str(), Options::default().io(Io::Threads)).expect("opens");
    let threads = format!("{name}, direct, threads (as requested)");
    assert_eq!(reader.describe(), threads);
    // A source that could, under options that forbid it.
    let source = Arc::new(FileSource::open(file.path()).expect("opens"));
    let reader = Reader::open(source, Options::default().io(Io::Threads)).expect("opens");
    read_and_check(&reader, &mut vec![0; 1 << 20], 0, 0);
}

/// Rings are counted; files beyond the last one are read by threads, and closing makes room.
#[test]
fn more_files_than_rings() {
    let file = file();
    needs!(have_ring(file.path()));
    let open = || FileSource::open(file.path()).expect("opens");
    let mut all: Vec<FileSource> = (0..70).map(|_| open()).collect();
    let why = "threads (all 64 io_uring instances that foreread may create are in use)";
    let beyond = all.iter().filter(|one| one.describe().ends_with(why));
    let beyond = beyond.count();
    assert!(beyond >= 6, "{beyond} of 70 beyond the limit");
    let last = opened(all.pop().expect("70"), Options::default());
    read_and_check(&last, &mut vec![0; 1 << 20], 100, 0);
    drop(all);
    assert!(open().describe().ends_with("io_uring"));
}

/// Descriptors of this process that are open on the file.
fn descriptors(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("a list");
    let all = all.flatten();
    let links = all.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|to| to == path).count()
}

/// Readers and sources that go with transfers under way: the memory and the descriptor stay until the last has ended, and no
/// longer.
#[test]
fn dropped_at_every_moment() {
    let file = file();
    needs!(have_ring(file.path()));
    let path = file.path().canonicalize().expect("it is there");
    let own = descriptors(&path);
    let mut busy = 0;
    for n in 0..200u64 {
        let source = Arc::new(FileSource::open(&path).expect("opens"));
        let options = Options::default().policy("linux-6.18:max=4M");
        let options = options.threads((n % 3) as u32);
        let reader = Reader::open(Arc::clone(&source), options).expect("opens");
        let mut buf = vec![0; 4096];
        (0..n % 8).for_each(|i| drop(reader.read_at(&mut buf, i << 12)));
        reader.advise(Advice::WillNeed, 0..8 << 20).expect("taken");
        busy += u64::from(reader.engine().gauges().running_fetches > 0);
        let meter = reader.engine().meter();
        if n % 2 == 0 {
            drop(source);
            drop(reader);
        } else {
            drop(reader);
            drop(source);
        }
        assert_eq!((meter.held_bytes(), descriptors(&path)), (0, own));
    }
    assert!(busy > 100, "{busy} of 200 times something was under way");
}

/// The kernel cancels what a thread leaves behind when it ends; the bytes come all the same.
#[test]
fn threads_that_end_leave_nothing_undone() {
    let file = file();
    needs!(have_ring(file.path()));
    let name = format!("file:{}", file.path().display());
    for threads in [0, 2] {
        let options = by("linux-6.18:max=2M", 64 << 20).threads(threads);
        let reader = Reader::open(name.as_str(), options).expect("opens");
        let mut buf = vec![0; 128 << 10];
        for i in 0..SIZE >> 17 {
            let read = || reader.read_at(&mut [0; 4096], i << 17).expect("reads");
            let read = std::thread::scope(|scope| scope.spawn(read).join());
            assert_eq!(read.expect("no panic"), 4096);
            assert_eq!(read_and_check(&reader, &mut buf, i << 17, 0), buf.len());
        }
        let (stats, missed) = (reader.stats(), quiet(&reader).missed_calls);
        let failed = (stats.failed_reads, stats.failed_fetches);
        assert_eq!((failed, missed), ((0, 0), 0));
    }
}

/// A task's read has ended and its reader closes while the thread that reaps for tasks looks in the queue: the source is
/// dropped without the engine's lock, which a debug build looks after, and the engine opens the next file.
#[test]
fn a_reader_of_tasks_closes_while_its_queue_is_reaped() {
    let file = file();
    needs!(have_ring(file.path()));
    let options = by("linux-6.18:max=2M", SIZE);
    let engine = foreread::Engine::new(options).expect("made");
    let mut buf = vec![0; 128 << 10];
    for turn in 0..400 {
        let reader = engine.open(file.path()).expect("the engine goes on");
        for read in 0..turn % 8 {
            let got = pollster::block_on(reader.read_at_async(&mut buf, read << 17));
            assert_eq!(got, Ok(buf.len()));
        }
        drop(reader);
    }
    assert_eq!(engine.gauges().files, 0);
}
