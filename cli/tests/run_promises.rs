//! Tests what `foreread run --by sample` promises to a program: nothing changes for it. Locks, descriptors, deleted
//! files, small stacks, seccomp, forks, exec, stops and exits behave as without it.
//!
//! Each program checks itself, and exits with 7 if everything is correct. Without a C compiler, setpriv or the tools
//! for a slow disk the tests are skipped.

use crate::common::{Running, SlowDisk, eventually, needs, signal, unprivileged};
use assert_cmd::cargo::cargo_bin;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static char buffer[1 << 16];
static const char *path;
static void reads(int file) {
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    for (off_t at = 0; pread(file, buffer, sizeof buffer, at) > 0; at += sizeof buffer);
}
static void *in_a_small_stack(void *unused) {
    char small[4096];
    int file = open(path, O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    while (read(file, small, sizeof small) > 0);
    close(file);
    return unused;
}
static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}
int main(int argc, char **argv) {
    const char *what = argv[1];
    path = argv[2];
    syscall(SYS_close_range, 3, ~0U, 0);
    int before = descriptors(), file = open(path, O_RDWR);
    if (file < 0) return 1;
    if (!strcmp(what, "locks")) {
        struct flock lock = { .l_type = F_WRLCK };
        if (fcntl(file, F_SETLK, &lock)) return 2;
        for (int i = 0; i < 50; i++) reads(file);
        if (!fork()) {
            struct flock other = { .l_type = F_WRLCK };
            fcntl(file, F_GETLK, &other);
            _exit(other.l_type == F_WRLCK ? 0 : 1);
        }
        int status;
        wait(&status);
        return status ? 3 : 7;
    }
    if (!strcmp(what, "descriptors")) {
        for (int i = 0; i < 20; i++) reads(file);
        if (descriptors() != before + 1) return 2;
        syscall(SYS_close_range, 3, ~0U, 0);
        if (descriptors() != before) return 3;
        file = open(path, O_RDONLY);
        reads(file);
        return descriptors() == before + 1 ? 7 : 4;
    }
    if (!strcmp(what, "deleted")) {
        reads(file);
        unlink(path);
        struct stat about;
        return !fstat(file, &about) && about.st_nlink == 0 ? 7 : 2;
    }
    if (!strcmp(what, "stacks")) {
        pthread_attr_t small;
        pthread_attr_init(&small);
        if (pthread_attr_setstacksize(&small, 16384)) return 2;
        for (int i = 0; i < 20; i++) {
            pthread_t thread;
            if (pthread_create(&thread, &small, in_a_small_stack, 0)) return 3;
            pthread_join(thread, 0);
        }
        return 7;
    }
    if (!strcmp(what, "seccomp")) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        /* It may read, write and end. */
        getppid();
        return 1;
    }
    if (!strcmp(what, "strict")) {
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        while (syscall(SYS_read, file, buffer, sizeof buffer) > 0);
        syscall(SYS_exit, 7);
    }
    if (!strcmp(what, "vfork")) {
        for (int i = 0; i < 500; i++) {
            int status, child = vfork();
            if (!child) _exit(5);
            if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5) return 2;
        }
        return 7;
    }
    if (!strcmp(what, "forks")) {
        for (int i = 0; i < 2000; i++) {
            int status, child = fork();
            if (!child) {
                pread(file, buffer, 4096, i * 4096 % 1048576);
                _exit(5);
            }
            if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5) return 2;
        }
        return 7;
    }
    if (!strcmp(what, "exec")) {
        reads(file);
        execl(argv[0], argv[0], "descriptors", path, (char *)0);
        return 2;
    }
    if (!strcmp(what, "stops")) {
        reads(file);
        raise(SIGSTOP);
        reads(file);
        return 7;
    }
    if (!strcmp(what, "dies")) {
        reads(file);
        raise(SIGKILL);
    }
    return 1;
}
"#;

/// A command without privileges: with the run, or alone.
fn by(with: bool, words: impl IntoIterator<Item = OsString>) -> Command {
    let run = [cargo_bin("foreread").into()].into_iter();
    let run = run.chain(["run", "--by", "sample", "--quiet", "--"].map(OsString::from));
    unprivileged(run.filter(|_| with).chain(words))
}

