//! Reads in flight through librbd, and the owners of their memory.
//!
//! A read in flight owns its buffer. The caller waits beside it, and may go away: the buffer stays until librbd says
//! that the read has ended. The callback runs on one of librbd's threads; it passes the result on and returns. Never: unwinds
//! into librbd, closes anything there, or touches the bytes before librbd is done with them.
//!
//! ```text
//!   begin ──► Flight { buffer, slot, gate } ──rbd_aio_read──► librbd's threads ──landed──► slot.put(result, buffer)
//!      └─► Ticket { slot } ── wait ──────────────────────────────────────────────────────────────┘    gate.leave
//!          dropped: the buffer is freed with the slot
//! ```
#![allow(unsafe_code)]

use super::api::Handle;
use super::client::Image;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Buffers that are kept for the next reads: as many as the engine has fetches in flight.
const KEPT_BUFFERS: usize = 64;
/// Larger ones are not kept: the engine's fetch unless set.
const KEPT_BYTES: usize = 1 << 20;
/// How long closing waits for reads to end. librados ends each within its own time for silence, which is shorter.
const DRAIN: Duration = Duration::from_secs(90);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the reads in flight through one image.
#[derive(Default)]
pub struct Gate {
    inside: Mutex<usize>,
    bell: Condvar,
}

impl Gate {
    fn enter(&self) {
        *lock(&self.inside) += 1;
    }

    fn leave(&self) {
        let mut inside = lock(&self.inside);
        *inside -= 1;
        if *inside == 0 {
            self.bell.notify_all();
        }
    }

    /// Waits until there are none. False if there still are some when even librados's own deadline is long over.
    pub fn drained(&self) -> bool {
        let inside = lock(&self.inside);
        let waited = self
            .bell
            .wait_timeout_while(inside, DRAIN, |inside| *inside > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

/// Memory to read into, used again: a fresh MiB costs 256 page faults.
#[derive(Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self, len: usize) -> Vec<u8> {
        let mut kept = lock(&self.0);
        let fits = kept.iter().position(|buffer| buffer.len() >= len);
        fits.map(|at| kept.swap_remove(at))
            .unwrap_or_else(|| vec![0; len.next_power_of_two()])
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut kept = lock(&self.0);
        if buffer.len() <= KEPT_BYTES && kept.len() < KEPT_BUFFERS {
            kept.push(buffer);
        }
    }
}

/// Where the answer is left: bytes or a negative error number, and the buffer.
#[derive(Default)]
struct Slot {
    answer: Mutex<Option<(isize, Vec<u8>)>>,
    bell: Condvar,
}

impl Slot {
    fn put(&self, result: isize, buffer: Vec<u8>) {
        *lock(&self.answer) = Some((result, buffer));
        self.bell.notify_one();
    }
}

/// What librbd holds of us while a read is in flight.
struct Flight {
    release: unsafe extern "C" fn(Handle),
    result: unsafe extern "C" fn(Handle) -> isize,
    buffer: Vec<u8>,
    slot: Arc<Slot>,
    gate: Arc<Gate>,
}

/// Called by librbd, once for each read.
extern "C" fn landed(completion: Handle, flight: Handle) {
    // SAFETY: made by Box::into_raw in `begin` and given back exactly here, as the callback is called once.
    let flight = unsafe { Box::from_raw(flight.cast::<Flight>()) };
    let Flight {
        release,
        result,
        buffer,
        slot,
        gate,
    } = *flight;
    // SAFETY: the completion is alive until it is released, which is done in the next statement and nowhere else.
    let result = unsafe { result(completion) };
    // SAFETY: as above; librbd holds a reference to it while the callback runs.
    unsafe { release(completion) };
    // Nothing in here is expected to panic; if it did, the reader would run into its deadline, and librbd goes on.
    let _ = catch_unwind(AssertUnwindSafe(|| slot.put(result, buffer)));
    drop(slot);
    let _ = catch_unwind(AssertUnwindSafe(|| gate.leave()));
}

/// A waiter for a read.
pub struct Ticket {
    slot: Arc<Slot>,
    buffers: Arc<Buffers>,
}

/// What became of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// This many bytes were taken.
    Bytes(usize),
    /// This (positive) error number.
    Failed(i32),
    /// librbd has said nothing in all that time.
    Silent,
}

