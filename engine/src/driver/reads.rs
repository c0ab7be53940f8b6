//! Reads in progress. Each read has a slot, which contains the data served so far and records how the caller waits.
//!
//! A caller waits in one of three ways: a thread sleeps on the condvar of its slot, a thread reaps a queue, or a task has stored its
//! waker. A thread that has an answer notifies the caller in all three ways, so it need not know in which of them the caller waits.
//!
//! Example: two threads miss on one page. The thread in slot 0 runs the fetch; the thread in slot 1 sleeps. When the fetch completes,
//! both slots get a piece, and the condvar of slot 1 is added to the notifications.
//!
//! ```text
//!   free ──take──► begun ──Serve──► piece ready ──last piece, or Fail──► free
//!                    │  ▲
//!                    └──┴ sleeps, reaps or leaves its waker; the answer notifies it and clears that
//! ```

use super::notifications::{Notification, Notifications};
use crate::error::Fault;
use crate::source::{PieceCopier, Queue};
use crate::store::Lease;
use crate::sync::{Condvar, Mutex};
use foreread_core::machine::MAX_READS;
use foreread_core::units::{ByteRange, FileId, LeaseId, OpenId, ReadId};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

/// Number of bits of a read's number that hold its slot. The bits above hold a counter that makes each number new.
const SLOT_BITS: u32 = 16;
const _: () = assert!(MAX_READS <= 1 << SLOT_BITS);

/// A piece of a read that the state machine has served and the caller can copy.
pub struct Ready {
    pub lease: LeaseId,
    pub range: ByteRange,
    pub bytes: Lease,
    /// Whether `bytes` contains every byte of the range.
    pub whole: bool,
    pub last: bool,
}

/// One slot for a read in progress; reused for later reads.
struct ReadSlot {
    ready: VecDeque<Ready>,
    failed: Option<Fault>,
    /// Whether its caller sleeps and has not been notified. The notifier clears it.
    asleep: bool,
    /// The file that its caller waits for.
    file: FileId,
    /// The queue that its caller reaps. The thread that interrupts the queue clears it.
    reaps: Option<Weak<dyn Queue>>,
    condvar: Arc<Condvar>,
    /// The waker of the reading task, while the task waits. The thread that wakes the task clears it.
    waker: Option<Waker>,
    /// Whether that task waits for the size of the source instead of bytes.
    asks: bool,
}

#[derive(Default)]
pub struct Reads {
    slots: Vec<ReadSlot>,
    free: Vec<u32>,
    begun: u64,
    /// Number of callers that sleep and have not been notified.
    pub sleepers: u32,
    /// How often a caller that had slept until its timeout found work for which it should have been notified.
    pub missed_calls: u64,
}

impl Reads {
    // ---- getters ----

    /// Number of reads that have not returned.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    // ---- slots ----

    /// Takes a slot for a read. Returns `None` if too many reads are waiting already.
    pub fn take_slot(&mut self) -> Option<u32> {
        match self.free.pop() {
            Some(slot) => Some(slot),
            None if self.slots.len() >= MAX_READS => None,
            None => {
                self.slots.push(ReadSlot::new());
                Some((self.slots.len() - 1) as u32)
            }
        }
    }

    /// The number of a read that starts in this slot.
    pub fn begin(&mut self, slot: u32) -> ReadId {
        ReadId(self.number().0 | u64::from(slot))
    }

    /// The number for a read that has already ended and so needs no slot.
    pub fn number(&mut self) -> ReadId {
        self.begun += 1;
        ReadId(self.begun << SLOT_BITS)
    }

    /// Frees the slot of a read that has ended, with or without an error.
    pub fn free(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        (entry.failed, entry.waker, entry.asks) = (None, None, false);
        entry.ready.clear();
        self.free.push(slot);
    }

    // ---- answers ----

    pub fn serve(&mut self, read: ReadId, ready: Ready, notifications: &mut Notifications) {
        if let Some(slot) = self.answered(read, notifications) {
            slot.ready.push_back(ready);
        }
    }

