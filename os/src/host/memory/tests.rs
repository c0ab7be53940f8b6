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
    let memory = "MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n";
    write(root.path(), "proc/meminfo", memory);
    write(root.path(), "proc/7/cgroup", cgroup);
    let mountinfo = mountinfo.replace("ROOT", &root.path().display().to_string());
    write(root.path(), "proc/7/mountinfo", &mountinfo);
    root
}

fn free(root: &Path) -> Option<(u64, Option<String>)> {
    let room = Host::below(root).memory_room_of(7)?;
    let name = |group: &Path| {
        group
            .strip_prefix(root)
            .expect("below")
            .display()
            .to_string()
    };
    Some((room.free_bytes / MIB, room.group.as_deref().map(name)))
}

#[test]
fn the_tightest_group_of_version_2_counts() {
    let root = machine("0::/a/b\n", V2);
    let write = |file: &str, text: &str| write(root.path(), file, text);
    let of = |free, group: &str| Some((free, Some(group.to_string())));
    write("cg/a/memory.max", "268435456\n");
    write("cg/a/memory.current", "104857600\n");
    write("cg/a/b/memory.max", "max\n");
    write("cg/a/b/memory.current", "104857600\n");
    assert_eq!(free(root.path()), of(156, "cg/a"));
    write("cg/a/b/memory.high", "134217728\n");
    let slows = "memory.high slows a group down";
    assert_eq!(free(root.path()), of(28, "cg/a/b"), "{slows}");
    write("cg/a/b/memory.current", "999999999\n");
    let none = "beyond the limit nothing is free";
    assert_eq!(free(root.path()), of(0, "cg/a/b"), "{none}");
}

#[test]
fn version_1_is_read_where_it_is_mounted() {
    let mounts = "30 24 0:26 /docker/x ROOT/cg rw - cgroup cgroup rw,memory\n29 24 0:25 / ROOT/cpu rw - cgroup c rw,cpu\n";
    let root = machine("4:memory:/docker/x/y\n1:cpu:/\n0::/\n", mounts);
    write(root.path(), "cg/y/memory.limit_in_bytes", "104857600\n");
    write(root.path(), "cg/y/memory.usage_in_bytes", "52428800\n");
    let stat = "inactive_file 5\nactive_file 7\ntotal_inactive_file 1048576\n";
    write(root.path(), "cg/y/memory.stat", stat);
    let below = "the mount shows what is below /docker/x";
    assert_eq!(
        free(root.path()),
        Some((50, Some("cg/y".into()))),
        "{below}"
    );
    let room = Host::below(root.path()).memory_room_of(7);
    let room = room.expect("a figure");
    assert_eq!((room.inactive_bytes, room.limit_bytes), (MIB, 100 * MIB));
}

#[test]
fn without_a_limit_the_machine_is_one() {
    let root = machine("0::/\n", V2);
    assert_eq!(free(root.path()), Some((512, None)));
    let root = machine("this is\nno:cgroup\n", "nor a mount\n1 - \n");
    assert_eq!(free(root.path()), Some((512, None)));
    let all = || Host::below(root.path()).memory_bytes();
    assert_eq!(all(), 1024 * MIB);
    write(root.path(), "proc/meminfo", "MemTotal: many kB\n");
    assert_eq!(free(root.path()), None, "the kernel says nothing");
    assert_eq!(all(), 4 << 30);
}

#[test]
fn this_machine_has_room() {
    let own = Host::here().memory_room().expect("a figure");
    let is_right = own.limit_bytes >= own.free_bytes && own.limit_bytes > 0;
    assert!(is_right, "{own:?}");
    assert!(Host::here().memory_room_of(std::process::id()).is_some());
    assert!(Host::here().memory_bytes() > 1 << 20);
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
    let high = [("a/memory.max", "max\n"), ("a/memory.high", "500\n")];
    for (group, files, limit, why) in [
        ("/a/b/c", &files[..], Some(4000), "of a group above"),
        ("/a/b/c", &files[1..], Some(9000), "its own"),
        ("/a/b", &files[1..], None, "of a group below is not ours"),
        ("/other", &files, None, "of another group"),
        ("/a", &high, Some(500), "memory.high"),
    ] {
        let found = limit_of(&format!("0::{group}\n"), V2, files);
        assert_eq!(found, limit, "{why}");
    }
}

#[test]
fn a_container_with_or_without_a_namespace_of_its_own() {
    let mounted = V2.replace(" / ROOT", " /docker/abc ROOT");
    let other = format!("{}{V2}", V2.replace(" / ROOT", " /docker/abc ROOT/other"));
    let root = ("memory.max", "700\n");
    let own = [root, ("x/memory.max", "600\n")];
    let elsewhere = [("../other/memory.max", "5\n"), root];
    for (group, mounts, files, limit, why) in [
        ("/", V2, &own, 700, "a new namespace: the root is its group"),
        ("/../other", V2, &own, 700, "outside of its namespace"),
        ("/docker/abc", &mounted, &own, 700, "its own part mounted"),
        ("/docker/abc/x", &mounted, &own, 600, "a group in it"),
        ("/a", &other, &elsewhere, 700, "a part mounted elsewhere"),
    ] {
        let found = limit_of(&format!("0::{group}\n"), mounts, files);
        assert_eq!(found, Some(limit), "{why}");
    }
}

#[test]
fn version_1_with_and_without_version_2() {
    let files = [
        ("memory/a/memory.limit_in_bytes", "300\n"),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ];
    let both = format!("{V1}41 31 0:38 / ROOT/cg/unified rw - cgroup2 cgroup2 rw\n");
    for (groups, mounts, limit) in [
        ("4:cpu,memory:/a/b\n1:cpu:/\n", V1, Some(300)),
        ("4:memory:/a\n0::/\n", both.as_str(), Some(300)),
        ("", "", None),
        ("x\n0::/\n", "odd\n1 2 3 - cgroup2\n", None),
    ] {
        assert_eq!(limit_of(groups, mounts, &files), limit, "{groups}");
    }
}
