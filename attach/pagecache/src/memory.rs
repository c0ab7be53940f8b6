//! How many bytes may still go into the page cache, by the control groups of this process and by the machine.
//!
//! The page cache is charged to the control group of the process that reads. Version 2 has `memory.max`, `memory.high` and
//! `memory.current`, version 1 `memory.limit_in_bytes` and `memory.usage_in_bytes`; a group is also bound by those above it.
//!
//! ```text
//!   machine   MemAvailable 20 GiB                  ┐
//!   /a        max 2 GiB, current 1 GiB             ├─► 312 MiB, of /a/b
//!   /a/b      max 512 MiB, current 200 MiB         ┘
//! ```
//! `free_bytes` leaves in place what a group has cached. Memory that it could gain by dropping that is not counted: some program may
//! need it.

use std::fs;
use std::path::{Path, PathBuf};

/// What may still be cached, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes until the limit.
    pub free_bytes: u64,
    /// The limit itself.
    pub limit_bytes: u64,
    /// What the group has cached of files and not used for a while; the machine counts it as free already.
    pub inactive_bytes: u64,
    /// The control group that has it; nothing where it is the machine.
    pub group: Option<PathBuf>,
}

/// What readahead beside a program may fill where the kernel does not say what is free. Chosen.
const UNKNOWN_BYTES: u64 = 64 << 20;

/// What readahead beside a program may fill of the room that it has: half, as the program needs memory, too.
#[must_use]
pub fn half(room: Option<Room>) -> u64 {
    room.map_or(UNKNOWN_BYTES, |room| room.free_bytes / 2)
}

/// Where the kernel shows its figures: `/proc` and `/sys/fs/cgroup`, or folders of a test.
#[derive(Clone, Debug)]
pub struct Places {
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            proc: PathBuf::from("/proc"),
        }
    }
}

/// The least room of the machine and of all groups of this process; nothing where the kernel says nothing.
#[must_use]
pub fn room() -> Option<Room> {
    Places::default().room("self")
}

/// The same of another process.
#[must_use]
pub fn room_of(pid: u32) -> Option<Room> {
    Places::default().room(&pid.to_string())
}

impl Places {
    /// The least room of the machine and of the groups of `process`, a folder below `proc`.
    #[must_use]
    pub fn room(&self, process: &str) -> Option<Room> {
        let machine = self.machine();
        let groups = self
            .groups(process)
            .into_iter()
            .filter_map(|group| group_room(&group));
        groups.chain(machine).min_by_key(|room| room.free_bytes)
    }

    fn machine(&self) -> Option<Room> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let value = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(
                line.split_whitespace()
                    .next()?
                    .parse::<u64>()
                    .ok()?
                    .saturating_mul(1024),
            )
        };
        let limit_bytes = value("MemTotal:")?;
        Some(Room {
            free_bytes: value("MemAvailable:")?,
            limit_bytes,
            inactive_bytes: 0,
            group: None,
        })
    }

    /// The folders of all groups that bind the process, from the innermost to the root of each hierarchy.
    fn groups(&self, process: &str) -> Vec<PathBuf> {
        let cgroup = fs::read_to_string(self.proc.join(process).join("cgroup")).unwrap_or_default();
        let mounts =
            fs::read_to_string(self.proc.join(process).join("mountinfo")).unwrap_or_default();
        let mut found = Vec::new();
        for line in cgroup.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let is_v2 = controllers.is_empty();
            if !is_v2 && !controllers.split(',').any(|name| name == "memory") {
                continue;
            }
            let Some((root, place)) = mounts.lines().find_map(|line| hierarchy(line, is_v2)) else {
                continue;
            };
            // Inside a container the mount shows a part of the hierarchy only.
            let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
            let mut folder = place.join(below);
            loop {
                found.push(folder.clone());
                if folder == place || !folder.pop() {
                    break;
                }
            }
        }
        found
    }
}

/// Root and place of a mounted hierarchy that has memory, from a line of mountinfo:
/// `31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw`.
fn hierarchy(line: &str, is_v2: bool) -> Option<(PathBuf, PathBuf)> {
    let (front, back) = line.split_once(" - ")?;
    let (front, back): (Vec<&str>, Vec<&str>) =
        (front.split(' ').collect(), back.split(' ').collect());
    let is_it = match *back.first()? {
        "cgroup2" => is_v2,
        "cgroup" => !is_v2 && back.last()?.split(',').any(|name| name == "memory"),
        _ => false,
    };
    is_it.then(|| Some((PathBuf::from(*front.get(3)?), PathBuf::from(*front.get(4)?))))?
}

fn group_room(group: &Path) -> Option<Room> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(group.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let current = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // "max" is no number: no limit.
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit_bytes = limits.into_iter().filter_map(number).min()?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // Version 1 has the sum with the groups below under another name.
    let of_stat = |name: &str| {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    let inactive_bytes = of_stat("total_inactive_file")
        .or_else(|| of_stat("inactive_file"))
        .unwrap_or(0);
    let free_bytes = limit_bytes.saturating_sub(current);
    Some(Room {
        free_bytes,
        limit_bytes,
        inactive_bytes,
        group: Some(group.to_path_buf()),
    })
}
