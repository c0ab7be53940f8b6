//! One recording of a disk, and what it shows.
//!
//! ```text
//!   every process, some time ──► events ──► reads of files on the disk ──► the kernel's maxima on a model of it ──► answer
//! ```
//! A recording has no answer where its reads waited too little: what is served from the page cache needs no readahead, and the
//! simulation, which begins with an empty cache, would not show that.

use super::decide::{Answer, Harm};
use super::{WatchOptions, WatchedDisk};
use foreread_lab::advice;
use foreread_lab::replay::{self, Part, Replay};
use foreread_lab::setting::{MANY_FAULTS, SettingLimits, StorageCosts};
use foreread_lab::tune;
use foreread_observe::record::Capture;
use foreread_observe::record::active::{ActiveRecording, RecordOptions, Target, start};
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_report::progress::Silent;
use foreread_sim::device::presets::Preset;
use foreread_trace::{Import, Item, Op, TraceError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory for events that wait to be taken, of all CPUs.
const BUFFER_BYTES: u64 = 64 << 20;
/// Events of a recording, at most; then it ends by itself. Some three million.
const MAX_EVENT_BYTES: u64 = 256 << 20;
/// Files and records that are compared: the first ones. Some 64 MiB.
const MAX_ITEMS: usize = 1 << 18;
/// Fewer reads show no pattern.
const MIN_READS: u64 = 50;
/// Reads that waited a smaller part of the time than this leave nothing worth a change.
const MIN_WAITED: f64 = 0.01;
/// Memory is short where at least this was read again, and at least this part of what the disk read.
const MIN_REFAULT_BYTES: u64 = 16 << 20;
const SHORT: f64 = 0.1;

/// What a recording is about, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recording {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Reads and faults of files on the disk, but those past the page cache.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// How many of them are page faults of mappings.
    pub faults: u64,
    /// How long they took, all together, in seconds.
    pub waited_s: f64,
    /// Bytes that the disk read.
    pub disk_bytes: u64,
    /// Bytes of files, of all disks, that were read again soon after they had been dropped.
    pub refault_bytes: u64,
    /// Events that were lost.
    pub lost_events: u64,
    /// It ended early, because there were as many events as there may be.
    pub is_cut: bool,
    /// Most of it goes through folders and reads their files, which no value of the disk makes faster.
    pub is_walk: bool,
}

impl Recording {
    /// Page faults / reads.
    #[must_use]
    pub fn faults_of_reads(&self) -> Option<f64> {
        (self.reads >= MIN_READS).then(|| self.faults as f64 / self.reads as f64)
    }

    /// Whether files were read again because memory is short.
    #[must_use]
    pub fn is_memory_short(&self) -> bool {
        self.refault_bytes >= MIN_REFAULT_BYTES
            && self.refault_bytes as f64 >= SHORT * self.disk_bytes as f64
    }
}

/// Counters of the machine and the disk, which go up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    refault_bytes: u64,
    disk_bytes: u64,
}

impl Counters {
    pub fn now(disk: &WatchedDisk) -> Counters {
        let host = Host::here();
        let read = host.disk_counters(&disk.name);
        Counters {
            refault_bytes: host.memory_pressure().refaulted_bytes().unwrap_or(0),
            disk_bytes: read.map_or(0, |read| read.read_bytes),
        }
    }

    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            refault_bytes: self.refault_bytes.saturating_sub(earlier.refault_bytes),
            disk_bytes: self.disk_bytes.saturating_sub(earlier.disk_bytes),
        }
    }
}

/// What harm of the value that is set is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct HarmBasis {
    pub costs: StorageCosts,
    pub request_bytes: Option<u64>,
    pub memory_bytes: u64,
}

impl HarmBasis {
    fn limits(&self, recording: &Recording) -> SettingLimits {
        SettingLimits {
            request_bytes: self.request_bytes,
            memory_bytes: self.memory_bytes,
            faults_of_reads: recording.faults_of_reads(),
        }
    }

    /// What the disk should have, whatever is read, in bytes.
    fn best(&self, recording: &Recording) -> u64 {
        self.costs.best(&self.limits(recording)).readahead_bytes
    }

