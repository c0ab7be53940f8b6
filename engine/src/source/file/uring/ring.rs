//! An io_uring ring and the table of its transfers in flight.
//!
//! The table owns the buffers **and** the file of every transfer, from before its submission until the kernel has reported its
//! completion. The table is a slice of fixed size that never moves, and no thread reads a buffer while its transfer is in flight. On
//! drop, the ring waits for all transfers. If the ring cannot wait for a transfer, it leaks the buffers of this transfer. This module
//! never decides what to read, never continues a short transfer, and does not check versions.
//!
//! Any thread may submit transfers or reap completions, but at any time at most one thread submits, and at most one thread reaps. The
//! kernel completes a transfer in the thread that submitted it, and not while a system call blocks that thread ([`has_submitted`]). If that
//! thread exits, the kernel cancels its transfers: they return ECANCELED and are submitted again.
//!
//! ```text
//!   submit ─► slot in the table ─► SQE ─► enter ─► the device ─► CQE ─► reap ─► out of the table
//!                    └── enter fails for good: broken; what the kernel has not taken is given back at once,
//!                        what it has taken is polled for, and no SQE is ever submitted again
//! ```

#![allow(unsafe_code)]

use crate::source::Transfer;
use crate::source::file::{Core, Pick};
use crate::sync::lock;
use crate::system::{self, SystemRequest};
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of transfers in flight in one ring, and the number of entries of its submission queue. The completion queue has
/// twice as many entries.
pub const RING_DEPTH: u32 = 256;
/// Maximum number of rings in one process: each uses a descriptor and about 30 KiB of kernel memory. Once this maximum is reached, files
/// that are opened later are read by threads.
pub const MAX_RINGS: usize = 64;
/// Safety timeout of a waiting reaper, in case a bug loses a wakeup.
const LOOK_UP: Duration = Duration::from_secs(1);
/// Poll interval of a broken ring, if the kernel refuses to wait.
const POLL: Duration = Duration::from_micros(200);
/// The user data of an interrupt's completion. Other completions have the transfer's slot in the table.
const INTERRUPT: u64 = u64::MAX;
/// Attempts to submit while the kernel is temporarily out of resources.
const ENTER_TRIES: u32 = 100;

thread_local! {
    /// Each transfer in flight holds a reference of the thread that submitted it.
    static SUBMITTER: Arc<()> = Arc::default();
}

/// Whether transfers are in flight that this thread has submitted.
pub fn has_submitted() -> bool {
    SUBMITTER.with(Arc::strong_count) > 1
}

static RINGS: AtomicUsize = AtomicUsize::new(0);

pub struct Flight {
    pub transfer: Transfer,
    /// The iovecs passed to the kernel.
    vectors: Vec<libc::iovec>,
    pub file: Arc<Core>,
    /// Chosen before the kernel reads.
    pub pick: Pick,
    _submitter: Arc<()>,
}

// SAFETY: the pointers in `vectors` point to memory owned by `transfer`, which is `Send`.
unsafe impl Send for Flight {}

struct FlightTable {
    places: Box<[Option<Flight>]>,
    free: Vec<u32>,
}

pub struct Ring {
    uring: IoUring,
    table: Mutex<FlightTable>,
    /// Held by the thread that submits.
    submitting: Mutex<()>,
    /// Held by the thread that takes completions.
    reaping: Mutex<()>,
    /// The kernel permanently refuses submissions.
    broken: AtomicBool,
    /// An interrupt was requested and has not been reaped.
    interrupted: AtomicBool,
}

