//! System requests of the engine that may be refused: threads, files, and memory mappings (buffers, io_uring rings). Tests inject refusals here.
//!
//! One place for all, so that a test can have the Nth request refused: a real system refuses when it is short, which no test
//! can arrange to the request. A refusal is an error of the caller, without a panic or a retry.
//!
//! The hook is in every build and hidden from the documentation: it costs one load beside a system call, and a feature for it
//! would be one more public name and one more build that the tests do not test.
//!
//! Example: `refuse(SystemRequest::Thread, Some(1), true)` lets one thread start and refuses all that follow.

use foreread_os::threads;
use memmap2::{MmapMut, MmapOptions};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemRequest {
    /// A thread.
    Thread,
    /// A mapping of memory, for buffers or for a ring of io_uring.
    Mapping,
    /// A file that is to be read.
    File,
}

const KINDS: usize = 3;
/// Requests until one is refused, of each kind: 1 is the next, 0 is none.
static COUNTDOWN: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];
/// Whether those that follow are refused, too: 0 no, 1 once the countdown is over, 2 from now on.
static LASTING: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

impl SystemRequest {
    /// The error of a refused request.
    fn errno(self) -> Errno {
        match self {
            SystemRequest::Thread => Errno::AGAIN,
            SystemRequest::Mapping => Errno::NOMEM,
            SystemRequest::File => Errno::MFILE,
        }
    }
}

/// Has request `nth` (from 0) from now on refused, and with `lasting` all that follow. Nothing: none any more.
pub fn refuse(request: SystemRequest, nth: Option<u64>, lasting: bool) {
    LASTING[request as usize].store(u64::from(lasting), Ordering::SeqCst);
    COUNTDOWN[request as usize].store(nth.map_or(0, |nth| nth + 1), Ordering::SeqCst);
}

/// Whether a refusal that was asked for is still to come.
pub fn is_due(request: SystemRequest) -> bool {
    COUNTDOWN[request as usize].load(Ordering::SeqCst) > 0
}

/// Fails where a test has asked for it.
pub(crate) fn allowed(request: SystemRequest) -> Result<()> {
    let (countdown, lasting) = (&COUNTDOWN[request as usize], &LASTING[request as usize]);
    match countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(1)
    }) {
        Ok(1) => {
            if lasting.load(Ordering::SeqCst) > 0 {
                lasting.store(2, Ordering::SeqCst);
            }
            Err(request.errno().into())
        }
        Err(0) if lasting.load(Ordering::SeqCst) == 2 => Err(request.errno().into()),
        _ => Ok(()),
    }
}

/// Starts a thread; with the usual stack, unless told.
pub(crate) fn spawn(
    name: &str,
    stack_bytes: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    allowed(SystemRequest::Thread)?;
    match stack_bytes {
        None => threads::spawn(name, work),
        Some(bytes) => threads::spawn_with_stack(name, bytes, work),
    }
}

/// Anonymous memory.
pub(crate) fn map(bytes: usize) -> std::result::Result<MmapMut, Error> {
    allowed(SystemRequest::Mapping)?;
    MmapMut::map_anon(bytes)
}

/// The same, with every page of it there already.
pub(crate) fn map_touched(bytes: usize) -> std::result::Result<MmapMut, Error> {
    allowed(SystemRequest::Mapping)?;
    MmapOptions::new().len(bytes).populate().map_anon()
}
