//! How long a command would have waited for a storage without readahead, by what was seen of it.
//!
//! ```text
//!   small files, single pages    each is one wait of the latency
//!   many files     of each the first window is a wait, and a later one half of it
//!   larger files   the kernel has two windows under way: it asks for the next one when the reader comes to a window. So a window takes half of
//!                  its latency and of what the program does with it
//!                  alone = (windows * latency + processor time of the program) / 2
//! ```
//! Threads wait at the same time: their waits count as many times less as wait together on average. Where all was there in time none has
//! waited, and small files count as many times less as threads read at the same time. The latency is that of a read that no
//! other delays, and a window what the kernel was seen to read for a wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A mapping that is advised to be random is read by single pages: so much for a wait, at most.
const SINGLE_BYTES: f64 = 16384.0;

/// Waits of several threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// All together.
    pub threads: Duration,
    /// The time in which at least one waited.
    pub time: Duration,
}

/// What is known of a storage beside what was read ahead from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownStorage {
    /// How long a read waits that no other delays, and what the kernel reads with it.
    pub alone: Option<Duration>,
    pub window_bytes: Option<u64>,
    /// How long the command waited for it.
    pub waited: Option<WaitTimes>,
    /// Bytes that count as read, and that were not seen to be.
    pub guessed_bytes: u64,
    /// The processor time of the command.
    pub computed: Duration,
    /// Threads that read at the same time, on average.
    pub readers: f64,
}

/// Threads that are kept; those of later ones are not counted.
const MAX_READERS: usize = 1 << 16;

/// From its first read to its latest, of each thread that reads.
#[derive(Default)]
pub struct Readers {
    spans: HashMap<u32, (u64, u64)>,
}

impl Readers {
    /// A thread has read at this time, in nanoseconds.
    pub fn read(&mut self, thread: u32, at_ns: u64) {
        if self.spans.len() < MAX_READERS || self.spans.contains_key(&thread) {
            let (since, until) = self.spans.entry(thread).or_insert((at_ns, at_ns));
            (*since, *until) = ((*since).min(at_ns), (*until).max(at_ns));
        }
    }

    /// How many read at the same time, on average; at least one.
    pub fn at_once(&self) -> f64 {
        let mut spans: Vec<(u64, u64)> = self.spans.values().copied().collect();
        spans.sort_unstable();
        let (mut all, mut any, mut reached) = (0, 0, 0);
        for (since, until) in spans {
            all += until - since;
            any += until.saturating_sub(since.max(reached));
            reached = reached.max(until);
        }
        (all as f64 / any.max(1) as f64).max(1.0)
    }
}

/// The time in which at least one thread waits. Waits come in the order of their ends.
#[derive(Default)]
pub struct WaitUnion {
    waited: WaitTimes,
    until: Option<Instant>,
}

impl WaitUnion {
    pub fn add(&mut self, since: Instant, end: Instant) {
        let from = self.until.map_or(since, |until| until.max(since));
        self.waited.threads += end.saturating_duration_since(since);
        self.waited.time += end.saturating_duration_since(from);
        self.until = Some(self.until.map_or(end, |until| until.max(end)));
    }

    pub fn waited(&self) -> WaitTimes {
        self.waited
    }
}

/// What was seen of a storage.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenStorage {
    /// Bytes that were read ahead and are known to be used, or counted as used.
    pub used_bytes: u64,
    /// Bytes that were read ahead and not used.
    pub unused_bytes: u64,
    /// Bytes that the storage was asked for, and in how many jobs.
    pub asked_bytes: u64,
    pub jobs: u64,
    /// How many of the jobs begin a file.
    pub begun_files: u64,
    /// What the kernel reads for a wait.
    pub window_bytes: u64,
    /// How long a read waits alone.
    pub latency: Duration,
    pub waited: WaitTimes,
    /// Threads that read at the same time, on average.
    pub readers: f64,
    /// The processor time of the command.
    pub computed: Duration,
    /// The time in which something that was read ahead was used.
    pub active: Duration,
}

