//! Takes measurements during a run: how many bytes that were read ahead are in the cache but not yet read, and how long a random reader
//! waits.
//!
//! ```text
//!   held    integral of (bytes planned - bytes touched - bytes that left unused) over time
//! ```

use foreread_core::event::Event;
use foreread_core::machine::Note;
use foreread_sim::simulator::Watch;

/// Takes the measurements of one run.
pub struct Watcher {
    page: u64,
    now_ns: u64,
    held: u64,
    held_byte_s: f64,
    antagonist: Option<u32>,
    waits_ns: Vec<u64>,
}

impl Watcher {
    /// Creates a watcher for a run with pages of `page` bytes. The watcher records the waits of the open file description `antagonist`.
    pub fn new(page: u64, antagonist: Option<u32>) -> Watcher {
        Watcher {
            page,
            now_ns: 0,
            held: 0,
            held_byte_s: 0.0,
            antagonist,
            waits_ns: Vec::new(),
        }
    }

    /// Returns the number of bytes that are in the cache but not yet read, integrated over time (byte seconds).
    pub fn held_byte_s(&self) -> f64 {
        self.held_byte_s
    }

    /// The 99th percentile of the antagonist's waits in nanoseconds, if there is one.
    pub(crate) fn antagonist_p99_ns(&self) -> Option<u64> {
        let mut waits = self.waits_ns.clone();
        waits.sort_unstable();
        let at = (waits.len() * 99 / 100).min(waits.len().saturating_sub(1));
        waits.get(at).copied()
    }

    fn see(&mut self, note: &Note) {
        match note {
            Note::Planned { pages, .. } => self.held += pages.len() * self.page,
            Note::Touched { first, .. } => self.release(*first),
            Note::Left { unused, .. } => self.release(*unused),
            Note::Lost { pages, used, .. } => self.release(pages & !used),
            Note::Served { open, stall_ns, .. } if self.antagonist == Some(open.0) => {
                self.waits_ns.push(*stall_ns);
            }
            _ => {}
        }
    }

    fn release(&mut self, pages: u64) {
        let bytes = u64::from(pages.count_ones()) * self.page;
        self.held = self.held.saturating_sub(bytes);
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
    fn held_bytes_and_waits() {
        let mut watcher = Watcher::new(4096, Some(1));
        watcher.held = 1 << 20;
        watcher.time(2_000_000_000);
        watcher.release(0b11);
        watcher.time(3_000_000_000);
        assert!((watcher.held_byte_s() - (2.0 * 1_048_576.0 + 1_040_384.0)).abs() < 1.0);
        assert_eq!(watcher.antagonist_p99_ns(), None);
        watcher.waits_ns.extend(1..=100);
        assert_eq!(watcher.antagonist_p99_ns(), Some(100));
    }
}