/// The program, and a file of 1 MiB that it reads: on a slow disk, so that the run opens it for itself and reads ahead.
struct Promises {
    dir: tempfile::TempDir,
    disk: SlowDisk,
}

impl Promises {
    fn new() -> Option<Promises> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        fs::write(dir.path().join("program.c"), PROGRAM).expect("room");
        let mut compiler = Command::new("cc");
        let compiled = compiler
            .args(["-w", "-pthread", "-o"])
            .arg(dir.path().join("program"))
            .arg(dir.path().join("program.c"))
            .status();
        let can_drop = Command::new("setpriv").arg("--version").output().is_ok();
        if !(compiled.is_ok_and(|status| status.success()) && can_drop) {
            println!("skipped: needs cc and setpriv");
            return None;
        }
        let disk = SlowDisk::writable()?;
        Some(Promises { dir, disk })
    }

    fn file(&self) -> PathBuf {
        let path = self.disk.mount().join("file");
        if !path.exists() {
            let mut file = fs::File::create(&path).expect("it can be made");
            file.write_all(&vec![3; 1 << 20]).expect("room");
            // What is dirty is not dropped from the page cache.
            file.sync_all().expect("written");
        }
        path
    }

    /// With it, or alone.
    fn command(&self, what: &str, with: bool) -> Command {
        let program = self.dir.path().join("program").into_os_string();
        by(with, [program, what.into(), self.file().into()])
    }

    fn ends(&self, what: &str, with: bool) -> Output {
        self.command(what, with).output().expect("it starts")
    }
}

#[test]
fn a_program_finds_itself_as_without_the_run() {
    needs!(let promises = Promises::new());
    for what in [
        "locks",
        "descriptors",
        "deleted",
        "stacks",
        "strict",
        "vfork",
        "forks",
        "exec",
    ] {
        for with in [false, true] {
            let done = promises.ends(what, with);
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(7), "{what} {with}: {said}");
        }
    }
}

#[test]
fn a_program_that_is_killed_ends_the_run() {
    needs!(let promises = Promises::new());
    let killed = Some(128 + 9);
    assert_eq!(promises.ends("dies", true).status.code(), killed);
    // What it must not call ends it.
    assert_eq!(promises.ends("seccomp", true).status.code(), killed);
}

/// The only child of a process, once it is in this state.
fn child_in(pid: u32, state: &str) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let child: u32 = children.split_whitespace().next()?.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .trim()
        .starts_with(state)
        .then_some(child)
}

#[test]
fn a_program_that_is_stopped_goes_on_at_the_signal() {
    needs!(let promises = Promises::new());
    let mut command = promises.command("stops", true);
    let mut run = Running(command.stderr(Stdio::null()).spawn().expect("it starts"));
    let program = eventually("it stops", || child_in(run.0.id(), "T"));
    assert_eq!(run.0.try_wait().expect("its state"), None);
    signal(program, "-CONT");
    assert_eq!(run.0.wait().expect("it ends").code(), Some(7));
}

/// Two writers of one database: while the first is inside of its transaction and reads, the second is refused. Any close of the file in the
/// program would drop the first one's locks.
#[test]
fn the_locks_of_sqlite_hold() {
    needs!(let promises = Promises::new());
    let script = "import os, sqlite3, subprocess, sys
path = sys.argv[1] + '.db'
if len(sys.argv) > 2:
    try: sqlite3.connect(path, timeout=0, isolation_level=None).execute('begin immediate')
    except sqlite3.OperationalError: sys.exit(5)
    sys.exit(6)
base = sqlite3.connect(path, isolation_level=None)
base.execute('create table if not exists rows(text)')
if not base.execute('select count(*) from rows').fetchone()[0]:
    base.execute('begin')
    base.executemany('insert into rows values(?)', [('x' * 1000,)] * 3000)
    base.execute('commit')
base.close()
file = os.open(path, os.O_RDONLY)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
os.close(file)
base = sqlite3.connect(path, isolation_level=None)
base.execute('begin immediate')
assert base.execute('select sum(length(text)) from rows').fetchone() == (3000000,)
sys.exit(7 if subprocess.run([sys.executable, *sys.orig_argv[1:], 'second']).returncode == 5 else 8)";
    for with in [false, true] {
        let words = ["python3", "-c", script].map(OsString::from).into_iter();
        let done = by(with, words.chain([promises.file().into()]))
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(7), "{with}: {said}");
    }
}

