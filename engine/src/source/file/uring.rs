//! Reads files with io_uring: the queue of transfers of a file, and the test whether io_uring works.
//!
//! The test is a real read of the file when it is opened, because io_uring can be missing (old kernels), forbidden (seccomp,
//! containers, `kernel.io_uring_disabled`), or present but failing. A file can always be read without io_uring. Short and
//! interrupted transfers are continued and checked by the code in file.rs.
//!
//! ```text
//!   FileSource ──queue──► FileQueue ──► Ring (ring.rs, all that is unsafe)
//!                                 reaped: whole ──────────────► version checked ──► ended
//!                                         short, interrupted ──► read on ──┘
//! ```

mod ring;

use super::Core;
use crate::source::{CompletedTransfer, Queue, Transfer, errno_text};
pub use ring::has_submitted;
use ring::{Flight, MAX_RINGS, RING_DEPTH, Ring};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The queue of asynchronous reads of one file, using io_uring.
pub struct FileQueue {
    ring: Ring,
    file: Arc<Core>,
}

impl FileQueue {
    /// Creates a queue for the file, or returns the reason why it is unavailable.
    pub fn new(file: &Arc<Core>) -> Result<FileQueue, String> {
        let ring = Ring::new().map_err(|error| match error {
            None => {
                format!("all {MAX_RINGS} io_uring instances that foreread may create are in use")
            }
            Some(error) => refused("io_uring", error.raw_os_error().unwrap_or(libc::EIO)),
        })?;
        Ok(FileQueue {
            ring,
            file: Arc::clone(file),
        })
    }

    /// Like [`FileQueue::new`], but tests the queue with a read.
    pub fn tried(file: &Arc<Core>) -> Result<FileQueue, String> {
        let queue = FileQueue::new(file)?;
        let mut ended = Vec::new();
        let pages = (file.alignment.offset as usize).div_ceil(file.bounce.page_bytes());
        let mut trial = vec![Transfer::new(0, 0, vec![file.bounce.take(pages)])];
        queue.ring.submit(file, &mut trial);
        if !trial.is_empty() {
            return Err("io_uring accepted no read".to_string());
        }
        while ended.is_empty() {
            queue.ring.reap(true, &mut ended);
        }
        match ended.pop() {
            Some((_, result)) if result < 0 => Err(refused("a read by io_uring", -result)),
            _ => Ok(queue),
        }
    }
}

/// The refused call and the name of its error, for `describe`.
fn refused(what: &str, errno: i32) -> String {
    match errno {
        libc::EPERM | libc::EACCES => format!("{what} is forbidden: EPERM"),
        libc::ENOSYS => format!("{what} is not supported by this kernel: ENOSYS"),
        libc::ENOMEM => format!("{what} got too little locked memory: ENOMEM, raise ulimit -l"),
        libc::EMFILE | libc::ENFILE => {
            format!("{what} got no file descriptor: EMFILE, raise ulimit -n")
        }
        _ => format!("{what}: {}", errno_text(errno)),
    }
}

impl Queue for FileQueue {
    fn depth(&self) -> usize {
        RING_DEPTH as usize
    }

    fn submit(&self, transfers: &mut Vec<Transfer>) {
        self.ring.submit(&self.file, transfers);
    }

    fn has_ended(&self) -> bool {
        self.ring.has_ended()
    }

    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>) {
        let mut flights = Vec::new();
        self.ring.reap(wait, &mut flights);
        ended.extend(
            flights
                .into_iter()
                .map(|(flight, result)| finish(flight, result)),
        );
    }

    fn interrupt(&self) {
        self.ring.interrupt();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.descriptor())
    }
}