    pub fn fail(&mut self, read: ReadId, fault: Fault, notifications: &mut Notifications) {
        if let Some(slot) = self.answered(read, notifications) {
            slot.failed = Some(fault);
        }
    }

    /// Returns the slot of a read that has an answer, and notifies its caller.
    fn answered(
        &mut self,
        read: ReadId,
        notifications: &mut Notifications,
    ) -> Option<&mut ReadSlot> {
        let slot = self
            .slots
            .get_mut((read.0 & ((1 << SLOT_BITS) - 1)) as usize)?;
        if std::mem::take(&mut slot.asleep) {
            self.sleepers -= 1;
            notifications.add(Notification::Notify(Arc::clone(&slot.condvar)));
        }
        notifications.extend(slot.reaps.take().map(Notification::Interrupt));
        notifications.extend(slot.waker.take().map(Notification::Wake));
        Some(slot)
    }

    #[inline]
    pub fn next_piece(&mut self, slot: u32) -> Option<Ready> {
        self.slots[slot as usize].ready.pop_front()
    }

    /// Takes the error of a failed read; later calls return `None`.
    pub fn take_fault(&mut self, slot: u32) -> Option<Fault> {
        self.slots[slot as usize].failed.take()
    }

    // ---- threads that wait ----

    /// Records that a caller goes to sleep until its read continues, and returns its condvar.
    pub fn falls_asleep(&mut self, slot: u32, file: FileId) -> Arc<Condvar> {
        self.sleepers += 1;
        let slot = &mut self.slots[slot as usize];
        (slot.asleep, slot.file) = (true, file);
        Arc::clone(&slot.condvar)
    }

    /// Records that a sleeping caller is awake. Returns true if it was notified.
    pub fn wakes(&mut self, slot: u32) -> bool {
        let notified = !std::mem::take(&mut self.slots[slot as usize].asleep);
        self.sleepers -= u32::from(!notified);
        notified
    }

    /// Counts a sleeping caller that found work without having been notified.
    pub fn count_missed_call(&mut self) {
        self.missed_calls += 1;
    }

    /// Records that the caller starts or stops reaping a queue.
    pub fn set_reaps(&mut self, slot: u32, queue: Option<Weak<dyn Queue>>) {
        self.slots[slot as usize].reaps = queue;
    }

    /// Notifies at most `max` sleeping callers for whose files `helps` returns true.
    pub fn notify_sleepers(
        &mut self,
        max: usize,
        helps: impl Fn(FileId) -> bool,
        notifications: &mut Notifications,
    ) {
        let helpers = self
            .slots
            .iter_mut()
            .filter(|slot| max > 0 && slot.asleep && helps(slot.file));
        for slot in helpers.take(max) {
            slot.asleep = false;
            self.sleepers -= 1;
            notifications.add(Notification::Notify(Arc::clone(&slot.condvar)));
        }
    }

    /// Notifies one sleeping caller of this file. Returns false if there is none.
    pub fn notify_one_of(&mut self, file: FileId, notifications: &mut Notifications) -> bool {
        let before = self.sleepers;
        self.notify_sleepers(1, |of| of == file, notifications);
        self.sleepers < before
    }

    // ---- tasks that wait ----

    /// Makes a task wait for bytes of a file.
    pub fn await_bytes(&mut self, slot: u32, file: FileId, waker: &Waker) {
        let slot = &mut self.slots[slot as usize];
        (slot.file, slot.waker) = (file, Some(waker.clone()));
    }

    /// Makes a task wait for the size of a file.
    pub fn await_size(&mut self, slot: u32, file: FileId, waker: &Waker) {
        self.await_bytes(slot, file, waker);
        self.slots[slot as usize].asks = true;
    }

    /// Whether the task of this slot waits for a size that has not arrived.
    pub fn awaits_size(&self, slot: u32) -> bool {
        self.slots[slot as usize].asks
    }

