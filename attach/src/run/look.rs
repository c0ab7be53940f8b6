//! Decides whether storage is so slow that readahead by another process gains time. The decision uses only the times of the kernel's
//! events: no file is opened for it.
//!
//! The kernel emits one event when it allocates a page for a read, and another when the read gets its pages. From the allocation of a page
//! until the read gets its pages, the thread waits for storage:
//!
//! ```text
//!   thread 7   add_to_page_cache 100    get_pages 100..100                            60 us: fast
//!   thread 8   fault 512    add_to_page_cache 496 ... 527    map_pages 512..527      1.2 ms: slow
//!   thread 9   add_to_page_cache 64 ... 95    get_pages 40..43        read ahead by the kernel: no wait
//! ```
//! If at most one of eight waits is slow, or if bytes arrive at the rate of a fast disk, readahead can gain nothing. foreread knows this
//! within a few milliseconds. Until foreread has decided, it stores the observed reads. If the storage is slow, it then passes them on, so
//! that readahead also sees the first reads.
//!
//! The decision is made within [`MAX_TIME_NS`]; if there are not enough events by then, [`super::gain`] decides.

use super::gain::{FAST_BYTES_PER_NS, MIN_LATENCY, MIN_WAITS};
use foreread_observe::touch::{Touch, TouchKind};
use foreread_pagecache::page_bytes;
use foreread_trace::follow::call::FileKey;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes that are read before their rate counts. Chosen: two windows of the largest usual readahead.
const MIN_BYTES: u64 = 16 << 20;
/// A single slow wait may be an accident: how long to wait for a second one.
const ALONE_NS: u64 = 20_000_000;
/// The longest examination of a storage device with missed pages.
const MAX_TIME_NS: u64 = 200_000_000;
/// Most touches of a storage device under examination that are kept.
const MAX_KEPT: usize = 8192;

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reads wait, or it is unknown. Contains the touches in the meantime.
    Slow(Vec<Touch>),
    /// It answers before readahead from outside could.
    Fast,
}

/// Pages that a thread has missed and may be waiting for.
struct PendingMiss {
    file: FileKey,
    /// The page of a fault. For a read, the pages are known only at its end.
    asked: Option<u64>,
    missed: Option<(u64, u64)>,
    bytes: u64,
    /// When the last page was allocated: then the request is submitted.
    since_ns: u64,
    /// Bytes for which all threads waited at that time.
    queued_bytes: u64,
}

#[derive(Default)]
struct Look {
    began_ns: Option<u64>,
    /// Bytes for which threads wait, and bytes that have arrived.
    queued_bytes: u64,
    came_bytes: u64,
    slow: u64,
    waits: WaitUnion,
    kept: Vec<Touch>,
}

#[derive(Default)]
pub struct Looks {
    /// Most touches of a storage device that are kept.
    max_kept: usize,
    threads: HashMap<u32, PendingMiss>,
    devices: HashMap<u32, Look>,
}

impl PendingMiss {
    fn of(touch: &Touch, asked: Option<u64>) -> PendingMiss {
        PendingMiss {
            file: touch.file,
            asked,
            missed: None,
            bytes: 0,
            since_ns: touch.at_ns,
            queued_bytes: 0,
        }
    }

    /// How long a thread has waited until `now_ns`, minus the time that the bytes of all threads take at half the rate of a fast disk.
    /// A disk serves threads in turn: bytes that were requested later (`queued_bytes` are waited for now) also delay earlier ones.
    fn latency_ns(&self, now_ns: u64, queued_bytes: u64) -> u64 {
        let bytes = self.queued_bytes.max(queued_bytes);
        now_ns
            .saturating_sub(self.since_ns)
            .saturating_sub(2 * bytes / FAST_BYTES_PER_NS)
    }

    fn has_missed(&self, first: u64, last: u64) -> bool {
        self.missed
            .is_some_and(|(from, to)| from <= last && first <= to)
    }
}

fn is_slow(latency_ns: u64) -> bool {
    u128::from(latency_ns) >= MIN_LATENCY.as_nanos()
}

pub struct StorageVerdict {
    pub dev: u32,
    pub verdict: Verdict,
    pub waits: Waits,
}

