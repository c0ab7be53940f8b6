//! Tests what `foreread run --by sample` promises to a program: nothing changes for it. Locks, descriptors, deleted
//! files, small stacks, seccomp, forks, exec, stops and exits behave as without it.
//!
//! Each program checks itself, and exits with 7 if everything is correct. Without a C compiler, setpriv or the tools
//! for a slow disk the tests are skipped.

use crate::common::{
    BINARY, Got, Running, SlowDisk, children, eventually, foreread, has, needs, signal, text,
    unprivileged, wait_until,
};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};

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
    let run = [BINARY, "run", "--by", "sample", "--quiet", "--"].map(OsString::from);
    unprivileged(run.into_iter().filter(|_| with).chain(words))
}

/// A script that reads the file of its argument.
fn script(with: bool, script: &str, file: PathBuf) -> Command {
    by(
        with,
        ["python3".into(), "-c".into(), script.into(), file.into()],
    )
}

/// What a program says by its lines on stdout.
fn hears(said: &mut impl BufRead, word: &str) -> bool {
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    line == format!("{word}\n")
}

fn stdout(run: &mut Running) -> BufReader<ChildStdout> {
    BufReader::new(run.0.stdout.take().expect("a pipe"))
}

/// The program, and a file of 1 MiB that it reads: on a slow disk, so that the run opens it for itself and reads ahead.
struct Promises {
    dir: tempfile::TempDir,
    disk: SlowDisk,
}

impl Promises {
    fn new() -> Option<Promises> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let source = dir.path().join("program.c");
        fs::write(&source, PROGRAM).expect("room");
        let mut compiler = Command::new("cc");
        compiler.args(["-w", "-pthread", "-o"]);
        let compiler = compiler.arg(dir.path().join("program")).arg(source);
        let is_compiled = compiler.status().is_ok_and(|status| status.success());
        if !(is_compiled && has(&["setpriv", "--version"])) {
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
    for what in "locks descriptors deleted stacks strict vfork forks exec".split(' ') {
        for with in [false, true] {
            let got = Got::from(&promises.ends(what, with));
            assert_eq!(got.code, Some(7), "{what} {with}: {}", got.err);
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
    let child = children(pid).into_iter().next()?;
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
    let (_, now) = stat.rsplit_once(')')?;
    now.trim().starts_with(state).then_some(child)
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
    let sqlite = "import os, sqlite3, subprocess, sys
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
        let done = script(with, sqlite, promises.file()).output();
        let got = Got::from(&done.expect("it starts"));
        assert_eq!(got.code, Some(7), "{with}: {}", got.err);
    }
}

/// A file that the program deletes while it runs is closed by the run as well, so that its bytes are given back.
#[test]
fn a_deleted_file_is_not_kept() {
    needs!(let promises = Promises::new());
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
    let mut command = script(true, deletes, promises.file());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = Running(command.spawn().expect("it starts"));
    assert!(hears(&mut stdout(&mut run), "deleted"));
    let is_it = |link: &Path| link.to_string_lossy().ends_with("/file (deleted)");
    wait_until("the run lets go of it", || !holds(run.0.id(), is_it));
    drop(run.0.stdin.take());
    assert_eq!(run.0.wait().expect("it ends").code(), Some(0));
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
    needs!(let promises = Promises::new());
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
    let mount = promises.disk.mount();
    for by in ["trace", "sample"] {
        // So that its pages are read from the disk.
        promises.disk.remount();
        let file = mount.join("big");
        let mut command = Command::new(BINARY);
        command.args(["run", "--by", by, "--quiet", "--", "python3", "-c", closes]);
        command
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let run = command.stderr(Stdio::null()).spawn();
        let mut run = Running(run.expect("it starts"));
        let said = &mut stdout(&mut run);
        if !hears(said, "closed") {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let is_there = |to: &Path| to.starts_with(&mount);
        wait_until("it holds nothing", || !holds(run.0.id(), is_there));
        let mut stdin = run.0.stdin.take().expect("a pipe");
        writeln!(stdin).expect("it listens");
        assert!(hears(said, "leased"), "{by}: its write lease was refused");
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
    let input = format!("if={}", text(&disk.as_file()));
    for by in ["trace", "sample"] {
        let run = ["run", "--quiet", "--json", "-", "--by", by, "--"];
        let got = foreread([&run[..], &["dd", &input, "of=/dev/null", "bs=4k"]].concat());
        if got.code == Some(3) {
            println!("skipped: needs root and tracefs");
            continue;
        }
        let json = got.json();
        let done = ["exit_code", "ahead_bytes"].map(|key| json[key].as_u64());
        assert_eq!(done, [Some(0); 2], "{by}: {json:#}");
    }
}
