//! `model-live:`: a device model that really sleeps, as a source of the engine.
//!
//! The model is the one of the simulator; here its virtual clock is the wall clock, so the engine meets a disk of
//! 2010 or a volume behind a network on any machine. Its bytes name themselves
//! ([`foreread::testing::fill`]). Never: faster than the model says; by how much a sleeper wakes late
//! (50 to 100 us) it is slower, which is why devices of 1 ms and more are the ones to compare by.
//!
//! ```text
//!   read_at ──submit(now)──► device ──next_time──► sleep until then, or until another reader's step
//!      ▲                                                │ whoever wakes first lets the device go on
//!      └────── its arrival is done ◄──advance(now)──────┘ and tells the others
//! ```

use crate::device::presets::Preset;
use crate::device::{Arrival, Command, Device};
use foreread::source::{Source, SourceError};
use foreread::testing::fill;
use std::collections::HashSet;
use std::io::IoSliceMut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A device model as a source. See the head of this file.
pub struct ModelLive {
    name: &'static str,
    size: u64,
    start: Instant,
    inner: Mutex<Inner>,
    /// Something arrived, or the next step comes earlier.
    moved: Condvar,
}

struct Inner {
    device: Box<dyn Device>,
    /// The device's time never goes back.
    now_ns: u64,
    next_id: u64,
    /// Commands that are there whole and whose readers have not looked yet.
    done: HashSet<u64>,
    arrivals: Vec<Arrival>,
}

impl ModelLive {
    /// The device of a preset with the luck of `seed`, holding `size` bytes: what a workload asks of it.
    #[must_use]
    pub fn new(preset: &Preset, size: u64, seed: u64) -> ModelLive {
        let inner =
            Inner { device: preset.build(seed), now_ns: 0, next_id: 0, done: HashSet::new(), arrivals: Vec::new() };
        let (inner, moved) = (Mutex::new(inner), Condvar::new());
        ModelLive { name: preset.name, size, start: Instant::now(), inner, moved }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sleeps until the device has brought all of one command.
    fn wait(&self, start: u64, len: u64) {
        let mut inner = self.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        inner.now_ns = inner.now_ns.max(self.now_ns());
        let now_ns = inner.now_ns;
        inner.device.submit(now_ns, Command { id, file: 0, start, len });
        // Who sleeps may have to wake earlier now.
        self.moved.notify_all();
        loop {
            if inner.go_on(self.now_ns()) {
                self.moved.notify_all();
            }
            if inner.done.remove(&id) {
                return;
            }
            // A device that has a command has a next time; if it had none, the look once a second shows it.
            let next = inner.device.next_time().map_or(Duration::from_secs(1), |at| {
                Duration::from_nanos(at.saturating_sub(self.now_ns())).min(Duration::from_secs(1))
            });
            inner = self.moved.wait_timeout(inner, next).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Inner {
    /// Lets the device go on to `now_ns`. True when a command has come to its end.
    fn go_on(&mut self, now_ns: u64) -> bool {
        self.now_ns = self.now_ns.max(now_ns);
        let before = self.done.len();
        while self.device.next_time().is_some_and(|at| at <= self.now_ns) {
            let at = self.device.next_time().unwrap_or(self.now_ns);
            self.device.advance(at, &mut self.arrivals);
            self.done.extend(self.arrivals.drain(..).filter(|a| a.done).map(|a| a.id));
        }
        self.done.len() > before
    }
}

impl Source for ModelLive {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let room: usize = bufs.iter().map(|b| b.len()).sum();
        let len = self.size.saturating_sub(offset).min(room as u64);
        if len == 0 {
            return Ok(0);
        }
        self.wait(offset, len);
        let mut at = offset;
        for buf in bufs {
            let here = ((offset + len - at) as usize).min(buf.len());
            fill(&mut buf[..here], at, 0);
            at += here as u64;
        }
        Ok(len as usize)
    }

    fn describe(&self) -> String {
        format!("model-live:{}", self.name)
    }
}