    /// Wakes tasks that wait for the size of the file.
    pub fn tell_size(&mut self, file: FileId, notifications: &mut Notifications) {
        for slot in self
            .slots
            .iter_mut()
            .filter(|slot| slot.asks && slot.file == file)
        {
            slot.asks = false;
            notifications.extend(slot.waker.take().map(Notification::Wake));
        }
    }

    /// Wakes a task that waits for bytes of the file. Returns the slot of the task's read, if there is such a task.
    pub fn wake_task_of(&mut self, file: FileId, notifications: &mut Notifications) -> Option<u32> {
        let waits = |slot: &ReadSlot| slot.waker.is_some() && !slot.asks && slot.file == file;
        let index = self.slots.iter().position(waits)?;
        notifications.extend(self.slots[index].waker.take().map(Notification::Wake));
        Some(index as u32)
    }

    /// Wakes all tasks, because no worker thread is left: each task polls its read again, and does the remaining work itself.
    pub fn wake_all_tasks(&mut self, notifications: &mut Notifications) {
        for slot in &mut self.slots {
            slot.asks = false;
            notifications.extend(slot.waker.take().map(Notification::Wake));
        }
    }
}

impl ReadSlot {
    fn new() -> ReadSlot {
        ReadSlot {
            ready: VecDeque::new(),
            failed: None,
            asleep: false,
            file: FileId(0),
            reaps: None,
            condvar: Arc::new(Condvar::new()),
            waker: None,
            asks: false,
        }
    }
}

// Where a read puts its bytes: in one buffer, in several buffers, or nowhere (they stay in the cache and are lent to the caller).
//
// A buffer never receives more bytes than it has room for.

/// The destination of a read's bytes.
pub enum ReadBuf<'a, 'b> {
    /// One buffer.
    One(&'a mut [u8]),
    /// Several buffers, filled in their order.
    Many(&'a mut [IoSliceMut<'b>]),
    /// No buffer: the bytes stay in the cache.
    #[cfg(feature = "fuse")]
    Lent(&'a mut LentBytes),
}

/// The bytes of a read, which the caller reads directly in the cache instead of copying them.
#[cfg(feature = "fuse")]
#[derive(Debug)]
pub struct LentBytes {
    len: usize,
    /// The pieces, each with its position in the read.
    pieces: Vec<(usize, Lease)>,
}

#[cfg(feature = "fuse")]
impl LentBytes {
    /// Creates an empty value for a read of this many bytes.
    pub fn new(len: usize) -> LentBytes {
        LentBytes {
            len,
            pieces: Vec::new(),
        }
    }

    /// All bytes, if they are contiguous in memory.
    pub fn in_row(&self) -> Option<&[u8]> {
        let [(0, lease)] = &self.pieces[..] else {
            return None;
        };
        let bytes = lease.slices().next()?;
        (bytes.len() == self.len).then_some(bytes)
    }

    /// Copies the bytes to a buffer of the same length as the read.
    pub fn copy_to(&self, to: &mut [u8]) {
        for (at, lease) in &self.pieces {
            lease.copy_to(to.get_mut(*at..).unwrap_or_default());
        }
    }
}

impl ReadBuf<'_, '_> {
    /// Number of bytes that the destination can take.
    pub fn len(&self) -> usize {
        match self {
            ReadBuf::One(buf) => buf.len(),
            ReadBuf::Many(bufs) => {
                let lens = bufs.iter().map(|buf| buf.len());
                lens.fold(0, usize::saturating_add)
            }
            #[cfg(feature = "fuse")]
            ReadBuf::Lent(lent) => lent.len,
        }
    }

    /// The range of bytes to read into this destination, from `offset` on.
    pub fn range_from(&self, offset: u64) -> ByteRange {
        ByteRange::between(offset, offset.saturating_add(self.len() as u64))
    }

