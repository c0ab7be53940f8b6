//! A kernel that tells of its pages and not of its decisions: what is still compared, and that it is said what is not.
//!
//! The kernel that runs here is listened to as one without the readahead tracepoints would be. Asks for root, loop devices
//! and tracefs, and says so where they are missing. Never: the clock.

use foreread_lab::conform::linux::{self, Level};
use foreread_lab::conform::live::{FileSystem, Heard, Wanted, check, table};
use foreread_lab::report::Silent;
use std::io::Read;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// What this machine lacks for it, if anything.
fn lacks() -> Option<&'static str> {
    let there = |path: &str| std::path::Path::new(path).exists();
    let runs = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let wants = [
        (Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n"), "root"),
        (there("/dev/loop-control"), "loop devices"),
        (there("/sys/kernel/tracing/events/filemap/mm_filemap_add_to_page_cache"), "tracefs"),
        (runs("losetup"), "losetup (mount)"),
        (runs("mkfs.ext4"), "mkfs.ext4 (e2fsprogs)"),
        (runs("mkfs.xfs"), "mkfs.xfs (xfsprogs)"),
    ];
    wants.into_iter().find(|(has, _)| !has).map(|(_, what)| what)
}

#[test]
fn pages_are_compared_where_decisions_are_not_told() {
    if let Some(what) = lacks() {
        println!("skipped: needs {what}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted {
        file_systems: vec![FileSystem::Ext4Journal, FileSystem::Xfs],
        read_ahead_kib: vec![128],
        operations: 1200,
        seed: 7,
        keep: Some(folder.path().to_path_buf()),
        heard: Some(Heard::Pages),
    };
    let found = check(&wanted, &AtomicBool::new(false), &mut Silent).expect("it can be asked");
    assert_eq!(found.len(), 2);
    for one in &found {
        assert_eq!((one.heard, one.operations, one.decisions), (Heard::Pages, 1200, 0), "{one:?}");
        assert_eq!((one.divergences, &one.first), (0, &None), "{one:?}");
    }
    let text = table("6.1", 7, &found);
    assert!(text.contains("\nNot compared, for want of the readahead tracepoints of 6.18: decisions"), "{text}");
    // What was kept holds pages and no decisions, and a page more in it is a difference.
    let name = folder.path().join("ext4-journal-128-7-reads.jsonl.gz");
    let mut kept = String::new();
    linux::open(&name).expect("kept").read_to_string(&mut kept).expect("text");
    assert!(kept.contains("\"added\":[[0,0],[1,0]") && !kept.contains("\"calls\"") && !kept.contains("\"state\""));
    let more = kept.replacen("\"added\":[[0,0],", "\"added\":[[0,0],[77777,0],", 1);
    for level in [Level::Full, Level::Pages] {
        assert_eq!(linux::check(kept.as_bytes(), level, None).expect("a recording").divergences, 0);
        assert_eq!(linux::check(more.as_bytes(), level, None).expect("a recording").divergences, 1, "{level:?}");
    }
}
