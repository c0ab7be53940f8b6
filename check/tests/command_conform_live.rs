//! Tests `foreread check conform linux` on the running kernel: a short version of the whole check, that nothing is left
//! behind, and the error if it is not possible. Needs root, loop devices and tracefs; if they are missing, the tests
//! report it.

use crate::common::foreread;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recordings/ext4j-128.jsonl"
);
const INSTANCES: &str = "/sys/kernel/tracing/instances";

fn lacks() -> Option<&'static str> {
    crate::common::lacks("readahead/page_cache_ra_order")
}

/// Every file system, 1,000 operations with mappings and 1,000 without, with a seed of this run. The long form is in ./test-long.
#[test]
fn the_running_kernel_decides_as_we_do() {
    if lacks().is_some() {
        return;
    }
    let got = foreread("conform linux --read-ahead-kb 128 --operations 1000 --json".split(' '));
    if got.code == Some(3) && got.err.contains("short of memory") {
        println!("skipped: needs more free memory: {}", got.err);
        return;
    }
    assert_eq!(got.code, Some(0), "{}{}", got.out, got.err);
    let report: serde_json::Value = serde_json::from_str(&got.out).expect("JSON");
    assert_eq!(
        (&report["schema"], &report["policy"]),
        (&"foreread.conform-linux/2".into(), &"linux-6.18".into())
    );
    assert!(
        got.err.contains(&format!("seed {}", report["seed"])),
        "{}",
        got.err
    );
    let cells = report["cells"].as_array().expect("cells");
    let left_out = report["left_out"].as_array().expect("a list");
    left_out
        .iter()
        .for_each(|why| println!("skipped: needs what is left out here: {why}"));
    let mut names: Vec<_> = cells
        .iter()
        .map(|cell| cell["file_system"].as_str().expect("a name"))
        .collect();
    names.dedup();
    if left_out.is_empty() {
        let xfs = ["xfs", "xfs-8k", "xfs-16k", "xfs-32k", "xfs-64k"];
        let all = [&["ext4", "ext4-1k", "ext4-journal"][..], &xfs].concat();
        assert_eq!(names, all);
        assert_eq!(cells.len(), 16);
    }
    for cell in cells {
        assert_eq!(
            (&cell["operations"], &cell["divergences"]),
            (&1000.into(), &0.into()),
            "{cell}"
        );
        assert!(cell["decisions"].as_u64() > Some(100), "{cell}");
        let alone = cell["large_folios"] == false && cell["mmap"] == false;
        assert_eq!(cell["pages"], alone, "{cell}");
        assert!(
            cell["file_system"] != "ext4-journal" || cell["large_folios"] == false,
            "{cell}"
        );
    }
}

/// With mappings a recording says where the extents of a file begin. ext4 with data=journal has one at page 16 of every file that
/// is longer, and the file of 257 pages, 1,048,577 bytes, is among those that this seed reads.
#[test]
fn a_recording_has_the_extents_of_its_files() {
    if lacks().is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_string_lossy().into_owned();
    let args = ["--fs", "ext4-journal", "--mmap", "yes"];
    let rest = [
        "--operations",
        "1000",
        "--seed",
        "2742804020",
        "--read-ahead-kb",
        "128",
        "-o",
        out.as_str(),
    ];
    let got = foreread(["conform", "linux"].into_iter().chain(args).chain(rest));
    if got.err.contains("they need python3 with ctypes") {
        println!("skipped: needs python3 with ctypes for page faults");
        return;
    }
    if got.code == Some(3) && got.err.contains("short of memory") {
        println!("skipped: needs more free memory: {}", got.err);
        return;
    }
    assert_eq!(got.code, Some(0), "{}{}", got.out, got.err);
    let path = folder
        .path()
        .join("ext4-journal-128-2742804020-faults.jsonl.gz");
    let lines = foreread_check::conform::linux::open(&path)
        .expect("kept")
        .lines();
    let episode = lines
        .map(|line| line.expect("a line"))
        .find(|line| line.contains("\"file_size\":1048577"))
        .expect("an episode of that file");
    assert!(episode.contains("\"extents\":[16"), "{episode}");
}

