//! How a run observes reads: by the kernel's tracepoints, or by sampling /proc.
//!
//! | | trace | sample |
//! |---|---|---|
//! | needs | root, tracefs, the host's process numbers | the same user, Yama at 0 or 1 |
//! | observes | every read and fault of files | reads that block, and what was read between them |
//! | costs | half a microsecond per read | at most two thousand samples a second while a thread waits |
//!
//! Each of these two ways has three levels: observe every read, observe only whether anything is read from storage, or observe nothing.

use super::devices::Devices;
use super::look::Waits;
use super::tap::{Level, Tap};
use foreread_observe::sample::{Sampler, StorageUse};
use foreread_observe::touch::{Touch, TouchKind};
use foreread_os::host::{DeviceNumber, Host};
use foreread_os::poll::readable;
use foreread_trace::follow::call::FileKey;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The pause between samples that only check whether anything is read from storage.
const QUIET_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchBy {
    #[default]
    Trace,
    Sample,
}

pub enum Watcher {
    Trace(Tap),
    Sample(Box<SampleTap>),
}

/// A sampler, and the level of detail at which reads are observed.
pub struct SampleTap {
    sampler: Sampler,
    level: Level,
    events: u64,
    /// How much the kernel reads ahead on each storage.
    windows: RefCell<HashMap<u32, u64>>,
    /// When the next sample is due: samples keep their pause, whatever else wakes the run.
    next: Instant,
}

impl SampleTap {
    pub fn new(pid: u32) -> SampleTap {
        SampleTap {
            sampler: Sampler::new(pid),
            level: Level::All,
            events: 0,
            windows: RefCell::default(),
            next: Instant::now(),
        }
    }

    fn pause(&self) -> Duration {
        match self.level {
            Level::Misses => QUIET_PAUSE.max(self.sampler.interval()),
            _ => self.sampler.interval(),
        }
    }
}

impl Watcher {
    pub fn by(&self) -> WatchBy {
        match self {
            Watcher::Trace(_) => WatchBy::Trace,
            Watcher::Sample(_) => WatchBy::Sample,
        }
    }

    pub fn level(&self) -> Option<Level> {
        match self {
            Watcher::Trace(tap) => tap.level(),
            Watcher::Sample(sample) => Some(sample.level),
        }
    }

    /// Sets which reads are observed from now on. If the kernel refuses a change that it allowed before, another program has changed the
    /// tracing instance.
    pub fn set_level(&mut self, level: Level) {
        match self {
            Watcher::Trace(tap) => drop(tap.set_level(level)),
            Watcher::Sample(sample) => sample.level = level,
        }
    }

    pub fn pass_over(&mut self, devices: Vec<u32>) {
        if let Watcher::Trace(tap) = self {
            let _ = tap.pass_over(devices);
        }
    }

    /// Waits until a read is observed, one of the descriptors `others` is readable, or `wait_ns` nanoseconds have passed. If `gathers` is
    /// true, observed reads do not end the wait, so that events accumulate.
    pub fn wait(&self, others: &[&OwnedFd], wait_ns: u64, gathers: bool) {
        let sample = match self {
            Watcher::Trace(tap) => return tap.wait(others, wait_ns, gathers),
            // The next sample will show what has happened.
            Watcher::Sample(_) if gathers => return,
            Watcher::Sample(sample) => sample,
        };
        let left = match sample.level {
            Level::Nothing => Duration::MAX,
            _ => sample.next.saturating_duration_since(Instant::now()),
        };
        let pause = left.min(Duration::from_nanos(wait_ns));
        readable(others.iter().copied(), pause);
    }

    pub fn take(&mut self, touches: &mut Vec<Touch>, devices: &Devices) -> std::io::Result<()> {
        let sample = match self {
            Watcher::Trace(tap) => return tap.take(touches),
            Watcher::Sample(sample) => sample,
        };
        if Instant::now() < sample.next {
            return Ok(());
        }
        match sample.level {
            Level::Nothing => return Ok(()),
            Level::All => {
                let usage = |dev| usage(devices, &sample.windows, dev);
                sample.sampler.look(touches, &usage);
            }
            Level::Misses => {
                let usage = |dev| StorageUse::Looked(window(&sample.windows, dev));
                sample.sampler.look(touches, &usage);
                touches.retain(|touch| touch.kind == TouchKind::Miss);
            }
        }
        sample.events += touches.len() as u64;
        sample.next = Instant::now() + sample.pause();
        if sample.sampler.is_blind() {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    /// Returns how long threads have waited for the storage device `dev`, or for all devices if `dev` is `None`. Returns `None` if reads
    /// are not sampled.
    pub fn waited(&self, dev: Option<u32>) -> Option<Waits> {
        let Watcher::Sample(sample) = self else {
            return None;
        };
        let mut sum = Waits::default();
        for (of, seen) in &sample.sampler.waits {
            if dev.is_none_or(|dev| dev == *of) {
                sum.threads_ns += seen.threads_ns;
                sum.time_ns += seen.time_ns;
            }
        }
        Some(sum)
    }

    /// Returns the number of bytes whose reads are inferred, because no sample observed these reads.
    pub fn guessed(&self, dev: u32) -> u64 {
        match self {
            Watcher::Trace(_) => 0,
            Watcher::Sample(sample) => sample.sampler.guessed(dev),
        }
    }

    /// Returns the number of observed events, and the number of gaps in which events were lost.
    pub fn seen(&self) -> (u64, u64) {
        match self {
            Watcher::Trace(tap) => (tap.events, tap.gaps),
            Watcher::Sample(sample) => (sample.events, 0),
        }
    }

    /// Stops observing without waiting for the kernel.
    pub fn leave(self) {
        if let Watcher::Trace(tap) = self {
            tap.leave();
        }
    }
}

fn usage(devices: &Devices, windows: &RefCell<HashMap<u32, u64>>, dev: u32) -> StorageUse {
    if devices.is_active(dev) {
        StorageUse::ReadAhead
    } else if devices.is_looked_at(dev) {
        StorageUse::Looked(window(windows, dev))
    } else {
        StorageUse::PassedOver
    }
}

/// How much the kernel reads ahead on this storage, from /sys, so the storage itself is not accessed.
fn window(windows: &RefCell<HashMap<u32, u64>>, dev: u32) -> u64 {
    let of_device = || {
        let (major, minor) = FileKey { dev, ino: 0 }.device();
        let device = Host::here().device(DeviceNumber { major, minor });
        device.read_ahead.unwrap_or_default()
    };
    *windows.borrow_mut().entry(dev).or_insert_with(of_device)
}