impl Looks {
    /// Creates the state for storage under examination, whose touches are kept.
    pub fn keeping() -> Looks {
        Looks {
            max_kept: MAX_KEPT,
            ..Looks::default()
        }
    }

    /// Forgets all observations; must be called if events were not processed for a while.
    pub fn clear(&mut self) {
        self.threads.clear();
        self.devices.clear();
    }

    /// Processes the next event; events must be in time order. Returns from when until when the thread waited if the event is a read
    /// that missed one of its pages.
    pub fn touch(&mut self, touch: &Touch) -> Option<Range<u64>> {
        let look = self.devices.entry(touch.file.dev).or_default();
        let (first, last) = touch.pages;
        if touch.kind == TouchKind::Miss {
            look.began_ns.get_or_insert(touch.at_ns);
            // Several threads may wait for the same pages: samples see each thread, but the bytes arrive once.
            let is_shared = self.threads.iter().any(|(thread, one)| {
                *thread != touch.thread && one.file == touch.file && one.has_missed(first, last)
            });
            let waiting = self
                .threads
                .entry(touch.thread)
                .or_insert_with(|| PendingMiss::of(touch, None));
            if waiting.file != touch.file {
                look.queued_bytes = look.queued_bytes.saturating_sub(waiting.bytes);
                *waiting = PendingMiss::of(touch, None);
            }
            let (from, to) = waiting.missed.unwrap_or((first, last));
            waiting.missed = Some((from.min(first), to.max(last)));
            let pages = if is_shared { 0 } else { last - first + 1 };
            let bytes = pages.saturating_mul(page_bytes());
            (waiting.bytes, look.queued_bytes) = (waiting.bytes + bytes, look.queued_bytes + bytes);
            (waiting.since_ns, waiting.queued_bytes) = (touch.at_ns, look.queued_bytes);
            return None;
        }
        if look.kept.len() < self.max_kept {
            look.kept.push(*touch);
        }
        let waited = self
            .threads
            .remove(&touch.thread)
            .filter(|waiting| {
                Self::came(&mut self.devices, waiting, touch) && waiting.asked.is_none()
            })
            .map(|waiting| waiting.since_ns..touch.at_ns);
        if touch.kind == TouchKind::Fault {
            self.threads
                .insert(touch.thread, PendingMiss::of(touch, Some(first)));
        }
        waited
    }

    /// The thread continues: since it causes `touch`, it no longer waits for an earlier read. Returns whether it waited for that read.
    fn came(devices: &mut HashMap<u32, Look>, waiting: &PendingMiss, touch: &Touch) -> bool {
        let Some(look) = devices.get_mut(&waiting.file.dev) else {
            return false;
        };
        let queued_bytes = look.queued_bytes;
        look.queued_bytes = queued_bytes.saturating_sub(waiting.bytes);
        look.came_bytes += waiting.bytes;
        let of_read =
            (touch.kind == TouchKind::Read && touch.file == waiting.file).then_some(touch.pages);
        let asked = waiting.asked.map(|page| (page, page)).or(of_read);
        let has_waited = asked.is_some_and(|(first, last)| waiting.has_missed(first, last));
        if has_waited {
            let latency_ns = waiting.latency_ns(touch.at_ns, queued_bytes);
            look.waits.add(waiting.since_ns, touch.at_ns);
            look.slow += u64::from(is_slow(latency_ns));
        }
        has_waited
    }

    /// For each storage device with enough observations, returns whether it is fast or slow, and ends the examination of the device.
    pub fn verdicts(&mut self, now_ns: u64) -> Vec<StorageVerdict> {
        let verdict = |dev: u32, look: &Look| {
            let is_of = |one: &&PendingMiss| {
                one.file.dev == dev && one.asked.is_none_or(|page| one.has_missed(page, page))
            };
            let waiting = self.threads.values().filter(is_of);
            let still = waiting.filter(|one| {
                one.missed.is_some() && is_slow(one.latency_ns(now_ns, look.queued_bytes))
            });
            look.is_fast(now_ns, still.count() as u64)
        };
        let ready: Vec<(u32, bool)> = self
            .devices
            .iter()
            .filter_map(|(dev, look)| Some((*dev, verdict(*dev, look)?)))
            .collect();
        let taken = ready.into_iter().filter_map(|(dev, is_fast)| {
            let Look { kept, waits, .. } = self.devices.remove(&dev)?;
            let verdict = match is_fast {
                true => Verdict::Fast,
                false => Verdict::Slow(kept),
            };
            let waits = waits.sum;
            Some(StorageVerdict {
                dev,
                verdict,
                waits,
            })
        });
        taken.collect()
    }

