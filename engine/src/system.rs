//! System requests of the engine that may be refused: threads, files, and memory mappings (buffers, io_uring rings). Tests inject
//! refusals here.
//!
//! All such requests go through this module, so that a test can have the Nth request refused. A real system refuses a request when
//! resources run out, which a test cannot time. A refusal becomes an error for the caller, without a panic or a retry.
//!
//! The hook for tests is in every build, and hidden from the documentation. The hook for tests costs one atomic load per system call. A
//! cargo feature for the hook would add a public name, and a build variant that the tests do not cover.
//!
//! Example: `refuse(SystemRequest::Thread, Some(1), true)` lets one thread start and refuses all later ones.

use foreread_os::threads;
use memmap2::{MmapMut, MmapOptions};
use rustix::io::Errno;
use std::io::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The kinds of system requests that tests can have refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemRequest {
    /// A thread.
    Thread,
    /// A mapping of memory, for buffers or for a ring of io_uring.
    Mapping,
    /// Opening a file to read.
    File,
}

const KINDS: usize = 3;
/// For each kind, the number of requests until one is refused: 1 refuses the next, 0 refuses none.
static COUNTDOWN: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];
/// Whether later requests are refused too: 0 no, 1 after the countdown, 2 from now on.
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

/// For tests: refuses the request with number `nth` (the next request is number 0) and, if `lasting` is true, all later requests. `None`
/// ends all refusals.
pub fn refuse(request: SystemRequest, nth: Option<u64>, lasting: bool) {
    LASTING[request as usize].store(u64::from(lasting), Ordering::SeqCst);
    COUNTDOWN[request as usize].store(nth.map_or(0, |nth| nth + 1), Ordering::SeqCst);
}

/// For tests: whether a requested refusal has not happened yet.
pub fn is_due(request: SystemRequest) -> bool {
    COUNTDOWN[request as usize].load(Ordering::SeqCst) > 0
}

/// Fails if a test has injected a refusal for this request.
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

/// Starts a thread, with the default stack size unless one is given.
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

/// Maps anonymous memory.
pub(crate) fn map(bytes: usize) -> std::result::Result<MmapMut, Error> {
    allowed(SystemRequest::Mapping)?;
    MmapMut::map_anon(bytes)
}

/// Like [`map`], with every page already touched.
pub(crate) fn map_touched(bytes: usize) -> std::result::Result<MmapMut, Error> {
    allowed(SystemRequest::Mapping)?;
    MmapOptions::new().len(bytes).populate().map_anon()
}