impl Ring {
    /// Creates a ring. Returns `None` as the error if this process already has [`MAX_RINGS`] rings, otherwise the kernel's error.
    pub fn new() -> Result<Ring, Option<io::Error>> {
        if RINGS.fetch_add(1, Ordering::Relaxed) >= MAX_RINGS {
            RINGS.fetch_sub(1, Ordering::Relaxed);
            return Err(None);
        }
        // A forked child must not use it.
        let uring = system::allowed(SystemRequest::Mapping)
            .and_then(|()| IoUring::builder().dontfork().build(RING_DEPTH));
        let uring = uring.map_err(|error| {
            RINGS.fetch_sub(1, Ordering::Relaxed);
            Some(error)
        })?;
        let table = FlightTable {
            places: (0..RING_DEPTH).map(|_| None).collect(),
            free: (0..RING_DEPTH).rev().collect(),
        };
        let (submitting, reaping) = (Mutex::new(()), Mutex::new(()));
        let (broken, interrupted) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Ring {
            uring,
            table: Mutex::new(table),
            submitting,
            reaping,
            broken,
            interrupted,
        })
    }

    /// Submits transfers of the file, first to last, until the ring is full. Transfers that remain in the list were not submitted.
    pub fn submit(&self, file: &Arc<Core>, transfers: &mut Vec<Transfer>) {
        let _one = lock(&self.submitting);
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        let (places, entries) = self.place(file, transfers);
        // SAFETY: this thread holds `submitting`, and no other thread makes a submission queue without it.
        let mut queue = unsafe { self.uring.submission_shared() };
        // SAFETY: every entry reads into buffers of the table, with iovecs and a file that the table owns as well, and they
        // stay there until the kernel reports that the transfer has ended.
        let pushed = unsafe { queue.push_multiple(&entries) };
        drop(queue);
        // The queue is empty when no thread holds `submitting`, and as large as the table: there is always room.
        debug_assert!(pushed.is_ok());
        // In a release build, transfers without room are returned, to be read by threads.
        let left = if pushed.is_ok() {
            self.enter_all()
        } else {
            places.len()
        };
        if left > 0 {
            // The kernel takes them in order: it has not seen the last ones, and will not be asked again.
            let mut refused = lock(&self.table).take(&places[places.len() - left..]);
            refused.append(transfers);
            *transfers = refused;
        }
    }

    /// Puts transfers into the table and writes their entries.
    fn place(
        &self,
        file: &Arc<Core>,
        transfers: &mut Vec<Transfer>,
    ) -> (Vec<u32>, Vec<squeue::Entry>) {
        let mut table = lock(&self.table);
        let room = table.free.len().min(transfers.len());
        let (mut places, mut entries) = (Vec::with_capacity(room), Vec::with_capacity(room));
        for transfer in transfers.drain(..room) {
            let Some(place) = table.free.pop() else {
                unreachable!("counted above")
            };
            let pick = file.pick(transfer.offset(), transfer.bytes() as u64);
            let flight = Flight {
                transfer,
                vectors: Vec::new(),
                file: Arc::clone(file),
                pick,
                _submitter: SUBMITTER.with(Arc::clone),
            };
            // Pointers are taken only now, at its final place.
            let flight = table.places[place as usize].insert(flight);
            let vector = |mut buf: io::IoSliceMut<'_>| libc::iovec {
                iov_base: buf.as_mut_ptr().cast(),
                iov_len: buf.len(),
            };
            flight.vectors = flight.transfer.bufs().into_iter().map(vector).collect();
            let fd = types::Fd(file.file.as_raw_fd());
            let read = opcode::Readv::new(fd, flight.vectors.as_ptr(), flight.vectors.len() as u32);
            entries.push(
                read.offset(flight.transfer.offset())
                    .build()
                    .user_data(u64::from(place)),
            );
            places.push(place);
        }
        (places, entries)
    }

    /// Submits the queue's entries to the kernel. The caller holds `submitting`. Returns how many entries the kernel has not
    /// accepted; if there are any, the ring is broken.
    fn enter_all(&self) -> usize {
        let mut tries = 0;
        loop {
            // SAFETY: the caller holds `submitting`.
            let left = unsafe { self.uring.submission_shared() }.len();
            if left == 0 {
                return 0;
            }
            match self.uring.submit() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if passing(&error) && tries < ENTER_TRIES => std::thread::yield_now(),
                Err(_) => {
                    self.broken.store(true, Ordering::Relaxed);
                    return left;
                }
            }
            tries += 1;
        }
    }

    /// Returns true if a transfer has completed but has not been reaped yet.
    pub fn has_ended(&self) -> bool {
        let Ok(_one) = self.reaping.try_lock() else {
            return false;
        };
        // SAFETY: this thread holds `reaping`, and no other thread makes a completion queue without it.
        !unsafe { self.uring.completion_shared() }.is_empty()
    }

    /// Takes out completed transfers, with the kernel's result: a number of bytes, or a negative error number. If `wait` is true, it
    /// first waits until a transfer completes, another thread interrupts the wait, or the time [`LOOK_UP`] has passed.
    pub fn reap(&self, wait: bool, ended: &mut Vec<(Flight, i32)>) {
        loop {
            let interrupted = self.collect(ended);
            if !wait || interrupted || !ended.is_empty() || !self.wait() {
                return;
            }
        }
    }

    /// Takes out completed transfers. Returns true if an interrupt was among the completions.
    fn collect(&self, ended: &mut Vec<(Flight, i32)>) -> bool {
        let one = lock(&self.reaping);
        // SAFETY: this thread holds `reaping`.
        let queue = unsafe { self.uring.completion_shared() };
        let done: Vec<(u64, i32)> = queue
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        drop(one);
        let mut interrupted = false;
        let mut table = lock(&self.table);
        for (place, result) in done {
            if place == INTERRUPT {
                interrupted = true;
                self.interrupted.store(false, Ordering::Release);
            } else if let Some(flight) = table.places.get_mut(place as usize).and_then(Option::take)
            {
                table.free.push(place as u32);
                ended.push((flight, result));
            }
        }
        // A broken ring delivers no interrupts.
        interrupted
            || self.broken.load(Ordering::Relaxed) && self.interrupted.swap(false, Ordering::AcqRel)
    }

    /// Waits until a transfer has completed. Returns false after [`LOOK_UP`].
    fn wait(&self) -> bool {
        let span = types::Timespec::from(LOOK_UP);
        let args = types::SubmitArgs::new().timespec(&span);
        let submitter = self.uring.submitter();
        let flags = EnterFlags::GETEVENTS;
        // Nothing is submitted here: entries belong to the holder of `submitting`.
        let waited = if self.uring.params().is_feature_ext_arg() {
            // SAFETY: with EXT_ARG the argument is a `SubmitArgs`, and it lives until the call is over.
            unsafe { submitter.enter(0, 1, (flags | EnterFlags::EXT_ARG).bits(), Some(&args)) }
        } else {
            // SAFETY: no argument is passed.
            unsafe { submitter.enter::<libc::sigset_t>(0, 1, flags.bits(), None) }
        };
        match waited {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => false,
            Err(_) => {
                std::thread::sleep(POLL);
                true
            }
        }
    }

    /// Makes a waiting `reap` return; if none waits, the next call of `reap` returns at once.
    pub fn interrupt(&self) {
        if self.interrupted.swap(true, Ordering::AcqRel) {
            return;
        }
        let _one = lock(&self.submitting);
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        let entry = opcode::Nop::new().build().user_data(INTERRUPT);
        // SAFETY: this thread holds `submitting`; the entry contains no pointers.
        let pushed = unsafe { self.uring.submission_shared().push(&entry) };
        debug_assert!(pushed.is_ok());
        self.enter_all();
    }

    /// The descriptor of the ring: it is readable while completions wait to be reaped.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }

    /// Returns the number of transfers in flight.
    pub fn under_way(&self) -> usize {
        lock(&self.table).places.iter().flatten().count()
    }
}

impl FlightTable {
    fn take(&mut self, places: &[u32]) -> Vec<Transfer> {
        self.free.extend_from_slice(places);
        places
            .iter()
            .filter_map(|&place| self.places[place as usize].take())
            .map(|flight| flight.transfer)
            .collect()
    }
}

/// Whether the kernel is only temporarily out of memory, or of room for completions.
fn passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}

impl Ring {
    /// Waits, without a time limit, until no transfer is in flight, because the device may write into the buffers until then.
    pub fn drain(&self) {
        let mut ended = Vec::new();
        while self.under_way() > 0 {
            self.reap(true, &mut ended);
            ended.clear();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
        RINGS.fetch_sub(1, Ordering::Relaxed);
    }
}