    pub fn has_misses(&self) -> bool {
        self.devices.values().any(|look| look.began_ns.is_some())
    }
}

impl Look {
    /// Whether the storage is fast, if known; `still` threads have been waiting long and still wait.
    fn is_fast(&self, now_ns: u64, still: u64) -> Option<bool> {
        let time_ns = now_ns.saturating_sub(self.began_ns?);
        let (slow, waits) = (self.slow + still, self.waits.sum.waits + still);
        let is_rarely_slow = slow * MIN_WAITS as u64 <= waits;
        // Half of the time: the program also processes the bytes.
        let has_rate = self.came_bytes >= MIN_BYTES
            && 2 * self.came_bytes >= time_ns.saturating_mul(FAST_BYTES_PER_NS);
        if has_rate || is_rarely_slow && waits >= MIN_WAITS as u64 {
            return Some(true);
        }
        let is_slow = !is_rarely_slow && (slow > 1 || time_ns >= ALONE_NS);
        (is_slow || time_ns >= MAX_TIME_NS).then_some(false)
    }
}

/// How long threads waited for a storage device: the sum over all threads, and the time in which at least one thread waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub waits: u64,
    pub threads_ns: u64,
    /// Time in which at least one thread waited.
    pub time_ns: u64,
}

impl Waits {
    pub fn add(&mut self, other: Waits) {
        self.waits += other.waits;
        self.threads_ns += other.threads_ns;
        self.time_ns += other.time_ns;
    }
}

/// Computes the time in which at least one thread waited, from waits in the order of their ends.
#[derive(Default)]
pub struct WaitUnion {
    pub sum: Waits,
    until_ns: u64,
}

