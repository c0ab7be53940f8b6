//! The reads in progress: a slot for each, what it has been served, and how its caller waits.
//!
//! A caller waits in one of three ways: a thread sleeps on the condvar of its slot, a thread reaps a queue, or a task has
//! left its waker. Whatever answers the read notifies all three, so that the answer does not have to know which it is.
//!
//! Example: two threads miss on one page. Slot 0 runs the fetch; slot 1 sleeps. The fetch lands, both slots get a piece,
//! and the condvar of slot 1 goes into the notifications.
//!
//! ```text
//!   free ──take──► begun ──Serve──► piece ready ──last piece, or Fail──► free
//!                    │  ▲
//!                    └──┴ sleeps, reaps or leaves its waker; the answer notifies it and clears that
//! ```

use super::notifications::Notifications;
use crate::source::Queue;
use crate::store::Lease;
use crate::sync::Condvar;
use foreread_core::event::Error;
use foreread_core::machine::MAX_READS;
use foreread_core::units::{ByteRange, FileId, LeaseId, ReadId};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// Bits of a read's number that are its slot; above them a count makes each number new.
const SLOT_BITS: u32 = 16;
const _: () = assert!(MAX_READS <= 1 << SLOT_BITS);

/// A served piece, ready to be copied.
pub struct Ready {
    pub lease: LeaseId,
    pub range: ByteRange,
    pub bytes: Lease,
    /// Every byte of the range is in `bytes`.
    pub whole: bool,
    pub last: bool,
}

/// One slot for a read in progress; used again and again.
struct Slot {
    ready: VecDeque<Ready>,
    failed: Option<Error>,
    /// Its caller sleeps and has not been notified. The notifier clears it.
    asleep: bool,
    /// The file that its caller waits for.
    file: FileId,
    /// The queue that its caller reaps. The thread that interrupts it clears it.
    reaps: Option<Weak<dyn Queue>>,
    condvar: Arc<Condvar>,
    /// The waker of the task that reads, while the task waits. The thread that wakes it clears it.
    waker: Option<Waker>,
    /// That task waits for the size of the source, and not for bytes.
    asks: bool,
}

/// See the head of this file.
#[derive(Default)]
pub struct Reads {
    slots: Vec<Slot>,
    free: Vec<u32>,
    begun: u64,
    /// Callers that sleep and have not been notified.
    sleepers: u32,
    missed_calls: u64,
}

impl Reads {
    // ---- getters ----

    /// Reads that have not returned.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Callers that sleep and have not been notified.
    pub fn sleepers(&self) -> u32 {
        self.sleepers
    }

    /// Times a sleeper found by itself that there was something to do.
    pub fn missed_calls(&self) -> u64 {
        self.missed_calls
    }

    // ---- slots ----

    /// A slot for a read. Nothing when too many wait already.
    pub fn take_slot(&mut self) -> Option<u32> {
        match self.free.pop() {
            Some(slot) => Some(slot),
            None if self.slots.len() >= MAX_READS => None,
            None => {
                self.slots.push(Slot::new());
                Some((self.slots.len() - 1) as u32)
            }
        }
    }

    /// The number of a read that begins in this slot.
    pub fn begin(&mut self, slot: u32) -> ReadId {
        ReadId(self.number().0 | u64::from(slot))
    }

    /// The number of a read that needs no slot: it has ended.
    pub fn number(&mut self) -> ReadId {
        self.begun += 1;
        ReadId(self.begun << SLOT_BITS)
    }

    /// The slot of a read that has ended, one way or another, is free.
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

    pub fn fail(&mut self, read: ReadId, error: Error, notifications: &mut Notifications) {
        if let Some(slot) = self.answered(read, notifications) {
            slot.failed = Some(error);
        }
    }

    /// The slot of a read that has an answer; its caller is notified.
    fn answered(&mut self, read: ReadId, notifications: &mut Notifications) -> Option<&mut Slot> {
        let slot = self
            .slots
            .get_mut((read.0 & ((1 << SLOT_BITS) - 1)) as usize)?;
        if std::mem::take(&mut slot.asleep) {
            self.sleepers -= 1;
            notifications.notify(Arc::clone(&slot.condvar));
        }
        if let Some(queue) = slot.reaps.take() {
            notifications.interrupt(queue);
        }
        if let Some(waker) = slot.waker.take() {
            notifications.wake(waker);
        }
        Some(slot)
    }

