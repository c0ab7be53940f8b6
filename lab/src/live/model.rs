//! `model-live:`: a source of the engine that is a device model, and delays reads in real time.
//!
//! The device is the simulator's model with the wall clock instead of the virtual clock. On any machine, the engine can therefore read from
//! an imitation of a disk of 2010 or of a network volume. The content of the device is made of 8-byte words, each containing its own offset
//! (little-endian). A read takes 50 to 100 us longer than in the simulator, because sleeping threads wake late, so comparisons should use
//! devices with a latency of 1 ms or more.
//!
//! ```text
//!   read_at ──submit(now)──► device ──next_time──► sleep until then, or until another reader's step
//!      ▲                                                │ the first to wake advances the device
//!      └────── its arrival is done ◄──advance(now)──────┘ and wakes the others
//! ```

use foreread::source::{Defaults, ExactVersion, Sink, Source, SourceError, StreamingSource};
use foreread_sim::device::presets::Preset;
use foreread_sim::device::{Arrival, Command, Device};
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Safety timeout in case a wakeup is missed.
const LOOK_UP: Duration = Duration::from_secs(1);

/// A device model in real time, as a source of the engine.
pub struct ModelLive {
    name: &'static str,
    size: u64,
    seed: u64,
    start: Instant,
    inner: Mutex<Inner>,
    /// Signalled if something arrived, or if the next step comes earlier.
    moved: Condvar,
}

struct Inner {
    device: Box<dyn Device>,
    /// The device's time never goes backward.
    now_ns: u64,
    next_id: u64,
    /// Commands with waiting readers, and how many bytes of each have arrived.
    there: HashMap<u64, u64>,
    arrivals: Vec<Arrival>,
}

impl ModelLive {
    /// Creates the source from the model `preset`, with `size` bytes and random numbers from `seed`.
    #[must_use]
    pub fn new(preset: &Preset, size: u64, seed: u64) -> ModelLive {
        let (device, there) = (preset.build(seed), HashMap::new());
        let inner = Mutex::new(Inner {
            device,
            now_ns: 0,
            next_id: 0,
            there,
            arrivals: Vec::new(),
        });
        ModelLive {
            name: preset.name,
            size,
            seed,
            start: Instant::now(),
            inner,
            moved: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Submits a command to the device.
    fn submit(&self, start: u64, len: u64) -> u64 {
        let mut inner = self.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        inner.there.insert(id, 0);
        inner.now_ns = inner.now_ns.max(self.now_ns());
        let now_ns = inner.now_ns;
        inner.device.submit(
            now_ns,
            Command {
                id,
                file: 0,
                start,
                len,
            },
        );
        // The wake-up time of sleeping threads may now be earlier.
        self.moved.notify_all();
        id
    }

    /// Sleeps until the first `bytes` bytes of a command have arrived.
    fn wait(&self, id: u64, bytes: u64) {
        let mut inner = self.lock();
        loop {
            if inner.go_on(self.now_ns()) {
                self.moved.notify_all();
            }
            if inner.there.get(&id).is_none_or(|there| *there >= bytes) {
                return;
            }
            // A device with a command has a next time; if it had none, the timeout would reveal it.
            let next = inner.device.next_time().map_or(LOOK_UP, |at| {
                Duration::from_nanos(at.saturating_sub(self.now_ns())).min(LOOK_UP)
            });
            inner = self
                .moved
                .wait_timeout(inner, next)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Removes a command whose bytes have been taken.
    fn forget(&self, id: u64) {
        self.lock().there.remove(&id);
    }
}

impl Inner {
    /// Advances the device to `now_ns`. Returns true if something has arrived.
    fn go_on(&mut self, now_ns: u64) -> bool {
        self.now_ns = self.now_ns.max(now_ns);
        let mut some = false;
        while let Some(at) = self.device.next_time().filter(|at| *at <= self.now_ns) {
            self.device.advance(at, &mut self.arrivals);
            for arrival in self.arrivals.drain(..) {
                if let Some(there) = self.there.get_mut(&arrival.id) {
                    *there = arrival.bytes;
                    some = true;
                }
            }
        }
        some
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
        let id = self.submit(offset, len);
        self.wait(id, len);
        self.forget(id);
        let mut at = offset;
        for buf in bufs {
            let here = ((offset + len - at) as usize).min(buf.len());
            fill(&mut buf[..here], at);
            at += here as u64;
        }
        Ok(len as usize)
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        Some(self)
    }

    fn defaults(&self) -> Defaults {
        Defaults::MODEL_LIVE
    }

    fn describe(&self) -> String {
        format!("model-live:{}", self.name)
    }

    fn exact_version(&self) -> Option<ExactVersion> {
        Some(ExactVersion {
            source: self.describe(),
            version: format!("{} bytes, seed {}", self.size, self.seed),
            shown: self.describe(),
        })
    }
}

impl StreamingSource for ModelLive {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        let len = self.size.saturating_sub(offset).min(len);
        if len == 0 {
            return Ok(0);
        }
        let (id, mut done) = (self.submit(offset, len), 0);
        while let Some(room) = sink.room().filter(|_| done < len) {
            let here = (room.len() as u64).min(len - done);
            self.wait(id, done + here);
            fill(&mut room[..here as usize], offset + done);
            sink.filled(here as usize);
            done += here;
        }
        self.forget(id);
        Ok(done as usize)
    }
}

/// Fills the buffer with the bytes from `offset` on.
fn fill(mut buf: &mut [u8], mut offset: u64) {
    while !buf.is_empty() {
        let skip = offset % 8;
        let word = (offset - skip).to_le_bytes();
        let len = buf.len().min(8 - skip as usize);
        let (head, rest) = buf.split_at_mut(len);
        head.copy_from_slice(&word[skip as usize..][..len]);
        (buf, offset) = (rest, offset + len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread::{Options, Reader};
    use foreread_sim::device::custom;
    use std::sync::Arc;

    /// Right bytes through the engine, piece by piece; and no faster than the model allows.
    #[test]
    fn a_live_model_serves_its_own_bytes_in_its_own_time() {
        let preset = custom::find("rbd").expect("a preset");
        let size = (2 << 20) + 777;
        let source = Arc::new(ModelLive::new(preset, size, 1));
        let began = Instant::now();
        let reader = Reader::open(
            Arc::clone(&source),
            Options::default().policy("linux-6.18:max=1M"),
        )
        .expect("open");
        let mut buf = vec![0; 128 << 10];
        let mut at = 0;
        while at < size {
            let got = reader.read_at(&mut buf, at).expect("readable");
            for (n, byte) in buf[..got].iter().enumerate() {
                let place = at + n as u64;
                let word = (place & !7).to_le_bytes();
                assert_eq!(*byte, word[(place % 8) as usize], "byte {place}");
            }
            at += got as u64;
        }
        assert_eq!(at, size);
        // 62.5 MB/s: 2 MiB cannot take less.
        assert!(
            began.elapsed() >= Duration::from_micros(33_000),
            "{:?}",
            began.elapsed()
        );
        assert!(source.lock().there.is_empty(), "every command was taken");
    }
}