    /// What this value does beside the reads of a recording; both in KiB.
    fn harm(&self, recording: &Recording, now: u64) -> Option<Harm> {
        let limits = self.limits(recording);
        let is_memory_short = recording.is_memory_short();
        let is_faulting = limits
            .faults_of_reads
            .is_some_and(|part| part >= MANY_FAULTS);
        let best = self.costs.best(&limits);
        let is_harmful = (is_memory_short || is_faulting)
            && self.costs.is_too_large(now.saturating_mul(1024), &best);
        let harm = Harm {
            is_memory_short,
            advised: is_harmful.then_some(best.readahead_bytes / 1024),
        };
        (is_memory_short || is_harmful).then_some(harm)
    }
}

pub(super) struct Look {
    pub recording: Recording,
    pub answer: Option<Answer>,
    /// The model of the disk, to be used again.
    pub model: Option<&'static Preset>,
}

/// Begins to record.
pub(super) fn begin(options: &WatchOptions) -> Result<ActiveRecording, Failure> {
    start(&RecordOptions {
        target: Target::Devices(options.disk.devices.clone()),
        buffer_bytes: BUFFER_BYTES,
        decisions: false,
        folder: options.folder.clone(),
        max_event_bytes: Some(MAX_EVENT_BYTES),
    })
}

fn count(items: &[Result<Item, TraceError>], ops: &[Op]) -> u64 {
    let is_of = |item: &&Result<Item, TraceError>| matches!(item, Ok(Item::Record(record)) if ops.contains(&record.op));
    items.iter().filter(is_of).count() as u64
}

pub(super) struct Question {
    pub captured: Capture,
    pub is_cut: bool,
    /// The disk, and how long it may be measured where there is no model yet.
    pub disk: PathBuf,
    pub probe_seconds: f64,
    pub model: Option<&'static Preset>,
    /// In KiB: before the first change, and now.
    pub old: u64,
    pub now: u64,
    /// What the counters rose by.
    pub counters: Counters,
    pub basis: Option<HarmBasis>,
}

impl Question {
    /// Compares. It takes seconds, and it measures the disk where there is no model yet.
    pub fn answer(self) -> Result<Look, Failure> {
        let lost = self.captured.lost;
        let mut recording = Recording {
            seconds: self.captured.seconds,
            lost_events: lost.overrun + lost.dropped,
            is_cut: self.is_cut,
            refault_bytes: self.counters.refault_bytes,
            disk_bytes: self.counters.disk_bytes,
            ..Recording::default()
        };
        let path = Path::new("the recording");
        let model = self.model;
        let understood = self.captured.understand(path)?;
        let items: Vec<_> = understood.items.take(MAX_ITEMS).collect();
        recording.reads = count(&items, &[Op::Read, Op::Fault]);
        recording.faults = count(&items, &[Op::Fault]);
        if recording.reads < MIN_READS {
            return Ok(Look {
                recording,
                answer: None,
                model,
            });
        }
        let items = Box::new(items.into_iter());
        let import = Import {
            header: understood.header,
            items,
            left_out: understood.left_out,
        };
        let loaded = replay::load("the recording", import, &Part::default())?;
        recording.is_walk = advice::is_walk(&loaded);
        for file in loaded.read_of_files() {
            recording.bytes += file.bytes;
            recording.waited_s += file.time_ns.unwrap_or(0) as f64 / 1e9;
        }
        if recording.waited_s < recording.seconds * MIN_WAITED {
            return Ok(Look {
                recording,
                answer: None,
                model,
            });
        }
        let model = match model {
            Some(model) => model,
            None => tune::measured(&self.disk, self.probe_seconds, &mut Silent)?.1,
        };
        let replay = Replay::of(&Arc::new(loaded), None, None)?;
        let harm = self
            .basis
            .and_then(|basis| basis.harm(&recording, self.now));
        let of_disk = self.basis.map(|basis| basis.best(&recording));
        let advised = harm.and_then(|harm| harm.advised);
        let also: Vec<u64> = advised
            .into_iter()
            .chain([self.now])
            .map(|kib| kib.saturating_mul(1024))
            .collect();
        let maxima = tune::maxima(
            Arc::new(replay),
            model,
            self.old.saturating_mul(1024),
            &also,
            of_disk,
            &mut Silent,
        )?;
        let answer = Answer {
            best: maxima
                .gain
                .and_then(|gain| Some((gain.max_bytes? / 1024, gain.ratio))),
            times: maxima
                .times
                .into_iter()
                .map(|(bytes, seconds)| (bytes / 1024, seconds))
                .collect(),
            harm,
        };
        Ok(Look {
            recording,
            answer: Some(answer),
            model: Some(model),
        })
    }
}
