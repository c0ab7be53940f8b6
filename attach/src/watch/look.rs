//! One recording of a disk, and what it shows.
//!
//! ```text
//!   every process, some time ──► events ──► reads of files on the disk ──► the kernel's maxima on a model of it ──► answer
//! ```
//! A recording has no answer where its reads waited too little: what is served from the page cache needs no readahead, and the
//! simulation, which begins with an empty cache, would not show that.

use super::WatchOptions;
use super::decide::Answer;
use foreread_lab::replay::{self, Part, Replay};
use foreread_lab::tune;
use foreread_observe::record::Capture;
use foreread_observe::record::active::{ActiveRecording, RecordOptions, Target, start};
use foreread_os::failure::Failure;
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

/// What a recording is about, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recording {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Reads and faults of files on the disk, but those past the page cache.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// How long they took, all together, in seconds.
    pub waited_s: f64,
    /// Events that were lost.
    pub lost_events: u64,
    /// It ended early, because there were as many events as there may be.
    pub is_cut: bool,
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

fn is_demand(item: &Result<Item, TraceError>) -> bool {
    matches!(item, Ok(Item::Record(record)) if matches!(record.op, Op::Read | Op::Fault))
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
}

impl Question {
    /// Compares. It takes seconds, and it measures the disk where there is no model yet.
    pub fn answer(self) -> Result<Look, Failure> {
        let lost = self.captured.lost;
        let mut recording = Recording {
            seconds: self.captured.seconds,
            lost_events: lost.overrun + lost.dropped,
            is_cut: self.is_cut,
            ..Recording::default()
        };
        let path = Path::new("the recording");
        let model = self.model;
        let understood = self.captured.understand(path)?;
        let items: Vec<_> = understood.items.take(MAX_ITEMS).collect();
        recording.reads = items.iter().filter(|item| is_demand(item)).count() as u64;
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
        let maxima = tune::maxima(
            Arc::new(replay),
            model,
            self.old * 1024,
            self.now * 1024,
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
        };
        Ok(Look {
            recording,
            answer: Some(answer),
            model: Some(model),
        })
    }
}
