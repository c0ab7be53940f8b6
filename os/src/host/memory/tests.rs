//! Memory limits, with `/proc` and control groups created by the test, and with those of this machine.

use super::{Host, limit};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// A machine with 1 GiB, half of it free, and a process 7 with this `cgroup` and `mountinfo`.
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
    let room = Host::below(root).memory_room_of(7)?;
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
    let room = Host::below(root.path())
        .memory_room_of(7)
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
    let own = Host::here().memory_room().expect("a figure");
    assert!(
        own.limit_bytes >= own.free_bytes && own.limit_bytes > 0,
        "{own:?}"
    );
    assert!(Host::here().memory_room_of(std::process::id()).is_some());
    assert!(Host::here().memory_bytes() > 1 << 20);
}

#[test]
fn memory_of_the_machine_is_read() {
    let root = machine("", "");
    let total = || Host::below(root.path()).meminfo("MemTotal:");
    write(
        root.path(),
        "proc/meminfo",
        "MemFree: 1 kB\nMemTotal:    2048 kB\n",
    );
    assert_eq!(total(), Some(2048 << 10));
    assert_eq!(Host::below(root.path()).memory_bytes(), 2048 << 10);
    write(root.path(), "proc/meminfo", "MemTotal: much");
    assert_eq!(total(), None);
    assert_eq!(Host::below(root.path()).memory_bytes(), 4 << 30);
}

const V2: &str = "30 23 0:26 / ROOT/cg rw - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "35 31 0:32 / ROOT/cg/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";

/// The smallest limit of a process with these groups and mounts, if the hierarchy contains these files.
fn limit_of(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
    let root = machine(groups, mounts);
    for (file, text) in files {
        write(root.path(), &format!("cg/{file}"), text);
    }
    let groups = Host::below(root.path()).groups("7").into_iter();
    groups.filter_map(|group| limit(&group)).min()
}

#[test]
fn the_smallest_limit_on_the_way_up_counts() {
    let files = [
        ("a/memory.max", "4000\n"),
        ("a/b/memory.max", "max\n"),
        ("a/b/c/memory.max", "9000\n"),
    ];
    assert_eq!(
        limit_of("0::/a/b/c\n", V2, &files),
        Some(4000),
        "of a group above"
    );
    assert_eq!(
        limit_of("0::/a/b/c\n", V2, &files[1..]),
        Some(9000),
        "its own"
    );
    assert_eq!(
        limit_of("0::/a/b\n", V2, &files[1..]),
        None,
        "of a group below is not ours"
    );
    assert_eq!(limit_of("0::/other\n", V2, &files), None);
    let high = [("a/memory.max", "max\n"), ("a/memory.high", "500\n")];
    assert_eq!(limit_of("0::/a\n", V2, &high), Some(500));
}

#[test]
fn a_container_with_or_without_a_namespace_of_its_own() {
    let root = [("memory.max", "700\n")];
    assert_eq!(
        limit_of("0::/\n", V2, &root),
        Some(700),
        "a new namespace: the root is its group"
    );
    assert_eq!(
        limit_of("0::/../other\n", V2, &root),
        Some(700),
        "outside of its namespace"
    );
    let mounted = V2.replace(" / ROOT", " /docker/abc ROOT");
    assert_eq!(
        limit_of("0::/docker/abc\n", &mounted, &root),
        Some(700),
        "the host's name, its own part mounted"
    );
    assert_eq!(
        limit_of("0::/docker/abc/x\n", &mounted, &[("x/memory.max", "600\n")]),
        Some(600)
    );
    let other = format!("{}{V2}", V2.replace(" / ROOT", " /docker/abc ROOT/other"));
    let files = [("../other/memory.max", "5\n"), ("memory.max", "700\n")];
    assert_eq!(
        limit_of("0::/a\n", &other, &files),
        Some(700),
        "a part that is mounted elsewhere and not ours"
    );
}

#[test]
fn version_1_with_and_without_version_2() {
    let files = [
        ("memory/a/memory.limit_in_bytes", "300\n"),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ];
    assert_eq!(
        limit_of("4:cpu,memory:/a/b\n1:cpu:/\n", V1, &files),
        Some(300)
    );
    let both = format!("{V1}41 31 0:38 / ROOT/cg/unified rw - cgroup2 cgroup2 rw\n");
    assert_eq!(limit_of("4:memory:/a\n0::/\n", &both, &files), Some(300));
    assert_eq!(limit_of("", "", &files), None);
    assert_eq!(
        limit_of("x\n0::/\n", "odd\n1 2 3 - cgroup2\n", &files),
        None
    );
}
