//! Where the bytes of one request go: into buffers that are there, or into a sink that hands them on as they come.
//!
//! Never: takes a byte more than there is room for.
//!
//! ```text
//!   Buffers  [....][..........][...]      cut from one read; a part each, filled at the same time
//!   Stream   room ─full─► room ─full─► room, the last one as far as the bytes go
//! ```

use super::refusal::Refusal;
use crate::source::Sink;
use std::io::IoSliceMut;
use std::ops::Range;

/// See the head of this file.
pub trait Take {
    /// What is still to come, as a range of the object.
    fn left(&self) -> Range<u64>;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// They are more than are still to come.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Refusal>;

    /// A read waits for them.
    fn is_awaited(&self) -> bool;

    /// Nothing needs them any more.
    fn is_cancelled(&self) -> bool {
        false
    }
}

fn check(left: &Range<u64>, bytes: &[u8]) -> Result<(), Refusal> {
    let (got, asked) = (bytes.len() as u64, left.end - left.start);
    if got > asked {
        Err(Refusal::Length { got, asked })
    } else {
        Ok(())
    }
}

/// Buffers that are filled from the front.
pub struct Buffers<'b> {
    slices: Vec<&'b mut [u8]>,
    range: Range<u64>,
    /// Bytes that have come.
    done: u64,
}

impl Take for Buffers<'_> {
    fn left(&self) -> Range<u64> {
        self.range.start + self.done..self.range.end
    }

    /// What fills buffers is not said, so it is taken for a read.
    fn is_awaited(&self) -> bool {
        true
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        check(&self.left(), bytes)?;
        let mut skip = usize::try_from(self.done).unwrap_or(usize::MAX);
        self.done += bytes.len() as u64;
        for slice in &mut self.slices {
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let len = bytes.len().min(slice.len() - skip);
            slice[skip..skip + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            skip = 0;
            if bytes.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// Cuts buffers into parts of at most `part` bytes, the last of which ends at `range.end`.
pub fn cut<'b>(bufs: &'b mut [IoSliceMut<'_>], range: Range<u64>, part: u64) -> Vec<Buffers<'b>> {
    let mut parts: Vec<Buffers<'b>> = Vec::new();
    let mut at = range.start;
    let new = |at: u64| Buffers {
        slices: Vec::new(),
        range: at..range.end.min(at.saturating_add(part)),
        done: 0,
    };
    for buf in bufs {
        let mut rest = &mut buf[..];
        while !rest.is_empty() && at < range.end {
            if parts.last().is_none_or(|part| part.range.end == at) {
                parts.push(new(at));
            }
            let Some(part) = parts.last_mut() else { break };
            let len = usize::try_from(part.range.end - at)
                .unwrap_or(usize::MAX)
                .min(rest.len());
            let (head, tail) = rest.split_at_mut(len);
            part.slices.push(head);
            at += len as u64;
            rest = tail;
        }
    }
    parts
}

/// A sink that takes `range`.
pub struct Stream<'s> {
    sink: &'s mut dyn Sink,
    left: Range<u64>,
    /// Bytes in the buffer that the sink gives now.
    filled: usize,
}

impl<'s> Stream<'s> {
    pub fn new(sink: &'s mut dyn Sink, range: Range<u64>) -> Stream<'s> {
        Stream {
            sink,
            left: range,
            filled: 0,
        }
    }

    /// Takes the first bytes, which were read before.
    ///
    /// # Errors
    /// As [`Take::put`].
    pub fn put_at_hand(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.sink.at_hand();
        self.put(bytes)
    }
}

impl Take for Stream<'_> {
    fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    fn is_awaited(&self) -> bool {
        self.sink.is_awaited()
    }

    fn is_cancelled(&self) -> bool {
        self.sink.is_cancelled()
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        check(&self.left, bytes)?;
        self.left.start += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(room) = self.sink.room() else {
                return Err(Refusal::Length {
                    got: bytes.len() as u64,
                    asked: 0,
                });
            };
            let len = bytes.len().min(room.len() - self.filled);
            room[self.filled..self.filled + len].copy_from_slice(&bytes[..len]);
            self.filled += len;
            bytes = &bytes[len..];
            if self.filled == room.len() || self.left.is_empty() && bytes.is_empty() {
                self.sink.filled(std::mem::take(&mut self.filled));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds it in small pieces what belongs there, and one byte more.
    fn feed(place: &mut impl Take) {
        let bytes: Vec<u8> = place.left().map(|n| n as u8).collect();
        for piece in bytes.chunks(2) {
            place.put(piece).expect("room");
        }
        assert!(place.left().is_empty());
        assert!(
            matches!(place.put(&[1]), Err(Refusal::Length { .. })),
            "one more"
        );
    }

    #[test]
    fn parts_cover_the_range_and_bytes_fall_into_place() {
        for (lens, range, part) in [
            (vec![5, 0, 7, 3], 100..115, 4),
            (vec![10], 0..7, 100),
            (vec![3, 3, 3], 1..10, 3),
            (vec![4; 4], 9..10, 1),
        ] {
            let mut space: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
            let mut bufs: Vec<IoSliceMut<'_>> =
                space.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let mut at = range.start;
            for mut part in cut(&mut bufs, range.clone(), part) {
                assert_eq!(part.range.start, at);
                at = part.range.end;
                feed(&mut part);
            }
            assert_eq!(at, range.end);
            let filled: Vec<u8> = space
                .concat()
                .into_iter()
                .take((range.end - range.start) as usize)
                .collect();
            assert_eq!(filled, range.map(|n| n as u8).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn a_sink_gets_each_full_buffer_and_the_last() {
        struct Rooms {
            rooms: Vec<Vec<u8>>,
            told: Vec<usize>,
        }
        impl Sink for Rooms {
            fn room(&mut self) -> Option<&mut [u8]> {
                self.rooms
                    .get_mut(self.told.len())
                    .map(|room| &mut room[..])
            }
            fn filled(&mut self, bytes: usize) {
                self.told.push(bytes);
            }
        }
        for (end, told) in [(12, vec![5, 5, 2]), (15, vec![5, 5, 5]), (3, vec![3])] {
            let mut sink = Rooms {
                rooms: vec![vec![0; 5]; 3],
                told: Vec::new(),
            };
            feed(&mut Stream::new(&mut sink, 0..end));
            assert_eq!(sink.told, told);
            assert_eq!(
                sink.rooms.concat()[..end as usize],
                (0..end as u8).collect::<Vec<u8>>()
            );
        }
    }
}