    /// Copies a piece to position `at`. Returns the number of bytes that fit and were copied.
    #[inline]
    pub fn take(&mut self, at: usize, piece: &Lease) -> usize {
        match self {
            ReadBuf::One(buf) => piece.copy_to(buf.get_mut(at..).unwrap_or_default()),
            ReadBuf::Many(bufs) => PieceCopier::new(piece.slices()).fill(bufs, at),
            #[cfg(feature = "fuse")]
            ReadBuf::Lent(lent) => {
                lent.pieces.push((at, piece.clone()));
                piece.slices().map(<[u8]>::len).sum()
            }
        }
    }
}

// Hits that took no lock, until they are reported to the machine.
//
// A thread that takes the lock reports them before anything else, so that the policy, the counters and the eviction order include
// all reads that ended before. Hits of one thread keep their order.
//
// ```text
//   note ──► one of 16 lists, by thread ──► take: every non-empty list, under the driver's lock
//              └─ its bit in `filled` is set by the first hit in it
// ```
//
// Example: thread 3 has recorded 10 hits and thread 4 has recorded 64. Thread 4 takes the driver's lock, and all 74 are reported.

/// Number of lists of hits. If there are more threads, some share a list.
const LISTS: usize = 16;
/// A list of this length is reported: the cost of the lock per hit is then below the cost of copying a page.
const MANY: usize = 64;

/// A read that was served without the lock, from published pages (cached pages that readers may copy without the lock).
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    pub open: OpenId,
    pub range: ByteRange,
}

/// Aligned so that nothing else shares its cache lines.
#[repr(align(128))]
#[derive(Default)]
struct List(Mutex<Vec<Hit>>);

/// Reads of cached pages that were served without the lock and have not been reported to the state machine yet.
#[derive(Default)]
pub struct NotedHits {
    /// Bit `n` is set if list `n` is not empty.
    filled: AtomicU32,
    lists: [List; LISTS],
}

impl NotedHits {
    /// Records a hit. Returns true if so many hits are recorded that they should be reported now.
    pub fn note(&self, hit: Hit) -> bool {
        let list = own_list();
        let mut hits = self.lists[list]
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        hits.push(hit);
        if hits.len() == 1 {
            self.filled.fetch_or(1 << list, Ordering::Release);
        }
        hits.len() >= MANY
    }

    /// Whether any hit is recorded.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.filled.load(Ordering::Acquire) != 0
    }

    /// Removes all hits and passes each to `report`; the hits of one thread keep their order.
    #[cold]
    pub fn take(&self, scratch: &mut Vec<Hit>, mut report: impl FnMut(Hit)) {
        let filled = self.filled.swap(0, Ordering::AcqRel);
        for list in (0..LISTS).filter(|list| filled >> list & 1 != 0) {
            std::mem::swap(
                &mut *self.lists[list]
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
                scratch,
            );
            scratch.drain(..).for_each(&mut report);
        }
    }
}

/// The list of the calling thread.
fn own_list() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static OWN: Cell<Option<u32>> = const { Cell::new(None) };
    }
    let own = OWN.get().unwrap_or_else(|| {
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(Some(own));
        own
    });
    own as usize % LISTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::event::Error;

    #[test]
    fn an_answer_notifies_a_sleeper_once() {
        let (mut reads, mut notifications) = (Reads::default(), Notifications::default());
        let slot = reads.take_slot().expect("room");
        let read = reads.begin(slot);
        reads.falls_asleep(slot, FileId(3));
        assert!(
            !reads.notify_one_of(FileId(4), &mut notifications),
            "it waits for another file"
        );
        reads.fail(read, Fault::Read(Error::Short), &mut notifications);
        reads.fail(read, Fault::Read(Error::Short), &mut notifications);
        assert_eq!((reads.sleepers, notifications.condvars()), (0, 1));
        assert!(reads.wakes(slot), "it was notified");
        assert_eq!(reads.take_fault(slot), Some(Fault::Read(Error::Short)));
        reads.free(slot);
        assert_eq!(
            (reads.len(), reads.take_slot(), reads.take_fault(slot)),
            (0, Some(slot), None)
        );
        assert_ne!(reads.begin(slot), read, "each number is new");
    }
}
