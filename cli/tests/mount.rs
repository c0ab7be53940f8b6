//! Tests `foreread mount` as users run it: it reports the mount, and unmounts after one signal, after two, or when it is killed.
//! The systemd units have the rights that SECURITY.md states, and a mount works with these rights.

use crate::common::{
    Got, Server, can_mount, eventually, first_line, foreread, has, needs, ranges, says, signal,
    steps, text, wait_until,
};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A mount by the command; taken away and ended, whatever happens.
struct Mounted {
    process: Child,
    err: BufReader<ChildStderr>,
    dir: tempfile::TempDir,
    /// What stderr had until it was mounted.
    begin: String,
}

impl Mounted {
    fn new(source: &Path, more: &[&str]) -> Mounted {
        Mounted::with(source, more, Vec::new())
    }

    fn with(source: &Path, more: &[&str], variables: Vec<(String, String)>) -> Mounted {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_foreread"));
        let command = command.arg("mount").arg(source).arg(dir.path()).args(more);
        let command = command
            .envs(variables)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().expect("started");
        let line = first_line(&mut process);
        let err = BufReader::new(process.stderr.take().expect("piped"));
        let begin = String::new();
        let mut mounted = Mounted {
            process,
            err,
            dir,
            begin,
        };
        if line.trim_end() != mounted.dir.path().display().to_string() {
            let mut err = String::new();
            let _ = mounted.err.read_to_string(&mut err);
            panic!("not mounted: {line}{err}");
        }
        // The last line before that says what the policy is.
        while !mounted.begin.contains("foreread: policy ") {
            let read = mounted.err.read_line(&mut mounted.begin).expect("a line");
            assert!(read > 0, "{}", mounted.begin);
        }
        mounted
    }

    fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// Waits for the end with a timeout; returns what stderr had.
    fn ended(mut self) -> (ExitStatus, String) {
        let status = eventually("it ends", || self.process.try_wait().expect("waited"));
        let mut text = String::new();
        self.err.read_to_string(&mut text).expect("text");
        (status, text)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        take_away(self.dir.path());
    }
}

fn take_away(dir: &Path) {
    let mut command = Command::new("fusermount3");
    let command = command.args(["-u", "-z", "-q"]).arg(dir);
    let _ = command.stderr(Stdio::null()).status();
}

fn source() -> tempfile::TempDir {
    let source = tempfile::tempdir().expect("a folder");
    let bytes: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(source.path().join("file"), bytes).expect("written");
    source
}

#[test]
fn mounted_read_and_unmounted_by_a_signal() {
    needs!(can_mount());
    let source = source();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mounted = Mounted::new(source.path(), &["--stats-every", "100ms"]);
        let bytes = fs::read(mounted.dir.path().join("file")).expect("read");
        assert!(bytes == fs::read(source.path().join("file")).expect("read"));
        std::thread::sleep(Duration::from_millis(250));
        mounted.signal(signal);
        let dir = mounted.dir.path().to_path_buf();
        let (status, err) = mounted.ended();
        assert!(status.success(), "{status}: {err}");
        says(&err, &["files 0 now, 1 in all; reads ", "sent 3.00 MB"]);
        assert!(
            !dir.exists(),
            "the folder could be removed, so nothing is mounted there"
        );
    }
}

/// Most memory that a process had, in MiB.
fn peak_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    kib.expect("a peak").parse::<u64>().expect("a number") >> 10
}

/// The process is measured, and not the account of its cache: an idle mount has touched no buffer, and one reader in order touches a part of
/// the cache, which may have 256 MiB.
#[test]
fn a_mount_has_the_memory_that_its_readers_need() {
    needs!(can_mount());
    let source = tempfile::tempdir().expect("a folder");
    let large = File::create(source.path().join("large")).expect("made");
    large.set_len(400 << 20).expect("a sparse file");
    let mounted = Mounted::new(source.path(), &[]);
    let pid = mounted.process.id();
    fs::metadata(mounted.dir.path().join("large")).expect("there");
    let idle = peak_of(pid);
    let mut file = File::open(mounted.dir.path().join("large")).expect("opened");
    let read = std::io::copy(&mut file, &mut std::io::sink()).expect("read");
    assert_eq!(read, 400 << 20);
    let busy = peak_of(pid);
    assert!(idle < 60, "idle, it has {idle} MiB");
    assert!(
        busy - idle < 160,
        "one reader took {} MiB more",
        busy - idle
    );
}

