//! Measures a disk briefly, if the user permits it and no other program is disturbed.
//!
//! ```text
//!   a command measured it in the last half hour ──► its figures
//!   else the node of the disk, if this user may open it ──► latency, rate, and a sequential reader with four sizes
//!   else a large file on it that this user may read
//! ```
//! Only disks of this machine are measured. A disk in heavy use is not measured, because the measurement would slow other
//! programs down and its results would be wrong.

use super::look::{DeviceFacts, StorageKind};
use foreread_lab::glance::Unmeasured;
use foreread_lab::verdict::disk::{DiskLook, SettingLimits};
use foreread_os::host::{DeviceNumber, Host};
use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the use of a disk is observed, and how busy it may be.
const LOOK: Duration = Duration::from_millis(100);
const MAX_BUSY_MS: u64 = 50;
const MAX_IN_FLIGHT: u64 = 2;
/// Smallest file that is measured, and the size from which on no larger one is searched for.
const MIN_FILE_BYTES: u64 = 8 << 20;
const ENOUGH_FILE_BYTES: u64 = 256 << 20;
/// Most names that the search for a file examines, and its time limit.
const MAX_NAMES: usize = 20_000;
const MAX_LOOK: Duration = Duration::from_millis(200);
/// Most files that are tried, the largest first.
const MAX_FILES: usize = 4;

/// Measures the costs of a device. Returns `None` if its kind or its size does not permit it, or if this user may read nothing on it.
pub fn measure(
    host: &Host,
    facts: &DeviceFacts,
    limits: SettingLimits,
) -> Result<Option<DiskLook>, Unmeasured> {
    let is_for_it = matches!(
        facts.kind,
        StorageKind::Disk | StorageKind::Loop | StorageKind::Mapped | StorageKind::Md
    );
    if !is_for_it || !facts.has_bytes() {
        return Ok(None);
    }
    let kept = DiskLook::kept(&facts.device.name, facts.device.read_ahead, limits);
    if kept.is_some() {
        return Ok(kept);
    }
    let counters = || host.disk_counters(&facts.device.name);
    let before = counters();
    std::thread::sleep(LOOK);
    if let (Some(before), Some(now)) = (before, counters()) {
        let busy_ms = now.busy_ms.saturating_sub(before.busy_ms);
        if busy_ms > MAX_BUSY_MS || now.in_flight > MAX_IN_FLIGHT {
            return Err(Unmeasured::Busy);
        }
    }
    // sysfs has '!' for the '/' of a node.
    let node = Path::new("/dev").join(facts.device.name.replace('!', "/"));
    let mut failed = None;
    let by_node = std::iter::once(node);
    // Files are searched for only if the node cannot be read.
    let by_file = std::iter::once_with(|| readable_files(host, facts)).flatten();
    for place in by_node.chain(by_file) {
        let claims = facts.device.rotates == Some(true) && facts.is_virtual.is_none();
        match DiskLook::measured(
            &place,
            &facts.device.name,
            facts.device.read_ahead,
            claims,
            limits,
        ) {
            Ok(None) => {}
            Err(Unmeasured::Failed(failure)) => drop(failed.get_or_insert(failure)),
            measured => return measured,
        }
    }
    let is_root = rustix::process::geteuid().is_root();
    failed
        .filter(|_| is_root)
        .map_or(Ok(None), |failure| Err(failure.into()))
}

/// Large files on a disk, the largest first: in the current folder, then in the places where the disk is mounted, folder by
/// folder.
fn readable_files(host: &Host, facts: &DeviceFacts) -> Vec<PathBuf> {
    // Opening a file would break its lease.
    let leased = host.write_leases();
    let began = Instant::now();
    let is_its = |meta: &std::fs::Metadata| {
        let number = DeviceNumber::of(meta.dev());
        facts
            .device
            .mounts
            .iter()
            .any(|mount| mount.number == number)
    };
    let here = std::env::current_dir().into_iter();
    let places = here.chain(facts.device.mounts.iter().map(|mount| mount.point.clone()));
    let mut folders: VecDeque<PathBuf> = places.collect();
    let (mut found, mut names): (Vec<(u64, PathBuf)>, usize) = (Vec::new(), 0);
    while let Some(folder) = folders.pop_front() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            names += 1;
            let Ok(meta) = entry.metadata() else { continue };
            if !is_its(&meta) {
                continue;
            }
            // Reading holes causes no read of the disk.
            let is_whole = meta.blocks() * 512 >= meta.len() / 10 * 9;
            if meta.is_dir() {
                folders.push_back(entry.path());
            } else if meta.is_file()
                && is_whole
                && !leased.contains(&meta.ino())
                && meta.len() >= MIN_FILE_BYTES
            {
                found.push((meta.len(), entry.path()));
            }
        }
        let is_enough = found.iter().any(|(bytes, _)| *bytes >= ENOUGH_FILE_BYTES);
        if is_enough || names > MAX_NAMES || began.elapsed() > MAX_LOOK {
            break;
        }
    }
    found.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    found
        .into_iter()
        .take(MAX_FILES)
        .map(|(_, path)| path)
        .collect()
}
