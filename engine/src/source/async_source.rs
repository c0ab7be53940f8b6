//! Uses an async client as a source: its reads run as tasks of an async runtime and need no threads.
//!
//! This module never blocks the runtime, and dropping a reader never has to wait for the client. The client never gets the buffers of a
//! transfer: this module copies the client's bytes into them. So when a queue is dropped, all its buffers can be freed at once.
//!
//! ```text
//!   submit ──► a task for each fetch ──client.read_at──► its bytes, copied into the transfers ──► ended ──reap──►
//!                  └─ its runtime ends, or it panics ──► an error for each transfer
//!   the queue is dropped ──► the transfers are freed, the tasks are cancelled
//! ```

use super::of_panic;
use super::queue::{CompletedTransfer, PieceCopier, Queue, Transfer};
use super::{Defaults, EIO, Source, SourceError};
use crate::sync::lock;
use bytes::Bytes;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::IoSliceMut;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak, mpsc};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::AbortHandle;

/// Maximum transfers in flight: more than the limits of any engine, because refused transfers would need threads.
const DEPTH: usize = 1 << 16;
/// How long a reaping thread waits.
const WAIT: Duration = Duration::from_secs(1);

/// A source that reads with an async client. [`from_async`] turns it into a [`Source`].
pub trait AsyncSource: Send + Sync + 'static {
    /// See [`Source::size`]. Does not query the storage.
    fn size(&self) -> u64;

    /// Returns the bytes of `range`, which ends at [`AsyncSource::size`] or before. Each call is one request; several calls run
    /// concurrently. If the reply is too short, another request fetches the rest. A reply that is too long is an error.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn read_at(&self, range: Range<u64>)
    -> impl Future<Output = Result<Bytes, SourceError>> + Send;

    /// See [`Source::describe`].
    fn describe(&self) -> String;

    /// See [`Source::defaults`]. A reply arrives only as a whole here. If a megabyte takes long, use fetches smaller than the 8
    /// MiB of [`Defaults::OBJECT`]: [`Defaults::NBD`] has 1 MiB.
    fn defaults(&self) -> Defaults;

    /// See [`Source::accept`].
    fn accept(&self) -> u64 {
        self.size()
    }
}

/// Turns an [`AsyncSource`] into a source; its calls run as tasks of `runtime`.
///
/// A reader may use async reads ([`Reader::read_at_async`](crate::Reader::read_at_async)) and blocking reads at the same time. No
/// thread waits for a reply, except the threads of blocking callers, and one thread that waits for all async reads.
///
/// While reads wait, something must **drive** the runtime. A multi-threaded runtime drives itself with its worker threads; a
/// `current_thread` runtime runs only inside its `block_on`. So a task of a `current_thread` runtime must read with `read_at_async`: a
/// blocking read ([`Reader::read_at`](crate::Reader::read_at)) stops the thread that has to produce its reply, and may wait forever. A
/// task on the only worker thread of a multi-threaded runtime must use `read_at_async`, too. If the engine has no worker threads
/// ([`Options::threads`](crate::Options::threads) is 0), every read blocks. If foreread detects that a blocking read would wait for its
/// own thread, this read and all other reads of the file in flight fail at once. A program whose async tasks make blocking reads should
/// create a separate runtime for its sources, and pass the handle of that runtime.
///
/// Dropping a reader does not wait for its reads in flight: their tasks are cancelled, even if the runtime is not driven. If the
/// runtime has been shut down, reads fail with [`SourceError::Io`].
///
/// ```
/// use bytes::Bytes;
/// use foreread::source::{self, AsyncSource, Defaults, SourceError};
/// use foreread::{Options, Reader};
/// use std::ops::Range;
/// use std::sync::Arc;
///
/// /// A stub for a network client: a megabyte in which each byte is the low byte of its offset.
/// struct Client;
///
/// impl AsyncSource for Client {
///     fn size(&self) -> u64 {
///         1 << 20
///     }
///
///     async fn read_at(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
///         tokio::task::yield_now().await;
///         Ok(range.map(|at| at as u8).collect())
///     }
///
///     fn describe(&self) -> String {
///         "client".to_string()
///     }
///
///     fn defaults(&self) -> Defaults {
///         Defaults::NBD
///     }
/// }
///
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let source = source::from_async(Arc::new(Client), runtime.handle().clone());
/// let reader = Reader::open(Arc::new(source), Options::default())?;
/// let mut buf = [0; 3];
/// assert_eq!(runtime.block_on(reader.read_at_async(&mut buf, 260))?, 3);
/// assert_eq!(buf, [4, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn from_async<S: AsyncSource>(client: Arc<S>, runtime: Handle) -> FromAsync<S> {
    FromAsync { client, runtime }
}

/// A [`Source`] that reads with an [`AsyncSource`]; [`from_async`] creates it.
pub struct FromAsync<S> {
    client: Arc<S>,
    runtime: Handle,
}

