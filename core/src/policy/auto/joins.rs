//! Merges streams that belong together: several threads of one program each read a piece of a file, then the next free piece.
//!
//! A thread that takes the next piece of a file starts where no other thread has read, and reads its piece sequentially. At first each
//! piece is a separate stream. If these streams stayed separate, they would have to share the distance of one reader, and each would end
//! after its piece.
//!
//! ```text
//!   [=== A ===>[= B =>            A has reached the start of B: they become one stream, which ends where B does
//!   [=== A ==[= B =>======>       B is behind A, and everything between them is cached: they become one stream
//! ```
//! Of two streams that are merged, the one with the longer run stays.
//!
//! Example: eight threads take pieces of 1 MiB, and read each in reads of 128 KiB. After some reads, the streams of all pieces are one
//! stream, whose readahead is as long as for a single reader: 24 MB.
//!
//! Source: the project's own design.

use super::{Auto, Stream};
use crate::policy::Ask;
use crate::units::ByteRange;

impl Stream {
    /// Whether `other` is a part of this stream. `is_cached` says whether everything between two offsets is cached.
    fn takes_in(&self, other: &Stream, is_cached: impl FnOnce(u64, u64) -> bool) -> bool {
        // Reads of cached bytes do not call the policy, so the position is an estimate: up to here, two thirds of the readahead was used.
        let read = self.touched + self.touched / 2;
        let reach = self.pos.max(self.end.min(self.pos.saturating_add(read)));
        let is_near = other.pos.saturating_add(self.distance) >= self.pos;
        let begins_inside = (self.from..=reach).contains(&other.from);
        self.stride.is_none()
            && other.stride.is_none()
            && begins_inside
            && other.run <= self.run
            && (other.pos >= self.pos || is_near && is_cached(other.pos, self.pos))
    }

    /// Returns whether the stream has passed the offset `at` by no more than its distance, so that another thread of the program may still
    /// read there.
    pub fn is_behind(&self, at: u64) -> bool {
        self.stride.is_none()
            && (self.from..self.pos).contains(&at)
            && at.saturating_add(self.distance) >= self.pos
    }

    fn take_in(&mut self, other: &Stream) {
        self.used += other.used;
        self.late |= other.late;
        self.held += other.held;
        self.seen = self.seen.max(other.seen);
        self.clock = self.clock.max(other.clock);
        self.run += other.pos.saturating_sub(self.pos);
        self.pos = self.pos.max(other.pos);
        self.end = self.end.max(other.end);
        self.touched += other.touched;
        self.distance = self.distance.max(other.distance);
        self.hold = self.hold.max(other.hold);
        self.last_mark = self.last_mark.max(other.last_mark);
        self.hit = true;
    }
}

impl Auto {
    /// Absorbs the streams that belong to a stream that has continued. Returns the stream's index afterwards.
    pub(super) fn join(&mut self, ask: &Ask<'_>, mut at: usize) -> usize {
        let file = self.file(ask);
        let is_cached = |from, to| ask.probe.missing(ByteRange::between(from, to)) == 0;
        let mut other = 0;
        while other < file.all.len() {
            let (this, that) = (&file.all[at], &file.all[other]);
            let (into, from) = if other == at {
                other += 1;
                continue;
            } else if this.takes_in(that, is_cached) {
                (at, other)
            } else if that.takes_in(this, is_cached) {
                (other, at)
            } else {
                other += 1;
                continue;
            };
            let part = file.all[from].clone();
            file.all[into].take_in(&part);
            file.all.swap_remove(from);
            at = if into == file.all.len() { from } else { into };
            other = 0;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunKind;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A run of 128 KiB reads from one offset to another, which reads 8 MiB ahead.
    fn run(from: u64, pos: u64) -> Stream {
        let mut stream = Stream::new(RunKind::Elsewhere, None, pos, pos - from, 128 << 10);
        (stream.end, stream.distance) = (pos + 8 * MIB, 8 * MIB);
        stream
    }

    #[test]
    fn a_run_takes_in_the_one_that_it_has_come_to() {
        let (first, second) = (run(0, 2 * MIB), run(2 * MIB, 3 * MIB));
        assert!(first.takes_in(&second, |_, _| false));
        assert!(!second.takes_in(&first, |_, _| true), "it began before");
        assert!(!run(0, MIB).takes_in(&second, |_, _| true), "not there yet");
        let longer = run(2 * MIB, 20 * MIB);
        assert!(!first.takes_in(&longer, |_, _| true), "another reader");
        let mut joined = first;
        joined.take_in(&second);
        assert_eq!(
            (joined.from, joined.pos, joined.run, joined.end),
            (0, 3 * MIB, 3 * MIB, 11 * MIB)
        );
    }

    /// A thread that is not done yet; a second reader, if bytes between the two were evicted; and a reader far behind.
    #[test]
    fn a_run_that_is_behind_is_taken_in_where_all_is_cached() {
        let first = run(0, 20 * MIB);
        let behind = run(14 * MIB, 15 * MIB);
        assert!(first.takes_in(&behind, |_, _| true) && !first.takes_in(&behind, |_, _| false));
        assert!(!first.takes_in(&run(MIB, 2 * MIB), |_, _| true));
    }

    /// Most of the readahead up to the other stream was read, without reaching a mark.
    #[test]
    fn cached_reads_count_by_their_bytes() {
        let (mut first, second) = (run(0, MIB), run(2 * MIB, 3 * MIB / 2 + MIB));
        assert!(!first.takes_in(&second, |_, _| true));
        first.touched = 3 * MIB / 4;
        assert!(first.takes_in(&second, |_, _| true));
    }
}
