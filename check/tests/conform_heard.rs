//! A kernel that reports its pages but not its decisions, or neither: what is still compared, and that the report says
//! what is not.
//!
//! The kernel that runs here is listened to as one without those tracepoints would be. Asks for root, loop devices
//! and tracefs, and says so where they are missing. Never: the clock.

use foreread_check::conform::linux::{self, Level};
use foreread_check::conform::live::{CellOutcomes, CellSelection, FileSystem, Heard, check, table};
use foreread_report::progress::Silent;
use std::io::Read;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// What this machine lacks for it, if anything.
fn lacks() -> Option<&'static str> {
    let there = |path: &str| std::path::Path::new(path).exists();
    let runs = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let wants = [
        (
            Command::new("id")
                .arg("-u")
                .output()
                .is_ok_and(|out| out.stdout == b"0\n"),
            "root",
        ),
        (there("/dev/loop-control"), "loop devices"),
        (
            there("/sys/kernel/tracing/events/filemap/mm_filemap_add_to_page_cache"),
            "tracefs",
        ),
        (runs("losetup"), "losetup (mount)"),
        (runs("mkfs.ext4"), "mkfs.ext4 (e2fsprogs)"),
        (runs("mkfs.xfs"), "mkfs.xfs (xfsprogs)"),
    ];
    wants
        .into_iter()
        .find(|(has, _)| !has)
        .map(|(_, what)| what)
}

/// At 128 KiB, with and without mappings.
fn wanted(file_systems: Vec<FileSystem>, operations: u64) -> CellSelection {
    let (read_ahead_kib, mmap) = (vec![128], vec![false, true]);
    let what_there_is = false;
    CellSelection {
        file_systems,
        read_ahead_kib,
        mmap,
        operations,
        seed: 7,
        keep: None,
        heard: None,
        what_there_is,
    }
}

/// The running kernel, with only these events used; and the recording of its reads.
fn asked(heard: Heard, file_systems: Vec<FileSystem>) -> Option<(CellOutcomes, String)> {
    if let Some(what) = lacks() {
        println!("skipped: needs {what}");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let keep = Some(folder.path().to_path_buf());
    let heard = Some(heard);
    let wanted = CellSelection {
        keep,
        heard,
        ..wanted(file_systems, 1200)
    };
    let found = check(&wanted, &AtomicBool::new(false), &mut Silent).expect("it can be asked");
    for one in &found.cells {
        assert_eq!(
            (Some(one.heard), one.operations, one.decisions),
            (heard, 1200, 0),
            "{one:?}"
        );
        assert_eq!((one.divergences, &one.first), (0, &None), "{one:?}");
    }
    let mut kept = String::new();
    let name = folder.path().join("ext4-journal-128-7-reads.jsonl.gz");
    linux::open(&name)
        .expect("kept")
        .read_to_string(&mut kept)
        .expect("text");
    assert!(!kept.contains("\"calls\"") && !kept.contains("\"state\""));
    Some((found, kept))
}

/// What was kept agrees at these levels, and with a page more in it does not.
fn a_page_more_is_found(kept: &str, levels: &[Level]) {
    let at = kept
        .find("\"added\":[[0,0],")
        .expect("an operation that reads from the start");
    let more = format!("{}[77777,0],{}", &kept[..at + 9], &kept[at + 9..]);
    for level in levels {
        assert_eq!(
            linux::check(kept.as_bytes(), *level, None)
                .expect("a recording")
                .divergences,
            0
        );
        assert_eq!(
            linux::check(more.as_bytes(), *level, None)
                .expect("a recording")
                .divergences,
            1,
            "{level:?}"
        );
    }
}

#[test]
fn pages_are_compared_without_decisions() {
    let Some((found, kept)) = asked(Heard::Pages, vec![FileSystem::Ext4Journal, FileSystem::Xfs])
    else {
        return;
    };
    let maps = 2 - found.left_out.len();
    assert_eq!(found.cells.len(), 2 * maps, "{:?}", found.left_out);
    let text = table("6.1", 7, &found);
    assert!(
        text.contains("\nNot compared, for lack of the readahead tracepoints of 6.18: decisions"),
        "{text}"
    );
    a_page_more_is_found(&kept, &[Level::Full, Level::Pages]);
}

#[test]
fn present_pages_are_compared_without_tracepoints() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: needs python3");
        return;
    }
    let Some((found, kept)) = asked(
        Heard::Presence,
        vec![FileSystem::Ext4, FileSystem::Ext4Journal],
    ) else {
        return;
    };
    let cells: Vec<_> = found
        .cells
        .iter()
        .map(|one| (one.file_system, one.mmap))
        .collect();
    assert_eq!(cells, [("ext4-journal", false)]);
    assert!(
        found.left_out[0]
            .starts_with("page faults and readahead(2): this kernel has no tracepoints")
    );
    let text = table("6.1", 7, &found);
    assert!(
        text.contains("\nNot compared, for lack of tracepoints: all but the pages that reads"),
        "{text}"
    );
    assert!(!kept.contains("\"marks\""));
    a_page_more_is_found(&kept, &[Level::Pages]);
    // Where nothing fits it is said what would.
    let wanted = CellSelection {
        heard: Some(Heard::Presence),
        ..wanted(vec![FileSystem::Xfs], 1)
    };
    let told = check(&wanted, &AtomicBool::new(false), &mut Silent)
        .expect_err("none that fits")
        .to_string();
    assert!(
        told.contains("only ext4-journal") && told.contains("--check REC"),
        "{told}"
    );
}
