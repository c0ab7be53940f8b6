//! Tests `foreread serve` as a process: when a signal ends the server, the trace of `--record` contains exactly the
//! requests of the clients. Also tests the log, odd paths, and a control group.

use crate::common::{BINARY, Server, has, items, needs, read_nbd, says};
use foreread::source::Nbd;
use foreread_trace::{Item, Op, Record};
use std::path::Path;
use std::process::{Command, Stdio};

const SIZE: u64 = 3_000_000;

/// A server that records.
struct Recorded {
    server: Server,
    folder: tempfile::TempDir,
}

impl Recorded {
    fn new(more: &[&str]) -> Recorded {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = foreread_testing::pattern(0, SIZE as usize, 0);
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("disk"), bytes).expect("room");
        let mut command = Command::new(BINARY);
        let command = command.arg("serve").arg(at("disk"));
        let command = command.arg("--unix").arg(at("s"));
        let server = Server::start(command.arg("--record").arg(at("t.frt")).args(more));
        assert!(!at("t.frt").exists(), "a trace is there when it is whole");
        Recorded { server, folder }
    }

    fn client(&self) -> Nbd {
        Nbd::open(&self.server.line).expect("connected")
    }

    /// Ends it by a signal. What it said, the name of the trace's only file, and its records.
    fn ended_by(self, signal: &str) -> (String, String, Vec<Record>) {
        let said = self.server.ended_by(signal);
        let (mut name, mut records) = (String::new(), Vec::new());
        for item in items(&self.folder.path().join("t.frt"), None) {
            match item {
                Item::File(file) => {
                    assert_eq!((file.size, name.is_empty()), (Some(SIZE), true), "one file");
                    name = file.name;
                }
                Item::Record(record) => records.push(record),
            }
        }
        (said, name, records)
    }
}

fn ranges(records: &[Record]) -> Vec<(u64, u64)> {
    records.iter().map(|r| (r.offset, r.len)).collect()
}

#[test]
fn requests_of_a_client_are_recorded_in_order() {
    let served = Recorded::new(&["--export", "disk-of-a-vm"]);
    let client = served.client();
    let asked: Vec<(u64, u64)> = (0..500)
        .map(|n| (n * 7919 * 13 % (SIZE - 700_000), 1 + n * 1511 % 700_000))
        .collect();
    for &(offset, len) in &asked {
        assert_eq!(read_nbd(&client, offset, len as usize).len() as u64, len);
    }
    drop(client);
    let (said, name, records) = served.ended_by("-TERM");
    assert!(said.ends_with("t.frt: 500 records\n"), "{said}");
    assert_eq!(name, "disk-of-a-vm");
    assert_eq!(ranges(&records), asked);
    let first = records[0].start_ns;
    assert_eq!(first, Some(0), "times count from the first request");
    let is_read = |r: &Record| r.op == Op::Read && r.returned.is_none();
    assert!(records.iter().all(is_read));
    // It waited for each answer before it asked on.
    for pair in records.windows(2) {
        let is_after = pair[0].end_ns.is_some() && pair[0].end_ns <= pair[1].start_ns;
        assert!(is_after, "{pair:?}");
    }
}

#[test]
fn writes_are_recorded_and_other_requests_are_counted() {
    needs!(has(&["qemu-io", "--version"]));
    let served = Recorded::new(&["--writable"]);
    let mut command = Command::new("qemu-io");
    for line in [
        "read 4096 8192",
        "write -P 7 65536 4096",
        "flush",
        "read 65536 512",
    ] {
        command.args(["-c", line]);
    }
    let command = command.args(["-f", "raw", &served.server.line]);
    let done = command.stdout(Stdio::null()).status();
    assert!(done.expect("qemu-io").success());
    let (said, _, records) = served.ended_by("-TERM");
    let asked = |op: Op| {
        let of_op = records.iter().filter(|r| r.op == op);
        Vec::from_iter(of_op.map(|r| (r.offset, r.len)))
    };
    // A block driver may read the disk before any command.
    let reads = asked(Op::Read);
    assert!(reads.ends_with(&[(4096, 8192), (65536, 512)]), "{reads:?}");
    assert_eq!(asked(Op::Write), [(65536, 4096)]);
    says(&said, &[" records, left out ", " flush"]);
}

