//! Memory limits, by a `/proc` and control groups of the test's and by this machine's.

use foreread_pagecache::memory::{Places, room, room_of};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// A machine of 1 GiB, half of it free, with a process 7 of this `cgroup` and `mountinfo`.
fn machine(cgroup: &str, mountinfo: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    write(
        root.path(),
        "proc/meminfo",
        "MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n",
    );
    write(root.path(), "proc/7/cgroup", cgroup);
    write(
        root.path(),
        "proc/7/mountinfo",
        &mountinfo.replace("ROOT", &root.path().display().to_string()),
    );
    root
}

fn free(root: &Path) -> Option<(u64, Option<String>)> {
    let room = Places {
        proc: root.join("proc"),
    }
    .room("7")?;
    let group = room.group.map(|group| {
        group
            .strip_prefix(root)
            .expect("below")
            .display()
            .to_string()
    });
    Some((room.free_bytes / MIB, group))
}

#[test]
fn the_tightest_group_of_version_2_counts() {
    let root = machine(
        "0::/a/b\n",
        "31 24 0:27 / ROOT/cg rw,nosuid - cgroup2 cgroup2 rw\n",
    );
    write(root.path(), "cg/a/memory.max", "268435456\n");
    write(root.path(), "cg/a/memory.current", "104857600\n");
    write(root.path(), "cg/a/b/memory.max", "max\n");
    write(root.path(), "cg/a/b/memory.current", "104857600\n");
    assert_eq!(free(root.path()), Some((156, Some("cg/a".into()))));
    write(root.path(), "cg/a/b/memory.high", "134217728\n");
    assert_eq!(
        free(root.path()),
        Some((28, Some("cg/a/b".into()))),
        "memory.high slows a group down"
    );
    write(root.path(), "cg/a/b/memory.current", "999999999\n");
    assert_eq!(
        free(root.path()),
        Some((0, Some("cg/a/b".into()))),
        "beyond the limit nothing is free"
    );
}

#[test]
fn version_1_is_read_where_it_is_mounted() {
    let mounts = "30 24 0:26 /docker/x ROOT/cg rw - cgroup cgroup rw,memory\n29 24 0:25 / ROOT/cpu rw - cgroup c rw,cpu\n";
    let root = machine("4:memory:/docker/x/y\n1:cpu:/\n0::/\n", mounts);
    write(root.path(), "cg/y/memory.limit_in_bytes", "104857600\n");
    write(root.path(), "cg/y/memory.usage_in_bytes", "52428800\n");
    write(
        root.path(),
        "cg/y/memory.stat",
        "inactive_file 5\nactive_file 7\ntotal_inactive_file 1048576\n",
    );
    assert_eq!(
        free(root.path()),
        Some((50, Some("cg/y".into()))),
        "the mount shows what is below /docker/x"
    );
    let room = Places {
        proc: root.path().join("proc"),
    }
    .room("7")
    .expect("a figure");
    assert_eq!((room.inactive_bytes, room.limit_bytes), (MIB, 100 * MIB));
}

#[test]
fn without_a_limit_the_machine_is_one() {
    let root = machine("0::/\n", "31 24 0:27 / ROOT/cg rw - cgroup2 cgroup2 rw\n");
    assert_eq!(free(root.path()), Some((512, None)));
    let root = machine("this is\nno:cgroup\n", "nor a mount\n1 - \n");
    assert_eq!(free(root.path()), Some((512, None)));
    fs::write(root.path().join("proc/meminfo"), "MemTotal: many kB\n").expect("written");
    assert_eq!(free(root.path()), None, "the kernel says nothing");
}

#[test]
fn this_machine_has_room() {
    let own = room().expect("a figure");
    assert!(
        own.limit_bytes >= own.free_bytes && own.limit_bytes > 0,
        "{own:?}"
    );
    assert!(room_of(std::process::id()).is_some());
}