/// The process of a mount that was taken away ends late; what was mounted at the place meanwhile stays.
#[test]
fn the_end_of_a_mount_does_not_unmount_the_next_one() {
    needs!(can_mount());
    let source = source();
    let mut first = Mounted::new(source.path(), &[]);
    first.signal("-STOP");
    let place = first.dir.path().display().to_string();
    // It does not look at the folder: nothing would answer.
    let away = Command::new("umount").args(["-c", "-i", &place]).status();
    assert!(away.expect("umount").success());
    let from = source.path().display().to_string();
    assert_eq!(foreread(["mount", "-d", &from, &place]).code, Some(0));
    first.signal("-CONT");
    let status = first.process.wait().expect("waited");
    let is_there = is_mounted(first.dir.path());
    foreread(["umount", &place]);
    assert!(status.success() && is_there, "{status}");
}

#[test]
fn busy_it_is_detached_and_a_second_signal_ends_it() {
    needs!(can_mount());
    let source = source();
    let mut mounted = Mounted::new(source.path(), &[]);
    let mut file = File::open(mounted.dir.path().join("file")).expect("opened");
    mounted.signal("-TERM");
    let mut line = String::new();
    mounted.err.read_line(&mut line).expect("a line");
    assert_eq!(
        line,
        "foreread: files are still open: the mount is detached and ends when they are closed\n"
    );
    assert_eq!(
        fs::read_dir(mounted.dir.path()).expect("a folder").count(),
        0
    );
    let read = std::io::copy(&mut file, &mut std::io::sink());
    assert_eq!(read.expect("still served"), 3_000_000);
    mounted.signal("-TERM");
    let (status, err) = mounted.ended();
    assert_eq!(status.code(), Some(143), "{err}");

    let mounted = Mounted::new(source.path(), &[]);
    let file = File::open(mounted.dir.path().join("file")).expect("opened");
    mounted.signal("-INT");
    std::thread::sleep(Duration::from_millis(50));
    drop(file);
    assert!(mounted.ended().0.success(), "it ends with the last file");
}

#[test]
fn killed_it_leaves_enotconn_and_nothing_else() {
    needs!(can_mount());
    let source = source();
    let mounted = Mounted::new(source.path(), &[]);
    let mut file = File::open(mounted.dir.path().join("file")).expect("opened");
    mounted.signal("-KILL");
    let dead = |error: std::io::Error| error.raw_os_error() == Some(107);
    let answer = || fs::read_dir(mounted.dir.path());
    wait_until("a killed process answers no more", || {
        answer().is_err_and(dead)
    });
    assert!(file.read(&mut [0; 10]).is_err());
    let again = foreread(["mount", text(source.path()), text(mounted.dir.path())]);
    let line = again.is_refused();
    let begin = "foreread: the folder is still mounted, but the server of this mount has ended: ";
    assert!(line.starts_with(begin), "{line}");
    let remedy = line.split('\'').nth(1).expect("a command").to_string();
    drop(file);
    let helped = Command::new("sh").args(["-c", &remedy]).status();
    assert!(
        helped.expect("a shell").success(),
        "what it says helps: {remedy}"
    );
    assert_eq!(answer().expect("a folder again").count(), 0);
}

