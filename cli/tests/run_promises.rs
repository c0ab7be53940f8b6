//! Tests what `foreread run` promises to a program: a stopped one goes on, and no file that it deleted or closed is held.
//!
//! The run only observes the program from outside. Without setpriv or the tools for a slow disk the tests are skipped.

use crate::common::{
    BINARY, Program, SlowDisk, children, eventually, foreread, has, needs, signal, slow_disk, text,
    unprivileged, wait_until,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A slow disk that may be written to, so that the run opens a file of it for itself and reads ahead.
fn disk() -> Option<SlowDisk> {
    has(&["setpriv", "--version"])
        .then(|| slow_disk(true))
        .flatten()
}

/// A program without privileges that reads the file of its argument, and the run.
fn by_sample(program: &str, file: &Path) -> Command {
    let run = [BINARY, "run", "--by", "sample", "--quiet", "--"];
    let program = ["python3", "-c", program, text(file)];
    unprivileged([&run[..], &program].concat())
}

/// The only child of a process, once it is in this state.
fn child_in(pid: u32, state: &str) -> Option<u32> {
    let child = children(pid).into_iter().next()?;
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
    let (_, now) = stat.rsplit_once(')')?;
    now.trim().starts_with(state).then_some(child)
}

#[test]
fn a_program_that_is_stopped_goes_on_at_the_signal() {
    needs!(let disk = disk());
    let stops = "import os, signal, sys
for _ in range(2):
    with open(sys.argv[1], 'rb') as file: file.read(1 << 20)
    if not _: os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(7)";
    let mut run = Program::start(&mut by_sample(stops, &disk.mount().join("big")));
    let program = eventually("it stops", || child_in(run.pid(), "T"));
    assert!(run.is_running());
    signal(program, "-CONT");
    assert_eq!(run.ended(), 7);
}

/// A file that the program deletes while it runs is closed by the run as well, so that its bytes are given back.
#[test]
fn a_deleted_file_is_not_kept() {
    needs!(let disk = disk());
    // It deletes the file, and waits for the end of its input with the file closed.
    let deletes = "import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(50):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for at in range(0, 1 << 20, 65536): os.pread(file, 65536, at)
os.unlink(sys.argv[1])
os.close(file)
print('deleted', flush=True)
sys.stdin.read()";
    let mut run = Program::start(&mut by_sample(deletes, &disk.mount().join("big")));
    run.hears("deleted");
    let is_it = |link: &Path| link.to_string_lossy().ends_with("/big (deleted)");
    wait_until("the run lets go of it", || !holds(run.pid(), is_it));
    assert_eq!(run.ended(), 0);
}

/// Whether a process has such a file open.
fn holds(pid: u32, is_it: impl Fn(&Path) -> bool) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut links = links.into_iter().flatten().flatten();
    links.any(|link| fs::read_link(link.path()).is_ok_and(|to| is_it(&to)))
}

/// The run holds no file of the program once that has closed it: its write leases are given, and its file system can be unmounted.
#[test]
fn a_file_that_was_closed_is_not_held() {
    needs!(let disk = disk());
    let closes = "import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
while os.read(file, 65536): pass
os.close(file)
print('closed', flush=True)
sys.stdin.readline()
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, 1024, 1)
os.close(file)
print('leased', flush=True)
sys.stdin.readline()";
    let mount = disk.mount();
    for by in ["trace", "sample"] {
        // So that its pages are read from the disk.
        disk.remount();
        let file = mount.join("big");
        let mut command = Command::new(BINARY);
        command.args(["run", "--by", by, "--quiet", "--", "python3", "-c", closes]);
        let mut run = Program::start(command.arg(&file).stderr(Stdio::null()));
        if run.line() != "closed" {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let is_there = |to: &Path| to.starts_with(&mount);
        wait_until("it holds nothing", || !holds(run.pid(), is_there));
        run.tell("");
        assert_eq!(run.line(), "leased", "{by}: its write lease was refused");
        // Not busy for the program, which works elsewhere.
        disk.remount();
        assert_eq!(run.ended(), 0);
    }
}

/// A file system of FUSE drops what is cached of a file when it is opened, so what the run reads ahead would be gone, and what it opens would drop
/// what the program has read: nothing is read ahead.
#[test]
fn nothing_is_read_ahead_where_an_open_drops_it() {
    needs!(let disk = slow_disk(false));
    let input = format!("if={}", text(&disk.as_file()));
    for by in ["trace", "sample"] {
        let run = ["run", "--quiet", "--json", "-", "--by", by, "--"];
        let got = foreread([&run[..], &["dd", &input, "of=/dev/null", "bs=4k"]].concat());
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let json = got.json();
        assert_eq!(json["schema"], "foreread.run/1");
        let done = ["exit_code", "ahead_bytes"].map(|key| json[key].as_u64());
        assert_eq!(done, [Some(0); 2], "{by}: {json:#}");
    }
}
