//! The memory of the machine, and the limits of a process's control groups.
//!
//! `/proc/PID/cgroup` names the groups; `mountinfo` says where their hierarchy is mounted, and which part of the hierarchy. Limits of
//! parent groups also apply. The page cache is charged to the control group of the reading process. Control groups of version 2 have
//! `memory.max`, `memory.high` and `memory.current`; those of version 1 have `memory.limit_in_bytes` and `memory.usage_in_bytes`.
//!
//! ```text
//!   machine   MemAvailable 20 GiB                  ┐
//!   /a        max 2 GiB, current 1 GiB             ├─► room: 312 MiB, of /a/b; limit: 512 MiB
//!   /a/b      max 512 MiB, current 200 MiB         ┘
//! ```
//! `free_bytes` does not include memory that a group could gain by dropping cached data, because some program may need that data.
//!
//! Sources: cgroups(7), the kernel's `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.

use super::{Host, Mount, number};
use std::fs;
use std::path::{Path, PathBuf};

/// Files with a limit. Above `memory.high` the kernel throttles the process, so a cache must stay below it too.
const LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// How much more memory may be used for cached data, and which limit applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free below the limit.
    pub free_bytes: u64,
    pub limit_bytes: u64,
    /// File data that the group has cached and not used for some time (inactive_file). For the machine, this already counts as free.
    pub inactive_bytes: u64,
    /// The control group with the limit; `None` for the machine.
    pub group: Option<PathBuf>,
}

/// Size of a memory page of this machine: 4 KiB; on arm64 it can also be 16 or 64 KiB.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

impl Host {
    /// Returns the memory of this machine or the limit of the control groups of this process, whichever is less; the result is 4 GiB if
    /// neither is known.
    pub fn memory_bytes(&self) -> u64 {
        let limits = self.groups("self").into_iter();
        limits
            .filter_map(|group| limit(&group))
            .chain(self.meminfo("MemTotal:"))
            .min()
            .unwrap_or(4 << 30)
    }

    /// Returns the free memory of the machine, or that of a control group of this process if it is less; `None` if the kernel reports
    /// neither.
    pub fn memory_room(&self) -> Option<Room> {
        self.room("self")
    }

    /// Returns the free memory of the machine, or that of a control group of the process `pid` if it is less.
    pub fn memory_room_of(&self, pid: u32) -> Option<Room> {
        self.room(&pid.to_string())
    }

    /// Returns true if transparent huge pages are enabled even for programs that do not request them.
    pub fn has_huge_pages(&self) -> bool {
        self.sys.join("kernel/mm/transparent_hugepage").is_dir()
    }

    fn room(&self, process: &str) -> Option<Room> {
        let groups = self.groups(process).into_iter();
        groups
            .filter_map(group_room)
            .chain(self.machine())
            .min_by_key(|room| room.free_bytes)
    }

    fn machine(&self) -> Option<Room> {
        Some(Room {
            free_bytes: self.meminfo("MemAvailable:")?,
            limit_bytes: self.meminfo("MemTotal:")?,
            inactive_bytes: 0,
            group: None,
        })
    }

    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib.saturating_mul(1024))
    }

    /// The folders of all groups of the process, from the innermost to the root of each hierarchy.
    fn groups(&self, process: &str) -> Vec<PathBuf> {
        let groups = fs::read_to_string(self.proc.join(process).join("cgroup")).unwrap_or_default();
        let mounts = self.mounts_of(process);
        let mut found = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let is_v2 = controllers.is_empty();
            if !is_v2 && !controllers.split(',').any(|name| name == "memory") {
                continue;
            }
            let path = Path::new(path);
            let mut hierarchies = mounts.iter().filter(|mount| has_memory(mount, is_v2));
            let fits = |mount: &&Mount| path.starts_with(&mount.root);
            let mount = hierarchies.clone().find(fits).or(hierarchies.next());
            found.extend(mount.into_iter().flat_map(|mount| folders(path, mount)));
        }
        found
    }
}

/// Whether this is a hierarchy of control groups that has memory.
fn has_memory(mount: &Mount, is_v2: bool) -> bool {
    if is_v2 {
        mount.kind == "cgroup2"
    } else {
        mount.kind == "cgroup" && mount.options.split(',').any(|name| name == "memory")
    }
}

/// The folder of the group and its parents, up to the mount point of the hierarchy. A group outside the mounted part
/// (a container that sees its host's name) is the root of the mounted part.
fn folders(group: &Path, mount: &Mount) -> Vec<PathBuf> {
    let below = group.strip_prefix(&mount.root).ok();
    let below = below.filter(|path| path.components().all(|part| part.as_os_str() != ".."));
    let below = below.unwrap_or(Path::new("")).ancestors();
    below.map(|part| mount.point.join(part)).collect()
}

/// The smallest of a group's limits. "max" means no limit.
fn limit(group: &Path) -> Option<u64> {
    let numbers = LIMITS.map(|name| number(&group.join(name)));
    numbers.into_iter().flatten().min()
}

fn group_room(group: PathBuf) -> Option<Room> {
    let current = number(&group.join("memory.current"))
        .or_else(|| number(&group.join("memory.usage_in_bytes")))?;
    let limit_bytes = limit(&group)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of_stat = |name: &str| {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    // Version 1 has a separate name for the sum that includes child groups.
    let inactive_bytes = of_stat("total_inactive_file").or_else(|| of_stat("inactive_file"));
    Some(Room {
        free_bytes: limit_bytes.saturating_sub(current),
        limit_bytes,
        inactive_bytes: inactive_bytes.unwrap_or(0),
        group: Some(group),
    })
}

#[cfg(test)]
mod tests;
