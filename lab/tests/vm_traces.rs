//! Tests of [Crume 2014]'s four workloads, recorded from a real virtual machine (`lab/traces`): the traces can be read,
//! and agree with their page. If FOREREAD_VM_TRACES names a folder, its four traces are checked for the properties that
//! every recording must have (`./test-long vm` records new ones).

use foreread_lab::replay::{Mode, Part, Replay, load};
use foreread_trace::{Item, Level, Op, Record};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAMES: [&str; 4] = ["boot-ide", "boot-virtio", "grep-ide", "grep-virtio"];
const SECTOR: u64 = 512;

/// What the page says of a trace.
struct Facts {
    reads: u64,
    bytes: u64,
    single: u64,
    follow: u64,
    deepest: usize,
    overlap: u64,
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

fn reads(path: &Path) -> Vec<Record> {
    let import = foreread_trace::open(path, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (import.header.format.as_str(), import.header.level),
        ("foreread serve", Level::BelowCache)
    );
    let mut files = 0;
    let mut records = Vec::new();
    for item in import.items {
        match item.unwrap_or_else(|error| panic!("{error}")) {
            Item::File(file) => {
                assert_eq!((file.name.as_str(), file.size), ("vm-disk", Some(2 << 30)));
                files += 1;
            }
            Item::Record(record) => records.push(record),
        }
    }
    assert_eq!(files, 1, "one disk");
    // Writes are in it where the machine had the disk itself.
    records.retain(|r| r.op == Op::Read);
    records
}

/// Counted here, and not by the code that replays.
fn facts(path: &Path) -> Facts {
    let reads = reads(path);
    let mut running = BinaryHeap::new();
    let (mut deepest, mut overlap, mut follow) = (0, 0, 0);
    let mut last_end = 0;
    for read in &reads {
        let (start, end) = (read.start_ns.expect("known"), read.end_ns.expect("known"));
        while running.peek().is_some_and(|Reverse(end)| *end <= start) {
            running.pop();
        }
        overlap += u64::from(!running.is_empty());
        running.push(Reverse(end));
        deepest = deepest.max(running.len());
        follow += u64::from(read.offset == last_end);
        last_end = read.offset + read.len;
    }
    let single = reads.iter().filter(|r| r.len == SECTOR).count() as u64;
    let bytes = reads.iter().map(|r| r.len).sum();
    Facts {
        reads: reads.len() as u64,
        bytes,
        single,
        follow,
        deepest,
        overlap,
    }
}

impl Facts {
    /// Its row of the page, without the end of the line.
    fn row(&self, name: &str) -> String {
        let percent = |part: u64| format!("{:.1} %", 100.0 * part as f64 / self.reads as f64);
        format!(
            "| {name} | {} | {:.1} | {} | {} | {} | {} |",
            self.reads,
            self.bytes as f64 / 1e6,
            self.single,
            percent(self.follow),
            self.deepest,
            percent(self.overlap)
        )
    }
}

#[test]
fn the_page_says_what_is_in_them() {
    let page = std::fs::read_to_string(shipped().join("README.md")).expect("the page");
    for name in NAMES {
        let path = shipped().join(format!("{name}.frt"));
        let row = facts(&path).row(name);
        assert!(page.contains(&row), "the page lacks: {row}");
        let bytes = std::fs::metadata(&path).expect("there").len();
        assert!(bytes < 400_000, "{name} has {bytes} bytes");
    }
}

/// What the posting says of its traces: over IDE one request at a time, most of a boot in single sectors one behind the other;
/// over virtio neither.
#[test]
fn they_are_like_the_traces_of_the_posting() {
    let folder = std::env::var_os("FOREREAD_VM_TRACES").map_or_else(shipped, PathBuf::from);
    let [boot_ide, boot_virtio, grep_ide, grep_virtio] =
        NAMES.map(|name| facts(&folder.join(format!("{name}.frt"))));
    let is_most = |part: u64, of: u64| part * 10 > of * 9;
    let ide = boot_ide.row("boot-ide");
    assert!(boot_ide.reads > 40_000, "{ide}");
    assert!(is_most(boot_ide.single, boot_ide.reads), "{ide}");
    assert!(is_most(boot_ide.follow, boot_ide.reads), "{ide}");
    for one in [&boot_ide, &grep_ide] {
        let at_once = (one.deepest, one.overlap);
        assert_eq!(at_once, (1, 0), "IDE has one request at a time");
    }
    for several in [&boot_virtio, &grep_virtio] {
        let is_deep = several.deepest >= 4 && several.overlap > 0;
        assert!(is_deep, "{}", several.row("virtio"));
    }
    let virtio = boot_virtio.row("boot-virtio");
    assert!(boot_virtio.reads * 10 < boot_ide.reads, "{virtio}");
    for grep in [&grep_ide, &grep_virtio] {
        let is_long = grep.reads > 10_000 && grep.bytes > 500_000_000;
        assert!(is_long, "{}", grep.row("grep"));
    }
}

/// By their waits they are replayed as deep as they were recorded, and no deeper: every read is there, and waits for an earlier one.
#[test]
fn they_can_be_replayed_by_what_each_read_waited_for() {
    for name in NAMES {
        let path = shipped().join(format!("{name}.frt"));
        let count = facts(&path).reads;
        let import = foreread_trace::open(&path, None).expect("a trace");
        let loaded = Arc::new(load(name, import, &Part::default()).expect("a replay"));
        let replay = Replay::of(&loaded, Some(Mode::Deps), Some(0.0)).expect("starts and ends");
        let workload = &replay.workload;
        assert_eq!((workload.reads(), workload.page_bytes), (count, SECTOR));
        let jobs = &workload.jobs;
        assert!(jobs.iter().all(|job| job.requests.len() == 1), "{name}");
        let waits = |n: usize| {
            let mut links = jobs[n].links.iter();
            links.all(|link| link.end && link.delay_ns == 0 && (link.job as usize) < n)
        };
        assert!((0..jobs.len()).all(waits), "{name}");
        if name.ends_with("ide") {
            let chain =
                |n: usize| jobs[n].links.len() == 1 && jobs[n].links[0].job as usize == n - 1;
            assert!((1..jobs.len()).all(chain), "{name}: one after the other");
        }
    }
}