/// A bucket is mounted whatever its keys are; those that are left out are named once, with the policy's value before.
#[cfg(feature = "object")]
#[test]
fn odd_keys_are_named_once() {
    needs!(can_mount());
    let server = foreread_testing::BucketServer::start().expect("a port");
    for key in [
        "dir/a", "dir//c", "dir/..", "dir/b\tc", "dir/b\nc", "dir/x", "dir/x/y",
    ] {
        server.put(key, b"bytes".to_vec());
    }
    let mounted = Mounted::with(
        Path::new("s3://bucket/"),
        &["--attr-ttl", "0s"],
        server.variables(),
    );
    let limit = "at most 16 requests at once (default for kind object)";
    says(&mounted.begin, &["policy auto:max-overfetch=2;", limit]);
    let dir = mounted.dir.path().join("dir");
    for _ in 0..2 {
        let entries = fs::read_dir(&dir).expect("listed");
        let names = Vec::from_iter(entries.map(|entry| entry.expect("one").file_name()));
        assert_eq!(names, ["a", "x"]);
    }
    assert_eq!(fs::read(dir.join("a")).expect("read"), b"bytes");
    mounted.signal("-TERM");
    let (status, err) = mounted.ended();
    assert!(status.success(), "{err}");
    assert_eq!(err.matches("left out 4 keys").count(), 1, "{err}");
    let hidden = "left out 1 objects hidden by a folder of the same name";
    assert_eq!(err.matches(hidden).count(), 1, "{err}");
    says(&err, &[": \"dir/x\"\n", r#""dir/b\nc""#, r#""dir//""#]);
}

/// A repository of a hub: a plan of a header there, which reads nothing else, is followed by a mount of all of it. The token is in a file, and
/// is seen by the hub alone.
#[cfg(feature = "object")]
#[test]
fn a_repository_of_a_hub_is_planned_and_mounted() {
    let hub = foreread_testing::HubServer::start().expect("two ports");
    let len = 3_u64 << 20;
    let header = format!(
        "{{\"a\":{{\"dtype\":\"U8\",\"shape\":[{len}],\"data_offsets\":[0,{len}]}},\
         \"b\":{{\"dtype\":\"U8\",\"shape\":[{len}],\"data_offsets\":[{len},{}]}}}}",
        2 * len
    );
    let mut model = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    model.extend(foreread_testing::pattern(0, 2 * len as usize, 0));
    hub.put(
        "u/r",
        "dir/model.safetensors",
        foreread::source::Mem::new(model.clone()),
    );
    hub.put_small("u/r", "config.json", b"{}".to_vec());
    hub.make_private("u/r");
    hub.set_token("hf_right");
    let home = tempfile::tempdir().expect("a folder");
    fs::write(home.path().join("token"), "hf_right\n").expect("written");
    let mut variables = hub.variables();
    variables.push(("HF_HOME".to_string(), home.path().display().to_string()));
    let plan = home.path().join("m.plan").display().to_string();
    let name = "hf://u/r/dir/model.safetensors";
    let out = Command::new(env!("CARGO_BIN_EXE_foreread"))
        .args(format!("plan --format safetensors --tensors b -o {plan} {name}").split(' '))
        .env_remove("HF_TOKEN")
        .envs(variables.clone())
        .output()
        .expect("it ended");
    let got = Got::from(&out);
    let next = format!("next: foreread mount {name} DIR --plan {plan}");
    says(
        got.is_done(),
        &["2 ranges of 1 file (3.15 MB), of headers", &next],
    );
    let bytes = hub.content_seen().len();
    assert!(bytes <= 4, "{bytes} requests for a header");
    needs!(can_mount());
    let mounted = Mounted::with(Path::new("hf://u/r"), &["--plan", &plan], variables);
    // The end of the file is read while no program reads.
    let last = format!("-{}", model.len() - 1);
    let is_last = |seen: &foreread_testing::ServedRequest| {
        seen.header("range")
            .is_some_and(|range| range.ends_with(&last))
    };
    wait_until("the plan is followed", || {
        hub.content_seen().iter().any(is_last)
    });
    let dir = mounted.dir.path();
    assert!(fs::read(dir.join("dir/model.safetensors")).expect("read") == model);
    assert_eq!(fs::read(dir.join("config.json")).expect("read"), b"{}");
    mounted.signal("-TERM");
    let (status, err) = mounted.ended();
    assert!(status.success(), "{err}");
    let is_signed = |seen: &foreread_testing::ServedRequest| seen.header("authorization").is_some();
    assert!(!hub.content_seen().iter().any(is_signed) && hub.hub_seen().iter().all(is_signed));
}

/// What the kernel asks a mount for is in the trace when it is gone, under the file's name.
#[test]
fn reads_through_a_mount_are_recorded() {
    needs!(can_mount());
    let (source, folder) = (source(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("t.frt");
    let mounted = Mounted::new(source.path(), &["--record", &path.display().to_string()]);
    let read = fs::read(mounted.dir.path().join("file")).expect("readable");
    assert_eq!(read.len(), 3_000_000);
    mounted.signal("-TERM");
    let (status, said) = mounted.ended();
    assert!(status.success(), "{said}");
    let all = ranges(steps(&path, None));
    let whole = std::iter::once(("file".to_string(), vec![(0, 3_000_000)]));
    assert_eq!(all, whole.collect(), "every byte was asked for");
}

/// A folder that is mounted in the background; taken away whatever happens.
struct Detached(tempfile::TempDir);

impl Detached {
    fn new(arguments: &[&str]) -> Detached {
        let dir = tempfile::tempdir().expect("a folder");
        let place = dir.path().display().to_string();
        let got = foreread([&["mount", "-d"], arguments, &["--", &place]].concat());
        let detached = Detached(dir);
        assert_eq!(got.code, Some(0), "{}", got.err);
        assert!(got.err.contains("foreread: policy "), "{}", got.err);
        detached
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        take_away(self.0.path());
    }
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("Linux");
    let place = dir.display().to_string();
    let line = table.lines().find(|line| line.contains(&place));
    assert!(
        line.is_none_or(|line| line.contains(" - fuse.foreread ")),
        "{table}"
    );
    line.is_some()
}

/// What the kernel has kept of a mount says nothing of its server.
#[test]
fn a_mount_whose_server_hangs_is_not_healthy() {
    needs!(can_mount());
    let source = source();
    let mounted = Mounted::new(source.path(), &["--attr-ttl", "1h"]);
    let place = mounted.dir.path().display().to_string();
    let link = source.path().join("link");
    std::os::unix::fs::symlink(mounted.dir.path(), &link).expect("made");
    for name in [
        place.clone(),
        link.display().to_string(),
        format!("{place}/."),
    ] {
        let answers = format!("{name}: answers\n");
        assert_eq!(foreread(["health", &name]).is_done(), answers);
    }
    mounted.signal("-STOP");
    let tasks = format!("/proc/{}/task", mounted.process.id());
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") T ")
    };
    while !fs::read_dir(&tasks)
        .expect("there")
        .flatten()
        .all(is_stopped)
    {
        std::thread::yield_now();
    }
    let got = foreread(["health", &place]);
    mounted.signal("-CONT");
    let line = format!("{place}: no answer within 3 seconds\n");
    assert_eq!((got.code, got.out), (Some(1), line));
}

/// In the background, by options as fstab has them; what uses it is named, and it goes when that has ended.
#[test]
fn a_mount_in_the_background_is_unmounted_by_the_command() {
    needs!(can_mount());
    let source = source();
    let name = source.path().display().to_string();
    let mounted = Detached::new(&["-o", "ro,noauto,cache=64M,attr_ttl=0s", &name]);
    let dir = mounted.0.path();
    assert!(is_mounted(dir));
    assert_eq!(
        fs::metadata(dir.join("file")).expect("there").len(),
        3_000_000
    );
    let place = dir.display().to_string();
    let healthy = format!("{place}: answers\n");
    assert_eq!(foreread(["health", &place]).is_done(), healthy);
    assert!(foreread(["health"]).out.contains(&healthy), "it is found");
    let used = Command::new("sleep").arg("600").current_dir(dir).spawn();
    let mut used = used.expect("sleep");
    let got = foreread(["umount", &place]);
    let named = format!("in use: {place}; end {} (sleep), or add --lazy", used.id());
    assert!(
        got.code == Some(3) && got.err.contains(&named),
        "{}",
        got.err
    );
    used.kill().and_then(|()| used.wait()).expect("ended");
    // What another program has mounted over it is not taken away.
    let over = |what: &[&str]| {
        let done = Command::new(what[0]).args(&what[1..]).arg(dir).status();
        assert!(done.expect("mount is there").success(), "{what:?}");
    };
    over(&["mount", "-t", "tmpfs", "over"]);
    let unhealthy = foreread(["health", &place]);
    let line = format!("{place}: not a foreread mount\n");
    assert_eq!((unhealthy.code, unhealthy.out), (Some(1), line));
    let line = foreread(["umount", &place]);
    line.refuses(" is tmpfs; use 'umount'");
    over(&["umount"]);
    let slash = format!("{place}/");
    assert_eq!(foreread(["umount", &slash]).is_done(), format!("{place}\n"));
    assert!(!is_mounted(dir));
    let line = foreread(["umount", &place]).err;
    assert!(line.contains("not a foreread mount"), "{line}");
}

/// A lock that its caller holds is free when the caller has ended, and its process has the command's name.
#[test]
fn a_mount_in_the_background_keeps_no_file_of_its_caller() {
    needs!(can_mount());
    let source = source();
    let (kept, dir) = (
        tempfile::NamedTempFile::new().expect("room"),
        tempfile::tempdir().expect("a folder"),
    );
    let place = dir.path().display().to_string();
    let line = r#"exec 9<"$1"; exec "$0" mount -d "$2" "$3""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_foreread")]);
    shell.arg(kept.path()).arg(source.path()).arg(dir.path());
    let got = shell.output().expect("sh");
    let mounted = Detached(dir);
    assert!(got.status.success(), "{got:?}");
    let mount = fs::read_dir("/proc").expect("Linux").flatten().find(|pid| {
        let words = fs::read(pid.path().join("cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| word == place.as_bytes())
    });
    let mount = mount.expect("it runs").path();
    let name = fs::read_to_string(mount.join("comm")).expect("it runs");
    assert_eq!(name, "foreread\n");
    let open = fs::read_dir(mount.join("fd")).expect("it runs").flatten();
    let open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    assert_eq!(open.filter(|file| file == kept.path()).count(), 0);
    drop(mounted);
}

/// mount(8) calls the script; a variable of its file reaches the mount.
#[test]
fn fstab_mounts_by_the_script() {
    needs!(can_mount());
    let (source, dir) = (source(), tempfile::tempdir().expect("a folder"));
    let file = source.path().join("variables");
    fs::write(&file, "FOREREAD_POLICY=none\n").expect("room");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/mount.fuse.foreread");
    let mount = |source: &Path, dir: &Path, more: &[&str]| {
        let mut command = Command::new(&script);
        let command = command.arg(source).arg(dir).args(more);
        let command = command.env("FOREREAD", env!("CARGO_BIN_EXE_foreread"));
        let got = Got::from(&command.output().expect("a shell"));
        (got.code, got.err)
    };
    let of_source = |options: &str| mount(source.path(), dir.path(), &["-o", options]);
    let (code, said) = of_source("noatime,chache=1G");
    assert!(
        code == Some(32) && said.contains("'--cache'"),
        "{code:?} {said}"
    );
    let (code, said) = of_source(&format!("ro,_netdev,env={}", file.display()));
    let mounted = Detached(dir);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("policy none;"), "{said}");
    assert!(is_mounted(mounted.0.path()));
    // 'mount -a' mounts it once, and another source not at all.
    let again = |source: &Path, more: &[&str]| mount(source, mounted.0.path(), more);
    let other = tempfile::tempdir().expect("a folder");
    assert_eq!(again(source.path(), &["-o", "ro"]).0, Some(0));
    let (code, said) = again(other.path(), &["-o", "ro"]);
    assert!(
        code == Some(32) && said.contains("shows another source"),
        "{code:?} {said}"
    );
    let place = mounted.0.path().display().to_string();
    foreread(["umount", &place]).is_done();
    // The type in one word has letters of flags, and is none; -f is one.
    assert_eq!(
        again(other.path(), &["-svf", "-o", "ro"]),
        (Some(0), String::new())
    );
    assert!(!is_mounted(mounted.0.path()));
    let (code, said) = again(source.path(), &["-tfuse.foreread", "-Nf", "-o", "ro"]);
    assert!(
        code == Some(0) && is_mounted(mounted.0.path()),
        "{code:?} {said}"
    );
    foreread(["umount", &place]).is_done();
}

/// A file of the repository.
fn of_repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).expect(path)
}

/// The values of a key.
fn values(unit: &str, key: &str) -> Vec<String> {
    let lines = unit.lines();
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_string).collect()
}

