//! The position shared by `read`, `readinto` and `seek` of one file, for any number of threads.
//!
//! Before a read waits for data, it moves the position past its range. Therefore two threads get consecutive ranges,
//! and neither thread waits for the other:
//!
//! ```text
//!   position 0    A: read(10) claims 0..10      position 10    B: read(10) claims 10..20      position 20
//!   A fails or is interrupted before another read claims: back to 0
//! ```
//! The position is an atomic number without a lock, so it is consistent in a forked child, whatever other threads did
//! at the moment of the fork.

use std::sync::atomic::{AtomicU64, Ordering};

/// The position of a file, in bytes from its start.
#[derive(Default)]
pub struct Position(AtomicU64);

impl Position {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the position, unless another thread has changed it since it was `from`.
    pub fn move_from(&self, from: u64, to: u64) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Moves the position from `start` past a range of `length` bytes, so that this range belongs to one read only. Returns `None` if
    /// another thread has moved the position.
    pub fn claim(&self, start: u64, length: u64) -> Option<Claim<'_>> {
        let end = start.saturating_add(length);
        // Created only after the position was moved, because dropping a claim returns its range.
        self.move_from(start, end).then(|| Claim {
            position: self,
            start,
            end,
        })
    }
}

/// The range that belongs to one read. When it is dropped, the position moves back over the part that was not read,
/// unless a later read has already moved the position.
pub struct Claim<'a> {
    position: &'a Position,
    start: u64,
    end: u64,
}

impl Claim<'_> {
    /// Ends the read, which has read this many bytes.
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
    fn bytes_claimed_by_another_read_stay_claimed() {
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
    fn a_reads_missing_bytes_are_returned() {
        let position = Position::default();
        position.claim(0, 10).expect("claimed").got(4);
        assert_eq!(position.get(), 4);
        drop(position.claim(4, 10));
        assert_eq!(position.get(), 4, "a read that failed");
    }
}
