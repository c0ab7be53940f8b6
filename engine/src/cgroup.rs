//! How much memory this machine has, and the control group of this process may have: cgroup v2 or v1, wherever the process really is.
//!
//! `/proc/self/cgroup` names the group, `/proc/self/mountinfo` where the hierarchy is mounted and which part of it. A limit
//! of a group above holds, too, so the smallest one on the way up counts.
//!
//! ```text
//!   /proc/self/cgroup      0::/system.slice/x.service        4:memory:/docker/abc
//!   mountinfo              / /sys/fs/cgroup cgroup2          /docker/abc /sys/fs/cgroup/memory cgroup rw,memory
//!   looked at              /sys/fs/cgroup/system.slice/x.service/memory.max, .../system.slice/memory.max, ...
//! ```
//!
//! Sources: cgroups(7), the kernel's `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.

use std::path::{Path, PathBuf};

/// Files with a limit: above `memory.high` the kernel slows the process down, which is no place for a cache either.
const V2_FILES: [&str; 2] = ["memory.max", "memory.high"];
const V1_FILES: [&str; 1] = ["memory.limit_in_bytes"];

/// The smallest limit in bytes, where there is one.
pub fn memory_limit() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let own = read(Path::new("/proc/self/cgroup"))?;
    limit(&own, &read(Path::new("/proc/self/mountinfo"))?, read)
}

fn limit(groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least = None;
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let files = if is_v2 { &V2_FILES[..] } else { &V1_FILES };
        for (root, point) in mounts.lines().filter_map(|line| hierarchy(line, is_v2)) {
            for folder in folders(Path::new(path), &root, &point) {
                let numbers = files
                    .iter()
                    .filter_map(|file| read(&folder.join(file))?.trim().parse::<u64>().ok());
                least = numbers.chain(least).min();
            }
        }
    }
    least
}

/// Which part of the hierarchy is mounted, and where, if this line of mountinfo is of one (proc_pid_mountinfo(5)).
fn hierarchy(line: &str, v2: bool) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1)?);
    let fits = if v2 {
        name == "cgroup2"
    } else {
        name == "cgroup" && options.split(',').any(|o| o == "memory")
    };
    // Blanks and the like are octal.
    let plain = |text: &str| PathBuf::from(text.replace("\\040", " "));
    fits.then(|| (plain(root), plain(point)))
}

/// The folder of the group and those above it, down from where the hierarchy is mounted. A group that is not below what is
/// mounted (a container that sees its host's name) is the root of what is mounted.
fn folders(group: &Path, root: &Path, point: &Path) -> Vec<PathBuf> {
    let below = group.strip_prefix(root).unwrap_or(Path::new(""));
    let below = if below.components().any(|part| part.as_os_str() == "..") {
        Path::new("")
    } else {
        below
    };
    below.ancestors().map(|part| point.join(part)).collect()
}

/// Memory of this machine or of the control group, whichever is less; 4 GiB where neither says.
pub fn machine_memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total_kib(&read("/proc/meminfo")).map(|kib| kib.saturating_mul(1024));
    memory_limit()
        .into_iter()
        .chain(machine)
        .min()
        .unwrap_or(4 << 30)
}

fn total_kib(meminfo: &str) -> Option<u64> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_machine_is_read() {
        assert_eq!(
            total_kib("MemFree: 1 kB\nMemTotal:    2048 kB\n"),
            Some(2048)
        );
        assert_eq!(total_kib("MemTotal: much"), None);
        assert!(machine_memory() > 1 << 20);
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str =
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";

    fn limit_of(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        limit(groups, mounts, |path| {
            let found = files
                .iter()
                .find(|(name, _)| Path::new("/sys/fs/cgroup").join(name) == path);
            found.map(|(_, text)| text.to_string())
        })
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
        let mounted = V2.replace(" / /sys", " /docker/abc /sys");
        assert_eq!(
            limit_of("0::/docker/abc\n", &mounted, &root),
            Some(700),
            "the host's name, its own part mounted"
        );
        assert_eq!(
            limit_of("0::/docker/abc/x\n", &mounted, &[("x/memory.max", "600\n")]),
            Some(600)
        );
    }

    #[test]
    fn version_1_alone_and_beside_version_2() {
        let files = [
            ("memory/a/memory.limit_in_bytes", "300\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(
            limit_of("4:cpu,memory:/a/b\n1:cpu:/\n", V1, &files),
            Some(300)
        );
        let both = format!("{V1}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        assert_eq!(limit_of("4:memory:/a\n0::/\n", &both, &files), Some(300));
        assert_eq!(limit_of("", "", &files), None);
        assert_eq!(
            limit_of("x\n0::/\n", "odd\n1 2 3 - cgroup2\n", &files),
            None
        );
    }
}