/// What a terminal that is closed sends. Under nohup it is ignored, and stays so.
#[test]
fn a_hang_up_ends_it_in_good_order_unless_it_is_ignored() {
    let served = Recorded::new(&[]);
    read_nbd(&served.client(), 8192, 4096);
    let (_, _, records) = served.ended_by("-HUP");
    assert_eq!(ranges(&records), [(8192, 4096)]);

    let (running, _folder) = shell("trap '' HUP; exec \"$@\"", &["--tcp", "0"], |_| ());
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid()));
    let status = status.expect("it runs");
    let ignored = status.lines().find(|line| line.starts_with("SigIgn:"));
    assert!(ignored.is_some_and(|mask| mask.ends_with('1')), "{status}");
    running.ended_by("-TERM");
}

/// A server begun through a shell: `script` gets the command as its arguments. The source is of 1 MiB, by a path that is no UTF-8.
fn shell(
    script: &str,
    more: &[&str],
    set: impl FnOnce(&mut Command),
) -> (Server, tempfile::TempDir) {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join(std::ffi::OsStr::from_bytes(b"disk\xff"));
    std::fs::write(&disk, vec![7; 1 << 20]).expect("room");
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", BINARY, "serve"]);
    command.arg(&disk).args(more);
    set(&mut command);
    (Server::start(&mut command), folder)
}

#[test]
fn clients_are_logged_for_a_terminal_and_for_the_journal() {
    use std::os::unix::fs::MetadataExt;
    let (plain, _folder) = shell("exec \"$@\"", &["--tcp", "0", "--log", "info"], |_| ());
    drop(Nbd::open(&plain.line).expect("connected"));
    let said = plain.ended_by("-TERM");
    let connected = "  INFO NBD client connected client=0 peer=127.0.0.1:";
    let gone = "  INFO NBD client gone client=0 requests=";
    says(&said, &[connected, gone]);
    let timed = |line: &&str| line.starts_with("20") && line.contains("Z  INFO NBD client");
    assert_eq!(said.lines().filter(timed).count(), 2, "with time: {said}");
    // Below the level that is asked for nothing is said, and the journal adds the time itself.
    for (level, count) in [("info", 2), ("warn", 0)] {
        let script =
            "exec 2>\"$ERR\"; export JOURNAL_STREAM=$(stat -c %d:%i \"$ERR\"); exec \"$@\"";
        let err = tempfile::NamedTempFile::new().expect("room");
        let (journal, _folder) = shell(script, &["--tcp", "0"], |command| {
            command.env("ERR", err.path()).env("FOREREAD_LOG", level);
        });
        assert!(err.path().metadata().expect("there").ino() > 0);
        drop(Nbd::open(&journal.line).expect("connected"));
        journal.ended_by("-TERM");
        let said = std::fs::read_to_string(err.path()).expect("there");
        let is_of_client = |line: &&str| line.starts_with("<6>NBD client ");
        assert_eq!(said.lines().filter(is_of_client).count(), count, "{said}");
    }
}

/// A limit of the group above counts, under its own name in the hierarchy.
#[test]
fn a_cache_is_no_larger_than_the_control_group_allows() {
    let groups = std::fs::read_to_string("/proc/self/cgroup").expect("readable");
    let v1 = groups.lines().find_map(|line| line.split_once(":memory:"));
    let v2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let (own, file) = match (v1, v2.unwrap_or_default().trim_start_matches('/')) {
        (Some((_, path)), _) => (format!("memory{path}"), "memory.limit_in_bytes"),
        (None, path) => (path.to_string(), "memory.max"),
    };
    let name = format!("foreread-test-{}", std::process::id());
    let outer = Path::new("/sys/fs/cgroup").join(own).join(name);
    let inner = outer.join("inner");
    let limit = (64 << 20).to_string();
    let made = std::fs::create_dir_all(&inner);
    if let Err(error) = made.and_then(|()| std::fs::write(outer.join(file), limit)) {
        drop((std::fs::remove_dir(&inner), std::fs::remove_dir(&outer)));
        return println!("skipped: needs root and a control group with memory ({error})");
    }
    let script = "echo $$ > \"$GROUP\"/cgroup.procs && exec \"$@\"";
    let (running, _folder) = shell(script, &["--tcp", "0", "--cache", "1G"], |command| {
        command.env("GROUP", &inner);
    });
    let said = running.ended_by("-TERM");
    drop((std::fs::remove_dir(&inner), std::fs::remove_dir(&outer)));
    let note = "foreread: the cache has 14.7 MB, not 1G: all caches together get at most 16.8 MB of the memory";
    assert!(said.contains(note), "{said}");
}
