//! Samples what a program's threads wait for, and infers the program's reads, without tracing, without root, and
//! without changes to the program.
//!
//! ```text
//!   /proc/PID/task/TID/syscall   17 0x3 0x7f.. 0x10000 0x8000000 ...   blocked in pread64(3, .., 64K, 128M): a read of 128M
//!   /proc/PID/fdinfo/3           pos: 4194304                          the position of read(2)
//!   /proc/PID/task/TID/io        rchar: 9437184                        how much was read in between: a gap was read, or skipped
//!   /proc/PID/pagemap            which pages of a mapping were touched; a thread that is blocked outside a call waits for a fault
//! ```
//! A read from slow storage is observed because it blocks. A read that the page cache serves is not observed, but the kernel counts its
//! bytes. If a thread reads sequentially, and has read as many bytes as there are between two positions where it blocked, then it has read
//! exactly the bytes between these positions. Between two samples, the thread's position is estimated from the number of bytes that it has
//! read. The estimate goes beyond the last observed position by at most [`threads::MAX_GUESSED_BYTES`], multiplied by the number of times
//! that the sequential run was observed.
//!
//! The sampler must run as the same user, with Yama's ptrace_scope at 0, or at 1 if foreread is the program's parent.
//! The sampler cannot observe programs that other processes may not inspect (setuid, `PR_SET_DUMPABLE` 0), reads that never
//! block, and the lengths of the buffers of a vectored read.
//!
//! The program never waits for the sampler, and the sampler does not open the program's files.

mod calls;
mod mappings;
mod threads;

use crate::touch::{Touch, family, threads_of};
use crate::tracefs::now_ns;
pub use mappings::BLOCK_BYTES;
use mappings::MappedFiles;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
pub(crate) use threads::may_look;
pub(crate) use threads::place_of_descriptor;
pub use threads::{EndedWait, bytes_read_by, process_of};
use threads::{SampledThread, ThreadState};

/// The shortest time between two samples, used while a thread waits, and the longest, used if none does.
const MIN_INTERVAL: Duration = Duration::from_micros(500);
const MAX_INTERVAL: Duration = Duration::from_millis(20);
/// While the same wait continues, the time between two samples is a quarter of its duration so far, at most this.
const MAX_WAIT_INTERVAL: Duration = Duration::from_millis(2);
/// A sample is followed by a pause of at least this many times its own duration: while a thread waits, and if none does.
const PAUSE: u32 = 10;
const IDLE_PAUSE: u32 = 100;
/// How often to search for new threads and children: if none has appeared, less often each time.
const FAMILY_EVERY_NS: u64 = 5_000_000;
const MAX_FAMILY_EVERY_NS: u64 = 40_000_000;
const FAMILY_PAUSE: u64 = 30;
const MAX_THREADS: usize = 256;
/// Consecutive waits are combined for this long.
const STREAK_NS: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageUse {
    /// It is being examined whether the storage is slow: a wait is reported as a miss and a read at its end. The number is how much the
    /// kernel reads ahead there, in bytes.
    Looked(u64),
    /// It is read ahead from: a read is reported when it is first seen.
    ReadAhead,
    PassedOver,
}

impl StorageUse {
    /// How much the kernel reads ahead, if the storage is being examined.
    fn looked(self) -> Option<u64> {
        match self {
            StorageUse::Looked(bytes) => Some(bytes),
            StorageUse::ReadAhead | StorageUse::PassedOver => None,
        }
    }
}

/// How long threads have waited for a storage device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledWait {
    pub threads_ns: u64,
    /// Time in which at least one thread waited.
    pub time_ns: u64,
}

#[derive(Default)]
pub struct Sampler {
    pid: u32,
    threads: HashMap<u32, SampledThread>,
    processes: HashMap<u32, MappedFiles>,
    family_at_ns: Option<u64>,
    family_every_ns: u64,
    /// The time of the latest sample, and how long the latest search for threads took.
    looked_at_ns: u64,
    family_cost_ns: u64,
    /// How long a sample takes, and the pause after it.
    cost: Duration,
    interval: Duration,
    /// Whether a thread waited in the latest sample.
    is_waiting: bool,
    /// When a new wait was last seen.
    changed_ns: u64,
    pub looks: u64,
    pub waits: HashMap<u32, SampledWait>,
    /// Bytes that were reported as read although no sample saw them, by threads that have ended.
    guessed: HashMap<u32, u64>,
    /// Threads that this user may not inspect.
    hidden: HashSet<u32>,
    has_hidden: bool,
    /// Waits that have ended, if they are kept.
    ended: Option<Vec<EndedWait>>,
}

impl Sampler {
    pub fn new(pid: u32) -> Sampler {
        Sampler {
            pid,
            family_every_ns: FAMILY_EVERY_NS,
            interval: MIN_INTERVAL,
            is_waiting: true,
            ..Sampler::default()
        }
    }

    /// From now on, stores each wait of a thread for a read, until [`Sampler::ended_waits`] returns it.
    pub fn keep_ended_waits(&mut self) {
        self.ended = Some(Vec::new());
    }