/// Starts a read of `len` bytes at `offset`.
///
/// # Errors
/// The (positive) error number with which librbd refused to begin.
pub fn begin(image: &Image, offset: u64, len: usize) -> Result<Ticket, i32> {
    let api = image.api;
    let slot = Arc::<Slot>::default();
    let mut buffer = image.buffers.take(len);
    let target = buffer.as_mut_ptr();
    let (release, result) = (api.rbd_aio_release, api.rbd_aio_get_return_value);
    let flight = Flight {
        release,
        result,
        buffer,
        slot: Arc::clone(&slot),
        gate: Arc::clone(&image.gate),
    };
    let flight = Box::into_raw(Box::new(flight));
    let mut completion = null_mut();
    // SAFETY: the completion is written on success only; the flight is ours until a read has it.
    let made =
        unsafe { (api.rbd_aio_create_completion)(flight.cast(), Some(landed), &mut completion) };
    if made < 0 {
        // SAFETY: the only owner: there is no completion.
        drop(unsafe { Box::from_raw(flight) });
        return Err(made.saturating_neg());
    }
    image.gate.enter();
    // SAFETY: the image is open as long as the gate counts a read. The buffer has at least `len` bytes, belongs to the
    // flight, and is neither moved nor looked at before `landed` has the flight back.
    let begun = unsafe { (api.rbd_aio_read)(image.handle, offset, len, target.cast(), completion) };
    if begun < 0 {
        // SAFETY: a refused read calls no callback, so the completion and the flight are still ours alone.
        unsafe { (api.rbd_aio_release)(completion) };
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(flight) });
        image.gate.leave();
        return Err(begun.saturating_neg());
    }
    Ok(Ticket {
        slot,
        buffers: Arc::clone(&image.buffers),
    })
}

impl Ticket {
    /// Waits for the end, at most so long, and hands the bytes to `take`.
    pub fn wait(self, patience: Duration, take: impl FnOnce(&[u8])) -> Ended {
        let answer = lock(&self.slot.answer);
        let waited = self
            .slot
            .bell
            .wait_timeout_while(answer, patience, |answer| answer.is_none());
        let answer = waited.unwrap_or_else(PoisonError::into_inner).0.take();
        let Some((result, buffer)) = answer else {
            return Ended::Silent;
        };
        let ended = match usize::try_from(result) {
            Ok(len) if len <= buffer.len() => {
                take(&buffer[..len]);
                Ended::Bytes(len)
            }
            Ok(_) => Ended::Failed(crate::source::EIO),
            Err(_) => {
                Ended::Failed(i32::try_from(result.unsigned_abs()).unwrap_or(crate::source::EIO))
            }
        };
        self.buffers.give(buffer);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A completion of our own: its address is the result.
    fn fly(buffers: &Arc<Buffers>, gate: &Arc<Gate>, len: usize) -> (Ticket, Handle) {
        unsafe extern "C" fn release(_: Handle) {}
        unsafe extern "C" fn result(completion: Handle) -> isize {
            completion as isize
        }
        let slot = Arc::<Slot>::default();
        let mut buffer = buffers.take(len);
        buffer[..len].fill(7);
        let flight = Flight {
            release,
            result,
            buffer,
            slot: Arc::clone(&slot),
            gate: Arc::clone(gate),
        };
        gate.enter();
        (
            Ticket {
                slot,
                buffers: Arc::clone(buffers),
            },
            Box::into_raw(Box::new(flight)).cast(),
        )
    }

    #[test]
    fn an_answer_reaches_its_waiter_and_the_buffer_is_used_again() {
        let (buffers, gate) = (Arc::<Buffers>::default(), Arc::<Gate>::default());
        let (ticket, flight) = fly(&buffers, &gate, 100);
        let flight = flight as usize;
        let thread = std::thread::spawn(move || landed(50 as Handle, flight as Handle));
        let mut got = Vec::new();
        assert_eq!(
            ticket.wait(Duration::from_secs(20), |bytes| got = bytes.to_vec()),
            Ended::Bytes(50)
        );
        thread.join().expect("no panic");
        assert_eq!(got, [7; 50]);
        assert!(gate.drained());
        assert_eq!(lock(&buffers.0).len(), 1);
        assert!(buffers.take(128).len() >= 128);
        assert!(lock(&buffers.0).is_empty(), "it was the one to use");
    }

    #[test]
    fn errors_and_impossible_lengths_are_no_bytes() {
        let (buffers, gate) = (Arc::<Buffers>::default(), Arc::<Gate>::default());
        for (result, ended) in [
            (-110, Ended::Failed(110)),
            (4097, Ended::Failed(crate::source::EIO)),
        ] {
            let (ticket, flight) = fly(&buffers, &gate, 4096);
            landed(result as Handle, flight);
            assert_eq!(
                ticket.wait(Duration::from_secs(20), |_| panic!("no bytes")),
                ended
            );
        }
    }

    #[test]
    fn a_reader_that_goes_away_takes_nothing_with_it() {
        let (buffers, gate) = (Arc::<Buffers>::default(), Arc::<Gate>::default());
        let (ticket, flight) = fly(&buffers, &gate, 4096);
        assert_eq!(
            ticket.wait(Duration::from_millis(1), |_| panic!("no bytes")),
            Ended::Silent
        );
        assert_eq!(
            *lock(&gate.inside),
            1,
            "it is still in flight, with its buffer"
        );
        landed(4096 as Handle, flight);
        assert!(gate.drained());
    }

    #[test]
    fn no_more_buffers_are_kept_than_said() {
        let buffers = Buffers::default();
        (0..KEPT_BUFFERS + 1).for_each(|_| buffers.give(vec![0; 1]));
        assert_eq!(lock(&buffers.0).len(), KEPT_BUFFERS);
        let buffers = Buffers::default();
        buffers.give(vec![0; KEPT_BYTES + 1]);
        buffers.give(vec![0; KEPT_BYTES]);
        assert_eq!(lock(&buffers.0).len(), 1);
    }
}
