//! Tests `foreread check conform linux` on the running kernel: a short version of the whole check, that nothing is left
//! behind, and the error if it is not possible. Needs root, loop devices and tracefs; if they are missing, the tests
//! report it.

use crate::common::{Got, foreread, says};
use foreread_testing::machine::{MemoryGroup, signal, wait_until};
use foreread_testing::needs;
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recordings/ext4j-128.jsonl"
);
const INSTANCES: &str = "/sys/kernel/tracing/instances";

const CHECK: &str = env!("CARGO_BIN_EXE_foreread-check");

fn can() -> bool {
    crate::common::lacks("readahead/page_cache_ra_order").is_none()
}

/// `conform linux` with the words of a line, if there is memory for it.
fn conform(line: &str, more: &[&str]) -> Option<Got> {
    let got = foreread(
        ["conform", "linux"]
            .into_iter()
            .chain(line.split(' '))
            .chain(more.iter().copied()),
    );
    if got.code == Some(3) && got.err.contains("short of memory") {
        println!("skipped: needs more free memory: {}", got.err);
        return None;
    }
    Some(got)
}

/// Every file system, 1,000 operations with mappings and 1,000 without, with a seed of this run. The long form is in ./test-long.
#[test]
fn the_running_kernel_decides_as_we_do() {
    needs!(can());
    needs!(let got = conform("--read-ahead-kb 128 --operations 1000 --json", &[]));
    let report = got.json();
    says(got.assert_code(0), &[&format!("seed {}", report["seed"])]);
    let about = [&report["schema"], &report["policy"]];
    assert_eq!(about, ["foreread.conform-linux/2", "linux-6.18"]);
    let cells = report["cells"].as_array().expect("cells");
    let left_out = report["left_out"].as_array().expect("a list");
    for why in left_out {
        println!("skipped: needs what is left out here: {why}");
    }
    let names = cells.iter().map(|cell| cell["file_system"].as_str());
    let mut names = Vec::from_iter(names.map(|name| name.expect("a name")));
    names.dedup();
    if left_out.is_empty() {
        let xfs = ["xfs", "xfs-8k", "xfs-16k", "xfs-32k", "xfs-64k"];
        let all = [&["ext4", "ext4-1k", "ext4-journal"][..], &xfs].concat();
        assert_eq!(names, all);
        assert_eq!(cells.len(), 16);
    }
    for cell in cells {
        assert_eq!(
            [&cell["operations"], &cell["divergences"]],
            [1000, 0],
            "{cell}"
        );
        assert!(cell["decisions"].as_u64() > Some(100), "{cell}");
        let alone = cell["large_folios"] == false && cell["mmap"] == false;
        assert_eq!(cell["pages"], alone, "{cell}");
        let is_journal = cell["file_system"] == "ext4-journal";
        assert!(!is_journal || cell["large_folios"] == false, "{cell}");
    }
}

/// With mappings a recording says where the extents of a file begin. ext4 with data=journal has one at page 16 of every file that
/// is longer, and the file of 257 pages, 1,048,577 bytes, is among those that this seed reads.
#[test]
fn a_recording_has_the_extents_of_its_files() {
    needs!(can());
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_string_lossy();
    let line =
        "--fs ext4-journal --mmap yes --operations 1000 --seed 2742804020 --read-ahead-kb 128 -o";
    needs!(let got = conform(line, &[&out]));
    if got.err.contains("they need python3 with ctypes") {
        println!("skipped: needs python3 with ctypes for page faults");
        return;
    }
    got.assert_code(0);
    let name = "ext4-journal-128-2742804020-faults.jsonl.gz";
    let kept = foreread_check::conform::linux::open(&folder.path().join(name));
    let mut lines = kept
        .expect("kept")
        .lines()
        .map(|line| line.expect("a line"));
    let episode = lines.find(|line| line.contains("\"file_size\":1048577"));
    says(
        &episode.expect("an episode of that file"),
        &["\"extents\":[16"],
    );
}

/// Differences under memory pressure alone: exit code 3, and no accusation.
#[test]
fn pressure_is_not_a_divergence() {
    let text = std::fs::read_to_string(RECORDING).expect("the recording");
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    let path = file.path().to_string_lossy();
    let changed = |line: &str| match line.strip_suffix('}') {
        Some(op) if op.contains("\"marks\":[]") && op.contains("\"op\":") => {
            op.replace("\"marks\":[]", "\"marks\":[77]") + ",\"pressure\":true}\n"
        }
        _ => format!("{line}\n"),
    };
    let wrong: String = text.lines().map(changed).collect();
    assert!(wrong != text, "some operation sets no mark");
    std::fs::write(file.path(), &wrong).expect("written");
    let check = || foreread(["conform", "linux", "--check", &*path]);
    let got = check();
    let words = ["the kernel was short of memory in", "marks ours"];
    says(got.assert_code(3), &words);
    assert!(got.out.ends_with("divergences 0\n"), "{}", got.out);
    // Without the word the same is a divergence.
    std::fs::write(file.path(), wrong.replace(",\"pressure\":true}", "}")).expect("written");
    check().assert_code(1);
}

