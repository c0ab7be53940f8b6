//! Tests `foreread mount` as users run it: it reports the mount, and unmounts after one signal, after two, or when it is killed.
//! The systemd units have the rights that SECURITY.md states, and a mount works with these rights.

use crate::common::{
    BINARY, Got, MountPoint, Mounted, Server, can_mount, foreread, has, needs, ranges, safetensors,
    says, steps, text, wait_until,
};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// A folder with a file of 3 MB.
fn source() -> tempfile::TempDir {
    let source = tempfile::tempdir().expect("a folder");
    let bytes = foreread_testing::pattern(0, 3_000_000, 0);
    fs::write(source.path().join("file"), bytes).expect("written");
    source
}

#[test]
fn mounted_read_and_unmounted_by_a_signal() {
    needs!(can_mount());
    let source = source();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let Mounted { mut server, dir } = Mounted::new(source.path(), &["--stats-every", "100ms"]);
        let bytes = fs::read(dir.path("file")).expect("read");
        assert!(bytes == fs::read(source.path().join("file")).expect("read"));
        server.hears(&["files 0 now, 1 in all; reads ", "sent 3.00 MB"]);
        server.ended_by(signal);
        assert!(!is_mounted(dir.0.path()));
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
    let pid = mounted.server.pid();
    fs::metadata(mounted.dir.path("large")).expect("there");
    let idle = peak_of(pid);
    let read = std::io::copy(&mut mounted.open("large"), &mut std::io::sink());
    assert_eq!(read.expect("read"), 400 << 20);
    let more = peak_of(pid) - idle;
    assert!(idle < 60, "idle, it has {idle} MiB");
    assert!(more < 160, "one reader took {more} MiB more");
}

#[test]
fn busy_it_is_detached_and_a_second_signal_ends_it() {
    needs!(can_mount());
    let source = source();
    let detached = "files are still open: the mount is detached and ends when they are closed";
    for (first, is_closed, ends) in [("-TERM", false, 143), ("-INT", true, 0)] {
        let mut mounted = Mounted::new(source.path(), &[]);
        let mut file = mounted.open("file");
        mounted.server.signal(first);
        mounted.server.hears(&["foreread: ", detached]);
        let entries = fs::read_dir(mounted.dir.0.path()).expect("a folder");
        assert_eq!(entries.count(), 0);
        let read = std::io::copy(&mut file, &mut std::io::sink());
        assert_eq!(read.expect("still served"), 3_000_000);
        // It ends with the last file, or at the second signal.
        match is_closed {
            true => drop(file),
            false => mounted.server.signal("-TERM"),
        }
        let (code, err) = mounted.server.ended();
        assert_eq!(code, ends, "{err}");
    }
}

#[test]
fn killed_it_leaves_enotconn_and_nothing_else() {
    needs!(can_mount());
    let source = source();
    let mounted = Mounted::new(source.path(), &[]);
    let mut file = mounted.open("file");
    mounted.server.signal("-KILL");
    let dead = |error: std::io::Error| error.raw_os_error() == Some(107);
    let answer = || fs::read_dir(mounted.dir.0.path());
    let is_dead = || answer().is_err_and(dead);
    wait_until("a killed process answers no more", is_dead);
    assert!(file.read(&mut [0; 10]).is_err());
    let again = foreread(["mount", text(source.path()), mounted.dir.place()]);
    let line = again.is_refused();
    let begin = "foreread: the folder is still mounted, but the server of this mount has ended: ";
    assert!(line.starts_with(begin), "{line}");
    let remedy = line.split('\'').nth(1).expect("a command");
    let remedy = remedy.replace("foreread umount", &format!("{BINARY} umount"));
    drop(file);
    let helped = Command::new("sh").args(["-c", &remedy]).status();
    let is_helped = helped.expect("a shell").success();
    assert!(is_helped, "what it says helps: {remedy}");
    assert_eq!(answer().expect("a folder again").count(), 0);
}