#[test]
fn a_mount_needs_no_more_rights_than_its_unit_has() {
    needs!(can_mount());
    needs!(has(&["setpriv", "--version"]));
    let rights = values(
        &of_repository("contrib/systemd/foreread-mount@.service"),
        "CapabilityBoundingSet",
    );
    let rights: Vec<String> = rights[0]
        .split(' ')
        .map(|right| format!("+{}", right.trim_start_matches("CAP_").to_ascii_lowercase()))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (source, dir) = (folder.path().join("source"), folder.path().join("m"));
    for path in [&source, &dir] {
        std::fs::create_dir(path).expect("made");
    }
    // Of a user who lets no other look.
    let file = source.join("file");
    std::fs::write(&file, "bytes").expect("room");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("set");
    for path in [&file, &source] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).expect("root may");
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set=-all,{}", rights.join(",")));
    command.args([
        "--inh-caps=-all",
        "--no-new-privs",
        env!("CARGO_BIN_EXE_foreread"),
        "mount",
    ]);
    command
        .arg(&source)
        .arg(&dir)
        .args(["--allow-other", "--cache", "16M"]);
    let server = Server::start(&mut command);
    assert_eq!(server.line, dir.display().to_string());
    assert_eq!(std::fs::read(dir.join("file")).expect("read"), b"bytes");
    server.ended_by("-TERM");
    assert!(!dir.join("file").exists());
}