/// Converts the kernel's result to that of [`crate::source::Source::read_at`].
fn finish(flight: Flight, result: i32) -> CompletedTransfer {
    let Flight {
        mut transfer,
        file,
        pick,
        ..
    } = flight;
    let offset = transfer.offset();
    let result = match result {
        done @ 0.. => file.read_on(&mut transfer.bufs(), offset, done as usize, pick),
        errno => match -errno {
            // Interrupted, out of a resource, or cancelled because its thread exited: this thread reads it again from the
            // start.
            libc::EINTR | libc::EAGAIN | libc::ECANCELED => {
                file.read_on(&mut transfer.bufs(), offset, 0, pick)
            }
            errno => Err(file.io("reading", Errno::from_raw_os_error(errno))),
        },
    };
    transfer.end(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Pool;
    use crate::source::file::write::aside;
    use std::io::Write;

    const PAGE: usize = 4096;
    const PAGES: usize = 400;

    fn bytes(offset: u64, len: usize) -> Vec<u8> {
        let byte = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        (offset..offset + len as u64).map(byte).collect()
    }

    /// A file that can be read by a ring, its ring, and what keeps it. Says why not.
    fn subject() -> Option<(tempfile::NamedTempFile, Arc<Core>, Ring)> {
        let mut file = tempfile::NamedTempFile::new().expect("a scratch file");
        file.write_all(&bytes(0, PAGES * PAGE - 100)).expect("room");
        file.as_file().sync_all().expect("written");
        let core = Arc::new(Core::open(file.path()).expect("opens"));
        match FileQueue::tried(&core) {
            Ok(queue) => drop(queue),
            Err(why) => {
                println!("skipped: needs io_uring and a file system with direct I/O: {why}");
                return None;
            }
        }
        Some((file, core, Ring::new().expect("one more")))
    }

    fn transfers(pool: &Arc<Pool>, count: usize) -> Vec<Transfer> {
        let one = |n: usize| {
            Transfer::new(
                n as u64,
                (n % PAGES * PAGE) as u64,
                vec![pool.take(1), pool.take(1)],
            )
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn at_most_depth_requests_are_outstanding() {
        let Some((_file, core, ring)) = subject() else {
            return;
        };
        let pool = Pool::new(PAGE, PAGE, 0);
        let mut given = transfers(&pool, RING_DEPTH as usize + 10);
        ring.submit(&core, &mut given);
        // Some may have ended already; their places are taken until a thread reaps.
        assert_eq!((given.len(), ring.under_way()), (10, RING_DEPTH as usize));
        let mut first = given.iter().map(|transfer| transfer.offset() / PAGE as u64);
        assert_eq!(
            first.next(),
            Some(u64::from(RING_DEPTH)),
            "those at the end of the list"
        );
        let mut flights = Vec::new();
        while flights.len() < RING_DEPTH as usize {
            ring.reap(true, &mut flights);
        }
        for (flight, result) in flights {
            let (offset, ended) = (flight.transfer.offset(), finish(flight, result));
            let read = ended.result.expect("reads");
            assert_eq!(read, (2 * PAGE).min(PAGES * PAGE - 100 - offset as usize));
            let got: Vec<u8> = ended
                .transfer
                .into_chunks()
                .iter()
                .flat_map(|c| c.bytes().to_vec())
                .collect();
            assert_eq!(got[..read], bytes(offset, read), "at {offset}");
        }
        ring.submit(&core, &mut given);
        assert!(given.is_empty(), "there is room again");
    }

    /// What is under way keeps the file and the buffers; draining is over when nothing is.
    #[test]
    fn draining_ends_when_nothing_is_under_way() {
        let Some((_file, core, ring)) = subject() else {
            return;
        };
        let pool = Pool::new(PAGE, PAGE, 0);
        let before = Arc::strong_count(&core);
        ring.submit(&core, &mut transfers(&pool, 100));
        assert_eq!(
            (Arc::strong_count(&core), pool.meter().held_bytes()),
            (before + 100, 200 * PAGE as u64)
        );
        ring.drain();
        assert_eq!(
            (
                ring.under_way(),
                Arc::strong_count(&core),
                pool.meter().held_bytes()
            ),
            (0, before, 0)
        );
    }

    /// The kernel cannot complete this thread's transfers while a write or a flush blocks it.
    #[test]
    fn another_thread_blocks_while_transfers_are_in_flight() {
        let Some((_file, core, ring)) = subject() else {
            return;
        };
        let me = std::thread::current().id();
        let runs_here = || aside(|| std::thread::current().id()) == me;
        assert!(runs_here());
        ring.submit(&core, &mut transfers(&Pool::new(PAGE, PAGE, 0), 1));
        assert!(!runs_here());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| aside(|| std::thread::current().id()));
            let id = other.thread().id();
            assert_eq!(other.join().expect("no panic"), id, "it has none");
        });
        ring.drain();
        assert!(runs_here());
    }

    #[test]
    fn an_interrupt_is_met_once() {
        let Some((_file, core, ring)) = subject() else {
            return;
        };
        let mut flights = Vec::new();
        (0..3).for_each(|_| ring.interrupt());
        // Comes back at once, with nothing; without the interrupt it would look up after a second.
        ring.reap(true, &mut flights);
        assert!(flights.is_empty() && !ring.has_ended());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ring.reap(true, &mut Vec::new()));
            while !waits.is_finished() {
                ring.interrupt();
                std::thread::yield_now();
            }
        });
        drop(core);
    }

    #[test]
    fn refusals_have_messages() {
        assert_eq!(
            refused("io_uring", libc::EPERM),
            "io_uring is forbidden: EPERM"
        );
        assert_eq!(
            refused("a read by io_uring", libc::EINVAL),
            "a read by io_uring: Invalid argument"
        );
    }
}