/// Differences under memory pressure alone: exit code 3, and no accusation.
#[test]
fn pressure_is_not_a_divergence() {
    let text = std::fs::read_to_string(RECORDING).expect("the recording");
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    let path = file.path().to_string_lossy().into_owned();
    let wrong: Vec<String> = text
        .lines()
        .map(|line| match line.strip_suffix('}') {
            Some(op) if op.contains("\"marks\":[]") && op.contains("\"op\":") => {
                op.replace("\"marks\":[]", "\"marks\":[77]") + ",\"pressure\":true}"
            }
            _ => line.to_string(),
        })
        .collect();
    let wrong = wrong.join("\n") + "\n";
    assert!(wrong != text, "some operation sets no mark");
    std::fs::write(file.path(), &wrong).expect("written");
    let got = foreread(["conform", "linux", "--check", path.as_str()]);
    assert_eq!(got.code, Some(3), "{}", got.err);
    assert!(got.out.ends_with("divergences 0\n"), "{}", got.out);
    assert!(
        got.err.contains("the kernel was short of memory in") && got.err.contains("marks ours"),
        "{}",
        got.err
    );
    // Without the word the same is a divergence.
    std::fs::write(file.path(), wrong.replace(",\"pressure\":true}", "}")).expect("written");
    assert_eq!(
        foreread(["conform", "linux", "--check", path.as_str()]).code,
        Some(1)
    );
}

/// Without root it says so, and what can be done instead.
#[test]
fn a_user_without_rights_gets_an_error() {
    if lacks().is_some() {
        return;
    }
    // A copy that an unprivileged user may run.
    let folder = tempfile::Builder::new()
        .permissions(public())
        .tempdir()
        .expect("a folder");
    let program = folder.path().join("foreread");
    std::fs::copy(env!("CARGO_BIN_EXE_foreread-check"), &program).expect("a copy");
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args(["conform", "linux"]);
    let Ok(ran) = command.output() else {
        println!("skipped: needs setpriv (util-linux)");
        return;
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(
        said.contains("needs root") && said.contains("--check REC"),
        "{said}"
    );
}

fn public() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

/// A run under way: its process, once it has a tracing instance.
fn under_way() -> Child {
    begun(&[
        "--fs",
        "ext4",
        "--read-ahead-kb",
        "128",
        "--operations",
        "10000000",
    ])
}

fn begun(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    command.args(["conform", "linux"]).args(args);
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let id = process.id();
    wait("a tracing instance", || {
        assert!(
            process.try_wait().expect("asked").is_none(),
            "it ended by itself"
        );
        instance(id)
    });
    process
}

fn instance(id: u32) -> bool {
    let ours = format!("foreread-{id}-");
    std::fs::read_dir(INSTANCES).is_ok_and(|all| {
        all.flatten()
            .any(|e| e.file_name().to_string_lossy().starts_with(&ours))
    })
}

/// The loop device of a process of ours.
fn attached(id: u32) -> Option<String> {
    let ours = format!("/memfd:foreread-conform-{id}-");
    let all = std::fs::read_dir("/sys/block")
        .expect("block devices")
        .flatten();
    let backing =
        |path: &Path| std::fs::read_to_string(path.join("loop/backing_file")).unwrap_or_default();
    all.filter(|e| backing(&e.path()).starts_with(&ours))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .next()
}

/// Waits for what comes of itself; a minute is for a machine with much else to do.
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "timed out waiting for {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Killed in the middle: nothing mounted, nothing attached, the device as it was, its tracing instance removed by the guard.
#[test]
fn killed() {
    if lacks().is_some() {
        return;
    }
    let mut process = under_way();
    let id = process.id();
    let device = attached(id).expect("a loop device");
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(
        !mounts.contains(&format!("/dev/{device} ")),
        "the mount has a place: {mounts}"
    );
    process.kill().expect("killed");
    process.wait().expect("gone");
    wait("the loop device to go", || attached(id).is_none());
    wait("the file system to go", || {
        !Path::new("/sys/fs/ext4").join(&device).exists()
    });
    wait("the tracing instance to go", || !instance(id));
}

/// A guard waits for the lock: it never removes the instance of an owner that lives, here this test.
#[test]
fn a_guard_leaves_the_living_alone() {
    if lacks().is_some() {
        return;
    }
    let name = format!("foreread-{}-guarded", std::process::id());
    let folder = Path::new(INSTANCES).join(&name);
    std::fs::create_dir(&folder).expect("root may");
    let lock = std::fs::File::open(&folder).expect("a folder");
    lock.lock().expect("flock(2)");
    let mut guard = Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    let mut guard = guard
        .args(["--tracefs-guard", &name])
        .stdin(Stdio::null())
        .spawn()
        .expect("started");
    // The pipe has ended from the start; half a second is for a guard that does not ask for the lock.
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        guard.try_wait().expect("asked").is_none() && folder.exists(),
        "it waits for the lock"
    );
    drop(lock);
    assert!(guard.wait().expect("ended").success());
    assert!(!folder.exists());
    // Of a name that is not ours it removes nothing.
    let other = Path::new(INSTANCES).join(format!("other-{}", std::process::id()));
    std::fs::create_dir(&other).expect("root may");
    let name = other
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let mut guard = Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    guard
        .args(["--tracefs-guard", &name])
        .stdin(Stdio::null())
        .status()
        .expect("started");
    let stays = other.exists();
    std::fs::remove_dir(&other).expect("root may");
    assert!(stays);
}