impl<S: AsyncSource> Source for FromAsync<S> {
    fn size(&self) -> u64 {
        self.client.size()
    }

    /// Used for a single miss of a blocking caller, and for callers without a queue, such as the disk cache.
    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let room = bufs.iter().map(|buf| buf.len()).sum();
        let range = range_in(&*self.client, offset, room);
        let (answer, answered) = mpsc::channel();
        let client = Arc::clone(&self.client);
        start(&self.runtime, async move {
            // A dropped reader needs no reply.
            let _ = answer.send(read_whole(&*client, range).await);
        });
        let failed = |why| Err(failed(&*self.client, why));
        let pieces = wait_beside(&self.runtime, || {
            answered.recv().unwrap_or_else(|_| failed(ENDED))
        });
        let pieces = pieces.unwrap_or_else(|| failed(OWN_THREAD))?;
        Ok(PieceCopier::new(pieces.iter().map(|piece| &piece[..])).fill(bufs, 0))
    }

    fn describe(&self) -> String {
        self.client.describe()
    }

    fn defaults(&self) -> Defaults {
        self.client.defaults()
    }

    fn accept(&self) -> u64 {
        self.client.accept()
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        Some(Arc::new(TaskQueue {
            client: Arc::clone(&self.client),
            runtime: self.runtime.clone(),
            shared: Arc::default(),
        }))
    }
}

fn range_in<S: AsyncSource>(client: &S, offset: u64, room: usize) -> Range<u64> {
    let end = offset.saturating_add(room as u64).min(client.size());
    offset..end.max(offset)
}

const ENDED: &str = "the async runtime that its client uses has ended";
const OWN_THREAD: &str = "a task made a blocking read that can only complete in the task's own runtime; use read_at_async, and a runtime with worker threads";

fn failed<S: AsyncSource>(client: &S, why: &str) -> SourceError {
    SourceError::io(EIO, format!("{}: {why}", client.describe()))
}

/// Reads all bytes of a range, as the pieces that the client returned. After a short reply it requests the rest, as for
/// [`Source::read_at`]. A panic of the client becomes its error.
async fn read_whole<S: AsyncSource>(
    client: &S,
    range: Range<u64>,
) -> Result<Vec<Bytes>, SourceError> {
    let mut read = pin!(async {
        let (mut pieces, mut at, mut idle) = (Vec::new(), range.start, 0);
        while at < range.end && idle < 2 {
            let piece = client.read_at(at..range.end).await?;
            if piece.len() as u64 > range.end - at {
                return Err(super::error::too_many(
                    piece.len(),
                    (range.end - at) as usize,
                    &client.describe(),
                ));
            }
            idle = if piece.is_empty() { idle + 1 } else { 0 };
            at += piece.len() as u64;
            pieces.push(piece);
        }
        Ok(pieces)
    });
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| read.as_mut().poll(context)))
            .unwrap_or_else(|panic| std::task::Poll::Ready(Err(of_panic(&*panic))))
    })
    .await
}

/// Starts a task, and then an empty one: a tokio worker keeps its last spawned task for itself, and the thread
/// that calls this may be a worker that now blocks.
fn start(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    let started = runtime.spawn(task).abort_handle();
    if is_inside(runtime) {
        runtime.spawn(std::future::ready(()));
    }
    started
}

/// Whether this thread belongs to the runtime, or has entered it.
fn is_inside(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|current| current.id() == runtime.id())
}

/// Waits for tasks of the runtime. A worker of the runtime first passes its tasks to another thread. Returns `None` if this
/// thread is the one that must run them.
fn wait_beside<R>(runtime: &Handle, wait: impl FnOnce() -> R) -> Option<R> {
    if !is_inside(runtime) {
        return Some(wait());
    }
    let several = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    // This panics only in a thread that must not block; threads of `spawn_blocking` may block.
    let may_block = catch_unwind(|| tokio::task::block_in_place(|| ())).is_ok();
    match (may_block, several) {
        (true, true) => Some(tokio::task::block_in_place(wait)),
        (true, false) => Some(wait()),
        (false, _) => None,
    }
}

/// The queue of one file. Its tasks hold weak references, so dropping the last owner ends them.
struct TaskQueue<S> {
    client: Arc<S>,
    runtime: Handle,
    shared: Arc<TaskShared>,
}

#[derive(Default)]
struct TaskShared {
    answers: Mutex<TaskAnswers>,
    arrived: Condvar,
    /// Number of transfers that have ended and are not reaped yet; readable without the lock.
    ended: AtomicUsize,
}

#[derive(Default)]
struct TaskAnswers {
    /// Requests in flight, by number.
    requests: HashMap<u64, TaskRequest>,
    /// Requests so far.
    count: u64,
    /// Transfers in flight.
    under_way: usize,
    ended: Vec<CompletedTransfer>,
    interrupted: bool,
}