    /// The next piece of a read.
    #[inline]
    pub fn next_piece(&mut self, slot: u32) -> Option<Ready> {
        self.slots[slot as usize].ready.pop_front()
    }

    /// Why a read failed, if it did.
    pub fn error(&self, slot: u32) -> Option<Error> {
        self.slots[slot as usize].failed
    }

    // ---- threads that wait ----

    /// A caller goes to sleep for its read.
    pub fn falls_asleep(&mut self, slot: u32, file: FileId) -> Arc<Condvar> {
        self.sleepers += 1;
        let slot = &mut self.slots[slot as usize];
        (slot.asleep, slot.file) = (true, file);
        Arc::clone(&slot.condvar)
    }

    /// A caller is awake again. True when it was notified.
    pub fn wakes(&mut self, slot: u32) -> bool {
        let notified = !std::mem::take(&mut self.slots[slot as usize].asleep);
        self.sleepers -= u32::from(!notified);
        notified
    }

    /// A sleeper found by itself that there was something to do.
    pub fn count_missed_call(&mut self) {
        self.missed_calls += 1;
    }

    /// The caller begins or ends to reap a queue.
    pub fn set_reaps(&mut self, slot: u32, queue: Option<Weak<dyn Queue>>) {
        self.slots[slot as usize].reaps = queue;
    }

    /// Notifies at most `max` sleepers whose files `helps`.
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
            notifications.notify(Arc::clone(&slot.condvar));
        }
    }

    /// Notifies one sleeper of this file. False when there is none.
    pub fn notify_one_of(&mut self, file: FileId, notifications: &mut Notifications) -> bool {
        let before = self.sleepers;
        self.notify_sleepers(1, |of| of == file, notifications);
        self.sleepers < before
    }

    // ---- tasks that wait ----

    /// A task waits for bytes of a file.
    pub fn await_bytes(&mut self, slot: u32, file: FileId, waker: &Waker) {
        let slot = &mut self.slots[slot as usize];
        (slot.file, slot.waker) = (file, Some(waker.clone()));
    }

    /// A task waits for the size of a file.
    pub fn await_size(&mut self, slot: u32, file: FileId, waker: &Waker) {
        self.await_bytes(slot, file, waker);
        self.slots[slot as usize].asks = true;
    }

    /// The task of this slot waits for a size that has not come.
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
            slot.waker
                .take()
                .into_iter()
                .for_each(|waker| notifications.wake(waker));
        }
    }

    /// Wakes a task that waits for bytes of the file. Its slot, if there is one.
    pub fn wake_task_of(&mut self, file: FileId, notifications: &mut Notifications) -> Option<u32> {
        let waits = |slot: &Slot| slot.waker.is_some() && !slot.asks && slot.file == file;
        let index = self.slots.iter().position(waits)?;
        self.slots[index]
            .waker
            .take()
            .into_iter()
            .for_each(|waker| notifications.wake(waker));
        Some(index as u32)
    }

    /// No thread is left: every task looks again, and does what is left by itself.
    pub fn wake_all_tasks(&mut self, notifications: &mut Notifications) {
        for slot in &mut self.slots {
            slot.asks = false;
            slot.waker
                .take()
                .into_iter()
                .for_each(|waker| notifications.wake(waker));
        }
    }
}

impl Slot {
    fn new() -> Slot {
        let condvar = Arc::new(Condvar::new());
        let (ready, file) = (VecDeque::new(), FileId(0));
        Slot {
            ready,
            failed: None,
            asleep: false,
            file,
            reaps: None,
            condvar,
            waker: None,
            asks: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        reads.fail(read, Error::Short, &mut notifications);
        reads.fail(read, Error::Short, &mut notifications);
        assert_eq!((reads.sleepers(), notifications.condvars()), (0, 1));
        assert!(reads.wakes(slot), "it was notified");
        assert_eq!(reads.error(slot), Some(Error::Short));
        reads.free(slot);
        assert_eq!(
            (reads.len(), reads.take_slot(), reads.error(slot)),
            (0, Some(slot), None)
        );
        assert_ne!(reads.begin(slot), read, "each number is new");
    }
}