impl SeenStorage {
    /// Seconds that the command was spared.
    pub fn spared_seconds(&self) -> f64 {
        let latency = self.latency.as_secs_f64();
        let used = self.used_bytes.min(self.asked_bytes) as f64;
        let of_job = self.asked_bytes as f64 / self.jobs.max(1) as f64;
        let window = self.window_bytes.max(4096) as f64;
        let waiting = self.waited.time.as_secs_f64();
        let at_once = (self.waited.threads.as_secs_f64() / waiting.max(1e-9)).max(1.0);
        if of_job < window {
            // A file of 500 bytes is a page that is asked for, and a wait: it counts by what was used of all that was asked for, not by its bytes.
            let asked = self.asked_bytes.max(1) as f64;
            let unused = self.unused_bytes as f64 / asked;
            let jobs = self.jobs as f64 * (1.0 - unused).clamp(0.0, 1.0);
            return jobs * latency / at_once.max(self.readers);
        }
        let active = self.active.as_secs_f64();
        let computed = self.computed.as_secs_f64().min(active);
        if window <= SINGLE_BYTES {
            return used / window * latency / at_once;
        }
        if self.begun_files * 2 > self.jobs {
            // Its first window is a wait that nothing was under way for.
            let (files, asked) = (self.begun_files as f64, self.asked_bytes as f64);
            let waits = files + (asked / window - files).max(0.0) / 2.0;
            let spared = used / asked * waits * latency / at_once.max(self.readers);
            // What was read ahead may still have been waited for: then its rate is the limit.
            return (spared - (active - computed)).max(0.0);
        }
        let windows = used / window;
        ((windows * latency / at_once + computed) / 2.0 - active).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(is: f64, expected: f64) {
        assert!((is / expected - 1.0).abs() < 0.25, "{is} and {expected}");
    }

    fn ms(threads: u64, time: u64) -> WaitTimes {
        WaitTimes {
            threads: Duration::from_millis(threads),
            time: Duration::from_millis(time),
        }
    }

    /// 16 threads wait for the same 2 s, and one of them goes on.
    #[test]
    fn waits_at_the_same_time_are_one() {
        let (mut union, began) = (WaitUnion::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        (0..16).for_each(|n| union.add(at(n), at(2000 + n)));
        union.add(at(5000), at(5001));
        assert_eq!(union.waited(), ms(32_001, 2016));
    }

    /// 8,000 files over a link of 1.3 ms took 11.0 s, and 1.27 s with readahead.
    #[test]
    fn each_small_file_is_a_wait() {
        let seen = SeenStorage {
            used_bytes: 71_000_000,
            asked_bytes: 71_000_000,
            jobs: 8000,
            window_bytes: 128 << 10,
            latency: Duration::from_micros(1300),
            active: Duration::from_millis(1270),
            ..SeenStorage::default()
        };
        near(seen.spared_seconds(), 9.7);
    }

    /// 512 MiB in order over 1.3 ms and 217 MB/s took 3.2 s, and 2.49 s with readahead, of which it waited 2.3 s.
    #[test]
    fn two_windows_of_a_large_file_are_under_way() {
        let seen = SeenStorage {
            used_bytes: 512 << 20,
            asked_bytes: 512 << 20,
            jobs: 130,
            window_bytes: 128 << 10,
            latency: Duration::from_micros(1560),
            waited: ms(2300, 2300),
            computed: Duration::from_millis(120),
            active: Duration::from_millis(2490),
            ..SeenStorage::default()
        };
        near(seen.spared_seconds(), 0.73);
        // 16 threads have the link full alone.
        let many = SeenStorage {
            waited: ms(16 * 2300, 2300),
            ..seen
        };
        assert!(many.spared_seconds() < 0.01);
        // Advised to be random each page is a wait: 11 s and 0.2 s for 32 MiB.
        let pages = SeenStorage {
            used_bytes: 32 << 20,
            asked_bytes: 32 << 20,
            jobs: 20,
            window_bytes: 4096,
            latency: Duration::from_micros(1300),
            waited: ms(150, 150),
            computed: Duration::from_millis(30),
            active: Duration::from_millis(170),
            ..SeenStorage::default()
        };
        near(pages.spared_seconds(), 10.8);
    }

    /// 1,204 files of 87 KiB over 3.4 ms took 4.56 s, and 0.82 s with readahead: the kernel was seen to read 16 to 128 KiB for a wait.
    #[test]
    fn files_of_about_a_window_are_files() {
        for (window_bytes, times) in [(128 << 10, 0.9), (80 << 10, 1.0), (48 << 10, 1.3)] {
            let seen = SeenStorage {
                used_bytes: 105 << 20,
                asked_bytes: 105 << 20,
                jobs: 1230,
                begun_files: 1204,
                window_bytes,
                latency: Duration::from_micros(3400),
                waited: ms(210, 210),
                active: Duration::from_millis(830),
                computed: Duration::from_millis(300),
                ..SeenStorage::default()
            };
            let spared = seen.spared_seconds() / times;
            assert!(
                (spared / 4.0 - 1.0).abs() < 0.25,
                "{window_bytes}: {spared}"
            );
        }
    }

    /// 4,000 files of 500 to 15,000 bytes over 2.4 ms took 12.7 s, and 1.25 s with readahead; by 8 processes 1.5 s, and 1.2 s with it.
    #[test]
    fn files_count_as_waits_whatever_their_bytes() {
        let seen = SeenStorage {
            used_bytes: 27_600_000,
            asked_bytes: 38_300_000,
            jobs: 3975,
            window_bytes: 128 << 10,
            latency: Duration::from_micros(2750),
            active: Duration::from_millis(1250),
            readers: 1.0,
            ..SeenStorage::default()
        };
        near(seen.spared_seconds(), 11.4);
        let by_eight = SeenStorage {
            readers: 8.0,
            ..seen
        };
        assert!(by_eight.spared_seconds() < 1.5);
        let unused = SeenStorage {
            unused_bytes: 38_300_000,
            ..seen
        };
        assert!(unused.spared_seconds() < 0.01);
    }

    #[test]
    fn readers_are_at_once_while_their_reads_are() {
        let mut readers = Readers::default();
        assert!((readers.at_once() - 1.0).abs() < 1e-9);
        for thread in 0..4 {
            for at in [0, 50, 100] {
                readers.read(thread, at);
            }
        }
        assert!((readers.at_once() - 4.0).abs() < 1e-9);
        // Four after each other.
        for thread in 4..8 {
            let began = u64::from(thread) * 100;
            readers.read(thread, began);
            readers.read(thread, began + 100);
        }
        assert!((readers.at_once() - 1.6).abs() < 1e-9);
    }
}