/// A bucket is mounted whatever its keys are; those that are left out are named once, with the policy's value before.
#[test]
fn odd_keys_are_named_once() {
    needs!(can_mount());
    let server = foreread_testing::BucketServer::start().expect("a port");
    let keys = "dir/a|dir//c|dir/..|dir/b\tc|dir/b\nc|dir/x|dir/x/y";
    for key in keys.split('|') {
        server.put(key, b"bytes".to_vec());
    }
    let (bucket, variables) = (Path::new("s3://bucket/"), server.variables());
    let mounted = Mounted::with(bucket, &["--attr-ttl", "0s"], variables);
    let limit = "at most 16 requests at once (default for kind object)";
    let dir = mounted.dir.path("dir");
    for _ in 0..2 {
        let entries = fs::read_dir(&dir).expect("listed");
        let names = Vec::from_iter(entries.map(|entry| entry.expect("one").file_name()));
        assert_eq!(names, ["a", "x"]);
    }
    assert_eq!(fs::read(dir.join("a")).expect("read"), b"bytes");
    let err = mounted.server.ended_by("-TERM");
    says(&err, &["policy auto:max-overfetch=2 (default);", limit]);
    let hidden = "left out 1 objects hidden by a folder of the same name";
    for once in ["left out 4 keys", hidden] {
        assert_eq!(err.matches(once).count(), 1, "{err}");
    }
    says(&err, &[": \"dir/x\"\n", r#""dir/b\nc""#, r#""dir//""#]);
}

/// A repository of a hub: a plan of a header there, which reads nothing else, is followed by a mount of all of it. The token is in a file, and
/// is seen by the hub alone.
#[test]
fn a_repository_of_a_hub_is_planned_and_mounted() {
    use foreread_testing::ServedRequest;
    let hub = foreread_testing::HubServer::start().expect("two ports");
    let model = safetensors(3 << 20);
    let bytes = foreread::source::Mem::new(model.clone());
    hub.put("u/r", "dir/model.safetensors", bytes);
    hub.put_small("u/r", "config.json", b"{}".to_vec());
    hub.make_private("u/r");
    hub.set_token("hf_right");
    let home = tempfile::tempdir().expect("a folder");
    fs::write(home.path().join("token"), "hf_right\n").expect("written");
    let mut variables = hub.variables();
    variables.push(("HF_HOME".to_string(), home.path().display().to_string()));
    let plan = home.path().join("m.plan").display().to_string();
    let name = "hf://u/r/dir/model.safetensors";
    let mut command = Command::new(BINARY);
    let words = format!("plan --format safetensors --tensors b -o {plan} {name}");
    command.args(words.split(' ')).env_remove("HF_TOKEN");
    let out = command.envs(variables.clone()).output();
    let got = Got::from(&out.expect("it ended"));
    let next = format!("next: foreread mount {name} DIR --plan {plan}");
    let parts = ["2 ranges of 1 file (3.15 MB), from headers", &next];
    says(got.is_done(), &parts);
    let bytes = hub.content_seen().len();
    assert!(bytes <= 4, "{bytes} requests for a header");
    needs!(can_mount());
    let mounted = Mounted::with(Path::new("hf://u/r"), &["--plan", &plan], variables);
    // The end of the file is read while no program reads.
    let last = format!("-{}", model.len() - 1);
    let is_last = |seen: &ServedRequest| {
        let range = seen.header("range");
        range.is_some_and(|range| range.ends_with(&last))
    };
    let is_read = || hub.content_seen().iter().any(is_last);
    wait_until("the plan is followed", is_read);
    let model_there = fs::read(mounted.dir.path("dir/model.safetensors"));
    assert!(model_there.expect("read") == model);
    let config = fs::read(mounted.dir.path("config.json"));
    assert_eq!(config.expect("read"), b"{}");
    mounted.server.ended_by("-TERM");
    let is_signed = |seen: &ServedRequest| seen.header("authorization").is_some();
    assert!(!hub.content_seen().iter().any(is_signed) && hub.hub_seen().iter().all(is_signed));
}

/// What the kernel asks a mount for is in the trace when it is gone, under the file's name.
#[test]
fn reads_through_a_mount_are_recorded() {
    needs!(can_mount());
    let (source, folder) = (source(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("t.frt");
    let mounted = Mounted::new(source.path(), &["--record", text(&path)]);
    let read = fs::read(mounted.dir.path("file")).expect("readable");
    assert_eq!(read.len(), 3_000_000);
    mounted.server.ended_by("-TERM");
    let whole = [("file".to_string(), vec![(0, 3_000_000)])];
    let all = ranges(steps(&path, None));
    assert_eq!(all, whole.into(), "every byte was asked for");
    let plan = folder.path().join("m.plan");
    let made = foreread(["plan", text(&path), "-o", text(&plan)]);
    let mount = "foreread mount SOURCE DIR --plan ";
    says(made.is_done(), &["next: ", mount]);
    foreread(["replay", text(&plan), "--", "true"]).refuses(mount);
}

/// A folder that is mounted in the background.
fn detached(arguments: &[&str]) -> MountPoint {
    let dir = MountPoint::empty();
    let got = foreread([&["mount", "-d"], arguments, &["--", dir.place()]].concat());
    says(got.assert_code(0), &["foreread: policy "]);
    dir
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("Linux");
    let place = dir.display().to_string();
    let line = table.lines().find(|line| line.contains(&place));
    let is_ours = line.is_none_or(|line| line.contains(" - fuse.foreread "));
    assert!(is_ours, "{table}");
    line.is_some()
}

/// What `health` says of a mount that answers.
#[track_caller]
fn is_healthy(name: &str) {
    let got = foreread(["health", name]);
    assert_eq!(got.is_done(), format!("{name}: answers\n"));
}

/// What the kernel has kept of a mount says nothing of its server.
#[test]
fn a_mount_whose_server_hangs_is_not_healthy() {
    needs!(can_mount());
    let source = source();
    let mounted = Mounted::new(source.path(), &["--attr-ttl", "1h"]);
    let place = mounted.dir.place();
    let link = source.path().join("link");
    std::os::unix::fs::symlink(place, &link).expect("made");
    for name in [place, text(&link), &format!("{place}/.")] {
        is_healthy(name);
    }
    mounted.server.stop();
    let got = foreread(["health", place]);
    let line = format!("{place}: no answer within 3 seconds\n");
    assert_eq!((got.code, got.out), (Some(1), line));
}

/// In the background, by options as fstab has them; what uses it is named, and it goes when that has ended.
#[test]
fn a_mount_in_the_background_is_unmounted_by_the_command() {
    needs!(can_mount());
    let source = source();
    let name = source.path().display().to_string();
    let mounted = detached(&["-o", "ro,noauto,cache=64M,attr_ttl=0s", &name]);
    let dir = mounted.0.path();
    assert!(is_mounted(dir));
    let len = fs::metadata(dir.join("file")).map(|meta| meta.len());
    assert_eq!(len.expect("there"), 3_000_000);
    let place = mounted.place();
    is_healthy(place);
    says(&foreread(["health"]).out, &[&format!("{place}: answers\n")]);
    let used = Command::new("sleep").arg("600").current_dir(dir).spawn();
    let mut used = used.expect("sleep");
    let got = foreread(["umount", place]);
    let named = format!("in use: {place}; end {} (sleep), or add --lazy", used.id());
    says(got.assert_code(3), &[&named]);
    used.kill().and_then(|()| used.wait()).expect("ended");
    // What another program has mounted over it is not taken away.
    let over = |what: &[&str]| {
        let done = Command::new(what[0]).args(&what[1..]).arg(dir).status();
        assert!(done.expect("mount is there").success(), "{what:?}");
    };
    over(&["mount", "-t", "tmpfs", "over"]);
    let unhealthy = foreread(["health", place]);
    let line = format!("{place}: not a foreread mount\n");
    assert_eq!((unhealthy.code, unhealthy.out), (Some(1), line));
    let line = foreread(["umount", place]);
    line.refuses(" is tmpfs; use 'umount'");
    over(&["umount"]);
    let slash = format!("{place}/");
    assert_eq!(foreread(["umount", &slash]).is_done(), format!("{place}\n"));
    assert!(!is_mounted(dir));
    says(&foreread(["umount", place]).err, &["not a foreread mount"]);
}

/// A lock that its caller holds is free when the caller has ended, and its process has the command's name.
#[test]
fn a_mount_in_the_background_keeps_no_file_of_its_caller() {
    needs!(can_mount());
    let source = source();
    let kept = tempfile::NamedTempFile::new().expect("room");
    let mounted = MountPoint::empty();
    let place = mounted.place();
    let line = r#"exec 9<"$1"; exec "$0" mount -d "$2" "$3""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", line, BINARY]).arg(kept.path());
    let got = shell.arg(source.path()).arg(place).output();
    Got::from(&got.expect("sh")).assert_code(0);
    let is_it = |pid: &fs::DirEntry| {
        let words = fs::read(pid.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.any(|word| word == place.as_bytes())
    };
    let mut all = fs::read_dir("/proc").expect("Linux").flatten();
    let mount = all.find(is_it);
    let mount = mount.expect("it runs").path();
    let name = fs::read_to_string(mount.join("comm")).expect("it runs");
    assert_eq!(name, "foreread\n");
    let open = fs::read_dir(mount.join("fd")).expect("it runs").flatten();
    let open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    assert_eq!(open.filter(|file| file == kept.path()).count(), 0);
}

/// mount(8) calls the script; a variable of its file reaches the mount.
#[test]
fn fstab_mounts_by_the_script() {
    needs!(can_mount());
    let (source, dir) = (source(), MountPoint::empty());
    let file = source.path().join("variables");
    fs::write(&file, "FOREREAD_POLICY=none\n").expect("room");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/mount.fuse.foreread");
    let mount = |source: &Path, dir: &Path, more: &[&str]| {
        let mut command = Command::new(&script);
        let command = command.arg(source).arg(dir).args(more);
        Got::from(&command.env("FOREREAD", BINARY).output().expect("a shell"))
    };
    let of_source = |options: &str| mount(source.path(), dir.0.path(), &["-o", options]);
    let got = of_source("noatime,chache=1G");
    says(got.assert_code(32), &["nearest: cache"]);
    let got = of_source(&format!("ro,_netdev,env={}", file.display()));
    says(got.assert_code(0), &["policy none (FOREREAD_POLICY);"]);
    let is_there = || is_mounted(dir.0.path());
    assert!(is_there());
    // 'mount -a' mounts it once, and another source not at all.
    let again = |source: &Path, words: &str| {
        let words = Vec::from_iter(words.split(' '));
        mount(source, dir.0.path(), &words)
    };
    let other = tempfile::tempdir().expect("a folder");
    again(source.path(), "-o ro").assert_code(0);
    let got = again(other.path(), "-o ro");
    says(got.assert_code(32), &["shows another source"]);
    foreread(["umount", dir.place()]).is_done();
    // The type in one word has letters of flags, and is none; -f is one.
    let got = again(other.path(), "-svf -o ro");
    assert_eq!(got.assert_code(0), "");
    assert!(!is_there());
    again(source.path(), "-tfuse.foreread -Nf -o ro").assert_code(0);
    assert!(is_there());
    foreread(["umount", dir.place()]).is_done();
}

/// The values of a key in a file of the repository.
fn values(path: &str, key: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let unit = fs::read_to_string(root.join(path)).expect(path);
    let values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_string).collect()
}

#[test]
fn a_mount_needs_no_more_rights_than_its_unit_has() {
    needs!(can_mount());
    needs!(has(&["setpriv", "--version"]));
    let unit = "contrib/systemd/foreread-mount@.service";
    let rights = values(unit, "CapabilityBoundingSet").remove(0);
    let lower = |right: &str| right.trim_start_matches("CAP_").to_ascii_lowercase();
    let rights = rights.split(' ').map(|right| format!(",+{}", lower(right)));
    let rights = format!("--bounding-set=-all{}", rights.collect::<String>());
    let folder = tempfile::tempdir().expect("a folder");
    let [source, dir] = ["source", "m"].map(|name| folder.path().join(name));
    for path in [&source, &dir] {
        fs::create_dir(path).expect("made");
    }
    // Of a user who lets no other look.
    let file = source.join("file");
    fs::write(&file, "bytes").expect("room");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&file, mode).expect("set");
    for path in [&file, &source] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).expect("root may");
    }
    let mut command = Command::new("setpriv");
    command.args([&rights, "--inh-caps=-all", "--no-new-privs", BINARY]);
    command.arg("mount").arg(&source).arg(&dir);
    let server = Server::start(command.args(["--allow-other", "--cache", "16M"]));
    assert_eq!(server.line, dir.display().to_string());
    assert_eq!(fs::read(dir.join("file")).expect("read"), b"bytes");
    server.ended_by("-TERM");
    assert!(!dir.join("file").exists());
}
