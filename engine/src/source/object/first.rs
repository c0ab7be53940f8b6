//! The first bytes of an object, which arrive with the reply that names its version.
//!
//! An object is opened by a request for its first bytes. The reply contains the version, and a reader that starts at the beginning has
//! its bytes after one round trip instead of two. An object of up to [`FIRST_BYTES`] needs only this first request. This module never
//! keeps more than [`MAX_HELD`] bytes for all objects, and never returns a byte of another version.
//!
//! ```text
//!   open ──► held ──a fetch takes some bytes──► held
//!                 └─all bytes taken; MAX_ELSEWHERE fetches began after them; another version──► dropped
//! ```
//! Example: an object of 1 MiB. The fetch of 0..64 KiB takes its bytes from the first reply, which this module holds. The next
//! fetch, of 64..256 KiB, takes another 64 KiB of the first reply, and requests the rest of its range from the server. After
//! that, this module holds no more bytes of the object.

use crate::sync::lock;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes requested when an object is opened. Chosen value, 128 KiB: these bytes take 1.3 ms at 100 MB/s, and the kernel sends no
/// larger reads to a mount.
pub const FIRST_BYTES: u64 = 128 << 10;
/// The bytes are dropped after this many fetches that begin after them. Chosen value: more than the pieces of one read, which
/// come in any order.
const MAX_ELSEWHERE: u32 = 16;
/// Maximum bytes held in this process for open objects that have not been read yet: 128 objects.
const MAX_HELD: u64 = 16 << 20;

static HELD: AtomicU64 = AtomicU64::new(0);

/// Permission to hold the first bytes of one object.
#[derive(Debug)]
pub struct Room;

impl Room {
    /// Reserves space for the first bytes of one object; returns `None` if the process already holds the maximum number of such bytes.
    pub fn take() -> Option<Room> {
        let more = |held: u64| Some(held + FIRST_BYTES).filter(|held| *held <= MAX_HELD);
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| Room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.fetch_sub(FIRST_BYTES, Ordering::Relaxed);
    }
}

/// The first bytes of an object, which arrived when the object was opened; they are held until they are read.
#[derive(Default)]
pub struct FirstBytes(Mutex<Option<FirstPart>>);

struct FirstPart {
    bytes: Arc<[u8]>,
    /// Bytes that fetches have taken.
    taken: usize,
    /// Fetches that began after these bytes.
    elsewhere: u32,
    _room: Room,
}

impl FirstBytes {
    pub fn new(bytes: Vec<u8>, room: Option<Room>) -> FirstBytes {
        let held = |room| FirstPart {
            bytes: bytes.into(),
            taken: 0,
            elsewhere: 0,
            _room: room,
        };
        FirstBytes(Mutex::new(
            room.map(held).filter(|held| !held.bytes.is_empty()),
        ))
    }

    /// Calls `with` with the first bytes of `range`, as far as these are held.
    pub fn front<T>(&self, range: &Range<u64>, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let (bytes, end) = {
            let mut first = lock(&self.0);
            let held = first.as_mut()?;
            let bytes = Arc::clone(&held.bytes);
            let end = range.end.min(bytes.len() as u64);
            held.taken += end.saturating_sub(range.start) as usize;
            held.elsewhere += u32::from(range.start >= end);
            if held.taken >= bytes.len() || held.elsewhere == MAX_ELSEWHERE {
                *first = None;
            }
            (bytes, end)
        };
        bytes
            .get(range.start as usize..end as usize)
            .filter(|front| !front.is_empty())
            .map(with)
    }

    /// Drops the bytes, because they belong to another version.
    pub fn forget(&self) {
        *lock(&self.0) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_held_until_as_many_were_taken() {
        let first = || FirstBytes::new((0..100).collect(), Room::take());
        let front = |first: &FirstBytes, range| first.front(&range, <[u8]>::to_vec);
        let held = first();
        assert_eq!(
            front(&held, 50..200),
            Some((50..100).collect()),
            "the pieces of a read, in any order"
        );
        assert_eq!(front(&held, 0..10), Some((0..10).collect()));
        assert_eq!(front(&held, 10..50), Some((10..50).collect()));
        assert_eq!(front(&held, 0..10), None, "dropped");
        let held = first();
        for _ in 1..MAX_ELSEWHERE {
            assert_eq!(front(&held, 100..101), None);
        }
        assert_eq!(front(&held, 0..1), Some(vec![0]));
        assert_eq!((front(&held, 100..101), front(&held, 0..1)), (None, None));
        let held = first();
        held.forget();
        assert_eq!(front(&held, 0..1), None);
        assert!(front(&FirstBytes::new(Vec::new(), Room::take()), 0..1).is_none());
    }

    /// The other test of this file holds one at most.
    #[test]
    fn there_is_room_for_so_many() {
        let rooms: Vec<Room> = std::iter::from_fn(Room::take).take(1000).collect();
        assert!((100..=128).contains(&rooms.len()), "{}", rooms.len());
        drop(rooms);
        assert!(Room::take().is_some());
    }
}
