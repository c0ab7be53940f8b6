//! What is read off a run while it goes on: how much unread readahead is held, how soon the reader is at its rate, how often
//! a policy changes its mind.
//!
//! ```text
//!   held    integral of (bytes planned - bytes touched - bytes that left unused) over time
//!   start   served bytes at times t0, t1, ...; steady rate = that of the second half of the bytes;
//!           T95 = the first time from which on a quarter of the bytes come at 0.95 of it
//!   flaps   windows of 4M, 4M, 1M, 4M, 1M: three changes of direction by more than a quarter
//! ```
//! Example: a reader gets 16 MiB at 10 MB/s and then 112 MiB at 200 MB/s. The steady rate is 200 MB/s and T95 1.6 s.

use foreread_core::event::Event;
use foreread_core::machine::Note;
use foreread_sim::simulator::Watch;

/// Points of the curve of served bytes that are kept.
const POINTS: usize = 4096;
/// What part of the steady rate counts as reached.
const REACHED: f64 = 0.95;

/// Looks on at one run.
pub struct Watcher {
    page: u64,
    now_ns: u64,
    held: u64,
    held_byte_s: f64,
    /// (time, bytes served so far), thinned out when full.
    served: Vec<(u64, u64)>,
    served_bytes: u64,
    every: u64,
    reads: u64,
    /// Bytes of the latest windows of the stream, and the direction of the last change.
    window: u64,
    grew: Option<bool>,
    flaps: u64,
    antagonist: Option<u32>,
    waits_ns: Vec<u64>,
}

impl Watcher {
    /// Of a run with pages of `page` bytes; `antagonist` is the open description whose waits are kept.
    #[must_use]
    pub fn new(page: u64, antagonist: Option<u32>) -> Watcher {
        Watcher {
            page,
            now_ns: 0,
            held: 0,
            held_byte_s: 0.0,
            served: Vec::new(),
            served_bytes: 0,
            every: 1,
            reads: 0,
            window: 0,
            grew: None,
            flaps: 0,
            antagonist,
            waits_ns: Vec::new(),
        }
    }

    /// Byte seconds of unread readahead.
    #[must_use]
    pub fn held_byte_s(&self) -> f64 {
        self.held_byte_s
    }

    /// Changes of direction of the window.
    #[must_use]
    pub fn flaps(&self) -> u64 {
        self.flaps
    }

    /// The 99th percentile of the antagonist's waits in nanoseconds, if there is one.
    #[must_use]
    pub(crate) fn antagonist_p99_ns(&self) -> Option<u64> {
        let mut waits = self.waits_ns.clone();
        waits.sort_unstable();
        waits
            .get((waits.len() * 99 / 100).min(waits.len().saturating_sub(1)))
            .copied()
    }

    /// When the rate of the second half was first reached, in nanoseconds; none for runs too short to have a rate.
    #[must_use]
    pub(crate) fn start_up_ns(&self) -> Option<u64> {
        let (end_ns, bytes) = *self.served.last()?;
        let half = self.served.iter().position(|p| p.1 >= bytes / 2)?;
        let (half_ns, half_bytes) = self.served[half];
        let steady =
            (bytes - half_bytes) as f64 / end_ns.checked_sub(half_ns).filter(|d| *d > 0)? as f64;
        let quarter = bytes / 4;
        let mut to = 0;
        for &(from_ns, from_bytes) in &self.served {
            while to + 1 < self.served.len() && self.served[to].1 < from_bytes + quarter {
                to += 1;
            }
            let (to_ns, to_bytes) = self.served[to];
            let rate = (to_bytes - from_bytes) as f64 / (to_ns - from_ns).max(1) as f64;
            if rate >= REACHED * steady {
                return Some(from_ns);
            }
        }
        None
    }

    fn see(&mut self, note: &Note) {
        match note {
            Note::Planned { pages, .. } => self.held += pages.len() * self.page,
            Note::Touched { first, .. } => self.release(*first),
            Note::Left { unused, .. } => self.release(*unused),
            Note::Lost { pages, used, .. } => self.release(pages & !used),
            Note::Served {
                open,
                bytes,
                stall_ns,
                ..
            } => self.served(open.0, *bytes, *stall_ns),
            Note::Answer { windows, .. } if !windows.is_empty() => {
                self.planned(windows.iter().map(|w| w.range.len()).sum());
            }
            _ => {}
        }
    }

    fn release(&mut self, pages: u64) {
        self.held = self
            .held
            .saturating_sub(u64::from(pages.count_ones()) * self.page);
    }

    fn served(&mut self, open: u32, bytes: u64, stall_ns: u64) {
        self.served_bytes += bytes;
        self.reads += 1;
        if self.antagonist == Some(open) {
            self.waits_ns.push(stall_ns);
        }
        if self.reads.is_multiple_of(self.every) {
            self.served.push((self.now_ns, self.served_bytes));
            if self.served.len() >= POINTS {
                let mut keep = false;
                self.served.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.every *= 2;
            }
        }
    }

    fn planned(&mut self, bytes: u64) {
        let last = std::mem::replace(&mut self.window, bytes);
        let grew = if bytes > last + last / 4 {
            true
        } else if bytes < last - last / 4 {
            false
        } else {
            return;
        };
        self.flaps += u64::from(self.grew.replace(grew).is_some_and(|before| before != grew));
    }
}

impl Watch for Watcher {
    fn time(&mut self, now_ns: u64) {
        self.held_byte_s += self.held as f64 * (now_ns - self.now_ns) as f64 / 1e9;
        self.now_ns = now_ns;
    }

    fn event(&mut self, _event: &Event) {}

    fn notes(&mut self, notes: Vec<Note>) {
        notes.iter().for_each(|note| self.see(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_reached_after_the_slow_start() {
        let mut watcher = Watcher::new(4096, None);
        let mut now = 0;
        for n in 0..128_u64 {
            now += if n < 16 { 100_000_000 } else { 5_000_000 };
            watcher.time(now);
            watcher.served(0, 1 << 20, 0);
        }
        let start = watcher.start_up_ns().expect("a rate");
        assert!((1_500_000_000..=1_700_000_000).contains(&start), "{start}");
    }

    #[test]
    fn held_bytes_and_changes_of_direction() {
        let mut watcher = Watcher::new(4096, Some(1));
        watcher.held = 1 << 20;
        watcher.time(2_000_000_000);
        watcher.release(0b11);
        watcher.time(3_000_000_000);
        assert!((watcher.held_byte_s() - (2.0 * 1_048_576.0 + 1_040_384.0)).abs() < 1.0);
        [4, 4, 1, 4, 1]
            .iter()
            .for_each(|mib| watcher.planned(mib << 20));
        assert_eq!(watcher.flaps(), 3);
        assert_eq!(watcher.antagonist_p99_ns(), None);
        (1..=100).for_each(|n| watcher.served(1, 4096, n));
        assert_eq!(watcher.antagonist_p99_ns(), Some(100));
    }
}