/// The transfers of one fetch, requested as one range.
struct TaskRequest {
    transfers: Vec<Transfer>,
    /// `None` until its task has been started.
    task: Option<AbortHandle>,
}

impl TaskShared {
    /// Records the reply to a request.
    fn end(&self, number: u64, answer: Result<Vec<Bytes>, SourceError>) {
        let Some(request) = lock(&self.answers).requests.remove(&number) else {
            return;
        };
        let pieces = answer.as_ref().map(Vec::as_slice).unwrap_or_default();
        let mut filled = PieceCopier::new(pieces.iter().map(|piece| &piece[..]));
        let ended: Vec<CompletedTransfer> = request
            .transfers
            .into_iter()
            .map(|mut transfer| match &answer {
                Ok(_) => {
                    let read = filled.fill(&mut transfer.bufs(), 0);
                    transfer.end(Ok(read))
                }
                Err(error) => transfer.end(Err(error.clone())),
            })
            .collect();
        let mut answers = lock(&self.answers);
        answers.under_way -= ended.len();
        answers.ended.extend(ended);
        self.ended.store(answers.ended.len(), Ordering::Release);
        drop(answers);
        self.arrived.notify_all();
    }
}

/// Guarantees that a task answers its queue, even if it is dropped.
struct OwedAnswer<S: AsyncSource> {
    client: Arc<S>,
    queue: Weak<TaskShared>,
    number: u64,
}

impl<S: AsyncSource> OwedAnswer<S> {
    fn end(&self, answer: impl FnOnce() -> Result<Vec<Bytes>, SourceError>) {
        if let Some(shared) = self.queue.upgrade() {
            shared.end(self.number, answer());
        }
    }
}

impl<S: AsyncSource> Drop for OwedAnswer<S> {
    fn drop(&mut self) {
        // Has no effect after the reply.
        self.end(|| Err(failed(&*self.client, ENDED)));
    }
}

impl<S: AsyncSource> TaskQueue<S> {
    fn begin(&self, transfers: Vec<Transfer>) {
        let Some(first) = transfers.first() else {
            return;
        };
        let room = transfers.iter().map(Transfer::bytes).sum();
        let range = range_in(&*self.client, first.offset(), room);
        let number = {
            let mut answers = lock(&self.shared.answers);
            answers.count += 1;
            answers.under_way += transfers.len();
            let number = answers.count;
            let request = TaskRequest {
                transfers,
                task: None,
            };
            answers.requests.insert(number, request);
            number
        };
        let owed = OwedAnswer {
            client: Arc::clone(&self.client),
            queue: Arc::downgrade(&self.shared),
            number,
        };
        let task = start(&self.runtime, async move {
            let read = read_whole(&*owed.client, range).await;
            owed.end(|| read);
        });
        if let Some(request) = lock(&self.shared.answers).requests.get_mut(&number) {
            request.task = Some(task);
        }
    }
}

impl<S: AsyncSource> Queue for TaskQueue<S> {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&self, transfers: &mut Vec<Transfer>) {
        let room = DEPTH.saturating_sub(lock(&self.shared.answers).under_way);
        let taken = transfers.len().min(room);
        let mut fetch: Vec<Transfer> = Vec::new();
        for transfer in transfers.drain(..taken) {
            if fetch.last().is_some_and(|last| !transfer.continues(last)) {
                self.begin(std::mem::take(&mut fetch));
            }
            fetch.push(transfer);
        }
        self.begin(fetch);
    }

    fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire) > 0
    }

    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>) {
        let nothing = |answers: &mut TaskAnswers| answers.ended.is_empty() && !answers.interrupted;
        if wait && nothing(&mut lock(&self.shared.answers)) {
            let waited = wait_beside(&self.runtime, || {
                let answers = lock(&self.shared.answers);
                drop(
                    self.shared
                        .arrived
                        .wait_timeout_while(answers, WAIT, nothing),
                );
            });
            if waited.is_none() {
                let numbers: Vec<u64> = lock(&self.shared.answers)
                    .requests
                    .keys()
                    .copied()
                    .collect();
                for number in numbers {
                    let error = failed(&*self.client, OWN_THREAD);
                    self.shared.end(number, Err(error));
                }
            }
        }
        let mut answers = lock(&self.shared.answers);
        if wait {
            answers.interrupted = false;
        }
        ended.append(&mut answers.ended);
        self.shared.ended.store(0, Ordering::Release);
    }

    fn interrupt(&self) {
        lock(&self.shared.answers).interrupted = true;
        self.shared.arrived.notify_all();
    }
}

impl<S> Drop for TaskQueue<S> {
    fn drop(&mut self) {
        let requests = std::mem::take(&mut lock(&self.shared.answers).requests);
        for task in requests.into_values().filter_map(|request| request.task) {
            task.abort();
        }
    }
}
