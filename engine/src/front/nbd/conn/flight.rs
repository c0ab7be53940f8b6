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

use super::answer::{Failure, Open, SHORTER, unread};
use super::{Agreement, Conn, Disconnected, PIECE_BYTES, RequestGuard, ServerShared};
use crate::front::nbd::add;
use crate::front::nbd::permits::Permit;
use crate::nbd::wire::{self, errno};
use crate::reader::OwnedRead;
use crate::sync::lock;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
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

pub struct Reply {
    open: Open,
    offset: u64,
    len: usize,
    failure: Option<Failure>,
    /// Empty until its first byte is sent.
    head: Vec<u8>,
    /// Empty if the bytes were dropped.
    bytes: Vec<u8>,
    owed: Option<Permit>,
}

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

    /// A free slot.
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

impl Reply {
    fn is_dropped(&self) -> bool {
        self.failure.is_none() && self.bytes.len() < self.len
    }

    /// Its bytes on the wire, also of those that were dropped. TLS may have taken them before.
    fn wire_bytes(&self) -> usize {
        self.head.len() + if self.failure.is_none() { self.len } else { 0 }
    }

    /// Whether it is sent, if `out` bytes of it are.
    fn is_sent(&self, out: usize) -> bool {
        !self.head.is_empty() && out >= self.wire_bytes()
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
    pub(super) fn land(&self, turn: &RequestGuard<'_>, agreement: &Agreement) {
        let slots = std::mem::take(&mut *lock(&self.woken.slots));
        if !slots.is_empty() {
            self.poll_reads(&mut lock(&self.flights), slots);
        }
        self.send_replies(turn, agreement);
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
            let failure = match result {
                Ok(got) if got == bytes.len() => None,
                Ok(_) => Some((errno::EIO, SHORTER.to_string())),
                Err(error) => Some(unread(error)),
            };
            replies.push_back(Reply {
                open: flight.open,
                offset,
                len: bytes.len(),
                bytes: if failure.is_none() { bytes } else { Vec::new() },
                failure,
                head: Vec::new(),
                owed: None,
            });
        }
    }

    /// Sends the answers in the list, unless another thread sends.
    pub(super) fn send_replies(&self, turn: &RequestGuard<'_>, agreement: &Agreement) {
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
                bytes += reply.len;
                bytes <= PIECE_BYTES
            };
            let count = replies.iter().take_while(fits).count().max(1);
            let mut batch: Vec<Reply> = replies.drain(..count).collect();
            drop(replies);
            let sent = catch_unwind(AssertUnwindSafe(|| {
                self.send_batch(turn, agreement, &mut batch)
            }));
            let sent = sent.unwrap_or_else(|_| Err(self.give_up()));
            drop(wire);
            let mut turns = self.turns();
            turns.over |= sent.is_err();
            self.leave(turns, count as u32);
        }
    }

    /// Counts the bytes of an answer against the limit for slow clients, or drops them; they are then read again.
    fn keep(&self, reply: &mut Reply) {
        if reply.owed.is_none() && !reply.is_dropped() {
            reply.owed = self.shared.owed.hold(reply.bytes.len() as u64);
            if reply.owed.is_none() {
                add(&self.shared.counters.reread_bytes, reply.bytes.len() as u64);
                reply.bytes = Vec::new();
            }
        }
    }

    /// Sends answers with as few calls as possible. The client must take all within the stall timeout.
    fn send_batch(
        &self,
        turn: &RequestGuard<'_>,
        agreement: &Agreement,
        mut batch: &mut [Reply],
    ) -> Result<(), Disconnected> {
        let (mut deadline, mut out) = (self.stall(), 0);
        while !batch.is_empty() {
            let mut ready = 0;
            while let Some(reply) = batch.get_mut(ready) {
                if reply.is_dropped() {
                    // One at a time.
                    if ready > 0 {
                        break;
                    }
                    self.recall_reply(turn, reply)?;
                }
                if reply.head.is_empty() {
                    self.begin_reply(turn, agreement, reply);
                }
                ready += 1;
            }
            let parts = batch[..ready]
                .iter()
                .flat_map(|reply| [&reply.head, &reply.bytes]);
            let mut parts: Vec<IoSlice<'_>> = parts.map(|part| IoSlice::new(part)).collect();
            let mut parts = &mut parts[..];
            IoSlice::advance_slices(&mut parts, out);
            match self.stream.send_now(parts) {
                Ok(sent) => {
                    out += sent;
                    while batch.first().is_some_and(|first| first.is_sent(out)) {
                        out -= batch[0].wire_bytes();
                        batch = &mut batch[1..];
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    turn.step_aside_for_client();
                    let mut after = lock(&self.replies);
                    let all = batch.iter_mut().chain(after.iter_mut());
                    all.for_each(|reply| self.keep(reply));
                    drop(after);
                    self.stream
                        .wait_to_send(&mut deadline)
                        .map_err(|_| self.give_up())?;
                }
                Err(_) => return Err(self.give_up()),
            }
        }
        Ok(())
    }

    /// Reads the bytes of an answer again that were dropped.
    fn recall_reply(&self, turn: &RequestGuard<'_>, reply: &mut Reply) -> Result<(), Disconnected> {
        reply.bytes.resize(reply.len, 0);
        if let Err(failure) = self.fill(turn, &mut reply.bytes, reply.offset) {
            if !reply.head.is_empty() {
                // A part of it may be sent.
                return Err(self.give_up());
            }
            (reply.bytes, reply.failure) = (Vec::new(), Some(failure));
        }
        Ok(())
    }

    /// Counts an answer before it is sent, and writes its head.
    fn begin_reply(&self, turn: &RequestGuard<'_>, agreement: &Agreement, reply: &mut Reply) {
        let cookie = reply.open.cookie;
        reply.head = match (&reply.failure, agreement.structured) {
            (None, true) => wire::data_head(cookie, reply.offset, reply.len as u32).to_vec(),
            (None, false) => wire::simple(0, cookie).to_vec(),
            (Some((error, message)), true) => wire::error_chunk(cookie, *error, message),
            (Some((error, _)), false) => wire::simple(*error, cookie).to_vec(),
        };
        if reply.failure.is_none() {
            turn.sent.update(|sent| sent + reply.len);
            self.count(reply.open, true, reply.len);
        } else {
            add(&self.shared.counters.failed_requests, 1);
            self.told(reply.open, false);
        }
    }
}
