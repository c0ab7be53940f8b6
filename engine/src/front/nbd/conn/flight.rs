//! Reads of a client that wait for the source without a thread, and their answers.
//!
//! A turn starts several reads at once, and ends while they wait. When one of them has ended, its waker makes the client ready, and the
//! next turn sends the answers of all reads that have ended, with one call. Only the thread that holds the output lock sends. A thread
//! that finds it locked leaves its answers in the list, and the other thread sends them too.
//!
//! Example: a client has sent 10 reads of 4 KiB. One turn reads all requests with one call, two are cached, and 8 fetches go to
//! the queue of the source with one call. The two answers are sent. When three fetches end, another turn sends three answers with one call
//! and takes the client's next requests.
//!
//! ```text
//!   start ──► flight ──waker──► woken ──land──► replies ──the output lock──► sent
//!      └─ cached ──────────────────────────────────┘  └─ a slow client: kept within the limit, or dropped and read again
//! ```

use super::answer::{Open, Reply};
use super::{Conn, PIECE_BYTES, RequestGuard, ServerShared};
use crate::reader::OwnedRead;
use crate::sync::lock;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};

/// A read that waits for the source.
struct Flight {
    open: Open,
    read: OwnedRead,
}

/// The reads of a client that wait for the source, each with a slot.
#[derive(Default)]
pub struct Flights {
    slots: Vec<Option<Flight>>,
    wakers: Vec<Waker>,
    waiting: usize,
}

/// The slots whose reads may have ended.
pub struct Woken {
    shared: Arc<ServerShared>,
    number: u64,
    slots: Mutex<Vec<usize>>,
}

struct SlotWaker {
    woken: Arc<Woken>,
    slot: usize,
}

/// Answers of ended reads that are not sent yet.
pub type Replies = VecDeque<Reply>;

impl Woken {
    pub fn new(shared: &Arc<ServerShared>, number: u64) -> Woken {
        Woken {
            shared: Arc::clone(shared),
            number,
            slots: Mutex::default(),
        }
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut slots = lock(&self.woken.slots);
        slots.push(self.slot);
        let is_first = slots.len() == 1;
        drop(slots);
        if is_first {
            self.woken.shared.workers.make_ready(self.woken.number);
        }
    }
}

impl Flights {
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    fn slot(&mut self, woken: &Arc<Woken>) -> usize {
        if let Some(slot) = self.slots.iter().position(Option::is_none) {
            return slot;
        }
        let (slot, woken) = (self.slots.len(), Arc::clone(woken));
        self.slots.push(None);
        self.wakers.push(Arc::new(SlotWaker { woken, slot }).into());
        slot
    }
}

impl Conn {
    /// Starts reads. Returns false if there are none.
    pub(super) fn start(&self, starts: Vec<(Open, u64, usize)>) -> bool {
        if starts.is_empty() {
            return false;
        }
        let mut flights = lock(&self.flights);
        let mut slots = Vec::with_capacity(starts.len());
        for (open, offset, len) in starts {
            let slot = flights.slot(&self.woken);
            let waker = flights.wakers[slot].clone();
            let read = self.reader().own_read(vec![0; len], offset, waker);
            flights.slots[slot] = Some(Flight { open, read });
            flights.waiting += 1;
            slots.push(slot);
        }
        self.poll_reads(&mut flights, slots);
        true
    }

    /// Sends the answers of reads that have ended.
    pub(super) fn land(&self, turn: &RequestGuard<'_>) {
        let slots = std::mem::take(&mut *lock(&self.woken.slots));
        if !slots.is_empty() {
            self.poll_reads(&mut lock(&self.flights), slots);
        }
        self.send_replies(turn);
    }

    fn poll_reads(&self, flights: &mut Flights, slots: Vec<usize>) {
        let take = |slot: usize| Some((slot, flights.slots[slot].take()?));
        let mut polled: Vec<(usize, Flight)> = slots.into_iter().filter_map(take).collect();
        let mut reads: Vec<&mut OwnedRead> = polled
            .iter_mut()
            .map(|(_, flight)| &mut flight.read)
            .collect();
        let results = self.reader().poll_all(&mut reads);
        let mut replies = lock(&self.replies);
        for ((slot, mut flight), result) in polled.into_iter().zip(results) {
            let Poll::Ready(result) = result else {
                flights.slots[slot] = Some(flight);
                continue;
            };
            flights.waiting -= 1;
            let (bytes, offset) = (std::mem::take(&mut flight.read.buf), flight.read.offset);
            replies.push_back(Reply::of_read(flight.open, offset, bytes, result));
        }
    }

    /// Sends the answers in the list, unless another thread sends.
    pub(super) fn send_replies(&self, turn: &RequestGuard<'_>) {
        loop {
            let mut replies = lock(&self.replies);
            if replies.is_empty() {
                return;
            }
            let Some(wire) = self.free_wire() else {
                // The thread that sends looks at the list again when it has sent.
                replies.iter_mut().for_each(|reply| self.keep(reply));
                return;
            };
            let mut bytes = 0;
            let fits = |reply: &&Reply| {
                bytes += reply.len();
                bytes <= PIECE_BYTES
            };
            let count = replies.iter().take_while(fits).count().max(1);
            let mut batch: Vec<Reply> = replies.drain(..count).collect();
            drop(replies);
            let sent = catch_unwind(AssertUnwindSafe(|| self.send(turn, &mut batch)));
            let sent = sent.unwrap_or_else(|_| Err(self.give_up()));
            drop(wire);
            let mut turns = lock(&self.turns);
            turns.over |= sent.is_err();
            self.leave(turns, count as u32);
        }
    }
}