/// A file that the program deletes while it runs is closed by the run as well, so that its bytes are given back.
#[test]
fn a_deleted_file_is_not_kept() {
    needs!(let promises = Promises::new());
    // It deletes the file, and waits for the end of its input with the file closed.
    let script = "import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(50):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for at in range(0, 1 << 20, 65536): os.pread(file, 65536, at)
os.unlink(sys.argv[1])
os.close(file)
print('deleted', flush=True)
sys.stdin.read()";
    let words = ["python3", "-c", script].map(OsString::from).into_iter();
    let mut command = by(true, words.chain([promises.file().into()]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = Running(command.spawn().expect("it starts"));
    let said = run.0.stdout.take().expect("a pipe");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line).expect("a line");
    assert_eq!(line, "deleted\n");
    eventually("the run lets go of it", || {
        (!has_deleted(run.0.id())).then_some(())
    });
    drop(run.0.stdin.take());
    assert_eq!(run.0.wait().expect("it ends").code(), Some(0));
}

/// Whether a process has a file open that was deleted.
fn has_deleted(pid: u32) -> bool {
    let folder = Path::new("/proc").join(pid.to_string()).join("fd");
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    links
        .filter_map(|link| fs::read_link(link.path()).ok())
        .any(|link| link.to_string_lossy().ends_with("/file (deleted)"))
}

/// The run holds no file of the program once that has closed it: its write leases are given, and its file system can be unmounted.
#[test]
fn a_file_that_was_closed_is_not_held() {
    needs!(let promises = Promises::new());
    let script = "import fcntl, os, sys
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
    let mount = promises.disk.mount();
    for by in ["trace", "sample"] {
        // So that its pages are read from the disk.
        promises.disk.remount();
        let file = mount.join("big");
        let mut command = Command::new(cargo_bin("foreread"));
        command
            .args(["run", "--by", by, "--quiet", "--", "python3", "-c", script])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut run = Running(command.spawn().expect("it starts"));
        let mut said = std::io::BufReader::new(run.0.stdout.take().expect("a pipe"));
        let mut hears = |word: &str| {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut said, &mut line).expect("a line");
            line == format!("{word}\n")
        };
        if !hears("closed") {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let holds = || {
            let links = fs::read_dir(format!("/proc/{}/fd", run.0.id()));
            let mut links = links.into_iter().flatten().flatten();
            links.any(|link| fs::read_link(link.path()).is_ok_and(|to| to.starts_with(&mount)))
        };
        eventually("it holds nothing", || (!holds()).then_some(()));
        let mut stdin = run.0.stdin.take().expect("a pipe");
        writeln!(stdin).expect("it listens");
        assert!(hears("leased"), "{by}: its write lease was refused");
        // Not busy for the program, which works elsewhere.
        promises.disk.remount();
        writeln!(stdin).expect("it listens");
        assert_eq!(run.0.wait().expect("it ends").code(), Some(0));
    }
}

/// A file system of FUSE drops what is cached of a file when it is opened, so what the run reads ahead would be gone, and what it opens would drop
/// what the program has read: nothing is read ahead.
#[test]
fn nothing_is_read_ahead_where_an_open_drops_it() {
    needs!(let disk = SlowDisk::new());
    let file = disk.as_file();
    for by in ["trace", "sample"] {
        let mut run = Command::new(cargo_bin("foreread"));
        run.args(["run", "--quiet", "--json", "-", "--by", by, "--"]);
        run.args([
            "dd",
            &format!("if={}", file.display()),
            "of=/dev/null",
            "bs=4k",
        ]);
        let done = run.output().expect("it starts");
        if done.status.code() == Some(3) {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!(
            (json["exit_code"].as_u64(), json["ahead_bytes"].as_u64()),
            (Some(0), Some(0)),
            "{by}: {json:#}"
        );
    }
}