/// Asked to end: exit code 3, as nothing was found out, and nothing left at all.
#[test]
fn ended_by_a_signal() {
    if lacks().is_some() {
        return;
    }
    let process = under_way();
    let id = process.id();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id.to_string()])
            .status()
            .expect("kill")
            .success()
    );
    let ended = process.wait_with_output().expect("ended");
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(3), 0));
    assert!(!instance(id), "its tracing instance");
    wait("the loop device to go", || attached(id).is_none());
}

/// A memory cgroup below that of this process; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// With room for this many bytes; nothing where there is none to be had.
    fn new(bytes: u64) -> Option<Cgroup> {
        let mine = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |controller: &str| {
            mine.lines()
                .find_map(|line| line.split_once(controller))
                .map(|(_, path)| path)
        };
        let name = format!("foreread-test-{}", std::process::id());
        let first = of(":memory:").map(|path| {
            (
                format!("/sys/fs/cgroup/memory{path}/{name}"),
                "memory.limit_in_bytes",
            )
        });
        let (path, limit) =
            first.unwrap_or_else(|| (format!("/sys/fs/cgroup/{name}"), "memory.max"));
        std::fs::create_dir(&path).ok()?;
        let group = Cgroup(PathBuf::from(path));
        std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }

    fn take_in(&self, process: u32) -> bool {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).is_ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A reader that has room for fewer pages than it reads: the kernel takes pages back while it decides. That is noticed, and
/// is exit code 3.
#[test]
fn a_reader_short_of_memory_accuses_nothing() {
    if lacks().is_some() {
        return;
    }
    // The largest read is 3 MiB, the largest window 1 MiB. With 4 MiB the reader is killed, with 16 nothing differs.
    let Some(group) = Cgroup::new(8 << 20) else {
        println!("skipped: needs a memory cgroup");
        return;
    };
    // Moved when its file system is there: that is in memory too. The seed is one of many that read enough.
    let cell = ["--fs", "xfs", "--read-ahead-kb", "1024", "--mmap", "no"];
    let args = [
        &cell[..],
        &["--operations", "10000", "--seed", "3182490952", "--json"],
    ]
    .concat();
    let process = begun(&args);
    let moved = group.take_in(process.id());
    let ended = process.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&ended.stderr);
    if !moved {
        println!("skipped: needs a memory cgroup that takes processes");
        return;
    }
    let report: serde_json::Value =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{said}"));
    let cell = &report["cells"][0];
    assert_eq!(cell["divergences"], 0, "{cell}");
    assert!(
        cell["pressure_episodes"].as_u64() > Some(0),
        "the limit is felt: {cell}"
    );
    assert!(cell["pressure_differences"].as_u64() > Some(0), "{cell}");
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("the kernel was short of memory in"), "{said}");
}
