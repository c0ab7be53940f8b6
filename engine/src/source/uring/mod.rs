//! Files by io_uring: the queue of a file, and whether there can be one.
//!
//! Tried by a real read of the file when it is opened, because a ring can be missing (old kernels), forbidden (seccomp, containers,
//! `kernel.io_uring_disabled`), or be there and not read. Never: the only way to read a file, or a second opinion about its bytes: what
//! comes back short or interrupted is read on by the file's own lines, and checked by them.
//!
//! ```text
//!   FileSource ──queue──► FileQueue ──► Ring (ring.rs, all that is unsafe)
//!                                 reaped: whole ──────────────► version checked ──► ended
//!                                         short, interrupted ──► read on ──┘
//! ```

mod ring;

use super::file::Core;
use super::{Ended, Queue, Transfer};
use ring::{Flight, MAX_RINGS, RING_DEPTH, Ring};
use std::sync::Arc;

/// The queue of one file. See the head of this file.
pub struct FileQueue {
    ring: Ring,
    file: Arc<Core>,
}

impl FileQueue {
    /// A queue for the file, or why there is none.
    pub fn new(file: &Arc<Core>) -> Result<FileQueue, String> {
        let ring = Ring::new().map_err(|error| match error {
            None => format!("{MAX_RINGS} rings of io_uring are in use"),
            Some(error) => refused("io_uring", error.raw_os_error().unwrap_or(libc::EIO)),
        })?;
        Ok(FileQueue { ring, file: Arc::clone(file) })
    }

    /// The same, tried out by a read.
    pub fn tried(file: &Arc<Core>) -> Result<FileQueue, String> {
        let queue = FileQueue::new(file)?;
        let mut ended = Vec::new();
        let mut trial = vec![Transfer::new(0, 0, vec![file.spare()])];
        queue.ring.submit(file, &mut trial);
        if !trial.is_empty() {
            return Err("io_uring took no read".to_string());
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

/// What was refused, and the name of the error, for `describe`.
fn refused(what: &str, errno: i32) -> String {
    match errno {
        libc::EPERM | libc::EACCES => format!("{what} is forbidden: EPERM"),
        libc::ENOSYS => format!("{what} is not known to this kernel: ENOSYS"),
        libc::ENOMEM => format!("{what} finds no memory: ENOMEM, raise ulimit -l"),
        libc::EMFILE | libc::ENFILE => format!("{what} finds no descriptor: EMFILE, raise ulimit -n"),
        _ => format!("{what}: {}", super::errno_text(errno)),
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

    fn reap(&self, wait: bool, ended: &mut Vec<Ended>) {
        let mut flights = Vec::new();
        self.ring.reap(wait, &mut flights);
        ended.extend(flights.into_iter().map(|(flight, result)| finish(flight, result)));
    }

    fn interrupt(&self) {
        self.ring.interrupt();
    }
}

/// What the kernel answered becomes what [`super::Source::read_at`] would have.
fn finish(flight: Flight, result: i32) -> Ended {
    let Flight { mut transfer, file, .. } = flight;
    let offset = transfer.offset();
    let result = match result {
        done @ 0.. => file.read_on(&mut transfer.bufs(), offset, done as usize),
        errno => match -errno {
            // Interrupted, short of something, or left behind by a thread that has exited: by this thread, from the start.
            libc::EINTR | libc::EAGAIN | libc::ECANCELED => file.read_on(&mut transfer.bufs(), offset, 0),
            errno => Err(file.failed(errno)),
        },
    };
    transfer.end(result)
}