impl WaitUnion {
    pub fn add(&mut self, since_ns: u64, end_ns: u64) {
        let from_ns = since_ns.max(self.until_ns);
        self.sum.add(Waits {
            waits: 1,
            threads_ns: end_ns.saturating_sub(since_ns),
            time_ns: end_ns.saturating_sub(from_ns),
        });
        self.until_ns = self.until_ns.max(end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const FILE: FileKey = FileKey { dev: 7, ino: 12 };

    /// Of pages of 4 KiB, whatever the machine has.
    fn touch(at_us: u64, thread: u32, kind: TouchKind, pages: (u64, u64)) -> Touch {
        let (first, last) = pages;
        let page = |byte: u64| byte / page_bytes();
        let pages = (page(first * 4096), page(last * 4096 + 4095));
        Touch {
            at_ns: at_us * US,
            thread,
            file: FILE,
            pages,
            kind,
        }
    }

    /// A read of a page that waits so long.
    fn read(looks: &mut Looks, at_us: u64, page: u64, wait_us: u64) {
        looks.touch(&touch(at_us, 1, TouchKind::Miss, (page, page)));
        let waited = looks.touch(&touch(at_us + wait_us, 1, TouchKind::Read, (page, page)));
        assert_eq!(waited, Some(at_us * US..(at_us + wait_us) * US));
    }

    fn verdict(looks: &mut Looks, at_us: u64) -> Option<Verdict> {
        let one = looks.verdicts(at_us * US).pop()?;
        assert_eq!(one.dev, FILE.dev);
        Some(one.verdict)
    }

    #[test]
    fn eight_short_waits_are_a_fast_storage() {
        let mut looks = Looks::keeping();
        (0..7).for_each(|n| read(&mut looks, 100 * n, 50 * n, 80));
        assert_eq!(verdict(&mut looks, 700), None, "not enough of them");
        read(&mut looks, 700, 999, 900);
        assert_eq!(
            verdict(&mut looks, 1600),
            Some(Verdict::Fast),
            "one in eight may be slow"
        );
        assert!(
            !looks.has_misses() && verdict(&mut looks, 1_000_000).is_none(),
            "it is done with"
        );
    }

    #[test]
    fn two_long_waits_are_a_slow_storage_and_its_reads_are_kept() {
        let mut looks = Looks::keeping();
        read(&mut looks, 0, 5, 1200);
        assert_eq!(verdict(&mut looks, 1300), None, "one may be an accident");
        looks.touch(&touch(1400, 1, TouchKind::Miss, (70, 73)));
        assert_eq!(verdict(&mut looks, 1500), None);
        // The thread waits still.
        let kept = vec![touch(1200, 1, TouchKind::Read, (5, 5))];
        assert_eq!(verdict(&mut looks, 1900), Some(Verdict::Slow(kept)));
        // A lone one is one after a while.
        read(&mut looks, 0, 5, 1200);
        assert!(matches!(
            verdict(&mut looks, 20_000),
            Some(Verdict::Slow(_))
        ));
    }

    /// The kernel's readahead makes pages that the read does not wait for, and a cached page none.
    #[test]
    fn pages_that_are_not_asked_for_are_no_wait() {
        let mut looks = Looks::keeping();
        for n in 0..20 {
            looks.touch(&touch(10 * n, 1, TouchKind::Miss, (500 + n, 500 + n)));
            let waited = looks.touch(&touch(10 * n + 5, 1, TouchKind::Read, (n, n)));
            assert_eq!(waited, None);
        }
        assert_eq!(verdict(&mut looks, 199_000), None);
        assert!(
            matches!(verdict(&mut looks, 200_000), Some(Verdict::Slow(_))),
            "not known: the gain shows it"
        );
    }

    #[test]
    fn a_fault_waits_until_the_next_event_of_its_thread() {
        let mut looks = Looks::keeping();
        for n in 0..2 {
            let at = 3000 * n;
            looks.touch(&touch(at, 1, TouchKind::Fault, (512, 512)));
            looks.touch(&touch(at + 10, 2, TouchKind::Mapped, (0, 15)));
            looks.touch(&touch(at + 20, 1, TouchKind::Miss, (496, 527)));
            looks.touch(&touch(at + 1500, 1, TouchKind::Mapped, (512, 527)));
        }
        assert!(matches!(verdict(&mut looks, 4600), Some(Verdict::Slow(kept)) if kept.len() == 6));
    }

    /// Eight processes that map one file wait for the same window of 128 KiB.
    #[test]
    fn bytes_that_many_wait_for_come_once() {
        let mut looks = Looks::keeping();
        let window = (0, 31);
        (0..8).for_each(|n| _ = looks.touch(&touch(n, n as u32, TouchKind::Miss, window)));
        (0..8).for_each(|n| _ = looks.touch(&touch(1500 + n, n as u32, TouchKind::Read, window)));
        assert!(matches!(verdict(&mut looks, 1600), Some(Verdict::Slow(_))));
    }

    /// Windows of 8 MiB by 4 threads: no page of them is quick, and the disk is.
    #[test]
    fn bytes_at_the_rate_of_a_fast_disk_are_one() {
        let mut looks = Looks::keeping();
        let window = |n: u64| (2048 * n, 2048 * n + 2047);
        (0..4).for_each(|n| _ = looks.touch(&touch(n, n as u32, TouchKind::Miss, window(n))));
        // 32 MiB at 1 GB/s.
        assert_eq!(
            verdict(&mut looks, 33_600),
            None,
            "all wait, and not too long"
        );
        (0..4).for_each(|n| _ = looks.touch(&touch(33_600, n as u32, TouchKind::Read, window(n))));
        assert_eq!(verdict(&mut looks, 33_600), Some(Verdict::Fast));
        // At a third of that.
        (0..4).for_each(|n| _ = looks.touch(&touch(n, n as u32, TouchKind::Miss, window(n))));
        assert_eq!(
            verdict(&mut looks, 100_000),
            Some(Verdict::Slow(Vec::new()))
        );
    }

    /// 16 threads wait for the same 2 s, and one of them goes on.
    #[test]
    fn waits_at_the_same_time_are_one() {
        let mut union = WaitUnion::default();
        (0..16).for_each(|n| union.add(n, 2000 + n));
        union.add(5000, 5001);
        let sum = Waits {
            waits: 17,
            threads_ns: 32_001,
            time_ns: 2016,
        };
        assert_eq!(union.sum, sum);
    }
}
