//! Records a real program that makes every call of [`ENTRIES`]: the trace must match what the program did, and without
//! the events of any one call it must not.
//!
//! The test needs root, tracefs and python3; otherwise it is skipped. Every row of the list is needed by a step of the program.

use super::active::{RecordOptions, start};
use super::{Capture, Target};
use crate::touch::place_of;
use foreread_core::event::Advice;
use foreread_trace::follow::LearnedFiles;
use foreread_trace::follow::call::ENTRIES;
use foreread_trace::formats::step::Step;
use foreread_trace::{FileInfo, Item, LeftOut, Op};
use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// File, what, offset, bytes that came (of a hint its length).
type FileAccess = (&'static str, Op, u64, u64);

/// What a kernel does not have (`open` and `dup2` on arm64) is done by what it has instead.
const PROGRAM: &str = r#"
import ctypes, fcntl, os, sys, threading
os.chdir(sys.argv[1])
c = ctypes.CDLL(None, use_errno=True)
def ok(got):
    assert got >= 0, os.strerror(ctypes.get_errno())
    return got
def call(*arguments):
    return ok(c.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]))
def pipe_at(a, b):
    assert os.pipe() == (a, b)
room = ctypes.create_string_buffer(4096)
class Vector(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
both = (Vector * 2)(Vector(ctypes.addressof(room), 100), Vector(ctypes.addressof(room), 28))
at = ctypes.c_long

fd = call(2, b'data', 0) if os.uname().machine == 'x86_64' else os.open('data', 0)
os.read(fd, 100)
os.lseek(fd, 5000, 0)
os.read(fd, 10)
os.read(ok(c.dup(fd)), 11)
os.read(ok(c.dup2(fd, 60)), 12)
os.read(ok(c.dup3(fd, 61, 0)), 13)
os.read(fcntl.fcntl(fd, fcntl.F_DUPFD, 70), 14)

a = os.open('data', 0)
b = call(437, -100, b'data', bytes(24), 24)
os.read(a, 15), os.read(b, 16)
os.close(a), os.close(b)
pipe_at(a, b)
os.write(b, bytes(77)), os.read(a, 77)
a, b = os.open('data', 0), os.open('data', 0)
os.read(a, 17), os.read(b, 18)
call(436, a, b, 0)
pipe_at(a, b)
os.write(b, bytes(78)), os.read(a, 78)

x, y = os.open('data', 0), os.open('data', 0)
os.lseek(x, 300000, 0), os.lseek(y, 20480, 0)
def apart():
    ok(c.unshare(0x400))
    ok(c.dup3(x, y, 0))
thread = threading.Thread(target=apart)
thread.start(), thread.join()
os.read(y, 19)

os.pread(x, 20, 77777)
os.readv(x, [bytearray(100), bytearray(28)])
ok(c.preadv(x, both, 2, at(500000)))
ok(c.preadv2(x, both, 2, at(-1), 0))
o = os.open('out', os.O_RDWR)
os.read(o, 100)
os.write(o, bytes(50))
os.pwrite(o, bytes(51), 4000)
os.writev(o, [bytes(30), bytes(22)])
ok(c.pwritev(o, both, 2, at(5000)))
ok(c.pwritev2(o, both, 2, at(-1), 0))
os.sendfile(o, x, None, 2000)
os.copy_file_range(x, o, 3000)
os.write(o, bytes(53))
ok(c.splice(x, None, b, None, 1000, 0))
os.posix_fadvise(x, 4096, 8192, os.POSIX_FADV_SEQUENTIAL)
ok(c.readahead(x, at(65536), 16384))

c.mmap.restype = c.mremap.restype = ctypes.c_void_p
def mapped(address, len, flags, fd, offset):
    got = c.mmap(ctypes.c_void_p(address), at(len), 1, flags, fd, at(offset))
    assert got != at(-1).value % 2**64 and (not address or got == address)
    return got
def advise(address, len, advice):
    ok(c.madvise(ctypes.c_void_p(address), at(len), advice))
K = 1024
m = mapped(0, 64 * K, 1, x, 128 * K)
advise(m + 4096, 8192, 1)
advise(m, 4096, 4)
ok(c.munmap(ctypes.c_void_p(m + 16 * K), at(8 * K)))
mapped(m + 16 * K, 8 * K, 0x22, -1, 0)
advise(m + 12 * K, 16 * K, 2)
mapped(m + 48 * K, 16 * K, 0x32, -1, 0)
advise(m + 48 * K, 16 * K, 1)
there = mapped(0, 256 * K, 0x22, -1, 0)
assert c.mremap(ctypes.c_void_p(m + 32 * K), at(16 * K), at(32 * K), 3, ctypes.c_void_p(there)) == there
advise(there + 20 * K, 4096, 3)
p = mapped(0, 256 * K, 1, os.open('map', 0), 0)
advise(p, 256 * K, 1)
assert ctypes.string_at(p + 37 * 4096 + 5, 1)[0] == 9

e, g = os.open('data', 0), os.open('data', 0)
os.read(e, 21), os.read(g, 22)
fcntl.ioctl(e, 0x5450)
fcntl.fcntl(g, fcntl.F_SETFD, 0)
os.execv(sys.executable, [sys.executable, '-S', '-c', f'import os; os.read({e}, 23); os.read({g}, 24)'])
"#;

fn what_it_did() -> Vec<FileAccess> {
    let read = |offset, bytes| ("data", Op::Read, offset, bytes);
    let hint = |advice, offset, bytes| ("data", Op::Hint(advice), offset, bytes);
    let write = |offset, bytes| ("out", Op::Write, offset, bytes);
    vec![
        read(0, 100),
        read(5000, 10),
        read(5010, 11),
        read(5021, 12),
        read(5033, 13),
        read(5046, 14),
        read(0, 15),
        read(0, 16),
        read(0, 17),
        read(0, 18),
        read(20_480, 19),
        read(77_777, 20),
        read(300_000, 128),
        read(500_000, 128),
        read(300_128, 128),
        ("out", Op::Read, 0, 100),
        write(100, 50),
        write(4000, 51),
        write(150, 52),
        write(5000, 128),
        write(202, 128),
        read(300_256, 2000),
        read(302_256, 3000),
        write(5330, 53),
        read(305_256, 1000),
        hint(Advice::Sequential, 4096, 8192),
        hint(Advice::WillNeed, 65_536, 16_384),
        // Of a mapping; around what was cut out of it; nothing of memory that is there now; where it was moved to.
        hint(Advice::Random, 132 << 10, 8192),
        hint(Advice::Sequential, 140 << 10, 4096),
        hint(Advice::Sequential, 152 << 10, 4096),
        hint(Advice::WillNeed, 180 << 10, 4096),
        // A file that is only touched, and known by that.
        ("map", Op::Hint(Advice::Random), 0, 256 << 10),
        ("map", Op::Fault, 37 * 4096, 4096),
        read(0, 21),
        read(0, 22),
        read(21, 23),
        read(22, 24),
    ]
}

/// Follows what was captured, twice; gives what was done to the three files.
fn done(captured: &Capture, folder: &Path) -> Vec<FileAccess> {
    let files =
        ["data", "out", "map"].map(|name| (place_of(&folder.join(name)).expect("a file").0, name));
    let names = || -> super::Names {
        Box::new(move |place| {
            let known = files.iter().find(|(one, _)| *one == place);
            FileInfo::new(
                known.map_or(String::new(), |(_, name)| (*name).to_string()),
                None,
            )
        })
    };
    let follow = |learned: LearnedFiles| {
        let mut steps = captured
            .steps(learned, names(), LeftOut::default(), folder)
            .expect("few");
        let mut out = VecDeque::new();
        while steps.step(&mut out).expect("they are there") {}
        (out, steps.follow.learned().files)
    };
    let (_, learned) = follow(LearnedFiles::new());
    let (mut named, mut all) = (Vec::new(), Vec::new());
    for item in follow(learned).0 {
        match item {
            Item::File(file) => named.push(
                files
                    .iter()
                    .find(|(_, name)| *name == file.name)
                    .map(|(_, name)| *name),
            ),
            Item::Record(r) => {
                let name = named[r.file as usize];
                // How much more than the page a fault maps depends on where the mapping is.
                let len = if r.op == Op::Fault {
                    r.len.min(4096)
                } else {
                    r.returned.unwrap_or(r.len)
                };
                all.extend(name.map(|name| (name, r.op, r.offset, len)));
            }
        }
    }
    all
}

#[test]
fn every_call_of_the_list_is_recorded_and_needed() {
    let _turn = crate::tracefs::TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|done| done.status.success())
    {
        return println!("skipped: needs python3");
    }
    // Its events count pages of the kernel below, and its python3 makes the calls of that machine.
    if std::env::var_os("FOREREAD_EMULATED").is_some() {
        return println!("skipped: needs a kernel of this machine (FOREREAD_EMULATED is set)");
    }
    // Beside the test itself, which is on a disk.
    let beside = std::env::current_exe().expect("it runs");
    let scratch =
        tempfile::tempdir_in(beside.parent().expect("a folder")).expect("a scratch directory");
    let folder = scratch.path();
    std::fs::write(folder.join("data"), vec![7; 1 << 20]).expect("room");
    std::fs::write(folder.join("out"), vec![8; 1 << 16]).expect("room");
    std::fs::write(folder.join("map"), vec![9; 1 << 18]).expect("room");
    let words = [
        "python3",
        "-S",
        "-c",
        PROGRAM,
        folder.to_str().expect("UTF-8"),
    ]
    .map(std::ffi::OsString::from);
    let target = Target::Command(words.to_vec());
    let asked = RecordOptions {
        target,
        buffer_bytes: 16 << 20,
        folder: folder.to_path_buf(),
    };
    let mut running = match start(&asked) {
        Ok(running) => running,
        Err(error) if crate::tracefs::root().is_err() => {
            return println!("skipped: needs root and tracefs ({error})");
        }
        Err(error) => panic!("{error}"),
    };
    let status = running.wait(&AtomicBool::new(false)).expect("it ends");
    let mut captured = running.finish().expect("room");
    assert!(
        status.is_some_and(|status| status.success())
            && captured.lost == crate::tracefs::Stats::default()
    );
    let want = what_it_did();
    assert_eq!(done(&captured, folder), want);

    let root = crate::tracefs::root().expect("as before");
    let mut left_out = 0;
    for entry in ENTRIES {
        for side in ["enter", "exit"]
            .into_iter()
            .take(1 + usize::from(entry.exit))
        {
            let event = format!("events/syscalls/sys_{side}_{}/id", entry.name);
            let Ok(id) = std::fs::read_to_string(root.path().join(&event)) else {
                continue;
            };
            let id: usize = id.trim().parse().expect("a number");
            let decoder = Arc::get_mut(&mut captured.decoder).expect("the only owner");
            let known = decoder.known[id].take();
            assert!(known.is_some(), "{event} is not recorded");
            assert_ne!(
                done(&captured, folder),
                want,
                "without {event} the trace is the same"
            );
            Arc::get_mut(&mut captured.decoder)
                .expect("the only owner")
                .known[id] = known;
            left_out += 1;
        }
    }
    assert!(left_out > ENTRIES.len(), "{left_out} events");
    assert_eq!(done(&captured, folder), want, "nothing of it is kept");
}