    pub fn ended_waits(&mut self) -> impl Iterator<Item = EndedWait> + use<> {
        let ended = self.ended.as_mut().map(std::mem::take);
        ended.unwrap_or_default().into_iter()
    }

    pub fn interval(&self) -> Duration {
        let pause = if self.is_waiting { PAUSE } else { IDLE_PAUSE };
        self.interval.max(self.cost * pause)
    }

    pub fn has_hidden(&self) -> bool {
        self.has_hidden
    }

    pub fn is_blind(&self) -> bool {
        self.threads.is_empty() && !self.hidden.is_empty()
    }

    /// Returns how many bytes of a storage device count as read although no sample observed a read of them: they are known only from the
    /// kernel's byte counter.
    pub fn guessed(&self, dev: u32) -> u64 {
        let of_ended = self.guessed.get(&dev).copied().unwrap_or(0);
        let living = self.threads.values().map(|one| one.guessed(dev));
        of_ended + living.sum::<u64>()
    }

    pub fn look(&mut self, touches: &mut Vec<Touch>, usage: &dyn Fn(u32) -> StorageUse) {
        let began_ns = now_ns();
        let since_look_ns = began_ns.saturating_sub(self.looked_at_ns.max(1));
        let since_look_ns = since_look_ns.min(MAX_INTERVAL.as_nanos() as u64 * 5);
        self.looked_at_ns = began_ns;
        self.look_for_threads(began_ns);
        let mut waits_for_faults: HashMap<u32, u64> = HashMap::new();
        let (mut gone, mut is_waiting, mut has_changed) = (Vec::new(), false, false);
        let mut waiting_threads: HashMap<u32, u64> = HashMap::new();
        for (id, thread) in &mut self.threads {
            let state = thread.look(*id, since_look_ns, usage, touches);
            if let Some(ended) = &mut self.ended {
                ended.extend(thread.ended);
            }
            match state {
                ThreadState::Reads => {
                    is_waiting = true;
                    has_changed |= thread.is_new;
                    if let Some(dev) = thread.waits_for() {
                        *waiting_threads.entry(dev).or_default() += 1;
                    }
                }
                ThreadState::Faults => {
                    is_waiting = true;
                    *waits_for_faults.entry(thread.pid).or_default() += 1;
                }
                ThreadState::Runs => {}
                ThreadState::Gone => gone.push(*id),
                ThreadState::Hidden => {
                    self.hidden.insert(*id);
                    self.has_hidden = true;
                    gone.push(*id);
                }
            }
        }
        for id in gone {
            if let Some(thread) = self.threads.remove(&id) {
                for dev in thread.devices() {
                    *self.guessed.entry(dev).or_default() += thread.guessed(dev);
                }
            }
        }
        for (pid, waiting) in waits_for_faults {
            let files = self.processes.entry(pid);
            let files = files.or_insert_with(|| MappedFiles::new(pid));
            files.wait_for_faults(waiting);
            if let Some(dev) = files.latest_device() {
                *waiting_threads.entry(dev).or_default() += waiting;
            }
        }
        for (dev, threads) in waiting_threads {
            let waits = self.waits.entry(dev).or_default();
            waits.threads_ns += threads * since_look_ns;
            waits.time_ns += since_look_ns;
        }
        for files in self.processes.values_mut() {
            has_changed |= files.look(began_ns, usage, touches);
        }
        self.looks += 1;
        if has_changed || !self.is_waiting {
            self.changed_ns = began_ns;
        }
        self.is_waiting = is_waiting;
        self.interval = if is_waiting {
            let waited = Duration::from_nanos(began_ns.saturating_sub(self.changed_ns));
            (waited / 4).clamp(MIN_INTERVAL, MAX_WAIT_INTERVAL)
        } else {
            (self.interval * 2).min(MAX_INTERVAL)
        };
        let took = Duration::from_nanos(now_ns().saturating_sub(began_ns));
        self.cost = (self.cost * 7 + took) / 8;
    }

    fn look_for_threads(&mut self, now_ns: u64) {
        let is_new = |at: u64| {
            let pause = self.family_cost_ns * FAMILY_PAUSE;
            now_ns.saturating_sub(at) < self.family_every_ns.max(pause)
        };
        if self.family_at_ns.is_some_and(is_new) {
            return;
        }
        self.family_at_ns = Some(now_ns);
        // This process reads what it reads ahead: if it belongs to the program, it is not sampled.
        let own = std::process::id();
        let mut family = family(self.pid);
        family.retain(|pid| *pid != own);
        self.processes.retain(|pid, _| family.contains(pid));
        let mut there = HashSet::new();
        let mut has_new = false;
        for pid in family {
            for id in threads_of(pid) {
                there.insert(id);
                let is_new = !self.threads.contains_key(&id) && !self.hidden.contains(&id);
                has_new |= is_new;
                if is_new && self.threads.len() < MAX_THREADS {
                    self.threads.insert(id, SampledThread::new(pid));
                }
            }
        }
        self.hidden.retain(|id| there.contains(id));
        self.family_every_ns = match has_new {
            true => FAMILY_EVERY_NS,
            false => (2 * self.family_every_ns).min(MAX_FAMILY_EVERY_NS),
        };
        self.family_cost_ns = self::now_ns().saturating_sub(now_ns);
    }
}