/// Without root it says so, and what can be done instead.
#[test]
fn a_user_without_rights_gets_an_error() {
    needs!(can());
    // A copy that an unprivileged user may run.
    let folder = tempfile::Builder::new()
        .permissions(public())
        .tempdir()
        .expect("a folder");
    let program = folder.path().join("foreread");
    std::fs::copy(CHECK, &program).expect("a copy");
    let mut command = Command::new("setpriv");
    command.args("--reuid 65534 --regid 65534 --clear-groups".split(' '));
    command.arg(&program).args(["conform", "linux"]);
    let Ok(ran) = command.output() else {
        return println!("skipped: needs setpriv (util-linux)");
    };
    let words = ["needs root", "--check REC"];
    says(Got::from(&ran).assert_code(3), &words);
}

fn public() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

/// A run under way: its process, once it has a tracing instance.
fn under_way() -> Child {
    begun("--fs ext4 --read-ahead-kb 128 --operations 10000000")
}

fn begun(line: &str) -> Child {
    let mut command = Command::new(CHECK);
    command.args(["conform", "linux"]).args(line.split(' '));
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("started");
    let id = process.id();
    wait_until("a tracing instance", || {
        let ended = process.try_wait().expect("asked");
        assert!(ended.is_none(), "it ended by itself");
        instance(id)
    });
    process
}

fn instance(id: u32) -> bool {
    let ours = format!("foreread-{id}-");
    let all = std::fs::read_dir(INSTANCES).into_iter().flatten().flatten();
    let mut names = all.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with(&ours))
}

/// The loop device of a process of ours.
fn attached(id: u32) -> Option<String> {
    let ours = format!("/memfd:foreread-conform-{id}-");
    let all = std::fs::read_dir("/sys/block").expect("block devices");
    let file = |path: &Path| std::fs::read_to_string(path.join("loop/backing_file"));
    let is_it = |path: &Path| file(path).is_ok_and(|file| file.starts_with(&ours));
    let found = all.flatten().find(|entry| is_it(&entry.path()));
    found.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Killed in the middle: nothing mounted, nothing attached, the device as it was, its tracing instance removed by the guard.
#[test]
fn killed() {
    needs!(can());
    let mut process = under_way();
    let id = process.id();
    let device = attached(id).expect("a loop device");
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    let has_place = mounts.contains(&format!("/dev/{device} "));
    assert!(!has_place, "the mount has a place: {mounts}");
    process.kill().expect("killed");
    process.wait().expect("gone");
    wait_until("the loop device goes", || attached(id).is_none());
    let file_system = Path::new("/sys/fs/ext4").join(&device);
    wait_until("the file system goes", || !file_system.exists());
    wait_until("the tracing instance goes", || !instance(id));
}

/// A guard waits for the lock: it never removes the instance of an owner that lives, here this test.
#[test]
fn a_guard_leaves_the_living_alone() {
    needs!(can());
    let name = format!("foreread-{}-guarded", std::process::id());
    let folder = Path::new(INSTANCES).join(&name);
    std::fs::create_dir(&folder).expect("root may");
    let lock = std::fs::File::open(&folder).expect("a folder");
    lock.lock().expect("flock(2)");
    let guard = |name: &str| {
        let mut guard = Command::new(CHECK);
        let guard = guard.args(["--tracefs-guard", name]).stdin(Stdio::null());
        guard.spawn().expect("started")
    };
    let mut first = guard(&name);
    // The pipe has ended from the start; half a second is for a guard that does not ask for the lock.
    std::thread::sleep(Duration::from_millis(500));
    let waits = first.try_wait().expect("asked").is_none();
    assert!(waits && folder.exists(), "it waits for the lock");
    drop(lock);
    assert!(first.wait().expect("ended").success());
    assert!(!folder.exists());
    // Of a name that is not ours it removes nothing.
    let name = format!("other-{}", std::process::id());
    let other = Path::new(INSTANCES).join(&name);
    std::fs::create_dir(&other).expect("root may");
    guard(&name).wait().expect("ended");
    let stays = other.exists();
    std::fs::remove_dir(&other).expect("root may");
    assert!(stays);
}

/// Asked to end: exit code 3, as nothing was found out, and nothing left at all.
#[test]
fn ended_by_a_signal() {
    needs!(can());
    let process = under_way();
    let id = process.id();
    signal(id, "-TERM");
    let ended = process.wait_with_output().expect("ended");
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(3), 0));
    assert!(!instance(id), "its tracing instance");
    wait_until("the loop device goes", || attached(id).is_none());
}

/// A reader that has room for fewer pages than it reads: the kernel takes pages back while it decides. That is noticed, and
/// is exit code 3.
#[test]
fn a_reader_short_of_memory_accuses_nothing() {
    needs!(can());
    // The largest read is 3 MiB, the largest window 1 MiB. With 4 MiB the reader is killed, with 16 nothing differs.
    needs!(let group = MemoryGroup::new(8 << 20));
    // Moved when its file system is there: that is in memory too. The seed is one of many that read enough.
    let cell = "--fs xfs --read-ahead-kb 1024 --mmap no";
    let process = begun(&format!(
        "{cell} --operations 10000 --seed 3182490952 --json"
    ));
    let moved = std::fs::write(group.processes(), process.id().to_string()).is_ok();
    let got = Got::from(&process.wait_with_output().expect("ended"));
    if !moved {
        return println!("skipped: needs a memory cgroup that takes processes");
    }
    let cell = &got.json()["cells"][0];
    assert_eq!(cell["divergences"], 0, "{cell}");
    for felt in ["pressure_episodes", "pressure_differences"] {
        assert!(cell[felt].as_u64() > Some(0), "the limit is felt: {cell}");
    }
    let why = "the kernel was short of memory in";
    says(got.assert_code(3), &[why]);
}
