//! Where a read puts its bytes: one buffer, or several in a row.
//!
//! Never: takes more than there is room for.

use crate::store::Lease;
use foreread_core::units::ByteRange;
use std::io::IoSliceMut;

/// The caller's memory.
pub enum ReadBuf<'a, 'b> {
    /// One buffer.
    One(&'a mut [u8]),
    /// Several, filled in their order.
    Many(&'a mut [IoSliceMut<'b>]),
}

impl ReadBuf<'_, '_> {
    /// Bytes there is room for.
    pub fn len(&self) -> usize {
        match self {
            ReadBuf::One(buf) => buf.len(),
            ReadBuf::Many(bufs) => bufs
                .iter()
                .fold(0, |sum, buf| sum.saturating_add(buf.len())),
        }
    }

    /// The bytes that there is room for, from `offset` on.
    pub fn range_from(&self, offset: u64) -> ByteRange {
        ByteRange::between(offset, offset.saturating_add(self.len() as u64))
    }

    /// Copies a piece to place `at`. Returns how much of it there was room for.
    #[inline]
    pub fn take(&mut self, at: usize, piece: &Lease) -> usize {
        match self {
            ReadBuf::One(buf) => piece.copy_to(buf.get_mut(at..).unwrap_or_default()),
            ReadBuf::Many(bufs) => scatter(bufs, at, piece),
        }
    }
}

fn scatter(bufs: &mut [IoSliceMut<'_>], mut at: usize, piece: &Lease) -> usize {
    let mut done = 0;
    let mut bufs = bufs.iter_mut();
    let mut room: &mut [u8] = &mut [];
    for mut bytes in piece.slices() {
        while !bytes.is_empty() {
            while room.is_empty() {
                let Some(next) = bufs.next() else { return done };
                let skip = at.min(next.len());
                at -= skip;
                room = &mut next[skip..];
            }
            let len = bytes.len().min(room.len());
            let (here, rest) = std::mem::take(&mut room).split_at_mut(len);
            here.copy_from_slice(&bytes[..len]);
            (room, bytes) = (rest, &bytes[len..]);
            done += len;
        }
    }
    done
}
