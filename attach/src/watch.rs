//! Reports for each interval what was read from each disk, how long the reads waited, which programs read, and
//! `doctor`'s verdict on the disk.
//!
//! ```text
//!   /sys/block/sda/stat   reads, sectors, milliseconds    ┐
//!   /proc/vmstat          refaults of files               ├── now - before ──► WatchSample
//!   /proc/PID/io          bytes read from storage         ┘
//! ```
//! This module changes no setting and records nothing. Disks are measured in the same way as by `doctor`: at the start, and again when a
//! `read_ahead_kb` has changed.

use crate::doctor::verdict::DeviceVerdict;
use crate::doctor::{self, DoctorOptions};
use foreread_os::failure::Failure;
use foreread_os::host::backing::BackingDevice;
use foreread_os::host::{DiskCounters, Host};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Instant;

/// Most programs that are named for a disk.
const MAX_PROGRAMS: usize = 4;

/// The reads of all disks since the previous sample.
#[derive(Debug, Serialize)]
pub struct WatchSample {
    pub seconds: f64,
    /// Bytes of files on all disks that were read again soon after they had been dropped.
    pub refault_bytes: Option<u64>,
    /// Percentage of the last minute with memory stalls.
    pub stalled_percent: Option<f64>,
    /// Disks that were read, and disks that the user named.
    pub disks: Vec<DiskSample>,
}

#[derive(Debug, Serialize)]
pub struct DiskSample {
    pub name: String,
    pub reads: u64,
    pub read_bytes: u64,
    /// Sum of the durations of its reads.
    pub read_ms: u64,
    /// Programs with an open file on it that read most from storage, in descending order. Only root sees those of other users.
    pub programs: Vec<ReadingProgram>,
    pub doctor: DeviceVerdict,
}

#[derive(Debug, Serialize)]
pub struct ReadingProgram {
    pub name: String,
    pub pid: u32,
    pub read_bytes: u64,
}

struct Counters {
    at: Instant,
    refault_bytes: Option<u64>,
    disks: HashMap<String, DiskCounters>,
    programs: HashMap<u32, u64>,
}

impl Counters {
    fn now(host: &Host, devices: &[BackingDevice]) -> Counters {
        let counters =
            |device: &BackingDevice| Some((device.name.clone(), host.disk_counters(&device.name)?));
        Counters {
            at: Instant::now(),
            refault_bytes: host.memory_pressure().refaulted_bytes(),
            disks: devices.iter().filter_map(counters).collect(),
            programs: host.storage_reads(),
        }
    }
}

pub struct Watcher {
    host: Host,
    options: DoctorOptions,
    verdicts: Vec<DeviceVerdict>,
    before: Counters,
}

impl Watcher {
    /// Starts watching and examines the disks. `options` are the options of `doctor`.
    pub fn new(host: Host, options: DoctorOptions) -> Result<Watcher, Failure> {
        let verdicts = doctor::examine(&host, &options)?.devices;
        let before = Counters::now(&host, &host.backing_devices());
        let is_seen = |verdict: &DeviceVerdict| before.disks.contains_key(&verdict.verdict.device);
        if !verdicts.iter().any(is_seen) {
            let remedy = "run it on the host, not in a container";
            return Err(Failure::cannot("no disk is visible here", "", remedy));
        }
        Ok(Watcher {
            host,
            options,
            verdicts,
            before,
        })
    }

    /// Takes a sample: returns what was read from each disk since the last call.
    pub fn sample(&mut self) -> Result<WatchSample, Failure> {
        let devices = self.host.backing_devices();
        let is_same = |verdict: &DeviceVerdict| {
            let verdict = &verdict.verdict;
            let mut its = devices.iter().filter(|one| one.name == verdict.device);
            its.next().map(|one| one.read_ahead) == Some(verdict.has_bytes)
        };
        if !self.verdicts.iter().all(is_same) {
            self.verdicts = doctor::examine(&self.host, &self.options)?.devices;
        }
        let now = Counters::now(&self.host, &devices);
        let before = std::mem::replace(&mut self.before, now);
        let now = &self.before;
        let pressure = self.host.memory_pressure();
        let refaults = now.refault_bytes.zip(before.refault_bytes);
        let disk = |verdict: &DeviceVerdict| {
            let name = &verdict.verdict.device;
            let (now, earlier) = (now.disks.get(name)?, before.disks.get(name)?);
            let reads = now.reads.saturating_sub(earlier.reads);
            let device = devices.iter().find(|device| device.name == *name)?;
            (reads > 0 || !self.options.devices.is_empty()).then(|| DiskSample {
                name: name.clone(),
                reads,
                read_bytes: now.read_bytes.saturating_sub(earlier.read_bytes),
                read_ms: now.read_ms.saturating_sub(earlier.read_ms),
                programs: self.programs(device, &before.programs),
                doctor: verdict.clone(),
            })
        };
        Ok(WatchSample {
            seconds: (now.at - before.at).as_secs_f64(),
            refault_bytes: refaults.map(|(now, before)| now.saturating_sub(before)),
            stalled_percent: pressure.stalled_percent,
            disks: self.verdicts.iter().filter_map(disk).collect(),
        })
    }

    fn programs(&self, device: &BackingDevice, before: &HashMap<u32, u64>) -> Vec<ReadingProgram> {
        let numbers = device.number.iter().chain(&device.partitions).copied();
        let numbers: Vec<_> = numbers.collect();
        let reading = self.host.programs_on(&numbers).into_iter().map(|program| {
            let of = |counters: &HashMap<u32, u64>| counters.get(&program.pid).copied();
            let read = of(&self.before.programs).unwrap_or(0);
            ReadingProgram {
                read_bytes: read.saturating_sub(of(before).unwrap_or(0)),
                name: program.name,
                pid: program.pid,
            }
        });
        let mut reading: Vec<_> = reading.filter(|program| program.read_bytes > 0).collect();
        reading.sort_by_key(|program| std::cmp::Reverse(program.read_bytes));
        reading.truncate(MAX_PROGRAMS);
        reading
    }
}
