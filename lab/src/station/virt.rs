//! Measures one point (request size and queue depth) on a device model, in virtual time.
//!
//! The load is a closed loop: `depth` commands are in flight, and the next command starts when one ends. The wall clock is never used.

use super::grid::{Offsets, Task};
use super::{About, Slice, Spread, Station};
use foreread_os::failure::Failure;
use foreread_sim::device::presets::Preset;
use foreread_sim::device::{Command, Device};
use foreread_sim::stats::{latency_histogram, record_latency};
use std::collections::HashMap;
use std::time::Duration;

/// Commands before measuring starts: a device may depend on earlier requests, an array on its last 64.
const WARM_UP: u64 = 64;
/// Commands that are measured. For long commands, which cost many steps to simulate, there are fewer.
const COUNTED: u64 = 128;
const COUNTED_LONG: u64 = 24;
const LONG_BYTES: u64 = 1 << 20;

/// A model, of which the first `span` bytes are read.
pub(crate) struct OnModel {
    preset: &'static Preset,
    span: u64,
}

impl OnModel {
    pub(crate) fn new(preset: &'static Preset, most: u64) -> OnModel {
        let span = preset.capacity_bytes.min(most);
        OnModel { preset, span }
    }
}

impl Station for OnModel {
    fn about(&self) -> Result<About, Failure> {
        Ok(About {
            source: format!("model:{}", self.preset.name),
            how: "virtual time".to_string(),
            capacity_bytes: self.preset.capacity_bytes,
            readahead_bytes: None,
            disk: None,
        })
    }

    fn span(&self) -> u64 {
        self.span
    }

    fn slice(&mut self, task: Task, _length: Duration, seed: u64) -> Result<Slice, Failure> {
        Ok(slice(self.preset, task, self.span, seed))
    }

    fn host_ns_per_kib(&self) -> Result<Spread, Failure> {
        Ok(Spread::of(&[self.preset.host_ns_per_kib as f64]).unwrap_or(Spread::ZERO))
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// A device that serves one point.
struct Loop {
    device: Box<dyn Device>,
    offsets: Offsets,
    since: HashMap<u64, u64>,
    given: u64,
}

impl Loop {
    fn give(&mut self, now: u64) {
        let start = self.offsets.next();
        let id = self.given;
        self.given += 1;
        self.since.insert(id, now);
        self.device.submit(
            now,
            Command {
                id,
                file: 0,
                start,
                len: self.offsets.task.bytes,
            },
        );
    }
}

/// One slice of a point on a fresh device of `preset` with the seed `seed`.
pub(crate) fn slice(preset: &Preset, task: Task, span: u64, seed: u64) -> Slice {
    let offsets = Offsets::new(task, span, seed);
    let mut work = Loop {
        device: preset.build(seed),
        offsets,
        since: HashMap::new(),
        given: 0,
    };
    let depth = u64::from(task.depth);
    let counted = if task.bytes >= LONG_BYTES {
        COUNTED_LONG
    } else {
        COUNTED
    }
    .max(4 * depth);
    let warm_up = WARM_UP.max(depth);
    let (mut done, mut began, mut ended, mut reads) = (0, 0, 0, 0);
    let mut latency = latency_histogram();
    let mut arrivals = Vec::new();
    (0..depth).for_each(|_| work.give(0));
    while let Some(now) = work.device.next_time() {
        // All commands that end at one moment count, or none of them.
        if now > ended && done >= warm_up + counted {
            break;
        }
        work.device.advance(now, &mut arrivals);
        for arrival in arrivals.drain(..) {
            if !arrival.done {
                continue;
            }
            done += 1;
            let since = work.since.remove(&arrival.id).unwrap_or(now);
            if done <= warm_up || now == began {
                began = now;
            } else {
                reads += 1;
                ended = now;
                record_latency(&mut latency, now - since);
            }
            work.give(now);
        }
    }
    let seconds = ended.saturating_sub(began) as f64 / 1e9;
    let bytes_per_s = if seconds > 0.0 {
        (reads * task.bytes) as f64 / seconds
    } else {
        0.0
    };
    Slice {
        reads,
        bytes_per_s,
        late_bytes_per_s: bytes_per_s,
        latency,
        seconds: ended as f64 / 1e9,
    }
}
