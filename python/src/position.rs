//! The position that `read`, `readinto` and `seek` of one file share, for any number of threads.
//!
//! A read claims its bytes before it waits for them, so two threads get bytes that follow each other, each once, and neither
//! waits for the other:
//!
//! ```text
//!   position 0    A: read(10) claims 0..10      position 10    B: read(10) claims 10..20      position 20
//!   A fails or is interrupted, and no later read has claimed: back to 0
//! ```
//! It is one atomic number and no lock: a forked child finds it whole whatever another thread did at that moment.

use std::sync::atomic::{AtomicU64, Ordering};

/// In bytes.
#[derive(Default)]
pub struct Position(AtomicU64);

impl Position {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves it, unless another thread did so since it was `from`.
    pub fn move_from(&self, from: u64, to: u64) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The bytes from `start` on for one read; nothing if another thread moved the position.
    pub fn claim(&self, start: u64, length: u64) -> Option<Claim<'_>> {
        let end = start.saturating_add(length);
        // Made only if the position was moved: a claim that is dropped gives its bytes back.
        self.move_from(start, end).then(|| Claim {
            position: self,
            start,
            end,
        })
    }
}

/// The bytes of one read. What it did not get is given back when it is dropped, unless a later read has claimed what follows.
pub struct Claim<'a> {
    position: &'a Position,
    start: u64,
    end: u64,
}

impl Claim<'_> {
    /// The read got this many bytes.
    pub fn got(mut self, bytes: usize) {
        self.start = self.end.min(self.start.saturating_add(bytes as u64));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.start < self.end {
            self.position.move_from(self.end, self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_read_has_claimed_stays_claimed() {
        let position = Position::default();
        let first = position.claim(0, 10).expect("claimed");
        assert!(
            position.claim(0, 10).is_none(),
            "as two threads ask that saw the same position"
        );
        assert_eq!(position.get(), 10);
        first.got(10);
        assert_eq!(position.get(), 10);
    }

    #[test]
    fn what_a_read_did_not_get_is_given_back() {
        let position = Position::default();
        position.claim(0, 10).expect("claimed").got(4);
        assert_eq!(position.get(), 4);
        drop(position.claim(4, 10));
        assert_eq!(position.get(), 4, "a read that failed");
    }
}
